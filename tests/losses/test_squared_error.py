import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cosine_similarity, normalize, one_hot

from ltnb.geometry import regular_simplex
from ltnb.losses import mse_contrastive, mse_joint, mse_uniform

NUM_CLASSES, DIM = 5, 4
# Class 3 is absent.
LABELS = [0, 1, 4, 0, 2, 1, 0, 4]
ALL_SEEN, SOME_SEEN, ABSENT_SEEN = [True] * 5, [True, False, True, True, True], [False, False, False, True, False]


def batch(labels: list[int] = LABELS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, labels, one row a class and biases; no row is of norm 1."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(len(labels), DIM, dtype=torch.float64, generator=generator)
    rows = 3 * torch.randn(NUM_CLASSES, DIM, dtype=torch.float64, generator=generator)
    return x, torch.tensor(labels), rows, torch.randn(NUM_CLASSES, dtype=torch.float64, generator=generator)


def mixed(y: Tensor) -> Tensor:
    first, second = one_hot(y, NUM_CLASSES).double(), one_hot(y.roll(1), NUM_CLASSES).double()
    return 0.7 * first + 0.3 * second


def shares(y: Tensor) -> list[list[float]]:
    return (y if y.is_floating_point() else one_hot(y.long(), NUM_CLASSES)).double().tolist()


def cosine(a: Tensor, b: Tensor) -> float:
    return cosine_similarity(a.double(), b.double(), dim=0).item()


def naive_joint(features: Tensor, y: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    losses = []
    for x, label in zip(features.double(), shares(y), strict=True):
        logits = [
            cosine(w, x) * math.sqrt((x @ x).item()) + b for w, b in zip(weight, bias.double().tolist(), strict=True)
        ]
        losses.append(sum((s - share) ** 2 for s, share in zip(logits, label, strict=True)))
    return torch.tensor(losses, dtype=torch.float64)


def naive_contrastive(z: Tensor, y: Tensor, memory: Tensor, seen: list[bool] = ALL_SEEN) -> Tensor:
    losses = []
    for anchor, label in zip(z, shares(y), strict=True):
        classes = [j for j in range(len(memory)) if seen[j]]
        has_positive = any(label[j] > 0 for j in classes)
        losses.append(sum((cosine(anchor, memory[j]) - label[j]) ** 2 for j in classes) if has_positive else 0.0)
    return torch.tensor(losses, dtype=torch.float64)


def naive_uniform(weight: Tensor) -> float:
    k = len(weight)
    return sum((cosine(weight[i], weight[j]) + 1 / (k - 1)) ** 2 for i in range(k) for j in range(k) if j != i) / k


@pytest.mark.parametrize("soft", [False, True])
def test_joint_equals_the_formula_summed_term_by_term(soft):
    x, y, weight, bias = batch()
    y = mixed(y) if soft else y
    expected = naive_joint(x, y, weight, bias)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.mean()}.items():
        actual = mse_joint(x, y, weight, bias, reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seen", [None, SOME_SEEN, ABSENT_SEEN], ids=["all", "some", "absent"])
def test_contrastive_equals_the_formula_summed_term_by_term(soft, seen):
    z, y, memory, _ = batch()
    y = mixed(y) if soft else y
    expected = naive_contrastive(z, y, memory, seen or ALL_SEEN)
    num_valid = max(int((expected > 0).sum()), 1)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.sum() / num_valid}.items():
        actual = mse_contrastive(z, y, memory, seen=None if seen is None else torch.tensor(seen), reduction=reduction)
        torch.testing.assert_close(actual, value, rtol=1e-12, atol=1e-12)


def test_uniform_equals_the_formula_summed_term_by_term():
    weight = batch()[2]
    assert mse_uniform(weight).item() == pytest.approx(naive_uniform(weight), rel=1e-13)


@pytest.mark.parametrize("soft", [False, True])
def test_gradients_agree_with_finite_differences(soft):
    x, y, rows, bias = batch()
    y, seen = mixed(y) if soft else y, torch.tensor(SOME_SEEN)
    leaves = x.requires_grad_(), rows.requires_grad_(), bias.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w, b: mse_joint(x, y, w, b, reduction="none"), leaves)
    assert torch.autograd.gradcheck(lambda z, m: mse_contrastive(z, y, m, seen=seen, reduction="none"), leaves[:2])
    assert torch.autograd.gradcheck(mse_uniform, leaves[1:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("soft", [False, True])
def test_low_precision_input_is_computed_in_float32(dtype, soft):
    x, y, rows, bias = batch()
    x, rows, bias = x.to(dtype), rows.to(dtype).requires_grad_(), bias.to(dtype)
    y = mixed(y).to(dtype) if soft else y.int()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = mse_joint(x, y, rows, bias, reduction="none"), mse_contrastive(x, y, rows, reduction="none")
        uniform = mse_uniform(rows)
    constant = rows.detach()
    expected = naive_joint(x, y, constant, bias), naive_contrastive(x, y, constant)
    for loss, value in zip((*losses, uniform), (*expected, torch.tensor(naive_uniform(constant))), strict=True):
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, value.float(), rtol=1e-5, atol=1e-5)
    uniform.backward()
    assert rows.grad.dtype == dtype


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_regular_simplex_gives_the_closed_forms(num_classes):
    k = num_classes
    simplex = regular_simplex(k, k + 1, generator=torch.Generator().manual_seed(0))
    y = torch.arange(k).repeat(2)
    features, bias = (k - 1) / k * simplex[y], torch.full((k,), 1 / k, dtype=torch.float64)
    assert mse_joint(features, y, simplex, bias).item() == pytest.approx(0, abs=1e-28)
    assert mse_contrastive(5 * simplex[y], y, simplex).item() == pytest.approx(1 / (k - 1), rel=1e-12)
    leaf = simplex.clone().requires_grad_()
    loss = mse_uniform(leaf)
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-28)
    torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dim", [3, 4], ids=["in the span", "beside the span"])
def test_no_projection_beats_the_least_contrastive_value_that_the_docstring_names(dim):
    k = 4
    memory = regular_simplex(k, dim)
    least = 1 / (k - 1) if dim == k - 1 else 1 / k
    z = torch.randn(50_000, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = mse_contrastive(z, torch.zeros(len(z), dtype=torch.long), memory, reduction="none")
    assert least < losses.min() < least + 0.01
    best = memory[:1]
    if dim == k:
        # The last axis is orthogonal to a memory built without a generator.
        cos = (k - 1) / k
        best = cos * best + math.sqrt(1 - cos**2) * torch.eye(dim, dtype=torch.float64)[-1:]
    assert mse_contrastive(best, torch.tensor([0]), memory).item() == pytest.approx(least, rel=1e-12)


def test_an_orthogonal_frame_is_not_uniform():
    assert mse_uniform(torch.eye(4)).item() == pytest.approx(3 * (1 / 3) ** 2)


def test_only_directions_of_normalised_rows_matter():
    x, y, weight, bias = batch()
    directions = normalize(weight, dim=1)
    for loss in (lambda w: mse_joint(x, y, w, bias), lambda w: mse_contrastive(x, y, w), mse_uniform):
        torch.testing.assert_close(loss(weight), loss(directions))
    torch.testing.assert_close(mse_contrastive(3 * x, y, weight), mse_contrastive(x, y, weight))
    assert not torch.isclose(mse_joint(3 * x, y, weight, bias), mse_joint(x, y, weight, bias))


@pytest.mark.parametrize("fill", [math.nan, 0.0])
def test_what_an_unseen_row_holds_does_not_matter(fill):
    z, y, memory, _ = batch()
    unfilled = memory.clone()
    unfilled[1] = fill
    results = []
    for rows in (memory, unfilled):
        leaves = z.clone().requires_grad_(), rows.clone().requires_grad_()
        loss = mse_contrastive(leaves[0], y, leaves[1], seen=torch.tensor(SOME_SEEN))
        loss.backward()
        results.append((loss.detach(), leaves[0].grad, leaves[1].grad))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_memory_that_has_seen_no_class_of_the_batch_gives_a_zero_with_a_gradient():
    z, y, memory, _ = batch()
    z.requires_grad_()
    for labels in (y, mixed(y)):
        z.grad = None
        loss = mse_contrastive(z, labels, memory, seen=torch.tensor(ABSENT_SEEN))
        loss.backward()
        assert loss == 0
        assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.parametrize("labels", [[0], [2, 2, 2], [0, 1, 2, 3, 4]], ids=["one", "one class", "one of each"])
def test_small_batches(labels):
    x, y, rows, bias = batch(labels)
    torch.testing.assert_close(mse_joint(x, y, rows, bias), naive_joint(x, y, rows, bias).mean())
    torch.testing.assert_close(mse_contrastive(x, y, rows), naive_contrastive(x, y, rows).mean())


def test_one_class_in_all_has_no_pair():
    row = batch()[2][:1].clone().requires_grad_()
    loss = mse_uniform(row)
    loss.backward()
    assert loss == 0
    assert torch.equal(row.grad, torch.zeros_like(row))


def test_a_non_finite_number_shows_in_the_loss():
    x, y, rows, bias = batch()
    x[3, 1] = rows[2, 0] = math.nan
    assert mse_joint(x, y, rows, bias).isnan()
    assert mse_contrastive(x, y, rows).isnan()
    assert mse_uniform(rows).isnan()


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        x, rows, bias = (torch.empty(*shape, device="cuda") for shape in ((8, 4), (5, 4), (5,)))
        seen = torch.empty(5, dtype=torch.bool, device="cuda")
        for y in (torch.empty(8, dtype=torch.long, device="cuda"), torch.empty(8, 5, device="cuda")):
            assert mse_joint(x, y, rows, bias).shape == ()
            assert mse_contrastive(x, y, rows, seen=seen).shape == ()
        assert mse_uniform(rows).shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": torch.ones(8, 3)}, r"weight must have rows of length 3 like features, got shape \(5, 4\)"),
        ({"bias": torch.zeros(4)}, r"bias must hold one floating-point number for each of 5 .* shape \(4,\)"),
        ({"y": torch.tensor([0] * 7 + [5])}, r"y must lie in \[0, 5\), got 5"),
        ({"y": torch.ones(8, 5)}, "y must have non-negative rows that sum to 1, got .* at row 0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_of_the_joint_term_is_named(changes, message):
    arguments = dict(zip(("features", "y", "weight", "bias"), batch(), strict=True)) | changes
    with pytest.raises(ValueError, match=message):
        mse_joint(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.zeros(8, DIM)}, "z must have rows with a direction, got zero at row 0"),
        ({"y": torch.tensor([0] * 7 + [-1])}, r"y must lie in \[0, 5\), got -1"),
        ({"seen": torch.ones(4, dtype=torch.bool)}, r"seen must hold one bool for each of 5 .* shape \(4,\)"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_of_the_contrastive_term_is_named(changes, message):
    z, y, memory, _ = batch()
    with pytest.raises(ValueError, match=message):
        mse_contrastive(**({"z": z, "y": y, "memory": memory} | changes))


def test_bad_input_of_the_uniform_term_is_named():
    with pytest.raises(ValueError, match="weight must have rows with a direction, got zero at row 0"):
        mse_uniform(torch.zeros(5, 2))
