"""Anchors of a contrastive loss: which of them count, and how their losses are put together."""

import torch
from torch import Tensor

from ltnb.losses.labels import class_numbers, class_sizes


def valid_anchors(y: Tensor, *, prototypes: bool = False, key_labels: Tensor | None = None) -> Tensor:
    """Mark the anchors that have a positive: another sample of their class, a further key, or their class prototype.

    Contrastive losses leave the other anchors out. `valid_anchors(y).sum()` tells a loss of zero that has nothing
    to learn from apart from one that is solved; as a tensor it costs no wait for the device.

    Args:
        y: (N,) integer labels, both views stacked.
        prototypes: whether the loss is given class prototypes; then every anchor has a positive.
        key_labels: (M,) integer labels of the further keys that the loss is given, or None.

    Returns:
        (N,) bool.
    """
    if prototypes:
        return torch.ones_like(y, dtype=torch.bool)
    classes = class_numbers(y if key_labels is None else torch.cat([y, key_labels]))
    return class_sizes(classes, len(classes))[classes[: len(y)]] > 1


def weight_by_class(losses: Tensor, valid: Tensor, class_sizes: Tensor) -> Tensor:
    """Let every class count the same: ℓᵢ · (V / K′) / |B_yᵢ|, V valid anchors of K′ classes.

    The factor V / K′ makes it the identity when all classes are of one size.

    Args:
        losses: (N,) loss of each anchor.
        valid: (N,) bool.
        class_sizes: (N,) number of anchors in each anchor's class; they are valid together or not at all.
    """
    shares = valid / class_sizes
    num_classes = shares.sum().clamp(min=1)
    return losses * shares * (valid.sum() / num_classes)


def reduce_anchors(losses: Tensor, valid: Tensor, reduction: str) -> Tensor:
    """Sum the valid anchors' losses, average them over the valid anchors, or return all with zero for invalid ones.

    `where` and not indexing: the shape stays known on the host, and without any valid anchor the result is a zero
    through which a (zero) gradient still flows.
    """
    losses = torch.where(valid, losses, 0)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / valid.sum().clamp(min=1)
