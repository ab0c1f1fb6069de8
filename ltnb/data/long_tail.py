"""Long-tailed class counts, the subsets that have them, and the many / medium / few groups."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def long_tail_counts(largest: int, imbalance: float, num_classes: int, kind: Literal["exp"] = "exp") -> list[int]:
    """n_k = ⌊n₀ · ρ^(−k/(K−1))⌋ for k = 0 … K−1: the exponential profile of Cao et al. (LDAM, NeurIPS 2019).

    The first class has n₀ images, the last n₀/ρ, and the ratio of neighbours is constant up to rounding.

    Args:
        largest: n₀, images of the largest class.
        imbalance: ρ ≥ 1, the imbalance factor: largest over smallest class.
        num_classes: K ≥ 2.
        kind: the profile; "exp" is the one above.

    Returns:
        K counts in descending order, each at least 1.

    Raises:
        ValueError: an argument out of its range, or a class that would be left without an image.

    >>> long_tail_counts(124, 100, num_classes=10)
    [124, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    >>> sum(long_tail_counts(500, 100, num_classes=100))
    10847
    """
    if kind != "exp":
        raise ValueError(f"kind = {kind!r}: expected 'exp'")
    if largest < 1:
        raise ValueError(f"largest = {largest}: expected at least 1")
    if not 1 <= imbalance < math.inf:
        raise ValueError(f"imbalance = {imbalance}: expected a finite factor of at least 1")
    if num_classes < 2:
        raise ValueError(f"num_classes = {num_classes}: expected at least 2")
    # Where the exact value is a whole number, floats may land just below it: lift by more than their error.
    counts = [math.floor(largest * imbalance ** (-k / (num_classes - 1)) * (1 + 1e-12)) for k in range(num_classes)]
    if counts[-1] < 1:
        raise ValueError(
            f"imbalance = {imbalance:g} leaves class {counts.index(0)} of {num_classes} without an image: "
            f"expected at most largest = {largest}"
        )
    return counts


def long_tail_subset(labels: Tensor, class_counts: Sequence[int], seed: int) -> Tensor:
    """Indices of n_k samples of each class k, chosen by a seeded shuffle within the class.

    The shuffle does not depend on the counts, so subsets of one seed are nested: what a class keeps at a
    large imbalance factor, it also keeps at every smaller one.

    Args:
        labels: (N,) integer classes 0 … K−1.
        class_counts: n_k for each of the K classes.
        seed: of the shuffle.

    Returns:
        (Σ n_k,) int64 indices into `labels`, ascending.

    Raises:
        ValueError: a class has fewer samples than asked for, or a label has no count.

    >>> long_tail_subset(torch.tensor([0, 1, 0, 1, 0]), [3, 1], seed=0)
    tensor([0, 2, 3, 4])
    """
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_counts):
        raise ValueError(
            f"labels = {int(labels.min())} … {int(labels.max())}: expected 0 … {len(class_counts) - 1}, "
            "one class for each of class_counts"
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for k, count in enumerate(class_counts):
        members = torch.nonzero(labels == k).squeeze(1)
        if not 0 <= count <= len(members):
            raise ValueError(f"class_counts[{k}] = {count}: class {k} has {len(members)} samples to choose from")
        chosen.append(members[torch.randperm(len(members), generator=generator)[:count]])
    return torch.cat(chosen).sort().values


def class_groups(class_counts: Tensor | Sequence[int]) -> dict[str, Tensor]:
    """Classes with many (> 100), medium (20 to 100) and few (< 20) training images (OLTR, CVPR 2019).

    Args:
        class_counts: (K,) training images of each class.

    Returns:
        Group name to int64 class indices, ascending. A group without a class is absent.

    >>> class_groups([124, 74, 44, 26, 16, 9, 5, 3, 2, 1])
    {'many': tensor([0]), 'medium': tensor([1, 2, 3]), 'few': tensor([4, 5, 6, 7, 8, 9])}
    """
    counts = torch.as_tensor(class_counts)
    members = {"many": counts > 100, "medium": (counts >= 20) & (counts <= 100), "few": counts < 20}
    return {name: torch.nonzero(mask).squeeze(1) for name, mask in members.items() if mask.any()}
