import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cosine_similarity, one_hot

from ltnb.geometry import regular_simplex
from ltnb.losses import ce_contrastive, ce_uniform
from ltnb.theory.binary_cross_entropy import softmax_uniform_lower_bound

NUM_CLASSES, DIM = 5, 4
# Class 3 is absent.
LABELS = [0, 1, 4, 0, 2, 1, 0, 4]
ALL_SEEN, SOME_SEEN, ABSENT_SEEN = [True] * 5, [True, False, True, True, True], [False, False, False, True, False]


def batch(labels: list[int] = LABELS) -> tuple[Tensor, Tensor, Tensor]:
    """Projections, labels and a memory; no row is of norm 1."""
    generator = torch.Generator().manual_seed(0)
    z = 2 * torch.randn(len(labels), DIM, dtype=torch.float64, generator=generator)
    return z, torch.tensor(labels), 3 * torch.randn(NUM_CLASSES, DIM, dtype=torch.float64, generator=generator)


def mixed(y: Tensor) -> Tensor:
    first, second = one_hot(y, NUM_CLASSES).double(), one_hot(y.roll(1), NUM_CLASSES).double()
    return 0.7 * first + 0.3 * second


def cosine(a: Tensor, b: Tensor) -> float:
    return cosine_similarity(a.double(), b.double(), dim=0).item()


def naive_contrastive(z: Tensor, y: Tensor, memory: Tensor, temperature: float, seen: list[bool]) -> list[float]:
    shares = y if y.is_floating_point() else one_hot(y, NUM_CLASSES)
    classes = [j for j in range(NUM_CLASSES) if seen[j]]
    losses = []
    for anchor, label in zip(z, shares.tolist(), strict=True):
        terms = {j: math.exp(cosine(anchor, memory[j]) / temperature) for j in classes}
        losses.append(sum(-label[j] * math.log(terms[j] / sum(terms.values())) for j in classes if label[j] > 0))
    return losses


def naive_uniform(weight: Tensor) -> float:
    losses = [
        -math.log(math.exp(cosine(own, own)) / sum(math.exp(cosine(own, other)) for other in weight)) for own in weight
    ]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.02, 0.1, 1.0])
@pytest.mark.parametrize("seen", [None, SOME_SEEN, ABSENT_SEEN], ids=["all", "some", "absent"])
@pytest.mark.parametrize("soft", [False, True])
def test_contrastive_equals_the_formula_summed_term_by_term(temperature, seen, soft):
    z, y, memory = batch()
    y = mixed(y) if soft else y
    expected = naive_contrastive(z, y, memory, temperature, seen or ALL_SEEN)
    num_valid = sum(loss > 0 for loss in expected)
    expected = torch.tensor(expected, dtype=torch.float64)
    for reduction, value in {
        "none": expected,
        "sum": expected.sum(),
        "mean": expected.sum() / max(num_valid, 1),
    }.items():
        actual = ce_contrastive(
            z,
            y,
            memory,
            temperature=temperature,
            seen=None if seen is None else torch.tensor(seen),
            reduction=reduction,
        )
        torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-12)


def test_uniform_equals_the_formula_summed_term_by_term():
    weight = batch()[2]
    assert ce_uniform(weight).item() == pytest.approx(naive_uniform(weight), rel=1e-13)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("seen", [None, torch.tensor(SOME_SEEN)], ids=["all", "some"])
def test_gradients_agree_with_finite_differences(soft, seen):
    z, y, memory = batch()
    y = mixed(y) if soft else y
    leaves = z.requires_grad_(), memory.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z, m: ce_contrastive(z, y, m, temperature=0.3, seen=seen, reduction="none"), leaves
    )
    assert torch.autograd.gradcheck(ce_uniform, leaves[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("soft", [False, True])
def test_low_precision_input_is_computed_in_float32(dtype, soft):
    z, y, memory = batch()
    y = mixed(y).to(dtype) if soft else y.int()
    z, memory = z.to(dtype), memory.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = ce_contrastive(z, y, memory, temperature=0.1, seen=torch.tensor(SOME_SEEN), reduction="none")
        uniform = ce_uniform(memory)
    assert losses.dtype == uniform.dtype == torch.float32
    expected = torch.tensor(naive_contrastive(z, y.long() if not soft else y, memory.detach(), 0.1, SOME_SEEN))
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-4)
    assert uniform.item() == pytest.approx(naive_uniform(memory.detach()), rel=1e-5)
    (losses.sum() + uniform).backward()
    assert memory.grad.dtype == dtype
    assert memory.grad.isfinite().all()


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_regular_simplex_gives_the_closed_forms(num_classes, temperature):
    simplex = regular_simplex(num_classes, num_classes + 1, generator=torch.Generator().manual_seed(0))
    y = torch.arange(num_classes).repeat(2)
    contrastive = ce_contrastive(3 * simplex[y], y, simplex, temperature=temperature, reduction="none")
    gap = num_classes / ((num_classes - 1) * temperature)
    expected = torch.full_like(contrastive, math.log1p((num_classes - 1) * math.exp(-gap)))
    torch.testing.assert_close(contrastive, expected, rtol=1e-9, atol=1e-14)
    leaf = simplex.clone().requires_grad_()
    uniform = ce_uniform(leaf)
    assert uniform.item() == pytest.approx(softmax_uniform_lower_bound(num_classes), rel=1e-13)
    uniform.backward()
    torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf), rtol=0, atol=1e-13)


@pytest.mark.parametrize("fill", [math.nan, 0.0, math.inf])
@pytest.mark.parametrize("soft", [False, True])
def test_what_an_unseen_row_holds_does_not_matter(fill, soft):
    z, y, memory = batch()
    y = mixed(y) if soft else y
    unfilled = memory.clone()
    unfilled[1] = fill
    results = []
    for rows in (memory, unfilled):
        leaves = z.clone().requires_grad_(), rows.clone().requires_grad_()
        loss = ce_contrastive(leaves[0], y, leaves[1], temperature=0.2, seen=torch.tensor(SOME_SEEN))
        loss.backward()
        results.append((loss.detach(), leaves[0].grad, leaves[1].grad))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert torch.equal(results[1][2][1], torch.zeros(DIM, dtype=torch.float64))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_memory_that_has_seen_no_class_of_the_batch_gives_a_zero_with_a_gradient(soft, dtype):
    z, y, memory = batch()
    y = mixed(y) if soft else y
    z = z.to(dtype).requires_grad_()
    for seen in ([False] * NUM_CLASSES, ABSENT_SEEN):
        z.grad = None
        rows = torch.where(torch.tensor(seen)[:, None], memory.to(dtype), torch.nan)
        loss = ce_contrastive(z, y, rows, temperature=0.01, seen=torch.tensor(seen))
        loss.backward()
        assert loss == 0
        assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.parametrize("labels", [[0], [2, 2, 2], [0, 1, 2, 3, 4]], ids=["one", "one class", "one of each"])
def test_small_batches(labels):
    z, y, memory = batch(labels)
    expected = naive_contrastive(z, y, memory, 0.2, ALL_SEEN)
    assert ce_contrastive(z, y, memory, temperature=0.2).item() == pytest.approx(sum(expected) / len(labels))


def test_one_class_in_all_costs_nothing():
    z, _, memory = batch()
    row = memory[:1].clone().requires_grad_()
    loss = ce_contrastive(z, torch.zeros(len(z), dtype=torch.long), row, temperature=0.1) + ce_uniform(row)
    loss.backward()
    assert loss == 0
    torch.testing.assert_close(row.grad, torch.zeros_like(row), rtol=0, atol=1e-15)


def test_a_non_finite_number_shows_in_the_loss():
    z, y, memory = batch()
    z[3, 1] = memory[2, 0] = math.nan
    assert ce_contrastive(z, y, memory, temperature=0.1).isnan()
    assert ce_uniform(memory).isnan()


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, memory = torch.empty(8, 4, device="cuda"), torch.empty(5, 4, device="cuda")
        seen = torch.empty(5, dtype=torch.bool, device="cuda")
        for y in (torch.empty(8, dtype=torch.long, device="cuda"), torch.empty(8, 5, device="cuda")):
            assert ce_contrastive(z, y, memory, temperature=0.1, seen=seen).shape == ()
        assert ce_uniform(memory).shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(8, 3)}, r"memory must have rows of length 3 like z, got shape \(5, 4\)"),
        ({"z": torch.zeros(8, DIM)}, "z must have rows with a direction, got zero at row 0"),
        ({"y": torch.tensor([0] * 7 + [5])}, r"y must lie in \[0, 5\), got 5"),
        ({"y": torch.ones(8, 5)}, "y must have non-negative rows that sum to 1, got .* at row 0"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"seen": torch.ones(5)}, "seen must hold one bool for each of 5 classes, .* of torch.float32"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    z, y, memory = batch()
    with pytest.raises(ValueError, match=message):
        ce_contrastive(**({"z": z, "y": y, "memory": memory, "temperature": 0.1} | changes))


def test_bad_input_of_the_uniform_term_is_named():
    with pytest.raises(ValueError, match="weight must have rows with a direction, got zero at row 0"):
        ce_uniform(torch.zeros(5, 2))
