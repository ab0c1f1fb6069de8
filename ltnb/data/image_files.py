"""Images that lie in files of their own: decoded when they are asked for, each to one size."""

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from tqdm import tqdm

_AT_ONCE = 1024  # after a file that cannot be read no more than these are begun

Result = TypeVar("Result")


@dataclass(frozen=True)
class Examined:
    """What a look at each of some files has told."""

    digests: NDArray[np.uint8]  #: (N, 32), the SHA-256 of each file's bytes
    histograms: NDArray[np.int64]  #: (3, 256), how often each value occurs in a channel of all the decoded images


@dataclass(frozen=True)
class ImageFiles:
    """Files in the order of a source's rows."""

    files: Sequence[str | Path]

    def read(self, index: Tensor, size: int) -> Tensor:
        """The images of the rows `index` as (N, 3, size, size) uint8: the square in the middle, scaled.

        Scaling is bilinear, over all pixels that fall into one (antialiased). Grey becomes red, green and blue alike.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: one cannot be decoded; the message names it.
        """
        pixels = np.empty((len(index), 3, size, size), dtype=np.uint8)
        files = [self.files[row] for row in index.tolist()]

        def fill(place: int) -> None:
            pixels[place] = _channels_first(_decode(files[place], size))

        for _ in _side_by_side(fill, len(files), "reading"):
            pass
        return torch.from_numpy(pixels)

    def examine(self, index: Tensor, size: int) -> Examined:
        """Decode the images of the rows `index` as `read` does, and keep none: for what lies in files for good.

        Raises:
            FileNotFoundError: as `read`.
            ValueError: likewise.
        """
        files = [self.files[row] for row in index.tolist()]

        def look(place: int) -> tuple[bytes, list[int]]:
            content = _content(files[place])
            return hashlib.sha256(content).digest(), _decoded(content, files[place], size).histogram()

        digests = np.empty((len(files), 32), dtype=np.uint8)
        histograms = np.zeros(3 * 256, dtype=np.int64)
        for place, (digest, histogram) in enumerate(_side_by_side(look, len(files), "examining")):
            digests[place] = np.frombuffer(digest, dtype=np.uint8)
            histograms += histogram
        return Examined(digests, histograms.reshape(3, 256))


@dataclass(frozen=True)
class FiledImages:
    """Images of a data set that stay in their files, and must be the same bytes whenever one is read.

    Names and digests are tensors, which processes that decode can share, however many files there are.
    """

    root: Path  #: what the names begin at
    names: Tensor  #: uint8, the names of all files, each followed by a zero, as `joined` makes it
    ends: Tensor  #: (N,) int64, the places of the zeros
    digests: Tensor  #: (N, 32) uint8, the SHA-256 of each file's bytes
    size: int  #: height and width that they are decoded to

    @classmethod
    def of(cls, root: Path, names: Tensor, digests: Tensor, size: int) -> "FiledImages":
        """Images below `root`.

        Raises:
            ValueError: there are not as many names as digests.
        """
        ends = torch.nonzero(names == 0).squeeze(1)
        if len(ends) != len(digests):
            raise ValueError(f"{len(ends)} names and {len(digests)} digests; expected as many")
        return cls(root, names, ends, digests, size)

    def share(self) -> None:
        """Move names and digests to memory that other processes are given without a copy."""
        for tensor in (self.names, self.ends, self.digests):
            tensor.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def shape(self) -> torch.Size:
        """(N, 3, size, size)."""
        return torch.Size((len(self), 3, self.size, self.size))

    def __len__(self) -> int:
        """N."""
        return len(self.digests)

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """Decode the images of some rows, (n, 3, size, size) uint8, one after the other: for a few of them.

        Raises:
            FileNotFoundError: as `decode`.
            ValueError: likewise.
        """
        rows = torch.arange(len(self))[index].tolist()
        images = torch.empty(len(rows), *self.shape[1:], dtype=torch.uint8)
        self.decode(rows, images)
        return images

    def file(self, row: int) -> Path:
        """Where an image lies."""
        start, end = int(self.ends[row - 1]) + 1 if row else 0, int(self.ends[row])
        return self.root / os.fsdecode(self.names[start:end].numpy().tobytes())

    def decode(self, rows: Sequence[int], images: Tensor) -> None:
        """Write the images of `rows` into `images`, (n, 3, size, size) uint8.

        Raises:
            FileNotFoundError: a file has gone since it was examined.
            ValueError: one has other bytes than then; the message names it.
        """
        pixels = images.numpy()
        for place, row in enumerate(rows):
            file = self.file(row)
            content = _content(file)
            if hashlib.sha256(content).digest() != self.digests[row].numpy().tobytes():
                raise ValueError(
                    f"{file} is not what it was when the data set was prepared (another SHA-256); expected the same "
                    "file, or the data set to be prepared again"
                )
            pixels[place] = _channels_first(_decoded(content, file, self.size))


def joined(names: Iterable[str]) -> NDArray[np.uint8]:
    """The names of files as one array of bytes, a zero after each, which no name can have."""
    content = b"".join(os.fsencode(name) + b"\0" for name in names)
    return np.frombuffer(content, dtype=np.uint8)


def _side_by_side(work: Callable[[int], Result], count: int, what: str) -> Iterator[Result]:
    """Yield `work(0)` … `work(count - 1)`, done by threads: decoders let go of Python's lock."""
    with (
        ThreadPoolExecutor(cpu_count()) as pool,
        tqdm(total=count, desc=what, unit=" images", disable=None) as progress,
    ):
        for first in range(0, count, _AT_ONCE):
            for result in pool.map(work, range(first, min(first + _AT_ONCE, count))):
                progress.update()
                yield result


def _content(file: str | Path) -> bytes:
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} is missing") from None
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _decode(file: str | Path, size: int) -> Image.Image:
    return _decoded(_content(file), file, size)


def _decoded(content: bytes, file: str | Path, size: int) -> Image.Image:
    try:
        with Image.open(io.BytesIO(content)) as image:
            mode = image.mode
            if mode[0] in "IF":  # which Pillow would cut off at 255
                raise ValueError(f"its pixels are more than bytes ({mode}); expected 8 bits a channel")
            colours = image.convert("RGB")
    except UnidentifiedImageError as error:  # whose message names the memory
        raise ValueError(f"{file} cannot be decoded: no format that Pillow knows") from error
    # What Pillow raises, depending on the format and the byte that is wrong.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} cannot be decoded: {error}") from error
    width, height = colours.size
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        colours = colours.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return colours


def _channels_first(image: Image.Image) -> NDArray[np.uint8]:
    return np.asarray(image).transpose(2, 0, 1)
