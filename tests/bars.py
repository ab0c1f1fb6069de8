"""A data set that a network learns in seconds, and the settings of a run on it."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from ltnb.data.prepare import Dataset, describe_noise
from ltnb.data.settings import DatasetSettings
from ltnb.methods import CrossEntropy, MethodSettings
from ltnb.params import RunSettings, TrainingSettings

COUNTS = [24, 9, 4, 1]
DATASET = DatasetSettings(source="digits", imbalance=24, image_size=8)


def bars() -> Dataset:
    """Four classes that can be told apart: a bright row at a height of the class's own, in noise."""
    generator = torch.Generator().manual_seed(0)

    def part(counts: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        labels = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
        images = torch.randint(0, 60, (len(labels), 1, 8, 8), generator=generator, dtype=torch.uint8)
        images[torch.arange(len(labels)), 0, 2 * labels] += 180
        return images, labels, torch.arange(len(labels))

    return Dataset(
        "bars",
        DATASET,
        ("a", "b", "c", "d"),
        *part(COUNTS),
        *part([5] * 4),
        mean=torch.tensor([0.2]),
        std=torch.tensor([0.25]),
        fingerprint="0" * 64,
    )


def noisy_bars(given: Tensor) -> Dataset:
    """The bars with these training labels (N,) in the place of the true ones."""
    clean = bars()
    settings = DatasetSettings(**DATASET.model_dump(), noise="symmetric", noise_rate=0.4)
    return dataclasses.replace(
        clean,
        settings=settings,
        train_labels=given,
        train_clean_labels=clean.train_labels,
        noise=describe_noise(settings, clean.train_labels, given, clean.num_classes),
        fingerprint="2" * 64,
    )


def settings_of(method: MethodSettings | None = None, **changes: Any) -> RunSettings:
    """A run of four epochs of three batches, but for the ``changes`` of its protocol."""
    few = {"epochs": 4, "warmup_epochs": 1, "batch_size": 16, "evaluate_every": 2, "checkpoint_every": 1, "threads": 1}
    return RunSettings(
        dataset_name="bars",
        dataset=DATASET,
        method_name="m",
        method=method or CrossEntropy(),  # type: ignore[arg-type]
        seed=changes.pop("seed", 0),
        training=TrainingSettings(**{**few, **changes}),
    )
