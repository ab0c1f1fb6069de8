import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize, one_hot

from ltnb.geometry import regular_simplex
from ltnb.losses import dot_regression


def batch(labels: tuple[int, ...] = (0, 0, 1, 2, 1, 0)) -> tuple[Tensor, Tensor, Tensor]:
    """Unit features and four anchors in R^5, class 3 without a sample."""
    generator = torch.Generator().manual_seed(0)
    features = normalize(torch.randn(len(labels), 5, dtype=torch.float64, generator=generator), dim=1)
    return features, torch.tensor(labels), regular_simplex(4, 5, generator=generator)


def mixed(y: Tensor) -> Tensor:
    targets = one_hot(y, 4).double()
    return 0.7 * targets + 0.3 * targets.flip(0)


def naive(features: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    losses = []
    for row, shares in zip(features.double().tolist(), targets.double().tolist(), strict=True):
        loss = 0.0
        for share, anchor in zip(shares, weight.double().tolist(), strict=True):
            cosine = sum(a * b for a, b in zip(row, anchor, strict=True))
            loss += share * (cosine - 1) ** 2 / 2
        losses.append(loss)
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("soft", [False, True])
def test_equals_the_equation(soft):
    features, y, weight = batch()
    targets = mixed(y) if soft else one_hot(y, 4)
    expected = naive(features, targets, weight)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = dot_regression(features, targets if soft else y, weight, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=1e-12)


def test_equals_the_released_form_with_lengths_held_constant():
    features, y, weight = batch()
    features.requires_grad_()
    lengths, own = features.detach().norm(dim=1), weight[y]
    released = ((features * own).sum(dim=1) - own.norm(dim=1) * lengths) ** 2 / lengths / 2
    expected = torch.autograd.grad(released.mean(), features)[0]
    loss = dot_regression(features, y, weight)
    torch.testing.assert_close(loss, released.mean())
    torch.testing.assert_close(torch.autograd.grad(loss, features)[0], expected)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_values_on_the_simplex(num_classes):
    simplex = regular_simplex(num_classes, num_classes)
    y = torch.arange(num_classes)
    zero = torch.zeros(num_classes, dtype=torch.float64)
    torch.testing.assert_close(dot_regression(simplex, y, simplex, reduction="none"), zero, rtol=0, atol=1e-15)
    others = dot_regression(simplex, y.roll(1), simplex, reduction="none")
    torch.testing.assert_close(others, zero + (num_classes / (num_classes - 1)) ** 2 / 2)
    torch.testing.assert_close(dot_regression(-simplex, y, simplex, reduction="none"), zero + 2)


def test_gradient_is_a_pull_to_the_own_anchor_alone():
    features, y, weight = batch()
    features.requires_grad_()
    weight.requires_grad_()
    dot_regression(features, y, weight, reduction="sum").backward()
    expected = torch.stack([(weight[k] @ h - 1) * weight[k] for h, k in zip(features, y, strict=True)])
    torch.testing.assert_close(features.grad, expected)
    assert torch.equal(weight.grad[3], torch.zeros(5).double())


@pytest.mark.parametrize("degrees", [0, 60, 90, 180])
def test_force_on_what_is_normalised(degrees):
    angle = math.radians(degrees)
    x = 3 * torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    x.requires_grad_()
    dot_regression(normalize(x, dim=1), torch.tensor([0]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double()).backward()
    force = (1 - math.cos(angle)) * math.sin(angle) / 3
    expected = force * torch.tensor([[-math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    torch.testing.assert_close(x.grad, expected, rtol=1e-9, atol=1e-12)


def test_gradient_agrees_with_finite_differences():
    features, y, weight = batch()
    inputs = (features.requires_grad_(), weight.requires_grad_())
    for target in (y, mixed(y)):

        def loss(features: Tensor, weight: Tensor, target: Tensor = target) -> Tensor:
            return dot_regression(features, target, weight, reduction="none")

        assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("soft", [False, True])
def test_low_precision_input_is_computed_in_float32(dtype, soft):
    features, y, weight = batch()
    features, weight = features.to(dtype).requires_grad_(), weight.to(dtype)
    targets = mixed(y) if soft else one_hot(y, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = dot_regression(features, targets if soft else y.to(torch.uint8), weight, reduction="none")
    assert losses.dtype == torch.float32
    expected = naive(features.detach(), targets, weight)
    torch.testing.assert_close(losses, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses.double(), naive(*(batch()[0], targets, batch()[2])), rtol=0.05, atol=0.05)
    losses.sum().backward()
    assert features.grad.dtype == dtype


@pytest.mark.parametrize("labels", [(3,), (1, 1, 1), (0, 1, 2, 3)], ids=["one", "one class", "one of each"])
def test_small_batches(labels):
    features, y, weight = batch(labels)
    torch.testing.assert_close(dot_regression(features, y, weight), naive(features, one_hot(y, 4), weight).mean())


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        features, weight = torch.empty(8, 5, device="cuda"), torch.empty(4, 5, device="cuda")
        for y in (torch.empty(8, dtype=torch.long, device="cuda"), torch.empty(8, 4, device="cuda")):
            assert dot_regression(features, y, weight).shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": 2 * batch()[0]}, "features must have unit rows, got norm 2 at row 0"),
        ({"features": torch.zeros(6)}, r"features must be a non-empty floating-point matrix, got shape \(6,\)"),
        ({"weight": 3 * batch()[2]}, "weight must have unit rows, got norm 3 at row 0"),
        ({"weight": torch.eye(4)}, r"weight must have rows of length 5 like features, got shape \(4, 4\)"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, 4])}, r"y must lie in \[0, 4\), got 4"),
        ({"y": torch.full((6, 4), 0.5)}, "y must have non-negative rows that sum to 1, got .* at row 0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    features, y, weight = batch()
    with pytest.raises(ValueError, match=message):
        dot_regression(**({"features": features, "y": y, "weight": weight} | changes))
