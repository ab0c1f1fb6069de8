import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb.geometry import regular_simplex, rotation
from ltnb.losses import bce_joint
from ltnb.models.heads import (
    AnchoredClassifier,
    CosineClassifier,
    NormalisedClassifier,
    Projector,
    RescaledClassifier,
    RotatedClassifier,
)


def test_cosine_logits_by_hand() -> None:
    classifier = CosineClassifier(2, 2, scale=30.0)
    with torch.no_grad():
        classifier.weight.copy_(torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
    logits = classifier(torch.tensor([[0.0, 7.0]]))
    torch.testing.assert_close(logits, 30 * torch.tensor([[0.0, 0.5**0.5]]))


def test_cosine_logits_do_not_see_lengths() -> None:
    classifier = CosineClassifier(5, 3, scale=30.0)
    x = torch.randn(4, 5)
    before = classifier(x)
    with torch.no_grad():
        classifier.weight.mul_(torch.tensor([[0.1], [1.0], [50.0]]))
    torch.testing.assert_close(classifier(9 * x), before)


@pytest.mark.parametrize("training", [True, False])
def test_projections_are_unit_rows(training: bool) -> None:
    projector = Projector(6, 16, 4).train(training)
    z = projector(torch.randn(9, 6))
    assert z.shape == (9, 4)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(9))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_normalised_logits_by_loops(dtype: torch.dtype) -> None:
    classifier = NormalisedClassifier(4, 3).to(dtype)
    with torch.no_grad():
        classifier.bias.copy_(torch.tensor([0.5, -1.0, 2.0]))
    features = torch.randn(6, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))
    expected = torch.empty(6, 3, dtype=dtype)
    for i, x in enumerate(features.tolist()):
        for k, w in enumerate(classifier.weight.tolist()):
            products = [a * b for a, b in zip(x, w, strict=True)]
            expected[i, k] = sum(products) / math.hypot(*w) + classifier.bias[k].item()
    torch.testing.assert_close(classifier(features), expected)


def test_normalised_logits_are_those_of_the_joint_loss() -> None:
    classifier = NormalisedClassifier(4, 3).double()
    features, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 0, 0])
    loss = bce_joint(features, y, classifier.weight, classifier.bias)
    own = F.one_hot(y, 3).double()
    expected = F.binary_cross_entropy_with_logits(classifier(features), own, reduction="none").sum(dim=1).mean()
    torch.testing.assert_close(loss, expected)


def test_normalised_weights_start_at_kaimings_normal_and_biases_at_zero() -> None:
    torch.manual_seed(0)
    classifier = NormalisedClassifier(400, 500)
    # 200,000 draws of N(0, 1/400): the standard error of the deviation is 0.16 %.
    assert float(classifier.weight.detach().std()) == pytest.approx(1 / 20, rel=0.01)
    assert float(classifier.weight.detach().abs().max()) > 4 / 20  # a uniform distribution of that deviation ends at √3
    assert torch.equal(classifier.bias, torch.zeros(500))


@pytest.mark.parametrize("normalise_features", [True, False])
def test_anchored_logits_by_hand(normalise_features: bool) -> None:
    classifier = AnchoredClassifier(5, 4, scale=3.0, normalise_features=normalise_features)
    torch.testing.assert_close(classifier.weight @ classifier.weight.T, (4 * torch.eye(4) - 1) / 3)
    logits = classifier(7 * classifier.weight)
    length = 1 if normalise_features else 7
    torch.testing.assert_close(logits, 3 * length * (4 * torch.eye(4) - 1) / 3)


def test_anchors_are_not_trained() -> None:
    classifier = AnchoredClassifier(5, 4, scale=1.0, normalise_features=False)
    assert not list(classifier.parameters())
    features = torch.randn(3, 5, requires_grad=True)
    classifier(features).logsumexp(dim=1).sum().backward()
    assert classifier.weight.grad is None
    assert features.grad is not None


def test_a_resumed_run_has_the_same_anchors() -> None:
    first, resumed = (AnchoredClassifier(5, 4, scale=1.0, normalise_features=True) for _ in range(2))
    assert not torch.allclose(first.weight, resumed.weight)
    assert list(first.state_dict()) == ["weight"]
    resumed.load_state_dict(first.state_dict())
    assert torch.equal(first.weight, resumed.weight)


def test_orientation_comes_from_the_generator_or_from_torchs_own() -> None:
    def weight(generator: torch.Generator | None = None) -> Tensor:
        return AnchoredClassifier(5, 4, scale=1.0, normalise_features=True, generator=generator).weight

    assert torch.equal(weight(torch.Generator().manual_seed(1)), weight(torch.Generator().manual_seed(1)))
    state = torch.get_rng_state()
    first = weight()
    torch.set_rng_state(state)
    assert torch.equal(weight(), first)
    state = torch.get_rng_state()
    weight(torch.Generator().manual_seed(1))
    assert torch.equal(torch.get_rng_state(), state)


def test_non_negative_features_reach_a_random_simplex_in_every_class_but_not_one_along_the_axes() -> None:
    def margins(prototypes: Tensor) -> Tensor:
        # The prototype without its negative coordinates is the closest direction of non-negative features.
        products = F.normalize(prototypes.relu(), dim=1) @ prototypes.T
        return products.diagonal() - products.masked_fill(torch.eye(10, dtype=torch.bool), -2).amax(dim=1)

    anchored = AnchoredClassifier(
        64, 10, scale=1.0, normalise_features=True, generator=torch.Generator().manual_seed(0)
    )
    assert float(margins(anchored.weight).min()) > 0.3
    assert float(margins(regular_simplex(10, 64).float()).min()) <= 0


def test_anchors_in_too_few_dimensions() -> None:
    with pytest.warns(UserWarning, match=r"5 prototypes in R\^2 .* smallest angle 72\.00° instead of 104\.48°"):
        classifier = AnchoredClassifier(2, 5, scale=1.0, normalise_features=True)
    torch.testing.assert_close(classifier.weight.norm(dim=1), torch.ones(5))
    with pytest.raises(ValueError, match=r"dim=2 cannot hold a regular simplex of 5 vertices.* at least 4"):
        AnchoredClassifier(2, 5, scale=1.0, normalise_features=True, form="simplex")


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_that_is_not_positive_is_named(scale: float) -> None:
    with pytest.raises(ValueError, match=f"scale must be a positive number, got {scale}"):
        AnchoredClassifier(5, 4, scale=scale, normalise_features=True)


def turned_classifier(scale: float = 2.0) -> RotatedClassifier:
    generator = torch.Generator().manual_seed(3)
    classifier = RotatedClassifier(5, 4, scale=scale, generator=generator)
    with torch.no_grad():
        classifier.generator_matrix.normal_(generator=generator)
    return classifier


def test_rotated_logits_by_loops() -> None:
    classifier = turned_classifier(scale=3.0).double()
    turn = rotation(classifier.generator_matrix.detach())
    features = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = [[float(3 * (turn @ w) @ x / x.norm()) for w in classifier.anchors] for x in features]
    torch.testing.assert_close(classifier(features), torch.tensor(expected, dtype=torch.float64))


def test_a_rotated_classifier_starts_as_the_anchored_one() -> None:
    rotated, anchored = (
        make(5, 4, scale=2.0, generator=torch.Generator().manual_seed(1), **more)
        for make, more in ((RotatedClassifier, {}), (AnchoredClassifier, {"normalise_features": True}))
    )
    assert torch.equal(rotated.weight, anchored.weight)
    features = torch.randn(3, 5)
    torch.testing.assert_close(rotated(features), anchored(features))


def test_only_the_rotation_is_trained_and_the_simplex_stays_one() -> None:
    classifier = RotatedClassifier(6, 4, scale=2.0, generator=torch.Generator().manual_seed(0))
    assert [name for name, _ in classifier.named_parameters()] == ["generator_matrix"]
    optimiser = torch.optim.SGD(classifier.parameters(), lr=0.5)
    # Features of another simplex: a rotation takes the anchors onto it.
    features, y = regular_simplex(4, 6, generator=torch.Generator().manual_seed(1)).float(), torch.arange(4)
    anchors, losses = classifier.anchors.clone(), []
    for _ in range(300):
        optimiser.zero_grad()
        loss = F.cross_entropy(classifier(features), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] == pytest.approx(math.log1p(3 * math.exp(-2 * 4 / 3)), rel=1e-3)
    assert losses[0] > 3 * losses[-1]
    torch.testing.assert_close(classifier.weight.detach(), features, rtol=0, atol=0.01)
    torch.testing.assert_close(classifier.weight @ classifier.weight.T, (4 * torch.eye(4) - 1) / 3, rtol=0, atol=1e-5)
    assert torch.equal(classifier.anchors, anchors)


def test_a_resumed_run_has_the_same_rotated_anchors() -> None:
    first, resumed = turned_classifier(), RotatedClassifier(5, 4, scale=2.0)
    assert sorted(first.state_dict()) == ["anchors", "generator_matrix"]
    resumed.load_state_dict(first.state_dict())
    assert torch.equal(first.weight, resumed.weight)


def test_bad_arguments_of_a_rotated_classifier_are_named() -> None:
    with pytest.raises(ValueError, match=r"scale must be a positive number, got 0\.0"):
        RotatedClassifier(5, 4, scale=0.0)
    with pytest.raises(ValueError, match=r"dim=2 cannot hold a regular simplex of 5 vertices.* at least 4"):
        RotatedClassifier(2, 5, scale=1.0)


def rescaled_classifier(bias: bool = True) -> RescaledClassifier:
    generator = torch.Generator().manual_seed(4)
    weight, offsets = torch.randn(4, 5, generator=generator), torch.randn(4, generator=generator)
    classifier = RescaledClassifier(weight, offsets if bias else None)
    with torch.no_grad():
        classifier.scales.copy_(torch.tensor([0.5, 1.0, -2.0, 3.0]))
    return classifier


@pytest.mark.parametrize("bias", [True, False])
def test_rescaled_logits_by_loops(bias: bool) -> None:
    classifier = rescaled_classifier(bias)
    features = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    expected = torch.empty(6, 4)
    for i, x in enumerate(features.tolist()):
        for k, w in enumerate(classifier.frozen_weight.tolist()):
            product = sum(a * b for a, b in zip(x, w, strict=True))
            offset = 0.0 if classifier.frozen_bias is None else classifier.frozen_bias[k].item()
            expected[i, k] = classifier.scales[k].item() * (product + offset)
    torch.testing.assert_close(classifier(features), expected)
    torch.testing.assert_close(F.linear(features, classifier.weight, classifier.bias), expected)


def test_a_rescaled_classifier_starts_as_the_one_it_takes_over_and_trains_its_scales_alone() -> None:
    linear = torch.nn.Linear(5, 4)
    classifier = RescaledClassifier(linear.weight, linear.bias)
    features = torch.randn(3, 5)
    expected = linear(features).detach()
    torch.testing.assert_close(classifier(features), expected)
    assert [name for name, _ in classifier.named_parameters()] == ["scales"]
    classifier(features).logsumexp(dim=1).sum().backward()
    assert classifier.scales.grad is not None
    assert linear.weight.grad is None
    with torch.no_grad():
        linear.weight.zero_()
    torch.testing.assert_close(classifier(features), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_resumed_run_has_the_same_rescaled_classifier(bias: bool) -> None:
    first = rescaled_classifier(bias)
    resumed = RescaledClassifier(torch.zeros(4, 5), torch.zeros(4) if bias else None)
    resumed.load_state_dict(first.state_dict())
    features = torch.randn(3, 5)
    assert torch.equal(first(features), resumed(features))


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        (torch.zeros(4), None, r"weight must be a non-empty floating-point matrix.* got shape \(4,\)"),
        (torch.zeros(4, 5).long(), None, "weight must be .* dtype torch.int64"),
        (torch.zeros(4, 5), torch.zeros(5), r"bias must hold one .* for each of 4 classes, got shape \(5,\)"),
        (torch.zeros(4, 5), torch.zeros(4).long(), "bias must hold one .* dtype torch.int64"),
    ],
)
def test_what_cannot_be_rescaled_is_named(weight: Tensor, bias: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RescaledClassifier(weight, bias)


@pytest.mark.parametrize(
    "classifier",
    [
        NormalisedClassifier(5, 4),
        AnchoredClassifier(5, 4, scale=2.0, normalise_features=True),
        turned_classifier(),
        rescaled_classifier(),
    ],
    ids=["normalised", "anchored", "rotated", "rescaled"],
)
def test_bfloat16_logits_are_close_and_gradients_are_right(classifier: torch.nn.Module) -> None:
    precise = copy.deepcopy(classifier).double()
    features = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(precise, features.clone().requires_grad_())
    rough = copy.deepcopy(classifier).bfloat16()(features.bfloat16())
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.double(), precise(features), rtol=0.05, atol=0.05)
