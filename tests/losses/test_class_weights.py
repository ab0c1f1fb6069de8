import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, one_hot

from ltnb.losses import class_balanced_weights, weighted_mean

COUNTS = [500, 60, 7, 1]
WEIGHTS = torch.tensor([0.2, 0.5, 1.0, 2.3], dtype=torch.float64)


def exact_weights(counts: list[int], beta: float) -> list[float]:
    """One share of every image after another, in exact arithmetic: 1/(1 + β + … + β^(n−1))."""
    effective = [sum(Fraction(beta) ** i for i in range(n)) for n in counts]
    mean = sum(1 / e for e in effective) / len(counts)
    return [float(1 / (e * mean)) for e in effective]


@pytest.mark.parametrize("beta", [0.0, 1e-3, 0.5, 0.9, 0.9999, 1 - 2**-53])
def test_weights_are_those_of_the_equation_however_close_beta_is_to_one(beta):
    weights = class_balanced_weights([60, 7, 1], beta=beta)
    expected = torch.tensor(exact_weights([60, 7, 1], beta), dtype=torch.float64)
    torch.testing.assert_close(weights, expected, rtol=1e-14, atol=0)
    assert float(weights.mean()) == pytest.approx(1, rel=1e-14)


def test_the_ends_are_equal_weights_and_inverse_counts():
    assert class_balanced_weights(torch.tensor(COUNTS), beta=0).tolist() == [1.0] * 4
    inverse = 1 / torch.tensor(COUNTS, dtype=torch.float64)
    weights = class_balanced_weights(COUNTS, beta=1 - 1e-15)
    torch.testing.assert_close(weights, inverse / inverse.mean(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.9999, 1 - 1e-12])
@pytest.mark.parametrize("counts", [[7], [7, 7, 7]])
def test_classes_of_one_size_weigh_the_same(counts, beta):
    torch.testing.assert_close(class_balanced_weights(counts, beta=beta), torch.ones(len(counts)).double())


def test_rarer_classes_weigh_more():
    assert (class_balanced_weights(list(range(1, 5001, 50)), beta=0.9999).diff() < 0).all()


def batch(labels: tuple[int, ...] = (0, 0, 1, 3, 1, 0)) -> tuple[Tensor, Tensor]:
    """Losses of samples; class 2 without one."""
    losses = torch.rand(len(labels), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return losses, torch.tensor(labels)


def mixed(y: Tensor) -> Tensor:
    targets = one_hot(y, 4).double()
    return 0.7 * targets + 0.3 * targets.flip(0)


def naive(losses: Tensor, targets: Tensor) -> float:
    total = weight = 0.0
    for loss, shares in zip(losses.double().tolist(), targets.double().tolist(), strict=True):
        own = sum(share * w for share, w in zip(shares, WEIGHTS.tolist(), strict=True))
        total, weight = total + own * loss, weight + own
    return total / weight


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("soft", [False, True])
def test_mean_equals_the_equation(dtype, soft):
    losses, y = batch()
    losses, targets = losses.to(dtype), mixed(y) if soft else one_hot(y, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean = weighted_mean(losses, targets if soft else y.to(torch.uint8), WEIGHTS)
    assert mean.dtype == torch.promote_types(dtype, torch.float32)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert float(mean) == pytest.approx(naive(losses, targets), rel=tolerance)


def test_mean_of_cross_entropy_is_torchs_with_weights():
    logits, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), batch()[1]
    expected = cross_entropy(logits, y, weight=WEIGHTS.float())
    torch.testing.assert_close(weighted_mean(cross_entropy(logits, y, reduction="none"), y, WEIGHTS), expected)


def test_only_proportions_count_and_equal_weights_give_the_plain_mean():
    losses, y = batch()
    torch.testing.assert_close(weighted_mean(losses, y, 1e6 * WEIGHTS), weighted_mean(losses, y, WEIGHTS))
    torch.testing.assert_close(weighted_mean(losses, mixed(y), torch.full((4,), 3.0)), losses.mean())


@pytest.mark.parametrize("labels", [(3,), (3, 3, 3)], ids=["one sample", "one class"])
def test_a_batch_of_one_class_has_its_plain_mean(labels):
    losses, y = batch(labels)
    torch.testing.assert_close(weighted_mean(losses, y, WEIGHTS), losses.mean())


def test_gradient_agrees_with_finite_differences():
    losses, y = batch()
    losses.requires_grad_()
    for target in (y, mixed(y)):
        assert torch.autograd.gradcheck(lambda x, target=target: weighted_mean(x, target, WEIGHTS), (losses,))


def test_a_non_finite_loss_shows_in_the_mean():
    losses, y = batch()
    losses[3] = math.nan
    assert weighted_mean(losses, y, WEIGHTS).isnan()


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        weights = class_balanced_weights(torch.empty(4, device="cuda"), beta=0.9)
        assert weights.shape == (4,)
        for y in (torch.empty(8, dtype=torch.long, device="cuda"), torch.empty(8, 4, device="cuda")):
            assert weighted_mean(torch.empty(8, device="cuda"), y, weights).shape == ()


@pytest.mark.parametrize(
    ("counts", "beta", "message"),
    [
        ([3, 0], 0.5, r"class_counts must be positive, got \[3, 0\]"),
        ([[3, 1]], 0.5, r"class_counts must hold one count for each class, got shape \(1, 2\)"),
        ([3, 1], 1.0, r"beta must be a number in \[0, 1\), got 1.0"),
        ([3, 1], -0.1, r"beta must be a number in \[0, 1\), got -0.1"),
        ([3, 1], math.nan, r"beta must be a number in \[0, 1\), got nan"),
    ],
)
def test_bad_input_of_the_weights_is_named(counts, beta, message):
    with pytest.raises(ValueError, match=message):
        class_balanced_weights(counts, beta=beta)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"losses": torch.tensor(1.0)}, r"losses must be a non-empty floating-point vector, got shape \(\)"),
        ({"losses": torch.ones(6).long()}, r"losses must be .* got shape \(6,\) of torch.int64"),
        ({"losses": torch.ones(0)}, r"losses must be a non-empty floating-point vector, got shape \(0,\)"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, 4])}, r"y must lie in \[0, 4\), got 4"),
        ({"y": torch.full((6, 4), 0.5)}, "y must have non-negative rows that sum to 1, got .* at row 0"),
        ({"weights": torch.ones(1, 4)}, r"weights must hold one .* for each class, got shape \(1, 4\)"),
        ({"weights": torch.ones(4).long()}, "weights must hold one .* of torch.int64"),
        ({"weights": torch.tensor([1.0, 0.0, 1.0, 1.0])}, r"weights must be positive and finite, got \[1.0, 0.0, 1.0"),
        ({"weights": torch.tensor([1.0, math.nan, 1.0, 1.0])}, r"weights must be positive and finite, got \[1.0, nan"),
    ],
)
def test_bad_input_of_the_mean_is_named(changes, message):
    losses, y = batch()
    with pytest.raises(ValueError, match=message):
        weighted_mean(**({"losses": losses, "y": y, "weights": WEIGHTS} | changes))
