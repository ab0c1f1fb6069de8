import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ltnb.geometry import regular_simplex, simplex_cosine, simplex_distance


def assert_regular(vertices):
    num_classes = len(vertices)
    cosines = torch.full((num_classes, num_classes), -1 / (num_classes - 1), dtype=torch.float64)
    cosines.fill_diagonal_(1)
    torch.testing.assert_close(vertices @ vertices.T, cosines, rtol=0, atol=1e-13)


@given(num_classes=st.integers(2, 40), spare=st.integers(0, 5), seed=st.none() | st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_vertices_are_unit_and_equally_far_apart(num_classes, spare, seed):
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    vertices = regular_simplex(num_classes, num_classes - 1 + spare, generator=generator)
    assert vertices.dtype == torch.float64
    assert vertices.shape == (num_classes, num_classes - 1 + spare)
    assert_regular(vertices)


def test_many_classes():
    assert_regular(regular_simplex(1000, 999))


def test_same_simplex_each_time_without_a_generator_and_with_one_seed():
    assert torch.equal(regular_simplex(5, 7), regular_simplex(5, 7))
    seeded = [regular_simplex(5, 7, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(seeded[0], seeded[1])
    assert not torch.allclose(seeded[0], seeded[2])


def test_random_orientation_is_uniform():
    generator = torch.Generator().manual_seed(0)
    first = torch.stack([regular_simplex(3, 3, generator=generator)[0] for _ in range(300)])
    # Uniform on the sphere in R³: mean 0, with standard error 0.033, and covariance I/3.
    torch.testing.assert_close(first.mean(dim=0), torch.zeros(3, dtype=torch.float64), rtol=0, atol=0.12)
    covariance = first.T @ first / 300
    torch.testing.assert_close(covariance, torch.eye(3, dtype=torch.float64) / 3, rtol=0, atol=0.1)


def test_random_orientation_flips_the_line():
    generator = torch.Generator().manual_seed(0)
    signs = {float(regular_simplex(2, 1, generator=generator)[0, 0]) for _ in range(20)}
    assert signs == {-1.0, 1.0}


def test_too_few_dimensions_says_how_many_are_needed():
    with pytest.raises(ValueError, match=r"dim=8 .* 10 vertices.* at least 9"):
        regular_simplex(10, 8)


@pytest.mark.parametrize("num_classes", [1, 0, -3])
def test_one_class_has_no_simplex(num_classes):
    with pytest.raises(ValueError, match=f"num_classes must be at least 2, got {num_classes}"):
        regular_simplex(num_classes, 3)
    with pytest.raises(ValueError, match=f"num_classes must be at least 2, got {num_classes}"):
        simplex_cosine(num_classes)


def test_cosine():
    assert [simplex_cosine(num_classes) for num_classes in (2, 3, 5)] == [-1, -0.5, -0.25]


def distance_by_loops(vectors):
    num_classes = len(vectors)
    gram = [[float(a.double() @ b.double()) for b in vectors] for a in vectors]
    norm = math.sqrt(sum(entry**2 for row in gram for entry in row))
    total = 0.0
    for i in range(num_classes):
        for j in range(num_classes):
            ideal = ((i == j) - 1 / num_classes) / math.sqrt(num_classes - 1)
            total += (gram[i][j] / norm - ideal) ** 2
    return math.sqrt(total)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_distance_is_its_formula(dtype):
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert simplex_distance(vectors) == pytest.approx(distance_by_loops(vectors), abs=1e-13)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("num_classes", [2, 3, 10, 50])
def test_distance_is_zero_at_a_regular_simplex(num_classes, scale):
    generator = torch.Generator().manual_seed(num_classes)
    simplex = scale * regular_simplex(num_classes, num_classes + 3, generator=generator)
    assert simplex_distance(simplex) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_distance_is_largest_when_all_coincide(num_classes):
    assert simplex_distance(torch.full((num_classes, 4), 0.3)) == pytest.approx(math.sqrt(2), abs=1e-12)


@pytest.mark.parametrize("num_classes", [2, 4, 10])
def test_distance_of_a_head_antipodal_to_a_collapsed_tail(num_classes):
    vectors = torch.tensor([[1.0, 2.0]]) * torch.tensor([1.0] + [-1.0] * (num_classes - 1))[:, None]
    # G/‖G‖ = vvᵀ/K with v = (1, −1, …, −1), so the squared distance is 2 − 2·vᵀ(I − 11ᵀ/K)v/(K√(K−1)).
    expected = math.sqrt(2 - 8 * math.sqrt(num_classes - 1) / num_classes**2)
    assert simplex_distance(vectors) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("num_classes", [2, 4, 10])
def test_distance_of_an_orthogonal_frame(num_classes):
    expected = math.sqrt(2 - 2 * math.sqrt((num_classes - 1) / num_classes))
    assert simplex_distance(torch.eye(num_classes)) == pytest.approx(expected, abs=1e-12)


def test_least_distance_in_too_few_dimensions():
    square = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    least = math.sqrt(2 - 2 * math.sqrt(2 / 3))
    assert simplex_distance(square) == pytest.approx(least, abs=1e-12)
    generator = torch.Generator().manual_seed(0)
    assert all(simplex_distance(torch.randn(4, 2, generator=generator)) > least for _ in range(100))


def test_distance_sees_lengths_and_offsets():
    simplex = regular_simplex(4, 3)
    stretched = simplex * torch.tensor([[2.0], [1.0], [1.0], [1.0]])
    assert simplex_distance(stretched) > 0.1
    assert simplex_distance(simplex + 1) > 0.1


def test_distance_of_nothing_is_undefined():
    assert math.isnan(simplex_distance(torch.zeros(3, 2)))


def test_distance_refuses_what_is_not_a_set_of_vectors():
    with pytest.raises(ValueError, match=r"vectors must be .* got shape \(3,\)"):
        simplex_distance(torch.ones(3))
    with pytest.raises(ValueError, match="vectors must be finite, but row 1 is not"):
        simplex_distance(torch.tensor([[1.0], [math.inf], [math.nan]]))
    with pytest.raises(ValueError, match="num_classes must be at least 2, got 1"):
        simplex_distance(torch.ones(1, 3))
