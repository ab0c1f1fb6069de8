"""How a long tail bends the optimum of the supervised contrastive loss (FeatRecon: Yi et al., ICLR 2025).

One head class of N₁ = ρ a₂ samples stands against K − 1 tail classes of a₂ samples each. The least loss is a function
f(cos θ₁, cos θ₂) of two angles: θ₁ between the head's and a tail's class mean, θ₂ between two tails'. FeatRecon has it
at τ = 1; here it is at any temperature. `class_loss` and `optimality_gap` treat any class counts.
"""

import math
import sys
from collections.abc import Sequence
from numbers import Integral

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

K, A2 = sp.symbols("K a_2", positive=True, integer=True)
RHO, TAU = sp.symbols("rho tau", positive=True)
X1, X2 = sp.symbols("x_1 x_2", real=True)


def loss_expression() -> sp.Expr:
    """f(x₁, x₂) of FeatRecon's Theorem 2, with the temperature τ, in the symbols of this module.

    f = N₁ log(N₁ − 1 + (K−1) a₂ e^((x₁−1)/τ)) + (K−1) a₂ log(a₂ − 1 + (K−2) a₂ e^((x₂−1)/τ) + N₁ e^((x₁−1)/τ)),
    where N₁ = ρ a₂.
    """
    head, tails = RHO * A2, (K - 1) * A2
    to_head, to_tail = sp.exp((X1 - 1) / TAU), sp.exp((X2 - 1) / TAU)
    return head * sp.log(head - 1 + tails * to_head) + tails * sp.log(A2 - 1 + (K - 2) * A2 * to_tail + head * to_head)


def tail_cosine_expression() -> sp.Expr:
    """((K−1) x₁² − 1)/(K−2), the least cosine between tails that all have the cosine x₁ to the head."""
    return ((K - 1) * X1**2 - 1) / (K - 2)


def collapse_ratio_expression() -> sp.Expr:
    """R(K, a₂, τ), in the form that FeatRecon prints for τ = 1, with E = e^(−2/τ) for e^(−2): see `collapse_ratio`."""
    e = sp.exp(-2 / TAU)
    b1 = (K - 1) * (1 + e - 2 / e) * A2 - 2
    b2 = 8 * (1 + e) * (K - 1) * A2 * ((K - 1) * A2 - 1 / e)
    return (-b1 + sp.sqrt(b1**2 + b2)) / (2 * (1 + e) * A2)


def loss(
    cos_head_tail: float,
    cos_tail_tail: float,
    num_classes: int,
    tail_count: float,
    ratio: float,
    temperature: float = 1.0,
) -> float:
    """f(x₁, x₂) of FeatRecon's Theorem 2 as a number, at any temperature: see `loss_expression`.

    The supervised contrastive loss, summed over its anchors, is at least f at the mean cosine x₁ of head and tail
    samples and the mean cosine x₂ of samples of two tails. Equality: each class is one point, and all cosines of a kind
    are equal.

    Args:
        cos_head_tail: x₁ = cos θ₁ in [−1, 1].
        cos_tail_tail: x₂ = cos θ₂ in [−1, 1].
        num_classes: K, at least 3.
        tail_count: a₂ > 1, samples of each tail class; only whole numbers are sample counts.
        ratio: ρ with N₁ = ρ a₂ > 1 samples in the head class.
        temperature: τ > 0.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_classes(num_classes, tail_count, temperature)
    _check_ratio(ratio, tail_count)
    _check_cosine("cos_head_tail", cos_head_tail)
    _check_cosine("cos_tail_tail", cos_tail_tail)
    head, tails = ratio * tail_count, (num_classes - 1) * tail_count
    head_denominator, tail_denominator = _denominators(
        cos_head_tail, cos_tail_tail, num_classes, tail_count, ratio, temperature
    )
    return head * math.log(head_denominator) + tails * math.log(tail_denominator)


def tail_cosine(cos_head_tail: float, num_classes: int) -> float:
    """((K−1) x₁² − 1)/(K−2): the least mean cosine of K − 1 tails whose mean cosine to the head is x₁.

    Attained where the tails stand on a circle of latitude about the head's axis, as a regular simplex there.

    Args:
        cos_head_tail: x₁ in [−1, 1].
        num_classes: K, at least 3.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_num_classes(num_classes)
    _check_cosine("cos_head_tail", cos_head_tail)
    return ((num_classes - 1) * cos_head_tail**2 - 1) / (num_classes - 2)


def collapse_ratio(num_classes: int, tail_count: float, temperature: float = 1.0) -> float:
    """R(K, a₂): from ρ = R on, all tails of the optimum coincide, opposite to the head (FeatRecon, Theorem 2).

        R = (−b₁ + √(b₁² + b₂)) / (2 (1 + E) a₂),   b₁ = (K−1)(1 + E − 2/E) a₂ − 2,
        b₂ = 8 (1 + E)(K−1) a₂ ((K−1) a₂ − 1/E),   E = e^(−2/τ); the paper has τ = 1.

    It is where f(x₁, ((K−1) x₁² − 1)/(K−2)) stops falling at x₁ = −1. R(4, 50) = 36.50 at τ = 1.

    Args:
        num_classes: K, at least 3.
        tail_count: a₂ > 1, samples of each tail class.
        temperature: τ > 0.

    Returns:
        R, above 1; infinite where it is too large for a float, below about τ = 0.003.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_classes(num_classes, tail_count, temperature)
    # Numerator and denominator times E: 1/E would overflow first.
    e = math.exp(-2 / temperature)
    if e == 0:
        return math.inf
    # And b₁ over a₂, b₂ over its square, so that no count is too large.
    tails = num_classes - 1
    minus_b1 = tails * (2 - e - e**2) + 2 * e / tail_count
    b2 = 8 * e * (1 + e) * tails * (tails * e - 1 / tail_count)
    return (minus_b1 + math.sqrt(minus_b1**2 + b2)) / (2 * (1 + e)) / e


def optimal_cosines(num_classes: int, tail_count: float, ratio: float, temperature: float = 1.0) -> tuple[float, float]:
    """(cos θ₁, cos θ₂) of the least supervised contrastive loss: FeatRecon's four cases.

    ρ < 1: π/2 < θ₁ < arccos(−1/(K−1)); ρ = 1: the regular simplex; 1 < ρ < R: θ₁ grows and θ₂ shrinks; ρ ≥ R: θ₁ = π
    and θ₂ = 0. The loss g(x₁) = f(x₁, ((K−1) x₁² − 1)/(K−2)) is strictly convex, so its stationary point in (−1, 0), if
    there is one, is the minimum, and otherwise x₁ = −1 is.

    Args:
        num_classes: K, at least 3.
        tail_count: a₂ > 1, samples of each tail class.
        ratio: ρ with ρ a₂ > 1.
        temperature: τ > 0.

    Returns:
        cos θ₁ in [−1, 0) and cos θ₂, both floats.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_classes(num_classes, tail_count, temperature)
    _check_ratio(ratio, tail_count)
    head, tails = ratio * tail_count, (num_classes - 1) * tail_count

    def slope_sign(x1: float) -> float:
        """log(pull towards −1 by all anchors / push of tails apart): the sign of g′(x₁), without under- or overflow."""
        x2 = tail_cosine(x1, num_classes)
        of_head, of_tail = _denominators(x1, x2, num_classes, tail_count, ratio, temperature)
        return math.log(head * (1 + of_tail / of_head) / (2 * tails)) - math.log(-x1) - (x2 - x1) / temperature

    if slope_sign(-1.0) >= 0:
        return -1.0, 1.0
    cosine = float(brentq(slope_sign, -1.0, -sys.float_info.min, xtol=1e-300, rtol=1e-15, maxiter=2000))
    return cosine, tail_cosine(cosine, num_classes)


def lower_bound(num_classes: int, tail_count: float, ratio: float, temperature: float = 1.0) -> float:
    """Minimum of the supervised contrastive loss, summed over anchors: f at the `optimal_cosines`.

    It is attained in at least K − 1 dimensions. Arguments and errors are those of `optimal_cosines`.
    """
    cosines = optimal_cosines(num_classes, tail_count, ratio, temperature)
    return loss(*cosines, num_classes, tail_count, ratio, temperature)


def ratio_of_optimum(cos_head_tail: float, num_classes: int, tail_count: float, temperature: float = 1.0) -> float:
    """ρ at which the optimum has the cosine x₁ between head and tail: the inverse of `optimal_cosines` for ρ ≥ 1.

    The stationarity condition is quadratic in N₁ = ρ a₂; with u = e^((x₁−1)/τ), v = e^((x₂−1)/τ), T = (K−1) a₂:

        (1 + u) N₁² + (a₂ − 2 + (K−2) a₂ v + T u + 2 T x₁ v/u) N₁ + 2 T x₁ (v/u)(T u − 1) = 0,   larger root.

    At x₁ = −1 it is R, at the regular simplex's −1/(K−1) it is 1.

    Args:
        cos_head_tail: x₁ in [−1, −1/(K−1)].
        num_classes: K, at least 3.
        tail_count: a₂, at least 2.
        temperature: τ > 0.

    Returns:
        ρ, at least 1; infinite where it is too large for a float.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_classes(num_classes, tail_count, temperature)
    if tail_count < 2:
        raise ValueError(f"tail_count must be at least 2, got {tail_count}")
    if not -1 <= cos_head_tail <= -1 / (num_classes - 1):
        raise ValueError(f"cos_head_tail must lie in [-1, -1/{num_classes - 1}], got {cos_head_tail}")
    cos_tail_tail = tail_cosine(cos_head_tail, num_classes)
    u, v = math.exp((cos_head_tail - 1) / temperature), math.exp((cos_tail_tail - 1) / temperature)
    # Divided by a₂², to be quadratic in ρ, and by e^((x₂−x₁)/τ), which is at least 1 and overflows when cold.
    tails, cold = num_classes - 1, math.exp((cos_head_tail - cos_tail_tail) / temperature)
    push = 2 * tails * cos_head_tail
    quadratic = (1 + u) * cold
    linear = (1 - 2 / tail_count + (num_classes - 2) * v + tails * u) * cold + push
    constant = push * (tails * u - 1 / tail_count)
    root = -linear + math.sqrt(linear**2 - 4 * quadratic * constant)
    return root / (2 * quadratic) if quadratic > 0 else math.inf


def class_loss(cosines: ArrayLike, class_counts: Sequence[int], temperature: float = 1.0) -> float:
    """Φ(G) = Σ_k n_k log(n_k − 1 + Σ_{j≠k} n_j e^((G_kj − 1)/τ)): the loss with each class at one point.

    The supervised contrastive loss of any features, summed over anchors, is at least Φ(M) with M_kj = m_k·m_j the inner
    products of the class means. Φ is strictly convex in the entries off the diagonal and grows with each.

    Args:
        cosines: G (K, K) symmetric; its diagonal is not read.
        class_counts: n (K,), each at least 2.
        temperature: τ > 0.

    Raises:
        ValueError: shapes that do not fit, a count below 2, τ ≤ 0.
    """
    gram, counts = _check_gram(cosines, class_counts, temperature)
    return float(counts @ np.log(_class_weights(gram, counts, temperature).sum(axis=1) + counts - 1))


def class_loss_gradient(
    cosines: ArrayLike, class_counts: Sequence[int], temperature: float = 1.0
) -> NDArray[np.float64]:
    """A, symmetric with ⟨A, dG⟩ = dΦ: how hard the loss pushes the classes k and j apart, A_kj.

        A_kj = n_k n_j e^((G_kj − 1)/τ) (1/D_k + 1/D_j) / (2τ),   D_k = n_k − 1 + Σ_{j≠k} n_j e^((G_kj − 1)/τ)

    Arguments and errors are those of `class_loss`.

    Returns:
        (K, K) float64, with zeros on the diagonal.
    """
    gram, counts = _check_gram(cosines, class_counts, temperature)
    weights = _class_weights(gram, counts, temperature)
    push: NDArray[np.float64] = (counts / (weights.sum(axis=1) + counts - 1))[:, None] * weights / (2 * temperature)
    return push + push.T


def optimality_gap(cosines: ArrayLike, class_counts: Sequence[int], temperature: float = 1.0) -> float:
    """How much the supervised contrastive loss can at most be lowered below Φ(G): a certificate, 0 at the optimum.

    Φ is convex, so Φ(G′) ≥ Φ(G) + ⟨A, G′ − G⟩ with A its gradient. With S = A + diag(λ), λ_k = −(A G)_kk,
    ⟨A, G′ − G⟩ = ⟨S, G′⟩ for all G, G′ with unit diagonal, and ⟨S, G′⟩ ≥ K min(0, smallest eigenvalue of S) for the
    positive semi-definite ones: no features in any dimension have a loss below Φ(G) − gap.

    Args:
        cosines: G (K, K) symmetric with unit diagonal.
        class_counts: n (K,), each at least 2.
        temperature: τ > 0.

    Raises:
        ValueError: shapes that do not fit, a diagonal that is not 1, a count below 2, τ ≤ 0.
    """
    gram, _ = _check_gram(cosines, class_counts, temperature)
    if not np.allclose(np.diagonal(gram), 1, rtol=0, atol=1e-12):
        raise ValueError(f"cosines must have a diagonal of ones, got {np.diagonal(gram)}")
    gradient = class_loss_gradient(gram, class_counts, temperature)
    slack = gradient - np.diag(np.einsum("kj,kj->k", gradient, gram))
    return len(gram) * max(0.0, -float(np.linalg.eigvalsh(slack)[0]))


def _denominators(
    x1: float, x2: float, num_classes: int, tail_count: float, ratio: float, temperature: float
) -> tuple[float, float]:
    """What the logarithms of f are taken of: the head's and a tail's, each divided by e^(1/τ)."""
    head = ratio * tail_count
    to_head, to_tail = math.exp((x1 - 1) / temperature), math.exp((x2 - 1) / temperature)
    return (
        head - 1 + (num_classes - 1) * tail_count * to_head,
        tail_count - 1 + (num_classes - 2) * tail_count * to_tail + head * to_head,
    )


def _class_weights(gram: NDArray[np.float64], counts: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """n_j e^((G_kj − 1)/τ), with zeros on the diagonal."""
    weights: NDArray[np.float64] = counts * np.exp((gram - 1) / temperature)
    np.fill_diagonal(weights, 0)
    return weights


def _check_num_classes(num_classes: int) -> None:
    if not isinstance(num_classes, Integral) or num_classes < 3:
        raise ValueError(f"num_classes must be an integer of at least 3, got {num_classes!r}")


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a positive finite number, got {temperature}")


def _check_classes(num_classes: int, tail_count: float, temperature: float) -> None:
    _check_num_classes(num_classes)
    _check_temperature(temperature)
    if not 1 < tail_count < math.inf:
        raise ValueError(f"tail_count must be above 1 (a class of one sample has no positive), got {tail_count}")


def _check_ratio(ratio: float, tail_count: float) -> None:
    if not 1 < ratio * tail_count < math.inf:
        raise ValueError(f"ratio * tail_count, the head's samples, must be above 1, got {ratio} * {tail_count}")


def _check_cosine(name: str, cosine: float) -> None:
    if not -1 <= cosine <= 1:
        raise ValueError(f"{name} must lie in [-1, 1], got {cosine}")


def _check_gram(
    cosines: ArrayLike, class_counts: Sequence[int], temperature: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    gram, counts = np.asarray(cosines, dtype=np.float64), np.asarray(class_counts, dtype=np.float64)
    _check_temperature(temperature)
    if gram.shape != (counts.size, counts.size) or counts.ndim != 1 or not np.allclose(gram, gram.T, atol=1e-12):
        raise ValueError(
            f"cosines must be a symmetric matrix with a row for each of the {counts.size} class counts, "
            f"got shape {gram.shape}"
        )
    if counts.size < 2 or counts.min() < 2:
        raise ValueError(f"class_counts must hold at least two counts of at least 2, got {list(class_counts)}")
    return gram, counts
