"""Where images come from: each source gives all its images, or the files that they lie in, and their labels."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from ltnb.data.facts import Facts
from ltnb.data.image_files import ImageFiles
from ltnb.data.listings import DAMAGES
from ltnb.data.mappings import CIFAR10_CLASSES, CIFAR100_CLASSES
from ltnb.data.settings import DatasetSettings


@dataclass(frozen=True)
class Source:
    """All images of a source, before any split of ours."""

    images: Tensor | ImageFiles  #: (N, C, H, W) uint8, 0 to 255, where all have one size; or N files
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


def cifar10(root: Path) -> Source:
    """50,000 training and 10,000 test images of ten kinds of things, 32 × 32 pixels (Krizhevsky 2009).

    Raises:
        FileNotFoundError: one of the files is not in `root`/cifar-10-batches-py.
        ValueError: one of them is not what was published; the message names it.
    """
    from torchvision.datasets import CIFAR10

    return _cifar(CIFAR10, root, CIFAR10_CLASSES)


def cifar100(root: Path) -> Source:
    """As `cifar10`, of a hundred kinds, in `root`/cifar-100-python: the fine labels, not the twenty coarse ones."""
    from torchvision.datasets import CIFAR100

    return _cifar(CIFAR100, root, CIFAR100_CLASSES)


def _cifar(kind: Any, root: Path, class_names: tuple[str, ...]) -> Source:
    from torchvision.datasets.utils import calculate_md5

    folder = root / kind.base_folder
    for name, md5 in (*kind.train_list, *kind.test_list, (kind.meta["filename"], kind.meta["md5"])):
        file = folder / name
        if not file.is_file():
            packed = root / kind.filename
            found = f"; unpack {packed.name} beside its folder" if packed.is_file() else ""
            raise FileNotFoundError(
                f"{file} is missing{found}; expected root to hold {kind.__name__} as torchvision keeps it, or download "
                "to be true"
            )
        actual = calculate_md5(file)
        if actual != md5:
            raise ValueError(f"{file} is damaged, or another one: its MD5 is {actual}, and {md5} was published")
    train, test = (kind(root, train=part, download=False) for part in (True, False))
    labels = train.targets + test.targets
    if set(labels) != set(range(len(class_names))) or tuple(train.classes) != class_names:
        raise ValueError(
            f"{folder} has {len(set(labels))} kinds of labels and {len(train.classes)} names, such as "
            f"{train.classes[0]!r}; expected {len(class_names)}, such as {class_names[0]!r}"
        )
    return Source(
        images=torch.from_numpy(np.concatenate([train.data, test.data])).permute(0, 3, 1, 2).contiguous(),
        labels=torch.tensor(labels),
        class_names=class_names,
        is_test=torch.arange(len(labels)) >= len(train.targets),
    )


def download(source: str, root: Path) -> None:
    """Fetch `cifar10` or `cifar100` into `root`, checked by its MD5, unless it is there; progress goes to stderr.

    Raises:
        ValueError: it cannot be had, or is not what was published; the message names source and folder.
    """
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[source]
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{kind.filename}.lock"):  # two data sets may be prepared at once
            kind(root, download=True)
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"{source} could not be fetched from {kind.url} to {root}: {error}; expected a network, or "
            f"{root / kind.base_folder} from elsewhere"
        ) from error


def archive(file: Path) -> Tensor:
    """The images of a numpy archive that `ltnb.data.listings.npz` has listed, (N, C, H, W): the square in the middle.

    Raises:
        ValueError: it is damaged.
    """
    with np.load(file, allow_pickle=False) as arrays:
        try:
            parts = [torch.from_numpy(arrays[f"{part}_images"]) for part in ("train", "test")]
        except DAMAGES as error:
            raise ValueError(f"{file} is damaged: {error}") from error
    images = torch.cat([part if part.ndim == 4 else part.unsqueeze(3) for part in parts]).movedim(3, 1)
    height, width = images.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return images[:, :, top : top + side, left : left + side]


#: Source name, as in `params.yaml`, to the function that reads it.
SOURCES: dict[str, Callable[[], Source]] = {"digits": digits}

#: Likewise of the sources that are read from a folder, `root`. What `ltnb.data.listings` lists is read by the list.
SOURCES_ON_DISK: dict[str, Callable[[Path], Source]] = {"mnist": mnist, "cifar10": cifar10, "cifar100": cifar100}


def read(settings: DatasetSettings, project: Path) -> tuple[Source, Facts]:
    """Read the source of a data set, in memory or as a list of its files, and what is known of it.

    Args:
        settings: of the data set.
        project: what their relative paths are relative to.

    Raises:
        FileNotFoundError: a file of the source is missing; the message names it.
        ValueError: the source is not as expected, or the settings do not fit it.
    """
    if settings.facts is not None:
        if not settings.facts.on_disk:
            return SOURCES[settings.source](), settings.facts
        root = settings.path("root", project)
        if settings.download:
            download(settings.source, root)
        return SOURCES_ON_DISK[settings.source](root), settings.facts
    listing = settings.listing(project)
    settings.check(listing.facts)
    source = Source(
        images=ImageFiles(listing.files) if listing.files else archive(settings.path("root", project)),
        labels=torch.tensor(listing.labels),
        class_names=listing.class_names,
        is_test=torch.arange(len(listing.labels)) >= listing.num_train,
    )
    return source, listing.facts
