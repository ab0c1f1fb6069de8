"""Small tables on the device of the images."""

from functools import cache

import torch
from torch import Tensor


@cache
def held(values: tuple[float, ...], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """``values`` as a tensor, kept for each device: copying them there makes the host wait. Not to be written to."""
    return torch.tensor(values, device=device, dtype=dtype)
