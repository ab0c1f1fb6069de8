"""Checks of what an operation on images is given."""

import math

import torch
from torch import Tensor


def check_batch(images: Tensor) -> None:
    """Refuse anything but a batch of images; one without any is a share of a batch, too."""
    if images.ndim != 4:
        raise ValueError(f"images have shape {tuple(images.shape)}: expected (N, C, H, W)")


def check_uint8(images: Tensor) -> None:
    """Refuse anything but a batch of images as they are stored."""
    check_batch(images)
    if images.dtype != torch.uint8:
        raise ValueError(f"images are {images.dtype}: expected torch.uint8")


def check_grey_or_rgb(images: Tensor) -> None:
    """Refuse images that have neither one channel nor three: only of those is it known what a colour is."""
    check_batch(images)
    if images.shape[1] not in (1, 3):
        raise ValueError(f"images have {images.shape[1]} channels: expected 1 (grey) or 3 (red, green, blue)")


def check_positive_interval(name: str, interval: tuple[float, float], what: str) -> None:
    """Refuse anything but 0 < smallest ≤ largest < ∞."""
    if not 0 < interval[0] <= interval[1] < math.inf:
        raise ValueError(f"{name} = {interval}: expected the smallest and the largest {what}, both positive")


def check_share(name: str, share: float, what: str) -> None:
    """Refuse a number outside [0, 1]."""
    if not 0 <= share <= 1:
        raise ValueError(f"{name} = {share}: expected {what}, 0 to 1")
