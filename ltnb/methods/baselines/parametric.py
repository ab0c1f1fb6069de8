"""Parametric contrastive learning, PaCo (Cui et al., ICCV 2021)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Contrast, Views, Weight


class PaCo(MethodSettings):
    """One softmax over the K class centres and all keys; the own centre is a positive of weight β = 1, each key α < β.

    A centre's score is the classifier's logit plus the log prior, so with α = 0 it is logit adjustment with the
    samples as further negatives. That is also why ``classification_weight`` is 0: the classifier learns here. It is
    evaluated without the prior. Keys come from a momentum encoder and a queue.
    """

    system: Literal["paco"] = "paco"
    views: Views = ("strong", "strong")
    classification: Classification = "logit-adjusted"
    classification_weight: Weight = 0.0
    contrast: Contrast = "parametric"
