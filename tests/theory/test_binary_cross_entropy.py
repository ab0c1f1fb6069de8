import itertools
import json
import math
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import sympy
import torch

from ltnb import losses
from ltnb.geometry import classifier_separability, regular_simplex
from ltnb.theory import binary_cross_entropy as theory

NOTEBOOK = Path(__file__).parents[2] / "notebooks/theory/05_binary_cross_entropy.ipynb"


def numbers(expression, **values):
    return float(expression.subs({sympy.Symbol(name): value for name, value in values.items()}))


def unit_rows(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


# Expressions


@pytest.mark.parametrize("own", [0, 2])
def test_the_losses_as_expressions_are_those_of_the_package(own):
    scores = torch.tensor([[0.3, -1.2, 2.5, 0.0]], dtype=torch.float64)
    exact = [sympy.Float(value, 30) for value in scores[0].tolist()]
    label = torch.tensor([own])
    softmax = torch.nn.functional.cross_entropy(scores, label)
    binary = losses.bce_joint(scores, label, torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))
    assert float(theory.softmax_loss(exact, own)) == pytest.approx(softmax.item(), rel=1e-14)
    assert float(theory.binary_loss(exact, own)) == pytest.approx(binary.item(), rel=1e-14)
    assert [float(a) for a in theory.softmax_activations(exact)] == pytest.approx(scores[0].softmax(0).tolist())
    assert [float(a) for a in theory.binary_activations(exact)] == pytest.approx(scores[0].sigmoid().tolist())


def test_softmax_rations_and_sigmoids_do_not():
    scores = sympy.symbols("s1:5", real=True)
    rationed, free = (
        sum(theory.feature_coefficients(activations(scores), own=1))
        for activations in (theory.softmax_activations, theory.binary_activations)
    )
    assert sympy.simplify(rationed) == 0
    assert sympy.simplify(free) != 0


def random_batch(num_samples=5, num_classes=3, dim=2):
    random = np.random.default_rng(1)
    labels = [0, 0, 1, 0, 0][:num_samples]
    return random.normal(size=(num_samples, dim)), labels, unit_rows(num_classes, dim), random.normal(size=num_classes)


def test_the_three_forces_add_up_to_autograd_along_the_sphere():
    features, labels, weight, bias = random_batch()
    leaf = torch.tensor(weight, requires_grad=True)
    joint = losses.bce_joint(torch.tensor(features), torch.tensor(labels), leaf, torch.tensor(bias))
    (joint + 0.7 * losses.bce_uniform(leaf)).backward()
    symbolic = sympy.Matrix(features), labels, sympy.Matrix(weight), bias.tolist(), 0.7
    assert float(theory.classifier_loss(*symbolic)) == pytest.approx((joint + 0.7 * losses.bce_uniform(leaf)).item())
    for k in range(3):
        gradient = theory.classifier_gradient(k, *symbolic)
        whole = np.array(gradient.pull + gradient.repel + gradient.interact, dtype=float)[:, 0]
        np.testing.assert_allclose(leaf.grad[k], whole - whole @ weight[k] * weight[k], rtol=1e-10)
    absent = theory.classifier_gradient(2, *symbolic)
    assert absent.pull == sympy.zeros(2, 1)
    assert absent.repel != sympy.zeros(2, 1)


def test_the_contrastive_gradient_is_that_of_autograd():
    z, memory = np.array([[0.8, -1.7, 0.4]]), unit_rows(4, 3)
    leaf = torch.tensor(z, requires_grad=True)
    losses.bce_contrastive(leaf, torch.tensor([2]), torch.tensor(memory), temperature=0.3).backward()
    gradient = theory.contrastive_gradient(sympy.Matrix(z), 2, sympy.Matrix(memory), 0.3)
    np.testing.assert_allclose(leaf.grad[0], np.array(gradient, dtype=float)[:, 0], rtol=1e-10)


def test_expressions_and_numbers_agree():
    for k in (2, 3, 10, 100):
        minimum = theory.uniform_minimum(sympy.Integer(k))
        assert float(minimum) == pytest.approx(theory.uniform_lower_bound(k), rel=1e-14)
        exact = theory.simplex_minimum(sympy.Integer(k), sympy.Rational(5, 2), sympy.Rational(-3, 10))
        assert float(exact) == pytest.approx(theory.joint_lower_bound(k, 2.5, -0.3), rel=1e-14)
    risk = theory.expected_risk(*sympy.symbols("p s r"))
    best = theory.optimal_logit(0.2, 0.4)
    assert numbers(sympy.diff(risk, sympy.Symbol("s")), p=0.2, r=0.4, s=best) == pytest.approx(0, abs=1e-15)


# The uniform term


@pytest.mark.parametrize(("num_classes", "dim"), [(2, 1), (3, 2), (5, 9), (12, 11)])
def test_no_configuration_has_a_uniform_term_below_the_bound_and_the_simplex_attains_it(num_classes, dim):
    bound = theory.uniform_lower_bound(num_classes)
    simplex = regular_simplex(num_classes, dim).numpy()
    assert theory.uniform_term(simplex) == pytest.approx(bound, rel=1e-14)
    near = simplex + 10.0 ** np.random.default_rng(1).uniform(-9, 0, size=(2000, 1, 1)) * unit_rows(
        2000, num_classes, dim
    )
    near /= np.linalg.norm(near, axis=-1, keepdims=True)
    for tried in (unit_rows(2000, num_classes, dim), near):
        assert (theory.uniform_term(tried) >= bound - 1e-12).all()


def test_in_too_few_dimensions_the_bound_is_out_of_reach():
    square = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    assert theory.uniform_term(square) > theory.uniform_lower_bound(4) + 0.05


def test_many_configurations_at_once_give_the_loss_of_each():
    rows = unit_rows(3, 4, 6, 5)
    expected = [[losses.bce_uniform(torch.tensor(one)).item() for one in some] for some in rows]
    np.testing.assert_allclose(theory.uniform_term(rows), expected, rtol=1e-13)


def test_the_force_is_the_gradient_along_the_sphere():
    rows = unit_rows(6, 4)
    leaf = torch.tensor(rows, requires_grad=True)
    losses.bce_uniform(leaf).backward()
    np.testing.assert_allclose(theory.uniform_force(rows), leaf.grad, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(theory.uniform_force(regular_simplex(6, 5).numpy()), 0, atol=1e-15)


def test_values_at_a_hundred_classes():
    # as the paper logs and reports them
    assert theory.uniform_lower_bound(100, positive_term=True) == pytest.approx(68.44, abs=5e-3)
    assert theory.uniform_lower_bound(100, positive_term=True) - theory.uniform_lower_bound(100) == pytest.approx(
        0.3133, abs=5e-5
    )
    assert theory.simplex_separability(100) == pytest.approx(50.505, abs=5e-4)


def test_with_many_classes_the_bound_nears_that_of_orthogonal_vectors():
    k = 10**6
    assert theory.uniform_lower_bound(k) - (k - 1) * math.log(2) == pytest.approx(-0.5, abs=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_the_softmax_twin_is_bounded_and_meets_its_bound_at_the_simplex(num_classes):
    def term(rows):
        cosines = rows @ rows.mT
        return (np.log(np.exp(cosines).sum(axis=-1)) - 1).mean(axis=-1)

    bound = theory.softmax_uniform_lower_bound(num_classes)
    assert term(regular_simplex(num_classes, 8).numpy()) == pytest.approx(bound, rel=1e-13)
    assert (term(unit_rows(2000, num_classes, 8)) >= bound - 1e-12).all()


# The separability


@pytest.mark.parametrize("num_classes", [2, 6, 100])
def test_any_vectors_that_sum_to_zero_have_the_separability_of_the_simplex(num_classes):
    value = theory.simplex_separability(num_classes)
    opposite = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).repeat(num_classes // 2, 1)
    for weight in (regular_simplex(num_classes, num_classes), opposite):
        expected = torch.full((num_classes,), value, dtype=torch.float64)
        torch.testing.assert_close(classifier_separability(weight), expected)


# The joint term


@pytest.mark.parametrize(("num_classes", "radius", "bias"), [(2, 0.5, 0.0), (4, 3.0, -2.0), (9, 12.0, 1.0)])
def test_with_the_simplex_as_classifier_no_feature_beats_its_own_vector(num_classes, radius, bias):
    weight = regular_simplex(num_classes, num_classes + 1)
    random = np.random.default_rng(0)
    labels = torch.tensor(random.choice(num_classes, size=3000, p=(p := 0.5 ** np.arange(num_classes)) / p.sum()))
    biases = torch.full((num_classes,), bias, dtype=torch.float64)
    bound = theory.joint_lower_bound(num_classes, radius, bias)
    features = radius * torch.tensor(random.uniform(size=(3000, 1)) ** 0.2 * unit_rows(3000, num_classes + 1))
    assert (losses.bce_joint(features, labels, weight, biases, reduction="none") >= bound - 1e-12).all()
    best = losses.bce_joint(radius * weight[labels], labels, weight, biases)
    assert best.item() == pytest.approx(bound, rel=1e-12)
    if bias == 0:
        contrastive = losses.bce_contrastive(weight[labels], labels, weight, temperature=1 / radius)
        assert contrastive.item() == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("prior", [1e-3, 0.3, 0.9])
def test_a_rate_shifts_the_best_logit_by_its_logarithm_whatever_the_prior(prior):
    for rate in (0.05, 0.4, 1.0):
        best = theory.optimal_logit(prior, rate)
        assert best - theory.optimal_logit(prior) == pytest.approx(-math.log(rate), rel=1e-12)
        risks = [
            prior * np.logaddexp(0, -s) + rate * (1 - prior) * np.logaddexp(0, s)
            for s in (best, best - 1e-2, best + 1e-2)
        ]
        assert risks[0] < min(risks[1:])


def test_extra_logarithms():
    assert theory.extra_logarithms(100) == 99
    assert theory.extra_logarithms(11, 0.4) == pytest.approx(4)


def test_classes_in_a_batch_against_all_batches():
    counts, labels = [3, 2, 1], [0, 0, 0, 1, 1, 2]
    for size in range(1, 7):
        batches = list(itertools.combinations(labels, size))
        expected = sum(len(set(batch)) for batch in batches) / len(batches)
        assert theory.expected_classes_in_batch(counts, size) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.uniform_lower_bound(1), "num_classes must be an integer of at least 2, got 1"),
        (lambda: theory.uniform_lower_bound(2.5), "num_classes must be .* got 2.5"),
        (lambda: theory.softmax_uniform_lower_bound(0), "num_classes must be .* got 0"),
        (lambda: theory.simplex_separability(1), "num_classes must be .* got 1"),
        (lambda: theory.joint_lower_bound(1, 1.0), "num_classes must be .* got 1"),
        (lambda: theory.joint_lower_bound(3, 0.0), "radius must be a positive finite number, got 0.0"),
        (lambda: theory.joint_lower_bound(3, math.inf), "radius must be .* got inf"),
        (lambda: theory.joint_lower_bound(3, 1.0, math.nan), "bias must be a finite number, got nan"),
        (lambda: theory.optimal_logit(1.0), r"prior must be a number in \(0, 1\), got 1.0"),
        (lambda: theory.optimal_logit(0.5, 0.0), r"negative_rate must be a number in \(0, 1\], got 0.0"),
        (lambda: theory.extra_logarithms(5, 1.1), r"negative_rate must be .* got 1.1"),
        (lambda: theory.expected_classes_in_batch([3, 0], 2), r"class_counts must be positive, got \[3, 0\]"),
        (lambda: theory.expected_classes_in_batch([], 2), r"class_counts must be positive, got \[\]"),
        (lambda: theory.expected_classes_in_batch([3, 1], 5), "batch_size must lie between 1 and the 4 images, got 5"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# The notebook's checks fail where a formula is wrong


@cache
def sections():
    """The notebook's code cells by the number of their section, 0 for those before the first; figures left out."""
    found, number = {0: []}, 0
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and "plt.show()" not in source:
            found[number].append(compile(source, f"section {number}", "exec"))
        for line in source.splitlines() if cell["cell_type"] == "markdown" else ():
            if line.startswith("## ") and line[3].isdigit():
                number = int(line[3:].split(".")[0])
                found[number] = []
    return found


def run_section(number, *, without):
    """Run a section's cells but those that call a function in `without`: slow ones that have another thing to check."""
    names = {}
    with mpl.rc_context():
        for cell in sections()[0]:
            exec(cell, names)
        for cell in sections()[number]:
            if without.isdisjoint(cell.co_names):
                exec(cell, names)


def changed(function, change):
    """The function with its result passed through `change`."""
    return lambda *args, **kwargs: change(function(*args, **kwargs))


def without_normalisation(logits):
    return [sympy.exp(s) for s in logits]


def divided_by_the_rate(*args, negative_rate=1.0, **kwargs):
    return original_joint(*args, negative_rate=negative_rate, **kwargs) / negative_rate


def sharing_the_draw(features, *args, negative_rate=1.0, generator=None, **kwargs):
    if negative_rate == 1:
        return original_joint(features, *args, **kwargs)
    first = original_joint(features[:1], args[0][:1], *args[1:], negative_rate=0.4, generator=generator, **kwargs)
    return first.expand(len(features))


original_joint = losses.bce_joint
MUTATIONS = {
    "sign of the own coefficient": (2, theory, "feature_coefficients", lambda c: [-c[0], *c[1:]]),
    "a repulsion missing": (2, theory, "feature_coefficients", lambda c: [*c[:-1], sympy.Integer(0)]),
    "softmax without its denominator": (2, theory, "softmax_activations", without_normalisation),
    "softmax loss doubled": (2, theory, "softmax_loss", lambda loss: 2 * loss),
    "joint loss doubled": (2, losses, "bce_joint", lambda loss: 2 * loss),
    "joint loss halved": (3, losses, "bce_joint", lambda loss: loss / 2),
    "interact term without its 2": (4, theory, "classifier_gradient", lambda g: g._replace(interact=g.interact / 2)),
    "pull of the other sign": (4, theory, "classifier_gradient", lambda g: g._replace(pull=-g.pull)),
    "no repulsion": (4, theory, "classifier_gradient", lambda g: g._replace(repel=0 * g.repel)),
    "uniform term of each pair once": (4, losses, "bce_uniform", lambda loss: loss / 2),
    "contrastive gradient doubled": (5, theory, "contrastive_gradient", lambda g: 2 * g),
    "contrastive loss off by a factor": (5, losses, "bce_contrastive", lambda loss: 0.2 * loss),
    "uniform bound too high": (6, theory, "uniform_lower_bound", lambda bound: bound * (1 + 1e-6)),
    "uniform bound too low": (6, theory, "uniform_lower_bound", lambda bound: bound - 1e-3),
    "uniform minimum off by a factor": (6, theory, "uniform_minimum", lambda bound: 2 * bound),
    "uniform loss with its constant": (6, losses, "bce_uniform", lambda loss: loss + math.log1p(math.exp(-1))),
    "uniform force of the other sign": (6, theory, "uniform_force", lambda force: -force),
    "softmax bound too high": (6, theory, "softmax_uniform_lower_bound", lambda bound: bound * (1 + 1e-6)),
    "softmax bound too low": (6, theory, "softmax_uniform_lower_bound", lambda bound: bound * (1 - 1e-6)),
    "separability of the simplex": (7, theory, "simplex_separability", lambda value: value - 0.01),
    "joint bound too high": (8, theory, "joint_lower_bound", lambda bound: bound * (1 + 1e-6)),
    "joint bound too low": (8, theory, "joint_lower_bound", lambda bound: bound * (1 - 1e-6)),
    "joint minimum, sign": (8, theory, "simplex_minimum", lambda f: f.subs(sympy.Symbol("b", real=True), 0)),
    "sampled loss divided by r": (9, losses, "bce_joint", divided_by_the_rate),
    "one draw for all samples": (9, losses, "bce_joint", sharing_the_draw),
    "sign of the shift": (9, theory, "optimal_logit", lambda logit: -logit),
    "risk of the other sign": (9, theory, "expected_risk", lambda risk: risk.subs(sympy.Symbol("r", positive=True), 1)),
    "absent classes counted": (9, theory, "expected_classes_in_batch", lambda number: 100 - number),
    "one logarithm more": (10, theory, "extra_logarithms", lambda number: number + 1),
}
WHOLE_FUNCTIONS = (without_normalisation, divided_by_the_rate, sharing_the_draw)


def slow_cells_beside(module, name):
    """Functions of the notebook whose cells cannot fail for this mutation: sympy knows nothing of torch's losses."""
    walks = set() if name == "uniform_force" else {"descend"}
    return walks if module is theory else walks | {"is_zero"}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_the_notebook_fails_where_a_formula_is_wrong(mutation, monkeypatch):
    section, module, name, change = MUTATIONS[mutation]
    wrong = change if change in WHOLE_FUNCTIONS else changed(getattr(module, name), change)
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        run_section(section, without=slow_cells_beside(module, name))
