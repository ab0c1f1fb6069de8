"""The three terms of BCE3S (Fan, Li, Wen & Peng, AAAI 2026): joint, contrastive and uniform learning.

Each compares one vector with K others and judges every pair by itself, with a sigmoid, where softmax would let all K
compete. softplus(s) = log(1 + exp(s)). The paper keeps classifier vectors at norm 1 and compares projections by their
cosine; both are done here: rows of classifiers, projections and memories may have any length but 0. The paper adds up

    ℒ = mean of bce_joint + λ_ss · mean of bce_contrastive + λ_cc · bce_uniform
"""

from numbers import Real

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_choice, check_class_indices, check_matrix, check_temperature


def bce_joint(
    features: Tensor,
    y: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    negative_rate: float = 1.0,
    generator: torch.Generator | None = None,
    reduction: str = "mean",
) -> Tensor:
    r"""Joint learning of features and classifier, L_bce^(sc), from one sigmoid a class:

        ℒᵢ = softplus(−s_iy) + Σ_{j ≠ y, p_ij < r} softplus(s_ij),     s_ij = w̄ⱼ·xᵢ + bⱼ,  w̄ⱼ = wⱼ/‖wⱼ‖,  p_ij ~ U(0, 1)

    r is the rate at which negatives are kept, drawn for every sample and class apart; own classes always stay. What
    is left of the sum is not divided by r: it is r times the full one in expectation. Our source for the formula is a
    note on the paper, which leaves open whether the paper divides, and "<" or "≤" (the same with probability 1). The
    released code draws one set of classes a batch instead, and keeps every class that the batch holds.

    With a regular simplex of K vectors, biases 0 and x = R·w̄_y it is softplus(−R) + (K − 1) softplus(−R/(K − 1)).

    Args:
        features: (N, d) x, float32, float64 or bfloat16, as they are: the paper does not normalise them.
        y: (N,) integer labels in [0, K).
        weight: (K, d) w, normalised here; so its gradient is orthogonal to it.
        bias: (K,) b.
        negative_rate: r in (0, 1].
        generator: source of p, on the features' device; nothing is drawn for r = 1.
        reduction: "mean" over the samples, "sum", or "none": (N,).

    Returns:
        The loss in float32, or float64 if one of the inputs is.

    Raises:
        ValueError: wrong shapes or types, r outside (0, 1], unknown reduction; on the CPU also a label outside [0, K)
            and a row of weight that is zero.
    """
    check_matrix("features", features)
    check_matrix("weight", weight)
    (num_samples, dim), num_classes = features.shape, len(weight)
    if weight.shape[1] != dim:
        raise ValueError(f"weight must have rows of length {dim} like features, got shape {tuple(weight.shape)}")
    if bias.shape != (num_classes,) or not bias.is_floating_point():
        raise ValueError(
            f"bias must hold one floating-point number for each of {num_classes} classes, "
            f"got shape {tuple(bias.shape)} of {bias.dtype}"
        )
    check_class_indices(y, num_samples, num_classes)
    if not (isinstance(negative_rate, Real) and 0 < negative_rate <= 1):
        raise ValueError(f"negative_rate must be a number in (0, 1], got {negative_rate!r}")
    check_choice("reduction", reduction, ("mean", "sum", "none"))

    # Autocast would take the product below back to half precision.
    with torch.autocast(features.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), bias.dtype)
        dtype = torch.promote_types(dtype, torch.float32)
        logits = torch.addmm(bias.to(dtype), features.to(dtype), _unit_rows("weight", weight, dtype).T)
        own = _own_class(y, num_classes)
        terms = _binary_terms(logits, own)
        if negative_rate < 1:
            p = torch.rand(terms.shape, generator=generator, device=terms.device)
            terms = torch.where(own | (p < negative_rate), terms, 0)
        losses = terms.sum(dim=1)
        return reduce_anchors(losses, torch.ones_like(y, dtype=torch.bool), reduction)


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

    With the memory on a regular simplex it is least at z = m_y, softplus(−1/τ) + (K − 1) softplus(−1/((K − 1)τ)).

    Args:
        z: (N, d) projections, float32, float64 or bfloat16, normalised here.
        y: (N,) integer labels in [0, K).
        memory: (K, d) m, normalised here; rows of unseen classes may hold anything.
        temperature: τ > 0.
        seen: (K,) bool, the classes whose row of the memory is filled; None: all.
        reduction: "mean" over the samples whose class is seen, their "sum", or "none": (N,), 0 for the others. If no
            class of the batch is seen the loss is zero and so is its gradient.

    Returns:
        The loss in float32, or float64 if z or memory are.

    Raises:
        ValueError: wrong shapes or types, τ ≤ 0, unknown reduction; on the CPU also a label outside [0, K), and a row
            of z or of a seen class that is zero.
    """
    check_matrix("z", z)
    check_matrix("memory", memory)
    (num_samples, dim), num_classes = z.shape, len(memory)
    if memory.shape[1] != dim:
        raise ValueError(f"memory must have rows of length {dim} like z, got shape {tuple(memory.shape)}")
    check_class_indices(y, num_samples, num_classes)
    check_temperature(temperature)
    if seen is not None and (seen.shape != (num_classes,) or seen.dtype != torch.bool):
        raise ValueError(
            f"seen must hold one bool for each of {num_classes} classes, got shape {tuple(seen.shape)} of {seen.dtype}"
        )
    check_choice("reduction", reduction, ("mean", "sum", "none"))

    with torch.autocast(z.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(z.dtype, memory.dtype), torch.float32)
        if seen is not None:
            # Before anything is computed from them: unfilled rows may be NaN, which no later mask would stop.
            memory = memory.masked_fill(~seen[:, None], 1)
        cosines = _unit_rows("z", z, dtype) @ _unit_rows("memory", memory, dtype).T
        terms = _binary_terms(cosines / temperature, _own_class(y, num_classes))
        if seen is None:
            return reduce_anchors(terms.sum(dim=1), torch.ones_like(y, dtype=torch.bool), reduction)
        losses = torch.where(seen, terms, 0).sum(dim=1)
        return reduce_anchors(losses, seen[y.long()], reduction)


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
    check_matrix("weight", weight)
    with torch.autocast(weight.device.type, enabled=False):
        rows = _unit_rows("weight", weight, torch.promote_types(weight.dtype, torch.float32))
        # Each pair stands twice in the sum, as (k, j) and as (j, k).
        pairs = _softplus(rows @ rows.T).tril(diagonal=-1)
        return 2 * pairs.sum() / len(weight)


def _softplus(s: Tensor) -> Tensor:
    """log(1 + exp(s)), without overflow; torch's softplus is the identity above 20, which costs digits in float64."""
    return -F.logsigmoid(-s)


def _own_class(y: Tensor, num_classes: int) -> Tensor:
    """(N, K) bool: whether class j is the one of sample i."""
    return y[:, None] == torch.arange(num_classes, device=y.device)


def _binary_terms(logits: Tensor, own: Tensor) -> Tensor:
    """softplus(−s) of the own class, softplus(s) of the others."""
    return _softplus(torch.where(own, -logits, logits))


def _unit_rows(name: str, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Normalise rows; a zero row has no direction. NaN passes: it belongs in the loss, where it is seen."""
    rows = rows.to(dtype)
    if rows.device.type == "cpu":
        zero = (rows.detach() == 0).all(dim=1)
        if zero.any():
            raise ValueError(f"{name} must have rows with a direction, got zero at row {int(zero.nonzero()[0])}")
    return F.normalize(rows, dim=1)
