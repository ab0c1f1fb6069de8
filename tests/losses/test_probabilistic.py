import math

import mpmath
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from ltnb.losses import (
    expected_logits,
    logit_adjusted_cross_entropy,
    probabilistic_contrastive,
    running_class_means,
    vmf_naturals,
)

LABELS = [0, 1, 3, 0, 2, 1, 0]
COUNTS = [50, 20, 7, 3, 1]  # class 4 is absent from the batch


def batch(dim: int = 4, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Unit rows, their labels, and laws of κ from 0 (class 1) to 80."""
    generator = torch.Generator().manual_seed(seed)
    z = normalize(torch.randn(len(LABELS), dim, dtype=torch.float64, generator=generator), dim=1)
    directions = normalize(torch.randn(len(COUNTS), dim, dtype=torch.float64, generator=generator), dim=1)
    return z, torch.tensor(LABELS), directions * torch.tensor([[20.0], [0.0], [0.5], [80.0], [3.0]])


def log_normaliser(dim: int, kappa: float) -> mpmath.mpf:
    """log C_d(κ) as it is defined, and at κ = 0 the sphere's area."""
    half = mpmath.mpf(dim) / 2
    if kappa == 0:
        return mpmath.loggamma(half) - mpmath.log(2) - half * mpmath.log(mpmath.pi)
    order = half - 1
    return order * mpmath.log(kappa) - half * mpmath.log(2 * mpmath.pi) - mpmath.log(mpmath.besseli(order, kappa))


def naive_logits(z: Tensor, naturals: Tensor, temperature: float) -> list[list[float]]:
    dim = z.shape[1]
    rows = []
    with mpmath.workdps(40):
        for query in z.double().tolist():
            row = []
            for law in naturals.double().tolist():
                tilted = [mpmath.mpf(a) + mpmath.mpf(q) / temperature for a, q in zip(law, query, strict=True)]
                kappa, kappa_tilted = mpmath.norm(law), mpmath.norm(tilted)
                row.append(float(log_normaliser(dim, kappa) - log_normaliser(dim, kappa_tilted)))
            rows.append(row)
    return rows


def naive_loss(z, y, naturals, temperature, seen) -> list[float]:
    losses = []
    for row, label in zip(naive_logits(z, naturals, temperature), y.tolist(), strict=True):
        terms = [n / sum(COUNTS) * math.exp(logit) for n, logit in zip(COUNTS, row, strict=True)]
        total = sum(term for term, is_seen in zip(terms, seen, strict=True) if is_seen)
        losses.append(-math.log(terms[label] / total) if seen[label] else 0.0)
    return losses


def simplex(num_classes: int) -> Tensor:
    return normalize(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes, dim=1)


@pytest.mark.parametrize("dim", [2, 3, 4, 128])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_expected_logits_equal_the_ratio_of_normalisers(dim, temperature):
    z, _, naturals = batch(dim)
    expected = torch.tensor(naive_logits(z, naturals, temperature), dtype=torch.float64)
    actual = expected_logits(z, naturals, temperature=temperature)
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


def test_expected_logits_in_three_dimensions_are_those_of_sinh():
    z, _, naturals = batch(dim=3)
    kappa, tilted = naturals.norm(dim=1), (naturals + z[:, None] / 0.2).norm(dim=2)
    expected = (tilted.sinh() / tilted).log() - torch.where(kappa > 0, kappa.sinh() / kappa, 1).log()
    torch.testing.assert_close(expected_logits(z, naturals, temperature=0.2), expected)


def draw(natural: Tensor, num_samples: int) -> Tensor:
    """Samples of vMF by their cosine to μ, whose density (1 − t²)^{(d−3)/2} exp(κt) is inverted on a fine grid."""
    generator = torch.Generator().manual_seed(1)
    dim, kappa = len(natural), natural.norm()
    t = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    density = (1 - t**2) ** ((dim - 3) / 2) * (kappa * (t - 1)).exp()
    cumulative = density.cumsum(0)
    uniform = torch.rand(num_samples, dtype=torch.float64, generator=generator) * cumulative[-1]
    cosines = t[torch.searchsorted(cumulative, uniform)][:, None]
    direction = natural / kappa
    across = torch.randn(num_samples, dim, dtype=torch.float64, generator=generator)
    across = normalize(across - (across @ direction)[:, None] * direction, dim=1)
    return cosines * direction + (1 - cosines**2).sqrt() * across


@pytest.mark.parametrize("dim", [3, 8])
@pytest.mark.parametrize("kappa", [1.0, 30.0])
def test_expected_logits_are_the_mean_over_drawn_keys(dim, kappa):
    z = batch(dim)[0]
    natural = kappa * normalize(torch.arange(1.0, dim + 1, dtype=torch.float64), dim=0)
    exponentials = (z @ draw(natural, 200_000).T / 0.5).exp()
    mean, standard_error = exponentials.mean(dim=1), exponentials.std(dim=1) / math.sqrt(200_000)
    exact = expected_logits(z, natural[None], temperature=0.5).exp().squeeze(1)
    assert ((mean - exact).abs() < 4 * standard_error).all()
    assert (standard_error < 0.01 * mean).all()


def test_a_concentrated_law_is_a_point_and_a_law_without_direction_the_same_from_everywhere():
    z, _, naturals = batch()
    directions = normalize(naturals[[0, 2, 3, 4]], dim=1)
    points = z @ directions.T / 0.1
    for kappa in (1e4, 1e6, 1e8):
        gap = (expected_logits(z, kappa * directions, temperature=0.1) - points).abs().max().item()
        assert gap < 60 / kappa + 1e-6  # (1/τ)²/2κ of spread, and rounding of κ itself
    uniform = expected_logits(z, torch.zeros(1, 4, dtype=torch.float64), temperature=0.1)
    # E exp(z·X/τ) = Γ(2) I₁(10)/5 in four dimensions.
    torch.testing.assert_close(uniform, torch.full_like(uniform, math.log(float(mpmath.besseli(1, 10)) / 5)))


def test_expected_logits_are_finite_at_every_concentration():
    for dim in (3, 128, 1024):
        z = batch(dim)[0].float().requires_grad_()
        direction = -z.detach()[:1]
        # The last cancels with the first query.
        naturals = torch.cat([direction * kappa for kappa in (0.0, 1e-30, 1.0, 1e3, 1e5, 10.0)]).requires_grad_()
        logits = expected_logits(z, naturals, temperature=0.1)
        logits.sum().backward()
        for values in (logits, z.grad, naturals.grad):
            assert values.isfinite().all()


def test_natural_parameters_and_a_query_that_cancel_stay_finite():
    # Rounding leaves ‖a + z/τ‖² ≈ ±10³ of 10¹⁰, and below zero the Bessel function oscillates.
    generator = torch.Generator().manual_seed(0)
    z = normalize(torch.randn(200, 3, generator=generator), dim=1).requires_grad_()
    logits = expected_logits(z, -1e5 * z.detach(), temperature=1e-5)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("dim", [3, 128])
def test_gradient_agrees_with_finite_differences(dim):
    z, y, naturals = batch(dim)
    inputs = (z.requires_grad_(), naturals.requires_grad_())
    assert torch.autograd.gradcheck(lambda z, a: expected_logits(z, a, temperature=0.3), inputs)
    seen = torch.tensor([True, True, False, True, True])
    assert torch.autograd.gradcheck(
        lambda z, a: probabilistic_contrastive(z, y, a, COUNTS, temperature=0.3, seen=seen, reduction="none"),
        inputs,
    )


@pytest.mark.parametrize("temperature", [0.07, 1.0])
@pytest.mark.parametrize("seen", [None, [True, False, True, True, True], [False, False, True, False, False]])
def test_loss_equals_the_formula_summed_class_by_class(temperature, seen):
    z, y, naturals = batch()
    expected = naive_loss(z, y, naturals, temperature, seen or [True] * 5)
    num_valid = sum(seen is None or seen[label] for label in LABELS)
    expected = torch.tensor(expected, dtype=torch.float64)
    for reduction, value in {"none": expected, "sum": expected.sum(), "mean": expected.sum() / num_valid}.items():
        actual = probabilistic_contrastive(
            z,
            y,
            naturals,
            COUNTS,
            temperature=temperature,
            seen=None if seen is None else torch.tensor(seen),
            reduction=reduction,
        )
        torch.testing.assert_close(actual, value, rtol=1e-10, atol=1e-10)


def test_loss_is_logit_adjusted_cross_entropy_of_the_expected_logits():
    z, y, naturals = batch()
    expected = logit_adjusted_cross_entropy(expected_logits(z, naturals, temperature=0.1), y, COUNTS)
    torch.testing.assert_close(
        probabilistic_contrastive(z, y, naturals, torch.tensor(COUNTS), temperature=0.1), expected
    )


def test_loss_of_points_on_a_regular_simplex():
    mu, y = simplex(4), torch.arange(4)
    counts = torch.tensor([8, 4, 2, 2])
    losses = probabilistic_contrastive(mu, y, 1e9 * mu, counts, temperature=0.5, reduction="none")
    others = math.exp(-4 / (3 * 0.5))
    expected = torch.tensor([math.log(1 + (16 - n) / n * others) for n in (8, 4, 2, 2)], dtype=torch.float64)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)


def test_loss_is_the_limit_of_many_drawn_keys():
    z, y, _ = batch(dim=3)
    naturals = simplex(3)[:, :3] * torch.tensor([[20.0], [5.0], [1.0]])
    y, counts = y.clamp(max=2), [6, 3, 1]
    keys = [draw(natural, 100_000 * n) for natural, n in zip(naturals, counts, strict=True)]
    sums = torch.stack([(z @ of_class.T / 0.5).exp().sum(dim=1) for of_class in keys], dim=1)
    expected = -(sums.gather(1, y[:, None]).squeeze(1) / sums.sum(dim=1)).log()
    losses = probabilistic_contrastive(z, y, naturals, counts, temperature=0.5, reduction="none")
    torch.testing.assert_close(losses, expected, rtol=0, atol=0.02)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 1e-2)])
def test_low_precision_input_is_computed_in_float32(dtype, tolerance):
    z, y, naturals = batch(dim=128)
    z, naturals = z.to(dtype).requires_grad_(), (100 * naturals).to(dtype)
    losses = probabilistic_contrastive(z, y, naturals, COUNTS, temperature=0.1, reduction="none")
    assert losses.dtype == torch.float32
    precise = z.detach().double().requires_grad_()
    expected = probabilistic_contrastive(precise, y, naturals.double(), COUNTS, temperature=0.1, reduction="none")
    torch.testing.assert_close(losses, expected.float(), rtol=1e-5, atol=1e-4)
    losses.sum().backward()
    expected.sum().backward()
    assert z.grad.dtype == dtype
    scale = precise.grad.abs().max().item()
    torch.testing.assert_close(z.grad.double(), precise.grad, rtol=0, atol=tolerance * scale)


def test_autocast_does_not_lower_the_precision():
    z, y, naturals = batch()
    z, naturals = z.float(), naturals.float()
    expected = probabilistic_contrastive(z, y, naturals, COUNTS, temperature=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(probabilistic_contrastive(z, y, naturals, COUNTS, temperature=0.1), expected)


@pytest.mark.parametrize("labels", [[0], [4], [2, 2, 2], [0, 1, 2, 3, 4]])
def test_degenerate_batches(labels):
    z, _, naturals = batch()
    z, y = z[: len(labels)].requires_grad_(), torch.tensor(labels)
    loss = probabilistic_contrastive(z, y, naturals, COUNTS, temperature=0.1)
    assert loss.item() == pytest.approx(sum(naive_loss(z.detach(), y, naturals, 0.1, [True] * 5)) / len(labels))
    loss.backward()
    assert z.grad.abs().sum() > 0


def test_one_class_in_all_costs_nothing():
    z, _, naturals = batch()
    loss = probabilistic_contrastive(z, torch.zeros(len(z), dtype=torch.long), naturals[:1], [3], temperature=0.1)
    assert loss.item() == 0


def test_what_an_unseen_row_holds_does_not_matter_and_it_has_no_gradient():
    z, y, naturals = batch()
    seen = torch.tensor([True, False, True, True, True])
    results = []
    for fill in (0.0, 1e30, math.nan, math.inf):
        leaves = z.clone().requires_grad_(), naturals.clone().index_fill_(0, torch.tensor([1]), fill).requires_grad_()
        loss = probabilistic_contrastive(leaves[0], y, leaves[1], COUNTS, temperature=0.1, seen=seen)
        loss.backward()
        assert torch.equal(leaves[1].grad[1], torch.zeros(4, dtype=torch.float64))
        results.append(torch.cat([loss[None], leaves[0].grad.flatten()]))
    assert all(torch.equal(result, results[0]) for result in results)
    assert results[0].isfinite().all()


@pytest.mark.parametrize("seen", [[False] * 5, [False, False, False, False, True]])
def test_without_a_seen_class_in_the_batch_it_is_a_zero_with_a_gradient(seen):
    z, y, naturals = batch()
    z, naturals = z.float().requires_grad_(), (naturals * math.nan).float()
    naturals[4] = 1.0
    with torch.autograd.set_detect_anomaly(True):  # raises where a gradient is NaN on its way
        loss = probabilistic_contrastive(z, y, naturals, COUNTS, temperature=0.01, seen=torch.tensor(seen))
        loss.backward()
    assert loss.item() == 0
    assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.parametrize("dim", [2, 4, 128])
def test_natural_parameters_equal_the_formula(dim):
    generator = torch.Generator().manual_seed(0)
    directions = normalize(torch.randn(4, dim, dtype=torch.float64, generator=generator), dim=1)
    lengths = [0.01, 0.5, 0.9, 0.99]
    naturals = vmf_naturals(directions * torch.tensor(lengths, dtype=torch.float64)[:, None])
    kappas = torch.tensor([r * (dim - r**2) / (1 - r**2) for r in lengths], dtype=torch.float64)
    torch.testing.assert_close(naturals, directions * kappas[:, None])


def test_natural_parameters_come_close_to_the_law_that_was_drawn_from():
    natural = 30 * normalize(torch.arange(1.0, 9, dtype=torch.float64), dim=0)
    estimate = vmf_naturals(draw(natural, 100_000).mean(dim=0, keepdim=True))[0]
    assert estimate.norm().item() == pytest.approx(30, rel=0.02)
    assert torch.cosine_similarity(estimate, natural, dim=0).item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_natural_parameters_are_bounded_and_finite(dtype):
    up = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=dtype)
    lengths = torch.tensor([0.0, 1e-30, 0.5, 1.0, 1.01, 2.0], dtype=dtype)
    means = (up * lengths[:, None]).requires_grad_()
    naturals = vmf_naturals(means)
    assert naturals.dtype == torch.promote_types(dtype, torch.float32)
    assert naturals[0].tolist() == [0] * 4
    assert naturals[3:, 0].tolist() == pytest.approx([1e5] * 3, rel=1e-6)
    assert vmf_naturals(means, largest_concentration=50)[3:, 0].tolist() == pytest.approx([50] * 3, rel=1e-6)
    naturals.sum().backward()
    assert means.grad.isfinite().all()
    assert means.grad[0].tolist() == [4] * 4


def test_running_means_are_the_means_of_all_batches_together():
    z, y, _ = batch()
    more, counts = batch(seed=1)[0], torch.zeros(5, dtype=torch.float64)
    more_y = torch.tensor([0, 1, 1, 1, 1, 0, 3])
    means = torch.full((5, 4), 7.0, dtype=torch.float64)  # of no projection: replaced
    for rows, labels in ((z, y), (more, more_y), (z[:1], y[:1])):
        means, counts = running_class_means(means, counts, rows.requires_grad_(), labels)
        assert not means.requires_grad
    rows, labels = torch.cat([z, more, z[:1]]).detach(), [*y.tolist(), *more_y.tolist(), 0]
    for k in range(4):
        of_class = [row for row, label in zip(rows.tolist(), labels, strict=True) if label == k]
        assert counts[k] == len(of_class)
        expected = [sum(column) / len(of_class) for column in zip(*of_class, strict=True)]
        assert means[k].tolist() == pytest.approx(expected, rel=1e-12)
    assert counts[4] == 0
    assert means[4].tolist() == [7.0] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count_dtype", [torch.int64, torch.float32])
def test_running_means_keep_types_inputs_and_rows_of_absent_classes(dtype, count_dtype):
    z, y, _ = batch()
    means, counts = torch.full((5, 4), 0.1, dtype=dtype), torch.full((5,), 3).to(count_dtype)
    before = means.clone(), counts.clone()
    new_means, new_counts = running_class_means(means, counts, z.bfloat16(), y.int())
    assert (new_means.dtype, new_counts.dtype) == (dtype, count_dtype)
    assert new_counts.tolist() == [6, 5, 4, 4, 3]
    assert torch.equal(means, before[0])
    assert torch.equal(counts, before[1])
    assert torch.equal(new_means[4], means[4])
    assert not torch.isclose(new_means[:4], means[:4]).all(dim=1).any()


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        outputs = out if isinstance(out, tuple | list) else (out,)
        self.numel = max([self.numel, *(x.numel() for x in outputs if isinstance(x, Tensor))])
        return out


def test_memory_is_a_few_matrices_of_samples_and_classes():
    z = batch()[0].float().requires_grad_()
    naturals = torch.ones(300, 4)
    kept = []
    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(kept.append, lambda x: x):
        loss = probabilistic_contrastive(z, torch.tensor(LABELS), naturals, [1] * 300, temperature=0.1)
    assert largest.numel == len(z) * 300
    assert len({x.data_ptr() for x in kept if x.numel() == len(z) * 300}) == 4
    assert loss.isfinite()


def test_an_accelerator_is_never_waited_for():
    # Tensors without values: whatever would read one back on the host raises.
    with FakeTensorMode():
        z, y = torch.empty(8, 4, device="cuda"), torch.empty(8, dtype=torch.long, device="cuda")
        counts = torch.empty(5, dtype=torch.float64, device="cuda")
        means, counts = running_class_means(torch.empty(5, 4, device="cuda"), counts, z, y)
        for seen in (None, counts > 0):
            loss = probabilistic_contrastive(z, y, vmf_naturals(means), counts, temperature=0.1, seen=seen)
            assert loss.shape == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"z": torch.ones(7, 4)}, "z must have unit rows, got norm 2 at row 0"),
        ({"z": torch.ones(7)}, r"z must be a non-empty floating-point matrix, got shape \(7,\)"),
        ({"y": torch.zeros(6, dtype=torch.long)}, r"y must hold 7 integer labels, got shape \(6,\)"),
        ({"y": torch.tensor([0] * 6 + [5])}, r"y must lie in \[0, 5\), got 5"),
        ({"naturals": torch.ones(5, 3)}, r"naturals must have rows of length 4 like z, got shape \(5, 3\)"),
        ({"naturals": torch.ones(5, 4).long()}, "naturals must be .* of torch.int64"),
        ({"class_counts": [1, 2]}, r"one count for each of 5 classes, got shape \(2,\)"),
        ({"class_counts": [3, 2, 0, 1, 1]}, r"class_counts must be positive, got \[3, 2, 0, 1, 1\]"),
        ({"seen": torch.ones(4, dtype=torch.bool)}, r"seen must hold one bool for each of 5 classes, got shape \(4,\)"),
        ({"seen": torch.ones(5)}, "seen must hold .* of torch.float32"),
        ({"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ],
)
def test_bad_input_of_the_loss_is_named(changes, message):
    z, y, naturals = batch()
    arguments = {"z": z, "y": y, "naturals": naturals, "class_counts": COUNTS, "temperature": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        probabilistic_contrastive(**arguments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"means": torch.ones(5, 3)}, r"means must have rows of length 4 like z, got shape \(5, 3\)"),
        ({"means": torch.ones(5)}, r"means must be a non-empty floating-point matrix, got shape \(5,\)"),
        ({"counts": torch.ones(4)}, r"counts must hold one number for each of 5 classes, got shape \(4,\)"),
        ({"counts": torch.ones(5, dtype=torch.bool)}, "counts must hold .* of torch.bool"),
        ({"y": torch.tensor([0] * 6 + [5])}, r"y must lie in \[0, 5\), got 5"),
    ],
)
def test_bad_input_of_the_running_means_is_named(changes, message):
    z, y, _ = batch()
    with pytest.raises(ValueError, match=message):
        running_class_means(**({"means": torch.ones(5, 4), "counts": torch.ones(5), "z": z, "y": y} | changes))


def test_bad_input_of_the_natural_parameters_is_named():
    with pytest.raises(ValueError, match=r"means must have rows of length ≥ 2, got shape \(5, 1\)"):
        vmf_naturals(torch.ones(5, 1))
    with pytest.raises(ValueError, match="largest_concentration must be a positive finite number, got inf"):
        vmf_naturals(torch.ones(5, 2), largest_concentration=math.inf)


def test_a_non_finite_embedding_shows_in_the_loss():
    z, y, naturals = batch()
    z[3, 1] = math.nan
    assert probabilistic_contrastive(z, y, naturals, COUNTS, temperature=0.1).isnan()
