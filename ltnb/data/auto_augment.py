"""AutoAugment's policy for CIFAR-10 (Cubuk et al., 2019), each image with a draw of its own.

The policy has 25 pairs of operations, found by search. An image draws one pair and applies each half with the half's
own probability, at the half's own level: its sign, where there is one, is the only thing left to chance.
"""

from functools import cache

import torch
from torch import Tensor

from ltnb.data.checks import check_grey_or_rgb
from ltnb.data.draws import Draws, rand, randint
from ltnb.data.operations import moving, operate

#: Operation to its change at level 9, in the units of `operate`. No pair shears to the right.
OPERATIONS: dict[str, float] = {
    "identity": 0,
    "rotate": 30,
    "shear x": 0.3,
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

#: Pillow shears along the edges, and shifts by whole pixels.
MOVE = moving(fill=FILL, edges=True, whole=True)


def auto_augment(images: Tensor, generator: Draws) -> Tensor:
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
    pair = randint(len(CIFAR10), (len(images),), generator=generator, device=images.device)
    uniform = rand(len(images), 2, 2, generator=generator, device=images.device)
    operations, probabilities, changes = (column[pair] for column in _table(images.device))
    drawn = torch.where(uniform[:, 0] < probabilities, operations, 0)
    signed = torch.where(uniform[:, 1] < 0.5, -changes, changes)
    for half in range(2):
        images = operate(images, drawn[:, half], signed[:, half], tuple(OPERATIONS), MOVE)
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
