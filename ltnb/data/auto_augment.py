"""AutoAugment's policy for CIFAR-10 (Cubuk et al., 2019), each image with a draw of its own.

The policy has 25 pairs of operations, found by search. An image draws one pair and applies each half with the half's
own probability, at the half's own level: its sign, where there is one, is the only thing left to chance.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Generator, Tensor

from ltnb.data.checks import check_grey_or_rgb
from ltnb.data.colour import autocontrast, black, blend, grey, mean_grey, posterise, smooth
from ltnb.data.tones import equalise, solarise
from ltnb.data.warping import warp

#: Operation to its change at level 9: degrees; pixels down per pixel right; parts of width and height; of a blend's
#: factor; bits below 8; the part of the brightness that is inverted. The rest have no level.
OPERATIONS: dict[str, float] = {
    "identity": 0,
    "rotate": 30,
    "shear y": 0.3,
    "translate x": 150 / 331,
    "translate y": 150 / 331,
    "brightness": 0.9,
    "contrast": 0.9,
    "saturation": 0.9,
    "sharpness": 0.9,
    "posterise": 4,
    "solarise": 1,
    "invert": 0,
    "autocontrast": 0,
    "equalise": 0,
}

_PLACES = {name: place for place, name in enumerate(OPERATIONS)}
_Function = Callable[[Tensor, Tensor, Tensor], Tensor]  # of images, operation and change

#: Two halves each: operation, probability, level.
CIFAR10 = (
    (("invert", 0.1, 0), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear y", 0.5, 8), ("translate y", 0.7, 9)),
    (("autocontrast", 0.5, 0), ("equalise", 0.9, 0)),
    (("shear y", 0.2, 7), ("posterise", 0.3, 7)),
    (("saturation", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalise", 0.6, 0), ("equalise", 0.5, 0)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("saturation", 0.7, 7), ("translate x", 0.5, 8)),
    (("equalise", 0.3, 0), ("autocontrast", 0.4, 0)),
    (("translate y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("saturation", 0.2, 8)),
    (("solarise", 0.5, 2), ("invert", 0.0, 0)),
    (("equalise", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalise", 0.2, 0), ("equalise", 0.6, 0)),
    (("saturation", 0.9, 9), ("equalise", 0.6, 0)),
    (("autocontrast", 0.8, 0), ("solarise", 0.2, 8)),
    (("brightness", 0.1, 3), ("saturation", 0.7, 0)),
    (("solarise", 0.4, 5), ("autocontrast", 0.9, 0)),
    (("translate y", 0.9, 9), ("translate y", 0.7, 9)),
    (("autocontrast", 0.9, 0), ("solarise", 0.8, 3)),
    (("equalise", 0.8, 0), ("invert", 0.1, 0)),
    (("translate y", 0.7, 9), ("autocontrast", 0.9, 0)),
)

#: What enters at the border: near the mean of CIFAR, as in the long-tailed papers' code.
FILL = 128 / 255


def auto_augment(images: Tensor, generator: Generator) -> Tensor:
    """One pair of `CIFAR10` for each image, uniform, each half with its probability, its sign as likely + as −.

    The table is the paper's, its ranges are those of the released code and of torchvision. Rotations and shears are
    bilinear, not to the nearest pixel; shifts are whole pixels; nothing but equalising and posterising rounds to the
    256 levels of a file. `FILL` enters at the border.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        generator: on the device of `images`.

    Returns:
        (N, C, H, W) in [0, 1].

    Raises:
        ValueError: neither one channel nor three.
    """
    check_grey_or_rgb(images)
    pair = torch.randint(len(CIFAR10), (len(images),), generator=generator, device=images.device)
    uniform = torch.rand(len(images), 2, 2, generator=generator, device=images.device)
    operations, probabilities, changes = (column[pair] for column in _table(images.device))
    drawn = torch.where(uniform[:, 0] < probabilities, operations, 0)
    signed = torch.where(uniform[:, 1] < 0.5, -changes, changes)
    for half in range(2):
        images = operate(images, drawn[:, half], signed[:, half])
    return images


@cache
def _table(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """`CIFAR10` as places in `OPERATIONS`, probabilities and changes, (25, 2) each.

    Kept for each device: copying it there makes the host wait.
    """
    operations = [[_PLACES[name] for name, _, _ in pair] for pair in CIFAR10]
    probabilities = [[probability for _, probability, _ in pair] for pair in CIFAR10]
    changes = [[OPERATIONS[name] * level / 9 for name, _, level in pair] for pair in CIFAR10]
    return (
        torch.tensor(operations, device=device),
        torch.tensor(probabilities, device=device),
        torch.tensor(changes, device=device),
    )


def operate(images: Tensor, operation: Tensor, change: Tensor) -> Tensor:
    """The given operation on each image.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        operation: (N,) int64, places in `OPERATIONS`.
        change: (N,), in the units of `OPERATIONS`; posterising and solarising take its absolute value.
    """
    # Few images draw one operation: to give each only those costs a CPU a sixth. An accelerator would have to tell the
    # host which they are, and stand idle until the host has heard and answered; there, all images go through all.
    apply = _where_drawn if images.device.type == "cpu" else _everywhere
    for names, function in _FUNCTIONS.items():
        chosen = torch.stack([operation == _PLACES[name] for name in names]).any(dim=0)
        images = apply(function, images, chosen, operation, change)
    return images


def _everywhere(function: _Function, images: Tensor, chosen: Tensor, operation: Tensor, change: Tensor) -> Tensor:
    return torch.where(chosen[:, None, None, None], function(images, operation, change), images)


def _where_drawn(function: _Function, images: Tensor, chosen: Tensor, operation: Tensor, change: Tensor) -> Tensor:
    rows = chosen.nonzero()[:, 0]
    if len(rows) == 0:
        return images
    return images.index_copy(0, rows, function(images[rows], operation[rows], change[rows]))


def _move(images: Tensor, operation: Tensor, change: Tensor) -> Tensor:
    """Rotate about the middle, shear along the left edge or shift, and fill with `FILL`."""
    height, width = images.shape[-2:]

    def only(name: str) -> Tensor:
        return torch.where(operation == _PLACES[name], change, 0)

    angle, shear = torch.deg2rad(only("rotate")), only("shear y")
    cos, sin = torch.cos(angle), torch.sin(angle)
    inverse = torch.stack([torch.stack([cos, sin], dim=1), torch.stack([-sin - shear, cos], dim=1)], dim=1)
    right = torch.trunc(only("translate x") * width)
    down = torch.trunc(only("translate y") * height) + shear * (width / 2)
    return (warp(images - FILL, inverse, torch.stack([right, down], dim=1)) + FILL).clamp(0, 1)


def _blend_with(plain: Callable[[Tensor], Tensor]) -> _Function:
    return lambda images, _operation, change: blend(images, plain(images), 1 + change)


#: Operations to what applies them to images that all drew one of them.
_FUNCTIONS: dict[tuple[str, ...], _Function] = {
    ("rotate", "shear y", "translate x", "translate y"): _move,
    ("brightness",): _blend_with(black),
    ("contrast",): _blend_with(mean_grey),
    ("saturation",): _blend_with(grey),
    ("sharpness",): _blend_with(smooth),
    ("posterise",): lambda images, _operation, change: posterise(images, 8 - torch.round(change.abs())),
    ("solarise",): lambda images, _operation, change: solarise(images, 1 - change.abs()),
    ("invert",): lambda images, _operation, _change: 1 - images,
    ("autocontrast",): lambda images, _operation, _change: autocontrast(images),
    ("equalise",): lambda images, _operation, _change: equalise(images),
}
