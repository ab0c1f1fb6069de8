"""Constraints on weights, enforced by projection after each step of the optimiser."""

import math

import torch
from torch import Tensor


@torch.no_grad()
def max_norm_(weight: Tensor, threshold: float) -> Tensor:
    """wₖ ← wₖ · min(1, t/‖wₖ‖): project every row onto the ball of radius t, in place.

    MaxNorm as in weight balancing (Alshammari et al., CVPR 2022) and in the second stage of BCE3S (t = 0.1), called
    after each step of the optimiser. Only rows that are too long change: they keep their direction, and all others
    keep their length, unlike with a normalised classifier.

    Args:
        weight: w (K, d), one row a class, floating-point; a parameter may be given as it is.
        threshold: t, positive.

    Returns:
        `weight` itself. No row is longer than t, up to rounding in its dtype.

    Raises:
        ValueError: weight is not a floating-point matrix, or threshold not a positive number.
    """
    if weight.ndim != 2 or not weight.is_floating_point():
        raise ValueError(
            f"weight must be a floating-point matrix, one row a class; got shape {tuple(weight.shape)}, "
            f"dtype {weight.dtype}"
        )
    if not 0 < threshold < math.inf:
        raise ValueError(f"threshold must be a positive number, got {threshold}")
    # In bfloat16 a length itself would be off by up to 0.4 %.
    dtype = torch.promote_types(weight.dtype, torch.float32)
    lengths = torch.linalg.vector_norm(weight, dim=1, keepdim=True, dtype=dtype)
    return weight.copy_(weight.to(dtype) * (threshold / lengths).clamp(max=1))
