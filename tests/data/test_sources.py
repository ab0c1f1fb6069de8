import os
from pathlib import Path

import pytest
import torch
from mnist_files import write_mnist
from sklearn.datasets import load_digits

from ltnb.data.facts import FACTS
from ltnb.data.sources import digits, mnist

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
