"""Figures: one theme and one palette, each method one colour everywhere.

Every function takes arrays or data frames and returns a figure made for it; none reads or changes a current figure.
`set_theme` alone changes matplotlib's settings: call it once, at the top of a notebook.
"""

from ltnb.plots.balance import mean_and_spread, pair_separabilities, swept
from ltnb.plots.baselines import accuracy_by_family, cost_by_family
from ltnb.plots.curves import (
    accuracy_by_group,
    by_class_size,
    difference_intervals,
    training_curves,
)
from ltnb.plots.headline import headline
from ltnb.plots.matrices import angle_maps, confusion_maps, transition_maps
from ltnb.plots.noise import accuracy_over_rate, accuracy_over_scale, heat_maps, over_epochs
from ltnb.plots.optima import cosines_beside_optimum, loss_over_bounds
from ltnb.plots.plane import Plane, decision_planes, decision_spheres
from ltnb.plots.sphere import SphereView, aligned, sphere_and_map, sphere_view, spheres
from ltnb.plots.supports import (
    SupportMap,
    angles_to_centre,
    class_temperatures,
    overlap_changes,
    support_map,
    support_maps,
    support_radii,
)
from ltnb.plots.theme import class_colours, method_palette, method_style, save, set_theme, show

__all__ = [
    "Plane",
    "SphereView",
    "SupportMap",
    "accuracy_by_family",
    "accuracy_by_group",
    "accuracy_over_rate",
    "accuracy_over_scale",
    "aligned",
    "angle_maps",
    "angles_to_centre",
    "by_class_size",
    "class_colours",
    "class_temperatures",
    "confusion_maps",
    "cosines_beside_optimum",
    "cost_by_family",
    "decision_planes",
    "decision_spheres",
    "difference_intervals",
    "headline",
    "heat_maps",
    "loss_over_bounds",
    "mean_and_spread",
    "method_palette",
    "method_style",
    "over_epochs",
    "overlap_changes",
    "pair_separabilities",
    "save",
    "set_theme",
    "show",
    "sphere_and_map",
    "sphere_view",
    "spheres",
    "support_map",
    "support_maps",
    "support_radii",
    "swept",
    "training_curves",
    "transition_maps",
]
