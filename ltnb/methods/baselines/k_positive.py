"""k-positive contrastive learning, KCL (Kang et al., ICLR 2021)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Contrast, Positive, SecondStage, Views, Weight


class KCL(MethodSettings):
    """L_i = −1/(k+1) Σ_{p ∈ {own key} ∪ k drawn keys of the class} log [exp(z_i·k_p/τ) / Σ_keys exp(z_i·k/τ)].

    Every anchor has the same number of positives, so that large classes are not pulled together harder than small
    ones. The encoder learns from this alone (``classification_weight: 0``); a linear classifier is trained on it
    afterwards with class-balanced sampling, as cRT's. Keys come from a momentum encoder and a queue (MoCo).
    """

    system: Literal["kcl"] = "kcl"
    views: Views = ("strong", "strong")
    classification_weight: Weight = 0.0
    contrast: Contrast = "k-positive"
    second_stage: SecondStage = "retrain"
    second_stage_learning_rate: Positive = 1.0  # the released code has 10; chosen on held-out digits
