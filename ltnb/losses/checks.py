"""Checks of what a loss is given.

Types and shapes are checked everywhere. Values are checked on the CPU only, because reading them from an accelerator
would make the host wait for it at every step.
"""

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

# Rows normalised in bfloat16 (8 significant bits) are unit to about 2⁻⁸.
UNIT_NORM_TOLERANCE = 1e-2


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_reduction(reduction: str) -> None:
    """Refuse anything but the three ways of putting the samples' losses together."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))


def check_positive(name: str, value: float) -> None:
    """Refuse a value that is not a positive finite number; a tensor would silently get no gradient."""
    if not (isinstance(value, Real) and 0 < value < math.inf):
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


def check_non_negative(name: str, value: float) -> None:
    """Refuse a value that is not a finite number ≥ 0."""
    if not (isinstance(value, Real) and 0 <= value < math.inf):
        raise ValueError(f"{name} must be a finite number ≥ 0, got {value!r}")


def check_positive_share(name: str, value: float) -> None:
    """Refuse a value that is not a number in (0, 1]."""
    if not (isinstance(value, Real) and 0 < value <= 1):
        raise ValueError(f"{name} must be a number in (0, 1], got {value!r}")


def check_matrix(name: str, matrix: Tensor) -> None:
    """Refuse anything but a floating-point matrix with at least one row and one column."""
    if matrix.ndim != 2 or matrix.numel() == 0 or not matrix.is_floating_point():
        raise ValueError(
            f"{name} must be a non-empty floating-point matrix, got shape {tuple(matrix.shape)} of {matrix.dtype}"
        )


def check_unit_rows(name: str, rows: Tensor) -> None:
    """Refuse a matrix with a row that is not of norm 1. NaN passes: it belongs in the loss, where it is seen."""
    check_matrix(name, rows)
    if rows.device.type != "cpu":
        return
    norms = torch.linalg.vector_norm(rows.detach(), dim=1, dtype=torch.promote_types(rows.dtype, torch.float32))
    off_sphere = (norms - 1).abs() > UNIT_NORM_TOLERANCE
    if off_sphere.any():
        row = int(off_sphere.nonzero()[0])
        raise ValueError(
            f"{name} must have unit rows, got norm {norms[row]:.4g} at row {row}; "
            "normalise with torch.nn.functional.normalize(…, dim=1)"
        )


def check_class_indices(name: str, y: Tensor, num_samples: int, num_classes: int | None = None) -> None:
    """Refuse labels that are not `num_samples` integers, in [0, num_classes) where that is given."""
    if y.shape != (num_samples,) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(f"{name} must hold {num_samples} integer labels, got shape {tuple(y.shape)} of {y.dtype}")
    if num_classes is None or y.device.type != "cpu":
        return
    lowest, highest = y.aminmax()
    if lowest < 0 or highest >= num_classes:
        wrong = int(lowest) if lowest < 0 else int(highest)
        raise ValueError(f"{name} must lie in [0, {num_classes}), got {wrong}")


def check_class_counts(class_counts: Tensor | Sequence[int], num_classes: int | None = None) -> Tensor:
    """Refuse counts that are not positive, or not one for each of `num_classes` where that is given; as float64."""
    counts = torch.as_tensor(class_counts)
    if counts.ndim != 1 or len(counts) == 0 or num_classes not in (None, len(counts)):
        classes = "each class" if num_classes is None else f"each of {num_classes} classes"
        raise ValueError(f"class_counts must hold one count for {classes}, got shape {tuple(counts.shape)}")
    if counts.device.type == "cpu" and not (counts > 0).all():
        raise ValueError(f"class_counts must be positive, got {counts.tolist()}")
    return counts.double()
