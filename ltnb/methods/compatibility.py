"""Which slots go together: combinations that could not train, or would do something else than they say, are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ltnb.methods.slots import (
    ANCHORED,
    MEMORY_CONTRASTS,
    MIXED_VIEWS,
    MOMENTUM_CONTRASTS,
    NORMALISED_FEATURES,
    PRIOR_CONTRASTS,
    REQUIRED,
    SIMPLEX,
    SOFT_LABELS,
    WEIGHTED_SUMS,
)

if TYPE_CHECKING:
    from ltnb.methods.settings import MethodSettings


def check(settings: MethodSettings) -> None:
    """Refuse settings that do not go together.

    Raises:
        ValueError: the message opens with the setting that has to change, and says what was expected.
    """
    _every_setting_has_an_effect(settings)
    _losses_have_their_parameters(settings)
    _views_fit(settings)
    _classifier_fits(settings)
    _contrast_fits(settings)
    _second_stage_fits(settings)
    _sizes_are_corrected_once(settings)


def _every_setting_has_an_effect(settings: MethodSettings) -> None:
    for name in sorted(settings.model_fields_set):
        reasons = settings.idle_because(name)
        if reasons:
            expected = " or ".join(f"{slot} to be {' or '.join(map(repr, values))}" for slot, values in reasons)
            slot = reasons[0][0]
            raise ValueError(
                f"{name}: {getattr(settings, name)!r} has no effect while {slot} is {getattr(settings, slot)!r}; "
                f"expected {expected}"
            )
    for name, share in settings.idle_at_one.items():
        if name in settings.model_fields_set and getattr(settings, share) == 1:
            raise ValueError(
                f"{name}: {getattr(settings, name)!r} has no effect while {share} is 1; expected a lower {share}"
            )
    takes_logits = settings.correction == "logit-adjusted" or settings.contrast == "parametric"
    if (
        settings.classification == "dot-regression"
        and "classifier_scale" in settings.model_fields_set
        and not takes_logits
    ):
        raise ValueError(
            f"classifier_scale: {settings.classifier_scale!r} has no effect on classification 'dot-regression', which "
            "regresses cosines; expected no scale"
        )


def _losses_have_their_parameters(settings: MethodSettings) -> None:
    for name in REQUIRED:
        if settings.has_effect(name) and getattr(settings, name) is None:
            raise ValueError(
                f"{name}: is missing; classification {settings.classification!r} needs it, expected a number such as "
                "those in presets/noise-parameters.csv"
            )
    if settings.classification in WEIGHTED_SUMS and settings.active_weight == settings.passive_weight == 0:
        raise ValueError(
            f"active_weight: 0 and passive_weight 0 leave nothing of {settings.classification!r}; "
            "expected one of them to be positive"
        )


def _views_fit(settings: MethodSettings) -> None:
    views, contrast = settings.views, settings.contrast
    if contrast == "none" and settings.classified_views == "first" and len(views) != 1:
        raise ValueError(
            f"views: {list(views)} has views that nothing looks at; "
            "expected one view, a contrast, or classified_views to be 'all'"
        )
    if settings.classified_views == "all" and len(views) == 1:
        raise ValueError("classified_views: 'all' has no effect with a single view; expected further views")
    if contrast in MOMENTUM_CONTRASTS:
        if len(views) != 2:
            raise ValueError(
                f"views: {list(views)} has {len(views)}; contrast {contrast!r} compares a query with a key, "
                "expected two views"
            )
        if settings.classified_views == "all":
            raise ValueError("classified_views: 'all' has no gradient to the momentum encoder's view; expected 'first'")
    contrasted = views if contrast in MOMENTUM_CONTRASTS else views[1:] or views
    if contrast == "decoupled" and len(contrasted) != 2:
        raise ValueError(
            f"views: {list(views)} has {len(contrasted)} to contrast; contrast 'decoupled' tells an image's own other "
            "view from those of its class, expected two after the first"
        )
    mixed = [view for view in contrasted if view in MIXED_VIEWS]
    if contrast not in ("none", *MEMORY_CONTRASTS) and mixed:
        raise ValueError(
            f"views: {mixed[0]!r} has soft labels, and contrast {contrast!r} needs one class for each image"
        )
    if contrast in MEMORY_CONTRASTS and all(view in MIXED_VIEWS for view in views):
        raise ValueError(f"views: {list(views)} leaves the class memory no un-mixed view to remember")
    classified = views if settings.classified_views == "all" else views[:1]
    mixed = [view for view in classified if view in MIXED_VIEWS]
    if settings.classification not in SOFT_LABELS and mixed:
        raise ValueError(
            f"views: {mixed[0]!r} has soft labels, and classification {settings.classification!r} "
            "needs one class for each image"
        )


def _classifier_fits(settings: MethodSettings) -> None:
    classifier, classification = settings.classifier, settings.classification
    if classification in ("binary", "mse") and classifier != "normalised":
        raise ValueError(
            f"classification: {classification!r} is defined for unit classifier vectors with a bias; "
            f"expected classifier to be 'normalised', got {classifier!r}"
        )
    scaled = ("cosine", *SIMPLEX)
    if classification == "margin" and classifier not in scaled:
        raise ValueError(
            f"classification: 'margin' subtracts from cosines; expected classifier to be "
            f"{' or '.join(map(repr, scaled))}, got {classifier!r}"
        )
    if classification == "margin" and settings.margins == "ldam" and settings.margin == 0:
        raise ValueError("margin: 0 leaves no margin to share out; expected a positive one with margins 'ldam'")
    if classification == "dot-regression" and classifier not in ("anchored-cosine", "rotated"):
        raise ValueError(
            f"classification: 'dot-regression' moves features towards fixed vectors, with trained ones both collapse; "
            f"expected classifier to be 'anchored-cosine' or 'rotated', got {classifier!r}"
        )
    if settings.classifier_scale == "noise-aware" and classifier == "anchored":
        raise ValueError(
            "classifier_scale: 'noise-aware' bounds the logits of normalised features; expected classifier to be "
            f"{' or '.join(map(repr, NORMALISED_FEATURES))}, or a number"
        )
    if classifier in SIMPLEX and settings.spread != "none":
        raise ValueError(f"spread: {settings.spread!r} has nothing to move: the angles of this classifier are fixed")
    if classifier in ANCHORED:
        if settings.second_stage == "rebalance":
            raise ValueError("second_stage: 'rebalance' has nothing to train: an anchored classifier is fixed")
        if settings.contrast == "balanced" and settings.complement and settings.prototypes == "classifier":
            raise ValueError("prototypes: 'classifier' trains the classifier's vectors, which are anchored")


def _contrast_fits(settings: MethodSettings) -> None:
    if settings.contrast == "balanced" and settings.averaging == "L3" and not settings.complement:
        raise ValueError("averaging: 'L3' contrasts with prototypes; expected complement to be true")
    highest = settings.head_temperature if settings.contrast == "supervised" else None
    if highest is not None and highest < settings.temperature:
        raise ValueError(
            f"head_temperature: {highest} lies below temperature {settings.temperature}, that of the smallest class; "
            "expected at least as much"
        )
    if settings.synthesis != "none" and settings.contrast == "balanced" and not settings.synthetic_anchors:
        raise ValueError("synthetic_anchors: false keeps them out of the anchors; expected contrast 'supervised'")
    if settings.synthesis == "up-sampling" and settings.synthetic_features != "equalise":
        raise ValueError("synthetic_features: up-sampling repeats features until classes are equal ('equalise')")


def _second_stage_fits(settings: MethodSettings) -> None:
    if settings.second_stage == "rescale" and settings.classifier != "linear":
        raise ValueError(
            f"second_stage: 'rescale' trains the length of a classifier's vectors; expected classifier to be 'linear', "
            f"got {settings.classifier!r}"
        )
    if settings.smoothing_head < settings.smoothing_tail:
        raise ValueError(
            f"smoothing_head: {settings.smoothing_head} lies below smoothing_tail {settings.smoothing_tail}; label-"
            "aware smoothing gives away most of the largest class's labels, expected at least as much"
        )
    if settings.second_stage != "rebalance":
        return
    # With both, f_y estimates log p(x | y) − log π_y: what was rare is then taken for frequent.
    if settings.classification == "logit-adjusted" and settings.class_balance > 0:
        raise ValueError(
            "second_stage: 'rebalance' weighs classes by their size, for which classification 'logit-adjusted' "
            "corrects already; expected another classification, or second_stage to be 'retrain'"
        )
    if settings.max_norm is not None and settings.classifier not in ("linear", "normalised"):
        raise ValueError(
            f"max_norm: {settings.max_norm} leaves every cosine as it is; "
            "expected classifier to be 'linear' or 'normalised'"
        )


def _sizes_are_corrected_once(settings: MethodSettings) -> None:
    """Refuse two corrections for class size in one classifier, each of which assumes one that follows the sizes."""
    if settings.correction == "tau-normalised" and settings.classifier != "linear":
        raise ValueError(
            f"correction: 'tau-normalised' shortens a classifier's vectors; expected classifier to be 'linear', "
            f"got {settings.classifier!r}"
        )
    weighted = settings.class_weighting != "none" and settings.class_balance > 0
    corrections = [
        name
        for name, corrects in (
            ("correction", settings.correction != "none"),
            ("class_weighting", weighted),
            ("sampler", settings.sampler == "class-balanced"),
        )
        if corrects
    ]
    if not corrections:
        return
    found = f"{corrections[0]}: {getattr(settings, corrections[0])!r} corrects for the class sizes"
    if settings.classification == "logit-adjusted" and settings.classification_weight > 0:
        raise ValueError(f"{found}, and so does classification 'logit-adjusted'; expected one of them")
    if settings.contrast in PRIOR_CONTRASTS and settings.contrast_weight > 0:
        raise ValueError(f"{found}, and so does contrast {settings.contrast!r}; expected one of them")
    if settings.correction != "none" and settings.second_stage != "none":
        raise ValueError(f"{found}, and so does second_stage {settings.second_stage!r}; expected one of them")
    if len(corrections) > 1:
        raise ValueError(f"{found}, and so does {corrections[1]}; expected one of them")
