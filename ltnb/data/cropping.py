"""Windows cut out of images, each image with a window of its own."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ltnb.data.checks import check_batch, check_positive_interval


def crop(images: Tensor, top: Tensor, left: Tensor, *, padding: int) -> Tensor:
    """Frame each image with `padding` zeros and cut a window of its old size with its own corner.

    Args:
        images: (N, C, H, W), any dtype.
        top: (N,) int64 in 0 … 2 · padding; `padding` itself leaves the rows in place.
        left: (N,) int64, likewise for the columns.
        padding: width of the frame in pixels.

    Returns:
        (N, C, H, W), in the dtype of `images`.
    """
    height, width = images.shape[-2:]
    padded = F.pad(images, (padding, padding, padding, padding))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (N, C, top, left, H, W), a view
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def random_crop(images: Tensor, generator: Generator, *, padding: int) -> Tensor:
    """Shift each image by whole pixels of its own: `crop` with top, left ~ U{0 … 2 · padding}.

    Args:
        images: (N, C, H, W), any dtype.
        generator: on the device of `images`.
        padding: largest shift in pixels, at least 0.

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    if padding < 0:
        raise ValueError(f"padding = {padding}: expected at least 0 pixels")
    corner = torch.randint(
        2 * padding + 1, (2, len(images)), generator=generator, device=images.device, dtype=torch.int64
    )
    return crop(images, corner[0], corner[1], padding=padding)


def resized_crop(images: Tensor, corner: Tensor, size: Tensor) -> Tensor:
    """Stretch a window of each image over the whole of it, bilinearly.

    The centre of output pixel (i, j) lies at top + (i + ½) h/H, left + (j + ½) w/W. Where that is nearer to the edge
    of the window than half a pixel, the window's own border is repeated: nothing from outside it enters.

    Args:
        images: (N, C, H, W) floating point.
        corner: (left, top), (N, 2) pixels, not necessarily whole, in [0, (W, H) − size].
        size: (w, h), (N, 2) pixels, at least 1.

    Returns:
        (N, C, H, W), in the dtype of `images`.
    """
    lengths = (images.shape[-1], images.shape[-2])
    axes = []
    for axis, length in enumerate(lengths):
        start, extent = corner[:, axis, None], size[:, axis, None]
        centres = (torch.arange(length, device=images.device) + 0.5) / length
        position = torch.clamp(start + centres * extent, start + 0.5, start + extent - 0.5)
        axes.append(position * (2 / length) - 1)
    x, y = axes
    height, width = images.shape[-2:]
    grid = torch.stack([x[:, None, :].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)], dim=-1)
    return F.grid_sample(images, grid.to(images.dtype), mode="bilinear", padding_mode="border", align_corners=False)


def random_resized_crop(
    images: Tensor, generator: Generator, *, area: tuple[float, float], distortion: float
) -> Tensor:
    """Zoom into a random window of each image: `resized_crop` of a part a of its area.

    a ~ U(area), log r ~ U(−ℓ, ℓ) with ℓ = min(log distortion, −log a), w/W = √(a r), h/H = √(a / r), and a corner
    uniform over the places where the window fits. r is the window's aspect ratio in units of the image's. The usual
    recipe draws a and r again until the window fits, which favours small windows; here r is at once drawn from those
    that fit, so that the area keeps its uniform law.

    Args:
        images: (N, C, H, W) floating point.
        generator: on the device of `images`.
        area: smallest and largest part of the image's area, in (0, 1].
        distortion: largest aspect ratio, at least 1; the smallest is its inverse.

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    check_positive_interval("area", area, "part of the image")
    if area[1] > 1:
        raise ValueError(f"area = {area}: expected parts of the image, at most 1")
    if not 1 <= distortion < math.inf:
        raise ValueError(f"distortion = {distortion}: expected at least 1")
    uniform = torch.rand(len(images), 4, generator=generator, device=images.device)
    part = area[0] + uniform[:, 0] * (area[1] - area[0])
    largest = torch.clamp(-torch.log(part), max=math.log(distortion))
    log_ratio = (2 * uniform[:, 1] - 1) * largest
    # (√(a r), √(a / r)), at most 1; rounding must not push it beyond.
    relative = torch.exp((torch.log(part)[:, None] + torch.stack([log_ratio, -log_ratio], dim=1)) / 2).clamp(max=1)
    lengths = uniform.new_tensor([images.shape[-1], images.shape[-2]])
    size = torch.clamp(relative * lengths, min=1)
    return resized_crop(images, uniform[:, 2:] * (lengths - size), size)
