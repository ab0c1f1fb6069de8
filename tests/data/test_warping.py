import pytest
import torch
from random_images import assert_independent, noise, seeded
from scipy import stats
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import warping
from ltnb.data.warping import affine, random_affine, warp

STRONG = {"degrees": 15, "translate": 0.1, "scale": (0.8, 1.2)}


@pytest.mark.parametrize("shape", [(6, 1, 16, 16), (6, 3, 32, 32), (6, 2, 12, 20)])
def test_affine_is_torchvisions_on_each_image(shape):
    batch = noise(shape)
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
    batch = noise((1, 1, 9, 9), torch.float64)
    turned = affine(batch, torch.tensor([90.0]).double(), torch.zeros(1, 2).double(), torch.ones(1).double())
    torch.testing.assert_close(turned, batch.rot90(-1, dims=(2, 3)))


def test_affine_fills_with_zeros():
    ones = torch.ones(1, 1, 4, 6)
    shifted = affine(ones, torch.zeros(1), torch.tensor([[2.0, -1.0]]), torch.ones(1))
    expected = torch.zeros(4, 6)
    expected[:3, 2:] = 1
    torch.testing.assert_close(shifted[0, 0], expected)


def test_warp_moves_every_point_by_its_matrix_and_then_its_shift():
    height, width = 8, 12
    matrix = torch.tensor([[1.2, 0.3], [-0.4, 0.9]], dtype=torch.float64)
    shift = torch.tensor([1.5, -0.75], dtype=torch.float64)
    batch = noise((1, 2, height, width), torch.float64)
    warped = warp(batch, torch.linalg.inv(matrix)[None], shift[None])
    centre = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=torch.float64)
    expected = torch.zeros_like(batch)
    for row in range(height):
        for column in range(width):
            point = torch.tensor([column, row], dtype=torch.float64)
            x, y = torch.linalg.solve(matrix, point - centre - shift) + centre
            across = (1 - (x - torch.arange(width)).abs()).clamp(min=0)
            down = (1 - (y - torch.arange(height)).abs()).clamp(min=0)
            expected[0, :, row, column] = torch.einsum("chw,h,w->c", batch[0], down, across)
    torch.testing.assert_close(warped, expected)


@pytest.fixture
def drawn(monkeypatch):
    """Parameters of 4,096 samples of one batch, in columns: angle, x, y, scale."""
    seen = []
    monkeypatch.setattr(warping, "affine", lambda _images, *parameters: seen.extend(parameters))
    random_affine(torch.zeros(4096, 1, 10, 20), seeded(), **STRONG)
    angle, translation, scale = seen
    return torch.column_stack([angle, translation, scale]).double()


def test_parameters_are_uniform_within_their_bounds(drawn):
    bounds = [(-15, 15), (-2, 2), (-1, 1), (0.8, 1.2)]
    for values, (low, high) in zip(drawn.T, bounds, strict=True):
        assert low <= values.min().item() + 1e-6
        assert values.max().item() - 1e-6 <= high
        assert stats.kstest(values.numpy(), "uniform", args=(low, high - low)).pvalue > 0.01


def test_parameters_are_independent(drawn):
    assert_independent(drawn)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"degrees": -5}, "degrees = -5"),
        ({"translate": 1.5}, "translate = 1.5"),
        ({"scale": (0, 1)}, r"scale = \(0, 1\)"),
        ({"scale": (1.2, 0.8)}, r"scale = \(1.2, 0.8\)"),
    ],
)
def test_what_cannot_be_is_refused(changed, complaint):
    with pytest.raises(ValueError, match=complaint):
        random_affine(torch.zeros(2, 1, 16, 16), seeded(), **{**STRONG, **changed})


def test_one_image_is_no_batch():
    with pytest.raises(ValueError, match=r"shape \(1, 16, 16\)"):
        random_affine(torch.zeros(1, 16, 16), seeded(), **STRONG)
