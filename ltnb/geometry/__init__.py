"""The geometry of features on and off the sphere: what a long tail bends, as numbers.

`simplex` holds the ideal configuration and the distance to it, `means` where the classes lie, `collapse` how
tightly each sits around its mean, `separation` the class-by-class metrics of BCE3S, `hypersphere` those of
unit rows.

Everything here is a measurement: tensors of any floating dtype in, float64 out on the same device, no
gradient. Where the origin is moved to the middle of the features, `centring` says which middle, since the two
differ under a long tail: `"class"` lets every class count the same, `"sample"` every sample, `"none"` keeps
the origin.
"""

from ltnb.geometry.collapse import class_distance_normalised_variance, within_class_variability
from ltnb.geometry.hypersphere import alignment, uniformity
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
    mean_norms,
    minority_collapse_angle,
)
from ltnb.geometry.prototypes import PrototypeForm, anchored_prototypes
from ltnb.geometry.separation import classifier_separability, compactness, separability
from ltnb.geometry.simplex import regular_simplex, simplex_cosine, simplex_distance

__all__ = [
    "Centring",
    "PrototypeForm",
    "alignment",
    "anchored_prototypes",
    "centred_class_means",
    "class_angles",
    "class_cosines",
    "class_distance_normalised_variance",
    "class_means",
    "classifier_alignment",
    "classifier_separability",
    "compactness",
    "cosine_matrix",
    "feature_norms",
    "global_mean",
    "mean_norms",
    "minority_collapse_angle",
    "regular_simplex",
    "separability",
    "simplex_cosine",
    "simplex_distance",
    "uniformity",
    "within_class_variability",
]
