from typing import NamedTuple

import pytest
import torch
from torch import Tensor


class LabelledFeatures(NamedTuple):
    features: Tensor
    labels: Tensor
    num_classes: int


def long_tail(dim: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0) -> LabelledFeatures:
    """Five classes of 9, 5, 3, 2 and 1 samples in random order, away from the origin."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(5).repeat_interleave(torch.tensor([9, 5, 3, 2, 1]))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    means = 2 * torch.randn(5, dim, generator=generator, dtype=torch.float64) + 3
    features = means[labels] + torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return LabelledFeatures(features.to(dtype), labels, 5)


@pytest.fixture(params=[torch.float64, torch.float32, torch.bfloat16], ids=str)
def tailed(request: pytest.FixtureRequest) -> LabelledFeatures:
    return long_tail(dtype=request.param)


@pytest.fixture(params=[0, 1, 2])
def moved(request: pytest.FixtureRequest) -> tuple[LabelledFeatures, LabelledFeatures]:
    """The same features twice: as they are, and turned by a random rotation and scaled about the origin."""
    original = long_tail(seed=request.param)
    generator = torch.Generator().manual_seed(request.param)
    rotation, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    scale = 10.0 ** (request.param - 1) * 1.7
    return original, original._replace(features=scale * original.features @ rotation)
