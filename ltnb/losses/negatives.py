"""Which negative classes a loss with K sigmoids keeps, where it does not keep all."""

import torch
from torch import Tensor


def kept_apart(positive: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Every pair for itself: (N, K) bool, positive or p_ij < r, p_ij ~ U(0, 1)."""
    p = torch.rand(positive.shape, generator=generator, device=positive.device)
    return positive | (p < rate)


def kept_by_batch(positive: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """One set for the batch: (K,) bool, all classes positive for a sample, filled up at random to ⌊K·r⌋ classes.

    A batch that has more classes than ⌊K·r⌋ keeps them all. Classes are drawn uniformly, without replacement.
    """
    num_classes = positive.shape[1]
    present = positive.any(dim=0)
    p = torch.rand(num_classes, generator=generator, device=positive.device)
    # Ranks and not a sort of the absent classes alone: how many they are is not known on the host.
    ranks = p.masked_fill(present, -1).argsort().argsort()
    return present | (ranks < int(num_classes * rate))
