"""An accelerator that is not there: tensors that say they lie on one, and a record of when the host would wait for it.

Values lie on the CPU, operations compute there. torch and the code under test see another device (`DEVICE`), so they
take the ways that they take on an accelerator. What a real one would refuse is an error here: tensors of two devices in
one operation, random numbers of another device's generator. What makes the host wait for it is counted.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import ltnb
from ltnb.data import auto_augment, constants

#: Of all devices without a driver, the one through which torch passes gradients.
DEVICE = torch.device("meta")

#: What has a shape or a value that the host must know before it can go on.
_ASKING = (
    "_local_scalar_dense", "bincount", "equal", "is_nonzero", "linalg_matrix_exp", "masked_select", "nonzero",
    "repeat_interleave.Tensor", "unique",
)  # fmt: skip
#: What deterministic mode replaces by an `index_put` of places, whose strides it copies to the device, if it has two or
#: more axes (ATen's `_scatter_via_index_put`).
_SCATTERS = ("scatter.src", "scatter_.src", "scatter_add")
_PACKAGE = Path(ltnb.__file__).parent


class Elsewhere(Tensor):
    """Values on the CPU that say they are on `DEVICE`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        made: Elsewhere = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.size(), held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        raise AssertionError(f"{function} outside of Accelerator")


class OwnGenerator(Generator):
    """A generator that says it is on `DEVICE`."""

    device = DEVICE


class Accelerator(TorchDispatchMode):
    """Computes what `Elsewhere` is given to; ``waits`` has the places in the package where the host waits, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        there = any(isinstance(value, Elsewhere) for value in tensors)
        target = kwargs.get("device")
        to_device = there if target is None else torch.device(target) == DEVICE
        name = str(function).removeprefix("aten.")
        self._check(name, tensors, there=there, to_device=to_device)
        result = function(*tree_map(_held, args), **tree_map(_held, kwargs))
        if function._schema.is_mutable and args and isinstance(args[0], Tensor):
            return args[0]
        return tree_map(lambda value: Elsewhere(value) if to_device and isinstance(value, Tensor) else value, result)

    def _check(self, name: str, tensors: list[Tensor], *, there: bool, to_device: bool) -> None:
        moved = name.startswith(("_to_copy", "copy_"))
        here = [value for value in tensors if not isinstance(value, Elsewhere)]
        if there and any(value.ndim > 0 for value in here) and not moved:
            if not name.startswith("index"):
                raise RuntimeError(f"{name} of tensors on two devices")
            self._wait("index from the host")
        if (moved and there != to_device) or (name.startswith("copy_") and there and here):
            self._wait("copy")
        if there and name.startswith(_ASKING):
            self._wait(name)
        if there and name.startswith("index") and any(value.dtype == torch.bool for value in tensors[1:]):
            self._wait("index of bools")
        if there and name.startswith(_SCATTERS) and tensors[0].ndim > 1:
            self._wait("scatter of several axes")

    def _wait(self, reason: str) -> None:
        frames = [frame for frame in traceback.extract_stack() if _PACKAGE in Path(frame.filename).parents]
        place = f"{Path(frames[-1].filename).relative_to(_PACKAGE)} {frames[-1].name}" if frames else "backward"
        self.waits[f"{place}: {reason}"] += 1


class _Calls(TorchFunctionMode):
    """Refuses the generator of another device; numbers of the host become tensors there before they are copied."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        generator = kwargs.get("generator")
        if generator is not None:
            filled = args[0].device if args and isinstance(args[0], Tensor) else torch.device("cpu")
            device = torch.device(kwargs.get("device") or filled)
            if generator.device != device:
                raise RuntimeError(f"{function} on {device} with a generator on {generator.device}")
        if function in (torch.tensor, torch.as_tensor) and not isinstance(args[0], Tensor):
            device = kwargs.pop("device", None)
            return function(*args, **kwargs).to(device)
        if function is Tensor.tolist and isinstance(args[0], Elsewhere):
            return args[0].cpu().tolist()
        if function is Tensor.numpy and isinstance(args[0], Elsewhere):
            if not kwargs.get("force"):
                raise TypeError("values of an accelerator as an array, without force")
            return args[0].detach().cpu().numpy()
        if function is Tensor.new_tensor:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, "device": args[0].device, **kwargs})
        return function(*args, **kwargs)


def _held(value: Any) -> Any:
    if isinstance(value, Elsewhere):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) and value == DEVICE else value


@contextmanager
def accelerator() -> Iterator[Accelerator]:
    """Operations on `DEVICE` compute; what the package keeps for a device is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch, Accelerator() as mode, _Calls():
        real = torch.autocast

        def autocast(device_type: str, *args: Any, **options: Any) -> Any:
            return real("cpu", *args, **options) if device_type == DEVICE.type else real(device_type, *args, **options)

        patch.setattr(torch, "autocast", autocast)
        yield mode
    for kept in (constants.held, auto_augment._table):
        kept.cache_clear()


def brought(values: Tensor) -> Tensor:
    """A copy of `values` on `DEVICE`."""
    return Elsewhere(values.detach().clone())


def bring(module: nn.Module) -> nn.Module:
    """Bring the parameters and buffers of `module` to `DEVICE`, as ``module.to`` does."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(brought(parameter), parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = brought(buffer)
    return module
