"""What sits on an encoder: classifiers and the projector onto the unit sphere."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltnb.geometry import PrototypeForm, anchored_prototypes


class CosineClassifier(nn.Module):
    """f_k(x) = s · cos(w_k, x): a classifier that sees directions only, so class size cannot show in ‖w_k‖.

    ``weight`` is (K, d), a row a class, as in ``torch.nn.Linear``; there is no bias. The scale ``s`` is the
    inverse temperature of the softmax (BCL uses 30).
    """

    def __init__(self, feature_dim: int, num_classes: int, scale: float) -> None:
        """Make a classifier of ``num_classes`` directions in ``feature_dim`` dimensions."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, feature_dim))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.scale = scale

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, d) to logits (N, K) in [−s, s]."""
        return self.scale * F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


class NormalisedClassifier(nn.Module):
    """f_k(x) = w̄_k · x + b_k,  w̄_k = w_k/‖w_k‖: the classifier of BCE3S.

    Classifier vectors count by direction alone; features keep their length, which is then what makes a logit large,
    and there is no scale. ``weight`` (K, d) and ``bias`` (K,) hold a row and a number a class, as in
    ``torch.nn.Linear``. BCE3S's code draws the weights from N(0, 1/d) (Kaiming's with gain 1), as is done here; their
    length does not show in the logits, but the longer a row, the less a step of SGD turns it. How the paper starts
    the bias we do not know: 0 here, as good as any value for a softmax; under a sigmoid it is every class at even
    odds.
    """

    def __init__(self, feature_dim: int, num_classes: int) -> None:
        """Make a classifier of ``num_classes`` directions in ``feature_dim`` dimensions."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, feature_dim))
        nn.init.kaiming_normal_(self.weight, nonlinearity="linear")
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, d) to logits (N, K)."""
        return F.linear(features, F.normalize(self.weight, dim=1), self.bias)


class AnchoredClassifier(nn.Module):
    """f_k(x) = s w_k · x, or s w_k · x/‖x‖, with prototypes w_k that are never trained: PAL and FNPAL."""

    weight: Tensor

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        scale: float,
        normalise_features: bool,
        form: PrototypeForm = "automatic",
        generator: torch.Generator | None = None,
    ) -> None:
        """Place ``num_classes`` prototypes in ``feature_dim`` dimensions."""
        super().__init__()
        generator = torch.default_generator if generator is None else generator
        prototypes = anchored_prototypes(num_classes, feature_dim, form=form, generator=generator)
        self.register_buffer("weight", prototypes.to(torch.get_default_dtype()))
        self.scale = scale
        self.normalise_features = normalise_features

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, d) to logits (N, K), in [−s, s] where the features are normalised."""
        if self.normalise_features:
            features = F.normalize(features, dim=1)
        return self.scale * F.linear(features, self.weight)


class Projector(nn.Module):
    """z = normalise(W₂ relu(BN(W₁ x))): the head whose unit outputs the contrastive losses compare.

    BCL uses one for the embeddings of images and a second one of the same shape, with its own parameters,
    for the prototypes c_j = normalise(MLP(w_j)) of the classifier's weights.
    """

    def __init__(self, feature_dim: int, hidden_dim: int, projection_dim: int) -> None:
        """Make a head of shape ``feature_dim`` → ``hidden_dim`` → ``projection_dim``."""
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(feature_dim, hidden_dim),
            nn.BatchNorm1d(hidden_dim),
            nn.ReLU(inplace=True),
            nn.Linear(hidden_dim, projection_dim),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, feature_dim) to unit rows (N, projection_dim)."""
        return F.normalize(self.mlp(x), dim=1)
