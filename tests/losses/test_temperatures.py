import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ltnb.losses import class_temperatures


def test_equals_the_equation():
    counts = [500, 200, 50, 7, 5]
    expected = [(1 - 0.5 * (1 + math.cos(math.pi * (n - 5) / (500 - 5)))) * (0.9 - 0.1) + 0.1 for n in counts]
    temperatures = class_temperatures(counts, lowest=0.1, highest=0.9)
    torch.testing.assert_close(temperatures, torch.tensor(expected, dtype=torch.float64))


def test_the_tail_has_the_lowest_the_head_the_highest_and_the_middle_the_mean():
    temperatures = class_temperatures(torch.tensor([1, 51, 101]), lowest=0.1, highest=1.0)
    assert temperatures.tolist() == pytest.approx([0.1, 0.55, 1.0])


def test_more_images_never_mean_a_lower_temperature():
    temperatures = class_temperatures(torch.arange(1, 501), lowest=0.07, highest=0.5)
    assert (temperatures.diff() > 0).all()


@pytest.mark.parametrize("counts", [[5], [5, 5, 5]])
def test_classes_of_one_size_have_the_lowest(counts):
    assert class_temperatures(counts, lowest=0.1, highest=1.0).tolist() == [0.1] * len(counts)


def test_equal_bounds_give_one_temperature():
    assert class_temperatures([100, 10, 1], lowest=0.2, highest=0.2).tolist() == [0.2] * 3


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        assert class_temperatures(torch.empty(4, device="cuda"), lowest=0.1, highest=1.0).shape == (4,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_counts": [3, -1]}, r"class_counts must be positive, got \[3, -1\]"),
        ({"class_counts": 3}, r"class_counts must hold one count for each class, got shape \(\)"),
        ({"lowest": 0.0}, "lowest must be a positive finite number, got 0.0"),
        ({"highest": math.inf}, "highest must be a positive finite number, got inf"),
        ({"highest": 0.05}, "highest must be at least lowest=0.1, got 0.05"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        class_temperatures(**({"class_counts": [3, 1], "lowest": 0.1, "highest": 1.0} | changes))
