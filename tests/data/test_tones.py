import pytest
import torch
from random_images import noise, noise_bytes
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data.tones import equalise, lift_shadows, solarise

SHAPES = [(6, 1, 16, 16), (6, 3, 32, 32), (6, 3, 12, 40)]


@pytest.mark.parametrize("shape", SHAPES)
def test_solarising_is_torchvisions_on_each_image(shape):
    batch = noise(shape)
    threshold = torch.tensor([0.0, 0.1, 0.5, 7 / 9, 0.99, 1.0])
    batch[2, 0, 0, 0] = 0.5
    for view, image, t in zip(solarise(batch, threshold), batch, threshold.tolist(), strict=True):
        assert torch.equal(view, torchvision.solarize(image, t))
    assert torch.equal(solarise(batch, torch.zeros(6)), torch.stack([torchvision.invert(image) for image in batch]))


def test_the_dark_half_is_lifted_and_clipped():
    levels = torch.tensor([0, 100, 127, 128, 255]) / 255
    changes = torch.tensor([0, 10 / 255, 200 / 255])
    lifted = lift_shadows(levels.expand(3, 1, 1, 5), changes)[:, 0, 0] * 255
    expected = torch.tensor([[0, 100, 127, 128, 255], [10, 110, 137, 128, 255], [200, 255, 255, 128, 255]])
    torch.testing.assert_close(lifted, expected.float(), atol=1e-4, rtol=0)


def skewed(shape):
    """Bytes of narrow ranges, of few levels, with a lightest level of many pixels, plain."""
    batch = noise_bytes(shape)
    batch[0] = 100 + batch[0] // 8
    batch[1] = batch[1] // 64 * 64
    batch[2] = batch[2].clamp(max=160)
    batch[3, -1] = 77
    batch[4] = (batch[4] // 128) * 255
    return batch


@pytest.mark.parametrize("images", [noise_bytes, skewed])
@pytest.mark.parametrize("shape", SHAPES)
def test_equalising_is_torchvisions_on_each_image(shape, images):
    batch = images(shape)
    theirs = torch.stack([torchvision.equalize(image) for image in batch])
    assert torch.equal(torch.round(equalise(batch / 255) * 255).to(torch.uint8), theirs)
    # A level of the 256 is a level of the 256 again, not nearly.
    assert torch.equal(equalise(batch / 255), theirs / 255)


def test_equalising_spreads_what_was_narrow():
    narrow = 0.4 + 0.1 * noise((1, 3, 64, 64))
    levels = equalise(narrow)
    assert levels.amin() == 0
    assert levels.amax() > 0.95
    # Half of the pixels in each half; 25 levels for 4,096 pixels leave a step of 1/25.
    assert (levels < 0.5).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_between_levels_the_nearest_counts():
    batch = noise((4, 3, 32, 32))
    rounded = torch.round(batch * 255).to(torch.uint8)
    assert torch.equal(equalise(batch), torch.stack([torchvision.equalize(image) for image in rounded]) / 255)


def test_small_and_plain_images_stay():
    small = noise((2, 3, 8, 8))
    assert torch.equal(equalise(small), small)
    plain = torch.full((2, 1, 32, 32), 0.123)
    assert torch.equal(equalise(plain), plain)
