"""The regular simplex: K directions that keep apart as far as K directions can.

BCL (Zhu et al., CVPR 2022) and FeatRecon (Yi et al., ICLR 2025, Definition 2) call ξ_1 … ξ_K in R^h a regular simplex
of radius ρ > 0 where

    (i) Σ_k ξ_k = 0,   (ii) ‖ξ_k‖ = ρ for all k,   (iii) ξ_i·ξ_j = d for all i < j, with one d.

Exact work is done here in sympy, on matrices with one vertex a row; measurements in numpy, over any number of leading
batch axes. `ltnb.geometry.regular_simplex` makes the vertices that the rest of the package uses.
"""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class ConditionErrors(NamedTuple):
    """How far K vectors are from each condition of the definition; 0 where it holds. See `condition_errors`."""

    centre: Array
    lengths: Array
    inner_products: Array


class PackingGaps(NamedTuple):
    """How far K directions are from the best packing, in two parts that are never negative. See `packing_gaps`."""

    spread: Array
    centre: Array


def squared_sum(num_classes: sp.Expr, radius: sp.Expr, inner_product: sp.Expr) -> sp.Expr:
    """‖Σ_k ξ_k‖² = K ρ² + K(K−1) d, for vectors of one length ρ with one inner product d."""
    return num_classes * radius**2 + num_classes * (num_classes - 1) * inner_product


def inner_product(num_classes: sp.Expr, radius: sp.Expr) -> sp.Expr:
    """d = −ρ²/(K−1): the only inner product at which `squared_sum` vanishes, as condition (i) asks."""
    return -(radius**2) / (num_classes - 1)


def grown(vertices: sp.Matrix) -> sp.Matrix:
    """Add one vertex and one dimension to a regular simplex on the unit sphere.

    (√(1 − 1/K²) ξ_k, −1/K) for each of the K old vertices, and the new one at (0, …, 0, 1).

    Args:
        vertices: (K, d), unit rows of a regular simplex.

    Returns:
        (K+1, d+1), unit rows of a regular simplex.
    """
    num_classes, dim = vertices.shape
    height = -sp.Rational(1, num_classes)
    lowered = (sp.sqrt(1 - height**2) * vertices).row_join(height * sp.ones(num_classes, 1))
    apex = sp.zeros(1, dim).row_join(sp.ones(1, 1))
    return lowered.col_join(apex)


def exact_vertices(num_classes: int) -> sp.Matrix:
    """ξ_1 … ξ_K (K, K−1) on the unit sphere, in exact numbers: `grown` from the two ends of a line.

    Raises:
        ValueError: K is not an integer of at least 2.
    """
    _check_num_classes(num_classes)
    vertices = sp.Matrix([[-1], [1]])
    while vertices.rows < num_classes:
        vertices = grown(vertices)
    return vertices


def largest_angle(num_classes: int) -> float:
    """arccos(−1/(K−1)) in radians: the smallest angle among K directions is never larger.

    Raises:
        ValueError: K is not an integer of at least 2.
    """
    _check_num_classes(num_classes)
    return math.acos(-1 / (num_classes - 1))


def condition_errors(vectors: ArrayLike) -> ConditionErrors:
    """‖Σ_k ξ_k‖, max_k ‖ξ_k‖ − min_k ‖ξ_k‖, and max_{i<j} ξ_i·ξ_j − min_{i<j} ξ_i·ξ_j.

    Args:
        vectors: ξ (…, K, h), one vector a row, K at least 2.

    Returns:
        Three arrays of shape (…).

    Raises:
        ValueError: fewer than two rows, or an entry that is not finite.
    """
    rows = _rows(vectors)
    lengths = np.linalg.norm(rows, axis=-1)
    return ConditionErrors(
        centre=np.linalg.norm(rows.sum(axis=-2), axis=-1),
        lengths=np.ptp(lengths, axis=-1),
        inner_products=np.ptp(_pairs(rows @ np.swapaxes(rows, -1, -2)), axis=-1),
    )


def packing_gaps(vectors: ArrayLike) -> PackingGaps:
    """max_{i<j} cos(ξ_i, ξ_j) + 1/(K−1), split into what separates it from 0.

        spread = max_{i<j} cos(ξ_i, ξ_j) − mean_{i<j} cos(ξ_i, ξ_j)
        centre = mean_{i<j} cos(ξ_i, ξ_j) + 1/(K−1) = ‖Σ_k ξ_k/‖ξ_k‖‖² / (K(K−1))

    Neither is ever negative, which is the proof that no K directions beat the regular simplex. Both are 0 only where
    all cosines are equal and the directions sum to zero: at a regular simplex.

    Args:
        vectors: ξ (…, K, h), one vector a row, K at least 2; only their directions count.

    Returns:
        Two arrays of shape (…).

    Raises:
        ValueError: fewer than two rows, an entry that is not finite, or a zero vector.
    """
    rows = _rows(vectors)
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    if not lengths.all():
        raise ValueError("vectors must not be zero: a zero vector has no direction")
    directions = rows / lengths
    num_classes = rows.shape[-2]
    cosines = _pairs(directions @ np.swapaxes(directions, -1, -2))
    # Each from its own definition, so that their sum is a check and not a tautology.
    spread = cosines.max(axis=-1) - cosines.mean(axis=-1)
    centre = np.square(directions.sum(axis=-2)).sum(axis=-1) / (num_classes * (num_classes - 1))
    return PackingGaps(spread, centre)


def largest_cosine(vectors: ArrayLike) -> Array:
    """max_{i<j} cos(ξ_i, ξ_j), the cosine of the smallest angle; arguments and errors as in `packing_gaps`."""
    gaps = packing_gaps(vectors)
    largest: Array = gaps.spread + gaps.centre - 1 / (np.shape(vectors)[-2] - 1)
    return largest


def _check_num_classes(num_classes: int) -> None:
    if not isinstance(num_classes, Integral) or num_classes < 2:
        raise ValueError(f"num_classes must be an integer of at least 2, got {num_classes!r}")


def _rows(vectors: ArrayLike) -> Array:
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim < 2 or rows.shape[-2] < 2:
        raise ValueError(f"vectors must be (…, K, h) with K of at least 2, got shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("vectors must be finite")
    return rows


def _pairs(matrices: Array) -> Array:
    """The entries above the diagonal of (…, K, K), one pair i < j a column."""
    above = np.triu_indices(matrices.shape[-1], k=1)
    pairs: Array = matrices[..., above[0], above[1]]
    return pairs
