import math

import numpy as np
import pytest
import torch
from scipy import stats

import ltnb.data
from ltnb.data import (
    asymmetric_noise,
    long_tail_subset,
    noise,
    realised_transition_matrix,
    symmetric_noise,
    transition_matrix,
)

CLASSES = 5
MAPPING = {3: 2, 2: 3, 0: 4}  # a pair both ways, a class that goes one way, two that stay
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def labels(per_class: int, num_classes: int = CLASSES) -> torch.Tensor:
    return torch.arange(num_classes).repeat(per_class)


def both(y: torch.Tensor, rate: float | list[float], seed: int = 0) -> dict[str, torch.Tensor]:
    return {
        "symmetric": symmetric_noise(y, rate, CLASSES, seed=seed),
        "asymmetric": asymmetric_noise(y, rate, MAPPING, seed=seed, num_classes=CLASSES),
    }


def test_the_functions_are_found_in_the_package() -> None:
    assert ltnb.data.symmetric_noise is noise.symmetric_noise
    assert ltnb.data.asymmetric_noise is noise.asymmetric_noise


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.8])
def test_symmetric_flips_follow_their_law(rate: float) -> None:
    y = labels(4000)
    given = symmetric_noise(y, rate, CLASSES, seed=1)
    for k in range(CLASSES):
        of_class = given[y == k].bincount(minlength=CLASSES)
        expected = 4000 * transition_matrix(rate, CLASSES)[k]
        assert stats.chisquare(of_class.numpy(), expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_asymmetric_flips_follow_their_law(rate: float) -> None:
    y = labels(4000)
    given = asymmetric_noise(y, rate, MAPPING, seed=1)
    for k in range(CLASSES):
        of_class = given[y == k].bincount(minlength=CLASSES)
        flipped = int(of_class[MAPPING[k]]) if k in MAPPING else 0
        assert of_class.sum() == of_class[k] + flipped  # nowhere but to its own and to where it is mapped
        assert stats.binomtest(flipped, 4000, rate).pvalue > 1e-3 if k in MAPPING else flipped == 0


def test_every_seed_is_another_draw_of_the_same_law() -> None:
    # The number of flips of ten samples over many seeds is binomial: draws of different seeds do not hang together.
    y = torch.zeros(10, dtype=torch.int64)
    flips = [int((symmetric_noise(y, 0.3, CLASSES, seed=seed) != y).sum()) for seed in range(500)]
    found = np.bincount(flips, minlength=11)
    expected = 500 * stats.binom.pmf(np.arange(11), 10, 0.3)
    few = expected < 5
    found, expected = (np.append(counts[~few], counts[few].sum()) for counts in (found, expected))
    assert stats.chisquare(found, expected).pvalue > 1e-3


def test_each_class_has_its_own_rate() -> None:
    y, rates = labels(4000), [0.0, 0.1, 0.3, 0.6, 0.9]
    given = symmetric_noise(y, rates, CLASSES, seed=2)
    for k, rate in enumerate(rates):
        flipped = int((given[y == k] != k).sum())
        assert flipped == 0 if rate == 0 else stats.binomtest(flipped, 4000, rate).pvalue > 1e-3
    given = asymmetric_noise(y, rates, {0: 1, 4: 3}, seed=2)
    assert torch.equal(given[y < 4], y[y < 4])  # class 0 has the rate 0, the others are not mapped
    assert stats.binomtest(int((given[y == 4] == 3).sum()), 4000, 0.9).pvalue > 1e-3


def test_a_class_of_one_sample_flips_as_often_as_any() -> None:
    y = torch.tensor([0] * 9 + [4])
    flipped = sum(int(symmetric_noise(y, 0.25, CLASSES, seed=seed)[-1]) != 4 for seed in range(500))
    assert stats.binomtest(flipped, 500, 0.25).pvalue > 1e-3


def test_a_pair_that_is_mistaken_for_each_other_does_not_flip_back() -> None:
    cat, dog = 3, 5
    y = torch.tensor([cat] * 5000 + [dog] * 5000)
    given = asymmetric_noise(y, 0.4, {cat: dog, dog: cat}, seed=0)
    # One class after the other would leave 3,000 + 0.4 · 2,000 cats and take 0.4 · 7,000 dogs.
    for clean, other in ((cat, dog), (dog, cat)):
        assert stats.binomtest(int((given[y == clean] == other).sum()), 5000, 0.4).pvalue > 1e-3


def test_what_is_flipped_is_flipped_to_the_same_class_at_every_higher_rate() -> None:
    y = labels(400)
    for law in ("symmetric", "asymmetric"):
        lower, higher = (both(y, rate)[law] for rate in (0.2, 0.4))
        flipped = lower != y
        assert torch.equal(higher[flipped], lower[flipped])
        assert (higher != y).sum() > 1.5 * flipped.sum()


def test_both_laws_flip_the_same_samples() -> None:
    y = labels(400)
    given = both(y, 0.3)
    mapped = torch.isin(y, torch.tensor(list(MAPPING)))
    assert torch.equal((given["symmetric"] != y) & mapped, given["asymmetric"] != y)


def test_only_the_seed_decides() -> None:
    y = labels(40)
    torch.manual_seed(1)
    first = both(y, 0.4)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = both(y, 0.4)
    assert torch.equal(torch.get_rng_state(), state)
    for law, given in first.items():
        assert torch.equal(given, second[law])
        assert not torch.equal(given, both(y, 0.4, seed=1)[law])


def test_the_draws_have_nothing_to_do_with_those_of_the_long_tail() -> None:
    # Both start from the data set's seed; were they one stream, what stays would tell what is flipped.
    y = torch.zeros(4000, dtype=torch.int64)
    stays = torch.zeros(len(y), dtype=torch.bool).index_fill(0, long_tail_subset(y, [2000], seed=0), True)
    flipped = symmetric_noise(y, 0.5, 2, seed=0) != y
    table = [[int((a & b).sum()) for b in (flipped, ~flipped)] for a in (stays, ~stays)]
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(60,), (4, 15), (0,), ()])
def test_shape_and_type_stay_and_nothing_is_changed_in_place(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    y = (torch.arange(math.prod(shape)) % CLASSES).reshape(shape).to(dtype)
    before = y.clone()
    for law, given in both(y, 0.4).items():
        assert given.dtype == dtype
        assert given.shape == shape
        assert torch.equal(given.long(), both(before.long(), 0.4)[law])
        assert y.numel() == 0 or given.data_ptr() != y.data_ptr()
    assert torch.equal(y, before)


def test_uint8_holds_256_classes() -> None:
    y = torch.full((1000,), 255, dtype=torch.uint8)
    given = symmetric_noise(y, 0.5, 256, seed=0)
    assert torch.equal(given.long(), symmetric_noise(y.long(), 0.5, 256, seed=0))


def test_rate_zero_changes_nothing() -> None:
    y = labels(20)
    assert all(torch.equal(given, y) for given in both(y, 0).values())


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (1, "rate = 1: expected a probability of at least 0 and below 1"),
        (1.5, "rate = 1.5: expected a probability"),
        (-0.1, "rate = -0.1: expected a probability"),
        (float("nan"), "rate = nan: expected a probability"),
        (float("inf"), "rate = inf: expected a probability"),
        ([0.1, 0.2, 0.3, 0.4, 1.0], "rate = 1: expected a probability"),
        ([0.1] * 4, "rate has 4 numbers: expected one, or one for each of 5 classes"),
        ([], "rate has 0 numbers: expected one, or one for each of 5 classes"),
    ],
)
def test_rates_that_cannot_be_are_refused(rate: float | list[float], told: str) -> None:
    y = labels(3)
    for call in (
        lambda: symmetric_noise(y, rate, CLASSES, seed=0),
        lambda: asymmetric_noise(y, rate, MAPPING, seed=0, num_classes=CLASSES),
        lambda: transition_matrix(rate, CLASSES),
        lambda: transition_matrix(rate, CLASSES, MAPPING),
    ):
        with pytest.raises(ValueError, match=told):
            call()


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({0: 5}, r"mapping 0 → 5: class 5: expected 0 … 4"),
        ({5: 0}, r"mapping 5 → 0: class 5: expected 0 … 4"),
        ({0: 1, 2: -1}, r"mapping 2 → -1: class -1: expected 0 … 4"),
        ({1: 1}, r"mapping 1 → 1: expected another class"),
        ({}, r"mapping is empty: expected at least one class"),
    ],
)
def test_mappings_that_cannot_be_are_refused(mapping: dict[int, int], told: str) -> None:
    for call in (
        lambda: asymmetric_noise(labels(3), 0.2, mapping, seed=0),  # as many classes as the labels show
        lambda: asymmetric_noise(labels(3)[:2], 0.2, mapping, seed=0, num_classes=CLASSES),
        lambda: asymmetric_noise(labels(3)[:2], [0.2] * CLASSES, mapping, seed=0),
        lambda: transition_matrix(0.2, CLASSES, mapping),
    ):
        with pytest.raises(ValueError, match=told):
            call()


def test_labels_that_cannot_be_are_refused() -> None:
    for wrong in (labels(2, CLASSES + 1), labels(2) - 1):
        with pytest.raises(ValueError, match=r"labels = -?\d … \d: expected 0 … 4"):
            symmetric_noise(wrong, 0.2, CLASSES, seed=0)
        with pytest.raises(ValueError, match=r"labels = -?\d … \d: expected 0 … 4"):
            asymmetric_noise(wrong, 0.2, MAPPING, seed=0, num_classes=CLASSES)
    for wrong in (labels(2).float(), labels(2) > 2):
        with pytest.raises(TypeError, match="expected integers"):
            symmetric_noise(wrong, 0.2, CLASSES, seed=0)
    with pytest.raises(ValueError, match="y is empty: expected num_classes to be given"):
        asymmetric_noise(labels(0), 0.2, MAPPING, seed=0)
    with pytest.raises(ValueError, match="num_classes = 1: expected at least 2"):
        symmetric_noise(torch.zeros(3, dtype=torch.int64), 0.2, 1, seed=0)


def test_the_wanted_matrix_by_hand() -> None:
    symmetric = transition_matrix([0.0, 0.3, 0.6], 3)
    assert symmetric.dtype == torch.float64
    assert symmetric.numpy() == pytest.approx(np.array([[1, 0, 0], [0.15, 0.7, 0.15], [0.3, 0.3, 0.4]]))
    asymmetric = transition_matrix([0.2, 0.3, 0.6], 3, {0: 2, 1: 0})
    assert asymmetric.numpy() == pytest.approx(np.array([[0.8, 0, 0.2], [0.3, 0.7, 0], [0, 0, 1]]))
    for mapping in (None, {0: 7, 7: 0, 3: 9}):
        assert transition_matrix(0.37, 10, mapping).sum(dim=1).tolist() == pytest.approx([1] * 10)


def test_the_realised_matrix_is_a_count() -> None:
    clean = labels(30)[:-1]
    given = symmetric_noise(clean, 0.4, CLASSES, seed=3)
    found = realised_transition_matrix(clean, given, CLASSES)
    for i in range(CLASSES):
        of_class = [j for k, j in zip(clean.tolist(), given.tolist(), strict=True) if k == i]
        assert found[i].tolist() == [of_class.count(j) / len(of_class) for j in range(CLASSES)]


def test_of_a_class_without_samples_nothing_is_known() -> None:
    found = realised_transition_matrix(torch.tensor([0, 0, 2]), torch.tensor([0, 1, 2]), 4)
    assert found.isnan().any(dim=1).tolist() == [False, True, False, True]
    assert found[1].isnan().all()
    with pytest.raises(ValueError, match="expected a label for each"):
        realised_transition_matrix(torch.tensor([0, 1]), torch.tensor([0]), 2)
