"""What all losses of softmax probabilities share: their formulas by loops, types, gradients, extremes, bad input."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ltnb import losses

A = -math.log(1e-4)
K = 4

SETTINGS: dict[str, dict[str, Any]] = {
    "focal": {"gamma": 0.5},
    "gce": {"q": 0.7},
    "sce": {"alpha": 0.1, "beta": 2.0},
    "mae": {},
    "rce": {},
    "nce": {},
    "nfl": {"gamma": 0.5},
    "nsl": {},
}


def loss_of(name: str, **changes: Any) -> Callable[..., Tensor]:
    settings = {**SETTINGS[name], **changes}
    return lambda logits, y, **others: getattr(losses, name)(logits, y, **settings, **others)


def batch(labels: tuple[int, ...] = (0, 0, 1, 2, 1, 0), spread: float = 2.0) -> tuple[Tensor, Tensor]:
    """Scores of four classes, class 3 without a sample."""
    generator = torch.Generator().manual_seed(0)
    return spread * torch.randn(len(labels), K, dtype=torch.float64, generator=generator), torch.tensor(labels)


def naive(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """Each loss as its paper writes it, in loops."""
    found = []
    for scores, label in zip(logits.double().tolist(), y.tolist(), strict=True):
        total = sum(math.exp(f) for f in scores)
        p = [math.exp(f) / total for f in scores]
        match name:
            case "focal":
                value = -((1 - p[label]) ** 0.5) * math.log(p[label])
            case "gce":
                value = (1 - p[label] ** 0.7) / 0.7
            case "sce":
                reverse = -sum(share * math.log(1.0 if j == label else 1e-4) for j, share in enumerate(p))
                value = -0.1 * math.log(p[label]) + 2.0 * reverse
            case "mae":
                value = sum(abs(share - (j == label)) for j, share in enumerate(p)) / 2
            case "rce":
                value = -sum(share * math.log(1.0 if j == label else 1e-4) for j, share in enumerate(p))
            case "nce":
                value = math.log(p[label]) / sum(math.log(share) for share in p)
            case "nfl":
                terms = [-((1 - share) ** 0.5) * math.log(share) for share in p]
                value = terms[label] / sum(terms)
            case _:
                value = -scores[label]
        found.append(value)
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("name", SETTINGS)
def test_equals_its_formula(name: str) -> None:
    logits, y = batch()
    expected = naive(name, logits, y)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        torch.testing.assert_close(loss_of(name)(logits, y, reduction=reduction), value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss_of(name)(logits, y), expected.mean(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("spread", [0.5, 6.0])
def test_gradient_agrees_with_finite_differences(name: str, spread: float) -> None:
    logits, y = batch(spread=spread)
    assert torch.autograd.gradcheck(lambda f: loss_of(name)(f, y, reduction="none"), (logits.requires_grad_(),))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    logits, y = batch()
    logits = logits.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss_of(name)(logits, y.to(torch.uint8), reduction="none")
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, naive(name, logits.detach(), y).float(), rtol=1e-5, atol=1e-5)
    found.sum().backward()
    assert logits.grad is not None
    assert logits.grad.dtype == dtype
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("labels", [(3,), (1, 1, 1), (0, 1, 2, 3)], ids=["one", "one class", "one of each"])
def test_small_batches(name: str, labels: tuple[int, ...]) -> None:
    logits, y = batch(labels)
    torch.testing.assert_close(loss_of(name)(logits, y), naive(name, logits, y).mean(), rtol=1e-9, atol=1e-12)


# Where the network is as sure as can be, by a score s and three of 0, of another class than the label: a·s + b.
WRONG: dict[str, tuple[float, float]] = {
    "focal": (1, 0),
    "gce": (0, 1 / 0.7),
    "sce": (0.1, 2 * A),
    "mae": (0, 1),
    "rce": (0, A),
    "nce": (0, 1 / 3),  # of three classes that are equally unlikely
    "nfl": (0, 1 / 3),
    "nsl": (0, 0),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("scale", [95.0, 200.0, 1e4])  # float32 has no number below exp(−103)
def test_sure_beyond_float32(name: str, scale: float) -> None:
    logits = torch.tensor([[scale, 0, 0, 0]] * 2).requires_grad_()
    found = loss_of(name)(logits, torch.tensor([0, 1]), reduction="none")
    slope, offset = WRONG[name]
    right = -scale if name == "nsl" else 0
    assert found.tolist() == pytest.approx([right, slope * scale + offset], rel=1e-5, abs=1e-6)
    found.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("name", ["gce", "mae", "rce"])
def test_what_is_taken_for_another_class_is_hardly_learnt_from(name: str) -> None:
    """dℒ/df_y = −p_y^q (1 − p_y), times A: with a small p_y next to nothing, but not zero and not infinite."""
    q, scale = {"gce": (0.7, 1.0), "mae": (1.0, 1.0), "rce": (1.0, A)}[name]
    for score in (10.0, 40.0):
        logits = torch.tensor([[0.0, score]]).requires_grad_()
        loss_of(name)(logits, torch.tensor([0])).backward()
        assert logits.grad is not None
        assert logits.grad[0, 0].item() == pytest.approx(-scale * math.exp(-q * score), rel=1e-3)


@pytest.mark.parametrize("name", ["mae", "rce", "focal"])
def test_the_last_bit_of_doubt_is_kept(name: str) -> None:
    """1 − p_y of 10⁻¹² and below, which float32 loses when it is taken from 1."""
    logits = torch.tensor([[30.0, 0.0]]).requires_grad_()
    doubt = math.exp(-30)
    found = loss_of(name, **({"gamma": 1.0} if name == "focal" else {}))(logits, torch.tensor([0]))
    found.backward()
    scale = {"mae": 1.0, "rce": A, "focal": 0.0}[name]
    assert found.item() == pytest.approx(scale * doubt, rel=1e-4, abs=1e-20)
    assert logits.grad is not None
    slope = {"mae": -doubt, "rce": -A * doubt, "focal": -(doubt**2)}[name]
    assert logits.grad[0, 0].item() == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("name", SETTINGS)
def test_adding_to_all_scores_changes_nothing_but_a_linear_loss(name: str) -> None:
    logits, y = batch()
    moved = loss_of(name)(logits + 50, y, reduction="none")
    expected = loss_of(name)(logits, y, reduction="none")
    torch.testing.assert_close(moved, expected - 50 if name == "nsl" else expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SETTINGS)
def test_one_class_in_all(name: str) -> None:
    """There is nothing to learn, and nothing to normalise by."""
    logits, y = torch.tensor([[0.3]]), torch.tensor([0])
    if name in ("nce", "nfl"):
        with pytest.raises(ValueError, match="logits must have at least two classes to be normalised by, got 1"):
            loss_of(name)(logits, y)
    else:
        assert loss_of(name)(logits, y).item() == pytest.approx(-0.3 if name == "nsl" else 0)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_non_finite_score_shows_in_the_loss(name: str) -> None:
    logits, y = batch()
    logits[2, 1] = math.nan
    assert loss_of(name)(logits, y).isnan()


@pytest.mark.parametrize("name", SETTINGS)
def test_an_accelerator_is_never_waited_for(name: str) -> None:
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        logits, y = torch.empty(8, K, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        assert loss_of(name)(logits, y).shape == ()


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": torch.zeros(6)}, r"logits must be a non-empty floating-point matrix, got shape \(6,\)"),
        ({"logits": torch.zeros(6, 4, dtype=torch.long)}, "logits must be .* floating-point .* torch.int64"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, 4])}, r"y must lie in \[0, 4\), got 4"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, -1])}, r"y must lie in \[0, 4\), got -1"),
        ({"y": torch.full((6, 4), 0.25)}, r"y must hold 6 integer labels, got shape \(6, 4\) of torch.float32"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(name: str, changes: dict[str, Any], message: str) -> None:
    logits, y = batch()
    with pytest.raises(ValueError, match=message):
        loss_of(name)(**({"logits": logits, "y": y} | changes))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("focal", {"gamma": -0.1}, "gamma must be a finite number ≥ 0, got -0.1"),
        ("nfl", {"gamma": math.inf}, "gamma must be a finite number ≥ 0, got inf"),
        ("nfl", {"gamma": torch.tensor(1.0)}, "gamma must be a finite number ≥ 0, got tensor"),
        ("gce", {"q": 0.0}, r"q must be a number in \(0, 1\], got 0.0"),
        ("gce", {"q": 1.01}, r"q must be a number in \(0, 1\], got 1.01"),
        ("gce", {"q": math.nan}, r"q must be a number in \(0, 1\], got nan"),
        ("sce", {"alpha": -1.0}, "alpha must be a finite number ≥ 0, got -1.0"),
        ("sce", {"beta": math.nan}, "beta must be a finite number ≥ 0, got nan"),
    ],
)
def test_parameters_out_of_range_are_named(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loss_of(name, **changes)(*batch())
