import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import sympy as sp
import torch

from ltnb import geometry
from ltnb.notebooks import read
from ltnb.theory import regular_simplex as simplex

NOTEBOOK = Path(__file__).parents[2] / "notebooks/theory/01_regular_simplex.ipynb"
K = sp.Symbol("K", integer=True, positive=True)
RHO = sp.Symbol("rho", positive=True)


def is_exact_simplex(vertices):
    """Whether the exact Gram matrix is the simplex's, and the vertices sum to zero."""
    num_classes = vertices.rows
    gram = sp.Matrix(num_classes, num_classes, lambda i, j: 1 if i == j else -sp.Rational(1, num_classes - 1))
    total = [sp.simplify(sum(vertices[:, column])) for column in range(vertices.cols)]
    return (vertices * vertices.T - gram).applyfunc(sp.simplify).is_zero_matrix and not any(total)


@pytest.mark.parametrize("num_classes", [2, 3, 4, 5, 6])
def test_exact_vertices_are_a_simplex(num_classes):
    vertices = simplex.exact_vertices(num_classes)
    assert vertices.shape == (num_classes, num_classes - 1)
    assert is_exact_simplex(vertices)
    assert vertices.rank() == num_classes - 1


@pytest.mark.parametrize("num_classes", [3, 5])
def test_exact_vertices_have_the_gram_matrix_of_the_package(num_classes):
    exact = np.array(simplex.exact_vertices(num_classes), dtype=float)
    ours = geometry.regular_simplex(num_classes, num_classes + 2, generator=torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_allclose(exact @ exact.T, ours @ ours.T, atol=1e-14)


def test_growing_keeps_the_dimensions_there_were():
    wide = simplex.exact_vertices(3).row_join(sp.zeros(3, 2))
    assert simplex.grown(wide).shape == (4, 5)
    assert is_exact_simplex(simplex.grown(wide))


def test_inner_product_closes_the_sum():
    closed = simplex.squared_sum(K, RHO, simplex.inner_product(K, RHO))
    assert sp.simplify(closed) == 0


@pytest.mark.parametrize(
    "wrong",
    [RHO**2 / (K - 1), -(RHO**2) / K, -RHO / (K - 1), -(RHO**2) / (K - 1) ** 2],
    ids=["sign", "K for K-1", "no square", "squared"],
)
def test_a_wrong_inner_product_does_not_close_the_sum(wrong):
    assert sp.simplify(simplex.squared_sum(K, RHO, wrong)) != 0


@pytest.mark.parametrize(
    ("height", "shrink"), [(1, 1), (-1, 0), (-1, 1), (-2, 1)], ids=["up", "flat", "right", "too low"]
)
def test_only_one_height_grows_a_simplex(height, shrink):
    old, t = simplex.exact_vertices(3), sp.Rational(height, 3)
    lowered = (sp.sqrt(1 - shrink * t**2) * old).row_join(t * sp.ones(3, 1))
    grown = lowered.col_join(sp.Matrix([[0, 0, 1]]))
    assert is_exact_simplex(grown) == ((height, shrink) == (-1, 1))


@pytest.mark.parametrize(("num_classes", "degrees"), [(2, 180), (3, 120), (4, 109.47122063449069), (7, 99.5940682)])
def test_largest_angle(num_classes, degrees):
    assert math.degrees(simplex.largest_angle(num_classes)) == pytest.approx(degrees)
    assert math.cos(simplex.largest_angle(num_classes)) == pytest.approx(geometry.simplex_cosine(num_classes))


@pytest.mark.parametrize("num_classes", [1, 0, 2.5, "3"])
def test_a_simplex_takes_two_classes(num_classes):
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2"):
        simplex.largest_angle(num_classes)
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 2"):
        simplex.exact_vertices(num_classes)


def test_condition_errors_are_zero_at_a_simplex_of_any_radius():
    vertices = 3 * geometry.regular_simplex(6, 9, generator=torch.Generator().manual_seed(1)).numpy()
    assert max(simplex.condition_errors(vertices)) < 1e-13


def test_each_condition_fails_alone_where_it_can():
    centre, lengths, products = simplex.condition_errors(np.eye(4))
    assert centre == pytest.approx(2)
    assert lengths == products == 0
    centre, lengths, products = simplex.condition_errors([[1, 0], [0, 1], [-1, 0], [0, -1]])
    assert centre == lengths == 0
    assert products == pytest.approx(1)


def test_vectors_with_one_inner_product_that_sum_to_zero_have_one_length():
    # Gram matrices with zero row sums and a constant off the diagonal: whatever the constant, so is the diagonal.
    vectors = np.linalg.cholesky(np.eye(5) + 0.3)
    centred = vectors - vectors.mean(axis=0)
    errors = simplex.condition_errors(centred)
    assert errors.inner_products < 1e-12
    assert errors.lengths < 1e-12


def test_condition_errors_and_gaps_take_batches():
    vectors = np.random.default_rng(0).normal(size=(2, 3, 5, 4))
    for function in (simplex.condition_errors, simplex.packing_gaps):
        batch = np.stack(function(vectors))
        assert batch.shape[1:] == (2, 3)
        np.testing.assert_allclose(batch[:, 1, 2], function(vectors[1, 2]), atol=1e-15)


def test_gaps_are_their_formulas():
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    units = [v / math.sqrt(sum(x * x for x in v)) for v in vectors]
    cosines = [float(units[i] @ units[j]) for i in range(5) for j in range(i + 1, 5)]
    gaps = simplex.packing_gaps(vectors)
    assert gaps.spread == pytest.approx(max(cosines) - sum(cosines) / 10)
    assert gaps.centre == pytest.approx(sum(cosines) / 10 + 1 / 4)
    assert simplex.largest_cosine(vectors) == pytest.approx(max(cosines))


@pytest.mark.parametrize(("num_classes", "dim"), [(2, 1), (3, 2), (4, 2), (4, 3), (6, 20), (10, 9)])
def test_random_directions_never_beat_the_simplex(num_classes, dim):
    vectors = np.random.default_rng(num_classes).normal(size=(3000, num_classes, dim))
    gaps = simplex.packing_gaps(vectors)
    assert gaps.spread.min() > -1e-13
    assert gaps.centre.min() > -1e-13


@pytest.mark.parametrize("wrong", [lambda k: -1 / k, lambda k: -1 / (k - 1) + 1e-3, lambda k: 0.0 * k])
def test_a_bound_that_is_too_high_is_beaten_by_the_simplex(wrong):
    for num_classes in (3, 4, 10):
        vertices = geometry.regular_simplex(num_classes, num_classes).numpy()
        assert simplex.largest_cosine(vertices) == pytest.approx(-1 / (num_classes - 1), abs=1e-14)
        assert simplex.largest_cosine(vertices) < wrong(num_classes) - 1e-4


def test_gaps_vanish_only_at_a_simplex():
    vertices = geometry.regular_simplex(5, 4).numpy()
    assert max(simplex.packing_gaps(vertices)) < 1e-14
    moved = vertices + 1e-3 * np.random.default_rng(0).normal(size=vertices.shape)
    assert sum(simplex.packing_gaps(moved)) > 1e-5


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_one_dimension_short_some_pair_is_at_most_a_right_angle_apart(dim):
    vectors = np.random.default_rng(dim).normal(size=(3000, dim + 2, dim))
    assert simplex.largest_cosine(vectors).min() >= 0
    # and one dimension more is enough for none to be
    assert simplex.largest_cosine(geometry.regular_simplex(dim + 2, dim + 1).numpy()) < 0


def test_vectors_are_checked():
    with pytest.raises(ValueError, match=r"vectors must be \(…, K, h\) with K of at least 2, got shape \(3,\)"):
        simplex.condition_errors(np.ones(3))
    with pytest.raises(ValueError, match="K of at least 2"):
        simplex.packing_gaps(np.ones((1, 3)))
    with pytest.raises(ValueError, match="vectors must be finite"):
        simplex.condition_errors([[1.0], [math.nan]])
    with pytest.raises(ValueError, match="zero vector has no direction"):
        simplex.packing_gaps([[1.0, 0.0], [0.0, 0.0]])


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


INNER_PRODUCT = ("squared_sum = ", "(forced,) =")
RANK = ("for size in range(2, 8)",)
GROWTH = ("squared_sum = ", "old_pair = ", "height = ")
RANDOM = ("closest = ",)
EXAMPLES = ("examples = {",)
CHECKS = {*INNER_PRODUCT, *RANK, *GROWTH, *RANDOM, *EXAMPLES}


def test_the_notebooks_checks_pass():
    run_cells(*CHECKS)


@pytest.mark.parametrize(
    ("name", "slip", "cells"),
    [
        ("squared_sum", lambda right: lambda k, rho, d: right(k, rho, d) + d, INNER_PRODUCT),
        ("inner_product", lambda right: lambda k, rho: -right(k, rho), INNER_PRODUCT),
        ("inner_product", lambda right: lambda k, rho: right(k + 1, rho), INNER_PRODUCT),
        ("inner_product", lambda right: lambda k, rho: right(k + 1, rho), RANK),
        ("inner_product", lambda right: lambda k, rho: right(k + 1, rho), GROWTH),
        ("exact_vertices", lambda right: lambda k: -1 * right(k)[:, ::-1] + sp.ones(k, k - 1) / 9, GROWTH),
        ("exact_vertices", lambda right: lambda k: 2 * right(k), GROWTH),
        ("packing_gaps", lambda right: lambda x: simplex.PackingGaps(*(gap - 0.3 for gap in right(x))), RANDOM),
        ("packing_gaps", lambda right: lambda x: simplex.PackingGaps(right(x).centre, -right(x).spread), RANDOM),
        ("condition_errors", lambda right: lambda x: right(x - np.mean(x, axis=0)), EXAMPLES),
    ],
    ids=[
        "one d more",
        "sign",
        "K for K-1",
        "K for K-1, rank",
        "K for K-1, growth",
        "moved",
        "radius",
        "gaps too small",
        "gaps swapped",
        "centred",
    ],
)
def test_the_notebooks_checks_fail_on_a_slip(monkeypatch, name, slip, cells):
    monkeypatch.setattr(simplex, name, slip(getattr(simplex, name)))
    # Where a wrong constant leaves no null space, taking its only vector is what fails.
    with pytest.raises((AssertionError, ValueError)):
        run_cells(*cells)
