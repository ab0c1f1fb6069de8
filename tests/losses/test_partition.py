import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ltnb.losses.partition import log_partition


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("weights_shape", [(5,), (3, 5)])
@pytest.mark.parametrize("excluded", [None, torch.tensor([4, 0, 4])])
def test_equals_the_sum_and_its_gradient(generator, weights_shape, excluded):
    z = torch.randn(3, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    keys = torch.randn(5, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    log_weights = torch.randn(weights_shape, dtype=torch.float64, generator=generator)

    def value(z, keys):
        return log_partition(z, keys, log_weights, temperature=0.3, excluded=excluded)

    expected = []
    for i in range(3):
        skipped = None if excluded is None else int(excluded[i])
        weights = log_weights.expand(3, 5)[i].exp().tolist()
        similarities = (keys @ z[i]).tolist()
        expected.append(math.log(sum(weights[k] * math.exp(similarities[k] / 0.3) for k in range(5) if k != skipped)))
    torch.testing.assert_close(value(z, keys), torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(value, (z, keys))


def test_the_anchors_may_be_the_keys(generator):
    z = torch.randn(4, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    itself = torch.arange(4)
    assert torch.autograd.gradcheck(
        lambda z: log_partition(z, z, z.new_zeros(4), temperature=0.5, excluded=itself), (z,)
    )


def test_an_anchor_without_keys_stays_finite():
    z = torch.ones(1, 2, requires_grad=True)
    value = log_partition(z, z, torch.zeros(1), temperature=0.01, excluded=torch.tensor([0]))
    (0 * value.sum()).backward()
    assert value.item() == torch.finfo(torch.float32).min
    assert torch.equal(z.grad, torch.zeros_like(z))


def test_the_gradient_can_be_taken_twice_from_one_forward_pass(generator):
    z = torch.randn(4, 3, generator=generator, requires_grad=True)
    value = log_partition(z, z, torch.zeros(4), temperature=0.5).sum()
    (first,) = torch.autograd.grad(value, z, retain_graph=True)
    (second,) = torch.autograd.grad(value, z)
    assert torch.equal(first, second)


def test_the_backward_pass_reads_nothing_back():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, keys = torch.empty(8, 4, requires_grad=True), torch.empty(5, 4, requires_grad=True)
        excluded = torch.empty(8, dtype=torch.long)
        log_partition(z, keys, torch.empty(5), temperature=0.1, excluded=excluded).sum().backward()
        assert (z.grad.shape, keys.grad.shape) == (z.shape, keys.shape)


@pytest.mark.parametrize("weights_shape", [(5,), (3, 5)])
@pytest.mark.parametrize("excluded", [None, torch.tensor([4, 0, 4])])
def test_second_derivatives_agree_with_finite_differences(generator, weights_shape, excluded):
    z = torch.randn(3, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    keys = torch.randn(5, 2, dtype=torch.float64, generator=generator, requires_grad=True)
    log_weights = torch.randn(weights_shape, dtype=torch.float64, generator=generator)

    def value(z, keys):
        return log_partition(z, keys, log_weights, temperature=0.3, excluded=excluded)

    assert torch.autograd.gradgradcheck(value, (z, keys))


@pytest.mark.parametrize("temperature", [0.01, 0.5])
def test_the_hessian_is_that_of_logsumexp(generator, temperature):
    z = torch.randn(4, 3, dtype=torch.float64, generator=generator)

    def plain(z):
        logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
        return logits.logsumexp(dim=1).mean()

    def ours(z):
        return log_partition(z, z, z.new_zeros(4), temperature=temperature, excluded=torch.arange(4)).mean()

    hessian = torch.autograd.functional.hessian
    torch.testing.assert_close(hessian(ours, z), hessian(plain, z))
    # A gradient to be differentiated is the same gradient.
    leaf = z.clone().requires_grad_()
    (kept,) = torch.autograd.grad(ours(leaf), leaf, create_graph=True)
    torch.testing.assert_close(kept, torch.autograd.grad(ours(leaf), leaf)[0], rtol=1e-12, atol=1e-12)


def test_the_hessian_of_an_anchor_without_keys_is_zero():
    z = torch.ones(1, 2)
    hessian = torch.autograd.functional.hessian(
        lambda z: 0 * log_partition(z, z, z.new_zeros(1), temperature=0.01, excluded=torch.tensor([0])).sum(), z
    )
    assert torch.equal(hessian, torch.zeros(1, 2, 1, 2))
