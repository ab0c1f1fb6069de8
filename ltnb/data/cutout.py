"""Cutout (DeVries & Taylor, 2017): a black box somewhere on each image, each image with a place of its own."""

import torch
from torch import Tensor

from ltnb.data.checks import check_batch, check_share
from ltnb.data.draws import Draws, randint
from ltnb.data.mixing import cutmix


def cut_out(images: Tensor, middle: Tensor, *, side: float) -> Tensor:
    """Blacken columns x − w … x + w − 1 and rows y − h … y + h − 1, (w, h) = ⌊½ side · (W, H)⌋, as far as they exist.

    Args:
        images: (N, C, H, W), any dtype.
        middle: (x, y), (N, 2) int64 in {0 … W − 1} × {0 … H − 1}.
        side: of the box, as a part of the image's, in [0, 1].

    Returns:
        (N, C, H, W), in the dtype of `images`.
    """
    height, width = images.shape[-2:]
    x, y = middle.unbind(1)
    across, down = int(side * width / 2), int(side * height / 2)
    boxes = torch.stack([x - across, y - down, x + across, y + down], dim=1)
    return cutmix(images, images.new_zeros(()), boxes)


def random_cutout(images: Tensor, generator: Draws, *, side: float) -> Tensor:
    """One box on each image: `cut_out` with its middle uniform over the pixels.

    The middle is always on the image, the whole box is not: near the border less is lost, as in the paper's own code.
    Black is the 0 before normalisation, as in the code of the long-tailed papers; after it, 0 would be the mean colour.

    Args:
        images: (N, C, H, W), any dtype.
        generator: on the device of `images`.
        side: of the box, as a part of the image's, in [0, 1]; ½ is CIFAR's 16 of 32 pixels.

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    check_share("side", side, "a part of the image's side")
    middle = [
        randint(length, (len(images),), generator=generator, device=images.device)
        for length in (images.shape[-1], images.shape[-2])
    ]
    return cut_out(images, torch.stack(middle, dim=1), side=side)
