"""The contrast term against loops over anchors and keys: what is contrasted with what, at which temperature."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb.methods import BCE3S, BCL, FeatRecon, MethodSettings, SupervisedContrastive
from ltnb.methods.contrast import Contrast, MemoryContrast, PairedContrast
from ltnb.methods.contrasts import contrast
from ltnb.models.encoders import encoder

COUNTS = [14, 6, 3, 1]
K, D, TAU = 4, 5, 0.3
Y = torch.tensor([0, 1, 0, 2, 1, 0])  # class 3 is absent, class 2 has one image

Rows = list[list[float]]


def made(settings: MethodSettings) -> Contrast:
    network = encoder("resnet8", 1, feature_dim=D)
    torch.manual_seed(0)
    module = contrast(settings, network, COUNTS)
    assert module is not None
    return module.double()


def features_of(number_of_views: int, seed: int = 1) -> list[Tensor]:
    generator = Generator().manual_seed(seed)
    return [torch.randn(len(Y), D, generator=generator, dtype=torch.float64) for _ in range(number_of_views)]


def head() -> nn.Linear:
    classifier = nn.Linear(D, K).double()
    nn.init.normal_(classifier.weight, generator=Generator().manual_seed(2))
    return classifier


def terms_of(
    module: Contrast, features: list[Tensor], targets: list[Tensor], classifier: nn.Linear, generator: Generator
) -> dict[str, Tensor]:
    """The terms of features; none of the contrasts here looks at images."""
    terms: dict[str, Tensor] = module([], features, targets, classifier, generator)
    return terms


def dot(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def supervised_by_hand(anchors: Rows, y: list[int], taus: list[float], keys: Rows, key_y: list[int]) -> float:
    """−mean over anchors of the mean over positives of log p; ``keys`` come on top of the other anchors."""
    losses = []
    for i, anchor in enumerate(anchors):
        others = [(z, c) for j, (z, c) in enumerate(zip(anchors, y, strict=True)) if j != i]
        others += list(zip(keys, key_y, strict=True))
        logits = [(dot(anchor, z) / taus[i], c) for z, c in others]
        log_sum = math.log(sum(math.exp(s) for s, _ in logits))
        positives = [log_sum - s for s, c in logits if c == y[i]]
        if positives:
            losses.append(mean(positives))
    return mean(losses)


def balanced_by_hand(anchors: Rows, y: list[int], c: Rows | None, averaging: str) -> float:
    losses = []
    for i, anchor in enumerate(anchors):
        by_class: dict[int, list[float]] = {}
        for j, (z, k) in enumerate(zip(anchors, y, strict=True)):
            if j != i:
                by_class.setdefault(k, []).append(dot(anchor, z) / TAU)
        for k, prototype in enumerate(c or []):
            by_class.setdefault(k, []).append(dot(anchor, prototype) / TAU)
        if y[i] not in by_class:
            continue
        numerator = mean(by_class[y[i]])
        if averaging == "none":
            denominator = sum(math.exp(s) for logits in by_class.values() for s in logits)
        else:
            denominator = sum(mean([math.exp(s) for s in logits]) for logits in by_class.values())
        losses.append(math.log(denominator) - numerator)
    return mean(losses)


@pytest.mark.parametrize("prototypes", ["classifier", "ema", "learnable", "anchored", None])
@pytest.mark.parametrize("averaging", ["none", "L1"])
def test_the_four_cells_of_bcl_with_prototypes_of_every_kind(averaging: Any, prototypes: Any) -> None:
    complement: dict[str, Any] = {"complement": False} if prototypes is None else {"prototypes": prototypes}
    module = made(BCL(averaging=averaging, temperature=TAU, projection_dim=6, **complement))
    assert isinstance(module, PairedContrast)
    features, classifier = features_of(3), head()
    terms = terms_of(module, features, [Y] * 3, classifier, Generator())
    z = module.projector(torch.cat(features[1:])).detach()
    c = module.prototypes(classifier.weight)
    expected = balanced_by_hand(z.tolist(), [*Y.tolist()] * 2, None if c is None else c.tolist(), averaging)
    assert terms["contrast"].item() == pytest.approx(expected, rel=1e-6)

    terms["contrast"].backward()
    trained = {name for name, p in module.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert "projector.mlp.0.weight" in trained
    assert (classifier.weight.grad is not None) == (prototypes == "classifier")
    own = {"classifier": "class_prototypes.projector.mlp.0.weight", "learnable": "class_prototypes.directions"}
    assert {name for name in trained if name.startswith("class_prototypes") and name in own.values()} == (
        {own[prototypes]} if prototypes in own else set()
    )


def test_averaged_prototypes_follow_the_contrasted_projections_after_the_step() -> None:
    module = made(BCL(prototypes="ema", prototype_momentum=0.0, projection_dim=6))
    features, classifier = features_of(3), head()
    before = module.prototypes(classifier.weight)
    terms_of(module, features, [Y] * 3, classifier, Generator())
    torch.testing.assert_close(module.prototypes(classifier.weight), before)
    module.after_step(nn.Identity())
    z, y = module.projector(torch.cat(features[1:])), torch.cat([Y, Y])
    assert before is not None
    for k in range(3):
        torch.testing.assert_close(module.prototypes(classifier.weight)[k], F.normalize(z[y == k].mean(dim=0), dim=0))  # type: ignore[index]
    torch.testing.assert_close(module.prototypes(classifier.weight)[3], before[3])  # type: ignore[index]


def test_the_classified_view_takes_no_part_unless_it_is_the_only_one() -> None:
    module = made(SupervisedContrastive(temperature=TAU))
    features, classifier = features_of(3), head()
    found = terms_of(module, features, [Y] * 3, classifier, Generator())["contrast"]
    changed = terms_of(module, [features_of(1, seed=9)[0], *features[1:]], [Y] * 3, classifier, Generator())["contrast"]
    torch.testing.assert_close(found, changed)
    alone = made(SupervisedContrastive(temperature=TAU, views=("strong",)))
    z = alone.projector(features[0]).tolist()
    expected = supervised_by_hand(z, Y.tolist(), [TAU] * len(Y), [], [])
    assert terms_of(alone, features[:1], [Y], classifier, Generator())["contrast"].item() == pytest.approx(
        expected, rel=1e-6
    )


def temperature_by_hand(n: int, lowest: float, highest: float) -> float:
    share = (n - min(COUNTS)) / (max(COUNTS) - min(COUNTS))
    return lowest + (highest - lowest) * (1 - (1 + math.cos(math.pi * share)) / 2)


def test_every_anchor_has_the_temperature_of_its_class() -> None:
    module = made(SupervisedContrastive(temperature=0.2, head_temperature=0.9))
    features = features_of(3)
    y = torch.tensor([0, 1, 2, 3, 3, 0])
    found = terms_of(module, features, [y] * 3, head(), Generator())["contrast"].item()
    z = module.projector(torch.cat(features[1:])).tolist()
    taus = [temperature_by_hand(COUNTS[k], 0.2, 0.9) for k in y.tolist()] * 2
    assert {round(tau, 4) for tau in taus} >= {0.2, 0.9}
    assert found == pytest.approx(supervised_by_hand(z, y.tolist() * 2, taus, [], []), rel=1e-6)


@pytest.mark.parametrize("anchors", [True, False])
@pytest.mark.parametrize("head_temperature", [None, 0.9])
def test_synthetic_features_as_anchors_or_as_keys_alone(anchors: bool, head_temperature: float | None) -> None:
    module = made(
        FeatRecon(
            temperature=TAU,
            head_temperature=head_temperature,
            synthetic_anchors=anchors,
            synthesis_start=0.0,
            head_above=5,
            nearest_heads=1,
            projection_dim=6,
        )
    )
    assert isinstance(module, PairedContrast)
    features, classifier = features_of(3), head()
    y = torch.tensor([0, 1, 2, 3, 0, 0])

    def by_hand(synthetic: Rows, classes: list[int]) -> float:
        z, labels = module.projector(torch.cat(features[1:])).tolist(), y.tolist() * 2
        if anchors:
            z, labels, synthetic, classes = z + synthetic, labels + classes, [], []
        highest = head_temperature or TAU
        taus = [temperature_by_hand(COUNTS[k], TAU, highest) for k in labels]
        return supervised_by_hand(z, labels, taus, synthetic, classes)

    # Nothing is drawn before supports are known.
    found = terms_of(module, features, [y] * 3, classifier, Generator().manual_seed(4))
    assert found["contrast"].item() == pytest.approx(by_hand([], []), rel=1e-6)
    module.after_epoch(1, 10)
    found = terms_of(module, features, [y] * 3, classifier, Generator().manual_seed(4))
    assert module.synthesis is not None
    z, classes = module.synthesis(
        module.projector(torch.cat(features[1:])), torch.cat([y, y]), Generator().manual_seed(4)
    )
    assert classes.bincount().tolist() == [0, 4, 4, 4]  # six projections of class 0, two of each other class
    assert found["contrast"].item() == pytest.approx(by_hand(z.tolist(), classes.tolist()), rel=1e-6)


@pytest.mark.parametrize("anchors", [True, False])
def test_an_anchor_whose_only_positive_is_synthetic_is_a_valid_one(anchors: bool) -> None:
    module = made(
        FeatRecon(
            views=("strong",),
            synthetic_anchors=anchors,
            synthesis_start=0.0,
            head_above=5,
            nearest_heads=1,
            projection_dim=6,
        )
    )
    y, features = torch.tensor([0, 1, 2, 3, 0, 0]), features_of(1)
    assert terms_of(module, features, [y], head(), Generator())["valid_anchors"].item() == pytest.approx(3 / 6)
    module.after_epoch(1, 10)
    assert terms_of(module, features, [y], head(), Generator())["valid_anchors"].item() == 1


def memory_loss_by_hand(kind: str, z: list[float], label: list[float], memory: dict[int, list[float]]) -> float | None:
    """The loss of one projection; None where none of its classes has been seen."""
    cosines = {k: dot(z, m) for k, m in memory.items()}
    if not any(label[k] > 0 for k in memory):
        return None
    if kind == "binary":
        return sum(
            label[k] * math.log1p(math.exp(-s / TAU)) if label[k] > 0 else math.log1p(math.exp(s / TAU))
            for k, s in cosines.items()
        )
    if kind == "mse":
        return sum((s - label[k]) ** 2 for k, s in cosines.items())
    log_sum = math.log(sum(math.exp(s / TAU) for s in cosines.values()))
    return sum(label[k] * (log_sum - s / TAU) for k, s in cosines.items())


@pytest.mark.parametrize("kind", ["binary", "cross-entropy", "mse"])
@pytest.mark.parametrize(
    "views", [("strong",), ("strong", "strong"), ("strong", "mixup", "cutmix"), ("mixup", "strong", "cutmix")]
)
def test_the_memory_contrast_by_hand_over_three_steps(kind: Any, views: Any) -> None:
    changes: dict[str, Any] = {} if kind == "mse" else {"temperature": TAU}
    module = made(BCE3S(contrast=kind, views=views, projection_dim=6, **changes))
    assert isinstance(module, MemoryContrast)
    generator = Generator().manual_seed(5)
    memory: dict[int, list[float]] = {}
    for step, y in enumerate([Y, torch.tensor([2, 2, 1, 3, 3, 0]), torch.tensor([0, 0, 1, 1, 2, 2])]):
        features = features_of(len(views), seed=step)
        targets = [
            torch.softmax(3 * torch.randn(len(y), K, generator=generator, dtype=torch.float64), dim=1)
            if view in ("mixup", "cutmix")
            else y
            for view in views
        ]
        found = terms_of(module, features, targets, head(), generator)["contrast"]
        # A memory of the step before; the module keeps no gradient through it.
        projections = [module.projector(of_view).tolist() for of_view in features]
        by_view = []
        for of_view, labels in list(zip(projections, targets, strict=True))[1 if len(views) > 1 else 0 :]:
            rows = labels.tolist() if labels.is_floating_point() else F.one_hot(labels, K).double().tolist()
            losses = [memory_loss_by_hand(kind, z, label, memory) for z, label in zip(of_view, rows, strict=True)]
            kept = [loss for loss in losses if loss is not None]
            by_view.append(mean(kept) if kept else 0.0)
        assert found.item() == pytest.approx(mean(by_view), rel=1e-6)
        found.backward()
        module.after_step(nn.Identity())
        for of_view, view in zip(projections, views, strict=True):
            if view == "strong":
                memory |= dict(zip(y.tolist(), of_view, strict=True))
        for k, row in memory.items():
            assert module.memory.projections[k].tolist() == pytest.approx(row)
        assert module.memory.seen.tolist() == [k in memory for k in range(K)]


def test_a_step_without_a_forward_pass_changes_nothing() -> None:
    module = made(BCE3S())
    module.after_step(nn.Identity())
    assert not module.memory.seen.any()  # type: ignore[union-attr]
    paired = made(BCL(prototypes="ema"))
    before = paired.prototypes(head().weight)
    paired.after_step(nn.Identity())
    torch.testing.assert_close(paired.prototypes(head().weight), before)
