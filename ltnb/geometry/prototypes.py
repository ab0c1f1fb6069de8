"""Class prototypes that are fixed before training, after PAL (Zhou et al., ICML 2022)."""

import math
import warnings
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.geometry.inputs import check_num_classes
from ltnb.geometry.simplex import regular_simplex, simplex_cosine

PrototypeForm = Literal["automatic", "simplex", "optimised"]

MOMENTUM = 0.9  # without it, 1000 steps take 100 prototypes in 64 dimensions to 89.7°, with it to 90°


def anchored_prototypes(
    num_classes: int,
    dim: int,
    *,
    form: PrototypeForm = "automatic",
    scale: float = 4.0,
    steps: int = 1000,
    generator: torch.Generator | None = None,
) -> Tensor:
    """K unit vectors w_1 … w_K in R^d, as far apart as they fit: what PAL keeps in place of a trained classifier.

    In d ≥ K−1 dimensions they are a `regular_simplex`, the closed form of Lemma 3.1: with each feature z_i at its
    own prototype, the min-margin γ_min = min_i (w_y·z_i − max_{j≠y} w_j·z_i) is K/(K−1), as large as it can be. In
    fewer dimensions, or on demand, they come from the search that the paper gives, with one feature a class:

        min Σ_i −log( exp(s w_i·z_i) / Σ_j exp(s w_j·z_i) )   over unit w_1 … w_K and z_1 … z_K,   which is L_0 of Eq. 2

    by gradient descent on the sphere with momentum, in float64, from a random start. In d ≥ K−1 dimensions it ends at
    a simplex as well (Theorem 3.2).

    In d < K−1 dimensions three things are lost, and a warning gives their extent. The min-margin, features at their
    prototypes, is 1 − cos of the smallest angle and falls short of K/(K−1); angles differ, so some classes are closer
    than others, for no reason in the data; and Σ_k w_k = 0, on which Theorem 4.1 rests (each feature is best at its
    own prototype, whatever the class counts), holds only roughly. The search finds a local minimum, and one of L_0,
    which is the largest smallest angle only for large s. For d+2 ≤ K ≤ 2d no set has a smallest angle above 90°
    (Rankin 1955), and the search comes close to that.

    The notes we have on the paper name neither s nor the optimiser. s = 4 is a compromise between 1, 4, 8, 16 and 32,
    measured from K = 5, d = 3 to K = 100, d = 98. With s = 1, 1000 steps leave 100 classes in 64 dimensions short of
    90° by 2°. s = 8 reaches up to 3° more (K = 100, d = 10), but prototypes no longer balance around the origin
    everywhere (|Σ_k w_k| up to 0.4 at K = 5, d = 3). From 16 on gradients can vanish long before the classes are far
    apart: 10 of them stop at 71° in 9 dimensions, where the simplex has 96°.

    Args:
        num_classes: K, at least 2.
        dim: d, at least 1.
        form: "automatic" is the closed form wherever it fits, "simplex" the closed form or an error, "optimised" the
            search, however many dimensions there are.
        scale: s of the search, positive.
        steps: of the search, at least 1. Each takes time in K² d.
        generator: source of the simplex's orientation or of the search's start; either way the orientation is
            uniform over all rotations. Without one, the result is the same each time, and the simplex lies along the
            first K−1 axes.

    Returns:
        (K, d) float64, unit rows, on the generator's device (the CPU without one).

    Raises:
        ValueError: K < 2, d < 1, d < K−1 for form "simplex", an unknown form, scale or steps not positive.
    """
    check_num_classes(num_classes)
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    if form not in get_args(PrototypeForm):
        raise ValueError(f"form must be one of {', '.join(get_args(PrototypeForm))}, got {form!r}")
    if not 0 < scale < math.inf:
        raise ValueError(f"scale must be a positive number, got {scale}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    fits = dim >= num_classes - 1
    if form == "simplex" or (form == "automatic" and fits):
        return regular_simplex(num_classes, dim, generator=generator)
    prototypes = _optimised_prototypes(num_classes, dim, scale, steps, generator)
    if not fits:
        warnings.warn(_what_is_lost(prototypes), stacklevel=2)
    return prototypes


def _optimised_prototypes(
    num_classes: int, dim: int, scale: float, steps: int, generator: torch.Generator | None
) -> Tensor:
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, num_classes, dim, generator=generator, dtype=torch.float64, device=generator.device)
    vectors = F.normalize(start, dim=2)
    velocity = torch.zeros_like(vectors)
    for _ in range(steps):
        features, prototypes = vectors
        # ∂L_0/∂(s w_j·z_i) = p_ij − [i = j]. The factor s of the chain rule is left to the step size, which is then 1.
        errors = torch.softmax(scale * features @ prototypes.T, dim=1)
        errors.diagonal().sub_(1)
        gradient = torch.stack([errors @ prototypes, errors.T @ features])
        gradient -= (gradient * vectors).sum(dim=2, keepdim=True) * vectors
        velocity = MOMENTUM * velocity - gradient
        vectors = F.normalize(vectors + velocity, dim=2)
    return vectors[1]


def _what_is_lost(prototypes: Tensor) -> str:
    num_classes, dim = prototypes.shape
    # Rounding takes the cosine of two prototypes that coincide above 1.
    cosine = min(1.0, float((prototypes @ prototypes.T).fill_diagonal_(-1).max()))
    ideal = simplex_cosine(num_classes)
    return (
        f"{num_classes} prototypes in R^{dim} cannot form a regular simplex, which needs R^{num_classes - 1}: "
        f"their min-margin is {1 - cosine:.4f} instead of {1 - ideal:.4f}, their smallest angle "
        f"{math.degrees(math.acos(cosine)):.2f}° instead of {math.degrees(math.acos(ideal)):.2f}°, and their sum, "
        f"which should vanish, has length {float(prototypes.sum(dim=0).norm()):.2g}"
    )
