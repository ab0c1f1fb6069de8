from itertools import permutations

import pytest
import torch
from random_images import assert_independent, noise, seeded
from scipy import stats
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import jitter
from ltnb.data.colour import adjust_hue
from ltnb.data.jitter import colour_jitter, jittered, random_grey

CHANGES = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "hue": 0.1}


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_is_torchvisions_in_the_order_of_each_image(channels):
    adjust = (torchvision.adjust_brightness, torchvision.adjust_contrast, torchvision.adjust_saturation)
    order = torch.tensor(list(permutations(range(3))))
    batch = noise((6, channels, 12, 16))
    uniform = torch.rand(6, 4, generator=seeded(3))
    factors, turn = 0.5 + uniform[:, :3], uniform[:, 3] - 0.5
    ours = adjust_hue(jittered(batch, factors, order), turn)
    for i in range(6):
        theirs = batch[i]
        for operation in order[i].tolist():
            theirs = adjust[operation](theirs, factors[i, operation].item())
        theirs = torchvision.adjust_hue(theirs, turn[i].item())
        torch.testing.assert_close(ours[i], theirs, atol=5e-6, rtol=0)


@pytest.fixture
def drawn(monkeypatch):
    """Parameters of 6,000 samples of one batch and which of them are changed: factors, order, turn, changed."""
    seen = []

    def white(images, *parameters):
        seen.extend(parameters)
        return torch.ones_like(images)

    monkeypatch.setattr(jitter, "jittered", white)
    monkeypatch.setattr(jitter, "adjust_hue", white)
    view = colour_jitter(torch.zeros(6000, 1, 2, 2), seeded(), **CHANGES, probability=0.8)
    factors, order, turn = seen
    return factors.double(), order, turn.double(), view[:, 0, 0, 0].double()


def test_factors_are_uniform_and_independent(drawn):
    factors, order, turn, changed = drawn
    columns = torch.column_stack([factors, turn])
    bounds = [(0.6, 1.4), (0.7, 1.3), (0.8, 1.2), (-0.1, 0.1)]
    for values, (low, high) in zip(columns.T, bounds, strict=True):
        assert low <= values.min().item() + 1e-6
        assert values.max().item() - 1e-6 <= high
        assert stats.kstest(values.numpy(), "uniform", args=(low, high - low)).pvalue > 0.01
    assert_independent(torch.column_stack([columns, order[:, 0], changed]))


def test_every_order_is_as_likely(drawn):
    order = drawn[1]
    assert torch.equal(order.sort(dim=1).values, torch.arange(3).expand(6000, 3))
    counts = torch.bincount(order[:, 0] * 3 + order[:, 1], minlength=9)
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 0.01
    assert (counts > 0).sum() == 6


def test_a_part_of_the_images_is_changed(drawn):
    assert stats.binomtest(int(drawn[3].sum()), 6000, 0.8).pvalue > 0.01


def test_a_part_of_the_images_loses_its_colour():
    batch = noise((6000, 3, 1, 1))
    view = random_grey(batch, seeded(), probability=0.2)
    lost = (view[:, 0] == view[:, 1]).flatten()
    assert stats.binomtest(int(lost.sum()), 6000, 0.2).pvalue > 0.01
    assert torch.equal(view[~lost], batch[~lost])
    for image, expected in zip(view[lost][:8], batch[lost][:8], strict=True):
        torch.testing.assert_close(image, torchvision.rgb_to_grayscale(expected, 3))


def test_a_grey_image_keeps_its_grey():
    batch = noise((50, 1, 4, 4))
    assert torch.equal(random_grey(batch, seeded(), probability=0.5), batch)
    colour_only = {"brightness": 0, "contrast": 0, "saturation": 1, "hue": 0.5}
    assert torch.equal(colour_jitter(batch, seeded(), **colour_only, probability=1), batch)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"brightness": -0.1}, "brightness = -0.1"),
        ({"contrast": 1.5}, "contrast = 1.5"),
        ({"saturation": 2}, "saturation = 2"),
        ({"hue": 0.6}, "hue = 0.6"),
        ({"probability": 1.2}, "probability = 1.2"),
    ],
)
def test_what_cannot_be_is_refused(changed, complaint):
    with pytest.raises(ValueError, match=complaint):
        colour_jitter(noise((2, 3, 4, 4)), seeded(), **{**CHANGES, "probability": 0.8, **changed})


@pytest.mark.parametrize(("view", "settings"), [(random_grey, {}), (colour_jitter, CHANGES)])
def test_two_channels_are_no_colour(view, settings):
    with pytest.raises(ValueError, match="2 channels: expected 1"):
        view(noise((2, 2, 4, 4)), seeded(), **settings, probability=0.2)


def test_grey_with_a_probability_beyond_one_is_refused():
    with pytest.raises(ValueError, match="probability = 2"):
        random_grey(noise((2, 3, 4, 4)), seeded(), probability=2)
