"""Batch normalisation over the whole batch, whichever processes have its images."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ltnb.distributed import num_processes, sum_over_processes


class JointBatchNorm(_BatchNorm):
    """y = γ (x − μ)/√(σ² + ε) + β with μ and σ² of each channel of the whole batch, also where processes share it.

    In a single process it is torch's batch normalisation, ``nn.BatchNorm1d`` or ``nn.BatchNorm2d``. Torch's own
    ``nn.SyncBatchNorm`` does the same on accelerators and nothing on a CPU. Shares may differ in size, and be empty;
    the running σ² is the unbiased one of the whole batch.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (2, 4):
            raise ValueError(f"expected rows (N, C) or maps (N, C, H, W), got shape {tuple(input.shape)}")

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C) or (N, C, H, W), this process's share of the batch.

        Raises:
            ValueError: another shape; in training, a single value of each channel in the whole batch.
        """
        normalised: Tensor
        if num_processes() == 1 or not self.training:
            normalised = super().forward(x)
            return normalised
        self._check_input_dim(x)
        over = [axis for axis in range(x.ndim) if axis != 1]
        column = (1, -1, *[1] * (x.ndim - 2))
        with torch.autocast(x.device.type, enabled=False):
            values = x.to(torch.promote_types(x.dtype, torch.float32))
            own = x.numel() // x.shape[1]
            own_size = values.new_full((1,), own)  # a tensor of a list would be copied to the device
            *sums, size = sum_over_processes(torch.cat([values.sum(over), own_size])).split([x.shape[1], 1])
            if own <= 1 and size.item() <= 1:  # asked of the device only where it can be
                raise ValueError("expected more than one value of each channel in the batch, as torch does")
            mean = sums[0] / size
            centred = values - mean.view(column)
            variance = sum_over_processes(centred.square().sum(over)) / size
            factor = torch.rsqrt(variance + self.eps)
            self._follow(mean.detach(), variance.detach() * (size / (size - 1)))
            normalised = centred * (factor * self.weight).view(column) + self.bias.view(column)
            return normalised.to(x.dtype)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


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
