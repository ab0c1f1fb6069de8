"""The three terms of BCE3S (Fan, Li, Wen & Peng, AAAI 2026): joint, contrastive and uniform learning.

Each compares one vector with K others and judges every pair by itself, with a sigmoid, where softmax would let all K
compete. softplus(s) = log(1 + exp(s)). The paper keeps classifier vectors at norm 1 and compares projections by their
cosine; both are done here: rows of classifiers, projections and memories may have any length but 0. The paper adds up

    ℒ = mean of bce_joint + λ_ss · mean of bce_contrastive + λ_cc · bce_uniform

Each term has counterparts to stand in its place, with softmax (`ltnb.losses.cross_entropy`) and with squared errors
(`ltnb.losses.squared_error`).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_choice, check_positive, check_positive_share, check_reduction
from ltnb.losses.labels import check_labels, has_seen_class, positive_classes
from ltnb.losses.negatives import kept_apart, kept_by_batch
from ltnb.losses.similarities import classifier_cosines, joint_logits, memory_cosines


def bce_joint(
    features: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    negative_rate: float = 1.0,
    negatives: str = "independent",
    generator: torch.Generator | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""Joint learning of features and classifier, L_bce^(sc), from one sigmoid a class:

        ℒᵢ = softplus(−s_iy) + Σ_{j ≠ y, p_ij < r} softplus(s_ij),     s_ij = w̄ⱼ·xᵢ + bⱼ,  w̄ⱼ = wⱼ/‖wⱼ‖,  p_ij ~ U(0, 1)

    r is the rate at which negatives are kept; own classes always stay. What is left of the sum is not divided by r.
    Our source for the formula is a note on the paper, which leaves open whether the paper divides, and "<" or "≤" (the
    same with probability 1). `negatives` says how they are drawn:

        "independent"  p_ij for every sample and class apart; the sum is r times the full one in expectation   the paper
        "batch"        one set for all samples: every class the batch holds, filled up to ⌊K·r⌋ at random      the code

    The released code stops at ⌊K·r⌋ and so loses true classes of a batch that holds more; here none is ever lost.

    Soft labels (mixed images) have rows y_ij ≥ 0 that sum to 1. As in the released code, positive terms weigh as much
    as the label has of the class, and only classes without a share are negatives:

        ℒᵢ = Σ_{j: y_ij > 0} y_ij softplus(−s_ij) + Σ_{j: y_ij = 0, kept} softplus(s_ij)

    With a regular simplex of K vectors, biases 0 and x = R·w̄_y it is softplus(−R) + (K − 1) softplus(−R/(K − 1)).

    Args:
        features: (N, d) x, float32, float64 or bfloat16, as they are: the paper does not normalise them.
        y: (N,) integer labels in [0, K), or (N, K) soft labels of any floating-point type.
        weight: (K, d) w, normalised here; so its gradient is orthogonal to it.
        bias: (K,) b.
        negative_rate: r in (0, 1].
        negatives: "independent" or "batch"; for r = 1 they are the same.
        generator: source of p, on the features' device; nothing is drawn for r = 1.
        reduction: "mean" over the samples, "sum", or "none": (N,).

    Returns:
        The loss in float32, or float64 if features, weight or bias are.

    Raises:
        ValueError: wrong shapes or types, r outside (0, 1], an unknown choice; on the CPU also a label outside [0, K),
            a soft label that is no distribution and a row of weight that is zero.
    """
    logits = joint_logits(features, weight, bias)
    check_labels(y, *logits.shape)
    check_positive_share("negative_rate", negative_rate)
    check_choice("negatives", negatives, ("independent", "batch"))
    check_reduction(reduction)

    positive = positive_classes(y, logits.shape[1])
    terms = _binary_terms(logits, y, positive)
    if negative_rate < 1:
        keep = kept_apart if negatives == "independent" else kept_by_batch
        terms = torch.where(keep(positive, negative_rate, generator), terms, 0)
    return reduce_anchors(terms.sum(dim=1), has_seen_class(y, None), reduction)


def bce_contrastive(
    z: Tensor,
    y: Tensor,
    memory: Tensor,
    *,
    temperature: float,
    seen: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""Contrastive learning against one remembered projection a class, L_bce^(ss):

        ℒᵢ = softplus(−cos(zᵢ, m_y)/τ) + Σ_{j ≠ y} softplus(cos(zᵢ, mⱼ)/τ)

    mⱼ is the memory's projection of class j (z_*^(j) in the paper), in the released code that of the class's last
    sample, without gradient; here a gradient reaches it if it asks for one. A class that no sample has filled yet is
    not `seen`: it is no negative, and its samples, which lack a positive, are left out, as anchors are elsewhere. The
    paper's text as we have it says nothing of them; the released code fills the memory for one epoch first.
    Soft labels count as in `bce_joint`; of their classes the unseen drop out, and the others keep their shares as they
    are.

    With the memory on a regular simplex it is least at z = m_y, softplus(−1/τ) + (K − 1) softplus(−1/((K − 1)τ)).

    Args:
        z: (N, d) projections, float32, float64 or bfloat16, normalised here.
        y: (N,) integer labels in [0, K), or (N, K) soft labels of any floating-point type.
        memory: (K, d) m, normalised here; rows of unseen classes may hold anything.
        temperature: τ > 0.
        seen: (K,) bool, the classes whose row of the memory is filled; None: all.
        reduction: "mean" over the samples with a class that is seen, their "sum", or "none": (N,), 0 for the others.
            If no class of the batch is seen the loss is zero and so is its gradient.

    Returns:
        The loss in float32, or float64 if z or memory are.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0, unknown reduction; on the CPU also a label outside [0, K), a soft
            label that is no distribution, and a row of z or of a seen class that is zero.
    """
    cosines = memory_cosines(z, memory, seen)
    check_labels(y, *cosines.shape)
    check_positive("temperature", temperature)
    check_reduction(reduction)
    terms = _binary_terms(cosines / temperature, y, positive_classes(y, len(memory)))
    if seen is not None:
        terms = torch.where(seen, terms, 0)
    return reduce_anchors(terms.sum(dim=1), has_seen_class(y, seen), reduction)


def bce_uniform(weight: Tensor) -> Tensor:
    r"""Uniform separability of the classifier vectors, L_bce^(cc), as a mean over classes:

        ℒ = 1/K Σ_k Σ_{j ≠ k} softplus(w̄_k·w̄ⱼ),     w̄ⱼ = wⱼ/‖wⱼ‖

    The paper's formula has the term softplus(−‖w̄_k‖²) = log(1 + e⁻¹) for each class as well, and its experiments leave
    this constant out, as is done here. For d ≥ K − 1 the least value is (K − 1) softplus(−1/(K − 1)), at the regular
    simplex and nowhere else (`ltnb.theory.binary_cross_entropy`).

    Args:
        weight: (K, d) w, float32, float64 or bfloat16, normalised here; so the gradient is orthogonal to it.

    Returns:
        The loss in float32, or float64 for float64; zero for a single class.

    Raises:
        ValueError: wrong shape or type; on the CPU also a row that is zero.
    """
    # Each pair stands twice in the sum, as (k, j) and as (j, k).
    pairs = _softplus(classifier_cosines(weight)).tril(diagonal=-1)
    return 2 * pairs.sum() / len(weight)


def _softplus(s: Tensor) -> Tensor:
    """log(1 + exp(s)), without overflow; torch's softplus is the identity above 20, which costs digits in float64."""
    return -F.logsigmoid(-s)


def _binary_terms(logits: Tensor, y: Tensor, positive: Tensor) -> Tensor:
    """softplus(−s) of the positive classes, times their shares in soft labels, and softplus(s) of the others."""
    terms = _softplus(torch.where(positive, -logits, logits))
    return torch.where(positive, y.to(logits.dtype), 1) * terms if y.is_floating_point() else terms
