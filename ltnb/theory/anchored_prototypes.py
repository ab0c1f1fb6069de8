"""Prototype-anchored learning (PAL, Zhou et al., ICML 2022): margins, anchoring, label noise, Lipschitz constants.

k unit prototypes w_1 … w_k ∈ R^d are *anchored* at a regular simplex (w_i·w_j = −1/(k−1), so Σ_j w_j = 0) and are not
trained; features z are of norm at most B, or of norm exactly s when they are normalised and scaled (FNPAL). Logits are
w_j·z, there is no bias. The numbers below are plain floats. Each formula that the notebook manipulates is also a
sympy expression, made by a function whose name ends in ``_expression``.
"""

import math
from collections.abc import Callable
from numbers import Integral, Real

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

Floats = NDArray[np.float64]


def _check_num_classes(num_classes: int) -> None:
    if not isinstance(num_classes, Integral) or num_classes < 2:
        raise ValueError(f"num_classes must be an integer of at least 2, got {num_classes!r}")


def _check_not_negative(name: str, value: float) -> None:
    if not isinstance(value, Real) or not value >= 0:
        raise ValueError(f"{name} must be a number ≥ 0, got {value!r}")


def _check_finite(name: str, values: ArrayLike) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite, got {values!r}")


def _check_noise_rate(num_classes: int, noise_rate: float) -> None:
    _check_num_classes(num_classes)
    if not isinstance(noise_rate, Real) or not noise_rate >= 0 or not (1 - noise_rate) * num_classes > 1:
        raise ValueError(
            f"noise_rate must lie in [0, 1 − 1/{num_classes}), where the true label is still the likeliest; "
            f"got {noise_rate!r}"
        )


# Margins (Lemma 3.1, Theorem 3.2, Theorems 4.1 and 4.2)


def largest_margin(num_classes: int) -> float:
    """k/(k−1): the largest possible smallest margin of unit features to unit prototypes (Lemma 3.1).

    Attained, in d ≥ k−1 dimensions, exactly by prototypes at a regular simplex and every feature at its prototype.

    Raises:
        ValueError: num_classes is not an integer ≥ 2.
    """
    _check_num_classes(num_classes)
    return num_classes / (num_classes - 1)


def largest_margin_of_non_negative_features(num_classes: int) -> float:
    """√(k/(k−1)): the same where all features are non-negative, as they are after a ReLU (ours).

    Attained, in d ≥ k dimensions, by features e_1 … e_k and the simplex w_j = √(k/(k−1)) (e_j − 1/k Σ_i e_i).

    Raises:
        ValueError: num_classes is not an integer ≥ 2.
    """
    return math.sqrt(largest_margin(num_classes))


def sample_margins(features: ArrayLike, labels: ArrayLike, prototypes: ArrayLike) -> Floats:
    """γ(z, y) = w_y·z − max_{j≠y} w_j·z of each sample.

    Args:
        features: Z (N, d).
        labels: y (N,), integers in [0, k).
        prototypes: W (k, d).

    Returns:
        (N,) float64.

    Raises:
        ValueError: shapes that do not fit each other, fewer than two prototypes, or a label outside [0, k).
    """
    logits, own = _logits(features, labels, prototypes)
    others = logits.copy()
    others[np.arange(len(own)), np.asarray(labels)] = -np.inf
    margins: Floats = own - others.max(axis=1)
    return margins


def margin_loss(
    features: ArrayLike, labels: ArrayLike, prototypes: ArrayLike, *, scale: float = 1.0, margins: ArrayLike = 0.0
) -> Floats:
    """L_α = −log[ e^{s(w_y·z − α_y)} / (e^{s(w_y·z − α_y)} + Σ_{j≠y} e^{s w_j·z}) ] of each sample (PAL Eq. 2).

    α = 0 and s = 1 is the softmax loss of Eq. 1.

    Args:
        features: Z (N, d); of unit norm in Eq. 2, which is not checked, so that Eq. 1 is covered.
        labels: y (N,), integers in [0, k).
        prototypes: W (k, d).
        scale: s ≥ 0.
        margins: α, one number or (k,).

    Returns:
        (N,) float64.

    Raises:
        ValueError: as `sample_margins`; s < 0; margins of another shape; s or a margin not finite.
    """
    _check_not_negative("scale", scale)
    _check_finite("scale", scale)
    _check_finite("margins", margins)
    logits, own = _logits(features, labels, prototypes)
    alpha = np.asarray(margins, dtype=np.float64)
    if alpha.shape not in ((), (logits.shape[1],)):
        raise ValueError(f"margins must be one number or one for each of {logits.shape[1]} classes, got {alpha.shape}")
    index = np.asarray(labels)
    shifted = scale * logits
    shifted[np.arange(len(own)), index] -= scale * np.broadcast_to(alpha, logits.shape[1])[index]
    largest = shifted.max(axis=1)
    own = shifted[np.arange(len(own)), index]
    loss: Floats = largest + np.log(np.exp(shifted - largest[:, None]).sum(axis=1)) - own
    return loss


def _logits(features: ArrayLike, labels: ArrayLike, prototypes: ArrayLike) -> tuple[Floats, Floats]:
    z, w, y = np.asarray(features, np.float64), np.asarray(prototypes, np.float64), np.asarray(labels)
    if z.ndim != 2 or w.ndim != 2 or z.shape[1] != w.shape[1] or len(w) < 2 or y.shape != (len(z),):
        raise ValueError(
            "features (N, d), labels (N,) and prototypes (k, d) with k ≥ 2 must fit each other, "
            f"got {z.shape}, {y.shape} and {w.shape}"
        )
    if y.dtype.kind not in "iu" or (len(y) and not (y.min() >= 0 and y.max() < len(w))):
        raise ValueError(f"labels must be integers in [0, {len(w)}), got {y.tolist()[:10]} of {y.dtype}")
    logits: Floats = z @ w.T
    return logits, logits[np.arange(len(y)), y]


def margin_loss_expression(k: sp.Expr, s: sp.Expr, alpha: sp.Expr, cosine: sp.Expr) -> sp.Expr:
    """log(1 + (k−1) e^{s(α − k/(k−1) c)}): see `margin_loss_bound`."""
    return sp.log(1 + (k - 1) * sp.exp(s * (alpha - k * cosine / (k - 1))))


def margin_loss_bound(num_classes: int, scale: float, *, margin: float = 0.0, cosine: float = 1.0) -> float:
    """log(1 + (k−1) e^{s(α − k/(k−1) c)}): the least L_α of a feature with c = w_y·z, where Σ_j w_j = 0.

    With c = 1 it is the minimum of Theorem 3.2 (balanced data, equal margins, everything free) and the minimum for
    each sample, of whatever class and margin, of Theorem 4.1 (anchored prototypes). With α = 0 and s = B it is that
    of Theorem 4.2 (the softmax loss with features of norm at most B).

    Args:
        num_classes: k ≥ 2.
        scale: s ≥ 0, or B.
        margin: α.
        cosine: c in [−1, 1].

    Raises:
        ValueError: an argument outside its range.
    """
    _check_num_classes(num_classes)
    _check_not_negative("scale", scale)
    if not -1 <= cosine <= 1:
        raise ValueError(f"cosine must lie in [−1, 1], got {cosine!r}")
    exponent = scale * (margin - num_classes * cosine / (num_classes - 1)) + math.log(num_classes - 1)
    return float(np.logaddexp(0.0, exponent))


def norm_under_weight_decay(num_classes: int, weight_decay: float) -> float:
    """The norm r of all features where softmax loss + λ/2 ‖z‖² a sample is least, the prototypes anchored.

    It solves λ r (1 + (k−1) e^{−kr/(k−1)}) = k e^{−kr/(k−1)}, and does not depend on the class counts.

    Args:
        num_classes: k ≥ 2.
        weight_decay: λ > 0.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_num_classes(num_classes)
    if not 0 < weight_decay < math.inf:
        raise ValueError(f"weight_decay must be a positive finite number, got {weight_decay!r}")

    def slope(norm: float) -> float:
        decay = math.exp(-norm * num_classes / (num_classes - 1))
        return weight_decay * norm - num_classes * decay / (1 + (num_classes - 1) * decay)

    # The second is an end as well where λ ≤ k: k e^(−kr/(k−1)) ≤ k e^(−r) = λ/e < λ r there.
    end = min(1 / weight_decay, 1 + max(0.0, math.log(num_classes) - math.log(weight_decay)))
    return float(brentq(slope, 0.0, end, xtol=1e-14))


def consistency_threshold(scale: float, margin: float, other_margin: float) -> float:
    """(1 + e^{−sα}) / (2 + e^{−sα} + e^{−sα'}): how likely a class must be for L_α to predict it (Theorem 3.3).

    Of two classes with margins α and α' and free scores. Bayes' rule has 1/2, and so has L_α only where α = α'.

    Raises:
        ValueError: s is not positive, or a number is not finite.
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive finite number, got {scale!r}")
    _check_finite("margin", margin)
    _check_finite("other_margin", other_margin)
    own, other = (np.logaddexp(0.0, -scale * alpha) for alpha in (margin, other_margin))
    return float(expit(own - other))


# Lipschitz constants of L_W(z) = Σ_i L(Wz, i) (Proposition 4.5)


def lipschitz_constant_expression(k: sp.Expr, radius: sp.Expr) -> sp.Expr:
    """k (1 − e^{−kB/(k−1)}) / (1 + (k−1) e^{−kB/(k−1)}): see `lipschitz_constant`."""
    decay = sp.exp(-k * radius / (k - 1))
    return k * (1 - decay) / (1 + (k - 1) * decay)


def lipschitz_constant(num_classes: int, radius: float) -> float:
    """λ_PAL = k (1 − e^{−kB/(k−1)}) / (1 + (k−1) e^{−kB/(k−1)}) of cross-entropy, anchored (Proposition 4.5).

    The least λ with |L_W(z) − L_W(z')| ≤ λ ‖z − z'‖ for all z, z' of norm at most B; ‖∇L_W‖ attains it at z = B w_i.

    Args:
        num_classes: k ≥ 2.
        radius: B ≥ 0; ∞ gives the limit k.

    Raises:
        ValueError: an argument outside its range.
    """
    return gradient_norm(num_classes, radius, 1)


def gradient_norm(num_classes: int, radius: float, num_high: int) -> float:
    """‖∇L_W‖ of anchored cross-entropy at norm r where a logits are equal and high, the other k−a equal and low.

    k/√(k−1) · sinh(g/2) / cosh((g − ℓ)/2) with the gap g = k r/√((k−1) a (k−a)) and ℓ = log((k−a)/a). On a sphere
    ‖∇L_W‖ is stationary only at such points, and largest for a = 1.

    Args:
        num_classes: k ≥ 2.
        radius: r ≥ 0.
        num_high: a in 1 … k−1.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_num_classes(num_classes)
    _check_not_negative("radius", radius)
    if not 1 <= num_high <= num_classes - 1:
        raise ValueError(f"num_high must lie in 1 … {num_classes - 1}, got {num_high!r}")
    k, a = num_classes, num_high
    pairs = a * (k - a)
    decay = math.exp(-k * radius / math.sqrt((k - 1) * pairs))
    return k * math.sqrt(pairs / (k - 1)) * (1 - decay) / (a + (k - a) * decay)


def unanchored_lipschitz_bound(num_classes: int, radius: float) -> float:
    """2 (e^{2B} − 1) / (e^{2B}/(k−1) + 1): the paper's lower bound for unit prototypes that are trained.

    It is ‖∇L_W‖ at z = B w_1 where all other prototypes are at −w_1, and equals λ_PAL for k = 2.

    Args:
        num_classes: k ≥ 2.
        radius: B = ‖z‖ ≥ 0; ∞ gives the limit 2(k−1).

    Raises:
        ValueError: an argument outside its range.
    """
    _check_num_classes(num_classes)
    _check_not_negative("radius", radius)
    return _opposed_gradient(num_classes, radius, 1)


def unanchored_lipschitz_constant(num_classes: int, radius: float) -> float:
    """max_m 2 (E − 1) / (E/(k−m) + 1/m), E = e^{2B}: the exact constant for unit prototypes that are trained (ours).

    The supremum of ‖∇L_W(z)‖ over all unit prototypes and ‖z‖ ≤ B, where m prototypes point along z and k−m against
    it. At most 2k tanh(B/2), which it equals where k/(1 + e^B) is an integer.

    Args:
        num_classes: k ≥ 2.
        radius: B ≥ 0; ∞ gives 2(k−1), the constant for features of any norm.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_num_classes(num_classes)
    _check_not_negative("radius", radius)
    return max(_opposed_gradient(num_classes, radius, along) for along in range(1, num_classes))


def _opposed_gradient(num_classes: int, radius: float, along: int) -> float:
    decay = math.exp(-2 * radius)
    against = num_classes - along
    return 2 * along * against * (1 - decay) / (along + against * decay)


def gce_lipschitz_constant(num_classes: int, radius: float, *, q: float, anchored: bool = True) -> float:
    """The constant of generalised cross-entropy (1 − p_y^q)/q, where L_W = Σ_i (1 − p_i^q)/q.

    ∇L_W = Σ_j c_j w_j with c_j = p_j Σ_i p_i^q − p_j^q, so ‖∇L_W‖ = √(k/(k−1)) ‖c‖ at a simplex. This is the largest
    value over all points with two levels of logits (a high, k−a low, any norm up to B); that no other point has a
    larger one is found by search in the notebook, and proved only for cross-entropy, the limit q → 0.

    Args:
        num_classes: k ≥ 2.
        radius: B ≥ 0, finite.
        q: in (0, 1]; 1 is the mean absolute error 1 − p_y, which is symmetric: 0.
        anchored: False for unit prototypes that are trained, with some along z and the others against it (then a
            lower bound of the constant).

    Raises:
        ValueError: an argument outside its range.
    """
    if not 0 < q <= 1:
        raise ValueError(f"q must lie in (0, 1], got {q!r}")
    return _largest_gradient(num_classes, radius, lambda log_p: -np.exp(q * log_p), anchored)


def focal_lipschitz_constant(num_classes: int, radius: float, *, gamma: float, anchored: bool = True) -> float:
    """The constant of the focal loss −(1 − p_y)^γ log p_y; see `gce_lipschitz_constant` for what is claimed of it.

    c_j = t_j − p_j Σ_i t_i with t = γ p (1−p)^{γ−1} log p − (1−p)^γ. It may exceed cross-entropy's.

    Args:
        num_classes: k ≥ 2.
        radius: B ≥ 0, finite.
        gamma: γ ≥ 0; 0 is cross-entropy.
        anchored: as in `gce_lipschitz_constant`.

    Raises:
        ValueError: an argument outside its range.
    """
    if not 0 <= gamma < math.inf:
        raise ValueError(f"gamma must be a finite number ≥ 0, got {gamma!r}")
    return _largest_gradient(num_classes, radius, lambda log_p: focal_slope(np.exp(log_p), gamma), anchored)


def focal_slope(p: Floats, gamma: float) -> Floats:
    """p · d/dp [−(1 − p)^γ log p] = γ p (1−p)^{γ−1} log p − (1−p)^γ, for p in [0, 1]; its limit −1 at p = 0."""
    rest = 1 - p
    # (1−p)^{γ−1} log p = −(1−p)^γ · (−log p)/(1−p), and the last factor tends to 1 as p → 1.
    surprise = -np.log(np.maximum(p, np.finfo(np.float64).tiny))
    ratio = np.divide(surprise, rest, out=np.ones_like(p), where=rest > 0)
    slope: Floats = -(rest**gamma) * (1 + gamma * p * ratio)
    return slope


def _largest_gradient(num_classes: int, radius: float, slope: Callable[[Floats], Floats], anchored: bool) -> float:
    """The largest ‖Σ_j c_j w_j‖ over points with two levels, c_j = t_j − p_j Σ_i t_i, t = slope(log p) = p φ'(p)."""
    _check_num_classes(num_classes)
    _check_not_negative("radius", radius)
    if math.isinf(radius):
        raise ValueError("radius must be finite, got inf")
    k = num_classes

    def norm(gap: ArrayLike, high: int) -> Floats:
        gap = np.asarray(gap, np.float64)
        log_p = -np.log(high + (k - high) * np.exp(-gap))
        t, t_low = slope(log_p), slope(log_p - gap)
        c: Floats = np.abs(t - np.exp(log_p) * (high * t + (k - high) * t_low))  # Σ_j c_j = 0 gives the low ones
        return c * (k * math.sqrt(high / ((k - 1) * (k - high))) if anchored else 2 * high)

    best = 0.0
    for high in range(1, k):
        widest = k * radius / math.sqrt((k - 1) * high * (k - high)) if anchored else 2 * radius
        # The peak is at a gap of a few units however large the ball is, so the grid is finest there.
        grid = np.r_[0.0, np.geomspace(min(widest, 1e-2), widest, 400)] if widest > 0 else np.zeros(1)
        values = norm(grid, high)
        peak = int(values.argmax())
        best = max(best, float(values[peak]))
        if 0 < peak < len(grid) - 1:
            found = minimize_scalar(
                lambda gap, high=high: -float(norm(gap, high)),
                bounds=(grid[peak - 1], grid[peak + 1]),
                method="bounded",
                options={"xatol": 1e-12},
            )
            best = max(best, -float(found.fun))
    return best


# Symmetric label noise (Theorem 4.4, and how much of it cross-entropy tolerates)


def noise_risk_bound(num_classes: int, noise_rate: float, radius: float, lipschitz: float) -> float:
    """2λBη / ((1−η)k − 1) ≥ R(f̂) − R(f*): what training on noisy labels costs in clean risk (PAL Theorem 4.4, Eq. 7).

    f̂ minimises the risk under symmetric noise of rate η, f* the clean one.

    Args:
        num_classes: k ≥ 2.
        noise_rate: η in [0, 1 − 1/k).
        radius: B ≥ 0, of the features.
        lipschitz: λ ≥ 0 of L_W on the ball of that radius.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_noise_rate(num_classes, noise_rate)
    _check_not_negative("radius", radius)
    _check_not_negative("lipschitz", lipschitz)
    _check_finite("radius", radius)
    _check_finite("lipschitz", lipschitz)
    return 2 * lipschitz * radius * noise_rate / ((1 - noise_rate) * num_classes - 1)


def largest_tolerant_scale_expression(k: sp.Expr, eta: sp.Expr) -> sp.Expr:
    """(k−1)/k · log((1−η)(k−1)/η): see `largest_tolerant_scale`."""
    return (k - 1) / k * sp.log((1 - eta) * (k - 1) / eta)


def largest_tolerant_scale(num_classes: int, noise_rate: float) -> float:
    """s* = (k−1)/k · ln((1−η)(k−1)/η): the largest scale at which CE + FNPAL keeps features at their prototypes (ours).

    At z = w_y the softmax of s* W z gives the true class exactly 1 − η. For s ≤ s* the unit feature of least risk under
    symmetric noise is w_y; for s > s*, in d ≥ k dimensions, every minimiser has cosine s*/s with w_y. In d = k−1
    dimensions features stay a little longer: `scale_of_instability`.

    Args:
        num_classes: k ≥ 2.
        noise_rate: η in [0, 1 − 1/k); 0 gives ∞.

    Raises:
        ValueError: an argument outside its range.
    """
    _check_noise_rate(num_classes, noise_rate)
    if noise_rate == 0:
        return math.inf
    return (num_classes - 1) / num_classes * math.log((1 - noise_rate) * (num_classes - 1) / noise_rate)


def scale_of_instability(num_classes: int, noise_rate: float) -> float:
    """The s where z = w_y stops to be a local minimum of the noisy risk in d = k−1 ≥ 2 dimensions (ours).

    It solves p − (1−η) = s (1−p)/(k−1), with the softmax p = 1/(1 + (k−1) e^{−ks/(k−1)}) at w_y, and exceeds
    `largest_tolerant_scale`. The global minimum may leave w_y earlier.

    Args:
        num_classes: k ≥ 3.
        noise_rate: η in (0, 1 − 1/k).

    Raises:
        ValueError: an argument outside its range.
    """
    start = largest_tolerant_scale(num_classes, noise_rate)
    if num_classes < 3 or noise_rate == 0:
        raise ValueError(
            f"num_classes ≥ 3 and noise_rate > 0 are needed for w_y to become unstable, got {num_classes}, {noise_rate}"
        )

    def excess(scale: float) -> float:
        others = math.exp(-num_classes * scale / (num_classes - 1))
        p = 1 / (1 + (num_classes - 1) * others)
        return noise_rate - others * p * (num_classes - 1 + scale)  # p − (1−η) would cancel for a small η

    end = 2 * start + 1
    while excess(end) <= 0:
        end *= 2
    return float(brentq(excess, start, end, xtol=1e-14))


def noise_excess_risk(num_classes: int, noise_rate: float, scale: float) -> float:
    """R(f̂) − R(f*) of CE + FNPAL under symmetric noise, exactly, in d ≥ k dimensions (ours).

    0 for s ≤ s*, and log(1/(1−η)) − log(1 + (k−1) e^{−ks/(k−1)}) above.

    Args:
        num_classes: k ≥ 2.
        noise_rate: η in [0, 1 − 1/k).
        scale: s ≥ 0.

    Raises:
        ValueError: an argument outside its range.
    """
    tolerated = largest_tolerant_scale(num_classes, noise_rate)
    kept = margin_loss_bound(num_classes, min(scale, tolerated))
    return kept - margin_loss_bound(num_classes, scale)


def noise_aware_scale(noise_rate: float) -> float:
    """0.25 / (0.05 + η): the scale of CE + FNPAL and SCE + FNPAL in the paper's experiments.

    Raises:
        ValueError: η outside [0, 1].

    >>> [round(noise_aware_scale(rate), 3) for rate in (0.0, 0.2, 0.8)]
    [5.0, 1.0, 0.294]
    """
    if not isinstance(noise_rate, Real) or not 0 <= noise_rate <= 1:
        raise ValueError(f"noise_rate must lie in [0, 1], got {noise_rate!r}")
    return 0.25 / (0.05 + noise_rate)
