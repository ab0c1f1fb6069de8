"""A temperature for each class (FeatRecon, Yi et al., ICLR 2025): low for the tail, high for the head."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ltnb.losses.checks import check_class_counts, check_positive


def class_temperatures(class_counts: Tensor | Sequence[int], *, lowest: float, highest: float) -> Tensor:
    r"""Half a cosine between the rarest class and the most frequent (FeatRecon Eq. 11):

        τ_k = τ₋ + (τ₊ − τ₋) · [1 − ½(1 + cos(π (n_k − n_min)/(n_max − n_min)))]

    Classes of one size all get τ₋: none is then more frequent than another. The paper does not say whose temperature
    a pair has; `supervised_contrastive` takes the anchors', `temperature=class_temperatures(…)[y]`.

    Args:
        class_counts: (K,) training images n_k of each class, all positive.
        lowest: τ₋ > 0, of the rarest class; 0.1 in the paper.
        highest: τ₊ ≥ τ₋, of the most frequent class; not stated in the paper as we have it.

    Returns:
        (K,) float64 in [τ₋, τ₊], on the device of the counts.

    Raises:
        ValueError: wrong shape, τ₋ ≤ 0, τ₊ < τ₋ or not finite; on the CPU also a count that is not positive.
    """
    check_positive("lowest", lowest)
    check_positive("highest", highest)
    if highest < lowest:
        raise ValueError(f"highest must be at least lowest={lowest!r}, got {highest!r}")
    counts = check_class_counts(class_counts)
    fewest, spread = counts.min(), counts.max() - counts.min()
    position = torch.where(spread > 0, (counts - fewest) / spread, 0)
    return lowest + (highest - lowest) * (1 - torch.cos(math.pi * position)) / 2
