"""Targeted supervised contrastive loss (TSC; Li et al., CVPR 2022): classes are pulled to targets fixed beforehand."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import (
    check_class_indices,
    check_non_negative,
    check_positive,
    check_reduction,
    check_unit_rows,
)
from ltnb.losses.k_positive import check_drawn_positives, check_queries_and_keys
from ltnb.losses.partition import log_partition


def targeted_contrastive(
    z: Tensor,
    y: Tensor,
    keys: Tensor,
    key_labels: Tensor,
    positives: Tensor,
    targets: Tensor,
    assignment: Tensor,
    *,
    weight: float,
    temperature: float,
    reduction: str = "mean",
) -> Tensor:
    r"""Targeted contrastive loss: `k_positive_contrastive` and, weighted by λ, a pull to the target of the class:

        ℒᵢ = −1/(2 + |Pᵢ|) [ Σ_{p ∈ {i} ∪ Pᵢ} log ( exp(zᵢ·k_p/τ) / Dᵢ ) + λ log ( exp(zᵢ·t_σ(y)/τ) / Dᵢ ) ]
        Dᵢ = Σ_{m ∈ all keys} exp(zᵢ·k_m/τ) + Σⱼ exp(zᵢ·tⱼ/τ)

    As in the released code (with its options --sep_t --tr 1, those of its README) all K targets stand in the
    denominator of *both* terms, and both are divided by the number of positives with the target counted as one,
    whatever λ: so λ = 0 is not the plain loss. The notes that we have on the paper do not give its equation. Where the
    batch's other keys stand is said at `k_positive_contrastive`.

    With queries, keys and targets at the corners of a regular simplex, n keys of each of K classes, it is
    (1 + |Pᵢ| + λ)/(2 + |Pᵢ|) · log((n + 1)(1 + (K − 1) exp(−K/((K − 1)τ)))) for each query.

    Args:
        z: (N, d) unit rows of the queries, float32, float64 or bfloat16.
        y: (N,) integer labels in [0, K).
        keys: (M, d) unit rows, M ≥ N: first the queries' own other views, in the order of z, then the filled part of
            the queue. With gradient if they ask for one; the method's keys do not.
        key_labels: (M,) integer labels of the keys, the first N equal to y.
        positives: (N, M) bool, Pᵢ, from `draw_positives`.
        targets: (K, d) unit rows tⱼ, `ltnb.geometry.uniform_targets`; the method's are constant.
        assignment: (K,) integers σ in [0, K), the target of each class, from `ltnb.geometry.assign_targets`.
        weight: λ ≥ 0; 0.2 in the README of the released code.
        temperature: τ > 0, of keys and targets; 0.07 in the released code.
        reduction: "mean" over the queries, "sum", or "none": (N,). Every query has a positive, its own key.

    Returns:
        The loss in float32, or float64 if z, keys or targets are.

    Raises:
        ValueError: wrong shapes or types, fewer keys than queries, λ < 0, τ ≤ 0, unknown reduction; on the CPU also a
            row that is not unit, a label or an assigned target outside [0, K), an own key of another label, a positive
            that is the own key or of another class. On an accelerator these values are not looked at and an index
            outside [0, K) fails in the kernel.
    """
    check_queries_and_keys(z, y, keys, key_labels)
    check_drawn_positives(y, key_labels, positives)
    check_unit_rows("targets", targets)
    num_classes = len(targets)
    if targets.shape[1] != z.shape[1]:
        raise ValueError(f"targets must have rows of length {z.shape[1]} like z, got shape {tuple(targets.shape)}")
    check_class_indices("y", y, len(z), num_classes)
    check_class_indices("assignment", assignment, num_classes, num_classes)
    check_non_negative("weight", weight)
    check_positive("temperature", temperature)
    check_reduction(reduction)

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(z.dtype, keys.dtype), targets.dtype)
        dtype = torch.promote_types(dtype, torch.float32)
        z, keys, targets, drawn = z.to(dtype), keys.to(dtype), targets.to(dtype), positives.to(dtype)
        own_target = targets.index_select(0, assignment.long().index_select(0, y.long()))
        positive_sum = keys[: len(z)] + drawn @ keys + weight * own_target
        # Two sums and not one over a concatenation, which would copy the queue at every step.
        log_denominator = torch.logaddexp(
            log_partition(z, keys, z.new_zeros(len(keys)), temperature=temperature),
            log_partition(z, targets, z.new_zeros(num_classes), temperature=temperature),
        )
        num_positives = 1 + drawn.sum(dim=1)
        total = (num_positives + weight) * log_denominator - torch.linalg.vecdot(z, positive_sum) / temperature
        return reduce_anchors(total / (num_positives + 1), torch.ones_like(y, dtype=torch.bool), reduction)
