"""Rotated balanced learning, RBL (Peifeng et al., ICML 2023)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Classifier, Scale


class RBL(MethodSettings):
    """f(x) = s (R W) x/‖x‖: W a fixed regular simplex, R = exp(A − Aᵀ) a rotation that is learned with the encoder.

    The angles between classes stay those of the simplex, but where it lies is no longer left to chance, so that
    features need not turn to it. The paper's loss and scale are not known to us; here it is logit-adjusted cross-
    entropy, and s was chosen among 5, 10, 16 and 30 on held-out digits.
    """

    system: Literal["rbl"] = "rbl"
    last_relu: bool = False
    classifier: Classifier = "rotated"
    classifier_scale: Scale = 10.0
    classification: Classification = "logit-adjusted"
