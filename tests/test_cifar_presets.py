"""The presets of CIFAR: the classes fit the networks, and every row trains on small images in CIFAR's layout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from image_sources import write_cifar, write_folder
from ruamel.yaml import YAML

from ltnb import params, preset_results, presets
from ltnb.data.mappings import CIFAR10_CLASSES
from ltnb.models.encoders import encoder
from ltnb.params import Params
from ltnb.runs import read
from ltnb.workspace import Workspace

PROJECT = Path(__file__).parents[1]
NAMES = ["cifar10-lt", "cifar100-lt", "cifar100-lt-bce3s", "noise-cifar10", "noise-cifar100", "cifar10-images"]

FOLDER = {part: dict.fromkeys(CIFAR10_CLASSES, number) for part, number in (("train", 6), ("test", 2))}


def in_miniature(preset: Params, root: Path) -> Params:
    """Two epochs of ResNet-8, or of the 4-layer CNN where the network is wider than ResNet-32, on the files in `root`.

    The CNN's 128 features hold the simplex of 100 classes. Of the data sets the first and one of each other kind of
    wrong labels stay. Images have 8 × 8 pixels, of each class there are 6 at most; heads have more than 3.
    """
    by_noise = {settings.noise: name for name, settings in reversed(preset.datasets.items())}
    few = {"root": str(root), "largest": 6, "image_size": 8}
    datasets = {
        name: settings.model_copy(update={**few, "imbalance": 1.0 if settings.imbalance == 1 else 3.0})
        for name, settings in preset.datasets.items()
        if name in by_noise.values()
    }
    changes = {"second_stage_epochs": 1, "head_above": 3, "queue_size": 64}
    methods = {
        name: method.model_copy(update={key: value for key, value in changes.items() if method.has_effect(key)})
        for name, method in preset.methods.items()
    }
    narrow = encoder(preset.training.encoder, 3).feature_dim <= 64
    small = {"encoder": "resnet8" if narrow else "cnn4", "batch_size": 64, "evaluate_every": 1}
    training = preset.training.shortened(2).model_copy(update=small)
    return preset.model_copy(update={"datasets": datasets, "methods": methods, "training": training})


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, tmp_path)


def check_in_miniature(name: str, preset: Params, place: Workspace) -> None:
    """Train every row on the first data set and one on each other, record them and read what was recorded."""
    first, *others = preset.datasets
    rows = list(preset.methods)
    found = presets.runs(place, name, preset, rows, [0], [first])
    found += presets.runs(place, name, preset, rows[:1], [0], others)
    preset_results.record(found, name, preset, place.project)
    recorded = preset_results.accuracy(name, preset, place.project)
    keys = set(recorded[["dataset", "method", "seed"]].itertuples(index=False, name=None))
    assert keys == {*((first, row, 0) for row in rows), *((other, rows[0], 0) for other in others)}
    assert recorded["accuracy"].notna().all()


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
    write_folder(place.folder / "cifar10", FOLDER, (32, 32))
    preset = in_miniature(presets.load("cifar10-images", PROJECT), Path("cifar10"))
    params.check_files(preset, place.project / "params.yaml")
    check_in_miniature("cifar10-images", preset, place)


def test_a_preset_in_miniature_is_an_experiment_of_the_pipeline(tmp_path: Path) -> None:
    """DVC prepares the folder of images and trains a row of it, by papermill; CIFAR's own files have a checksum."""
    for name in ("ltnb", "notebooks"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "dvc.yaml", tmp_path)
    write_folder(tmp_path / "cifar10", FOLDER, (32, 32))
    yaml = YAML(typ="safe")
    preset = yaml.load(PROJECT / "presets" / "cifar10-images.yaml")
    preset["datasets"]["cifar10-images"] |= {"imbalance": 3, "largest": 6, "image_size": 8}
    preset["methods"]["featrecon"]["head_above"] = 3
    preset["training"] |= {"epochs": 2, "warmup_epochs": 0, "batch_size": 32}
    yaml.dump(preset, tmp_path / "params.yaml")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for command in (["init", "--no-scm", "--quiet"], ["repro", "train@cifar10-images-featrecon-0"]):
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    run = read(tmp_path / "runs" / "cifar10-images" / "featrecon" / "seed-0")
    assert run.params["class_names"] == sorted(CIFAR10_CLASSES)
    assert run.params["class_counts"] == [6, 5, 4, 4, 3, 3, 2, 2, 2, 2]
    assert (run.folder / "notebook.ipynb").is_file()
