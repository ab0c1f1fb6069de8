"""Decoupling representation and classifier (Kang et al., ICLR 2020): three ways to mend a classifier afterwards."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Correction, Positive, SecondStage


class CRT(MethodSettings):
    """cRT: cross-entropy on images as they come, then a new linear classifier with class-balanced sampling.

    The encoder is frozen for it, its batch normalisation included. Ten epochs as in the paper; the learning rate, here
    and in LWS, is that of the first stage, and was chosen among 0.01, 0.1 and 1 on held-out digits.
    """

    system: Literal["crt"] = "crt"
    second_stage: SecondStage = "retrain"
    second_stage_learning_rate: Positive = 0.1


class LWS(MethodSettings):
    """LWS: f_k ← s_k f_k with one learned scale a class, class-balanced sampling, everything else frozen.

    Directions are kept as cross-entropy found them, only lengths are learned; s starts at 1. As in the released code
    the scale multiplies the logit, bias included.
    """

    system: Literal["lws"] = "lws"
    second_stage: SecondStage = "rescale"
    second_stage_learning_rate: Positive = 0.1


class TauNormalised(MethodSettings):
    """τ-norm: f_k = w_k·x / ‖w_k‖^τ, no bias: cross-entropy, and nothing is trained afterwards.

    Vectors of larger classes are longer; τ = 1 makes all alike, τ = 0 leaves them. The paper chooses τ on validation
    images, mostly near 0.7 on ImageNet-LT.
    """

    system: Literal["tau-norm"] = "tau-norm"
    correction: Correction = "tau-normalised"
    correction_strength: Positive = 1.0
