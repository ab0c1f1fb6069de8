"""Views with their labels: of one image, or of two whose labels become soft."""

from typing import Literal

from torch import Tensor

from ltnb.data.augmentation import VIEWS, augment, view_size
from ltnb.data.checks import check_uint8
from ltnb.data.draws import Draws, joint_size, rand, randint
from ltnb.data.mixing import cutmix, mixed_labels, mixup, outside, random_boxes

#: Policies that mix two images, to how and to the policy of the views that are mixed: "-flip" and "-zoom" are of
#: photographs.
MIXED_VIEWS: dict[str, tuple[Literal["mixup", "cutmix"], str]] = {
    "mixup": ("mixup", "strong"),
    "cutmix": ("cutmix", "strong"),
    "mixup-flip": ("mixup", "crop-flip"),
    "cutmix-flip": ("cutmix", "crop-flip"),
    "mixup-zoom": ("mixup", "zoom-jitter"),
    "cutmix-zoom": ("cutmix", "zoom-jitter"),
}


def draw(
    images: Tensor,
    labels: Tensor,
    policy: str,
    generator: Draws,
    *,
    num_classes: int,
    size: int | None = None,
    partners: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """One random view of each image and what it shows.

    A policy of ``ltnb.data.augmentation.VIEWS`` gives that view, and the labels as they are. One of `MIXED_VIEWS`
    gives, where it is a mixup or a cutmix,

        x̃ᵢ = λᵢ vᵢ + (1 − λᵢ) v′ᵢ,  or v′ᵢ inside a box and vᵢ outside it,     λᵢ ~ U(0, 1)
        ỹᵢ = λᵢ e_y(i) + (1 − λᵢ) e_y(j)

    where vᵢ is a view of image i, "strong", "crop-flip" or "zoom-jitter" as `MIXED_VIEWS` says, and v′ᵢ one of image
    j ~ U{1 … N} of the same batch, all drawn for every i apart; U(0, 1) is the papers' Beta(1, 1). In CutMix the
    box has the area 1 − λᵢ before it is rounded to pixels and clipped to the image, and the labels' λᵢ is the part of
    the image outside the box that is there. BCE3S's released code keeps the first λ; it draws j from the whole training
    set and one λ a batch.

    Args:
        images: (N, C, H, W) uint8.
        labels: (N,) integer class indices in [0, K).
        policy: a name of `VIEWS` or `MIXED_VIEWS`.
        generator: on the device of `images`; its state decides the result.
        num_classes: K.
        size: height and width of the views; see `augment`. None: those of the images.
        partners: images and labels of the whole batch, of which `images` are a share; None: `images` are the batch.

    Returns:
        (N, C, size, size) float32 in [0, 1], and `labels` or, of a mixed view, (N, K) float32 whose rows sum to 1.

    Raises:
        ValueError: no such policy, images of another kind, labels or partners of another number; on the CPU also
            labels of a mixed view outside [0, K).
    """
    if policy not in MIXED_VIEWS and policy not in VIEWS:
        raise ValueError(f"policy = {policy!r}: expected one of {', '.join((*VIEWS, *MIXED_VIEWS))}")
    check_uint8(images)
    if labels.shape != (len(images),):
        raise ValueError(f"labels have shape {tuple(labels.shape)}: expected one for each of {len(images)} images")
    if policy in VIEWS:
        return augment(images, policy, generator, size), labels
    others, their_labels = partners or (images, labels)
    total = joint_size(generator, len(images))
    if len(others) != total or len(their_labels) != total:
        raise ValueError(f"{len(others)} partners with {len(their_labels)} labels: expected the whole batch, {total}")
    _check_class_indices(their_labels, num_classes)

    partner = randint(total, (len(images),), generator=generator, device=images.device)
    share = rand(len(images), generator=generator, device=images.device)
    how, mixed_policy = MIXED_VIEWS[policy]
    view = augment(images, mixed_policy, generator, size)
    other = augment(others[partner], mixed_policy, generator, size)
    if how == "mixup":
        mixed = mixup(view, other, share)
    else:
        height, width = view_size(images, size)
        boxes = random_boxes(share, height, width, generator)
        mixed, share = cutmix(view, other, boxes), outside(boxes, height, width)
    return mixed, mixed_labels(labels, their_labels[partner], share, num_classes)


def _check_class_indices(labels: Tensor, num_classes: int) -> None:
    # Reading values from an accelerator would make the host wait for it at every step.
    if labels.device.type != "cpu":
        return
    lowest, highest = labels.aminmax()
    if lowest < 0 or highest >= num_classes:
        wrong = int(lowest) if lowest < 0 else int(highest)
        raise ValueError(f"labels hold {wrong}: expected class indices in [0, {num_classes})")
