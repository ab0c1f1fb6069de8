"""Random brightness, contrast and colour, each image with factors of its own: SimCLR's part without geometry."""

import torch
from torch import Tensor

from ltnb.data.checks import check_grey_or_rgb, check_share
from ltnb.data.colour import adjust_hue, black, blend, grey, mean_grey
from ltnb.data.draws import Draws, rand


def colour_jitter(
    images: Tensor,
    generator: Draws,
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    probability: float,
) -> Tensor:
    """With `probability`, change brightness, contrast and saturation of an image, in an order of its own, then hue.

    Their factors are U(1 − b, 1 + b) with the b given here, the part of the colour wheel is U(−hue, hue). On grey
    images saturation and hue do nothing. The usual recipe has hue, too, anywhere in the order; last it is computed
    once, not in every place.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        generator: on the device of `images`.
        brightness: b, in [0, 1].
        contrast: likewise.
        saturation: likewise.
        hue: largest turn, in [0, ½].
        probability: in [0, 1], of an image to be changed at all.

    Returns:
        (N, C, H, W) in [0, 1].

    Raises:
        ValueError: an argument out of its range, or neither one channel nor three.
    """
    check_grey_or_rgb(images)
    for name, largest in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation)):
        check_share(name, largest, "the largest change of a factor")
    if not 0 <= hue <= 0.5:
        raise ValueError(f"hue = {hue}: expected a part of the colour wheel, 0 to 0.5")
    check_share("probability", probability, "a probability")
    uniform = rand(len(images), 8, generator=generator, device=images.device)
    # By numbers of the host: a tensor of them would be copied to the device, and the host would wait.
    changes = [(2 * uniform[:, i] - 1) * largest for i, largest in enumerate((brightness, contrast, saturation))]
    factors = 1 + torch.stack(changes, dim=1)
    order = uniform[:, 3:6].argsort(dim=1)  # of independent uniform numbers: every permutation as likely
    turn = (2 * uniform[:, 6] - 1) * hue
    changed = jittered(images, factors, order)
    if hue > 0:
        changed = adjust_hue(changed, turn)
    return torch.where((uniform[:, 7] < probability)[:, None, None, None], changed, images)


def jittered(images: Tensor, factors: Tensor, order: Tensor) -> Tensor:
    """Blend each image with black (0), its mean grey (1) and its grey image (2), in its own order.

    Args:
        images: (N, 1 or 3, H, W) floating point in [0, 1].
        factors: (N, 3) of brightness, contrast and saturation.
        order: (N, 3) permutations of 0, 1, 2.
    """
    for operation in order.unbind(1):
        luminance = grey(images)
        plain = _select(operation, [black(images), mean_grey(luminance), luminance])
        images = blend(images, plain, factors.gather(1, operation[:, None])[:, 0])
    return images


def random_grey(images: Tensor, generator: Draws, *, probability: float) -> Tensor:
    """Take the colour from an image with `probability`; grey images stay.

    Args:
        images: (N, 1 or 3, H, W) floating point.
        generator: on the device of `images`.
        probability: in [0, 1].

    Raises:
        ValueError: an argument out of its range, or neither one channel nor three.
    """
    check_grey_or_rgb(images)
    check_share("probability", probability, "a probability")
    chosen = rand(len(images), generator=generator, device=images.device) < probability
    return torch.where(chosen[:, None, None, None], grey(images), images)


def _select(operation: Tensor, results: list[Tensor]) -> Tensor:
    selected = results[0]
    for index, result in enumerate(results[1:], start=1):
        selected = torch.where((operation == index)[:, None, None, None], result, selected)
    return selected
