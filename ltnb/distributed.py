"""One run over several processes: each encodes its share of a batch, and every one computes the losses of all of it.

A batch of N images is cut into W shares, one a process, and what the encoder makes of them is joined again, in the
batch's order. From there on every process does the same: projections, prototypes, memories, queues, supports and draws
are those of the whole batch, and no loss or method knows of processes. What that repeats is small beside the encoder:
the products of N anchors with their keys.

Gradients are those of the sum over processes of what each minimises, W times the loss of the batch:
`average_gradients` divides by W. That is the convention of ``torch.nn.parallel.DistributedDataParallel``.

Without a process group, or in one of a single process, everything here gives back what it is given.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, distributed


def num_processes() -> int:
    """Return W, 1 without a process group."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def process_number() -> int:
    """Return the number of this process, from 0 to W − 1."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def own_rows(total: int) -> slice:
    """Return the rows of a batch of ``total`` that are this process's share; the shares' sizes differ by at most one.

    With fewer rows than processes the last shares are empty.
    """
    return _shares(total)[process_number()]


def joined(parts: Sequence[Tensor], total: int) -> tuple[Tensor, ...]:
    """Return each of ``parts`` for the whole batch, in its order, with gradient to every process's share.

    Args:
        parts: (n, …) of this process's n rows, all of one shape and type; any process may have n = 0.
        total: N, the rows of the batch.

    Returns:
        (N, …) for each part.
    """
    if num_processes() == 1:
        return tuple(parts)
    whole: Tensor = _Join.apply(torch.stack(list(parts), dim=1), total)
    return whole.unbind(dim=1)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of the processes' ``values``, with gradient to all of them."""
    return values if num_processes() == 1 else _Sum.apply(values)


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its mean over the processes, in one message a type of number.

    A parameter that no term reached has none, in this process as in all others.
    """
    if num_processes() == 1:
        return
    of_type: dict[torch.dtype, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            of_type.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in of_type.values():
        message = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(message)
        message /= num_processes()
        parts = torch.split(message, [gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [part.view_as(own) for part, own in zip(parts, gradients, strict=True)])


def backend() -> str:
    """Return by what a group exchanges: Gloo from a CPU, NCCL from a GPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if num_processes() > 1:
        distributed.barrier()


def _shares(total: int) -> list[slice]:
    size, larger = divmod(total, num_processes())
    ends = [process * size + min(process, larger) for process in range(num_processes() + 1)]
    return [slice(first, end) for first, end in pairwise(ends)]


class _Join(torch.autograd.Function):
    """Rows of all processes, one after the other; backward, the sum over processes of what each makes of a row."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, total: int) -> Tensor:
        shares = _shares(total)
        ctx.rows = shares[process_number()]
        # Messages have one size: shares are filled up to the largest, the first.
        message = own.new_zeros(shares[0].stop, *own.shape[1:])
        message[: len(own)] = own
        received = [torch.empty_like(message) for _ in shares]
        distributed.all_gather(received, message)
        return torch.cat([rows[: share.stop - share.start] for rows, share in zip(received, shares, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        of_all: Tensor = sum_over_processes(grad)
        return of_all[ctx.rows], None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, own: Tensor) -> Tensor:
        # In half precision the sum would lose what the processes' parts differ in.
        dtype = torch.promote_types(own.dtype, torch.float32)
        total = own.to(dtype, copy=True, memory_format=torch.contiguous_format)  # NCCL refuses others
        distributed.all_reduce(total)
        return total.to(own.dtype)

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        of_all: Tensor = sum_over_processes(grad)
        return of_all
