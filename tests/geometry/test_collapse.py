import math

import pytest
import torch
from torch.testing import assert_close

from ltnb.geometry import class_distance_normalised_variance, regular_simplex, within_class_variability


def covariances_by_loops(features, labels, num_classes, centring):
    """Σ_W and Σ_B as d × d matrices, one outer product at a time."""
    features = features.double()
    dim = features.shape[1]
    counts = [int((labels == k).sum()) for k in range(num_classes)]
    means = [features[labels == k].mean(dim=0) for k in range(num_classes)]
    if centring == "class":
        weights, centre = [1 / num_classes] * num_classes, sum(means) / num_classes
    else:
        weights, centre = [n / len(labels) for n in counts], features.mean(dim=0)
    within = torch.zeros(dim, dim, dtype=torch.float64)
    between = torch.zeros(dim, dim, dtype=torch.float64)
    for x, y in zip(features, labels.tolist(), strict=True):
        within += weights[y] / counts[y] * torch.outer(x - means[y], x - means[y])
    for k in range(num_classes):
        between += weights[k] * torch.outer(means[k] - centre, means[k] - centre)
    return within, between


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_variability_is_the_trace_with_the_plain_pseudo_inverse(tailed, centring):
    within, between = covariances_by_loops(*tailed, centring)
    expected = float(torch.trace(within @ torch.linalg.pinv(between, hermitian=True))) / 5
    assert within_class_variability(*tailed, centring=centring) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dim", [1, 3, 30])
@pytest.mark.parametrize("centring", ["class", "sample"])
def test_variability_with_fewer_and_with_more_dimensions_than_classes(dim, centring):
    generator = torch.Generator().manual_seed(dim)
    labels = torch.arange(6).repeat_interleave(torch.tensor([12, 7, 4, 2, 1, 1]))
    features = torch.randn(27, dim, generator=generator) + 4 * labels[:, None].float().sin()
    within, between = covariances_by_loops(features, labels, 6, centring)
    expected = float(torch.trace(within @ torch.linalg.pinv(between, hermitian=True))) / 6
    assert within_class_variability(features, labels, 6, centring=centring) == pytest.approx(expected, rel=1e-8)


def test_variability_worked_out_by_hand():
    # On a line: class 0 at 0 and 2, class 1 at 9, 9, 11, 11. Variances 1 and 1, means 1 and 10.
    features = torch.tensor([[0.0], [2.0], [9.0], [9.0], [11.0], [11.0]])
    labels = torch.tensor([0, 0, 1, 1, 1, 1])
    # By class: Σ_W = 1, Σ_B = (9/2)². By sample: Σ_W = 1, μ_G = 7, Σ_B = (2·36 + 4·9)/6 = 18.
    assert within_class_variability(features, labels, 2, centring="class") == pytest.approx(1 / 20.25 / 2)
    assert within_class_variability(features, labels, 2, centring="sample") == pytest.approx(1 / 18 / 2)


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_isotropic_noise_on_a_simplex(centring):
    # ±s along every axis about the vertices of a simplex: Σ_W = s²/d·I.
    num_classes, dim, s = 4, 5, 0.3
    shifts = s * torch.cat([torch.eye(dim), -torch.eye(dim)]).double()
    features = (regular_simplex(num_classes, dim)[:, None] + shifts).reshape(-1, dim)
    labels = torch.arange(num_classes).repeat_interleave(2 * dim)
    # Σ_B = (1/K) Σ ξξᵀ = I/(K−1) on K−1 dimensions, so tr(Σ_W Σ_B⁺) = (K−1)·(s²/d)·(K−1).
    expected = s**2 / dim * (num_classes - 1) ** 2 / num_classes
    assert within_class_variability(features, labels, num_classes, centring=centring) == pytest.approx(expected)


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_variability_does_not_depend_on_rotation_scale_or_offset(moved, centring):
    original, turned = moved
    turned = turned._replace(features=turned.features + 50)
    expected = within_class_variability(*original, centring=centring)
    assert within_class_variability(*turned, centring=centring) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_collapsed_classes_have_no_variability(centring):
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    features = regular_simplex(3, 2)[labels]
    assert within_class_variability(features, labels, 3, centring=centring) == pytest.approx(0, abs=1e-15)
    variances = class_distance_normalised_variance(features, labels, 3)
    assert_close(variances[~torch.eye(3, dtype=torch.bool)], torch.zeros(6, dtype=torch.float64))


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_variability_without_distance_between_means_is_undefined(centring):
    features = torch.tensor([[0.1], [0.3], [0.1], [0.3]])
    labels = torch.tensor([0, 0, 1, 1])
    assert math.isnan(within_class_variability(features, labels, 2, centring=centring))


def test_variability_outside_the_span_of_the_means_is_not_counted():
    features = torch.tensor([[1.0, 5.0], [1.0, -5.0], [-1.0, 5.0], [-1.0, -5.0]])
    assert within_class_variability(features, torch.tensor([0, 0, 1, 1]), 2, centring="class") == 0


@pytest.mark.parametrize("centring", ["none", "median"])
def test_variability_refuses_other_centrings(tailed, centring):
    with pytest.raises(ValueError, match=f"centring must be 'class' or 'sample'.*got '{centring}'"):
        within_class_variability(*tailed, centring=centring)


def test_normalised_variance_by_loops(tailed):
    features = tailed.features.double()
    groups = [[x for x, y in zip(features, tailed.labels, strict=True) if y == k] for k in range(5)]
    means = [sum(group) / len(group) for group in groups]
    variances = [
        sum(float((x - mean) @ (x - mean)) for x in group) / len(group)
        for group, mean in zip(groups, means, strict=True)
    ]
    assert variances[4] == 0
    expected = torch.full((5, 5), math.nan, dtype=torch.float64)
    for j in range(5):
        for k in range(5):
            if j != k:
                gap = means[j] - means[k]
                expected[j, k] = (variances[j] + variances[k]) / (2 * float(gap @ gap))
    assert_close(class_distance_normalised_variance(*tailed), expected, rtol=1e-11, atol=0, equal_nan=True)


def test_normalised_variance_worked_out_by_hand():
    # Means 1 and 10 with variances 1 and 1, and a single sample at 4.
    features = torch.tensor([[0.0], [2.0], [9.0], [11.0], [4.0]])
    variances = class_distance_normalised_variance(features, torch.tensor([0, 0, 1, 1, 2]), 3)
    assert float(variances[0, 1]) == pytest.approx(2 / (2 * 81))
    assert float(variances[0, 2]) == pytest.approx(1 / (2 * 9))
    assert float(variances[2, 1]) == pytest.approx(1 / (2 * 36))


def test_normalised_variance_of_nearly_coinciding_means_keeps_its_digits():
    # 40 classes, since above 25 torch.cdist would by default switch to inner products, which lose this gap.
    gap = 1e-9
    centres = 1000.0 + torch.arange(40, dtype=torch.float64)
    centres[1] = centres[0] + gap
    features = torch.cat([centres - 1, centres + 1])[:, None]
    variances = class_distance_normalised_variance(features, torch.arange(40).repeat(2), 40)
    exact_gap = float(centres[1] - centres[0])
    assert float(variances[0, 1]) == pytest.approx(1 / exact_gap**2, rel=1e-3)


def test_normalised_variance_of_coinciding_means():
    features = torch.tensor([[-1.0], [1.0], [0.0], [0.0], [0.0]])
    variances = class_distance_normalised_variance(features, torch.tensor([0, 0, 1, 1, 2]), 3)
    assert float(variances[0, 1]) == math.inf
    assert math.isnan(variances[1, 2])


def test_normalised_variance_does_not_depend_on_rotation_scale_or_offset(moved):
    original, turned = moved
    turned = turned._replace(features=turned.features + 50)
    assert_close(
        class_distance_normalised_variance(*turned),
        class_distance_normalised_variance(*original),
        rtol=1e-9,
        atol=0,
        equal_nan=True,
    )
