import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, normalize

from ltnb.losses import logit_adjusted_cross_entropy, parametric_contrastive, supervised_contrastive

LONG_TAILED = [0, 1, 4, 0, 2, 1, 0]
QUEUE = [0, 3, 1, 0, 0, 4]
COUNTS = [90, 30, 9, 3, 1]


def batch(labels=LONG_TAILED, queue=QUEUE, dim: int = 4, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y, key_labels = torch.tensor(labels), torch.tensor([*labels, *queue])
    z, keys = (
        normalize(torch.randn(size, dim, dtype=torch.float64, generator=generator), dim=1)
        for size in (len(y), len(key_labels))
    )
    scores = 3 * torch.randn(len(y), 5, dtype=torch.float64, generator=generator)
    return {
        "z": z,
        "y": y,
        "keys": keys,
        "key_labels": key_labels,
        "scores": scores,
        "class_counts": torch.tensor(COUNTS),
    }


def naive(arguments: dict[str, Tensor], alpha: float, beta: float, temperature: float) -> Tensor:
    """The equation, pair by pair, in Python floats."""
    queries, labels = arguments["z"].double().tolist(), arguments["y"].tolist()
    samples = queries + arguments["keys"].double().tolist()
    sample_labels = labels + arguments["key_labels"].tolist()
    losses = []
    for i, (query, scores) in enumerate(zip(queries, arguments["scores"].double().tolist(), strict=True)):
        centres = [score + math.log(count / sum(COUNTS)) for score, count in zip(scores, COUNTS, strict=True)]
        logits = {
            m: sum(a * b for a, b in zip(query, sample, strict=True)) / temperature
            for m, sample in enumerate(samples)
            if m != i
        }
        log_denominator = math.log(sum(map(math.exp, [*centres, *logits.values()])))
        total, weights = beta * (centres[labels[i]] - log_denominator), beta
        for m, logit in logits.items():
            if sample_labels[m] == labels[i]:
                total, weights = total + alpha * (logit - log_denominator), weights + alpha
        losses.append(-total / weights)
    return torch.tensor(losses, dtype=torch.float64)


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=7),
    queue=st.lists(st.integers(0, 4), max_size=6),
    alpha=st.sampled_from([0.0, 0.02, 1.0]),
    beta=st.sampled_from([0.5, 1.0]),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_equals_the_equation_summed_pair_by_pair(labels, queue, alpha, beta, temperature, seed):
    arguments = batch(labels, queue, seed=seed)
    expected = naive(arguments, alpha, beta, temperature)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = parametric_contrastive(
            **arguments, sample_weight=alpha, centre_weight=beta, temperature=temperature, reduction=reduction
        )
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


def test_without_sample_weight_it_is_logit_adjustment_with_more_classes_in_the_denominator():
    arguments = batch()
    actual = parametric_contrastive(**arguments, sample_weight=0.0, temperature=0.1)
    prior = arguments["class_counts"] / arguments["class_counts"].sum()
    among = (arguments["z"] @ arguments["z"].T / 0.1).fill_diagonal_(-math.inf)
    logits = torch.cat([arguments["scores"] + prior.log(), among, arguments["z"] @ arguments["keys"].T / 0.1], dim=1)
    torch.testing.assert_close(actual, cross_entropy(logits, arguments["y"]))
    # Scores far above any similarity leave logit adjustment alone.
    arguments["scores"] += 100
    actual = parametric_contrastive(**arguments, sample_weight=0.0, temperature=0.1)
    plain = logit_adjusted_cross_entropy(arguments["scores"], arguments["y"], arguments["class_counts"])
    torch.testing.assert_close(actual, plain)


def test_without_centres_it_is_supervised_contrast_with_the_keys():
    arguments = batch()
    arguments["scores"] -= 1000
    actual = parametric_contrastive(**arguments, sample_weight=0.3, centre_weight=0.0, temperature=0.1)
    z, y, keys, key_labels = (arguments[name] for name in ("z", "y", "keys", "key_labels"))
    torch.testing.assert_close(actual, supervised_contrastive(z, y, temperature=0.1, keys=keys, key_labels=key_labels))


@pytest.mark.parametrize("temperature", [0.07, 1.0])
@pytest.mark.parametrize("alpha", [0.0, 0.02, 1.0])
def test_collapse_onto_a_regular_simplex_gives_the_closed_form(temperature, alpha):
    # n samples a class as queries, n as keys; centres at the corners too, equal counts and scores of the same scale:
    # every positive has the logit 1/τ, but the own centre, which has it less log K.
    num_classes, n = 4, 3
    corners = normalize(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes, dim=1)
    y = torch.arange(num_classes).repeat(n)
    z = corners[y]
    losses = parametric_contrastive(
        z,
        y,
        z,
        y,
        z @ corners.T / temperature,
        [7] * num_classes,
        sample_weight=alpha,
        temperature=temperature,
        reduction="none",
    )
    gap = math.exp(-num_classes / ((num_classes - 1) * temperature))
    own, others = 2 * n - 1 + 1 / num_classes, (num_classes - 1) * (2 * n + 1 / num_classes) * gap
    expected = math.log(own + others) + math.log(num_classes) / (1 + alpha * (2 * n - 1))
    torch.testing.assert_close(losses, torch.full_like(losses, expected), rtol=1e-9, atol=1e-12)


def test_gradient_agrees_with_finite_differences():
    arguments = batch()
    z, keys, scores = (arguments.pop(name).requires_grad_() for name in ("z", "keys", "scores"))

    def losses(z, keys, scores):
        return parametric_contrastive(
            z, keys=keys, scores=scores, **arguments, sample_weight=0.3, temperature=0.3, reduction="none"
        )

    assert torch.autograd.gradcheck(losses, (z, keys, scores))
    assert torch.autograd.gradcheck(losses, (z, keys.detach(), scores))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(dtype):
    arguments = batch(dim=16)
    arguments |= {name: arguments[name].to(dtype) for name in ("z", "keys", "scores")}
    z, scores = arguments["z"].requires_grad_(), arguments["scores"].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = parametric_contrastive(**arguments, sample_weight=0.1, temperature=0.05, reduction="none")
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, naive(arguments, 0.1, 1.0, 0.05).float(), rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    for leaf in (z, scores):
        assert leaf.grad.dtype == dtype
        assert leaf.grad.isfinite().all()
    in_double = arguments | {"scores": scores.double()}
    assert parametric_contrastive(**in_double, sample_weight=0.1, temperature=0.1).dtype == torch.float64


def test_one_query_alone_has_a_loss_and_a_gradient():
    arguments = batch([3], queue=[])
    arguments["scores"].requires_grad_()
    loss = parametric_contrastive(**arguments, sample_weight=0.1, temperature=0.01)
    (gradient,) = torch.autograd.grad(loss, arguments["scores"])
    assert loss.isfinite()
    # The gradient of scores sums to the softmax's weight on centres, less the share of the own centre.
    assert gradient.sum().item() != 0
    assert gradient[0, 3] < 0


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        keys, key_labels = torch.empty(20, 4, device="cuda"), torch.empty(20, dtype=torch.long, device="cuda")
        scores, counts = torch.empty(8, 5, device="cuda"), torch.empty(5, device="cuda")
        loss = parametric_contrastive(z, y, keys, key_labels, scores, counts, sample_weight=0.1, temperature=0.1)
        assert loss.shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(7, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"keys": torch.ones(13, 4)}, "keys must have unit rows, got norm 2 at row 0"),
        ({"key_labels": torch.zeros(13, dtype=torch.long)}, "key_labels must begin with y, got 0 for query 1"),
        ({"scores": torch.zeros(7)}, r"scores must be a non-empty floating-point matrix, got shape \(7,\)"),
        ({"scores": torch.zeros(6, 5)}, r"scores must have one row for each of 7 queries, got shape \(6, 5\)"),
        ({"scores": torch.zeros(7, 4)}, r"y must lie in \[0, 4\), got 4"),
        ({"class_counts": [1, 2]}, r"class_counts must hold one count for each of 5 classes, got shape \(2,\)"),
        ({"class_counts": [1, 2, 3, 4, 0]}, r"class_counts must be positive, got \[1, 2, 3, 4, 0\]"),
        ({"sample_weight": -1}, "sample_weight must be a finite number ≥ 0, got -1"),
        ({"centre_weight": math.inf}, "centre_weight must be a finite number ≥ 0, got inf"),
        ({"sample_weight": 0, "centre_weight": 0}, "sample_weight and centre_weight must not both be 0"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        parametric_contrastive(**({"sample_weight": 0.1, "temperature": 0.1} | batch() | changes))
