"""Class-by-class matrices as heat maps: angles between class means, and confusion."""

from collections.abc import Mapping, Sequence
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ltnb.geometry import simplex_cosine

Array = NDArray[np.float64]


def angle_maps(
    angles: Mapping[str, Array], class_counts: Sequence[int], class_names: Sequence[str], *, title: str
) -> Figure:
    """Angles between class means in degrees, one heat map an entry, the largest class first.

    White is the angle of a regular simplex, arccos(−1/(K−1)); red is closer together, blue is further apart. The
    colours span 80° on either side, the same in every figure.

    Args:
        angles: (K, K) degrees under the title of each heat map.
        class_counts: (K,) training images of each class.
        class_names: (K,) names.
        title: of the figure.
    """
    simplex = float(np.degrees(np.arccos(simplex_cosine(len(class_counts)))))
    figure = _matrices(
        {name: np.where(np.eye(len(a), dtype=bool), np.nan, a) for name, a in angles.items()},
        class_counts,
        class_names,
        norm=Normalize(simplex - 80, simplex + 80),
        colours=plt.get_cmap("RdBu").with_extremes(bad="#DDDDDD"),
        legend=f"angle between class means [°]; white: {simplex:.1f}°, as in a regular simplex",
        title=title,
    )
    figure.supxlabel("class (training images)", fontsize=13)
    return figure


def confusion_maps(
    confusions: Mapping[str, Array], class_counts: Sequence[int], class_names: Sequence[str], *, title: str
) -> Figure:
    """Share of each class's test images, in per cent, that go to each class; rows add up to 100.

    Args:
        confusions: (K, K) counts under the title of each heat map, rows the true class, columns the predicted one.
        class_counts: (K,) training images of each class.
        class_names: (K,) names.
        title: of the figure.
    """
    figure = _matrices(
        {name: 100 * c / c.sum(axis=1, keepdims=True) for name, c in confusions.items()},
        class_counts,
        class_names,
        norm=Normalize(0, 100),
        colours=plt.get_cmap("Blues"),
        legend="share of the class's test images [%]",
        title=title,
    )
    figure.supxlabel("predicted class (training images)", fontsize=13)
    figure.supylabel("true class (training images)", fontsize=13)
    return figure


def transition_maps(
    transitions: Mapping[str, Array], class_counts: Sequence[int], class_names: Sequence[str], *, title: str
) -> Figure:
    """Share of each class's training images, in per cent, that were given each label; rows add up to 100.

    Args:
        transitions: (K, K) probabilities or shares under the title of each heat map, rows the true class.
        class_counts: (K,) training images of each class.
        class_names: (K,) names.
        title: of the figure.
    """
    figure = _matrices(
        {name: 100 * shares for name, shares in transitions.items()},
        class_counts,
        class_names,
        norm=Normalize(0, 100),
        colours=plt.get_cmap("Blues"),
        legend="share of the class's training images [%]",
        title=title,
    )
    figure.supxlabel("given label (training images of that class)", fontsize=13)
    figure.supylabel("true class (training images)", fontsize=13)
    return figure


def _matrices(
    matrices: Mapping[str, Array],
    class_counts: Sequence[int],
    class_names: Sequence[str],
    *,
    norm: Normalize,
    colours: Colormap,
    legend: str,
    title: str,
) -> Figure:
    """Matrices side by side on one colour scale, rows and columns from the largest class to the smallest."""
    order = np.argsort(-np.asarray(class_counts), kind="stable")
    columns = min(len(matrices), 2)  # more would leave the numbers too small to read in a page
    rows = -(-len(matrices) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.4 * columns + 1, 4.2 * rows + 1.7), squeeze=False, layout="constrained"
    )
    for ax, (name, matrix) in zip(axes.flat, matrices.items(), strict=False):
        ordered = matrix[np.ix_(order, order)]
        ax.imshow(ordered, norm=norm, cmap=colours)
        if len(order) <= 12:
            _write_values(ax, ordered, norm, colours)
        ax.set_title(name)
        shown = np.unique(np.linspace(0, len(order) - 1, min(len(order), 12)).round().astype(int))
        labels = [f"{class_names[k]} ({class_counts[k]})" for k in order[shown]]
        ax.set_xticks(shown, labels, rotation=90, fontsize=11)
        ax.set_yticks(shown, labels, fontsize=11)
        ax.grid(visible=False)
    for ax in axes.flat[len(matrices) :]:
        ax.remove()
    width = 42 * columns  # characters that fit above so many
    figure.suptitle(fill(title, width))
    bar = figure.colorbar(
        ScalarMappable(norm, colours), ax=list(axes.flat[: len(matrices)]), location="top", aspect=40, shrink=0.8
    )
    bar.set_label(fill(legend, width))
    bar.outline.set_visible(False)
    return figure


def _write_values(ax: Axes, matrix: Array, norm: Normalize, colours: Colormap) -> None:
    for (row, column), value in np.ndenumerate(matrix):
        if np.isnan(value):
            continue
        ax.text(
            column,
            row,
            f"{value:.0f}",
            ha="center",
            va="center",
            fontsize=9.5,
            color=ink_on(colours(norm(value))),
            in_layout=False,  # it lies within the axes: nothing for the layout to measure
        )


def ink_on(colour: tuple[float, float, float, float]) -> str:
    """White or black, whichever can be read on a colour."""
    red, green, blue, _ = colour
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"
