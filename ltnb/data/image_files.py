"""Images that lie in files of their own: decoded when they are asked for, each to one size."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

_AT_ONCE = 1024  # after a file that cannot be read no more than these are begun


@dataclass(frozen=True)
class ImageFiles:
    """Files in the order of a source's rows."""

    files: Sequence[Path]

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
            pixels[place] = _decode(files[place], size)

        with (
            ThreadPoolExecutor(cpu_count()) as pool,  # decoders let go of Python's lock
            tqdm(total=len(files), desc="reading", unit=" images", disable=None) as progress,
        ):
            for first in range(0, len(files), _AT_ONCE):
                for _ in pool.map(fill, range(first, min(first + _AT_ONCE, len(files)))):
                    progress.update()
        return torch.from_numpy(pixels)


def _decode(file: Path, size: int) -> NDArray[np.uint8]:
    try:
        with Image.open(file) as image:
            colours = image.convert("RGB")
    except FileNotFoundError:
        raise FileNotFoundError(f"{file} is missing") from None
    # What Pillow raises, depending on the format and the byte that is wrong.
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file} cannot be decoded: {error}") from error
    width, height = colours.size
    if (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        colours = colours.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return np.asarray(colours).transpose(2, 0, 1)
