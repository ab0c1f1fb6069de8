"""From settings to the files of a data set, and back.

`prepare` writes two files to a folder, `load` reads them:

- `arrays.npz`: images and labels of the training and the test part, and the row of the source each came from; where
  training labels are wrong, the true ones, too. Images that stay in their files are there as names and SHA-256;
- `dataset.json`: settings, class names and counts, normalisation, and the fingerprint of the arrays; where training
  labels are wrong, how many, as it was wanted and as it came about; where images stay in their files, the folders that
  the names begin at.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltnb.data.image_files import FiledImages, ImageFiles, joined
from ltnb.data.listings import DAMAGES
from ltnb.data.long_tail import class_groups, long_tail_subset
from ltnb.data.noise import asymmetric_noise, realised_transition_matrix, symmetric_noise, transition_matrix
from ltnb.data.settings import DatasetSettings
from ltnb.data.sources import Source, read
from ltnb.files import replacing

_AT_ONCE = 4096  # images that are widened from bytes to numbers

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Dataset:
    """A prepared data set in memory. The training part has the long tail, and wrong labels where settings say so."""

    name: str
    settings: DatasetSettings
    class_names: tuple[str, ...]
    train_images: Tensor | FiledImages  #: (N, C, H, W) uint8, or the files that they are decoded from
    train_labels: Tensor  #: (N,) int64, as they are given
    train_index: Tensor  #: (N,) int64, the row of the source
    test_images: Tensor | FiledImages  #: (M, C, H, W) uint8, likewise
    test_labels: Tensor  #: (M,) int64, always the true ones
    test_index: Tensor  #: (M,) int64
    mean: Tensor  #: (C,) float32, of the training images scaled to [0, 1]
    std: Tensor  #: (C,) float32, likewise
    fingerprint: str  #: SHA-256 of all arrays
    train_clean_labels: Tensor | None = None  #: (N,) int64, the true ones; None where all given labels are
    noise: dict[str, Any] | None = None  #: what `describe_noise` says of the two

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def clean_labels(self) -> Tensor:
        """(N,) int64, the true classes of the training images."""
        return self.train_labels if self.train_clean_labels is None else self.train_clean_labels

    @property
    def class_counts(self) -> Tensor:
        """(K,) int64, training images of each class, as the experiment cut its tail; many, medium and few go by them.

        They count the true labels, or the given ones where the noise came before the tail.
        """
        cut_by = self.train_labels if self.settings.noise_order == "before-tail" else self.clean_labels
        return torch.bincount(cut_by, minlength=self.num_classes)

    @property
    def known_counts(self) -> Tensor:
        """(K,) int64, training images of each class, as far as a method may know: how often each label is given.

        A class can lose all its labels. Then it counts as one image: that there is such a class is known, while a
        prior of zero would say that no image can be of it, a logit of −∞, and margins and weights would be infinite.
        """
        return torch.bincount(self.train_labels, minlength=self.num_classes).clamp(min=1)


def prepare(name: str, settings: DatasetSettings, folder: Path, project: Path = Path()) -> None:
    """Split the source, cut the training part to its long tail, make labels wrong, resize, and write the two files.

    Which images are for testing depends on `source`, `test_per_class` and `seed` alone: they are the same at
    every imbalance factor and with any noise. Likewise the draws of the noise are made for every image that is not
    for testing, whether the tail keeps it or not: an image has the same label at every imbalance factor that has it.
    The same settings give the same bytes. Every image is decoded once, so that a damaged one is told at once, whether
    it is kept or stays in its file.

    Args:
        name: the data set's key in `params.yaml`.
        settings: its row.
        folder: where the files go.
        project: what a relative `root` of the settings is relative to; by default the current folder.

    Raises:
        ValueError: a class of the source, or a label that noise left, is too rare for the settings, or something of
            the source is not as expected; the message names it.
        FileNotFoundError: a file of the source is missing; the message names it.
    """
    source, facts = read(settings, project)
    num_classes = len(source.class_names)
    test, pool = _split(source, settings)
    clean = source.labels[pool]
    given = _given_labels(clean, settings, num_classes)
    class_counts = settings.class_counts(facts)
    if settings.noise_order == "before-tail":
        cut_by = given
        _check_labels_left(torch.bincount(given, minlength=num_classes).tolist(), class_counts)
    else:
        cut_by = clean
    kept = long_tail_subset(cut_by, class_counts, settings.seed if settings.subset == "shuffled" else None)
    train = pool[kept]

    parts = {"train": train, "test": test}
    if isinstance(source.images, ImageFiles) and settings.stays_in_files(facts):
        roots = {"train": settings.path("root", project), "test": settings.test_path(project)}
        images, (mean, std) = _files(source.images, parts, settings.stored_size, roots)
        said = {"train": settings.root, "test": settings.test_root or settings.root}
        files = {"files": {part: _as_seen_from(folder, root, str(said[part])) for part, root in roots.items()}}
    else:
        images = {f"{part}_images": _pixels(source, index, settings.stored_size) for part, index in parts.items()}
        mean, std = channel_statistics(images["train_images"])
        files = {}
    arrays: dict[str, NDArray[Any]] = {}
    for part, index in parts.items():
        arrays |= {name: array for name, array in images.items() if name.startswith(part)}
        arrays |= {f"{part}_labels": source.labels[index].numpy(), f"{part}_index": index.numpy()}
    noise = {}
    if settings.noise != "none":
        arrays |= {"train_labels": given[kept].numpy(), "train_clean_labels": clean[kept].numpy()}
        noise = {"noise": describe_noise(settings, clean[kept], given[kept], num_classes)}
    description = {
        "name": name,
        "settings": settings.model_dump(mode="json"),
        "class_names": source.class_names,
        "class_counts": class_counts,
        "totals": {"train": len(train), "test": len(test)},
        "groups": {group: classes.tolist() for group, classes in class_groups(class_counts).items()},
        "normalisation": {"mean": mean, "std": std},
        **files,
        **noise,
        "fingerprint": fingerprint(arrays),
    }

    with replacing(folder / "arrays.npz") as path:
        np.savez(path, allow_pickle=False, **arrays)
    # Last, because it vouches for the arrays: a kill in between leaves no fingerprint, or an old one that
    # `load` refuses.
    with replacing(folder / "dataset.json") as path:
        path.write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _pixels(source: Source, index: Tensor, size: int) -> NDArray[np.uint8]:
    """The images of the rows `index`, (N, C, size, size) uint8."""
    if isinstance(source.images, Tensor):
        return resize(source.images[index], size).numpy()
    return source.images.read(index, size).numpy()


def _files(
    images: ImageFiles, parts: Mapping[str, Tensor], size: int, roots: Mapping[str, Path]
) -> tuple[dict[str, NDArray[Any]], tuple[list[float], list[float]]]:
    """Of images that stay in their files what `load` needs, and the statistics of the training images."""
    examined = {part: images.examine(index, size) for part, index in parts.items()}
    # The size is what neither names nor digests tell of the images.
    arrays: dict[str, NDArray[Any]] = {f"{part}_size": np.array(size) for part in parts}
    for part, index in parts.items():
        names = (str(images.files[row]).removeprefix(f"{roots[part]}/") for row in index.tolist())
        arrays |= {f"{part}_files": joined(names), f"{part}_digests": examined[part].digests}
    histograms = examined["train"].histograms.tolist()
    totals = [sum(value * count for value, count in enumerate(channel)) for channel in histograms]
    squares = [sum(value**2 * count for value, count in enumerate(channel)) for channel in histograms]
    return arrays, _statistics(sum(histograms[0]), totals, squares)


def _as_seen_from(folder: Path, root: Path, setting: str) -> str:
    """A folder of images as a data set in `folder` finds it again: a relative one may move with the project."""
    if Path(setting).expanduser().is_absolute():
        return os.path.abspath(root)
    return os.path.relpath(root, folder)


def _filed_images(arrays: Arrays, part: str, root: Path) -> FiledImages:
    names, digests = (torch.from_numpy(arrays[f"{part}_{kind}"]) for kind in ("files", "digests"))
    return FiledImages.of(root, names, digests, int(arrays[f"{part}_size"]))


def _split(source: Source, settings: DatasetSettings) -> tuple[Tensor, Tensor]:
    """Return the rows to test on and those that may be trained on, of the source's own split where it has one."""
    may_test = torch.ones_like(source.labels, dtype=torch.bool) if source.is_test is None else source.is_test
    test = torch.nonzero(may_test).squeeze(1)
    if settings.test_per_class != "all":
        counts = [settings.test_per_class] * len(source.class_names)
        test = test[long_tail_subset(source.labels[test], counts, settings.seed)]
    taken = torch.zeros_like(may_test).index_fill(0, test, True) if source.is_test is None else may_test
    return test, torch.nonzero(~taken).squeeze(1)


def _given_labels(clean: Tensor, settings: DatasetSettings, num_classes: int) -> Tensor:
    """Return the labels that the settings' noise makes of the true ones."""
    rate, mapping = settings.noise_rate, settings.mapping
    if rate is None:
        return clean
    if mapping is None:
        return symmetric_noise(clean, rate, num_classes, seed=settings.seed)
    return asymmetric_noise(clean, rate, mapping, seed=settings.seed, num_classes=num_classes)


def _check_labels_left(available: list[int], class_counts: list[int]) -> None:
    """Refuse a tail that wants more labels of a class than the noise has left."""
    for k, (left, wanted) in enumerate(zip(available, class_counts, strict=True)):
        if left < wanted:
            raise ValueError(
                f"largest = {class_counts[0]}: noise before the tail leaves {left} labels of class {k}, and the tail "
                f"wants {wanted}; expected a smaller largest"
            )


def describe_noise(settings: DatasetSettings, clean: Tensor, given: Tensor, num_classes: int) -> dict[str, Any]:
    """How many training labels are wrong, as the settings want it and as it came about.

    Args:
        settings: of a data set with noise.
        clean: (N,) true classes of the training images.
        given: (N,) their labels.
        num_classes: K.

    Returns:
        `rate`, `rates` (K) and `transition_matrix` (K × K, true class by given label), each `wanted` and `realised`;
        `clean_counts` and `label_counts` (K). A class without images has `None` in the place of what was realised.
        Wanted is the law of an image's label given its class. Where the tail is cut by the given labels, after the
        noise, that selects among the images, and what is realised may lie far from it.
    """
    assert settings.noise_rate is not None
    wanted = transition_matrix(settings.noise_rate, num_classes, settings.mapping)
    realised = realised_transition_matrix(clean, given, num_classes)
    clean_counts = torch.bincount(clean, minlength=num_classes)
    seen: list[bool] = (clean_counts > 0).tolist()
    wanted_rates = 1 - wanted.diagonal()

    def of_seen(rows: Tensor) -> list[Any]:
        return [row if known else None for row, known in zip(rows.tolist(), seen, strict=True)]

    return {
        "rate": {
            "wanted": float(clean_counts.double() @ wanted_rates / len(clean)),
            "realised": float((clean != given).double().mean()),
        },
        "rates": {"wanted": wanted_rates.tolist(), "realised": of_seen(1 - realised.diagonal())},
        "transition_matrix": {"wanted": wanted.tolist(), "realised": of_seen(realised)},
        "clean_counts": clean_counts.tolist(),
        "label_counts": torch.bincount(given, minlength=num_classes).tolist(),
    }


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
    except DAMAGES as error:
        raise ValueError(f"{arrays_file} is damaged: {error}") from error
    actual = fingerprint(arrays)
    try:
        description = json.loads(description_file.read_bytes())
        if description["fingerprint"] != actual:
            raise ValueError(f"{arrays_file} has the fingerprint {actual}, expected was {description['fingerprint']}")
        clean_labels = arrays.get("train_clean_labels")
        images: dict[str, Tensor | FiledImages] = {}
        for part in ("train", "test"):
            if f"{part}_files" in arrays:
                # By the letters of the path: a link on the way would lead elsewhere.
                root = Path(os.path.abspath(folder / description["files"][part]))
                images[part] = _filed_images(arrays, part, root)
            else:
                images[part] = torch.from_numpy(arrays[f"{part}_images"])
        return Dataset(
            name=description["name"],
            settings=DatasetSettings.model_validate(description["settings"]),
            class_names=tuple(description["class_names"]),
            mean=torch.tensor(description["normalisation"]["mean"], dtype=torch.float32),
            std=torch.tensor(description["normalisation"]["std"], dtype=torch.float32),
            fingerprint=actual,
            train_images=images["train"],
            train_labels=torch.from_numpy(arrays["train_labels"]),
            train_index=torch.from_numpy(arrays["train_index"]),
            test_images=images["test"],
            test_labels=torch.from_numpy(arrays["test_labels"]),
            test_index=torch.from_numpy(arrays["test_index"]),
            train_clean_labels=None if clean_labels is None else torch.from_numpy(clean_labels),
            noise=None if clean_labels is None else description["noise"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{description_file} does not describe {arrays_file.name}: {error!r}") from error


def resize(images: Tensor, size: int) -> Tensor:
    """Bilinear resize of (N, C, H, W) uint8 images to (N, C, size, size) uint8."""
    if images.shape[2:] == (size, size):
        return images
    resized = [
        torch.nn.functional.interpolate(part.to(torch.float32), size=(size, size), mode="bilinear", antialias=True)
        .round()
        .clamp(0, 255)
        .to(torch.uint8)
        for part in (images[first : first + _AT_ONCE] for first in range(0, len(images), _AT_ONCE))
    ]
    return torch.cat(resized)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[list[float], list[float]]:
    """μ_c and σ_c of each channel of (N, C, H, W) uint8 images, in units of [0, 1].

    From exact sums of whole numbers, so that the results do not depend on the processor.
    """
    count = images[:, 0].size
    totals, squares = [0] * images.shape[1], [0] * images.shape[1]
    for first in range(0, len(images), _AT_ONCE):
        values = images[first : first + _AT_ONCE].astype(np.int64)
        for c in range(images.shape[1]):
            totals[c] += int(values[:, c].sum())
            squares[c] += int((values[:, c] ** 2).sum())
    return _statistics(count, totals, squares)


def _statistics(count: int, totals: Sequence[int], squares: Sequence[int]) -> tuple[list[float], list[float]]:
    # Python's numbers do not overflow: of all of CIFAR, squares times the count are beyond 64 bits.
    variances = [
        float(square * count - total**2) / float(count**2) for total, square in zip(totals, squares, strict=True)
    ]
    return [total / count / 255 for total in totals], [math.sqrt(variance) / 255 for variance in variances]


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the name, dtype, shape and bytes of every array, in the order of their names."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        array = arrays[key]
        digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
