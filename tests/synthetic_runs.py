"""Runs made up for tests of what reads runs: cheap, of realistic shape, the tail bent towards the head."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ltnb import runs
from ltnb.data.long_tail import class_groups
from ltnb.geometry import regular_simplex

CLASS_COUNTS = (124, 74, 44, 26, 16, 9, 5, 3, 2, 1)


def make_run(
    folder: Path,
    method: str = "ce",
    seed: int = 0,
    *,
    bend: float = 0.5,
    noise: float = 0.25,
    projections: bool = False,
    class_counts: tuple[int, ...] = CLASS_COUNTS,
    test_images: int = 20,
) -> runs.Run:
    """Write and read back a run whose class means are a regular simplex, the tail bent together by ``bend``."""
    generator = torch.Generator().manual_seed(seed)
    num_classes = len(class_counts)
    vertices = regular_simplex(num_classes, 16, generator=generator)
    pull = torch.linspace(0, bend, num_classes)[:, None]
    means = (1 - pull) * vertices + pull * vertices[-3:].mean(dim=0)

    def draw(counts: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.repeat_interleave(torch.arange(num_classes), torch.tensor(counts))
        return means[labels] + noise * torch.randn(len(labels), 16, generator=generator, dtype=torch.float64), labels

    train, train_labels = draw(class_counts)
    test, test_labels = draw((test_images,) * num_classes)
    logits = 5 * test @ vertices.T + torch.log(torch.tensor(class_counts, dtype=torch.float64))
    right = (logits.argmax(dim=1) == test_labels).double()
    embeddings = {
        "train_features": train,
        "train_labels": train_labels,
        "test_features": test,
        "test_labels": test_labels,
        "test_logits": logits,
        "classifier_weight": vertices,
        "class_counts": torch.tensor(class_counts),
    }
    if projections:
        for split, features in (("train", train), ("test", test)):
            embeddings[f"{split}_projections"] = torch.nn.functional.normalize(features)
    metrics = {"accuracy": right.mean().item(), "train_accuracy": 1.0}
    for k in range(num_classes):
        metrics[f"accuracy_class_{k}"] = right[test_labels == k].mean().item()
    for group, classes in class_groups(class_counts).items():
        metrics[f"accuracy_{group}"] = right[torch.isin(test_labels, classes)].mean().item()
    epochs = np.arange(1, 11)
    test_accuracy = np.where(epochs % 5 == 0, metrics["accuracy"] * epochs / 10, np.nan)
    history = pd.DataFrame(
        {
            "epoch": epochs,
            "learning_rate": 0.1,
            "total": np.exp(-epochs / 3),
            "train_accuracy": 1 - np.exp(-epochs / 2),
            "test_accuracy": test_accuracy,
            **{f"test_accuracy_{group}": test_accuracy for group in class_groups(class_counts)},
        }
    )
    target = folder / "digits-if100" / method / f"seed-{seed}"
    runs.write(
        target,
        params={
            "dataset_name": "digits-if100",
            "method_name": method,
            "seed": seed,
            "training": {"epochs": 10},
            "class_counts": list(class_counts),
            "class_names": [str(k) for k in range(num_classes)],
            "encoder": {"name": "resnet8", "parameters": 77000},
            "device": "cpu",
        },
        metrics=metrics,
        history=history,
        embeddings={
            name: values.float().numpy() if values.is_floating_point() else values.numpy()
            for name, values in embeddings.items()
        },
        weights={},
    )
    return runs.read(target)
