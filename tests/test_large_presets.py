"""The presets of photographs: every row fits its classes and trains on small images in the layout of its data set."""

import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from image_sources import random_image
from PIL import Image

from ltnb import params, preset_results, presets
from ltnb.data.image_files import FiledImages
from ltnb.data.prepare import load, prepare
from ltnb.models.encoders import encoder
from ltnb.params import Params
from ltnb.runs import read
from ltnb.training import train
from ltnb.workspace import Workspace

PROJECT = Path(__file__).parents[1]
# Classes, and how many of them have more than 100 training images.
NAMES = {"imagenet-lt": (1000, 385), "inat18": (8142, 842), "webvision-mini": (50, 50)}


def write(root: Path, name: str, line: str, label: int) -> str:
    """Write a JPEG of its own for every label and line, below `root`; return its line of a list."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(random_image(zlib.crc32(line.encode()), 14, 18)).save(file, quality=95)
    return f"{line} {label}\n"


def write_source(name: str, root: Path) -> None:
    """Write images and lists of three classes, and of WebVision one class more, as they are published."""
    if name == "webvision-mini":
        place, (train_list, test_list) = root / "webvision", ("info/train_filelist_google.txt", "info/val_filelist.txt")
        lines = {
            train_list: [(f"google/q000{k}/{i}.jpg", k, "") for k in range(4) for i in range(8 - 2 * k)],
            test_list: [(f"val{4 * i + k:06}.jpg", k, "val_images_256/") for i in range(2) for k in range(4)],
        }
    elif name == "inat18":
        place, (train_list, test_list) = root / "inat18", ("iNaturalist18_train.txt", "iNaturalist18_val.txt")
        lines = {
            train_list: [(f"train_val2018/Plantae/{k}/{i}.jpg", k, "") for k in range(3) for i in range(8 - 2 * k)],
            test_list: [(f"train_val2018/Plantae/{k}/v{i}.jpg", k, "") for k in range(3) for i in range(2)],
        }
    else:
        place, (train_list, test_list) = root / "imagenet", ("ImageNet_LT_train.txt", "ImageNet_LT_test.txt")
        lines = {
            train_list: [(f"train/n0{k}/n0{k}_{i}.JPEG", k, "") for k in range(3) for i in range(8 - 2 * k)],
            test_list: [(f"val/n0{k}/ILSVRC2012_val_{i}.JPEG", k, "") for k in range(3) for i in range(2)],
        }
    for file, entries in lines.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        text = "".join(write(place, folder + line, line, label) for line, label, folder in entries)
        (place / file).write_text(text, encoding="utf-8")


def in_miniature(preset: Params, held_in: str = "files") -> Params:
    """Two epochs of ResNet-8 on images of 8 of 10 pixels, of three classes; heads have more than 3 images."""
    datasets = {}
    for name, settings in preset.datasets.items():
        few = {"image_size": 8, "decoded_size": 10, "held_in": held_in}
        datasets[name] = settings.model_copy(update=few | ({} if settings.classes is None else {"classes": 3}))
    changes = {"second_stage_epochs": 1, "head_above": 3, "queue_size": 64, "projection_hidden": 32}
    methods = {
        name: method.model_copy(update={key: value for key, value in changes.items() if method.has_effect(key)})
        for name, method in preset.methods.items()
    }
    short = {"encoder": "resnet8", "epochs": 2, "batch_size": 32, "evaluate_every": 2, "precision": "float32"}
    return preset.model_copy(
        update={
            "datasets": datasets,
            "methods": methods,
            "training": preset.training.model_copy(update=short),
        }
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_row_fits_the_classes_and_the_network(name: str) -> None:
    preset = presets.load(name, PROJECT)
    feature_dim = encoder(preset.training.encoder, 3).feature_dim
    assert feature_dim == 2048
    classes, heads = NAMES[name]
    for method in preset.methods.values():
        method.check_classes([101] * heads + [5] * (classes - heads), feature_dim)


def test_losses_for_wrong_labels_have_the_parameters_of_the_papers_code() -> None:
    table = pd.read_csv(PROJECT / "presets" / "noise-parameters.csv")
    table = table[table["dataset"] == "webvision-mini"]
    wanted = {
        str(loss): dict(zip(rows["parameter"], rows["value"].astype(float), strict=True))
        for loss, rows in table.groupby("loss")
    }
    methods = presets.load("webvision-mini", PROJECT).methods
    for method in methods.values():
        given = {key: float(value) for key, value in method.slots().items() if key in set(table["parameter"])}
        assert given == wanted.get(method.classification, {})
    assert wanted.keys() <= {method.classification for method in methods.values()}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_in_miniature(name: str, tmp_path: Path) -> None:
    place = Workspace(tmp_path, tmp_path)
    write_source(name, tmp_path)
    preset = in_miniature(presets.load(name, PROJECT))
    params.check_files(preset, tmp_path / "params.yaml")
    rows = list(preset.methods)
    found = presets.runs(place, name, preset, rows, [0])
    preset_results.record(found, name, preset, tmp_path)
    recorded = preset_results.accuracy(name, preset, tmp_path)
    assert set(recorded["method"]) == set(rows)
    assert recorded["accuracy"].notna().all()
    assert found[0].params["class_counts"] == [8, 6, 4]


@pytest.mark.parametrize("row", ["bcl", "bce3s"])
def test_a_run_is_the_same_from_memory_and_from_files(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ltnb.data.feeding._PIECE", 5)  # so that there are some for every process that decodes
    write_source("imagenet-lt", tmp_path)
    runs = []
    for held_in in ("auto", "files"):
        preset = in_miniature(presets.load("imagenet-lt", PROJECT), held_in)
        settings = preset.run("imagenet-lt", row, 0)
        prepare("imagenet-lt", settings.dataset, tmp_path / held_in, tmp_path)
        data = load(tmp_path / held_in)
        assert isinstance(data.train_images, FiledImages) == (held_in == "files")
        train(settings, data, tmp_path / held_in / "run")
        runs.append(read(tmp_path / held_in / "run"))
    held, filed = runs
    assert held.metrics == filed.metrics
    assert held.history.equals(filed.history)
    for name, array in held.embeddings.items():
        assert np.array_equal(array, filed.embeddings[name])
    weights = [(tmp_path / held_in / "run" / "model.safetensors").read_bytes() for held_in in ("auto", "files")]
    assert weights[0] == weights[1]
