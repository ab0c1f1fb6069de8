"""Mirror images, each image by a draw of its own."""

import torch
from torch import Tensor

from ltnb.data.checks import check_batch, check_share
from ltnb.data.draws import Draws, rand


def random_flip(images: Tensor, generator: Draws, *, probability: float = 0.5) -> Tensor:
    """Exchange left and right of an image with `probability`.

    Args:
        images: (N, C, H, W), any dtype.
        generator: on the device of `images`.
        probability: in [0, 1].

    Returns:
        (N, C, H, W), in the dtype of `images`.

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    check_share("probability", probability, "a probability")
    chosen = rand(len(images), generator=generator, device=images.device) < probability
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)
