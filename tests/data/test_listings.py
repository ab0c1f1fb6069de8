import os
import subprocess
import sys

import numpy as np
import pytest
from image_sources import write_folder, write_lists, write_npz

from ltnb.data.facts import Facts
from ltnb.data.listings import folder, lists, npz
from ltnb.data.mappings import CIFAR10_CLASSES, CIFAR100_CLASSES

SIZES = {"train": {"cat": 3, "ant": 2, "dog": 1}, "test": {"ant": 1, "cat": 2, "dog": 1}}


@pytest.fixture
def root(tmp_path):
    write_folder(tmp_path, SIZES)
    return tmp_path


def test_a_folder_is_listed_in_the_order_of_names(root):
    (root / "train" / "readme.txt").write_text("not a class")
    (root / "train" / ".cache").mkdir()
    (root / "train" / "cat" / ".DS_Store").write_text("")
    listing = folder(root)
    assert listing.class_names == ("ant", "cat", "dog")
    assert listing.labels == (0, 0, 1, 1, 1, 2, 0, 1, 1, 2)
    assert listing.num_train == 6
    assert [file.removeprefix(f"{root}/") for file in listing.files[1:4]] == [
        "train/ant/001.png", "train/cat/000.png", "train/cat/001.png"
    ]  # fmt: skip
    assert listing.facts == Facts(
        class_sizes=(2, 3, 1),
        test_sizes=(1, 2, 1),
        channels=3,
        test_per_class="all",
        image_size=None,
        noise_mappings=(),
        on_disk=True,
    )


def test_classes_of_cifar_bring_their_mappings(tmp_path):
    for names, mappings in (
        (CIFAR10_CLASSES, ("cifar10",)),
        (CIFAR100_CLASSES, ("cifar100-blocks", "cifar100-superclasses")),
    ):
        place = tmp_path / str(len(names))
        for part in ("train", "test"):
            for name in names:
                (place / part / name).mkdir(parents=True)
                (place / part / name / "0.JPEG").touch()
        assert folder(place).facts.noise_mappings == mappings


def test_what_a_folder_lacks_is_named(root):
    with pytest.raises(FileNotFoundError, match=rf"{root}/none/train is missing; expected images in .*/<class>/"):
        folder(root / "none")
    (root / "test" / "cat").rename(root / "test" / "cow")
    with pytest.raises(ValueError, match=rf"{root}/test/cat is missing: {root}/train has that class"):
        folder(root)
    (root / "train" / "cat").rename(root / "train" / "ant" / "cat")
    with pytest.raises(ValueError, match=rf"{root}/train/cow is missing: {root}/test has that class"):
        folder(root)


def test_a_class_without_images_is_named(root):
    for file in (root / "test" / "dog").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=rf"{root}/test/dog has no images"):
        folder(root)


@pytest.mark.parametrize("name", ["labels.csv", "more.png"])
def test_what_is_no_image_is_named(root, name):
    place = root / "train" / "cat" / name
    if name == "more.png":
        place.mkdir()
    else:
        place.touch()
    with pytest.raises(ValueError, match=rf"{place} is no image; expected files that end in \.bmp"):
        folder(root)


def test_a_class_whose_name_nobody_can_write_down_is_told(root):
    for part in ("train", "test"):
        (root / part / "cat").rename(root / part / os.fsdecode(b"chat-\xe9"))
    with pytest.raises(ValueError, match=rf"{root}/train: b'chat-.xe9' is no name in UTF-8"):
        folder(root)


def test_one_class_is_none(tmp_path):
    write_folder(tmp_path, {"train": {"ant": 1}, "test": {"ant": 1}})
    with pytest.raises(ValueError, match=rf"{tmp_path}/train has 1 classes; expected at least two"):
        folder(tmp_path)


def test_lists_are_read_in_their_own_order(root):
    train, test = write_lists(root)
    listing = lists(root, train, test)
    assert listing.class_names == ("0", "1", "2")
    assert listing.labels == (2, 1, 1, 1, 0, 0, 2, 1, 1, 0)
    assert listing.num_train == 6
    assert listing.files[0] == str(root / "train" / "dog" / "000.png")
    assert listing.facts.class_sizes == (2, 3, 1)
    assert listing.facts.test_sizes == (1, 2, 1)


def test_a_path_in_a_list_may_have_spaces_and_a_line_may_be_empty(root):
    (root / "train" / "cat").rename(root / "train" / "big cat")
    train, test = write_lists(root)
    # big cat, ant, dog in the order of their names; the test list says the same numbers
    text = train.read_text().replace("ant/000.png 0", "ant/000.png\t0\n\n")
    train.write_text(text)
    assert len(lists(root, train, test).files) == 10


def test_a_list_may_be_one_of_windows(root):
    train, test = write_lists(root)
    listing = lists(root, train, test)
    train.write_bytes(b"\xef\xbb\xbf" + train.read_bytes().replace(b"\n", b"  \r\n"))
    assert lists(root, train, test) == listing


@pytest.mark.parametrize(
    ("old", "new", "error", "complaint"),
    [
        ("train/cat/001.png 1", "train/cat/777.png 1", FileNotFoundError, "{list}:3: {root}/train/cat/777.png is miss"),
        ("train/cat/001.png 1", "train/cat/001.png", ValueError, "{list}:3: 'train/cat/001.png': expected `path"),
        ("train/cat/001.png 1", "train/cat/001.png one", ValueError, "{list}:3: .*the label a number of at least 0"),
        ("train/cat/001.png 1", "train/cat/001.png -1", ValueError, "{list}:3: .*the label a number of at least 0"),
        ("train/cat/001.png 1", "train/cat/000.png 1", ValueError, "{list}:4: .* stands in {list}:3, too"),
        ("train/cat/001.png 1", "test/cat/001.png 1", ValueError, "{root}/test.txt:2: .* stands in {list}:3, too"),
        ("train/dog/000.png 2", "train/dog/000.png 3", ValueError, "{list}: class 2 of 0 … 3 has no images"),
        ("train/dog/000.png 2", "", ValueError, "{root}/test.txt: label 2: expected 0 … 1, as in {list}"),
        ("train/dog/000.png 2", "train/dog/000.png 9999999999", ValueError, "class 2 of 0 … 9999999999 has no images"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_list_is_told_with_its_line(root, old, new, error, complaint):
    train, test = write_lists(root)
    text = train.read_text()
    assert old in text
    train.write_text(text.replace(old, new))
    with pytest.raises(error, match=complaint.format(list=train, root=root)):
        lists(root, train, test)


def test_two_spellings_of_a_path_are_one_image(root):
    train, test = write_lists(root)
    for other in ("train//cat/001.png", "./train/cat/001.png", "train/./cat/001.png"):
        train.write_text(f"train/cat/001.png 1\n{other} 1\n")
        with pytest.raises(ValueError, match=rf"{train}:2: {root}/train/cat/001\.png stands in {train}:1, too"):
            lists(root, train, test)


def webvision(folder):
    """Two lists as WebVision has them: more classes than are wanted, and test images with a folder of their own."""
    write_folder(folder / "web" / "google", {f"q000{number}": {"x": 2} for number in range(4)})
    write_folder(folder / "web", {"val_images_256": {"x": 4}})
    for image in (folder / "web" / "val_images_256" / "x").iterdir():
        image.rename(image.parents[1] / f"val{image.name}")
    train, test = folder / "web" / "train_filelist_google.txt", folder / "web" / "val_filelist.txt"
    train.write_text("".join(f"google/q000{k // 2}/x/00{k % 2}.png {k // 2}\n" for k in range(8)))
    test.write_text("val001.png 3\nval003.png 0\nval000.png 2\nval002.png 1\n")
    return folder / "web", train, test


def test_the_first_classes_of_lists_and_test_images_in_a_folder_of_their_own(tmp_path):
    root, train, test = webvision(tmp_path)
    listing = lists(root, train, test, root / "val_images_256")
    assert listing.labels == (0, 0, 1, 1, 2, 2, 3, 3, 3, 0, 2, 1)
    assert listing.files[8] == str(root / "val_images_256" / "val001.png")
    (root / "google" / "q0003" / "x" / "001.png").unlink()  # which is not looked for
    listing = lists(root, train, test, root / "val_images_256", classes=2)
    assert listing.class_names == ("0", "1")
    assert listing.labels == (0, 0, 1, 1, 0, 1)
    assert listing.files[4:] == tuple(str(root / "val_images_256" / f"val00{number}.png") for number in (3, 2))


def test_what_the_first_classes_of_lists_lack_is_named(tmp_path):
    root, train, test = webvision(tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"{test}:2: {root}/val003\.png is missing"):
        lists(root, train, test, classes=2)
    with pytest.raises(FileNotFoundError, match=rf"{root}/val is missing; expected the folder that .* {test} begin at"):
        lists(root, train, test, root / "val", 2)
    with pytest.raises(ValueError, match=rf"classes = 5: {train} has 4; expected no more than that"):
        lists(root, train, test, root / "val_images_256", 5)
    test.write_text("val003.png 0\nval001.png 3\n")
    with pytest.raises(ValueError, match=rf"{test}: class 1 of 0 … 1 has no images; expected at least one"):
        lists(root, train, test, root / "val_images_256", 2)


def test_lists_in_different_orders_of_classes_are_refused(root):
    train, test = write_lists(root)
    text = test.read_text()
    test.write_text(text.replace(".png 0", ".png X").replace(".png 1", ".png 0").replace(".png X", ".png 1"))
    with pytest.raises(ValueError, match=rf"{test}: images in \w+/ have the label \d, and \d in {train}"):
        lists(root, train, test)
    # Folders that are not classes say nothing of their order.
    (root / "test" / "all").mkdir()
    for line in test.read_text().splitlines():
        path, _ = line.split()
        (root / path).rename(root / "test" / "all" / path.replace("/", "-"))
    test.write_text("".join(f"test/all/{line.replace('/', '-')}\n" for line in test.read_text().splitlines()))
    assert lists(root, train, test).facts.test_sizes == (2, 1, 1)


def test_a_class_that_no_test_image_is_of_is_named(root):
    train, test = write_lists(root)
    test.write_text(test.read_text().replace("test/dog/000.png 2", ""))
    with pytest.raises(ValueError, match=rf"{test}: class 2 of 0 … 2 has no images"):
        lists(root, train, test)


def test_missing_and_unreadable_lists_are_named(root):
    train, test = write_lists(root)
    with pytest.raises(FileNotFoundError, match=rf"{root}/none.txt is missing; expected a list of images"):
        lists(root, train, root / "none.txt")
    with pytest.raises(FileNotFoundError, match=rf"{root}/none is missing; expected the folder that the paths in"):
        lists(root / "none", train, test)
    test.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=rf"{test} is not text in UTF-8"):
        lists(root, train, test)


@pytest.mark.parametrize(("shape", "channels"), [((8, 8), 1), ((8, 8, 1), 1), ((9, 8, 3), 3)])
def test_an_archive_is_listed_by_its_labels(tmp_path, shape, channels):
    write_npz(tmp_path / "a.npz", (4, 2), shape=shape)
    listing = npz(tmp_path / "a.npz")
    assert listing.class_names == ("0", "1", "2")
    assert listing.labels == (0, 1, 2) * 6
    assert listing.num_train == 12
    assert listing.files == ()
    assert listing.facts.channels == channels


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"test_labels": None}, "test_labels is missing; expected the arrays train_images, train_labels"),
        ({"train_images": np.zeros((6, 8, 8))}, r"train_images has float64 of shape \(6, 8, 8\); expected uint8"),
        ({"train_images": np.zeros((6, 8), np.uint8)}, r"train_images has uint8 of shape \(6, 8\); expected"),
        ({"test_images": np.zeros((3, 9, 8, 3), np.uint8)}, "expected one height and width, and as many channels"),
        ({"test_images": np.zeros((3, 8, 8), np.uint8)}, "expected one height and width, and as many channels"),
        ({"train_labels": np.arange(5)}, r"train_labels has int64 of shape \(5,\); expected a whole number for each"),
        ({"train_labels": np.zeros(6)}, "train_labels has float64"),
        ({"train_labels": np.zeros(6, int)}, "train_labels has 1 classes; expected at least two"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, -1])}, "train_labels: label -1: expected 0 … 2"),
        ({"test_labels": np.array([0, 1, 1])}, "test_labels: class 2 of 0 … 2 has no images"),
        ({"test_labels": np.array([0, 1, 3])}, "test_labels: label 3: expected 0 … 2, as in .*train_labels"),
        ({"train_labels": np.array([{}] * 6)}, "is damaged"),  # a pickle is not opened
    ],
)  # fmt: skip
def test_what_an_archive_lacks_is_named(tmp_path, changes, complaint):
    file = tmp_path / "a.npz"
    write_npz(file, (2, 1))
    with np.load(file) as stored:
        arrays = {name: array for name, array in {**stored, **changes}.items() if array is not None}
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match=rf"{file}.*{complaint}"):
        npz(file)


def test_labels_in_a_column_are_labels(tmp_path):
    file = tmp_path / "a.npz"
    write_npz(file, (2, 1))
    plain = npz(file)
    with np.load(file) as stored:
        np.savez(file, **{name: array[:, None] if "labels" in name else array for name, array in stored.items()})
    assert npz(file) == plain


def test_three_channels_that_come_first_are_refused(tmp_path):
    write_npz(tmp_path / "a.npz", (2, 1), shape=(3, 8, 8))
    with pytest.raises(ValueError, match=r"shapes \(6, 3, 8, 8\) and \(3, 3, 8, 8\); expected .* on the last axis"):
        npz(tmp_path / "a.npz")


@pytest.mark.parametrize("damage", [b"", b"PK", "cut"])
def test_a_damaged_archive_is_named(tmp_path, damage):
    file = tmp_path / "a.npz"
    with pytest.raises(FileNotFoundError, match=rf"{file} is missing; expected an archive with the arrays"):
        npz(file)
    write_npz(file, (2, 1))
    file.write_bytes(file.read_bytes()[:-40] if damage == "cut" else damage)
    with pytest.raises(ValueError, match=rf"{file} is damaged"):
        npz(file)


def test_an_archive_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch):
    write_npz(tmp_path / "a.npz", (4, 2))
    monkeypatch.setattr("ltnb.data.listings.LARGEST_BYTES", 18 * 8 * 8 * 3 - 1)
    with pytest.raises(ValueError, match=r"a\.npz: its images are 0\.0 GiB; expected at most"):
        npz(tmp_path / "a.npz")


def test_a_look_at_files_does_not_wait_for_torch(root):
    write_lists(root)
    check = (
        "import sys; from pathlib import Path; from ltnb.data.settings import DatasetSettings as S\n"
        "for more in ({'source': 'folder'}, {'source': 'lists', 'train_list': 'train.txt', 'test_list': 'test.txt'}):\n"
        f"    S(root='.', imbalance='as-is', image_size=8, **more).facts_in(Path({str(root)!r}))\n"
        "sys.exit(not {'torch', 'sklearn', 'numpy', 'PIL'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
