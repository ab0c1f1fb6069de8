"""What a loss of softmax probabilities is made of: log pⱼ, 1 − pⱼ and the samples put together.

p_ij = exp(f_ij) / Σ_k exp(f_ik), of the scores f (N, K) of N samples and K classes.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.losses.checks import check_class_indices, check_matrix


def checked_scores(logits: Tensor, y: Tensor) -> Tensor:
    """f (N, K) in at least float32, once the scores and their integer labels (N,) are found to be right."""
    check_matrix("logits", logits)
    num_samples, num_classes = logits.shape
    check_class_indices("y", y, num_samples, num_classes)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_probabilities(logits: Tensor, y: Tensor) -> Tensor:
    """log p (N, K) in at least float32, of scores and labels that are checked."""
    return F.log_softmax(checked_scores(logits, y), dim=1)


def complements(log_p: Tensor) -> Tensor:
    """1 − p (N, K), to full precision where p is close to 1 as well: there it is the sum of the other classes' p."""
    p = log_p.exp()
    large = p > 0.5  # of one class at most
    return torch.where(large, p.masked_fill(large, 0).sum(dim=1, keepdim=True), 1 - p)


def focal_terms(log_p: Tensor, gamma: float) -> Tensor:
    """−(1 − pⱼ)^γ log pⱼ of every class, (N, K), with finite gradients."""
    # At 0 the power has an infinite slope for γ < 1. What it is multiplied with is 0 there.
    rest = complements(log_p).clamp(min=torch.finfo(log_p.dtype).tiny)
    return -(rest**gamma) * log_p


def own_class(values: Tensor, y: Tensor) -> Tensor:
    """What (N, K) `values` hold of each sample's own class y (N,): (N,)."""
    return values[torch.arange(len(values), device=values.device), y.long()]


def reduce_samples(losses: Tensor, reduction: str) -> Tensor:
    """Average the samples' losses (N,), sum them, or return all."""
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()
