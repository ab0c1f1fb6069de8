"""Random views of images: batched, on the device of the images, with parameters of its own for every sample.

torchvision's transforms draw one set of parameters for a whole batch. A contrastive loss must not see that:
all positives would share their rotation and their shift. Here every image has parameters of its own.

Views work on images in [0, 1], before normalisation, where the 0 that fills the border is the background
of the digits.
No view flips: a mirrored 2 or 5 is no digit, and a 6 turned upside down is a 9.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from ltnb.data.checks import check_uint8
from ltnb.data.cropping import random_crop, random_resized_crop
from ltnb.data.jitter import colour_jitter, random_grey
from ltnb.data.rand_augment import rand_augment
from ltnb.data.warping import random_affine


def _none(images: Tensor, _generator: Generator) -> Tensor:
    return images


def _weak(images: Tensor, generator: Generator) -> Tensor:
    # An eighth of 16 pixels, the share that 4 pixels have of CIFAR's 32 in the usual recipe.
    return random_crop(images, generator, padding=2)


def _strong(images: Tensor, generator: Generator) -> Tensor:
    # Small enough that a digit stays itself. The shift, at most one of 16 pixels, fills in the fractions of
    # a pixel that the crop leaves out.
    moved = random_affine(images, generator, degrees=15, translate=1 / 16, scale=(0.8, 1.2))
    return _weak(moved, generator)


def _sim(images: Tensor, generator: Generator) -> Tensor:
    # SimCLR's recipe as BCL uses it, without the flip. A digit fills its frame: where a photograph is still
    # recognised by the 0.2 of its area that are usual, half a 9 is a 0.
    window = random_resized_crop(images, generator, area=(0.6, 1), distortion=4 / 3)
    jittered = colour_jitter(window, generator, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, probability=0.8)
    return random_grey(jittered, generator, probability=0.2)


def _rand(images: Tensor, generator: Generator) -> Tensor:
    return rand_augment(_sim(images, generator), generator)


#: View policy, by the name a method's `views` uses, to the function of images in [0, 1] and a generator.
VIEWS: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "none": _none,
    "weak": _weak,
    "strong": _strong,
    "sim": _sim,
    "rand": _rand,
}


def augment(images: Tensor, policy: str, generator: Generator) -> Tensor:
    """One random view of each image.

    Args:
        images: (N, C, H, W) uint8; for "sim" and "rand", C is 1 or 3.
        policy: a name of `VIEWS`.
        generator: on the device of `images`; its state decides the result.

    Returns:
        (N, C, H, W) float32 in [0, 1], on the device of `images`.

    Raises:
        ValueError: no such policy, or images of another kind.
    """
    if policy not in VIEWS:
        raise ValueError(f"policy = {policy!r}: expected one of {', '.join(VIEWS)}")
    check_uint8(images)
    return VIEWS[policy](images.to(torch.float32) / 255, generator)


def normalise(images: Tensor, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> Tensor:
    """(x_c − μ_c) / σ_c for each channel c.

    Args:
        images: (N, C, H, W) floating point in [0, 1].
        mean: μ, (C,).
        std: σ, (C,).
    """
    shift = torch.as_tensor(mean, dtype=images.dtype, device=images.device).view(-1, 1, 1)
    scale = torch.as_tensor(std, dtype=images.dtype, device=images.device).view(-1, 1, 1)
    return (images - shift) / scale
