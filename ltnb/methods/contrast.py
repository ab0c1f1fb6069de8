"""The contrast term: images against each other, or against one remembered projection a class.

`ltnb.methods.momentum` and `ltnb.methods.moments` have those that remember more, `ltnb.methods.contrasts` makes any.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from ltnb import losses
from ltnb.methods.classification import Classifier
from ltnb.methods.prototypes import ClassMemory, Prototypes, prototypes
from ltnb.methods.settings import MethodSettings
from ltnb.methods.synthesis import SupportSynthesis, Synthesis, UpSampling
from ltnb.models.heads import Projector


class Contrast(nn.Module):
    """A loss on unit projections. `forward` gives the terms of a step, `after_step` learns from the same step."""

    def __init__(self, settings: MethodSettings, feature_dim: int) -> None:
        """Make the projector; a subclass adds what it contrasts with."""
        super().__init__()
        self.settings = settings
        self.feature_dim = feature_dim
        self.projector = self.new_projector()

    def new_projector(self) -> Projector:
        """Return a head of the projector's shape with parameters of its own."""
        settings = self.settings
        return Projector(
            self.feature_dim, settings.projection_hidden, settings.projection_dim, batch_norm=settings.projection_norm
        )

    def forward(
        self,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        targets: Sequence[Tensor],
        classifier: Classifier,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return ``contrast``, a scalar, and what else is worth watching.

        Args:
            images: of every view of the method, in the order of its views, (n, C, H, W): this process's share.
            features: (N, d) of every view of the whole batch, or of the first alone where a momentum encoder sees the
                other.
            targets: of every view of the whole batch, class indices (N,) or soft labels (N, K).
            classifier: that of the features, whose ``weight`` is (K, d).
            generator: of what is drawn at random, on the features' device.
        """
        raise NotImplementedError

    def untrained(self) -> tuple[nn.Module, ...]:
        """Return the modules that no gradient reaches."""
        return ()

    def prototypes(self, classifier_weight: Tensor) -> Tensor | None:
        """Return what stands for the classes, (K, p), or ``None``."""
        return None

    def after_step(self, encoder: nn.Module) -> None:
        """Learn from the step that `forward` saw, and from the encoder after it."""

    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Learn from the epoch, counted from 1 up to ``epochs``."""


class PairedContrast(Contrast):
    """Supervised or balanced contrastive loss of all contrasted views, stacked; synthetic features join them."""

    class_temperatures: Tensor

    def __init__(self, settings: MethodSettings, feature_dim: int, class_counts: Sequence[int]) -> None:
        """Prepare for classes of these sizes."""
        super().__init__(settings, feature_dim)
        num_classes = len(class_counts)
        self.class_prototypes: Prototypes | None = None
        if settings.contrast == "balanced" and settings.complement:
            self.class_prototypes = prototypes(settings, num_classes, self.new_projector)
        self.synthesis: Synthesis | None = None
        if settings.synthesis != "none":
            self.synthesis = (
                UpSampling(num_classes)
                if settings.synthesis == "up-sampling"
                else SupportSynthesis(settings, class_counts)
            )
        highest = settings.head_temperature if settings.has_effect("head_temperature") else None
        temperatures = losses.class_temperatures(
            torch.tensor(class_counts), lowest=settings.temperature, highest=highest or settings.temperature
        )
        self.register_buffer("class_temperatures", temperatures.to(torch.get_default_dtype()), persistent=False)
        self.step: tuple[Tensor, Tensor] | None = None

    def forward(
        self,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        targets: Sequence[Tensor],
        classifier: Classifier,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return ``contrast`` and ``valid_anchors``, the share of real anchors that had a positive, real or not."""
        contrasted = list(features[1:] or features)
        real = self.projector(torch.cat(contrasted))
        real_classes = torch.cat(list(targets[1:] or targets))
        self.step = (real.detach(), real_classes)
        z, y, keys, key_classes, classes = real, real_classes, None, None, None
        if self.synthesis is not None:
            self.synthesis.collect(real[: len(contrasted[0])], real_classes[: len(contrasted[0])])
            synthetic, classes = self.synthesis(real, real_classes, generator)
            if self.settings.synthetic_anchors:
                z, y = torch.cat([z, synthetic]), torch.cat([y, classes])
            elif len(synthetic) > 0:  # none before supports are estimated
                keys, key_classes = synthetic, classes
        stand_ins = self.prototypes(classifier.weight)
        if self.settings.contrast == "supervised":
            temperature = self.settings.temperature
            contrast = losses.supervised_contrastive(
                z,
                y,
                temperature=temperature if self.settings.head_temperature is None else self.class_temperatures[y],
                keys=keys,
                key_labels=key_classes,
            )
        else:
            contrast = losses.balanced_contrastive(
                z,
                y,
                stand_ins,
                temperature=self.settings.temperature,
                averaging=self.settings.averaging,
                anchor_weighting=self.settings.anchor_weighting,
            )
        valid = losses.valid_anchors(real_classes, prototypes=stand_ins is not None, key_labels=classes)
        return {"contrast": contrast, "valid_anchors": valid.float().mean()}

    def prototypes(self, classifier_weight: Tensor) -> Tensor | None:
        """Return the class prototypes of class-complement, unit rows."""
        if self.class_prototypes is None:
            return None
        stand_ins: Tensor = self.class_prototypes(classifier_weight)
        return stand_ins

    def after_step(self, encoder: nn.Module) -> None:
        """Let averaged prototypes follow the step's projections."""
        if self.class_prototypes is not None and self.step is not None:
            self.class_prototypes.update(*self.step)
        self.step = None

    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Estimate the supports again."""
        if self.synthesis is not None:
            self.synthesis.after_epoch(epoch, epochs)


class MemoryContrast(Contrast):
    """BCE3S: every contrasted projection against one remembered projection a class, by BCE, CE or squared error.

    The memory holds the class's last un-mixed image, as it was projected in training.
    """

    def __init__(self, settings: MethodSettings, feature_dim: int, num_classes: int) -> None:
        """Start with an empty memory."""
        super().__init__(settings, feature_dim)
        self.memory = ClassMemory(num_classes, settings.projection_dim)
        self.step: tuple[Tensor, Tensor] | None = None

    def forward(
        self,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        targets: Sequence[Tensor],
        classifier: Classifier,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return ``contrast``, the mean over the contrasted views."""
        projections = self.projector(torch.cat(list(features))).split([len(view) for view in features])
        plain = [i for i, of_view in enumerate(targets) if not of_view.is_floating_point()]
        self.step = (
            torch.cat([projections[i].detach() for i in plain]),
            torch.cat([targets[i] for i in plain]),
        )
        memory, seen = self.memory.projections.clone(), self.memory.seen.clone()
        terms = [
            self._loss(z, y, memory, seen)
            for z, y in zip(projections[1:] or projections, targets[1:] or targets, strict=True)
        ]
        return {"contrast": torch.stack(terms).mean()}

    def _loss(self, z: Tensor, y: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
        match self.settings.contrast:
            case "binary":
                return losses.bce_contrastive(z, y, memory, temperature=self.settings.temperature, seen=seen)
            case "cross-entropy":
                return losses.ce_contrastive(z, y, memory, temperature=self.settings.temperature, seen=seen)
            case _:
                return losses.mse_contrastive(z, y, memory, seen=seen)

    def after_step(self, encoder: nn.Module) -> None:
        """Remember the step's last image of each class."""
        if self.step is not None:
            self.memory.update(*self.step)
        self.step = None


class DecoupledContrast(Contrast):
    """DSCL: supervised contrast in which an image's own other view has a share of its own among the positives."""

    def forward(
        self,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        targets: Sequence[Tensor],
        classifier: Classifier,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return ``contrast`` of the two contrasted views, stacked."""
        settings = self.settings
        z, y = self.projector(torch.cat(list(features[1:]))), torch.cat(list(targets[1:]))
        return {
            "contrast": losses.decoupled_contrastive(
                z, y, temperature=settings.temperature, own_weight=settings.own_weight
            )
        }
