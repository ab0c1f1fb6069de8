"""How much memory a computation needs at most, counted tensor by tensor: the same on every run and every machine."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Alive(TorchDispatchMode):
    """After each operation, the bytes of all tensors that operations have made and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {tensor.untyped_storage()._cdata for tensor in tree_leaves((args, kwargs)) if torch.is_tensor(tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in given:  # else a view, or changed in place
                    self.made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.made = {key: entry for key, entry in self.made.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(nbytes for _, nbytes in self.made.values()))
        return result


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the most bytes that tensors made in a call hold together, as seen after each of torch's operations.

    What an operation needs within itself and gives back is not seen, nor is what was there before the call.
    """
    with _Alive() as alive:
        function()
    return alive.peak
