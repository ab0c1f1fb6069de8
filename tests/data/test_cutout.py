import pytest
import torch
from random_images import assert_independent, noise, noise_bytes, seeded
from scipy import stats
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import cutout
from ltnb.data.cutout import cut_out, random_cutout


@pytest.mark.parametrize("images", [noise, noise_bytes])
@pytest.mark.parametrize(("shape", "side"), [((6, 1, 16, 16), 0.5), ((6, 3, 32, 32), 0.5), ((6, 2, 12, 20), 0.45)])
def test_a_box_is_erased_as_torchvision_does_as_far_as_it_lies_inside(shape, side, images):
    batch = images(shape)
    height, width = shape[-2:]
    across, down = int(side * width / 2), int(side * height / 2)
    middle = [
        (0, 0),
        (width - 1, height - 1),
        (across, down),
        (width // 2, height // 2),
        (1, height - 2),
        (width - 3, 2),
    ]
    ours = cut_out(batch, torch.tensor(middle), side=side)
    for view, image, (x, y) in zip(ours, batch, middle, strict=True):
        left, top = max(x - across, 0), max(y - down, 0)
        right, bottom = min(x + across, width), min(y + down, height)
        theirs = torchvision.erase(image, top, left, bottom - top, right - left, image.new_zeros(()))
        assert torch.equal(view, theirs)


def test_half_of_32_pixels_is_a_box_of_16():
    ones = torch.ones(1, 1, 32, 32)
    assert (cut_out(ones, torch.tensor([[16, 16]]), side=0.5) == 0).sum() == 16 * 16
    assert (cut_out(ones, torch.tensor([[0, 31]]), side=0.5) == 0).sum() == 8 * 9
    assert torch.equal(cut_out(ones, torch.tensor([[16, 16]]), side=0), ones)


def test_every_pixel_is_as_likely_the_middle_and_each_image_has_its_own(monkeypatch):
    seen = []
    monkeypatch.setattr(cutout, "cut_out", lambda _images, middle, side: seen.append((middle, side)))
    random_cutout(torch.zeros(6000, 1, 4, 6), seeded(), side=0.5)
    [(middle, side)] = seen
    assert side == 0.5
    counts = torch.bincount(middle[:, 1] * 6 + middle[:, 0], minlength=24)
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    assert_independent(middle.double())


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, g: random_cutout(x[0], g, side=0.5), r"shape \(1, 4, 4\)"),
        (lambda x, g: random_cutout(x, g, side=16), "side = 16: expected a part of the image's side, 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(2, 1, 4, 4), seeded())
