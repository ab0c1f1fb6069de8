import math

import pytest
import torch
from random_images import assert_independent, noise, seeded
from scipy import stats
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import rand_augment as module
from ltnb.data.rand_augment import OPERATIONS, operate, rand_augment

STRENGTHS = torch.tensor([-1.0, -0.6, -0.1, 0.0, 0.4, 1.0])


def moved(image, angle=0.0, translate=(0.0, 0.0), shear=(0.0, 0.0)):
    degrees = [math.degrees(math.atan(slope)) for slope in shear]
    return torchvision.affine(
        image, angle, list(translate), scale=1.0, shear=degrees, interpolation=InterpolationMode.BILINEAR
    )


#: Each operation in torchvision's own, of one image and the change.
TORCHVISION = {
    "identity": lambda image, _: image,
    "rotate": lambda image, change: moved(image, angle=change),
    "shear x": lambda image, change: moved(image, shear=(-change, 0)),
    "shear y": lambda image, change: moved(image, shear=(0, -change)),
    "translate x": lambda image, change: moved(image, translate=(change * image.shape[-1], 0)),
    "translate y": lambda image, change: moved(image, translate=(0, change * image.shape[-2])),
    "brightness": lambda image, change: torchvision.adjust_brightness(image, 1 + change),
    "contrast": lambda image, change: torchvision.adjust_contrast(image, 1 + change),
    "saturation": lambda image, change: torchvision.adjust_saturation(image, 1 + change),
    "sharpness": lambda image, change: torchvision.adjust_sharpness(image, 1 + change),
    "posterise": lambda image, change: torchvision.posterize(image, 8 - round(abs(change))),
    "autocontrast": lambda image, _: torchvision.autocontrast(image),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(6, 1, 16, 16), (6, 3, 12, 20)])
def test_each_operation_is_torchvisions_on_each_image(shape, name):
    batch = noise(shape)
    operation = torch.full((6,), list(OPERATIONS).index(name))
    ours = operate(batch, operation, STRENGTHS)
    for i in range(6):
        theirs = TORCHVISION[name](batch[i], STRENGTHS[i].item() * OPERATIONS[name])
        torch.testing.assert_close(ours[i], theirs, atol=1e-4, rtol=0)


def test_identity_is_exact():
    batch = noise((6, 3, 16, 16))
    assert torch.equal(operate(batch, torch.zeros(6, dtype=torch.int64), STRENGTHS), batch)


def test_operations_of_one_batch_do_not_mix():
    batch = noise((len(OPERATIONS), 3, 16, 16))
    strength = torch.linspace(0.9, 1, len(OPERATIONS))
    together = operate(batch, torch.arange(len(OPERATIONS)), strength)
    for i, name in enumerate(OPERATIONS):
        theirs = TORCHVISION[name](batch[i], strength[i].item() * OPERATIONS[name])
        torch.testing.assert_close(together[i], theirs, atol=1e-4, rtol=0)


@pytest.fixture
def drawn(monkeypatch):
    """Operation and strength of 6,000 samples of one batch."""
    seen = []
    monkeypatch.setattr(module, "operate", lambda _images, *parameters: seen.extend(parameters))
    rand_augment(torch.zeros(6000, 1, 2, 2), seeded())
    return seen


def test_every_operation_is_as_likely(drawn):
    counts = torch.bincount(drawn[0], minlength=len(OPERATIONS))
    assert len(counts) == len(OPERATIONS)
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_strength_is_uniform_and_independent_of_the_operation(drawn):
    operation, strength = drawn
    assert strength.abs().max() <= 1
    assert stats.kstest(strength.numpy(), "uniform", args=(-1, 2)).pvalue > 0.01
    assert_independent(torch.column_stack([operation, strength]).double())


def test_two_channels_are_no_colour():
    with pytest.raises(ValueError, match="2 channels: expected 1"):
        rand_augment(noise((2, 2, 4, 4)), seeded())
