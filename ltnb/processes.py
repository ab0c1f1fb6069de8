"""Processes that end with what started them, and a group of them for one run."""

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from torch import distributed

from ltnb.distributed import backend
from ltnb.files import replacing


def in_processes(number: int, function: Callable[..., object], *arguments: object) -> None:
    """Call ``function`` in so many new processes of this machine, which form a group.

    They end with this call, also where it is interrupted, and with the process that makes it, however that ends.

    Args:
        number: of processes.
        function: one that a new process can import.
        arguments: of the function, the same in every process.

    Raises:
        BaseException: what the function raised in one of them, its traceback there being the cause. One that cannot be
            sent from there is told by a `RuntimeError`.
        ChildProcessError: one was ended by a signal, as where memory ran out.
    """
    # Processes that torch.multiprocessing.spawn starts go on when this one is interrupted or killed.
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = [
            context.Process(target=_process, args=(process, number, folder, function, arguments))
            for process in range(number)
        ]
        try:
            for process in processes:
                process.start()
            _wait_for_the_end(processes, folder)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join()


def end_with_parent() -> None:
    """Have this process end when the one that started it does, whatever it is waiting for then."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _wait_for_the_end(processes: Sequence[BaseProcess], folder: Path) -> None:
    """Return when all have ended well; raise what the first one met that has not."""
    running = list(processes)
    while running:
        wait([process.sentinel for process in running])
        # Asked once, so that no process ends between what is decided by it and what is waited for next.
        codes = [process.exitcode for process in processes]
        for number, code in enumerate(codes):  # before an error for want of an answer from it
            if code is not None and code < 0:
                name = signal.Signals(-code).name
                raise ChildProcessError(f"process {number} of {len(processes)} was ended by {name}")
        if any(codes):
            # The first one failed; those after it, for want of an answer from it.
            first = min(folder.glob("error-*"), key=lambda file: file.stat().st_mtime_ns)
            told, where = pickle.loads(first.read_bytes())
            raise pickle.loads(told) from ChildProcessError(where)
        running = [process for process, code in zip(processes, codes, strict=True) if code is None]


def _process(
    process: int, number: int, folder: Path, function: Callable[..., object], arguments: Sequence[object]
) -> None:
    end_with_parent()
    os.environ["LOCAL_RANK"] = str(process)
    os.environ["LOCAL_WORLD_SIZE"] = str(number)  # processes share this machine's processors for decoding, too
    try:
        distributed.init_process_group(
            backend(),
            init_method=(folder / "meeting").as_uri(),
            rank=process,
            world_size=number,
        )
        function(*arguments)
        # Not after an error: NCCL would wait for the others, who wait for this process.
        distributed.destroy_process_group()
    except BaseException as error:
        with replacing(folder / f"error-{process}") as file:
            file.write_bytes(pickle.dumps((_pickled(error), f"\n{traceback.format_exc()}")))
        sys.exit(1)  # told by the process that waits for it, not by this one as well


def _pickled(error: BaseException) -> bytes:
    """Return ``error`` as it can be sent; one that cannot be read back, by its name and message."""
    try:
        pickle.loads(content := pickle.dumps(error))
    except Exception:
        content = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content
