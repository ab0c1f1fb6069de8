"""Batches of noise and the generators of the tests on images."""

import torch
from torch import Generator, Tensor


def seeded(seed: int = 0) -> Generator:
    """A generator with its own state."""
    return torch.Generator().manual_seed(seed)


def noise(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform in [0, 1)."""
    return torch.rand(shape, generator=seeded(9), dtype=dtype)


def noise_bytes(shape: tuple[int, ...]) -> Tensor:
    """Uniform in 0 … 255."""
    return torch.randint(256, shape, generator=seeded(9), dtype=torch.uint8)


def assert_independent(columns: Tensor) -> None:
    """No correlation between columns, nor in one between a row and the next, beyond four standard errors."""
    bound = 4 / len(columns) ** 0.5
    between = torch.corrcoef(columns.T) - torch.eye(columns.shape[1], dtype=columns.dtype)
    assert between.abs().max() < bound
    for values in columns.T:
        assert torch.corrcoef(torch.stack([values[:-1], values[1:]]))[0, 1].abs() < bound
