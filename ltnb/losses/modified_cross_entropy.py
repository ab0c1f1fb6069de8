"""Cross-entropy, modified: easy samples count less (focal), or wrong labels do (generalised, and with its reverse).

      loss    lies between
      focal   cross-entropy, γ = 0, and a loss of the hard samples alone
      gce     cross-entropy, q → 0, and `ltnb.losses.mae`, q = 1
      sce     cross-entropy, β = 0, and `ltnb.losses.rce`, α = 0

None of them is symmetric but at those last ends (`ltnb.losses.symmetric`). p = softmax(f). All take the scores f as
`logits` (N, K), float32, float64 or bfloat16, and labels y (N,) of integers in [0, K); `reduction` is "mean" over the
samples, "sum", or "none": (N,). They return float32, or float64 for float64 scores. Mixed labels are refused, as by
`ltnb.losses.margin_cross_entropy`. They raise a ValueError for wrong shapes or types, a parameter out of range and an
unknown reduction, on the CPU also for a label outside [0, K); on an accelerator that fails in the kernel.
"""

import torch
from torch import Tensor

from ltnb.losses.checks import check_non_negative, check_positive_share, check_reduction
from ltnb.losses.softmax import focal_terms, log_probabilities, own_class, reduce_samples
from ltnb.losses.symmetric import rce


def focal(logits: Tensor, y: Tensor, *, gamma: float, reduction: str = "mean") -> Tensor:
    r"""Focal loss (Lin et al., ICCV 2017), which weighs a sample by how far it is from being learnt:

        ℒ = −(1 − p_y)^γ log p_y

    The gradient goes through the weight, as in that paper; the code that the experiments with noise rest on (Ma et
    al., ICML 2020) detaches it. It lies in [0, ∞), never above cross-entropy.

    Arguments and errors are those of the family, at the top of this file, and:
        gamma: γ ≥ 0; 0 is cross-entropy.
    """
    check_non_negative("gamma", gamma)
    check_reduction(reduction)
    return reduce_samples(own_class(focal_terms(log_probabilities(logits, y), gamma), y), reduction)


def gce(logits: Tensor, y: Tensor, *, q: float, reduction: str = "mean") -> Tensor:
    r"""Generalised cross-entropy (Zhang & Sabuncu, NeurIPS 2018):

        ℒ = (1 − p_y^q) / q

    It lies in [0, 1/q], and (K − K^(1−q))/q ≤ Σ_k ℒ(f, k) ≤ (K − 1)/q, which comes closer to a constant as q grows.
    Its gradient is that of cross-entropy times p_y^q: a sample taken for another class is learnt from less.

    Arguments and errors are those of the family, at the top of this file, and:
        q: in (0, 1]; 1 is `ltnb.losses.mae`, and q → 0 cross-entropy.
    """
    check_positive_share("q", q)
    check_reduction(reduction)
    # Of q log p_y and not of p_y, which underflows and whose power has an infinite slope at 0.
    return reduce_samples(-torch.expm1(q * own_class(log_probabilities(logits, y), y)) / q, reduction)


def sce(logits: Tensor, y: Tensor, *, alpha: float, beta: float, reduction: str = "mean") -> Tensor:
    r"""Symmetric cross-entropy (Wang et al., ICCV 2019): in prediction and label, but Σ_k ℒ(f, k) is no constant:

        ℒ = α · (−log p_y) + β · A (1 − p_y),     A = −log 10⁻⁴

    The first part is cross-entropy, which learns fast, the second its reverse (`ltnb.losses.rce`), which wrong labels
    do not mislead. It lies in [0, ∞).

    Arguments and errors are those of the family, at the top of this file, and:
        alpha: α ≥ 0, the weight of cross-entropy.
        beta: β ≥ 0, the weight of reverse cross-entropy.
    """
    check_non_negative("alpha", alpha)
    check_non_negative("beta", beta)
    check_reduction(reduction)
    cross_entropy = reduce_samples(-own_class(log_probabilities(logits, y), y), reduction)
    return alpha * cross_entropy + beta * rce(logits, y, reduction=reduction)
