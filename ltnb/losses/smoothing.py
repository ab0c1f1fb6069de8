"""Label-aware smoothing (MiSLAS, Zhong et al., CVPR 2021): the more images a class has, the less its labels claim."""

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from ltnb.losses.checks import check_class_counts, check_class_indices
from ltnb.losses.labels import positive_classes


def smoothing_factors(class_counts: Tensor | Sequence[int], *, head: float, tail: float) -> Tensor:
    r"""Share of a label that is given away, by the frequency of its class (MiSLAS, Section 3.2, the concave form):

        ε_k = ε_tail + (ε_head − ε_tail) · sin( (n_k − n_min)/(n_max − n_min) · π/2 )

    Networks trained on a long tail are over-confident most of all in the head, which gets most smoothing. Classes of
    one size all get ε_tail: none is then more frequent than another. (The formula, and the released code, divide by
    zero there.) The released code has (ε_head, ε_tail) = (0.4, 0.1) for CIFAR-100-LT at 100 : 1, (0.3, 0) for
    ImageNet-LT.

    Args:
        class_counts: (K,) training images n_k of each class, all positive.
        head: ε_head of the most frequent class, in [ε_tail, 1).
        tail: ε_tail of the rarest class, in [0, 1).

    Returns:
        (K,) float64 in [ε_tail, ε_head], on the device of the counts.

    Raises:
        ValueError: wrong shape, ε outside [0, 1), ε_head < ε_tail; on the CPU also a count that is not positive.
    """
    for name, value in (("tail", tail), ("head", head)):
        if not (isinstance(value, Real) and 0 <= value < 1):
            raise ValueError(f"{name} must be a number in [0, 1), got {value!r}")
    if head < tail:
        raise ValueError(f"head must be at least tail={tail!r}, got {head!r}")
    counts = check_class_counts(class_counts)
    fewest, spread = counts.min(), counts.max() - counts.min()
    position = torch.where(spread > 0, (counts - fewest) / spread, 0)
    return tail + (head - tail) * torch.sin(math.pi / 2 * position)


def smoothed_labels(y: Tensor, factors: Tensor, num_classes: int) -> Tensor:
    r"""Soft labels in which a sample's class gives its own share ε_y away to the others, in equal parts:

        q_ik = 1 − ε_yᵢ if k = yᵢ, else ε_yᵢ/(K − 1)

    Cross-entropy to them is MiSLAS's loss: −(1 − ε_y) log p_y − ε_y/(K − 1) Σ_{k ≠ y} log p_k, least at p = q, where
    the own logit leads by log((1 − ε_y)(K − 1)/ε_y).
    The released code spreads ε_y over all K classes, the own one among them, and thus gives away less than the
    paper's equation and this: its ε is ours of ε(K − 1)/K.

    Args:
        y: (N,) integer labels in [0, K). Mixed labels are refused: MiSLAS smooths in its second stage, without MixUp.
        factors: (K,) ε of each class, floating-point, in [0, 1], on the device of y (`smoothing_factors`).
        num_classes: K, at least 2.

    Returns:
        (N, K) in the type of the factors; rows sum to 1.

    Raises:
        ValueError: wrong shapes or types, K < 2; on the CPU also a label outside [0, K) or a factor outside [0, 1]. On
            an accelerator the factors are not looked at and a wrong label fails in the kernel.
    """
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}")
    check_class_indices("y", y, len(y), num_classes)
    if factors.shape != (num_classes,) or not factors.is_floating_point():
        raise ValueError(
            f"factors must hold one floating-point number for each of {num_classes} classes, "
            f"got shape {tuple(factors.shape)} of {factors.dtype}"
        )
    # Asked this way round, NaN is wrong as well.
    if factors.device.type == "cpu" and not ((factors >= 0) & (factors <= 1)).all():
        raise ValueError(f"factors must lie in [0, 1], got {factors.tolist()}")
    y = y.long()
    own = factors[y][:, None]
    return torch.where(positive_classes(y, num_classes), 1 - own, own / (num_classes - 1))
