"""Gaussian blur, each image with a width of its own."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ltnb.data.checks import check_batch, check_positive_interval, check_share
from ltnb.data.draws import Draws, rand


def blur(images: Tensor, sigma: Tensor, *, radius: int) -> Tensor:
    """Average each pixel with its neighbours: y = B_h x B_wᵀ for every channel, with

        B_ij = Σ_k g_k [pixel i + k is j],     g_k ∝ exp(−k² / 2σ²),  |k| ≤ radius,  Σ_k g_k = 1.

    Beyond the border the image goes on mirrored, its outermost pixels not repeated. A product of matrices needs no
    loop over images, whose kernels all differ; a convolution would.

    Args:
        images: x, (N, C, H, W) floating point in [0, 1].
        sigma: σ > 0 in pixels, (N,).
        radius: where the Gaussian is cut off, in pixels; at most H − 1 and W − 1 count.

    Returns:
        (N, C, H, W) in [0, 1], in the dtype of `images`.
    """
    height, width = images.shape[-2:]
    down, across = (_along(length, sigma, radius).to(images.dtype) for length in (height, width))
    return (down[:, None] @ images @ across[:, None].mT).clamp(0, 1)


def _along(length: int, sigma: Tensor, radius: int) -> Tensor:
    """B of one axis, (N, length, length)."""
    radius = min(radius, length - 1)
    offset = torch.arange(-radius, radius + 1, device=sigma.device)
    weight = torch.softmax(-(offset**2) / (2 * sigma[:, None] ** 2), dim=1)
    # Column p of the padded identity says which pixel lies at p; window k of it, which lies at i + k.
    mirrored = F.pad(torch.eye(length, dtype=weight.dtype, device=sigma.device)[None], (radius, radius), mode="reflect")
    return torch.einsum("nk,jki->nij", weight, mirrored[0].unfold(1, length, 1))


def random_blur(images: Tensor, generator: Draws, *, sigma: tuple[float, float], probability: float) -> Tensor:
    """Blur an image with `probability`: `blur` with σ ~ U(sigma), cut off at three times the largest.

    Args:
        images: (N, C, H, W) floating point in [0, 1].
        generator: on the device of `images`.
        sigma: smallest and largest σ in pixels, positive.
        probability: in [0, 1].

    Raises:
        ValueError: an argument out of its range.
    """
    check_batch(images)
    check_positive_interval("sigma", sigma, "width of the Gaussian")
    check_share("probability", probability, "a probability")
    uniform = rand(len(images), 2, generator=generator, device=images.device)
    width = sigma[0] + uniform[:, 0] * (sigma[1] - sigma[0])
    blurred = blur(images, width, radius=math.ceil(3 * sigma[1]))
    return torch.where((uniform[:, 1] < probability)[:, None, None, None], blurred, images)
