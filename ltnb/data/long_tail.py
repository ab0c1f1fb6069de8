"""Subsets with the class counts of a long tail, and the many / medium / few groups."""

from collections.abc import Sequence

import torch
from torch import Tensor


def long_tail_subset(labels: Tensor, class_counts: Sequence[int], seed: int | None) -> Tensor:
    """Indices of n_k samples of each class k, chosen by a seeded shuffle within the class; or its first n_k.

    The shuffle does not depend on the counts, so subsets of one seed are nested: what a class keeps at a
    large imbalance factor, it also keeps at every smaller one. So are the first ones.

    Args:
        labels: (N,) integer classes 0 … K−1.
        class_counts: n_k for each of the K classes.
        seed: of the shuffle; None: no shuffle, the first n_k in the order of `labels`.

    Returns:
        (Σ n_k,) int64 indices into `labels`, ascending.

    Raises:
        ValueError: a class has fewer samples than asked for, or a label has no count.

    >>> long_tail_subset(torch.tensor([0, 1, 0, 1, 0]), [3, 1], seed=0)
    tensor([0, 2, 3, 4])
    >>> long_tail_subset(torch.tensor([0, 1, 0, 1, 0]), [2, 1], seed=None)
    tensor([0, 1, 2])
    """
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_counts):
        raise ValueError(
            f"labels = {int(labels.min())} … {int(labels.max())}: expected 0 … {len(class_counts) - 1}, "
            "one class for each of class_counts"
        )
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    chosen = []
    sizes = torch.bincount(labels, minlength=len(class_counts)).tolist()
    of_classes = torch.split(torch.argsort(labels, stable=True), sizes)  # of thousands of classes, at once
    for k, (count, members) in enumerate(zip(class_counts, of_classes, strict=True)):
        if not 0 <= count <= len(members):
            raise ValueError(f"class_counts[{k}] = {count}: class {k} has {len(members)} samples to choose from")
        if generator is not None:
            members = members[torch.randperm(len(members), generator=generator)]
        chosen.append(members[:count])
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
