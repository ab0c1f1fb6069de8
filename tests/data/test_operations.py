import math

import pytest
import torch
from random_images import noise_bytes
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import auto_augment, operations, rand_augment
from ltnb.data.operations import moving, operate

SHARES = torch.tensor([-1.0, -0.6, -0.1, 0.0, 0.4, 1.0])  # of the largest change
#: Names and largest changes, what moves, and how it does.
KINDS = {
    "auto": (auto_augment.OPERATIONS, auto_augment.MOVE, {"fill": 128 / 255, "edges": True, "whole": True}),
    "rand": (rand_augment.OPERATIONS, rand_augment.MOVE, {"fill": 0, "edges": False, "whole": False}),
    "strong rand": (
        rand_augment.STRONG_OPERATIONS,
        rand_augment.STRONG_MOVE,
        {"fill": 116 / 255, "edges": True, "whole": False},
    ),
}
EACH = [(kind, name) for kind, (names, *_) in KINDS.items() for name in names]


def moved(image, name, change, *, fill, edges, whole):
    # Where torchvision fills with something else than 0, it blends pixels at the border with it twice, so that it is
    # given an image in which the filling is 0.
    length = {"translate x": image.shape[-1], "translate y": image.shape[-2]}.get(name, 0)
    shift = int(change * length) if whole else change * length
    slope = math.degrees(math.atan(change))
    view = torchvision.affine(
        image - fill,
        angle=change if name == "rotate" else 0.0,
        translate=[shift if name == "translate x" else 0, shift if name == "translate y" else 0],
        scale=1.0,
        shear=[-slope if name == "shear x" else 0.0, -slope if name == "shear y" else 0.0],
        interpolation=InterpolationMode.BILINEAR,
        center=[0, 0] if edges and name.startswith("shear") else None,
    )
    return view + fill


def lifted(image, change):
    """The published code's own: a number is added to the dark levels."""
    return torch.where(torch.round(image * 255) < 128, torch.minimum(image + change, torch.ones(())), image)


#: Each operation in torchvision's own, of one image and the change.
TORCHVISION = {
    "identity": lambda image, _: image,
    "brightness": lambda image, change: torchvision.adjust_brightness(image, 1 + change),
    "contrast": lambda image, change: torchvision.adjust_contrast(image, 1 + change),
    "saturation": lambda image, change: torchvision.adjust_saturation(image, 1 + change),
    "sharpness": lambda image, change: torchvision.adjust_sharpness(image, 1 + change),
    "posterise": lambda image, change: torchvision.posterize(image, 8 - round(abs(change))),
    "solarise": lambda image, change: torchvision.solarize(image, 1 - abs(change)),
    "lift shadows": lifted,
    "invert": lambda image, _: torchvision.invert(image),
    "autocontrast": lambda image, _: torchvision.autocontrast(image),
    "equalise": lambda image, _: torchvision.equalize(image),
}


def expected(kind, name, image, change):
    if name in operations.MOVES:
        return moved(image, name, change, **KINDS[kind][2])
    return TORCHVISION[name](image, change)


def shares(name):
    return SHARES.abs() if name == "lift shadows" else SHARES


@pytest.mark.parametrize(("kind", "name"), EACH)
@pytest.mark.parametrize("shape", [(6, 1, 16, 16), (6, 3, 32, 32), (6, 3, 12, 20)])
def test_each_operation_is_torchvisions_on_each_image(shape, kind, name):
    # The 256 levels of a file: torchvision's equalising rounds others down, ours to the nearest.
    batch, (names, move, _) = noise_bytes(shape) / 255, KINDS[kind]
    change = shares(name) * names[name]
    ours = operate(batch, torch.full((6,), list(names).index(name)), change, tuple(names), move)
    for view, image, single in zip(ours, batch, change.tolist(), strict=True):
        # Sampling points are computed in float32; an error of 1e-6 of a coordinate is some 1e-5 of a pixel.
        torch.testing.assert_close(view, expected(kind, name, image, single), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_identity_is_exact(kind):
    batch, (names, move, _) = noise_bytes((6, 3, 16, 16)) / 255, KINDS[kind]
    assert torch.equal(operate(batch, torch.zeros(6, dtype=torch.int64), SHARES, tuple(names), move), batch)


def one_of_each(kind):
    """A batch in which two images draw each operation, near its largest change."""
    names, move, _ = KINDS[kind]
    batch = noise_bytes((2 * len(names), 3, 32, 32)) / 255
    change = torch.tensor(list(names.values()) * 2) * torch.linspace(0.6, 0.9, len(batch))
    return batch, torch.arange(2 * len(names)) % len(names), change, tuple(names), move


@pytest.mark.parametrize("way", ["_where_drawn", "_everywhere"])
@pytest.mark.parametrize("kind", KINDS)
def test_operations_of_one_batch_do_not_mix(monkeypatch, kind, way):
    monkeypatch.setattr(operations, "_where_drawn", getattr(operations, way))
    batch, operation, change, names, move = one_of_each(kind)
    before = batch.clone()
    together = operate(batch, operation, change, names, move)
    assert torch.equal(batch, before)
    for name, view, image, single in zip(names * 2, together, batch, change.tolist(), strict=True):
        torch.testing.assert_close(view, expected(kind, name, image, single), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_give_the_same_views(monkeypatch, kind):
    case = one_of_each(kind)
    here = operate(*case)
    monkeypatch.setattr(operations, "_where_drawn", operations._everywhere)
    torch.testing.assert_close(operate(*case), here, atol=1e-6, rtol=0)


def test_what_is_said_to_enter_enters_at_the_border():
    white = torch.ones(1, 3, 16, 16)
    quarter = torch.tensor([0.25])
    for fill in (0.0, 0.3):
        move = moving(fill=fill, edges=False, whole=True)
        shifted = operate(white, torch.tensor([3]), quarter, operations.MOVES, move)
        torch.testing.assert_close(shifted[..., :4], torch.full((1, 3, 16, 4), fill))
        torch.testing.assert_close(shifted[..., 4:], white[..., 4:], atol=1e-5, rtol=0)
