"""MixUp (Zhang et al., ICLR 2018)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Views


class MixUp(MethodSettings):
    """L = −Σ_k ỹ_k log p_k on x̃ = λ x + (1 − λ) x′, ỹ = λ e_y + (1 − λ) e_y′, λ ~ Beta(1, 1) for every pair apart.

    Partners come from the same batch, so it mixes classes as they come. On long tails it is known less for its own
    accuracy than as the first stage of MiSLAS: ``second_stage: retrain, smoothing_head: 0.3`` is that with
    label-aware smoothing as released for CIFAR-10, though without its shifted batch normalisation and learned scales.
    """

    system: Literal["mixup"] = "mixup"
    views: Views = ("mixup",)
