import pytest
import torch
from random_images import assert_independent, noise, seeded
from scipy import stats
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import blurring
from ltnb.data.blurring import blur, random_blur

SIGMA = torch.tensor([0.1, 0.4, 0.9, 1.3, 2.0, 50.0])


@pytest.mark.parametrize("radius", [1, 6])
@pytest.mark.parametrize("shape", [(6, 1, 16, 16), (6, 3, 32, 32), (6, 2, 12, 20)])
def test_blur_is_torchvisions_on_each_image(shape, radius):
    batch = noise(shape)
    ours = blur(batch, SIGMA, radius=radius)
    for view, image, sigma in zip(ours, batch, SIGMA.tolist(), strict=True):
        theirs = torchvision.gaussian_blur(image, [2 * radius + 1] * 2, [sigma] * 2)
        torch.testing.assert_close(view, theirs, atol=2e-6, rtol=0)


def test_a_dot_becomes_a_gaussian():
    dot = torch.zeros(1, 1, 15, 17, dtype=torch.float64)
    dot[..., 7, 8] = 1
    blurred = blur(dot, torch.tensor([1.5]).double(), radius=6)[0, 0]
    y, x = torch.meshgrid(torch.arange(15) - 7, torch.arange(17) - 8, indexing="ij")
    density = torch.exp(-(x**2 + y**2) / (2 * 1.5**2)).double() * ((x.abs() <= 6) & (y.abs() <= 6))
    torch.testing.assert_close(blurred, density / density.sum())


def test_a_plain_image_stays_and_no_image_leaves_its_range():
    plain = torch.full((6, 1, 9, 9), 0.3)
    torch.testing.assert_close(blur(plain, SIGMA, radius=6), plain)
    assert blur(torch.ones(6, 3, 32, 32), SIGMA, radius=6).amax() <= 1  # a sum of weights may be rounded up


def test_a_radius_beyond_the_image_counts_as_far_as_it_goes():
    batch = noise((6, 1, 3, 5))
    ours = blur(batch, SIGMA, radius=9)
    for view, image, sigma in zip(ours, batch, SIGMA.tolist(), strict=True):
        theirs = torchvision.gaussian_blur(image, [9, 5], [sigma] * 2)
        torch.testing.assert_close(view, theirs, atol=2e-6, rtol=0)


def test_width_is_uniform_and_a_part_of_the_images_is_blurred(monkeypatch):
    seen = []

    def white(images, sigma, radius):
        seen.append((sigma, radius))
        return torch.ones_like(images)

    monkeypatch.setattr(blurring, "blur", white)
    blurred = random_blur(torch.zeros(6000, 1, 2, 2), seeded(), sigma=(0.1, 2), probability=0.4)[:, 0, 0, 0]
    [(sigma, radius)] = seen
    assert radius == 6
    assert stats.kstest(sigma.double().numpy(), "uniform", args=(0.1, 1.9)).pvalue > 0.01
    assert stats.binomtest(int(blurred.sum()), 6000, 0.4).pvalue > 0.01
    assert_independent(torch.column_stack([sigma, blurred]).double())


def test_the_others_stay_as_they_are():
    batch = noise((6, 3, 16, 16))
    assert torch.equal(random_blur(batch, seeded(), sigma=(0.1, 2), probability=0), batch)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, g: random_blur(x[0], g, sigma=(1, 2), probability=1), r"shape \(1, 4, 4\)"),
        (lambda x, g: random_blur(x, g, sigma=(0, 2), probability=1), r"sigma = \(0, 2\)"),
        (lambda x, g: random_blur(x, g, sigma=(1, 2), probability=-0.1), "probability = -0.1"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(2, 1, 4, 4), seeded())
