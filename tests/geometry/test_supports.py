import math
from itertools import combinations

import numpy as np
import pytest
import torch

import ltnb.geometry.supports as supports_module
from ltnb.geometry import (
    Supports,
    cap_overlaps,
    capped,
    confidence_supports,
    largest_common_radius,
    nearest_centre_error,
    rectified_supports,
    regular_simplex,
    truncated_normal_in_cap,
    uniform_in_cap,
)

COUNTS = [40, 25, 12, 5, 2, 1]
LABELS = torch.arange(6).repeat_interleave(torch.tensor(COUNTS))[
    torch.randperm(85, generator=torch.Generator().manual_seed(3))
]


def features(dim=9, dtype=torch.float64, spread=0.6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randn(6, dim, generator=generator, dtype=torch.float64)
    z = middle[LABELS] + spread * torch.randn(len(LABELS), dim, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(z, dim=1).to(dtype)


def lists(supports):
    return [part.tolist() for part in supports]


def normalised(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def supports_by_loops(z, y, num_classes, quantile):
    centres, radii, means, stds = [], [], [], []
    for k in range(num_classes):
        own = [normalised(row) for row, label in zip(z.double().tolist(), y.tolist(), strict=True) if label == k]
        centre = normalised([sum(column) for column in zip(*own, strict=True)])
        angles = [math.acos(min(1.0, dot(row, centre))) for row in own]
        mean = sum(angles) / len(angles)
        centres.append(centre)
        radii.append(float(np.quantile(angles, quantile)))
        means.append(mean)
        stds.append(math.sqrt(sum((angle - mean) ** 2 for angle in angles) / len(angles)))
    return centres, radii, means, stds


@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_confidence_supports_by_loops(dtype, quantile):
    z = features(dtype=dtype).requires_grad_()
    supports = confidence_supports(z, LABELS, 6, quantile=quantile)
    for part, expected in zip(supports, supports_by_loops(z.detach(), LABELS, 6, quantile), strict=True):
        assert part.dtype == torch.float64
        assert not part.requires_grad
        torch.testing.assert_close(part, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=5e-8)
    # The class of one image, and no other.
    assert [part[5].item() for part in supports[1:]] == [0, 0, 0]
    assert (supports.angle_means[:5] > 0.1).all()
    # Two samples are equally far from the centre between them.
    assert (supports.angle_stds[:4] > 0.01).all()
    assert supports.angle_stds[4] < 1e-12


def test_rows_are_widened_a_few_at_a_time_and_named_by_their_number(monkeypatch):
    z, whole = features(dtype=torch.float32), confidence_supports(features(dtype=torch.float32), LABELS, 6)
    monkeypatch.setattr(supports_module, "_AT_ONCE", 4)
    for few, all_at_once in zip(confidence_supports(z, LABELS, 6), whole, strict=True):
        torch.testing.assert_close(few, all_at_once, rtol=1e-13, atol=1e-13)
    z[77] *= 2
    with pytest.raises(ValueError, match=r"z must have rows of unit length, but row 77 has length 2"):
        confidence_supports(z, LABELS, 6)
    z[78, 0] = math.nan
    z[77] /= 2
    with pytest.raises(ValueError, match=r"z must be finite, but row 78 is not"):
        confidence_supports(z, LABELS, 6)


def test_the_support_holds_its_share_of_the_class():
    labels = torch.zeros(1001, dtype=torch.int64)
    labels[-1] = 1
    z = torch.nn.functional.normalize(torch.randn(1001, 16, generator=torch.Generator().manual_seed(0)) + 1, dim=1)
    supports = confidence_supports(z, labels, 2, quantile=0.9)
    angles = (z[:1000].double() @ supports.centres[0]).arccos()
    assert int((angles <= supports.radii[0]).sum()) == 900


def test_supports_at_a_known_geometry():
    """Points at equal steps on a circle: the angles are exact, and so are the smallest ones."""
    for step in (0.1, 1e-9):
        angles = step * torch.arange(-4, 5, dtype=torch.float64)
        arc = torch.stack([angles.cos(), angles.sin()], dim=1)
        z = torch.cat([arc, -arc])
        supports = confidence_supports(z, torch.arange(2).repeat_interleave(9), 2, quantile=0.75)
        torch.testing.assert_close(supports.centres, torch.tensor([[1.0, 0], [-1, 0]]).double(), rtol=0, atol=1e-15)
        expected = torch.tensor([3 * step] * 2).double()
        torch.testing.assert_close(supports.radii, expected, rtol=1e-6, atol=0)
        torch.testing.assert_close(supports.angle_means, expected * 20 / 27, rtol=1e-6, atol=0)
        torch.testing.assert_close(
            supports.angle_stds, expected * math.sqrt(60 / 9 - (20 / 9) ** 2) / 3, rtol=1e-6, atol=0
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_class_of_copies_is_a_point(dtype):
    z = features(dim=128, dtype=dtype)[:6]
    supports = confidence_supports(z.repeat_interleave(7, dim=0), torch.arange(6).repeat_interleave(7), 6)
    assert not torch.stack(supports[1:]).any()
    torch.testing.assert_close(supports.centres, torch.nn.functional.normalize(z.double(), dim=1))


def rectified_by_loops(supports, counts, heads, nearest, mix, weights):
    centres, *angles = lists(supports)
    new_centres, new_angles = [], []
    for k, centre in enumerate(centres):
        similarity = {head: dot(centre, centres[head]) for head in heads}
        chosen = sorted(heads, key=lambda head: -similarity[head])[:nearest]
        positive = {head: max(0.0, similarity[head]) for head in chosen}
        total = sum(counts[head] * positive[head] for head in chosen)
        if k in heads or total == 0:
            new_centres.append(centre)
            new_angles.append([part[k] for part in angles])
            continue
        omega = {c: (counts[c] if weights == "corrected" else counts[k]) * positive[c] / total for c in chosen}
        mixed = [mix * x for x in centre]
        for head, weight in omega.items():
            mixed = [x + (1 - mix) * weight * y for x, y in zip(mixed, centres[head], strict=True)]
        new_centres.append(normalised(mixed))
        mixtures = [(1 - mix) * sum(w * part[c] for c, w in omega.items()) + mix * part[k] for part in angles]
        new_angles.append([min(mixture, math.pi) for mixture in mixtures])
    return [new_centres, *zip(*new_angles, strict=True)]


@pytest.mark.parametrize("weights", ["corrected", "printed"])
@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("nearest", [1, 2, 3])
def test_rectified_supports_by_loops(nearest, mix, weights):
    supports = confidence_supports(features(), LABELS, 6)
    heads = [3, 0, 2]
    # Both signs are among the similarities, or the guard would not be tested.
    cosines = supports.centres @ supports.centres[heads].T
    assert (cosines < 0).any()
    assert (cosines[[1, 4, 5]] > 0).any()
    result = rectified_supports(
        supports, torch.tensor(COUNTS), torch.tensor(heads), nearest=nearest, mix=mix, weights=weights
    )
    for part, expected in zip(result, rectified_by_loops(supports, COUNTS, heads, nearest, mix, weights), strict=True):
        torch.testing.assert_close(part, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-14)
    # Heads keep their supports to the bit.
    for before, after in zip(supports, result, strict=True):
        assert torch.equal(before[heads], after[heads])


def two_heads_and_two_tails():
    """On a circle: heads at 0° and 60°, tails at 30° (of one sample) and at 180°."""
    angles = torch.tensor([0.0, 60, 30, 180]).double().deg2rad()
    radii, means, stds = torch.tensor([[0.4, 0.6, 0.0, 0.1], [0.2, 0.3, 0.0, 0.05], [0.1, 0.2, 0.0, 0.02]]).double()
    return Supports(torch.stack([angles.cos(), angles.sin()], dim=1), radii, means, stds)


def test_rectified_supports_in_closed_form():
    supports, counts, heads = two_heads_and_two_tails(), torch.tensor([300, 100, 1, 2]), torch.tensor([0, 1])
    result = rectified_supports(supports, counts, heads, nearest=2, mix=0.5)
    # Equal similarities: the weights are 3/4 and 1/4.
    centre = 0.5 * (0.75 * supports.centres[0] + 0.25 * supports.centres[1]) + 0.5 * supports.centres[2]
    torch.testing.assert_close(result.centres[2], centre / centre.norm())
    assert result.radii[2].item() == pytest.approx(0.5 * (0.75 * 0.4 + 0.25 * 0.6))
    # The one image gets a spread, so that a truncated normal no longer draws its copies.
    assert result.angle_means[2].item() == pytest.approx(0.5 * (0.75 * 0.2 + 0.25 * 0.3))
    assert result.angle_stds[2].item() == pytest.approx(0.5 * (0.75 * 0.1 + 0.25 * 0.2))
    # The tail opposite to both heads has nothing to borrow.
    assert [part[3].tolist() for part in result] == [part[3].tolist() for part in supports]


def test_printed_weights_do_not_sum_to_one():
    supports, counts, heads = two_heads_and_two_tails(), torch.tensor([300, 100, 1, 2]), torch.tensor([0, 1])
    result = rectified_supports(supports, counts, heads, nearest=2, mix=0.5, weights="printed")
    # N_k (s + s)/(N_0 s + N_1 s) = 2/400.
    assert result.radii[2].item() == pytest.approx(0.5 * (0.4 + 0.6) / 400)
    assert result.centres[2].norm().item() == pytest.approx(1)
    # With the largest class as the one that borrows they sum to more.
    result = rectified_supports(supports, torch.tensor([1, 1, 100, 2]), heads, nearest=2, mix=0.0, weights="printed")
    assert result.radii[2].item() == pytest.approx(math.pi)


def test_mix_one_changes_nothing():
    supports = confidence_supports(features(), LABELS, 6)
    result = rectified_supports(supports, torch.tensor(COUNTS), torch.tensor([0, 1]), nearest=1, mix=1.0)
    for before, after in zip(supports, result, strict=True):
        torch.testing.assert_close(before, after, rtol=0, atol=2e-16)


def test_largest_common_radius():
    degrees = [round(math.degrees(largest_common_radius(num_classes)), 2) for num_classes in (2, 3, 10, 100, 1000)]
    assert degrees == [90, 60, 48.19, 45.29, 45.03]


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_capped_supports_of_a_simplex_touch(num_classes):
    ones = torch.ones(num_classes, dtype=torch.float64)
    supports = capped(Supports(regular_simplex(num_classes, 12), 2 * ones, ones, ones / 4))
    assert supports.radii.tolist() == [largest_common_radius(num_classes)] * num_classes
    assert torch.equal(supports.angle_means, ones)
    overlaps = cap_overlaps(supports)
    apart = ~torch.eye(num_classes, dtype=torch.bool)
    torch.testing.assert_close(overlaps[apart], torch.zeros_like(overlaps[apart]), rtol=0, atol=1e-5)
    assert overlaps.diagonal().isnan().all()


def test_capped_supports_away_from_a_simplex_overlap():
    supports = capped(confidence_supports(features(spread=2.0), LABELS, 6))
    radius = largest_common_radius(6)
    assert supports.radii.max().item() == radius
    assert supports.radii[5] == 0
    centres, radii, *_ = lists(supports)
    overlaps = cap_overlaps(supports)
    for j, k in combinations(range(6), 2):
        expected = math.degrees(radii[j] + radii[k] - math.acos(dot(centres[j], centres[k])))
        assert [overlaps[j, k].item(), overlaps[k, j].item()] == pytest.approx([expected] * 2, abs=1e-9)
    assert (overlaps > 0).any()
    assert (overlaps < 0).any()


def test_overlapping_caps_share_points():
    """On a circle and in three dimensions: points drawn in one cap fall into the other just where they overlap."""
    supports = Supports(
        torch.tensor([[1.0, 0, 0], [math.cos(1.0), math.sin(1.0), 0]]).double(), *torch.zeros(3, 2).double()
    )
    for radii in ([0.6, 0.45], [0.6, 0.35]):
        supports = supports._replace(radii=torch.tensor(radii).double())
        generator = torch.Generator().manual_seed(0)
        drawn = uniform_in_cap(supports.centres[:1].expand(20_000, 3), supports.radii[:1].expand(20_000), generator)
        shared = bool(((drawn @ supports.centres[1]).arccos() < radii[1]).any())
        assert shared == bool(cap_overlaps(supports)[0, 1] > 0)


def test_nearest_centre_error_by_loops():
    supports, z = confidence_supports(features(), LABELS, 6), features(spread=1.5, seed=1)
    centres = supports.centres.tolist()
    present = LABELS != 4
    errors = {}
    for row, label in zip(z[present].tolist(), LABELS[present].tolist(), strict=True):
        cosines = [dot(row, centre) for centre in centres]
        errors.setdefault(label, []).append(cosines.index(max(cosines)) != label)
    by_class = [sum(wrong) / len(wrong) for wrong in errors.values()]
    assert len(by_class) == 5
    error = nearest_centre_error(z[present].float(), LABELS[present], supports)
    assert error == pytest.approx(sum(by_class) / 5, abs=1e-12)
    # Classes count the same, not samples.
    assert error != pytest.approx(sum(map(sum, errors.values())) / int(present.sum()), abs=1e-3)
    assert nearest_centre_error(supports.centres, torch.arange(6), supports) == 0
    assert nearest_centre_error(supports.centres, torch.arange(6).roll(1), supports) == 1


def test_from_features_to_synthetic_features():
    """Two classes, one of a single image, in 128 dimensions: drawn features lie in the support of their class."""
    z = torch.nn.functional.normalize(torch.randn(50, 128, generator=torch.Generator().manual_seed(0)) + 0.5, dim=1)
    labels = torch.zeros(50, dtype=torch.int64)
    labels[7] = 1
    supports = confidence_supports(z, labels, 2)
    supports = capped(rectified_supports(supports, torch.tensor([49, 1]), torch.tensor([0]), nearest=1, mix=0.5))
    tail = torch.ones(500, dtype=torch.int64)
    centres, radii, means, stds = (part[tail] for part in supports)
    generator = torch.Generator().manual_seed(1)
    for drawn in (
        uniform_in_cap(centres, radii, generator),
        truncated_normal_in_cap(centres, radii, means, stds, generator),
    ):
        angles = (drawn @ supports.centres[1]).arccos()
        assert angles.max() <= supports.radii[1] + 1e-12
        assert angles.std() > 1e-3


Z = features()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2 * Z, LABELS, 6), "z must have rows of unit length, but row 0 has length 2"),
        ((Z, LABELS, 7), "every class needs a sample, but class 6 has none"),
        ((Z, LABELS, 5), r"labels must lie in 0 … 4"),
        ((Z, LABELS[1:], 6), "labels must hold one class for each of the 85 rows, got 84"),
        ((torch.cat([Z[:1], -Z[:1], Z[:1]]), torch.tensor([1, 1, 0]), 2), "mean of class 1 is zero"),
    ],
)
def test_bad_features(arguments, message):
    with pytest.raises(ValueError, match=message):
        confidence_supports(*arguments)


@pytest.mark.parametrize("quantile", [-0.1, 1.1, math.nan])
def test_bad_quantile(quantile):
    with pytest.raises(ValueError, match=r"quantile must lie in \[0, 1\]"):
        confidence_supports(Z, LABELS, 6, quantile=quantile)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"heads": torch.tensor([0, 0])},
            r"heads must hold distinct class indices in 0 … 3, at least one; got \[0, 0\]",
        ),
        ({"heads": torch.tensor([4])}, "heads must hold distinct class indices in 0 … 3"),
        ({"heads": torch.tensor([], dtype=torch.int64)}, "at least one; got"),
        ({"heads": torch.tensor([0.5])}, "heads must be a vector of integers"),
        ({"class_counts": torch.tensor([3, 2, 1])}, "class_counts must hold a positive number for each of 4 classes"),
        ({"class_counts": torch.tensor([3, 2, 1, 0])}, "class_counts must hold a positive number"),
        ({"nearest": 3}, r"nearest must lie in 1 … 2, the number of head classes; got 3"),
        ({"nearest": 0}, r"nearest must lie in 1 … 2"),
        ({"mix": -0.1}, r"mix must lie in \[0, 1\], got -0.1"),
        ({"mix": 1.1}, r"mix must lie in \[0, 1\], got 1.1"),
        ({"weights": "equal"}, "weights must be one of 'corrected', 'printed'; got 'equal'"),
    ],
)
def test_bad_rectification(changes, message):
    arguments = {
        "class_counts": torch.tensor([300, 100, 1, 2]),
        "heads": torch.tensor([0, 1]),
        "nearest": 2,
        "mix": 0.5,
    } | changes
    with pytest.raises(ValueError, match=message):
        rectified_supports(two_heads_and_two_tails(), **arguments)


def test_bad_comparison():
    supports = confidence_supports(Z, LABELS, 6)
    with pytest.raises(ValueError, match="z must have rows of length 9 like the centres, got 8"):
        nearest_centre_error(torch.eye(8), torch.arange(6)[[0] * 8], supports)
    with pytest.raises(ValueError, match=r"labels must lie in 0 … 5, got 6"):
        nearest_centre_error(Z[:1], torch.tensor([6]), supports)
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        largest_common_radius(1)
