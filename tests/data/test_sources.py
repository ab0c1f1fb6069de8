import os
import shutil
import tarfile
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from image_sources import write_cifar, write_npz
from mnist_files import write_mnist
from sklearn.datasets import load_digits
from torchvision.datasets import CIFAR10, CIFAR100
from torchvision.datasets.utils import calculate_md5

from ltnb.data.facts import FACTS
from ltnb.data.settings import DatasetSettings
from ltnb.data.sources import archive, cifar10, cifar100, digits, mnist, read

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def test_digits():
    source = digits()
    original = load_digits()
    assert source.images.shape == (1797, 1, 8, 8)
    assert source.images.dtype == torch.uint8
    assert source.labels.dtype == torch.int64
    assert source.class_names == tuple("0123456789")
    assert source.labels.tolist() == original.target.tolist()
    # 17 grey levels, stretched to the whole range and back without loss.
    assert torch.equal((source.images[:, 0] / 255 * 16).round(), torch.from_numpy(original.images).float())
    assert source.images.min() == 0
    assert source.images.max() == 255


def test_mnist_is_its_training_part_and_then_its_test_part(tmp_path):
    write_mnist(tmp_path, 3, 2)
    source = mnist(tmp_path)
    assert source.images.shape == (50, 1, 28, 28)
    assert source.images.dtype == torch.uint8
    assert source.images[:, 0, 7, 9].tolist() == list(range(50))
    assert source.labels.dtype == torch.int64
    assert source.labels.tolist() == list(range(10)) * 5
    assert source.is_test.tolist() == [False] * 30 + [True] * 20


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_mnist_that_is_missing_is_named(tmp_path, name):
    write_mnist(tmp_path, 1, 1)
    file = tmp_path / "MNIST" / "raw" / name
    packed = file.rename(file.with_name(f"{name}.gz"))
    with pytest.raises(FileNotFoundError, match=rf"{name} is missing; unpack {name}\.gz beside it; expected root"):
        mnist(tmp_path)
    packed.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{name} is missing; expected root to hold MNIST"):
        mnist(tmp_path)


@pytest.mark.skipif("MNIST_ROOT" not in os.environ, reason="MNIST_ROOT names no folder with MNIST")
def test_the_facts_of_mnist():
    source, facts = mnist(Path(os.environ["MNIST_ROOT"])), FACTS["mnist"]
    assert source.labels[~source.is_test].bincount().tolist() == list(facts.class_sizes)
    assert source.labels[source.is_test].bincount().tolist() == list(facts.test_sizes)
    assert len(source.class_names) == facts.num_classes


@pytest.mark.parametrize("damage", [b"", b"<html>no such file</html>", "cut", "longer"])
@pytest.mark.parametrize("name", ["train-images-idx3", "t10k-labels-idx1"])
def test_a_file_of_mnist_that_is_not_whole_is_named(tmp_path, name, damage):
    write_mnist(tmp_path, train_per_class=2, test_per_class=1)
    file = tmp_path / "MNIST" / "raw" / f"{name}-ubyte"
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-1], "longer": content + b"0"}.get(damage, damage))
    with pytest.raises(ValueError, match=f"{name}-ubyte is damaged"):
        mnist(tmp_path)


def test_images_and_labels_of_mnist_that_do_not_match_are_refused(tmp_path):
    write_mnist(tmp_path, train_per_class=2, test_per_class=1)
    write_mnist(tmp_path / "other", train_per_class=3, test_per_class=1)
    name = "MNIST/raw/train-labels-idx1-ubyte"
    (tmp_path / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(ValueError, match="20 images and 30 labels of train; expected as many"):
        mnist(tmp_path)


def settings_of(source, **changes):
    return DatasetSettings(source=source, root=".", imbalance=1, largest=2, **changes)


@pytest.mark.parametrize(("reader", "num_classes"), [(cifar10, 10), (cifar100, 100)])
def test_cifar_is_its_training_part_and_then_its_test_part(tmp_path, monkeypatch, reader, num_classes):
    images = write_cifar(tmp_path, num_classes, (3, 1), monkeypatch)
    source = reader(tmp_path)
    assert source.images.dtype == torch.uint8
    assert torch.equal(source.images, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert source.images.is_contiguous()
    assert source.labels.dtype == torch.int64
    assert source.labels.tolist() == list(range(num_classes)) * 4
    assert source.is_test.tolist() == [False] * 3 * num_classes + [True] * num_classes
    assert source.class_names[-1] == ("truck" if num_classes == 10 else "worm")


def test_coarse_labels_of_cifar100_are_refused(tmp_path, monkeypatch):
    write_cifar(tmp_path, 100, (2, 1), monkeypatch, coarse=True)
    with pytest.raises(ValueError, match=rf"{tmp_path}/cifar-100-python has 20 kinds of labels .*; expected 100"):
        cifar100(tmp_path)


def test_names_of_other_classes_are_refused(tmp_path, monkeypatch):
    write_cifar(tmp_path, 10, (2, 1), monkeypatch)
    monkeypatch.setattr("ltnb.data.sources.CIFAR10_CLASSES", tuple("abcdefghij"))
    with pytest.raises(ValueError, match="and 10 names, such as 'airplane'; expected 10, such as 'a'"):
        cifar10(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_file_of_cifar_that_is_missing_or_damaged_is_named(tmp_path, monkeypatch, name):
    write_cifar(tmp_path, 10, (2, 1), monkeypatch)
    file = tmp_path / "cifar-10-batches-py" / name
    file.write_bytes(file.read_bytes() + b"0")
    with pytest.raises(ValueError, match=rf"{file} is damaged, or another one: its MD5 is \w+, and \w+ was published"):
        cifar10(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=rf"{file} is missing; expected root to hold CIFAR10 .*download to be"):
        cifar10(tmp_path)
    (tmp_path / "cifar-10-python.tar.gz").touch()
    with pytest.raises(FileNotFoundError, match=rf"{file} is missing; unpack cifar-10-python.tar.gz beside its folder"):
        cifar10(tmp_path)


@pytest.fixture
def published(tmp_path, monkeypatch):
    """CIFAR-10 and CIFAR-100 of a few images each, packed where torchvision fetches them."""
    for kind, num_classes in ((CIFAR10, 10), (CIFAR100, 100)):
        write_cifar(tmp_path / "published", num_classes, (2, 1), monkeypatch)
        packed = tmp_path / "published" / kind.filename
        with tarfile.open(packed, "w:gz") as archive_file:
            archive_file.add(tmp_path / "published" / kind.base_folder, kind.base_folder)
        monkeypatch.setattr(kind, "tgz_md5", calculate_md5(packed))

    def fetch(url, filename):
        try:
            shutil.copy(tmp_path / "published" / Path(url).name, filename)
        except OSError as error:
            raise URLError("no network") from error

    monkeypatch.setattr("torchvision.datasets.utils._get_redirect_url", lambda url, **_: url)
    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", fetch)
    return tmp_path / "published"


@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_cifar_is_fetched_when_that_is_asked_for(published, tmp_path, source):
    place = tmp_path / "new" / "folder"
    with pytest.raises(FileNotFoundError, match=r"is missing; expected root to hold CIFAR100? as torchvision keeps it"):
        read(settings_of(source), place)
    found, _ = read(settings_of(source, download=True), place)
    assert len(found.labels) == 3 * len(found.class_names)
    shutil.rmtree(published)  # what is there is not fetched again
    again, facts = read(settings_of(source, download=True), place)
    assert torch.equal(again.images, found.images)
    assert facts == FACTS[source]


def test_what_cannot_be_fetched_is_told(published, tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "tgz_md5", "0" * 32)
    with pytest.raises(
        ValueError, match=rf"cifar10 could not be fetched from https:.* to {tmp_path}/new: File not found"
    ):
        read(settings_of("cifar10", download=True), tmp_path / "new")
    shutil.rmtree(published)
    with pytest.raises(
        ValueError, match=r"cifar100 could not be fetched from https:.*no network.*expected a network, or .*python"
    ):
        read(settings_of("cifar100", download=True), tmp_path / "new")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_the_facts_of_cifar(name):
    if f"{name.upper()}_ROOT" not in os.environ:
        pytest.skip(f"{name.upper()}_ROOT names no folder with it")
    source, facts = read(DatasetSettings(source=name, root=os.environ[f"{name.upper()}_ROOT"], imbalance=1), Path())
    assert source.labels[~source.is_test].bincount().tolist() == list(facts.class_sizes)
    assert source.labels[source.is_test].bincount().tolist() == list(facts.test_sizes)


@pytest.mark.parametrize(
    ("shape", "square"), [((8, 8), np.s_[:, :]), ((9, 6, 1), np.s_[1:7, :]), ((6, 9, 3), np.s_[:, 1:7])]
)
def test_the_images_of_an_archive_are_the_squares_in_the_middle(tmp_path, shape, square):
    write_npz(tmp_path / "a.npz", (2, 1), shape=shape)
    with np.load(tmp_path / "a.npz") as stored:
        wanted = np.concatenate([stored["train_images"], stored["test_images"]])
    images = archive(tmp_path / "a.npz")
    assert images.dtype == torch.uint8
    for image, pixels in zip(images, wanted, strict=True):
        expected = torch.from_numpy(pixels[square])
        assert torch.equal(image.movedim(0, 2).squeeze(2), expected.squeeze(2) if expected.ndim == 3 else expected)


def test_damaged_images_of_an_archive_are_named(tmp_path):
    file = tmp_path / "a.npz"
    write_npz(file, (20, 1))
    content = bytearray(file.read_bytes())
    content[2000] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{file} is damaged: Bad CRC-32 for file 'train_images.npy'"):
        archive(file)
