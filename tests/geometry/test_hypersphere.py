import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltnb.geometry import alignment, compactness, hypersphere, regular_simplex, uniformity


def unit(num_rows, dim, dtype=torch.float64, seed=0):
    z = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(z, dim=1).to(dtype)


def squared_distances(z):
    return {(i, j): float((a - b) @ (a - b)) for (i, a), (j, b) in itertools.combinations(enumerate(z.double()), 2)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_by_loops(dtype):
    z, labels = unit(12, 3, dtype), [4, 0, 0, 9, 4, 4, 9, 0, -1, 4, 4, 4]
    distances = squared_distances(z)
    same = [value for (i, j), value in distances.items() if labels[i] == labels[j]]
    assert alignment(z, torch.tensor(labels)) == pytest.approx(sum(same) / len(same), abs=1e-12)
    for t in (2.0, 0.5, 40.0):
        potential = sum(math.exp(-t * value) for value in distances.values()) / len(distances)
        assert uniformity(z, t=t) == pytest.approx(math.log(potential), abs=1e-12)


@given(num_rows=st.integers(2, 40), entries=st.integers(1, 200))
@settings(deadline=None, max_examples=30)
def test_uniformity_does_not_depend_on_the_blocks(num_rows, entries):
    z = unit(num_rows, 4, seed=num_rows)
    whole = uniformity(z)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hypersphere, "BLOCK_ENTRIES", entries)
        assert uniformity(z) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_one_sample_at_each_vertex_of_a_simplex(num_classes):
    # All pairs lie 2 + 2/(K−1) apart.
    apart = 2 + 2 / (num_classes - 1)
    assert uniformity(regular_simplex(num_classes, num_classes)) == pytest.approx(-2 * apart)


def test_collapsed_on_a_simplex():
    labels = torch.arange(4).repeat_interleave(3)
    z = regular_simplex(4, 3)[labels]
    assert alignment(z, labels) == pytest.approx(0, abs=1e-14)
    # Of the 66 pairs, 12 lie within a class.
    expected = math.log((12 + 54 * math.exp(-2 * 8 / 3)) / 66)
    assert uniformity(z) == pytest.approx(expected)


def test_orthogonal_antipodal_and_coinciding_points():
    labels = torch.zeros(3, dtype=torch.int64)
    assert alignment(torch.eye(3), labels) == pytest.approx(2)
    assert uniformity(torch.eye(3)) == pytest.approx(-4)
    poles = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert alignment(poles, labels[:2]) == pytest.approx(4)
    assert uniformity(poles, t=3.0) == pytest.approx(-12)
    assert alignment(poles[:1].repeat(3, 1), labels) == 0
    assert uniformity(poles[:1].repeat(3, 1)) == pytest.approx(0, abs=1e-15)


def test_alignment_of_coinciding_points_is_not_negative():
    for seed in range(20):
        z = unit(1, 7, seed=seed).repeat(seed + 2, 1)
        assert 0 <= alignment(z, torch.zeros(len(z), dtype=torch.int64)) < 1e-14


def test_sharp_potentials_do_not_underflow():
    assert uniformity(torch.eye(3), t=1e4) == pytest.approx(-2e4)


def test_every_pair_counts_the_same_in_alignment():
    # Class 0: three points at one place, 3 pairs at distance 0. Class 1: two poles, 1 pair at distance 4.
    z = torch.tensor([[0.0, 1.0]] * 3 + [[1.0, 0.0], [-1.0, 0.0]])
    assert alignment(z, torch.tensor([0, 0, 0, 1, 1])) == pytest.approx(4 / (3 + 1))


def test_alignment_of_one_class_is_its_compactness():
    z, labels = unit(10, 3), torch.tensor([0] * 9 + [1])
    compact = float(compactness(z, labels, 2, centring="none")[0])
    assert alignment(z, labels) == pytest.approx(4 * (1 - compact / 100))


def test_without_a_pair_both_are_undefined():
    assert math.isnan(alignment(unit(3, 2), torch.arange(3)))
    assert math.isnan(uniformity(unit(1, 2)))


def test_do_not_depend_on_rotation():
    z, labels = unit(20, 4), torch.arange(20) % 3
    turned = z @ torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(3)).double())[0]
    assert alignment(turned, labels) == pytest.approx(alignment(z, labels))
    assert uniformity(turned) == pytest.approx(uniformity(z))


def test_rows_that_are_not_unit_are_refused():
    z = unit(5, 3)
    z[3] *= 1.5
    with pytest.raises(ValueError, match=r"unit length, but row 3 has length 1\.5"):
        alignment(z, torch.zeros(5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"unit length, but row 3 has length 1\.5"):
        uniformity(z)
    z[1, 0] = math.nan
    with pytest.raises(ValueError, match="z must be finite, but row 1 is not"):
        uniformity(z)


@pytest.mark.parametrize("t", [0.0, -2.0, math.nan])
def test_potential_must_fall_with_distance(t):
    with pytest.raises(ValueError, match=f"t must be positive, got {t}"):
        uniformity(unit(3, 2), t=t)


def test_labels_must_fit():
    with pytest.raises(ValueError, match="one class for each of the 3 rows, got 2"):
        alignment(unit(3, 2), torch.tensor([0, 0]))
