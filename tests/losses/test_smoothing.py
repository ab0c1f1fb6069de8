import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, log_softmax

from ltnb.losses import smoothed_labels, smoothing_factors

FACTORS = torch.tensor([0.4, 0.25, 0.1, 0.0], dtype=torch.float64)
Y = torch.tensor([0, 0, 3, 1, 2])


def test_factors_equal_the_equation():
    counts = [500, 200, 50, 7, 5]
    expected = [0.1 + (0.4 - 0.1) * math.sin((n - 5) * math.pi / (2 * (500 - 5))) for n in counts]
    factors = smoothing_factors(counts, head=0.4, tail=0.1)
    torch.testing.assert_close(factors, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_factors_rise_with_the_count_concavely_from_tail_to_head():
    factors = smoothing_factors(torch.arange(1, 501), head=0.3, tail=0.0)
    assert factors[[0, -1]].tolist() == pytest.approx([0, 0.3], abs=1e-15)
    assert (factors.diff() > 0).all()
    assert (factors.diff().diff() < 0).all()


@pytest.mark.parametrize("counts", [[5], [5, 5, 5]])
def test_classes_of_one_size_are_smoothed_like_the_tail(counts):
    assert smoothing_factors(counts, head=0.4, tail=0.1).tolist() == [0.1] * len(counts)


def test_equal_bounds_give_one_factor():
    assert smoothing_factors([100, 10, 1], head=0.2, tail=0.2).tolist() == [0.2] * 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("label_dtype", [torch.uint8, torch.int64])
def test_labels_equal_the_equation(dtype, label_dtype):
    labels = smoothed_labels(Y.to(label_dtype), FACTORS.to(dtype), 4)
    expected = torch.empty(5, 4, dtype=torch.float64)
    for i, label in enumerate(Y.tolist()):
        for k in range(4):
            factor = FACTORS[label].item()
            expected[i, k] = 1 - factor if k == label else factor / 3
    assert labels.dtype == dtype
    torch.testing.assert_close(labels, expected.to(dtype))
    torch.testing.assert_close(labels.double().sum(dim=1), torch.ones(5).double(), rtol=0, atol=1e-2)


def test_without_smoothing_labels_are_one_hot():
    assert torch.equal(smoothed_labels(Y, torch.zeros(4), 4), torch.eye(4)[Y])


def test_cross_entropy_is_that_of_the_paper_and_with_less_smoothing_that_of_its_code():
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    papers, codes = [], []
    for row, label in zip(log_softmax(logits, dim=1), Y.tolist(), strict=True):
        factor = FACTORS[label].item()
        others = sum(row[k].item() for k in range(4) if k != label)
        papers.append(-(1 - factor) * row[label].item() - factor / 3 * others)
        codes.append(-(1 - factor) * row[label].item() - factor * row.mean().item())
    for factors, expected in ((FACTORS, papers), (FACTORS * 3 / 4, codes)):
        losses = cross_entropy(logits, smoothed_labels(Y, factors, 4), reduction="none")
        torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))


def test_at_the_stated_lead_of_the_own_logit_the_loss_has_no_gradient():
    y, factors = torch.tensor([0, 1, 2]), FACTORS[:3]
    logits = torch.diag(((1 - factors) * 2 / factors).log()).requires_grad_()
    cross_entropy(logits, smoothed_labels(y, factors, 3)).backward()
    torch.testing.assert_close(logits.grad, torch.zeros(3, 3).double(), rtol=0, atol=1e-15)


@pytest.mark.parametrize("labels", [(3,), (1, 1, 1)], ids=["one sample", "one class"])
def test_small_batches(labels):
    rows = smoothed_labels(torch.tensor(labels), FACTORS, 4)
    assert rows.shape == (len(labels), 4)
    assert torch.equal(rows.argmax(dim=1), torch.tensor(labels))


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        factors = smoothing_factors(torch.empty(4, device="cuda"), head=0.4, tail=0.1)
        assert smoothed_labels(torch.empty(8, dtype=torch.long, device="cuda"), factors, 4).shape == (8, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_counts": [3, 0]}, r"class_counts must be positive, got \[3, 0\]"),
        ({"class_counts": 3}, r"class_counts must hold one count for each class, got shape \(\)"),
        ({"tail": -0.1}, r"tail must be a number in \[0, 1\), got -0.1"),
        ({"head": 1.0}, r"head must be a number in \[0, 1\), got 1.0"),
        ({"head": math.nan}, r"head must be a number in \[0, 1\), got nan"),
        ({"head": 0.05}, "head must be at least tail=0.1, got 0.05"),
    ],
)
def test_bad_input_of_the_factors_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        smoothing_factors(**({"class_counts": [3, 1], "head": 0.4, "tail": 0.1} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": torch.tensor([0, 4])}, r"y must lie in \[0, 4\), got 4"),
        ({"y": torch.full((5, 4), 0.25)}, r"y must hold 5 integer labels, got shape \(5, 4\) of torch.float32"),
        ({"factors": FACTORS[:3]}, r"factors must hold one .* for each of 4 classes, got shape \(3,\)"),
        ({"factors": torch.zeros(4).long()}, "factors must hold one .* of torch.int64"),
        ({"factors": FACTORS - 0.1}, r"factors must lie in \[0, 1\], got .* -0.1"),
        ({"factors": FACTORS + math.nan}, r"factors must lie in \[0, 1\], got \[nan"),
        ({"factors": torch.zeros(1), "num_classes": 1}, "num_classes must be at least 2, got 1"),
    ],
)
def test_bad_input_of_the_labels_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        smoothed_labels(**({"y": Y, "factors": FACTORS, "num_classes": 4} | changes))
