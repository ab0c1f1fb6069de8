"""Targeted supervised contrastive learning, TSC (Li et al., CVPR 2022)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Contrast, Positive, SecondStage, Views, Weight


class TSC(MethodSettings):
    """L_i = L_KCL,i + λ L_target,i: k-positive contrast, and a pull to the class's own point t_σ(y) on the sphere.

    The K targets minimise their log-sum-exp of similarities, which is a regular simplex where the dimension allows
    one. Which class gets which is settled after every epoch by the assignment that moves the class centres least.
    Everything else is KCL's, the classifier afterwards included. (k, λ) = (6, 0.2) as released.
    """

    system: Literal["tsc"] = "tsc"
    views: Views = ("strong", "strong")
    classification_weight: Weight = 0.0
    contrast: Contrast = "targeted"
    second_stage: SecondStage = "retrain"
    second_stage_learning_rate: Positive = 1.0  # the released code has 10; chosen on held-out digits
