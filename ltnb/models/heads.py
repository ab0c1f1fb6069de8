"""What sits on an encoder: classifiers and the projector onto the unit sphere."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
