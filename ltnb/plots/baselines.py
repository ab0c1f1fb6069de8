"""Many methods at a glance: accuracy by kind of method, and against what a run costs."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from ltnb.plots.theme import FAMILY_STYLES, Style, method_style

PANELS = {"all": "all classes", "few": "few: fewer than 20 images"}
TIMES = (
    0.5,
    0.7,
    1,
    1.5,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
    32,
)  # of a run, relative; those in reach are written below the axis
LARGEST = 320.0  # area of the marker with the largest memory, in square points

ANGLES = (0, 180, 90, 270, 30, -30, 150, -150, 60, -60, 120, -120, 15, -15, 165, -165)  # where a name is tried first


def accuracy_by_family(accuracy: pd.DataFrame, *, baseline: str, title: str) -> Figure:
    """Mean accuracy and its interval, a line a method: by kind of method, and within a kind from best to worst.

    The baseline is a line through each panel, its interval a band.

    Args:
        accuracy: columns method, family, group (of `PANELS`), mean, low, high, shares in [0, 1]; without low and high
            there is a point alone. Kinds come in the order in which they are first seen.
        baseline: a method in it.
        title: of the figure.
    """
    overall = accuracy[accuracy["group"] == "all"]
    lines: list[tuple[str, str | None]] = []  # family, method; a family's name has a line of its own
    for family, of_family in overall.groupby("family", sort=False):
        if set(of_family["method"]) != {baseline}:
            lines.append((str(family), None))
        lines += [(str(family), str(method)) for method in of_family.sort_values("mean", ascending=False)["method"]]
    figure, axes = plt.subplots(
        1, len(PANELS), figsize=(11, 0.29 * len(lines) + 1.5), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, (group, panel) in zip(axes[0], PANELS.items(), strict=True):
        percent = accuracy[accuracy["group"] == group].set_index("method")[["mean", "low", "high"]] * 100
        if baseline in percent.index:
            mean, low, high = percent.loc[baseline].to_numpy(dtype=float)
            ax.axvline(mean, color=method_style(baseline).colour, linestyle="--", linewidth=1.4, zorder=1)
            if low < high:
                ax.axvspan(low, high, color=method_style(baseline).colour, alpha=0.18, linewidth=0, zorder=0)
        for y, (family, method) in enumerate(lines):
            if method is None or method not in percent.index:
                continue
            style = _style(method, family)
            mean, low, high = percent.loc[method].to_numpy(dtype=float)
            ax.plot([low, high], [y, y], color=style.colour, linewidth=3, solid_capstyle="butt")
            ax.plot(mean, y, marker=style.marker, markersize=9, color=style.colour, markeredgecolor="white")
        ax.set(title=panel, xlabel="test accuracy [%]")
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.tick_params(axis="y", length=0)
    first = axes[0, 0]
    first.set_yticks(range(len(lines)), [method_style(method).label if method else family for family, method in lines])
    first.set_ylim(len(lines) - 0.4, -0.6)
    for tick, (family, method) in zip(first.get_yticklabels(), lines, strict=True):
        if method is None:
            tick.set(fontweight="bold", color=FAMILY_STYLES[family].colour if family in FAMILY_STYLES else "black")
    figure.suptitle(title)
    return figure


def accuracy_over_time(points: pd.DataFrame, *, title: str) -> Figure:
    """Mean accuracy against the time of a run, logarithmic: a named point a method, larger with more memory.

    A line joins those on the front, which no other method beats in both.

    Args:
        points: columns method, family, accuracy in [0, 1], ratio (of a run's time), memory_mib, on_front (bool).
        title: of the figure.
    """
    figure, ax = plt.subplots(figsize=(11, 7), layout="constrained")
    front = points[points["on_front"]].sort_values("ratio")
    ax.plot(
        front["ratio"], 100 * front["accuracy"], color="#B0B0B0", linewidth=1.6, drawstyle="steps-post", zorder=1,
        label="_front",
    )  # fmt: skip
    times, memory = (points[column].to_numpy(dtype=float) for column in ("ratio", "memory_mib"))
    accuracies = 100 * points["accuracy"].to_numpy(dtype=float)
    for i in np.argsort(-memory):  # small ones above
        style = _style(str(points["method"].iloc[i]), str(points["family"].iloc[i]))
        ax.scatter(
            times[i],
            accuracies[i],
            s=LARGEST * memory[i] / memory.max(),
            color=style.colour,
            marker=style.marker,
            alpha=0.85,
            edgecolors="white",
            linewidths=0.8,
            zorder=2,
        )
    _time_axis(ax, points["ratio"])
    ax.margins(y=0.08)
    ax.set_ylabel("test accuracy, all classes [%]")
    figure.suptitle(title)
    _key(figure, points, float(memory.max()))
    figure.canvas.draw()  # names are placed once it is known where the points lie
    _name_points(ax, points, np.column_stack([times, accuracies]), LARGEST * memory / memory.max())
    return figure


def _style(method: str, family: str) -> Style:
    """A method's style within its kind; of no kind, its own."""
    return FAMILY_STYLES.get(family, method_style(method))


def _time_axis(ax: Axes, ratios: pd.Series) -> None:
    ax.set_xscale("log")
    low, high = float(ratios.min()), float(ratios.max())
    ax.set_xlim(low / 1.7, high * 1.45)  # names need room, most where methods that cost no time are in a heap
    ax.xaxis.set_major_locator(FixedLocator([time for time in TIMES if low / 1.4 <= time <= high * 1.4]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("processor time of a run, cross-entropy's = 1")


def _key(figure: Figure, points: pd.DataFrame, largest: float) -> None:
    """Kinds by colour and marker, and what the sizes mean."""
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, linestyle="", markersize=10, label=style.label)
        for family, style in FAMILY_STYLES.items()
        if family in set(points["family"])
    ]
    sizes = sorted({float(f"{share * largest:.1g}") for share in (0.25, 1)})
    handles += [
        Line2D(
            [], [], color="#B0B0B0", marker="o", linestyle="", label=f"{size:g} MiB",
            markersize=float(np.sqrt(LARGEST * size / largest)),
        )
        for size in sizes
    ]  # fmt: skip
    handles.append(Line2D([], [], color="#B0B0B0", linewidth=1.6, label="no other is faster and better"))
    figure.legend(handles=handles, loc="outside lower center", ncols=-(-len(handles) // 2))


def _name_points(ax: Axes, points: pd.DataFrame, places: NDArray[np.float64], areas: NDArray[np.float64]) -> None:
    """Write each method's name near its point, where it covers neither a point nor a name; a thin line if it is far.

    Places are tried from near to far, around the point; the one that is covered least is taken where none is free.

    Args:
        ax: where the points are drawn, and stay.
        points: columns method, family.
        places: (N, 2) of the points, in the data's units.
        areas: (N,) of their markers, in square points.
    """
    renderer = ax.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    pixels = ax.figure.dpi / 72  # a point's
    centres = ax.transData.transform(places)
    radii = pixels * (0.5 * np.sqrt(areas) + 2)
    taken = [_box(centre, 2 * radius, 2 * radius) for centre, radius in zip(centres, radii, strict=True)]
    frame = ax.get_window_extent(renderer)
    for i in np.argsort(-centres[:, 1], kind="stable"):  # from the top down
        method = str(points["method"].iloc[i])
        style = _style(method, str(points["family"].iloc[i]))
        text = ax.annotate(
            method_style(method).label,
            (places[i, 0], places[i, 1]),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=12,
            va="center",
            annotation_clip=False,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
        text.set_in_layout(False)
        others = [box for place, box in enumerate(taken) if place != i]
        candidates = _candidates(centres[i], radii[i], text.get_window_extent(renderer))
        covered = [
            _covered(box, taken, frame)
            + sum(
                other.contains(*point)
                for other in others
                for point in (_line(centres[i], radii[i], box) if far else ())
            )
            for far, box in candidates
        ]
        distance, box = candidates[int(np.argmin(covered))]  # of those that are free, the first, which is the nearest
        taken.append(box)
        text.set_position(((box.x0 + 2 - centres[i, 0]) / pixels, ((box.y0 + box.y1) / 2 - centres[i, 1]) / pixels))
        if distance > 0:
            taken += [_box(point, 2, 2) for point in _line(centres[i], radii[i], box)]
            line = ax.transData.inverted().transform([centres[i], _nearest(box, centres[i])])
            ax.plot(line[:, 0], line[:, 1], color=style.colour, linewidth=0.8, alpha=0.8, zorder=1.5, label="_line")


def _candidates(centre: NDArray[np.float64], radius: float, size: Bbox) -> list[tuple[float, Bbox]]:
    """Where a name may stand: how far beyond its point's edge, and the box; near ones first."""
    width, height = size.width + 4, size.height + 1
    found = []
    for distance in np.arange(14) * 0.6 * height:
        for angle in np.radians(ANGLES):
            direction = np.array([np.cos(angle), np.sin(angle)])
            middle = centre + direction * (radius + distance + np.array([width, height]) / 2)
            found.append((float(distance), _box(middle, width, height)))
    return found


def _box(middle: NDArray[np.float64], width: float, height: float) -> Bbox:
    return Bbox.from_extents(
        middle[0] - width / 2, middle[1] - height / 2, middle[0] + width / 2, middle[1] + height / 2
    )


def _covered(box: Bbox, taken: Sequence[Bbox], frame: Bbox) -> float:
    """The area of a box that is taken or outside the frame."""
    inside = Bbox.intersection(box, frame)
    outside = box.width * box.height - (inside.width * inside.height if inside else 0)
    overlaps = [Bbox.intersection(box, other) for other in taken]
    return float(outside + sum(common.width * common.height for common in overlaps if common))


def _line(centre: NDArray[np.float64], radius: float, box: Bbox) -> NDArray[np.float64]:
    """Points (N, 2) of the line from a point's edge to its name, whose own edge is left out."""
    line = _nearest(box, centre) - centre
    start = radius / max(float(np.hypot(*line)), radius)
    return centre + np.linspace(start, 1, 16)[:-1, None] * line


def _nearest(box: Bbox, point: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.clip(point, [box.x0, box.y0], [box.x1, box.y1])
