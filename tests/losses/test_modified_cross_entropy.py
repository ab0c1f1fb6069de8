"""Modified cross-entropies: what they are at the ends of their parameters, and of what they are made."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb import losses


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(50, 5, dtype=torch.float64, generator=generator), torch.arange(50) % 5


def test_without_focus_it_is_cross_entropy() -> None:
    logits, y = batch()
    torch.testing.assert_close(losses.focal(logits, y, gamma=0.0), F.cross_entropy(logits, y), rtol=1e-12, atol=0)
    slopes = [
        torch.autograd.grad(loss(scores), scores)[0]
        for scores in [logits.requires_grad_()]
        for loss in (lambda f: losses.focal(f, y, gamma=0.0), lambda f: F.cross_entropy(f, y))
    ]
    torch.testing.assert_close(*slopes)


def test_the_focal_weight_passes_the_gradient_on() -> None:
    """dℒ/df_y = −(1 − p)^(γ+1) + γ (1 − p)^γ p log p; with a detached weight the second term is missing."""
    logits = torch.tensor([[0.4, -0.3, 0.2]], dtype=torch.float64).requires_grad_()
    p = float(logits.detach().softmax(1)[0, 0])
    losses.focal(logits, torch.tensor([0]), gamma=2.0).backward()
    expected = -((1 - p) ** 3) + 2 * (1 - p) ** 2 * p * float(torch.tensor(p, dtype=torch.float64).log())
    assert logits.grad is not None
    assert logits.grad[0, 0].item() == pytest.approx(expected, rel=1e-12)


def test_more_focus_costs_less() -> None:
    logits, y = batch()
    found = [losses.focal(logits, y, gamma=gamma, reduction="none") for gamma in (0.0, 0.5, 1.0, 5.0)]
    assert all((less <= more).all() for more, less in itertools.pairwise(found))
    assert (found[-1] >= 0).all()


def test_generalised_cross_entropy_at_its_ends() -> None:
    logits, y = batch()
    near_zero = losses.gce(logits, y, q=1e-6, reduction="none")
    torch.testing.assert_close(near_zero, F.cross_entropy(logits, y, reduction="none"), rtol=1e-4, atol=1e-9)
    at_one = losses.gce(logits, y, q=1.0, reduction="none")
    torch.testing.assert_close(at_one, losses.mae(logits, y, reduction="none"), rtol=1e-9, atol=1e-12)
    # And in float32, where p^q is 1 to all its digits.
    torch.testing.assert_close(
        losses.gce(logits.float(), y, q=1e-6), F.cross_entropy(logits, y).float(), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_its_gradient_is_that_of_cross_entropy_times_a_power_of_p(q: float) -> None:
    logits, y = batch()
    logits.requires_grad_()
    (generalised,) = torch.autograd.grad(losses.gce(logits, y, q=q, reduction="sum"), logits)
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), logits)
    own = logits.detach().softmax(1).gather(1, y[:, None])
    torch.testing.assert_close(generalised, own**q * plain)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_symmetric_cross_entropy_is_the_sum_of_its_parts(reduction: str) -> None:
    logits, y = batch()
    parts = 0.3 * F.cross_entropy(logits, y, reduction=reduction) + 2.0 * losses.rce(logits, y, reduction=reduction)
    torch.testing.assert_close(losses.sce(logits, y, alpha=0.3, beta=2.0, reduction=reduction), parts)
    torch.testing.assert_close(
        losses.sce(logits, y, alpha=1.0, beta=0.0, reduction=reduction),
        F.cross_entropy(logits, y, reduction=reduction),
    )
