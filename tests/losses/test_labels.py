import pytest
import torch

from ltnb.losses.labels import check_labels, class_numbers, class_totals, has_seen_class, positive_classes

SOFT = torch.tensor([[0.25, 0.75, 0], [0, 0, 1]])


def test_the_classes_of_a_label():
    assert positive_classes(torch.tensor([2, 0], dtype=torch.uint8), 3).tolist() == [
        [False, False, True],
        [True, False, False],
    ]
    assert positive_classes(SOFT, 3).tolist() == [[True, True, False], [False, False, True]]


@pytest.mark.parametrize(
    ("seen", "hard", "soft"),
    [
        (None, [True, True], [True, True]),
        ([True, True, False], [False, True], [True, False]),
        ([False, False, False], [False, False], [False, False]),
    ],
)
def test_whether_a_class_of_the_label_is_seen(seen, hard, soft):
    seen = None if seen is None else torch.tensor(seen)
    assert has_seen_class(torch.tensor([2, 1]), seen).tolist() == hard
    assert has_seen_class(SOFT, seen).tolist() == soft


def test_shares_stored_in_bfloat16_still_sum_to_one():
    lam = torch.linspace(0, 1, 1001, dtype=torch.float64)
    check_labels(torch.stack([lam, 1 - lam], dim=1).bfloat16(), 1001, 2)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.5, 0.4, 0.0], r"y must have non-negative rows that sum to 1, got \[0.5, 0.4.*\] at row 1"),
        ([1.5, -0.5, 0.0], r"got \[1.5, -0.5, 0.0\] at row 1"),
        ([1.0, torch.nan, 0.0], r"got \[1.0, nan, 0.0\] at row 1"),
    ],
)
def test_rows_that_are_no_distribution_are_refused(row, message):
    with pytest.raises(ValueError, match=message):
        check_labels(torch.tensor([[1.0, 0.0, 0.0], row]), 2, 3)


@pytest.mark.parametrize("y", [[], [5], [3, 3, 3], [7, -2, 7, 30, -2], list(range(9, 0, -1))])
def test_equal_labels_have_equal_numbers_below_the_number_of_samples(y):
    numbers = class_numbers(torch.tensor(y, dtype=torch.int64))
    assert numbers.tolist() == [sorted(set(y)).index(label) for label in y]
    assert class_numbers(torch.tensor(y, dtype=torch.int32)).equal(numbers)


def test_totals_of_classes_by_loops_with_their_gradient():
    rows = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([2, 0, 2, 2, 3])
    sums, sizes = class_totals(rows, classes, 5)
    assert sizes.tolist() == [1, 0, 3, 1, 0]
    for k in range(5):
        expected = sum((rows[i] for i in range(5) if classes[i] == k), torch.zeros(3, dtype=torch.float64))
        torch.testing.assert_close(sums[k], expected)
    assert torch.autograd.gradcheck(lambda rows: class_totals(rows, classes, 5)[0], rows)
