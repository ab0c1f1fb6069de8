"""The geometry of features on and off the sphere: what a long tail bends, as numbers.

`simplex` holds the ideal configuration and the distance to it, `means` where the classes lie, `collapse` how
tightly each sits around its mean, `separation` the class-by-class metrics of BCE3S, `margins` those of PAL, `regions`
what a classifier makes of the rest of the space, `hypersphere` the metrics of unit rows. `supports` are the caps in
which classes lie, and `caps` draws points in them. `prototypes` and `targets` are directions fixed before training,
and `rotation` turns them.

What is measured is float64 on the device of the tensors it is measured on, which may have any floating dtype, and has
no gradient. Points that are drawn have none either; they take the dtype of the centres they are drawn around. Only
`rotation` is there to be trained, in the dtype it is given. Where the origin is moved to the middle of the features,
`centring` says which middle, since the two differ under a long tail: `"class"` lets every class count the same,
`"sample"` every sample, `"none"` keeps the origin.
"""

from ltnb.geometry.caps import (
    truncated_normal_angles,
    truncated_normal_in_cap,
    uniform_cap_angles,
    uniform_in_cap,
)
from ltnb.geometry.collapse import class_distance_normalised_variance, within_class_variability
from ltnb.geometry.hypersphere import alignment, uniformity
from ltnb.geometry.margins import class_margins, sample_margins
from ltnb.geometry.means import (
    Centring,
    centred_class_means,
    class_angles,
    class_cosines,
    class_means,
    classifier_alignment,
    cosine_matrix,
    feature_norms,
    global_mean,
    minority_collapse_angle,
)
from ltnb.geometry.prototypes import PrototypeForm, anchored_prototypes
from ltnb.geometry.regions import decision_regions, direction_shares
from ltnb.geometry.rotation import rotated, rotation
from ltnb.geometry.separation import (
    PairSeparability,
    classifier_separability,
    compactness,
    pair_separability,
    separability,
)
from ltnb.geometry.simplex import regular_simplex, simplex_cosine, simplex_distance
from ltnb.geometry.supports import (
    HeadWeights,
    Supports,
    cap_overlaps,
    capped,
    confidence_supports,
    largest_common_radius,
    nearest_centre_error,
    rectified_supports,
)
from ltnb.geometry.targets import assign_targets, target_energy, uniform_targets

__all__ = [
    "Centring",
    "HeadWeights",
    "PairSeparability",
    "PrototypeForm",
    "Supports",
    "alignment",
    "anchored_prototypes",
    "assign_targets",
    "cap_overlaps",
    "capped",
    "centred_class_means",
    "class_angles",
    "class_cosines",
    "class_distance_normalised_variance",
    "class_margins",
    "class_means",
    "classifier_alignment",
    "classifier_separability",
    "compactness",
    "confidence_supports",
    "cosine_matrix",
    "decision_regions",
    "direction_shares",
    "feature_norms",
    "global_mean",
    "largest_common_radius",
    "minority_collapse_angle",
    "nearest_centre_error",
    "pair_separability",
    "rectified_supports",
    "regular_simplex",
    "rotated",
    "rotation",
    "sample_margins",
    "separability",
    "simplex_cosine",
    "simplex_distance",
    "target_energy",
    "truncated_normal_angles",
    "truncated_normal_in_cap",
    "uniform_cap_angles",
    "uniform_in_cap",
    "uniform_targets",
    "uniformity",
    "within_class_variability",
]
