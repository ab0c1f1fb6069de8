"""RandAugment (Cubuk et al., 2020): operations drawn uniformly, each image with draws of its own.

The paper applies all at one strength. For digits, here, each image has a strength of its own, uniform up to the
largest, as in TrivialAugment (Müller & Hutter, 2021), and no operation solarises, inverts or equalises: that would turn
the strokes of a digit inside out and its empty ground bright.
"""

import torch
from torch import Tensor

from ltnb.data.checks import check_grey_or_rgb
from ltnb.data.constants import held
from ltnb.data.draws import Draws, rand, randint
from ltnb.data.operations import MOVES, moving, operate

#: Operation to its largest change, in the units of `operate`.
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

#: The ground of a digit enters at the border.
MOVE = moving(fill=0, edges=False, whole=False)

#: Likewise for photographs, at full strength. Identity stands for solarising, which at that strength does nothing.
STRONG_OPERATIONS: dict[str, float] = {
    "identity": 0,
    "rotate": 30,
    "shear x": 0.3,
    "shear y": 0.3,
    "translate x": 0.45,
    "translate y": 0.45,
    "brightness": 0.9,
    "contrast": 0.9,
    "saturation": 0.9,
    "sharpness": 0.9,
    "posterise": 4,
    "lift shadows": 110 / 255,
    "invert": 0,
    "autocontrast": 0,
    "equalise": 0,
}

#: Near the mean of ImageNet, which the long-tailed papers' code has enter, a value for each colour.
STRONG_MOVE = moving(fill=116 / 255, edges=True, whole=False)


def rand_augment(images: Tensor, generator: Draws) -> Tensor:
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
    operation = randint(len(OPERATIONS), (len(images),), generator=generator, device=images.device)
    strength = 2 * rand(len(images), generator=generator, device=images.device) - 1
    change = strength * held(tuple(OPERATIONS.values()), images.device)[operation]
    return operate(images, operation, change, tuple(OPERATIONS), MOVE)


def strong_rand_augment(images: Tensor, generator: Draws) -> Tensor:
    """Two operations in turn, uniform over `STRONG_OPERATIONS`, each with probability ½ and at its full change.

    The change of a move is as likely − as +, a blend exaggerates. This is "rand-n2-m10-mstd0.5" of timm, which the
    long-tailed papers' code uses on ImageNet, but for what follows. There the strength is N(10, ½) of 10, cut at 10;
    here it is 10. There half of the interpolations are bicubic; here all are bilinear. There values are rounded to the
    256 levels of a file after each operation. `STRONG_MOVE` fills with grey, and solarising is identity.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        generator: on the device of `images`.

    Returns:
        (N, C, H, W) in [0, 1].

    Raises:
        ValueError: neither one channel nor three.
    """
    check_grey_or_rgb(images)
    operation = randint(len(STRONG_OPERATIONS), (len(images), 2), generator=generator, device=images.device)
    uniform = rand(len(images), 2, 2, generator=generator, device=images.device)
    change = held(tuple(STRONG_OPERATIONS.values()), images.device)[operation]
    opposite = held(
        tuple(-largest if name in MOVES else largest for name, largest in STRONG_OPERATIONS.items()), images.device
    )[operation]
    drawn = torch.where(uniform[:, 0] < 0.5, operation, 0)
    signed = torch.where(uniform[:, 1] < 0.5, opposite, change)
    for turn in range(2):
        images = operate(images, drawn[:, turn], signed[:, turn], tuple(STRONG_OPERATIONS), STRONG_MOVE)
    return images
