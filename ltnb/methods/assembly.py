"""Assemble a method from its slots: the module that the training loop sees, whichever the method."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltnb import losses
from ltnb.methods.settings import MethodSettings
from ltnb.models.encoders import ResNet
from ltnb.models.heads import CosineClassifier, Projector


class Embedding(NamedTuple):
    """What a method makes of images.

    ``features`` (N, d) is the encoder's output, on which the classifier works; ``projections`` (N, p), unit
    rows, is where the contrast works, or ``None`` for a method without one.
    """

    features: Tensor
    projections: Tensor | None


class Method(nn.Module):
    """L = λ · classification(view 1) + μ · contrast(views 2, 3, …), with the slots that ``settings`` names.

    Every view goes through the encoder in one batch. The classification term sees the first view's logits,
    the contrast sees the unit projections of all other views, stacked, and (class-complement) a prototype
    of every class, made from the classifier's weights by a second projector.
    """

    class_counts: Tensor

    def __init__(self, settings: MethodSettings, encoder: ResNet, class_counts: Sequence[int]) -> None:
        """Make the heads that ``settings`` asks for on ``encoder``.

        Args:
            settings: the method's slots.
            encoder: maps images (N, C, H, W) to features (N, ``encoder.feature_dim``).
            class_counts: training images of each class, in class order; K of them.
        """
        super().__init__()
        self.settings = settings
        self.views = settings.views
        self.register_buffer("class_counts", torch.tensor(class_counts), persistent=False)
        num_classes, feature_dim = len(class_counts), encoder.feature_dim
        self.encoder = encoder
        self.classifier: nn.Linear | CosineClassifier = (
            CosineClassifier(feature_dim, num_classes, settings.classifier_scale)
            if settings.classifier == "cosine"
            else nn.Linear(feature_dim, num_classes)
        )
        head_shape = (feature_dim, settings.projection_hidden, settings.projection_dim)
        self.projector = Projector(*head_shape) if settings.contrast != "none" else None
        has_prototypes = settings.contrast == "balanced" and settings.complement
        self.prototype_projector = Projector(*head_shape) if has_prototypes else None

    def losses(self, views: Sequence[Tensor], targets: Tensor) -> dict[str, Tensor]:
        """Return the named terms of one batch and their weighted sum.

        Args:
            views: one batch of images (N, C, H, W) for each entry of ``self.views``, in the same image order.
            targets: class indices (N,).

        Returns:
            Scalars: ``classification``; with a contrast also ``contrast`` and ``valid_anchors``, the share of
            anchors that had a positive; and ``total``, which is what is minimised.
        """
        features = self.encoder(torch.cat(list(views)))
        classified, contrasted = features.split([len(targets), len(features) - len(targets)])
        classification = self._classification(self.classifier(classified), targets)
        total = self.settings.classification_weight * classification
        if self.projector is None:
            return {"classification": classification, "total": total}
        anchors = targets.repeat(len(views) - 1)
        prototypes = self.prototypes()
        contrast = self._contrast(self.projector(contrasted), anchors, prototypes)
        valid = losses.valid_anchors(anchors, prototypes=prototypes is not None)
        return {
            "classification": classification,
            "contrast": contrast,
            "valid_anchors": valid.float().mean(),
            "total": total + self.settings.contrast_weight * contrast,
        }

    def _classification(self, logits: Tensor, targets: Tensor) -> Tensor:
        match self.settings.classification:
            case "cross-entropy":
                return F.cross_entropy(logits, targets)
            case "logit-adjusted":
                return losses.logit_adjusted_cross_entropy(
                    logits, targets, self.class_counts, tau=self.settings.adjustment_strength
                )

    def _contrast(self, z: Tensor, y: Tensor, prototypes: Tensor | None) -> Tensor:
        if self.settings.contrast == "supervised":
            return losses.supervised_contrastive(z, y, temperature=self.settings.temperature)
        return losses.balanced_contrastive(
            z,
            y,
            prototypes,
            temperature=self.settings.temperature,
            averaging=self.settings.averaging,
            anchor_weighting=self.settings.anchor_weighting,
        )

    def prototypes(self) -> Tensor | None:
        """Return c_j = normalise(MLP(w_j)), (K, p) unit rows, or ``None`` without class-complement.

        Both classifiers keep a row a class, so this is right for the linear one as well as the cosine one.
        """
        if self.prototype_projector is None:
            return None
        prototypes: Tensor = self.prototype_projector(self.classifier.weight)
        return prototypes

    def logits(self, images: Tensor) -> Tensor:
        """Return what is evaluated: the raw logits (N, K), without the prior."""
        logits: Tensor = self.classifier(self.encoder(images))
        return logits

    def embed(self, images: Tensor) -> Embedding:
        """Return features and, where the method has a projector, projections of ``images``."""
        features = self.encoder(images)
        return Embedding(features, None if self.projector is None else self.projector(features))
