"""Where images come from: each source gives all its images and labels at their own size."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Source:
    """All images of a source, before any split of ours."""

    images: Tensor  #: (N, C, H, W) uint8, 0 to 255
    labels: Tensor  #: (N,) int64
    class_names: tuple[str, ...]
    is_test: Tensor | None = None  #: (N,) bool, the source's own test split, which is never trained on


def digits() -> Source:
    """1,797 handwritten digits of 8 × 8 pixels, part of scikit-learn (UCI optical recognition, test part).

    A pixel counts the 0 to 16 inked points of a 4 × 4 block of the scan, here stretched to 0 … 255.
    """
    from sklearn.datasets import load_digits  # a second of import that only `prepare` has to pay

    bunch = load_digits()
    blocks = torch.from_numpy(bunch.images)
    return Source(
        images=(blocks * (255 / 16)).round().to(torch.uint8).unsqueeze(1),
        labels=torch.from_numpy(bunch.target).to(torch.int64),
        class_names=tuple(str(name) for name in bunch.target_names),
    )


def mnist(root: Path) -> Source:
    """60,000 training and 10,000 test images of handwritten digits, 28 × 28 pixels (LeCun et al. 1998).

    Raises:
        FileNotFoundError: one of the four files is not in `root`/MNIST/raw.
        ValueError: one of them is not whole; the message names it.
    """
    from torchvision.datasets import MNIST  # seconds of import

    counts = {}
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        file = root / "MNIST" / "raw" / f"{name}-ubyte"
        if not file.is_file():
            packed = file.with_name(f"{file.name}.gz")
            found = f"; unpack {packed.name} beside it" if packed.is_file() else ""
            raise FileNotFoundError(f"{file} is missing{found}; expected root to hold MNIST as torchvision keeps it")
        # Of big-endian 32-bit numbers: 8, for bytes, and the number of axes; then their lengths.
        axes = int(name[-1])
        with file.open("rb") as stream:
            head = stream.read(4 * (1 + axes))
        lengths = [int.from_bytes(head[place : place + 4]) for place in range(4, len(head), 4)]
        whole = 4 * (1 + axes) + math.prod(lengths)
        if (
            head[:4] != bytes([0, 0, 8, axes])
            or file.stat().st_size != whole
            or (axes == 3) != (lengths[1:] == [28, 28])
        ):
            raise ValueError(f"{file} is damaged: {file.stat().st_size} bytes; expected MNIST's format, all of it")
        counts[name] = lengths[0]
    for part in ("train", "t10k"):
        images, labels = counts[f"{part}-images-idx3"], counts[f"{part}-labels-idx1"]
        if images != labels:
            raise ValueError(
                f"{root / 'MNIST' / 'raw'} has {images} images and {labels} labels of {part}; expected as many"
            )
    train, test = (MNIST(root, train=part, download=False) for part in (True, False))
    return Source(
        images=torch.cat([train.data, test.data]).unsqueeze(1),
        labels=torch.cat([train.targets, test.targets]),
        class_names=tuple("0123456789"),
        is_test=torch.arange(len(train) + len(test)) >= len(train),
    )


#: Source name, as in `params.yaml`, to the function that reads it.
SOURCES: dict[str, Callable[[], Source]] = {"digits": digits}

#: Likewise of the sources that are read from a folder, `root`.
SOURCES_ON_DISK: dict[str, Callable[[Path], Source]] = {"mnist": mnist}


def read(source: str, root: Path | None) -> Source:
    """All images of a source, from `root` if it is read from disk."""
    return SOURCES[source]() if root is None else SOURCES_ON_DISK[source](root)
