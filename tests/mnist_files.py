"""Files in the format of MNIST, with images that tell where they come from."""

import struct
from pathlib import Path

import numpy as np


def write_mnist(root: Path, train_per_class: int, test_per_class: int) -> None:
    """Write images in MNIST's files, each of one grey of its own, classes in turn."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    first = 0
    for part, per_class in (("train", train_per_class), ("t10k", test_per_class)):
        labels = np.tile(np.arange(10, dtype=np.uint8), per_class)
        images = np.empty((len(labels), 28, 28), dtype=np.uint8)
        images[:] = (np.arange(first, first + len(labels)) % 256)[:, None, None]
        first += len(labels)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (folder / f"{part}-{name}-ubyte").write_bytes(head + array.tobytes())
