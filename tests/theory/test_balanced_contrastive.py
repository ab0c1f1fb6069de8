import math

import numpy as np
import pytest
import sympy as sp
import torch

from ltnb.geometry import regular_simplex
from ltnb.losses import balanced_contrastive
from ltnb.theory import balanced_contrastive as theory


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def losses(z, y, prototypes=None, **settings):
    rows = [None if array is None else torch.from_numpy(array) for array in (z, y, prototypes)]
    return balanced_contrastive(*rows, reduction="none", **settings).numpy()


def random_features(rng, counts, dim):
    y = np.repeat(np.arange(len(counts)), counts)
    return unit(rng.normal(size=(len(y), dim))), y, unit(rng.normal(size=(len(counts), dim)))


def collapsed(num_classes, tail_count, head_count):
    """The head with its prototype at one pole, all tails with theirs at the other."""
    y = np.repeat(np.arange(num_classes), [head_count] + [tail_count] * (num_classes - 1))
    poles = np.zeros((num_classes, 2))
    poles[:, 0] = [1] + [-1] * (num_classes - 1)
    return poles[y], y, poles


def second_derivative(num_classes, tail_count, head_count, temperature, step=1e-5):
    """Of the torch loss at collapse, one angle a vector; by differences: the loss has a first derivative only."""
    z, y, c = collapsed(num_classes, tail_count, head_count)
    signs = torch.from_numpy(np.concatenate([z, c])[:, 0])

    def gradient(angles):
        angles = torch.from_numpy(angles).requires_grad_()
        v = torch.stack([signs * angles.cos(), angles.sin()], dim=1)
        anchors, prototypes = v[: len(y)], v[len(y) :]
        balanced_contrastive(
            anchors, torch.from_numpy(y), prototypes, temperature=temperature, reduction="sum"
        ).backward()
        return angles.grad.numpy()

    return np.array([(gradient(turn) - gradient(-turn)) / (2 * step) for turn in step * np.eye(len(signs))]), y


# The constant of Theorem 3


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("counts", [[5, 5, 5, 5], [12, 9, 7, 2], [3, 1]])
def test_lower_bound_is_the_loss_of_a_simplex(counts, temperature):
    vertices = regular_simplex(len(counts), len(counts) - 1).numpy()
    y = np.repeat(np.arange(len(counts)), counts)
    bound = theory.lower_bound(len(y), len(counts), temperature)
    value = losses(vertices[y], y, vertices, temperature=temperature).sum()
    assert value == pytest.approx(bound, rel=1e-6 if temperature < 1 else 1e-12)
    expression = theory.lower_bound_expression(len(counts), sp.Rational(str(temperature)))
    assert len(y) * float(expression) == pytest.approx(bound, rel=1e-12)


def test_lower_bound_at_known_values():
    assert theory.lower_bound(20, 4) == pytest.approx(11.6532, abs=5e-5)
    assert theory.lower_bound(25, 4) == pytest.approx(14.5664, abs=5e-5)
    assert theory.lower_bound(1, 2) == pytest.approx(math.log(1 + math.exp(-2)))


def test_sum_over_samples_is_below_the_constant_as_soon_as_counts_differ():
    for ratio in (0.2, 1.5, 2, 8, 20, 100):
        for temperature in (1.0, 0.1):
            cosine, _ = theory.optimal_cosines(4, ratio, temperature)
            below = theory.one_head_loss(cosine, 4, 10, ratio, temperature)
            assert below < theory.lower_bound(round(10 * (ratio + 3)), 4, temperature) * (1 - 1e-4)


def test_class_weighted_sum_is_never_below_the_constant():
    rng = np.random.default_rng(0)
    for trial in range(400):
        counts = rng.integers(1, 10, size=rng.integers(2, 6))
        z, y, c = random_features(rng, counts, 5)
        if trial % 2:
            vertices, spread = regular_simplex(len(counts), 5).numpy(), 10.0 ** rng.uniform(-6, 0)
            z, c = unit(vertices[y] + spread * z), unit(vertices + spread * c)
        temperature = 10.0 ** rng.uniform(-1, 0.5)
        value = losses(z, y, c, temperature=temperature, anchor_weighting="class").mean()
        assert value > theory.lower_bound(1, len(counts), temperature) - 1e-13


# Theorem 2


def theorem_2_slack(bound):
    """Least loss minus bound over random anchors, half of them close to collapse."""
    rng = np.random.default_rng(1)
    least = math.inf
    for trial in range(300):
        counts = rng.integers(2, 7, size=rng.integers(2, 6))
        z, y, c = random_features(rng, counts, 4)
        if trial % 2:
            z = unit(c[y] + 10.0 ** rng.uniform(-4, 0) * z)
        prototypes, temperature = (c if trial % 3 else None), 10.0 ** rng.uniform(-1, 0.5)
        values = losses(z, y, prototypes, temperature=temperature)
        least = min(least, (values - bound(z, y, prototypes, temperature)).min())
    return least


def test_class_averaged_bound_holds():
    bound = theory.class_averaged_bound
    assert theorem_2_slack(lambda z, y, c, temperature: bound(z, y, c, temperature=temperature)) > -1e-12


@pytest.mark.parametrize("change", ["one class more", "repulsion doubled", "no attraction"])
def test_a_wrong_class_averaged_bound_fails(change):
    def wrong(z, y, c, temperature):
        right = np.expm1(theory.class_averaged_bound(z, y, c, temperature=temperature))
        others = len(np.unique(y)) - 1
        if change == "one class more":
            return np.log1p(right * (others + 1) / others)
        factor = 1.05 if change == "repulsion doubled" else math.exp(1 / temperature)
        return np.log1p(right * factor)

    assert theorem_2_slack(wrong) < -1e-3


def test_class_averaged_bound_is_met_where_cosines_are_equal_and_only_there():
    vertices = regular_simplex(4, 3).numpy()
    y = np.repeat(np.arange(4), [4, 2, 1, 3])
    tight = losses(vertices[y], y, vertices, temperature=0.5)
    np.testing.assert_allclose(theory.class_averaged_bound(vertices[y], y, vertices, temperature=0.5), tight)
    uneven = unit(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -0.1]]))
    y = np.repeat(np.arange(3), 2)
    slack = losses(uneven[y], y, uneven, temperature=1.0) - theory.class_averaged_bound(uneven[y], y, uneven)
    assert slack.min() > 1e-4


def test_class_averaged_bound_is_its_expression():
    rng = np.random.default_rng(2)
    z, y, _ = random_features(rng, [2, 2, 2], 3)
    attraction, repulsion = z[0] @ z[1], (z[0] @ (z[2] + z[3]) + z[0] @ (z[4] + z[5])) / 4
    expression = theory.class_averaged_bound_expression(attraction, repulsion, 3, 0.5)
    assert theory.class_averaged_bound(z, y, temperature=0.5)[0] == pytest.approx(float(expression), rel=1e-12)


def test_one_class_alone_has_nothing_to_push_it():
    z, y, _ = random_features(np.random.default_rng(3), [4], 3)
    np.testing.assert_array_equal(theory.class_averaged_bound(z, y), 0)


# One head, tied prototypes


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_one_head_loss_is_the_torch_loss(temperature):
    x = -0.6
    around = unit(regular_simplex(3, 2).numpy())
    points = np.vstack([[1, 0, 0], np.column_stack([np.full(3, x), math.sqrt(1 - x**2) * around])])
    y = np.repeat(np.arange(4), [6, 2, 2, 2])
    value = losses(points[y], y, points, temperature=temperature).sum()
    assert theory.one_head_loss(x, 4, 2, 3.0, temperature) == pytest.approx(value, rel=1e-12)
    assert points[1] @ points[2] == pytest.approx(theory.tail_cosine(x, 4))
    expression = theory.one_head_expression(sp.Rational(-3, 5), 4, 3, sp.Rational(str(temperature)))
    assert 2 * float(expression) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("num_classes", [3, 4, 10, 100])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 5.0])
def test_equal_counts_give_the_simplex(num_classes, temperature):
    expected = (-1 / (num_classes - 1), -1 / (num_classes - 1))
    assert theory.optimal_cosines(num_classes, 1.0, temperature) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("num_classes", [3, 4, 10])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_no_cosine_is_better_than_the_optimal_one(num_classes, ratio, temperature):
    cosine, _ = theory.optimal_cosines(num_classes, ratio, temperature)
    lowest = theory.one_head_loss(cosine, num_classes, 1, ratio, temperature)
    values = [theory.one_head_loss(x, num_classes, 1, ratio, temperature) for x in np.linspace(-1, 1, 501)]
    assert lowest <= min(values) + 1e-13
    assert np.diff(values, 2).min() > -1e-12  # convex


def test_no_arrangement_of_class_points_is_better():
    points = unit(np.random.default_rng(4).normal(size=(20_000, 4, 3)))
    cosines = points @ points.swapaxes(1, 2)
    per_anchor = np.log(np.exp(cosines - 1).sum(axis=2))
    for ratio in (0.2, 2.0, 8.0, 30.0):
        lowest = theory.one_head_loss(theory.optimal_cosines(4, ratio)[0], 4, 1, ratio)
        assert (per_anchor @ [ratio, 1, 1, 1]).min() > lowest


def test_tails_draw_together_as_the_head_grows():
    cosines = [theory.optimal_cosines(4, ratio) for ratio in (0.3, 1, 2, 8, 19, 20)]
    assert np.all(np.diff([head for head, _ in cosines]) < 0)
    assert cosines[-1] == (-1.0, 1.0)


def test_optimum_survives_a_temperature_at_which_every_exponential_underflows():
    head, tail = theory.optimal_cosines(4, 8.0, 1e-3)
    assert head == pytest.approx(-1 / 3, abs=5e-3)
    assert tail == pytest.approx(-1 / 3, abs=5e-3)


# Thresholds


def slope_at_collapse(num_classes, ratio, temperature, step=1e-7):
    """g′(−1) by a difference."""
    at = [theory.one_head_loss(x, num_classes, 1, ratio, temperature) for x in (-1, -1 + step)]
    return (at[1] - at[0]) / step


@pytest.mark.parametrize("num_classes", [3, 4, 10, 100])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_collapse_ratio_is_where_the_slope_changes_sign(num_classes, temperature):
    ratio = theory.collapse_ratio(num_classes, temperature)
    assert ratio > 1
    assert theory.optimal_cosines(num_classes, ratio * 1.0001, temperature) == (-1.0, 1.0)
    assert theory.optimal_cosines(num_classes, ratio * 0.9999, temperature)[0] > -1
    for wrong, holds in ((1.0, True), (1.02, False), (0.98, False)):
        assert (abs(slope_at_collapse(num_classes, wrong * ratio, temperature)) < 1e-4) == holds


def test_collapse_ratio_at_known_values():
    assert theory.collapse_ratio(4) == pytest.approx(19.43, abs=5e-3)
    assert theory.collapse_ratio(100) == pytest.approx(212.34, abs=5e-3)
    assert float(theory.collapse_ratio_expression(4, sp.exp(-2))) == pytest.approx(theory.collapse_ratio(4), rel=1e-12)
    assert theory.collapse_ratio(10, 0.1) == pytest.approx(2 * math.exp(20), rel=1e-6)
    assert theory.collapse_ratio(10**6) / 10**6 == pytest.approx(2, rel=1e-4)
    assert theory.collapse_ratio(4, 1e-3) == math.inf


def test_collapse_block_is_the_second_derivative_of_the_loss():
    hessian, y = second_derivative(4, 3, 7, 0.7)
    alpha = np.array([0.0, 1.0, -2.0, 1.0])
    modes = np.stack([np.r_[alpha[y], np.zeros(4)], np.r_[np.zeros(len(y)), alpha]])
    measured = 0.7 * modes @ hessian @ modes.T / (alpha @ alpha)
    antipodal = sp.exp(-2 / sp.Rational(7, 10))
    block = np.array(theory.collapse_block(4, 3, sp.Rational(7, 3), antipodal).evalf(), dtype=float)
    np.testing.assert_allclose(measured, block, rtol=1e-6)
    for row, column in ((0, 0), (0, 1), (1, 1)):  # a wrong entry would be noticed
        wrong = block.copy()
        wrong[row, column] *= 1.001
        assert not np.allclose(measured, wrong, rtol=1e-6)


@pytest.mark.parametrize("num_classes", [3, 4, 6])
@pytest.mark.parametrize("tail_count", [1, 2, 5])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 3.0])
def test_collapse_is_a_minimum_from_the_free_ratio_on(num_classes, tail_count, temperature):
    ratio = theory.free_prototype_collapse_ratio(num_classes, tail_count, temperature)
    from_here = math.ceil(tail_count * ratio)
    for head_count in (from_here, from_here - 1):
        z, y, c = collapsed(num_classes, tail_count, head_count)
        gap = theory.optimality_gap(z, y, c, temperature=temperature)
        assert (gap < 1e-10) == (head_count == from_here)


def test_free_ratio_at_four_classes_of_five():
    assert theory.free_prototype_collapse_ratio(4, 5) == pytest.approx(20.2317, abs=1e-4)
    assert np.linalg.eigvalsh(second_derivative(4, 5, 101, 1.0)[0])[0] < -1e-3
    assert np.linalg.eigvalsh(second_derivative(4, 5, 102, 1.0)[0])[0] > -1e-8


@pytest.mark.parametrize("num_classes", [3, 10])
@pytest.mark.parametrize("tail_count", [1, 7])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_free_ratio_is_its_expression(num_classes, tail_count, temperature):
    expression = theory.free_collapse_ratio_expression(
        num_classes, tail_count, sp.exp(-2 / sp.Rational(str(temperature)))
    )
    ratio = theory.free_prototype_collapse_ratio(num_classes, tail_count, temperature)
    assert float(expression.evalf(30)) == pytest.approx(ratio, rel=1e-9)


def test_free_ratio_tends_to_the_tied_one_for_large_tails():
    for num_classes in (3, 4, 50):
        tied = theory.collapse_ratio(num_classes)
        assert theory.free_prototype_collapse_ratio(num_classes, 10**7) == pytest.approx(tied, rel=1e-6)
        assert theory.free_prototype_collapse_ratio(num_classes, 1) > tied
    assert theory.free_prototype_collapse_ratio(4, 5, 1e-3) == math.inf


# Gradients


@pytest.mark.parametrize(("averaging", "complement"), [("L1", True), ("L1", False), ("none", True), ("none", False)])
def test_pair_coefficients_give_the_gradient_of_the_loss(averaging, complement):
    z, y, c = random_features(np.random.default_rng(5), [4, 2, 3], 3)
    vectors = np.vstack([z, c]) if complement else z
    free = torch.from_numpy(vectors).requires_grad_()
    anchors, prototypes = free[: len(z)], free[len(z) :] if complement else None
    settings = {"temperature": 0.4, "averaging": averaging, "reduction": "sum"}
    balanced_contrastive(anchors, torch.from_numpy(y), prototypes, **settings).backward()
    coefficients = theory.pair_coefficients(
        z, y, c if complement else None, temperature=0.4, averaging=averaging == "L1"
    )
    np.testing.assert_allclose(coefficients.sum(axis=1), 0, atol=1e-13)
    square = np.zeros((len(vectors), len(vectors)))
    square[: len(z)] = coefficients / 0.4
    np.testing.assert_allclose(free.grad.numpy(), (square + square.T) @ vectors, rtol=1e-9, atol=1e-12)


def test_push_of_a_class_goes_with_its_size_under_scl_only():
    vertices = regular_simplex(3, 2).numpy()
    y = np.repeat(np.arange(3), [2, 10, 30])
    for averaging, shares in ((False, [0.25, 0.75]), (True, [0.5, 0.5])):
        forces = theory.pair_coefficients(vertices[y], y, averaging=averaging)[0]
        push = np.array([forces[y == 1].sum(), forces[y == 2].sum()])
        np.testing.assert_allclose(push / push.sum(), shares)


# The certificate


def test_optimality_gap_is_zero_at_the_simplex_with_balanced_anchors_only():
    vertices = regular_simplex(4, 3).numpy()
    y = np.repeat(np.arange(4), [8, 2, 3, 1])
    weights = len(y) / 4 / np.bincount(y)[y]
    for temperature in (1.0, 0.3):
        gap = theory.optimality_gap(vertices[y], y, vertices, temperature=temperature, anchor_weights=weights)
        assert gap < 1e-11
        assert theory.optimality_gap(vertices[y], y, vertices, temperature=temperature) > 1e-2


def test_nothing_is_lower_than_the_gap_allows():
    rng = np.random.default_rng(6)
    counts = [6, 2, 2]
    configurations = [random_features(rng, counts, int(rng.integers(2, 12))) for _ in range(60)]
    vertices = regular_simplex(3, 2).numpy()
    y = configurations[0][1]
    configurations += [(vertices[y], y, vertices), collapsed(3, 2, 6)]
    values = [losses(z, y, c, temperature=1.0).sum() for z, y, c in configurations]
    gaps = [theory.optimality_gap(z, y, c) for z, y, c in configurations]
    assert min(values) >= max(value - gap for value, gap in zip(values, gaps, strict=True))


# Arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.lower_bound(0, 4), "num_anchors must be an integer of at least 1, got 0"),
        (lambda: theory.lower_bound(5, 1), "num_classes must be an integer of at least 2, got 1"),
        (lambda: theory.lower_bound(5, 2.5), "num_classes must be an integer of at least 2, got 2.5"),
        (lambda: theory.lower_bound(5, 4, 0.0), "temperature must be positive and finite, got 0.0"),
        (lambda: theory.lower_bound(5, 4, math.inf), "temperature must be positive"),
        (lambda: theory.collapse_ratio(2), "num_classes must be an integer of at least 3, got 2"),
        (lambda: theory.collapse_ratio(math.inf), "num_classes must be an integer of at least 3, got inf"),
        (lambda: theory.collapse_ratio(4, -1.0), "temperature must be positive"),
        (lambda: theory.free_prototype_collapse_ratio(4, 0), "tail_count must be an integer of at least 1, got 0"),
        (lambda: theory.optimal_cosines(4, -0.1), "ratio must be finite and at least 0, got -0.1"),
        (lambda: theory.optimal_cosines(4, math.nan), "ratio must be finite"),
        (lambda: theory.one_head_loss(-1.1, 4, 5, 2.0), r"head_cosine must lie in \[-1, 1\], got -1.1"),
    ],
)
def test_arguments_out_of_range(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_labels_and_prototypes_that_do_not_fit():
    z, y, c = random_features(np.random.default_rng(7), [2, 1], 3)
    with pytest.raises(ValueError, match="one integer for each row of z"):
        theory.pair_coefficients(z, y[:-1], c)
    with pytest.raises(ValueError, match="one integer for each row of z"):
        theory.pair_coefficients(z, y.astype(float), c)
    with pytest.raises(ValueError, match="rows of length 3"):
        theory.pair_coefficients(z, y, np.eye(2))
    with pytest.raises(ValueError, match=r"y must lie in 0 … 0"):
        theory.pair_coefficients(z, y, c[:1])
    with pytest.raises(ValueError, match="needs two samples"):
        theory.class_averaged_bound(z, y)
    for weights in ([1.0, 1.0], [1.0, 1.0, math.nan], [1.0, 1.0, -1.0]):
        with pytest.raises(ValueError, match="anchor_weights must be 3 numbers"):
            theory.optimality_gap(z, y, c, anchor_weights=weights)
    for rows in (3 * z, math.nan * z, z[:0]):
        with pytest.raises(ValueError, match="z must hold one or more unit rows"):
            theory.class_averaged_bound(rows, y[: len(rows)], c)
    with pytest.raises(ValueError, match="prototypes must hold one or more unit rows"):
        theory.optimality_gap(z, y, 2 * c)


def test_a_very_low_temperature_neither_overflows_nor_loses_the_keys():
    z, y, c = random_features(np.random.default_rng(8), [3, 3], 4)
    for prototypes in (None, c):
        coefficients = theory.pair_coefficients(z, y, prototypes, temperature=1e-4)
        np.testing.assert_allclose(coefficients.sum(axis=1), 0, atol=1e-12)
        assert np.abs(coefficients).max() <= 1
        bound = theory.class_averaged_bound(z, y, prototypes, temperature=1e-4)
        assert np.isfinite(bound).all()
        assert (losses(z, y, prototypes, temperature=1e-4) >= bound * (1 - 1e-9)).all()
