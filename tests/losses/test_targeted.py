import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize

from ltnb.losses import draw_positives, targeted_contrastive

LONG_TAILED = [0, 1, 4, 0, 2, 1, 0]
QUEUE = [0, 3, 1, 0, 0, 4]


def batch(labels=LONG_TAILED, queue=QUEUE, dim: int = 4, seed: int = 0) -> dict[str, Tensor]:
    """Queries, keys and five targets in disorder."""
    generator = torch.Generator().manual_seed(seed)
    y, key_labels = torch.tensor(labels), torch.tensor([*labels, *queue])
    z, keys, targets = (
        normalize(torch.randn(size, dim, dtype=torch.float64, generator=generator), dim=1)
        for size in (len(y), len(key_labels), 5)
    )
    return {
        "z": z,
        "y": y,
        "keys": keys,
        "key_labels": key_labels,
        "positives": draw_positives(y, key_labels, number=2, generator=generator),
        "targets": targets,
        "assignment": torch.randperm(5, generator=generator),
    }


def naive(arguments: dict[str, Tensor], weight: float, temperature: float) -> Tensor:
    """The equation, pair by pair, in Python floats."""
    keys, targets = arguments["keys"].double().tolist(), arguments["targets"].double().tolist()
    drawn, labels, assignment = (arguments[name].tolist() for name in ("positives", "y", "assignment"))

    def exponential(a, b):
        return math.exp(sum(x * y for x, y in zip(a, b, strict=True)) / temperature)

    losses = []
    for i, query in enumerate(arguments["z"].double().tolist()):
        denominator = sum(exponential(query, row) for row in keys + targets)
        chosen = [i, *(m for m in range(len(keys)) if drawn[i][m])]
        classes = sum(math.log(exponential(query, keys[p]) / denominator) for p in chosen)
        target = math.log(exponential(query, targets[assignment[labels[i]]]) / denominator)
        losses.append(-(classes + weight * target) / (len(chosen) + 1))
    return torch.tensor(losses, dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    queue=st.lists(st.integers(0, 4), max_size=6),
    weight=st.floats(0, 3),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_equals_the_equation_summed_pair_by_pair(labels, queue, weight, temperature, seed):
    arguments = batch(labels, queue, seed=seed)
    expected = naive(arguments, weight, temperature)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = targeted_contrastive(**arguments, weight=weight, temperature=temperature, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_collapse_onto_the_targets_gives_the_closed_form(weight, temperature):
    num_classes, size, number = 4, 5, 3
    corners = normalize(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes, dim=1)
    assignment = torch.tensor([2, 0, 3, 1])
    key_labels = torch.arange(num_classes).repeat(size)
    y = key_labels[:6]
    positives = draw_positives(y, key_labels, number=number, generator=torch.Generator().manual_seed(0))
    losses = targeted_contrastive(
        corners[y],
        y,
        corners[key_labels],
        key_labels,
        positives,
        corners[assignment.argsort()],
        assignment,
        weight=weight,
        temperature=temperature,
        reduction="none",
    )
    gap = math.exp(-num_classes / ((num_classes - 1) * temperature))
    log_denominator = math.log((size + 1) * (1 + (num_classes - 1) * gap))
    expected = (1 + number + weight) / (2 + number) * log_denominator
    torch.testing.assert_close(losses, torch.full_like(losses, expected), rtol=1e-9, atol=1e-12)


def test_the_weight_pulls_to_the_target_of_the_class_and_to_no_other():
    arguments = batch()
    arguments["z"].requires_grad_()
    losses = [targeted_contrastive(**arguments, weight=weight, temperature=0.1, reduction="sum") for weight in (0, 1)]
    (gradient,) = torch.autograd.grad(losses[1] - losses[0], arguments["z"])
    # What the weight adds is the cross-entropy of the target among keys and targets, over 2 + |P|.
    z = arguments["z"].detach().requires_grad_()
    rows = torch.cat([arguments["keys"], arguments["targets"]])
    own = len(arguments["keys"]) + arguments["assignment"][arguments["y"]]
    pull = torch.nn.functional.cross_entropy(z @ rows.T / 0.1, own, reduction="none")
    (expected,) = torch.autograd.grad((pull / (2 + arguments["positives"].sum(dim=1))).sum(), z)
    torch.testing.assert_close(gradient, expected)


def test_gradient_agrees_with_finite_differences():
    arguments = batch()
    z, keys, targets = (arguments.pop(name).requires_grad_() for name in ("z", "keys", "targets"))

    def losses(z, keys, targets):
        return targeted_contrastive(
            z, keys=keys, targets=targets, **arguments, weight=0.7, temperature=0.3, reduction="none"
        )

    assert torch.autograd.gradcheck(losses, (z, keys, targets))
    assert torch.autograd.gradcheck(losses, (z, keys.detach(), targets.detach()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(dtype):
    arguments = batch(dim=16)
    arguments |= {name: arguments[name].to(dtype) for name in ("z", "keys", "targets")}
    z = arguments["z"].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = targeted_contrastive(**arguments, weight=0.2, temperature=0.07, reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, naive(arguments, 0.2, 0.07).float(), rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    assert z.grad.dtype == dtype
    assert z.grad.isfinite().all()
    in_double = arguments | {"targets": arguments["targets"].double()}
    assert targeted_contrastive(**in_double, weight=0.2, temperature=0.1).dtype == torch.float64


def test_one_query_at_its_target_is_not_moved():
    arguments = batch([3], queue=[])
    target = arguments["targets"][arguments["assignment"][3]]
    arguments |= {"z": target[None].clone().requires_grad_(), "keys": target[None], "targets": target.expand(5, -1)}
    loss = targeted_contrastive(**arguments, weight=0.2, temperature=0.1)
    (gradient,) = torch.autograd.grad(loss, arguments["z"])
    assert loss.item() == pytest.approx((1 + 0.2) / 2 * math.log(6))
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        keys, key_labels = torch.empty(20, 4, device="cuda"), torch.empty(20, dtype=torch.long, device="cuda")
        positives = torch.empty(8, 20, dtype=torch.bool, device="cuda")
        targets, assignment = torch.empty(5, 4, device="cuda"), torch.empty(5, dtype=torch.long, device="cuda")
        loss = targeted_contrastive(z, y, keys, key_labels, positives, targets, assignment, weight=0.2, temperature=0.1)
        assert loss.shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(7, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"keys": torch.ones(13, 4)}, "keys must have unit rows, got norm 2 at row 0"),
        ({"key_labels": torch.zeros(13, dtype=torch.long)}, "key_labels must begin with y, got 0 for query 1"),
        ({"positives": torch.ones(7, 13, dtype=torch.bool)}, "positives must not hold a query's own key"),
        ({"targets": torch.ones(5, 4)}, "targets must have unit rows, got norm 2 at row 0"),
        ({"targets": torch.eye(5)}, r"targets must have rows of length 4 like z, got shape \(5, 5\)"),
        ({"targets": torch.eye(4), "assignment": torch.arange(4)}, r"y must lie in \[0, 4\), got 4"),
        ({"assignment": torch.arange(4)}, r"assignment must hold 5 integer labels, got shape \(4,\)"),
        ({"assignment": torch.arange(5) + 1}, r"assignment must lie in \[0, 5\), got 5"),
        ({"weight": -1}, "weight must be a finite number ≥ 0, got -1"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        targeted_contrastive(**({"weight": 0.2, "temperature": 0.1} | batch() | changes))
