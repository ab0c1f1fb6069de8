import pytest
import torch
from random_images import assert_independent, noise, noise_bytes, seeded
from scipy import stats
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data.flipping import random_flip


@pytest.mark.parametrize("images", [noise, noise_bytes])
@pytest.mark.parametrize("shape", [(20, 1, 16, 16), (20, 2, 12, 21)])
def test_an_image_is_flipped_as_torchvision_does_or_left(shape, images):
    batch = images(shape)
    flipped = [not torch.equal(view, image) for view, image in zip(random_flip(batch, seeded()), batch, strict=True)]
    assert 0 < sum(flipped) < 20
    for view, image, is_flipped in zip(random_flip(batch, seeded()), batch, flipped, strict=True):
        assert torch.equal(view, torchvision.horizontal_flip(image) if is_flipped else image)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5, 1.0])
def test_each_image_is_flipped_with_the_probability_of_its_own(probability):
    batch, generator = torch.tensor([0.0, 1.0]).expand(6000, 1, 1, 2), seeded()
    flipped = torch.stack([random_flip(batch, generator, probability=probability)[:, 0, 0, 0] for _ in range(2)], dim=1)
    assert stats.binomtest(int(flipped.sum()), 12000, probability).pvalue > 0.01
    if 0 < probability < 1:
        assert_independent(flipped.double())


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, g: random_flip(x[0], g), r"shape \(1, 4, 4\)"),
        (lambda x, g: random_flip(x, g, probability=1.2), "probability = 1.2"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(2, 1, 4, 4), seeded())
