"""What a checkpoint holds: everything that the rest of a run depends on."""

import hashlib
import io
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from ltnb.distributed import average_gradients, num_processes, process_number, sum_over_processes
from ltnb.files import replacing
from ltnb.methods.assembly import Method
from ltnb.methods.stages import Stage
from ltnb.params import TrainingSettings

History = list[dict[str, float]]


class State:
    """A run between two epochs, and its optimiser of the current stage."""

    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        identity: str,
        method: Method,
        generators: dict[str, Generator],
        stages: list[Stage],
        training: TrainingSettings,
    ) -> None:
        """Begin the first of ``stages``.

        Args:
            identity: what a checkpoint must be of, to be gone on with.
            method: what is trained.
            generators: by name, all random streams of the run.
            stages: of the method.
            training: the protocol of the optimiser.
        """
        self.identity = identity
        self.method = method
        self.generators = generators
        self.stages = stages
        self.training = training
        self.snapshots: dict[int, dict[str, np.ndarray]] = {}
        self.stage = -1
        self.enter(0)

    def enter(self, stage: int) -> None:
        """Go over to a stage, with an optimiser of its own, unless it is the current one."""
        if stage == self.stage:
            return
        self.stage = stage
        self.optimizer = torch.optim.SGD(
            self.method.begin(stage),
            lr=self.stages[stage].learning_rate,
            momentum=self.training.momentum,
            nesterov=self.training.nesterov,
            weight_decay=self.stages[stage].weight_decay,
            fused=True,
        )

    def step(self, loss: Tensor) -> None:
        """Update the weights by the gradient of ``loss``, of all processes, clipped where the protocol says so."""
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        (group,) = self.optimizer.param_groups
        average_gradients(group["params"])
        if self.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(group["params"], self.training.clip_norm)
        self.optimizer.step()

    def save(self, file: Path, history: History) -> None:
        """Write the state and what was seen so far to ``file``, whole or not at all."""
        content = io.BytesIO()
        torch.save(
            {
                "identity": self.identity,
                "method": self.method.state_dict(),
                "stage": self.stage,
                "optimizer": self.optimizer.state_dict(),
                "snapshots": {
                    moment: {name: torch.from_numpy(array) for name, array in arrays.items()}
                    for moment, arrays in self.snapshots.items()
                },
                "generators": {name: generator.get_state() for name, generator in self.generators.items()},
                "history": history,
            },
            content,
        )
        with replacing(file) as temporary:
            temporary.write_bytes(hashlib.sha256(content.getbuffer()).digest() + content.getbuffer())

    def restore(self, file: Path | None, device: torch.device) -> History:
        """Load ``file`` if it is there and belongs to this run; return the history up to it.

        Raises:
            ValueError: other processes of the run have gone on from another epoch.
        """
        history = self._restored(file, device)
        if file is not None:
            epochs = sum_over_processes(torch.tensor([float(len(history))], device=device)).item() / num_processes()
            if epochs != len(history):
                raise ValueError(
                    f"{file}: process {process_number()} of {num_processes()} goes on after epoch {len(history)} and "
                    "others do not; expected a disk that all of them see, and devices of one kind"
                )
        return history

    def _restored(self, file: Path | None, device: torch.device) -> History:
        if file is None:
            return []
        is_first = process_number() == 0
        if is_first:
            for leftover in file.parent.glob(f".{file.name}.*"):  # of a kill while a checkpoint was written
                shutil.rmtree(leftover)
        if not file.is_file():
            return []
        digest, content = file.read_bytes()[:32], file.read_bytes()[32:]
        if hashlib.sha256(content).digest() != digest:
            if is_first:
                print(f"{file} is damaged; starting from the first epoch", file=sys.stderr)
            return []
        saved = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        if saved["identity"] != self.identity:
            if is_first:
                print(f"{file} belongs to other settings, code or data; starting from the first epoch", file=sys.stderr)
            return []
        self.enter(saved["stage"])
        self.method.load_state_dict(saved["method"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.snapshots = {
            moment: {name: array.numpy(force=True) for name, array in arrays.items()}
            for moment, arrays in saved["snapshots"].items()
        }
        for name, generator in self.generators.items():
            generator.set_state(saved["generators"][name].cpu())
        history: History = saved["history"]
        if is_first:
            print(f"going on after epoch {len(history)}, from {file}", file=sys.stderr)
        return history
