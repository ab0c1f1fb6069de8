import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import sympy as sp
import torch
from torch.nn.functional import normalize

from ltnb import geometry, losses
from ltnb.notebooks import read
from ltnb.theory import supervised_contrastive as scl

NOTEBOOK = Path(__file__).parents[2] / "notebooks/theory/02_supervised_contrastive.ipynb"
TEMPERATURES = [1.0, 0.3, 0.07]


def labels_of(class_counts):
    return np.repeat(np.arange(len(class_counts)), class_counts)


def random_embeddings(count, dim, seed=0):
    z = np.random.default_rng(seed).normal(size=(count, dim))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def at_simplex(class_counts):
    num_classes = len(class_counts)
    return geometry.regular_simplex(num_classes, num_classes).numpy()[labels_of(class_counts)]


def by_loops(z, y, temperature):
    """Loss and bound of each anchor, as the formulas read."""
    rows = []
    for i in range(len(z)):
        positives = [z[i] @ z[k] for k in range(len(z)) if k != i and y[k] == y[i]]
        negatives = [z[i] @ z[k] for k in range(len(z)) if y[k] != y[i]]
        if not positives:
            rows.append((0.0, 0.0))
            continue
        denominator = sum(math.exp(s / temperature) for s in positives + negatives)
        loss = -sum(math.log(math.exp(s / temperature) / denominator) for s in positives) / len(positives)
        exponent = (sum(negatives) / len(negatives) - sum(positives) / len(positives)) / temperature
        rows.append((loss, math.log(len(positives) + len(negatives) * math.exp(exponent))))
    return np.array(rows).T


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("class_counts", [[4, 4, 4], [7, 4, 2, 1], [2, 1]])
def test_loss_and_bound_are_their_formulas(class_counts, temperature):
    y = labels_of(class_counts)
    z = random_embeddings(len(y), 3)
    loss, bound = by_loops(z, y, temperature)
    np.testing.assert_allclose(scl.anchor_losses(z, y, temperature), loss, atol=1e-11)
    np.testing.assert_allclose(scl.class_specific_lower_bound(z, y, temperature), bound, atol=1e-11)
    in_torch = losses.supervised_contrastive(
        torch.from_numpy(z), torch.from_numpy(y), temperature=temperature, reduction="none"
    )
    np.testing.assert_allclose(in_torch.numpy(), loss, atol=1e-11)


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("class_counts", [[3, 3, 3], [20, 3, 2], [6, 5, 4, 3, 2, 1]])
def test_no_random_batch_is_below_theorem_1(class_counts, temperature):
    y = labels_of(class_counts)
    for seed in range(100):
        z = random_embeddings(len(y), 2 + seed % 6, seed)
        gap = scl.anchor_losses(z, y, temperature) - scl.class_specific_lower_bound(z, y, temperature)
        assert gap.min() > -1e-12


@pytest.mark.parametrize("class_counts", [[5, 5, 5], [12, 4, 2], [2, 2]])
def test_theorem_1_is_tight_at_a_simplex_for_any_class_counts(class_counts):
    z, y = at_simplex(class_counts), labels_of(class_counts)
    for temperature in TEMPERATURES:
        np.testing.assert_allclose(
            scl.anchor_losses(z, y, temperature), scl.class_specific_lower_bound(z, y, temperature), atol=1e-14
        )


def test_theorem_1_is_not_tight_where_constants_depend_on_the_negatives_class():
    z, y = np.array([[1.0, 0], [1, 0], [0, 1], [-1, 0]]), np.array([0, 0, 1, 2])
    gap = scl.anchor_losses(z, y) - scl.class_specific_lower_bound(z, y)
    assert gap[0] == pytest.approx(math.log(math.e + 1 + 1 / math.e) - 1 - math.log(1 + 2 * math.exp(-1.5)))
    assert gap[0] > 0.03


def mutations_of_theorem_1(z, y, temperature):
    """The bound with one slip each, as a sum over anchors."""
    counts = np.bincount(y)[y]
    a, m = counts - 1, len(y) - counts
    attraction = np.array(
        [np.mean([z[i] @ z[k] for k in range(len(y)) if k != i and y[k] == y[i]]) for i in range(len(y))]
    )
    repulsion = np.array([np.mean([z[i] @ z[k] for k in range(len(y)) if y[k] != y[i]]) for i in range(len(y))])
    difference = repulsion - attraction
    return {
        "itself counted": np.log(a + 1 + m * np.exp(difference / temperature)),
        "sign": np.log(a + m * np.exp(-difference / temperature)),
        "no temperature": np.log(a + m * np.exp(difference)),
        "no repulsion": np.log(a + m * np.exp(-attraction / temperature)),
        "all as negatives": np.log(a + len(y) * np.exp(difference / temperature)),
    }


@pytest.mark.parametrize("slip", ["itself counted", "sign", "no temperature", "no repulsion", "all as negatives"])
def test_a_slip_in_theorem_1_puts_the_bound_above_some_loss_or_off_the_simplex(slip):
    class_counts, temperature = [5, 3, 2], 0.3
    y = labels_of(class_counts)
    z = at_simplex(class_counts)
    tight = np.allclose(
        mutations_of_theorem_1(z, y, temperature)[slip], scl.anchor_losses(z, y, temperature), rtol=1e-12
    )
    beaten = False
    for seed in range(60):
        z = random_embeddings(len(y), 3, seed)
        gap = scl.anchor_losses(z, y, temperature) - mutations_of_theorem_1(z, y, temperature)[slip]
        beaten |= gap.min() < -1e-12
    assert beaten or not tight


@pytest.mark.parametrize(("num_classes", "size"), [(2, 2), (3, 4), (4, 10), (10, 2), (100, 5)])
@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1, 0.01])
def test_balanced_bound_as_expression_and_number_and_at_the_simplex(num_classes, size, temperature):
    count = num_classes * size
    number = scl.balanced_lower_bound(count, num_classes, temperature)
    exact = scl.balanced_bound(sp.Integer(count), sp.Integer(num_classes), sp.nsimplify(temperature))
    assert number == pytest.approx(float(exact.evalf(30)), rel=1e-13)
    if num_classes <= 10:
        z, y = at_simplex([size] * num_classes), labels_of([size] * num_classes)
        assert scl.anchor_losses(z, y, temperature).sum() == pytest.approx(number, rel=1e-12)
        in_torch = losses.supervised_contrastive(
            torch.from_numpy(z), torch.from_numpy(y), temperature=temperature, reduction="sum"
        )
        assert float(in_torch) == pytest.approx(number, rel=1e-12)


def test_balanced_bound_is_theorem_1_at_the_simplex():
    N, K = sp.symbols("N K", integer=True, positive=True)
    tau = sp.Symbol("tau", positive=True)
    per_anchor = scl.anchor_bound(N / K - 1, N - N / K, sp.Integer(1), -1 / (K - 1), tau)
    assert sp.simplify(sp.exp(per_anchor) - sp.exp(scl.balanced_bound(N, K, tau) / N)) == 0


def test_temperature_defaults_to_that_of_the_papers():
    assert scl.balanced_lower_bound(20, 4) == scl.balanced_lower_bound(20, 4, 1.0)
    assert scl.balanced_lower_bound(20, 4) == pytest.approx(20 * math.log(4 + 15 * math.exp(-4 / 3)))


def test_limits_of_the_balanced_bound():
    assert scl.balanced_lower_bound(40, 4, 1e-3) == pytest.approx(40 * math.log(9), rel=1e-14)
    assert scl.balanced_lower_bound(40, 4, 1e9) == pytest.approx(40 * math.log(39), rel=1e-8)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda n, k, t: n * math.log(n / k + n * (k - 1) / k * math.exp(-k / ((k - 1) * t))),
        lambda n, k, t: n * math.log(n / k - 1 + n * (k - 1) / k * math.exp(k / ((k - 1) * t))),
        lambda n, k, t: n * math.log(n / k - 1 + n * (k - 1) / k * math.exp(-1 / t)),
        lambda n, k, t: n * math.log(n / k - 1 + n * (k - 1) / k * math.exp(-k / (k - 1 + 0 * t))),
        lambda n, k, t: n * math.log(n / k - 1 + n / k * math.exp(-k / ((k - 1) * t))),
        lambda n, k, t: math.log(n / k - 1 + n * (k - 1) / k * math.exp(-k / ((k - 1) * t))),
    ],
    ids=["no -1", "sign", "no K/(K-1)", "no temperature", "no K-1", "mean for sum"],
)
def test_a_slip_in_the_balanced_bound_shows(wrong):
    z, y, temperature = at_simplex([4, 4, 4]), labels_of([4, 4, 4]), 0.5
    loss = scl.anchor_losses(z, y, temperature).sum()
    assert not math.isclose(loss, wrong(12, 3, temperature), rel_tol=1e-3)
    assert math.isclose(loss, scl.balanced_lower_bound(12, 3, temperature), rel_tol=1e-12)


@pytest.mark.parametrize(("num_classes", "size", "dim"), [(2, 4, 2), (4, 4, 3), (4, 4, 2), (8, 2, 20)])
def test_gaps_are_never_negative_and_add_up(num_classes, size, dim):
    y = labels_of([size] * num_classes)
    for seed in range(60):
        z = random_embeddings(len(y), dim, seed)
        temperature = TEMPERATURES[seed % 3]
        gaps = scl.balanced_gaps(z, y, temperature)
        assert min(gaps) > -1e-10
        above = scl.anchor_losses(z, y, temperature).sum() - scl.balanced_lower_bound(len(y), num_classes, temperature)
        assert sum(gaps) == pytest.approx(above, abs=1e-9)


def test_each_gap_closes_where_its_inequality_is_tight():
    y = labels_of([3, 3, 3])
    assert max(map(abs, scl.balanced_gaps(at_simplex([3, 3, 3]), y, 0.5))) < 1e-12

    collapsed = random_embeddings(3, 3)[y]
    gaps = scl.balanced_gaps(collapsed, y, 0.5)
    assert abs(gaps.positives) < 1e-12
    assert abs(gaps.collapse) < 1e-12
    assert min(gaps.negatives, gaps.anchors, gaps.centre) > 1e-3

    orthogonal = np.eye(3)[y]
    gaps = scl.balanced_gaps(orthogonal, y, 0.5)
    assert max(abs(gaps.positives), abs(gaps.negatives), abs(gaps.anchors), abs(gaps.collapse)) < 1e-12
    assert gaps.centre > 0.1

    one_point = np.tile([[1.0, 0.0]], (9, 1))
    gaps = scl.balanced_gaps(one_point, y, 0.5)
    assert max(abs(gaps.positives), abs(gaps.negatives), abs(gaps.anchors), abs(gaps.collapse)) < 1e-12
    assert gaps.centre == pytest.approx(9 * math.log(8) - scl.balanced_lower_bound(9, 3, 0.5))


def descended(y, num_classes, dim, temperature, steps):
    z = random_embeddings(len(y), dim, 1)
    for _ in range(steps):
        z = z - 0.1 * scl.gradient(z, y, temperature)
        z /= np.linalg.norm(z, axis=1, keepdims=True)
    bound = scl.balanced_lower_bound(len(y), num_classes, temperature)
    return scl.anchor_losses(z, y, temperature).sum() / bound - 1


def test_descent_meets_the_bound_where_a_simplex_fits_and_only_there():
    y = labels_of([5] * 4)
    assert abs(descended(y, 4, 3, 0.5, 300)) < 1e-9
    assert descended(y, 4, 2, 0.5, 300) > 1e-3


def autograd(w, y, temperature):
    """Gradients of each anchor's own loss, and of the sum, with respect to the un-normalised embeddings."""
    leaf = torch.from_numpy(w).requires_grad_()
    loss = losses.supervised_contrastive(
        normalize(leaf, dim=1), torch.from_numpy(y), temperature=temperature, reduction="none"
    )
    own = [torch.autograd.grad(loss[i], leaf, retain_graph=True)[0][i] for i in range(len(y))]
    (whole,) = torch.autograd.grad(loss.sum(), leaf)
    return torch.stack(own).numpy(), whole.numpy()


@pytest.fixture
def batch():
    random = np.random.default_rng(0)
    y = labels_of([6, 3, 2, 1])
    return random.normal(size=(len(y), 4)) * random.uniform(0.1, 5, size=(len(y), 1)), y


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_gradients_match_autograd(batch, temperature):
    w, y = batch
    own, whole = autograd(w, y, temperature)
    np.testing.assert_allclose(scl.anchor_gradient(w, y, temperature), own, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(scl.gradient(w, y, temperature), whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "slip", ["no 1/a", "no projection", "no length", "no temperature", "sign", "itself in the sum"]
)
def test_a_slip_in_the_gradient_shows(batch, slip):
    w, y = batch
    temperature = 0.3
    own, _ = autograd(w, y, temperature)

    def formula(slip=None):
        rows = np.zeros_like(w)
        lengths = np.linalg.norm(w, axis=1)
        z = w / lengths[:, None]
        for i in range(len(y)):
            others = [k for k in range(len(y)) if k != i]
            positives = [k for k in others if y[k] == y[i]]
            if not positives:
                continue
            summed = range(len(y)) if slip == "itself in the sum" else others
            denominator = sum(math.exp(z[i] @ z[k] / temperature) for k in summed)
            for k in others:
                coefficient = math.exp(z[i] @ z[k] / temperature) / denominator
                if k in positives and slip != "no 1/a":
                    coefficient += 1 / len(positives) if slip == "sign" else -1 / len(positives)
                direction = z[k] if slip == "no projection" else z[k] - (z[i] @ z[k]) * z[i]
                rows[i] += coefficient * direction
            rows[i] /= (1 if slip == "no temperature" else temperature) * (1 if slip == "no length" else lengths[i])
        return rows

    np.testing.assert_allclose(formula(), own, rtol=1e-9, atol=1e-11)
    assert np.abs(formula(slip) - own).max() > 1e-3


def test_a_step_is_orthogonal_to_the_embedding_and_scales_with_its_inverse(batch):
    w, y = batch
    slope = scl.gradient(w, y)
    np.testing.assert_allclose((slope * w).sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(scl.gradient(4 * w, y), slope / 4, rtol=1e-12)


def test_the_simplex_is_at_rest_only_for_equal_counts():
    assert np.abs(scl.gradient(at_simplex([4, 4, 4]), labels_of([4, 4, 4]), 0.5)).max() < 1e-13
    assert np.abs(scl.gradient(at_simplex([9, 4, 4]), labels_of([9, 4, 4]), 0.5)).max() > 1e-3
    assert np.abs(scl.gradient(at_simplex([9, 2]), labels_of([9, 2]), 0.5)).max() < 1e-13  # a diameter always is


def test_pull_and_push_are_the_lengths_of_what_a_key_adds():
    z, y, temperature = random_embeddings(6, 3), labels_of([3, 3]), 0.5
    cosines = z[0] @ z.T
    weights = np.exp(cosines / temperature)
    for k in range(1, 6):
        rest = weights[1:].sum() - weights[k]
        key_share = scl.share(sp.Float(cosines[k]), sp.Float(rest), sp.Float(temperature))
        along = np.linalg.norm(z[k] - cosines[k] * z[0])
        expected = along * (weights[k] / weights[1:].sum() - (0.5 if y[k] == 0 else 0))
        if y[k] == 0:
            assert float(scl.positive_pull(sp.Float(cosines[k]), key_share, sp.Integer(2))) == pytest.approx(-expected)
        else:
            assert float(scl.negative_push(sp.Float(cosines[k]), key_share)) == pytest.approx(expected)


def test_a_positive_much_closer_than_the_others_is_pushed_away():
    assert scl.positive_pull(sp.Rational(9, 10), sp.Rational(1, 2), sp.Integer(4)) < 0
    assert scl.positive_pull(sp.Rational(9, 10), sp.Rational(1, 10), sp.Integer(4)) > 0


def test_hardest_negative():
    tau = sp.Symbol("tau", positive=True)
    hardest = scl.hardest_negative(tau)
    assert sp.simplify(hardest**2 + tau * hardest - 1) == 0
    assert float(scl.hardest_negative(sp.Integer(1))) == pytest.approx((math.sqrt(5) - 1) / 2)
    assert sp.simplify((2 * hardest) ** 2 + tau * 2 * hardest - 1) != 0
    s = np.linspace(-1, 1, 100001)
    for temperature in TEMPERATURES:
        strongest = s[np.argmax(np.sqrt(1 - s**2) * np.exp((s - 1) / temperature))]
        assert float(scl.hardest_negative(sp.Float(temperature))) == pytest.approx(strongest, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 1), "num_classes must be an integer of at least 2, got 1"),
        ((10, 2.0), "num_classes must be an integer of at least 2, got 2.0"),
        ((10, 3), "num_anchors must be a multiple of num_classes=3.*; got 10"),
        ((4, 4), "num_anchors must be a multiple of num_classes=4 and at least twice that.*; got 4"),
        ((0, 4), "got 0"),
        ((8, 4, 0), "temperature must be a positive finite number, got 0"),
        ((8, 4, math.nan), "temperature must be a positive finite number, got nan"),
        ((8, 4, math.inf), "temperature must be a positive finite number, got inf"),
    ],
)
def test_arguments_of_the_balanced_bound(arguments, message):
    with pytest.raises(ValueError, match=message):
        scl.balanced_lower_bound(*arguments)


def test_numpy_integers_are_integers():
    assert scl.balanced_lower_bound(np.int64(8), np.int64(4)) == scl.balanced_lower_bound(8, 4)


def test_batches_are_checked():
    z, y = random_embeddings(6, 3), labels_of([3, 3])
    for function in (scl.anchor_losses, scl.class_specific_lower_bound, scl.balanced_gaps):
        with pytest.raises(ValueError, match=r"z must be \(N, d\), got shape \(3,\)"):
            function(z[0], y)
        with pytest.raises(ValueError, match=r"y must hold 6 integer labels, got shape \(5,\)"):
            function(z, y[:5])
        with pytest.raises(ValueError, match=r"y must hold 6 integer labels, .* of float64"):
            function(z, y * 1.0)
        with pytest.raises(ValueError, match="at least two classes"):
            function(z, np.zeros(6, dtype=int))
        with pytest.raises(ValueError, match="z must have finite unit rows, got norm 2 at row 4"):
            function(z * np.where(np.arange(6) == 4, 2, 1)[:, None], y)
        with pytest.raises(ValueError, match="temperature must be a positive finite number"):
            function(z, y, -1.0)
    with pytest.raises(ValueError, match=r"classes of one size of at least 2, got sizes \[4, 2\]"):
        scl.balanced_gaps(z, labels_of([4, 2]))
    with pytest.raises(ValueError, match="w must not have a zero row"):
        scl.gradient(z * (np.arange(6) > 0)[:, None], y)


def run_cells(*markers):
    """Run the notebook's imports, and of its other cells those that contain one of the markers."""
    sources = ["".join(cell["source"]) for cell in read(NOTEBOOK)["cells"] if cell["cell_type"] == "code"]
    chosen = [source for source in sources[2:] if any(marker in source for marker in markers)]
    if len(chosen) < len(markers):
        raise LookupError(f"not every cell is there: {markers}")
    names = {}
    with mpl.rc_context():
        for source in [*sources[:2], *chosen]:
            exec(source, names)


LOSS = ("trained_with = ",)
TWO_STEPS = ('sp.symbols("a m"',)
CONSTANTS = ("class-wise constants", "triangle = ")
SYMBOLS = ('sp.symbols("s1:6"', 'sp.symbols("a m"', "f = sp.log", "mean_exponent = ", "least = ")
AT_SIMPLEX = ("for num_classes in (2, 3, 10, 50)",)
GRADIENT = ("leaf = torch.from_numpy(w)",)
HARDEST = ('sp.symbols("a m"', "stationary = ")
FIGURE = ('sp.symbols("s1:6"', 'sp.symbols("a m"', "stationary = ", "cosines = np.array")


def test_the_notebooks_checks_pass():
    run_cells(*{*LOSS, *CONSTANTS, *SYMBOLS, *AT_SIMPLEX, *GRADIENT, *FIGURE})


def slip_in_loss(right):
    return lambda z, y, temperature=1.0: right(z, y, 1.1 * temperature)


def slip_in_anchor_bound(right):
    return lambda a, m, attraction, repulsion, temperature: right(a, m, repulsion, attraction, temperature)


def slip_in_balanced_bound(right):
    return lambda n, k, temperature: right(n, k + 1, temperature)


def slip_in_balanced_lower_bound(right):
    return lambda n, k, temperature=1.0: right(n, k, 1.0 + 0 * temperature)


@pytest.mark.parametrize(
    ("name", "slip", "cells"),
    [
        ("anchor_losses", slip_in_loss, LOSS),
        ("anchor_losses", slip_in_loss, AT_SIMPLEX),
        ("anchor_losses", lambda right: lambda *batch: right(*batch) - 0.1, ("checked = 0",)),
        ("class_specific_lower_bound", lambda right: lambda *batch: right(*batch) + 0.1, ("checked = 0",)),
        ("class_specific_lower_bound", lambda right: lambda *batch: right(*batch) - 0.01, CONSTANTS),
        ("anchor_bound", slip_in_anchor_bound, TWO_STEPS),
        ("anchor_bound", lambda right: lambda a, *rest: right(a + 1, *rest), TWO_STEPS),
        ("balanced_bound", slip_in_balanced_bound, SYMBOLS),
        ("balanced_bound", lambda right: lambda n, k, t: right(n, k, -t), SYMBOLS),
        ("balanced_lower_bound", slip_in_balanced_lower_bound, AT_SIMPLEX),
        ("balanced_lower_bound", lambda right: lambda *given: right(*given) + 1e-6, AT_SIMPLEX),
        ("balanced_gaps", lambda right: lambda *batch: scl.Gaps(*right(*batch)[:4], 0.0), ("3000 batches",)),
        ("anchor_gradient", lambda right: lambda *batch: -right(*batch), GRADIENT),
        ("anchor_gradient", lambda right: lambda w, y, t: t * right(w, y, t), GRADIENT),
        ("gradient", lambda _: scl.anchor_gradient, GRADIENT),
        ("hardest_negative", lambda right: lambda t: right(2 * t), HARDEST),
        ("positive_pull", lambda right: lambda s, p, a: right(s, p, 1 / a), FIGURE),
        ("negative_push", lambda right: lambda s, p: right(s, p) + s, FIGURE),
    ],
)
def test_the_notebooks_checks_fail_on_a_slip(monkeypatch, name, slip, cells):
    monkeypatch.setattr(scl, name, slip(getattr(scl, name)))
    with pytest.raises(AssertionError):
        run_cells(*cells)
