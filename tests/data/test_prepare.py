import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import torch
from image_sources import write_cifar, write_folder, write_lists, write_npz
from mnist_files import write_mnist
from PIL import Image
from scipy import stats

from ltnb.data.image_files import FiledImages
from ltnb.data.mappings import CIFAR10_CLASSES, MAPPINGS
from ltnb.data.noise import realised_transition_matrix, transition_matrix
from ltnb.data.prepare import channel_statistics, describe_noise, fingerprint, load, prepare, resize
from ltnb.data.settings import DatasetSettings
from ltnb.data.sources import digits

FILES = ("arrays.npz", "dataset.json")


def settings(imbalance=100, **changes):
    return DatasetSettings(source="digits", imbalance=imbalance, **changes)


def wanted_counts(data):
    return data.settings.class_counts(data.settings.facts)


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


def test_without_noise_nothing_tells_of_it(prepared):
    for folder in prepared.values():
        description = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
        assert not [key for key in {**description, **description["settings"]} if "noise" in key]
        with np.load(folder / "arrays.npz") as stored:
            assert "train_clean_labels" not in stored
        data = load(folder)
        assert data.train_clean_labels is None
        assert data.noise is None
        assert data.clean_labels is data.train_labels
        assert torch.equal(data.known_counts, data.class_counts)


NOISY = {"noise": "symmetric", "noise_rate": 0.4}
BEFORE = {**NOISY, "noise_order": "before-tail", "largest": 90}
ASYMMETRIC = {
    "noise": "asymmetric",
    "noise_rate": [0.0, 0.1, 0.0, 0.3, 0.0, 0.2, 0.0, 0.0, 0.4, 0.0],
    "noise_mapping": {1: 8, 3: 8, 5: 9, 8: 1},
}


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """The digits with wrong labels, by the order and the law of the noise, and the imbalance factor."""
    found = {}
    for kind, changes in (("after", NOISY), ("before", BEFORE), ("asymmetric", ASYMMETRIC)):
        for imbalance in (1, 10):
            folder = tmp_path_factory.mktemp(f"{kind}{imbalance}")
            prepare("noisy", settings(imbalance, **changes), folder)
            found[kind, imbalance] = folder
    return found


def test_noise_changes_labels_and_nothing_else(prepared, noisy):
    for kind in ("after", "asymmetric"):
        for imbalance in (1, 10):
            plain, wrong = load(prepared[imbalance]), load(noisy[kind, imbalance])
            for name in ("train_images", "train_index", "test_images", "test_labels", "test_index", "mean", "std"):
                assert torch.equal(getattr(plain, name), getattr(wrong, name))
            assert torch.equal(plain.train_labels, wrong.clean_labels)
            assert torch.equal(plain.class_counts, wrong.class_counts)
            assert not torch.equal(plain.train_labels, wrong.train_labels)
            assert plain.fingerprint != wrong.fingerprint


def test_clean_labels_are_those_of_their_rows_and_test_labels_stay_true(noisy):
    source = digits()
    for folder in noisy.values():
        data = load(folder)
        assert torch.equal(data.clean_labels, source.labels[data.train_index])
        assert torch.equal(data.test_labels, source.labels[data.test_index])


def test_after_the_tail_the_true_labels_have_the_profile(noisy):
    data = load(noisy["after", 10])
    assert data.class_counts.tolist() == data.clean_labels.bincount().tolist() == wanted_counts(data)
    assert data.known_counts.tolist() == data.train_labels.bincount().tolist() != wanted_counts(data)
    # Wrong labels of the large classes swell the small ones.
    assert data.known_counts[0] < data.class_counts[0]
    assert data.known_counts[-1] > data.class_counts[-1]


def test_before_the_tail_the_given_labels_have_the_profile(noisy):
    for imbalance in (1, 10):
        data = load(noisy["before", imbalance])
        assert wanted_counts(data)[0] == 90
        assert data.class_counts.tolist() == data.train_labels.bincount().tolist() == wanted_counts(data)
        assert torch.equal(data.known_counts, data.class_counts)
        # The pool is balanced but for a few images, and so every label is wrong as often.
        wrong = (data.train_labels != data.clean_labels).int()
        for label in range(10):
            of_label = wrong[data.train_labels == label]
            assert stats.binomtest(int(of_label.sum()), len(of_label), 0.4).pvalue > 1e-3


def test_an_image_has_the_same_label_at_every_factor_and_in_both_orders(noisy):
    labels = {}
    for kind in ("after", "before"):
        for imbalance in (1, 10):
            data = load(noisy[kind, imbalance])
            for row, label in zip(data.train_index.tolist(), data.train_labels.tolist(), strict=True):
                assert labels.setdefault(row, label) == label
    assert len(labels) > 900


def test_how_much_noise_there_is_is_written_down(noisy):
    for (kind, _), folder in noisy.items():
        data = load(folder)
        description = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
        assert description["noise"] == data.noise
        assert description["settings"]["noise_order"] == ("before-tail" if kind == "before" else "after-tail")
        clean, given, noise = data.clean_labels, data.train_labels, data.noise
        rates, mapping = data.settings.noise_rate, data.settings.mapping
        assert noise["transition_matrix"]["wanted"] == transition_matrix(rates, 10, mapping).tolist()
        assert noise["transition_matrix"]["realised"] == realised_transition_matrix(clean, given, 10).tolist()
        wrong = [[a != b for a, b in zip(clean.tolist(), given.tolist(), strict=True) if a == k] for k in range(10)]
        assert noise["rate"]["realised"] == pytest.approx(sum(map(sum, wrong)) / len(clean))
        assert noise["rates"]["realised"] == pytest.approx([sum(of_class) / len(of_class) for of_class in wrong])
        assert noise["clean_counts"] == clean.bincount(minlength=10).tolist()
        assert noise["label_counts"] == given.bincount(minlength=10).tolist()
        by_class = rates if isinstance(rates, list) else [rates] * 10
        assert noise["rates"]["wanted"] == pytest.approx(by_class)
        wanted = sum(n * rate for n, rate in zip(noise["clean_counts"], by_class, strict=True)) / len(clean)
        assert noise["rate"]["wanted"] == pytest.approx(wanted)
        if kind != "before":
            assert abs(noise["rate"]["realised"] - wanted) < 4 * (wanted * (1 - wanted) / len(clean)) ** 0.5


def test_of_a_class_without_images_no_noise_is_seen():
    noise = describe_noise(settings(**NOISY), torch.tensor([0, 0, 2]), torch.tensor([0, 1, 2]), 4)
    assert noise["rates"]["realised"] == [0.5, None, 0, None]
    assert noise["transition_matrix"]["realised"] == [[0.5, 0.5, 0, 0], None, [0, 0, 1, 0], None]
    assert noise["rates"]["wanted"] == pytest.approx([0.4] * 4)
    json.dumps(noise, allow_nan=False)


def test_a_named_mapping_is_applied_to_the_true_labels(tmp_path):
    prepare("noisy", settings(1, noise="asymmetric", noise_rate=0.4, noise_mapping="mnist"), tmp_path)
    data = load(tmp_path)
    pairs = set(zip(data.clean_labels.tolist(), data.train_labels.tolist(), strict=True))
    assert pairs == {(k, k) for k in range(10)} | set(MAPPINGS["mnist"].items())


def test_a_tail_that_wants_more_labels_than_noise_leaves(tmp_path):
    wanted = settings(1, noise="asymmetric", noise_rate=0.9, noise_mapping="digits", noise_order="before-tail")
    with pytest.raises(ValueError, match=r"largest = 124: noise before the tail leaves \d+ labels of class \d"):
        prepare("noisy", wanted, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_class_that_lost_its_labels_counts_as_one_image(prepared):
    data = load(prepared[100])
    lost = dataclasses.replace(
        data, train_labels=data.train_labels.where(data.train_labels != 9, 0), train_clean_labels=data.train_labels
    )
    assert lost.known_counts.tolist() == [125, 74, 44, 26, 16, 9, 5, 3, 2, 1]
    assert torch.equal(lost.class_counts, data.class_counts)


def test_damaged_true_labels_are_noticed(noisy, tmp_path):
    shutil.copytree(noisy["after", 10], tmp_path, dirs_exist_ok=True)
    with np.load(tmp_path / "arrays.npz") as stored:
        arrays = dict(stored)
    arrays["train_clean_labels"][0] += 1
    np.savez(tmp_path / "arrays.npz", **arrays)
    with pytest.raises(ValueError, match=r"arrays\.npz has the fingerprint"):
        load(tmp_path)


def test_a_description_of_noisy_data_without_the_noise(noisy, tmp_path):
    shutil.copytree(noisy["after", 10], tmp_path, dirs_exist_ok=True)
    description = json.loads((tmp_path / "dataset.json").read_text())
    del description["noise"]
    (tmp_path / "dataset.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"dataset\.json does not describe arrays\.npz: KeyError\('noise'\)"):
        load(tmp_path)


def test_noisy_settings_give_the_same_bytes_and_another_seed_others(noisy, tmp_path):
    torch.manual_seed(7)  # the global state decides nothing
    prepare("noisy", settings(10, **NOISY), tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (noisy["after", 10] / name).read_bytes()
    first = load(tmp_path)
    prepare("noisy", settings(10, **NOISY, seed=1), tmp_path)
    wrong = [data.train_labels != data.clean_labels for data in (first, load(tmp_path))]
    assert not torch.equal(*wrong)


def test_the_draws_of_noise_do_not_drift(noisy):
    # As the split: results are only comparable on one draw of labels.
    assert load(noisy["after", 10]).fingerprint == "d251bbbae8426440b8496ef5f7d8dee0dee597644b280481842aee719e746e9f"


def mnist_settings(**changes):
    return DatasetSettings(source="mnist", root="images", imbalance=4, largest=8, **changes)


@pytest.mark.parametrize("per_class", ["all", 2])
def test_a_test_split_of_the_sources_own_is_never_trained_on(tmp_path, per_class):
    write_mnist(tmp_path / "images", 9, 3)
    prepare("mnist", mnist_settings(test_per_class=per_class, noise="symmetric", noise_rate=0.3), tmp_path, tmp_path)
    data = load(tmp_path)
    assert data.class_counts.tolist() == [8, 6, 5, 5, 4, 3, 3, 2, 2, 2]
    assert data.test_labels.bincount().tolist() == [3 if per_class == "all" else per_class] * 10
    assert data.train_index.max() < 90 <= data.test_index.min()
    assert data.train_images.shape[1:] == data.test_images.shape[1:] == (1, 28, 28)
    assert data.train_images[:, 0, 3, 4].tolist() == data.train_index.tolist()
    assert data.test_images[:, 0, 3, 4].tolist() == data.test_index.tolist()


def test_a_source_that_is_missing_on_disk_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/images/MNIST/raw/train-images-idx3-ubyte is missing"):
        prepare("mnist", mnist_settings(), tmp_path, tmp_path)


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


SIZES = {"train": {"ant": 5, "cat": 9, "dog": 6}, "test": {"ant": 2, "cat": 3, "dog": 4}}


def of_files(source="folder", imbalance="as-is", **changes):
    return DatasetSettings(**{"source": source, "root": "images", "imbalance": imbalance, "image_size": 8, **changes})


@pytest.fixture
def images(tmp_path):
    """A folder of images, and all of their pixels, channels first."""
    return torch.from_numpy(np.stack(write_folder(tmp_path / "images", SIZES))).movedim(3, 1)


def test_a_folder_as_it_is(images, tmp_path):
    prepare("pets", of_files(), tmp_path / "out", tmp_path)
    data = load(tmp_path / "out")
    assert data.class_names == ("ant", "cat", "dog")
    assert data.class_counts.tolist() == [5, 9, 6]
    assert torch.equal(data.train_images, images[:20])
    assert torch.equal(data.test_images, images[20:])
    assert data.train_labels.tolist() == [0] * 5 + [1] * 9 + [2] * 6
    assert data.test_labels.tolist() == [0] * 2 + [1] * 3 + [2] * 4
    description = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert description["class_counts"] == [5, 9, 6]
    assert description["groups"] == {"few": [0, 1, 2]}
    assert description["settings"]["imbalance"] == "as-is"


def test_a_folder_cut_to_a_tail_in_both_ways(images, tmp_path):
    found = {}
    for tail, counts in (("exponential", [5, 3, 2]), ("step", [5, 2, 2])):
        for subset in ("shuffled", "first"):
            settings = of_files(imbalance=2.5, tail=tail, subset=subset, test_per_class=2)
            prepare("pets", settings, tmp_path / "out", tmp_path)
            data = found[tail, subset] = load(tmp_path / "out")
            assert data.class_counts.tolist() == counts
            assert data.test_labels.bincount().tolist() == [2, 2, 2]
            assert torch.equal(data.train_images, images[data.train_index])
            assert torch.equal(data.test_images, images[data.test_index])
            assert data.settings.model_dump().items() >= {"tail": tail, "subset": subset}.items()
    assert found["exponential", "first"].train_index.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 14, 15]
    assert found["step", "first"].train_index.tolist() == [0, 1, 2, 3, 4, 5, 6, 14, 15]
    assert found["exponential", "shuffled"].train_index.tolist() != found["exponential", "first"].train_index.tolist()
    assert len({data.fingerprint for data in found.values()}) == 4
    # How training images are chosen says nothing about the test.
    assert len({tuple(data.test_index.tolist()) for data in found.values()}) == 1


def test_lists_in_their_own_order(images, tmp_path):
    write_lists(tmp_path / "images")  # from the last image to the first
    paths = {"train_list": "images/train.txt", "test_list": "images/test.txt"}
    prepare("pets", of_files("lists", **paths), tmp_path / "out", tmp_path)
    data = load(tmp_path / "out")
    assert torch.equal(data.train_images, images[:20].flip(0))
    assert torch.equal(data.test_images, images[20:].flip(0))
    prepare("pets", of_files("lists", 3, subset="first", **paths), tmp_path / "out", tmp_path)
    # Of each class the first 5, 2 and 1 of its list, which are the last of its folder.
    assert torch.equal(load(tmp_path / "out").train_images, images[[19, 13, 12, 4, 3, 2, 1, 0]])


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3)])
def test_an_archive(tmp_path, shape):
    write_npz(tmp_path / "a.npz", (6, 2), shape=shape)
    prepare("some", of_files("npz", 2, root="a.npz"), tmp_path / "out", tmp_path)
    data = load(tmp_path / "out")
    assert data.class_counts.tolist() == [6, 4, 3]
    with np.load(tmp_path / "a.npz") as stored:
        for part in ("train", "test"):
            pixels = torch.from_numpy(stored[f"{part}_images"]).reshape(-1, 8, 8, len(shape) * 2 - 3).movedim(3, 1)
            index = getattr(data, f"{part}_index") - (18 if part == "test" else 0)
            assert torch.equal(getattr(data, f"{part}_images"), pixels[index])
    prepare("some", of_files("npz", 2, root="a.npz", image_size=16), tmp_path / "out", tmp_path)
    assert load(tmp_path / "out").train_images.shape == (13, len(shape) * 2 - 3, 16, 16)


def test_cifar_with_a_tail(tmp_path, monkeypatch):
    pixels = torch.from_numpy(write_cifar(tmp_path / "images", 100, (3, 1), monkeypatch)).movedim(3, 1)
    settings = DatasetSettings(source="cifar100", root="images", imbalance=3, largest=3, subset="first")
    prepare("cifar", settings, tmp_path / "out", tmp_path)
    data = load(tmp_path / "out")
    assert data.class_counts.tolist() == settings.class_counts(settings.facts)
    assert data.test_index.tolist() == list(range(300, 400))
    for part in ("train", "test"):
        assert torch.equal(getattr(data, f"{part}_images"), pixels[getattr(data, f"{part}_index")])


@pytest.mark.usefixtures("images")
def test_noise_on_the_classes_of_a_folder(tmp_path):
    wrong = {"noise": "asymmetric", "noise_rate": 0.6, "noise_mapping": {1: 0, 0: 2}}
    prepare("pets", of_files(**wrong), tmp_path / "out", tmp_path)
    data = load(tmp_path / "out")
    assert data.class_counts.tolist() == data.clean_labels.bincount().tolist() == [5, 9, 6]
    assert set(zip(data.clean_labels.tolist(), data.train_labels.tolist(), strict=True)) == {
        (0, 0), (0, 2), (1, 1), (1, 0), (2, 2)
    }  # fmt: skip
    with pytest.raises(ValueError, match="noise_mapping 1 → 3: class 3: expected 0 … 2"):
        prepare("pets", of_files(**{**wrong, "noise_mapping": {1: 3}}), tmp_path / "out", tmp_path)


NOISY_PETS = {"noise": "symmetric", "noise_rate": 0.4, "imbalance": 2, "tail": "step"}


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize("changes", [{}, NOISY_PETS, {"decoded_size": 12, "test_per_class": 2}])
def test_images_that_stay_in_their_files(tmp_path, changes):
    found = {}
    for held_in in ("auto", "files"):
        prepare("pets", of_files(held_in=held_in, **changes), tmp_path / held_in, tmp_path)
        found[held_in] = load(tmp_path / held_in)
    held, filed = found.values()
    size = changes.get("decoded_size", 8)
    assert filed.train_images.shape == held.train_images.shape == (len(held.train_labels), 3, size, size)
    for part in ("train", "test"):
        for name in ("images", "labels", "index"):
            assert torch.equal(getattr(filed, f"{part}_{name}")[:], getattr(held, f"{part}_{name}"))
    assert torch.equal(held.clean_labels, filed.clean_labels)
    assert torch.equal(held.mean, filed.mean)
    assert torch.equal(held.std, filed.std)
    assert held.fingerprint != filed.fingerprint
    with np.load(tmp_path / "files" / "arrays.npz") as stored:
        assert not [name for name in stored if name.endswith("images")]


@pytest.mark.usefixtures("images")
def test_what_does_not_fit_into_memory_stays_in_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr("ltnb.data.settings.LARGEST_BYTES", 29 * 3 * 8 * 8)
    prepare("pets", of_files(), tmp_path / "out", tmp_path)
    assert isinstance(load(tmp_path / "out").train_images, torch.Tensor)
    prepare("pets", of_files(image_size=9), tmp_path / "out", tmp_path)
    assert isinstance(load(tmp_path / "out").train_images, FiledImages)


@pytest.mark.usefixtures("images")
def test_images_in_files_are_found_where_the_project_goes(tmp_path):
    write_lists(tmp_path / "images")
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "images").rename(project / "images")
    lists = {"train_list": "images/train.txt", "test_list": "images/test.txt", "test_root": "images/../images"}
    settings = of_files("lists", held_in="files", **lists)
    prepare("pets", settings, project / "data" / "pets", project)
    before = load(project / "data" / "pets").test_images[:]
    project.rename(tmp_path / "moved")
    assert torch.equal(load(tmp_path / "moved" / "data" / "pets").test_images[:], before)
    # What is written down does not depend on where the project is, unless the settings say so.
    again = tmp_path / "again"
    prepare("pets", settings, again, tmp_path / "moved")
    assert load(again).fingerprint == load(tmp_path / "moved" / "data" / "pets").fingerprint
    absolute = settings.model_copy(update={"root": str(tmp_path / "moved" / "images"), "test_root": None})
    prepare("pets", absolute, again, tmp_path / "moved")
    again.rename(tmp_path / "elsewhere")
    assert torch.equal(load(tmp_path / "elsewhere").test_images[:], before)


def test_the_fingerprint_of_images_in_files_sees_every_change(images, tmp_path):
    found = []
    changed = tmp_path / "images" / "test" / "dog" / "000.png"
    for size, pixels in ((8, None), (9, None), (8, images[0])):
        if pixels is not None:
            Image.fromarray(pixels.movedim(0, 2).numpy()).save(changed)
        prepare("pets", of_files(held_in="files", image_size=size), tmp_path / "out", tmp_path)
        found.append(load(tmp_path / "out").fingerprint)
    changed.rename(changed.with_name("0.png"))
    prepare("pets", of_files(held_in="files"), tmp_path / "out", tmp_path)
    assert len({*found, load(tmp_path / "out").fingerprint}) == 4


@pytest.mark.usefixtures("images")
def test_images_in_files_with_a_description_of_others(tmp_path):
    prepare("pets", of_files(held_in="files"), tmp_path / "out", tmp_path)
    file = tmp_path / "out" / "dataset.json"
    description = json.loads(file.read_text())
    del description["files"]
    file.write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"dataset\.json does not describe arrays\.npz: KeyError\('files'\)"):
        load(tmp_path / "out")


@pytest.mark.usefixtures("images")
def test_what_is_wrong_with_files_leaves_what_was_there(tmp_path):
    prepare("pets", of_files(), tmp_path / "out", tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    damaged = tmp_path / "images" / "test" / "cat" / "001.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    with pytest.raises(ValueError, match=rf"{damaged} cannot be decoded"):
        prepare("pets", of_files(), tmp_path / "out", tmp_path)
    with pytest.raises(ValueError, match="imbalance = 6 leaves the smallest class without an image"):
        prepare("pets", of_files(imbalance=6), tmp_path / "out", tmp_path)
    with pytest.raises(ValueError, match=rf"{damaged} cannot be decoded"):
        prepare("pets", of_files(held_in="files"), tmp_path / "out", tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_images_are_scaled_and_counted_alike_however_many_at_once(monkeypatch):
    images = torch.randint(256, (7, 3, 9, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    scaled, statistics = resize(images, 12), channel_statistics(images.numpy())
    monkeypatch.setattr("ltnb.data.prepare._AT_ONCE", 2)
    assert torch.equal(resize(images, 12), scaled)
    assert channel_statistics(images.numpy()) == statistics
    assert resize(images, 9) is images


def test_statistics_of_more_pixels_than_64_bits_hold_the_square_of():
    # Squares times the count are 255² · 0.5 · 4.4e7² = 6e19, and 2^63 is 9e18.
    images = np.zeros((44_000, 1, 32, 32), dtype=np.uint8)
    images[::2] = 255
    assert channel_statistics(images) == ([0.5], [0.5])


@pytest.mark.skipif("CIFAR10_IMAGES" not in os.environ, reason="CIFAR10_IMAGES names no folder with CIFAR-10 as images")
def test_cifar10_as_images(tmp_path):
    root = os.environ["CIFAR10_IMAGES"]
    prepare("cifar10-if100", of_files(imbalance=100, root=root, image_size=32), tmp_path)
    data = load(tmp_path)
    assert data.class_names == CIFAR10_CLASSES
    assert data.class_counts.tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert len(data.train_labels) == 12406
    assert data.test_labels.bincount().tolist() == [1000] * 10
