"""Operations of which each image of a batch has drawn one, as AutoAugment and RandAugment apply them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ltnb.data.colour import autocontrast, black, blend, grey, mean_grey, posterise, smooth
from ltnb.data.tones import equalise, lift_shadows, solarise
from ltnb.data.warping import warp

#: Of images and of their change by each operation of a group; it is 0 where an image has drawn another.
Function = Callable[..., Tensor]

MOVES = ("rotate", "shear x", "shear y", "translate x", "translate y")


def operate(images: Tensor, operation: Tensor, change: Tensor, names: Sequence[str], move: Function) -> Tensor:
    """The given operation on each image.

    Changes are: of `MOVES`, those of `move`; of a blend's factor, from 1; bits below 8; the part of the brightness that
    is inverted; what is added to the dark half. The rest have none. Posterising and solarising take the absolute value.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        operation: (N,) int64, places in `names`.
        change: (N,).
        names: of the operations: all `MOVES`, some of `_FUNCTIONS`, and those that leave an image as it is.
        move: what applies `MOVES`, one of `moving`.

    Returns:
        (N, C, H, W) in [0, 1].
    """
    drawn = {name: operation == place for place, name in enumerate(names)}
    groups = [([drawn[name] for name in MOVES], move)]
    groups += [([drawn[name]], function) for name, function in _FUNCTIONS.items() if name in drawn]
    # Few images draw one operation: to give each only those costs a CPU a sixth. An accelerator would have to tell the
    # host which they are, and stand idle until the host has heard and answered; there, all images go through all.
    select = _where_drawn if images.device.type == "cpu" else _everywhere
    return select(images, groups, change)


def _everywhere(images: Tensor, groups: Sequence[tuple[list[Tensor], Function]], change: Tensor) -> Tensor:
    for drawn, function in groups:
        result = function(images, *(torch.where(chosen, change, 0) for chosen in drawn))
        images = torch.where(torch.stack(drawn).any(dim=0)[:, None, None, None], result, images)
    return images


def _where_drawn(images: Tensor, groups: Sequence[tuple[list[Tensor], Function]], change: Tensor) -> Tensor:
    changed = images.clone()
    for drawn, function in groups:
        rows = torch.stack(drawn).any(dim=0).nonzero()[:, 0]
        if len(rows) > 0:
            changed[rows] = function(images[rows], *(torch.where(chosen, change, 0)[rows] for chosen in drawn))
    return changed


def moving(*, fill: float, edges: bool, whole: bool) -> Function:
    """Rotate about the middle, shear or shift an image: the function of `MOVES`.

    Their changes are degrees; pixels right per pixel down, or pixels down per pixel right; parts of width and height.

    Args:
        fill: what enters at the border, in [0, 1].
        edges: whether the top row and the left column stay where they are as an image is sheared, or its middle.
        whole: whether shifts are cut to whole pixels.
    """

    def move(images: Tensor, degrees: Tensor, right: Tensor, down: Tensor, x: Tensor, y: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        angle = torch.deg2rad(degrees)
        cos, sin = torch.cos(angle), torch.sin(angle)
        # At most one of rotation and shears is not 0, so that their inverses add up to the one that is.
        inverse = torch.stack([torch.stack([cos, sin - right], dim=1), torch.stack([-sin - down, cos], dim=1)], dim=1)
        x, y = x * width, y * height
        if whole:
            x, y = torch.trunc(x), torch.trunc(y)
        if edges:
            x, y = x + right * (height / 2), y + down * (width / 2)
        return (warp(images - fill, inverse, torch.stack([x, y], dim=1)) + fill).clamp(0, 1)

    return move


def _blend_with(plain: Callable[[Tensor], Tensor]) -> Function:
    return lambda images, change: blend(images, plain(images), 1 + change)


_FUNCTIONS: dict[str, Function] = {
    "brightness": _blend_with(black),
    "contrast": _blend_with(mean_grey),
    "saturation": _blend_with(grey),
    "sharpness": _blend_with(smooth),
    "posterise": lambda images, change: posterise(images, 8 - torch.round(change.abs())),
    "solarise": lambda images, change: solarise(images, 1 - change.abs()),
    "lift shadows": lift_shadows,
    "invert": lambda images, _change: 1 - images,
    "autocontrast": lambda images, _change: autocontrast(images),
    "equalise": lambda images, _change: equalise(images),
}
