"""What a training run leaves behind, and how to read it back.

A run's folder, ``runs/<dataset>/<method>/seed-<n>/``, holds

- ``params.json``: resolved settings, class counts, encoder, device, versions, fingerprints of data and code;
- ``metrics.json``: flat, accuracies in [0, 1]; a group without classes is absent;
- ``history.csv``: a row an epoch;
- ``embeddings.npz``: features and projections of training and test images, logits of the test images, classifier,
  prototypes;
- ``model.safetensors``: the weights;
- ``notebook.ipynb``: the notebook that ran, where a notebook did.

Where training labels are wrong, ``params.json`` has ``noise``: the rates and the transition matrix that were wanted and
that came about. ``metrics.json`` and the evaluated epochs of ``history.csv`` have ``train_accuracy_clean``, by the true
labels, and of the images with a wrong label ``memorised`` and ``recovered``, the shares predicted as that label and as
the true class. ``embeddings.npz`` has ``train_clean_labels``; ``train_labels`` are those that are given.

``metrics.json`` is written last: a folder that has it is complete.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.torch import save_file
from torch import Tensor

from ltnb.files import replacing


@dataclass(frozen=True)
class Arrays(Mapping[str, np.ndarray]):
    """The arrays of an ``.npz`` file by name, each read anew when it is asked for: those of many runs need memory."""

    file: Path
    names: tuple[str, ...]

    @classmethod
    def of(cls, file: Path) -> "Arrays":
        """Look at which arrays ``file`` has."""
        with np.load(file, allow_pickle=False) as arrays:
            return cls(file, tuple(arrays.files))

    def __getitem__(self, name: str) -> np.ndarray:
        """Read one."""
        if name not in self.names:
            raise KeyError(name)
        with np.load(self.file, allow_pickle=False) as arrays:
            array: np.ndarray = arrays[name]
            return array

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self.names)


@dataclass(frozen=True)
class Run:
    """A finished run, read back from its folder."""

    folder: Path
    params: dict[str, Any]
    metrics: dict[str, float]
    history: pd.DataFrame
    embeddings: Mapping[str, np.ndarray]

    @property
    def dataset(self) -> str:
        """The dataset's key in ``params.yaml``."""
        return str(self.params["dataset_name"])

    @property
    def method(self) -> str:
        """The method's key in ``params.yaml``."""
        return str(self.params["method_name"])

    @property
    def seed(self) -> int:
        """The seed of weights, order and augmentation."""
        return int(self.params["seed"])


def write(
    folder: Path,
    *,
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
    history: pd.DataFrame,
    embeddings: Mapping[str, np.ndarray],
    weights: Mapping[str, Tensor],
) -> None:
    """Write a run into ``folder``, each file whole, ``metrics.json`` last. Same content, same bytes."""
    (folder / "metrics.json").unlink(missing_ok=True)
    with replacing(folder / "params.json") as file:
        file.write_text(json.dumps(params, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    with replacing(folder / "history.csv") as file:
        history.to_csv(file, index=False)
    with replacing(folder / "embeddings.npz") as file:
        np.savez(file, allow_pickle=False, **embeddings)
    with replacing(folder / "model.safetensors") as file:
        save_file({name: weight.contiguous() for name, weight in weights.items()}, file)
    with replacing(folder / "metrics.json") as file:
        file.write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def read(folder: Path) -> Run:
    """Read the run in ``folder``.

    Raises:
        FileNotFoundError: the folder holds no complete run; the message names the missing file.
    """
    for name in ("metrics.json", "params.json", "history.csv", "embeddings.npz"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; expected a finished run (see `make repro`)")
    return Run(
        folder=folder,
        params=json.loads((folder / "params.json").read_text(encoding="utf-8")),
        metrics=json.loads((folder / "metrics.json").read_text(encoding="utf-8")),
        history=pd.read_csv(folder / "history.csv"),
        embeddings=Arrays.of(folder / "embeddings.npz"),
    )
