"""Random views of images: batched, on the device of the images, with parameters of its own for every sample.

torchvision's transforms draw one set of parameters for a whole batch. A contrastive loss must not see that:
all positives would share their rotation and their shift. Here every image has parameters of its own.

Views work on images in [0, 1], before normalisation, where the 0 that fills the border is the background
of the digits.
No view flips: a mirrored 2 or 5 is no digit, and a 6 turned upside down is a 9.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def affine(images: Tensor, angle: Tensor, translation: Tensor, scale: Tensor) -> Tensor:
    """Move each image by its own p ↦ s R(θ) p + t, with p measured from the centre of the image in pixels.

    The value at q is that of the input at p = R(−θ)(q − t)/s, interpolated bilinearly, and 0 outside of it.

    Args:
        images: (N, C, H, W) floating point.
        angle: θ, (N,) degrees, clockwise as the image is seen.
        translation: t = (x, y), (N, 2) pixels, right and down.
        scale: s > 0, (N,).

    Returns:
        (N, C, H, W), in the dtype of `images`.
    """
    height, width = images.shape[-2:]
    cos = torch.cos(torch.deg2rad(angle)) / scale
    sin = torch.sin(torch.deg2rad(angle)) / scale
    x, y = translation.unbind(1)
    # grid_sample measures in half widths and half heights: off the diagonal, the aspect ratio enters.
    inverse = torch.stack(
        [
            torch.stack([cos, sin * (height / width), -(cos * x + sin * y) * (2 / width)], dim=1),
            torch.stack([-sin * (width / height), cos, (sin * x - cos * y) * (2 / height)], dim=1),
        ],
        dim=1,
    )
    grid = F.affine_grid(inverse.to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def random_affine(
    images: Tensor, generator: Generator, *, degrees: float, translate: float, scale: tuple[float, float]
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
    _require_batch(images)
    if degrees < 0:
        raise ValueError(f"degrees = {degrees}: expected at least 0")
    if not 0 <= translate <= 1:
        raise ValueError(f"translate = {translate}: expected a part of the image, 0 to 1")
    if not 0 < scale[0] <= scale[1] < math.inf:
        raise ValueError(f"scale = {scale}: expected the smallest and the largest zoom, both positive")
    height, width = images.shape[-2:]
    uniform = torch.rand(len(images), 4, generator=generator, device=images.device)
    angle = (2 * uniform[:, 0] - 1) * degrees
    shift = (2 * uniform[:, 1:3] - 1) * (translate * uniform.new_tensor([width, height]))
    zoom = scale[0] + uniform[:, 3] * (scale[1] - scale[0])
    return affine(images, angle, shift, zoom)


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
    _require_batch(images)
    if padding < 0:
        raise ValueError(f"padding = {padding}: expected at least 0 pixels")
    corner = torch.randint(
        2 * padding + 1, (2, len(images)), generator=generator, device=images.device, dtype=torch.int64
    )
    return crop(images, corner[0], corner[1], padding=padding)


def _none(images: Tensor, _generator: Generator) -> Tensor:
    return images


def _weak(images: Tensor, generator: Generator) -> Tensor:
    # An eighth of 16 pixels, the share that 4 pixels have of CIFAR's 32 in the usual recipe.
    return random_crop(images, generator, padding=2)


def _strong(images: Tensor, generator: Generator) -> Tensor:
    # Small enough that a digit stays itself. The shift, at most one of 16 pixels, fills in the fractions of
    # a pixel that the crop leaves out.
    moved = random_affine(images, generator, degrees=15, translate=1 / 16, scale=(0.8, 1.2))
    return _weak(moved, generator)


#: View policy, by the name a method's `views` uses, to the function of images in [0, 1] and a generator.
VIEWS: dict[str, Callable[[Tensor, Generator], Tensor]] = {"none": _none, "weak": _weak, "strong": _strong}


def augment(images: Tensor, policy: str, generator: Generator) -> Tensor:
    """One random view of each image.

    Args:
        images: (N, C, H, W) uint8.
        policy: a name of `VIEWS`.
        generator: on the device of `images`; its state decides the result.

    Returns:
        (N, C, H, W) float32 in [0, 1], on the device of `images`.

    Raises:
        ValueError: no such policy, or images of another kind.
    """
    if policy not in VIEWS:
        raise ValueError(f"policy = {policy!r}: expected one of {', '.join(VIEWS)}")
    _require_batch(images)
    if images.dtype != torch.uint8:
        raise ValueError(f"images are {images.dtype}: expected torch.uint8")
    return VIEWS[policy](images.to(torch.float32) / 255, generator)


def normalise(images: Tensor, mean: Tensor | Sequence[float], std: Tensor | Sequence[float]) -> Tensor:
    """(x_c − μ_c) / σ_c for each channel c.

    Args:
        images: (N, C, H, W) floating point in [0, 1].
        mean: μ, (C,).
        std: σ, (C,).
    """
    shift = torch.as_tensor(mean, dtype=images.dtype, device=images.device).view(-1, 1, 1)
    scale = torch.as_tensor(std, dtype=images.dtype, device=images.device).view(-1, 1, 1)
    return (images - shift) / scale


def _require_batch(images: Tensor) -> None:
    if images.ndim != 4 or len(images) == 0:
        raise ValueError(f"images have shape {tuple(images.shape)}: expected (N, C, H, W) with N ≥ 1")
