"""Many methods at a glance, by kind of method: how accurate they are, and what they cost."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ltnb.plots.theme import FAMILY_STYLES, Style, method_style

GROUPS = {"all": "all classes", "few": "few: fewer than 20 images"}
COSTS = {"ratio": "time of a run, cross-entropy's = 1", "memory_mib": "memory that training adds [MiB]"}

# Family and method of every line; a family's name has a line of its own.
Lines = Sequence[tuple[str, str | None]]


def accuracy_by_family(accuracy: pd.DataFrame, *, baseline: str, title: str) -> Figure:
    """Mean accuracy and its interval, a line a method: by kind of method, and within a kind from best to worst.

    The baseline is a line through each panel, its interval a band.

    Args:
        accuracy: columns method, family, group (of `GROUPS`), mean, low, high, shares in [0, 1]; without low and high
            there is a point alone. Kinds come in the order in which they are first seen.
        baseline: a method in it.
        title: of the figure.
    """
    overall = accuracy[accuracy["group"] == "all"]
    lines = _lines(overall.sort_values("mean", ascending=False), list(overall["family"].unique()), baseline)
    figure, axes = _panels(lines, len(GROUPS), title)
    for ax, (group, panel) in zip(axes, GROUPS.items(), strict=True):
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
            _dot(ax, float(mean), y, style)
        ax.set(title=panel, xlabel="test accuracy [%]")
    return figure


def cost_by_family(points: pd.DataFrame, *, baseline: str, title: str) -> Figure:
    """Time and memory of a run, from zero: a line a method, by kind, and within a kind from most to least accurate.

    A ring marks the methods on the front of accuracy and time, which no other method beats in both.

    Args:
        points: columns method, family, accuracy, ratio (of a run's time), memory_mib, on_front (bool). Kinds come in
            the order in which they are first seen.
        baseline: a method in it, a line through each panel.
        title: of the figure.
    """
    lines = _lines(points.sort_values("accuracy", ascending=False), list(points["family"].unique()), baseline)
    figure, axes = _panels(lines, len(COSTS), title)
    of_method = points.set_index("method")
    for ax, (column, label) in zip(axes, COSTS.items(), strict=True):
        costs = of_method[column].astype(float)
        if baseline in costs.index:
            ax.axvline(costs[baseline], color=method_style(baseline).colour, linestyle="--", linewidth=1.4, zorder=1)
        for y, (family, method) in enumerate(lines):
            if method is None:
                continue
            style = _style(method, family)
            ax.plot([0, costs[method]], [y, y], color=style.colour, linewidth=2, alpha=0.5)
            if column == "ratio" and of_method.loc[method, "on_front"]:
                ax.plot(costs[method], y, marker="o", markersize=16, color="black", fillstyle="none", linestyle="")
            _dot(ax, costs[method], y, style)
        ax.set_xlim(0, 1.08 * costs.max())
        ax.set_xlabel(label)
    return figure


def _lines(best_first: pd.DataFrame, families: Sequence[str], baseline: str) -> Lines:
    lines: list[tuple[str, str | None]] = []
    for family in families:
        methods = best_first.loc[best_first["family"] == family, "method"]
        if set(methods) != {baseline}:
            lines.append((family, None))
        lines += [(family, str(method)) for method in methods]
    return lines


def _panels(lines: Lines, number: int, title: str) -> tuple[Figure, NDArray[np.object_]]:
    """So many panels side by side, whose lines are named on the left."""
    figure, axes = plt.subplots(
        1, number, figsize=(11, 0.29 * len(lines) + 1.5), sharey=True, squeeze=False, layout="constrained"
    )
    for ax in axes[0]:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.tick_params(axis="y", length=0)
    first = axes[0, 0]
    first.set_yticks(range(len(lines)), [method_style(method).label if method else family for family, method in lines])
    first.set_ylim(len(lines) - 0.4, -0.6)
    for tick, (family, method) in zip(first.get_yticklabels(), lines, strict=True):
        if method is None:
            tick.set(fontweight="bold", color=FAMILY_STYLES[family].colour if family in FAMILY_STYLES else "black")
    figure.suptitle(title)
    return figure, axes[0]


def _dot(ax: Axes, x: float, y: float, style: Style) -> None:
    ax.plot(x, y, marker=style.marker, markersize=9, color=style.colour, markeredgecolor="white")


def _style(method: str, family: str) -> Style:
    """A method's style within its kind; of no kind, its own."""
    return FAMILY_STYLES.get(family, method_style(method))
