import math
from collections import Counter

import pytest
import torch
from random_images import noise_bytes, seeded
from scipy import stats
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import auto_augment as module
from ltnb.data.auto_augment import CIFAR10, FILL, OPERATIONS, auto_augment, operate

PLACES = {name: place for place, name in enumerate(OPERATIONS)}
SHARES = torch.tensor([-1.0, -0.6, -0.1, 0.0, 0.4, 1.0])  # of the change at level 9
NAMES = {"Color": "saturation", "Posterize": "posterise", "Equalize": "equalise", "Solarize": "solarise"} | {
    "AutoContrast": "autocontrast",
    "ShearY": "shear y",
    "TranslateX": "translate x",
    "TranslateY": "translate y",
}


def moved(image, angle=0.0, translate=(0, 0), shear=0.0):
    # The policy shears along the edge of the image, as Pillow does. Where torchvision fills with something else than
    # 0, it blends pixels at the border with it twice, so that it is given an image in which the filling is 0.
    view = torchvision.affine(
        image - FILL,
        angle=angle,
        translate=list(translate),
        scale=1.0,
        shear=[0.0, math.degrees(math.atan(shear))],
        interpolation=InterpolationMode.BILINEAR,
        center=[0, 0] if shear else None,
    )
    return view + FILL


#: Each operation in torchvision's own, of one image and the change.
TORCHVISION = {
    "identity": lambda image, _: image,
    "rotate": lambda image, change: moved(image, angle=change),
    "shear y": lambda image, change: moved(image, shear=-change),
    "translate x": lambda image, change: moved(image, translate=(int(change * image.shape[-1]), 0)),
    "translate y": lambda image, change: moved(image, translate=(0, int(change * image.shape[-2]))),
    "brightness": lambda image, change: torchvision.adjust_brightness(image, 1 + change),
    "contrast": lambda image, change: torchvision.adjust_contrast(image, 1 + change),
    "saturation": lambda image, change: torchvision.adjust_saturation(image, 1 + change),
    "sharpness": lambda image, change: torchvision.adjust_sharpness(image, 1 + change),
    "posterise": lambda image, change: torchvision.posterize(image, 8 - round(abs(change))),
    "solarise": lambda image, change: torchvision.solarize(image, 1 - abs(change)),
    "invert": lambda image, _: torchvision.invert(image),
    "autocontrast": lambda image, _: torchvision.autocontrast(image),
    "equalise": lambda image, _: torchvision.equalize(image),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(6, 1, 16, 16), (6, 3, 32, 32), (6, 3, 12, 20)])
def test_each_operation_is_torchvisions_on_each_image(shape, name):
    # The 256 levels of a file: torchvision's equalising rounds others down, ours to the nearest.
    batch = noise_bytes(shape) / 255
    change = SHARES * OPERATIONS[name]
    ours = operate(batch, torch.full((6,), PLACES[name]), change)
    for view, image, single in zip(ours, batch, change.tolist(), strict=True):
        # Sampling points are computed in float32; an error of 1e-6 of a coordinate is some 1e-5 of a pixel.
        torch.testing.assert_close(view, TORCHVISION[name](image, single), atol=1e-4, rtol=0)


def test_mid_grey_enters_at_the_border():
    white = torch.ones(1, 3, 16, 16)
    shifted = operate(white, torch.tensor([PLACES["translate x"]]), torch.tensor([0.25]))
    assert (shifted[..., :4] == 128 / 255).all()
    torch.testing.assert_close(shifted[..., 4:], white[..., 4:], atol=1e-5, rtol=0)


def test_identity_is_exact():
    batch = noise_bytes((6, 3, 16, 16)) / 255
    assert torch.equal(operate(batch, torch.zeros(6, dtype=torch.int64), SHARES), batch)


@pytest.mark.parametrize("way", ["_where_drawn", "_everywhere"])
def test_operations_of_one_batch_do_not_mix(monkeypatch, way):
    monkeypatch.setattr(module, "_where_drawn", getattr(module, way))
    batch = noise_bytes((2 * len(OPERATIONS), 3, 32, 32)) / 255
    operation = torch.arange(2 * len(OPERATIONS)) % len(OPERATIONS)
    change = torch.tensor(list(OPERATIONS.values()) * 2) * torch.linspace(0.6, 0.9, len(batch))
    before = batch.clone()
    together = operate(batch, operation, change)
    assert torch.equal(batch, before)
    for name, view, image, single in zip(list(OPERATIONS) * 2, together, batch, change.tolist(), strict=True):
        torch.testing.assert_close(view, TORCHVISION[name](image, single), atol=1e-4, rtol=0)


def test_both_ways_give_the_same_views(monkeypatch):
    batch = noise_bytes((256, 3, 32, 32)) / 255
    here = auto_augment(batch, seeded())
    monkeypatch.setattr(module, "_where_drawn", module._everywhere)
    torch.testing.assert_close(auto_augment(batch, seeded()), here, atol=1e-6, rtol=0)


def test_an_accelerator_is_not_asked_for_values():
    # A tensor on "meta" has no values: reading one raises.
    batch, operation, change = (torch.zeros(shape, device="meta") for shape in ((8, 3, 32, 32), (8,), (8,)))
    assert operate(batch, operation.long(), change).shape == batch.shape


def test_the_table_is_torchvisions():
    theirs = AutoAugment(AutoAugmentPolicy.CIFAR10)
    ranges = theirs._augmentation_space(10, (32, 32))
    assert len(CIFAR10) == 25
    for pair, expected in zip(CIFAR10, theirs.policies, strict=True):
        for (name, probability, level), (their_name, their_probability, their_level) in zip(
            pair, expected, strict=True
        ):
            assert name == NAMES.get(their_name, their_name.lower())
            assert probability == their_probability
            assert level == (their_level or 0)
            magnitudes, signed = ranges[their_name]
            change = OPERATIONS[name] * level / 9
            if name.startswith("translate"):
                assert int(change * 32) == int(magnitudes[level])
            elif name == "posterise":
                assert 8 - round(change) == int(magnitudes[level])
            elif name == "solarise":
                assert 255 * (1 - change) == pytest.approx(magnitudes[level].item())
            elif signed:
                assert change == pytest.approx(magnitudes[level].item())
            else:
                assert change == 0


@pytest.fixture
def drawn(monkeypatch):
    """Operation and change of both halves for 30,000 samples of one batch, (N, 2) each."""
    seen = []

    def leave(images, *parameters):
        seen.append(parameters)
        return images

    monkeypatch.setattr(module, "operate", leave)
    auto_augment(torch.zeros(30000, 1, 2, 2), seeded())
    return tuple(torch.stack(halves, dim=1) for halves in zip(*seen, strict=True))


def test_pairs_halves_and_signs_have_the_policys_law(drawn):
    expected = Counter()
    for pair in CIFAR10:
        cases = []
        for name, probability, level in pair:
            change = round(OPERATIONS[name] * level / 9, 4)
            signs = {change, -change}
            cases.append([(PLACES[name], sign, probability / len(signs)) for sign in signs] + [(0, 0, 1 - probability)])
        for first, second in ((a, b) for a in cases[0] for b in cases[1]):
            expected[first[:2], second[:2]] += first[2] * second[2] / 25

    operation, change = drawn
    rows = zip(operation.tolist(), change.tolist(), strict=True)
    counts = Counter(tuple((o, 0 if o == 0 else round(c, 4)) for o, c in zip(*row, strict=True)) for row in rows)
    # Changes rounded to four places tell all of the policy's apart.
    assert set(counts) <= {case for case, share in expected.items() if share > 0}
    cases = [case for case, share in expected.items() if 30000 * share >= 5]
    rest = 30000 - sum(counts[case] for case in cases)
    shares = [expected[case] for case in cases]
    observed, wanted = [counts[case] for case in cases], [30000 * share for share in shares]
    assert len(cases) > 60
    if sum(shares) < 1 - 1e-9:
        observed, wanted = [*observed, rest], [*wanted, 30000 * (1 - sum(shares))]
    assert stats.chisquare(observed, wanted).pvalue > 0.01


def test_the_samples_of_a_batch_are_independent(drawn):
    # The same pair twice running: 25 equally likely ones, told apart as far as both halves are applied.
    operation, change = drawn
    rows = torch.cat([operation.double(), change.abs().double()], dim=1)
    alike = (rows[1:] == rows[:-1]).all(dim=1).double().mean()
    shuffled = rows[torch.randperm(len(rows), generator=seeded(2))]
    expected = (shuffled[1:] == shuffled[:-1]).all(dim=1).double().mean()
    assert alike.item() == pytest.approx(expected.item(), abs=0.01)


def test_grey_is_a_colour_photograph_of_it():
    # Luminance weights add up to 0.9999; equalising and posterising see levels and would see that.
    batch = noise_bytes((64, 1, 32, 32)) / 255
    grey, colour = auto_augment(batch, seeded()), auto_augment(batch.expand(-1, 3, -1, -1), seeded())
    close = (colour - grey).abs().amax(dim=(1, 2, 3)) < 5e-4
    assert close.float().mean() > 0.9


def test_two_channels_are_no_colour():
    with pytest.raises(ValueError, match="2 channels: expected 1"):
        auto_augment(noise_bytes((2, 2, 4, 4)) / 255, seeded())
