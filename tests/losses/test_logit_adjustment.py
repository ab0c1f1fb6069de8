import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, one_hot

from ltnb.losses import logit_adjusted_cross_entropy

COUNTS = [90, 9, 1]


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 3, dtype=torch.float64, generator=generator).to(dtype), torch.tensor([0, 0, 1, 2, 1, 0])


def naive(logits: Tensor, targets: Tensor, tau: float) -> list[float]:
    """The equation in Python floats, for rows of target probabilities."""
    losses = []
    for row, target in zip(logits.double().tolist(), targets.double().tolist(), strict=True):
        terms = [math.exp(f) * (n / sum(COUNTS)) ** tau for f, n in zip(row, COUNTS, strict=True)]
        losses.append(-sum(p * math.log(t / sum(terms)) for p, t in zip(target, terms, strict=True)))
    return losses


@pytest.mark.parametrize("tau", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("soft", [False, True])
def test_equals_the_equation(tau, soft):
    logits, y = batch()
    targets = one_hot(y, 3).double()
    if soft:
        targets = 0.7 * targets + 0.3 * targets.flip(0)
        y = targets
    expected = torch.tensor(naive(logits, targets, tau), dtype=torch.float64)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = logit_adjusted_cross_entropy(logits, y, COUNTS, tau=tau, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-6, atol=1e-6)


def test_equal_counts_or_zero_tau_are_plain_cross_entropy():
    logits, y = batch()
    plain = cross_entropy(logits, y)
    torch.testing.assert_close(logit_adjusted_cross_entropy(logits, y, torch.tensor([5, 5, 5])), plain)
    torch.testing.assert_close(logit_adjusted_cross_entropy(logits, y, torch.tensor(COUNTS), tau=0), plain)


def test_logits_without_evidence_cost_the_log_prior():
    y = torch.tensor([0, 1, 2])
    losses = logit_adjusted_cross_entropy(torch.zeros(3, 3), y, torch.tensor(COUNTS), reduction="none")
    torch.testing.assert_close(losses, -torch.tensor([0.90, 0.09, 0.01]).log())


def test_gradient_agrees_with_finite_differences():
    logits, y = batch()
    soft = torch.softmax(logits.flip(0), dim=1)
    for target in (y, soft):
        assert torch.autograd.gradcheck(
            lambda logits, target=target: logit_adjusted_cross_entropy(logits, target, COUNTS),
            (logits.requires_grad_(),),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("label_dtype", [torch.uint8, torch.int32])
def test_low_precision_input_is_computed_in_float32(dtype, label_dtype):
    logits, y = batch(dtype)
    losses = logit_adjusted_cross_entropy(logits, y.to(label_dtype), torch.tensor(COUNTS), reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, torch.tensor(naive(logits, one_hot(y, 3), 1.0)), rtol=1e-5, atol=1e-6)


def test_a_long_tailed_prior_and_large_logits_stay_finite():
    logits = torch.tensor([[300.0, -300.0]], requires_grad=True)
    loss = logit_adjusted_cross_entropy(logits, torch.tensor([1]), torch.tensor([10**9, 1]))
    loss.backward()
    assert loss.item() == pytest.approx(600 + math.log(10**9), rel=1e-6)
    assert logits.grad.isfinite().all()


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        logits, counts = torch.empty(8, 3, device="cuda"), torch.empty(3, dtype=torch.long, device="cuda")
        for y in (torch.empty(8, dtype=torch.long, device="cuda"), torch.empty(8, 3, device="cuda")):
            assert logit_adjusted_cross_entropy(logits, y, counts).shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": torch.zeros(6)}, r"logits must be a non-empty floating-point matrix, got shape \(6,\)"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, 3])}, r"y must lie in \[0, 3\), got 3"),
        ({"y": torch.tensor([0, 0, 1, 2, 1, -100])}, r"y must lie in \[0, 3\), got -100"),
        ({"y": torch.zeros(5, dtype=torch.long)}, r"y must hold 6 integer labels, got shape \(5,\)"),
        ({"y": torch.zeros(6)}, r"y must hold labels of shape \(6,\) or rows of shape \(6, 3\), got shape \(6,\)"),
        ({"y": torch.full((6, 3), 0.5)}, "y must have non-negative rows that sum to 1, got .* at row 0"),
        ({"class_counts": [1, 2]}, r"one count for each of 3 classes, got shape \(2,\)"),
        ({"class_counts": [3, 2, 0]}, r"class_counts must be positive, got \[3, 2, 0\]"),
        ({"tau": -1.0}, "tau must be a finite number ≥ 0, got -1.0"),
        ({"tau": math.inf}, "tau must be a finite number ≥ 0, got inf"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    logits, y = batch()
    with pytest.raises(ValueError, match=message):
        logit_adjusted_cross_entropy(**({"logits": logits, "y": y, "class_counts": COUNTS} | changes))
