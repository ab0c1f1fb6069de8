"""One operation drawn at random for each image: RandAugment for small images, a digit among them.

RandAugment (Cubuk et al., 2020) draws operations uniformly and applies all at one strength; here each image has a
strength of its own, uniform up to the largest, as in TrivialAugment (Müller & Hutter, 2021). Left out are solarising
and equalising, which turn the strokes of a digit inside out and its empty ground bright.
"""

import torch
from torch import Generator, Tensor

from ltnb.data.checks import check_grey_or_rgb
from ltnb.data.colour import autocontrast, black, blend, grey, mean_grey, posterise, smooth
from ltnb.data.warping import warp

#: Operation to its largest change: degrees; pixels right per pixel down, then pixels down per pixel right; parts of
#: width and height; of a blend's factor; bits below 8. Identity and autocontrast have none.
OPERATIONS: dict[str, float] = {
    "identity": 0,
    "rotate": 30,
    "shear x": 0.3,
    "shear y": 0.3,
    "translate x": 0.2,
    "translate y": 0.2,
    "brightness": 0.6,
    "contrast": 0.6,
    "saturation": 0.9,
    "sharpness": 0.9,
    "posterise": 6,
    "autocontrast": 0,
}


def rand_augment(images: Tensor, generator: Generator) -> Tensor:
    """One operation for each image, uniform over `OPERATIONS`, at a strength ~ U(−1, 1) of its largest change.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        generator: on the device of `images`.

    Returns:
        (N, C, H, W) in [0, 1].

    Raises:
        ValueError: neither one channel nor three.
    """
    check_grey_or_rgb(images)
    operation = torch.randint(len(OPERATIONS), (len(images),), generator=generator, device=images.device)
    strength = 2 * torch.rand(len(images), generator=generator, device=images.device) - 1
    return operate(images, operation, strength)


def operate(images: Tensor, operation: Tensor, strength: Tensor) -> Tensor:
    """The given operation on each image.

    Every image goes through the one map, the one blend and the rest that there are, and keeps what is its own.
    Sorting images by operation would make the host wait for the device.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        operation: (N,) int64, places in `OPERATIONS`.
        strength: (N,) in [−1, 1]; posterising takes its absolute value.
    """
    chosen = {name: operation == place for place, name in enumerate(OPERATIONS)}
    change = {name: torch.where(chosen[name], strength * largest, 0) for name, largest in OPERATIONS.items()}

    angle = torch.deg2rad(change["rotate"])
    # At most one of rotation and shears is not 0, so that their inverses add up to the one that is.
    inverse = torch.stack(
        [
            torch.stack([torch.cos(angle), torch.sin(angle) - change["shear x"]], dim=1),
            torch.stack([-torch.sin(angle) - change["shear y"], torch.cos(angle)], dim=1),
        ],
        dim=1,
    )
    height, width = images.shape[-2:]
    translation = torch.stack([change["translate x"] * width, change["translate y"] * height], dim=1)
    maps = ("rotate", "shear x", "shear y", "translate x", "translate y")
    moving = torch.stack([chosen[name] for name in maps]).any(dim=0)
    # Even the identity, interpolated, is off by rounding, which posterising would see.
    images = torch.where(moving[:, None, None, None], warp(images, inverse, translation), images)

    plain = black(images)
    for name, plainer in (("contrast", mean_grey), ("saturation", grey), ("sharpness", smooth)):
        plain = torch.where(chosen[name][:, None, None, None], plainer(images), plain)
    blends = ("brightness", "contrast", "saturation", "sharpness")
    images = blend(images, plain, 1 + torch.stack([change[name] for name in blends]).sum(dim=0))

    bits = 8 - torch.round(change["posterise"].abs())
    images = torch.where(chosen["posterise"][:, None, None, None], posterise(images, bits), images)
    return torch.where(chosen["autocontrast"][:, None, None, None], autocontrast(images), images)
