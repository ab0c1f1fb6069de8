"""Class prototypes: the points that stand for classes in a contrast, whether the batch holds them or not."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltnb import geometry
from ltnb.losses.labels import class_sizes
from ltnb.methods.settings import MethodSettings
from ltnb.models.heads import Projector


class Prototypes(nn.Module):
    """(K, p) unit rows, asked for once a step; the classifier's (K, d) vectors are at hand."""

    def forward(self, classifier_weight: Tensor) -> Tensor:
        """Return the prototypes."""
        raise NotImplementedError

    def update(self, z: Tensor, y: Tensor) -> None:
        """Learn from a step's unit projections (N, p) and their classes (N,); most do so by their gradient alone."""


class ClassifierPrototypes(Prototypes):
    """c_j = normalise(MLP(w_j)), w_j the raw vector of class j in the classifier: BCL's own.

    Every classifier keeps a row a class, so this is right for the linear one as well as the cosine one. Nothing
    is detached: the contrast trains the classifier's vectors too.
    """

    def __init__(self, projector: Projector) -> None:
        """Take ``projector``, a head of the same shape as the one for images, with parameters of its own."""
        super().__init__()
        self.projector = projector

    def forward(self, classifier_weight: Tensor) -> Tensor:
        """Map the classifier's (K, d) vectors to (K, p) unit rows."""
        prototypes: Tensor = self.projector(classifier_weight)
        return prototypes


class LearnablePrototypes(Prototypes):
    """c_j = v_j/‖v_j‖ with v_j parameters of their own, drawn at random directions."""

    def __init__(self, num_classes: int, dim: int) -> None:
        """Draw ``num_classes`` directions in ``dim`` dimensions."""
        super().__init__()
        self.directions = nn.Parameter(torch.randn(num_classes, dim))

    def forward(self, classifier_weight: Tensor) -> Tensor:
        """Return (K, p) unit rows."""
        return F.normalize(self.directions, dim=1)


class AveragedPrototypes(Prototypes):
    """c_j ← normalise(m c_j + (1 − m) z̄_j), z̄_j the mean projection of class j in a batch that holds it.

    Until a class is first seen its prototype is a random direction, which the first z̄_j replaces.
    """

    means: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, dim: int, momentum: float) -> None:
        """Draw the directions that stand in for classes not seen yet; m is ``momentum``."""
        super().__init__()
        self.momentum = momentum
        self.register_buffer("means", F.normalize(torch.randn(num_classes, dim), dim=1))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))

    def forward(self, classifier_weight: Tensor) -> Tensor:
        """Return (K, p) unit rows, without gradient; a copy, since `update` comes before the next forward."""
        return self.means.clone()

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor) -> None:
        """Move the prototypes of the classes in ``y`` (N,) towards their unit rows in ``z`` (N, p)."""
        sums = torch.zeros_like(self.means).index_add(0, y, z.to(self.means.dtype))
        counts = class_sizes(y, len(self.means))
        present = (counts > 0)[:, None]
        batch_means = sums / counts.clamp(min=1)[:, None]
        momentum = torch.where(self.seen, self.momentum, 0.0)[:, None]
        moved = F.normalize(momentum * self.means + (1 - momentum) * batch_means, dim=1)
        self.means.copy_(torch.where(present, moved, self.means))
        self.seen |= counts > 0


class AnchoredPrototypes(Prototypes):
    """The corners of a regular simplex, fixed: PAL's anchors in the place of BCL's prototypes."""

    anchors: Tensor

    def __init__(self, num_classes: int, dim: int) -> None:
        """Place ``num_classes`` anchors in ``dim`` dimensions, turned at random.

        Raises:
            ValueError: there is no regular simplex of so many classes in ``dim`` dimensions.
        """
        super().__init__()
        turned = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        anchors = geometry.regular_simplex(num_classes, dim, generator=turned)
        self.register_buffer("anchors", anchors.to(torch.get_default_dtype()))

    def forward(self, classifier_weight: Tensor) -> Tensor:
        """Return (K, p) unit rows, without gradient."""
        return self.anchors


def prototypes(settings: MethodSettings, num_classes: int, projector: Callable[[], Projector]) -> Prototypes:
    """Make the prototypes that ``settings.prototypes`` names.

    Args:
        settings: the method's slots.
        num_classes: K.
        projector: makes a head of the projector's shape.
    """
    match settings.prototypes:
        case "classifier":
            return ClassifierPrototypes(projector())
        case "learnable":
            return LearnablePrototypes(num_classes, settings.projection_dim)
        case "ema":
            return AveragedPrototypes(num_classes, settings.projection_dim, settings.prototype_momentum)
        case "anchored":
            return AnchoredPrototypes(num_classes, settings.projection_dim)


class ClassMemory(nn.Module):
    """One projection a class, that of its last image, as BCE3S compares with.

    A class that has had no image yet is not `seen`: it is neither positive nor negative until then.
    """

    projections: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, dim: int) -> None:
        """Make an empty memory of ``num_classes`` rows."""
        super().__init__()
        self.register_buffer("projections", torch.zeros(num_classes, dim))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor) -> None:
        """Remember the last row of ``z`` (N, p) of each class in ``y`` (N,)."""
        last = torch.full((len(self.seen),), -1, device=y.device)
        # amax, since which of several writes to one place wins is not defined on an accelerator.
        last = last.scatter_reduce(0, y, torch.arange(len(y), device=y.device), "amax")
        present = last >= 0
        newest = z[last.clamp(min=0)].to(self.projections.dtype)
        self.projections.copy_(torch.where(present[:, None], newest, self.projections))
        self.seen |= present
