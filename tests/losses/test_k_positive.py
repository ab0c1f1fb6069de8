import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, normalize

from ltnb.losses import draw_positives, k_positive_contrastive, supervised_contrastive

LONG_TAILED = [0, 1, 4, 0, 2, 1, 0]
QUEUE = [0, 3, 1, 0, 0, 4]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(labels=LONG_TAILED, queue=QUEUE, number: int = 2, dim: int = 4, seed: int = 0) -> dict[str, Tensor]:
    generator = seeded(seed)
    y, key_labels = torch.tensor(labels), torch.tensor([*labels, *queue])
    z = normalize(torch.randn(len(y), dim, dtype=torch.float64, generator=generator), dim=1)
    keys = normalize(torch.randn(len(key_labels), dim, dtype=torch.float64, generator=generator), dim=1)
    positives = draw_positives(y, key_labels, number=number, generator=generator)
    return {"z": z, "y": y, "keys": keys, "key_labels": key_labels, "positives": positives}


def naive(arguments: dict[str, Tensor], temperature: float) -> Tensor:
    """The equation, pair by pair, in Python floats."""
    keys, drawn = arguments["keys"].double().tolist(), arguments["positives"].tolist()
    losses = []
    for i, query in enumerate(arguments["z"].double().tolist()):
        logit = [sum(a * b for a, b in zip(query, key, strict=True)) / temperature for key in keys]
        denominator = sum(math.exp(value) for value in logit)
        chosen = [i, *(m for m in range(len(keys)) if drawn[i][m])]
        losses.append(-sum(math.log(math.exp(logit[p]) / denominator) for p in chosen) / len(chosen))
    return torch.tensor(losses, dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    queue=st.lists(st.integers(0, 3), max_size=8),
    number=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
def test_as_many_positives_as_asked_or_as_there_are(labels, queue, number, seed):
    y, key_labels = torch.tensor(labels), torch.tensor([*labels, *queue])
    drawn = draw_positives(y, key_labels, number=number, generator=seeded(seed))
    assert drawn.dtype == torch.bool
    for i, label in enumerate(labels):
        others = [m for m in range(len(key_labels)) if m != i and key_labels[m] == label]
        chosen = drawn[i].nonzero().flatten().tolist()
        assert set(chosen) <= set(others)
        assert len(chosen) == min(number, len(others))


def test_every_set_is_equally_likely_and_queries_draw_independently():
    y = torch.zeros(2, dtype=torch.long)
    generator, count = seeded(), 6000
    # Two queries, each with three other keys of which it takes two: nine outcomes.
    outcomes = Counter(
        str(draw_positives(y, torch.zeros(4, dtype=torch.long), number=2, generator=generator).int().tolist())
        for _ in range(count)
    )
    assert len(outcomes) == 9
    for times in outcomes.values():
        assert abs(times - count / 9) < 4 * math.sqrt(count / 9 * 8 / 9)


def test_the_same_generator_draws_the_same():
    y = torch.zeros(20, dtype=torch.long)
    first, again, other = (draw_positives(y, y, number=3, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=7),
    queue=st.lists(st.integers(0, 4), max_size=6),
    number=st.integers(1, 4),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_equals_the_equation_summed_pair_by_pair(labels, queue, number, temperature, seed):
    arguments = batch(labels, queue, number, seed=seed)
    expected = naive(arguments, temperature)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = k_positive_contrastive(**arguments, temperature=temperature, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


def test_without_drawn_positives_it_is_the_cross_entropy_of_the_own_key():
    arguments = batch([0, 1, 2], queue=[3, 3])
    assert not arguments["positives"].any()
    logits = arguments["z"] @ arguments["keys"].T / 0.2
    torch.testing.assert_close(
        k_positive_contrastive(**arguments, temperature=0.2), cross_entropy(logits, torch.arange(3))
    )


def test_with_all_positives_it_is_supervised_contrast_with_the_keys():
    # One query: the supervised loss would have further ones among the keys.
    arguments = batch([5], queue=[5, 1, 5, 2], number=9)
    expected = supervised_contrastive(
        arguments["z"], arguments["y"], temperature=0.2, keys=arguments["keys"], key_labels=arguments["key_labels"]
    )
    torch.testing.assert_close(k_positive_contrastive(**arguments, temperature=0.2), expected)


def test_keys_of_the_class_that_are_not_drawn_still_push():
    arguments = batch([0], queue=[0, 0], number=1)
    left_out = int((~arguments["positives"][0, 1:]).nonzero()[0]) + 1
    before = k_positive_contrastive(**arguments, temperature=0.2)
    arguments["keys"][left_out] = arguments["z"][0]
    assert k_positive_contrastive(**arguments, temperature=0.2) > before + 0.1


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_collapse_onto_a_regular_simplex_gives_the_closed_form(temperature):
    num_classes, size = 4, 5
    corners = normalize(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes, dim=1)
    key_labels = torch.arange(num_classes).repeat(size)
    y = key_labels[:6]
    positives = draw_positives(y, key_labels, number=3, generator=seeded())
    losses = k_positive_contrastive(
        corners[y], y, corners[key_labels], key_labels, positives, temperature=temperature, reduction="none"
    )
    gap = math.exp(-num_classes / ((num_classes - 1) * temperature))
    expected = math.log(size) + math.log1p((num_classes - 1) * gap)
    torch.testing.assert_close(losses, torch.full_like(losses, expected), rtol=1e-9, atol=1e-12)


def test_gradient_agrees_with_finite_differences():
    arguments = batch()
    z, keys = arguments.pop("z").requires_grad_(), arguments.pop("keys")

    def losses(z, keys):
        return k_positive_contrastive(z, keys=keys, **arguments, temperature=0.3, reduction="none")

    assert torch.autograd.gradcheck(losses, (z, keys))
    assert torch.autograd.gradcheck(losses, (z, keys.requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(dtype):
    arguments = batch(dim=16)
    z, keys = arguments["z"].to(dtype).requires_grad_(), arguments["keys"].to(dtype)
    arguments |= {"z": z, "keys": keys}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = k_positive_contrastive(**arguments, temperature=0.07, reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, naive(arguments, 0.07).float(), rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    assert z.grad.dtype == dtype
    assert z.grad.isfinite().all()
    assert k_positive_contrastive(**arguments | {"keys": keys.double()}, temperature=0.1).dtype == torch.float64


def test_one_query_alone_has_loss_zero_and_a_gradient():
    arguments = batch([3], queue=[])
    arguments["z"].requires_grad_()
    loss = k_positive_contrastive(**arguments, temperature=0.01)
    (gradient,) = torch.autograd.grad(loss, arguments["z"])
    torch.testing.assert_close(loss, torch.zeros_like(loss))
    torch.testing.assert_close(gradient, torch.zeros_like(gradient))


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        keys, key_labels = torch.empty(20, 4, device="cuda"), torch.empty(20, dtype=torch.long, device="cuda")
        positives = draw_positives(y, key_labels, number=6, generator=None)
        assert positives.shape == (8, 20)
        assert k_positive_contrastive(z, y, keys, key_labels, positives, temperature=0.1).shape == ()


def marked(query: int, key: int) -> Tensor:
    positives = torch.zeros(7, 13, dtype=torch.bool)
    positives[query, key] = True
    return positives


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(7, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"y": torch.zeros(7)}, "y must hold 7 integer labels, got .* of torch.float32"),
        ({"keys": torch.ones(13, 4)}, "keys must have unit rows, got norm 2 at row 0"),
        ({"keys": torch.eye(13)}, r"keys must have rows of length 4 like z, got shape \(13, 13\)"),
        (
            {"key_labels": torch.zeros(12, dtype=torch.long)},
            r"key_labels must hold 13 integer labels, got shape \(12,\)",
        ),
        (
            {"keys": torch.eye(4), "key_labels": torch.arange(4)},
            "keys must begin with the own keys of 7 queries, got 4",
        ),
        (
            {"key_labels": torch.zeros(13, dtype=torch.long)},
            "key_labels must begin with y, got 0 for query 1 of class 1",
        ),
        ({"positives": torch.zeros(7, 7, dtype=torch.bool)}, r"positives must be bool of shape \(7, 13\), got .*7, 7"),
        ({"positives": torch.zeros(7, 13)}, "positives must be bool of .* of torch.float32"),
        ({"positives": marked(2, 2)}, "positives must not hold a query's own key, .* got it for query 2"),
        ({"positives": marked(2, 8)}, "must be of the query's class, got key 8 of class 3 for query 2 of class 4"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        k_positive_contrastive(**({"temperature": 0.1} | batch() | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"number": 0}, "number must be an integer of at least 1, got 0"),
        ({"number": 1.5}, "number must be .* got 1.5"),
        ({"y": torch.zeros(2)}, "y must hold 2 integer labels, got .* of torch.float32"),
        ({"key_labels": torch.tensor([0])}, "keys must begin with the own keys of 2 queries, got 1 keys"),
        ({"key_labels": torch.tensor([0, 0, 1])}, "key_labels must begin with y, got 0 for query 1 of class 1"),
    ],
)
def test_bad_input_of_the_draw_is_named(changes, message):
    arguments = {"y": torch.tensor([0, 1]), "key_labels": torch.tensor([0, 1, 1]), "number": 1, "generator": None}
    with pytest.raises(ValueError, match=message):
        draw_positives(**(arguments | changes))


def test_a_non_finite_embedding_shows_in_the_loss():
    arguments = batch()
    arguments["z"][3, 1] = math.nan
    assert k_positive_contrastive(**arguments, temperature=0.1).isnan()
