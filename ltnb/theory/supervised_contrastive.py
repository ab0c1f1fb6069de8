"""Lower bounds and gradients of the supervised contrastive loss, SCL, at any temperature.

For an anchor i of class y, with a = |B_y| − 1 positives p, m = |B_y^C| negatives k, and unit embeddings z:

    ℒ_i = log Σ_{k ≠ i} exp(z_i·z_k/τ) − A_i/τ,   A_i = mean_p z_i·z_p (attraction),   R_i = mean_k z_i·z_k (repulsion).

BCL's Theorem 1 (Zhu et al., CVPR 2022) bounds ℒ_i by A_i, R_i and the class counts alone; FeatRecon's Theorem 1 (Yi et
al., ICLR 2025, after Graf et al., ICML 2021) bounds Σ_i ℒ_i by a number when all classes are equally large. Both papers
have τ = 1. Expressions are sympy's; numbers are float64 of numpy, and know nothing of `ltnb.losses`, so that each can
check the other.
"""

import math
from itertools import pairwise
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class Gaps(NamedTuple):
    """What separates Σ_i ℒ_i from the balanced bound: five gaps, none ever negative. See `balanced_gaps`."""

    positives: float
    negatives: float
    anchors: float
    collapse: float
    centre: float


def anchor_bound(
    positives: sp.Expr, negatives: sp.Expr, attraction: sp.Expr, repulsion: sp.Expr, temperature: sp.Expr
) -> sp.Expr:
    """log(a + m exp((R_i − A_i)/τ)): BCL's Theorem 1 for one anchor."""
    return sp.log(positives + negatives * sp.exp((repulsion - attraction) / temperature))


def balanced_bound(num_anchors: sp.Expr, num_classes: sp.Expr, temperature: sp.Expr) -> sp.Expr:
    """N log((N/K − 1) + N(K−1)/K · exp(−K/((K−1)τ))): FeatRecon's Theorem 1, with a temperature."""
    per_class = num_anchors / num_classes
    at_simplex = sp.exp(-num_classes / ((num_classes - 1) * temperature))
    return num_anchors * sp.log((per_class - 1) + per_class * (num_classes - 1) * at_simplex)


def balanced_lower_bound(num_anchors: int, num_classes: int, temperature: float = 1.0) -> float:
    """Σ_i ℒ_i ≥ N log((N/K − 1) + N(K−1)/K · exp(−K/((K−1)τ))), for K classes of N/K anchors each.

    FeatRecon, Theorem 1 (τ = 1 there), after Graf et al. (2021). Equality exactly where every class is one point and
    the points form a regular simplex, which takes K−1 dimensions.

    Args:
        num_anchors: N, all embeddings of the batch, a multiple of K and at least 2K.
        num_classes: K, at least 2.
        temperature: τ > 0.

    Returns:
        The bound on the sum over anchors; divide by N for the mean.

    Raises:
        ValueError: K < 2, N not a multiple of K or below 2K, τ not positive and finite.
    """
    if not isinstance(num_classes, Integral) or num_classes < 2:
        raise ValueError(f"num_classes must be an integer of at least 2, got {num_classes!r}")
    if not isinstance(num_anchors, Integral) or num_anchors % num_classes or num_anchors < 2 * num_classes:
        raise ValueError(
            f"num_anchors must be a multiple of num_classes={num_classes} and at least twice that, as the bound is "
            f"for classes of equal size in which every anchor has a positive; got {num_anchors!r}"
        )
    _check_temperature(temperature)
    per_class = num_anchors // num_classes
    return num_anchors * _log_bound(
        per_class - 1, num_anchors - per_class, -num_classes / ((num_classes - 1) * temperature)
    )


def anchor_losses(z: ArrayLike, y: ArrayLike, temperature: float = 1.0) -> Array:
    """ℒ_i for each anchor (N,), 0 where it has no positive; arguments and errors as in `class_specific_lower_bound`."""
    z, y = _batch(z, y, temperature)
    similarity, same = _similarities(z, y)
    positives = same.sum(axis=1)
    logits = similarity / temperature
    np.fill_diagonal(logits, -np.inf)
    losses: Array = np.logaddexp.reduce(logits, axis=1) - _mean(similarity, same) / temperature
    return np.where(positives > 0, losses, 0.0)


def class_specific_lower_bound(z: ArrayLike, y: ArrayLike, temperature: float = 1.0) -> Array:
    """log(|B_y| − 1 + |B_y^C| exp((R_i − A_i)/τ)) for each anchor i.

    BCL, Theorem 1 (τ = 1 there); its statement for class y is the sum over the anchors of y. Equality for an anchor
    exactly where it has one and the same inner product C_i with all its positives and one and the same D_i with all its
    negatives, whatever class those are of.

    Args:
        z: (N, d) unit rows.
        y: (N,) integer labels, any class counts, at least two classes.
        temperature: τ > 0.

    Returns:
        (N,), 0 where an anchor has no positive, as its loss is.

    Raises:
        ValueError: wrong shapes, rows that are not unit, fewer than two classes, τ not positive and finite.
    """
    z, y = _batch(z, y, temperature)
    similarity, same = _similarities(z, y)
    other = y[:, None] != y
    positives, negatives = same.sum(axis=1), other.sum(axis=1)
    difference = (_mean(similarity, other) - _mean(similarity, same)) / temperature
    bound = np.logaddexp(np.log(np.maximum(positives, 1)), np.log(negatives) + difference)
    return np.where(positives > 0, bound, 0.0)


def balanced_gaps(z: ArrayLike, y: ArrayLike, temperature: float = 1.0) -> Gaps:
    """Σ_i ℒ_i − `balanced_lower_bound`, as the gaps of the five inequalities that lead from one to the other.

    With f(x) = log(a + m eˣ), n = N/K anchors a class, S_y the sum of class y's embeddings and S that of all:

        positives   Jensen over the positives of each anchor; 0 where they are all equally similar to it
        negatives   Jensen over the negatives of each anchor; 0 where they are all equally similar to it
        anchors     Jensen over the anchors, Σ_i f(x_i) ≥ N f(x̄) with x_i = (R_i − A_i)/τ; 0 where all x_i are equal
        collapse    Σ_y ‖S_y‖² ≤ K n²; 0 where each class is one point
        centre      ‖S‖² ≥ 0; 0 where the embeddings sum to zero

    Args:
        z, y, temperature: as in `class_specific_lower_bound`, with classes of one size n ≥ 2.

    Returns:
        Five numbers, not negative but for rounding.

    Raises:
        ValueError: as in `class_specific_lower_bound`, or classes of unequal size or of one anchor.
    """
    z, y = _batch(z, y, temperature)
    _, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    num_anchors, num_classes, n = len(z), len(counts), int(counts[0])
    if n < 2 or (counts != n).any():
        raise ValueError(f"y must have classes of one size of at least 2, got sizes {counts.tolist()}")
    a, m = n - 1, num_anchors - n
    similarity, same = _similarities(z, y)
    attraction = _mean(similarity, same)
    others = np.where(y[:, None] != y, similarity / temperature, -np.inf)
    level_positives = np.logaddexp(math.log(a), np.logaddexp.reduce(others, axis=1) - attraction / temperature)
    sums = np.zeros((num_classes, z.shape[1]))
    np.add.at(sums, index, z)
    within, total = float(np.square(sums).sum()), float(np.square(sums.sum(axis=0)).sum())

    def all_anchors(within: float, total: float) -> float:
        repulsion = (total - within) / (n * (num_classes - 1))
        attraction = (within - num_anchors) / a
        return num_anchors * _log_bound(a, m, (repulsion - attraction) / (num_anchors * temperature))

    # The loss and what each inequality, in turn, leaves of it.
    values = [
        float(anchor_losses(z, y, temperature).sum()),
        float(level_positives.sum()),
        float(class_specific_lower_bound(z, y, temperature).sum()),
        all_anchors(within, total),
        all_anchors(num_classes * n**2, total),
        balanced_lower_bound(num_anchors, num_classes, temperature),
    ]
    return Gaps(*(before - after for before, after in pairwise(values)))


def anchor_gradient(w: ArrayLike, y: ArrayLike, temperature: float = 1.0) -> Array:
    """∂ℒ_i/∂w_i for each anchor i, with z_i = w_i/‖w_i‖ and the other embeddings held fixed.

        1/(τ‖w_i‖) [ Σ_p (z_p − (z_i·z_p) z_i)(P_ip − 1/a) + Σ_k (z_k − (z_i·z_k) z_i) P_ik ]
        P_ik = exp(z_i·z_k/τ) / Σ_{l ≠ i} exp(z_i·z_l/τ)

    The gradient that Khosla et al. (2020) and BCL discuss.

    Args:
        w: (N, d) rows of any positive length.
        y: (N,) integer labels, at least two classes.
        temperature: τ > 0.

    Returns:
        (N, d), zero where an anchor has no positive.

    Raises:
        ValueError: wrong shapes, a zero row, fewer than two classes, τ not positive and finite.
    """
    return _gradient(w, y, temperature, as_key=False)


def gradient(w: ArrayLike, y: ArrayLike, temperature: float = 1.0) -> Array:
    """∂(Σ_j ℒ_j)/∂w_i, with w_i as an anchor and as a key of every other anchor.

    `anchor_gradient` with P_ik + P_ki in place of P_ik, and 2/a in place of 1/a. Arguments, result, errors: the same.
    """
    return _gradient(w, y, temperature, as_key=True)


def share(similarity: sp.Expr, rest: sp.Expr, temperature: sp.Expr) -> sp.Expr:
    """P = e^{s/τ}/(e^{s/τ} + Z): a key's share of the anchor's denominator, Z being that of all other keys."""
    return sp.exp(similarity / temperature) / (sp.exp(similarity / temperature) + rest)


def positive_pull(similarity: sp.Expr, key_share: sp.Expr, positives: sp.Expr) -> sp.Expr:
    """√(1 − s²) (1/a − P): how hard a positive at similarity s pulls its anchor, times τ‖w_i‖; below 0 it pushes."""
    return sp.sqrt(1 - similarity**2) * (1 / positives - key_share)


def negative_push(similarity: sp.Expr, key_share: sp.Expr) -> sp.Expr:
    """√(1 − s²) P: how hard a negative at similarity s pushes its anchor, times τ‖w_i‖."""
    return sp.sqrt(1 - similarity**2) * key_share


def hardest_negative(temperature: sp.Expr) -> sp.Expr:
    """s* = (√(τ² + 4) − τ)/2: the similarity at which √(1 − s²) e^{s/τ} is largest, 0.618 at τ = 1, 0.951 at 0.1.

    Where a negative's share of the denominator is small, this is where it pushes hardest.
    """
    return (sp.sqrt(temperature**2 + 4) - temperature) / 2


def _log_bound(positives: int, negatives: int, exponent: float) -> float:
    return float(np.logaddexp(math.log(positives), math.log(negatives) + exponent))


def _gradient(w: ArrayLike, y: ArrayLike, temperature: float, *, as_key: bool) -> Array:
    w = np.asarray(w, dtype=np.float64)
    lengths = np.linalg.norm(w, axis=-1, keepdims=True)
    if not lengths.all():
        raise ValueError("w must not have a zero row: it has no direction")
    z, y = _batch(w / lengths, y, temperature)
    similarity, same = _similarities(z, y)
    positives = same.sum(axis=1, keepdims=True)
    logits = similarity / temperature
    np.fill_diagonal(logits, -np.inf)
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    coefficients = np.where(positives > 0, shares - same / np.maximum(positives, 1), 0.0)
    if as_key:
        coefficients = coefficients + coefficients.T
    along = (coefficients * similarity).sum(axis=1, keepdims=True)
    result: Array = (coefficients @ z - along * z) / (temperature * lengths)
    return result


def _similarities(z: Array, y: Labels) -> tuple[Array, NDArray[np.bool_]]:
    """z_i·z_k (N, N), and which k are positives of i."""
    same = y[:, None] == y
    np.fill_diagonal(same, False)
    return z @ z.T, same


def _mean(similarity: Array, chosen: NDArray[np.bool_]) -> Array:
    """Mean over the chosen entries of each row, 0 where there are none."""
    mean: Array = np.where(chosen, similarity, 0.0).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
    return mean


def _batch(z: ArrayLike, y: ArrayLike, temperature: float) -> tuple[Array, Labels]:
    z, y = np.asarray(z, dtype=np.float64), np.asarray(y)
    if z.ndim != 2:
        raise ValueError(f"z must be (N, d), got shape {z.shape}")
    if y.shape != (len(z),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"y must hold {len(z)} integer labels, got shape {y.shape} of {y.dtype}")
    if len(np.unique(y)) < 2:
        raise ValueError("y must have at least two classes: without negatives there is nothing to bound")
    norms = np.linalg.norm(z, axis=1)
    if not (np.abs(norms - 1) <= 1e-6).all():
        worst = int(np.nanargmax(np.abs(norms - 1))) if np.isfinite(norms).any() else 0
        raise ValueError(f"z must have finite unit rows, got norm {norms[worst]:.4g} at row {worst}")
    _check_temperature(temperature)
    return z, y.astype(np.int64)


def _check_temperature(temperature: float) -> None:
    if not (isinstance(temperature, Real) and 0 < temperature < math.inf):
        raise ValueError(f"temperature must be a positive finite number, got {temperature!r}")
