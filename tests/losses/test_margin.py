import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy

from ltnb.geometry import regular_simplex
from ltnb.losses import ldam_margins, margin_cross_entropy
from ltnb.theory.anchored_prototypes import margin_loss_bound

MARGINS = [0.1, 0.3, 0.5, -0.2]


def batch(labels: tuple[int, ...] = (0, 0, 1, 2, 1, 0)) -> tuple[Tensor, Tensor]:
    """Cosines to four classes, class 3 without a sample."""
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.rand(len(labels), 4, dtype=torch.float64, generator=generator) - 1, torch.tensor(labels)


def naive(cosines: Tensor, y: Tensor, margins: list[float], scale: float) -> Tensor:
    losses = []
    for row, label in zip(cosines.double().tolist(), y.tolist(), strict=True):
        own = math.exp(scale * (row[label] - margins[label]))
        others = sum(math.exp(scale * c) for j, c in enumerate(row) if j != label)
        losses.append(-math.log(own / (own + others)))
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.5, 30.0])
@pytest.mark.parametrize("margins", [MARGINS, 0.35, 0])
def test_equals_the_equation(scale, margins):
    cosines, y = batch()
    expected = naive(cosines, y, margins if isinstance(margins, list) else [margins] * 4, scale)
    given = torch.tensor(margins, dtype=torch.float64) if isinstance(margins, list) else margins
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = margin_cross_entropy(cosines, y, given, scale=scale, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-12)


def test_without_a_margin_it_is_plain_cross_entropy():
    cosines, y = batch()
    torch.testing.assert_close(margin_cross_entropy(cosines, y, 0.0, scale=7.0), cross_entropy(7 * cosines, y))


def test_gradient_agrees_with_finite_differences():
    cosines, y = batch()
    margins = torch.tensor(MARGINS, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda c: margin_cross_entropy(c, y, margins, scale=3.0, reduction="none"), (cosines.requires_grad_(),)
    )


@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("margin", [0.0, 0.4])
def test_regular_simplex_gives_the_minimum_of_theorem_3_2(num_classes, margin):
    simplex = regular_simplex(num_classes, num_classes)
    losses = margin_cross_entropy(simplex @ simplex.T, torch.arange(num_classes), margin, scale=5.0, reduction="none")
    minimum = math.log1p((num_classes - 1) * math.exp(5 * (margin - num_classes / (num_classes - 1))))
    torch.testing.assert_close(losses, torch.full_like(losses, minimum), rtol=1e-9, atol=1e-12)
    assert margin_loss_bound(num_classes, 5.0, margin=margin) == pytest.approx(minimum, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(dtype):
    cosines, y = batch()
    cosines = cosines.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = margin_cross_entropy(
            cosines, y.to(torch.uint8), torch.tensor(MARGINS).double(), scale=30.0, reduction="none"
        )
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, naive(cosines.detach(), y, MARGINS, 30.0).float(), rtol=1e-5, atol=1e-5)
    losses.sum().backward()
    assert cosines.grad.dtype == dtype


@pytest.mark.parametrize("labels", [(3,), (1, 1, 1), (0, 1, 2, 3)], ids=["one", "one class", "one of each"])
def test_small_batches(labels):
    cosines, y = batch(labels)
    loss = margin_cross_entropy(cosines, y, torch.tensor(MARGINS), scale=2.0)
    torch.testing.assert_close(loss, naive(cosines, y, MARGINS, 2.0).mean(), rtol=1e-6, atol=1e-6)


def test_one_class_in_all_costs_nothing():
    assert margin_cross_entropy(torch.tensor([[0.3]]), torch.tensor([0]), 0.5, scale=30.0) == 0


def test_a_non_finite_cosine_shows_in_the_loss():
    cosines, y = batch()
    cosines[2, 3] = math.nan
    assert margin_cross_entropy(cosines, y, 0.1, scale=1.0).isnan()


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        cosines, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        for margins in (0.5, torch.empty(4, device="cuda")):
            assert margin_cross_entropy(cosines, y, margins, scale=30.0).shape == ()
        assert ldam_margins(torch.empty(4, device="cuda")).shape == (4,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cosines": torch.zeros(6)}, r"cosines must be a non-empty floating-point matrix, got shape \(6,\)"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, 4])}, r"y must lie in \[0, 4\), got 4"),
        ({"y": torch.full((6, 4), 0.25)}, r"y must hold 6 integer labels, got shape \(6, 4\) of torch.float32"),
        ({"margins": torch.zeros(3)}, r"margins must be a number or hold one .* each of 4 classes, got shape \(3,\)"),
        ({"margins": torch.zeros(4, dtype=torch.long)}, "margins must be .* of torch.int64"),
        ({"margins": "ldam"}, "margins must be a number or .* got 'ldam'"),
        ({"margins": math.inf}, "margins must be finite, got inf"),
        ({"margins": torch.tensor([0.0, math.nan, 0.0, 0.0])}, r"margins must be finite, got \[0.0, nan, 0.0, 0.0\]"),
        ({"scale": 0.0}, "scale must be a positive finite number, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    cosines, y = batch()
    with pytest.raises(ValueError, match=message):
        margin_cross_entropy(**({"cosines": cosines, "y": y, "margins": 0.1, "scale": 1.0} | changes))


def test_ldam_margins_fall_with_the_fourth_root_of_the_count():
    margins = ldam_margins([10_000, 625, 16, 1])
    torch.testing.assert_close(margins, torch.tensor([0.05, 0.1, 0.25, 0.5], dtype=torch.float64))
    torch.testing.assert_close(ldam_margins(torch.tensor([160, 10]), largest=2), torch.tensor([1.0, 2.0]).double())
    assert ldam_margins([7, 7, 7], largest=0.3).tolist() == [0.3] * 3


@pytest.mark.parametrize(
    ("counts", "largest", "message"),
    [
        ([3, 0], 0.5, r"class_counts must be positive, got \[3, 0\]"),
        ([[3, 1]], 0.5, r"class_counts must hold one count for each class, got shape \(1, 2\)"),
        ([], 0.5, r"class_counts must hold one count for each class, got shape \(0,\)"),
        ([3, 1], 0.0, "largest must be a positive finite number, got 0.0"),
    ],
)
def test_bad_input_of_the_margins_is_named(counts, largest, message):
    with pytest.raises(ValueError, match=message):
        ldam_margins(counts, largest=largest)
