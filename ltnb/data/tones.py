"""Curves that give each brightness another, each image with a curve of its own. Images lie in [0, 1]."""

import torch
from torch import Tensor


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """1 − x where x ≥ threshold, x elsewhere; threshold 0 inverts the whole image.

    Args:
        images: x, (N, C, H, W) floating point in [0, 1].
        threshold: (N,).
    """
    return torch.where(images >= threshold.to(images.dtype)[:, None, None, None], 1 - images, images)


def lift_shadows(images: Tensor, change: Tensor) -> Tensor:
    """min(x + change, 1) where x < 128 / 255, x elsewhere.

    Args:
        images: x, (N, C, H, W) floating point in [0, 1].
        change: (N,), at least 0.
    """
    lifted = (images + change.to(images.dtype)[:, None, None, None]).clamp(max=1)
    return torch.where(images < 128 / 255, lifted, images)


def equalise(images: Tensor) -> Tensor:
    """Spread the levels of each channel so that each is about as frequent, by Pillow's rule.

    Of the 256 levels l = round(255 x), level l becomes min(255, ⌊(n(l) + ⌊s / 2⌋) / s⌋), where n(l) pixels are darker
    and s = ⌊n(lightest) / 255⌋. Where s = 0, in small images and plain ones, the channel stays. An image that has
    been interpolated or blended lies between levels, and is rounded to them; torchvision rounds down.

    Args:
        images: x, (N, C, H, W) floating point in [0, 1].
    """
    levels = torch.round(images.flatten(2) * 255).long()
    counts = levels.new_zeros(*levels.shape[:2], 256, dtype=torch.int32)
    # Along one axis: of several, torch's deterministic mode writes out every place on an accelerator.
    channel = torch.arange(levels.shape[0] * levels.shape[1], device=levels.device).view(*levels.shape[:2], 1)
    places = (256 * channel + levels).flatten()
    counts.view(-1).scatter_add_(0, places, counts.new_ones(()).expand_as(places))
    darker = counts.cumsum(2, dtype=torch.int32) - counts
    step = darker.gather(2, levels.amax(2, keepdim=True)) // 255
    # Pixels of the lightest level are not counted in n(lightest): the quotient can exceed 255.
    curve = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    spread = (curve.to(images.dtype) / 255).gather(2, levels).view_as(images)
    return torch.where((step == 0)[..., None], images, spread)
