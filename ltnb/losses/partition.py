"""The denominator every contrastive loss shares, with a backward pass of its own."""

from typing import Any

import torch
from torch import Tensor


class _LogPartition(torch.autograd.Function):
    """One (N, M) buffer for both passes: logits, then exp(logits − max), which the gradient is made of."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, keys: Tensor, log_weights: Tensor, excluded: Tensor | None, temperature: float
    ) -> Tensor:
        logits = torch.addmm(log_weights, z, keys.T, alpha=1 / temperature)
        if excluded is not None:
            # Not −inf: a row without any key left stays finite, so that a zero gradient through it stays zero.
            logits.scatter_(1, excluded[:, None], torch.finfo(logits.dtype).min)
        largest = logits.amax(dim=1, keepdim=True)
        terms = logits.sub_(largest).exp_()
        total = terms.sum(dim=1, keepdim=True)
        ctx.save_for_backward(z, keys, terms, total)
        ctx.temperature = temperature
        return (largest + total.log()).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        z, keys, terms, total = ctx.saved_tensors
        if torch.is_grad_enabled():
            # The gradient is to be differentiated itself. What was saved is a constant to autograd, so its logarithm
            # is shifted by a zero that depends on z and keys as the logits do.
            similarities = z @ keys.T / ctx.temperature
            terms = (terms.log() + (similarities - similarities.detach())).softmax(dim=1)
            total = terms.new_ones(len(z), 1)
        # d/dz = softmax · keys / τ. The softmax's division by its total goes to the N rows, not to the N·M terms.
        row_factors = grad[:, None] / (ctx.temperature * total)
        z_grad = row_factors * (terms @ keys) if ctx.needs_input_grad[0] else None
        keys_grad = terms.T @ (row_factors * z) if ctx.needs_input_grad[1] else None
        return z_grad, keys_grad, None, None, None


def log_partition(
    z: Tensor, keys: Tensor, log_weights: Tensor, *, temperature: float, excluded: Tensor | None = None
) -> Tensor:
    """log Σ_{k ≠ eᵢ} w_ik exp(zᵢ·key_k / τ) of every anchor i, without overflow for any τ.

    An anchor left without keys gets the most negative finite number. The gradient reaches z and keys; derivatives of
    any order are right, and all but the first cost a second (N, M) product.

    Args:
        z: (N, d) anchors.
        keys: (M, d), of the same type.
        log_weights: (M,) or (N, M), log w, finite and constant.
        temperature: τ > 0.
        excluded: (N,) long, eᵢ: the key an anchor does not see (itself, or its own class); None: it sees all.

    Returns:
        (N,).
    """
    return _LogPartition.apply(z, keys, log_weights, excluded, temperature)  # type: ignore[no-any-return]
