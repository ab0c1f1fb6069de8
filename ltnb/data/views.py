"""Views with their labels: of one image, or of two whose labels become soft."""

from typing import Literal

import torch
from torch import Generator, Tensor

from ltnb.data.augmentation import VIEWS, augment
from ltnb.data.checks import check_uint8
from ltnb.data.mixing import cutmix, mixed_labels, mixup, outside, random_boxes

#: Policies that mix two images, to how and to the policy of the views that are mixed: "-flip" is of photographs.
MIXED_VIEWS: dict[str, tuple[Literal["mixup", "cutmix"], str]] = {
    "mixup": ("mixup", "strong"),
    "cutmix": ("cutmix", "strong"),
    "mixup-flip": ("mixup", "crop-flip"),
    "cutmix-flip": ("cutmix", "crop-flip"),
}


def draw(
    images: Tensor, labels: Tensor, policy: str, generator: Generator, *, num_classes: int
) -> tuple[Tensor, Tensor]:
    """One random view of each image and what it shows.

    A policy of ``ltnb.data.augmentation.VIEWS`` gives that view, and the labels as they are. One of `MIXED_VIEWS`
    gives, where it is a mixup or a cutmix,

        x̃ᵢ = λᵢ vᵢ + (1 − λᵢ) v′ᵢ,  or v′ᵢ inside a box and vᵢ outside it,     λᵢ ~ U(0, 1)
        ỹᵢ = λᵢ e_y(i) + (1 − λᵢ) e_y(j)

    where vᵢ is a "strong" view of image i, or with "mixup-flip" and "cutmix-flip" a "crop-flip" view, and v′ᵢ one of
    image j ~ U{1 … N} of the same batch, all drawn for every i apart; U(0, 1) is the papers' Beta(1, 1). In CutMix the
    box has the area 1 − λᵢ before it is rounded to pixels and clipped to the image, and the labels' λᵢ is the part of
    the image outside the box that is there. BCE3S's released code keeps the first λ; it draws j from the whole training
    set and one λ a batch.

    Args:
        images: (N, C, H, W) uint8.
        labels: (N,) integer class indices in [0, K).
        policy: a name of `VIEWS` or `MIXED_VIEWS`.
        generator: on the device of `images`; its state decides the result.
        num_classes: K.

    Returns:
        (N, C, H, W) float32 in [0, 1], and `labels` or, of a mixed view, (N, K) float32 whose rows sum to 1.

    Raises:
        ValueError: no such policy, images of another kind, labels of another number; on the CPU also labels of a
            mixed view outside [0, K).
    """
    if policy not in MIXED_VIEWS and policy not in VIEWS:
        raise ValueError(f"policy = {policy!r}: expected one of {', '.join((*VIEWS, *MIXED_VIEWS))}")
    check_uint8(images)
    if labels.shape != (len(images),):
        raise ValueError(f"labels have shape {tuple(labels.shape)}: expected one for each of {len(images)} images")
    if policy in VIEWS:
        return augment(images, policy, generator), labels
    _check_class_indices(labels, num_classes)

    partner = torch.randint(len(images), (len(images),), generator=generator, device=images.device)
    share = torch.rand(len(images), generator=generator, device=images.device)
    how, mixed_policy = MIXED_VIEWS[policy]
    view = augment(images, mixed_policy, generator)
    other = augment(images[partner], mixed_policy, generator)
    if how == "mixup":
        mixed = mixup(view, other, share)
    else:
        height, width = images.shape[-2:]
        boxes = random_boxes(share, height, width, generator)
        mixed, share = cutmix(view, other, boxes), outside(boxes, height, width)
    return mixed, mixed_labels(labels, labels[partner], share, num_classes)


def _check_class_indices(labels: Tensor, num_classes: int) -> None:
    # Reading values from an accelerator would make the host wait for it at every step.
    if labels.device.type != "cpu":
        return
    lowest, highest = labels.aminmax()
    if lowest < 0 or highest >= num_classes:
        wrong = int(lowest) if lowest < 0 else int(highest)
        raise ValueError(f"labels hold {wrong}: expected class indices in [0, {num_classes})")
