"""The regular simplex, which is where balanced features end up, and how far others are from it."""

import math

import torch
from torch import Tensor

from ltnb.geometry.inputs import check_num_classes, rows


def simplex_cosine(num_classes: int) -> float:
    """−1/(K−1): the cosine between any two of the K vertices of a regular simplex centred at the origin.

    K unit vectors have mean pairwise cosine (‖Σξ‖² − K)/(K(K−1)) ≥ −1/(K−1): none lie further apart.

    Args:
        num_classes: K, at least 2.

    Raises:
        ValueError: K < 2.
    """
    check_num_classes(num_classes)
    return -1 / (num_classes - 1)


def regular_simplex(num_classes: int, dim: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Unit vectors ξ_1 … ξ_K in R^d with Σ_k ξ_k = 0 and ξ_j·ξ_k = −1/(K−1) for all j ≠ k.

    Ξ = √(K/(K−1)) H Qᵀ, where the K−1 columns of H (K, K−1) are the Helmert contrasts, an orthonormal basis
    of the complement of (1, …, 1), and Q (d, K−1) has orthonormal columns. This is the "simplex ETF" of
    Papyan, Han & Donoho (2020), the optimum of the balanced supervised contrastive loss (Graf et al. 2021;
    FeatRecon Theorem 1) and the fixed classifier of PAL (Lemma 3.1).

    Args:
        num_classes: K, at least 2.
        dim: d, at least K−1.
        generator: source of a random orthogonal Q, uniform (Haar) over all of them. Without one, Q is the
            first K−1 coordinate axes, so that the result is the same each time.

    Returns:
        (K, d) float64, unit rows, on the generator's device (the CPU without one).

    Raises:
        ValueError: K < 2, or d < K−1.
    """
    check_num_classes(num_classes)
    if dim < num_classes - 1:
        raise ValueError(
            f"dim={dim} cannot hold a regular simplex of {num_classes} vertices: they span "
            f"{num_classes - 1} dimensions, so dim must be at least {num_classes - 1}"
        )
    device = torch.device("cpu") if generator is None else generator.device
    # Helmert contrast j compares vertex j with the j vertices before it: (1, …, 1, −j, 0, …, 0)/√(j(j+1)).
    j = torch.arange(1, num_classes, dtype=torch.float64, device=device)
    contrasts = torch.ones(num_classes, num_classes - 1, dtype=torch.float64, device=device).triu_()
    contrasts.diagonal(-1).copy_(-j)
    vertices = contrasts * (num_classes / (num_classes - 1) / (j * (j + 1))).sqrt()
    if generator is None:
        return torch.nn.functional.pad(vertices, (0, dim - num_classes + 1))
    gaussian = torch.randn(dim, num_classes - 1, dtype=torch.float64, device=device, generator=generator)
    q, r = torch.linalg.qr(gaussian)
    # QR is unique, and Q therefore Haar, only once the diagonal of R is positive.
    axes: Tensor = q * r.diagonal().sign()
    return vertices @ axes.T


def simplex_distance(vectors: Tensor) -> float:
    """‖ G/‖G‖_F − (I − 11ᵀ/K)/√(K−1) ‖_F with the Gram matrix G = V Vᵀ: how far from a regular simplex.

    Neural collapse NC2 (Papyan, Han & Donoho 2020): equal lengths and equal, largest possible angles in one
    number. The second matrix is the normalised Gram matrix of a regular simplex centred at the origin, so the
    distance is 0 exactly there, at any scale and rotation. Both matrices have unit norm and are positive
    semi-definite, so it never exceeds √2, and is √2 only when all vectors coincide. In d < K−1 dimensions no
    regular simplex exists and the least distance is √(2 − 2√(d/(K−1))).

    Args:
        vectors: V (K, d): centred class means (`centred_class_means`), classifier weights or prototypes, one
            a class. They are measured as they are: an offset common to all counts as distance, and so do
            unequal lengths; normalise the rows first to measure the angles alone.

    Returns:
        A float in [0, √2]; NaN if every vector is zero.

    Raises:
        ValueError: fewer than two rows, or a row that is not finite.
    """
    vectors = rows("vectors", vectors)
    num_classes = len(vectors)
    check_num_classes(num_classes)
    # In place: at K = 8,142 one such matrix is half a gigabyte.
    difference = vectors @ vectors.T
    difference /= torch.linalg.matrix_norm(difference)
    difference += 1 / (num_classes * math.sqrt(num_classes - 1))
    difference.diagonal().sub_(1 / math.sqrt(num_classes - 1))
    return float(torch.linalg.matrix_norm(difference))
