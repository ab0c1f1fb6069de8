"""What training reached beside what theory predicts: the loss over its bounds, class means beside the optimum's."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from ltnb.plots.curves import class_size_axis, training_curves
from ltnb.plots.theme import method_style

Array = NDArray[np.float64]


def loss_over_bounds(
    history: pd.DataFrame, column: str, label: str, bounds: Mapping[str, float], *, title: str
) -> Figure:
    """A term of the loss against the epoch, on a logarithmic axis, and bounds as lines across.

    Args:
        history: columns method, seed, epoch and the term's.
        column: the term's name.
        label: of its axis.
        bounds: the value of each, under the text that stands at its line. Bounds that lie close take each other's
            room: of two, the larger comes first and stands above its line.
        title: of the figure.
    """
    figure = training_curves(history, {column: label}, title=title)
    figure.set_size_inches(7, 4.6)
    ax = figure.axes[0]
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    for i, (text, value) in enumerate(bounds.items()):
        ax.axhline(value, color="black", linestyle=("--", ":")[i % 2], linewidth=1.5)
        above = i % 2 == 0
        ax.annotate(
            text, (1, value), xycoords=("axes fraction", "data"), xytext=(0, 4 if above else -4),
            textcoords="offset points", ha="right", va="bottom" if above else "top", fontsize=11,
        )  # fmt: skip
    ax.set_ylim(bottom=min(bounds.values()) / 2.5)
    return figure


def cosines_beside_optimum(
    measured: pd.DataFrame, predicted: Mapping[str, Array], class_counts: Sequence[int], *, simplex: float, title: str
) -> Figure:
    """Mean cosine of each class to the others against its size, a panel a method: measured, and at the loss's optimum.

    Args:
        measured: columns method, seed, split, class, class_count, value; mean and standard deviation over seeds are
            drawn, test images solid and training images dashed.
        predicted: (K,) cosines by method, drawn in black; a method without any has none.
        class_counts: (K,) training images, for the predictions.
        simplex: the cosine at a regular simplex, drawn as a line across.
        title: of the figure.
    """
    methods = list(measured["method"].unique())
    figure, axes = plt.subplots(
        1, len(methods), figsize=(3.4 * len(methods) + 0.8, 4.2), sharey=True, squeeze=False, layout="constrained"
    )
    for ax, method in zip(axes[0], methods, strict=True):
        style, of_method = method_style(method), measured[measured["method"] == method]
        for split, stroke in (("test", "-"), ("train", "--")):
            of_split = of_method[of_method["split"] == split].groupby(["class_count", "class"])["value"]
            spread = of_split.agg(["mean", "std"]).reset_index()
            x, mean, deviation = spread["class_count"], spread["mean"], spread["std"].fillna(0)
            ax.plot(
                x,
                mean,
                stroke,
                color=style.colour,
                marker=style.marker,
            )
            ax.fill_between(x, mean - deviation, mean + deviation, color=style.colour, alpha=0.2, linewidth=0)
        if method in predicted:
            ax.plot(class_counts, predicted[method], ":", color="black")
        ax.axhline(simplex, color="#9A9A9A", linewidth=1.5, zorder=0)
        class_size_axis(ax, np.asarray(class_counts, dtype=float))
        ax.set_title(style.label, color=style.colour)
    axes[0, 0].set_ylabel("mean cosine to other classes")
    handles = [
        Line2D([], [], color="black", marker="o", label="test images"),
        Line2D([], [], color="black", marker="o", linestyle="--", label="training images"),
        Line2D([], [], color="black", linestyle=":", label="optimum of the loss"),
        Line2D([], [], color="#9A9A9A", linewidth=1.5, label="regular simplex"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    figure.suptitle(title)
    return figure
