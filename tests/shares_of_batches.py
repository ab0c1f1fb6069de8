"""What the processes of `tests/test_distributed.py` do: importable, since they are started anew."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import torch
from bars import bars, settings_of
from stateful_methods import STATEFUL
from torch import Generator, Tensor

from ltnb import distributed, processes, training
from ltnb.methods import System
from ltnb.methods.assembly import Method
from ltnb.models.batch_norm import JointBatchNorm

# Of every class, of one sample each (no anchor has a positive), of one class, uneven, and fewer than processes.
BATCHES = {
    "all classes": [0, 1, 2, 0, 0, 1, 2, 3, 3, 0, 1],
    "the last share without a positive": [0, 0, 0, 0, 1, 2, 3],
    "one class": [2, 2, 2, 2, 2],
    "two images": [0, 1],
}
COUNTS = [14, 6, 3, 2]
SYSTEMS = {system.model_fields["system"].default: system for system in get_args(System)}
WITH_CONTRAST = ("supcon", "bcl", "featrecon", "bce3s", "kcl", "proco")
#: All batches for one system of each kind of contrast, and one batch, of uneven shares, for the others.
CASES = [
    (system, batch)
    for system in SYSTEMS
    for batch in (BATCHES if system in WITH_CONTRAST else ["the last share without a positive"])
]


def images_of(number: int) -> Tensor:
    return torch.randn(number, 1, 8, 8, generator=Generator().manual_seed(1))


def two_steps(system: str, labels: list[int]) -> dict[str, Tensor]:
    """Terms, gradients and state of a system after two steps and an epoch on this batch, in float64."""
    torch.manual_seed(0)
    settings = SYSTEMS[system](**small(system))
    method = Method(settings, "resnet8", 1, COUNTS)
    parameters = method.begin(0)
    generator, y = Generator().manual_seed(2), torch.tensor(labels)
    views = [images_of(len(y)) + 0.1 * number for number in range(len(method.views))]
    found: dict[str, Tensor] = {}
    for step in range(2):
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        optimizer.zero_grad()
        shares = [view[distributed.own_rows(len(y))] for view in views]
        terms = method.losses(shares, [y] * len(views), generator)
        torch.autograd.backward(terms["total"])
        distributed.average_gradients(parameters)
        found |= {f"{step} {name}": value.detach() for name, value in terms.items()}
        found |= {
            f"{step} gradient of {name}": parameter.grad.clone()
            for name, parameter in method.named_parameters()
            if parameter.grad is not None
        }
        optimizer.step()
        method.after_step()
    if len(set(labels)) > 1:  # an epoch has all classes, and FeatRecon's supports need two
        method.after_epoch(1, 2)
    return found | {f"state {name}": value.clone() for name, value in method.state_dict().items()}


def small(system: str) -> dict[str, Any]:
    fields = {"projection_hidden": 8, "projection_dim": 4, "queue_size": 16, "head_above": 1, "synthesis_start": 0.5}
    owners = SYSTEMS[system]()
    return {name: value for name, value in fields.items() if owners.has_effect(name)}


def steps_of_every_system(file: Path) -> None:
    """Write `two_steps` of every system on every batch."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    found = {f"{system}, {batch}": two_steps(system, BATCHES[batch]) for system, batch in CASES}
    torch.save(found, file.with_suffix(f".{distributed.process_number()}"))


def collectives(file: Path) -> None:
    """Write what `ltnb.distributed` makes of rows that tell where they are from, and the gradients."""
    torch.set_default_dtype(torch.float64)
    found = {}
    for total in (1, 2, 5):
        rows = distributed.own_rows(total)
        own = torch.arange(float(total))[rows, None].repeat(1, 3).requires_grad_()
        first, second = distributed.joined([own, own + 100], total)
        weights = torch.arange(float(total))[:, None] + distributed.process_number()
        (gradient,) = torch.autograd.grad((first * weights).sum() + second.sum(), own)
        found[total] = {"first": first, "second": second, "gradient": gradient}
    value = torch.tensor(2.0 + distributed.process_number(), requires_grad=True)
    total_value = distributed.sum_over_processes(value**2)
    (slope,) = torch.autograd.grad(total_value * (1 + distributed.process_number()), value)
    found["sum"] = {"sum": total_value, "gradient": slope}
    found["bytes"] = distributed.joined([torch.tensor([distributed.process_number()], dtype=torch.uint8)], 2)[0]
    torch.save(found, file.with_suffix(f".{distributed.process_number()}"))


def normalisations(file: Path) -> None:
    """Write what `JointBatchNorm` makes of shares of maps and rows, the gradients, and the running statistics."""
    torch.set_default_dtype(torch.float64)
    found = {}
    for shape in ((7, 3, 2, 2), (5, 3), (1, 3, 2, 2)):
        generator = Generator().manual_seed(0)
        x, weights = torch.randn(shape, generator=generator) + 5, torch.randn(shape, generator=generator)
        rows = distributed.own_rows(len(x))
        own = x[rows].clone().requires_grad_()
        norm = JointBatchNorm(3)
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
            norm.bias.copy_(torch.tensor([0.5, 0.0, -1.0]))
        y = norm(own)
        torch.autograd.backward((y * weights[rows]).sum())
        distributed.average_gradients(norm.parameters())
        assert own.grad is not None
        found[shape] = {"y": y, "gradient": own.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
        found[shape] |= {f"state {name}": value for name, value in norm.state_dict().items()}
        norm.eval()
        found[shape]["evaluated"] = norm(own)
    torch.save(found, file.with_suffix(f".{distributed.process_number()}"))


def train_all(folder: Path) -> None:
    """Train every method of `STATEFUL` in float64."""
    torch.set_default_dtype(torch.float64)
    for number, settings in enumerate(STATEFUL.values()):
        run = settings_of(settings, processes=distributed.num_processes())
        training.train(run, bars(), folder / str(number))


def raise_in_the_last(message: str) -> None:
    """Fail in one process while the others wait for it."""
    if distributed.process_number() == distributed.num_processes() - 1:
        raise training.NonFiniteLossError(message)
    distributed.wait_for_all()


class ErrorOfTwo(Exception):
    """One that pickle cannot read back."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def raise_of_two() -> None:
    raise ErrorOfTwo(1, 2)


def end_the_last_by_a_signal() -> None:
    """As the system does when memory runs out."""
    if distributed.process_number() == distributed.num_processes() - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    distributed.wait_for_all()


def run_on(folder: Path) -> None:
    """Say who this is, and never end; the first one in a call that does not return to Python."""
    (folder / str(os.getpid())).touch()
    if distributed.process_number() == 0:
        distributed.wait_for_all()
    time.sleep(1000)


def refused(file: Path) -> None:
    """Write what a group says of a run for another one, of a batch of one row, and of a checkpoint on another disk."""
    settings = settings_of(processes=distributed.num_processes())
    own = torch.randn(1, 3)[distributed.own_rows(1)]
    checkpoint = file.with_suffix(f".c{distributed.process_number()}")
    with patch.object(Path, "unlink"):  # keep the finished run's checkpoint
        training.train(settings, bars(), file.with_suffix(".run"), file.with_suffix(".c0"))
    calls: dict[str, Callable[[], Any]] = {
        "another size": lambda: training.train(settings_of(processes=3), bars(), file.with_suffix(".run")),
        "a single value": lambda: JointBatchNorm(3)(own),
        "two disks": lambda: training.train(settings, bars(), file.with_suffix(".run"), checkpoint),
    }
    told = {}
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            told[name] = str(error)
    torch.save(told, file.with_suffix(f".{distributed.process_number()}"))


if __name__ == "__main__":
    processes.in_processes(2, run_on, Path(sys.argv[1]))
