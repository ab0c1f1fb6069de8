"""The classification term: every loss on every classifier it is defined for, against loops over images and classes."""

import math
from typing import Any, get_args

import pytest
import torch
from torch import Generator, Tensor

from ltnb import losses
from ltnb.methods import FNPAL, CrossEntropy, MethodSettings, slots
from ltnb.methods.classification import Classification, Classifier, classifier
from ltnb.models.heads import RotatedClassifier

COUNTS = [14, 6, 3, 1]
K, D, SCALE, TAU, MARGIN = 4, 5, 7.0, 1.5, 0.4
DEFAULT_SCALE = 30.0

# The parameters of each loss of logits, where it has any.
PARAMETERS: dict[str, dict[str, float]] = {
    "focal": {"focal_gamma": 0.5},
    "gce": {"gce_q": 0.7},
    "sce": {"active_weight": 0.3, "passive_weight": 2.0},
    "mae": {},
    "rce": {},
    "nce": {},
    "nfl": {"focal_gamma": 2.0},
    "nsl": {},
    "nce+mae": {"active_weight": 0.3, "passive_weight": 2.0},
    "nce+rce": {"active_weight": 0.3, "passive_weight": 2.0},
    "nfl+rce": {"active_weight": 0.3, "passive_weight": 2.0, "focal_gamma": 2.0},
}
A = -math.log(1e-4)
CLASSIFIERS = ("linear", "cosine", "normalised", "anchored", "anchored-cosine", "rotated")
SCALED = ("cosine", "anchored", "anchored-cosine", "rotated")
COMBINATIONS = [
    *((loss, head) for loss in ("cross-entropy", "logit-adjusted") for head in CLASSIFIERS),
    *(("margin", head) for head in SCALED),
    ("binary", "normalised"),
    ("mse", "normalised"),
    ("dot-regression", "anchored-cosine"),
    ("dot-regression", "rotated"),
    *((loss, head) for loss in PARAMETERS for head in CLASSIFIERS),
]


SOFT = [(loss, head) for loss, head in COMBINATIONS if loss in ("cross-entropy", "binary", "mse")]


def settings_of(loss: Any, head: Any, **changes: Any) -> MethodSettings:
    if head in SCALED and loss != "dot-regression":
        changes["classifier_scale"] = SCALE
    if loss == "margin":
        changes["margin"] = MARGIN
    if loss == "logit-adjusted":
        changes["adjustment_strength"] = TAU
    return CrossEntropy(classification=loss, classifier=head, **PARAMETERS.get(loss, {}), **changes)


def made(settings: MethodSettings) -> tuple[Classification, Classifier]:
    torch.manual_seed(0)
    head = classifier(settings, D, K).double()
    if hasattr(head, "bias"):
        torch.nn.init.normal_(head.bias)
    if isinstance(head, RotatedClassifier):
        torch.nn.init.normal_(head.generator_matrix)
    return Classification(settings, COUNTS).double(), head


def images(number: int = 6) -> tuple[Tensor, Tensor]:
    generator = Generator().manual_seed(3)
    x = torch.randn(number, D, generator=generator, dtype=torch.float64)
    return x, torch.tensor([0, 3, 1, 1, 2, 0])[:number]


def soft_labels() -> Tensor:
    mixed = [[0.3, 0, 0.7, 0], [0, 1, 0, 0], [0.25, 0.25, 0, 0.5], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0.6, 0.4, 0]]
    return torch.tensor(mixed, dtype=torch.float64)


def dot(a: list[float], b: list[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def logits_by_hand(head: Classifier, kind: str, x: list[float]) -> list[float]:
    logits = []
    for j, w in enumerate(head.weight.tolist()):
        product = dot(w, x)
        if kind in ("cosine", "normalised"):
            product /= math.hypot(*w)
        if kind in ("cosine", "anchored-cosine", "rotated"):
            product /= math.hypot(*x)
        if kind in SCALED:
            product *= head.scale  # type: ignore[union-attr,operator]
        if kind in ("linear", "normalised"):
            product += head.bias[j].item()  # type: ignore[union-attr]
        logits.append(product)
    return logits


def loss_by_hand(loss: str, logits: list[float], label: list[float], margins: list[float]) -> float:
    if loss == "binary":
        terms = [
            share * math.log1p(math.exp(-f)) if share > 0 else math.log1p(math.exp(f))
            for f, share in zip(logits, label, strict=True)
        ]
        return sum(terms)
    if loss == "mse":
        return sum((f - share) ** 2 for f, share in zip(logits, label, strict=True))
    if loss == "dot-regression":
        return (logits[label.index(1.0)] / DEFAULT_SCALE - 1) ** 2 / 2
    if loss in PARAMETERS:
        return loss_of_probabilities(loss, logits, label.index(1.0))
    if loss == "logit-adjusted":
        logits = [f + TAU * math.log(n / sum(COUNTS)) for f, n in zip(logits, COUNTS, strict=True)]
    if loss == "margin":
        logits = [f - SCALE * m * share for f, m, share in zip(logits, margins, label, strict=True)]
    log_sum = math.log(sum(math.exp(f) for f in logits))
    return sum(share * (log_sum - f) for f, share in zip(logits, label, strict=True))


def loss_of_probabilities(loss: str, logits: list[float], y: int) -> float:
    if "+" in loss:
        active, passive = (loss_of_probabilities(part, logits, y) for part in loss.split("+"))
        return 0.3 * active + 2.0 * passive
    total = sum(math.exp(f) for f in logits)
    p = [math.exp(f) / total for f in logits]
    focal = [-((1 - share) ** 2.0) * math.log(share) for share in p]
    return {
        "focal": -((1 - p[y]) ** 0.5) * math.log(p[y]),
        "gce": (1 - p[y] ** 0.7) / 0.7,
        "sce": -0.3 * math.log(p[y]) + 2.0 * A * (1 - p[y]),
        "mae": 1 - p[y],
        "rce": A * (1 - p[y]),
        "nce": math.log(p[y]) / sum(math.log(share) for share in p),
        "nfl": focal[y] / sum(focal),
        "nsl": -logits[y],
    }[loss]


def test_every_value_is_tried() -> None:
    assert {loss for loss, _ in COMBINATIONS} == set(get_args(slots.Classification))


# But torch's own cross-entropy, which stays with the type that it is given.
@pytest.mark.parametrize(("loss", "head"), [pair for pair in COMBINATIONS if pair[0] != "cross-entropy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_loss_on_features_of_lower_precision(loss: str, head: str, dtype: torch.dtype) -> None:
    """Computed in float32, with a finite gradient, at what float64 says up to the precision of the scores."""
    settings = settings_of(loss, head)
    term, fitted = made(settings)
    x, y = images()
    expected = term(fitted, x, y, Generator())
    low = x.to(dtype).requires_grad_()
    found = term.float()(fitted.to(dtype), low, y, Generator())
    assert found.dtype == torch.float32
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    found.sum().backward()
    assert low.grad is not None
    assert low.grad.isfinite().all()


@pytest.mark.parametrize("head", ["cosine", "anchored-cosine", "rotated"])
@pytest.mark.parametrize(("rate", "scale"), [(0.0, 5.0), (0.2, 1.0), (0.8, 0.25 / 0.85)])
def test_a_noise_aware_scale_follows_the_noise(head: Any, rate: float, scale: float) -> None:
    settings = FNPAL(classifier=head, classifier_scale="noise-aware")
    torch.manual_seed(0)
    aware = classifier(settings, D, K, rate)
    torch.manual_seed(0)
    fixed = classifier(FNPAL(classifier=head, classifier_scale=scale), D, K)
    x = torch.randn(3, D)
    torch.testing.assert_close(aware(x), fixed(x))
    # A margin is subtracted before the same scale.
    margin = Classification(FNPAL(classifier=head, classifier_scale="noise-aware", classification="margin"), COUNTS)
    margins = losses.margin_cross_entropy(fixed(x) / scale, torch.tensor([0, 1, 2]), 0.5, scale=scale, reduction="none")
    torch.testing.assert_close(margin(aware, x, torch.tensor([0, 1, 2]), Generator()), margins)


@pytest.mark.parametrize(("loss", "head"), COMBINATIONS)
def test_each_loss_on_each_classifier_by_hand(loss: str, head: str) -> None:
    term, fitted = made(settings_of(loss, head))
    x, y = images()
    found = term(fitted, x, y, Generator())
    for i, of_image in enumerate(x.tolist()):
        label = [float(j == y[i]) for j in range(K)]
        expected = loss_by_hand(loss, logits_by_hand(fitted, head, of_image), label, [MARGIN] * K)
        assert found[i].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("loss", "head"), SOFT)
def test_soft_labels_by_hand(loss: str, head: str) -> None:
    term, fitted = made(settings_of(loss, head, views=("mixup",)))
    x, _ = images()
    found = term(fitted, x, soft_labels(), Generator())
    for i, of_image in enumerate(x.tolist()):
        expected = loss_by_hand(loss, logits_by_hand(fitted, head, of_image), soft_labels()[i].tolist(), [0.0] * K)
        assert found[i].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("head", SCALED)
def test_margins_of_ldam_by_hand(head: str) -> None:
    term, fitted = made(settings_of("margin", head, margins="ldam"))
    x, y = images()
    margins = [MARGIN * (min(COUNTS) / n) ** 0.25 for n in COUNTS]
    found = term(fitted, x, y, Generator())
    for i, of_image in enumerate(x.tolist()):
        label = [float(j == y[i]) for j in range(K)]
        expected = loss_by_hand("margin", logits_by_hand(fitted, head, of_image), label, margins)
        assert found[i].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("negatives", ["independent", "batch"])
def test_negatives_are_drawn_from_the_methods_generator_at_their_rate(negatives: Any) -> None:
    rate, number = 0.5, 4000
    term, fitted = made(settings_of("binary", "normalised", negative_rate=rate, negatives=negatives))
    x, _ = images(1)
    label = [1.0, 0.0, 0.0, 0.0]
    logits = logits_by_hand(fitted, "normalised", x[0].tolist())
    positive = math.log1p(math.exp(-logits[0]))
    rest = loss_by_hand("binary", logits, label, [0.0] * K) - positive
    if negatives == "independent":
        repeated, y = x.expand(number, D), torch.zeros(number, dtype=torch.int64)
        drawn = term(fitted, repeated, y, Generator().manual_seed(1))
        torch.testing.assert_close(drawn, term(fitted, repeated, y, Generator().manual_seed(1)))
        expected = positive + rate * rest
    else:  # ⌊4 · 0.5⌋ classes: the image's own and one of the three others
        one = torch.zeros(1, dtype=torch.int64)
        generator = Generator().manual_seed(1)
        drawn = torch.cat([term(fitted, x, one, generator).detach() for _ in range(number // 4)])
        expected = positive + rest / 3
    assert abs(drawn.mean().item() - expected) < 4 * drawn.std().item() / len(drawn) ** 0.5


def test_an_anchored_classifier_is_a_simplex_that_nothing_trains() -> None:
    _, head = made(settings_of("cross-entropy", "anchored"))
    gram = head.weight @ head.weight.T
    torch.testing.assert_close(gram, torch.eye(K, dtype=torch.float64) * (1 + 1 / 3) - 1 / 3, atol=1e-6, rtol=0)
    assert list(head.parameters()) == []


def test_optimised_anchors_say_what_is_lost_where_no_simplex_fits() -> None:
    settings = CrossEntropy(classifier="anchored", feature_dim=2, anchors="optimised")
    with pytest.warns(UserWarning, match="4 prototypes in .* cannot form a regular simplex"):
        head = classifier(settings, 2, K)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(K))
    with pytest.raises(ValueError, match="regular simplex"):
        classifier(CrossEntropy(classifier="anchored"), 2, K)


def test_a_rotated_classifier_keeps_its_angles_wherever_training_turns_it() -> None:
    _, head = made(settings_of("cross-entropy", "rotated"))
    gram = head.weight @ head.weight.T
    torch.testing.assert_close(gram, torch.eye(K, dtype=torch.float64) * (1 + 1 / 3) - 1 / 3, atol=1e-6, rtol=0)
    assert [name for name, _ in head.named_parameters()] == ["generator_matrix"]


@pytest.mark.parametrize("head", ["anchored-cosine", "rotated"])
def test_dot_regression_does_not_know_the_scale(head: Any) -> None:
    term, fitted = made(settings_of("dot-regression", head))
    x, y = images()
    before = term(fitted, x, y, Generator())
    fitted.scale = 3.0  # type: ignore[union-attr,assignment]
    torch.testing.assert_close(term(fitted, x, y, Generator()), before)
    torch.testing.assert_close(term(fitted, 2 * x, y, Generator()), before)  # nor the features' lengths


def test_dot_regression_moves_no_anchor_but_turns_the_rotated_ones() -> None:
    for kind in ("anchored-cosine", "rotated"):
        term, fitted = made(settings_of("dot-regression", kind))
        x, y = images()
        leaf = x.clone().requires_grad_()
        term(fitted, leaf, y, Generator()).sum().backward()
        assert leaf.grad is not None
        # At right angles to the features: lengths are of no account.
        torch.testing.assert_close((leaf.grad * x).sum(dim=1), torch.zeros(len(x), dtype=torch.float64))
        gradients = [p.grad for p in fitted.parameters()]
        assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)
        assert len(gradients) == (kind == "rotated")
