"""The contrast that knows its classes by their moments: ProCo."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb import losses
from ltnb.methods.classification import Classifier
from ltnb.methods.contrast import Contrast
from ltnb.methods.settings import MethodSettings


class ProbabilisticContrast(Contrast):
    """ProCo: projections against the expected similarity to a von Mises-Fisher law of each class.

    The law follows from the class's mean projection. As in the released code two running means are kept: the one in
    use, which began with the last epoch and goes on with this one's batches, the present one included; and the one of
    this epoch alone, which takes its place at the epoch's end, since older projections are of another network.
    """

    class_counts: Tensor
    means: Tensor
    sizes: Tensor
    next_means: Tensor
    next_sizes: Tensor

    def __init__(self, settings: MethodSettings, feature_dim: int, class_counts: Sequence[int]) -> None:
        """Start without any projection."""
        super().__init__(settings, feature_dim)
        self.register_buffer("class_counts", torch.tensor(class_counts), persistent=False)
        for name in ("means", "next_means"):
            self.register_buffer(name, torch.zeros(len(class_counts), settings.projection_dim, dtype=torch.float64))
        for name in ("sizes", "next_sizes"):
            self.register_buffer(name, torch.zeros(len(class_counts), dtype=torch.float64))
        self.step: tuple[Tensor, ...] | None = None  # projections, classes, and the means and sizes with them

    def forward(
        self,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        targets: Sequence[Tensor],
        classifier: Classifier,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Return ``contrast`` of the contrasted views, stacked."""
        z: Tensor = self.projector(torch.cat(list(features[1:] or features)))
        y = torch.cat(list(targets[1:] or targets))
        means, sizes = losses.running_class_means(self.means, self.sizes, z.detach(), y)
        self.step = (z.detach(), y, means, sizes)
        return {
            "contrast": losses.probabilistic_contrastive(
                z,
                y,
                losses.vmf_naturals(means),
                self.class_counts,
                temperature=self.settings.temperature,
                seen=sizes > 0,
            )
        }

    def prototypes(self, classifier_weight: Tensor) -> Tensor:
        """Return the mean directions (K, p); zeros for a class without a projection so far."""
        return F.normalize(self.means, dim=1).to(torch.get_default_dtype())

    def after_step(self, encoder: nn.Module) -> None:
        """Take the step's projections into both means."""
        if self.step is None:
            return
        z, y, means, sizes = self.step
        self.means.copy_(means)
        self.sizes.copy_(sizes)
        next_means, next_sizes = losses.running_class_means(self.next_means, self.next_sizes, z, y)
        self.next_means.copy_(next_means)
        self.next_sizes.copy_(next_sizes)
        self.step = None

    def after_epoch(self, epoch: int, epochs: int) -> None:
        """Forget what is older than this epoch; a class that it did not show keeps what it had."""
        shown = self.next_sizes > 0
        self.means.copy_(torch.where(shown[:, None], self.next_means, self.means))
        self.sizes.copy_(torch.where(shown, self.next_sizes, self.sizes))
        self.next_means.zero_()
        self.next_sizes.zero_()
