"""Mirror images, each image by a draw of its own."""

import torch
from torch import Generator, Tensor

from ltnb.data.checks import check_batch, check_share


def random_flip(images: Tensor, generator: Generator, *, probability: float = 0.5) -> Tensor:
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
    chosen = torch.rand(len(images), generator=generator, device=images.device) < probability
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)
