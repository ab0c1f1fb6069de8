"""Cross-entropy, the baseline: what a long tail does when nothing is done about it."""

from typing import Literal

from ltnb.methods.settings import MethodSettings


class CrossEntropy(MethodSettings):
    """L = −log softmax(f(x))_y, averaged over images as they come: class k is seen in proportion to n_k."""

    system: Literal["ce"] = "ce"
