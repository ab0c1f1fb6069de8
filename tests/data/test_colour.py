import pytest
import torch
from random_images import noise
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data.colour import (
    adjust_hue,
    autocontrast,
    black,
    blend,
    grey,
    mean_grey,
    posterise,
    smooth,
)

SHAPES = [(6, 1, 16, 16), (6, 3, 32, 32), (6, 3, 12, 20)]
FACTORS = torch.tensor([0.0, 0.3, 0.9, 1.0, 1.4, 2.5])


def assert_each_is(ours, theirs):
    for image, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(image, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize(
    ("plain", "adjust"),
    [
        (black, torchvision.adjust_brightness),
        (mean_grey, torchvision.adjust_contrast),
        (grey, torchvision.adjust_saturation),
        (smooth, torchvision.adjust_sharpness),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_blend_is_torchvisions_on_each_image(shape, plain, adjust):
    batch = noise(shape)
    ours = blend(batch, plain(batch), FACTORS)
    assert_each_is(ours, [adjust(image, factor.item()) for image, factor in zip(batch, FACTORS, strict=True)])


def test_factor_one_changes_nothing():
    batch = noise((4, 3, 8, 8))
    assert torch.equal(blend(batch, mean_grey(batch), torch.ones(4)), batch)


@pytest.mark.parametrize("shape", SHAPES)
def test_hue_is_torchvisions_on_each_image(shape):
    batch = noise(shape)
    shift = torch.tensor([-0.5, -0.31, -0.1, 0.0, 0.07, 0.5])
    theirs = [torchvision.adjust_hue(image, part.item()) for image, part in zip(batch, shift, strict=True)]
    assert_each_is(adjust_hue(batch, shift), theirs)


def test_a_third_of_the_wheel_moves_red_to_green_to_blue():
    # Pure and mixed colours, two channels alike, greys and black.
    colours = torch.tensor(
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0.2, 0.7, 0.2], [0.9, 0.4, 0.9], [0.5, 0.5, 0.5], [0, 0, 0]]
    ).double()
    pixels = colours.T.reshape(1, 3, 2, 4)
    turned = adjust_hue(pixels, torch.tensor([1 / 3]).double())
    torch.testing.assert_close(turned, pixels.roll(1, dims=1))
    torch.testing.assert_close(adjust_hue(pixels, torch.zeros(1).double()), pixels)


@pytest.mark.parametrize("shape", SHAPES)
def test_posterising_is_torchvisions_on_each_image(shape):
    batch = noise(shape)
    batch[:, 0, 0, 0] = 1
    bits = torch.tensor([1, 2, 3, 5, 7, 8])
    theirs = [torchvision.posterize(image, int(b)) for image, b in zip(batch, bits, strict=True)]
    assert_each_is(posterise(batch, bits), theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_autocontrast_is_torchvisions_on_each_image(shape):
    batch = noise(shape) * torch.linspace(0.1, 0.9, shape[0]).view(-1, 1, 1, 1)
    batch[2, -1] = 0.4
    ours = autocontrast(batch)
    assert_each_is(ours, [torchvision.autocontrast(image) for image in batch])
    assert (ours[2, -1] == 0.4).all()
    assert ours[0].amin() == 0
    assert ours[0].amax() == 1


def test_the_border_stays_as_sharp_as_it_is():
    batch = noise((2, 3, 6, 7))
    changed = smooth(batch) != batch
    assert changed[:, :, 1:-1, 1:-1].all()
    changed[:, :, 1:-1, 1:-1] = False
    assert not changed.any()
