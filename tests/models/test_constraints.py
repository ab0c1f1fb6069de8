import math

import pytest
import torch

from ltnb.models.constraints import max_norm_


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threshold", [0.1, 1.0, 3.0])
def test_rows_by_loops(dtype, threshold):
    weight = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = []
    for row in weight.double().tolist():
        length = math.sqrt(sum(entry**2 for entry in row))
        expected.append([entry * (threshold / length if length > threshold else 1) for entry in row])
    max_norm_(weight, threshold)
    # Tolerances of the dtype: bfloat16 carries 8 bits.
    torch.testing.assert_close(weight, torch.tensor(expected, dtype=torch.float64).to(dtype))


def test_only_rows_that_are_too_long_change():
    weight = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.6, -0.8], [0.1, 0.2]])
    max_norm_(weight, 1.0)
    torch.testing.assert_close(weight[0], torch.tensor([0.6, 0.8]))
    assert torch.equal(weight[1:], torch.tensor([[0.0, 0.0], [0.6, -0.8], [0.1, 0.2]]))
    torch.testing.assert_close(max_norm_(weight.clone(), 1.0), weight)


def test_a_parameter_is_projected_in_place_and_still_trains():
    layer = torch.nn.Linear(5, 3)
    before = layer.weight
    assert max_norm_(layer.weight, 0.1) is before
    assert layer.weight.requires_grad
    assert float(layer.weight.detach().norm(dim=1).max()) <= 0.1 + 1e-7
    layer(torch.ones(2, 5)).sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.inf, math.nan])
def test_a_threshold_that_is_not_positive_is_named(threshold):
    with pytest.raises(ValueError, match=f"threshold must be a positive number, got {threshold}"):
        max_norm_(torch.ones(2, 2), threshold)


@pytest.mark.parametrize("weight", [torch.ones(3), torch.ones(2, 2, dtype=torch.int64)])
def test_what_is_not_a_matrix_is_refused(weight):
    with pytest.raises(ValueError, match="weight must be a floating-point matrix"):
        max_norm_(weight, 1.0)
