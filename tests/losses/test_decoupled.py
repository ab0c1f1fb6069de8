import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, normalize

from ltnb.losses import decoupled_contrastive, supervised_contrastive

LONG_TAILED = [0, 1, 4, 0, 2, 1, 0]


def batch(images=LONG_TAILED, dim: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of each image."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(2 * len(images), dim, dtype=torch.float64, generator=generator)
    return normalize(z, dim=1), torch.tensor([*images, *images])


def naive(z: Tensor, y: Tensor, alpha: float, temperature: float) -> Tensor:
    """The equation, pair by pair, in Python floats."""
    rows, labels = z.double().tolist(), y.tolist()
    losses = []
    for i, anchor in enumerate(rows):
        logit = [sum(a * b for a, b in zip(anchor, row, strict=True)) / temperature for row in rows]
        denominator = sum(math.exp(logit[k]) for k in range(len(rows)) if k != i)
        terms = [math.log(math.exp(value) / denominator) for value in logit]
        own = (i + len(rows) // 2) % len(rows)
        others = [p for p in range(len(rows)) if labels[p] == labels[i] and p not in (i, own)]
        if others:
            losses.append(-alpha * terms[own] - (1 - alpha) / len(others) * sum(terms[p] for p in others))
        else:
            losses.append(-terms[own])
    return torch.tensor(losses, dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(
    images=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    alpha=st.floats(0.01, 1),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_equals_the_equation_summed_pair_by_pair(images, alpha, temperature, seed):
    z, y = batch(images, seed=seed)
    expected = naive(z, y, alpha, temperature)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = decoupled_contrastive(z, y, own_weight=alpha, temperature=temperature, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [2, 4])
def test_with_equal_shares_it_is_the_supervised_contrastive_loss(size):
    z, y = batch([0, 1, 2] * size)
    actual = decoupled_contrastive(z, y, own_weight=1 / (2 * size - 1), temperature=0.1, reduction="none")
    torch.testing.assert_close(actual, supervised_contrastive(z, y, temperature=0.1, reduction="none"))


def test_with_the_own_view_alone_it_is_cross_entropy_of_that_view():
    z, y = batch()
    logits = (z @ z.T / 0.1).fill_diagonal_(-math.inf)
    expected = cross_entropy(logits, torch.arange(14).roll(7))
    torch.testing.assert_close(decoupled_contrastive(z, y, own_weight=1.0, temperature=0.1), expected)


def test_an_image_alone_in_its_class_has_its_own_view_whatever_the_weight():
    z, y = batch([0, 0, 1])
    few, much = (
        decoupled_contrastive(z, y, own_weight=alpha, temperature=0.1, reduction="none") for alpha in (0.1, 0.9)
    )
    assert torch.equal(few[[2, 5]], much[[2, 5]])
    assert (few - much)[[0, 1, 3, 4]].abs().min() > 1e-3


@pytest.mark.parametrize("temperature", [0.07, 1.0])
@pytest.mark.parametrize("alpha", [0.1, 0.8])
def test_collapse_onto_a_regular_simplex_gives_the_closed_form(temperature, alpha):
    num_classes, images = 4, 3
    corners = normalize(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes, dim=1)
    y = torch.arange(num_classes).repeat(2 * images)
    losses = decoupled_contrastive(corners[y], y, own_weight=alpha, temperature=temperature, reduction="none")
    size, gap = 2 * images, math.exp(-num_classes / ((num_classes - 1) * temperature))
    expected = math.log(size - 1 + size * (num_classes - 1) * gap)
    torch.testing.assert_close(losses, torch.full_like(losses, expected), rtol=1e-9, atol=1e-12)


def test_gradient_agrees_with_finite_differences():
    z, y = batch()
    assert torch.autograd.gradcheck(
        lambda z: decoupled_contrastive(z, y, own_weight=0.3, temperature=0.3, reduction="none"),
        (z.requires_grad_(),),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(dtype):
    z, y = batch(dim=16)
    z = z.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = decoupled_contrastive(z, y, own_weight=0.1, temperature=0.07, reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, naive(z.detach(), y, 0.1, 0.07).float(), rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    assert z.grad.dtype == dtype
    assert z.grad.isfinite().all()


def test_one_image_alone_has_loss_zero_and_a_gradient():
    z, y = batch([3])
    loss = decoupled_contrastive(z.requires_grad_(), y, own_weight=0.1, temperature=0.01)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(loss, torch.zeros_like(loss))
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        assert decoupled_contrastive(z, y, own_weight=0.1, temperature=0.1).shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(14, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"y": torch.zeros(14)}, "y must hold 14 integer labels, got .* of torch.float32"),
        ({"z": torch.eye(3), "y": torch.zeros(3, dtype=torch.long)}, "two views of every image, got an odd .* rows, 3"),
        ({"y": torch.arange(14)}, "y must be the same for both views, got 0 and 7 for image 0"),
        ({"own_weight": 0.0}, r"own_weight must be a number in \(0, 1\], got 0.0"),
        ({"own_weight": 1.1}, r"own_weight must be a number in \(0, 1\], got 1.1"),
        ({"temperature": -0.1}, "temperature must be a positive finite number, got -0.1"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    z, y = batch()
    with pytest.raises(ValueError, match=message):
        decoupled_contrastive(**({"z": z, "y": y, "own_weight": 0.1, "temperature": 0.1} | changes))
