"""Synthesis: features that no image has, so that small classes weigh as much as large ones in a contrast."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from ltnb import geometry
from ltnb.losses.labels import class_sizes
from ltnb.methods.settings import MethodSettings


def lacking(y: Tensor, num_classes: int) -> Tensor:
    """Return (K,) how many more samples each class needs to be as large as the largest class of ``y``."""
    counts = class_sizes(y, num_classes)
    return counts.max() - counts


class Synthesis(nn.Module):
    """Further rows and their classes for every batch of projections."""

    def forward(self, z: Tensor, y: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return (M, p) unit rows and their classes (M,), to go with projections ``z`` (N, p) of classes ``y`` (N,)."""
        raise NotImplementedError

    def collect(self, z: Tensor, y: Tensor) -> None:
        """Learn from one batch of real projections, each image once."""

    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Learn from the epoch, the ``epoch``-th of ``epochs``, whose batches were collected."""


class UpSampling(Synthesis):
    """Repeat the batch's own projections, drawn with replacement, until all its classes are as large as the largest.

    A class without an image in the batch has nothing to repeat. The repeated rows pass the gradient on.
    """

    def __init__(self, num_classes: int) -> None:
        """Take the number of classes."""
        super().__init__()
        self.num_classes = num_classes

    def forward(self, z: Tensor, y: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return (M, p) repeated rows of ``z`` and their classes (M,)."""
        in_batch = class_sizes(y, self.num_classes)
        wanted = torch.where(in_batch > 0, lacking(y, self.num_classes), 0)
        classes = torch.repeat_interleave(torch.arange(self.num_classes, device=y.device), wanted)
        sizes = in_batch[classes]
        position = (torch.rand(len(classes), generator=generator, device=y.device) * sizes).long().clamp(max=sizes - 1)
        by_class = torch.argsort(y, stable=True)
        first = in_batch.cumsum(0) - in_batch
        chosen = by_class[first[classes] + position]
        return z[chosen], classes


class SupportSynthesis(Synthesis):
    """FeatRecon: draw features inside each class's rectified confidence support.

    1. *Support* (Eq. 7): the mean direction μ̂_k of the class's projections, and the α-quantile θ̂_k of their angles
       to it. Estimated from real features alone, those that the last epoch computed anyway (of one view, so that
       every image counts once).
    2. *Rectified* (Eqs. 8-9): mixed with the supports of the q nearest heads, weight 1 − γ.
    3. *Capped* (Eq. 10): θ̄_k = min(θ̂′_k, ½ arccos(−1/(K−1))).
    4. *Features*: from a normal law of the angle truncated to the cap, with a random tangent direction, or uniform in
       the cap. They carry no gradient to the encoder.

    How many, from which epoch on and how often supports are estimated again the paper leaves open.
    """

    centres: Tensor
    radii: Tensor
    angle_means: Tensor
    angle_stds: Tensor
    estimated: Tensor
    heads: Tensor
    class_counts: Tensor

    def __init__(self, settings: MethodSettings, class_counts: Sequence[int]) -> None:
        """Prepare for classes of these sizes."""
        super().__init__()
        self.settings = settings
        counts = torch.tensor(class_counts)
        num_classes = len(counts)
        heads = (counts > settings.head_above).nonzero().squeeze(1)
        self.register_buffer("class_counts", counts, persistent=False)
        self.register_buffer("heads", heads, persistent=False)
        self.register_buffer("centres", torch.zeros(num_classes, settings.projection_dim))
        for name in ("radii", "angle_means", "angle_stds"):
            self.register_buffer(name, torch.zeros(num_classes))
        self.register_buffer("estimated", torch.tensor(False))
        self.has_supports: bool | None = None  # of a loaded state only the device knows
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda synthesis, _: setattr(synthesis, "has_supports", None)
        )
        self.epoch: list[tuple[Tensor, Tensor]] = []

    def forward(self, z: Tensor, y: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return (M, p) synthetic unit rows and their classes (M,); none before supports are estimated."""
        if self.has_supports is None:
            self.has_supports = bool(self.estimated)
        if not self.has_supports:
            return z[:0].detach(), y[:0]
        num_classes = len(self.class_counts)
        amount = self.settings.synthetic_features
        wanted = lacking(y, num_classes) if amount == "equalise" else torch.full_like(self.class_counts, amount)
        wanted = torch.where(self.centres.any(dim=1), wanted, 0)  # none of a class without a support
        classes = torch.repeat_interleave(torch.arange(num_classes, device=y.device), wanted)
        if self.settings.support_law == "uniform":
            drawn = geometry.uniform_in_cap(self.centres[classes], self.radii[classes], generator)
        else:
            drawn = geometry.truncated_normal_in_cap(
                self.centres[classes],
                self.radii[classes],
                self.angle_means[classes],
                self.angle_stds[classes],
                generator,
            )
        return drawn.to(z.dtype), classes

    def collect(self, z: Tensor, y: Tensor) -> None:
        """Keep the projections (N, p) of one batch and their classes until the epoch's end."""
        self.epoch.append((z.detach(), y))

    @torch.no_grad()
    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Estimate the supports that the next epoch draws from, if it is to have any."""
        first = self.settings.first_synthetic_epoch(epochs)
        due = first <= epoch + 1 <= epochs
        if due and (not self.estimated or (epoch + 1 - first) % self.settings.support_refresh == 0):
            z, y = (torch.cat(parts) for parts in zip(*self.epoch, strict=True))
            supports = rectified_and_capped(self._supports(z, y), self.settings, self.class_counts, self.heads)
            for name, value in supports._asdict().items():
                getattr(self, name).copy_(value)
            self.estimated.fill_(True)
            self.has_supports = True
        self.epoch = []

    def _supports(self, z: Tensor, y: Tensor) -> geometry.Supports:
        """Estimate every class's support; a class whose labels noise has all taken away has none, so zeros."""
        num_classes = len(self.class_counts)
        seen = torch.bincount(y, minlength=num_classes).nonzero().squeeze(1)
        number = torch.zeros_like(self.class_counts).index_copy(0, seen, torch.arange(len(seen), device=y.device))
        found = geometry.confidence_supports(z, number[y], len(seen), quantile=self.settings.support_quantile)
        return geometry.Supports(
            *(part.new_zeros(num_classes, *part.shape[1:]).index_copy(0, seen, part) for part in found)
        )


def rectified_and_capped(
    supports: geometry.Supports, settings: MethodSettings, class_counts: Tensor, heads: Tensor
) -> geometry.Supports:
    """Mix supports with those of the nearest heads and cut them to the largest common radius, as ``settings`` say."""
    if settings.head_mix < 1:  # else no class borrows, and there need not be any head
        supports = geometry.rectified_supports(
            supports,
            class_counts,
            heads,
            nearest=settings.nearest_heads,
            mix=settings.head_mix,
            weights=settings.head_weights,
        )
    return geometry.capped(supports) if settings.support_cap else supports
