"""Symmetric losses, which wrong labels do not mislead: Σ_k ℒ(f, k) = C for every f, whatever class k the label names.

Under symmetric noise of rate η < 1 − 1/K the risk on noisy labels is then that on clean ones, times
1 − ηK/(K − 1) > 0 and plus a constant, so that both have the same minimisers (Ghosh, Kumar & Sastry, AAAI 2017).

      loss   C             source
      mae    K − 1         Ghosh et al., AAAI 2017
      rce    A (K − 1)     Wang et al., ICCV 2019
      nce    1             Ma et al., ICML 2020
      nfl    1             Ma et al., ICML 2020
      nsl    −Σⱼ fⱼ        Zhou et al., ICML 2022; 0 with PAL's anchored prototypes, which add up to 0

p = softmax(f). All take the scores f as `logits` (N, K), float32, float64 or bfloat16, and labels y (N,) of integers in
[0, K); `reduction` is "mean" over the samples, "sum", or "none": (N,). They return float32, or float64 for float64
scores. Mixed labels are refused, as by `ltnb.losses.margin_cross_entropy`. They raise a ValueError for wrong shapes or
types, a parameter out of range and an unknown reduction, on the CPU also for a label outside [0, K); on an accelerator
that fails in the kernel.
"""

import math

from torch import Tensor

from ltnb.losses.checks import check_non_negative, check_reduction
from ltnb.losses.softmax import (
    checked_scores,
    complements,
    focal_terms,
    log_probabilities,
    own_class,
    reduce_samples,
)

# A: reverse cross-entropy needs a value for log 0, and takes log 10⁻⁴ in the code of Wang et al. and of Ma et al.
REVERSE_CROSS_ENTROPY_SCALE = -math.log(1e-4)


def mae(logits: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    r"""Mean absolute error as the experiments with active and passive losses define it:

        ℒ = 1 − p_y

    That is half of the textbook value, Σⱼ |pⱼ − [j = y]| = 2 (1 − p_y). It lies in [0, 1], and Σ_k ℒ(f, k) = K − 1.
    Its gradient with respect to f_y is −p_y (1 − p_y): a sample taken for another class is hardly learnt from, which
    keeps wrong labels out and slows training down.

    Arguments and errors are those of the family, at the top of this file.
    """
    check_reduction(reduction)
    return reduce_samples(own_class(complements(log_probabilities(logits, y)), y), reduction)


def rce(logits: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    r"""Reverse cross-entropy, in which prediction and label change places; log 0 is taken to be log 10⁻⁴:

        ℒ = −Σⱼ pⱼ log [j = y] = A (1 − p_y),     A = −log 10⁻⁴ ≈ 9.21

    It is `mae` times A: it lies in [0, A], and Σ_k ℒ(f, k) = A (K − 1).

    Arguments and errors are those of the family, at the top of this file.
    """
    return REVERSE_CROSS_ENTROPY_SCALE * mae(logits, y, reduction=reduction)


def nce(logits: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    r"""Normalised cross-entropy: what the own class has of all K classes' cross-entropies:

        ℒ = log p_y / Σⱼ log pⱼ

    It lies in [0, 1], and Σ_k ℒ(f, k) = 1; at p = 1/K it is 1/K. The denominator is at least K log K, so gradients
    stay finite however sure the network is.

    Arguments and errors are those of the family, at the top of this file; one class has nothing to be normalised by.
    """
    check_reduction(reduction)
    log_p = log_probabilities(logits, y)
    return reduce_samples(_normalised(-log_p, y), reduction)


def nfl(logits: Tensor, y: Tensor, *, gamma: float, reduction: str = "mean") -> Tensor:
    r"""Normalised focal loss: `nce` of focal terms (`ltnb.losses.focal`):

        ℒ = (1 − p_y)^γ log p_y / Σⱼ (1 − pⱼ)^γ log pⱼ

    It lies in [0, 1], and Σ_k ℒ(f, k) = 1. The gradient goes through the weights; the code of Ma et al. detaches them.

    Arguments and errors are those of the family, at the top of this file, and:
        gamma: γ ≥ 0; 0 is `nce`.
    """
    check_non_negative("gamma", gamma)
    check_reduction(reduction)
    return reduce_samples(_normalised(focal_terms(log_probabilities(logits, y), gamma), y), reduction)


def nsl(logits: Tensor, y: Tensor, *, reduction: str = "mean") -> Tensor:
    r"""The linear similarity of a feature z with its prototype, as a loss:

        ℒ = −f_y = −s w_y·z

    Our reading: PAL names a loss NSL in its Theorem 4.3, and our sources have no formula of it. This is the plainest
    loss of similarities that its theorem could be about: with anchored prototypes Σⱼ wⱼ = 0, and Σ_k ℒ(f, k) = 0.
    With other classifiers the sum depends on f. On normalised features and vectors it lies in [−s, s]. On anchors and
    features of any length nothing but weight decay bounds it, and with a linear classifier, whose vectors grow as well,
    not even that: six epochs on the digits take it to −10⁷.

    Arguments and errors are those of the family, at the top of this file.
    """
    check_reduction(reduction)
    return reduce_samples(-own_class(checked_scores(logits, y), y), reduction)


def _normalised(terms: Tensor, y: Tensor) -> Tensor:
    """The own class's share (N,) of the terms (N, K) ≥ 0 of all classes."""
    if terms.shape[1] < 2:
        raise ValueError(f"logits must have at least two classes to be normalised by, got {terms.shape[1]}")
    return own_class(terms, y) / terms.sum(dim=1)
