"""Features in the plane and on the sphere, and the regions in which a classifier decides."""

import math
from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from ltnb import geometry, plots
from ltnb.plots import plane

COUNTS, NAMES = (50, 5, 20), ("zero", "one", "two")


@pytest.fixture(autouse=True)
def _closes_its_figures() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


def example(dim: int, bias: bool = False) -> plane.Plane:
    weight = 2 * geometry.regular_simplex(3, dim, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(3).repeat_interleave(4)
    features = 3 * weight[labels] + 0.1 * torch.randn(12, dim, generator=torch.Generator().manual_seed(1))
    return plane.Plane(features.float(), labels, weight, torch.tensor([5.0, 0.0, -5.0]) if bias else None)


def painted(ax: Axes, x: float, y: float) -> int:
    """The class in whose colour a place is painted; 3 for white."""
    image = ax.images[0]
    pixels = np.asarray(image.get_array())
    low, high = image.get_extent()[:2]
    column, row = (int((value - low) / (high - low) * (len(pixels) - 1) + 0.5) for value in (x, y))
    pale = 1 - plane.PALE * (1 - np.asarray([*plots.class_colours(COUNTS), (1.0, 1.0, 1.0)]))
    return int(np.abs(pale - pixels[row, column]).sum(axis=1).argmin())


@pytest.mark.parametrize("bias", [False, True])
def test_the_plane_is_painted_as_the_classifier_decides(bias: bool) -> None:
    drawn = example(2, bias)
    rows = {"training images": {"softmax": drawn}, "test images": {"softmax": drawn}}
    figure = plane.decision_planes(rows, COUNTS, NAMES, title="t")
    labels = [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes[:2]]
    assert labels == [("", "feature 2"), ("feature 1", "feature 2")]
    for ax in figure.axes[:2]:
        extent = ax.get_xlim()[1]
        for point in (torch.rand(40, 2, generator=torch.Generator().manual_seed(2)) - 0.5) * 1.9 * extent:
            logits = drawn.weight @ point.double() + (0 if drawn.bias is None else drawn.bias)
            first, second = logits.topk(2).values
            if first - second > 0.3:  # not on an edge, where a pixel is wider than the line
                assert painted(ax, *point.tolist()) == int(logits.argmax())
        np.testing.assert_allclose(np.asarray(ax.collections[0].get_offsets()), drawn.features.numpy(), rtol=1e-6)


def test_classifier_vectors_are_drawn_as_directions() -> None:
    drawn = example(2)
    ax = plane.decision_planes({"r": {"c": drawn}}, COUNTS, NAMES, title="t").axes[0]
    ends = torch.tensor(np.stack([np.asarray(line.get_xydata(), dtype=float)[1] for line in ax.lines]))
    torch.testing.assert_close(ends / ends.norm(dim=1, keepdim=True), drawn.weight / 2)
    assert (ends.norm(dim=1) > math.sqrt(2) * ax.get_xlim()[1]).all()


def test_the_map_keeps_areas_and_comes_back() -> None:
    vectors = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    torch.testing.assert_close(plane._from_map(plane._to_map(3 * vectors)), unit)
    polar = torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, -1, 0]], dtype=torch.float64)
    expected = torch.tensor([[0.0, 0], [math.sqrt(2), 0], [0, -math.sqrt(2)]], dtype=torch.float64)
    torch.testing.assert_close(plane._to_map(polar), expected)
    assert float(plane._to_map(-polar[:1]).norm()) < math.inf


def test_the_sphere_is_painted_around_the_largest_class() -> None:
    drawn = example(3)
    turn = plane._to_north(drawn.weight[0])
    torch.testing.assert_close(turn @ turn.T, torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(turn @ drawn.weight[0] / 2, torch.tensor([0.0, 0, 1], dtype=torch.float64))
    ax = plane.decision_spheres({"r": {"c": drawn}}, COUNTS, NAMES, title="t").axes[0]
    assert painted(ax, 0, 0) == 0
    assert painted(ax, 1.99, 1.99) == 3  # outside the map
    points = plane._to_map(drawn.weight @ turn.T)
    assert [painted(ax, *point) for point in points.tolist()] == [0, 1, 2]
    area = (np.asarray(ax.images[0].get_array()) == np.asarray(ax.images[0].get_array())[120, 120]).all(axis=2).mean()
    assert area == pytest.approx(math.pi / 4 / 3, abs=0.01)  # a third of the sphere, on a disc in a square


def test_a_ring_at_the_rim_is_whole() -> None:
    figure = plane.decision_spheres(
        {split: dict.fromkeys("abc", example(3)) for split in ("train", "test")}, COUNTS, NAMES, title="t"
    )
    figure.canvas.draw()
    ax = figure.axes[0]
    (rim, _), (edge, _) = ax.transData.transform([(2, 0), (ax.get_xlim()[1], 0)])
    rings = ax.collections[-1]
    assert isinstance(rings, PathCollection)
    radius = (math.sqrt(rings.get_sizes()[0]) + float(np.max(rings.get_linewidth()))) / 2  # points
    assert edge - rim > radius * figure.dpi / 72
