"""Methods, assembled: the terms of each against the losses put together by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ltnb import losses
from ltnb.methods import (
    BCE3S,
    BCL,
    PAL,
    CrossEntropy,
    FeatRecon,
    LogitAdjustment,
    MethodSettings,
    SupervisedContrastive,
)
from ltnb.methods.assembly import Method
from ltnb.models.heads import CosineClassifier

COUNTS = [40, 10, 3, 1]


def method_of(settings: MethodSettings) -> Method:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Method(settings, "resnet8", 1, COUNTS)


def terms_of(method: Method, views: list[Tensor], y: Tensor) -> dict[str, Tensor]:
    return method.losses(views, [y] * len(views), torch.Generator().manual_seed(2))


def batch(number_of_views: int, size: int = 12) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(1)
    views = [torch.randn(size, 1, 8, 8, generator=generator) for _ in range(number_of_views)]
    return views, torch.randint(len(COUNTS), (size,), generator=generator)


def features_of(method: Method, views: list[Tensor]) -> list[Tensor]:
    return list(method.encoder(torch.cat(views)).chunk(len(views)))


def test_cross_entropy() -> None:
    method = method_of(CrossEntropy())
    views, y = batch(1)
    terms = terms_of(method, views, y)
    expected = F.cross_entropy(method.classifier(features_of(method, views)[0]), y)
    torch.testing.assert_close(terms["total"], expected)
    assert set(terms) == {"classification", "total"}


def test_logit_adjustment_adds_the_log_prior_in_training_and_not_to_what_is_evaluated() -> None:
    method = method_of(LogitAdjustment(adjustment_strength=1.5))
    views, y = batch(1)
    raw = method.classifier(features_of(method, views)[0])
    prior = torch.tensor(COUNTS) / sum(COUNTS)
    torch.testing.assert_close(terms_of(method, views, y)["total"], F.cross_entropy(raw + 1.5 * prior.log(), y))
    torch.testing.assert_close(method.logits(views[0]), raw)


def test_supervised_contrastive_contrasts_all_views_but_the_first() -> None:
    method = method_of(SupervisedContrastive(classification_weight=1.3, contrast_weight=0.7, temperature=0.2))
    views, y = batch(3)
    terms = terms_of(method, views, y)
    features = features_of(method, views)
    z = method.contrast.projector(torch.cat(features[1:]))  # type: ignore[union-attr]
    contrast = losses.supervised_contrastive(z, torch.cat([y, y]), temperature=0.2)
    classification = losses.logit_adjusted_cross_entropy(method.classifier(features[0]), y, torch.tensor(COUNTS))
    torch.testing.assert_close(terms["contrast"], contrast)
    torch.testing.assert_close(terms["total"], 1.3 * classification + 0.7 * contrast)


@pytest.mark.parametrize("classifier", ["linear", "cosine"])
@pytest.mark.parametrize("averaging", ["none", "L1", "L2", "L3"])
def test_bcl_with_either_classifier(classifier: Any, averaging: Any) -> None:
    settings = BCL(classifier=classifier, averaging=averaging, anchor_weighting="class")
    method = method_of(settings)
    views, y = batch(3)
    terms = terms_of(method, views, y)
    features = features_of(method, views)
    # A prototype a class, from the raw weight of that class: rows of the weight, whichever the classifier.
    assert method.classifier.weight.shape == (4, 64)
    c = method.contrast.class_prototypes.projector(method.classifier.weight)  # type: ignore[union-attr]
    assert c.shape == (4, 128)
    contrast = losses.balanced_contrastive(
        method.contrast.projector(torch.cat(features[1:])),  # type: ignore[union-attr]
        torch.cat([y, y]),
        c,
        temperature=0.1,
        averaging=averaging,
        anchor_weighting="class",
    )
    torch.testing.assert_close(terms["contrast"], contrast)
    torch.testing.assert_close(terms["total"], 2.0 * terms["classification"] + 0.6 * terms["contrast"])
    terms["contrast"].backward()
    assert method.classifier.weight.grad is not None  # the contrast trains the classifier through the prototypes
    assert method.classifier.weight.grad.abs().sum() > 0


def test_bcl_without_complement_has_no_prototypes() -> None:
    method = method_of(BCL(complement=False))
    assert method.prototypes() is None
    assert method.contrast.class_prototypes is None  # type: ignore[union-attr]
    views, y = batch(3)
    assert terms_of(method, views, y)["total"].isfinite()


def test_bcl_without_averaging_and_complement_is_supervised_contrastive() -> None:
    views, y = batch(3)
    bare = method_of(BCL(complement=False, averaging="none"))
    supervised = method_of(SupervisedContrastive())
    torch.testing.assert_close(terms_of(bare, views, y), terms_of(supervised, views, y))


@pytest.mark.parametrize("spread", ["binary", "cross-entropy", "mse"])
def test_the_spread_term_is_of_the_classifiers_vectors_alone(spread: Any) -> None:
    method = method_of(BCE3S(spread=spread, spread_weight=0.7, contrast_weight=0.2, classification_weight=0.5))
    views, y = batch(1)
    terms = terms_of(method, views, y)
    w = F.normalize(method.classifier.weight.detach().double(), dim=1).tolist()
    expected = 0.0
    for k in range(4):
        cosines = [sum(a * b for a, b in zip(w[k], w[j], strict=True)) for j in range(4)]
        others = [cosine for j, cosine in enumerate(cosines) if j != k]
        if spread == "binary":
            expected += sum(math.log1p(math.exp(cosine)) for cosine in others) / 4
        elif spread == "mse":
            expected += sum((cosine + 1 / 3) ** 2 for cosine in others) / 4
        else:
            expected += (math.log(sum(math.exp(cosine) for cosine in cosines)) - 1) / 4
    assert terms["spread"].item() == pytest.approx(expected, rel=1e-5)
    total = 0.5 * terms["classification"] + 0.2 * terms["contrast"] + 0.7 * terms["spread"]
    torch.testing.assert_close(terms["total"], total)
    terms["spread"].backward()
    assert [name for name, p in method.named_parameters() if p.grad is not None] == ["first_classifier.weight"]


def test_all_views_classified_each_with_its_own_labels() -> None:
    method = method_of(
        BCE3S(views=("strong", "mixup"), classified_views="all", classification="cross-entropy", contrast="none")
    )
    views, y = batch(2)
    soft = torch.softmax(torch.randn(12, 4, generator=torch.Generator().manual_seed(3)), dim=1)
    found = method.losses(views, [y, soft], torch.Generator())["classification"]
    first, second = (method.classifier(features) for features in features_of(method, views))
    torch.testing.assert_close(found, (F.cross_entropy(first, y) + F.cross_entropy(second, soft)) / 2)


def test_by_default_the_first_view_alone_is_classified() -> None:
    method = method_of(BCL(classification="cross-entropy"))
    views, y = batch(3)
    found = terms_of(method, views, y)["classification"]
    torch.testing.assert_close(found, F.cross_entropy(method.classifier(features_of(method, views)[0]), y))


def test_classes_that_do_not_fit_are_refused_when_a_method_is_made() -> None:
    with pytest.raises(ValueError, match="nearest_heads: 2 of 1 classes"):
        method_of(FeatRecon())
    with pytest.raises(ValueError, match="feature_dim: 2 cannot hold the simplex of 4 anchors"):
        method_of(PAL(feature_dim=2))


def test_cosine_classifier_scale() -> None:
    method = method_of(CrossEntropy(classifier="cosine", classifier_scale=7.0))
    assert isinstance(method.classifier, CosineClassifier)
    assert method.classifier.scale == 7.0


def test_the_share_of_anchors_with_a_positive_is_reported() -> None:
    method = method_of(SupervisedContrastive(views=("weak", "strong")))
    views, _ = batch(2, size=4)
    terms = terms_of(method, views, torch.tensor([0, 0, 1, 2]))  # one contrasted view: classes 1 and 2 have no positive
    assert terms["valid_anchors"].item() == 0.5


@pytest.mark.parametrize("settings", [CrossEntropy(), LogitAdjustment(), SupervisedContrastive(), BCL()])
def test_embedding_is_where_classifier_and_contrast_work(settings: MethodSettings) -> None:
    method = method_of(settings).eval()
    views, _ = batch(1)
    features, projections = method.embed(views[0])
    torch.testing.assert_close(method.classifier(features), method.logits(views[0]))
    if settings.contrast == "none":
        assert projections is None
    else:
        assert projections is not None
        torch.testing.assert_close(projections.norm(dim=1), torch.ones(len(projections)))


@pytest.mark.parametrize("settings", [SupervisedContrastive(temperature=0.01), BCL(temperature=0.01)])
def test_small_temperature_under_bfloat16_autocast(settings: MethodSettings) -> None:
    method = method_of(settings)
    views, y = batch(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        terms = terms_of(method, views, y)
    terms["total"].backward()
    assert all(term.isfinite() for term in terms.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters())
