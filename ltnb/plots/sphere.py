"""Class means and samples on a sphere: seen as a ball, and unrolled into a flat map."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import ArrayLike, NDArray

from ltnb import geometry
from ltnb.plots.theme import RGB, class_colours, method_style

Array = NDArray[np.float64]

_TURN = np.linspace(0, 2 * np.pi, 24, endpoint=False)
_CIRCLE: Array = np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1)


class SphereView(NamedTuple):
    """Class means and samples, brought down to three dimensions and onto the unit sphere."""

    means: Array  # (K, 3) unit rows
    samples: Array  # (N, 3) unit rows
    labels: NDArray[np.int64]  # (N,)
    class_counts: tuple[int, ...]  # training images of each class
    kept: float  # share of the class means' variance that the three directions hold


def sphere_view(
    features: ArrayLike, labels: ArrayLike, class_counts: Sequence[int], *, centring: geometry.Centring = "class"
) -> SphereView:
    """Project class means μ_k and samples h onto the sphere that shows the means best.

    With m the centre and u_k = (μ_k − m) / ‖μ_k − m‖, the rows of P (3, d) are the three principal directions of
    u_1 … u_K about the origin. The view shows P u_k and P (h − m), each divided by its length. ``kept`` is
    Σ‖P u_k‖² / Σ‖u_k‖²: 1 when the means span no more than three dimensions, 3 / (K − 1) for a regular simplex,
    which looks alike in every direction. The largest class is turned to the north pole, the second largest to the
    meridian that faces the reader, and the third largest to its right.

    Args:
        features: (N, d) features or projections.
        labels: (N,) classes in 0 … K − 1; every class needs a sample.
        class_counts: (K,) training images of each class.
        centring: what m is, ``"class"``, ``"sample"`` or ``"none"``: see `ltnb.geometry.global_mean`.
    """
    samples = torch.as_tensor(np.asarray(features), dtype=torch.float64)
    classes = torch.as_tensor(np.asarray(labels), dtype=torch.int64)
    num_classes = len(class_counts)
    centre = geometry.global_mean(samples, classes, num_classes, centring=centring)
    directions = _unit((geometry.class_means(samples, classes, num_classes) - centre).numpy())
    basis = np.linalg.svd(directions, full_matrices=False)[2][:3]
    means = _in_three(directions @ basis.T)
    kept = float((means**2).sum() / (directions**2).sum())
    turn = _orientation(_unit(means), class_counts)
    shown = _in_three((samples - centre).numpy() @ basis.T)
    return SphereView(
        _unit(means) @ turn.T, _unit(shown) @ turn.T, classes.numpy(), tuple(int(n) for n in class_counts), kept
    )


def aligned(views: Mapping[str, SphereView]) -> dict[str, SphereView]:
    """Turn, or mirror, each view about the vertical axis until its class means lie as close to the first's as they can.

    Orthogonal Procrustes in the plane: with A and B (K, 2) the horizontal coordinates of the means of a view and of
    the first one, and AᵀB = U S Vᵀ, the turn U Vᵀ minimises the sum of squared distances.
    """
    first = next(iter(views.values()))
    turned = {}
    for name, view in views.items():
        u, _, v = np.linalg.svd(view.means[:, :2].T @ first.means[:, :2])
        turn = np.eye(3)
        turn[:2, :2] = u @ v
        turned[name] = view._replace(means=view.means @ turn, samples=view.samples @ turn)
    return turned


def sphere(view: SphereView, class_names: Sequence[str], *, ax: Axes) -> None:
    """Draw the ball as seen from above its equator; what lies on its far side is paler."""
    elevation = np.radians(22)
    towards = np.array([np.cos(elevation), 0.0, np.sin(elevation)])
    plane = np.array([[0.0, 1.0, 0.0], [-np.sin(elevation), 0.0, np.cos(elevation)]])
    ax.add_patch(Circle((0, 0), 1, facecolor="#F5F5F2", edgecolor="#9A9A9A", linewidth=1, zorder=0))
    for line in _graticule():
        for near in (True, False):
            flat = np.where(((line @ towards >= 0) == near)[:, None], line @ plane.T, np.nan)
            ax.plot(*flat.T, color="#9A9A9A", linewidth=0.7, alpha=0.6 if near else 0.2, zorder=1)
    depth, colours = view.means @ towards, class_colours(view.class_counts)
    sample_depth, flat_samples = view.samples @ towards, view.samples @ plane.T
    for near in (False, True):
        chosen = (sample_depth >= 0) == near
        _cloud(ax, flat_samples[chosen], [colours[k] for k in view.labels[chosen]], alpha=0.6 if near else 0.15)
    for k in np.argsort(depth):
        x, y = plane @ view.means[k]
        alpha = 1.0 if depth[k] >= 0 else 0.5
        ax.plot([0, x], [0, y], color=colours[k], linewidth=1.6, alpha=0.7 * alpha, zorder=3 + depth[k] / 10)
        _mark(ax, x, y, class_names[k], colours[k], alpha, len(depth), zorder=5 + depth[k])
    _bare(ax, 1.16)


def sphere_map(view: SphereView, class_names: Sequence[str], *, ax: Axes) -> None:
    """Draw the whole sphere as an equal-area map, the largest class in the middle.

    A direction at angle θ from the largest class's mean lies 2 sin(θ/2) from the middle (Lambert's azimuthal
    projection), so nothing is hidden; the rim is the point opposite to it.
    """
    colours = class_colours(view.class_counts)
    ax.add_patch(Circle((0, 0), 2, facecolor="#F5F5F2", edgecolor="#9A9A9A", linewidth=1, zorder=0))
    flat = _equal_area(view.means)
    for angle in (60, 120):
        radius = 2 * np.sin(np.radians(angle) / 2)
        ax.add_patch(Circle((0, 0), radius, fill=False, edgecolor="#9A9A9A", linewidth=0.7, alpha=0.6))
        x, y = _freest(radius * _CIRCLE, flat)
        ax.text(x, y, f"{angle}°", ha="center", va="center", fontsize=10, color="#5A5A5A", zorder=4)
    _cloud(ax, _equal_area(view.samples), [colours[k] for k in view.labels], alpha=0.5)
    for k, (x, y) in enumerate(flat):
        _mark(ax, x, y, class_names[k], colours[k], 1.0, len(colours), zorder=5 + k / len(colours))
    _bare(ax, 2.2)


def sphere_and_map(view: SphereView, class_names: Sequence[str], *, title: str) -> Figure:
    """One space in both views, side by side, with a key to the classes' sizes."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 5.2), layout="constrained")
    sphere(view, class_names, ax=axes[0])
    sphere_map(view, class_names, ax=axes[1])
    axes[0].set_title("seen from above the equator")
    axes[1].set_title("unrolled around the largest class")
    figure.suptitle(f"{title}\n{100 * view.kept:.0f} % of the class means' variance is in these three dimensions")
    class_key(figure, view.class_counts, class_names)
    return figure


def spheres(views: Mapping[str, SphereView], class_names: Sequence[str], *, title: str) -> Figure:
    """Every method's sphere side by side, at most five in a row, its flat map below."""
    rows, columns = in_rows(len(views))
    figure, axes = plt.subplots(
        2 * rows,
        columns,
        figsize=(max(2.7 * columns, 6.5), 6.1 * rows + 1),
        squeeze=False,
        layout="constrained",
    )
    for (method, view), (row, column) in zip(views.items(), np.ndindex(rows, columns), strict=False):
        style, (upper, lower) = method_style(method), axes[2 * row : 2 * row + 2, column]
        sphere(view, class_names, ax=upper)
        sphere_map(view, class_names, ax=lower)
        upper.set_title(f"{style.label}\n{100 * view.kept:.0f} % of variance", color=style.colour)
    for ax in axes[-2:, len(views) - columns * (rows - 1) :].flat:
        ax.remove()
    figure.suptitle(title)
    class_key(figure, next(iter(views.values())).class_counts, class_names)
    return figure


def in_rows(spheres: int) -> tuple[int, int]:
    """Rows and columns for so many spheres: at most five side by side, as more would be too small for a page."""
    rows = -(-spheres // 5)
    return rows, -(-spheres // rows)


def _unit(rows: Array) -> Array:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length == 0, 1, length)


def _in_three(coordinates: Array) -> Array:
    """Fill up with zeros what spans fewer than three dimensions."""
    return np.pad(coordinates, ((0, 0), (0, 3 - coordinates.shape[1])))


def _orientation(means: Array, class_counts: Sequence[int]) -> Array:
    """Orthogonal (3, 3) matrix that turns the three largest classes to their places; see `sphere_view`."""
    largest = np.argsort(-np.asarray(class_counts), kind="stable")[:3]
    frame: list[Array] = []
    for direction in [*means[largest], *np.eye(3)]:
        rest = direction - sum((direction @ axis) * axis for axis in frame)
        if len(frame) < 3 and np.linalg.norm(rest) > 1e-6:
            frame.append(rest / np.linalg.norm(rest))
    north, front, right = frame
    return np.stack([front, right, north])


def _graticule() -> list[Array]:
    """Three parallels and four meridian circles as polylines on the sphere."""
    turn = np.linspace(0, 2 * np.pi, 181)
    parallels = [
        np.stack([np.cos(lat) * np.cos(turn), np.cos(lat) * np.sin(turn), np.full_like(turn, np.sin(lat))], axis=1)
        for lat in np.radians([-45, 0, 45])
    ]
    meridians = [
        np.stack([np.cos(lon) * np.cos(turn), np.sin(lon) * np.cos(turn), np.sin(turn)], axis=1)
        for lon in np.radians([0, 45, 90, 135])
    ]
    return parallels + meridians


def _equal_area(points: Array) -> Array:
    """Lambert's map about the north pole; the meridian that faces the reader points down the page."""
    x, y, z = points.T
    radius = np.sqrt(2 * np.clip(1 - z, 0, None))
    azimuth = np.arctan2(y, x)
    return np.stack([radius * np.sin(azimuth), -radius * np.cos(azimuth)], axis=1)


def _cloud(ax: Axes, points: Array, colours: list[RGB], *, alpha: float) -> None:
    x, y = points.T
    ax.scatter(x, y, s=13, c=colours, alpha=alpha, linewidths=0, zorder=2)


def _freest(places: Array, points: Array) -> Array:
    """The place that is farthest from its nearest point."""
    distances = np.linalg.norm(places[:, None] - points, axis=2)
    chosen: Array = places[distances.min(axis=1).argmax()]
    return chosen


def _mark(
    ax: Axes, x: float, y: float, name: str, colour: RGB, alpha: float, num_classes: int, *, zorder: float
) -> None:
    """Draw a class mean, with its name inside where there is room for all of them."""
    named = num_classes <= 20
    size = 240 if named else 60
    ax.scatter([x], [y], s=size, color=[colour], edgecolors="white", linewidths=1.2, alpha=alpha, zorder=zorder)
    if named:
        red, green, blue = colour
        ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "white"
        ax.text(
            x, y, name, color=ink, alpha=alpha, fontsize=11, fontweight="bold", ha="center", va="center", zorder=zorder
        )


def _bare(ax: Axes, extent: float) -> None:
    ax.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal")
    ax.axis("off")
    for artist in [*ax.lines, *ax.patches, *ax.collections, *ax.texts]:
        artist.set_in_layout(False)  # they lie within the axes: nothing for the layout to measure


def class_key(figure: Figure | SubFigure, class_counts: Sequence[int], class_names: Sequence[str]) -> None:
    """Put the classes' colours and sizes below a figure, largest first; of many classes, ten."""
    order = np.argsort(-np.asarray(class_counts), kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), 10)).round().astype(int))]
    colours = class_colours(class_counts)
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=10, color=colours[k], label=f"{name}: {count}")
        for k in shown
        for name, count in [(class_names[k], class_counts[k])]
    ]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 10 if figure.bbox.width >= 10 * figure.dpi else 5),
        title="class: training images",
        columnspacing=1.0,
        handletextpad=0.1,
    )
