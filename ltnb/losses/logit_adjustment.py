"""Logit-adjusted cross-entropy (Menon et al., ICLR 2021), the logit compensation of BCL (Zhu et al., CVPR 2022)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.checks import check_class_counts, check_matrix, check_non_negative, check_reduction
from ltnb.losses.labels import check_labels


def logit_adjusted_cross_entropy(
    logits: Tensor,
    y: Tensor,
    class_counts: Tensor | Sequence[int],
    *,
    tau: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy of logits to which the log prior of the training set is added:

        ℒ = −log [ exp(f_y + τ log π_y) / Σⱼ exp(fⱼ + τ log πⱼ) ],     πⱼ = nⱼ / Σ n

    BCL's ℒ_LC with α_y = 1 and δⱼ = log πⱼ is τ = 1. Train with it and predict with the logits as they are: they then
    estimate log p(x | j) up to a constant of x, which is what a balanced test set asks for. This τ is no temperature.

    Args:
        logits: (N, K) f, float32, float64 or bfloat16; of a cosine classifier after its scale.
        y: (N,) integer labels in [0, K), or (N, K) floating-point rows that sum to 1 (mixed or smoothed labels).
        class_counts: (K,) training images nⱼ of each class, all positive. A tensor on the logits' device is not copied.
        tau: τ ≥ 0; 0 is plain cross-entropy.
        reduction: "mean" over the samples, "sum", or "none": (N,).

    Returns:
        The loss in float32, or float64 for float64 logits.

    Raises:
        ValueError: wrong shapes or types, τ < 0, unknown reduction; on the CPU also a label outside [0, K), a soft
            label that is no distribution, a count that is not positive. On an accelerator the latter two are not
            looked at and a wrong label fails in the kernel, but −100, which torch skips.
    """
    check_matrix("logits", logits)
    num_samples, num_classes = logits.shape
    dtype = torch.promote_types(logits.dtype, torch.float32)
    check_labels(y, num_samples, num_classes)
    y = y.to(dtype) if y.is_floating_point() else y.long()
    check_non_negative("tau", tau)
    check_reduction(reduction)
    counts = check_class_counts(class_counts, num_classes)
    log_prior = (counts / counts.sum()).log().to(logits.device, dtype)
    return F.cross_entropy(logits.to(dtype) + tau * log_prior, y, reduction=reduction)
