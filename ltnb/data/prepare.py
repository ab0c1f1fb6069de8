"""From settings to the files of a data set, and back.

`prepare` writes two files to a folder, `load` reads them:

- `arrays.npz`: images and labels of the training and the test part, and the row of the source each came from;
- `dataset.json`: settings, class names and counts, normalisation, and the fingerprint of the arrays.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltnb.data.long_tail import class_groups, long_tail_subset
from ltnb.data.profiles import long_tail_counts
from ltnb.data.settings import DatasetSettings
from ltnb.data.sources import SOURCES
from ltnb.files import replacing

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Dataset:
    """A prepared data set in memory. The test part is balanced; the training part has the long tail."""

    name: str
    settings: DatasetSettings
    class_names: tuple[str, ...]
    train_images: Tensor  #: (N, C, H, W) uint8
    train_labels: Tensor  #: (N,) int64
    train_index: Tensor  #: (N,) int64, the row of the source
    test_images: Tensor  #: (M, C, H, W) uint8
    test_labels: Tensor  #: (M,) int64
    test_index: Tensor  #: (M,) int64
    mean: Tensor  #: (C,) float32, of the training images scaled to [0, 1]
    std: Tensor  #: (C,) float32, likewise
    fingerprint: str  #: SHA-256 of all arrays

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def class_counts(self) -> Tensor:
        """(K,) int64, training images of each class."""
        return torch.bincount(self.train_labels, minlength=self.num_classes)


def prepare(name: str, settings: DatasetSettings, folder: Path) -> None:
    """Split the source, cut the training part to its long tail, resize, and write the two files.

    Which images are for testing depends on `source`, `test_per_class` and `seed` alone: they are the same at
    every imbalance factor. The same settings give the same bytes.

    Raises:
        ValueError: a class of the source is too small for the settings.
    """
    source = SOURCES[settings.source]()
    num_classes = len(source.class_names)
    test = long_tail_subset(source.labels, [settings.test_per_class] * num_classes, settings.seed)
    in_test = torch.zeros(len(source.labels), dtype=torch.bool).index_fill(0, test, True)
    pool = torch.nonzero(~in_test).squeeze(1)
    available = torch.bincount(source.labels[pool], minlength=num_classes)
    largest = int(available.min()) if settings.largest is None else settings.largest
    class_counts = long_tail_counts(largest, settings.imbalance, num_classes)
    train = pool[long_tail_subset(source.labels[pool], class_counts, settings.seed)]

    arrays = {}
    for part, index in (("train", train), ("test", test)):
        arrays[f"{part}_images"] = resize(source.images[index], settings.image_size).numpy()
        arrays[f"{part}_labels"] = source.labels[index].numpy()
        arrays[f"{part}_index"] = index.numpy()
    mean, std = channel_statistics(arrays["train_images"])
    description = {
        "name": name,
        "settings": settings.model_dump(mode="json"),
        "class_names": source.class_names,
        "class_counts": class_counts,
        "totals": {"train": len(train), "test": len(test)},
        "groups": {group: classes.tolist() for group, classes in class_groups(class_counts).items()},
        "normalisation": {"mean": mean, "std": std},
        "fingerprint": fingerprint(arrays),
    }

    with replacing(folder / "arrays.npz") as path:
        np.savez(path, allow_pickle=False, **arrays)
    # Last, because it vouches for the arrays: a kill in between leaves no fingerprint, or an old one that
    # `load` refuses.
    with replacing(folder / "dataset.json") as path:
        path.write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load(folder: Path) -> Dataset:
    """Read what `prepare` wrote, and make sure that it is what was written.

    Raises:
        FileNotFoundError: one of the two files is missing.
        ValueError: a file is damaged, or the two do not belong together; the message names the file.
    """
    arrays_file, description_file = folder / "arrays.npz", folder / "dataset.json"
    content = arrays_file.read_bytes()
    try:
        with np.load(io.BytesIO(content)) as stored:
            arrays = {key: stored[key] for key in stored.files}
    # What numpy and zipfile raise, depending on the byte that is wrong.
    except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{arrays_file} is damaged: {error}") from error
    actual = fingerprint(arrays)
    try:
        description = json.loads(description_file.read_bytes())
        if description["fingerprint"] != actual:
            raise ValueError(f"{arrays_file} has the fingerprint {actual}, expected was {description['fingerprint']}")
        return Dataset(
            name=description["name"],
            settings=DatasetSettings.model_validate(description["settings"]),
            class_names=tuple(description["class_names"]),
            mean=torch.tensor(description["normalisation"]["mean"], dtype=torch.float32),
            std=torch.tensor(description["normalisation"]["std"], dtype=torch.float32),
            fingerprint=actual,
            train_images=torch.from_numpy(arrays["train_images"]),
            train_labels=torch.from_numpy(arrays["train_labels"]),
            train_index=torch.from_numpy(arrays["train_index"]),
            test_images=torch.from_numpy(arrays["test_images"]),
            test_labels=torch.from_numpy(arrays["test_labels"]),
            test_index=torch.from_numpy(arrays["test_index"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{description_file} does not describe {arrays_file.name}: {error!r}") from error


def resize(images: Tensor, size: int) -> Tensor:
    """Bilinear resize of (N, C, H, W) uint8 images to (N, C, size, size) uint8."""
    resized = torch.nn.functional.interpolate(
        images.to(torch.float32), size=(size, size), mode="bilinear", antialias=True
    )
    return resized.round().clamp(0, 255).to(torch.uint8)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[list[float], list[float]]:
    """μ_c and σ_c of each channel of (N, C, H, W) uint8 images, in units of [0, 1].

    From exact integer sums, so that the numbers do not depend on the processor.
    """
    values = images.astype(np.int64)
    count = values[:, 0].size
    total, squares = values.sum(axis=(0, 2, 3)), (values**2).sum(axis=(0, 2, 3))
    mean = total / count
    std = np.sqrt((squares * count - total**2) / count**2)
    return (mean / 255).tolist(), (std / 255).tolist()


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the name, dtype, shape and bytes of every array, in the order of their names."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
