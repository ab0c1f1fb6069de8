"""Binary cross-entropy for classifier, contrast and spread (BCE3S; Fan, Li, Wen & Peng, AAAI 2026).

The expressions are sympy's, made for as many classes as they are given; ``notebooks/theory/05_binary_cross_entropy``
derives with them. The numbers are plain floats and float64 arrays. softplus(s) = log(1 + exp(s)), with derivative
σ(s) = 1/(1 + exp(−s)) and second derivative σ(s)(1 − σ(s)) > 0.
"""

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import sympy
from numpy.typing import NDArray

Expression = Any  # sympy has no types
Array = NDArray[np.float64]


class ClassifierGradient(NamedTuple):
    """The three parts of Eq. 8, each (d, 1): what the joint and the uniform term ask of one classifier vector."""

    pull: Expression
    repel: Expression
    interact: Expression


def softplus(s: Expression) -> Expression:
    """log(1 + exp(s))."""
    return sympy.log(1 + sympy.exp(s))


def sigmoid(s: Expression) -> Expression:
    """exp(s)/(1 + exp(s)): the form in which sympy leaves the derivative of `softplus`."""
    return sympy.exp(s) / (1 + sympy.exp(s))


def softmax_loss(logits: Sequence[Expression], own: int) -> Expression:
    """−log[exp(s_k)/Σⱼ exp(sⱼ)]: Eq. 1 with sⱼ = wⱼ·x + bⱼ, Eq. 2 with sⱼ = cos(z, mⱼ)/τ; k is `own`."""
    return sympy.log(sum(sympy.exp(s) for s in logits)) - logits[own]


def binary_loss(logits: Sequence[Expression], own: int) -> Expression:
    """softplus(−s_k) + Σ_{j ≠ k} softplus(sⱼ): the joint term with sⱼ = wⱼ·x + bⱼ, the contrastive one with cos/τ."""
    return softplus(-logits[own]) + sum(softplus(s) for j, s in enumerate(logits) if j != own)


def softmax_activations(logits: Sequence[Expression]) -> list[Expression]:
    """Act_ce: exp(sⱼ)/Σ_l exp(s_l), every logit in every denominator."""
    total = sum(sympy.exp(s) for s in logits)
    return [sympy.exp(s) / total for s in logits]


def binary_activations(logits: Sequence[Expression]) -> list[Expression]:
    """Act_bce: σ(sⱼ), one logit each."""
    return [sigmoid(s) for s in logits]


def feature_coefficients(activations: Sequence[Expression], own: int) -> list[Expression]:
    """What the gradient multiplies each classifier vector with: Actⱼ, and −(1 − Act_k) for the own class k."""
    return [activation - 1 if j == own else activation for j, activation in enumerate(activations)]


def logits(features: Expression, weight: Expression, bias: Sequence[Expression]) -> list[Expression]:
    """sⱼ = wⱼ·x + bⱼ of one sample: x (1, d), w (K, d)."""
    return [(weight.row(j) * features.T)[0, 0] + bias[j] for j in range(weight.rows)]


def uniform_loss(weight: Expression) -> Expression:
    """1/K Σ_k Σ_{j ≠ k} softplus(w_k·wⱼ), w (K, d) as they are: the unit norm is the caller's."""
    classes = range(weight.rows)
    pairs = [softplus((weight.row(k) * weight.row(j).T)[0, 0]) for k in classes for j in classes if j != k]
    return sum(pairs) / weight.rows


def classifier_loss(
    features: Expression, labels: Sequence[int], weight: Expression, bias: Sequence[Expression], strength: Expression
) -> Expression:
    """1/N Σᵢ joint(xᵢ) + λ · uniform(w): the part of the total loss that the classifier sees; λ is `strength`."""
    samples = [binary_loss(logits(features.row(i), weight, bias), label) for i, label in enumerate(labels)]
    return sum(samples) / len(samples) + strength * uniform_loss(weight)


def classifier_gradient(
    k: int,
    features: Expression,
    labels: Sequence[int],
    weight: Expression,
    bias: Sequence[Expression],
    strength: Expression,
) -> ClassifierGradient:
    """Eq. 8, the gradient of `classifier_loss` with respect to w_k as a free vector:

        pull      −1/N Σ_{yᵢ = k} (1 − σ(s_ik)) xᵢ
        repel      1/N Σ_{yᵢ ≠ k} σ(s_ik) xᵢ
        interact   2λ/K Σ_{j ≠ k} σ(w_k·wⱼ) wⱼ

    The 2 is there because a pair stands in the uniform term of both its classes.
    """
    num_samples, (num_classes, dim) = len(labels), weight.shape
    pull, repel, interact = (sympy.zeros(dim, 1) for _ in range(3))
    for i, label in enumerate(labels):
        activation = sigmoid(logits(features.row(i), weight, bias)[k])
        if label == k:
            pull -= (1 - activation) * features.row(i).T / num_samples
        else:
            repel += activation * features.row(i).T / num_samples
    for j in range(num_classes):
        if j != k:
            inner = (weight.row(k) * weight.row(j).T)[0, 0]
            interact += 2 * strength * sigmoid(inner) * weight.row(j).T / num_classes
    return ClassifierGradient(pull, repel, interact)


def contrastive_gradient(z: Expression, own: int, memory: Expression, temperature: Expression) -> Expression:
    """Gradient of the contrastive term with respect to an un-normalised z (1, d), for unit rows of the memory (K, d):

    1/(τ‖z‖) · (I − ẑẑᵀ) [ −(1 − σ(c_k/τ)) m_k + Σ_{j ≠ k} σ(cⱼ/τ) mⱼ ],     ẑ = z/‖z‖,  cⱼ = ẑ·mⱼ
    """
    length = sympy.sqrt((z * z.T)[0, 0])
    scaled = [(z * memory.row(j).T)[0, 0] / length / temperature for j in range(memory.rows)]
    coefficients = feature_coefficients(binary_activations(scaled), own)
    force = sum((c * memory.row(j).T for j, c in enumerate(coefficients)), sympy.zeros(z.cols, 1))
    tangent = sympy.eye(z.cols) - z.T * z / length**2
    return tangent * force / (temperature * length)


def uniform_minimum(num_classes: Expression) -> Expression:
    """(K − 1) softplus(−1/(K − 1)): the uniform term at the regular simplex, its minimum for d ≥ K − 1."""
    return (num_classes - 1) * softplus(-1 / (num_classes - 1))


def simplex_minimum(num_classes: Expression, radius: Expression, bias: Expression) -> Expression:
    """softplus(−R − b) + (K − 1) softplus(b − R/(K − 1)): the joint term at x = R·w_y for simplex vectors w."""
    return softplus(-radius - bias) + (num_classes - 1) * softplus(bias - radius / (num_classes - 1))


def expected_risk(prior: Expression, logit: Expression, negative_rate: Expression) -> Expression:
    """π softplus(−s) + r(1 − π) softplus(s): one class's share of the joint term where a part π of samples is its own.

    In expectation over the negatives that are drawn; r = 1 keeps all.
    """
    return prior * softplus(-logit) + negative_rate * (1 - prior) * softplus(logit)


def optimal_logit(prior: float, negative_rate: float = 1.0) -> float:
    """log π/(1 − π) − log r: the logit of least `expected_risk`. A rate r shifts it by −log r, whatever π is.

    Args:
        prior: π in (0, 1), the probability of the class (given x, if that is what the logit is of).
        negative_rate: r in (0, 1], the probability that a negative of this class is kept.

    Raises:
        ValueError: a number out of its range.
    """
    if not (isinstance(prior, Real) and 0 < prior < 1):
        raise ValueError(f"prior must be a number in (0, 1), got {prior!r}")
    _check_rate(negative_rate)
    return math.log(prior) - math.log1p(-prior) - math.log(negative_rate)


def uniform_lower_bound(num_classes: int, *, positive_term: bool = False) -> float:
    """(K − 1) softplus(−1/(K − 1)): no K unit vectors, in any dimension, have a uniform term below it.

    Args:
        num_classes: K, at least 2.
        positive_term: whether log(1 + e⁻¹), the constant that the experiments leave out, is counted.

    Raises:
        ValueError: K < 2.
    """
    _check_num_classes(num_classes)
    constant = _softplus(-1.0) if positive_term else 0.0
    return (num_classes - 1) * _softplus(-1 / (num_classes - 1)) + constant


def softmax_uniform_lower_bound(num_classes: int) -> float:
    """log(1 + (K − 1) exp(−K/(K − 1))): least mean of −log[exp(w_k·w_k)/Σⱼ exp(w_k·wⱼ)] over K unit vectors.

    The softmax form of the uniform term, L_ce^(cc). Its formula is in a supplement that we could not obtain: this is
    the reading by analogy.

    Raises:
        ValueError: K < 2.
    """
    _check_num_classes(num_classes)
    return math.log1p((num_classes - 1) * math.exp(-num_classes / (num_classes - 1)))


def joint_lower_bound(num_classes: int, radius: float, bias: float = 0.0) -> float:
    """softplus(−R − b) + (K − 1) softplus(b − R/(K − 1)): least joint loss of a sample with ‖x‖ ≤ R.

    For classifier vectors on a regular simplex with one bias b; attained at x = R·w_y, whatever the class counts.
    The contrastive term with the memory on a regular simplex has the same bound, with R = 1/τ and b = 0.

    Args:
        num_classes: K, at least 2.
        radius: R > 0.
        bias: b.

    Raises:
        ValueError: K < 2, R ≤ 0, or a number that is not finite.
    """
    _check_num_classes(num_classes)
    if not (isinstance(radius, Real) and 0 < radius < math.inf):
        raise ValueError(f"radius must be a positive finite number, got {radius!r}")
    if not (isinstance(bias, Real) and math.isfinite(bias)):
        raise ValueError(f"bias must be a finite number, got {bias!r}")
    return _softplus(-radius - bias) + (num_classes - 1) * _softplus(bias - radius / (num_classes - 1))


def simplex_separability(num_classes: int) -> float:
    """50 K/(K − 1): the separability of every vector of a regular simplex, in the reconstruction of `ltnb.geometry`.

    It is that of every class of *any* unit vectors that sum to zero, and the largest possible mean over classes.

    Raises:
        ValueError: K < 2.
    """
    _check_num_classes(num_classes)
    return 50 * num_classes / (num_classes - 1)


def extra_logarithms(num_classes: int, negative_rate: float = 1.0) -> float:
    """r(K − 1): logarithms that the joint term takes a sample, in expectation, over the one of cross-entropy.

    Raises:
        ValueError: K < 2, or r outside (0, 1].
    """
    _check_num_classes(num_classes)
    _check_rate(negative_rate)
    return negative_rate * (num_classes - 1)


def expected_classes_in_batch(class_counts: Sequence[int], batch_size: int) -> float:
    """Σⱼ [1 − C(n − nⱼ, B)/C(n, B)]: how many classes B of the n images hold, drawn without replacement.

    Raises:
        ValueError: a count below 1, or B outside 1 … n.
    """
    if not class_counts or min(class_counts) < 1:
        raise ValueError(f"class_counts must be positive, got {list(class_counts)}")
    total = sum(class_counts)
    if not 1 <= batch_size <= total:
        raise ValueError(f"batch_size must lie between 1 and the {total} images, got {batch_size}")
    batches = math.comb(total, batch_size)
    # Quotients of integers are correctly rounded, whatever their size.
    return sum(1 - math.comb(total - count, batch_size) / batches for count in class_counts)


def uniform_term(weight: Array) -> Array:
    """1/K Σ_k Σ_{j ≠ k} softplus(w_k·wⱼ) of many configurations at once: unit rows (…, K, d) to (…)."""
    cosines = weight @ weight.mT
    pairs = np.logaddexp(0, cosines) * (1 - np.eye(weight.shape[-2]))
    total: Array = pairs.sum(axis=(-2, -1)) / weight.shape[-2]
    return total


def uniform_force(weight: Array) -> Array:
    """2/K Σ_{j ≠ k} σ(w_k·wⱼ) wⱼ without its part along w_k: the gradient of `uniform_term` on the sphere."""
    strengths = (1 - np.eye(weight.shape[-2])) / (1 + np.exp(-weight @ weight.mT))
    free = 2 / weight.shape[-2] * strengths @ weight
    tangent: Array = free - (free * weight).sum(axis=-1, keepdims=True) * weight
    return tangent


def _softplus(s: float) -> float:
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def _check_num_classes(num_classes: int) -> None:
    if not isinstance(num_classes, Integral) or num_classes < 2:
        raise ValueError(f"num_classes must be an integer of at least 2, got {num_classes!r}")


def _check_rate(negative_rate: float) -> None:
    if not (isinstance(negative_rate, Real) and 0 < negative_rate <= 1):
        raise ValueError(f"negative_rate must be a number in (0, 1], got {negative_rate!r}")
