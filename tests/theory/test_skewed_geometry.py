import math

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ltnb.geometry import regular_simplex, simplex_cosine
from ltnb.losses import supervised_contrastive
from ltnb.theory import skewed_geometry as sg

CLASSES = st.integers(3, 12)
TAIL_COUNTS = st.integers(2, 60)
TEMPERATURES = st.floats(0.1, 3)
LOSS = sp.lambdify((sg.X1, sg.X2, sg.K, sg.A2, sg.RHO, sg.TAU), sg.loss_expression(), "math")
COLLAPSE_RATIO = sp.lambdify((sg.K, sg.A2, sg.TAU), sg.collapse_ratio_expression(), "math")


def packing(cos_head_tail, num_classes):
    """Head on the last axis, tails as a simplex on their circle of latitude."""
    across = math.sqrt(1 - cos_head_tail**2) * regular_simplex(num_classes - 1, num_classes - 2)
    tails = torch.cat([across, torch.full((num_classes - 1, 1), cos_head_tail, dtype=torch.float64)], dim=1)
    return torch.cat([torch.eye(num_classes - 1, dtype=torch.float64)[-1:], tails])


def labels(class_counts):
    return torch.repeat_interleave(torch.arange(len(class_counts)), torch.tensor(class_counts))


def sum_of_losses(z, y, temperature):
    return supervised_contrastive(z, y, temperature=temperature, reduction="sum").item()


def one_head_gram(x1, x2, num_classes):
    gram = np.full((num_classes, num_classes), x2)
    gram[0] = gram[:, 0] = x1
    np.fill_diagonal(gram, 1)
    return gram


def random_gram(num_classes, rng):
    points = rng.normal(size=(num_classes, num_classes))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    gram = points @ points.T
    np.fill_diagonal(gram, 1)
    return gram


@pytest.mark.parametrize(("num_classes", "ratio"), [(3, 24.34), (4, 36.50), (10, 109.47), (100, 1203.99)])
def test_collapse_ratio_has_the_known_values(num_classes, ratio):
    assert sg.collapse_ratio(num_classes, 50) == pytest.approx(ratio, abs=0.005)


def test_collapse_ratio_of_cold_temperatures():
    assert sg.collapse_ratio(100, 50, 0.1) == pytest.approx(9.606e10, rel=1e-3)
    assert sg.collapse_ratio(100, 50, 0.05) == pytest.approx(2 * 99 * math.exp(40), rel=1e-3)
    assert sg.collapse_ratio(100, 50, 1e-3) == math.inf


@given(num_classes=CLASSES, tail_count=TAIL_COUNTS, temperature=TEMPERATURES)
@settings(deadline=None, max_examples=40)
def test_collapse_ratio_is_the_printed_formula(num_classes, tail_count, temperature):
    expected = COLLAPSE_RATIO(num_classes, tail_count, temperature)
    assert sg.collapse_ratio(num_classes, tail_count, temperature) == pytest.approx(expected, rel=1e-12)
    assert expected > 1


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_collapse_ratio_grows_with_the_number_of_tails(num_classes):
    assert sg.collapse_ratio(num_classes, 1e9) / (num_classes - 1) == pytest.approx(12.1614, abs=1e-4)


def derivative(function, x, step=1e-6):
    return (function(x + step) - function(x - step)) / (2 * step)


def profile(num_classes, tail_count, ratio, temperature):
    """g(x₁), for any real x₁."""
    tails = (num_classes - 1) / (num_classes - 2)
    return lambda x1: LOSS(x1, tails * x1**2 - 1 / (num_classes - 2), num_classes, tail_count, ratio, temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize(("num_classes", "tail_count"), [(3, 2), (4, 50), (10, 3)])
def test_loss_stops_falling_at_the_end_at_the_collapse_ratio(num_classes, tail_count, temperature):
    ratio = sg.collapse_ratio(num_classes, tail_count, temperature)
    slopes = [derivative(profile(num_classes, tail_count, c * ratio, temperature), -1.0) for c in (0.99, 1, 1.01)]
    assert slopes[0] < 0 < slopes[2]
    assert slopes[1] == pytest.approx(0, abs=1e-3 * slopes[2])


@given(
    num_classes=CLASSES,
    tail_count=TAIL_COUNTS,
    ratio=st.floats(1, 200),
    temperature=TEMPERATURES,
    x1=st.floats(-1, 1),
    x2=st.floats(-1, 1),
)
@settings(deadline=None, max_examples=40)
def test_loss_is_its_expression(num_classes, tail_count, ratio, temperature, x1, x2):
    expected = LOSS(x1, x2, num_classes, tail_count, ratio, temperature)
    assert sg.loss(x1, x2, num_classes, tail_count, ratio, temperature) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("head_count", [2, 5, 40])
def test_loss_is_that_of_features_at_the_packing(head_count, temperature):
    y = labels([head_count, 5, 5, 5])
    for x1 in (-1.0, -0.7, 0.2, 1.0):
        expected = sum_of_losses(packing(x1, 4)[y], y, temperature)
        x2 = sg.tail_cosine(x1, 4)
        assert sg.loss(x1, x2, 4, 5, head_count / 5, temperature) == pytest.approx(expected, rel=1e-12)
        gram = one_head_gram(x1, x2, 4)
        assert sg.class_loss(gram, [head_count, 5, 5, 5], temperature) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("expected", "ratio"), [(-0.4533, 2), (-0.8681, 0.5 * 36.49777979654318), (-1 / 3, 1), (-1, 36.5), (-1, 100)]
)
def test_optimum_of_four_classes(expected, ratio):
    x1, x2 = sg.optimal_cosines(4, 50, ratio)
    assert x1 == pytest.approx(expected, abs=5e-5)
    assert x2 == pytest.approx((3 * x1**2 - 1) / 2, abs=1e-12)


@given(num_classes=CLASSES, tail_count=TAIL_COUNTS, share=st.floats(0, 1), temperature=TEMPERATURES)
@settings(deadline=None, max_examples=60)
def test_optimum_is_the_least_of_a_fine_grid(num_classes, tail_count, share, temperature):
    ratio = 2 / tail_count * (2 * tail_count * sg.collapse_ratio(num_classes, tail_count, temperature)) ** share
    x1, x2 = sg.optimal_cosines(num_classes, tail_count, ratio, temperature)
    bound = sg.lower_bound(num_classes, tail_count, ratio, temperature)
    assert bound == sg.loss(x1, x2, num_classes, tail_count, ratio, temperature)
    for other in np.linspace(-1, 1, 201):
        value = sg.loss(other, sg.tail_cosine(other, num_classes), num_classes, tail_count, ratio, temperature)
        assert value >= bound * (1 - 1e-13)


@given(num_classes=CLASSES, tail_count=TAIL_COUNTS, share=st.floats(0.01, 0.99), temperature=TEMPERATURES)
@settings(deadline=None, max_examples=60)
def test_the_four_cases(num_classes, tail_count, share, temperature):
    simplex, threshold = simplex_cosine(num_classes), sg.collapse_ratio(num_classes, tail_count, temperature)

    def cosine(ratio):
        return sg.optimal_cosines(num_classes, tail_count, ratio, temperature)[0]

    smaller = 2 / tail_count + share * (1 - 2 / tail_count)
    assert smaller == 1 or simplex < cosine(smaller) < 0
    assert cosine(1) == pytest.approx(simplex, abs=1e-12)
    assert -1 < cosine(threshold**share) < simplex
    assert cosine(1.0001 * threshold) == -1


@given(num_classes=CLASSES, tail_count=TAIL_COUNTS, share=st.floats(0.01, 1), temperature=st.floats(0.2, 3))
@settings(deadline=None, max_examples=60)
def test_ratio_of_optimum_is_the_inverse(num_classes, tail_count, share, temperature):
    x1 = -1 + share * (1 + simplex_cosine(num_classes))
    ratio = sg.ratio_of_optimum(min(x1, simplex_cosine(num_classes)), num_classes, tail_count, temperature)
    assert ratio >= 1 - 1e-9
    assert sg.optimal_cosines(num_classes, tail_count, ratio, temperature)[0] == pytest.approx(x1, abs=1e-8)


@given(num_classes=CLASSES, tail_count=TAIL_COUNTS, temperature=TEMPERATURES)
@settings(deadline=None, max_examples=40)
def test_ratio_of_optimum_at_its_ends(num_classes, tail_count, temperature):
    ends = [sg.ratio_of_optimum(x, num_classes, tail_count, temperature) for x in (-1, simplex_cosine(num_classes))]
    assert ends[0] == pytest.approx(sg.collapse_ratio(num_classes, tail_count, temperature), rel=1e-10)
    assert ends[1] == pytest.approx(1, abs=1e-7)


def test_ratios_of_extreme_problems():
    assert sg.ratio_of_optimum(-1, 4, 5, 0.003) == pytest.approx(sg.collapse_ratio(4, 5, 0.003), rel=1e-9)
    assert sg.ratio_of_optimum(-1, 4, 5, 0.002) == sg.collapse_ratio(4, 5, 0.002) == math.inf
    assert sg.collapse_ratio(4, 1e308) == pytest.approx(sg.collapse_ratio(4, 1e12), rel=1e-9)
    assert sg.ratio_of_optimum(-0.5, 4, 1e200) == pytest.approx(sg.ratio_of_optimum(-0.5, 4, 1e12), rel=1e-9)


def test_very_low_temperature_is_the_simplex():
    assert sg.optimal_cosines(10, 50, 1000, 1e-5) == pytest.approx([-1 / 9, -1 / 9], abs=1e-3)


def test_expansion_in_the_temperature():
    for temperature in (1e-4, 1e-5):
        x1, x2 = sg.optimal_cosines(10, 1e9, 100, temperature)
        bend = temperature * math.log(101 / 2)
        assert (x1 + 1 / 9) / bend == pytest.approx(-8 / 10, rel=200 * temperature)
        assert (x2 + 1 / 9) / bend == pytest.approx(2 / 10, rel=200 * temperature)


def random_features(rng, class_counts):
    """Around a class mean each, from spread out to nearly collapsed."""
    y = labels(class_counts)
    dim = rng.integers(2, 8)
    spread = rng.choice([1e-3, 0.2, 5])
    centres = torch.as_tensor(rng.normal(size=(len(class_counts), dim)))
    noise = torch.as_tensor(rng.normal(size=(len(y), dim)))
    return torch.nn.functional.normalize(centres[y] + spread * noise, dim=1), y


def test_no_features_are_below_the_bound():
    rng = np.random.default_rng(0)
    for _ in range(400):
        num_classes, tail_count, head_count = rng.integers(3, 7), rng.integers(2, 6), rng.integers(2, 40)
        z, y = random_features(rng, [head_count] + [tail_count] * (num_classes - 1))
        temperature = rng.choice([1.0, 0.3, 0.1])
        bound = sg.lower_bound(num_classes, tail_count, head_count / tail_count, temperature)
        assert sum_of_losses(z, y, temperature) >= bound * (1 - 1e-12)


def test_no_features_are_below_the_loss_of_their_class_means():
    rng = np.random.default_rng(1)
    for _ in range(400):
        counts = list(rng.integers(2, 12, size=rng.integers(2, 6)))
        z, y = random_features(rng, counts)
        means = np.array([z[y == k].mean(dim=0).numpy() for k in range(len(counts))])
        temperature = rng.choice([1.0, 0.1])
        value = sum_of_losses(z, y, temperature)
        assert value >= sg.class_loss(means @ means.T, counts, temperature) * (1 - 1e-12)


def test_mean_cosines_of_tails_are_packed():
    rng = np.random.default_rng(2)
    for _ in range(400):
        gram = random_gram(rng.integers(3, 9), rng)
        num_classes = len(gram)
        tails = gram[1:, 1:][~np.eye(num_classes - 1, dtype=bool)]
        assert tails.mean() >= sg.tail_cosine(gram[0, 1:].mean(), num_classes) - 1e-12


def test_gradient_of_class_loss():
    rng = np.random.default_rng(3)
    for temperature in (1.0, 0.2):
        gram, counts = random_gram(4, rng), [9, 4, 3, 2]
        gradient = sg.class_loss_gradient(gram, counts, temperature)
        for k, j in [(0, 1), (2, 0), (3, 2)]:
            step = np.zeros((4, 4))
            step[k, j] = step[j, k] = 1e-6
            ends = [sg.class_loss(gram + sign * step, counts, temperature) for sign in (1, -1)]
            # Both entries move, and each is half of the derivative.
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(2 * gradient[k, j], rel=1e-6)
        assert (gradient == gradient.T).all()
        assert (np.diagonal(gradient) == 0).all()


@pytest.mark.parametrize("temperature", [1.0, 0.3, 0.1])
@pytest.mark.parametrize("ratio", [1, 4, 30, 300])
def test_gap_is_zero_at_the_optimum_of_one_head(ratio, temperature):
    counts = [5 * ratio, 5, 5, 5, 5]
    gram = one_head_gram(*sg.optimal_cosines(5, 5, ratio, temperature), 5)
    assert sg.optimality_gap(gram, counts, temperature) < 1e-9 * sg.class_loss(gram, counts, temperature)


def test_gap_is_never_too_small():
    rng = np.random.default_rng(4)
    for _ in range(400):
        num_classes, tail_count, ratio = rng.integers(3, 8), rng.integers(2, 30), rng.integers(1, 60)
        temperature = rng.choice([1.0, 0.2])
        counts = [ratio * tail_count] + [tail_count] * (num_classes - 1)
        gram = random_gram(num_classes, rng)
        floor = sg.class_loss(gram, counts, temperature) - sg.optimality_gap(gram, counts, temperature)
        assert floor <= sg.lower_bound(num_classes, tail_count, ratio, temperature) + 1e-9


def test_gap_at_the_collapse_is_zero_from_the_threshold_on():
    gram = one_head_gram(-1, 1, 4)
    head = 50 * sg.collapse_ratio(4, 50)
    assert sg.optimality_gap(gram, [1.0001 * head, 50, 50, 50]) < 1e-10
    assert sg.optimality_gap(gram, [0.999 * head, 50, 50, 50]) > 1e-3


def test_optimiser_over_all_features_meets_the_bound():
    counts = [16, 2, 2, 2]
    y = labels(counts)

    def loss_and_gradient(flat):
        z = torch.tensor(flat.reshape(len(y), 3), requires_grad=True)
        unit = torch.nn.functional.normalize(z, dim=1)
        value = supervised_contrastive(unit, y, temperature=1.0, reduction="sum")
        value.backward()
        return value.item(), z.grad.numpy().ravel()

    start = np.random.default_rng(5).normal(size=3 * len(y))
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"ftol": 0, "gtol": 1e-9})
    assert found.fun == pytest.approx(sg.lower_bound(4, 2, 8), rel=1e-11)


# Each check of the notebook must fail when its formula is wrong. First that it holds for the right one, then for each
# wrong one that it does not.

E, T, N, u, v = sp.symbols("E T N u v", positive=True)


def quadratic(push_sign=1, own=1):
    return (
        (1 + u) * N**2
        + (sg.A2 - 1 - own + (sg.K - 2) * sg.A2 * v + T * u + push_sign * 2 * T * sg.X1 * v / u) * N
        + push_sign * 2 * T * sg.X1 * (v / u) * (T * u - own)
    )


def printed_ratio(inner=2, outer=8, count=2):
    b1 = T * (1 + E - inner / E) - count
    b2 = outer * (1 + E) * T * (T - 1 / E)
    return (-b1 + sp.sqrt(b1**2 + b2)) / (2 * (1 + E))


def solves(condition, head):
    values = {T: sp.Integer(150), sg.A2: sp.Integer(50), E: sp.Rational(1, 7)}
    at_collapse = condition.subs({sg.X1: -1, u: E, v: 1}).subs(sg.K, T / sg.A2 + 1).subs(values)
    return sp.expand(at_collapse.subs(N, head.subs(values))) == 0


def test_check_of_the_collapse_ratio_fails_for_wrong_formulas():
    module = sg.collapse_ratio_expression().subs(sg.TAU, -2 / sp.log(E)).subs(sg.K, T / sg.A2 + 1) * sg.A2
    assert sp.expand(module - printed_ratio()).subs({T: 150, sg.A2: 50, E: sp.Rational(1, 7)}) == 0
    assert solves(quadratic(), printed_ratio())
    for wrong in (printed_ratio(inner=1), printed_ratio(outer=4), printed_ratio(count=1), printed_ratio() + 1):
        assert not solves(quadratic(), wrong)
    assert not solves(quadratic(push_sign=-1), printed_ratio())
    assert not solves(quadratic(own=0), printed_ratio())


def stationarity_residual(loss, constraint):
    slope = loss.subs(sg.X2, constraint).diff(sg.X1)
    values = {sg.K: 5, sg.A2: 7, sg.RHO: 3, sg.TAU: sp.Rational(1, 2), sg.X1: sp.Rational(-1, 2)}
    x2 = sg.tail_cosine_expression()
    exponentials = {u: sp.exp((sg.X1 - 1) / sg.TAU), v: sp.exp((x2 - 1) / sg.TAU)}
    condition = quadratic().subs(exponentials).subs({N: sg.RHO * sg.A2, T: (sg.K - 1) * sg.A2})
    head_denominator = sg.RHO * sg.A2 - 1 + (sg.K - 1) * sg.A2 * exponentials[u]
    tail_denominator = sg.A2 - 1 + (sg.K - 2) * sg.A2 * exponentials[v] + sg.RHO * sg.A2 * exponentials[u]
    cleared = sg.TAU * slope * head_denominator * tail_denominator / ((sg.K - 1) * sg.A2 * exponentials[u])
    return float((cleared - condition).subs(values))


def test_check_of_the_stationarity_fails_for_wrong_formulas():
    loss, constraint = sg.loss_expression(), sg.tail_cosine_expression()
    assert stationarity_residual(loss, constraint) == pytest.approx(0, abs=1e-9)
    wrong_losses = [
        loss.subs(sg.RHO, 2 * sg.RHO),
        loss + sg.A2 * sg.X1,
        loss.subs(sg.X1, -sg.X1),
        loss.subs(sg.TAU, 2 * sg.TAU),
    ]
    for wrong in wrong_losses:
        assert abs(stationarity_residual(wrong, constraint)) > 1e-3
    for wrong in (constraint + sp.Rational(1, 2) * sg.X1, -constraint, constraint.subs(sg.X1, sg.X1**2)):
        assert abs(stationarity_residual(loss, wrong)) > 1e-3


def beaten(bound, counts, temperature):
    """Whether the packing at the optimum, or a sample of others, has a loss below `bound(x₁)`."""
    y = labels(counts)
    return any(
        sum_of_losses(packing(x1, len(counts))[y], y, temperature) < bound(x1) * (1 - 1e-12)
        for x1 in np.linspace(-1, 1, 41)
    )


def test_check_of_the_bound_fails_for_wrong_formulas():
    counts, problem = [40, 5, 5, 5], (4, 5, 8.0)

    def right(x1, temperature=1.0):
        return sg.loss(x1, sg.tail_cosine(x1, 4), *problem, temperature)

    assert not beaten(right, counts, 1.0)
    assert beaten(lambda x1: right(x1, 1.1), counts, 1.0)
    assert beaten(lambda x1: sg.loss(-x1, sg.tail_cosine(x1, 4), *problem), counts, 1.0)
    assert beaten(lambda x1: sg.loss(x1, min(1, sg.tail_cosine(x1, 4) + 0.1), *problem), counts, 1.0)
    assert beaten(lambda x1: right(x1) + 55 * math.log(1.0001), counts, 1.0)


@pytest.mark.parametrize("wrong", [0.9, 1.1, -1])
def test_certificate_fails_for_a_wrong_optimum(wrong):
    x1, _ = sg.optimal_cosines(4, 5, 8)
    shifted = wrong * x1
    gram = one_head_gram(shifted, sg.tail_cosine(shifted, 4), 4)
    assert sg.optimality_gap(gram, [40, 5, 5, 5]) > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sg.collapse_ratio(2, 50), "num_classes must be an integer of at least 3, got 2"),
        (lambda: sg.collapse_ratio(3.5, 50), "num_classes must be an integer of at least 3, got 3.5"),
        (lambda: sg.collapse_ratio(4, 1), "tail_count must be above 1 .* got 1"),
        (lambda: sg.collapse_ratio(4, math.nan), "tail_count must be above 1 .* got nan"),
        (lambda: sg.collapse_ratio(4, 50, 0), "temperature must be a positive finite number, got 0"),
        (lambda: sg.collapse_ratio(4, 50, math.inf), "temperature must be a positive finite number, got inf"),
        (lambda: sg.optimal_cosines(4, 50, 0.02), r"ratio \* tail_count, .* must be above 1, got 0.02 \* 50"),
        (lambda: sg.optimal_cosines(4, 50, math.nan), r"ratio \* tail_count, .* got nan \* 50"),
        (lambda: sg.loss(-1.1, 0, 4, 50, 1), r"cos_head_tail must lie in \[-1, 1\], got -1.1"),
        (lambda: sg.loss(0, 2, 4, 50, 1), r"cos_tail_tail must lie in \[-1, 1\], got 2"),
        (lambda: sg.tail_cosine(1.5, 4), r"cos_head_tail must lie in \[-1, 1\], got 1.5"),
        (lambda: sg.ratio_of_optimum(0, 4, 50), r"cos_head_tail must lie in \[-1, -1/3\], got 0"),
        (lambda: sg.ratio_of_optimum(-0.5, 4, 1.5), "tail_count must be at least 2, got 1.5"),
        (lambda: sg.collapse_ratio(math.inf, 50), "num_classes must be an integer of at least 3, got inf"),
        (lambda: sg.class_loss(np.eye(3), [5, 5]), r"a row for each of the 2 class counts, got shape \(3, 3\)"),
        (lambda: sg.class_loss([[1, 0.5], [0, 1]], [5, 5]), "cosines must be a symmetric matrix"),
        (lambda: sg.class_loss(np.eye(2), [5, 1]), r"class_counts must hold .* at least 2, got \[5, 1\]"),
        (lambda: sg.class_loss(np.eye(2), [5, 5], -1), "temperature must be a positive finite number, got -1"),
        (lambda: sg.optimality_gap(np.eye(2) / 2, [5, 5]), "cosines must have a diagonal of ones"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
