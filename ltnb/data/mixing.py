"""Two images in one, with the labels of both: mixup and CutMix, each image with a share of its own."""

import torch
from torch import Tensor

from ltnb.data.draws import Draws, rand


def mixup(images: Tensor, others: Tensor, share: Tensor) -> Tensor:
    """λ x + (1 − λ) x′ (Zhang et al., 2018).

    Args:
        images: x, (N, C, H, W) floating point.
        others: x′, likewise.
        share: λ in [0, 1], (N,).
    """
    return torch.lerp(others, images, share.to(images.dtype)[:, None, None, None])


def cutmix(images: Tensor, others: Tensor, boxes: Tensor) -> Tensor:
    """x outside of a box, x′ inside it (Yun et al., 2019).

    Args:
        images: x, (N, C, H, W).
        others: x′, likewise.
        boxes: (N, 4) whole pixels: left, top, right, bottom, the last two no longer inside.
    """
    height, width = images.shape[-2:]
    left, top, right, bottom = boxes[:, :, None].unbind(1)
    x, y = torch.arange(width, device=images.device), torch.arange(height, device=images.device)
    columns, rows = (left <= x) & (x < right), (top <= y) & (y < bottom)
    return torch.where((rows[:, :, None] & columns[:, None, :]).unsqueeze(1), others, images)


def random_boxes(share: Tensor, height: int, width: int, generator: Draws) -> Tensor:
    """Boxes of the image's shape and of about 1 − λ of its area, their middle uniform, clipped where they stick out.

    The half sides are ⌊½ √(1 − λ) · (W, H)⌋, the middle ~ U{0 … W − 1} × U{0 … H − 1}. Rounding and clipping make them
    smaller: labels take their share from `outside`.

    Args:
        share: λ in [0, 1], (N,).
        height: H.
        width: W.
        generator: on the device of `share`.

    Returns:
        (N, 4) int64: left, top, right, bottom, the last two no longer inside.
    """
    uniform = rand(len(share), 2, generator=generator, device=share.device, dtype=torch.float64)
    side = 0.5 * torch.sqrt(1 - share)
    starts, ends = [], []
    for axis, length in enumerate((width, height)):
        middle, half = torch.floor(uniform[:, axis] * length).long(), torch.floor(side * length).long()
        starts.append(torch.clamp(middle - half, min=0))
        ends.append(torch.clamp(middle + half, max=length))
    return torch.stack(starts + ends, dim=1)


def outside(boxes: Tensor, height: int, width: int) -> Tensor:
    """Part of the image's area that a box leaves: 1 − (right − left)(bottom − top) / (H W), (N,) float32."""
    left, top, right, bottom = boxes.unbind(1)
    return 1 - ((right - left) * (bottom - top)).to(torch.float32) / (height * width)


def mixed_labels(y: Tensor, others: Tensor, share: Tensor, num_classes: int) -> Tensor:
    """λ e_y + (1 − λ) e_y′, rows that sum to 1.

    Args:
        y: (N,) class indices of the images.
        others: y′, those of the others.
        share: λ in [0, 1], (N,) floating point.
        num_classes: K.

    Returns:
        (N, K), in the dtype of `share`.
    """
    classes = torch.arange(num_classes, device=y.device)
    own, other = y[:, None] == classes, others[:, None] == classes
    return share[:, None] * own + (1 - share)[:, None] * other
