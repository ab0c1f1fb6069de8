"""The terms of BCE3S with squared errors in place of binary cross-entropy: sums over classes, like their counterparts.

These forms are ours. BCE3S takes the pairs of a vector with K others one at a time, and only the joint term with
squared errors is common (regression to the one-hot label); the other two keep to its pattern.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.anchors import reduce_anchors
from ltnb.losses.checks import check_reduction
from ltnb.losses.labels import check_labels, has_seen_class
from ltnb.losses.similarities import classifier_cosines, joint_logits, memory_cosines


def mse_joint(features: Tensor, y: Tensor, weight: Tensor, bias: Tensor, *, reduction: str = "mean") -> Tensor:
    r"""Regression of the logits to the label:

        ℒᵢ = Σⱼ (s_ij − y_ij)²,     s_ij = w̄ⱼ·xᵢ + bⱼ,  w̄ⱼ = wⱼ/‖wⱼ‖,  y_ij = [j = yᵢ] or the label's share of class j

    With a regular simplex of K vectors, biases 1/K and x = (K − 1)/K · w̄_y it is zero.

    Args:
        features: (N, d) x, float32, float64 or bfloat16, as they are.
        y: (N,) integer labels in [0, K), or (N, K) soft labels of any floating-point type.
        weight: (K, d) w, normalised here; so its gradient is orthogonal to it.
        bias: (K,) b.
        reduction: "mean" over the samples, "sum", or "none": (N,).

    Returns:
        The loss in float32, or float64 if features, weight or bias are.

    Raises:
        ValueError: wrong shapes or types, unknown reduction; on the CPU also a label outside [0, K), a soft label that
            is no distribution and a row of weight that is zero.
    """
    logits = joint_logits(features, weight, bias)
    check_labels(y, *logits.shape)
    check_reduction(reduction)
    losses = (logits - _targets(y, logits)).square().sum(dim=1)
    return reduce_anchors(losses, has_seen_class(y, None), reduction)


def mse_contrastive(
    z: Tensor, y: Tensor, memory: Tensor, *, seen: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    r"""Regression of the cosines with one remembered projection a class to the label:

        ℒᵢ = Σⱼ (cos(zᵢ, mⱼ) − y_ij)²,     y_ij = [j = yᵢ] or the label's share of class j

    It has no temperature: one would only move the 1 that the cosine is asked for out of reach. mⱼ is the memory's
    projection of class j; j runs over the classes that are `seen`, and a sample of another class is left out.

    With the memory on a regular simplex and z = m_y it is 1/(K − 1), the least for z in the span of the memory. The
    zero asked of the others is more than the simplex gives: in d ≥ K dimensions z leaves the span, and the least value
    is 1/K, at cos(z, m_y) = (K − 1)/K.

    Arguments, type of the result and errors are those of `ltnb.losses.bce_contrastive`, but for the temperature.
    """
    cosines = memory_cosines(z, memory, seen)
    check_labels(y, *cosines.shape)
    check_reduction(reduction)
    terms = (cosines - _targets(y, cosines)).square()
    if seen is not None:
        terms = torch.where(seen, terms, 0)
    return reduce_anchors(terms.sum(dim=1), has_seen_class(y, seen), reduction)


def mse_uniform(weight: Tensor) -> Tensor:
    r"""Squared distance of the classifier vectors' cosines from those of a regular simplex, as a mean over classes:

        ℒ = 1/K Σ_k Σ_{j ≠ k} (w̄_k·w̄ⱼ + 1/(K − 1))²,     w̄ⱼ = wⱼ/‖wⱼ‖

    It is zero at the regular simplex and nowhere else. (Asking for cosines of zero would be met by an orthogonal
    frame.)

    Argument, type of the result and errors are those of `ltnb.losses.bce_uniform`.
    """
    cosines, num_classes = classifier_cosines(weight), len(weight)
    # A single class has no pair, whatever its cosine would have been compared with.
    simplex_cosine = -1 / max(num_classes - 1, 1)
    # Each pair stands twice in the sum, as (k, j) and as (j, k).
    pairs = (cosines - simplex_cosine).square().tril(diagonal=-1)
    return 2 * pairs.sum() / num_classes


def _targets(y: Tensor, scores: Tensor) -> Tensor:
    """(N, K) labels in the scores' type, one-hot where they are indices."""
    return (y if y.is_floating_point() else F.one_hot(y.long(), scores.shape[1])).to(scores.dtype)
