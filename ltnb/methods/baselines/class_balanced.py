"""Weights and samples by class size: the class-balanced loss (Cui et al., CVPR 2019) and class-balanced sampling."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import ClassWeighting, HalfOpenShare, Sampler


class ClassBalanced(MethodSettings):
    """L = Σ_i w_y(i) L_i / Σ_i w_y(i), w_k ∝ (1 − β)/(1 − β^n_k): every image by the inverse of its class's size.

    (1 − β^n)/(1 − β) is the effective number of n images. β = 0.9999 as in LDAM's released code and for CIFAR in most
    papers since; on a class of 124 images that is 1/n_k to a per cent. L_i is cross-entropy; the class-balanced focal
    loss is ``classification: focal, focal_gamma: 1.0``.
    """

    system: Literal["class-balanced"] = "class-balanced"
    class_weighting: ClassWeighting = "balanced"
    class_balance: HalfOpenShare = 0.9999


class Resampling(MethodSettings):
    """Cross-entropy on batches in which every class is as likely as the others: images are drawn with p ∝ 1/n_y.

    As many images an epoch as there are, with replacement: an image of a small class comes many times, and one of a
    large class may not come at all.
    """

    system: Literal["resampling"] = "resampling"
    sampler: Sampler = "class-balanced"
