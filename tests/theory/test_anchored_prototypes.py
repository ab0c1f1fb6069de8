import math

import numpy as np
import pytest
import sympy as sp
import torch

from ltnb.geometry import regular_simplex
from ltnb.theory import anchored_prototypes as pal

CLASSES = [2, 3, 5, 10, 100]


def simplex(num_classes, dim=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return regular_simplex(num_classes, dim or num_classes, generator=generator).numpy()


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def gradient_norms(z, prototypes, loss):
    """‖∇L_W‖ at each row by autograd; `loss` maps log-probabilities to the loss of each class."""
    z = torch.tensor(z, requires_grad=True)
    total = loss(torch.log_softmax(z @ torch.tensor(prototypes).T, dim=1)).sum()
    return torch.autograd.grad(total, z)[0].norm(dim=1).numpy()


def cross_entropy(log_p):
    return -log_p


def gce(log_p, q=0.7):
    return (1 - (q * log_p).exp()) / q


def focal(log_p, gamma=2.0):
    return -((1 - log_p.exp()) ** gamma) * log_p


# Margins


def margin_by_loops(z, y, prototypes):
    products = [sum(a * b for a, b in zip(w, z, strict=True)) for w in prototypes]
    return products[y] - max(product for j, product in enumerate(products) if j != y)


def test_margins_are_their_formula():
    rng = np.random.default_rng(0)
    Z, W, y = rng.normal(size=(20, 3)), rng.normal(size=(5, 3)), rng.integers(5, size=20)
    expected = [margin_by_loops(z, j, W) for z, j in zip(Z, y, strict=True)]
    np.testing.assert_allclose(pal.sample_margins(Z, y, W), expected, atol=1e-13)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_the_simplex_has_the_largest_margin(num_classes):
    W = simplex(num_classes)
    margins = pal.sample_margins(W, np.arange(num_classes), W)
    np.testing.assert_allclose(margins, pal.largest_margin(num_classes), atol=1e-12)


def test_no_configuration_has_a_larger_margin():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        num_classes, dim = int(rng.integers(2, 8)), int(rng.integers(1, 8))
        y = np.r_[np.arange(num_classes), rng.integers(num_classes, size=rng.integers(0, 9))]
        W = unit(rng.normal(size=(num_classes, dim)))
        Z = unit(W[y] - W.mean(axis=0) + 0.1 * rng.normal(size=(len(y), dim)))
        assert pal.sample_margins(Z, y, W).min() <= pal.largest_margin(num_classes) + 1e-12


@pytest.mark.parametrize("num_classes", CLASSES)
def test_non_negative_features_reach_their_largest_margin_at_the_axes(num_classes):
    axes = np.eye(num_classes)
    W = math.sqrt(num_classes / (num_classes - 1)) * (axes - 1 / num_classes)
    margins = pal.sample_margins(axes, np.arange(num_classes), W)
    np.testing.assert_allclose(margins, pal.largest_margin_of_non_negative_features(num_classes), atol=1e-12)


def test_non_negative_features_have_no_larger_margin():
    rng = np.random.default_rng(2)
    for _ in range(1000):
        num_classes, dim = int(rng.integers(2, 8)), int(rng.integers(1, 12))
        Z = unit(np.abs(rng.normal(size=(num_classes, dim))) ** 3 + 1e-9)
        W = unit(Z - Z.mean(axis=0) + 1e-3 * rng.normal(size=(num_classes, dim)))
        largest = pal.largest_margin_of_non_negative_features(num_classes)
        assert pal.sample_margins(Z, np.arange(num_classes), W).min() <= largest + 1e-12


# The margin loss


@pytest.mark.parametrize("margins", [0.0, 0.4, "by class"])
def test_the_loss_is_cross_entropy_of_shifted_logits(margins):
    rng = np.random.default_rng(3)
    Z, W, y = unit(rng.normal(size=(30, 4))), unit(rng.normal(size=(6, 4))), rng.integers(6, size=30)
    alpha = rng.uniform(size=6) if margins == "by class" else np.full(6, margins)
    logits = torch.tensor(7.0 * (Z @ W.T - np.eye(6)[y] * alpha))
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(y), reduction="none").numpy()
    given = alpha if margins == "by class" else margins
    np.testing.assert_allclose(pal.margin_loss(Z, y, W, scale=7.0, margins=given), expected, atol=1e-12)


def test_the_loss_does_not_overflow():
    W = simplex(3)
    assert pal.margin_loss(W[:1], [1], W, scale=1e4)[0] == pytest.approx(1.5e4)


@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("num_classes", CLASSES)
def test_the_bound_is_attained_at_the_prototypes(num_classes, scale):
    W = simplex(num_classes)
    loss = pal.margin_loss(W, np.arange(num_classes), W, scale=scale, margins=0.2)
    np.testing.assert_allclose(loss, pal.margin_loss_bound(num_classes, scale, margin=0.2), rtol=1e-9, atol=1e-13)


def below_bound(bound):
    """How many random features of anchored prototypes have less than the bound of their cosine."""
    rng = np.random.default_rng(4)
    count = 0
    for num_classes in (2, 3, 10):
        W = simplex(num_classes)
        y = rng.integers(num_classes, size=500)
        Z = unit(W[y] + rng.choice([0.01, 1], size=(500, 1)) * rng.normal(size=(500, num_classes)))
        loss = pal.margin_loss(Z, y, W, scale=6.0, margins=0.3)
        cosines = np.clip((Z * W[y]).sum(axis=1), -1, 1)
        least = np.array([bound(num_classes, 6.0, 0.3, c) for c in cosines])
        count += int((loss < least - 1e-9).sum())
    return count


def test_no_feature_is_below_the_bound_of_its_cosine():
    assert below_bound(lambda k, s, a, c: pal.margin_loss_bound(k, s, margin=a, cosine=c)) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda k, s, a, c: math.log(1 + (k - 1) * math.exp(s * (a + k / (k - 1) * -c + 0.05))),
        lambda k, s, a, c: math.log(1 + k * math.exp(s * (a - k / (k - 1) * c))),
        lambda k, s, a, c: math.log(1 + (k - 1) * math.exp(s * (a - c))),
        lambda k, s, a, c: math.log(1 + (k - 1) * math.exp(-s * (a - k / (k - 1) * c))),
    ],
    ids=["shift", "factor", "no k/(k−1)", "sign"],
)
def test_a_wrong_bound_is_noticed(wrong):
    assert below_bound(wrong) > 0


@pytest.mark.parametrize("weight_decay", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("num_classes", [2, 10])
def test_norm_under_weight_decay_is_the_minimum(num_classes, weight_decay):
    norm = pal.norm_under_weight_decay(num_classes, weight_decay)

    def value(r):
        return pal.margin_loss_bound(num_classes, r) + weight_decay / 2 * r**2

    assert all(value(norm) < value(norm * factor) for factor in (0.9, 0.99, 1.01, 1.1))


@pytest.mark.parametrize("margins", [(0.0, 0.0), (0.0, 1.1), (1.0, 0.2), (-0.5, 2.0)])
def test_consistency_threshold_is_where_the_decision_turns(margins):
    threshold = pal.consistency_threshold(2.0, *margins)
    scores = np.linspace(-8, 8, 4001)
    losses = [np.logaddexp(0, 2 * margin - sign * scores) for margin, sign in zip(margins, (1, -1), strict=True)]
    for q, sign in ((threshold - 0.02, -1), (threshold + 0.02, 1)):
        assert np.sign(scores[(q * losses[0] + (1 - q) * losses[1]).argmin()]) == sign
    assert (threshold == 0.5) == (margins[0] == margins[1])


# Lipschitz constants


@pytest.mark.parametrize("radius", [0.0, 0.1, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("num_classes", CLASSES)
def test_lipschitz_constant_is_the_gradient_at_a_prototype(num_classes, radius):
    W = simplex(num_classes)
    expected = gradient_norms(radius * W[:1], W, cross_entropy)[0]
    assert pal.lipschitz_constant(num_classes, radius) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_lipschitz_limits():
    for num_classes in CLASSES:
        assert pal.lipschitz_constant(num_classes, math.inf) == num_classes
        slope = pal.lipschitz_constant(num_classes, 1e-7) / 1e-7
        assert slope == pytest.approx(num_classes / (num_classes - 1), rel=1e-5)
    assert pal.lipschitz_constant(2, 0.7) == pytest.approx(2 * math.tanh(0.7))


def exceeding(constant, radius, loss=cross_entropy, num_classes=5):
    """How many random points of the ball, near the edge and the prototypes among them, have a larger gradient."""
    rng = np.random.default_rng(5)
    W = simplex(num_classes)
    towards = W[rng.integers(num_classes, size=600)] * rng.choice([-1, 0, 1], size=(600, 1))
    Z = unit(towards + rng.choice([0.01, 1], size=(600, 1)) * rng.normal(size=(600, num_classes)))
    Z *= radius * rng.uniform(size=(600, 1)) ** 0.2
    return int((gradient_norms(Z, W, loss) > constant + 1e-9).sum())


@pytest.mark.parametrize("radius", [0.3, 1.0, 4.0])
def test_no_gradient_exceeds_the_constants(radius):
    assert exceeding(pal.lipschitz_constant(5, radius), radius) == 0
    assert exceeding(pal.gce_lipschitz_constant(5, radius, q=0.7), radius, gce) == 0
    assert exceeding(pal.focal_lipschitz_constant(5, radius, gamma=2.0), radius, focal) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda k, b: k * (1 - math.exp(-b)) / (1 + (k - 1) * math.exp(-b)),
        lambda k, b: (k - 1) * (1 - math.exp(-k * b / (k - 1))) / (1 + (k - 1) * math.exp(-k * b / (k - 1))),
        lambda k, b: k * (1 - math.exp(-k * b / (k - 1))) / (1 + k * math.exp(-k * b / (k - 1))),
        lambda k, b: pal.gradient_norm(k, b, 2),
    ],
    ids=["no k/(k−1)", "factor", "denominator", "two classes high"],
)
def test_a_wrong_constant_is_noticed(wrong):
    assert exceeding(wrong(5, 2.0), 2.0) > 0


@pytest.mark.parametrize("num_high", [1, 2, 4])
def test_gradient_norm_at_two_levels(num_high):
    W = simplex(5)
    z = 1.7 * unit(W[:num_high].sum(axis=0))
    expected = gradient_norms(z[None], W, cross_entropy)[0]
    assert pal.gradient_norm(5, 1.7, num_high) == pytest.approx(expected, rel=1e-10)


def test_hyperbolic_form_of_the_gradient_norm():
    for k, a, r in [(5, 1, 0.7), (5, 3, 2.0), (100, 20, 5.0)]:
        g = k * r / math.sqrt((k - 1) * a * (k - a))
        form = k / math.sqrt(k - 1) * math.sinh(g / 2) / math.cosh((g - math.log((k - a) / a)) / 2)
        assert pal.gradient_norm(k, r, a) == pytest.approx(form, rel=1e-12)


@pytest.mark.parametrize("radius", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_unanchored_constant_is_attained_and_not_exceeded(num_classes, radius):
    exact = pal.unanchored_lipschitz_constant(num_classes, radius)
    attained = []
    for along in range(1, num_classes):
        W = np.array([[1.0]] * along + [[-1.0]] * (num_classes - along))
        attained.append(gradient_norms(np.array([[radius]]), W, cross_entropy)[0])
    assert attained[0] == pytest.approx(pal.unanchored_lipschitz_bound(num_classes, radius), rel=1e-10)
    assert max(attained) == pytest.approx(exact, rel=1e-10)
    assert exact <= 2 * num_classes * math.tanh(radius / 2) + 1e-12
    rng = np.random.default_rng(6)
    for _ in range(200):
        W, z = unit(rng.normal(size=(num_classes, 2))), radius * unit(rng.normal(size=(1, 2)))
        assert gradient_norms(z, W, cross_entropy)[0] <= exact + 1e-9


def test_unanchored_constant_meets_its_bound_where_the_number_of_prototypes_is_whole():
    radius = math.log(4)  # k/(1 + e^B) = 2 for k = 10
    assert pal.unanchored_lipschitz_constant(10, radius) == pytest.approx(20 * math.tanh(radius / 2), rel=1e-12)


def test_each_exceeds_the_anchored_constant_but_for_two_classes():
    for radius in (0.01, 0.5, 2.0, 10.0):
        assert pal.unanchored_lipschitz_bound(2, radius) == pytest.approx(pal.lipschitz_constant(2, radius), rel=1e-12)
        for num_classes in CLASSES[1:]:
            assert pal.unanchored_lipschitz_bound(num_classes, radius) > pal.lipschitz_constant(num_classes, radius)
    for num_classes in CLASSES:
        assert pal.unanchored_lipschitz_constant(num_classes, math.inf) == 2 * (num_classes - 1)


def test_gce_and_focal_contain_cross_entropy_and_the_absolute_error():
    for anchored, expected in [
        (True, pal.lipschitz_constant(6, 1.3)),
        (False, pal.unanchored_lipschitz_constant(6, 1.3)),
    ]:
        assert pal.focal_lipschitz_constant(6, 1.3, gamma=0.0, anchored=anchored) == pytest.approx(expected)
        assert pal.gce_lipschitz_constant(6, 1.3, q=1e-9, anchored=anchored) == pytest.approx(expected)
        assert pal.gce_lipschitz_constant(6, 1.3, q=1.0, anchored=anchored) < 1e-12


@pytest.mark.parametrize("loss", ["gce", "focal"])
def test_gce_and_focal_constants_are_attained(loss):
    constant = {
        "gce": pal.gce_lipschitz_constant(4, 6.0, q=0.7),
        "focal": pal.focal_lipschitz_constant(4, 6.0, gamma=2.0),
    }[loss]
    W = simplex(4)
    line = np.linspace(0, 6, 4001)[:, None] * W[0]
    assert gradient_norms(line, W, {"gce": gce, "focal": focal}[loss]).max() == pytest.approx(constant, rel=1e-6)


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("num_classes", [3, 20])
def test_a_larger_ball_has_no_smaller_constant(num_classes, anchored):
    radii = [0.1, 1.0, 30.0, 1e3, 1e4, 1e6]
    for q in (0.05, 0.7):
        values = [pal.gce_lipschitz_constant(num_classes, radius, q=q, anchored=anchored) for radius in radii]
        assert (np.diff(values) >= -1e-9 * values[-1]).all()
    values = [pal.focal_lipschitz_constant(num_classes, radius, gamma=2.0, anchored=anchored) for radius in radii]
    assert (np.diff(values) >= -1e-9 * values[-1]).all()


def test_known_constants_of_large_balls():
    assert pal.gce_lipschitz_constant(3, 1e4, q=0.7) == pytest.approx(0.2223, abs=5e-5)
    assert pal.focal_lipschitz_constant(3, 1e3, gamma=2.0) == pytest.approx(3.2289, abs=5e-5)


def test_small_noise_rates_lose_no_digits():
    for noise_rate in (1e-12, 1e-16, 1e-20):
        scale = pal.scale_of_instability(3, noise_rate)
        wrong = 2 * math.exp(-1.5 * scale)  # 1 − p, to a relative 1e-12
        assert wrong * (1 + scale / 2) == pytest.approx(noise_rate, rel=1e-9)


def test_extreme_margins_and_decays():
    assert pal.consistency_threshold(1.0, -800.0, 0.0) == pytest.approx(1)
    assert pal.consistency_threshold(1.0, 0.0, -800.0) == pytest.approx(0)
    norm = pal.norm_under_weight_decay(3, 1e-300)
    assert math.log(1e-300 * norm) == pytest.approx(math.log(3) - 1.5 * norm, rel=1e-12)


def test_focal_slope_at_certainty():
    np.testing.assert_allclose(pal.focal_slope(np.array([1.0]), 0.0), [-1.0])
    np.testing.assert_allclose(pal.focal_slope(np.array([1.0]), 0.5), [0.0])


# Label noise


def risks(Z, W, noise_rate):
    log_p = torch.log_softmax(torch.tensor(Z @ W.T), dim=1).numpy()
    return -log_p[:, 0], -(1 - noise_rate) * log_p[:, 0] - noise_rate / (len(W) - 1) * log_p[:, 1:].sum(axis=1)


def leaves(num_classes, noise_rate, scale, dim, beyond_local=True):
    """Whether some unit feature has less noisy risk than the prototype, by more than rounding."""
    rng = np.random.default_rng(7)
    W = simplex(num_classes, dim)
    spread = [1e-2, 0.05, 0.2, 0.5, 1] if beyond_local else [1e-3, 1e-2]
    outside = np.linalg.svd(W)[2][num_classes - 1 :]  # directions that no logit sees
    steps = unit(rng.normal(size=(4000, dim)))
    if len(outside):
        steps[:2000] = unit(rng.normal(size=(2000, len(outside)))) @ outside
    Z = unit(W[0] + rng.choice(spread, size=(4000, 1)) * steps)
    noisy = risks(scale * np.r_[W[:1], Z], W, noise_rate)[1]
    return bool(noisy[1:].min() < noisy[0] - 1e-12)


CASES = [(2, 0.3), (3, 0.4), (10, 0.2), (10, 0.8), (40, 0.6)]


@pytest.mark.parametrize(("num_classes", "noise_rate"), CASES)
def test_features_leave_the_prototype_just_above_the_tolerant_scale(num_classes, noise_rate):
    limit = pal.largest_tolerant_scale(num_classes, noise_rate)
    assert not leaves(num_classes, noise_rate, 0.999 * limit, num_classes + 1)
    assert leaves(num_classes, noise_rate, 1.01 * limit, num_classes + 1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda k, e: math.log((1 - e) * (k - 1) / e),
        lambda k, e: (k - 1) / k * math.log((1 - e) / e),
        lambda k, e: (k - 1) / k * math.log((1 - e) * k / e),
        lambda k, e: k / (k - 1) * math.log((1 - e) * (k - 1) / e),
    ],
    ids=["no factor", "no k−1", "k for k−1", "inverse factor"],
)
def test_a_wrong_tolerant_scale_is_noticed(wrong):
    scale = wrong(10, 0.6)
    assert leaves(10, 0.6, 0.999 * scale, 11) or not leaves(10, 0.6, 1.01 * scale, 11)


@pytest.mark.parametrize(("num_classes", "noise_rate"), CASES)
def test_softmax_at_the_tolerant_scale_is_the_rate_of_right_labels(num_classes, noise_rate):
    W, scale = simplex(num_classes), pal.largest_tolerant_scale(num_classes, noise_rate)
    clean, _ = risks(scale * W[:1], W, noise_rate)
    assert math.exp(-clean[0]) == pytest.approx(1 - noise_rate, rel=1e-12)


@pytest.mark.parametrize(("num_classes", "noise_rate"), [(3, 0.4), (10, 0.2), (10, 0.4)])
def test_without_room_features_stay_longer(num_classes, noise_rate):
    unstable = pal.scale_of_instability(num_classes, noise_rate)
    assert unstable > pal.largest_tolerant_scale(num_classes, noise_rate)
    assert not leaves(num_classes, noise_rate, 0.98 * unstable, num_classes - 1, beyond_local=False)
    assert leaves(num_classes, noise_rate, 1.02 * unstable, num_classes - 1)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.5, 6.0])
@pytest.mark.parametrize(("num_classes", "noise_rate"), CASES)
def test_excess_risk_at_the_stated_minimiser(num_classes, noise_rate, factor):
    W = simplex(num_classes, num_classes)
    limit = pal.largest_tolerant_scale(num_classes, noise_rate)
    scale = factor * limit
    outside = np.linalg.svd(W)[2][-1]  # the one direction that no logit sees
    inside = min(1.0, 1 / factor)
    minimiser = scale * (inside * W[0] + math.sqrt(1 - inside**2) * outside)
    clean, noisy = risks(np.array([minimiser, scale * W[0]]), W, noise_rate)
    assert clean[0] - clean[1] == pytest.approx(pal.noise_excess_risk(num_classes, noise_rate, scale), abs=1e-10)
    rng = np.random.default_rng(8)
    others = scale * unit(
        minimiser / scale + rng.choice([0.01, 1], size=(500, 1)) * rng.normal(size=(500, num_classes))
    )
    assert (risks(others, W, noise_rate)[1] >= noisy[0] - 1e-12).all()


def violations(bound):
    """How many features that are better on noisy labels than B w_y are worse on clean ones by more than the bound."""
    rng = np.random.default_rng(9)
    W, count = simplex(3), 0
    for radius in (0.05, 0.3, 2.0):
        Z = unit(W[0] + rng.choice([0.1, 1], size=(3000, 1)) * rng.normal(size=(3000, 3)))
        Z *= radius * rng.uniform(size=(3000, 1))
        for noise_rate in (0.1, 0.4, 0.6, 0.65):
            clean, noisy = risks(np.r_[radius * W[:1], Z], W, noise_rate)
            worse = clean[noisy <= noisy[0]] - clean[0]
            count += int((worse > bound(3, noise_rate, radius) + 1e-12).sum())
    return count


def test_no_feature_violates_the_noise_risk_bound():
    assert violations(lambda k, e, b: pal.noise_risk_bound(k, e, b, pal.lipschitz_constant(k, b))) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda k, e, b: 2 * pal.lipschitz_constant(k, b) * b * e / ((1 - e) * k + 10),
        lambda k, e, b: -2 * pal.lipschitz_constant(k, b) * b * e / ((1 - e) * k - 1),
        lambda k, e, b: 0.02 * pal.lipschitz_constant(k, b) * b * e / ((1 - e) * k - 1),
    ],
    ids=["denominator", "sign", "factor"],
)
def test_a_wrong_noise_risk_bound_is_noticed(wrong):
    assert violations(wrong) > 0


def test_noise_risk_bound_follows_from_the_identity():
    k, eta, lam, radius = 7, 0.3, 1.4, 2.5
    expected = (eta / (k - 1) * lam * 2 * radius) / (1 - eta * k / (k - 1))
    assert pal.noise_risk_bound(k, eta, radius, lam) == pytest.approx(expected, rel=1e-13)
    assert pal.noise_risk_bound(k, eta, radius, 0.0) == 0


def test_excess_risk_stays_below_the_bound_and_saturates():
    for num_classes, noise_rate in CASES:
        for scale in (0.1, 1.0, 3.0, 20.0):
            lipschitz = pal.lipschitz_constant(num_classes, scale)
            bound = pal.noise_risk_bound(num_classes, noise_rate, scale, lipschitz)
            assert 0 <= pal.noise_excess_risk(num_classes, noise_rate, scale) <= bound
        assert pal.noise_excess_risk(num_classes, noise_rate, 500.0) == pytest.approx(-math.log(1 - noise_rate))


def test_no_noise_is_always_tolerated():
    assert pal.largest_tolerant_scale(10, 0.0) == math.inf
    assert pal.noise_excess_risk(10, 0.0, 7.0) == 0


def test_noise_aware_scale():
    expected = [5, 1.667, 1.0, 0.714, 0.556, 0.385, 0.294]
    assert [round(pal.noise_aware_scale(rate), 3) for rate in (0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8)] == expected


# Expressions and arguments


def test_expressions_agree_with_the_numbers():
    k, s, a, c = sp.symbols("k s a c")
    loss = sp.lambdify((k, s, a, c), pal.margin_loss_expression(k, s, a, c))
    lipschitz = sp.lambdify((k, s), pal.lipschitz_constant_expression(k, s))
    tolerant = sp.lambdify((k, s), pal.largest_tolerant_scale_expression(k, s))
    for num_classes in CLASSES:
        assert loss(num_classes, 3, 0.2, 0.7) == pytest.approx(
            pal.margin_loss_bound(num_classes, 3, margin=0.2, cosine=0.7)
        )
        assert lipschitz(num_classes, 1.5) == pytest.approx(pal.lipschitz_constant(num_classes, 1.5))
        assert tolerant(num_classes, 0.3) == pytest.approx(pal.largest_tolerant_scale(num_classes, 0.3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pal.largest_margin(1), "num_classes must be an integer of at least 2, got 1"),
        (lambda: pal.lipschitz_constant(2.5, 1), "num_classes must be an integer of at least 2, got 2.5"),
        (lambda: pal.lipschitz_constant(10, -1), "radius must be a number ≥ 0, got -1"),
        (lambda: pal.lipschitz_constant(10, math.nan), "radius must be a number ≥ 0, got nan"),
        (lambda: pal.gradient_norm(10, 1, 10), "num_high must lie in 1 … 9, got 10"),
        (lambda: pal.largest_tolerant_scale(10, 0.9), r"noise_rate must lie in \[0, 1 − 1/10\).* got 0.9"),
        (lambda: pal.largest_tolerant_scale(10, -0.1), "noise_rate must lie in .* got -0.1"),
        (lambda: pal.noise_risk_bound(10, 0.2, 1, -1), "lipschitz must be a number ≥ 0, got -1"),
        (lambda: pal.noise_risk_bound(10, 0.2, math.inf, 0), "radius must be finite, got inf"),
        (lambda: pal.noise_risk_bound(3, 2 / 3, 1, 1), r"noise_rate must lie in \[0, 1 − 1/3\)"),
        (lambda: pal.consistency_threshold(1, math.nan, 0), "margin must be finite, got nan"),
        (lambda: pal.scale_of_instability(2, 0.2), "num_classes ≥ 3 and noise_rate > 0"),
        (lambda: pal.gce_lipschitz_constant(10, 1, q=0), r"q must lie in \(0, 1\], got 0"),
        (lambda: pal.gce_lipschitz_constant(10, math.inf, q=0.5), "radius must be finite"),
        (lambda: pal.focal_lipschitz_constant(10, 1, gamma=-1), "gamma must be a finite number ≥ 0, got -1"),
        (lambda: pal.margin_loss_bound(10, 1, cosine=1.5), r"cosine must lie in \[−1, 1\], got 1.5"),
        (lambda: pal.norm_under_weight_decay(10, 0), "weight_decay must be a positive finite number, got 0"),
        (lambda: pal.consistency_threshold(0, 1, 2), "scale must be a positive finite number, got 0"),
        (lambda: pal.noise_aware_scale(1.5), r"noise_rate must lie in \[0, 1\], got 1.5"),
        (lambda: pal.sample_margins(np.ones((2, 3)), [0, 1], np.ones((2, 4))), "must fit each other"),
        (lambda: pal.sample_margins(np.ones((2, 3)), [0, 2], np.ones((2, 3))), r"labels must be integers in \[0, 2\)"),
        (lambda: pal.margin_loss(np.ones((1, 3)), [0], np.ones((2, 3)), margins=[1, 2, 3]), "margins must be one"),
        (lambda: pal.margin_loss(np.ones((1, 3)), [0], np.ones((2, 3)), margins=math.nan), "margins must be finite"),
        (lambda: pal.margin_loss(np.ones((1, 3)), [0], np.ones((2, 3)), scale=math.inf), "scale must be finite"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
