"""What sits on an encoder: classifiers and the projector onto the unit sphere."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ltnb.geometry import PrototypeForm, anchored_prototypes, rotated


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

    Classifier vectors count by direction alone; features keep their length, which is then what makes logits large,
    and there is no scale. ``weight`` (K, d) and ``bias`` (K,) hold a row and a number a class, as in
    ``torch.nn.Linear``, and both are trained.

    As in the paper's code, weights start at N(0, 1/d) (Kaiming's normal initialisation with gain 1). Their length
    does not show in the logits, but the longer a row, the less a step of SGD turns it. What the bias starts from we
    do not know; it is 0 here.
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
    """f_k(x) = s w_k · x, or s w_k · x/‖x‖: a classifier whose prototypes w_k are fixed before training.

    The first is PAL (Zhou et al., ICML 2022), with s = 1; the second, which sees directions only, is FNPAL. Its
    control FNPN, normalised but trained, is `CosineClassifier`. ``weight`` (K, d) holds unit rows, one a class, from
    ``ltnb.geometry.anchored_prototypes``. It is a buffer: no gradient, no weight decay, and saved in the state, so
    that a resumed run has the same anchors.

    Features after a ReLU cannot reach such prototypes, about half of whose coordinates are negative: the largest
    min-margin is √(K/(K−1)) for the best placed simplex (``ltnb.theory.anchored_prototypes``), and about 0.6 for
    random ones of 10 classes in 64 dimensions, where K/(K−1) is 1.11. An encoder with ``last_relu=False`` or a last
    linear layer can reach them. This is also why the orientation is random here: with a simplex along the axes, as
    without a generator in ``ltnb.geometry``, the last prototype is −e_{K−1}. Prototypes add up to 0, so for z ≥ 0 the
    others' Σ_k w_k · z is z_{K−1} ≥ 0, one of them scores at least 0, and the last class at most 0: its margin could
    never be positive.
    """

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
        """Place ``num_classes`` prototypes in ``feature_dim`` dimensions.

        Args:
            feature_dim: d.
            num_classes: K, at least 2.
            scale: s, positive.
            normalise_features: whether logits are cosines times s (FNPAL) or grow with the features (PAL).
            form: ``"automatic"``, ``"simplex"`` or ``"optimised"``, as in ``anchored_prototypes``, which warns of what
                is lost where d < K−1.
            generator: source of the orientation; without one, torch's global one, from which every other layer's
                initial weights come.

        Raises:
            ValueError: form ``"simplex"`` and d < K−1; as in ``anchored_prototypes``; scale is not positive.
        """
        super().__init__()
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {scale}")
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

    def __init__(self, feature_dim: int, hidden_dim: int, projection_dim: int, *, batch_norm: bool = True) -> None:
        """Make a head of shape ``feature_dim`` → ``hidden_dim`` → ``projection_dim``, with or without BN."""
        super().__init__()
        normalisation = [nn.BatchNorm1d(hidden_dim)] if batch_norm else []
        self.mlp = nn.Sequential(
            nn.Linear(feature_dim, hidden_dim),
            *normalisation,
            nn.ReLU(inplace=True),
            nn.Linear(hidden_dim, projection_dim),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, feature_dim) to unit rows (N, projection_dim)."""
        return F.normalize(self.mlp(x), dim=1)


class RotatedClassifier(nn.Module):
    """f_k(x) = s R w_k · x/‖x‖: a regular simplex w that is fixed but for a rotation R, which is trained.

    The classifier of RBL (Peifeng et al., ICML 2023). Angles between classes stay those of the simplex whatever the
    class counts are; only where the simplex points is learned, so that features need not be turned to meet it.

    R = exp(A − Aᵀ) (``ltnb.geometry.rotation``) of the parameter ``generator_matrix`` A (d, d), which starts at 0, so
    R at the identity; weight decay of A draws R back there. The ``anchors`` w (K, d) are a buffer, saved in the state;
    ``weight`` is R w, computed anew at each access and with gradient of A.

    Of the paper we could read the abstract, and of its code the beginning of the README. Neither says which loss the
    classifier is trained with, nor whether it has a scale. The code needs geotorch, a library of orthogonal and
    other constraints.

    With features after a ReLU, what `AnchoredClassifier` says of them holds for every R; training may find a better R.
    """

    anchors: Tensor

    def __init__(
        self,
        feature_dim: int,
        num_classes: int,
        *,
        scale: float,
        generator: torch.Generator | None = None,
    ) -> None:
        """Place a simplex of ``num_classes`` vertices in ``feature_dim`` dimensions.

        Args:
            feature_dim: d, at least K−1.
            num_classes: K, at least 2.
            scale: s, positive.
            generator: source of the simplex's orientation before R; without one, torch's global one, as in
                `AnchoredClassifier`.

        Raises:
            ValueError: d < K−1, K < 2; scale is not positive.
        """
        super().__init__()
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a positive number, got {scale}")
        generator = torch.default_generator if generator is None else generator
        anchors = anchored_prototypes(num_classes, feature_dim, form="simplex", generator=generator)
        self.register_buffer("anchors", anchors.to(torch.get_default_dtype()))
        self.generator_matrix = nn.Parameter(torch.zeros(feature_dim, feature_dim))
        self.scale = scale

    @property
    def weight(self) -> Tensor:
        """R w (K, d): unit rows, one a class."""
        return rotated(self.anchors, self.generator_matrix).to(self.anchors.dtype)

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, d) to logits (N, K) in [−s, s]."""
        return self.scale * F.linear(F.normalize(features, dim=1), self.weight)


class RescaledClassifier(nn.Module):
    """f_k(x) = s_k (w_k · x + b_k): a trained linear classifier, of which only a scale a class is trained further.

    Learnable weight scaling (LWS) of Kang et al. (ICLR 2020), a second stage with class-balanced sampling: directions
    stay, lengths are learned, where τ-normalisation (``ltnb.models.corrections``) sets them. As in the released code
    the bias is scaled with its vector.

    ``scales`` s (K,) is the one parameter and starts at 1. ``frozen_weight`` w and ``frozen_bias`` b are buffers, saved
    in the state; ``weight`` (K, d) and ``bias`` (K,) are s_k w_k and s_k b_k, those of the linear classifier that it
    comes to, with gradient of s.
    """

    frozen_weight: Tensor
    frozen_bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take over a trained classifier; its tensors are copied.

        Args:
            weight: w (K, d), one row a class, floating-point.
            bias: b (K,), floating-point, or None.

        Raises:
            ValueError: weight is no floating-point matrix, or bias not a number for each of its rows.
        """
        super().__init__()
        if weight.ndim != 2 or 0 in weight.shape or not weight.is_floating_point():
            raise ValueError(
                f"weight must be a non-empty floating-point matrix, one row a class; got shape {tuple(weight.shape)}, "
                f"dtype {weight.dtype}"
            )
        num_classes = len(weight)
        if bias is not None and (bias.shape != (num_classes,) or not bias.is_floating_point()):
            raise ValueError(
                f"bias must hold one floating-point number for each of {num_classes} classes, "
                f"got shape {tuple(bias.shape)}, dtype {bias.dtype}"
            )
        self.register_buffer("frozen_weight", weight.detach().clone())
        self.register_buffer("frozen_bias", None if bias is None else bias.detach().clone())
        self.scales = nn.Parameter(torch.ones(num_classes, dtype=weight.dtype, device=weight.device))

    @torch.no_grad()
    def take(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take over vectors and bias of a classifier of the same shape, once it is trained."""
        self.frozen_weight.copy_(weight)
        if self.frozen_bias is not None and bias is not None:
            self.frozen_bias.copy_(bias)

    @property
    def weight(self) -> Tensor:
        """s_k w_k (K, d)."""
        return self.scales[:, None] * self.frozen_weight

    @property
    def bias(self) -> Tensor | None:
        """s_k b_k (K,), or None."""
        return None if self.frozen_bias is None else self.scales * self.frozen_bias

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, d) to logits (N, K)."""
        return self.scales * F.linear(features, self.frozen_weight, self.frozen_bias)
