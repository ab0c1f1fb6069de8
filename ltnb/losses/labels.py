"""Labels of a sample: one class, or shares of several (mixed or smoothed images)."""

import torch
from torch import Tensor

from ltnb.losses.checks import check_class_indices

# Shares stored in bfloat16 (8 significant bits) sum to 1 to about 2⁻⁸.
SUM_TOLERANCE = 1e-2


def check_labels(y: Tensor, num_samples: int, num_classes: int) -> None:
    """Refuse anything but (N,) class indices in [0, K), or (N, K) floating-point rows ≥ 0 that sum to 1."""
    if not y.is_floating_point():
        check_class_indices("y", y, num_samples, num_classes)
        return
    if y.shape != (num_samples, num_classes):
        raise ValueError(
            f"y must hold labels of shape {(num_samples,)} or rows of shape {(num_samples, num_classes)}, "
            f"got shape {tuple(y.shape)} of {y.dtype}"
        )
    if y.device.type != "cpu":
        return
    # Asked this way round, NaN is wrong as well.
    right = (y >= 0).all(dim=1) & ((y.sum(dim=1, dtype=torch.float64) - 1).abs() <= SUM_TOLERANCE)
    if not right.all():
        row = int((~right).nonzero()[0])
        raise ValueError(f"y must have non-negative rows that sum to 1, got {y[row].tolist()} at row {row}")


def positive_classes(y: Tensor, num_classes: int) -> Tensor:
    """(N, K) bool: whether class j has a share in sample i."""
    if y.is_floating_point():
        return y > 0
    return y[:, None] == torch.arange(num_classes, device=y.device)


def has_seen_class(y: Tensor, seen: Tensor | None) -> Tensor:
    """(N,) bool: whether a class that has a share in sample i is among those `seen` (K,); None: all are."""
    if seen is None:
        return torch.ones(len(y), dtype=torch.bool, device=y.device)
    if y.is_floating_point():
        return ((y > 0) & seen).any(dim=1)
    return seen[y.long()]


def class_sizes(y: Tensor, num_classes: int) -> Tensor:
    """(K,) int64: how many of ``y`` (N,) are of each class.

    ``torch.bincount`` would ask the device for the largest label, and the host wait for the answer.

    >>> class_sizes(torch.tensor([2, 0, 2]), 4)
    tensor([1, 0, 2, 0])
    """
    return torch.zeros(num_classes, dtype=torch.long, device=y.device).index_add(0, y, torch.ones_like(y.long()))


def class_numbers(y: Tensor) -> Tensor:
    """(N,) int64 in [0, N): the same number for the same label of ``y`` (N,), whatever integers labels are.

    By sorting, and so without an (N, N) comparison, and without asking the device how many classes there are.

    >>> class_numbers(torch.tensor([7, -2, 7, 30]))
    tensor([1, 0, 1, 2])
    """
    in_order, order = y.sort(stable=True)
    begins = torch.zeros_like(order)
    begins[1:] = in_order[1:] != in_order[:-1]
    return torch.empty_like(order).scatter(0, order, begins.cumsum(0))


def class_totals(rows: Tensor, classes: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """(K, d) sums of ``rows`` (N, d) over each class, and (K,) how many they are, in the dtype of ``rows``.

    With gradient of the sums. They give every sample the sum over its class without an (N, N) mask, a product with
    which costs as much as all similarities.
    """
    sums = rows.new_zeros(num_classes, rows.shape[1]).index_add(0, classes, rows)
    return sums, rows.new_zeros(num_classes).index_add(0, classes, rows.new_ones(len(rows)))
