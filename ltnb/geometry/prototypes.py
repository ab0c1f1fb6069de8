"""Fixed class prototypes after PAL (Zhou et al., ICML 2022), where a regular simplex fits and where it does not."""

import math
import warnings
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.geometry.inputs import check_num_classes
from ltnb.geometry.simplex import regular_simplex, simplex_cosine

PrototypeForm = Literal["automatic", "simplex", "optimised"]


def anchored_prototypes(
    num_classes: int,
    dim: int,
    *,
    form: PrototypeForm = "automatic",
    scale: float = 4.0,
    steps: int = 1000,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Unit rows."""
    check_num_classes(num_classes)
    if form not in get_args(PrototypeForm):
        raise ValueError(f"form must be one of {', '.join(get_args(PrototypeForm))}, got {form!r}")
    fits = dim >= num_classes - 1
    if form == "simplex" or (form == "automatic" and fits):
        return regular_simplex(num_classes, dim, generator=generator)
    prototypes = _optimised(num_classes, dim, scale, steps, generator)
    if not fits:
        largest_cosine = float((prototypes @ prototypes.T).fill_diagonal_(-1).max())
        warnings.warn(
            f"{num_classes} prototypes in {dim} dimensions are no regular simplex, which needs {num_classes - 1}: "
            f"min-margin {1 - largest_cosine:.4g} instead of {num_classes / (num_classes - 1):.4g}, smallest angle "
            f"{math.degrees(math.acos(largest_cosine)):.2f}° instead of "
            f"{math.degrees(math.acos(simplex_cosine(num_classes))):.2f}°",
            stacklevel=2,
        )
    return prototypes


def _optimised(num_classes: int, dim: int, scale: float, steps: int, generator: torch.Generator | None) -> Tensor:
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, num_classes, dim, generator=generator, dtype=torch.float64, device=generator.device)
    vectors = F.normalize(start, dim=2)
    velocity = torch.zeros_like(vectors)
    for _ in range(steps):
        features, prototypes = vectors
        errors = torch.softmax(scale * features @ prototypes.T, dim=1)
        errors.diagonal().sub_(1)
        gradient = torch.stack([errors @ prototypes, errors.T @ features])
        gradient -= (gradient * vectors).sum(dim=2, keepdim=True) * vectors
        velocity = 0.9 * velocity - 0.5 * gradient
        vectors = F.normalize(vectors + velocity, dim=2)
    return vectors[1]
