"""Images in the layouts that data sets are read from: folders, lists, archives and torchvision's CIFAR."""

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from torchvision.datasets import CIFAR10, CIFAR100

from ltnb.data.mappings import CIFAR10_CLASSES, CIFAR100_CLASSES

Sizes = Mapping[str, Mapping[str, int]]  # part, class, images


def random_image(number: int, height: int, width: int) -> NDArray[np.uint8]:
    """Noise of its own for every number."""
    return np.random.default_rng(number).integers(256, size=(height, width, 3), dtype=np.uint8)


def write_folder(root: Path, sizes: Sizes, size: tuple[int, int] = (8, 8)) -> list[NDArray[np.uint8]]:
    """Write PNG files to `root`/<part>/<class>/; return their pixels in the order of their names, training first."""
    written = []
    for part in sizes:
        for name in sorted(sizes[part]):
            place = root / part / name
            place.mkdir(parents=True)
            for number in range(sizes[part][name]):
                written.append(random_image(len(written), *size))
                Image.fromarray(written[-1]).save(place / f"{number:03}.png")
    return written


def write_lists(root: Path) -> tuple[Path, Path]:
    """Write a list of each part of a folder, the last file first; classes are numbered in the order of their names."""
    files = []
    for part in ("train", "test"):
        names = sorted(place.name for place in (root / part).iterdir())
        entries = sorted((root / part).glob("*/*"), reverse=True)
        lines = [f"{file.relative_to(root)} {names.index(file.parent.name)}\n" for file in entries]
        files.append(root / f"{part}.txt")
        files[-1].write_text("".join(lines), encoding="utf-8")
    return files[0], files[1]


def write_npz(file: Path, per_class: tuple[int, int], num_classes: int = 3, shape: Sequence[int] = (8, 8, 3)) -> None:
    """Write an archive of noise, classes in turn."""
    arrays: dict[str, NDArray[Any]] = {}
    for part, count in zip(("train", "test"), per_class, strict=True):
        total = count * num_classes
        generator = np.random.default_rng(len(arrays))
        arrays[f"{part}_images"] = generator.integers(256, size=(total, *shape), dtype=np.uint8)
        arrays[f"{part}_labels"] = np.tile(np.arange(num_classes), count)
    np.savez(file, allow_pickle=False, **arrays)


def write_cifar(
    root: Path, num_classes: int, per_class: tuple[int, int], monkeypatch: pytest.MonkeyPatch, *, coarse: bool = False
) -> NDArray[np.uint8]:
    """Write files as torchvision keeps CIFAR-10 or CIFAR-100, classes in turn, and have it expect their checksums.

    `coarse` writes the twenty superclasses of CIFAR-100 in the place of its classes. Returns all images, channels
    last.
    """
    kind, names = (CIFAR10, CIFAR10_CLASSES) if num_classes == 10 else (CIFAR100, CIFAR100_CLASSES)
    folder = root / kind.base_folder
    folder.mkdir(parents=True)
    key = "labels" if num_classes == 10 or coarse else "fine_labels"
    sums: dict[str, str] = {}

    def write(name: str, content: dict[str, Any]) -> None:
        data = pickle.dumps(content)
        (folder / name).write_bytes(data)
        sums[name] = hashlib.md5(data).hexdigest()

    images = []
    for files, count in ((kind.train_list, per_class[0]), (kind.test_list, per_class[1])):
        pixels = np.random.default_rng(count).integers(256, size=(count * num_classes, 3, 32, 32), dtype=np.uint8)
        labels = np.tile(np.arange(num_classes) // (5 if coarse else 1), count)
        images.append(pixels)
        for (name, _), rows in zip(files, np.array_split(np.arange(len(labels)), len(files)), strict=True):
            write(name, {"data": pixels[rows].reshape(-1, 3072), key: labels[rows].tolist()})
    write(kind.meta["filename"], {kind.meta["key"]: list(names)})
    for attribute in ("train_list", "test_list"):
        entries = [[name, sums[name]] for name, _ in getattr(kind, attribute)]
        monkeypatch.setattr(kind, attribute, entries)
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": sums[kind.meta["filename"]]})
    return np.concatenate(images).transpose(0, 2, 3, 1)
