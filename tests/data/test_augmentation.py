import math

import pytest
import torch
from scipy import stats
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import warping
from ltnb.data.augmentation import VIEWS, augment, normalise
from ltnb.data.cropping import crop, random_crop
from ltnb.data.warping import affine, random_affine

SHAPES = [(6, 1, 16, 16), (6, 3, 32, 32), (6, 2, 12, 20)]
STRONG = {"degrees": 15, "translate": 0.1, "scale": (0.8, 1.2)}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(shape, dtype=torch.float32):
    return torch.rand(shape, generator=seeded(9), dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_affine_is_torchvisions_on_each_image(shape):
    batch = images(shape)
    angle = torch.tensor([0.0, 10, -25, 90, 133, -15])
    translation = torch.tensor([[0.0, 0], [1, -2], [0.5, 0.25], [3, 0], [-1.5, 2.75], [0, -4]])
    scale = torch.tensor([1.0, 1, 0.8, 1.2, 0.5, 2])
    ours = affine(batch, angle, translation, scale)
    for i in range(len(batch)):
        theirs = torchvision.affine(
            batch[i],
            angle=angle[i].item(),
            translate=translation[i].tolist(),
            scale=scale[i].item(),
            shear=[0.0, 0.0],
            interpolation=InterpolationMode.BILINEAR,
        )
        # Both compute the sampling points in float32; an error of 1e-6 of a coordinate is some 1e-5 of a pixel.
        torch.testing.assert_close(ours[i], theirs, atol=5e-5, rtol=0)


def test_a_quarter_turn_is_clockwise():
    batch = images((1, 1, 9, 9), torch.float64)
    turned = affine(batch, torch.tensor([90.0]).double(), torch.zeros(1, 2).double(), torch.ones(1).double())
    torch.testing.assert_close(turned, batch.rot90(-1, dims=(2, 3)))


def test_affine_fills_with_zeros():
    ones = torch.ones(1, 1, 4, 6)
    shifted = affine(ones, torch.zeros(1), torch.tensor([[2.0, -1.0]]), torch.ones(1))
    expected = torch.zeros(4, 6)
    expected[:3, 2:] = 1
    torch.testing.assert_close(shifted[0, 0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("shape", SHAPES)
def test_crop_is_torchvisions_on_each_image(shape, dtype):
    batch = (images(shape) * 255).to(dtype)
    top, left = torch.tensor([0, 1, 2, 3, 6, 6]), torch.tensor([0, 5, 2, 3, 1, 6])
    ours = crop(batch, top, left, padding=3)
    for i in range(len(batch)):
        framed = torchvision.pad(batch[i], [3])
        theirs = torchvision.crop(framed, int(top[i]), int(left[i]), *shape[-2:])
        assert torch.equal(ours[i], theirs)
    assert torch.equal(ours[3], batch[3])


@pytest.fixture
def drawn(monkeypatch):
    """Parameters of 4,096 samples of one batch, in columns: angle, x, y, scale."""
    seen = []
    monkeypatch.setattr(warping, "affine", lambda _images, *parameters: seen.extend(parameters))
    random_affine(torch.zeros(4096, 1, 10, 20), seeded(), **STRONG)
    angle, translation, scale = seen
    return torch.column_stack([angle, translation, scale]).double()


def test_affine_parameters_are_uniform_within_their_bounds(drawn):
    bounds = [(-15, 15), (-2, 2), (-1, 1), (0.8, 1.2)]
    for values, (low, high) in zip(drawn.T, bounds, strict=True):
        assert low <= values.min().item() + 1e-6
        assert values.max().item() - 1e-6 <= high
        assert stats.kstest(values.numpy(), "uniform", args=(low, high - low)).pvalue > 0.01


def test_affine_parameters_are_independent(drawn):
    # Of 4,096 samples a correlation has a standard error of 0.016: four of them.
    between_parameters = torch.corrcoef(drawn.T) - torch.eye(4)
    assert between_parameters.abs().max() < 0.0625
    for values in drawn.T:
        neighbours = torch.corrcoef(torch.stack([values[:-1], values[1:]]))[0, 1]
        assert neighbours.abs() < 0.0625


@pytest.fixture
def corners():
    """Shifts of 5,000 samples of one batch by `random_crop` of 2 pixels, in columns: down, right."""
    dot = torch.zeros(5000, 1, 7, 7)
    dot[:, :, 3, 3] = 1
    moved = random_crop(dot, seeded(), padding=2)
    return moved.nonzero()[:, 2:] - 3


def test_every_shift_of_a_crop_is_as_likely(corners):
    assert corners.shape == (5000, 2)
    assert corners.abs().max() == 2
    counts = torch.bincount((corners[:, 0] + 2) * 5 + corners[:, 1] + 2, minlength=25)
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_shifts_are_independent(corners):
    down, right = corners.double().T
    for pair in ((down, right), (down[:-1], down[1:]), (right[:-1], right[1:])):
        assert torch.corrcoef(torch.stack(pair))[0, 1].abs() < 4 / math.sqrt(5000)


@pytest.mark.parametrize("policy", ["weak", "strong"])
def test_one_image_many_times_in_a_batch_gives_different_views(policy):
    one = (images((1, 1, 16, 16)) * 255).to(torch.uint8)
    views = augment(one.expand(256, -1, -1, -1), policy, seeded())
    # The 25 shifts of the crop; with the affine map, no two views alike.
    assert len(views.unique(dim=0)) == {"weak": 25, "strong": 256}[policy]


@pytest.mark.parametrize("policy", VIEWS)
def test_an_image_does_not_influence_the_others(policy):
    batch = (images((8, 3, 16, 16)) * 255).to(torch.uint8)
    changed = batch.clone()
    changed[0] = 0
    before, after = augment(batch, policy, seeded()), augment(changed, policy, seeded())
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("policy", ["weak", "strong"])
def test_the_generator_alone_decides(policy):
    batch = (images((8, 1, 16, 16)) * 255).to(torch.uint8)
    generator = seeded(4)
    torch.manual_seed(0)
    first = augment(batch, policy, generator)
    second = augment(batch, policy, generator)
    torch.manual_seed(1)
    assert torch.equal(first, augment(batch, policy, seeded(4)))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("policy", VIEWS)
@pytest.mark.parametrize("shape", [(6, 1, 16, 16), (6, 3, 32, 32), (6, 3, 12, 20), (1, 1, 8, 8)])
def test_views_are_float32_from_zero_to_one(policy, shape):
    white = torch.full(shape, 255, dtype=torch.uint8)
    view = augment(white, policy, seeded())
    assert view.dtype == torch.float32
    assert view.shape == shape
    assert ((view >= 0) & (view <= 1)).all()


def test_none_is_the_image_itself_and_draws_nothing():
    batch = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    generator = seeded()
    state = generator.get_state()
    assert torch.equal(augment(batch, "none", generator), batch / 255)
    assert torch.equal(generator.get_state(), state)


def test_black_background_stays_black():
    # A digit well inside its frame: whatever enters at the border must not differ from what was there.
    batch = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    batch[:, :, 6:10, 6:10] = 255
    border = augment(batch, "strong", seeded())
    border[:, :, 2:-2, 2:-2] = 0
    assert border.count_nonzero() == 0


def test_normalise_by_channel():
    batch = images((50, 3, 8, 8), torch.float64) * torch.tensor([0.2, 0.5, 1.0]).view(3, 1, 1)
    mean, std = batch.mean(dim=(0, 2, 3)), batch.std(dim=(0, 2, 3), correction=0)
    normal = normalise(batch, mean, std)
    torch.testing.assert_close(normal.mean(dim=(0, 2, 3)), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(normal.std(dim=(0, 2, 3), correction=0), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(normalise(batch, mean.tolist(), std.tolist()), normal)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, g: augment(x, "stronk", g), "policy = 'stronk': expected one of none, weak, strong"),
        (lambda x, g: augment(x / 255, "weak", g), "images are torch.float32: expected torch.uint8"),
        (lambda x, g: augment(x[0], "weak", g), r"shape \(1, 16, 16\): expected \(N, C, H, W\)"),
        (lambda x, g: augment(x[:0], "none", g), r"shape \(0, 1, 16, 16\).*N ≥ 1"),
        (lambda x, g: random_crop(x[0], g, padding=2), r"shape \(1, 16, 16\)"),
        (lambda x, g: random_crop(x, g, padding=-1), "padding = -1"),
        (lambda x, g: random_affine(x[0] / 255, g, **STRONG), r"shape \(1, 16, 16\)"),
        (lambda x, g: random_affine(x / 255, g, **{**STRONG, "degrees": -5}), "degrees = -5"),
        (lambda x, g: random_affine(x / 255, g, **{**STRONG, "translate": 1.5}), "translate = 1.5"),
        (lambda x, g: random_affine(x / 255, g, **{**STRONG, "scale": (0, 1)}), r"scale = \(0, 1\)"),
        (lambda x, g: random_affine(x / 255, g, **{**STRONG, "scale": (1.2, 0.8)}), r"scale = \(1.2, 0.8\)"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(2, 1, 16, 16, dtype=torch.uint8), seeded())
