import hashlib

import numpy as np
import pytest
import torch
from image_sources import random_image
from PIL import Image

from ltnb.data import image_files
from ltnb.data.image_files import FiledImages, ImageFiles, joined


def stored(folder, *images, ending="png"):
    files = []
    for number, image in enumerate(images):
        files.append(folder / f"{number}.{ending}")
        Image.fromarray(image).save(files[-1])
    return ImageFiles(tuple(files))


def test_images_of_the_size_that_is_wanted_are_read_as_they_are(tmp_path):
    images = [random_image(number, 9, 9) for number in range(5)]
    pixels = stored(tmp_path, *images).read(torch.tensor([3, 0, 3]), 9)
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels, torch.from_numpy(np.stack([images[3], images[0], images[3]])).movedim(3, 1))


@pytest.mark.parametrize("at_once", [2, 3, 1024])
def test_any_number_of_images_keeps_its_order(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(image_files, "_AT_ONCE", at_once)
    files = stored(tmp_path, *(np.full((8, 8, 3), number, np.uint8) for number in range(7)))
    assert files.read(torch.arange(7).flip(0), 8)[:, 1, 4, 5].tolist() == list(range(7))[::-1]
    assert files.read(torch.arange(0), 8).shape == (0, 3, 8, 8)


def test_grey_and_palettes_become_colours(tmp_path):
    grey = random_image(0, 8, 8)[:, :, 0]
    pixels = stored(tmp_path, grey).read(torch.tensor([0]), 8)
    assert torch.equal(pixels, torch.from_numpy(grey).expand(1, 3, 8, 8))
    Image.fromarray(grey).convert("P").save(tmp_path / "palette.png")
    assert torch.equal(ImageFiles([tmp_path / "palette.png"]).read(torch.tensor([0]), 8), pixels)


@pytest.mark.parametrize("turned", [False, True])
def test_the_square_in_the_middle_is_taken(tmp_path, turned):
    # Two columns of another grey on either side of a square of 8, in which the mean of 2 × 2 pixels is that of a
    # quarter; bilinear and antialiased, a ramp stays one.
    image = np.full((8, 12), 200, np.uint8)
    image[:, 2:10] = 8 * np.arange(8)
    image = image.T if turned else image
    pixels = stored(tmp_path, image).read(torch.tensor([0]), 8)[0, 0]
    ramp = (8 * torch.arange(8, dtype=torch.uint8)).expand(8, 8)
    assert torch.equal(pixels, ramp.T if turned else ramp)
    half = stored(tmp_path, image).read(torch.tensor([0]), 4)[0, 0]
    half = half.T if turned else half
    assert torch.equal(half, half[:1].expand(4, 4))
    assert half[0, 1:3].tolist() == [20, 36]


def test_scaling_is_that_of_pillow(tmp_path):
    image = random_image(1, 20, 20)
    wanted = np.asarray(Image.fromarray(image).resize((8, 8), Image.Resampling.BILINEAR))
    assert torch.equal(
        stored(tmp_path, image).read(torch.tensor([0]), 8)[0], torch.from_numpy(wanted.copy()).movedim(2, 0)
    )


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "header"])
@pytest.mark.parametrize("ending", ["png", "jpg", "bmp"])
def test_a_damaged_image_is_named(tmp_path, ending, damage):
    files = stored(tmp_path, *(random_image(number, 30, 30) for number in range(3)), ending=ending)
    content = files.files[1].read_bytes()
    files.files[1].write_bytes(
        {
            "empty": b"",
            "text": b"<html>no such image</html>",
            "cut": content[: len(content) // 2],
            "header": content[:9] + bytes(20) + content[29:],
        }[damage]
    )
    assert files.read(torch.tensor([0, 2]), 30).shape == (2, 3, 30, 30)
    if ending == "jpg" and damage == "header":
        return  # no more than its resolution, which nobody needs
    with pytest.raises(ValueError, match=rf"{tmp_path}/1\.{ending} cannot be decoded"):
        files.read(torch.arange(3), 30)


@pytest.mark.parametrize(
    ("kind", "ending"), [("uint16", "png"), ("uint16", "tif"), ("int32", "tif"), ("float32", "tif")]
)
def test_pixels_of_more_than_a_byte_are_not_cut_off(tmp_path, kind, ending):
    files = stored(tmp_path, np.full((8, 8), 1000, dtype=kind), ending=ending)
    for work in (files.read, files.examine):
        with pytest.raises(
            ValueError, match=rf"{tmp_path}/0\.{ending} cannot be decoded: .* expected 8 bits a channel"
        ):
            work(torch.tensor([0]), 8)


def test_a_missing_image_is_named(tmp_path):
    files = stored(tmp_path, random_image(0, 8, 8))
    files.files[0].unlink()
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/0\.png is missing"):
        files.read(torch.tensor([0]), 8)


def test_an_image_that_is_too_large_to_be_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)  # refused beyond twice as many
    with pytest.raises(ValueError, match=r"0\.png cannot be decoded: Image size \(100 pixels\) exceeds"):
        stored(tmp_path, random_image(0, 10, 10)).read(torch.tensor([0]), 8)


def test_after_a_damaged_image_no_more_are_begun_than_a_few(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "_AT_ONCE", 4)
    files = stored(tmp_path, *(random_image(number, 8, 8) for number in range(12)))
    files.files[1].write_bytes(b"")
    begun = []
    decode = image_files._decode
    monkeypatch.setattr(image_files, "_decode", lambda file, size: (begun.append(file), decode(file, size))[1])
    with pytest.raises(ValueError, match=r"1\.png"):
        files.read(torch.arange(12), 8)
    assert set(begun) <= set(files.files[:4])


def test_what_is_examined_is_what_is_read(tmp_path):
    files = stored(tmp_path, *(random_image(number, 12, 9 + number) for number in range(5)), ending="jpg")
    index = torch.tensor([4, 0, 2])
    examined, pixels = files.examine(index, 8), files.read(index, 8)
    for digest, row in zip(examined.digests, index.tolist(), strict=True):
        assert digest.tobytes() == hashlib.sha256(files.files[row].read_bytes()).digest()
    for c in range(3):
        assert examined.histograms[c].tolist() == pixels[:, c].reshape(-1).bincount(minlength=256).tolist()


def test_what_cannot_be_examined_is_named(tmp_path):
    files = stored(tmp_path, *(random_image(number, 8, 8) for number in range(3)))
    files.files[1].write_bytes(files.files[1].read_bytes()[:-30])
    with pytest.raises(ValueError, match=rf"{tmp_path}/1\.png cannot be decoded"):
        files.examine(torch.arange(3), 8)
    files.files[1].unlink()
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/1\.png is missing"):
        files.examine(torch.arange(3), 8)


def filed(files, size):
    names = [file.name for file in files.files]
    digests = torch.from_numpy(files.examine(torch.arange(len(names)), size).digests)
    return FiledImages.of(files.files[0].parent, torch.from_numpy(joined(names).copy()), digests, size)


def test_images_in_files_are_those_that_are_read(tmp_path):
    files = stored(tmp_path, *(random_image(number, 12, 9 + number) for number in range(5)), ending="jpg")
    images, pixels = filed(files, 8), files.read(torch.arange(5), 8)
    assert images.shape == pixels.shape
    assert len(images) == 5
    assert [images.file(row) for row in range(5)] == list(files.files)
    for index in (torch.tensor([3, 0, 3]), slice(None), slice(1, 3), torch.tensor([], dtype=torch.int64)):
        assert torch.equal(images[index], pixels[index])


def test_any_name_of_a_file_is_found_again(tmp_path):
    names = ["a b.png", "ä/ü.png", "\udcff.png", "c\n.png"]
    images = FiledImages.of(tmp_path, torch.from_numpy(joined(names).copy()), torch.zeros(4, 32, dtype=torch.uint8), 8)
    assert [images.file(row) for row in range(4)] == [tmp_path / name for name in names]
    with pytest.raises(ValueError, match="4 names and 3 digests; expected as many"):
        FiledImages.of(tmp_path, images.names, images.digests[:3], 8)


def test_a_file_that_is_not_what_it_was_is_named(tmp_path):
    files = stored(tmp_path, *(random_image(number, 8, 8) for number in range(3)))
    images = filed(files, 8)
    Image.fromarray(random_image(7, 8, 8)).save(files.files[1])
    assert images[torch.tensor([0, 2])].shape == (2, 3, 8, 8)
    with pytest.raises(ValueError, match=rf"{tmp_path}/1\.png is not what it was when the data set was prepared"):
        images[torch.arange(3)]
    files.files[1].unlink()
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/1\.png is missing"):
        images[torch.arange(3)]
