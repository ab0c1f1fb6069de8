"""Balanced contrastive learning (Zhu et al., CVPR 2022)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Contrast, Views, Weight


class BCL(MethodSettings):
    """L = λ L_LC + μ L_BCL, over three views of every image.

    - *Views*: the first is classified, the other two are contrasted with each other (their 2N projections are
      the anchors); the first never enters the contrast.
    - *Classifier*, L_LC ("logit compensation"): cross-entropy of f_y + log π_y. Linear here: which one the
      paper's CIFAR runs had is open; its code has the cosine classifier, s = 30, on ImageNet-LT and iNaturalist.
    - *Contrast*, L_BCL (``ltnb.losses.balanced_contrastive``): class-averaging in the form ``L1``, which the
      paper analyses and uses, and class-complement.
    - *Prototypes*: c_j = normalise(MLP(w_j)), w_j the raw weight of class j in the classifier, MLP a second
      head of the projector's shape. Nothing is detached: the contrast trains the classifier's weights too.
    - *Anchors* count once a sample, as printed. ``anchor_weighting: class`` lets every class count the same,
      the form for which Theorem 3 also holds at unequal class counts.
    """

    system: Literal["bcl"] = "bcl"
    views: Views = ("strong", "strong", "strong")
    classification: Classification = "logit-adjusted"
    classification_weight: Weight = 2.0  # (λ, μ) = (2, 0.6) for CIFAR in the ports that reach the paper's
    contrast_weight: Weight = 0.6  # numbers; (1, 0.35) for ImageNet-LT and iNaturalist in the official code
    contrast: Contrast = "balanced"
