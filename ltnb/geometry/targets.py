"""Targets for class features, spread over the sphere before training (TSC; Li et al., CVPR 2022)."""

import math

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F

from ltnb.geometry.inputs import check_num_classes, rows, unit_rows
from ltnb.geometry.simplex import regular_simplex

MOMENTUM = 0.9


def target_energy(targets: Tensor, *, temperature: float) -> float:
    """1/K Σᵢ log Σⱼ exp(tᵢ·tⱼ/τ): how crowded targets are, each with itself included, as in TSC's released code.

    It is never below log(exp(1/τ) + (K − 1) exp(−1/((K − 1)τ))): the logarithm of a sum of exponentials is convex in
    the cosines, whose mean over all pairs is at least −1/(K − 1). In d ≥ K − 1 dimensions a regular simplex has it.

    Args:
        targets: (K, d) unit rows tᵢ, K ≥ 2.
        temperature: τ > 0; 0.07 in the released code.

    Raises:
        ValueError: a row that is not finite or not unit, fewer than two, τ ≤ 0.
    """
    targets = unit_rows("targets", targets)
    check_num_classes(len(targets))
    _check_temperature(temperature)
    return float(torch.logsumexp(targets @ targets.T / temperature, dim=1).mean())


def uniform_targets(
    num_targets: int,
    dim: int,
    *,
    temperature: float = 0.07,
    generator: torch.Generator | None = None,
    steps: int = 1000,
) -> Tensor:
    """K unit vectors t_1 … t_K in R^d that minimise `target_energy`.

    In d ≥ K − 1 dimensions that is a `regular_simplex`, exactly and for any τ. In fewer they come from gradient
    descent on the sphere with momentum, in float64, from a random start: a local minimum, or close to one. The energy
    differs from the constant 1/τ by as little as exp(−1/τ), and so does its gradient from 0; it is divided by the
    softmax's mean weight on other targets, which makes it the gradient of the logarithm of that difference where that
    is small. The released code searches in either case, with Adam in float32. From 10 targets in 2 dimensions to 100
    in 98, 1000 steps end no higher than 4000 of Adam in float64 at τ = 0.07.

    Args:
        num_targets: K, at least 2.
        dim: d, at least 1.
        temperature: τ > 0.
        generator: source of the simplex's orientation or of the search's start; either way the orientation is uniform
            over all rotations. Without one, the result is the same each time.
        steps: of the search, at least 1. Each takes time in K² d.

    Returns:
        (K, d) float64, unit rows, on the generator's device (the CPU without one).

    Raises:
        ValueError: K < 2, d < 1, τ or steps not positive.
    """
    check_num_classes(num_targets)
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    _check_temperature(temperature)
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if dim >= num_targets - 1:
        return regular_simplex(num_targets, dim, generator=generator)

    if generator is None:
        generator = torch.Generator().manual_seed(0)
    start = torch.randn(num_targets, dim, generator=generator, dtype=torch.float64, device=generator.device)
    targets = F.normalize(start, dim=1)
    velocity = torch.zeros_like(targets)
    for step in range(steps):
        # A target's pull on itself has no direction along the sphere. Logarithms: weights on others may underflow.
        log_weights = torch.log_softmax(targets @ targets.T / temperature, dim=1).fill_diagonal_(-math.inf)
        weights = num_targets * (log_weights - log_weights.flatten().logsumexp(dim=0)).exp()
        gradient = (weights + weights.T) @ targets
        gradient -= (gradient * targets).sum(dim=1, keepdim=True) * targets
        # Cosines matter on the scale of τ, and so do steps; they shrink so that the closest pairs come to rest.
        velocity = MOMENTUM * velocity - min(temperature, 1.0) * (1 - step / steps) * gradient
        targets = F.normalize(targets + velocity, dim=1)
    return targets


def assign_targets(class_centres: Tensor, targets: Tensor) -> Tensor:
    """σ, the one-to-one assignment of targets to classes that maximises Σ_k centre_k · t_σ(k).

    With unit centres, as in TSC's released code, it moves them least: Σ_k ‖centre_k − t_σ(k)‖² is smallest. The
    Hungarian algorithm takes time in K³ on the host, which waits for an accelerator's values: call it once an epoch,
    or seldom, and not at every step.

    Args:
        class_centres: (K, d) centre of each class, of any length.
        targets: (K, d) unit rows, from `uniform_targets`.

    Returns:
        (K,) int64 on the device of the centres: the target's row for each class.

    Raises:
        ValueError: shapes that differ, a row that is not finite, a target that is not unit.
    """
    centres = rows("class_centres", class_centres)
    targets = unit_rows("targets", targets)
    if centres.shape != targets.shape:
        raise ValueError(
            f"class_centres must have one row for each target and its length, got shape {tuple(centres.shape)} "
            f"for targets of shape {tuple(targets.shape)}"
        )
    similarities = centres @ targets.to(centres.device).T
    _, chosen = linear_sum_assignment(similarities.cpu().numpy(), maximize=True)
    return torch.from_numpy(chosen).to(centres.device, torch.int64)


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a positive number, got {temperature}")
