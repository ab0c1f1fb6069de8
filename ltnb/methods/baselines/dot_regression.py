"""A fixed simplex as classifier, and dot-regression (Yang et al., NeurIPS 2022)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Classifier


class DotRegression(MethodSettings):
    """L = ½ (w_y·h − 1)², W a fixed regular simplex (ETF) of unit vectors, h = BN(x)/‖BN(x)‖.

    The gradient draws a feature to its own vector and knows no other class: the push between classes, which a long
    tail makes one-sided, is gone. The batch normalisation before the unit sphere is the released code's, which mixes
    images as well (``views: [mixup]``). Its gradient is small: at cross-entropy's learning rate it is far from trained.
    """

    system: Literal["etf-dr"] = "etf-dr"
    feature_norm: bool = True
    classifier: Classifier = "anchored-cosine"
    classification: Classification = "dot-regression"
