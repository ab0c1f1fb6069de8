import itertools
import math

import pytest
import torch
from torch.testing import assert_close

from ltnb.geometry import (
    class_cosines,
    classifier_separability,
    compactness,
    cosine_matrix,
    global_mean,
    pair_separability,
    regular_simplex,
    separability,
    within_class_variability,
)


def by_loops(features, labels, num_classes, centring):
    """Compactness and separability from every pair, one cosine at a time."""
    offsets = [x.double() - global_mean(features, labels, num_classes, centring=centring) for x in features]
    same = [[] for _ in range(num_classes)]
    other = [[] for _ in range(num_classes)]
    for (a, j), (b, k) in itertools.permutations(zip(offsets, labels.tolist(), strict=True), 2):
        cosine = float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))
        if j == k:
            same[j].append((1 + cosine) / 2)
        else:
            other[j].append((1 - cosine) / 2)
    return (
        [100 * sum(terms) / len(terms) if terms else math.nan for terms in same],
        [100 * sum(terms) / len(terms) for terms in other],
    )


@pytest.mark.parametrize("centring", ["class", "sample", "none"])
def test_by_loops(tailed, centring):
    compact, separate = by_loops(*tailed, centring)
    assert compactness(*tailed, centring=centring).tolist() == pytest.approx(compact, abs=1e-10, nan_ok=True)
    assert separability(*tailed, centring=centring).tolist() == pytest.approx(separate, abs=1e-10)


def test_centrings_differ_as_worked_out_by_hand():
    # Class 0: (2, 0) four times; class 1: (0, 2) and (0, 2); class 2: (−2, −2).
    features = torch.tensor([[2.0, 0.0]] * 4 + [[0.0, 2.0]] * 2 + [[-2.0, -2.0]])
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    # Mean of class means 0. The cosines are 0 (0 and 1) and −1/√2 (0 and 2, 1 and 2).
    half = 1 / math.sqrt(2)
    expected = [50 * (1 + half / 3), 50 * (1 + half / 5), 50 * (1 + half)]
    assert separability(features, labels, 3, centring="class").tolist() == pytest.approx(expected)
    assert separability(features, labels, 3, centring="none").tolist() == pytest.approx(expected)
    # Mean of samples (6/7, 2/7): offsets along (4, −1), (−3, 6) and (−10, −8).
    c01, c02, c12 = -18 / math.sqrt(17 * 45), -32 / math.sqrt(17 * 164), -18 / math.sqrt(45 * 164)
    expected = [50 * (1 - (2 * c01 + c02) / 3), 50 * (1 - (4 * c01 + c12) / 5), 50 * (1 - (4 * c02 + 2 * c12) / 6)]
    assert separability(features, labels, 3, centring="sample").tolist() == pytest.approx(expected)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_collapsed_on_a_simplex(num_classes):
    labels = torch.arange(num_classes).repeat_interleave(3)
    features = (regular_simplex(num_classes, num_classes) * 7 + 2)[labels]
    assert_close(
        compactness(features, labels, num_classes, centring="class"),
        torch.full((num_classes,), 100.0, dtype=torch.float64),
    )
    assert_close(
        separability(features, labels, num_classes, centring="class"),
        torch.full((num_classes,), 50 * (1 + 1 / (num_classes - 1)), dtype=torch.float64),
    )


def test_orthogonal_within_and_between_classes():
    features, labels = torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 2])
    compact = compactness(features, labels, 3, centring="none").tolist()
    assert compact == pytest.approx([50, 50, math.nan], nan_ok=True)
    assert separability(features, labels, 3, centring="none").tolist() == pytest.approx([50, 50, 50])


def test_antipodal_pair_is_as_loose_as_can_be():
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    labels = torch.tensor([0, 0, 1, 1])
    assert compactness(features, labels, 2, centring="none").tolist() == [0, 100]


def test_features_of_one_sign_cannot_exceed_half_without_centring():
    labels = torch.arange(50) % 5
    noise = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    features = (torch.eye(5, 8)[labels] + 0.3 * noise).relu()
    assert (separability(features, labels, 5, centring="none") < 50).all()
    assert (separability(features, labels, 5, centring="class") > 50).all()


def test_a_feature_at_the_centre_is_left_out():
    directions = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0], [-1.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 1])
    with_zero = torch.cat([directions, torch.zeros(1, 2)])
    for measure in (compactness, separability):
        assert_close(
            measure(with_zero, torch.tensor([0, 0, 1, 1, 1]), 2, centring="none"),
            measure(directions, labels, 2, centring="none"),
        )
    only_zero = separability(with_zero, torch.tensor([0, 0, 0, 0, 1]), 2, centring="none")
    assert only_zero.isnan().all()


@pytest.mark.parametrize("centring", ["class", "sample"])
def test_features_that_all_coincide_have_no_metrics(centring):
    features = torch.full((1000, 3), 0.1, dtype=torch.float64)
    labels = torch.arange(1000) % 7
    assert compactness(features, labels, 7, centring=centring).isnan().all()
    assert separability(features, labels, 7, centring=centring).isnan().all()


@pytest.mark.parametrize("centring", ["class", "sample", "none"])
@pytest.mark.parametrize("measure", [compactness, separability])
def test_do_not_depend_on_rotation_or_scale(moved, measure, centring):
    original, turned = moved
    assert_close(
        measure(*turned, centring=centring),
        measure(*original, centring=centring),
        rtol=0,
        atol=1e-10,
        equal_nan=True,
    )


def test_classifier_by_loops():
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [
        100 / 5 * sum((1 - float(w @ v) / math.sqrt(float(w @ w) * float(v @ v))) / 2 for v in weight if v is not w)
        for w in weight.unbind()
    ]
    assert classifier_separability(weight).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_classifier_at_a_simplex_of_a_hundred_is_what_the_paper_reports(dtype):
    weight = (3 * regular_simplex(100, 128)).to(dtype)
    assert classifier_separability(weight).tolist() == pytest.approx([50.505] * 100, abs=0.02)


def test_no_classifier_is_separated_further_on_average_than_a_simplex():
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(5, 4, generator=generator) for _ in range(100)]
    assert max(float(classifier_separability(weight).mean()) for weight in weights) < 50 * (1 + 1 / 4)


def test_classifier_of_coinciding_orthogonal_and_zero_vectors():
    assert classifier_separability(torch.ones(4, 3)).tolist() == pytest.approx([0] * 4, abs=1e-12)
    assert classifier_separability(torch.eye(4)).tolist() == pytest.approx([50] * 4)
    weight = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    assert classifier_separability(weight).tolist() == pytest.approx([50, 50, math.nan], nan_ok=True)


def test_classifier_refuses():
    with pytest.raises(ValueError, match="weight must be finite, but row 2 is not"):
        classifier_separability(torch.tensor([[1.0], [2.0], [math.nan]]))
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        classifier_separability(torch.ones(1, 3))


def test_as_many_classes_as_inaturalist_most_with_one_sample():
    num_classes = 8142
    labels = torch.cat([torch.arange(num_classes), torch.arange(1000), torch.arange(100)])
    means = torch.randn(num_classes, 16, generator=torch.Generator().manual_seed(0))
    compact = compactness(means[labels], labels, num_classes, centring="class")
    assert_close(compact[:1000], torch.full((1000,), 100.0, dtype=torch.float64))
    assert compact[1000:].isnan().all()
    separate = separability(means[labels], labels, num_classes, centring="class")
    assert float(separate.mean()) == pytest.approx(50, abs=0.1)
    assert within_class_variability(means[labels], labels, num_classes, centring="class") == pytest.approx(0, abs=1e-20)


def test_pairs_by_loops(tailed):
    cosines = class_cosines(*tailed, centring="class")
    pairs = {0: [], 1: [], 2: []}
    for j, k in itertools.combinations(range(5), 2):
        pairs[(j in (2, 4)) + (k in (2, 4))].append(50 * (1 - float(cosines[j, k])))
    assert [len(of_kind) for of_kind in pairs.values()] == [3, 6, 1]
    expected = [sum(of_kind) / len(of_kind) for of_kind in pairs.values()]
    assert pair_separability(cosines, torch.tensor([4, 2])) == pytest.approx(expected)


def test_pairs_of_a_simplex_and_of_coinciding_tails():
    simplex = regular_simplex(6, 8)
    tail = torch.tensor([3, 4, 5])
    assert pair_separability(cosine_matrix(simplex), tail) == pytest.approx([60] * 3)
    simplex[tail] = simplex[3].clone()
    assert pair_separability(cosine_matrix(simplex), tail) == pytest.approx([60, 60, 0])


def test_pairs_that_are_not_there():
    cosines = cosine_matrix(regular_simplex(3, 3))
    assert pair_separability(cosines, torch.tensor([0])) == pytest.approx([75, 75, math.nan], nan_ok=True)
    nothing = torch.empty(0, dtype=torch.int64)
    assert pair_separability(cosines, nothing) == pytest.approx([75, math.nan, math.nan], nan_ok=True)
    with pytest.raises(ValueError, match=r"tail must hold distinct class indices in 0 … 2, got \[3\]"):
        pair_separability(cosines, torch.tensor([3]))
    with pytest.raises(ValueError, match=r"cosines must be a square matrix, got shape \(2, 3\)"):
        pair_separability(cosines[:2], torch.tensor([0]))
