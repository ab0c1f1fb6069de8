"""How evenly methods treat their classes: means against spreads, pairs of heads and tails, and a setting swept."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ltnb.plots.curves import method_key
from ltnb.plots.theme import method_style

PAIRS = {"head_head": "head–head", "head_tail": "head–tail", "tail_tail": "tail–tail"}


def mean_and_spread(measures: pd.DataFrame, panels: Mapping[str, str], *, title: str) -> Figure:
    """A class-by-class measure's mean over classes against its spread over classes: a point a run, a panel a measure.

    The best place is low (even) and, where larger is better, on the right.

    Args:
        measures: columns method, seed, measure, value, as `ltnb.balance.measures` makes them; ``<name>_mean`` and
            ``<name>_spread`` of every panel.
        panels: name of the measure, and title of its panel.
        title: of the figure.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 4.6), squeeze=False, layout="constrained")
    for ax, (name, panel) in zip(axes[0], panels.items(), strict=True):
        for method, of_method in measures.groupby("method", sort=False):
            style = method_style(str(method))
            by_seed = of_method.pivot_table(index="seed", columns="measure", values="value")
            ax.scatter(
                by_seed[f"{name}_mean"],
                by_seed[f"{name}_spread"],
                s=90,
                color=style.colour,
                marker=style.marker,
                alpha=0.8,
                label=style.label,
            )
        ax.margins(0.15)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.set(title=panel, xlabel="mean over classes")
    axes[0, 0].set_ylabel("standard deviation over classes")
    figure.suptitle(title)
    method_key(figure, axes[0, 0])
    return figure


def pair_separabilities(measures: pd.DataFrame, panels: Mapping[str, str], *, simplex: float, title: str) -> Figure:
    """Separability of pairs of heads, of a head and a tail, and of tails: mean over seeds and one standard deviation.

    Args:
        measures: columns method, seed, measure, value; ``<name>_head_head``, ``…_head_tail`` and ``…_tail_tail`` of
            every panel. A method without them is left out of the panel, but not of the first one.
        panels: where the vectors are (``classifier``, ``test``), and title of the panel.
        simplex: the value of all three at a regular simplex, drawn as a line.
        title: of the figure.
    """
    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(5 * columns, 3.6 * lines + 0.9), sharey=True, squeeze=False, layout="constrained"
    )
    methods = list(measures["method"].unique())
    for ax, (place, panel) in zip(axes.flat, panels.items(), strict=False):
        ax.axhline(simplex, color="black", linestyle=":", linewidth=1.5, label="regular simplex")
        for i, method in enumerate(methods):
            style = method_style(method)
            values = measures[measures["method"] == method].pivot_table(index="seed", columns="measure", values="value")
            of_pairs = values.reindex(columns=[f"{place}_{pair}" for pair in PAIRS])
            if of_pairs.isna().all(axis=None):
                continue
            spread = of_pairs.agg(["mean", "std"]).fillna(0)
            shift = 0.35 * ((i + 0.5) / len(methods) - 0.5)
            ax.errorbar(
                [position + shift for position in range(len(PAIRS))],
                spread.loc["mean"],
                spread.loc["std"],
                color=style.colour,
                marker=style.marker,
                capsize=3,
                label=style.label,
            )
        ax.set_xticks(range(len(PAIRS)), list(PAIRS.values()))
        ax.set_xlim(-0.4, len(PAIRS) - 0.6)
        ax.set_title(panel)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    for ax in axes[:, 0]:
        ax.set_ylabel("separability [0 to 100]")
    figure.suptitle(title)
    method_key(figure, axes[0, 0])
    return figure


def swept(
    measures: pd.DataFrame,
    rows: Mapping[str, Mapping[float, str]],
    panels: Mapping[str, str],
    *,
    setting: str,
    title: str,
) -> Figure:
    """Measures against a setting on a logarithmic axis, a line a method: mean over seeds and one standard deviation.

    Args:
        measures: columns method, seed, measure, value.
        rows: by method (for style and name), the row that has each value of the setting.
        panels: measure, and label of its axis; shares in [0, 1] are drawn in per cent where it ends in ``[%]``.
        setting: label of the axis below.
        title: of the figure.
    """
    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(5 * columns, 3.3 * lines + 0.8), squeeze=False, layout="constrained"
    )
    for ax, (measure, label) in zip(axes.flat, panels.items(), strict=False):
        scale = 100 if label.endswith("[%]") else 1
        for method, row_of in rows.items():
            style = method_style(method)
            spread = scale * _spread(measures, measure, list(row_of.values()))
            ax.errorbar(
                list(row_of),
                spread["mean"],
                spread["std"].fillna(0),
                color=style.colour,
                marker=style.marker,
                capsize=3,
                label=style.label,
            )
        ax.set_xscale("log")
        ax.set(xlabel=setting, ylabel=label)
    for ax in axes.flat[len(panels) :]:
        ax.remove()
    figure.suptitle(title)
    method_key(figure, axes[0, 0])
    return figure


def _spread(measures: pd.DataFrame, measure: str, rows: Sequence[str]) -> pd.DataFrame:
    """Mean and standard deviation over seeds, by row, in the rows' order; missing where a row has not run."""
    chosen = measures[measures["measure"] == measure]
    return chosen.groupby("method")["value"].agg(["mean", "std"]).reindex(list(rows))
