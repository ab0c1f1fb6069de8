"""Random views of images: batched, on the device of the images, with parameters of its own for every sample.

torchvision's transforms draw one set of parameters for a whole batch. A contrastive loss must not see that:
all positives would share their rotation and their shift. Here every image has parameters of its own.

Views work on images in [0, 1], before normalisation, where the 0 that fills the border is the background
of the digits.
No view of digits flips: a mirrored 2 or 5 is no digit, and a 6 turned upside down is a 9. Those of photographs do,
left to right.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from ltnb.data.auto_augment import auto_augment
from ltnb.data.blurring import random_blur
from ltnb.data.checks import check_uint8
from ltnb.data.cropping import random_crop, random_resized_crop
from ltnb.data.cutout import random_cutout
from ltnb.data.flipping import random_flip
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
    return _recolour(window, generator)


def _recolour(images: Tensor, generator: Generator) -> Tensor:
    jittered = colour_jitter(images, generator, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, probability=0.8)
    return random_grey(jittered, generator, probability=0.2)


def _rand(images: Tensor, generator: Generator) -> Tensor:
    return rand_augment(_sim(images, generator), generator)


def _crop_flip(images: Tensor, generator: Generator) -> Tensor:
    # 4 of CIFAR's 32 pixels.
    return random_flip(random_crop(images, generator, padding=min(images.shape[-2:]) // 8), generator)


def _auto(images: Tensor, generator: Generator) -> Tensor:
    # What BCL and its successors classify on CIFAR: 16 of 32 pixels are cut out.
    return random_cutout(auto_augment(_crop_flip(images, generator), generator), generator, side=0.5)


def _sim_flip(images: Tensor, generator: Generator) -> Tensor:
    # What BCL contrasts on CIFAR, as ported by ProCo's authors, with the 0.2 of the other ports.
    window = random_resized_crop(images, generator, area=(0.2, 1), distortion=4 / 3)
    return _recolour(random_flip(window, generator), generator)


def _sim_blur(images: Tensor, generator: Generator) -> Tensor:
    # As in the ports of CUDA's and ConCutMix's authors; others leave blur out at 32 pixels.
    return random_blur(_sim_flip(images, generator), generator, sigma=(0.1, 2), probability=0.5)


def _rand_flip(images: Tensor, generator: Generator) -> Tensor:
    return rand_augment(_sim_flip(images, generator), generator)


#: View policy, by the name a method's `views` uses, to the function of images in [0, 1] and a generator.
VIEWS: dict[str, Callable[[Tensor, Generator], Tensor]] = {
    "none": _none,
    "weak": _weak,
    "strong": _strong,
    "sim": _sim,
    "rand": _rand,
    # For photographs of CIFAR's kind:
    "crop-flip": _crop_flip,
    "auto": _auto,
    "sim-flip": _sim_flip,
    "sim-blur": _sim_blur,
    "rand-flip": _rand_flip,
}


def augment(images: Tensor, policy: str, generator: Generator) -> Tensor:
    """One random view of each image.

    Args:
        images: (N, C, H, W) uint8; for "auto" and those named after "sim" and "rand", C is 1 or 3.
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
