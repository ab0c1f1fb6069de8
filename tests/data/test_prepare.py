import json
import shutil

import numpy as np
import pytest
import torch

from ltnb.data.prepare import channel_statistics, fingerprint, load, prepare, resize
from ltnb.data.settings import DatasetSettings
from ltnb.data.sources import digits

FILES = ("arrays.npz", "dataset.json")


def settings(imbalance=100, **changes):
    return DatasetSettings(source="digits", imbalance=imbalance, **changes)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folders of the digits at three imbalance factors."""
    folders = {imbalance: tmp_path_factory.mktemp(f"digits-if{imbalance}") for imbalance in (1, 10, 100)}
    for imbalance, folder in folders.items():
        prepare(f"digits-if{imbalance}", settings(imbalance), folder)
    return folders


@pytest.fixture
def folder(prepared, tmp_path):
    """A copy of the digits at factor 100, to be damaged."""
    return shutil.copytree(prepared[100], tmp_path, dirs_exist_ok=True)


def test_the_default_data_set(prepared):
    data = load(prepared[100])
    assert data.name == "digits-if100"
    assert data.settings == settings()
    assert data.class_names == tuple("0123456789")
    assert data.num_classes == 10
    assert data.class_counts.tolist() == [124, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    assert data.test_labels.bincount().tolist() == [50] * 10
    assert data.train_images.shape == (304, 1, 16, 16)
    assert data.test_images.shape == (500, 1, 16, 16)
    assert data.train_images.dtype == data.test_images.dtype == torch.uint8


def test_the_description_for_human_readers(prepared):
    description = json.loads((prepared[100] / "dataset.json").read_text(encoding="utf-8"))
    assert description["class_counts"] == [124, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    assert description["totals"] == {"train": 304, "test": 500}
    assert description["groups"] == {"many": [0], "medium": [1, 2, 3], "few": [4, 5, 6, 7, 8, 9]}


def test_factor_one_is_balanced(prepared):
    assert load(prepared[1]).class_counts.tolist() == [124] * 10


def test_training_and_test_images_are_different_rows_of_the_source(prepared):
    for folder in prepared.values():
        data = load(folder)
        rows = torch.cat([data.train_index, data.test_index])
        assert len(rows.unique()) == len(rows)


def test_images_and_labels_are_those_of_their_rows(tmp_path):
    prepare("small", settings(image_size=8), tmp_path)
    data, source = load(tmp_path), digits()
    for images, labels, index in (
        (data.train_images, data.train_labels, data.train_index),
        (data.test_images, data.test_labels, data.test_index),
    ):
        assert torch.equal(images, source.images[index])
        assert torch.equal(labels, source.labels[index])


def test_the_test_images_are_the_same_at_every_factor(prepared):
    first, *others = (load(folder) for folder in prepared.values())
    for other in others:
        assert torch.equal(first.test_index, other.test_index)
        assert torch.equal(first.test_images, other.test_images)


def test_training_rows_are_nested_across_factors(prepared):
    rows = {imbalance: load(folder).train_index for imbalance, folder in prepared.items()}
    assert torch.isin(rows[100], rows[10]).all()
    assert torch.isin(rows[10], rows[1]).all()


def test_another_seed_is_another_split(prepared, tmp_path):
    prepare("other", settings(seed=1), tmp_path)
    assert not torch.equal(load(tmp_path).test_index, load(prepared[100]).test_index)


def test_a_smaller_largest_class(tmp_path):
    prepare("small", settings(10, largest=40), tmp_path)
    assert load(tmp_path).class_counts.tolist() == [40, 30, 23, 18, 14, 11, 8, 6, 5, 4]


def test_the_default_split_does_not_drift(prepared):
    # Results are only comparable on one split. If a release of torch shuffles differently, every result is void.
    assert load(prepared[100]).fingerprint == "ad14f5b8620aa95f3e062d1baa165fcba1365a5bd6e583d4738ece9084f6e5fd"


def test_the_same_settings_give_the_same_bytes(prepared, tmp_path):
    prepare("digits-if100", settings(), tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (prepared[100] / name).read_bytes()


def test_normalisation_is_that_of_the_training_images(prepared):
    data = load(prepared[100])
    pixels = data.train_images.double() / 255
    torch.testing.assert_close(data.mean, pixels.mean(dim=(0, 2, 3)).float())
    torch.testing.assert_close(data.std, pixels.std(dim=(0, 2, 3), correction=0).float())


def test_statistics_keep_channels_apart():
    images = np.zeros((2, 3, 4, 4), dtype=np.uint8)
    images[:, 1] = 255
    images[0, 2] = 255
    mean, std = channel_statistics(images)
    assert mean == [0, 1, 0.5]
    assert std == [0, 0, 0.5]


def test_resize_interpolates_between_pixel_centres():
    row = torch.tensor([0, 100, 200, 100], dtype=torch.uint8)
    resized = resize(row.expand(1, 1, 4, 4), 8)
    assert resized.dtype == torch.uint8
    assert resized[0, 0, 0].tolist() == [0, 25, 75, 125, 175, 175, 125, 100]


def test_a_fingerprint_sees_every_change():
    arrays = {"images": np.zeros((2, 3), dtype=np.uint8), "labels": np.arange(2)}
    pixel = arrays["images"].copy()
    pixel[1, 2] = 1
    variants = [
        arrays,
        {**arrays, "images": pixel},
        {**arrays, "images": arrays["images"].reshape(3, 2)},
        {**arrays, "labels": arrays["labels"].astype(np.int32)},
        {"pictures": arrays["images"], "labels": arrays["labels"]},
        {"images": arrays["images"]},
    ]
    assert len({fingerprint(variant) for variant in variants}) == len(variants)
    assert fingerprint(dict(reversed(arrays.items()))) == fingerprint(arrays)


def test_a_changed_pixel_is_noticed(folder):
    with np.load(folder / "arrays.npz") as stored:
        arrays = dict(stored)
    arrays["test_images"][0, 0, 5, 5] ^= 1
    np.savez(folder / "arrays.npz", **arrays)
    with pytest.raises(ValueError, match=r"arrays\.npz has the fingerprint"):
        load(folder)


@pytest.mark.parametrize("position", [0.0, 0.3, 0.9, 1.0])
def test_a_damaged_byte_names_the_file(folder, position):
    content = bytearray((folder / "arrays.npz").read_bytes())
    content[round(position * (len(content) - 23))] ^= 0xFF  # the last record of a zip file ends with 22 bytes
    (folder / "arrays.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"arrays\.npz"):
        load(folder)


def test_a_file_cut_short_names_the_file(folder):
    content = (folder / "arrays.npz").read_bytes()
    (folder / "arrays.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"arrays\.npz is damaged"):
        load(folder)


def test_pickles_are_not_opened(folder):
    np.savez(folder / "arrays.npz", train_images=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"arrays\.npz is damaged.*allow_pickle=False"):
        load(folder)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null"])
def test_a_damaged_description_names_the_file(folder, content):
    (folder / "dataset.json").write_text(content)
    with pytest.raises(ValueError, match=r"dataset\.json does not describe arrays\.npz"):
        load(folder)


@pytest.mark.parametrize("key", ["name", "settings", "class_names", "normalisation", "fingerprint"])
def test_a_description_without_a_key(folder, key):
    description = json.loads((folder / "dataset.json").read_text())
    del description[key]
    (folder / "dataset.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=rf"dataset\.json does not describe arrays\.npz: KeyError\('{key}'\)"):
        load(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load(folder)


def killed(*_arguments, **_keywords):
    raise KeyboardInterrupt


def killed_half_way(path, **_arrays):
    path.write_bytes(b"PK half of the arr")
    raise KeyboardInterrupt


def test_killed_while_writing_arrays(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("ltnb.data.prepare.np.savez", killed_half_way)
    with pytest.raises(KeyboardInterrupt):
        prepare("digits-if10", settings(10), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_killed_between_the_files_of_a_new_data_set(tmp_path, monkeypatch):
    monkeypatch.setattr("ltnb.data.prepare.json.dumps", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare("digits-if100", settings(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["arrays.npz"]
    with pytest.raises(FileNotFoundError, match=r"dataset\.json"):
        load(tmp_path)


def test_killed_between_the_files_of_a_changed_data_set(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("ltnb.data.prepare.json.dumps", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare("digits-if10", settings(10), folder)
    with pytest.raises(ValueError, match=r"dataset\.json does not describe arrays\.npz"):
        load(folder)
    prepare("digits-if10", settings(10), folder)
    assert load(folder).name == "digits-if10"
