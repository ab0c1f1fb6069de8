"""What the three terms of BCE3S are made of: a vector's similarities to K others, whatever is then asked of them.

Rows of classifiers, projections and memories may have any length but 0: they are normalised here. Everything is
computed in at least float32.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.checks import check_matrix


def joint_logits(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """s_ij = w̄ⱼ·xᵢ + bⱼ, w̄ⱼ = wⱼ/‖wⱼ‖, of features (N, d), weight (K, d) and bias (K,): (N, K)."""
    check_matrix("features", features)
    check_matrix("weight", weight)
    dim, num_classes = features.shape[1], len(weight)
    if weight.shape[1] != dim:
        raise ValueError(f"weight must have rows of length {dim} like features, got shape {tuple(weight.shape)}")
    if bias.shape != (num_classes,) or not bias.is_floating_point():
        raise ValueError(
            f"bias must hold one floating-point number for each of {num_classes} classes, "
            f"got shape {tuple(bias.shape)} of {bias.dtype}"
        )
    dtype = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), bias.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    # Autocast would take this product, and those below, back to half precision.
    with torch.autocast(features.device.type, enabled=False):
        return torch.addmm(bias.to(dtype), features.to(dtype), _unit_rows("weight", weight, dtype).T)


def memory_cosines(z: Tensor, memory: Tensor, seen: Tensor | None) -> Tensor:
    """cos(zᵢ, mⱼ) of projections z (N, d) and a memory of one row a class (K, d): (N, K).

    Columns of classes that are not `seen` (K,) are finite and without gradient, whatever their rows hold.
    """
    check_matrix("z", z)
    check_matrix("memory", memory)
    dim, num_classes = z.shape[1], len(memory)
    if memory.shape[1] != dim:
        raise ValueError(f"memory must have rows of length {dim} like z, got shape {tuple(memory.shape)}")
    if seen is not None and (seen.shape != (num_classes,) or seen.dtype != torch.bool):
        raise ValueError(
            f"seen must hold one bool for each of {num_classes} classes, got shape {tuple(seen.shape)} of {seen.dtype}"
        )
    dtype = torch.promote_types(torch.promote_types(z.dtype, memory.dtype), torch.float32)
    with torch.autocast(z.device.type, enabled=False):
        if seen is not None:
            # Before anything is computed from them: unfilled rows may be NaN, which no later mask would stop.
            memory = memory.masked_fill(~seen[:, None], 1)
        return _unit_rows("z", z, dtype) @ _unit_rows("memory", memory, dtype).T


def classifier_cosines(weight: Tensor) -> Tensor:
    """w̄_k·w̄ⱼ of the rows of weight (K, d): (K, K)."""
    check_matrix("weight", weight)
    with torch.autocast(weight.device.type, enabled=False):
        rows = _unit_rows("weight", weight, torch.promote_types(weight.dtype, torch.float32))
        return rows @ rows.T


def _unit_rows(name: str, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Normalise rows; a zero row has no direction. NaN passes: it belongs in the loss, where it is seen."""
    rows = rows.to(dtype)
    if rows.device.type == "cpu":
        zero = (rows.detach() == 0).all(dim=1)
        if zero.any():
            raise ValueError(f"{name} must have rows with a direction, got zero at row {int(zero.nonzero()[0])}")
    return F.normalize(rows, dim=1)
