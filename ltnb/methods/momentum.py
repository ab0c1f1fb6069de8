"""Contrasts with a momentum encoder: queries against its keys of the same images, and a queue of earlier ones."""

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from ltnb import geometry, losses
from ltnb.distributed import joined
from ltnb.methods.classification import Classifier
from ltnb.methods.contrast import Contrast
from ltnb.methods.prototypes import AveragedPrototypes
from ltnb.methods.settings import MethodSettings
from ltnb.models.encoders import Encoder


class Comparison(NamedTuple):
    """Queries and the keys that they are compared with, the queries' own other views first; all are unit rows."""

    z: Tensor  #: (N, p) queries
    y: Tensor  #: (N,) their classes
    keys: Tensor  #: (M, p)
    key_labels: Tensor  #: (M,) their classes


class MomentumContrast(Contrast):
    """The first view's projections are queries, the second view's come from the momentum encoder and are keys (MoCo).

    The momentum encoder and its projector start as copies of the trained ones and follow them after every step,
    θ′ ← m θ′ + (1 − m) θ; their batch normalisation sees the keys' batches. The queue holds the last keys with their
    classes, newest first; until it is full the rest of it is no key. All of it is in the state, so that a resumed run
    goes on with the same keys.
    """

    queue: Tensor
    queue_labels: Tensor

    def __init__(self, settings: MethodSettings, encoder: Encoder) -> None:
        """Copy ``encoder`` and the projector, and start with an empty queue."""
        super().__init__(settings, encoder.feature_dim)
        self.key_encoder = copy.deepcopy(encoder)
        self.key_projector = copy.deepcopy(self.projector)
        self.register_buffer("queue", torch.zeros(settings.queue_size, settings.projection_dim))
        self.register_buffer("queue_labels", torch.full((settings.queue_size,), -1))
        self.filled: int | None = None  # keys in the queue; of a loaded one only the device knows
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda contrast, _: setattr(contrast, "filled", None)
        )
        self.step: tuple[Tensor, Tensor] | None = None

    def untrained(self) -> tuple[nn.Module, ...]:
        """Return the modules that no gradient reaches."""
        return (self.key_encoder, self.key_projector)

    def forward(
        self,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        targets: Sequence[Tensor],
        classifier: Classifier,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return ``contrast`` of the first view's queries."""
        z: Tensor = self.projector(features[0])
        y = targets[0]
        with torch.no_grad():
            (key_features,) = joined([self.key_encoder(images[1])], len(y))
            own_keys = self.key_projector(key_features)
            self.step = (own_keys, y)
            filled = self._filled()
            keys = torch.cat([own_keys, self.queue[:filled]])
            key_labels = torch.cat([y, self.queue_labels[:filled]])
        return {"contrast": self.loss(Comparison(z, y, keys, key_labels), features[0], classifier, generator)}

    def loss(self, compared: Comparison, features: Tensor, classifier: Classifier, generator: Generator) -> Tensor:
        """Return the mean loss of the queries.

        Args:
            compared: queries and keys.
            features: (N, d) of the queries.
            classifier: that of the features.
            generator: of what is drawn.
        """
        raise NotImplementedError

    def after_step(self, encoder: nn.Module) -> None:
        """Put the step's keys into the queue, and let the momentum encoder follow ``encoder``."""
        if self.step is None:
            return
        keys, key_labels = self.step
        size = len(self.queue)
        self.filled = min(self._filled() + len(keys), size)
        self.queue.copy_(torch.cat([keys.to(self.queue.dtype), self.queue])[:size])
        self.queue_labels.copy_(torch.cat([key_labels, self.queue_labels])[:size])
        self.step = None
        for follower, leader in zip(self.untrained(), (encoder, self.projector), strict=True):
            torch._foreach_lerp_(list(follower.parameters()), list(leader.parameters()), 1 - self.settings.key_momentum)

    def _filled(self) -> int:
        if self.filled is None:
            self.filled = int((self.queue_labels >= 0).sum())
        return self.filled


class KPositiveContrast(MomentumContrast):
    """KCL: a query's own key and k drawn keys of its class are its positives, whatever the class's size."""

    def loss(self, compared: Comparison, features: Tensor, classifier: Classifier, generator: Generator) -> Tensor:
        """Return ``ltnb.losses.k_positive_contrastive``."""
        return losses.k_positive_contrastive(
            *compared, self.positives(compared, generator), temperature=self.settings.temperature
        )

    def positives(self, compared: Comparison, generator: Generator) -> Tensor:
        """Return the keys drawn for each query, as ``ltnb.losses.draw_positives``."""
        return losses.draw_positives(
            compared.y, compared.key_labels, number=self.settings.num_positives, generator=generator
        )


class TargetedContrast(KPositiveContrast):
    """TSC: KCL, and every query is drawn to the target of its class, one of K points spread evenly on the sphere.

    Which target is whose is decided anew after every epoch, so that the classes' centres have the least way to go; the
    centres are running means of the keys.
    """

    targets: Tensor
    assignment: Tensor

    def __init__(self, settings: MethodSettings, encoder: Encoder, num_classes: int) -> None:
        """Place the targets, turned at random, and give them to the classes in their order."""
        super().__init__(settings, encoder)
        turned = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        targets = geometry.uniform_targets(num_classes, settings.projection_dim, generator=turned)
        self.register_buffer("targets", targets.to(torch.get_default_dtype()))
        self.register_buffer("assignment", torch.arange(num_classes))
        self.centres = AveragedPrototypes(num_classes, settings.projection_dim, settings.prototype_momentum)

    def loss(self, compared: Comparison, features: Tensor, classifier: Classifier, generator: Generator) -> Tensor:
        """Return ``ltnb.losses.targeted_contrastive``."""
        return losses.targeted_contrastive(
            *compared,
            self.positives(compared, generator),
            self.targets,
            self.assignment,
            weight=self.settings.target_weight,
            temperature=self.settings.temperature,
        )

    def prototypes(self, classifier_weight: Tensor) -> Tensor:
        """Return the targets (K, p) of the classes, in their order."""
        return self.targets[self.assignment]

    def after_step(self, encoder: nn.Module) -> None:
        """Let the centres follow the step's keys, too."""
        if self.step is not None:
            self.centres.update(*self.step)
        super().after_step(encoder)

    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Give each class the target that is near its centre."""
        self.assignment.copy_(geometry.assign_targets(self.centres.means, self.targets))


class ParametricContrast(MomentumContrast):
    """PaCo: the classifier's scores, corrected for the class sizes, stand beside the keys in one softmax."""

    class_counts: Tensor

    def __init__(self, settings: MethodSettings, encoder: Encoder, class_counts: Sequence[int]) -> None:
        """Prepare for classes of these sizes."""
        super().__init__(settings, encoder)
        self.register_buffer("class_counts", torch.tensor(class_counts), persistent=False)

    def loss(self, compared: Comparison, features: Tensor, classifier: Classifier, generator: Generator) -> Tensor:
        """Return ``ltnb.losses.parametric_contrastive``."""
        settings = self.settings
        return losses.parametric_contrastive(
            *compared,
            classifier(features),
            self.class_counts,
            sample_weight=settings.sample_weight,
            temperature=settings.temperature,
        )
