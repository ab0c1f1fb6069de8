"""The presets of CIFAR: the classes fit the networks, and every row trains on small images in CIFAR's layout."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from image_sources import write_cifar, write_folder

from ltnb import params, preset_results, presets
from ltnb.data.mappings import CIFAR10_CLASSES
from ltnb.models.encoders import encoder
from ltnb.params import Params
from ltnb.workspace import Workspace

PROJECT = Path(__file__).parents[1]
NAMES = ["cifar10-lt", "cifar100-lt", "cifar100-lt-bce3s", "noise-cifar10", "noise-cifar100", "cifar10-images"]


def in_miniature(preset: Params, root: Path, **dataset: Any) -> Params:
    """Every row on the first data set, and another where labels are wrong in another way: two epochs of ResNet-8,
    or of the 4-layer CNN, whose 128 features hold the simplex of 100 classes as those of larger networks do.

    Images have 8 × 8 pixels, of each class 6 at most; heads are classes of more than 3.
    """
    few: dict[str, Any] = {"root": str(root), "largest": 6, "image_size": 8, **dataset}
    chosen = {settings.noise: name for name, settings in reversed(preset.datasets.items())}
    datasets = {
        name: settings.model_copy(update={**few, "imbalance": 3.0 if settings.imbalance != 1 else 1.0})
        for name, settings in preset.datasets.items()
        if name in chosen.values()
    }
    methods = {}
    for name, method in preset.methods.items():
        changes = {"second_stage_epochs": 1, "head_above": 3, "queue_size": 64}
        methods[name] = method.model_copy(
            update={key: value for key, value in changes.items() if method.has_effect(key)}
        )
    few = {"epochs": 2, "warmup_epochs": 0, "batch_size": 64, "evaluate_every": 1}
    narrow = encoder(preset.training.encoder, 3).feature_dim <= 64
    training = preset.training.model_copy(update={"encoder": "resnet8" if narrow else "cnn4", **few})
    return preset.model_copy(update={"datasets": datasets, "methods": methods, "training": training})


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, tmp_path)


def accuracies(name: str, preset: Params, place: Workspace) -> pd.DataFrame:
    """Train every row on every data set, record it and read what was recorded: a row of all groups for each."""
    preset_results.record(presets.runs(place, name, preset, list(preset.methods), [0]), name, preset, place.project)
    found = preset_results.accuracy(name, preset, place.project)
    return found[found["group"] == "all"]


def check_in_miniature(name: str, preset: Params, place: Workspace) -> None:
    found = accuracies(name, preset, place)
    expected = {(dataset, method, 0) for dataset in preset.datasets for method in preset.methods}
    assert set(found[["dataset", "method", "seed"]].itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize("name", NAMES[:5])
def test_every_row_fits_the_classes_and_the_network(name: str) -> None:
    preset = presets.load(name, PROJECT)
    feature_dim = encoder(preset.training.encoder, 3).feature_dim
    for dataset in preset.datasets.values():
        assert dataset.facts is not None
        for method in preset.methods.values():
            method.check_classes(dataset.expected_label_counts(dataset.facts), feature_dim)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("cifar10-lt", [12406, 13996, 20431]), ("cifar100-lt", [10847, 12608, 19573]),
     ("cifar100-lt-bce3s", [10847, 12608, 19573]), ("noise-cifar10", [50000] * 8), ("noise-cifar100", [50000] * 8)],
)  # fmt: skip
def test_training_images_are_as_many_as_the_papers_have(name: str, sizes: list[int]) -> None:
    datasets = presets.load(name, PROJECT).datasets.values()
    assert [sum(dataset.class_counts(dataset.facts)) for dataset in datasets if dataset.facts] == sizes


@pytest.mark.parametrize("name", ["noise-cifar10", "noise-cifar100"])
def test_losses_for_wrong_labels_have_the_parameters_of_the_papers_code(name: str) -> None:
    table = pd.read_csv(PROJECT / "presets" / "noise-parameters.csv")
    table = table[
        (table["dataset"] == name.removeprefix("noise-")) & table["source"].str.startswith("HanxunH/Active-Passive")
    ]
    wanted = {
        str(loss): dict(zip(rows["parameter"], rows["value"].astype(float), strict=True))
        for loss, rows in table.groupby("loss")
    }
    methods = presets.load(name, PROJECT).methods
    for method in methods.values():
        given = {key: float(value) for key, value in method.slots().items() if key in set(table["parameter"])}
        assert given == wanted.get(method.classification, {})
    assert wanted.keys() <= {method.classification for method in methods.values()}


@pytest.mark.parametrize("name", ["cifar10-lt", "noise-cifar10"])
def test_cifar10_in_miniature(name: str, place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    root = place.folder / "files"
    write_cifar(root, 10, (6, 2), monkeypatch)
    check_in_miniature(name, in_miniature(presets.load(name, PROJECT), root), place)


@pytest.mark.filterwarnings("ignore:100 prototypes in R.64 cannot form a regular simplex")
@pytest.mark.parametrize("name", ["cifar100-lt", "cifar100-lt-bce3s", "noise-cifar100"])
def test_cifar100_in_miniature(name: str, place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    root = place.folder / "files"
    write_cifar(root, 100, (6, 2), monkeypatch)
    check_in_miniature(name, in_miniature(presets.load(name, PROJECT), root), place)


def test_a_folder_of_cifar10_in_miniature(place: Workspace) -> None:
    sizes = {part: dict.fromkeys(CIFAR10_CLASSES, number) for part, number in (("train", 6), ("test", 2))}
    write_folder(place.folder / "cifar10", sizes, (32, 32))
    preset = in_miniature(presets.load("cifar10-images", PROJECT), Path("cifar10"))
    params.check_files(preset, place.project / "params.yaml")
    check_in_miniature("cifar10-images", preset, place)
