"""Random numbers for the images of a batch, also where several processes hold a share of it each.

Processes that draw for their own images only would need generators of their own, and another number of processes would
give other views. Here each draws for the whole batch and keeps the rows of its images: numbers cost next to nothing
against images.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor


@dataclass(frozen=True)
class ShareOfDraws:
    """What images first, first + 1, … of a batch draw when it has ``total``.

    Args:
        generator: of the whole batch, in the same state in every process.
        total: number of images of the whole batch, at least 1.
        first: place of the share's first image in it, 0 … total; ``total`` only of a share without images.

    Raises:
        ValueError: a place outside the batch.
    """

    generator: Generator
    total: int
    first: int

    def __post_init__(self) -> None:
        """Refuse an empty batch, and a place outside it."""
        if self.total < 1:
            raise ValueError(f"total = {self.total}: expected a batch of at least one image")
        if not 0 <= self.first <= self.total:
            raise ValueError(f"first = {self.first}: expected a place in a batch of {self.total} images")


Draws = Generator | ShareOfDraws


def joint_size(generator: Draws, images: int) -> int:
    """Number of images of the whole batch, of which ``images`` are drawn for.

    Raises:
        ValueError: no image at all, or more than the batch has.
    """
    if isinstance(generator, Generator):
        if images < 1:
            raise ValueError(f"{images} images: expected N ≥ 1, but for a share of a batch")
        return images
    if generator.first + images > generator.total:
        raise ValueError(
            f"{images} images from place {generator.first}: expected them to lie in a batch of {generator.total}"
        )
    return generator.total


def rand(*size: int, generator: Draws, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Draw from U(0, 1): ``torch.rand``, the first axis of ``size`` that of the images."""
    total, own, rows = _joint(size, generator)
    return torch.rand(total, generator=own, device=device, dtype=dtype)[rows]


def randn(*size: int, generator: Draws, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Draw from N(0, 1): ``torch.randn``, the first axis of ``size`` that of the images."""
    total, own, rows = _joint(size, generator)
    return torch.randn(total, generator=own, device=device, dtype=dtype)[rows]


def randint(high: int, size: Sequence[int], *, generator: Draws, device: torch.device) -> Tensor:
    """Draw from U{0 … high − 1}: ``torch.randint``, int64, the first axis of ``size`` that of the images."""
    total, own, rows = _joint(size, generator)
    return torch.randint(high, total, generator=own, device=device)[rows]


def _joint(size: Sequence[int], generator: Draws) -> tuple[tuple[int, ...], Generator, slice]:
    images, *others = size
    total = (joint_size(generator, images), *others)
    if isinstance(generator, Generator):
        return total, generator, slice(None)
    return total, generator.generator, slice(generator.first, generator.first + images)
