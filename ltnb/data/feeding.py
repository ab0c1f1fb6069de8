"""From the images of a data set to the batches of an epoch, on the device that trains."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from joblib import cpu_count
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ltnb.data.image_files import FiledImages
from ltnb.processes import end_with_parent

# Batches are decoded in pieces, so that all processes begin with the first one and little lies ahead of its use.
_PIECE = 32


class Feed(Protocol):
    """One part of a data set: its images, a batch at a time."""

    def batches(self, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield (n, C, H, W) uint8 on the device for each of ``chosen``, (n,) rows of the part, on the CPU."""
        ...


class HeldFeed:
    """Images that lie on the device, all of them."""

    def __init__(self, images: Tensor, device: torch.device) -> None:
        """Bring ``images`` (N, C, H, W) uint8 to ``device``."""
        self.images = images.to(device)

    def batches(self, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each batch."""
        if len(chosen) == 0:
            return
        # At once: each copy to a device makes the host wait.
        of_all = torch.cat(list(chosen)).to(self.images.device)
        for rows in torch.split(of_all, [len(rows) for rows in chosen]):
            yield self.images[rows]


class FiledFeed:
    """Images that lie in files, decoded ahead of their use by processes that end with the last batch."""

    def __init__(self, images: FiledImages, device: torch.device) -> None:
        """Read ``images`` for ``device``."""
        images.share()
        self.images = images
        self.device = device

    def batches(self, chosen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield the images of each batch.

        Raises:
            FileNotFoundError: a file has gone since the data set was prepared.
            ValueError: one has other bytes than then; the message names it.
            MemoryError: shared memory is too small for the pieces that lie ahead.
        """
        pieces = [piece.tolist() for rows in chosen for piece in torch.split(rows, _PIECE)]
        decoded = iter(self._decoded(pieces))
        try:
            for rows in chosen:
                batch = torch.empty(len(rows), *self.images.shape[1:], dtype=torch.uint8, device=self.device)
                # Each piece is let go as soon as it is copied: shared memory holds no more than those ahead.
                for part in torch.split(batch, _PIECE):
                    part.copy_(_sound(next(decoded)), non_blocking=True)
                yield batch
        finally:
            # Ends the processes. Of an error's traceback, which holds this frame, they would wait for the garbage
            # collection, in which the queues that tell them to end may go first.
            del decoded

    def _decoded(self, pieces: list[list[int]]) -> "DataLoader[Tensor | Exception]":
        # An only piece has none behind it that could be decoded meanwhile.
        workers = min(workers_of_a_process(), len(pieces)) if len(pieces) > 1 else 0
        return DataLoader(
            _Pieces(self.images),
            batch_sampler=pieces,
            num_workers=workers,
            collate_fn=_as_it_is,
            pin_memory=self.device.type == "cuda",
            multiprocessing_context=_clean_processes() if workers else None,
            worker_init_fn=_end_with_trainer,
            # Where one process draws random numbers for its workers, no global state is to change.
            generator=torch.Generator(),
        )


def workers_of_a_process() -> int:
    """How many processes decode for this one: the processors, shared with the others that train on this machine."""
    return max(1, int(cpu_count()) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _clean_processes() -> multiprocessing.context.BaseContext:
    """Processes forked from a server that has no threads: a fork beside threads inherits locks that nobody opens.

    Each of them runs the main module again, as all that are not plainly forked do: what those of this package import,
    the server has imported before. (So a script by itself needs `if __name__ == "__main__"`.)
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "ltnb.training"])  # the main module itself would be run twice
    return context


def _end_with_trainer(_: int) -> None:
    """Have this process end when the one that trains is killed: the server, whose child it is, would go on."""
    end_with_parent()


def _sound(piece: Tensor | Exception) -> Tensor:
    if isinstance(piece, Exception):
        raise piece
    return piece


def _as_it_is(piece: Any) -> Any:
    return piece


class _Pieces(Dataset[Tensor]):
    """Pieces of batches, as `DataLoader` asks for them."""

    def __init__(self, images: FiledImages) -> None:
        self.images = images

    def __getitems__(self, rows: list[int]) -> Tensor | Exception:
        # Shared from the start: a piece of another kind is copied on its way to the process that trains.
        piece = torch.empty(len(rows), *self.images.shape[1:], dtype=torch.uint8)
        try:
            piece.share_memory_()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            return MemoryError(
                f"shared memory has no room for {piece.nbytes / 2**20:.0f} MiB more ({error}); expected twice as much "
                "for every process that decodes: in a container, a larger `--shm-size`"
            )
        try:
            self.images.decode(rows, piece)
        except (OSError, ValueError) as error:
            return error  # raised here, it would reach the other process inside a traceback in text
        return piece


def feed(images: Tensor | FiledImages, device: torch.device) -> Feed:
    """Return what gives the batches of ``images``."""
    return HeldFeed(images, device) if isinstance(images, Tensor) else FiledFeed(images, device)
