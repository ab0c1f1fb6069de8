"""FeatRecon's supports and synthetic features: a map around a tail class, radii, overlap, and where features fall."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from numpy.typing import NDArray

from ltnb.plots.curves import class_size_axis, method_key
from ltnb.plots.theme import method_style

Array = NDArray[np.float64]

TAIL, HEAD, DRAWN = "#D55E00", "#0072B2", "#009E73"
SUPPORTS = {
    "estimated": ("estimated on training images", HEAD, "o"),
    "rectified": ("rectified and capped", DRAWN, "v"),
    "used": ("used in training, of augmented images", "#CC79A7", "X"),
    "needed": ("needed by test images", TAIL, "s"),
}


class SupportMap(NamedTuple):
    """Points of a sphere around a cap, in degrees from its centre (n, 2); see `support_map`."""

    points: dict[str, Array]
    rims: dict[str, Array]


def support_map(
    centre: Array, towards: Array, points: Mapping[str, Array], caps: Mapping[str, tuple[Array, float]]
) -> SupportMap:
    """Azimuthal map of the unit sphere: z ↦ θ (cos φ, sin φ), θ = ∠(z, μ), φ its direction in a plane.

    The plane is spanned by e₁, the direction at μ of ``towards``, and e₂, the tangent direction orthogonal to it in
    which the points vary most. Distances from the middle are true angles, whatever the dimension; φ is a shadow.

    Args:
        centre: μ (p,), a unit vector.
        towards: (p,) another one, which comes to lie on the horizontal axis.
        points: (n, p) unit rows by name.
        caps: centre (p,) and radius in degrees by name. A rim is drawn as that of the cap's section with the span of
            μ, e₁ and e₂: exact where the cap's centre lies in it.
    """

    def tangent(rows: Array) -> Array:
        rest: Array = rows - (rows @ centre)[:, None] * centre
        return rest

    first = tangent(towards[None])[0]
    first /= np.linalg.norm(first)
    rest = tangent(np.concatenate(list(points.values())))
    rest -= (rest @ first)[:, None] * first
    second = np.linalg.svd(rest, full_matrices=False)[2][0]

    def flat(rows: Array) -> Array:
        angle = np.degrees(np.arccos(np.clip(rows @ centre, -1, 1)))
        direction = np.arctan2(rows @ second, rows @ first)
        placed: Array = angle[:, None] * np.stack([np.cos(direction), np.sin(direction)], axis=1)
        return placed

    basis = np.stack([centre, first, second])
    turn = np.linspace(0, 2 * np.pi, 181)
    rims = {}
    for name, (middle, radius) in caps.items():
        inside = basis.T @ (basis @ middle)
        inside /= np.linalg.norm(inside)
        frame = np.linalg.svd(np.eye(3) - np.outer(basis @ inside, basis @ inside))[0][:, :2].T @ basis
        circle = np.cos(turn)[:, None] * frame[0] + np.sin(turn)[:, None] * frame[1]
        rims[name] = flat(np.cos(np.radians(radius)) * inside + np.sin(np.radians(radius)) * circle)
    return SupportMap({name: flat(rows) for name, rows in points.items()}, rims)


def support_maps(maps: Mapping[str, SupportMap], *, title: str) -> Figure:
    """Maps side by side, such as of several moments of training.

    Args:
        maps: under the title of each. Points are named ``head``, ``tail``, ``tail, test`` and ``synthetic``, caps
            ``head`` and ``tail``; what is missing is not drawn.
        title: of the figure.
    """
    drawings = {
        "head": {"color": HEAD, "s": 18, "alpha": 0.6, "linewidths": 0, "label": "head, training images"},
        "tail, test": {
            "facecolors": "none",
            "edgecolors": TAIL,
            "s": 26,
            "linewidths": 1,
            "label": "tail, test images",
        },
        "synthetic": {"color": DRAWN, "marker": "x", "s": 26, "linewidths": 1.4, "label": "tail, synthetic features"},
        "tail": {"color": TAIL, "s": 60, "edgecolors": "white", "linewidths": 1, "label": "tail, training images"},
    }
    extent = 1.05 * max(np.abs(np.concatenate([*m.points.values(), *m.rims.values()])).max() for m in maps.values())
    figure, axes = plt.subplots(1, len(maps), figsize=(3.1 * len(maps), 4.1), squeeze=False, layout="constrained")
    for ax, (name, content) in zip(axes[0], maps.items(), strict=True):
        for angle in range(30, 181, 30):
            ax.add_patch(Circle((0, 0), angle, fill=False, edgecolor="#C8C8C8", linewidth=0.7, zorder=0))
            if angle < 0.95 * extent:
                ax.text(0, -angle, f"{angle}°", ha="center", va="center", fontsize=10, color="#5A5A5A")
        for group, style in drawings.items():
            if group in content.points:
                ax.scatter(*content.points[group].T, zorder=2, **style)
        for group, rim in content.rims.items():
            ax.plot(*rim.T, "--", color=HEAD if group == "head" else TAIL, linewidth=1.6, zorder=3)
        ax.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal", title=name)
        ax.axis("off")
    handles = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    figure.suptitle(title)
    return figure


def support_radii(radii: pd.DataFrame, cap: float, *, title: str) -> Figure:
    """Radii of supports against class size, a panel a method: mean over seeds, band of one standard deviation.

    Args:
        radii: columns method, seed, class, class_count, support (a key of `SUPPORTS`), radius in degrees, as
            `ltnb.trained_supports.radii` makes them.
        cap: the largest common radius, in degrees.
        title: of the figure.
    """
    methods = list(radii["method"].unique())
    figure, axes = plt.subplots(
        1, len(methods), figsize=(4.6 * len(methods), 4.2), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, method in zip(axes[0], methods, strict=True):
        of_method = radii[radii["method"] == method]
        for name in [name for name in SUPPORTS if name in set(of_method["support"])]:
            label, colour, marker = SUPPORTS[name]
            of_support = of_method[of_method["support"] == name].groupby(["class_count", "class"])["radius"]
            spread = of_support.agg(["mean", "std"]).reset_index()
            x, mean, deviation = spread["class_count"], spread["mean"], spread["std"].fillna(0)
            ax.plot(x, mean, color=colour, marker=marker, label=label)
            ax.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
        ax.axhline(cap, color="black", linestyle=":", linewidth=1.5, label=f"largest common radius, {cap:.1f}°")
        class_size_axis(ax, of_method["class_count"].to_numpy(dtype=float))
        ax.set_title(method_style(method).label)
    axes[0, 0].set_ylabel("radius [°]")
    handles = {label: handle for ax in axes[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    figure.suptitle(title)
    return figure


def overlap_changes(overlaps: pd.DataFrame, *, title: str) -> Figure:
    """Overlap before (hollow) and after (filled) the centres are rectified: means over seeds, and every seed.

    Args:
        overlaps: columns method, seed, centres, split, error, tail_overlap, as `ltnb.trained_supports.overlaps` makes
            them.
        title: of the figure.
    """
    panels = {
        "error": ("images nearer to another\nclass's centre [%]", 100),
        "tail_overlap": ("overlap of two tail classes [°]", 1),
    }
    rows = [(method, split) for method in overlaps["method"].unique() for split in ("train", "test")]
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 0.5 * len(rows) + 2.2), sharey=True, layout="constrained")
    for ax, (column, (label, scale)) in zip(axes, panels.items(), strict=True):
        for y, (method, split) in enumerate(rows):
            colour = method_style(method).colour
            chosen = overlaps[(overlaps["method"] == method) & (overlaps["split"] == split)]
            values = scale * chosen.pivot_table(index="seed", columns="centres", values=column)
            ax.plot(values[["estimated", "rectified"]].mean(), [y, y], color=colour)
            for name, fill in (("estimated", "white"), ("rectified", colour)):
                ax.scatter(values[name], np.full(len(values), y), s=12, color=colour, alpha=0.5, zorder=3)
                ax.scatter(values[name].mean(), y, s=90, facecolor=fill, edgecolor=colour, linewidths=1.8, zorder=4)
        ax.axvline(0, color="black", linestyle="--", linewidth=1.2)
        ax.set_xlabel(label)
    images = {"train": "training", "test": "test"}
    axes[0].set_yticks(range(len(rows)), [f"{method_style(m).label}, {images[split]} images" for m, split in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.suptitle(title)
    figure.supxlabel("hollow: estimated centres; filled: rectified centres", fontsize=12)
    return figure


def angles_to_centre(angles: pd.DataFrame, cap: float, *, title: str) -> Figure:
    """Angles of training images, synthetic features and test images to their class's support, as boxes by class.

    Args:
        angles: columns class (a label), features (``training images``, ``synthetic features``, ``test images``) and
            angle in degrees. A box holds the middle half, its whiskers all.
        cap: the largest common radius, in degrees.
        title: of the figure.
    """
    kinds = {"training images": HEAD, "synthetic features": DRAWN, "test images": TAIL}
    classes = list(angles["class"].unique())
    figure, ax = plt.subplots(figsize=(1.3 * len(classes) + 2, 4.4), layout="constrained")
    for i, (kind, colour) in enumerate(kinds.items()):
        of_kind = angles[angles["features"] == kind]
        boxes = ax.boxplot(
            [of_kind.loc[of_kind["class"] == name, "angle"] for name in classes],
            positions=[x + 0.27 * (i - 1) for x in range(len(classes))],
            widths=0.22,
            whis=(0, 100),
            patch_artist=True,
            medianprops={"color": "black"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=colour, label=kind if box is boxes["boxes"][0] else "")
    ax.axhline(cap, color="black", linestyle=":", linewidth=1.5, label=f"largest common radius, {cap:.1f}°")
    ax.set_xticks(range(len(classes)), classes)
    ax.set(xlabel="class (training images)", ylabel="angle to the support's centre [°]", ylim=(0, None))
    method_key(figure, ax)
    figure.suptitle(title)
    return figure


def class_temperatures(
    class_counts: Sequence[int], temperatures: Mapping[str, Sequence[float]], *, title: str
) -> Figure:
    """The contrast's temperature of each class against its size, a line a method."""
    figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for method, values in temperatures.items():
        style = method_style(method)
        ax.plot(class_counts, values, color=style.colour, marker=style.marker, label=style.label)
    class_size_axis(ax, np.asarray(class_counts, dtype=float))
    ax.set(ylabel="temperature", ylim=(0, None))
    ax.legend()
    figure.suptitle(title)
    return figure
