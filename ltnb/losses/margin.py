"""Cross-entropy with a margin a class: PAL (Zhou et al., ICML 2022, Eq. 2), LDAM (Cao et al., NeurIPS 2019)."""

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.checks import check_class_counts, check_class_indices, check_matrix, check_positive, check_reduction
from ltnb.losses.labels import positive_classes


def margin_cross_entropy(
    cosines: Tensor, y: Tensor, margins: Tensor | float, *, scale: float, reduction: str = "mean"
) -> Tensor:
    r"""Cross-entropy that asks the own class to win by a margin (PAL Eq. 2):

        ℒᵢ = −log [ exp(s(c_iy − α_y)) / (exp(s(c_iy − α_y)) + Σ_{j ≠ y} exp(s·c_ij)) ],     c_ij = cos(wⱼ, xᵢ)

    With margins α = m_n it is LDAM's loss (`ldam_margins`), with equal α the one of PAL's Theorem 3.2: its minimum
    over features and classifier is log(1 + (K − 1) exp(s(α − K/(K − 1)))), at the regular simplex. Unequal margins
    cost Fisher consistency (Theorem 3.3). With α = 0 it is plain cross-entropy of s·c. Predict without the margin.

    Args:
        cosines: (N, K) c, before the scale, float32, float64 or bfloat16; any logits do, so that PAL's features may
            stay as they are.
        y: (N,) integer labels in [0, K). Mixed labels have no margin of their own and are refused.
        margins: (K,) α of the classes, or one number for all. A tensor on the cosines' device is not copied.
        scale: s > 0.
        reduction: "mean" over the samples, "sum", or "none": (N,).

    Returns:
        The loss in float32, or float64 for float64 cosines.

    Raises:
        ValueError: wrong shapes or types, s ≤ 0, a margin that is not finite, unknown reduction; on the CPU also a
            label outside [0, K). On an accelerator the margins of a tensor are not looked at and a wrong label fails
            in the kernel.
    """
    check_matrix("cosines", cosines)
    num_samples, num_classes = cosines.shape
    check_class_indices("y", y, num_samples, num_classes)
    check_positive("scale", scale)
    check_reduction(reduction)
    dtype, y = torch.promote_types(cosines.dtype, torch.float32), y.long()
    of_classes = _check_margins(margins, num_classes).to(cosines.device, dtype).expand(num_classes)
    shifts = torch.where(positive_classes(y, num_classes), of_classes, 0)
    return F.cross_entropy(scale * (cosines.to(dtype) - shifts), y, reduction=reduction)


def ldam_margins(class_counts: Tensor | Sequence[int], *, largest: float = 0.5) -> Tensor:
    r"""LDAM's margins, larger for rarer classes: mⱼ = m_max (n_min/nⱼ)^¼, the trade-off of its margin bound.

    Args:
        class_counts: (K,) training images nⱼ of each class, all positive.
        largest: m_max > 0, the rarest class's margin; 0.5 in the released code.

    Returns:
        (K,) float64 in (0, m_max], on the device of the counts.

    Raises:
        ValueError: wrong shape, m_max ≤ 0; on the CPU also a count that is not positive.
    """
    check_positive("largest", largest)
    counts = check_class_counts(class_counts)
    return largest * (counts.min() / counts) ** 0.25


def _check_margins(margins: Tensor | float, num_classes: int) -> Tensor:
    """As a tensor of one or `num_classes` margins."""
    if isinstance(margins, Real):
        if not math.isfinite(margins):
            raise ValueError(f"margins must be finite, got {margins!r}")
        return torch.tensor([margins], dtype=torch.float64)
    if not isinstance(margins, Tensor) or margins.shape != (num_classes,) or not margins.is_floating_point():
        found = f"shape {tuple(margins.shape)} of {margins.dtype}" if isinstance(margins, Tensor) else repr(margins)
        raise ValueError(
            f"margins must be a number or hold one floating-point number for each of {num_classes} classes, got {found}"
        )
    if margins.device.type == "cpu" and not margins.isfinite().all():
        raise ValueError(f"margins must be finite, got {margins.tolist()}")
    return margins
