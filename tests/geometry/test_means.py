import math

import pytest
import torch
from torch.testing import assert_close

from ltnb import geometry
from ltnb.geometry import (
    centred_class_means,
    class_angles,
    class_cosines,
    class_means,
    classifier_alignment,
    cosine_matrix,
    feature_norms,
    global_mean,
    minority_collapse_angle,
    regular_simplex,
)

# Class means (3, 0), (0, 3) and (0, 0) with 4, 1 and 1 samples: the mean of class means is (1, 1), that of
# samples (2, 1/2).
UNEVEN = torch.tensor([[2.0, 0.0], [4.0, 0.0], [3.0, 1.0], [3.0, -1.0], [0.0, 3.0], [0.0, 0.0]])
UNEVEN_LABELS = torch.tensor([0, 0, 0, 0, 1, 2])


def means_by_loops(features, labels, num_classes):
    means = []
    for k in range(num_classes):
        of_class = [x.double() for x, y in zip(features, labels, strict=True) if y == k]
        means.append(sum(of_class) / len(of_class))
    return means


def centre_by_loops(features, labels, num_classes, centring):
    if centring == "class":
        return sum(means_by_loops(features, labels, num_classes)) / num_classes
    if centring == "sample":
        return sum(x.double() for x in features) / len(features)
    return torch.zeros(features.shape[1], dtype=torch.float64)


def test_class_means_by_loops(tailed):
    means = class_means(*tailed)
    assert means.dtype == torch.float64
    assert_close(means, torch.stack(means_by_loops(*tailed)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("centring", ["class", "sample", "none"])
def test_centres_and_cosines_by_loops(tailed, centring):
    centre = centre_by_loops(*tailed, centring)
    assert_close(global_mean(*tailed, centring=centring), centre, rtol=0, atol=1e-13)
    offsets = [mean - centre for mean in means_by_loops(*tailed)]
    assert_close(centred_class_means(*tailed, centring=centring), torch.stack(offsets), rtol=0, atol=1e-13)
    expected = torch.tensor(
        [[float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for b in offsets] for a in offsets],
        dtype=torch.float64,
    )
    cosines = class_cosines(*tailed, centring=centring)
    assert_close(cosines, expected, rtol=0, atol=1e-12)
    angles = class_angles(*tailed, centring=centring)
    assert_close(torch.cos(torch.deg2rad(angles)), cosines, rtol=0, atol=1e-12)
    assert torch.equal(angles.diagonal(), torch.zeros(5, dtype=torch.float64))


def test_centrings_differ_as_worked_out_by_hand():
    def centre(centring):
        return global_mean(UNEVEN, UNEVEN_LABELS, 3, centring=centring).tolist()

    def cosines(centring):
        matrix = class_cosines(UNEVEN, UNEVEN_LABELS, 3, centring=centring)
        return [float(matrix[j, k]) for j, k in ((0, 1), (0, 2), (1, 2))]

    assert centre("class") == [1, 1]
    assert centre("sample") == [2, 0.5]
    assert centre("none") == [0, 0]
    # From (1, 1) the means lie at (2, −1), (−1, 2), (−1, −1); from (2, 1/2) at (1, −½), (−2, 2½), (−2, −½).
    assert cosines("class") == pytest.approx([-4 / 5, -1 / math.sqrt(10), -1 / math.sqrt(10)])
    assert cosines("sample") == pytest.approx(
        [-3.25 / math.sqrt(1.25 * 10.25), -1.75 / math.sqrt(1.25 * 4.25), 2.75 / math.sqrt(10.25 * 4.25)]
    )
    assert cosines("none") == pytest.approx([0, math.nan, math.nan], nan_ok=True)


def test_norms_worked_out_by_hand():
    assert feature_norms(UNEVEN, UNEVEN_LABELS, 3).tolist() == pytest.approx([(2 + 4 + 2 * math.sqrt(10)) / 4, 3, 0])


def test_norm_of_the_mean_is_at_most_the_mean_of_norms(tailed):
    lengths, norms = class_means(*tailed).norm(dim=1), feature_norms(*tailed)
    assert (lengths[:4] < norms[:4]).all()
    assert lengths[4] == pytest.approx(float(norms[4]))


def test_class_centring_finds_a_simplex_that_sample_centring_misses():
    labels = torch.arange(4).repeat_interleave(torch.tensor([20, 5, 2, 1]))
    features = (regular_simplex(4, 6) + 5)[labels]
    by_class = class_cosines(features, labels, 4, centring="class")
    assert_close(by_class, cosine_matrix(regular_simplex(4, 6)), rtol=0, atol=1e-12)
    by_sample = class_cosines(features, labels, 4, centring="sample")
    # Seen from close to the head, the tails lie on one side.
    assert by_sample[2, 3] > 0.3


@pytest.mark.parametrize("centring", ["class", "sample", "none"])
def test_cosines_do_not_depend_on_rotation_or_scale(moved, centring):
    original, turned = moved
    assert_close(
        class_cosines(*turned, centring=centring),
        class_cosines(*original, centring=centring),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_cosines_do_not_depend_on_an_offset_once_centred(tailed, centring):
    features = tailed.features.double()
    assert_close(
        class_cosines(features + 100, tailed.labels, 5, centring=centring),
        class_cosines(features, tailed.labels, 5, centring=centring),
        rtol=0,
        atol=1e-11,
    )


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_features_that_all_coincide_have_no_angles(centring):
    # A tenth has no exact binary form, so the mean of many differs from it by rounding.
    features = torch.full((1000, 3), 0.1, dtype=torch.float64)
    labels = torch.arange(1000) % 7
    assert class_cosines(features, labels, 7, centring=centring).isnan().all()
    assert (centred_class_means(features, labels, 7, centring=centring) == 0).all()


def test_measurements_carry_no_gradient(tailed):
    features = tailed.features.clone().requires_grad_()
    assert not class_means(features, tailed.labels, 5).requires_grad
    assert not global_mean(features, tailed.labels, 5, centring="sample").requires_grad
    cosines = torch.eye(3, requires_grad=True)
    assert minority_collapse_angle(cosines, torch.tensor([0, 1])) == 90


def test_input_is_left_as_it_was(tailed):
    before = tailed.features.clone()
    for centring in ("class", "sample", "none"):
        class_cosines(*tailed, centring=centring)
    assert torch.equal(tailed.features, before)


def test_minority_angle_by_loops(tailed):
    cosines = class_cosines(*tailed, centring="class")
    pairs = [(1, 3), (1, 4), (3, 4)]
    expected = sum(math.degrees(math.acos(float(cosines[j, k]))) for j, k in pairs) / len(pairs)
    assert minority_collapse_angle(cosines, torch.tensor([4, 1, 3])) == pytest.approx(expected)


def test_minority_angle_of_known_configurations():
    tail = torch.tensor([1, 2, 3])
    simplex = cosine_matrix(regular_simplex(4, 3))
    assert minority_collapse_angle(simplex, tail) == pytest.approx(math.degrees(math.acos(-1 / 3)))
    assert minority_collapse_angle(torch.eye(4), tail) == pytest.approx(90)
    collapsed = cosine_matrix(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-2.0, 0.0], [-3.0, 0.0]]))
    assert minority_collapse_angle(collapsed, tail) == 0
    assert minority_collapse_angle(collapsed, torch.tensor([0, 1])) == 180


def test_minority_angle_needs_two_classes():
    assert math.isnan(minority_collapse_angle(torch.eye(4), torch.tensor([2])))
    assert math.isnan(minority_collapse_angle(torch.eye(4), torch.tensor([], dtype=torch.int64)))


@pytest.mark.parametrize(
    ("cosines", "tail", "message"),
    [
        (torch.ones(2, 3), torch.tensor([0, 1]), r"cosines must be a square matrix, got shape \(2, 3\)"),
        (torch.eye(3), torch.tensor([0, 3]), r"tail must hold distinct class indices in 0 … 2, got \[0, 3\]"),
        (torch.eye(3), torch.tensor([-1, 1]), r"tail must hold distinct .* got \[-1, 1\]"),
        (torch.eye(3), torch.tensor([1, 1]), r"tail must hold distinct .* got \[1, 1\]"),
        (torch.eye(3), torch.tensor([True, False, True]), "tail must be a vector of integers.* torch.bool"),
        (torch.eye(3), torch.tensor(1), r"tail must be a vector of integers, got shape \(\)"),
    ],
)
def test_minority_angle_refuses(cosines, tail, message):
    with pytest.raises(ValueError, match=message):
        minority_collapse_angle(cosines, tail)


def test_classifier_alignment_of_known_configurations():
    means = regular_simplex(4, 3)
    assert_close(classifier_alignment(3 * means, means), torch.ones(4, dtype=torch.float64))
    assert_close(classifier_alignment(-means, means), -torch.ones(4, dtype=torch.float64))
    weight = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
    axes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert classifier_alignment(weight, axes).tolist() == pytest.approx([0.6, 0, math.nan], nan_ok=True)


def test_classifier_alignment_by_loops(tailed):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(5, 4, generator=generator).to(tailed.features.dtype)
    means = centred_class_means(*tailed, centring="class")
    expected = [
        float(w.double() @ m) / (float(w.double().norm()) * float(m.norm())) for w, m in zip(weight, means, strict=True)
    ]
    assert classifier_alignment(weight, means).tolist() == pytest.approx(expected, abs=1e-12)


def test_classifier_alignment_refuses_other_shapes():
    with pytest.raises(ValueError, match=r"one shape \(K, d\), got \(3, 2\) and \(2, 2\)"):
        classifier_alignment(torch.ones(3, 2), torch.ones(2, 2))


FINE = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])

OF_LABELLED_FEATURES = {
    "class_means": class_means,
    "global_mean": lambda *given: global_mean(*given, centring="none"),
    "centred_class_means": lambda *given: centred_class_means(*given, centring="sample"),
    "class_cosines": lambda *given: class_cosines(*given, centring="class"),
    "class_angles": lambda *given: class_angles(*given, centring="class"),
    "feature_norms": feature_norms,
    "within_class_variability": lambda *given: geometry.within_class_variability(*given, centring="class"),
    "class_distance_normalised_variance": geometry.class_distance_normalised_variance,
    "compactness": lambda *given: geometry.compactness(*given, centring="class"),
    "separability": lambda *given: geometry.separability(*given, centring="class"),
}


@pytest.mark.parametrize("measure", OF_LABELLED_FEATURES.values(), ids=OF_LABELLED_FEATURES.keys())
@pytest.mark.parametrize(
    ("features", "labels", "num_classes", "message"),
    [
        (FINE, torch.tensor([0, 0, 2]), 4, r"class 1 has none in labels \(2 of 4 classes absent\)"),
        (FINE, torch.tensor([0, 1, 3]), 3, "labels must lie in 0 … 2 for num_classes=3, got 3"),
        (FINE, torch.tensor([0, -1, 1]), 2, "labels must lie in 0 … 1 for num_classes=2, got -1"),
        (FINE, torch.tensor([0, 1]), 2, "one class for each of the 3 rows, got 2"),
        (FINE, torch.tensor([0.0, 1.0, 1.0]), 2, "labels must be a vector of integers.*float32"),
        (FINE, torch.tensor([[0], [1], [1]]), 2, r"labels must be a vector of integers, got shape \(3, 1\)"),
        (FINE, torch.tensor([0, 0, 0]), 1, "num_classes must be at least 2, got 1"),
        (FINE.log(), torch.tensor([0, 1, 1]), 2, "features must be finite, but row 0 is not"),
        (FINE / FINE[2:].mul(0), torch.tensor([0, 1, 1]), 2, "features must be finite, but row 0 is not"),
        (FINE.long(), torch.tensor([0, 1, 1]), 2, "features must be a non-empty floating-point matrix"),
        (FINE[0], torch.tensor([0, 1]), 2, r"features must be .* got shape \(2,\)"),
        (FINE[:0], torch.tensor([], dtype=torch.int64), 2, r"features must be .* got shape \(0, 2\)"),
    ],
)
def test_every_measure_refuses_bad_input(measure, features, labels, num_classes, message):
    with pytest.raises(ValueError, match=message):
        measure(features, labels, num_classes)


def test_the_first_bad_row_is_named():
    features = torch.zeros(10, 3)
    features[7, 2] = math.nan
    features[9, 0] = -math.inf
    with pytest.raises(ValueError, match="row 7 is not"):
        class_means(features, torch.arange(10) % 2, 2)


def test_unknown_centring_is_refused():
    with pytest.raises(ValueError, match="centring must be one of 'class', 'sample', 'none'; got 'median'"):
        global_mean(FINE, torch.tensor([0, 1, 1]), 2, centring="median")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_labels_of_any_integer_dtype(tailed, dtype):
    assert torch.equal(class_means(tailed.features, tailed.labels.to(dtype), 5), class_means(*tailed))
