"""The slots of a method as settings: what a row of ``params.yaml`` may say."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

View = Literal["none", "weak", "strong", "sim", "rand", "mixup", "cutmix"]
MIXED_VIEWS = ("mixup", "cutmix")  # of two images each: their labels are soft
Views = Annotated[tuple[View, ...], Field(min_length=1, strict=False)]
Classifier = Literal["linear", "cosine", "normalised", "anchored", "anchored-cosine"]
Classification = Literal[
    "cross-entropy",
    "logit-adjusted",
    "margin",
    "binary",
    "mse",
    "focal",
    "gce",
    "sce",
    "mae",
    "rce",
    "nce",
    "nfl",
    "nsl",
    "nce+mae",
    "nce+rce",
    "nfl+rce",
]
Contrast = Literal["none", "supervised", "balanced", "binary", "cross-entropy", "mse"]
Prototypes = Literal["classifier", "ema", "learnable", "anchored"]
Spread = Literal["none", "binary", "cross-entropy", "mse"]
Synthesis = Literal["none", "up-sampling", "supports"]
Count = Annotated[int, Field(ge=1)]
Dimension = Annotated[int, Field(ge=2)]
NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=1e-3, allow_inf_nan=False)]  # below, 1/τ leaves float32's useful range
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Scale = Positive | Literal["noise-aware"]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]

PAIRED_CONTRASTS = ("supervised", "balanced")  # an image against the others of its batch
MEMORY_CONTRASTS = ("binary", "cross-entropy", "mse")  # an image against one remembered projection a class
CONTRASTS = PAIRED_CONTRASTS + MEMORY_CONTRASTS
ANCHORED = ("anchored", "anchored-cosine")  # classifiers that are fixed before training
NORMALISED_FEATURES = ("cosine", "anchored-cosine")  # classifiers whose logits lie in [−s, s]
SOFT_LABELS = ("cross-entropy", "binary", "mse")  # classifications that take mixed labels
WEIGHTED_SUMS = ("sce", "nce+mae", "nce+rce", "nfl+rce")  # of an active and a passive loss
# What a loss needs and no default could know: its papers set it for every data set anew.
REQUIRED = ("focal_gamma", "gce_q", "active_weight", "passive_weight")


class MethodSettings(BaseModel):
    """A method, slot by slot: L = λ · classification + μ · contrast + ν · spread.

    A *system* (``ce``, ``bcl``, …) is a subclass that only changes defaults, so any slot of any system can be
    set in a row of ``params.yaml``: an ablation, or a cross between two papers, is data and not code.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    system: str

    # The first view of an image is classified and the others are contrasted; a single view is both.
    views: Views = ("strong",)
    classified_views: Literal["first", "all"] = "first"

    # Of the encoder: without its last ReLU features may be negative, as a simplex around the origin needs them;
    # feature_dim adds a linear layer to so many dimensions, such as 2 or 3 for a picture that hides nothing.
    last_relu: bool = True
    feature_dim: Dimension | None = None

    classifier: Classifier = "linear"
    # s, of cosine and anchored ones; 30 as BCL's code sets it. "noise-aware" is PAL's 0.25/(0.05 + η).
    classifier_scale: Scale = 30.0
    # A regular simplex of K anchors needs K − 1 dimensions; the paper's optimisation places them in fewer, and warns
    # of what is lost.
    anchors: Literal["simplex", "optimised"] = "simplex"

    classification: Classification = "cross-entropy"
    classification_weight: Weight = 1.0  # λ
    adjustment_strength: Positive = 1.0  # τ of logit adjustment; 1 is the Bayes-consistent value
    margins: Literal["equal", "ldam"] = "equal"  # ldam: ∝ n_k^(−1/4)
    margin: Weight = 0.5  # α of every class, or with ldam of the rarest one, where 0.5 is the usual value
    negative_rate: PositiveShare = 1.0  # r, the share of classes that binary classification takes as negatives
    negatives: Literal["independent", "batch"] = "independent"  # drawn for every sample, or once for a batch
    # Of the losses for wrong labels. presets/noise-parameters.csv has what the papers' codes take for each data set.
    focal_gamma: Weight | None = None  # γ
    gce_q: PositiveShare | None = None  # q
    active_weight: Weight | None = None  # α, of the loss that raises p_y: NCE, NFL, in SCE cross-entropy
    passive_weight: Weight | None = None  # β, of the loss that lowers the others' p: MAE, RCE

    contrast: Contrast = "none"
    contrast_weight: Weight = 1.0  # μ
    temperature: Temperature = 0.1  # τ of the contrast; 0.1 is BCL's for CIFAR, 0.07 for ImageNet-LT
    head_temperature: Temperature | None = None  # τ₊ of the largest class; then τ₋ = temperature is the smallest one's
    projection_hidden: Count = 512
    projection_dim: Dimension = 128
    projection_norm: bool = True  # batch normalisation in the projector

    # Of the balanced contrast alone.
    averaging: Literal["none", "L1", "L2", "L3"] = "L1"
    anchor_weighting: Literal["sample", "class"] = "sample"
    complement: bool = True  # prototypes of every class stand in the batch
    prototypes: Prototypes = "classifier"
    prototype_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of ema, once a step in which the class is seen

    spread: Spread = "none"
    spread_weight: Weight = 1.0  # ν

    # Features that no image has, for the contrast.
    synthesis: Synthesis = "none"
    synthetic_features: Count | Literal["equalise"] = "equalise"  # of each class in a batch; or up to its largest class
    synthetic_anchors: bool = True  # anchors as well as keys
    # The part of training before them: supports of features that have not formed yet say little.
    synthesis_start: Annotated[float, Field(ge=0, lt=1)] = 0.5
    support_refresh: Count = 1  # epochs
    support_quantile: PositiveShare = 0.99  # α
    support_law: Literal["truncated-normal", "uniform"] = "truncated-normal"
    support_cap: bool = True  # at ½ arccos(−1/(K−1))
    head_above: NonNegative = 100  # classes of more training images are heads
    nearest_heads: Count = 1  # q
    head_mix: Share = 0.5  # γ; 1 leaves every class its own support
    head_weights: Literal["corrected", "printed"] = "corrected"  # ω

    # A second stage on the frozen encoder: the same classifier with class-balanced weights, or a new linear one
    # with class-balanced sampling (cRT).
    second_stage: Literal["none", "rebalance", "retrain"] = "none"
    second_stage_epochs: Count = 10
    second_stage_learning_rate: Positive = 0.01
    class_balance: Annotated[float, Field(ge=0, lt=1)] = 0.9999  # β; 0 weighs every class the same
    # The longest a classifier vector may be. The logits of a normalised classifier do not depend on it: there it lets
    # every step turn the vectors further, in proportion to 1/length². BCE3S's code does so, with 0.1.
    max_norm: Positive | None = None

    # Where a method needs another optimiser than the protocol's; then a comparison has to say so.
    learning_rate: Positive | None = None
    weight_decay: Weight | None = None

    snapshots: NonNegative = 0  # moments of training, evenly spaced, whose embeddings are kept

    # A setting means something only while another slot holds one of these values.
    _owners: ClassVar[dict[str, tuple[str, tuple[str | bool, ...]]]] = {
        "classifier_scale": ("classifier", ("cosine", "anchored", "anchored-cosine")),
        "anchors": ("classifier", ANCHORED),
        "adjustment_strength": ("classification", ("logit-adjusted",)),
        "margins": ("classification", ("margin",)),
        "margin": ("classification", ("margin",)),
        "negative_rate": ("classification", ("binary",)),
        "negatives": ("classification", ("binary",)),
        "focal_gamma": ("classification", ("focal", "nfl", "nfl+rce")),
        "gce_q": ("classification", ("gce",)),
        "active_weight": ("classification", WEIGHTED_SUMS),
        "passive_weight": ("classification", WEIGHTED_SUMS),
        "contrast_weight": ("contrast", CONTRASTS),
        "temperature": ("contrast", (*PAIRED_CONTRASTS, "binary", "cross-entropy")),
        "head_temperature": ("contrast", ("supervised",)),
        "projection_hidden": ("contrast", CONTRASTS),
        "projection_dim": ("contrast", CONTRASTS),
        "projection_norm": ("contrast", CONTRASTS),
        "averaging": ("contrast", ("balanced",)),
        "anchor_weighting": ("contrast", ("balanced",)),
        "complement": ("contrast", ("balanced",)),
        "prototypes": ("complement", (True,)),
        "prototype_momentum": ("prototypes", ("ema",)),
        "spread_weight": ("spread", ("binary", "cross-entropy", "mse")),
        "synthesis": ("contrast", PAIRED_CONTRASTS),
        "synthetic_features": ("synthesis", ("up-sampling", "supports")),
        "synthetic_anchors": ("synthesis", ("up-sampling", "supports")),
        "synthesis_start": ("synthesis", ("supports",)),
        "support_refresh": ("synthesis", ("supports",)),
        "support_quantile": ("synthesis", ("supports",)),
        "support_law": ("synthesis", ("supports",)),
        "support_cap": ("synthesis", ("supports",)),
        "head_above": ("synthesis", ("supports",)),
        "nearest_heads": ("synthesis", ("supports",)),
        "head_mix": ("synthesis", ("supports",)),
        "head_weights": ("synthesis", ("supports",)),
        "second_stage_epochs": ("second_stage", ("rebalance", "retrain")),
        "second_stage_learning_rate": ("second_stage", ("rebalance", "retrain")),
        "class_balance": ("second_stage", ("rebalance",)),
        "max_norm": ("second_stage", ("rebalance",)),
    }
    # Nor does it while a share keeps everything.
    _idle_at_one: ClassVar[dict[str, str]] = {
        "negatives": "negative_rate",
        "head_above": "head_mix",
        "nearest_heads": "head_mix",
        "head_weights": "head_mix",
    }

    def slots(self) -> dict[str, Any]:
        """Return the settings that have an effect, by name."""
        return {name: value for name, value in self.model_dump(mode="json").items() if self._idle(name) is None}

    def first_synthetic_epoch(self, epochs: int) -> int:
        """Return the first of ``epochs`` that has synthetic features: never the very first, which is looked at."""
        # Rounded first: 0.29 · 100 is 28.999999999999996 in floating point.
        return max(2, math.floor(round(self.synthesis_start * epochs, 9)) + 1)

    def check_classes(self, class_counts: Sequence[int], feature_dim: int | None = None) -> None:
        """Refuse classes that the slots cannot work on.

        Args:
            class_counts: training images of each class; K of them.
            feature_dim: d of the encoder where ``feature_dim`` leaves it open.

        Raises:
            ValueError: K > d + 1 for a simplex in d dimensions, or fewer heads than ``nearest_heads``.
        """
        num_classes = len(class_counts)
        feature_dim = self.feature_dim or feature_dim
        if (
            self.classifier in ANCHORED
            and self.anchors == "simplex"
            and feature_dim is not None
            and feature_dim < num_classes - 1
        ):
            raise ValueError(
                f"feature_dim: {feature_dim} cannot hold the simplex of {num_classes} anchors; "
                f"expected at least {num_classes - 1}, or anchors to be 'optimised'"
            )
        anchored_contrast = self.contrast == "balanced" and self.complement and self.prototypes == "anchored"
        if anchored_contrast and self.projection_dim < num_classes - 1:
            raise ValueError(
                f"projection_dim: {self.projection_dim} cannot hold the simplex of {num_classes} anchored prototypes; "
                f"expected at least {num_classes - 1}"
            )
        heads = sum(count > self.head_above for count in class_counts)
        borrows = self.contrast in PAIRED_CONTRASTS and self.synthesis == "supports" and self.head_mix < 1
        if borrows and self.nearest_heads > heads:
            raise ValueError(
                f"nearest_heads: {self.nearest_heads} of {heads} classes with more than {self.head_above} training "
                f"images; expected at most {heads}, or a head_above that leaves more heads"
            )

    def _idle(self, name: str) -> tuple[str, tuple[str | bool, ...]] | None:
        """Return the slot, and the values it would have to hold, because of which the setting has no effect."""
        if name not in self._owners:
            return None
        slot, values = self._owners[name]
        above = self._idle(slot)
        if above is not None:
            return above
        return None if getattr(self, slot) in values else (slot, values)

    @model_validator(mode="after")
    def _every_setting_has_an_effect(self) -> Self:
        for name in sorted(self.model_fields_set & self._owners.keys()):
            idle = self._idle(name)
            if idle is not None:
                slot, values = idle
                raise ValueError(
                    f"{name}: {getattr(self, name)!r} has no effect while {slot} is {getattr(self, slot)!r}; "
                    f"expected {slot} to be {' or '.join(map(repr, values))}"
                )
        for name, share in self._idle_at_one.items():
            if name in self.model_fields_set and getattr(self, share) == 1:
                raise ValueError(
                    f"{name}: {getattr(self, name)!r} has no effect while {share} is 1; expected a lower {share}"
                )
        return self

    @model_validator(mode="after")
    def _losses_have_their_parameters(self) -> Self:
        for name in REQUIRED:
            if self._idle(name) is None and getattr(self, name) is None:
                raise ValueError(
                    f"{name}: is missing; classification {self.classification!r} needs it, expected a number such as "
                    "those in presets/noise-parameters.csv"
                )
        if self.classification in WEIGHTED_SUMS and self.active_weight == self.passive_weight == 0:
            raise ValueError(
                f"active_weight: 0 and passive_weight 0 leave nothing of {self.classification!r}; "
                "expected one of them to be positive"
            )
        return self

    @model_validator(mode="after")
    def _views_fit(self) -> Self:
        if self.contrast == "none" and self.classified_views == "first" and len(self.views) != 1:
            raise ValueError(
                f"views: {list(self.views)} has views that nothing looks at; "
                "expected one view, a contrast, or classified_views to be 'all'"
            )
        if self.classified_views == "all" and len(self.views) == 1:
            raise ValueError("classified_views: 'all' has no effect with a single view; expected further views")
        contrasted = self.views[1:] or self.views
        mixed = [view for view in contrasted if view in MIXED_VIEWS]
        if self.contrast in PAIRED_CONTRASTS and mixed:
            raise ValueError(
                f"views: {mixed[0]!r} has soft labels, and contrast {self.contrast!r} needs one class for each image"
            )
        if self.contrast in MEMORY_CONTRASTS and all(view in MIXED_VIEWS for view in self.views):
            raise ValueError(f"views: {list(self.views)} leaves the class memory no un-mixed view to remember")
        classified = self.views if self.classified_views == "all" else self.views[:1]
        mixed = [view for view in classified if view in MIXED_VIEWS]
        if self.classification not in SOFT_LABELS and mixed:
            raise ValueError(
                f"views: {mixed[0]!r} has soft labels, and classification {self.classification!r} "
                "needs one class for each image"
            )
        if self.second_stage != "none" and self.views[0] in MIXED_VIEWS:
            raise ValueError(
                f"views: {self.views[0]!r} comes first and has soft labels, and second_stage {self.second_stage!r} "
                "balances by one class for each image; expected another first view"
            )
        return self

    @model_validator(mode="after")
    def _prototypes_for_l3(self) -> Self:
        if self.contrast == "balanced" and self.averaging == "L3" and not self.complement:
            raise ValueError("averaging: 'L3' contrasts with prototypes; expected complement to be true")
        return self

    @model_validator(mode="after")
    def _classifier_fits(self) -> Self:
        if self.classification in ("binary", "mse") and self.classifier != "normalised":
            raise ValueError(
                f"classification: {self.classification!r} is defined for unit classifier vectors with a bias; "
                f"expected classifier to be 'normalised', got {self.classifier!r}"
            )
        scaled = ("cosine", "anchored", "anchored-cosine")
        if self.classification == "margin" and self.classifier not in scaled:
            raise ValueError(
                f"classification: 'margin' subtracts from cosines; expected classifier to be "
                f"{' or '.join(map(repr, scaled))}, got {self.classifier!r}"
            )
        if self.classification == "margin" and self.margins == "ldam" and self.margin == 0:
            raise ValueError("margin: 0 leaves no margin to share out; expected a positive one with margins 'ldam'")
        if self.classifier_scale == "noise-aware" and self.classifier == "anchored":
            raise ValueError(
                "classifier_scale: 'noise-aware' bounds the logits of normalised features; expected classifier to be "
                f"{' or '.join(map(repr, NORMALISED_FEATURES))}, or a number"
            )
        if self.classifier in ANCHORED:
            if self.spread != "none":
                raise ValueError(f"spread: {self.spread!r} has nothing to move: an anchored classifier is fixed")
            if self.second_stage == "rebalance":
                raise ValueError("second_stage: 'rebalance' has nothing to train: an anchored classifier is fixed")
            if self.contrast == "balanced" and self.complement and self.prototypes == "classifier":
                raise ValueError("prototypes: 'classifier' trains the classifier's vectors, which are anchored")
        return self

    @model_validator(mode="after")
    def _second_stage_fits(self) -> Self:
        if self.second_stage != "rebalance":
            return self
        # With both, f_y estimates log p(x | y) − log π_y: what was rare is then taken for frequent.
        if self.classification == "logit-adjusted" and self.class_balance > 0:
            raise ValueError(
                "second_stage: 'rebalance' weighs classes by their size, for which classification 'logit-adjusted' "
                "corrects already; expected another classification, or second_stage to be 'retrain'"
            )
        if self.max_norm is not None and self.classifier == "cosine":
            raise ValueError(
                f"max_norm: {self.max_norm} leaves every cosine as it is; "
                "expected classifier to be 'linear' or 'normalised'"
            )
        return self

    @model_validator(mode="after")
    def _temperatures_rise(self) -> Self:
        highest = self.head_temperature if self.contrast == "supervised" else None
        if highest is not None and highest < self.temperature:
            raise ValueError(
                f"head_temperature: {highest} lies below temperature {self.temperature}, that of the smallest class; "
                "expected at least as much"
            )
        return self

    @model_validator(mode="after")
    def _synthesis_fits(self) -> Self:
        if self.synthesis != "none" and self.contrast == "balanced" and not self.synthetic_anchors:
            raise ValueError("synthetic_anchors: false keeps them out of the anchors; expected contrast 'supervised'")
        if self.synthesis == "up-sampling" and self.synthetic_features != "equalise":
            raise ValueError("synthetic_features: up-sampling repeats features until classes are equal ('equalise')")
        return self
