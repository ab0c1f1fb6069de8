from fractions import Fraction

import pytest
import torch

import ltnb.data
from ltnb.data import class_groups, long_tail, long_tail_counts, long_tail_subset


def test_the_package_offers_its_names_and_no_others():
    assert ltnb.data.class_groups is long_tail.class_groups
    with pytest.raises(AttributeError, match="short_tail"):
        _ = ltnb.data.short_tail


@pytest.mark.parametrize(
    ("num_classes", "largest", "imbalance", "total"),
    [
        (10, 5000, 10, 20431),
        (10, 5000, 50, 13996),
        (10, 5000, 100, 12406),
        (10, 5000, 200, 11203),
        (100, 500, 10, 19573),
        (100, 500, 50, 12608),
        (100, 500, 100, 10847),
        (100, 500, 200, 9502),
    ],
)
def test_cifar_totals(num_classes, largest, imbalance, total):
    counts = long_tail_counts(largest, imbalance, num_classes)
    assert sum(counts) == total
    assert counts[0] == largest
    assert counts[-1] == largest // imbalance


@pytest.mark.parametrize("num_classes", [2, 3, 5, 10, 100])
@pytest.mark.parametrize("imbalance", [1, 2, 2.5, 4, 10, 81, 100, 1000])
@pytest.mark.parametrize("largest", [1000, 1024, 2025, 8100])
def test_counts_are_the_exact_floor(largest, imbalance, num_classes):
    # n = ⌊n₀ ρ^(−k/(K−1))⌋ is the largest n with n^(K−1) ρ^k ≤ n₀^(K−1): whole numbers, no rounding.
    power = num_classes - 1
    factor = Fraction(imbalance)
    for k, n in enumerate(long_tail_counts(largest, imbalance, num_classes)):
        assert n**power * factor**k <= largest**power < (n + 1) ** power * factor**k


@pytest.mark.parametrize(
    ("num_classes", "largest", "imbalance", "counts"),
    [
        (2, 7, 2, [7, 3]),
        (4, 500, 100, [500, 500, 5, 5]),
        (5, 500, 10, [500, 500, 50, 50, 50]),  # of an odd number the larger part is small
        (3, 6, 1, [6, 6, 6]),
        (2, 49, 49, [49, 1]),
        (2, 10, 2.5, [10, 4]),
    ],
)
def test_a_step(num_classes, largest, imbalance, counts):
    assert long_tail_counts(largest, imbalance, num_classes, kind="step") == counts


@pytest.mark.parametrize("imbalance", range(1, 200))
def test_a_whole_number_of_a_step_does_not_drop_by_one(imbalance):
    assert long_tail_counts(31 * imbalance, imbalance, 2, kind="step") == [31 * imbalance, 31]


def test_a_whole_number_does_not_drop_by_one():
    # In floating point 1280 · 64^(−5/6) falls short of 40.
    assert int(1280 * 64 ** (-5 / 6)) == 39
    assert long_tail_counts(1280, 64, 7) == [1280, 640, 320, 160, 80, 40, 20]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((0, 1, 10), "largest = 0"),
        ((100, 0.5, 10), "imbalance = 0.5"),
        ((100, float("nan"), 10), "imbalance = nan"),
        ((100, float("inf"), 10), "imbalance = inf"),
        ((100, 10, 1), "num_classes = 1"),
        ((100, 10, 10, "steps"), "kind = 'steps': expected 'exp' or 'step'"),
        ((124, 200, 10, "step"), "class 5 of 10 without an image"),
        ((124, 200, 10), "class 9 of 10 without an image"),
    ],
)
def test_impossible_counts(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        long_tail_counts(*arguments)


@pytest.fixture
def labels():
    return torch.randint(5, (400,), generator=torch.Generator().manual_seed(3))


def test_a_subset_has_the_counts_it_was_asked_for(labels):
    counts = [40, 20, 10, 5, 0]
    index = long_tail_subset(labels, counts, seed=1)
    assert index.dtype == torch.int64
    assert labels[index].bincount(minlength=5).tolist() == counts
    assert (index.diff() > 0).all()


def test_the_seed_alone_decides_a_subset(labels):
    counts = [40, 20, 10, 5, 2]
    torch.manual_seed(0)
    first = long_tail_subset(labels, counts, seed=1)
    torch.manual_seed(1)
    assert torch.equal(first, long_tail_subset(labels, counts, seed=1))
    assert not torch.equal(first, long_tail_subset(labels, counts, seed=2))


def test_subsets_of_one_seed_are_nested(labels):
    small, large = (long_tail_subset(labels, long_tail_counts(50, ratio, 5), seed=0) for ratio in (50, 5))
    assert len(small) < len(large)
    assert torch.isin(small, large).all()


def test_the_first_ones_are_those_of_the_order(labels):
    counts = [40, 20, 10, 5, 0]
    index = long_tail_subset(labels, counts, seed=None)
    by_hand = [place for k, n in enumerate(counts) for place in (labels == k).nonzero()[:n, 0].tolist()]
    assert index.tolist() == sorted(by_hand)
    assert not torch.equal(index, long_tail_subset(labels, counts, seed=0))


def test_every_sample_is_chosen_as_often():
    labels = torch.zeros(10, dtype=torch.int64)
    chosen = torch.cat([long_tail_subset(labels, [3], seed=seed) for seed in range(1000)])
    # 300 ± 14.5 (binomial); four standard errors.
    assert (chosen.bincount(minlength=10) - 300).abs().max() < 58


def test_a_subset_larger_than_a_class(labels):
    available = int((labels == 3).sum())
    with pytest.raises(ValueError, match=rf"class_counts\[3\] = 300: class 3 has {available} samples"):
        long_tail_subset(labels, [1, 1, 1, 300, 1], seed=0)


def test_labels_without_a_count(labels):
    with pytest.raises(ValueError, match="labels = 0 … 4: expected 0 … 3"):
        long_tail_subset(labels, [1, 1, 1, 1], seed=0)


def test_groups_at_their_bounds():
    groups = class_groups(torch.tensor([101, 100, 20, 19, 0]))
    assert {name: classes.tolist() for name, classes in groups.items()} == {
        "many": [0],
        "medium": [1, 2],
        "few": [3, 4],
    }
    assert all(classes.dtype == torch.int64 for classes in groups.values())


def test_an_empty_group_is_absent():
    assert list(class_groups([500, 200])) == ["many"]
    assert list(class_groups([500, 3])) == ["many", "few"]


def test_groups_of_cifar100():
    groups = class_groups(long_tail_counts(500, 100, 100))
    assert {name: len(classes) for name, classes in groups.items()} == {"many": 35, "medium": 35, "few": 30}
