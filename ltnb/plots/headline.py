"""The one picture for people in a hurry: where each method puts the classes, and what that does to accuracy."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from ltnb.plots.curves import group_bars, method_key
from ltnb.plots.sphere import SphereView, class_key, in_rows, sphere
from ltnb.plots.theme import method_style


def headline(
    views: Mapping[str, SphereView],
    accuracy: pd.DataFrame,
    class_names: Sequence[str],
    notes: Mapping[str, str],
    *,
    title: str,
) -> Figure:
    """Every method's sphere, at most five in a row, accuracy by class group below.

    Args:
        views: what `sphere_view` gives, by method.
        accuracy: columns method, seed, group, accuracy, of the same methods.
        class_names: (K,) names.
        notes: a line of text below each method's name.
        title: of the figure.
    """
    rows, columns = in_rows(len(views))
    figure = plt.figure(figsize=(max(2.55 * columns, 6.4), 3.1 * rows + 4.1), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(rows, 1.15), squeeze=False)[:, 0]
    places = upper.subplots(rows, columns, squeeze=False).flat
    for ax, (method, view) in zip(places, views.items(), strict=False):
        style = method_style(method)
        sphere(view, class_names, ax=ax)
        ax.set_title(style.label, color=style.colour, fontweight="bold")
        ax.annotate(notes[method], (0.5, 0), xycoords="axes fraction", ha="center", va="top", fontsize=12)
    for ax in places[len(views) :]:
        ax.remove()
    class_key(upper, next(iter(views.values())).class_counts, class_names)
    ax = lower.subplots()
    group_bars(accuracy, ax=ax)
    method_key(lower, ax)
    figure.suptitle(title)
    return figure
