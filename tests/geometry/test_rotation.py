import math

import pytest
import scipy.linalg
import torch
from torch import Tensor

from ltnb.geometry import anchored_prototypes, regular_simplex, rotated, rotation


def generator_matrix(dim: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(dim, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dim", [1, 2, 5, 64])
@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_result_is_a_rotation(dim, size):
    turn = rotation(size * generator_matrix(dim))
    torch.testing.assert_close(turn @ turn.T, torch.eye(dim).double(), rtol=0, atol=1e-12)
    assert float(torch.linalg.det(turn)) == pytest.approx(1, abs=1e-11)


def test_equals_the_series():
    matrix = generator_matrix(4)
    skew, term, total = matrix - matrix.T, torch.eye(4).double(), torch.eye(4).double()
    for n in range(1, 60):
        term = term @ skew / n
        total = total + term
    torch.testing.assert_close(rotation(matrix), total, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("angle", [0.0, 0.1, math.pi / 2, math.pi, -2.0, 7.0])
def test_in_the_plane_the_entry_is_the_angle(angle):
    turn = rotation(torch.tensor([[0.0, 0.0], [angle, 0.0]], dtype=torch.float64))
    expected = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    torch.testing.assert_close(turn, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_zero_and_symmetric_matrices_turn_nothing():
    assert torch.equal(rotation(torch.zeros(3, 3)), torch.eye(3))
    matrix = generator_matrix(3)
    assert torch.equal(rotation(matrix + matrix.T), torch.eye(3).double())


@pytest.mark.parametrize("seed", range(3))
def test_every_rotation_is_reached(seed):
    target, _ = torch.linalg.qr(generator_matrix(5, seed))
    target[:, 0] *= torch.linalg.det(target).sign()
    matrix = torch.from_numpy(scipy.linalg.logm(target.numpy()).real) / 2
    torch.testing.assert_close(rotation(matrix), target, rtol=0, atol=1e-9)


def test_gradient_at_zero_is_skew():
    matrix, weights = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True), generator_matrix(4)
    (weights * rotation(matrix)).sum().backward()
    torch.testing.assert_close(matrix.grad, weights - weights.T)


def test_gradients_agree_with_finite_differences():
    prototypes, matrix = regular_simplex(3, 4), generator_matrix(4)
    assert torch.autograd.gradcheck(rotation, matrix.requires_grad_())
    assert torch.autograd.gradcheck(rotated, (prototypes.requires_grad_(), matrix.detach() / 3))
    assert torch.autograd.gradcheck(rotated, (prototypes, torch.zeros(4, 4).double().requires_grad_()))


def test_prototypes_are_turned_row_by_row():
    prototypes, matrix = regular_simplex(4, 5), generator_matrix()
    expected = torch.stack([rotation(matrix) @ row for row in prototypes])
    torch.testing.assert_close(rotated(prototypes, matrix), expected)


@pytest.mark.parametrize(("num_classes", "dim"), [(3, 2), (4, 9), (10, 64)])
def test_geometry_of_the_prototypes_stays(num_classes, dim):
    prototypes = anchored_prototypes(num_classes, dim, generator=torch.Generator().manual_seed(1))
    turned = rotated(prototypes, generator_matrix(dim))
    torch.testing.assert_close(turned @ turned.T, prototypes @ prototypes.T, rtol=0, atol=1e-12)
    assert not torch.allclose(turned, prototypes, atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_input_is_computed_in_float32_under_autocast_as_well(dtype):
    prototypes, matrix = regular_simplex(10, 64).to(dtype), generator_matrix(64).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        turn, turned = rotation(matrix), rotated(prototypes, matrix)
    assert turn.dtype == turned.dtype == torch.float32
    torch.testing.assert_close(turn @ turn.T, torch.eye(64), rtol=0, atol=5e-5)
    precise = rotated(prototypes.double(), matrix.detach().double())
    torch.testing.assert_close(turned, precise.float(), rtol=0, atol=5e-5)
    turned.sum().backward()
    assert matrix.grad.dtype == dtype


def test_float64_of_either_gives_float64():
    prototypes, matrix = regular_simplex(4, 5), generator_matrix()
    assert rotated(prototypes.float(), matrix).dtype == torch.float64
    assert rotated(prototypes, matrix.float()).dtype == torch.float64


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.zeros(3), r"generator_matrix must be a square floating-point matrix, got shape \(3,\)"),
        (torch.zeros(3, 4), r"generator_matrix must be a square .* got shape \(3, 4\)"),
        (torch.zeros(0, 0), r"generator_matrix must be a square .* got shape \(0, 0\)"),
        (torch.zeros(3, 3).long(), "generator_matrix must be a square .* of torch.int64"),
    ],
)
def test_what_is_no_square_matrix_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        rotation(matrix)


@pytest.mark.parametrize("prototypes", [torch.zeros(4), torch.zeros(4, 3), torch.zeros(4, 5).long()])
def test_prototypes_that_do_not_fit_are_refused(prototypes):
    with pytest.raises(ValueError, match=r"prototypes must be .* rows of length 5 like .* got shape \(4"):
        rotated(prototypes, generator_matrix())
