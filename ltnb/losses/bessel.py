"""The modified Bessel function of the first kind that normalises von Mises-Fisher laws, in pure torch."""

import math
from functools import cache
from typing import Any

import torch
from numpy.polynomial import Polynomial
from torch import Tensor

# From this order on the expansion below is exact to rounding: its first term left out is 0.38/30⁹ ≈ 2·10⁻¹⁴ at most.
LARGE_ORDER = 30
NUM_TERMS = 8


def log_bessel_of_square(order: float, square: Tensor) -> Tensor:
    r"""F_ν(s) = log [ I_ν(√s) / √s^ν ], the logarithm of a function that is entire in s:

        I_ν(x)/x^ν = Σ_m (x²/4)^m / (2^ν m! Γ(m + ν + 1)),     F_ν(0) = −ν log 2 − log Γ(ν + 1)
        dF_ν/ds = I_{ν+1}(x)/(2x I_ν(x)) = exp(F_{ν+1} − F_ν)/2,     1/(4(ν + 1)) at s = 0

    So log I_ν(x) = F_ν(x²) + ν log x, and where the length of a vector is what goes into it, the gradient has no
    singularity at the zero vector. Computed by Debye's expansion for large orders (DLMF §10.41(ii)), uniform in x ≥ 0,
    from which the recurrence of orders (§10.29(i)) leads down to smaller orders by sums of positive terms. Neither
    overflows. F is right to 10⁻¹³ of max(1, √s, |F|), and to a few 10⁻¹⁶ of it for ν ≥ 30.

    Derivatives of any order are right; each costs one more evaluation.

    Args:
        order: ν > −1, real.
        square: s ≥ 0 of any shape and floating-point type.

    Returns:
        F_ν(s), float64 of the same shape.

    Raises:
        ValueError: ν is not a finite number > −1, or `square` is no floating-point tensor. Its values are not looked
            at.
    """
    if not -1 < order < math.inf:
        raise ValueError(f"order must be a finite number > -1, got {order!r}")
    if not square.is_floating_point():
        raise ValueError(f"square must be a floating-point tensor, got {square.dtype}")
    return _LogBesselOfSquare.apply(float(order), square.double())  # type: ignore[no-any-return]


class _LogBesselOfSquare(torch.autograd.Function):
    """Keeps s and F alone, where autograd would keep the result of every step."""

    @staticmethod
    def forward(ctx: Any, order: float, square: Tensor) -> Tensor:
        value = _from_large_order(order, square)
        ctx.save_for_backward(square, value)
        ctx.order = order
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        square, value = ctx.saved_tensors
        ratio = torch.exp(_LogBesselOfSquare.apply(ctx.order + 1, square) - value)
        return None, grad * ratio / 2


def _from_large_order(order: float, square: Tensor) -> Tensor:
    """F_ν(s) from F_{ν+n} and F_{ν+n+1}, by G_{m−1} = 2m G_m + s G_{m+1} for G = exp F."""
    steps = max(0, math.ceil(LARGE_ORDER - order))
    value = _debye(order + steps, square)
    if steps == 0:
        return value
    ratio = torch.exp(_debye(order + steps + 1, square) - value)  # G_{m+1}/G_m
    for step in range(steps, 0, -1):
        growth = 2 * (order + step) + square * ratio  # G_{m−1}/G_m
        value += growth.log()
        ratio = growth.reciprocal()
    return value


def _debye(order: float, square: Tensor) -> Tensor:
    """F_ν(s) = h − ν log(ν + h) − log(2πh)/2 + Σ_k D_k(ν/h)/ν^k,  h = √(ν² + s), of a large order."""
    h = (square + order**2).sqrt()
    p = order / h
    # One polynomial of p for all terms, by Horner's rule and in place: matrices of all samples and classes are large.
    *rest, highest = _debye_correction(order)
    value = torch.full_like(p, highest)
    for coefficient in reversed(rest):
        value.mul_(p).add_(coefficient)
    return value.add_(h).sub_((h + order).log_(), alpha=order).sub_(h.mul_(2 * math.pi).log_(), alpha=0.5)


@cache
def _debye_correction(order: float) -> tuple[float, ...]:
    """Coefficients, lowest first, of Σ_k D_k(p)/ν^k: what h − ν log(ν + h) − log(2πh)/2 lacks of log G."""
    total = Polynomial([0.0])
    for k, slope in enumerate(_debye_slopes(), start=1):
        total = total + slope.integ() / order**k
    return tuple(total.coef.tolist())


@cache
def _debye_slopes() -> tuple[Polynomial, ...]:
    """D_k′(p) of k = 1, 2, …, from Bessel's equation.

    The sum of Debye's terms U_k/ν^k (DLMF §10.41(ii)) is exp S, S = Σ_k D_k/ν^k, and their recurrence in terms of S is

        ν S′ = ½(p² − p⁴)(S″ + S′²) + (p − 2p³) S′ + (1 − 5p²)/8
    """
    p = Polynomial([0.0, 1.0])
    slopes = [(1 - 5 * p**2) / 8]
    while len(slopes) < NUM_TERMS:
        products = sum((a * b for a, b in zip(slopes[:-1], slopes[-2::-1], strict=True)), Polynomial([0.0]))
        slopes.append((p**2 - p**4) / 2 * (slopes[-1].deriv() + products) + (p - 2 * p**3) * slopes[-1])
    return tuple(slopes)
