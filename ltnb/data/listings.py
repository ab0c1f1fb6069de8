"""Which images there are, and of which classes, where only a folder, two lists or an archive can tell.

Without torch, and without opening an image: settings are checked by it before anything runs.
"""

import math
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltnb.data.facts import LARGEST_BYTES, Facts
from ltnb.data.mappings import CIFAR10_CLASSES, CIFAR100_CLASSES

IMAGE_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
PARTS = ("train", "test")

#: What numpy and zipfile raise on reading an archive, depending on the byte that is wrong.
DAMAGES = (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Listing:
    """All images of a source, the training images first."""

    class_names: tuple[str, ...]
    labels: tuple[int, ...]  #: the class of each image
    num_train: int  #: how many of them are for training
    files: tuple[str, ...] = ()  #: where each image lies; none of an archive's
    channels: int = 3

    @property
    def facts(self) -> Facts:
        """What is known of a source once its images are listed."""
        sizes = [[0] * len(self.class_names) for _ in PARTS]
        for place, label in enumerate(self.labels):
            sizes[place >= self.num_train][label] += 1
        mappings = {CIFAR10_CLASSES: ("cifar10",), CIFAR100_CLASSES: ("cifar100-blocks", "cifar100-superclasses")}
        return Facts(
            class_sizes=tuple(sizes[0]),
            test_sizes=tuple(sizes[1]),
            channels=self.channels,
            test_per_class="all",
            image_size=None,
            noise_mappings=mappings.get(self.class_names, ()),
            on_disk=True,
        )


def folder(root: Path) -> Listing:
    """List `root`/train/<class>/* and `root`/test/<class>/*: classes, and the images of each, in the order of names.

    What begins with a dot is passed over, and so is a file beside the folders of classes.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: the two parts have other classes, there are fewer than two, one has a name that is not in UTF-8 or
            is without an image, or something in its folder is no image; the message names it.
    """
    classes = {}
    for part in PARTS:
        place = root / part
        if not place.is_dir():
            raise FileNotFoundError(f"{place} is missing; expected images in {root}/{{train,test}}/<class>/")
        classes[part] = sorted(entry.name for entry in place.iterdir() if entry.is_dir() and entry.name[0] != ".")
        for name in classes[part]:
            if not name.isascii() and os.fsencode(name).decode("utf-8", "replace") != name:
                raise ValueError(f"{place}: {os.fsencode(name)!r} is no name in UTF-8; expected one of every class")
    for part, other in (PARTS, PARTS[::-1]):
        alone = set(classes[part]) - set(classes[other])
        if alone:
            raise ValueError(f"{root / other / min(alone)} is missing: {root / part} has that class; expected the same")
    _check_number(len(classes["train"]), str(root / "train"))
    labels: list[int] = []
    files: list[str] = []
    for part in PARTS:
        num_train = len(files)  # as it stands when the test part begins
        for label, name in enumerate(classes[part]):
            images = _images(root / part / name)
            files += images
            labels += [label] * len(images)
    return Listing(tuple(classes["train"]), tuple(labels), num_train, tuple(files))


def _images(place: Path) -> list[str]:
    with os.scandir(place) as entries:
        images = sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name)
    for entry in images:
        if not entry.name.lower().endswith(IMAGE_ENDINGS) or not entry.is_file():
            raise ValueError(f"{entry.path} is no image; expected files that end in {', '.join(IMAGE_ENDINGS)}")
    if not images:
        raise ValueError(f"{place} has no images; expected at least one of every class")
    return [entry.path for entry in images]


def lists(
    root: Path, train_list: Path, test_list: Path, test_root: Path | None = None, classes: int | None = None
) -> Listing:
    """Read two lists of images, as there are of ImageNet-LT, iNaturalist 2018 and WebVision: lines `path label`.

    Classes are called by their numbers, which begin at 0. An image's place in its list is its place in the source.

    Args:
        root: the folder that the paths begin at.
        train_list: of the training images.
        test_list: of the test images.
        test_root: the folder that the paths in `test_list` begin at; None: `root`.
        classes: K, where both lists have more classes, and only the first K are taken; None: all.

    Raises:
        FileNotFoundError: `root`, `test_root`, a list, or an image that one names is missing.
        ValueError: a line is not of this form, an image stands twice, a class is without an image, or the lists number
            the classes in different orders; the message names list and line.
    """
    seen: dict[str, str] = {}
    entries = []
    for place, file in ((root, train_list), (test_root or root, test_list)):
        if not place.is_dir():
            raise FileNotFoundError(f"{place} is missing; expected the folder that the paths in {file} begin at")
        entries.append(_entries(place, file, classes, seen))
    train_labels, test_labels = ([label for _, label in part] for part in entries)
    num_classes = _check_labels(train_labels, test_labels, str(train_list), str(test_list))
    if classes is not None and num_classes < classes:
        raise ValueError(f"classes = {classes}: {train_list} has {num_classes}; expected no more than that")
    _check_orders(entries, num_classes, train_list, test_list)
    return Listing(
        class_names=tuple(map(str, range(num_classes))),
        labels=(*train_labels, *test_labels),
        num_train=len(train_labels),
        files=tuple(seen),
    )


def _entries(root: Path, file: Path, classes: int | None, seen: dict[str, str]) -> list[tuple[str, int]]:
    """Of each line the image's path and its label; where it is written goes to `seen`."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected a list of images, lines `path label`")
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()  # of Windows, with a mark of UTF-8 at the head
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text in UTF-8 ({error}); expected lines `path label`") from None
    found = []
    for number, line in enumerate(lines, start=1):
        words = line.rsplit(maxsplit=1)  # a path may have spaces
        if not words:
            continue
        place = f"{file}:{number}"
        if len(words) < 2 or not (words[1].isascii() and words[1].isdecimal()):
            raise ValueError(f"{place}: {line!r}: expected `path label`, the label a number of at least 0")
        label = int(words[1])
        if classes is not None and label >= classes:
            continue
        # Of half a million, text: a path as an object takes ten times as long. Of different spellings it makes one.
        image = os.path.join(root, words[0])
        if "//" in image or "/." in image:
            image = str(Path(image))
        if not os.path.isfile(image):
            raise FileNotFoundError(f"{place}: {image} is missing")
        if image in seen:
            raise ValueError(f"{place}: {image} stands in {seen[image]}, too; expected every image once")
        seen[image] = place
        found.append((image, label))
    return found


def _check_orders(
    entries: Sequence[Sequence[tuple[str, int]]], num_classes: int, train_list: Path, test_list: Path
) -> None:
    """Where both lists have a folder for every class, refuse those that give one folder two numbers."""
    numbers: list[dict[str, int]] = []
    for part in entries:
        of_folders: dict[str, int] = {}
        for path, label in part:
            if of_folders.setdefault(os.path.basename(os.path.dirname(path)), label) != label:
                return
        if len(of_folders) != num_classes:
            return
        numbers.append(of_folders)
    train, test = numbers
    for name in train.keys() & test.keys():
        if train[name] != test[name]:
            raise ValueError(
                f"{test_list}: images in {name}/ have the label {test[name]}, and {train[name]} in {train_list}; "
                "expected the same order of classes"
            )


def npz(file: Path) -> Listing:
    """Read the labels of a numpy archive, and the shapes of its images.

    Its arrays are `train_images` (N, H, W) or (N, H, W, C), uint8, with C = 1 or 3; `train_labels` (N,) or (N, 1),
    whole numbers; and the same of `test`. Classes are called by their numbers, which begin at 0.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, lacks an array, or has one that is not as above, or a class is without an image; the
            message names it. Or they need more memory than `LARGEST_BYTES`.
    """
    import numpy as np  # settings of other sources can be checked without it

    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; expected an archive with the arrays {', '.join(_ARRAYS)}")
    shapes: dict[str, tuple[int, ...]] = {}
    labels: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(file) as archive, np.load(file, allow_pickle=False) as arrays:
            lacking = [name for name in _ARRAYS if name not in arrays.files]
            for part in () if lacking else PARTS:
                shapes[part], kind = _header(archive, f"{part}_images")
                if kind != np.uint8 or len(shapes[part]) not in (3, 4) or not all(shapes[part]):
                    raise _Misfit(f"{part}_images has {kind} of shape {shapes[part]}; expected uint8 (N, H, W[, C])")
                labels[part] = arrays[f"{part}_labels"]
    except _Misfit as error:
        raise ValueError(f"{file}: {error}") from None
    except DAMAGES as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    if lacking:
        raise ValueError(f"{file}: {lacking[0]} is missing; expected the arrays {', '.join(_ARRAYS)}")
    for part in PARTS:
        given = labels[part]
        if given.shape not in ((shapes[part][0],), (shapes[part][0], 1)) or given.dtype.kind not in "iu":
            raise ValueError(
                f"{file}: {part}_labels has {given.dtype} of shape {given.shape}; expected a whole number for each of "
                f"{shapes[part][0]} images"
            )
    _, *size = shapes["train"]
    if list(shapes["test"][1:]) != size or size[2:] not in ([], [1], [3]):
        raise ValueError(
            f"{file}: images have the shapes {shapes['train']} and {shapes['test']}; expected one height and width, "
            "and as many channels, 1 or 3, on the last axis"
        )
    needed = sum(map(math.prod, shapes.values()))
    if needed > LARGEST_BYTES:
        raise ValueError(
            f"{file}: its images are {needed / 2**30:.1f} GiB; expected at most {LARGEST_BYTES / 2**30:g}, since they "
            "are read at once: smaller images, or `folder`"
        )
    train_labels, test_labels = (labels[part].ravel().tolist() for part in PARTS)
    num_classes = _check_labels(train_labels, test_labels, f"{file}: train_labels", f"{file}: test_labels")
    return Listing(
        class_names=tuple(map(str, range(num_classes))),
        labels=(*train_labels, *test_labels),
        num_train=len(train_labels),
        channels=size[2] if len(size) > 2 else 1,
    )


_ARRAYS = tuple(f"{part}_{kind}" for part in PARTS for kind in ("images", "labels"))


class _Misfit(ValueError):
    """An array is whole, and not what was expected."""


def _header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of an array in an archive, which is not read."""
    from numpy.lib import format as npy

    with archive.open(f"{name}.npy") as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype


def _check_labels(train: Sequence[int], test: Sequence[int], train_place: str, test_place: str) -> int:
    """Return K, the number of classes, each of which both parts must have; refuse labels outside 0 … K−1."""
    num_classes = max(train, default=-1) + 1
    _check_number(num_classes, train_place)
    for labels, place in ((train, train_place), (test, test_place)):
        present = set(labels)
        outside = [label for label in present if not 0 <= label < num_classes]
        if outside:
            raise ValueError(f"{place}: label {min(outside)}: expected 0 … {num_classes - 1}, as in {train_place}")
        if len(present) < num_classes:
            empty = next(label for label in range(num_classes) if label not in present)
            raise ValueError(f"{place}: class {empty} of 0 … {num_classes - 1} has no images; expected at least one")
    return num_classes


def _check_number(num_classes: int, place: str) -> None:
    if num_classes < 2:
        raise ValueError(f"{place} has {num_classes} classes; expected at least two")


#: Source name, as in `params.yaml`, to the function that lists its images, given `root` and, if it has any, its lists.
LISTINGS: Mapping[str, Callable[..., Listing]] = {"folder": folder, "lists": lists, "npz": npz}

#: Those of them whose images lie in files of their own, and may stay there.
IN_FILES = ("folder", "lists")
