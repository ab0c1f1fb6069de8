"""How many images each class of a long tail has. Without torch, so that settings can be checked at once."""

import math
from typing import Literal


def long_tail_counts(
    largest: int, imbalance: float, num_classes: int, kind: Literal["exp", "step"] = "exp"
) -> list[int]:
    """n_k = ⌊n₀ · ρ^(−k/(K−1))⌋ for k = 0 … K−1: the exponential profile of Cao et al. (LDAM, NeurIPS 2019).

    The first class has n₀ images, the last n₀/ρ, and the ratio of neighbours is constant up to rounding. With `kind`
    "step", their other profile: n_k = n₀ for the first half of the classes, k < ⌊K/2⌋, and ⌊n₀/ρ⌋ for the others, one
    more where K is odd.

    Args:
        largest: n₀, images of the largest class.
        imbalance: ρ ≥ 1, the imbalance factor: largest over smallest class.
        num_classes: K ≥ 2.
        kind: the profile, exponential or a step.

    Returns:
        K counts in descending order, each at least 1.

    Raises:
        ValueError: an argument out of its range, or a class that would be left without an image.

    >>> long_tail_counts(124, 100, num_classes=10)
    [124, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    >>> sum(long_tail_counts(500, 100, num_classes=100))
    10847
    >>> long_tail_counts(500, 100, num_classes=4, kind="step")
    [500, 500, 5, 5]
    """
    if kind not in ("exp", "step"):
        raise ValueError(f"kind = {kind!r}: expected 'exp' or 'step'")
    if largest < 1:
        raise ValueError(f"largest = {largest}: expected at least 1")
    if not 1 <= imbalance < math.inf:
        raise ValueError(f"imbalance = {imbalance}: expected a finite factor of at least 1")
    if num_classes < 2:
        raise ValueError(f"num_classes = {num_classes}: expected at least 2")
    if kind == "step":
        exponents = [-float(k >= num_classes // 2) for k in range(num_classes)]
    else:
        exponents = [-k / (num_classes - 1) for k in range(num_classes)]
    # Where the exact value is a whole number, floats may land just below it: lift by more than their error.
    counts = [math.floor(largest * imbalance**exponent * (1 + 1e-12)) for exponent in exponents]
    if counts[-1] < 1:
        raise ValueError(
            f"imbalance = {imbalance:g} leaves class {counts.index(0)} of {num_classes} without an image: "
            f"expected at most largest = {largest}"
        )
    return counts
