"""Windows cut out of images, each image with a window of its own."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltnb.data.checks import check_batch, check_positive_interval
from ltnb.data.draws import Draws, rand, randint


def crop(images: Tensor, top: Tensor, left: Tensor, *, padding: int = 0, size: tuple[int, int] | None = None) -> Tensor:
    """Frame each image with `padding` zeros and cut a window with its own corner.

    Args:
        images: (N, C, H, W), any dtype.
        top: (N,) int64 in 0 … H + 2 · padding − h; for windows of the old size, `padding` leaves the rows in place.
        left: (N,) int64, likewise for the columns.
        padding: width of the frame in pixels.
        size: (h, w) of the windows, at most those of the framed image; None: (H, W).

    Returns:
        (N, C, h, w), in the dtype of `images`.
    """
    height, width = size or images.shape[-2:]
    padded = F.pad(images, (padding, padding, padding, padding))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (N, C, top, left, h, w), a view
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def random_crop(images: Tensor, generator: Draws, *, padding: int, size: tuple[int, int] | None = None) -> Tensor:
    """Cut a window of each image, every place in its frame as likely: `crop` with uniform top and left.

    Args:
        images: (N, C, H, W), any dtype.
        generator: on the device of `images`.
        padding: width of the frame in pixels, at least 0; the largest shift of windows of the old size.
        size: (h, w) of the windows; None: (H, W).

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    if padding < 0:
        raise ValueError(f"padding = {padding}: expected at least 0 pixels")
    lengths, size = images.shape[-2:], size or (images.shape[-2], images.shape[-1])
    places = [length + 2 * padding - extent + 1 for length, extent in zip(lengths, size, strict=True)]
    if min(*places, *size) < 1:
        raise ValueError(f"size = {size}: expected a window of images of {lengths[0]} × {lengths[1]} pixels")
    top, left = (randint(number, (len(images),), generator=generator, device=images.device) for number in places)
    return crop(images, top, left, padding=padding, size=size)


def centre_crop(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut (h, w) = `size` out of the middle of each image: from row round((H − h) / 2), a half to the even one.

    Args:
        images: (N, C, H, W), any dtype.
        size: at most (H, W).

    Returns:
        (N, C, h, w), a view of `images`.

    Raises:
        ValueError: a window larger than the images.
    """
    lengths = images.shape[-2:]
    if any(not 1 <= extent <= length for extent, length in zip(size, lengths, strict=True)):
        raise ValueError(f"size = {size}: expected a window of images of {lengths[0]} × {lengths[1]} pixels")
    top, left = (round((length - extent) / 2) for length, extent in zip(lengths, size, strict=True))
    return images[..., top : top + size[0], left : left + size[1]]


def resized_crop(images: Tensor, corner: Tensor, extent: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Stretch or shrink a window of each image to (h′, w′) = `size`, bilinearly.

    The centre of output pixel (i, j) lies at top + (i + ½) h/h′, left + (j + ½) w/w′. Where that is nearer to the edge
    of the window than half a pixel, the window's own border is repeated: nothing from outside it enters. A window
    larger than `size` is sampled, not averaged (torchvision's ``antialias=False``).

    Args:
        images: (N, C, H, W) floating point.
        corner: (left, top), (N, 2) pixels, not necessarily whole, in [0, (W, H) − extent].
        extent: (w, h), (N, 2) pixels, at least 1.
        size: None: (H, W).

    Returns:
        (N, C, h′, w′), in the dtype of `images`.
    """
    height, width = size or images.shape[-2:]
    axes = []
    for axis, (length, number) in enumerate(((images.shape[-1], width), (images.shape[-2], height))):
        start, reach = corner[:, axis, None], extent[:, axis, None]
        centres = (torch.arange(number, device=images.device) + 0.5) / number
        position = torch.clamp(start + centres * reach, start + 0.5, start + reach - 0.5)
        axes.append(position * (2 / length) - 1)
    x, y = axes
    grid = torch.stack([x[:, None, :].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width)], dim=-1)
    return F.grid_sample(images, grid.to(images.dtype), mode="bilinear", padding_mode="border", align_corners=False)


def random_resized_crop(
    images: Tensor,
    generator: Draws,
    *,
    area: tuple[float, float],
    distortion: float,
    size: tuple[int, int] | None = None,
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
        size: (h′, w′) of the result; None: (H, W).

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    check_positive_interval("area", area, "part of the image")
    if area[1] > 1:
        raise ValueError(f"area = {area}: expected parts of the image, at most 1")
    if not 1 <= distortion < math.inf:
        raise ValueError(f"distortion = {distortion}: expected at least 1")
    uniform = rand(len(images), 4, generator=generator, device=images.device)
    part = area[0] + uniform[:, 0] * (area[1] - area[0])
    largest = torch.clamp(-torch.log(part), max=math.log(distortion))
    log_ratio = (2 * uniform[:, 1] - 1) * largest
    # (√(a r), √(a / r)), at most 1; rounding must not push it beyond.
    relative = torch.exp((torch.log(part)[:, None] + torch.stack([log_ratio, -log_ratio], dim=1)) / 2).clamp(max=1)
    corners, extents = [], []
    for axis, length in enumerate((images.shape[-1], images.shape[-2])):
        extents.append(torch.clamp(relative[:, axis] * length, min=1))
        corners.append(uniform[:, 2 + axis] * (length - extents[axis]))
    return resized_crop(images, torch.stack(corners, dim=1), torch.stack(extents, dim=1), size)
