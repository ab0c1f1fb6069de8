"""Figures: one theme and one palette, each method one colour everywhere.

Every function takes arrays or data frames and returns a figure made for it; none reads or changes a current figure.
`set_theme` alone changes matplotlib's settings: call it once, at the top of a notebook.
"""

from ltnb.plots.curves import (
    accuracy_by_group,
    by_class_size,
    difference_intervals,
    training_curves,
)
from ltnb.plots.headline import headline
from ltnb.plots.matrices import angle_maps, confusion_maps
from ltnb.plots.sphere import SphereView, aligned, sphere_and_map, sphere_view, spheres
from ltnb.plots.theme import class_colours, method_palette, method_style, save, set_theme, show

__all__ = [
    "SphereView",
    "accuracy_by_group",
    "aligned",
    "angle_maps",
    "by_class_size",
    "class_colours",
    "confusion_maps",
    "difference_intervals",
    "headline",
    "method_palette",
    "method_style",
    "save",
    "set_theme",
    "show",
    "sphere_and_map",
    "sphere_view",
    "spheres",
    "training_curves",
]
