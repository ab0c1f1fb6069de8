"""When the rare classes of a classifier run together: cross-entropy and binary cross-entropy on free features.

The setting of Fang et al. (PNAS 2021, "minority collapse"): every feature h and every classifier vector w may be chosen
freely, and only their lengths are bounded. One head class has ρ samples for each sample of the K − 1 tail classes. Fang
et al. show that the tails' classifier vectors coincide as ρ → ∞ and see it happen at a finite ρ; here that ratio is
derived, for their constraint and for vectors on the unit sphere, where contrastive losses live.

*Why few angles are enough.* Both losses are convex in the logits, so in the Gram matrix of all w and h, and in the
biases; the constraints are convex in it too. So the average of a minimiser over all permutations of a class's samples
and of the tail classes is one as well: each class is one point and the tails are alike. In such a configuration
w_t = (mean of tails) + (deviation), the deviations of K − 1 tails at best a regular simplex. Each loss falls as heads
align with heads, tails' means turn away from the head (in binary cross-entropy after the tails' bias has taken up what
that adds to the logits among tails) and deviations align: with e the head's axis and u_t a regular
simplex orthogonal to it,

    w₁ = e,  w_t = −cos α e + sin α u_t,      h₁ = e,  h_t = −cos β e + sin β u_t.

Tails have run together where α = β = 0. The loss is even in (α, β), so that is a stationary point, and R is where its
Hessian becomes positive semi-definite. Squared deviations are entries of the Gram matrix: to lower the loss to second
order in the angles is to lower it to first order in the Gram matrix, and what convexity then leaves is the minimum.
"""

import math
import sys
from collections.abc import Callable
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

Array = NDArray[np.float64]

LEAST_TEMPERATURE = 0.01  # where R already has a hundred digits and more
LARGEST_RATIO = 1e6  # for optima: the tails' part of the loss must not be lost in rounding


class OneHeadOptimum(NamedTuple):
    """The least loss for one head class, and where it lies."""

    loss: float  # summed over samples and divided by the number of samples of a tail class
    weight_head_tail: float  # w₁·w_t = −cos α
    weight_tail_tail: float  # w_t·w_t′
    feature_head_tail: float  # h₁·h_t = −cos β
    feature_tail_tail: float


def cross_entropy_collapse_ratio(num_classes: int, temperature: float = 1.0, *, bias: bool = False) -> float:
    """R from which on the tails of cross-entropy coincide, for unit w and ‖h‖ = 1/τ (or both bounded so).

        without biases   R = (1 + (K−1) E)((K−1+E)² − 2E²) / (2 E² (K−1+E)),     E = e^(−2/τ)
        with biases      R = (K−1)(1 + e^(4/τ)) / 2

    Second order about α = β = 0, for each tail: with p_h the probability of a tail for the head's samples and p_t that
    of the head for a tail's, (ρ p_h + p_t) α²/2 + p_t β² − αβ. It is positive semi-definite iff
    2 p_t (ρ p_h + p_t) ≥ 1. A bias makes ρ p_h = p_t, so the condition is p_t ≥ 1/2: tails run together once the head
    takes half of the probability of every tail sample.

    Args:
        num_classes: K, at least 3.
        temperature: τ ≥ 0.01: the largest logit, without bias, is 1/τ.
        bias: whether the classifier has biases, which are free.

    Raises:
        ValueError: K < 3 or τ < 0.01.
    """
    _check(num_classes, temperature)
    tails, e = num_classes - 1, math.exp(-2 / temperature)
    if bias:
        return tails * (1 + e**-2) / 2
    return (1 + tails * e) * ((tails + e) ** 2 - 2 * e**2) / (2 * e**2 * (tails + e))


def binary_cross_entropy_collapse_ratio(num_classes: int, temperature: float = 1.0) -> float:
    """R from which on the tails of binary cross-entropy with free biases coincide, for unit w and ‖h‖ = 1/τ.

    Arguments and errors of `cross_entropy_collapse_ratio`.

    With q = σ(1/τ + b_t) what a tail's sample gives to every tail, v = σ(−1/τ + b_t) what the head's samples give to a
    tail and u = σ(−1/τ + b₁) what a tail's sample gives to the head, stationary biases have ρ v = 1 − (K−1) q and
    (K−1) u = ρ σ(−1/τ − b₁), and the second order is ρ v α² + (u + ρ v) β²/2 − αβ for each tail: R solves

        2 ρ v (u + ρ v) = 1,   which lies in (√3 − 1)/2 ≤ ρ v ≤ 1/√2 as 0 ≤ u ≤ 1.
    """
    _check(num_classes, temperature)
    tails, scale = num_classes - 1, 1 / temperature

    def ratio_of(q: float) -> float:
        return (1 - tails * q) * (1 + math.exp(2 * scale) * (1 - q) / q)

    def excess(q: float) -> float:
        ratio, own = ratio_of(q), 1 - tails * q
        # (K−1) e^s x² + (K−1−ρ) x − ρ e^s = 0 for x = e^(b₁).
        linear, e = tails - ratio, math.exp(scale)
        x = (-linear + math.sqrt(linear**2 + 4 * tails * ratio * e**2)) / (2 * tails * e)
        return 2 * own * (x / (x + e) + own) - 1

    least, largest = (1 - 1 / math.sqrt(2)) / tails, (3 - math.sqrt(3)) / (2 * tails)
    return ratio_of(_root(excess, least, largest))


def layer_peeled_collapse_ratio(num_classes: int, temperature: float = 1.0) -> float:
    """R from which on the tails of the layer-peeled model coincide: no bias, lengths bounded on average.

    Arguments and errors of `cross_entropy_collapse_ratio`; infinite where it is too large for a float.

    The constraint is that of Fang et al., (1/K) Σₖ‖wₖ‖² ≤ 1 and (1/K) Σₖ‖hₖ‖² ≤ 1/τ² (hₖ all of class k). The products
    Z = W H reach exactly the matrices of nuclear norm ≤ K/τ, so the problem is convex in Z, and a Z of rank one is its
    minimum iff no singular value of the gradient exceeds the one along Z. Where tails coincide the gradient has the
    singular value 1 (times the samples of a tail) for telling them apart. With s = sin φ of the feature lengths
    ‖h₁‖ = √K cos φ/τ and ‖h_t‖ = √(K/(K−1)) sin φ/τ,

        s (1 + (K−1) exp(K^(3/2) s / ((K−1) τ))) = √K,
        R = √((K−1)/K) cos φ (1 + (K−1) e^(−X)) / ((K−1) e^(−X)),     X = K^(3/2) cos φ / (√(K−1) τ).
    """
    _check(num_classes, temperature)
    tails, scale = num_classes - 1, num_classes**1.5 / temperature

    def excess(s: float) -> float:
        return math.log(s) + float(np.logaddexp(0, math.log(tails) + scale * s / tails)) - math.log(num_classes) / 2

    cosine = math.sqrt(1 - _root(excess, 1e-300, 1.0) ** 2)
    exponent = scale * cosine / math.sqrt(tails)
    if exponent > math.log(sys.float_info.max):
        return math.inf
    return math.sqrt(tails / num_classes) * cosine * (1 + math.exp(exponent) / tails)


def cross_entropy_optimum(
    num_classes: int, ratio: float, temperature: float = 1.0, *, bias: bool = False
) -> OneHeadOptimum:
    """The minimum of cross-entropy over unit w and ‖h‖ = 1/τ, for one head class of ρ times as many samples.

    Args:
        num_classes: K, at least 3; attained in K − 1 dimensions.
        ratio: ρ in (0, 10⁶].
        temperature: τ ≥ 0.01.
        bias: whether the classifier has biases, which are free.

    Raises:
        ValueError: an argument outside its range.
    """
    _check(num_classes, temperature)
    _check_ratio(ratio)
    tails = num_classes - 1

    def loss(point: Array) -> float:
        head, own, other, to_head = _logits(point, num_classes, temperature)
        shift = point[2] if bias else 0.0  # b₁ − b_t
        of_head = np.logaddexp(0, math.log(tails) + head[1] - head[0] - shift)
        others = math.log(tails - 1) + other - own
        of_tail = np.logaddexp(np.logaddexp(0, others), to_head + shift - own)
        return float(ratio * of_head + tails * of_tail)

    return _search(loss, 1 if bias else 0, num_classes)


def binary_cross_entropy_optimum(num_classes: int, ratio: float, temperature: float = 1.0) -> OneHeadOptimum:
    """The minimum of binary cross-entropy over unit w, ‖h‖ = 1/τ and free biases; arguments of `cross_entropy_optimum`.

    It is that of `ltnb.losses.bce_joint` with all negatives.
    """
    _check(num_classes, temperature)
    _check_ratio(ratio)
    tails = num_classes - 1

    def loss(point: Array) -> float:
        head, own, other, to_head = _logits(point, num_classes, temperature)
        b_head, b_tail = point[2:]
        of_head = np.logaddexp(0, -head[0] - b_head) + tails * np.logaddexp(0, head[1] + b_tail)
        of_tail = np.logaddexp(0, -own - b_tail) + (tails - 1) * np.logaddexp(0, other + b_tail)
        return float(ratio * of_head + tails * (of_tail + np.logaddexp(0, to_head + b_head)))

    return _search(loss, 2, num_classes)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero between low and high to the last digits, as exponentials of it follow."""
    return float(brentq(function, low, high, xtol=1e-300, rtol=1e-14))


def _logits(point: Array, num_classes: int, temperature: float) -> tuple[tuple[float, float], float, float, float]:
    """Logits of a head sample (its own, a tail's) and of a tail sample (its own, another tail's, the head's)."""
    alpha, beta = point[:2]
    along, across = math.cos(alpha) * math.cos(beta), math.sin(alpha) * math.sin(beta)
    own, other = along + across, along - across / (num_classes - 2)
    return (
        (1 / temperature, -math.cos(alpha) / temperature),
        own / temperature,
        other / temperature,
        -math.cos(beta) / temperature,
    )


def _search(loss: Callable[[Array], float], num_biases: int, num_classes: int) -> OneHeadOptimum:
    """The best of searches from the regular simplex, from near collapse and from collapse."""
    simplex = math.acos(1 / (num_classes - 1))
    found = [
        minimize(
            lambda point: math.log(loss(point)),  # a cold loss is so small that its own slope looks like none
            [angle, angle] + [0.0] * num_biases,
            method="BFGS",
            jac="3-point",
            options={"gtol": 1e-10},
        )
        for angle in (simplex, simplex / 4, 0.0)
    ]
    best = min(found, key=lambda result: float(result.fun))
    weight, feature = (math.cos(angle) for angle in best.x[:2])
    tails = num_classes - 1
    return OneHeadOptimum(
        loss(best.x),
        -weight,
        (tails * weight**2 - 1) / (tails - 1),
        -feature,
        (tails * feature**2 - 1) / (tails - 1),
    )


def _check(num_classes: int, temperature: float) -> None:
    if not isinstance(num_classes, Integral) or num_classes < 3:
        raise ValueError(f"num_classes must be an integer of at least 3, got {num_classes!r}")
    if not LEAST_TEMPERATURE <= temperature < math.inf:
        raise ValueError(f"temperature must be a finite number of at least {LEAST_TEMPERATURE}, got {temperature}")


def _check_ratio(ratio: float) -> None:
    if not 0 < ratio <= LARGEST_RATIO:
        raise ValueError(f"ratio must be positive and at most {LARGEST_RATIO:g}, got {ratio}")
