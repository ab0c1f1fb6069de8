"""Features of two and three dimensions, where nothing has to be projected, and what a classifier makes of the rest."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from ltnb import geometry
from ltnb.plots.sphere import class_key
from ltnb.plots.theme import class_colours

Array = NDArray[np.float64]

PALE = 0.28  # of a region's colour beside that of its class's features
RESOLUTION = 240  # points along an edge, of which the regions are told


class Plane(NamedTuple):
    """Features of two or three dimensions, and the classifier that divides the space they lie in."""

    features: Tensor  # (N, d)
    labels: Tensor  # (N,)
    weight: Tensor  # (K, d): the largest w_k·x + b_k decides
    bias: Tensor | None = None  # (K,)


def decision_planes(
    rows: Mapping[str, Mapping[str, Plane]], class_counts: Sequence[int], class_names: Sequence[str], *, title: str
) -> Figure:
    """Features in the plane, on the regions in which the classifier decides for each class.

    Lines are the classifier's vectors, as directions: they run from the origin to the rim. Each column has one scale,
    which its farthest features may exceed.

    Args:
        rows: by title of the row ("training images"), by title of the column (a method), what to draw.
        class_counts: (K,) training images of each class.
        class_names: (K,) names.
        title: of the figure.
    """
    columns = list(next(iter(rows.values())))
    extents = {
        column: 1.1 * max(float(planes[column].features.abs().double().quantile(0.98)) for planes in rows.values())
        for column in columns
    }
    figure, axes = _grid(rows, columns, title, room=0.32)
    colours = class_colours(class_counts)
    for ax in axes[-1]:
        ax.set_xlabel("feature 1")
    for ax in axes[:, 0]:
        ax.set_ylabel("feature 2")
    for of_row, planes in zip(axes, rows.values(), strict=True):
        for ax, column in zip(of_row, columns, strict=True):
            plane, extent = planes[column], extents[column]
            line = torch.linspace(-extent, extent, RESOLUTION, dtype=torch.float64)
            points = torch.cartesian_prod(line, line).flip(1)  # x runs along a row of the picture
            regions = geometry.decision_regions(points, plane.weight, plane.bias)
            _fill(ax, regions.reshape(RESOLUTION, RESOLUTION), colours, extent)
            _points(ax, plane.features.double(), plane.labels, colours)
            for vector, colour in zip(torch.nn.functional.normalize(plane.weight.double()), colours, strict=True):
                x, y = (2 * extent * vector).tolist()
                ax.plot([0, x], [0, y], color=colour, linewidth=1.6)
            ax.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal")
    class_key(figure, class_counts, class_names)
    return figure


def decision_spheres(
    rows: Mapping[str, Mapping[str, Plane]], class_counts: Sequence[int], class_names: Sequence[str], *, title: str
) -> Figure:
    """Directions of features in space, on the regions in which the classifier decides: the whole sphere as a flat map.

    Lambert's equal-area map, with the largest class's vector in the middle and its opposite along the rim: areas are
    shares of the directions. Rings mark the classifier's vectors. A bias is left out, as it counts less the farther a
    feature lies.

    Args:
        rows, class_counts, class_names, title: as in `decision_planes`, with features of three dimensions.
    """
    columns = list(next(iter(rows.values())))
    figure, axes = _grid(rows, columns, title, room=0.04)
    colours = class_colours(class_counts)
    line = torch.linspace(-2, 2, RESOLUTION, dtype=torch.float64)
    flat = torch.cartesian_prod(line, line).flip(1)
    outside = (flat.norm(dim=1) > 2).reshape(RESOLUTION, RESOLUTION)
    largest = int(np.argmax(class_counts))
    for of_row, planes in zip(axes, rows.values(), strict=True):
        for ax, column in zip(of_row, columns, strict=True):
            plane = planes[column]
            turn = _to_north(plane.weight[largest].double())
            weight = plane.weight.double() @ turn.T
            regions = geometry.decision_regions(_from_map(flat), weight).reshape(RESOLUTION, RESOLUTION)
            _fill(ax, regions.where(~outside, -1), colours, 2)
            _points(ax, _to_map(plane.features.double() @ turn.T), plane.labels, colours)
            ends = _to_map(weight).numpy()
            ax.scatter(*ends.T, s=130, facecolors="none", edgecolors=colours, linewidths=2.4, zorder=4)
            ax.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), aspect="equal")  # with room for a ring at the rim
            ax.axis("off")
    class_key(figure, class_counts, class_names)
    return figure


def _grid(
    rows: Mapping[str, object], columns: Sequence[str], title: str, *, room: float
) -> tuple[Figure, NDArray[np.object_]]:
    """Empty panels with their rows' and columns' titles, with room for ticks on the left in widths of a panel."""
    figure, axes = plt.subplots(
        len(rows),
        len(columns),
        figsize=(3.5 * len(columns), 3.3 * len(rows) + 1.3),
        squeeze=False,
        layout="constrained",
    )
    for ax, column in zip(axes[0], columns, strict=True):
        ax.set_title(column)
    for ax, row in zip(axes[:, 0], rows, strict=True):
        ax.annotate(row, (-room, 0.5), xycoords="axes fraction", ha="right", va="center", rotation=90, fontsize=13)
    figure.suptitle(title)
    return figure, axes


def _fill(ax: Axes, regions: Tensor, colours: Sequence[tuple[float, float, float]], extent: float) -> None:
    """Paint each point in the pale colour of its class; white where there is none (−1)."""
    pale = 1 - PALE * (1 - np.asarray([*colours, (1.0, 1.0, 1.0)]))
    ax.imshow(pale[regions.numpy()], extent=(-extent, extent, -extent, extent), origin="lower", interpolation="nearest")
    ax.grid(visible=False)


def _points(ax: Axes, points: Tensor, labels: Tensor, colours: Sequence[tuple[float, float, float]]) -> None:
    x, y = points.numpy().T
    ax.scatter(x, y, s=20, c=[colours[k] for k in labels.tolist()], edgecolors="white", linewidths=0.4, zorder=3)


def _to_north(direction: Tensor) -> Tensor:
    """Rotation (3, 3) that takes a direction to the third axis."""
    frame = torch.linalg.qr(torch.cat([direction[:, None], torch.eye(3, dtype=torch.float64)], dim=1)).Q
    frame = frame * torch.sign(frame[:, 0] @ direction)
    return torch.stack([frame[:, 1], frame[:, 2], frame[:, 0]])


def _to_map(vectors: Tensor) -> Tensor:
    """Lambert's map of directions (N, 3) about the third axis: at the angle θ from it, 2 sin(θ/2) from the middle."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    return unit[:, :2] * torch.sqrt(2 / (1 + unit[:, 2:]).clamp(min=1e-12))


def _from_map(flat: Tensor) -> Tensor:
    """The direction (M, 3) of each point of `_to_map`; outside its rim, of the rim."""
    radius = flat.norm(dim=1, keepdim=True).clamp(max=2)
    return torch.cat([flat * torch.sqrt(1 - radius**2 / 4), 1 - radius**2 / 2], dim=1)
