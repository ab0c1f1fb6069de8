"""Supervised contrastive loss (Khosla et al., NeurIPS 2020, Eq. 2), SCL in the papers on long tails."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_choice, check_class_indices, check_temperature, check_unit_rows
from ltnb.losses.partition import log_partition


def supervised_contrastive(z: Tensor, y: Tensor, *, temperature: float, reduction: str = "mean") -> Tensor:
    r"""Supervised contrastive loss, the baseline that BCL balances.

        ℒᵢ = −1/(|B_y| − 1) Σ_{p ∈ B_y∖{i}} log [ exp(zᵢ·z_p/τ) / Σ_{k ∈ B∖{i}} exp(zᵢ·z_k/τ) ]

    B is the batch, B_y its samples of the anchor's class. An anchor without a positive (|B_y| = 1) is left out;
    `valid_anchors(y)` says which. If none has one the loss is zero and so is its gradient.
    With all classes of n anchors on a regular simplex it is log(n − 1 + n(K − 1) exp(−K/((K − 1)τ))) for each anchor,
    the lower bound of BCL's Theorem 1 (Zhu et al., CVPR 2022, τ = 1 there).

    Args:
        z: (N, d) unit rows, float32, float64 or bfloat16; with two views both stacked, N = 2 · images.
        y: (N,) integer labels, any values.
        temperature: τ > 0.
        reduction: "mean" over the anchors that have a positive, "sum", or "none": (N,) with 0 for those without.

    Returns:
        The loss in float32, or float64 for float64.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0, unknown reduction; on the CPU also a row of z that is not unit. On an
            accelerator the rows' norms are not looked at.
    """
    check_unit_rows("z", z)
    check_class_indices(y, len(z))
    check_temperature(temperature)
    check_choice("reduction", reduction, ("mean", "sum", "none"))

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        z = z.to(torch.promote_types(z.dtype, torch.float32))
        same_class = (y[:, None] == y).to(z.dtype)
        num_positives = same_class.sum(dim=1) - 1
        positive_sum = same_class @ z - z
        positive_logit = torch.linalg.vecdot(z, positive_sum) / (num_positives.clamp(min=1) * temperature)
        itself = torch.arange(len(z), device=z.device)
        log_denominator = log_partition(z, z, z.new_zeros(len(z)), excluded=itself, temperature=temperature)
        return reduce_anchors(log_denominator - positive_logit, num_positives > 0, reduction)
