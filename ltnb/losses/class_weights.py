"""Class-balanced weights (Cui et al., CVPR 2019), and the mean of a loss under weights of the classes."""

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from ltnb.losses.checks import check_class_counts
from ltnb.losses.labels import check_labels


def class_balanced_weights(class_counts: Tensor | Sequence[int], *, beta: float) -> Tensor:
    r"""Inverse effective number of images of each class, scaled to the mean 1:

        w_k ∝ (1 − β)/(1 − β^n_k),     1/K Σ_k w_k = 1

    (1 − β^n)/(1 − β) = 1 + β + … + β^(n−1) is how much n images are worth, if each next one adds a share β of what the
    last one did. With β = 0 all classes weigh 1; as β → 1 their weights go to 1/n_k, up to the scale, and stay right to
    rounding however close β comes. The scale is that of LDAM-DRW's released code, which uses β = 0.9999.

    >>> class_balanced_weights([4, 1], beta=0.5)
    tensor([0.6957, 1.3043], dtype=torch.float64)

    Args:
        class_counts: (K,) training images n_k of each class, all positive.
        beta: β in [0, 1).

    Returns:
        (K,) float64, of mean 1, on the device of the counts.

    Raises:
        ValueError: wrong shape, β outside [0, 1); on the CPU also a count that is not positive.
    """
    if not (isinstance(beta, Real) and 0 <= beta < 1):
        raise ValueError(f"beta must be a number in [0, 1), got {beta!r}")
    counts = check_class_counts(class_counts)
    # For β close to 1, β^n is so as well, and 1 − β^n would keep few digits or none.
    effective_numbers = -torch.expm1(counts * (math.log(beta) if beta > 0 else -math.inf))
    weights = 1 / effective_numbers
    return weights / weights.mean()


def weighted_mean(losses: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    r"""Mean of the samples' losses in which each counts by its class:

        ℒ = Σᵢ w_yᵢ ℓᵢ / Σᵢ w_yᵢ

    That is what `torch.nn.functional.cross_entropy(…, weight=w)` makes of cross-entropy, and how LDAM-DRW's released
    code applies its weights: only the proportions of the weights within a batch count, and a batch of one class has its
    plain mean. With soft labels a sample weighs w_i = Σ_k y_ik w_k. (There torch differs: it weighs the part of
    each class in ℓᵢ and divides by N.)

    Args:
        losses: (N,) ℓ, float32, float64 or bfloat16, N ≥ 1.
        y: (N,) integer labels in [0, K), or (N, K) soft labels of any floating-point type.
        weights: (K,) w, floating-point, all positive. A tensor on the losses' device and of the result's type is not
            copied.

    Returns:
        A scalar in float32, or float64 for float64 losses.

    Raises:
        ValueError: wrong shapes or types; on the CPU also a weight that is not positive and finite, a label outside
            [0, K), or a soft label that is no distribution. On an accelerator these are not looked at, and a wrong
            label fails in the kernel.
    """
    if losses.ndim != 1 or len(losses) == 0 or not losses.is_floating_point():
        raise ValueError(
            f"losses must be a non-empty floating-point vector, got shape {tuple(losses.shape)} of {losses.dtype}"
        )
    if weights.ndim != 1 or len(weights) == 0 or not weights.is_floating_point():
        raise ValueError(
            "weights must hold one floating-point number for each class, "
            f"got shape {tuple(weights.shape)} of {weights.dtype}"
        )
    # Asked this way round, NaN is wrong as well.
    if weights.device.type == "cpu" and not ((weights > 0) & weights.isfinite()).all():
        raise ValueError(f"weights must be positive and finite, got {weights.tolist()}")
    check_labels(y, len(losses), len(weights))
    dtype = torch.promote_types(losses.dtype, torch.float32)
    weights = weights.to(losses.device, dtype)
    # Not a product of matrices: autocast would take it to half precision.
    of_samples = (y.to(dtype) * weights).sum(dim=1) if y.is_floating_point() else weights[y.long()]
    return (of_samples * losses.to(dtype)).sum() / of_samples.sum()
