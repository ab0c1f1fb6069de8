"""Minimise a loss over the features themselves: what a network would learn if it could put every sample anywhere."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltnb import geometry, losses

Array = NDArray[np.float64]
Constraint = Literal["sphere", "ball", "average"]

# A search goes on from where it stopped, with no memory of its steps, until that gains no more than this.
RELATIVE_GAIN = 1e-14
MAX_ROUNDS = 8
MAX_STEPS = 1000  # of L-BFGS, in a round


@dataclass(frozen=True)
class Optimum:
    """The best configuration that several searches found, and how good it can be said to be.

    No search proves that nothing lies lower. `gap` does, where it is small.
    """

    loss: float  # summed over anchors or samples; attained here, so no less than the minimum
    gap: float  # no configuration, in any dimension, has a loss below `loss - gap`: see `minimise`
    features: Tensor  # (N, d) float64, class by class
    labels: Tensor  # (N,) int64
    class_means: Tensor  # (K, d) plain means of the features: unit rows only where a class is one point
    prototypes: Tensor | None  # (K, d) unit rows, where the loss has them
    weight: Tensor | None  # (K, d) of the classifier, where the loss has one
    bias: Tensor | None  # (K,)
    start_losses: tuple[float, ...]  # where each start ended
    gradient_norm: float  # of `loss`, in the searched parameters
    evaluations: int  # of the loss and its gradient, in all starts

    @property
    def agreeing_starts(self) -> int:
        """How many starts ended within a relative 1e-9 of the best."""
        return sum(loss - self.loss <= 1e-9 * max(abs(self.loss), 1) for loss in self.start_losses)

    @property
    def spread(self) -> float:
        """The largest distance of a feature from its class's mean: 0 where every class is one point."""
        return float(torch.linalg.vector_norm(self.features - self.class_means[self.labels], dim=1).max())

    @property
    def cosines(self) -> Tensor:
        """(K, K) cosines between the class means, seen from the origin."""
        return geometry.cosine_matrix(self.class_means)


def minimise(
    loss: Callable[..., Tensor] | str,
    class_counts: Sequence[int],
    dim: int,
    *,
    prototypes: bool = False,
    seed: int = 0,
    starts: int = 4,
    features: Constraint = "sphere",
    radius: float = 1.0,
    classifier: Constraint | Tensor = "sphere",
    bias: bool = False,
    **loss_settings: Any,
) -> Optimum:
    r"""min Σᵢ ℒᵢ over every feature hᵢ ∈ R^d by itself, and over the prototypes or the classifier of the loss.

    Unconstrained features, or the layer-peeled model (Fang et al., PNAS 2021): a network that is large enough can
    put its training features anywhere, so the optimum of the loss alone tells where training pulls them. Nothing here
    presumes that a class collapses or that classes of one size are alike: all N · d coordinates are free.

    The names of a loss's arguments say what it is given:

        z or features      (N, d) features h
        logits             (N, K) wₖ·hᵢ + bₖ
        y, class_counts    labels; `class_counts`
        prototypes, memory (K, d) unit rows, searched if `prototypes` is set
        weight, bias       (K, d) w and (K,) b of the classifier, for a loss that forms the logits itself

    Constraints, on the features of a loss that has a classifier and on the classifier's vectors:

        "sphere"    ‖hᵢ‖ = r                                    ‖wₖ‖ = 1
        "ball"      ‖hᵢ‖ ≤ r                                    ‖wₖ‖ ≤ 1
        "average"   (1/K) Σₖ (1/nₖ) Σ_{yᵢ = k} ‖hᵢ‖² ≤ r²       (1/K) Σₖ ‖wₖ‖² ≤ 1       the layer-peeled model

    Without a classifier features are unit rows. With one, only products w·h reach the loss: r is the largest logit
    (without bias), the inverse of a temperature, and the weights need no radius of their own.

    *The search* is L-BFGS over free parameters v: h = r v/‖v‖ on the sphere. A ball of R^d is the shadow of a sphere
    of R^(d+1), h = r (v₁ … v_d)/‖v‖, and "average" is that for all vectors of a block stacked into one. So the
    boundary needs no care. Starts are drawn at random on these spheres.

    *The gap* is a certificate. Write Σᵢ ℒᵢ = F(G) with the Gram matrix G of all vectors searched. If F is convex, which
    it is for contrastive losses, cross-entropy and binary cross-entropy (logits enter linearly, then log-sum-exp or
    softplus), with gradient A off the diagonal, then for all G′ within the constraints

        F(G′) ≥ F(G) + ⟨A, G′ − G⟩ = F(G) + ⟨A − Diag(λ), G′⟩ ≥ F(G) + M min(0, λ_min(A − Diag(λ))),   λᵢ = (A G)ᵢᵢ

    for M vectors on the unit sphere, and alike for the other constraints. (Biases must be stationary for this, which
    `gradient_norm` tells.) A fixed classifier makes F convex in the features; there the gap is Σᵢ ∇ᵢ·hᵢ + r ‖∇ᵢ‖. The
    constraint on the dimension is not convex and is left out: in too few dimensions the gap stays open.

    Args:
        loss: a function of `ltnb.losses` or its name, or one with arguments named as above and with `reduction`.
            It must give the same value each time.
        class_counts: (K,) number of features of each class, at least two classes.
        dim: d.
        prototypes: search for class prototypes as well.
        seed: of the starts.
        starts: number of searches; the best counts.
        features: constraint on the features.
        radius: r > 0.
        classifier: constraint on the classifier's vectors, or a fixed (K, d) classifier.
        bias: search for the classifier's biases, which nothing bounds; without it they are 0.
        loss_settings: what else the loss takes, such as `temperature`.

    Raises:
        ValueError: an unknown loss or constraint, counts or numbers out of range, or what does not go together.
    """
    counts = _check_counts(class_counts)
    function = _function(loss)
    arguments = tuple(inspect.signature(function).parameters)
    if not {"z", "features", "logits"} & {*arguments} or not {"y", "reduction"} <= {*arguments}:
        raise ValueError(f"loss must take z, features or logits, and y and reduction; it takes {', '.join(arguments)}")
    has_classifier = bool({"logits", "weight"} & {*arguments})
    if prototypes and not {"prototypes", "memory"} & {*arguments}:
        raise ValueError(f"prototypes=True is for a loss that takes them; this one takes {', '.join(arguments)}")
    given = (features, radius, bias, isinstance(classifier, str) and classifier)
    if not has_classifier and given != ("sphere", 1.0, False, "sphere"):
        raise ValueError("features, radius, classifier and bias are for losses with a classifier; this one has none")
    if "reduction" in loss_settings:
        raise ValueError(f"reduction is the sum here, got {loss_settings['reduction']!r}")
    for name, value in (("dim", dim), ("starts", starts)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 < radius < math.inf:
        raise ValueError(f"radius must be a positive finite number, got {radius}")

    num_classes = len(counts)
    labels = torch.arange(num_classes).repeat_interleave(torch.tensor(counts))
    blocks = {"features": _Block(_shares(counts), dim, features, radius)}
    fixed: dict[str, Tensor] = {}
    per_class = _shares([1] * num_classes)
    if prototypes:
        blocks["prototypes"] = _Block(per_class, dim, "sphere")
    if has_classifier:
        if isinstance(classifier, Tensor):
            fixed["weight"] = _check_classifier(classifier, num_classes, dim)
        else:
            blocks["weight"] = _Block(per_class, dim, classifier)
    problem = _Problem(function, arguments, labels, counts, blocks, fixed, has_classifier and bias, loss_settings)

    generator = torch.Generator().manual_seed(seed)
    ends = [problem.search(generator) for _ in range(starts)]
    best = min(ends, key=lambda end: end.loss)
    with torch.no_grad():
        found = problem.vectors(torch.from_numpy(best.parameters))
    return Optimum(
        loss=best.loss,
        gap=problem.gap(found),
        features=found["features"],
        labels=labels,
        class_means=geometry.class_means(found["features"], labels, num_classes),
        prototypes=found.get("prototypes"),
        weight=found.get("weight"),
        bias=found["bias"] if has_classifier else None,
        start_losses=tuple(end.loss for end in ends),
        gradient_norm=best.gradient_norm,
        evaluations=sum(end.evaluations for end in ends),
    )


@dataclass(frozen=True)
class _End:
    loss: float
    parameters: Array
    gradient_norm: float
    evaluations: int


@dataclass(frozen=True)
class _Block:
    """Vectors x₁ … xₙ under one constraint, as functions of free parameters."""

    shares: Tensor  # (n, 1) q: the constraint "average" is Σᵢ qᵢ ‖xᵢ‖² ≤ r²
    dim: int
    constraint: Constraint
    radius: float = 1.0

    def __post_init__(self) -> None:
        if self.constraint not in get_args(Constraint):
            known = ", ".join(map(repr, get_args(Constraint)))
            raise ValueError(f"features and classifier must be one of {known}, got {self.constraint!r}")

    @property
    def shape(self) -> tuple[int, int]:
        """Of the parameters: where a norm is bounded and not fixed, each row has one more."""
        return len(self.shares), self.dim + (self.constraint != "sphere")

    def normalised(self, parameters: Tensor) -> Tensor:
        """Parameters of the same vectors, on the sphere that the search moves on."""
        rows = parameters.view(self.shape)
        norms: Tensor = torch.linalg.vector_norm(rows, dim=None if self.constraint == "average" else 1, keepdim=True)
        return rows / norms

    @property
    def largest_norms(self) -> Tensor:
        """(n, 1): the length of each vector if it had all that the constraint gives."""
        if self.constraint == "average":
            return self.radius * self.shares.rsqrt()
        return torch.full_like(self.shares, self.radius)

    def vectors(self, parameters: Tensor) -> Tensor:
        return self.largest_norms * self.normalised(parameters)[:, : self.dim]

    @property
    def trace(self) -> int:
        """The most that Σᵢ ‖xᵢ‖² / (largest norm)² can be."""
        return 1 if self.constraint == "average" else len(self.shares)

    def multipliers(self, slopes: Tensor) -> tuple[Tensor, float]:
        """Lagrange multipliers λ of the squared norms, and the least value of Σᵢ λᵢ ‖xᵢ‖² within the constraint.

        Args:
            slopes: (n,) (A G)ᵢᵢ, half the derivative of the loss where xᵢ grows in its direction.
        """
        squared = self.largest_norms.flatten().square()
        if self.constraint == "average":
            slopes = slopes.sum().expand_as(squared)
        multipliers = slopes / squared
        if self.constraint == "sphere":
            return multipliers, float(slopes.sum())
        least = slopes.clamp(max=0)
        return multipliers, float(least[0] if self.constraint == "average" else least.sum())

    def linear_minimum(self, gradient: Tensor) -> float:
        """min Σᵢ ∇ᵢ·xᵢ over the ball around the constraint."""
        lengths = self.largest_norms.flatten() * torch.linalg.vector_norm(gradient, dim=1)
        return -float(torch.linalg.vector_norm(lengths) if self.constraint == "average" else lengths.sum())


@dataclass(frozen=True)
class _Problem:
    function: Callable[..., Tensor]
    arguments: tuple[str, ...]
    labels: Tensor
    counts: list[int]
    blocks: Mapping[str, _Block]
    fixed: Mapping[str, Tensor]
    searches_bias: bool
    settings: Mapping[str, Any]

    def loss(self, vectors: Mapping[str, Tensor]) -> Tensor:
        known = {**vectors, "z": vectors["features"], "y": self.labels, "class_counts": torch.tensor(self.counts)}
        if "logits" in self.arguments:
            known["logits"] = vectors["features"] @ vectors["weight"].T + vectors["bias"]
        if "prototypes" in vectors:
            known["memory"] = vectors["prototypes"]
        given = {name: known[name] for name in self.arguments if name in known}
        return self.function(**given, **self.settings, reduction="sum")

    def vectors(self, parameters: Tensor) -> dict[str, Tensor]:
        """What the loss is a function of, by name; the biases come last in the parameters."""
        *pieces, bias = torch.split(parameters, self._sizes)
        found = {name: block.vectors(piece) for (name, block), piece in zip(self.blocks.items(), pieces, strict=True)}
        return {**self.fixed, **found, "bias": bias if self.searches_bias else torch.zeros(len(self.counts)).double()}

    def search(self, generator: torch.Generator) -> _End:
        parameters = self._normalised(torch.randn(sum(self._sizes), generator=generator, dtype=torch.float64).numpy())
        loss, evaluations = math.inf, 0
        for _ in range(MAX_ROUNDS):
            result = scipy.optimize.minimize(
                self._loss_and_gradient,
                parameters,
                jac=True,
                method="L-BFGS-B",
                options={"maxcor": 20, "maxiter": MAX_STEPS, "maxfun": 2 * MAX_STEPS, "ftol": 0, "gtol": 1e-9},
            )
            parameters = self._normalised(result.x)
            evaluations += result.nfev
            gain, loss = loss - result.fun, min(loss, result.fun)
            if gain <= RELATIVE_GAIN * abs(loss):
                break
        loss, gradient = self._loss_and_gradient(parameters)
        return _End(loss, parameters, float(np.linalg.norm(gradient)), evaluations)

    def gap(self, found: Mapping[str, Tensor]) -> float:
        """By how much the loss can at most be lowered, if it is convex in the inner products; see `minimise`."""
        if "weight" in self.fixed:
            features = found["features"].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self.loss({**found, "features": features}), features)
            here = float((gradient * found["features"]).sum())
            return max(0.0, here - self.blocks["features"].linear_minimum(gradient))

        # F is a function of products of different vectors, so with a column of its own for each vector it stays as it
        # is, while the gradient in the new columns, 2 A times their entry, shows A. The entry is small for losses that
        # normalise what they are given, where this is not exact.
        entry = 1e-5
        names, parts = list(self.blocks), [found[name] for name in self.blocks]
        stacked, lengths = torch.cat(parts), [len(part) for part in parts]
        extended = torch.cat([stacked, entry * torch.eye(len(stacked), dtype=stacked.dtype)], dim=1).requires_grad_()
        rows = dict(zip(names, torch.split(extended, lengths), strict=True))
        (gradient,) = torch.autograd.grad(self.loss({**found, **rows}), extended)
        slope = gradient[:, stacked.shape[1] :] / (2 * entry)
        slope = (slope + slope.T) / 2
        slope.fill_diagonal_(0)

        slopes = ((slope @ stacked) * stacked).sum(dim=1)
        of_blocks = [
            block.multipliers(part)
            for block, part in zip(self.blocks.values(), torch.split(slopes, lengths), strict=True)
        ]
        scale = torch.cat([block.largest_norms for block in self.blocks.values()])
        slack = slope - torch.diag(torch.cat([multipliers for multipliers, _ in of_blocks]))
        smallest = min(0.0, float(torch.linalg.eigvalsh(scale * slack * scale.T)[0]))
        trace = sum(block.trace for block in self.blocks.values())
        return max(0.0, float(slopes.sum()) - sum(least for _, least in of_blocks) - trace * smallest)

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(block.shape) for block in self.blocks.values()] + [len(self.counts) * self.searches_bias]

    def _normalised(self, parameters: Array) -> Array:
        *pieces, bias = torch.split(torch.from_numpy(parameters), self._sizes)
        rows = [block.normalised(piece).flatten() for block, piece in zip(self.blocks.values(), pieces, strict=True)]
        normalised: Array = torch.cat([*rows, bias]).numpy()
        return normalised

    def _loss_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        searched = torch.from_numpy(parameters).requires_grad_()
        loss = self.loss(self.vectors(searched))
        (gradient,) = torch.autograd.grad(loss, searched)
        return loss.item(), gradient.numpy()


def _function(loss: Callable[..., Tensor] | str) -> Callable[..., Tensor]:
    if callable(loss):
        return loss
    if loss not in losses.__all__:
        raise ValueError(f"loss must be a function or one of {', '.join(losses.__all__)}; got {loss!r}")
    function: Callable[..., Tensor] = getattr(losses, loss)
    return function


def _check_counts(class_counts: Sequence[int]) -> list[int]:
    counts = [int(count) for count in class_counts]
    if len(counts) < 2 or min(counts) < 1 or counts != list(class_counts):
        raise ValueError(
            f"class_counts must hold a positive integer for each of two or more classes, got {list(class_counts)}"
        )
    return counts


def _check_classifier(classifier: Tensor, num_classes: int, dim: int) -> Tensor:
    if classifier.shape != (num_classes, dim):
        raise ValueError(
            f"classifier must have shape {(num_classes, dim)} for these classes and dim, got {tuple(classifier.shape)}"
        )
    return classifier.detach().double()


def _shares(counts: Sequence[int]) -> Tensor:
    """(N, 1): 1/(K n_y), the share of each vector in an average where every class counts the same."""
    sizes = torch.tensor(counts, dtype=torch.float64)
    return (1 / (len(counts) * sizes)).repeat_interleave(torch.tensor(counts))[:, None]
