"""What a linear classifier makes of the whole feature space: regions, and each class's share of the directions."""

import math

import torch
from torch import Tensor

from ltnb.geometry.inputs import check_num_classes, rows


def decision_regions(points: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """k(x) = argmax_k (w_k·x + b_k): the class that each point is taken for.

    A classifier by cosines decides as one with unit rows and no bias, since ‖x‖ does not change which is the largest.

    Args:
        points: x (M, d), any floating dtype.
        weight: w (K, d), K at least 2.
        bias: b (K,); none is 0.

    Returns:
        (M,) int64 in 0 … K−1; the first of several that tie.

    Raises:
        ValueError: K < 2, shapes that do not fit, or a row that is not finite (the first is named).
    """
    points, weight = rows("points", points), rows("weight", weight)
    check_num_classes(len(weight))
    if points.shape[1] != weight.shape[1]:
        raise ValueError(f"points and weight must have one dimension d, got {points.shape[1]} and {weight.shape[1]}")
    logits = points @ weight.T
    if bias is not None:
        if bias.shape != (len(weight),) or not bias.isfinite().all():
            raise ValueError(f"bias must hold {len(weight)} finite numbers, one a class; got {bias.tolist()}")
        logits += bias.detach().double()
    return logits.argmax(dim=1)


def direction_shares(weight: Tensor, *, directions: int = 36000) -> Tensor:
    """Share of the directions u of the plane with argmax_k w_k·u = k: how much of it each class takes.

    It is what points far from the origin are taken for, where a bias no longer counts. A longer vector takes more; one
    inside the others' convex hull takes nothing, and its class can be right near the origin at most. K vectors at
    equal angles and of equal length take 1/K each. The shares behind Figure 1 of PAL (Zhou et al., ICML 2022).

    Args:
        weight: w (K, 2), K at least 2.
        directions: how many directions, evenly spaced, are asked; a share is right to 1/`directions` an end.

    Returns:
        (K,) float64, adding up to 1.

    Raises:
        ValueError: K < 2, d other than 2, a row that is not finite (the first is named), or no directions.
    """
    if directions < 1:
        raise ValueError(f"directions must be at least 1, got {directions}")
    if weight.ndim != 2 or weight.shape[1] != 2:
        raise ValueError(f"weight must have shape (K, 2), got {tuple(weight.shape)}")
    # Half a step from the axes, on which vectors of simple shape tie.
    turn = 2 * math.pi * (torch.arange(directions, dtype=torch.float64, device=weight.device) + 0.5) / directions
    taken = decision_regions(torch.stack([turn.cos(), turn.sin()], dim=1), weight)
    return torch.bincount(taken, minlength=len(weight)).double() / directions
