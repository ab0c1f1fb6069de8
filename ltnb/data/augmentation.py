"""Random views of images: batched, on the device of the images, with parameters of its own for every sample.

torchvision's transforms draw one set of parameters for a whole batch. A contrastive loss must not see that:
all positives would share their rotation and their shift. Here every image has parameters of its own.

Views work on images in [0, 1], before normalisation, where the 0 that fills the border is the background
of the digits.
No view of digits flips: a mirrored 2 or 5 is no digit, and a 6 turned upside down is a 9. Those of photographs do,
left to right.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ltnb.data.auto_augment import auto_augment
from ltnb.data.blurring import random_blur
from ltnb.data.checks import check_uint8
from ltnb.data.constants import held
from ltnb.data.cropping import centre_crop, random_crop, random_resized_crop
from ltnb.data.cutout import random_cutout
from ltnb.data.draws import Draws, ShareOfDraws, joint_size
from ltnb.data.flipping import random_flip
from ltnb.data.jitter import colour_jitter, random_grey
from ltnb.data.rand_augment import rand_augment, strong_rand_augment
from ltnb.data.warping import random_affine

#: Most pixels of a batch, times channels, that a CPU changes at once: larger tensors it gets afresh from the system for
#: every operation, at 2.4 times the cost of an image.
PART = 2**22

Size = tuple[int, int]  # height and width of the views
Policy = Callable[[Tensor, Draws, Size], Tensor]


def _none(images: Tensor, _generator: Draws, size: Size) -> Tensor:
    return centre_crop(images, size)


def _crop(images: Tensor, generator: Draws, size: Size, padding: int) -> Tensor:
    # An image larger than its view has places enough for the window without a frame.
    framed = tuple(images.shape[-2:]) == size
    return random_crop(images, generator, padding=padding if framed else 0, size=size)


def _weak(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # An eighth of 16 pixels, the share that 4 pixels have of CIFAR's 32 in the usual recipe.
    return _crop(images, generator, size, padding=2)


def _strong(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # Small enough that a digit stays itself. The shift, at most one of 16 pixels, fills in the fractions of
    # a pixel that the crop leaves out.
    moved = random_affine(images, generator, degrees=15, translate=1 / 16, scale=(0.8, 1.2))
    return _weak(moved, generator, size)


def _sim(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # SimCLR's recipe as BCL uses it, without the flip. A digit fills its frame: where a photograph is still
    # recognised by the 0.2 of its area that are usual, half a 9 is a 0.
    window = random_resized_crop(images, generator, area=(0.6, 1), distortion=4 / 3, size=size)
    return _recolour(window, generator)


def _recolour(images: Tensor, generator: Draws) -> Tensor:
    return random_grey(_jitter(images, generator, hue=0.1, probability=0.8), generator, probability=0.2)


def _jitter(images: Tensor, generator: Draws, *, hue: float, probability: float) -> Tensor:
    return colour_jitter(
        images, generator, brightness=0.4, contrast=0.4, saturation=0.4, hue=hue, probability=probability
    )


def _rand(images: Tensor, generator: Draws, size: Size) -> Tensor:
    return rand_augment(_sim(images, generator, size), generator)


def _crop_flip(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # 4 of CIFAR's 32 pixels.
    return random_flip(_crop(images, generator, size, padding=min(size) // 8), generator)


def _crop_flip_turn(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # As PAL's experiments and those that they follow train CIFAR-100 with noisy labels; theirs turns to the nearest
    # pixel.
    return random_affine(_crop_flip(images, generator, size), generator, degrees=20, translate=0, scale=(1, 1))


def _auto(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # What BCL and its successors classify on CIFAR: 16 of 32 pixels are cut out.
    return random_cutout(auto_augment(_crop_flip(images, generator, size), generator), generator, side=0.5)


def _resized_flip(images: Tensor, generator: Draws, size: Size, smallest: float) -> Tensor:
    window = random_resized_crop(images, generator, area=(smallest, 1), distortion=4 / 3, size=size)
    return random_flip(window, generator)


def _sim_flip(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # What BCL contrasts on CIFAR, as ported by ProCo's authors, with the 0.2 of the other ports.
    return _recolour(_resized_flip(images, generator, size, smallest=0.2), generator)


def _sim_blur(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # As in the ports of CUDA's and ConCutMix's authors; others leave blur out at 32 pixels.
    return random_blur(_sim_flip(images, generator, size), generator, sigma=(0.1, 2), probability=0.5)


def _rand_flip(images: Tensor, generator: Draws, size: Size) -> Tensor:
    return rand_augment(_sim_flip(images, generator, size), generator)


def _zoom_flip(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # The usual recipe of ImageNet.
    return _resized_flip(images, generator, size, smallest=0.08)


def _zoom_jitter(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # What MiSLAS and most others classify on ImageNet-LT.
    return _jitter(_zoom_flip(images, generator, size), generator, hue=0, probability=1)


def _zoom_hue(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # WebVision in the experiments that PAL follows.
    return _jitter(_zoom_flip(images, generator, size), generator, hue=0.2, probability=1)


def _zoom_rand(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # What BCL classifies on ImageNet-LT and iNaturalist 2018.
    return strong_rand_augment(_zoom_jitter(images, generator, size), generator)


def _zoom_sim(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # What BCL contrasts there, its views "sim" …
    return _recolour(_zoom_flip(images, generator, size), generator)


def _zoom_sim_rand(images: Tensor, generator: Draws, size: Size) -> Tensor:
    # … and "rand".
    return strong_rand_augment(_zoom_sim(images, generator, size), generator)


#: View policy, by the name a method's `views` uses, to the function of images in [0, 1], of what they draw and of the
#: height and width of the views.
VIEWS: dict[str, Policy] = {
    "none": _none,
    "weak": _weak,
    "strong": _strong,
    "sim": _sim,
    "rand": _rand,
    # For photographs of CIFAR's kind:
    "crop-flip": _crop_flip,
    "crop-flip-turn": _crop_flip_turn,
    "auto": _auto,
    "sim-flip": _sim_flip,
    "sim-blur": _sim_blur,
    "rand-flip": _rand_flip,
    # For photographs of ImageNet's kind:
    "zoom-flip": _zoom_flip,
    "zoom-jitter": _zoom_jitter,
    "zoom-hue": _zoom_hue,
    "zoom-rand": _zoom_rand,
    "zoom-sim": _zoom_sim,
    "zoom-sim-rand": _zoom_sim_rand,
}


def augment(images: Tensor, policy: str, generator: Draws, size: int | None = None) -> Tensor:
    """One random view of each image.

    Where images are larger than their views, "none" is the square in the middle, a crop is a window of the image
    without a frame, and a resized crop is cut from the whole image.

    Args:
        images: (N, C, H, W) uint8; for "auto" and those with jitter, "sim" or "rand", C is 1 or 3.
        policy: a name of `VIEWS`.
        generator: on the device of `images`; its state decides the result.
        size: height and width of the views, at most those of the images, which are then squares; None: (H, W).

    Returns:
        (N, C, size, size) float32 in [0, 1], on the device of `images`.

    Raises:
        ValueError: no such policy, images of another kind, none of a whole batch, or no views of that size in them.
    """
    if policy not in VIEWS:
        raise ValueError(f"policy = {policy!r}: expected one of {', '.join(VIEWS)}")
    check_uint8(images)
    joint_size(generator, len(images))
    view, shape = VIEWS[policy], view_size(images, size)
    most = max(1, PART // images[0].numel()) if len(images) > 0 else 1
    if images.device.type != "cpu" or len(images) <= most:
        return view(images.to(torch.float32) / 255, generator, shape)
    share = generator if isinstance(generator, ShareOfDraws) else ShareOfDraws(generator, len(images), 0)
    before, views = share.generator.get_state(), []
    for start in range(0, len(images), most):
        share.generator.set_state(before)
        part = replace(share, first=share.first + start)
        views.append(view(images[start : start + most].to(torch.float32) / 255, part, shape))
    return torch.cat(views)


def view_size(images: Tensor, size: int | None) -> Size:
    """Height and width of the views of (N, C, H, W) images; see `augment`."""
    height, width = images.shape[-2:]
    if size is None:
        return height, width
    if height != width or not 1 <= size <= height:
        raise ValueError(f"size = {size}: expected views inside of squares, but images have {height} × {width} pixels")
    return size, size


def normalise(images: Tensor, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> Tensor:
    """(x_c − μ_c) / σ_c for each channel c.

    Args:
        images: (N, C, H, W) floating point in [0, 1].
        mean: μ, (C,).
        std: σ, (C,).
    """
    shift, scale = (_channels(values, images) for values in (mean, std))
    return (images - shift) / scale


def _channels(values: Tensor | Sequence[float], images: Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values.to(images).view(-1, 1, 1)
    return held(tuple(values), images.device, images.dtype).view(-1, 1, 1)
