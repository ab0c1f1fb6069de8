"""The classification term: what the classifier is told about an image's class."""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb import losses
from ltnb.methods.settings import MethodSettings
from ltnb.models.heads import AnchoredClassifier, CosineClassifier, NormalisedClassifier

Classifier = nn.Linear | CosineClassifier | NormalisedClassifier | AnchoredClassifier


def classifier(settings: MethodSettings, feature_dim: int, num_classes: int) -> Classifier:
    """Make the classifier that ``settings.classifier`` names; its ``weight`` has a row a class.

    Raises:
        ValueError: an anchored one needs num_classes ≤ feature_dim + 1 for its simplex, unless it is optimised.
    """
    match settings.classifier:
        case "linear":
            return nn.Linear(feature_dim, num_classes)
        case "cosine":
            return CosineClassifier(feature_dim, num_classes, settings.classifier_scale)
        case "normalised":
            return NormalisedClassifier(feature_dim, num_classes)
        case "anchored" | "anchored-cosine":
            return AnchoredClassifier(
                feature_dim,
                num_classes,
                scale=settings.classifier_scale,
                normalise_features=settings.classifier == "anchored-cosine",
                form=settings.anchors,
            )


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
            case "cross-entropy":
                return F.cross_entropy(head(features), targets, reduction="none")
            case "logit-adjusted":
                return losses.logit_adjusted_cross_entropy(
                    head(features), targets, self.class_counts, tau=settings.adjustment_strength, reduction="none"
                )
            case "margin":
                scale = settings.classifier_scale
                return losses.margin_cross_entropy(
                    head(features) / scale, targets, self.margins, scale=scale, reduction="none"
                )
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


#: The spread term by the name in ``settings.spread``: a function of the classifier's vectors alone.
SPREADS: dict[str, Callable[[Tensor], Tensor]] = {
    "binary": losses.bce_uniform,
    "cross-entropy": losses.ce_uniform,
    "mse": losses.mse_uniform,
}
