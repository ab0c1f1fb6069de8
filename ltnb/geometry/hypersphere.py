"""Alignment and uniformity of unit vectors: what a contrastive loss pulls together and what it spreads."""

import math

import torch
from torch import Tensor

from ltnb.geometry.inputs import row_labels, unit_rows
from ltnb.geometry.means import class_sums

# Entries of the largest block of pairwise values held at once: 64 MiB in float64.
BLOCK_ENTRIES = 2**23


def alignment(z: Tensor, labels: Tensor) -> float:
    """Mean of ‖z_i − z_j‖² over all pairs i ≠ j with y_i = y_j.

    L_align with α = 2 (Wang & Isola 2020), where a positive pair is any two samples of a class. All pairs
    come from one sum a class: Σ_{i,j} ‖z_i − z_j‖² = 2 (n_k Σ_i ‖z_i‖² − ‖Σ_i z_i‖²).

    Every pair counts the same, so a class weighs n_k (n_k − 1) and the head decides; the mean within class k
    is 4 (1 − E_k/100), with E_k its `compactness` under centring "none".

    Args:
        z: (N, d) unit rows, any floating dtype.
        labels: y (N,), integers.

    Returns:
        A float in [0, 4], 0 when every class is one point; NaN if no class has two samples.

    Raises:
        ValueError: a row of z is not finite or not of unit length (the first is named); labels do not fit.
    """
    z = unit_rows("z", z)
    _, classes, counts = torch.unique(row_labels(labels, len(z)), return_inverse=True, return_counts=True)
    sums = class_sums(z, classes, len(counts))
    squares = class_sums(z.square().sum(dim=1, keepdim=True), classes, len(counts)).squeeze(1)
    distances = 2 * (counts * squares - sums.square().sum(dim=1))
    return float(distances.sum().clamp(min=0) / (counts * (counts - 1)).sum())


def uniformity(z: Tensor, *, t: float = 2.0) -> float:
    """log of the mean of exp(−t ‖z_i − z_j‖²) over all pairs i < j.

    L_uniform (Wang & Isola 2020): the logarithm of the mean Gaussian potential, at its least for points
    spread evenly over the sphere. Pairs are taken in blocks, so memory grows with N and time with N².

    Args:
        z: (N, d) unit rows, any floating dtype.
        t: the Gaussian's sharpness, positive; 2 in the paper.

    Returns:
        A float from about −4t, two poles, to 0, all points in one; NaN if there is only one.

    Raises:
        ValueError: a row of z is not finite or not of unit length (the first is named), or t ≤ 0.
    """
    if not t > 0:
        raise ValueError(f"t must be positive, got {t}")
    z = unit_rows("z", z)
    if len(z) == 1:
        return float("nan")
    squares = z.square().sum(dim=1)
    height = max(1, BLOCK_ENTRIES // len(z))
    blocks = []
    for top in range(0, len(z), height):
        # Columns start at the block's first row, so that each pair i < j lies above the diagonal once.
        upper, right = slice(top, top + height), slice(top, None)
        exponents = (z[upper] @ z[right].T).mul_(2).sub_(squares[upper, None]).sub_(squares[right]).mul_(t)
        repeated = torch.ones_like(exponents, dtype=torch.bool).tril_()
        blocks.append(exponents.masked_fill_(repeated, -math.inf).logsumexp(dim=(0, 1)))
    return float(torch.stack(blocks).logsumexp(dim=0)) - math.log(len(z) * (len(z) - 1) / 2)
