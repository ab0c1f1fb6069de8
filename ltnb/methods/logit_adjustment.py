"""Logit adjustment (Menon et al., ICLR 2021), also known as Balanced Softmax (Ren et al., NeurIPS 2020)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Correction


class LogitAdjustment(MethodSettings):
    """L = −log softmax(f(x) + τ log π)_y with the prior π_k = n_k / Σ n.

    The prior is added in training only. The network then has to explain the images beyond the prior, and
    argmax f(x) is the right decision for a balanced test set.
    """

    system: Literal["logit-adjustment"] = "logit-adjustment"
    classification: Classification = "logit-adjusted"


class PostHocAdjustment(MethodSettings):
    """Cross-entropy, and argmax of f(x) − τ log π when it is evaluated: the same correction, made afterwards."""

    system: Literal["post-hoc-adjustment"] = "post-hoc-adjustment"
    correction: Correction = "logit-adjusted"
