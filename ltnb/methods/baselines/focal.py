"""Focal loss (Lin et al., ICCV 2017)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Weight


class Focal(MethodSettings):
    """L = −(1 − p_y)^γ log p_y, p = softmax(f(x)): images that are classified well already count less.

    γ is 1 as LDAM's released code has it for CIFAR's long tails; 2 is the value of the paper, for detection.
    """

    system: Literal["focal"] = "focal"
    classification: Classification = "focal"
    focal_gamma: Weight | None = 1.0
