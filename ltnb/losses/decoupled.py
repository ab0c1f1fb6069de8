"""Decoupled supervised contrastive loss (DSCL; Xuan & Zhang, AAAI 2024): a fixed share for the own other view."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import (
    check_class_indices,
    check_positive,
    check_positive_share,
    check_reduction,
    check_unit_rows,
)
from ltnb.losses.labels import class_numbers, class_totals
from ltnb.losses.partition import log_partition


def decoupled_contrastive(
    z: Tensor,
    y: Tensor,
    *,
    temperature: float,
    own_weight: float,
    reduction: str = "mean",
) -> Tensor:
    r"""Supervised contrastive loss with the two kinds of positives, own view and other images, weighted apart:

        ℒᵢ = −α log qᵢ(i⁺) − (1 − α)/|Oᵢ| Σ_{p ∈ Oᵢ} log qᵢ(p),     qᵢ(p) = exp(zᵢ·z_p/τ) / Σ_{k ≠ i} exp(zᵢ·z_k/τ)

    i⁺ is the other view of the same image, Oᵢ all other samples of the class; an anchor without any has α = 1. In the
    supervised contrastive loss the own view's share, 1/(1 + |Oᵢ|), falls with the size of the class: tail classes
    learn from it, head classes hardly. Here it is the same for all. The denominators are those of the supervised
    contrastive loss, which this loss is where α = 1/(1 + |Oᵢ|); α = 1 is the loss of SimCLR.

    The released code weighs the own view 1 and the others β/|Oᵢ| each, divided by the sum: α = 1/(1 + β), β = 8. There
    anchors are one view and further samples come from a queue; here, without one, both views are anchors, as in the
    project's other losses of two views. The patch-based self-distillation of the paper is no part of this.

    With all classes of n samples on a regular simplex it is log(n − 1 + n(K − 1) exp(−K/((K − 1)τ))) for each anchor,
    whatever α.

    Args:
        z: (N, d) unit rows, float32, float64 or bfloat16, N even: all first views, then the second in the same order.
        y: (N,) integer labels, any values; both halves are equal.
        temperature: τ > 0; 0.07 in the released code.
        own_weight: α in (0, 1]; 1/9 in the released code.
        reduction: "mean" over the anchors, "sum", or "none": (N,). Every anchor has a positive, its other view.

    Returns:
        The loss in float32, or float64 for float64 rows.

    Raises:
        ValueError: wrong shapes or types, N odd, τ ≤ 0, α outside (0, 1], unknown reduction; on the CPU also a row
            that is not unit, and views of an image with two labels. On an accelerator these values are not looked at.
    """
    check_unit_rows("z", z)
    check_class_indices("y", y, len(z))
    _check_views(y)
    check_positive("temperature", temperature)
    check_positive_share("own_weight", own_weight)
    check_reduction(reduction)

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(z.dtype, torch.float32)
        z = z.to(dtype)
        other_view = z.roll(len(z) // 2, dims=0)
        classes = class_numbers(y)
        class_sums, class_sizes = class_totals(z, classes, len(z))
        num_others = class_sizes[classes] - 2
        others_sum = class_sums.index_select(0, classes) - z - other_view
        own_logit = torch.linalg.vecdot(z, other_view) / temperature
        others_logit = torch.linalg.vecdot(z, others_sum) / (num_others.clamp(min=1) * temperature)
        positive_logit = torch.where(
            num_others > 0, own_weight * own_logit + (1 - own_weight) * others_logit, own_logit
        )
        itself = torch.arange(len(z), device=z.device)
        log_denominator = log_partition(z, z, z.new_zeros(len(z)), excluded=itself, temperature=temperature)
        return reduce_anchors(log_denominator - positive_logit, torch.ones_like(y, dtype=torch.bool), reduction)


def _check_views(y: Tensor) -> None:
    if len(y) % 2:
        raise ValueError(f"z must hold two views of every image, got an odd number of rows, {len(y)}")
    if y.device.type != "cpu":
        return
    first, second = y.chunk(2)
    other = first != second
    if other.any():
        image = int(other.nonzero()[0])
        raise ValueError(f"y must be the same for both views, got {first[image]} and {second[image]} for image {image}")
