"""Brightness, contrast and colour of images in [0, 1], each image with a factor of its own.

Four of the operations are blends, b + f (x − b), of the image x with a plainer one b: at f = 0 only b is left, f = 1
changes nothing, beyond it the difference grows. Images have one channel, grey, or three, red, green and blue.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def blend(images: Tensor, plain: Tensor, factor: Tensor) -> Tensor:
    """b + f (x − b), clipped to [0, 1].

    Args:
        images: x, (N, C, H, W) floating point.
        plain: b, of a shape that broadcasts to that of `images`.
        factor: f ≥ 0, (N,).

    Returns:
        (N, C, H, W).
    """
    return torch.lerp(plain, images, factor.to(images.dtype)[:, None, None, None]).clamp_(0, 1)


def grey(images: Tensor) -> Tensor:
    """Luminance (ITU-R BT.601), (N, 1, H, W): 0.2989 red + 0.587 green + 0.114 blue; grey images as they are."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).unsqueeze(1)


def black(images: Tensor) -> Tensor:
    """What brightness blends with: 0, (N, 1, 1, 1)."""
    return images.new_zeros(len(images), 1, 1, 1)


def mean_grey(images: Tensor) -> Tensor:
    """What contrast blends with: the mean luminance, (N, 1, 1, 1)."""
    return grey(images).mean(dim=(1, 2, 3), keepdim=True)


def smooth(images: Tensor) -> Tensor:
    """What sharpness blends with: x averaged over 3 × 3 pixels, the middle one five times, but for the border."""
    kernel = images.new_ones(3, 3)
    kernel[1, 1] = 5
    channels = images.shape[1]
    inner = F.conv2d(images, (kernel / kernel.sum()).expand(channels, 1, 3, 3), groups=channels)
    smoothed = images.clone()
    smoothed[:, :, 1:-1, 1:-1] = inner
    return smoothed


def adjust_hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of each image by a part of the colour wheel, at constant saturation and value.

    With V = max, c = V − min and the hue h in sixths of the wheel, channel k = 5, 3, 1 (red, green, blue) becomes
    V − c · clip(min(m, 4 − m), 0, 1), m = (k + h + 6 · shift) mod 6.

    Args:
        images: (N, 1 or 3, H, W) floating point; grey ones have no hue and stay.
        shift: (N,) in [−½, ½].

    Returns:
        (N, C, H, W).
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = torch.split(images, 1, dim=1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    is_red, is_green = red == value, green == value
    difference = torch.where(is_red, green - blue, torch.where(is_green, blue - red, red - green))
    # Where all three are equal, chroma is 0 and any hue gives back the same grey.
    hue = difference / torch.where(chroma == 0, 1, chroma) + torch.where(is_red, 0, torch.where(is_green, 2.0, 4.0))
    offset = torch.arange(5, 0, -2, device=images.device).view(3, 1, 1)
    m = (offset + hue).add_(6 * shift.to(images.dtype)[:, None, None, None])
    m -= (m / 6).floor_().mul_(6)  # mod 6, at a third of the cost of `remainder`
    return (value - torch.minimum(m, 4 - m).clamp_(0, 1).mul_(chroma)).clamp_(0, 1)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Round each image down to 2ᵇ levels, 0, 2⁻ᵇ, …, 1 − 2⁻ᵇ.

    Args:
        images: (N, C, H, W) floating point in [0, 1].
        bits: b, (N,) whole numbers, at least 1.
    """
    levels = torch.exp2(bits.to(images.dtype))[:, None, None, None]
    return torch.minimum(torch.floor(images * levels), levels - 1) / levels


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel to the whole of [0, 1]: (x − min) / (max − min); constant channels stay."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    return torch.where(low == high, images, (images - low) / torch.where(low == high, 1, high - low))
