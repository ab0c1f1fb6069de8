"""The classification term: what the classifier is told about an image's class."""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb import losses
from ltnb.methods.settings import MethodSettings
from ltnb.models.heads import (
    AnchoredClassifier,
    CosineClassifier,
    NormalisedClassifier,
    RescaledClassifier,
    RotatedClassifier,
)

Classifier = (
    nn.Linear | CosineClassifier | NormalisedClassifier | AnchoredClassifier | RotatedClassifier | RescaledClassifier
)


def classifier(settings: MethodSettings, feature_dim: int, num_classes: int, noise_rate: float = 0.0) -> Classifier:
    """Make the classifier that ``settings.classifier`` names; its ``weight`` has a row a class.

    Args:
        settings: the method's slots.
        feature_dim: d.
        num_classes: K.
        noise_rate: η, the rate of wrong labels, which a scale may depend on.

    Raises:
        ValueError: an anchored or rotated one needs K ≤ d + 1 for its simplex, unless it is optimised.
    """
    scale = settings.classifier_scale
    if scale == "noise-aware":
        # PAL, Section 5.2. `ltnb.theory.anchored_prototypes` has it, too, but no run is to depend on what is derived.
        scale = 0.25 / (0.05 + noise_rate)
    match settings.classifier:
        case "linear":
            return nn.Linear(feature_dim, num_classes)
        case "cosine":
            return CosineClassifier(feature_dim, num_classes, scale)
        case "normalised":
            return NormalisedClassifier(feature_dim, num_classes)
        case "anchored" | "anchored-cosine":
            return AnchoredClassifier(
                feature_dim,
                num_classes,
                scale=scale,
                normalise_features=settings.classifier == "anchored-cosine",
                form=settings.anchors,
            )
        case "rotated":
            return RotatedClassifier(feature_dim, num_classes, scale=scale)


#: Losses of the scores (N, K) and classes (N,) alone, and the settings that their parameters stand in.
OF_SCORES: dict[str, tuple[Callable[..., Tensor], dict[str, str]]] = {
    "cross-entropy": (F.cross_entropy, {}),
    "focal": (losses.focal, {"gamma": "focal_gamma"}),
    "gce": (losses.gce, {"q": "gce_q"}),
    "sce": (losses.sce, {"alpha": "active_weight", "beta": "passive_weight"}),
    "mae": (losses.mae, {}),
    "rce": (losses.rce, {}),
    "nce": (losses.nce, {}),
    "nfl": (losses.nfl, {"gamma": "focal_gamma"}),
    "nsl": (losses.nsl, {}),
}


def of_scores(name: str, settings: MethodSettings, scores: Tensor, targets: Tensor) -> Tensor:
    """Return (N,) losses of scores (N, K) by a name of ``OF_SCORES``, or α · active + β · passive of two of them."""
    if "+" in name:
        assert settings.active_weight is not None
        assert settings.passive_weight is not None
        active, passive = (of_scores(part, settings, scores, targets) for part in name.split("+"))
        return settings.active_weight * active + settings.passive_weight * passive
    loss, parameters = OF_SCORES[name]
    given = {parameter: getattr(settings, setting) for parameter, setting in parameters.items()}
    return loss(scores, targets, **given, reduction="none")


class Classification(nn.Module):
    """The loss of one classified view, one number for each image, from its features."""

    class_counts: Tensor
    margins: Tensor

    def __init__(self, settings: MethodSettings, class_counts: Sequence[int]) -> None:
        """Prepare the term that ``settings.classification`` names, for classes of these sizes."""
        super().__init__()
        self.settings = settings
        self.register_buffer("class_counts", torch.tensor(class_counts), persistent=False)
        margins = (
            losses.ldam_margins(self.class_counts, largest=settings.margin)
            if settings.margins == "ldam"
            else torch.full((len(class_counts),), settings.margin)
        )
        self.register_buffer("margins", margins, persistent=False)

    def forward(self, head: Classifier, features: Tensor, targets: Tensor, generator: Generator) -> Tensor:
        """Return (N,) losses.

        Args:
            head: the classifier.
            features: (N, d).
            targets: class indices (N,), or soft labels (N, K) where the term takes them.
            generator: of what the term draws at random, on the features' device.
        """
        settings = self.settings
        match settings.classification:
            case "logit-adjusted":
                return losses.logit_adjusted_cross_entropy(
                    head(features), targets, self.class_counts, tau=settings.adjustment_strength, reduction="none"
                )
            case "margin":
                assert isinstance(head, CosineClassifier | AnchoredClassifier | RotatedClassifier)
                return losses.margin_cross_entropy(
                    head(features) / head.scale, targets, self.margins, scale=head.scale, reduction="none"
                )
            case "dot-regression":
                return losses.dot_regression(F.normalize(features, dim=1), targets, head.weight, reduction="none")
            case "binary":
                assert isinstance(head, NormalisedClassifier)
                return losses.bce_joint(
                    features,
                    targets,
                    head.weight,
                    head.bias,
                    negative_rate=settings.negative_rate,
                    negatives=settings.negatives,
                    generator=generator,
                    reduction="none",
                )
            case "mse":
                assert isinstance(head, NormalisedClassifier)
                return losses.mse_joint(features, targets, head.weight, head.bias, reduction="none")
            case name:
                return of_scores(name, settings, head(features), targets)


#: The spread term by the name in ``settings.spread``: a function of the classifier's vectors alone.
SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "binary": losses.bce_uniform,
    "cross-entropy": losses.ce_uniform,
    "mse": losses.mse_uniform,
}
