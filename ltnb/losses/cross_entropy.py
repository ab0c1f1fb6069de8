"""The terms of BCE3S with softmax in place of sigmoids: what each gains from binary cross-entropy is measured so.

The joint term is cross-entropy of a classifier with normalised rows: `torch.nn.functional.cross_entropy`. The paper
states the contrastive term in words; for the uniform one its supplement was not available to us, so the formula below
is the one that its binary counterpart suggests.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_positive, check_reduction
from ltnb.losses.labels import check_labels, has_seen_class
from ltnb.losses.similarities import classifier_cosines, memory_cosines


def ce_contrastive(
    z: Tensor,
    y: Tensor,
    memory: Tensor,
    *,
    temperature: float,
    seen: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""Contrastive learning against one remembered projection a class, L_ce^(ss) (BCE3S Eq. 2):

        ℒᵢ = −log [ exp(cos(zᵢ, m_y)/τ) / Σⱼ exp(cos(zᵢ, mⱼ)/τ) ]

    mⱼ is the memory's projection of class j; j runs over the classes that are `seen`, and a sample of another class,
    which lacks a positive, is left out. With soft labels it is Σⱼ y_ij times that of class j; unseen classes drop out,
    and the others keep their shares as they are.

    With the memory on a regular simplex it is least at z = m_y: log(1 + (K − 1) exp(−K/((K − 1)τ))).

    Arguments, type of the result and errors are those of `ltnb.losses.bce_contrastive`.
    """
    logits = memory_cosines(z, memory, seen)
    check_labels(y, *logits.shape)
    check_positive("temperature", temperature)
    check_reduction(reduction)
    logits = logits / temperature
    target = y.to(logits.dtype) if y.is_floating_point() else y.long()
    if seen is not None:
        # Not −inf: it leaves a sample of an unseen class finite, so that a zero gradient through it stays zero.
        logits = logits.masked_fill(~seen, torch.finfo(logits.dtype).min)
        target = target.masked_fill(~seen, 0) if y.is_floating_point() else target
    losses = F.cross_entropy(logits, target, reduction="none")
    return reduce_anchors(losses, has_seen_class(y, seen), reduction)


def ce_uniform(weight: Tensor) -> Tensor:
    r"""Uniform separability of the classifier vectors, L_ce^(cc), as a mean over classes:

        ℒ = −1/K Σ_k log [ exp(w̄_k·w̄_k) / Σⱼ exp(w̄_k·w̄ⱼ) ],     w̄ⱼ = wⱼ/‖wⱼ‖

    Every vector is a sample of its own class, classified by all of them. For d ≥ K − 1 it is least at the regular
    simplex: log(1 + (K − 1) exp(−K/(K − 1))), since w̄_k·w̄_k = 1 and log(1 + Σ exp) is convex and increasing.

    Argument, type of the result and errors are those of `ltnb.losses.bce_uniform`.
    """
    cosines = classifier_cosines(weight)
    return F.cross_entropy(cosines, torch.arange(len(weight), device=weight.device))
