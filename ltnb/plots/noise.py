"""What wrong labels do: accuracy against the scale, the epoch and the rate of wrong labels, and with a long tail."""

from collections.abc import Mapping
from typing import Literal

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from ltnb.plots.curves import mean_and_band, method_key
from ltnb.plots.matrices import ink_on
from ltnb.plots.theme import Style, method_style

ACCURACY_AND_MEMORY = {"test_accuracy": "test accuracy [%]", "memorised": "memorised [%]"}


def accuracy_over_scale(
    frame: pd.DataFrame,
    tolerant: Mapping[str, float],
    *,
    paper: Mapping[str, float],
    panels: Mapping[str, str],
    measures: Mapping[str, str],
    title: str,
) -> Figure:
    """Measures against the scale s of normalised features, on a logarithmic axis: a row of panels a measure.

    Each data set has a column, each classifier a line: mean over seeds, band of one standard deviation.

    Args:
        frame: columns dataset, classifier (a method key, for name and colour), scale, seed, and those of `measures`.
        tolerant: by data set s*, the largest scale that tolerates its noise
            (`ltnb.theory.anchored_prototypes.largest_tolerant_scale`), a dotted line.
        paper: by data set the paper's scale 0.25/(0.05 + η), a dashed line.
        panels: data set, and title of its column.
        measures: column, and label of its axis; shares in [0, 1] are drawn in per cent where it ends in ``[%]``.
        title: of the figure.
    """
    figure, axes = _grid(len(measures), len(panels))
    for (row, column), ax in np.ndenumerate(axes):
        dataset, measure = list(panels)[column], list(measures)[row]
        of_dataset = frame[frame["dataset"] == dataset]
        for classifier, values in of_dataset.groupby("classifier", sort=False):
            _spread(ax, values, "scale", measure, method_style(str(classifier))._replace(stroke="-"), measures[measure])
        ax.axvline(
            tolerant[dataset],
            color="black",
            linestyle=":",
            linewidth=1.8,
            zorder=1.5,
            label="s*, the largest tolerant scale",
        )
        ax.axvline(paper[dataset], color="#7A7A7A", linestyle="--", linewidth=1.8, zorder=1.5, label="the paper's s")
        _scale_axis(ax, np.sort(frame["scale"].unique()))
    _describe(figure, axes, list(panels.values()), list(measures.values()), "scale s", title)
    return figure


def over_epochs(
    history: pd.DataFrame,
    panels: Mapping[str, str],
    *,
    lines: Literal["scale", "method"],
    title: str,
    measures: Mapping[str, str] = ACCURACY_AND_MEMORY,
) -> Figure:
    """Measures against the epoch, a row of panels a measure and a column a data set: memorising as it happens.

    Mean over seeds, band of one standard deviation. A data set without a measure, such as what is memorised of clean
    labels, has no panel for it.

    Args:
        history: columns dataset, seed, epoch, that of `lines` and those of `measures`, which may be empty in epochs
            that were not watched.
        panels: data set, and title of its column.
        lines: ``scale``: a line for every scale of one classifier, the darker the larger; ``method``: one for every
            method, in its colour.
        title: of the figure.
        measures: column, and label of its axis; shares in [0, 1] are drawn in per cent where it ends in ``[%]``.
    """
    styles = _line_styles(history, lines)
    figure, axes = _grid(len(measures), len(panels))
    for (row, column), ax in np.ndenumerate(axes):
        dataset, measure = list(panels)[column], list(measures)[row]
        of_dataset = history[history["dataset"] == dataset].dropna(subset=[measure])
        if of_dataset.empty:
            ax.set_visible(False)
        for line, style in styles.items():
            _spread(ax, of_dataset[of_dataset[lines] == line], "epoch", measure, style, measures[measure], marked=False)
    _describe(figure, axes, list(panels.values()), list(measures.values()), "epoch", title)
    return figure


def accuracy_over_rate(frame: pd.DataFrame, *, title: str) -> Figure:
    """Test accuracy against the rate of wrong labels, a line a method: mean over seeds and one standard deviation.

    A loss and its FNPAL variant have one colour; FNPAL is dashed.

    Args:
        frame: columns method, noise_rate, seed, accuracy, both shares in [0, 1].
        title: of the figure.
    """
    methods = list(frame["method"].unique())
    figure, ax = plt.subplots(figsize=(8.5, 5.4), layout="constrained")
    rates = np.sort(frame["noise_rate"].unique())
    for i, method in enumerate(methods):
        style = method_style(method)
        spread = 100 * frame[frame["method"] == method].groupby("noise_rate")["accuracy"].agg(["mean", "std"])
        shift = 0.12 * np.diff(100 * rates).min(initial=100) * ((i + 0.5) / len(methods) - 0.5)
        x = 100 * spread.index.to_numpy(dtype=float) + shift
        ax.plot(x, spread["mean"], style.stroke, color=style.colour, marker=style.marker, label=style.label)
        ax.errorbar(
            x, spread["mean"], spread["std"].fillna(0), fmt="none", ecolor=style.colour, capsize=2, elinewidth=1.2
        )
    ax.set_xticks(100 * rates)
    ax.set(xlabel="wrong labels [%]", ylabel="test accuracy [%]")
    figure.legend(loc="outside right center", handlelength=3.2)
    figure.suptitle(title)
    return figure


def heat_maps(accuracy: pd.DataFrame, *, title: str) -> Figure:
    """Test accuracy by imbalance factor (down) and rate of wrong labels (across), a heat map a method, on one scale.

    The mean over seeds stands in each cell, and below it, where there are several, one standard deviation.

    Args:
        accuracy: columns method, imbalance, noise_rate, seed, accuracy, shares in [0, 1].
        title: of the figure.
    """
    methods = list(accuracy["method"].unique())
    imbalances, rates = (np.sort(accuracy[column].unique()) for column in ("imbalance", "noise_rate"))
    columns = min(len(methods), 4)
    lines = -(-len(methods) // columns)
    cells = 100 * accuracy.groupby(["method", "imbalance", "noise_rate"])["accuracy"].agg(["mean", "std"])
    high = 10 * np.ceil(cells["mean"].max() / 10)
    norm = Normalize(min(10 * np.floor(cells["mean"].min() / 10), high - 10), high)
    colours = plt.get_cmap("YlGnBu").with_extremes(bad="#DDDDDD")
    figure, axes = plt.subplots(
        lines,
        columns,
        figsize=(0.85 * len(rates) * columns + 1.2, 0.75 * len(imbalances) * lines + 2.2),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, method in zip(axes.flat, methods, strict=False):
        of_method = cells.loc[method].reindex(pd.MultiIndex.from_product([imbalances, rates]))
        mean, deviation = (of_method[name].to_numpy().reshape(len(imbalances), -1) for name in ("mean", "std"))
        ax.imshow(mean, norm=norm, cmap=colours, aspect="auto")
        _write_cells(ax, mean, deviation, norm, colours)
        style = method_style(method)
        ax.set_title(style.label, color=style.colour, fontweight="bold")
        ax.set_xticks(range(len(rates)), [f"{100 * rate:g}" for rate in rates])
        ax.set_yticks(range(len(imbalances)), [f"{factor:g}" for factor in imbalances])
        ax.tick_params(length=0)
        ax.grid(visible=False)
    for ax in axes.flat[len(methods) :]:
        ax.remove()
    figure.supxlabel("wrong labels [%]", fontsize=13)
    figure.supylabel("imbalance factor", fontsize=13)
    figure.suptitle(title)
    shown = list(axes.flat[: len(methods)])
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=shown, location="right", aspect=30)
    bar.set_label("test accuracy [%]")
    bar.outline.set_visible(False)
    return figure


def _write_cells(
    ax: Axes, mean: NDArray[np.float64], deviation: NDArray[np.float64], norm: Normalize, colours: Colormap
) -> None:
    for (row, column), value in np.ndenumerate(mean):
        if np.isnan(value):
            continue
        ink, spread = ink_on(colours(norm(value))), deviation[row, column]
        alone = np.isnan(spread)
        ax.text(column, row if alone else row - 0.12, f"{value:.1f}", ha="center", va="center", fontsize=12, color=ink)
        if not alone:
            ax.text(column, row + 0.26, f"± {spread:.1f}", ha="center", va="center", fontsize=10, color=ink)


def _grid(rows: int, columns: int) -> tuple[Figure, NDArray[np.object_]]:
    """Panels that share the axis across, and in a row the axis upwards."""
    return plt.subplots(
        rows,
        columns,
        figsize=(2.9 * columns + 0.8, 2.6 * rows + 1.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )


def _spread(
    ax: Axes, frame: pd.DataFrame, x: str, measure: str, style: Style, label: str, *, marked: bool = True
) -> None:
    """Mean and band of a column over seeds."""
    spread = frame.groupby(x)[measure].agg(["mean", "std"]) * (100 if label.endswith("[%]") else 1)
    mean_and_band(ax, spread.index.to_numpy(dtype=float), spread, style, marked=marked)


def _line_styles(history: pd.DataFrame, lines: Literal["scale", "method"]) -> dict[float | str, Style]:
    if lines == "method":
        return {method: method_style(method) for method in history["method"].unique()}
    scales = np.sort(history["scale"].unique())
    shades = mpl.colormaps["viridis_r"](np.linspace(0.1, 1, len(scales)))  # what comes before is too pale on white
    return {
        scale: Style(f"s = {scale:g}", to_hex(shade), "") for scale, shade in zip(scales.tolist(), shades, strict=True)
    }


def _scale_axis(ax: Axes, scales: NDArray[np.float64]) -> None:
    """Logarithmic, every scale marked and every other one named."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(scales[::2].tolist()))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(FixedLocator(scales[1::2].tolist()) if len(scales) > 1 else NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())


def _describe(
    figure: Figure, axes: NDArray[np.object_], columns: list[str], rows: list[str], below: str, title: str
) -> None:
    """Titles of the panels' columns, labels of their rows and of the axis below, and one key of all lines."""
    for ax, name in zip(axes[0], columns, strict=True):
        ax.set_title(name)
    for ax, label in zip(axes[:, 0], rows, strict=True):
        ax.set_ylabel(label)
    for ax in axes[-1]:
        ax.set_xlabel(below)
    method_key(figure, *axes.flat)
    figure.suptitle(title)
