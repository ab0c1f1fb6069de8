"""Alignment and uniformity of unit vectors: what a contrastive loss pulls together and what it spreads."""

import math

import torch
from torch import Tensor

from ltnb.geometry.inputs import row_labels, rows
from ltnb.geometry.means import class_sums, row_norms

# Entries of the largest block of pairwise values held at once: 64 MiB in float64.
BLOCK_ENTRIES = 2**23


def _unit_rows(z: Tensor) -> Tensor:
    """`z` in float64; ValueError naming the first row not of unit length within 1 %, which bfloat16 needs."""
    z = rows("z", z)
    lengths = row_norms(z).squeeze(1)
    off = (lengths - 1).abs() > 0.01
    if off.any():
        first = int(off.nonzero()[0])
        raise ValueError(f"z must have rows of unit length, but row {first} has length {float(lengths[first]):.4g}")
    return z


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
    z = _unit_rows(z)
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
    z = _unit_rows(z)
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
