"""Rotations that can be trained: what RBL (Peifeng et al., ICML 2023) does to the vertices of a simplex."""

import torch
from torch import Tensor


def rotation(generator_matrix: Tensor) -> Tensor:
    r"""R = exp(A − Aᵀ): the rotation of R^d that a matrix A without constraints generates.

    The exponential of a skew matrix is orthogonal with determinant 1, and every such matrix is one, so an optimiser may
    move A anywhere and reach each rotation without leaving them. A = 0 gives the identity. Only the skew part of A
    counts; the gradient is skew as well, ∂⟨G, R⟩/∂A = G − Gᵀ at A = 0, and decay of A is decay of the angles.

    Args:
        generator_matrix: A (d, d), float32, float64 or bfloat16.

    Returns:
        (d, d) in float32, or float64 for a float64 A, with gradient. NaN in A is NaN in R.

    Raises:
        ValueError: not a square floating-point matrix. Values are not looked at; yet on an accelerator the host waits
            for them, since torch chooses the number of terms of the series by the size of A − Aᵀ.
    """
    if (
        generator_matrix.ndim != 2
        or generator_matrix.shape[0] != generator_matrix.shape[1]
        or generator_matrix.numel() == 0
        or not generator_matrix.is_floating_point()
    ):
        raise ValueError(
            "generator_matrix must be a square floating-point matrix, "
            f"got shape {tuple(generator_matrix.shape)} of {generator_matrix.dtype}"
        )
    generator_matrix = generator_matrix.to(torch.promote_types(generator_matrix.dtype, torch.float32))
    # Autocast would take the products in the series to half precision, and R off the rotations by 1e-3.
    with torch.autocast(generator_matrix.device.type, enabled=False):
        turn: Tensor = torch.linalg.matrix_exp(generator_matrix - generator_matrix.T)
    return turn


def rotated(prototypes: Tensor, generator_matrix: Tensor) -> Tensor:
    r"""R w_1 … R w_K: prototypes turned about the origin by R = `rotation(generator_matrix)`.

    Lengths and angles between them stay as they are, and so does every statement about them that rests on these alone;
    where they point is what training may choose.

    Args:
        prototypes: w (K, d), one a row, floating-point (`anchored_prototypes`).
        generator_matrix: A (d, d).

    Returns:
        (K, d) in float32, or float64 if prototypes or A are, with gradient of both.

    Raises:
        ValueError: wrong shapes or types, as in `rotation`.
    """
    turn = rotation(generator_matrix)
    dim = len(turn)
    if prototypes.ndim != 2 or prototypes.shape[1] != dim or not prototypes.is_floating_point():
        raise ValueError(
            f"prototypes must be a floating-point matrix with rows of length {dim} like generator_matrix, "
            f"got shape {tuple(prototypes.shape)} of {prototypes.dtype}"
        )
    dtype = torch.promote_types(prototypes.dtype, turn.dtype)
    with torch.autocast(turn.device.type, enabled=False):
        return prototypes.to(dtype) @ turn.to(dtype).T
