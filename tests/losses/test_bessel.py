import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.special import ive
from torch._subclasses.fake_tensor import FakeTensorMode

from ltnb.losses.bessel import log_bessel_of_square

ORDERS = [0, 0.5, 1, 3, 29.5, 31, 63, 255, 1023]
POINTS = np.logspace(-3, 4, 57)


def in_forty_digits(order: float, square: float) -> mpmath.mpf:
    """log(I_ν(√s)/√s^ν), from the power series of I_ν in s (0F1), which mpmath sums or continues as it has to."""
    with mpmath.workdps(40):
        s, order = mpmath.mpf(square), mpmath.mpf(order)
        return mpmath.log(mpmath.hyp0f1(order + 1, s / 4)) - mpmath.loggamma(order + 1) - order * mpmath.log(2)


@pytest.mark.parametrize("order", ORDERS)
def test_agrees_with_scipy_where_it_does_not_underflow(order):
    scaled = ive(order, POINTS)
    held = scaled > 1e-290
    assert held.sum() > 5
    x = POINTS[held]
    logarithms = log_bessel_of_square(order, torch.from_numpy(x**2)).numpy() + order * np.log(x)
    np.testing.assert_allclose(np.exp(logarithms - x - np.log(scaled[held])), 1, rtol=0, atol=1e-10)


@pytest.mark.parametrize("order", [-0.5, *ORDERS])
def test_agrees_with_forty_digits(order):
    squares = [0.0, 1e-12, *(POINTS**2)[::4].tolist(), 1e10]
    values = log_bessel_of_square(order, torch.tensor(squares, dtype=torch.float64)).tolist()
    for square, value in zip(squares, values, strict=True):
        expected = in_forty_digits(order, square)
        unit = max(1, math.sqrt(square), abs(expected))
        assert abs(value - expected) < (1e-13 if order < 30 else 1e-15) * unit, square


def test_closed_forms_of_half_integer_orders():
    x = torch.tensor([0.1, 1.0, 5.0, 20.0], dtype=torch.float64)
    constant = math.log(2 / math.pi) / 2
    torch.testing.assert_close(log_bessel_of_square(-0.5, x**2), constant + x.cosh().log(), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(log_bessel_of_square(0.5, x**2), constant + (x.sinh() / x).log(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("order", [-0.5, *ORDERS])
def test_the_gradient_is_the_ratio_of_orders_and_finite_at_zero(order):
    squares = [0.0, 1e-300, 1e-12, 1e-3, 1.0, 300.0, 1e4, 1e8]
    s = torch.tensor(squares, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(log_bessel_of_square(order, s).sum(), s)
    assert gradient[:3].tolist() == pytest.approx([1 / (4 * (order + 1))] * 3, rel=1e-10)
    for square, slope in zip(squares, gradient.tolist(), strict=True):
        ratio = mpmath.exp(in_forty_digits(order + 1, square) - in_forty_digits(order, square))
        assert slope == pytest.approx(float(ratio) / 2, rel=1e-10), square


@pytest.mark.parametrize("order", [0, 0.5, 29.5, 63])
def test_derivatives_agree_with_finite_differences(order):
    s = torch.tensor([[0.1, 2.0], [50.0, 3000.0]], dtype=torch.float64, requires_grad=True)
    # F itself is in the hundreds, and a step of 10⁻⁶ would find its rounding.
    tolerances = {"eps": 1e-3, "rtol": 1e-5, "atol": 1e-9}
    assert torch.autograd.gradcheck(lambda s: log_bessel_of_square(order, s), (s,), **tolerances)
    assert torch.autograd.gradgradcheck(lambda s: log_bessel_of_square(order, s), (s,), **tolerances)


def test_the_second_derivative_is_that_of_the_power_series():
    # log of 1 + u/(ν+1) + u²/(2(ν+1)(ν+2)) + …, u = s/4, at u = 0.
    for order in (0.0, 1.0, 63.0):
        second = torch.autograd.functional.hessian(
            lambda s, order=order: log_bessel_of_square(order, s), torch.zeros((), dtype=torch.float64)
        )
        expected = (1 / ((order + 1) * (order + 2)) - 1 / (order + 1) ** 2) / 16
        assert second.item() == pytest.approx(expected, rel=1e-9)


def test_every_type_is_computed_and_returned_in_float64():
    for dtype in (torch.float32, torch.bfloat16):
        s = torch.tensor([0.0, 2.0, 256.0], dtype=dtype, requires_grad=True)
        values = log_bessel_of_square(63, s)
        assert torch.equal(values, log_bessel_of_square(63, s.double()))
        values.sum().backward()
        assert s.grad.dtype == dtype
        assert s.grad.isfinite().all()


def test_autograd_keeps_two_matrices():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()), lambda x: x):
        log_bessel_of_square(3, torch.ones(5, 4, dtype=torch.float64, requires_grad=True))
    assert kept == [20, 20]


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        for order in (0.5, 63):
            assert log_bessel_of_square(order, torch.empty(8, 3, device="cuda")).shape == (8, 3)
            # Its engine wants a device that is there, whereas no fake value can be read back from any.
            s = torch.empty(8, 3, requires_grad=True)
            log_bessel_of_square(order, s).sum().backward()
            assert s.grad.shape == (8, 3)


@pytest.mark.parametrize(
    ("order", "square", "message"),
    [
        (-1, torch.ones(2), "order must be a finite number > -1, got -1"),
        (math.nan, torch.ones(2), "order must be .* got nan"),
        (math.inf, torch.ones(2), "order must be .* got inf"),
        (1, torch.ones(2, dtype=torch.long), "square must be a floating-point tensor, got torch.int64"),
    ],
)
def test_bad_input_is_named(order, square, message):
    with pytest.raises(ValueError, match=message):
        log_bessel_of_square(order, square)
