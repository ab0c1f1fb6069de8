"""What a row of params.yaml may say, and what is refused before anything is trained."""

import random
import re
from typing import Any

import any_method
import pytest
from pydantic import ValidationError

from ltnb.methods import (
    BCE3S,
    BCL,
    CRT,
    FNPAL,
    KCL,
    LDAM,
    LWS,
    PAL,
    RBL,
    TSC,
    ClassBalanced,
    CrossEntropy,
    DotRegression,
    FeatRecon,
    LogitAdjustment,
    MethodSettings,
    MixUp,
    PaCo,
    PostHocAdjustment,
    ProCo,
    Resampling,
    SupervisedContrastive,
    TauNormalised,
)  # fmt: skip

IMPOSSIBLE: list[tuple[type[MethodSettings], dict[str, Any], str]] = [
    # Out of range.
    (BCE3S, {"negative_rate": 0.0}, "negative_rate.*greater than 0"),
    (BCE3S, {"negative_rate": 1.1}, "negative_rate.*less than or equal to 1"),
    (FeatRecon, {"head_mix": -0.1}, "head_mix.*greater than or equal to 0"),
    (FeatRecon, {"head_mix": 1.1}, "head_mix.*less than or equal to 1"),
    (FeatRecon, {"head_mix": float("nan")}, "head_mix"),
    (FeatRecon, {"nearest_heads": 0}, "nearest_heads.*greater than or equal to 1"),
    (FeatRecon, {"support_quantile": 0.0}, "support_quantile.*greater than 0"),
    (FeatRecon, {"synthesis_start": -0.1}, "synthesis_start.*greater than or equal to 0"),
    (FeatRecon, {"projection_dim": 1}, "projection_dim.*greater than or equal to 2"),
    (FeatRecon, {"support_refresh": 0}, "support_refresh"),
    (FeatRecon, {"synthetic_features": 0}, "synthetic_features"),
    (FNPAL, {"classifier_scale": 0.0}, "classifier_scale.*greater than 0"),
    (BCL, {"prototypes": "ema", "prototype_momentum": 1.0}, "prototype_momentum.*less than 1"),
    (CrossEntropy, {"second_stage": "rebalance", "class_balance": 1.0}, "class_balance.*less than 1"),
    (CrossEntropy, {"second_stage": "rebalance", "max_norm": 0.0}, "max_norm.*greater than 0"),
    (CrossEntropy, {"feature_dim": 1}, "feature_dim.*greater than or equal to 2"),
    (CrossEntropy, {"snapshots": -1}, "snapshots"),
    (CrossEntropy, {"views": ()}, "views"),
    (LDAM, {"weighting_start": 0.0}, "weighting_start.*greater than 0"),
    (LDAM, {"weighting_start": 1.0}, "weighting_start.*less than 1"),
    (ClassBalanced, {"class_balance": 1.0}, "class_balance.*less than 1"),
    (TauNormalised, {"correction_strength": 0.0}, "correction_strength.*greater than 0"),
    (KCL, {"key_momentum": 1.0}, "key_momentum.*less than 1"),
    (KCL, {"queue_size": 0}, "queue_size.*greater than or equal to 1"),
    (KCL, {"num_positives": 0}, "num_positives.*greater than or equal to 1"),
    (TSC, {"target_weight": -0.1}, "target_weight.*greater than or equal to 0"),
    (PaCo, {"sample_weight": -0.1}, "sample_weight.*greater than or equal to 0"),
    (SupervisedContrastive, {"contrast": "decoupled", "own_weight": 0.0}, "own_weight.*greater than 0"),
    (SupervisedContrastive, {"contrast": "decoupled", "own_weight": 1.1}, "own_weight.*less than or equal to 1"),
    (CRT, {"smoothing_head": 1.0}, "smoothing_head.*less than 1"),
    # Unknown values and keys.
    (CrossEntropy, {"classifier": "cosin"}, "classifier.*'cosine'"),
    (CrossEntropy, {"views": ("mixed",)}, "views.*'mixup'"),
    (CrossEntropy, {"spread": True}, "spread"),
    (BCL, {"prototypes": "mlp"}, "prototypes.*'classifier'"),
    (BCL, {"averageing": "L1"}, "averageing"),
    (CrossEntropy, {"classification": "nce+gce"}, "classification.*'nce.rce'"),
    (CrossEntropy, {"sampler": "balanced"}, "sampler.*'class-balanced'"),
    (CrossEntropy, {"class_weighting": "drw"}, "class_weighting.*'deferred'"),
    (CrossEntropy, {"correction": "tau"}, "correction.*'tau-normalised'"),
    # Losses without their parameters, or with none that counts.
    (CrossEntropy, {"classification": "focal"}, "focal_gamma: is missing; classification 'focal' needs it, expected"),
    (PAL, {"classification": "nfl"}, "focal_gamma: is missing"),
    (PAL, {"classification": "gce", "focal_gamma": 0.5}, "focal_gamma: .* no effect while classification is 'gce'"),
    (FNPAL, {"classification": "gce"}, "gce_q: is missing"),
    (FNPAL, {"classification": "gce", "gce_q": None}, "gce_q: is missing"),
    (CrossEntropy, {"classification": "gce", "gce_q": 0.0}, "gce_q.*greater than 0"),
    (CrossEntropy, {"classification": "gce", "gce_q": 1.1}, "gce_q.*less than or equal to 1"),
    (CrossEntropy, {"classification": "focal", "focal_gamma": -1.0}, "focal_gamma.*greater than or equal to 0"),
    (CrossEntropy, {"classification": "sce", "active_weight": 1.0}, "passive_weight: is missing"),
    (CrossEntropy, {"classification": "nce+mae", "passive_weight": 1.0}, "active_weight: is missing"),
    (
        CrossEntropy,
        {"classification": "nfl+rce", "active_weight": 1.0, "passive_weight": 1.0},
        r"focal_gamma: is missing; classification 'nfl\+rce'",
    ),
    (
        CrossEntropy,
        {"classification": "nce+rce", "active_weight": 0.0, "passive_weight": 0.0},
        r"active_weight: 0 and passive_weight 0 leave nothing of 'nce\+rce'; expected",
    ),
    (CrossEntropy, {"classification": "mae", "views": ("mixup",)}, "views: 'mixup' has soft labels.*'mae'"),
    # Views that do not fit.
    (CrossEntropy, {"views": ("weak", "weak")}, r"views: \['weak', 'weak'\] has views that nothing looks at"),
    (CrossEntropy, {"classified_views": "all"}, "classified_views: 'all' has no effect with a single view"),
    (BCL, {"views": ("strong", "mixup", "strong")}, "views: 'mixup' has soft labels, and contrast 'balanced'"),
    (SupervisedContrastive, {"views": ("cutmix",), "classification": "cross-entropy"}, "views: 'cutmix'.*'supervised'"),
    (BCE3S, {"views": ("mixup", "cutmix")}, "views: .* leaves the class memory no un-mixed view"),
    (BCL, {"views": ("mixup", "strong", "strong")}, "views: 'mixup' has soft labels, and classification 'logit-adj"),
    (FNPAL, {"classification": "margin", "views": ("cutmix",)}, "views: 'cutmix' has soft labels.*'margin'"),
    (FNPAL, {"classification": "focal", "focal_gamma": 1.0, "views": ("mixup",)}, "views: 'mixup' has soft .* 'focal'"),
    (KCL, {"views": ("strong",)}, r"views: \['strong'\] has 1; contrast 'k-positive' .* expected two views"),
    (PaCo, {"views": ("strong", "sim", "rand")}, "views: .* has 3; contrast 'parametric' compares a query with a key"),
    (TSC, {"views": ("mixup", "strong")}, "views: 'mixup' has soft labels, and contrast 'targeted'"),
    (KCL, {"views": ("strong", "cutmix")}, "views: 'cutmix' has soft labels, and contrast 'k-positive'"),
    (PaCo, {"classified_views": "all"}, "classified_views: 'all' has no gradient .* expected 'first'"),
    (ProCo, {"views": ("strong", "mixup", "strong")}, "views: 'mixup' has soft labels, and contrast 'probabilistic'"),
    (SupervisedContrastive, {"contrast": "decoupled", "views": ("strong",)}, "views: .* has 1 to contrast;"),
    (
        SupervisedContrastive,
        {"contrast": "decoupled", "views": ("strong", "strong")},
        "views: .* has 1 to contrast; contrast 'decoupled' .* expected two after the first",
    ),
    (SupervisedContrastive, {"contrast": "decoupled", "views": ("strong",) * 4}, "views: .* has 3 to contrast;"),
    # Slots that do not fit each other.
    (CrossEntropy, {"classification": "binary"}, "classification: 'binary'.*'normalised', got 'linear'"),
    (CrossEntropy, {"classification": "mse", "classifier": "cosine"}, "classification: 'mse'.*got 'cosine'"),
    (CrossEntropy, {"classification": "margin"}, "classification: 'margin'.*'cosine'.*got 'linear'"),
    (BCE3S, {"classification": "margin"}, "classification: 'margin'.*got 'normalised'"),
    (FNPAL, {"classification": "margin", "margins": "ldam", "margin": 0.0}, "margin: 0 leaves no margin"),
    (PAL, {"classifier_scale": "noise-aware"}, "classifier_scale: 'noise-aware' .* expected classifier to be 'cosine'"),
    (FNPAL, {"classifier_scale": "noise-awar"}, "classifier_scale.*'noise-aware'"),
    (PAL, {"spread": "binary"}, "spread: 'binary' has nothing to move"),
    (FNPAL, {"second_stage": "rebalance"}, "second_stage: 'rebalance' has nothing to train"),
    (BCL, {"second_stage": "rebalance"}, "second_stage: 'rebalance' weighs classes .* 'logit-adjusted' corrects alr"),
    (
        CrossEntropy,
        {"classifier": "cosine", "second_stage": "rebalance", "max_norm": 0.1},
        r"max_norm: 0\.1 leaves every cosine as it is; expected classifier to be 'linear' or 'normalised'",
    ),
    (BCL, {"classifier": "anchored"}, "prototypes: 'classifier' trains the classifier's vectors, which are anchored"),
    (BCL, {"averaging": "L3", "complement": False}, "averaging: 'L3' contrasts with prototypes"),
    (FeatRecon, {"temperature": 0.5}, r"head_temperature: .* lies below temperature 0\.5"),
    (BCL, {"synthesis": "up-sampling", "synthetic_anchors": False}, "synthetic_anchors: false.*'supervised'"),
    (FeatRecon, {"synthesis": "up-sampling", "synthetic_features": 3}, "synthetic_features: up-sampling"),
    (CrossEntropy, {"classification": "dot-regression"}, "classification: 'dot-regression' .* got 'linear'"),
    (CrossEntropy, {"classification": "dot-regression", "classifier": "cosine"}, "'dot-regression' .* got 'cosine'"),
    (PAL, {"classification": "dot-regression"}, "expected classifier to be 'anchored-cosine' or 'rotated', got 'anch"),
    (DotRegression, {"classifier_scale": 5.0}, r"classifier_scale: 5\.0 has no effect on classification 'dot-regr"),
    (RBL, {"classifier_scale": "noise-awar"}, "classifier_scale"),
    (RBL, {"spread": "binary"}, "spread: 'binary' has nothing to move"),
    (RBL, {"anchors": "optimised"}, "anchors: 'optimised' has no effect while classifier is 'rotated'"),
    (RBL, {"classification": "binary"}, "classification: 'binary' .* got 'rotated'"),
    (LWS, {"classifier": "cosine"}, "second_stage: 'rescale' .* expected classifier to be 'linear', got 'cosine'"),
    (PAL, {"second_stage": "rescale"}, "second_stage: 'rescale' .* got 'anchored'"),
    (TauNormalised, {"classifier": "normalised"}, "correction: 'tau-normalised' .* 'linear', got 'normalised'"),
    (CRT, {"smoothing_tail": 0.1}, r"smoothing_head: 0\.0 lies below smoothing_tail 0\.1; .* at least as much"),
    (LWS, {"smoothing_head": 0.1, "smoothing_tail": 0.4}, r"smoothing_head: 0\.1 lies below smoothing_tail 0\.4"),
    # Class sizes are corrected for once.
    (
        LogitAdjustment,
        {"correction": "logit-adjusted"},
        "correction: 'logit-adjusted' corrects for the class sizes, and so does classification 'logit-adjusted'",
    ),
    (LogitAdjustment, {"correction": "tau-normalised"}, "correction: .* and so does classification"),
    (LogitAdjustment, {"class_weighting": "balanced"}, "class_weighting: 'balanced' .* and so does classification"),
    (LogitAdjustment, {"class_weighting": "deferred"}, "class_weighting: 'deferred' .* and so does classification"),
    (LogitAdjustment, {"sampler": "class-balanced"}, "sampler: 'class-balanced' .* and so does classification"),
    (PaCo, {"sampler": "class-balanced"}, "sampler: 'class-balanced' .* and so does contrast 'parametric'"),
    (PaCo, {"correction": "logit-adjusted"}, "correction: 'logit-adjusted' .* and so does contrast 'parametric'"),
    (ProCo, {"sampler": "class-balanced", "classification": "cross-entropy"}, "and so does contrast 'probabilistic'"),
    (CRT, {"correction": "logit-adjusted"}, "correction: .* and so does second_stage 'retrain'"),
    (LWS, {"correction": "tau-normalised"}, "correction: .* and so does second_stage 'rescale'"),
    (TauNormalised, {"second_stage": "rebalance"}, "correction: .* and so does second_stage 'rebalance'"),
    (PostHocAdjustment, {"sampler": "class-balanced"}, "correction: .* and so does sampler; expected one"),
    (PostHocAdjustment, {"class_weighting": "deferred"}, "correction: .* and so does class_weighting; expected one"),
    (Resampling, {"class_weighting": "balanced"}, "class_weighting: .* and so does sampler; expected one"),
]


FITTING: list[MethodSettings] = [
    MixUp(second_stage="rebalance"),  # which sees an image that is not mixed
    MixUp(second_stage="rescale", smoothing_head=0.4, smoothing_tail=0.1),
    ClassBalanced(views=("mixup",)),
    DotRegression(views=("mixup",)),
    LDAM(sampler="class-balanced", class_weighting="none"),
    Resampling(second_stage="retrain"),
    KCL(sampler="class-balanced", temperature=0.07),
    PaCo(second_stage="retrain"),
    # A term that does not count corrects for nothing.
    LogitAdjustment(
        classification_weight=0.0, views=("strong", "strong"), contrast="k-positive", sampler="class-balanced"
    ),
    ProCo(classification="cross-entropy", contrast_weight=0.0, class_weighting="balanced"),
    ClassBalanced(classification="logit-adjusted", class_balance=0.0),
    RBL(classification="dot-regression"),
    RBL(classification="margin", margins="ldam"),
    RBL(classifier_scale="noise-aware"),
    TSC(prototype_momentum=0.5),
    SupervisedContrastive(
        contrast="decoupled", own_weight=1.0, classification="cross-entropy", views=("mixup", "weak", "strong")
    ),
]


@pytest.mark.parametrize("settings", FITTING, ids=lambda settings: settings.system)
def test_what_goes_together_is_taken(settings: MethodSettings) -> None:
    for name in settings.model_fields_set:
        assert name in settings.slots()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("class_balance", 0.9, "second_stage to be 'rebalance' or class_weighting to be 'balanced' or 'deferred'"),
        ("prototype_momentum", 0.5, "contrast to be 'balanced' or contrast to be 'targeted'"),
    ],
)
def test_a_setting_of_several_slots_names_them_all(name: str, value: Any, told: str) -> None:
    with pytest.raises(ValidationError, match=f"{name}: {value!r} has no effect .* expected {told}"):
        CrossEntropy(**{name: value})


@pytest.mark.parametrize(("system", "changes", "told"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_with_the_settings_name(
    system: type[MethodSettings], changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValidationError, match=f"(?s){told}"):
        system(**changes)


@pytest.mark.parametrize("name", sorted(MethodSettings._owners))
def test_a_setting_without_effect_is_refused(name: str) -> None:
    """Cross-entropy on a linear classifier leaves all of them idle, with false, none and 0 as with any other value."""
    assert name not in CrossEntropy().slots()
    for value in any_method.CHOICES[name]:
        with pytest.raises(ValidationError, match=f"{name}: .* has no effect while .* expected"):
            CrossEntropy(**{name: value})


def test_which_negatives_are_drawn_has_no_effect_while_all_are_kept() -> None:
    with pytest.raises(ValidationError, match="negatives: 'batch' has no effect while negative_rate is 1"):
        BCE3S(negatives="batch")
    assert BCE3S(negatives="batch", negative_rate=0.4).negatives == "batch"


@pytest.mark.parametrize(("name", "value"), [("head_above", 5), ("nearest_heads", 1), ("head_weights", "printed")])
def test_heads_have_no_effect_while_no_class_borrows(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=f"{name}: {value!r} has no effect while head_mix is 1"):
        FeatRecon(**{name: value, "head_mix": 1.0})
    assert getattr(FeatRecon(**{name: value, "head_mix": 0.9}), name) == value


def test_without_weights_a_rebalanced_stage_corrects_the_prior_once() -> None:
    assert BCL(second_stage="rebalance", class_balance=0.0).class_balance == 0


@pytest.mark.parametrize(
    ("start", "epochs", "first"), [(0.29, 100, 30), (0.5, 60, 31), (0.0, 60, 2), (0.5, 3, 2), (0.999, 100, 100)]
)
def test_synthetic_features_begin_after_their_share_of_the_epochs(start: float, epochs: int, first: int) -> None:
    assert FeatRecon(synthesis_start=start).first_synthetic_epoch(epochs) == first


def test_a_systems_own_defaults_may_lie_idle() -> None:
    """An ablation switches a slot off; what the system set for it then counts for nothing."""
    without = FeatRecon(synthesis="none")
    assert without.slots().keys().isdisjoint({"nearest_heads", "head_above", "synthesis_start"})
    assert "temperature" not in BCE3S(contrast="mse").slots()
    assert BCE3S(contrast="binary").slots()["temperature"] == 1.0


@pytest.mark.parametrize("system", any_method.SYSTEMS)
def test_a_system_only_changes_defaults(system: type[MethodSettings]) -> None:
    assert system.model_fields.keys() == MethodSettings.model_fields.keys()
    for name in MethodSettings.model_fields.keys() - {"system"}:
        own, common = system.model_fields[name], MethodSettings.model_fields[name]
        assert (own.annotation, own.metadata) == (common.annotation, common.metadata), name
    system(**{name: field.default for name, field in system.model_fields.items() if name not in system._owners})


def test_every_setting_is_tried_at_random() -> None:
    assert any_method.CHOICES.keys() == MethodSettings.model_fields.keys() - {"system"}


COUNTS = [14, 6, 3, 1]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (FeatRecon(head_above=5, nearest_heads=3), "nearest_heads: 3 of 2 classes with more than 5 .* at most 2"),
        (FeatRecon(head_above=100), "nearest_heads: 2 of 0 classes"),
        (PAL(feature_dim=2), "feature_dim: 2 cannot hold the simplex of 4 anchors; expected at least 3, or anchors"),
        (RBL(feature_dim=2), "feature_dim: 2 cannot hold the simplex of 4 anchors; expected at least 3"),
        (DotRegression(feature_dim=2), "feature_dim: 2 cannot hold .* at least 3, or anchors to be 'optimised'"),
        (BCL(prototypes="anchored", projection_dim=2), "projection_dim: 2 cannot hold .* expected at least 3"),
    ],
)
def test_classes_that_the_slots_cannot_work_on(settings: MethodSettings, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        settings.check_classes(COUNTS)


def test_classes_at_the_limit_are_fine() -> None:
    FeatRecon(head_above=5, nearest_heads=2).check_classes(COUNTS)
    PAL(feature_dim=3).check_classes(COUNTS)
    PAL(feature_dim=2, anchors="optimised").check_classes(COUNTS)
    PAL().check_classes([1] * 65, feature_dim=64)
    with pytest.raises(ValueError, match="feature_dim: 64 cannot hold the simplex of 66 anchors"):
        PAL().check_classes([1] * 66, feature_dim=64)
    BCL(prototypes="anchored", projection_dim=3).check_classes(COUNTS)
    FeatRecon(synthesis="none").check_classes(COUNTS)
    FeatRecon(head_mix=1.0).check_classes(COUNTS)  # no class borrows from a head
    BCL(complement=False, projection_dim=2).check_classes(COUNTS)
    RBL(feature_dim=3).check_classes(COUNTS)
    DotRegression(feature_dim=2, anchors="optimised").check_classes(COUNTS)
    TSC(projection_dim=2).check_classes(COUNTS)  # its targets need no simplex


def test_settings_at_random_are_taken_or_refused_by_name() -> None:
    source = random.Random(0)
    refused = 0
    for _ in range(1000):
        system, changes = any_method.candidate(source)
        try:
            settings = system(**changes)
        except ValidationError as error:
            refused += 1
            for fault in error.errors():
                told = re.match(
                    r"Value error, (\w+): .*(expected|needs|no un-mixed|fixed|anchored|equal)", fault["msg"]
                )
                assert told, (fault["msg"], system, changes)
                assert told[1] in MethodSettings.model_fields
        else:
            assert settings.slots()["system"] == settings.system
    assert 100 < refused < 1000


def test_a_rotated_simplex_that_does_not_fit_is_not_told_to_optimise_its_anchors() -> None:
    """Which is refused as well: only fixed anchors have a form."""
    with pytest.raises(ValueError, match="feature_dim: 2 cannot hold the simplex of 4 anchors") as told:
        RBL(feature_dim=2).check_classes(COUNTS)
    assert "optimised" not in str(told.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"correction": "logit-adjusted"},  # s f − τ log π
        {"contrast": "parametric", "views": ("strong", "strong")},  # the scores beside the samples in one softmax
    ],
)
def test_a_scale_counts_with_dot_regression_where_something_else_takes_the_logits(changes: dict[str, Any]) -> None:
    assert DotRegression(classifier_scale=5.0, **changes).classifier_scale == 5.0
