"""Rotated balanced learning, RBL (Peifeng et al., ICML 2023)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Classifier


class RBL(MethodSettings):
    """f(x) = s (R W) x/‖x‖: W a fixed regular simplex, R = exp(A − Aᵀ) a rotation that is learned with the encoder.

    The angles between classes stay those of the simplex, but where it lies is no longer left to chance, so that
    features need not turn to it. The paper's loss is not known to us; here it is logit-adjusted cross-entropy.
    """

    system: Literal["rbl"] = "rbl"
    last_relu: bool = False
    classifier: Classifier = "rotated"
    classification: Classification = "logit-adjusted"
