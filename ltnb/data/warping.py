"""Linear maps of images, each image with parameters of its own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ltnb.data.checks import check_batch, check_positive_interval, check_share
from ltnb.data.draws import Draws, rand


def warp(images: Tensor, inverse: Tensor, translation: Tensor) -> Tensor:
    """Move each image by its own p ↦ A p + t, with p measured from the centre of the image in pixels.

    The value at q is that of the input at p = A⁻¹(q − t), interpolated bilinearly, and 0 outside of it.

    Args:
        images: (N, C, H, W) floating point.
        inverse: A⁻¹, (N, 2, 2), of (x, y), right and down.
        translation: t = (x, y), (N, 2) pixels.

    Returns:
        (N, C, H, W), in the dtype of `images`.
    """
    if len(images) == 0:  # of which affine_grid knows nothing
        return images
    height, width = images.shape[-2:]
    (xx, xy), (yx, yy) = (row.unbind(1) for row in inverse.unbind(1))
    x, y = translation.unbind(1)
    # grid_sample measures in half widths and half heights: off the diagonal, the aspect ratio enters.
    relative = torch.stack(
        [
            torch.stack([xx, xy * (height / width), -(xx * x + xy * y) * (2 / width)], dim=1),
            torch.stack([yx * (width / height), yy, -(yx * x + yy * y) * (2 / height)], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(relative.to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def affine(images: Tensor, angle: Tensor, translation: Tensor, scale: Tensor) -> Tensor:
    """Rotate, zoom and shift each image: `warp` with A = s R(θ).

    Args:
        images: (N, C, H, W) floating point.
        angle: θ, (N,) degrees, clockwise as the image is seen.
        translation: t = (x, y), (N, 2) pixels, right and down.
        scale: s > 0, (N,).

    Returns:
        (N, C, H, W), in the dtype of `images`.
    """
    cos = torch.cos(torch.deg2rad(angle)) / scale
    sin = torch.sin(torch.deg2rad(angle)) / scale
    inverse = torch.stack([torch.stack([cos, sin], dim=1), torch.stack([-sin, cos], dim=1)], dim=1)
    return warp(images, inverse, translation)


def random_affine(
    images: Tensor, generator: Draws, *, degrees: float, translate: float, scale: tuple[float, float]
) -> Tensor:
    """Rotate, shift and zoom each image by parameters of its own: `affine` with uniform θ, t and s.

    θ ~ U(−degrees, degrees), t ~ U(−translate, translate)² in units of width and height, s ~ U(scale).

    Args:
        images: (N, C, H, W) floating point.
        generator: on the device of `images`.
        degrees: largest rotation, at least 0.
        translate: largest shift, as a part of width and height, in [0, 1].
        scale: smallest and largest zoom, positive.

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    if degrees < 0:
        raise ValueError(f"degrees = {degrees}: expected at least 0")
    check_share("translate", translate, "a part of the image")
    check_positive_interval("scale", scale, "zoom")
    height, width = images.shape[-2:]
    uniform = rand(len(images), 4, generator=generator, device=images.device)
    angle = (2 * uniform[:, 0] - 1) * degrees
    x, y = ((2 * uniform[:, 1 + axis] - 1) * (translate * length) for axis, length in enumerate((width, height)))
    zoom = scale[0] + uniform[:, 3] * (scale[1] - scale[0])
    return affine(images, angle, torch.stack([x, y], dim=1), zoom)
