import math
from functools import cache

import numpy as np
import pytest
import sympy as sp
import torch
from scipy.optimize import brentq, minimize
from torch.nn.functional import cross_entropy

from ltnb import geometry
from ltnb.free_features import minimise
from ltnb.losses import bce_joint
from ltnb.theory.minority_collapse import (
    binary_cross_entropy_collapse_ratio,
    binary_cross_entropy_optimum,
    cross_entropy_collapse_ratio,
    cross_entropy_optimum,
    layer_peeled_collapse_ratio,
)


def softmax_loss(logits, y, *, reduction):
    return cross_entropy(logits, y, reduction=reduction)


def family(num_classes, alpha, beta):
    """w and h of the module's text, in K − 1 dimensions, the head first."""
    tails = geometry.regular_simplex(num_classes - 1, num_classes - 2)

    def vectors(angle):
        head = torch.tensor([[1.0] + [0.0] * (num_classes - 2)], dtype=torch.float64)
        along = torch.full((num_classes - 1, 1), -math.cos(angle), dtype=torch.float64)
        return torch.cat([head, torch.cat([along, math.sin(angle) * tails], dim=1)])

    return vectors(alpha), vectors(beta)


def angles(optimum):
    return math.acos(-optimum.weight_head_tail), math.acos(-optimum.feature_head_tail)


@cache
def second_order():
    """∂loss/∂δ and the Hessian's determinant at collapse, as functions of K, 1/τ, δ = b₁ − b_t and ρ."""
    k, s, a, b, shift, ratio = symbols = sp.symbols("K s alpha beta delta rho")
    along, across = sp.cos(a) * sp.cos(b), sp.sin(a) * sp.sin(b)
    own, other = along + across, along - across / (k - 2)
    of_head = sp.log(1 + (k - 1) * sp.exp(-s * (1 + sp.cos(a)) - shift))
    of_tail = sp.log(1 + (k - 2) * sp.exp(s * (other - own)) + sp.exp(s * (-sp.cos(b) - own) + shift))
    loss = ratio * of_head + (k - 1) * of_tail
    collapsed = {a: 0, b: 0}
    free = [symbol for symbol in symbols if symbol not in collapsed]
    determinant = sp.hessian(loss, (a, b)).subs(collapsed).det()
    return sp.lambdify(free, sp.diff(loss, shift).subs(collapsed)), sp.lambdify(free, determinant)


@pytest.mark.parametrize(("num_classes", "temperature"), [(3, 1.0), (4, 0.7), (6, 1.3)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_hessian_of_cross_entropy_is_singular_at_the_ratio(num_classes, temperature, bias):
    """By differentiating the symmetric loss with sympy, not by the second order that the docstring gives."""
    slope, determinant = second_order()
    value = cross_entropy_collapse_ratio(num_classes, temperature, bias=bias)

    def size(ratio):
        at = brentq(lambda shift: slope(num_classes, 1 / temperature, shift, ratio), -5, 15) if bias else 0.0
        return determinant(num_classes, 1 / temperature, at, ratio)

    assert abs(size(value)) < 1e-9 * abs(size(2 * value))
    assert size(0.9 * value) < 0 < size(1.1 * value)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("num_classes", [3, 5])
def test_cross_entropy_tails_coincide_beyond_the_ratio_only(num_classes, bias):
    threshold = cross_entropy_collapse_ratio(num_classes, 0.8, bias=bias)
    below, above = (cross_entropy_optimum(num_classes, x * threshold, 0.8, bias=bias) for x in (0.98, 1.02))
    assert below.weight_tail_tail < 1 - 1e-5
    assert below.feature_tail_tail < 0.999
    assert (above.weight_tail_tail, above.feature_head_tail) == pytest.approx((1, -1), abs=1e-6)


@pytest.mark.parametrize("num_classes", [3, 5])
def test_binary_cross_entropy_tails_coincide_beyond_the_ratio_only(num_classes):
    threshold = binary_cross_entropy_collapse_ratio(num_classes, 0.8)
    below, above = (binary_cross_entropy_optimum(num_classes, x * threshold, 0.8) for x in (0.98, 1.02))
    assert below.weight_tail_tail < 0.999
    assert (above.weight_tail_tail, above.feature_head_tail) == pytest.approx((1, -1), abs=1e-6)


def test_bias_makes_weights_and_features_of_cross_entropy_alike():
    found = cross_entropy_optimum(4, 12, 0.9, bias=True)
    assert found.weight_head_tail == pytest.approx(found.feature_head_tail, abs=1e-6)
    without = cross_entropy_optimum(4, 12, 0.9)
    assert without.weight_head_tail < without.feature_head_tail - 0.1


@pytest.mark.parametrize("optimum", [cross_entropy_optimum, binary_cross_entropy_optimum])
def test_equal_counts_give_the_regular_simplex(optimum):
    for num_classes in (3, 4, 7):
        assert optimum(num_classes, 1, 0.6)[1:] == pytest.approx([-1 / (num_classes - 1)] * 4, abs=1e-6)


@pytest.mark.parametrize("ratio", [3, 9])
def test_free_features_find_nothing_lower_and_meet_it(ratio):
    settings = {"starts": 2, "radius": 1 / 0.8}
    searches = [
        (cross_entropy_optimum(4, ratio, 0.8), minimise(softmax_loss, [ratio, 1, 1, 1], 3, **settings)),
        (
            cross_entropy_optimum(4, ratio, 0.8, bias=True),
            minimise(softmax_loss, [ratio, 1, 1, 1], 3, bias=True, **settings),
        ),
        (
            binary_cross_entropy_optimum(4, ratio, 0.8),
            minimise("bce_joint", [ratio, 1, 1, 1], 3, bias=True, **settings),
        ),
    ]
    for theory, found in searches:
        assert found.loss == pytest.approx(theory.loss, rel=1e-11)
        assert found.gap < 1e-6
        assert found.cosines[0, 1].item() == pytest.approx(theory.feature_head_tail, abs=1e-5)
        assert geometry.cosine_matrix(found.weight)[1, 2].item() == pytest.approx(theory.weight_tail_tail, abs=1e-5)


@pytest.mark.parametrize(("num_classes", "temperature"), [(3, 1.0), (4, 1.0), (5, 1.5)])
def test_layer_peeled_tails_coincide_beyond_the_ratio_only(num_classes, temperature):
    threshold = layer_peeled_collapse_ratio(num_classes, temperature)
    for ratio, collapsed in ((math.floor(0.95 * threshold), False), (math.ceil(1.05 * threshold), True)):
        found = minimise(
            softmax_loss,
            [ratio] + [1] * (num_classes - 1),
            num_classes - 1,
            features="average",
            classifier="average",
            radius=1 / temperature,
            starts=1,
        )
        assert found.gap < 1e-6
        tails = geometry.cosine_matrix(found.weight)[1, 2].item()
        assert tails == pytest.approx(1, abs=1e-6) if collapsed else tails < 0.999


def test_the_optima_are_values_of_the_losses():
    found = binary_cross_entropy_optimum(5, 4, 0.7)
    weight, directions = family(5, *angles(found))
    labels = torch.tensor([0, 0, 0, 0, 1, 2, 3, 4])

    def loss_and_gradient(biases):
        biases = torch.from_numpy(biases).requires_grad_()
        loss = bce_joint(directions[labels] / 0.7, labels, weight, biases, reduction="sum")
        return loss.item(), torch.autograd.grad(loss, biases)[0].numpy()

    least = minimize(loss_and_gradient, np.zeros(5), jac=True, method="BFGS", options={"gtol": 1e-10}).fun
    assert least == pytest.approx(found.loss, rel=1e-10)
    found = cross_entropy_optimum(5, 4, 0.7)
    weight, directions = family(5, *angles(found))
    logits = directions[labels] @ weight.T / 0.7
    assert cross_entropy(logits, labels, reduction="sum").item() == pytest.approx(found.loss, rel=1e-12)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (cross_entropy_collapse_ratio, (2,), "num_classes"),
        (cross_entropy_collapse_ratio, (3.5,), "num_classes"),
        (binary_cross_entropy_collapse_ratio, (math.inf,), "num_classes"),
        (binary_cross_entropy_collapse_ratio, (4, 0.0), "temperature"),
        (layer_peeled_collapse_ratio, (4, math.inf), "temperature"),
        (cross_entropy_optimum, (4, 0.0), "ratio"),
        (cross_entropy_optimum, (4, 1e7), "ratio"),
        (binary_cross_entropy_optimum, (4, math.nan), "ratio"),
    ],
)
def test_arguments_out_of_range_are_refused(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_ratios_are_finite_down_to_the_least_temperature():
    for function in (cross_entropy_collapse_ratio, binary_cross_entropy_collapse_ratio, layer_peeled_collapse_ratio):
        values = [function(4, temperature) for temperature in (0.01, 0.1, 1.0, 10.0)]
        assert all(math.isfinite(value) for value in values)
        assert values == sorted(values, reverse=True)
        assert values[-1] > 1


def test_a_layer_peeled_ratio_too_large_for_a_float_is_infinite():
    assert layer_peeled_collapse_ratio(100, 0.1) == layer_peeled_collapse_ratio(1000, 1.0) == math.inf
    assert 1e199 < layer_peeled_collapse_ratio(4, 0.01) < 1e201


@pytest.mark.parametrize("bias", [False, True])
def test_the_optimum_bends_when_cold_too(bias):
    """At τ = 0.02 the loss is below every absolute tolerance of a search; tails still draw together as ρ grows."""
    tails = [cross_entropy_optimum(4, ratio, 0.02, bias=bias).weight_tail_tail for ratio in (1, 10, 1000)]
    assert tails[0] == pytest.approx(-1 / 3, abs=1e-6)
    assert tails[0] < tails[1] - 1e-3 < tails[2] - 2e-3


def test_cold_optima_at_known_values():
    assert cross_entropy_optimum(4, 1000, 0.05).weight_tail_tail == pytest.approx(-0.078, abs=5e-4)
    cold = binary_cross_entropy_optimum(4, 1000, 0.02)
    assert cold.weight_tail_tail > -1 / 3
    assert cold.feature_tail_tail > -1 / 3
