"""Balanced contrastive learning (Zhu et al., CVPR 2022): what its Theorems 2 and 3 bound, and where tails collapse.

Symbols: K classes, N anchors, temperature τ, E = exp(−2/τ). *One head* means class counts ρn, n, …, n. x is the cosine
between the head's point and each tail's, and the tails lie symmetrically around the head.
"""

import math
from numbers import Integral
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]


def _check_integer(name: str, value: int, least: int) -> None:
    if not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def _check_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")


def _check_ratio(ratio: float) -> None:
    if not (ratio >= 0 and math.isfinite(ratio)):
        raise ValueError(f"ratio must be finite and at least 0, got {ratio!r}")


# Theorems 2 and 3


def class_averaged_bound_expression(attraction: Any, repulsion: Any, num_classes: Any, temperature: Any) -> sp.Expr:
    """log(1 + (K − 1) exp((repulsion − attraction)/τ)): the right side of Theorem 2 for one anchor."""
    return sp.log(1 + (num_classes - 1) * sp.exp((repulsion - attraction) / temperature))


def lower_bound_expression(num_classes: Any, temperature: Any) -> sp.Expr:
    """log(1 + (K − 1) exp(−K/((K − 1)τ))): the constant of Theorem 3 for one anchor."""
    return class_averaged_bound_expression(1, -sp.Integer(1) / (num_classes - 1), num_classes, temperature)


def class_averaged_bound(
    z: ArrayLike, y: ArrayLike, prototypes: ArrayLike | None = None, *, temperature: float = 1.0
) -> Array:
    """Theorem 2, anchor by anchor: ℒᵢ ≥ log(1 + (K − 1) exp((repulsionᵢ − attractionᵢ)/τ)).

        attractionᵢ = 1/|Pᵢ| Σ_{p ∈ Pᵢ} zᵢ·z_p,    repulsionᵢ = 1/(K − 1) Σ_{q ≠ y} (mean of zᵢ·z_k over keys k of q)

    with the keys of the balanced contrastive loss: Pᵢ = B_y∖{i}, and the prototype of the class where there is one.
    Equality iff all zᵢ·z_p over the positives are equal, and all zᵢ·z_k over the keys of all other classes.

    Args:
        z: (N, d) unit rows.
        y: (N,) classes in 0 … K − 1.
        prototypes: (K, d) unit rows, or None: then K is the number of classes in y, and each needs two samples.
        temperature: τ > 0.

    Returns:
        (N,) float64. The theorem sums it over the anchors of a class.

    Raises:
        ValueError: τ ≤ 0, or labels that do not fit.
    """
    _check_positive("temperature", temperature)
    similarities, _, weights, same = _keys(z, y, prototypes)
    class_means = weights * similarities
    attraction = (class_means * same).sum(axis=1)
    num_others = np.rint((weights * ~same).sum(axis=1))
    repulsion = (class_means * ~same).sum(axis=1) / np.maximum(num_others, 1)
    exponent = np.log(np.maximum(num_others, 1)) + (repulsion - attraction) / temperature
    return np.where(num_others > 0, np.logaddexp(0, exponent), 0.0)  # one class alone: nothing pushes


def lower_bound(num_anchors: int, num_classes: int, temperature: float = 1.0) -> float:
    """N log(1 + (K − 1) exp(−K/((K − 1)τ))): Theorem 3 (τ = 1 there), summed over anchors.

    The loss of samples and prototypes collapsed onto a regular simplex, for any class counts. In at least K − 1
    dimensions and with a sample of every class it is the *minimum* of the balanced contrastive loss with
    class-complement iff the class counts are equal or K = 2, and for any counts if each anchor is weighted by
    N/(K·N_y); with three classes or more, unequal counts and the paper's sum over samples the minimum lies below
    (shown in ``notebooks/theory/03_balanced_contrastive.ipynb``).

    Args:
        num_anchors: N, at least 1.
        num_classes: K, at least 2.
        temperature: τ > 0.

    Raises:
        ValueError: an argument out of range.
    """
    _check_integer("num_anchors", num_anchors, 1)
    _check_integer("num_classes", num_classes, 2)
    _check_positive("temperature", temperature)
    return num_anchors * math.log1p((num_classes - 1) * math.exp(-num_classes / ((num_classes - 1) * temperature)))


# One head, every class with its prototype at one point


def tail_cosine(head_cosine: Any, num_classes: Any) -> Any:
    """x₂ = ((K − 1)x² − 1)/(K − 2): the least mean cosine between tails whose mean cosine with the head is x.

    From ‖Σⱼ uⱼ‖² ≥ (u₁·Σⱼ uⱼ)² over the K − 1 tails, with equality iff their sum is along the head.
    """
    return ((num_classes - 1) * head_cosine**2 - 1) / (num_classes - 2)


def one_head_expression(head_cosine: Any, num_classes: Any, ratio: Any, temperature: Any) -> sp.Expr:
    """g(x) = ρ log(1 + (K−1)e^((x−1)/τ)) + (K−1) log(1 + e^((x−1)/τ) + (K−2)e^((x₂−1)/τ)), x₂ from `tail_cosine`.

    The sum over all anchors, divided by the tails' class count.
    """
    to_head = sp.exp((head_cosine - 1) / temperature)
    to_tail = sp.exp((tail_cosine(head_cosine, num_classes) - 1) / temperature)
    head = ratio * sp.log(1 + (num_classes - 1) * to_head)
    return head + (num_classes - 1) * sp.log(1 + to_head + (num_classes - 2) * to_tail)


def one_head_loss(
    head_cosine: float, num_classes: int, tail_count: int, ratio: float, temperature: float = 1.0
) -> float:
    """n·g(x): the loss, summed over anchors, of collapsed classes around the head; see `one_head_expression`.

    No other arrangement of class points whose mean cosine between head and tails is x has a lower one.

    Args:
        head_cosine: x in [−1, 1].
        num_classes: K, at least 3.
        tail_count: n, at least 1.
        ratio: ρ ≥ 0, the head's count over a tail's. 0: a class that has a prototype but no anchor.
        temperature: τ > 0.

    Raises:
        ValueError: an argument out of range.
    """
    _check_integer("num_classes", num_classes, 3)
    _check_integer("tail_count", tail_count, 1)
    _check_ratio(ratio)
    _check_positive("temperature", temperature)
    if not -1 <= head_cosine <= 1:
        raise ValueError(f"head_cosine must lie in [-1, 1], got {head_cosine!r}")
    to_head = math.exp((head_cosine - 1) / temperature)
    to_tail = math.exp((tail_cosine(head_cosine, num_classes) - 1) / temperature)
    head = ratio * math.log1p((num_classes - 1) * to_head)
    return tail_count * (head + (num_classes - 1) * math.log1p(to_head + (num_classes - 2) * to_tail))


def _slope(head_cosine: float, num_classes: int, ratio: float, temperature: float) -> float:
    """τ g′(x)/(K − 1) times a positive factor that keeps it from underflow at small τ."""
    to_head = (head_cosine - 1) / temperature
    to_tail = (tail_cosine(head_cosine, num_classes) - 1) / temperature
    largest = max(to_head, to_tail)
    head = ratio * math.exp(to_head - largest) / (1 + (num_classes - 1) * math.exp(to_head))
    rise = 2 * (num_classes - 1) * head_cosine * math.exp(to_tail - largest) + math.exp(to_head - largest)
    return head + rise / (1 + math.exp(to_head) + (num_classes - 2) * math.exp(to_tail))


def optimal_cosines(num_classes: int, ratio: float, temperature: float = 1.0) -> tuple[float, float]:
    """(cos θ₁, cos θ₂) between head and tails and among tails, at the minimum of the collapsed balanced loss.

    The only minimum, as g is strictly convex: the regular simplex iff ρ = 1, (−1, 1) iff ρ ≥ `collapse_ratio`.

    Args:
        num_classes: K, at least 3.
        ratio: ρ ≥ 0, the head's count over a tail's.
        temperature: τ > 0.

    Raises:
        ValueError: an argument out of range.
    """
    _check_integer("num_classes", num_classes, 3)
    _check_ratio(ratio)
    _check_positive("temperature", temperature)
    if _slope(-1.0, num_classes, ratio, temperature) >= 0:
        return -1.0, 1.0
    cosine = float(brentq(_slope, -1.0, 0.0, args=(num_classes, ratio, temperature), xtol=1e-15))
    return cosine, float(tail_cosine(cosine, num_classes))


def collapse_ratio_expression(num_classes: Any, antipodal: Any) -> Any:
    """R = (2(K − 1) − E)(1 + (K − 1)E) / (E(K − 1 + E)), where g′(−1) = 0."""
    others = num_classes - 1
    return (2 * others - antipodal) * (1 + others * antipodal) / (antipodal * (others + antipodal))


def collapse_ratio(num_classes: int, temperature: float = 1.0) -> float:
    """R_BCL(K, τ) = (2(K−1) − E)(1 + (K−1)E) / (E(K−1+E)), E = exp(−2/τ): tails coincide iff ρ ≥ R.

    One head, and all samples of a class at one point together with its prototype. About 2(K − 1) for many classes, and
    2 exp(2/τ) at a low temperature. With prototypes on their own: `free_prototype_collapse_ratio`.

    Args:
        num_classes: K, at least 3.
        temperature: τ > 0.

    Returns:
        A float above 1; infinity where E is below the least float64.

    Raises:
        ValueError: an argument out of range.
    """
    _check_integer("num_classes", num_classes, 3)
    _check_positive("temperature", temperature)
    antipodal = math.exp(-2 / temperature)
    return float(collapse_ratio_expression(num_classes, antipodal)) if antipodal > 0 else math.inf


# One head, samples and prototypes free


def collapse_block(num_classes: Any, tail_count: Any, ratio: Any, antipodal: Any) -> sp.Matrix:
    """Quadratic form of the loss where tails leave the collapsed point in different directions, times τ.

    At collapse the head's samples and prototype lie at e, those of all tails at −e. Move all samples of tail j by
    s αⱼ w and its prototype by p αⱼ w with Σⱼ αⱼ = 0 and w ⊥ e. The loss then changes by ½ ‖α‖² (s, p) B (s, p)ᵀ/τ plus
    higher orders, and B (2, 2) is returned: collapse is the minimum iff B has no negative eigenvalue.
    """
    k, n, rho, e = map(sp.sympify, (num_classes, tail_count, ratio, antipodal))
    denominator = k - 1 + e  # D of a tail's anchor, over exp(1/τ); the head's is 1 + (K−1)E
    pull = (k - 2 + e) / denominator  # what it pulls its positives with, all together
    push = 1 / ((n + 1) * denominator)  # what it pushes one key of another tail with
    from_head = rho * n * e / ((n + 1) * (1 + (k - 1) * e))  # what all anchors of the head push one key of a tail with
    sample = pull / n - push * (2 * n + (k - 2) * (2 * n + 1)) + e / denominator + from_head
    prototype = pull - (k - 2) * n * push + from_head
    both = -(pull / n + push)
    return sp.Matrix([[n * sample, n * both], [n * both, prototype]])


def free_collapse_ratio_expression(num_classes: Any, tail_count: Any, antipodal: Any) -> sp.Expr:
    """The ρ at which det B = 0 for B = `collapse_block`, the larger of two roots."""
    k, n, e = map(sp.sympify, (num_classes, tail_count, antipodal))
    block = collapse_block(k, n, 0, e)
    sample, both, prototype = block[0, 0] / n, block[0, 1] / n, block[1, 1]
    push = (sp.sqrt((sample - prototype) ** 2 + 4 * n * both**2) - sample - prototype) / 2
    return push * (n + 1) * (1 + (k - 1) * e) / (n * e)


def free_prototype_collapse_ratio(num_classes: int, tail_count: int, temperature: float = 1.0) -> float:
    """The ratio ρ from which collapsed tails minimise the balanced contrastive loss with free samples and prototypes.

    One head of ρn samples, K − 1 tails of n, a prototype a class that is a key and no anchor, every vector free on the
    sphere. Collapse (the head's samples and prototype at one point, those of all tails opposite) is a local minimum iff
    it is the global one iff ρ ≥ R(K, n, τ), the larger root of det `collapse_block` = 0. It tends to `collapse_ratio`
    for large n.

    Args:
        num_classes: K, at least 3.
        tail_count: n, at least 1.
        temperature: τ > 0.

    Returns:
        A float above 1; infinity where exp(−2/τ) is below the least float64.

    Raises:
        ValueError: an argument out of range.
    """
    _check_integer("num_classes", num_classes, 3)
    _check_integer("tail_count", tail_count, 1)
    _check_positive("temperature", temperature)
    n, e = tail_count, math.exp(-2 / temperature)
    if e == 0:
        return math.inf
    denominator = num_classes - 1 + e
    pull, push = (num_classes - 2 + e) / denominator, 1 / ((n + 1) * denominator)
    sample = pull / n - push * (2 * n + (num_classes - 2) * (2 * n + 1)) + e / denominator
    prototype = pull - (num_classes - 2) * n * push
    root = math.hypot(sample - prototype, 2 * math.sqrt(n) * (pull / n + push))
    return (root - sample - prototype) / 2 * (n + 1) * (1 + (num_classes - 1) * e) / (n * e)


# Gradients, and a certificate that a minimum is global


def _unit_rows(name: str, rows: ArrayLike) -> Array:
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or not np.allclose(np.linalg.norm(rows, axis=1), 1, rtol=0, atol=1e-6):
        raise ValueError(f"{name} must hold one or more unit rows, got shape {rows.shape} or other lengths")
    return rows


def _keys(
    z: ArrayLike, y: ArrayLike, prototypes: ArrayLike | None
) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.bool_]]:
    """Similarities (N, M) of anchors and keys, key classes (M,), weights 1/(keys of the class), same-class mask.

    An anchor is no key of its own: weight 0.
    """
    anchors = _unit_rows("z", z)
    classes = np.asarray(y)
    if classes.shape != (len(anchors),) or not np.issubdtype(classes.dtype, np.integer):
        raise ValueError(f"y must hold one integer for each row of z, got shapes {classes.shape} and {anchors.shape}")
    keys, key_classes = anchors, classes
    if prototypes is not None:
        centres = _unit_rows("prototypes", prototypes)
        if centres.shape[1] != anchors.shape[1]:
            raise ValueError(f"prototypes must have rows of length {anchors.shape[1]}, got shape {centres.shape}")
        if classes.min() < 0 or classes.max() >= len(centres):
            raise ValueError(f"y must lie in 0 … {len(centres) - 1}, the rows of prototypes")
        keys, key_classes = np.vstack([anchors, centres]), np.concatenate([classes, np.arange(len(centres))])
    same = classes[:, None] == key_classes
    counts = (key_classes[:, None] == key_classes).sum(axis=1)
    if (counts[: len(anchors)] < 2).any():
        raise ValueError("without prototypes every class in y needs two samples: one has no positive")
    weights = 1 / (counts - same)
    itself = np.arange(len(anchors))
    weights[itself, itself] = 0
    return anchors @ keys.T, key_classes, weights, same


def pair_coefficients(
    z: ArrayLike,
    y: ArrayLike,
    prototypes: ArrayLike | None = None,
    *,
    temperature: float = 1.0,
    averaging: bool = True,
) -> Array:
    """P − X, with ∂ℒᵢ/∂(zᵢ·z_k) = (P_ik − X_ik)/τ: how much each key k pulls (negative) or pushes (positive) anchor i.

        P_ik = c_ik exp(zᵢ·z_k/τ)/Dᵢ,    X_ip = 1/|Pᵢ| for positives, else 0

    c_ik = 1/|Pᵢ| for positives and 1/|keys of k's class| otherwise with class-averaging, 1 without (SCL). The rows sum
    to 0: an anchor is pulled as much as it is pushed. With z = w/‖w‖ the anchor's own gradient is
    ∂ℒᵢ/∂wᵢ = 1/(τ‖wᵢ‖) Σ_k (P_ik − X_ik)(z_k − (zᵢ·z_k)zᵢ).

    Args:
        z, y, prototypes, temperature: as in `class_averaged_bound`.
        averaging: class-averaging ("L1" of `ltnb.losses.balanced_contrastive`) or none.

    Returns:
        (N, N) without prototypes, (N, N + K) with: the keys are the samples, then the prototypes.

    Raises:
        ValueError: as in `class_averaged_bound`.
    """
    _check_positive("temperature", temperature)
    similarities, _, weights, same = _keys(z, y, prototypes)
    similarities = np.where(weights > 0, similarities, -np.inf)  # an anchor's similarity to itself would be the largest
    scaled = np.exp((similarities - similarities.max(axis=1, keepdims=True)) / temperature)
    terms = (weights if averaging else (weights > 0)) * scaled
    return np.asarray(terms / terms.sum(axis=1, keepdims=True) - weights * same)


def optimality_gap(
    z: ArrayLike,
    y: ArrayLike,
    prototypes: ArrayLike,
    *,
    temperature: float = 1.0,
    anchor_weights: ArrayLike | None = None,
) -> float:
    """An upper bound on F(z, c) − min F, in every dimension, for F = Σᵢ wᵢ ℒᵢ: 0 proves that the point is a minimum.

    F is convex in the Gram matrix G = VVᵀ of V, the samples and prototypes. With ∇F(G) symmetric, λᵢ = (∇F(G) G)ᵢᵢ and
    S = ∇F(G) − diag(λ), for any other Gram matrix G′ of unit vectors

        F(G′) ≥ F(G) + ⟨∇F(G), G′ − G⟩ = F(G) + ⟨S, G′⟩ ≥ F(G) + (N + K) min(0, least eigenvalue of S),

    as ⟨S, G⟩ = 0, the diagonals agree and G′ has no negative eigenvalue and trace N + K.

    Args:
        z, y, prototypes, temperature: as in `class_averaged_bound`.
        anchor_weights: w (N,), at least 0; None: all 1, the paper's sum.

    Returns:
        A float of at least 0.

    Raises:
        ValueError: as in `class_averaged_bound`, or weights that do not fit.
    """
    coefficients = pair_coefficients(z, y, prototypes, temperature=temperature)
    num_anchors, num_keys = coefficients.shape
    weights = np.ones(num_anchors) if anchor_weights is None else np.asarray(anchor_weights, dtype=np.float64)
    if weights.shape != (num_anchors,) or not (weights >= 0).all():
        raise ValueError(f"anchor_weights must be {num_anchors} numbers of at least 0, got shape {weights.shape}")
    vectors = np.vstack([np.asarray(z, dtype=np.float64), np.asarray(prototypes, dtype=np.float64)])
    gradient = np.zeros((num_keys, num_keys))
    gradient[:num_anchors] = weights[:, None] * coefficients / temperature
    gradient = (gradient + gradient.T) / 2
    certificate = gradient - np.diag((gradient * (vectors @ vectors.T)).sum(axis=1))
    return float(num_keys * max(0.0, -np.linalg.eigvalsh(certificate)[0]))
