"""Batch normalisation over the whole batch, whichever processes have its images."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from ltnb.distributed import joined, num_processes, sum_over_processes


class JointBatchNorm(_BatchNorm):
    """y = γ (x − μ)/√(σ² + ε) + β with μ and σ² of each channel of the whole batch, also where processes share it.

    In a single process it is torch's batch normalisation, ``nn.BatchNorm1d`` or ``nn.BatchNorm2d``. Torch's own
    ``nn.SyncBatchNorm`` does the same on accelerators and nothing on a CPU. Shares may differ in size, and be empty;
    the running σ² is the unbiased one of the whole batch. A batch of a single value of each channel is refused, as by
    torch.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (2, 4):
            raise ValueError(f"expected rows (N, C) or maps (N, C, H, W), got shape {tuple(input.shape)}")

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C) or (N, C, H, W), this process's share of the batch."""
        normalised: Tensor
        if num_processes() == 1 or not self.training:
            normalised = super().forward(x)
            return normalised
        self._check_input_dim(x)
        normalised, mean, variance, size = _Normalise.apply(x, self.weight, self.bias, self.eps)
        self._follow(mean, variance * (size / (size - 1)))
        return normalised

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


class _Normalise(torch.autograd.Function):
    """Torch's own kernels on this process's share, with one message of each channel's numbers in each direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, variance, size = _statistics(x, weight.dtype)
        ctx.save_for_backward(x, weight, mean, variance, size)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance, size)
        return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps), mean, variance, size

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, variance, size = ctx.saved_tensors
        scale = torch.rsqrt(variance + ctx.eps)
        if len(x) > 0:  # with μ and σ² as constants
            x_grad, weight_grad, bias_grad = torch.ops.aten.native_batch_norm_backward(
                grad, x, weight, mean, variance, mean, scale, False, ctx.eps, [True, True, True]
            )
        else:
            x_grad, weight_grad, bias_grad = torch.zeros_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
        # … and by way of them: −γ/√(σ² + ε) (Σ g + x̂ Σ g x̂)/n, the sums over all processes.
        shares = sum_over_processes(torch.stack([weight_grad, bias_grad])) * (-weight * scale / size)
        x_grad += F.batch_norm(x, mean, variance, shares[0].contiguous(), shares[1].contiguous(), eps=ctx.eps)
        return x_grad, weight_grad, bias_grad, None


def _statistics(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return μ (C,), σ² (C,) and n (1,) of the whole batch, from those of each process's share: nothing cancels."""
    own_size = x.numel() // x.shape[1]
    if own_size > 0:
        own_mean, own_variance = torch.batch_norm_update_stats(x, None, None, 0.0)
    else:
        own_mean = own_variance = x.new_zeros(x.shape[1], dtype=dtype)
    size = own_mean.new_full((1,), own_size, dtype=dtype)  # a tensor of a list would be copied to the device
    (of_processes,) = joined([torch.cat([size, own_mean.to(dtype), own_variance.to(dtype)])[None]], num_processes())
    sizes, means, variances = torch.split(of_processes, [1, x.shape[1], x.shape[1]], dim=1)
    size = sizes.sum(dim=0)
    if own_size <= 1 and size.item() <= 1:  # asked of the device only where it can be
        raise ValueError("expected more than one value of each channel in the batch, as torch does")
    mean = (sizes * means).sum(dim=0) / size
    return mean, (sizes * (variances + (means - mean).square())).sum(dim=0) / size, size


def join_batch_norms(network: nn.Module) -> None:
    """Put a `JointBatchNorm` in the place of every batch normalisation in ``network``, with its parameters and state.

    Of those with parameters and running statistics, as all of this package's encoders have.
    """
    for name, child in network.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            joint = JointBatchNorm(child.num_features, eps=child.eps, momentum=child.momentum)
            joint.weight, joint.bias = child.weight, child.bias
            joint.load_state_dict(child.state_dict())
            setattr(network, name, joint)
        else:
            join_batch_norms(child)
