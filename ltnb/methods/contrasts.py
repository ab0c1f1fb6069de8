"""Make the contrast that a method's settings name."""

from collections.abc import Sequence

from ltnb.methods.contrast import Contrast, DecoupledContrast, MemoryContrast, PairedContrast
from ltnb.methods.moments import ProbabilisticContrast
from ltnb.methods.momentum import KPositiveContrast, ParametricContrast, TargetedContrast
from ltnb.methods.settings import MethodSettings
from ltnb.models.encoders import Encoder


def contrast(settings: MethodSettings, encoder: Encoder, class_counts: Sequence[int]) -> Contrast | None:
    """Make the contrast that ``settings.contrast`` names, or none.

    Args:
        settings: the method's slots.
        encoder: that of the features; a momentum encoder starts as its copy.
        class_counts: training images of each class, K of them.
    """
    match settings.contrast:
        case "none":
            return None
        case "supervised" | "balanced":
            return PairedContrast(settings, encoder.feature_dim, class_counts)
        case "decoupled":
            return DecoupledContrast(settings, encoder.feature_dim)
        case "binary" | "cross-entropy" | "mse":
            return MemoryContrast(settings, encoder.feature_dim, len(class_counts))
        case "k-positive":
            return KPositiveContrast(settings, encoder)
        case "targeted":
            return TargetedContrast(settings, encoder, len(class_counts))
        case "parametric":
            return ParametricContrast(settings, encoder, class_counts)
        case "probabilistic":
            return ProbabilisticContrast(settings, encoder.feature_dim, class_counts)
