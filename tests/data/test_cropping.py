import math

import pytest
import torch
from random_images import assert_independent, noise, noise_bytes, seeded
from scipy import stats
from torchvision.transforms.v2 import functional as torchvision

from ltnb.data import cropping
from ltnb.data.cropping import centre_crop, crop, random_crop, random_resized_crop, resized_crop

SHAPES = [(6, 1, 16, 16), (6, 3, 32, 32), (6, 2, 12, 20)]


@pytest.mark.parametrize("images", [noise, noise_bytes])
@pytest.mark.parametrize("shape", SHAPES)
def test_crop_is_torchvisions_on_each_image(shape, images):
    batch = images(shape)
    top, left = torch.tensor([0, 1, 2, 3, 6, 6]), torch.tensor([0, 5, 2, 3, 1, 6])
    ours = crop(batch, top, left, padding=3)
    for i in range(len(batch)):
        framed = torchvision.pad(batch[i], [3])
        theirs = torchvision.crop(framed, int(top[i]), int(left[i]), *shape[-2:])
        assert torch.equal(ours[i], theirs)
    assert torch.equal(ours[3], batch[3])


@pytest.mark.parametrize("images", [noise, noise_bytes])
def test_windows_of_another_size_are_torchvisions(images):
    batch = images((4, 3, 20, 24))
    top, left = torch.tensor([0, 3, 9, 12]), torch.tensor([17, 0, 5, 11])
    ours = crop(batch, top, left, padding=1, size=(10, 9))
    for view, image, y, x in zip(ours, batch, top.tolist(), left.tolist(), strict=True):
        assert torch.equal(view, torchvision.crop(torchvision.pad(image, [1]), y, x, 10, 9))


def test_every_window_of_a_larger_image_is_as_likely():
    # 4 × 3 places; the two corners are drawn apart.
    ramp = torch.arange(9 * 7).view(1, 1, 9, 7).expand(6000, -1, -1, -1)
    first = random_crop(ramp, seeded(), padding=0, size=(6, 5))[:, 0, 0, 0]
    top, left = first // 7, first % 7
    counts = torch.bincount(top * 3 + left, minlength=12)
    assert len(counts) == 12
    assert stats.chisquare(counts.numpy()).pvalue > 0.01
    assert_independent(torch.column_stack([top, left]).double())


@pytest.mark.parametrize(("shape", "size"), [((20, 20), (14, 14)), ((21, 24), (14, 15)), ((23, 23), (20, 20))])
def test_the_middle_is_torchvisions(shape, size):
    batch = noise((3, 2, *shape))
    assert torch.equal(centre_crop(batch, size), torchvision.center_crop(batch, list(size)))
    assert torch.equal(centre_crop(batch, shape), batch)


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
    assert_independent(corners.double())


@pytest.mark.parametrize("shape", SHAPES)
def test_resized_crop_is_torchvisions_on_each_image(shape):
    batch = noise(shape)
    height, width = shape[-2:]
    boxes = [  # left, top, width, height
        (0, 0, width, height),
        (1, 2, 8, 8),
        (3, 0, 5, 9),
        (width - 7, height - 10, 7, 10),
        (4, 6, 1, 2),
        (0, 1, width, 3),
    ]
    edges = torch.tensor(boxes, dtype=torch.float32)
    ours = resized_crop(batch, edges[:, :2], edges[:, 2:])
    for i, (left, top, w, h) in enumerate(boxes):
        theirs = torchvision.resized_crop(batch[i], top, left, h, w, [height, width], antialias=True)
        torch.testing.assert_close(ours[i], theirs, atol=5e-5, rtol=0)


@pytest.mark.parametrize("size", [(10, 10), (9, 14), (24, 31)])
def test_a_window_resized_to_another_size_is_torchvisions(size):
    batch = noise((5, 3, 20, 24))
    boxes = [(0, 0, 24, 20), (1, 2, 8, 8), (3, 0, 5, 9), (17, 10, 7, 10), (4, 6, 12, 2)]  # left, top, width, height
    edges = torch.tensor(boxes, dtype=torch.float32)
    ours = resized_crop(batch, edges[:, :2], edges[:, 2:], size)
    for view, image, (left, top, w, h) in zip(ours, batch, boxes, strict=True):
        theirs = torchvision.resized_crop(image, top, left, h, w, list(size), antialias=False)
        torch.testing.assert_close(view, theirs, atol=5e-5, rtol=0)


def test_a_random_window_is_resized_to_the_size_that_is_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(cropping, "resized_crop", lambda _images, *parameters: seen.append(parameters))
    batch = torch.zeros(5, 1, 10, 20)
    for size in (None, (7, 3)):
        random_resized_crop(batch, seeded(), area=(0.3, 1), distortion=4 / 3, size=size)
    (corner, extent, first), (same_corner, same_extent, second) = seen
    assert (first, second) == (None, (7, 3))
    assert torch.equal(corner, same_corner)
    assert torch.equal(extent, same_extent)


def test_a_window_between_pixels_sees_a_ramp_where_it_lies():
    # Linear in x and y, so that interpolation is exact: output pixel j shows left + (j + ½) w/W − ½.
    height, width = 10, 14
    ramp = torch.arange(width, dtype=torch.float64) + 100 * torch.arange(height, dtype=torch.float64)[:, None]
    corner, size = torch.tensor([[2.3, 1.6]]).double(), torch.tensor([[7.0, 5.0]]).double()
    shown = resized_crop(ramp[None, None], corner, size)[0, 0]
    x = 2.3 + (torch.arange(width, dtype=torch.float64) + 0.5) * (7 / width) - 0.5
    y = 1.6 + (torch.arange(height, dtype=torch.float64) + 0.5) * (5 / height) - 0.5
    inner = (slice(1, -1), slice(1, -1))  # nearer to the edge of the window its border is repeated
    # The sampling points are computed in float32.
    torch.testing.assert_close(shown[inner], (x + 100 * y[:, None])[inner], atol=1e-3, rtol=0)


AREA, DISTORTION = (0.3, 1.0), 4 / 3


@pytest.fixture
def windows(monkeypatch):
    """Corners and sizes of 4,096 samples of one batch of 10 × 20 pixels, (4096, 2) each."""
    seen = []
    monkeypatch.setattr(cropping, "resized_crop", lambda _images, corner, extent, _size: seen.extend([corner, extent]))
    random_resized_crop(torch.zeros(4096, 1, 10, 20), seeded(), area=AREA, distortion=DISTORTION)
    corner, size = seen
    return corner.double(), size.double()


def test_area_and_distortion_have_their_laws(windows):
    relative = windows[1] / torch.tensor([20, 10])
    area, ratio = relative.prod(dim=1), relative[:, 0] / relative[:, 1]
    limit = torch.clamp(-area.log(), max=math.log(DISTORTION))
    # Near area 1 the limit is next to 0, and the quotient of two such logarithms is rounding error.
    exact = limit > 1e-3
    columns = torch.column_stack([area, ratio.log() / limit])[exact]
    assert exact.double().mean() > 0.99
    for values, (low, high) in zip(columns.T, (AREA, (-1, 1)), strict=True):
        assert low <= values.min().item() + 1e-3
        assert values.max().item() - 1e-3 <= high
        assert stats.kstest(values.numpy(), "uniform", args=(low, high - low)).pvalue > 0.01
    assert_independent(columns)


def test_windows_lie_inside_and_anywhere(windows):
    corner, size = windows
    lengths = torch.tensor([20, 10])
    assert (corner >= 0).all()
    assert (corner + size <= lengths + 1e-5).all()
    room = lengths - size
    wide = (room > 1e-3).all(dim=1)
    place = (corner / room)[wide]
    for values in place.T:
        assert stats.kstest(values.numpy(), "uniform").pvalue > 0.01
    assert_independent(place)


def test_the_whole_image_is_the_image():
    batch = noise((4, 3, 12, 20))
    whole = random_resized_crop(batch, seeded(), area=(1, 1), distortion=2)
    torch.testing.assert_close(whole, batch, atol=5e-5, rtol=0)


def test_a_window_is_no_smaller_than_a_pixel():
    batch = noise((64, 1, 3, 3))
    tiny = random_resized_crop(batch, seeded(), area=(1e-9, 1e-9), distortion=1)
    assert tiny.isfinite().all()
    assert ((tiny >= 0) & (tiny <= 1)).all()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda x, g: random_crop(x[0], g, padding=2), r"shape \(1, 16, 16\)"),
        (lambda x, g: random_crop(x, g, padding=-1), "padding = -1"),
        (lambda x, g: random_crop(x, g, padding=1, size=(19, 3)), r"size = \(19, 3\): .* 16 × 16 pixels"),
        (lambda x, g: random_crop(x, g, padding=1, size=(0, 3)), r"size = \(0, 3\)"),
        (lambda x, _g: centre_crop(x, (3, 17)), r"size = \(3, 17\): .* 16 × 16 pixels"),
        (lambda x, g: random_resized_crop(x[0], g, area=(0.5, 1), distortion=1), r"shape \(1, 16, 16\)"),
        (lambda x, g: random_resized_crop(x, g, area=(0, 1), distortion=1), r"area = \(0, 1\)"),
        (lambda x, g: random_resized_crop(x, g, area=(0.5, 1.5), distortion=1), r"area = \(0.5, 1.5\)"),
        (lambda x, g: random_resized_crop(x, g, area=(0.5, 1), distortion=0.75), "distortion = 0.75"),
    ],
)
def test_what_cannot_be_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call(torch.zeros(2, 1, 16, 16), seeded())
