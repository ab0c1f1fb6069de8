import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize

from ltnb.geometry import regular_simplex
from ltnb.losses import bce_contrastive, bce_joint, bce_uniform

NUM_CLASSES, DIM = 5, 4
# Class 3 is absent.
LABELS = [0, 1, 4, 0, 2, 1, 0, 4]


def batch(labels: list[int] = LABELS, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, labels, one row a class and biases; no row is of norm 1."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, dtype=torch.float64, generator=generator)
    return 2 * draw(len(labels), DIM), torch.tensor(labels), 3 * draw(NUM_CLASSES, DIM), draw(NUM_CLASSES)


def softplus(s: float) -> float:
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def unit(row: list[float]) -> list[float]:
    norm = math.sqrt(sum(a * a for a in row))
    return [a / norm for a in row]


def dot(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def shares(y: Tensor) -> list[list[float]]:
    """Soft labels as they are, indices as one whole class each."""
    if y.is_floating_point():
        return y.double().tolist()
    return [[float(j == label) for j in range(NUM_CLASSES)] for label in y.tolist()]


def naive_joint(features, y, weight, bias, kept=None) -> Tensor:
    losses = []
    for i, (x, label) in enumerate(zip(features.double().tolist(), shares(y), strict=True)):
        loss = 0.0
        for j, (w, b) in enumerate(zip(weight.double().tolist(), bias.double().tolist(), strict=True)):
            s = dot(unit(w), x) + b
            if label[j] > 0:
                loss += label[j] * softplus(-s)
            elif kept is None or kept[i][j]:
                loss += softplus(s)
        losses.append(loss)
    return torch.tensor(losses, dtype=torch.float64)


def naive_contrastive(z, y, memory, temperature, seen=None) -> Tensor:
    losses = []
    for anchor, label in zip(z.double().tolist(), shares(y), strict=True):
        loss = 0.0
        has_positive = any(share > 0 and (seen is None or seen[j]) for j, share in enumerate(label))
        for j, row in enumerate(memory.double().tolist()):
            if has_positive and (seen is None or seen[j]):
                s = dot(unit(anchor), unit(row)) / temperature
                loss += label[j] * softplus(-s) if label[j] > 0 else softplus(s)
        losses.append(loss)
    return torch.tensor(losses, dtype=torch.float64)


def naive_uniform(weight) -> float:
    rows = [unit(row) for row in weight.double().tolist()]
    pairs = [softplus(dot(a, b)) for k, a in enumerate(rows) for j, b in enumerate(rows) if j != k]
    return sum(pairs) / len(rows)


def test_joint_equals_the_formula_summed_term_by_term():
    inputs = batch()
    expected = naive_joint(*inputs)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        torch.testing.assert_close(bce_joint(*inputs, reduction=reduction), value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("seen", [None, [True, False, True, True, True], [False, False, True, False, False]])
def test_contrastive_equals_the_formula_summed_term_by_term(temperature, seen):
    z, y, memory, _ = batch()
    expected = naive_contrastive(z, y, memory, temperature, seen)
    num_valid = sum(seen is None or seen[label] for label in LABELS)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.sum() / num_valid}.items():
        actual = bce_contrastive(
            z,
            y,
            memory,
            temperature=temperature,
            seen=None if seen is None else torch.tensor(seen),
            reduction=reduction,
        )
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_uniform_equals_the_formula_summed_term_by_term(seed):
    weight = batch(seed=seed)[2]
    assert bce_uniform(weight).item() == pytest.approx(naive_uniform(weight), rel=1e-13)


def mixed_labels() -> Tensor:
    """Two classes in the shares of a mixed image, but for one label that is all of one class."""
    y = torch.tensor(LABELS)
    first, second = (torch.nn.functional.one_hot(labels, NUM_CLASSES).double() for labels in (y, y.roll(1)))
    lam = torch.tensor([0.5, 0.9, 0.3, 0.25, 0.7, 1.0, 0.6, 0.125], dtype=torch.float64)[:, None]
    return lam * first + (1 - lam) * second


def test_soft_labels_weigh_the_positive_terms_and_leave_the_other_classes_negatives():
    x, _, rows, bias = batch()
    y = mixed_labels()
    expected = naive_joint(x, y, rows, bias)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = bce_joint(x, y, rows, bias, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=1e-12)
    actual = bce_contrastive(x, y, rows, temperature=0.2, reduction="none")
    torch.testing.assert_close(actual, naive_contrastive(x, y, rows, 0.2), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_sampling_leaves_every_class_of_a_soft_label(rate):
    x, _, rows, bias = batch()
    generator = torch.Generator().manual_seed(7)
    losses = bce_joint(x, mixed_labels(), rows, bias, negative_rate=rate, generator=generator, reduction="none")
    expected = naive_joint(x, mixed_labels(), rows, bias, kept=kept_classes(7, rate, len(x)))
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seen", [[True, False, True, True, True], [False, False, True, False, False]])
def test_the_unseen_classes_of_a_soft_label_drop_out(seen):
    z, _, memory, _ = batch()
    y = mixed_labels()
    expected = naive_contrastive(z, y, memory, 0.2, seen)
    num_valid = sum(any(s and share > 0 for s, share in zip(seen, label, strict=True)) for label in y.tolist())
    assert num_valid > 0
    for reduction, value in {"none": expected, "mean": expected.sum() / num_valid}.items():
        actual = bce_contrastive(z, y, memory, temperature=0.2, seen=torch.tensor(seen), reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=1e-12)


def test_a_soft_label_of_one_class_is_its_index():
    x, y, rows, bias = batch()
    soft = torch.nn.functional.one_hot(y, NUM_CLASSES).float()
    seen = torch.tensor([True, False, True, True, True])
    for negatives in ("independent", "batch"):
        hard, same = (
            bce_joint(
                x,
                labels,
                rows,
                bias,
                negative_rate=0.5,
                negatives=negatives,
                generator=torch.Generator().manual_seed(0),
            )
            for labels in (y, soft)
        )
        assert torch.equal(hard, same)
    hard, same = (bce_contrastive(x, labels, rows, temperature=0.1, seen=seen) for labels in (y, soft))
    assert torch.equal(hard, same)


def test_gradients_agree_with_finite_differences():
    features, y, weight, bias = batch()
    seen = torch.tensor([True, False, True, True, True])
    for x in (features, weight, bias):
        x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w, b: bce_joint(x, y, w, b, reduction="none"), (features, weight, bias))
    assert torch.autograd.gradcheck(
        lambda z, m: bce_contrastive(z, y, m, temperature=0.3, seen=seen, reduction="none"), (features, weight)
    )
    assert torch.autograd.gradcheck(bce_uniform, (weight,))


def test_gradient_of_sampled_negatives_agrees_with_finite_differences():
    features, y, weight, bias = batch()

    def losses(x, w, b):
        generator = torch.Generator().manual_seed(3)
        return bce_joint(x, y, w, b, negative_rate=0.5, generator=generator, reduction="none")

    assert torch.autograd.gradcheck(losses, (features.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()))


def test_gradient_with_soft_labels_agrees_with_finite_differences():
    x, _, rows, bias = batch()
    y, seen = mixed_labels(), torch.tensor([True, False, True, True, False])
    leaves = x.requires_grad_(), rows.requires_grad_(), bias.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w, b: bce_joint(x, y, w, b, reduction="none"), leaves)
    assert torch.autograd.gradcheck(
        lambda z, m: bce_contrastive(z, y, m, temperature=0.3, seen=seen, reduction="none"), leaves[:2]
    )


def test_only_directions_of_normalised_rows_matter():
    features, y, weight, bias = batch()
    lengths = torch.tensor([0.1, 5, 1, 30, 2], dtype=torch.float64)[:, None]
    for loss in (
        lambda w: bce_joint(features, y, w, bias),
        lambda w: bce_contrastive(features, y, w, temperature=0.5),
        bce_uniform,
    ):
        longer = (lengths * weight).requires_grad_()
        value = loss(longer)
        torch.testing.assert_close(value, loss(weight))
        value.backward()
        torch.testing.assert_close((longer.grad * longer).sum(dim=1), torch.zeros(NUM_CLASSES, dtype=torch.float64))
    assert not torch.isclose(bce_joint(2 * features, y, weight, bias), bce_joint(features, y, weight, bias))


# The classes that a generator keeps, drawn here as the docstring says: p < r for every sample and class.
def kept_classes(seed: int, rate: float, num_samples: int) -> list[list[bool]]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(num_samples, NUM_CLASSES, generator=generator) < rate).tolist()


@pytest.mark.parametrize("rate", [0.1, 0.4, 0.9])
def test_negatives_are_drawn_for_every_sample_and_class_and_the_own_class_stays(rate):
    inputs = batch()
    generator = torch.Generator().manual_seed(7)
    actual = bce_joint(*inputs, negative_rate=rate, generator=generator, reduction="none")
    expected = naive_joint(*inputs, kept=kept_classes(7, rate, len(LABELS)))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_the_kept_negatives_are_the_rate_times_all_in_expectation():
    features, y, weight, bias = batch([0])
    full = naive_joint(features, y, weight, bias)
    positive = naive_joint(features, y, weight, bias, kept=[[False] * NUM_CLASSES])
    draws, rate = 20_000, 0.4
    losses = bce_joint(
        features.expand(draws, DIM),
        y.expand(draws),
        weight,
        bias,
        negative_rate=rate,
        generator=torch.Generator().manual_seed(0),
        reduction="none",
    )
    expected = (positive + rate * (full - positive)).item()
    standard_error = losses.std().item() / math.sqrt(draws)
    assert abs(losses.mean().item() - expected) < 4 * standard_error
    assert abs(full.item() - expected) > 40 * standard_error


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8, 0.99])
@pytest.mark.parametrize("soft", [False, True])
def test_negatives_by_batch_are_the_classes_of_the_batch_filled_up_at_random(rate, soft):
    x, y, rows, bias = batch([0, 1, 0, 1])
    if soft:
        y = torch.tensor([[0.5, 0.5, 0, 0, 0]] * 4)
    generator = torch.Generator().manual_seed(5)
    actual = bce_joint(x, y, rows, bias, negative_rate=rate, negatives="batch", generator=generator, reduction="none")
    # As the docstring says: the classes 0 and 1, then the others in the order of one draw a class.
    p = torch.rand(NUM_CLASSES, generator=torch.Generator().manual_seed(5)).tolist()
    others = sorted([2, 3, 4], key=p.__getitem__)
    kept = [0, 1, *others[: max(int(NUM_CLASSES * rate) - 2, 0)]]
    expected = naive_joint(x, y, rows, bias, kept=[[j in kept for j in range(NUM_CLASSES)]] * 4)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_sampling_repeats_with_its_seed_and_leaves_the_generator_alone_at_rate_one():
    inputs = batch()
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    bce_joint(*inputs, generator=generator)
    assert torch.equal(generator.get_state(), before)
    first = bce_joint(*inputs, negative_rate=0.5, generator=generator)
    assert bce_joint(*inputs, negative_rate=0.5, generator=torch.Generator().manual_seed(0)) == first
    assert bce_joint(*inputs, negative_rate=0.5, generator=generator) != first


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32(dtype):
    x, y, rows, bias = (t.to(dtype) if t.is_floating_point() else t for t in batch())
    for loss, expected in (
        (bce_joint(x, y, rows, bias, reduction="none"), naive_joint(x, y, rows, bias)),
        (bce_contrastive(x, y, rows, temperature=0.1, reduction="none"), naive_contrastive(x, y, rows, 0.1)),
        (bce_uniform(rows), torch.tensor(naive_uniform(rows))),
    ):
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-5)
    leaf = rows.clone().requires_grad_()
    bce_uniform(leaf).backward()
    assert leaf.grad.dtype == dtype
    soft = mixed_labels().to(dtype)
    loss = bce_joint(x, soft, rows, bias, reduction="none")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, naive_joint(x, soft, rows, bias).float(), rtol=1e-5, atol=1e-5)


def test_mixed_types_are_promoted():
    x, y, rows, bias = batch()
    assert bce_joint(x.bfloat16(), y, rows, bias.float()).dtype == torch.float64
    assert bce_joint(x.float(), y, rows.float(), bias).dtype == torch.float64
    assert bce_contrastive(x.bfloat16(), y, rows, temperature=0.1).dtype == torch.float64


def test_autocast_does_not_lower_the_precision():
    x, y, rows, bias = (t.float() if t.is_floating_point() else t for t in batch())

    def losses():
        return torch.stack(
            [bce_joint(x, y, rows, bias), bce_contrastive(x, y, rows, temperature=0.1), bce_uniform(rows)]
        )

    expected = losses()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = losses()
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_logits_keep_their_value_and_their_gradient(dtype):
    # The released code clamps logits at ±64, where the gradient ends, because exp(s) overflows.
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=dtype)
    features = torch.tensor([[-500.0, 0.0], [30.0, 0.0]], dtype=dtype, requires_grad=True)
    losses = bce_joint(features, torch.tensor([0, 0]), weight, torch.zeros(2, dtype=dtype), reduction="none")
    assert losses[0].item() == 1000
    assert losses[1].item() == pytest.approx(2 * math.exp(-30), rel=1e-6)
    losses.sum().backward()
    assert features.grad[0, 0].item() == -2
    assert features.grad[1, 0].item() == pytest.approx(-2 * math.exp(-30), rel=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("radius", [0.5, 10.0])
def test_regular_simplex_gives_the_closed_forms(num_classes, radius):
    simplex = regular_simplex(num_classes, num_classes + 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(num_classes).repeat(2)
    own, others = softplus(-radius), (num_classes - 1) * softplus(-radius / (num_classes - 1))
    joint = bce_joint(radius * simplex[y], y, simplex, torch.zeros(num_classes, dtype=torch.float64), reduction="none")
    contrastive = bce_contrastive(simplex[y], y, simplex, temperature=1 / radius, reduction="none")
    torch.testing.assert_close(joint, torch.full_like(joint, own + others))
    torch.testing.assert_close(contrastive, torch.full_like(contrastive, own + others))
    uniform = (num_classes - 1) * softplus(-1 / (num_classes - 1))
    leaf = simplex.clone().requires_grad_()
    loss = bce_uniform(leaf)
    assert loss.item() == pytest.approx(uniform, rel=1e-13)
    loss.backward()
    torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf), rtol=0, atol=1e-13)


def test_the_uniform_term_at_a_hundred_classes():
    # papers.md §3.1, which counts the constant of the positive term in.
    constant = math.log1p(math.exp(-1))
    assert bce_uniform(regular_simplex(100, 99)).item() + constant == pytest.approx(68.44, abs=5e-3)
    assert bce_uniform(torch.eye(100)).item() + constant == pytest.approx(68.93, abs=5e-3)


@pytest.mark.parametrize("fill", [math.nan, 0.0])
def test_what_an_unseen_row_holds_does_not_matter(fill):
    z, y, memory, _ = batch()
    seen = torch.tensor([True, False, True, True, True])
    unfilled = memory.clone()
    unfilled[1] = fill
    grads = []
    for rows in (memory, unfilled):
        leaves = z.clone().requires_grad_(), rows.clone().requires_grad_()
        loss = bce_contrastive(leaves[0], y, leaves[1], temperature=0.2, seen=seen)
        loss.backward()
        grads.append((loss.detach(), leaves[0].grad, leaves[1].grad))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert torch.equal(grads[0][1][y == 1], torch.zeros(2, DIM, dtype=torch.float64))


def test_a_memory_that_has_seen_no_class_of_the_batch_gives_a_zero_with_a_gradient():
    z, y, memory, _ = batch()
    z.requires_grad_()
    for seen in (torch.zeros(NUM_CLASSES, dtype=torch.bool), torch.arange(NUM_CLASSES) == 3):
        z.grad = None
        loss = bce_contrastive(z, y, memory * torch.nan if not seen.any() else memory, temperature=0.2, seen=seen)
        loss.backward()
        assert loss == 0
        assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.parametrize("labels", [[0], [2, 2, 2], [0, 1, 2, 3, 4]], ids=["one", "one class", "one of each"])
def test_small_batches(labels):
    x, y, rows, bias = batch(labels)
    torch.testing.assert_close(bce_joint(x, y, rows, bias), naive_joint(x, y, rows, bias).mean())
    torch.testing.assert_close(bce_contrastive(x, y, rows, temperature=0.2), naive_contrastive(x, y, rows, 0.2).mean())


def test_one_class_in_all_has_no_negatives():
    x, _, rows, bias = batch()
    y, row, bias = torch.zeros(len(x), dtype=torch.long), rows[:1].clone().requires_grad_(), bias[:1]
    torch.testing.assert_close(bce_joint(x, y, row, bias), naive_joint(x, y, row.detach(), bias).mean())
    loss = bce_uniform(row)
    loss.backward()
    assert loss == 0
    assert torch.equal(row.grad, torch.zeros_like(row))


def test_the_names_of_classes_do_not_matter():
    x, y, rows, bias = batch()
    names = torch.randperm(NUM_CLASSES, generator=torch.Generator().manual_seed(1))
    renamed_rows, renamed_bias = torch.empty_like(rows), torch.empty_like(bias)
    renamed_rows[names], renamed_bias[names] = rows, bias
    torch.testing.assert_close(bce_joint(x, names[y], renamed_rows, renamed_bias), bce_joint(x, y, rows, bias))
    torch.testing.assert_close(
        bce_contrastive(x, names[y].int(), renamed_rows, temperature=0.2),
        bce_contrastive(x, y, rows, temperature=0.2),
    )
    torch.testing.assert_close(bce_uniform(renamed_rows), bce_uniform(rows))


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        x, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        rows, bias = torch.empty(5, 4, device="cuda"), torch.empty(5, device="cuda")
        seen = torch.empty(5, dtype=torch.bool, device="cuda")
        for negatives in ("independent", "batch"):
            for labels in (y, torch.empty(8, 5, device="cuda")):
                assert bce_joint(x, labels, rows, bias, negative_rate=0.5, negatives=negatives).shape == ()
        assert bce_contrastive(x, y, rows, temperature=0.1, seen=seen).shape == ()
        assert bce_uniform(rows).shape == ()


def test_a_non_finite_number_shows_in_the_loss():
    x, y, rows, bias = batch()
    x[3, 1] = rows[2, 0] = math.nan
    assert bce_joint(x, y, rows, bias).isnan()
    assert bce_contrastive(x, y, rows, temperature=0.1).isnan()
    assert bce_uniform(rows).isnan()


def with_zero_row() -> Tensor:
    return torch.ones(NUM_CLASSES, DIM) * torch.tensor([1, 1, 1, 0, 1])[:, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": torch.ones(8)}, r"features must be a non-empty floating-point matrix, got shape \(8,\)"),
        ({"features": torch.ones(0, DIM)}, r"features must be a non-empty .* got shape \(0, 4\)"),
        ({"features": torch.ones(8, 3)}, r"weight must have rows of length 3 like features, got shape \(5, 4\)"),
        ({"weight": torch.ones(5, DIM, dtype=torch.long)}, "weight must be .* of torch.int64"),
        ({"weight": with_zero_row()}, "weight must have rows with a direction, got zero at row 3"),
        ({"bias": torch.zeros(4)}, r"bias must hold one floating-point number for each of 5 .* shape \(4,\)"),
        ({"bias": torch.zeros(5, dtype=torch.long)}, "bias must hold .* of torch.int64"),
        ({"y": torch.zeros(8)}, r"y must hold labels of shape \(8,\) or rows of shape \(8, 5\), got shape \(8,\)"),
        ({"y": torch.tensor([0] * 7 + [5])}, r"y must lie in \[0, 5\), got 5"),
        ({"y": torch.full((8, 4), 0.25)}, r"y must hold .* or rows of shape \(8, 5\), got shape \(8, 4\)"),
        ({"y": torch.full((8, 5), 0.25)}, "y must have non-negative rows that sum to 1, got .* at row 0"),
        ({"negatives": "shared"}, "negatives must be one of 'independent', 'batch', got 'shared'"),
        ({"negative_rate": 0.0}, r"negative_rate must be a number in \(0, 1\], got 0.0"),
        ({"negative_rate": 1.5}, "negative_rate must be .* got 1.5"),
        ({"negative_rate": math.nan}, "negative_rate must be .* got nan"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_of_the_joint_term_is_named(changes, message):
    arguments = dict(zip(("features", "y", "weight", "bias"), batch(), strict=True)) | changes
    with pytest.raises(ValueError, match=message):
        bce_joint(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(8, DIM, dtype=torch.long)}, "z must be .* of torch.int64"),
        ({"z": torch.ones(8, 3)}, r"memory must have rows of length 3 like z, got shape \(5, 4\)"),
        ({"z": torch.zeros(8, DIM)}, "z must have rows with a direction, got zero at row 0"),
        ({"memory": with_zero_row()}, "memory must have rows with a direction, got zero at row 3"),
        ({"y": torch.tensor([0] * 7 + [-1])}, r"y must lie in \[0, 5\), got -1"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"seen": torch.ones(4, dtype=torch.bool)}, r"seen must hold one bool for each of 5 classes, got shape \(4,\)"),
        ({"seen": torch.ones(5)}, "seen must hold .* of torch.float32"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_of_the_contrastive_term_is_named(changes, message):
    z, y, memory, _ = batch()
    arguments = {"z": z, "y": y, "memory": memory, "temperature": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        bce_contrastive(**arguments)


def test_bad_input_of_the_uniform_term_is_named():
    with pytest.raises(ValueError, match=r"weight must be a non-empty floating-point matrix, got shape \(5,\)"):
        bce_uniform(torch.ones(5))
    with pytest.raises(ValueError, match="weight must have rows with a direction, got zero at row 3"):
        bce_uniform(with_zero_row())


def test_rows_of_norm_one_are_left_as_they_are():
    x, y, rows, bias = batch()
    directions = normalize(rows, dim=1)
    logits = x @ directions.T + bias
    target = torch.nn.functional.one_hot(y, NUM_CLASSES).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(dim=1)
    torch.testing.assert_close(bce_joint(x, y, directions, bias, reduction="none"), expected)
