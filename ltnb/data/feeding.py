"""From the images of a data set to the batches of an epoch, on the device that trains."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor


class Feed(Protocol):
    """One part of a data set: its images, a batch at a time."""

    def batches(self, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield (n, C, H, W) uint8 on the device for each of ``chosen``, (n,) rows of the part, on the CPU."""
        ...


class HeldFeed:
    """Images that lie on the device, all of them."""

    def __init__(self, images: Tensor, device: torch.device) -> None:
        """Bring ``images`` (N, C, H, W) uint8 to ``device``."""
        self.images = images.to(device)

    def batches(self, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each batch."""
        for rows in chosen:
            yield self.images[rows.to(self.images.device)]


def feed(images: Tensor, device: torch.device) -> Feed:
    """Return what gives the batches of ``images``."""
    return HeldFeed(images, device)
