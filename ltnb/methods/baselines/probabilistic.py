"""Probabilistic contrastive learning, ProCo (Du et al., TPAMI 2024)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Contrast, Views


class ProCo(MethodSettings):
    """L = L_LA + α L_ProCo, L_ProCo = −log [π_y E_y(z) / Σ_k π_k E_k(z)], E_k(z) = E exp(z·X/τ), X ~ vMF(μ_k, κ_k).

    A contrast with infinitely many samples of every class, in closed form: each class is a von Mises-Fisher law whose
    direction and concentration follow from the running mean of its projections, so that a class of one image is no
    worse represented than any. L_LA classifies the first view; the others are contrasted, as in BCL, and α = 1.
    """

    system: Literal["proco"] = "proco"
    views: Views = ("strong", "strong", "strong")
    classification: Classification = "logit-adjusted"
    contrast: Contrast = "probabilistic"
