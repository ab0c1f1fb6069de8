"""Numbers against epochs, against class size and by class group, with their spread over seeds."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from numpy.typing import NDArray

from ltnb.plots.theme import Style, method_style

GROUP_LABELS = {
    "all": "All",
    "many": "Many\n(>100 images)",
    "medium": "Medium\n(20 to 100)",
    "few": "Few\n(<20)",
}


def training_curves(history: pd.DataFrame, panels: Mapping[str, str], *, title: str) -> Figure:
    """Columns of the runs' histories against the epoch: mean over seeds, band of one standard deviation.

    Args:
        history: columns method, seed, epoch, and those named in `panels`; a column may be empty in some epochs.
        panels: column and its axis label, with unit; columns of shares in [0, 1] are drawn in per cent where
            the label ends in ``[%]``.
        title: of the figure.
    """
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5 * columns, 3.4 * rows + 0.8), squeeze=False, layout="constrained"
    )
    for ax, (column, label) in zip(axes.flat, panels.items(), strict=False):
        scale = 100 if label.endswith("[%]") else 1
        for method, of_method in history.dropna(subset=[column]).groupby("method", sort=False):
            spread = of_method.groupby("epoch")[column].agg(["mean", "std"]) * scale
            _line(ax, str(method), spread.index.to_numpy(dtype=float), spread, marked=len(spread) == 1)
        ax.set(xlabel="epoch", ylabel=label)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    figure.suptitle(title)
    method_key(figure, axes[0, 0])
    return figure


def by_class_size(
    frame: pd.DataFrame, panels: Mapping[str, str], *, title: str, simplex: Mapping[str, float] | None = None
) -> Figure:
    """Values of single classes against the number of training images: mean and standard deviation over seeds.

    Of more than 20 classes those of one size are averaged first: a line through all of them would go up and down.

    Args:
        frame: columns method, seed, split, measure, class, class_count, value, of one space and centring, as
            `ltnb.tables.measure` makes them; rows without a class are left out. Test images are
            drawn solid, training images dashed.
        panels: the measures to draw, in this order, and the axis label of each, with unit.
        title: of the figure.
        simplex: the value of some measures at a regular simplex, drawn as a dotted line.
    """
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(max(5 * columns, 8), 3.3 * rows + 1), squeeze=False, layout="constrained"
    )
    of_classes = frame.dropna(subset=["class"])
    for ax, (measure, label) in zip(axes.flat, panels.items(), strict=False):
        chosen = of_classes[of_classes["measure"] == measure]
        for (method, split), values in chosen.groupby(["method", "split"], sort=False):
            if values["class"].nunique() > 20:
                values = values.groupby(["seed", "class_count"], as_index=False)["value"].mean().assign(**{"class": 0})
            spread = values.groupby(["class_count", "class"])["value"].agg(["mean", "std"]).reset_index()
            x = spread["class_count"].to_numpy(dtype=float)
            _line(ax, str(method), x, spread, marked=len(spread) <= 20, dashed=split == "train")
        if simplex is not None and measure in simplex:
            ax.axhline(simplex[measure], color="black", linestyle=":", linewidth=1.5, label="regular simplex")
        class_size_axis(ax, chosen["class_count"].to_numpy(dtype=float))
        ax.set_ylabel(label)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    figure.suptitle(title)
    _line_key(figure, list(of_classes["split"].unique()), simplex is not None, list(of_classes["method"].unique()))
    return figure


def group_bars(accuracy: pd.DataFrame, *, ax: Axes) -> None:
    """Accuracy by class group: bars are means over seeds, whiskers one standard deviation, points the seeds.

    Args:
        accuracy: columns method, seed, group, accuracy in [0, 1]; an absent group is left out.
        ax: to draw on.
    """
    groups = [group for group in GROUP_LABELS if group in set(accuracy["group"])]
    methods = list(accuracy["method"].unique())
    width = 0.8 / len(methods)
    crowded = len(methods) > 6
    for i, method in enumerate(methods):
        style = method_style(method)
        values = 100 * accuracy[accuracy["method"] == method].set_index(["group", "seed"])["accuracy"]
        for position, group in enumerate(groups):
            seeds = values.loc[group].to_numpy()
            x = position + (i - (len(methods) - 1) / 2) * width
            deviation = seeds.std(ddof=1) if len(seeds) > 1 else 0.0
            ax.bar(
                x,
                seeds.mean(),
                0.92 * width,
                yerr=deviation,
                color=style.colour,
                error_kw={"elinewidth": 1.6, "capsize": 3},
                label=style.label if position == 0 else None,
            )
            ax.text(
                x,
                2,
                f"{seeds.mean():.0f}",
                color="white",
                ha="center",
                fontsize=10 if crowded else 11,
                fontweight="bold",
                rotation=90 if crowded else 0,
            )
            spots = x + width * np.linspace(-0.2, 0.2, len(seeds))
            ax.scatter(spots, seeds, s=14, color="white", edgecolors="black", linewidths=0.8, zorder=3)
    ax.set_xticks(range(len(groups)), [GROUP_LABELS[group] for group in groups])
    ax.set(ylabel="test accuracy [%]", ylim=(0, 105))
    ax.grid(visible=False, axis="x")


def accuracy_by_group(accuracy: pd.DataFrame, *, title: str) -> Figure:
    """`group_bars` as a figure of its own."""
    figure, ax = plt.subplots(figsize=(max(9, accuracy["method"].nunique()), 4.8), layout="constrained")
    group_bars(accuracy, ax=ax)
    figure.suptitle(title)
    method_key(figure, ax)
    return figure


def difference_intervals(differences: pd.DataFrame, *, title: str) -> Figure:
    """Paired differences from a baseline with their intervals, one panel a class group.

    Args:
        differences: columns method, baseline, group, difference, low, high (shares) and n, as
            `ltnb.tables.paired_differences` makes them.
        title: of the figure.
    """
    groups = [group for group in GROUP_LABELS if group in set(differences["group"])]
    methods = list(differences["method"].unique())
    figure, axes = plt.subplots(
        1,
        len(groups),
        figsize=(2.1 * len(groups) + 1.6, 0.55 * len(methods) + 2),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, group in zip(axes[0], groups, strict=True):
        ax.axvline(0, color="black", linewidth=1.2, linestyle="--")
        of_group = differences[differences["group"] == group].set_index("method")
        percent = 100 * of_group[["difference", "low", "high"]]
        for y, method in enumerate(methods):
            style, row = method_style(method), percent.loc[method]
            ax.plot([row["low"], row["high"]], [y, y], color=style.colour)
            ax.plot(row["difference"], y, marker=style.marker, markersize=9, color=style.colour)
        ax.set_yticks(range(len(methods)), [method_style(m).label for m in methods] if ax is axes[0, 0] else [])
        ax.set_ylim(len(methods) - 0.5, -0.5)
        ax.set_title(GROUP_LABELS[group])
    figure.suptitle(title)
    baseline = method_style(str(differences["baseline"].iloc[0])).label
    figure.supxlabel(f"difference from {baseline} [percentage points]", fontsize=13)
    return figure


def _line(
    ax: Axes, method: str, x: NDArray[np.float64], spread: pd.DataFrame, *, marked: bool, dashed: bool = False
) -> None:
    style = method_style(method)._replace(stroke="--" if dashed else "-")
    mean_and_band(ax, x, spread, style, marked=marked)


def mean_and_band(ax: Axes, x: NDArray[np.float64], spread: pd.DataFrame, style: Style, *, marked: bool) -> None:
    """Draw a line through means and a band of one standard deviation around it.

    Args:
        ax: to draw on.
        x: where the means are.
        spread: columns mean and std; one seed has no std.
        style: of the line; its label is what a key will say.
        marked: whether every mean has a marker.
    """
    others = len(ax.lines)  # the more bands lie on each other, the paler each must be
    mean, deviation = spread["mean"].to_numpy(), spread["std"].fillna(0).to_numpy()
    ax.plot(
        x,
        mean,
        color=style.colour,
        marker=style.marker if marked else "",
        linestyle=style.stroke,
        label=style.label,
    )
    ax.fill_between(
        x, mean - deviation, mean + deviation, color=style.colour, alpha=0.2 if others < 6 else 0.08, linewidth=0
    )


def class_size_axis(ax: Axes, class_counts: NDArray[np.float64]) -> None:
    """Logarithmic, from the largest class on the left to the smallest, as long tails are drawn."""
    ax.set_xscale("log")
    ax.invert_xaxis()
    ticks = [n for n in (1, 3, 10, 30, 100, 300, 1000, 3000) if class_counts.min() <= n <= class_counts.max()]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set_xlabel("training images of the class")


def method_key(figure: Figure | SubFigure, *axes: Axes) -> None:
    """Put what is drawn on `axes`, such as methods, below a figure: each name once."""
    handles = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=_key_columns(figure, len(handles))
    )


def _line_key(figure: Figure, splits: Sequence[str], has_simplex: bool, methods: Sequence[str]) -> None:
    """Methods by colour and marker; images by stroke, where both kinds are drawn."""
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, label=style.label)
        for style in map(method_style, methods)
    ]
    if len(splits) > 1:
        handles.append(Line2D([], [], color="black", label="test images"))
        handles.append(Line2D([], [], color="black", linestyle="--", label="training images"))
    if has_simplex:
        handles.append(Line2D([], [], color="black", linestyle=":", linewidth=1.5, label="regular simplex"))
    figure.legend(handles=handles, loc="outside lower center", ncols=_key_columns(figure, len(handles)))


def _key_columns(figure: Figure | SubFigure, entries: int) -> int:
    """As many as have two inches each, in rows of nearly the same length."""
    fit = max(int(figure.bbox.width / figure.figure.dpi / 2), 1)
    rows = -(-entries // fit)
    return -(-entries // rows)
