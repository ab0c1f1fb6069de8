import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize

from ltnb.losses import supervised_contrastive, valid_anchors

LONG_TAILED = [0, 1, 4, 0, 2, 1, 0, 4, 1, 0]


def batch(labels: list[int], dim: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(len(labels), dim, dtype=torch.float64, generator=generator)
    return normalize(z, dim=1), torch.tensor(labels)


def naive(
    z: Tensor, y: Tensor, temperature, keys: Tensor | None = None, key_labels: Tensor | None = None
) -> list[float]:
    """The equation, pair by pair, in Python floats; the temperature is a number or the anchors' own."""
    rows, labels = z.double().tolist(), y.tolist()
    temperatures = temperature.tolist() if isinstance(temperature, Tensor) else [temperature] * len(rows)
    if keys is not None:
        rows, labels = rows + keys.double().tolist(), labels + key_labels.tolist()
    losses = []
    for i, (anchor, tau) in enumerate(zip(rows, temperatures, strict=False)):
        logit = [sum(a * b for a, b in zip(anchor, row, strict=True)) / tau for row in rows]
        denominator = sum(math.exp(logit[k]) for k in range(len(rows)) if k != i)
        terms = [
            math.log(math.exp(logit[p]) / denominator) for p in range(len(rows)) if p != i and labels[p] == labels[i]
        ]
        losses.append(-sum(terms) / len(terms) if terms else 0.0)
    return losses


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_equals_the_equation_summed_pair_by_pair(labels, temperature, seed):
    z, y = batch(labels, seed=seed)
    expected = torch.tensor(naive(z, y, temperature), dtype=torch.float64)
    num_valid = sum(labels.count(label) > 1 for label in labels)
    assert valid_anchors(y).tolist() == [labels.count(label) > 1 for label in labels]
    for reduction, value in {
        "none": expected,
        "sum": expected.sum(),
        "mean": expected.sum() / max(num_valid, 1),
    }.items():
        actual = supervised_contrastive(z, y, temperature=temperature, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=7),
    key_labels=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    own_temperatures=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_further_keys_and_own_temperatures_equal_the_equation_summed_pair_by_pair(
    labels, key_labels, own_temperatures, seed
):
    z, y = batch(labels, seed=seed)
    keys, key_labels = batch(key_labels, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    temperature = 0.05 + torch.rand(len(z), dtype=torch.float64, generator=generator) if own_temperatures else 0.1
    expected = torch.tensor(naive(z, y, temperature, keys, key_labels), dtype=torch.float64)
    valid = [labels.count(label) > 1 or label in key_labels.tolist() for label in labels]
    assert valid_anchors(y, key_labels=key_labels).tolist() == valid
    for reduction, value in {"none": expected, "mean": expected.sum() / max(sum(valid), 1)}.items():
        actual = supervised_contrastive(
            z, y, temperature=temperature, keys=keys, key_labels=key_labels, reduction=reduction
        )
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


def test_equal_temperatures_are_one_temperature():
    z, y = batch(LONG_TAILED)
    own = torch.full((len(z),), 0.3, dtype=torch.float64)
    torch.testing.assert_close(
        supervised_contrastive(z, y, temperature=own, reduction="none"),
        supervised_contrastive(z, y, temperature=0.3, reduction="none"),
    )


def test_a_pair_has_the_temperature_of_its_anchor():
    z, y = batch([0, 0, 1])
    temperature = torch.tensor([0.1, 0.5, 1.0], dtype=torch.float64)
    losses = supervised_contrastive(z, y, temperature=temperature, reduction="none")
    for i in (0, 1):
        alone = supervised_contrastive(z, y, temperature=temperature[i].item(), reduction="none")
        assert losses[i].item() == pytest.approx(alone[i].item(), rel=1e-12)


def test_keys_are_the_samples_that_are_no_anchors():
    z, y = batch(LONG_TAILED)
    # Every anchor sees the same as in the batch of all, where the last four are anchors too.
    together = supervised_contrastive(z, y, temperature=0.2, reduction="none")
    apart = supervised_contrastive(z[:6], y[:6], temperature=0.2, keys=z[6:], key_labels=y[6:].int(), reduction="none")
    torch.testing.assert_close(apart, together[:6])


def test_a_key_alone_makes_an_anchor_count():
    z, y = batch([0, 1])
    keys, key_labels = batch([1, 2], seed=1)
    losses = supervised_contrastive(z, y, temperature=0.5, keys=keys, key_labels=key_labels, reduction="none")
    assert losses[0] == 0
    assert losses[1] > 0
    assert supervised_contrastive(z, y, temperature=0.5, keys=keys, key_labels=key_labels) == losses[1]


def test_gradient_reaches_anchors_keys_and_temperatures():
    z, y = batch([0, 1, 4, 0, 2, 1])
    keys, key_labels = batch([0, 2, 3, 4, 4], seed=1)
    temperature = torch.linspace(0.2, 0.7, 6, dtype=torch.float64)

    def losses(z, keys, temperature):
        return supervised_contrastive(z, y, temperature=temperature, keys=keys, key_labels=key_labels, reduction="none")

    leaves = z.requires_grad_(), keys.requires_grad_(), temperature.requires_grad_()
    assert torch.autograd.gradcheck(losses, leaves)
    assert torch.autograd.gradgradcheck(losses, leaves)


def test_gradient_agrees_with_finite_differences():
    z, y = batch(LONG_TAILED)
    assert torch.autograd.gradcheck(
        lambda z: supervised_contrastive(z, y, temperature=0.3, reduction="none"), (z.requires_grad_(),)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.01, 0.1])
def test_low_precision_input_is_computed_in_float32(dtype, temperature):
    z, y = batch(LONG_TAILED, dim=16)
    z = z.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = supervised_contrastive(z, y, temperature=temperature, reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, torch.tensor(naive(z.detach(), y, temperature)), rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    assert z.grad.dtype == dtype
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_and_temperatures_of_low_precision_are_computed_in_float32(dtype):
    z, y = batch(LONG_TAILED, dim=16)
    keys, key_labels = batch([1, 3, 4], dim=16, seed=1)
    z, keys = z.to(dtype).requires_grad_(), keys.to(dtype)
    temperature = torch.linspace(0.05, 0.5, len(z), dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = supervised_contrastive(
            z, y, temperature=temperature, keys=keys, key_labels=key_labels, reduction="none"
        )
    assert losses.dtype == torch.float32
    expected = torch.tensor(naive(z.detach(), y, temperature, keys, key_labels))
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    assert z.grad.dtype == dtype
    assert (
        supervised_contrastive(z, y, temperature=0.1, keys=keys.double(), key_labels=key_labels).dtype == torch.float64
    )


@pytest.mark.parametrize("labels", [[0], [0, 1], [4, 2, 0]])
def test_without_any_positive_the_loss_is_a_zero_with_a_gradient(labels):
    z, y = batch(labels)
    z = z.float().requires_grad_()
    for reduction in ("mean", "sum"):
        loss = supervised_contrastive(z, y, temperature=0.01, reduction=reduction)
        (gradient,) = torch.autograd.grad(loss, z)
        assert loss == 0
        assert torch.equal(gradient, torch.zeros_like(z))
    assert valid_anchors(y).sum() == 0
    assert valid_anchors(y, prototypes=True).sum() == len(labels)


def test_an_anchor_without_a_positive_does_not_dilute_the_mean():
    z, y = batch([0, 0, 1])
    losses = supervised_contrastive(z, y, temperature=0.5, reduction="none")
    assert losses[2] == 0
    assert supervised_contrastive(z, y, temperature=0.5) == pytest.approx(losses[:2].mean().item())


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_regular_simplex_gives_the_bound_of_theorem_1(size, temperature):
    num_classes = 4
    centres = normalize(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes, dim=1)
    y = torch.arange(num_classes).repeat(size)
    gap = math.exp(-num_classes / ((num_classes - 1) * temperature))
    bound = math.log(size - 1 + size * (num_classes - 1) * gap)
    losses = supervised_contrastive(centres[y], y, temperature=temperature, reduction="none")
    torch.testing.assert_close(losses, torch.full_like(losses, bound), rtol=1e-9, atol=1e-12)
    # One anchor a class, its other samples as keys: the balance that synthetic features are to bring.
    losses = supervised_contrastive(
        centres,
        y[:num_classes],
        temperature=temperature,
        keys=centres[y[num_classes:]],
        key_labels=y[num_classes:],
        reduction="none",
    )
    torch.testing.assert_close(losses, torch.full_like(losses, bound), rtol=1e-9, atol=1e-12)


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        assert supervised_contrastive(z, y, temperature=0.1).shape == ()
        own = torch.empty(8, device="cuda")
        assert supervised_contrastive(z, y, temperature=own, keys=z, key_labels=y).shape == ()
        assert valid_anchors(y).shape == (8,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(10, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"y": torch.zeros(10, 1, dtype=torch.long)}, r"y must hold 10 integer labels, got shape \(10, 1\)"),
        ({"y": torch.zeros(10, dtype=torch.bool)}, "y must hold 10 integer labels, got .* of torch.bool"),
        ({"temperature": -0.1}, "temperature must be a positive finite number, got -0.1"),
        ({"temperature": torch.ones(9)}, r"temperature must be .* each of 10 anchors, got shape \(9,\)"),
        ({"temperature": torch.ones(10, dtype=torch.int)}, "temperature must be .* of torch.int32"),
        ({"temperature": torch.eye(10)[0]}, "temperature must be positive and finite, got 0 of anchor 1"),
        ({"temperature": torch.full((10,), math.nan)}, "temperature must be positive and finite, got nan of anchor 0"),
        ({"keys": torch.eye(4)}, "keys and key_labels go together, got keys with key_labels=None"),
        ({"key_labels": torch.arange(4)}, "keys and key_labels go together, got key_labels with keys=None"),
        ({"keys": torch.eye(3), "key_labels": torch.arange(3)}, r"keys must have rows of length 4 like z, .* \(3, 3\)"),
        ({"keys": 2 * torch.eye(4), "key_labels": torch.arange(4)}, "keys must have unit rows, got norm 2 at row 0"),
        ({"keys": torch.eye(4), "key_labels": torch.arange(3)}, "key_labels must hold 4 integer labels, got"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    z, y = batch(LONG_TAILED)
    with pytest.raises(ValueError, match=message):
        supervised_contrastive(**({"z": z, "y": y, "temperature": 0.1} | changes))


def test_rows_normalised_in_bfloat16_count_as_unit():
    generator = torch.Generator().manual_seed(0)
    z = normalize(torch.randn(512, 1024, generator=generator).bfloat16(), dim=1)
    assert supervised_contrastive(z, torch.arange(512) % 10, temperature=0.1).isfinite()
