"""Supervised contrastive learning (Khosla et al., NeurIPS 2020) beside a logit-adjusted classifier."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Contrast, Views, Weight


class SupervisedContrastive(MethodSettings):
    """L = λ L_LC + μ L_SCL: what BCL repairs, with everything else equal to BCL.

    L_LC is the logit-adjusted cross-entropy of the first view; L_SCL contrasts the projections of the other
    views (``ltnb.losses.supervised_contrastive``). λ, μ, views, temperature and projector are those of
    ``ltnb.methods.bcl``, so that a difference between the two rows is the contrastive loss and nothing else.
    """

    system: Literal["supcon"] = "supcon"
    views: Views = ("strong", "strong", "strong")
    classification: Classification = "logit-adjusted"
    classification_weight: Weight = 2.0
    contrast: Contrast = "supervised"
    contrast_weight: Weight = 0.6
