"""Balanced contrastive loss (Zhu et al., CVPR 2022): class-averaging and class-complement on top of SCL."""

import torch
from torch import Tensor

from ltnb.losses.anchors import reduce_anchors, weight_by_class
from ltnb.losses.checks import check_choice, check_class_indices, check_positive, check_reduction, check_unit_rows
from ltnb.losses.labels import class_numbers
from ltnb.losses.partition import log_partition


def balanced_contrastive(
    z: Tensor,
    y: Tensor,
    prototypes: Tensor | None = None,
    *,
    temperature: float,
    averaging: str = "L1",
    anchor_weighting: str = "sample",
    reduction: str = "mean",
) -> Tensor:
    r"""Balanced contrastive loss, in full with `prototypes` and averaging "L1" (the form of Theorem 3):

        ℒᵢ = −1/|Pᵢ| Σ_{p ∈ Pᵢ} log [ exp(zᵢ·z_p/τ) / Dᵢ ],        Pᵢ = B_y∖{i} ∪ {c_y}
        Dᵢ = 1/|Pᵢ| Σ_{k ∈ Pᵢ} exp(zᵢ·z_k/τ) + Σ_{j ≠ y} 1/|Bⱼ ∪ {cⱼ}| Σ_{k ∈ Bⱼ ∪ {cⱼ}} exp(zᵢ·z_k/τ)

    Bⱼ are the batch's samples of class j (both views), cⱼ the class's prototype, y the anchor's class and Pᵢ the
    anchor's positives. *Class-complement* adds the prototypes as keys (never as anchors), so that all K classes are
    in every denominator: a class absent from the batch contributes exp(zᵢ·cⱼ/τ). Without `prototypes` Pᵢ = B_y∖{i}
    and j runs over the classes of the batch. *Class-averaging* is the choice of Dᵢ; the positives stay as they are:

        "none"  Σ_{k ∈ Pᵢ} exp(zᵢ·z_k/τ) + Σ_{j ≠ y} Σ_{k ∈ Bⱼ ∪ {cⱼ}} exp(zᵢ·z_k/τ)   SCL, prototypes as more keys
        "L1"    sum over classes of the class's mean of exp(zᵢ·z_k/τ): the Dᵢ above     ℒ₁ of the paper
        "L2"    sum over classes of exp of the class's mean of zᵢ·z_k/τ                 ℒ₂ ≤ ℒ₁ by Jensen
        "L3"    Σⱼ exp(zᵢ·cⱼ/τ) over all classes; needs prototypes                      ℒ₃

    The paper's text as we have it names the three and derives its theorems from ℒ₁ (Theorem 2 without prototypes,
    Theorem 3 with them). Left open, and chosen here: that the means of ℒ₂ with prototypes run over Bⱼ ∪ {cⱼ} and, in
    the own class, over Pᵢ; and that ℒ₃ keeps the positives Pᵢ, where the other reading is c_y alone (so ℒ₃ alone may
    fall below 0: samples attract without being in Dᵢ).

    With samples and prototypes collapsed onto a regular simplex every averaged form is
    log(1 + (K − 1) exp(−K/((K − 1)τ))) for each anchor, and Theorem 3 (τ = 1) takes the sum over anchors for the
    minimum. Averaging balances keys, not anchors: it is the minimum for equal class counts, or for any counts with
    anchor_weighting="class", but not for unequal counts with "sample".

    Args:
        z: (N, d) unit rows, float32, float64 or bfloat16; with two views both stacked, N = 2 · images.
        y: (N,) integer labels; in [0, K) with prototypes, any values without.
        prototypes: (K, d) unit rows cⱼ, with gradient (the paper has no stop-gradient), or None: no class-complement.
        temperature: τ > 0.
        averaging: "none", "L1", "L2" or "L3".
        anchor_weighting: "sample", each anchor's loss as it is (the paper), or "class", times V/(K′·|B_y|) with V
            anchors that have a positive, of K′ classes: every class weighs the same, equal classes as without.
        reduction: "mean" over the anchors that have a positive, their "sum", or "none": (N,) weighted losses, 0 for
            anchors without a positive. `valid_anchors(y, prototypes=…)` says which have one: with prototypes all.
            If none has one the loss is zero and so is its gradient.

    Returns:
        The loss in float32, or float64 if z or prototypes are.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0, an unknown choice, "L3" without prototypes; on the CPU also a label
            outside [0, K) and a row that is not unit. On an accelerator a wrong label fails in the kernel that
            counts classes, and the rows' norms are not looked at.
    """
    num_samples, num_classes = len(z), None if prototypes is None else len(prototypes)
    check_unit_rows("z", z)
    if prototypes is not None:
        check_unit_rows("prototypes", prototypes)
        if prototypes.shape[1] != z.shape[1]:
            raise ValueError(
                f"prototypes must have rows of length {z.shape[1]} like z, got shape {tuple(prototypes.shape)}"
            )
    check_class_indices("y", y, num_samples, num_classes)
    check_positive("temperature", temperature)
    check_choice("averaging", averaging, ("none", "L1", "L2", "L3"))
    check_choice("anchor_weighting", anchor_weighting, ("sample", "class"))
    check_reduction(reduction)

    # Autocast would take the products below back to half precision.
    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(z.dtype, torch.float32)
        if prototypes is None:
            z = z.to(dtype)
            classes = class_numbers(y)  # K need not be known
            class_sums = torch.zeros_like(z).index_add(0, classes, z)
        else:
            dtype = torch.promote_types(dtype, prototypes.dtype)
            z, prototypes, classes = z.to(dtype), prototypes.to(dtype), y.long()
            class_sums = prototypes.index_add(0, classes, z)
        class_sizes = z.new_zeros(len(class_sums)).index_add(0, classes, z.new_ones(num_samples))
        key_counts = class_sizes if prototypes is None else class_sizes + 1
        num_positives = key_counts[classes] - 1
        positive_sum = class_sums.index_select(0, classes) - z
        positive_logit = torch.linalg.vecdot(z, positive_sum) / (num_positives.clamp(min=1) * temperature)

        if averaging == "none":
            log_denominator = _log_sum_over_keys(
                z, prototypes, classes, torch.ones_like(num_positives), torch.ones_like(key_counts), temperature
            )
        elif averaging == "L1":
            log_denominator = _log_sum_over_keys(
                z, prototypes, classes, num_positives.clamp(min=1), key_counts.clamp(min=1), temperature
            )
        elif averaging == "L2":
            class_means = class_sums / key_counts.clamp(min=1)[:, None]
            log_presence = torch.zeros_like(key_counts).masked_fill(key_counts == 0, torch.finfo(dtype).min)
            others = log_partition(z, class_means, log_presence, temperature=temperature, excluded=classes)
            log_denominator = torch.logaddexp(positive_logit, others)
        elif prototypes is not None:
            log_denominator = log_partition(z, prototypes, torch.zeros_like(key_counts), temperature=temperature)
        else:
            raise ValueError("averaging='L3' sums over prototypes, got prototypes=None")

        losses, valid = log_denominator - positive_logit, num_positives > 0
        if anchor_weighting == "class":
            losses = weight_by_class(losses, valid, class_sizes[classes])
        return reduce_anchors(losses, valid, reduction)


def _log_sum_over_keys(
    z: Tensor,
    prototypes: Tensor | None,
    classes: Tensor,
    num_positives: Tensor,
    key_counts: Tensor,
    temperature: float,
) -> Tensor:
    """log Dᵢ as a sum over samples and prototypes, each divided by the size of its class as anchor i sees it.

    That is `num_positives` (N,) for a key of the anchor's own class and `key_counts` (K,) for the others. Samples and
    prototypes are summed apart: weights of pairs of samples are (N, N), those of prototypes no more than (K,).
    """
    own_log_weight, log_weights = -num_positives.log(), -key_counts.log()
    same_class = classes[:, None] == classes
    sample_log_weights = torch.where(same_class, own_log_weight[:, None], log_weights[classes])
    itself = torch.arange(len(z), device=z.device)
    samples = log_partition(z, z, sample_log_weights, temperature=temperature, excluded=itself)
    if prototypes is None:
        return samples
    own_prototype = torch.linalg.vecdot(z, prototypes.index_select(0, classes)) / temperature + own_log_weight
    others = log_partition(z, prototypes, log_weights, temperature=temperature, excluded=classes)
    return torch.logaddexp(torch.logaddexp(samples, own_prototype), others)
