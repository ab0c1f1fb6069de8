import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from ltnb.losses import balanced_contrastive, supervised_contrastive, valid_anchors

FORMS = [
    (averaging, complement)
    for averaging, complement in product(("none", "L1", "L2", "L3"), (False, True))
    if complement or averaging != "L3"
]
every_form = pytest.mark.parametrize(("averaging", "complement"), FORMS)


def batch(labels: list[int], num_classes: int = 5, dim: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    z = normalize(torch.randn(len(labels), dim, dtype=torch.float64, generator=generator), dim=1)
    prototypes = normalize(torch.randn(num_classes, dim, dtype=torch.float64, generator=generator), dim=1)
    return z, torch.tensor(labels), prototypes


# Class sizes 4, 3, 1 and 2; class 3 is absent.
LONG_TAILED = [0, 1, 4, 0, 2, 1, 0, 4, 1, 0]


def naive(
    z: Tensor, y: Tensor, prototypes: Tensor | None, temperature: float, averaging: str, anchor_weighting: str
) -> list[float]:
    """The equations, key by key, in Python floats."""
    rows, labels = z.double().tolist(), y.tolist()
    centres = None if prototypes is None else prototypes.double().tolist()
    all_classes = sorted(set(labels)) if centres is None else range(len(centres))
    losses: list[float | None] = []
    for i, anchor in enumerate(rows):
        logits: dict[int, list[float]] = {}
        for j in all_classes:
            keys = [rows[k] for k in range(len(rows)) if k != i and labels[k] == j]
            if centres is not None:
                keys.append(centres[j])
            if keys:
                logits[j] = [sum(a * b for a, b in zip(anchor, key, strict=True)) / temperature for key in keys]
        if labels[i] not in logits:
            losses.append(None)
            continue
        if averaging == "none":
            denominator = sum(math.exp(s) for of_class in logits.values() for s in of_class)
        elif averaging == "L1":
            denominator = sum(sum(math.exp(s) for s in of_class) / len(of_class) for of_class in logits.values())
        elif averaging == "L2":
            denominator = sum(math.exp(sum(of_class) / len(of_class)) for of_class in logits.values())
        else:
            denominator = sum(math.exp(of_class[-1]) for of_class in logits.values())
        positives = logits[labels[i]]
        losses.append(-sum(math.log(math.exp(s) / denominator) for s in positives) / len(positives))
    valid_labels = [label for label, loss in zip(labels, losses, strict=True) if loss is not None]
    weighted = []
    for label, loss in zip(labels, losses, strict=True):
        equal_share = len(valid_labels) / max(len(set(valid_labels)), 1) / labels.count(label)
        weighted.append((loss or 0.0) * (equal_share if anchor_weighting == "class" else 1.0))
    return weighted


def simplex(num_classes: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return normalize(torch.eye(num_classes, dtype=dtype) - 1 / num_classes, dim=1)


@every_form
@pytest.mark.parametrize("anchor_weighting", ["sample", "class"])
@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0])
def test_equals_the_equations_summed_key_by_key(averaging, complement, anchor_weighting, temperature):
    z, y, prototypes = batch(LONG_TAILED)
    prototypes = prototypes if complement else None
    expected = torch.tensor(naive(z, y, prototypes, temperature, averaging, anchor_weighting), dtype=torch.float64)
    num_valid = valid_anchors(y, prototypes=complement).sum()
    assert num_valid == (10 if complement else 9)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.sum() / num_valid}.items():
        actual = balanced_contrastive(
            z,
            y,
            prototypes,
            temperature=temperature,
            averaging=averaging,
            anchor_weighting=anchor_weighting,
            reduction=reduction,
        )
        torch.testing.assert_close(actual, value, rtol=1e-10, atol=1e-10)


def test_the_comparison_batch_tells_all_forms_apart():
    z, y, prototypes = batch(LONG_TAILED)
    means = [
        sum(naive(z, y, prototypes if complement else None, 0.5, averaging, weighting))
        for (averaging, complement), weighting in product(FORMS, ("sample", "class"))
    ]
    gaps = [abs(a - b) for i, a in enumerate(means) for b in means[:i]]
    assert min(gaps) > 1e-3


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    form=st.sampled_from(FORMS),
    anchor_weighting=st.sampled_from(["sample", "class"]),
    temperature=st.floats(0.01, 10),
    seed=st.integers(0, 1000),
)
def test_equals_the_equations_on_any_batch(labels, form, anchor_weighting, temperature, seed):
    averaging, complement = form
    z, y, prototypes = batch(labels, num_classes=4, seed=seed)
    prototypes = prototypes if complement else None
    actual = balanced_contrastive(
        z,
        y,
        prototypes,
        temperature=temperature,
        averaging=averaging,
        anchor_weighting=anchor_weighting,
        reduction="none",
    )
    expected = naive(z, y, prototypes, temperature, averaging, anchor_weighting)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@every_form
@pytest.mark.parametrize("anchor_weighting", ["sample", "class"])
def test_gradient_agrees_with_finite_differences(averaging, complement, anchor_weighting):
    z, y, prototypes = batch(LONG_TAILED)
    inputs = (z.requires_grad_(), prototypes.requires_grad_()) if complement else (z.requires_grad_(),)

    def losses(z, prototypes=None):
        return balanced_contrastive(
            z,
            y,
            prototypes,
            temperature=0.3,
            averaging=averaging,
            anchor_weighting=anchor_weighting,
            reduction="none",
        )

    assert torch.autograd.gradcheck(losses, inputs)


@every_form
def test_the_hessian_is_the_change_of_the_gradient(averaging, complement):
    z, y, prototypes = batch([0, 1, 4, 0, 1])
    prototypes = prototypes if complement else None

    def loss(z):
        return balanced_contrastive(z, y, prototypes, temperature=0.3, averaging=averaging)

    def gradient(z):
        return torch.autograd.grad(loss(z.requires_grad_()), z)[0]

    hessian = torch.autograd.functional.hessian(loss, z)
    step = 1e-5
    for i, j in product(range(5), range(4)):
        shift = torch.zeros_like(z)
        shift[i, j] = step
        change = (gradient(z.detach() + shift) - gradient(z.detach() - shift)) / (2 * step)
        torch.testing.assert_close(hessian[i, j], change, rtol=1e-6, atol=1e-7)


@every_form
def test_gradient_reaches_whichever_input_wants_it(averaging, complement):
    z, y, prototypes = batch(LONG_TAILED)
    prototypes = prototypes if complement else None
    both_z = z.clone().requires_grad_()
    both_prototypes = prototypes.clone().requires_grad_() if complement else None
    balanced_contrastive(both_z, y, both_prototypes, temperature=0.3, averaging=averaging).backward()
    only_z = z.clone().requires_grad_()
    balanced_contrastive(only_z, y, prototypes, temperature=0.3, averaging=averaging).backward()
    torch.testing.assert_close(only_z.grad, both_z.grad)
    if complement:
        only_prototypes = prototypes.clone().requires_grad_()
        balanced_contrastive(z, y, only_prototypes, temperature=0.3, averaging=averaging).backward()
        torch.testing.assert_close(only_prototypes.grad, both_prototypes.grad)
        assert only_prototypes.grad.abs().sum(dim=1).min() > 0


@every_form
@pytest.mark.parametrize("temperature", [0.01, 0.1])
@pytest.mark.parametrize(("dtype", "result_dtype"), [(torch.float32,) * 2, (torch.bfloat16, torch.float32)])
def test_low_precision_input_is_computed_in_float32(averaging, complement, temperature, dtype, result_dtype):
    z, y, prototypes = batch(LONG_TAILED, dim=16)
    z, prototypes = z.to(dtype).requires_grad_(), prototypes.to(dtype) if complement else None
    loss = balanced_contrastive(z, y, prototypes, temperature=temperature, averaging=averaging, reduction="none")
    assert loss.dtype == result_dtype
    expected = torch.tensor(naive(z.detach(), y, prototypes, temperature, averaging, "sample"))
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    loss.sum().backward()
    precise = z.detach().double().requires_grad_()
    precise_prototypes = prototypes.double() if complement else None
    balanced_contrastive(
        precise, y, precise_prototypes, temperature=temperature, averaging=averaging, reduction="sum"
    ).backward()
    assert z.grad.dtype == dtype
    scale = precise.grad.abs().max().item()
    torch.testing.assert_close(
        z.grad.double(), precise.grad, rtol=0, atol=scale * (1e-2 if dtype == torch.bfloat16 else 1e-4)
    )


def test_prototypes_of_another_type_are_promoted():
    z, y, prototypes = batch(LONG_TAILED)
    mixed = balanced_contrastive(z.bfloat16(), y, prototypes, temperature=0.1)
    assert mixed.dtype == torch.float64
    torch.testing.assert_close(mixed, balanced_contrastive(z.bfloat16().double(), y, prototypes, temperature=0.1))


@every_form
def test_autocast_does_not_lower_the_precision(averaging, complement):
    z, y, prototypes = batch(LONG_TAILED, dim=16)
    z, prototypes = z.float(), prototypes.float() if complement else None
    expected = balanced_contrastive(z, y, prototypes, temperature=0.1, averaging=averaging)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = balanced_contrastive(z, y, prototypes, temperature=0.1, averaging=averaging)
    assert torch.equal(actual, expected)


@every_form
def test_stays_finite_at_the_farthest_cosines(averaging, complement):
    # Positives opposite, negatives on the anchor: logits from −100 to 100, whose exponentials float32 cannot hold.
    up = torch.tensor([1.0, 0.0])
    z = torch.stack([up, -up, up, -up]).requires_grad_()
    y = torch.tensor([0, 0, 1, 1])
    prototypes = torch.stack([up, -up]) if complement else None
    loss = balanced_contrastive(z, y, prototypes, temperature=0.01, averaging=averaging)
    loss.backward()
    assert loss > 50
    assert z.grad.isfinite().all()


@every_form
@pytest.mark.parametrize(
    "labels", [[0], [3], [0, 1], [0, 1, 2, 3, 4], [2, 2, 2], [2, 2, 0]], ids=lambda labels: "-".join(map(str, labels))
)
def test_degenerate_batches(averaging, complement, labels):
    z, y, prototypes = batch(labels)
    prototypes = prototypes if complement else None
    z.requires_grad_()
    loss = balanced_contrastive(z, y, prototypes, temperature=0.1, averaging=averaging, anchor_weighting="class")
    loss.backward()
    num_valid = sum(complement or labels.count(label) > 1 for label in labels)
    assert valid_anchors(y, prototypes=complement).sum() == num_valid
    expected = sum(naive(z.detach(), y, prototypes, 0.1, averaging, "class")) / max(num_valid, 1)
    torch.testing.assert_close(loss.item(), expected, rtol=1e-9, atol=1e-9)
    if num_valid == 0:
        assert torch.equal(z.grad, torch.zeros_like(z))


def test_one_class_in_all():
    z, y, prototypes = batch([0, 0, 0], num_classes=1)
    for averaging, complement in FORMS:
        prototype = prototypes.requires_grad_() if complement else None
        losses = balanced_contrastive(z, y, prototype, temperature=0.1, averaging=averaging, reduction="none")
        expected = naive(z, y, prototypes.detach() if complement else None, 0.1, averaging, "sample")
        torch.testing.assert_close(losses, torch.tensor(expected, dtype=torch.float64))
    losses.sum().backward()
    assert prototypes.grad.isfinite().all()


@pytest.mark.parametrize("counts", [[3, 3, 3, 3], [20, 5, 2, 1]])
@pytest.mark.parametrize("averaging", ["L1", "L2", "L3"])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_regular_simplex_gives_the_value_of_theorem_3(counts, averaging, temperature):
    num_classes = len(counts)
    prototypes = simplex(num_classes)
    y = torch.repeat_interleave(torch.arange(num_classes), torch.tensor(counts))
    bound = math.log(1 + (num_classes - 1) * math.exp(-num_classes / ((num_classes - 1) * temperature)))
    for anchor_weighting in ("sample", "class"):
        loss = balanced_contrastive(
            prototypes[y],
            y,
            prototypes,
            temperature=temperature,
            averaging=averaging,
            anchor_weighting=anchor_weighting,
        )
        assert loss.item() == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize(
    ("counts", "anchor_weighting", "stationary"),
    [([5, 5, 5, 5], "sample", True), ([10, 5, 5, 5], "sample", False), ([10, 5, 5, 5], "class", True)],
)
def test_regular_simplex_is_stationary_only_where_classes_weigh_the_same(counts, anchor_weighting, stationary):
    prototypes = simplex(4).requires_grad_()
    y = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
    z = prototypes.detach()[y].requires_grad_()
    balanced_contrastive(z, y, prototypes, temperature=1.0, anchor_weighting=anchor_weighting).backward()
    largest = max(
        (x.grad - (x.grad * x).sum(dim=1, keepdim=True) * x).norm(dim=1).max().item() for x in (z, prototypes)
    )
    assert (largest < 1e-12) if stationary else (largest > 1e-3)


@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_averaged_exponentials_are_no_less_than_exponentials_of_averages(complement, temperature):
    z, y, prototypes = batch(LONG_TAILED)
    l1, l2 = (
        balanced_contrastive(
            z, y, prototypes if complement else None, temperature=temperature, averaging=averaging, reduction="none"
        )
        for averaging in ("L1", "L2")
    )
    assert (l1 >= l2).all()
    assert (l1 - l2).max() > 1e-2


@every_form
def test_order_of_samples_and_names_of_classes_do_not_matter(averaging, complement):
    z, y, prototypes = batch(LONG_TAILED)
    generator = torch.Generator().manual_seed(1)
    order, names = torch.randperm(len(y), generator=generator), torch.randperm(5, generator=generator)
    kwargs = {"temperature": 0.2, "averaging": averaging, "anchor_weighting": "class", "reduction": "none"}
    expected = balanced_contrastive(z, y, prototypes if complement else None, **kwargs)
    renamed = torch.empty_like(prototypes)
    renamed[names] = prototypes
    actual = balanced_contrastive(z[order], names[y[order]], renamed if complement else None, **kwargs)
    torch.testing.assert_close(actual, expected[order])


def test_class_weighting_changes_nothing_for_equal_classes():
    z, y, prototypes = batch([0, 1, 2, 0, 1, 2])
    for complement in (None, prototypes):
        by_sample, by_class = (
            balanced_contrastive(z, y, complement, temperature=0.1, anchor_weighting=weighting, reduction="none")
            for weighting in ("sample", "class")
        )
        torch.testing.assert_close(by_class, by_sample)


def test_without_averaging_and_prototypes_it_is_the_supervised_contrastive_loss():
    z, y, _ = batch(LONG_TAILED)
    for reduction in ("mean", "sum", "none"):
        torch.testing.assert_close(
            balanced_contrastive(z, y, temperature=0.1, averaging="none", reduction=reduction),
            supervised_contrastive(z, y, temperature=0.1, reduction=reduction),
        )


def test_labels_without_prototypes_are_only_names():
    z, y, _ = batch(LONG_TAILED)
    torch.testing.assert_close(
        balanced_contrastive(z, 1000 - 7 * y.int(), temperature=0.1), balanced_contrastive(z, y, temperature=0.1)
    )


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        outputs = out if isinstance(out, tuple | list) else (out,)
        self.numel = max([self.numel, *(x.numel() for x in outputs if isinstance(x, Tensor))])
        return out


@pytest.mark.parametrize("averaging", ["none", "L1", "L2", "L3"])
def test_memory_is_linear_in_the_number_of_classes(averaging):
    z, y, prototypes = batch(LONG_TAILED, num_classes=200)
    z.requires_grad_()
    with LargestTensor() as largest:
        balanced_contrastive(z, y, prototypes.requires_grad_(), temperature=0.1, averaging=averaging).backward()
    assert largest.numel == len(z) * len(prototypes)


@every_form
def test_an_accelerator_is_never_waited_for(averaging, complement):
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        prototypes = torch.empty(5, 4, device="cuda") if complement else None
        loss = balanced_contrastive(z, y, prototypes, temperature=0.1, averaging=averaging, anchor_weighting="class")
        assert loss.shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(10, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"z": torch.ones(10)}, r"z must be a non-empty floating-point matrix, got shape \(10,\)"),
        ({"z": torch.ones(10, 4, dtype=torch.long)}, "z must be .* of torch.int64"),
        ({"z": torch.ones(0, 4)}, r"z must be a non-empty .* got shape \(0, 4\)"),
        ({"y": torch.zeros(9, dtype=torch.long)}, r"y must hold 10 integer labels, got shape \(9,\)"),
        ({"y": torch.zeros(10)}, "y must hold 10 integer labels, got .* of torch.float32"),
        ({"y": torch.tensor([0] * 9 + [5])}, r"y must lie in \[0, 5\), got 5"),
        ({"y": torch.tensor([0] * 9 + [-1])}, r"y must lie in \[0, 5\), got -1"),
        ({"prototypes": simplex(5)}, r"prototypes must have rows of length 4 like z, got shape \(5, 5\)"),
        ({"prototypes": torch.zeros(5, 4)}, "prototypes must have unit rows, got norm 0 at row 0"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"temperature": math.nan}, "temperature must be .* got nan"),
        ({"temperature": torch.tensor(0.1)}, "temperature must be .* got tensor"),
        ({"averaging": "L4"}, "averaging must be one of 'none', 'L1', 'L2', 'L3', got 'L4'"),
        ({"averaging": "L3", "prototypes": None}, "averaging='L3' sums over prototypes, got prototypes=None"),
        ({"anchor_weighting": "prior"}, "anchor_weighting must be one of 'sample', 'class', got 'prior'"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_is_named(changes, message):
    z, y, prototypes = batch(LONG_TAILED)
    arguments = {"z": z, "y": y, "prototypes": prototypes, "temperature": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        balanced_contrastive(**arguments)


def test_a_non_finite_embedding_shows_in_the_loss():
    z, y, prototypes = batch(LONG_TAILED)
    z[3, 1] = math.nan
    assert balanced_contrastive(z, y, prototypes, temperature=0.1).isnan()
