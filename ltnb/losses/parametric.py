"""Parametric contrastive loss (PaCo; Cui et al., ICCV 2021): the classes' centres are keys among the samples'."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import (
    check_class_counts,
    check_class_indices,
    check_matrix,
    check_non_negative,
    check_positive,
    check_reduction,
)
from ltnb.losses.k_positive import check_queries_and_keys
from ltnb.losses.labels import class_totals
from ltnb.losses.partition import log_partition
from ltnb.losses.softmax import own_class


def parametric_contrastive(
    z: Tensor,
    y: Tensor,
    keys: Tensor,
    key_labels: Tensor,
    scores: Tensor,
    class_counts: Tensor | Sequence[int],
    *,
    sample_weight: float,
    centre_weight: float = 1.0,
    temperature: float,
    reduction: str = "mean",
) -> Tensor:
    r"""Parametric contrastive loss of queries against the K centres, each other, and a momentum encoder's keys:

        ℒᵢ = −[ β log (exp(s_iy + log π_y) / Dᵢ) + α Σ_{p ∈ Pᵢ} log (exp(zᵢ·k_p/τ) / Dᵢ) ] / (β + α |Pᵢ|)
        Dᵢ = Σⱼ exp(s_ij + log πⱼ) + Σ_{m ∈ A∖{i}} exp(zᵢ·k_m/τ),     πⱼ = nⱼ / Σ n

    A are the queries themselves, with gradient from both sides, and the keys; Pᵢ are those of A∖{i} of the query's
    class, its own key among them. The centres are the rows of the classifier, whose logits s have no temperature.

    This is the released code for long tails with the settings of its scripts: there the share of sample terms in Dᵢ
    (--gamma), the temperature of the scores (`supt`) and the factor τ/τ_base are all 1, and left out here. Its
    constants 10⁻⁹ and 10⁻¹² inside logarithms are left out as well: counts are positive and sums are stable.

    With α = 0 it is logit-adjusted cross-entropy, but with the samples in the denominator.

    Args:
        z: (N, d) unit rows of the queries, float32, float64 or bfloat16.
        y: (N,) integer labels in [0, K).
        keys: (M, d) unit rows, M ≥ N: first the queries' own other views, in the order of z, then the filled part of
            the queue. With gradient if they ask for one; the method's keys do not.
        key_labels: (M,) integer labels of the keys, the first N equal to y.
        scores: (N, K) floating-point logits s of the classifier for the queries' features.
        class_counts: (K,) training images nⱼ of each class, all positive. A tensor on the scores' device is not copied.
        sample_weight: α ≥ 0 of each positive sample; 0.02 in the released script for CIFAR-100-LT.
        centre_weight: β ≥ 0 of the own centre; α and β not both 0.
        temperature: τ > 0 of samples; 0.05 in that script.
        reduction: "mean" over the queries, "sum", or "none": (N,). Every query has a positive.

    Returns:
        The loss in float32, or float64 if z, keys or scores are.

    Raises:
        ValueError: wrong shapes or types, fewer keys than queries, a weight below 0 or both 0, τ ≤ 0, unknown
            reduction; on the CPU also a row of z or keys that is not unit, a label outside [0, K), an own key of
            another label, a count that is not positive. On an accelerator these values are not looked at and a wrong
            label fails in the kernel.
    """
    check_queries_and_keys(z, y, keys, key_labels)
    check_matrix("scores", scores)
    if len(scores) != len(z):
        raise ValueError(f"scores must have one row for each of {len(z)} queries, got shape {tuple(scores.shape)}")
    check_class_indices("y", y, len(z), scores.shape[1])
    counts = check_class_counts(class_counts, scores.shape[1])
    check_non_negative("sample_weight", sample_weight)
    check_non_negative("centre_weight", centre_weight)
    if sample_weight == centre_weight == 0:
        raise ValueError("sample_weight and centre_weight must not both be 0: no positive would count")
    check_positive("temperature", temperature)
    check_reduction(reduction)

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(z.dtype, keys.dtype), scores.dtype)
        dtype = torch.promote_types(dtype, torch.float32)
        z, keys = z.to(dtype), keys.to(dtype)
        centre_logits = scores.to(dtype) + (counts / counts.sum()).log().to(scores.device, dtype)

        samples, classes = torch.cat([z, keys]), torch.cat([y, key_labels]).long()
        class_sums, class_sizes = class_totals(samples, classes, len(counts))
        positive_sum = class_sums.index_select(0, y.long()) - z
        num_samples = class_sizes[y.long()] - 1
        sample_logit = torch.linalg.vecdot(z, positive_sum) / temperature
        centre_logit = own_class(centre_logits, y)
        total_weight = centre_weight + sample_weight * num_samples
        positive_logit = (centre_weight * centre_logit + sample_weight * sample_logit) / total_weight

        # Queries and keys are summed apart, so that nothing is computed for a gradient of the queue.
        itself = torch.arange(len(z), device=z.device)
        among_queries = log_partition(z, z, z.new_zeros(len(z)), excluded=itself, temperature=temperature)
        among_keys = log_partition(z, keys, z.new_zeros(len(keys)), temperature=temperature)
        log_denominator = torch.logaddexp(torch.logaddexp(among_queries, among_keys), centre_logits.logsumexp(dim=1))
        return reduce_anchors(log_denominator - positive_logit, torch.ones_like(y, dtype=torch.bool), reduction)
