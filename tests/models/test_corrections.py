import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ltnb.losses import logit_adjusted_cross_entropy
from ltnb.models.corrections import adjusted_logits, tau_normalised

COUNTS = [90, 9, 1]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def matrix(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.0, 1.0, 1.5])
def test_adjusted_logits_by_loops(dtype, tau):
    logits = matrix(dtype)
    expected = [
        [f - tau * math.log(n / 100) for f, n in zip(row, COUNTS, strict=True)] for row in logits.double().tolist()
    ]
    adjusted = adjusted_logits(logits, torch.tensor(COUNTS), tau=tau)
    assert adjusted.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(adjusted.double(), torch.tensor(expected).double(), rtol=1e-6, atol=1e-6)


def test_of_a_calibrated_classifier_the_posterior_under_a_balanced_prior_is_left():
    likelihoods = torch.tensor([[0.2, 0.5, 0.4], [0.7, 0.1, 0.1]], dtype=torch.float64)
    posterior = likelihoods * torch.tensor(COUNTS) / (likelihoods @ torch.tensor(COUNTS).double())[:, None]
    balanced = likelihoods / likelihoods.sum(dim=1, keepdim=True)
    torch.testing.assert_close(adjusted_logits(posterior.log(), COUNTS, tau=1.0).softmax(dim=1), balanced)


def test_training_adds_what_is_taken_off():
    logits, y = matrix(), torch.tensor([0, 1, 2, 2])
    loss = logit_adjusted_cross_entropy(adjusted_logits(logits, COUNTS, tau=0.7), y, COUNTS, tau=0.7)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [0, 0.5, 1.0, 2.0])
def test_normalised_rows_by_loops(dtype, exponent):
    weight = matrix(dtype)
    expected = [[entry / math.hypot(*row) ** exponent for entry in row] for row in weight.double().tolist()]
    normalised = tau_normalised(weight, exponent=exponent)
    assert normalised.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(normalised.double(), torch.tensor(expected).double(), rtol=1e-5, atol=1e-6)


def test_lengths_go_from_those_of_training_to_one():
    weight = matrix()
    assert torch.equal(tau_normalised(weight, exponent=0), weight)
    torch.testing.assert_close(tau_normalised(weight, exponent=1).norm(dim=1), torch.ones(4).double())
    torch.testing.assert_close(tau_normalised(weight, exponent=0.5).norm(dim=1), weight.norm(dim=1).sqrt())


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        rows, counts = torch.empty(4, 3, device="cuda"), torch.empty(3, dtype=torch.long, device="cuda")
        assert adjusted_logits(rows, counts, tau=1.0).shape == (4, 3)
        assert tau_normalised(rows, exponent=0.5).shape == (4, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logits": torch.zeros(3)}, r"logits must be a non-empty floating-point matrix, got shape \(3,\)"),
        ({"class_counts": [1, 2]}, r"one count for each of 3 classes, got shape \(2,\)"),
        ({"class_counts": [3, 2, 0]}, r"class_counts must be positive, got \[3, 2, 0\]"),
        ({"tau": -1.0}, "tau must be a finite number ≥ 0, got -1.0"),
        ({"tau": math.inf}, "tau must be a finite number ≥ 0, got inf"),
    ],
)
def test_bad_input_of_the_adjustment_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        adjusted_logits(**({"logits": matrix(), "class_counts": COUNTS, "tau": 1.0} | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": torch.zeros(3)}, r"weight must be a non-empty floating-point matrix, got shape \(3,\)"),
        (
            {"weight": torch.tensor([[1.0, 0.0], [0.0, 0.0]])},
            "weight must have rows with .* got zero at row 1",
        ),
        ({"exponent": -0.5}, "exponent must be a finite number ≥ 0, got -0.5"),
        ({"exponent": math.nan}, "exponent must be a finite number ≥ 0, got nan"),
    ],
)
def test_bad_input_of_the_normalisation_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        tau_normalised(**({"weight": matrix(), "exponent": 1.0} | changes))
