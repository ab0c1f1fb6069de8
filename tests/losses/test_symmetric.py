"""Symmetric losses: the same sum over all labels whatever the scores, and so the same minimiser with wrong labels."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb import losses
from ltnb.geometry import regular_simplex

A = -math.log(1e-4)

SYMMETRIC: dict[str, Callable[..., Tensor]] = {
    "mae": losses.mae,
    "rce": losses.rce,
    "nce": losses.nce,
    "nfl": partial(losses.nfl, gamma=0.5),
    "nfl, γ = 2": partial(losses.nfl, gamma=2.0),
}
ASYMMETRIC: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": F.cross_entropy,
    "focal": partial(losses.focal, gamma=0.5),
    "gce": partial(losses.gce, q=0.7),
    "sce": partial(losses.sce, alpha=1.0, beta=1.0),
}


def constant(name: str, num_classes: int) -> float:
    return {"mae": num_classes - 1, "rce": A * (num_classes - 1)}.get(name, 1)


def scores(num_classes: int, spread: float, number: int = 200) -> Tensor:
    generator = torch.Generator().manual_seed(num_classes)
    return spread * torch.randn(number, num_classes, dtype=torch.float64, generator=generator)


def summed_over_labels(loss: Callable[..., Tensor], logits: Tensor) -> Tensor:
    return sum(
        (loss(logits, torch.full((len(logits),), k), reduction="none") for k in range(logits.shape[1])),
        start=torch.zeros(len(logits), dtype=logits.dtype),
    )


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("num_classes", [2, 3, 10])
@pytest.mark.parametrize("spread", [0.1, 3.0, 100.0])
def test_the_sum_over_labels_is_its_constant(name: str, num_classes: int, spread: float) -> None:
    found = summed_over_labels(SYMMETRIC[name], scores(num_classes, spread))
    torch.testing.assert_close(found, torch.full_like(found, constant(name, num_classes)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ASYMMETRIC)
def test_the_others_sums_depend_on_the_scores(name: str) -> None:
    found = summed_over_labels(ASYMMETRIC[name], scores(10, 3.0))
    assert found.max() - found.min() > 0.1


def test_similarities_with_anchored_prototypes_add_up_to_zero() -> None:
    features = scores(7, 3.0)
    anchored = features @ regular_simplex(5, 7).T
    torch.testing.assert_close(
        summed_over_labels(losses.nsl, anchored), torch.zeros(200, dtype=torch.float64), rtol=0, atol=1e-12
    )
    learnt = features @ torch.eye(5, 7, dtype=torch.float64).T
    assert summed_over_labels(losses.nsl, learnt).std() > 1


@pytest.mark.parametrize("q", [0.01, 0.3, 0.7, 1.0])
def test_the_sum_of_gce_lies_within_its_bounds_and_reaches_both(q: float) -> None:
    num_classes = 6
    found = summed_over_labels(partial(losses.gce, q=q), scores(num_classes, 3.0))
    lowest, highest = (num_classes - num_classes ** (1 - q)) / q, (num_classes - 1) / q
    assert lowest - 1e-9 <= found.min() <= found.max() <= highest + 1e-9
    ends = torch.tensor([[0.0] * 6, [1e5, *[0.0] * 5]], dtype=torch.float64)
    assert summed_over_labels(partial(losses.gce, q=q), ends).tolist() == pytest.approx([lowest, highest])


@pytest.mark.parametrize("name", ["nce", "nfl", "mae"])
def test_bounded_by_zero_and_one(name: str) -> None:
    loss = SYMMETRIC[name]
    for spread in (1.0, 30.0, 1000.0):
        logits = scores(5, spread)
        found = loss(logits, torch.arange(200) % 5, reduction="none")
        assert (found >= 0).all()
        assert (found <= 1).all()
    assert loss(torch.zeros(1, 5), torch.tensor([2])).item() == pytest.approx(0.8 if name == "mae" else 0.2)


@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_the_noisy_risk_is_a_rising_line_in_the_clean_one(name: str, rate: float) -> None:
    """(1 − ηK/(K − 1)) times the clean risk, plus η C/(K − 1), so both have one minimiser."""
    loss, num_classes = SYMMETRIC[name], 5
    logits, y = scores(num_classes, 3.0), torch.arange(200) % 5
    clean = loss(logits, y, reduction="none")
    others = summed_over_labels(loss, logits) - clean
    noisy = (1 - rate) * clean + rate / (num_classes - 1) * others
    factor = 1 - rate * num_classes / (num_classes - 1)
    expected = factor * clean + rate * constant(name, num_classes) / (num_classes - 1)
    torch.testing.assert_close(noisy, expected, rtol=1e-10, atol=1e-10)
    assert factor > 0


def test_reverse_cross_entropy_is_a_multiple_of_the_mean_absolute_error() -> None:
    logits, y = scores(4, 2.0), torch.arange(200) % 4
    torch.testing.assert_close(
        losses.rce(logits, y, reduction="sum"), A * losses.mae(logits, y, reduction="sum"), rtol=1e-12, atol=0
    )


def test_normalised_focal_loss_without_focus_is_normalised_cross_entropy() -> None:
    logits, y = scores(4, 2.0), torch.arange(200) % 4
    torch.testing.assert_close(
        losses.nfl(logits, y, gamma=0.0, reduction="none"), losses.nce(logits, y, reduction="none")
    )
