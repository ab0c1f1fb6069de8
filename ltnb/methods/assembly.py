"""Assemble a method from its slots: the module that the training loop sees, whichever the method."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb import losses
from ltnb.distributed import joined
from ltnb.methods.classification import SPREADS, Classification, Classifier, classifier
from ltnb.methods.contrasts import contrast
from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import MIXED_VIEWS, MOMENTUM_CONTRASTS
from ltnb.methods.stages import Stage
from ltnb.models.constraints import max_norm_
from ltnb.models.corrections import adjusted_logits, tau_normalised
from ltnb.models.encoders import encoder
from ltnb.models.heads import RescaledClassifier


class Embedding(NamedTuple):
    """What a method makes of images.

    ``features`` (N, d) is the encoder's output, on which the classifier works; ``projections`` (N, p), unit
    rows, is where the contrast works, or ``None`` for a method without one.
    """

    features: Tensor
    projections: Tensor | None


class Method(nn.Module):
    """L = λ · classification(view 1) + μ · contrast(views 2, 3, …) + ν · spread, with the slots of ``settings``.

    Every view goes through the encoder in one batch. The classification term sees the first view's features (or
    every view's), the contrast the unit projections of the others (of the first where it is the only one), the spread
    term the classifier's vectors alone. A second stage, where there is one, trains a classifier on the frozen encoder.
    """

    class_counts: Tensor
    class_weights: Tensor
    smoothing: Tensor
    weights_count: Tensor

    def __init__(
        self,
        settings: MethodSettings,
        encoder_name: str,
        in_channels: int,
        class_counts: Sequence[int],
        *,
        noise_rate: float = 0.0,
    ) -> None:
        """Make encoder and heads, drawing their weights from torch's global generator.

        Args:
            settings: the method's slots.
            encoder_name: a name of ``ltnb.models.encoders``.
            in_channels: of the images.
            class_counts: training images of each class, in class order; K of them.
            noise_rate: η, the rate of wrong labels, for a scale that depends on it.

        Raises:
            ValueError: these classes do not allow what the settings ask for; the message names the setting.
        """
        super().__init__()
        self.settings = settings
        self.encoder = encoder(
            encoder_name,
            in_channels,
            last_relu=settings.last_relu,
            feature_dim=settings.feature_dim,
            feature_norm=settings.feature_norm,
        )
        num_classes, feature_dim = len(class_counts), self.encoder.feature_dim
        settings.check_classes(class_counts, feature_dim)
        self.first_classifier = classifier(settings, feature_dim, num_classes, noise_rate)
        self.classification = Classification(settings, class_counts)
        self.contrast = contrast(settings, self.encoder, class_counts)
        self.second_classifier: nn.Linear | RescaledClassifier | None = None
        if settings.second_stage == "retrain":
            self.second_classifier = nn.Linear(feature_dim, num_classes)
        elif settings.second_stage == "rescale":
            assert isinstance(self.first_classifier, nn.Linear)
            self.second_classifier = RescaledClassifier(self.first_classifier.weight, self.first_classifier.bias)
        counts = torch.tensor(class_counts)
        self.register_buffer("class_counts", counts, persistent=False)
        weights = losses.class_balanced_weights(counts, beta=settings.class_balance)
        smoothing = losses.smoothing_factors(counts, head=settings.smoothing_head, tail=settings.smoothing_tail)
        for name, values in (("class_weights", weights), ("smoothing", smoothing)):
            self.register_buffer(name, values.to(torch.get_default_dtype()), persistent=False)
        if settings.class_weighting == "deferred":
            self.register_buffer("weights_count", torch.tensor(False))
        self.stage = 0

    def stages(self, first: Stage) -> list[Stage]:
        """Return the parts of training; ``first`` is the experiment's protocol for a whole network."""
        settings = self.settings
        first = replace(first, sampler=settings.sampler)
        if settings.learning_rate is not None:
            first = replace(first, learning_rate=settings.learning_rate)
        if settings.weight_decay is not None:
            first = replace(first, weight_decay=settings.weight_decay)
        if settings.second_stage == "none":
            return [first]
        second = Stage(
            trained="classifier",
            epochs=settings.second_stage_epochs,
            learning_rate=settings.second_stage_learning_rate,
            warmup_epochs=0,
            weight_decay=0.0,
            sampler="instance" if settings.second_stage == "rebalance" else "class-balanced",
        )
        return [first, second]

    def begin(self, stage: int) -> list[nn.Parameter]:
        """Go over to a stage, from 0, and return the parameters that it trains."""
        self.stage = stage
        self.requires_grad_(stage == 0)
        if stage > 0:
            self.classifier.requires_grad_()
            if isinstance(self.second_classifier, RescaledClassifier):
                assert isinstance(self.first_classifier, nn.Linear)
                self.second_classifier.take(self.first_classifier.weight, self.first_classifier.bias)
        else:
            if self.second_classifier is not None:
                self.second_classifier.requires_grad_(False)
            if self.contrast is not None:
                for module in self.contrast.untrained():
                    module.requires_grad_(False)
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def train(self, mode: bool = True) -> Self:
        """Set the mode; a frozen encoder stays as it is evaluated."""
        super().train(mode and self.stage == 0)
        return self

    @property
    def views(self) -> tuple[str, ...]:
        """What is drawn of every image in the current stage; a second one looks at one un-mixed view alone."""
        views = self.settings.views
        if self.stage == 0:
            return views
        return (MIXED_VIEWS.get(views[0], views[0]),)

    @property
    def classifier(self) -> Classifier:
        """The classifier of the current stage."""
        if self.stage > 0 and self.second_classifier is not None:
            return self.second_classifier
        return self.first_classifier

    def losses(self, views: Sequence[Tensor], targets: Sequence[Tensor], generator: Generator) -> dict[str, Tensor]:
        """Return the named terms of one batch and their weighted sum.

        Args:
            views: one batch of images (N, C, H, W) for each entry of ``self.views``, in the same image order; where
                several processes train, this one's share of them (``ltnb.distributed.own_rows``).
            targets: for each view class indices (N,), or soft labels (N, K) where it mixes images, of the whole batch.
            generator: of what a term draws at random, on the images' device.

        Returns:
            Scalars, of the whole batch: ``classification``; ``contrast`` and ``spread`` where the method has them; with
            a contrast of images ``valid_anchors``, the share of anchors that had a positive; and ``total``, which is
            what is minimised.
        """
        if self.stage > 0:
            return self._second_stage_losses(views[0], targets[0], generator)
        settings = self.settings
        features = self._features(views[:1] if settings.contrast in MOMENTUM_CONTRASTS else views, len(targets[0]))
        classified = len(views) if settings.classified_views == "all" else 1
        of_images = [
            self.classification(self.classifier, of_view, of_targets, generator)
            for of_view, of_targets in zip(features[:classified], targets[:classified], strict=True)
        ]
        terms = {"classification": self._mean(of_images, targets[:classified])}
        total = settings.classification_weight * terms["classification"]
        if self.contrast is not None:
            terms |= self.contrast(views, features, targets, self.classifier, generator)
            total = total + settings.contrast_weight * terms["contrast"]
        if settings.spread != "none":
            terms["spread"] = SPREADS[settings.spread](self.classifier.weight)
            total = total + settings.spread_weight * terms["spread"]
        return {**terms, "total": total}

    def _features(self, views: Sequence[Tensor], total: int) -> tuple[Tensor, ...]:
        """Return the features (N, d) of every view, those of the other processes' images included."""
        own = self.encoder(torch.cat(list(views))).split([len(view) for view in views])
        return joined(own, total)

    def _mean(self, of_images: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """Return the mean of the losses (N,) of every view, weighted by class if and when the settings say so."""
        weighting = self.settings.class_weighting
        if weighting == "none":
            return torch.cat(list(of_images)).mean()
        weights = self.class_weights
        if weighting == "deferred":
            weights = torch.where(self.weights_count, weights, 1.0)
        of_views = [
            losses.weighted_mean(of_view, of_targets, weights)
            for of_view, of_targets in zip(of_images, targets, strict=True)
        ]
        return torch.stack(of_views).mean()

    def _second_stage_losses(self, view: Tensor, targets: Tensor, generator: Generator) -> dict[str, Tensor]:
        with torch.no_grad():
            (features,) = self._features([view], len(targets))
        if self.settings.second_stage == "rebalance":
            of_images = self.classification(self.classifier, features, targets, generator)
            classification = (self.class_weights[targets] * of_images).mean()
        else:
            if self.settings.smoothing_head > 0 or self.settings.smoothing_tail > 0:
                targets = losses.smoothed_labels(targets, self.smoothing, len(self.smoothing))
            classification = F.cross_entropy(self.classifier(features), targets)
        return {"classification": classification, "total": classification}

    @torch.no_grad()
    def after_step(self) -> None:
        """Do what follows an update of the weights: memories, averages and norms keep up with it."""
        if self.stage == 0 and self.contrast is not None:
            self.contrast.after_step(self.encoder)
        if self.stage > 0 and self.settings.max_norm is not None:
            max_norm_(self.classifier.weight, self.settings.max_norm)

    @torch.no_grad()
    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Do what follows an epoch of the current stage, counted from 1 up to ``epochs``."""
        if self.stage > 0:
            return
        if self.contrast is not None:
            self.contrast.after_epoch(epoch, epochs)
        if self.settings.class_weighting == "deferred":
            self.weights_count.fill_(epoch >= self.settings.unweighted_epochs(epochs))

    def prototypes(self) -> Tensor | None:
        """Return what stands for the classes in the contrast, (K, p) unit rows, or ``None``."""
        return None if self.contrast is None else self.contrast.prototypes(self.first_classifier.weight)

    def logits(self, images: Tensor) -> Tensor:
        """Return what is evaluated: the logits (N, K), without the prior, and corrected where the settings say so."""
        features, head, settings = self.encoder(images), self.classifier, self.settings
        if settings.correction == "tau-normalised":
            return F.linear(features, tau_normalised(head.weight, exponent=settings.correction_strength))
        logits: Tensor = head(features)
        if settings.correction == "logit-adjusted":
            return adjusted_logits(logits, self.class_counts, tau=settings.correction_strength)
        return logits

    def embed(self, images: Tensor) -> Embedding:
        """Return features and, where the method has a projector, projections of ``images``."""
        features = self.encoder(images)
        return Embedding(features, None if self.contrast is None else self.contrast.projector(features))
