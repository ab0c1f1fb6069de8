"""The settings of a method: what a row of ``params.yaml`` may say."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from ltnb.methods import compatibility
from ltnb.methods.slots import (
    ANCHORED,
    CONTRASTS,
    MOMENTUM_CONTRASTS,
    PAIRED_CONTRASTS,
    SIMPLEX,
    WEIGHTED_SUMS,
    Classification,
    Classifier,
    ClassWeighting,
    Contrast,
    Correction,
    Count,
    Dimension,
    HalfOpenShare,
    NonNegative,
    OpenShare,
    Owner,
    Positive,
    PositiveShare,
    Prototypes,
    Sampler,
    Scale,
    SecondStage,
    Share,
    Spread,
    Synthesis,
    Temperature,
    Views,
    Weight,
)


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
    feature_norm: bool = False  # batch normalisation of the features, which centres them

    # How often a class is shown: every image once an epoch, or every class as often as the others.
    sampler: Sampler = "instance"

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

    # Of the classification term: weights (1 − β)/(1 − β^n_k), β = class_balance below; deferred (DRW): from a part of
    # training on, 0.8 as LDAM's 160 of 200 epochs.
    class_weighting: ClassWeighting = "none"
    weighting_start: OpenShare = 0.8

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
    prototype_momentum: HalfOpenShare = 0.9  # of ema and of TSC's centres, once a step in which the class is seen

    # Of the contrasts with a momentum encoder. Their papers have 0.999 and 8,192 keys or more, and 100 times the steps.
    key_momentum: HalfOpenShare = 0.99
    queue_size: Count = 256
    num_positives: Count = 6  # k of KCL and TSC
    target_weight: Weight = 0.2  # λ of TSC's targets
    sample_weight: Weight = 0.02  # α of PaCo's sample positives; its own class centre counts 1

    own_weight: PositiveShare = 0.1111  # α of DSCL, the share of the image's own other view among its positives; 1 of 9

    spread: Spread = "none"
    spread_weight: Weight = 1.0  # ν

    # Features that no image has, for the contrast.
    synthesis: Synthesis = "none"
    synthetic_features: Count | Literal["equalise"] = "equalise"  # of each class in a batch; or up to its largest class
    synthetic_anchors: bool = True  # anchors as well as keys
    # The part of training before them: supports of features that have not formed yet say little.
    synthesis_start: HalfOpenShare = 0.5
    support_refresh: Count = 1  # epochs
    support_quantile: PositiveShare = 0.99  # α
    support_law: Literal["truncated-normal", "uniform"] = "truncated-normal"
    support_cap: bool = True  # at ½ arccos(−1/(K−1))
    head_above: NonNegative = 100  # classes of more training images are heads
    nearest_heads: Count = 1  # q
    head_mix: Share = 0.5  # γ; 1 leaves every class its own support
    head_weights: Literal["corrected", "printed"] = "corrected"  # ω

    # A second stage on the frozen encoder: the same classifier with class-balanced weights; or with class-balanced
    # sampling a new linear one (cRT), or the length of the old one's vectors (LWS).
    second_stage: SecondStage = "none"
    second_stage_epochs: Count = 10
    second_stage_learning_rate: Positive = 0.01
    class_balance: HalfOpenShare = 0.9999  # β; 0 weighs every class the same
    # Label-aware smoothing of the second stage: what the largest and the smallest class's labels give away.
    smoothing_head: HalfOpenShare = 0.0
    smoothing_tail: HalfOpenShare = 0.0
    # The longest a classifier vector may be. The logits of a normalised classifier do not depend on it: there it lets
    # every step turn the vectors further, in proportion to 1/length². BCE3S's code does so, with 0.1.
    max_norm: Positive | None = None

    # What evaluation does to the trained classifier: f − τ log π, or vectors divided by their length to the power τ.
    correction: Correction = "none"
    correction_strength: Positive = 1.0  # τ

    # Where a method needs another optimiser than the protocol's; then a comparison has to say so.
    learning_rate: Positive | None = None
    weight_decay: Weight | None = None

    snapshots: NonNegative = 0  # moments of training, evenly spaced, whose embeddings are kept

    # A setting means something only while another slot, or one of several, holds one of these values.
    _owners: ClassVar[dict[str, Owner | list[Owner]]] = {
        "classifier_scale": ("classifier", ("cosine", *SIMPLEX)),
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
        "weighting_start": ("class_weighting", ("deferred",)),
        "contrast_weight": ("contrast", CONTRASTS),
        "temperature": ("contrast", tuple(contrast for contrast in CONTRASTS if contrast != "mse")),
        "head_temperature": ("contrast", ("supervised",)),
        "projection_hidden": ("contrast", CONTRASTS),
        "projection_dim": ("contrast", CONTRASTS),
        "projection_norm": ("contrast", CONTRASTS),
        "averaging": ("contrast", ("balanced",)),
        "anchor_weighting": ("contrast", ("balanced",)),
        "complement": ("contrast", ("balanced",)),
        "prototypes": ("complement", (True,)),
        "prototype_momentum": [("prototypes", ("ema",)), ("contrast", ("targeted",))],
        "key_momentum": ("contrast", MOMENTUM_CONTRASTS),
        "queue_size": ("contrast", MOMENTUM_CONTRASTS),
        "num_positives": ("contrast", ("k-positive", "targeted")),
        "target_weight": ("contrast", ("targeted",)),
        "sample_weight": ("contrast", ("parametric",)),
        "own_weight": ("contrast", ("decoupled",)),
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
        "second_stage_epochs": ("second_stage", ("rebalance", "retrain", "rescale")),
        "second_stage_learning_rate": ("second_stage", ("rebalance", "retrain", "rescale")),
        "class_balance": [("second_stage", ("rebalance",)), ("class_weighting", ("balanced", "deferred"))],
        "smoothing_head": ("second_stage", ("retrain", "rescale")),
        "smoothing_tail": ("second_stage", ("retrain", "rescale")),
        "max_norm": ("second_stage", ("rebalance",)),
        "correction_strength": ("correction", ("logit-adjusted", "tau-normalised")),
    }
    # Nor does it while a share keeps everything.
    idle_at_one: ClassVar[dict[str, str]] = {
        "negatives": "negative_rate",
        "head_above": "head_mix",
        "nearest_heads": "head_mix",
        "head_weights": "head_mix",
    }

    def slots(self) -> dict[str, Any]:
        """Return the settings that have an effect, by name."""
        return {name: value for name, value in self.model_dump(mode="json").items() if self.has_effect(name)}

    def unweighted_epochs(self, epochs: int) -> int:
        """Return how many of ``epochs`` pass before deferred class weights count: at least one, and never all."""
        return min(max(1, round(self.weighting_start * epochs)), epochs - 1)

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
            (self.classifier == "rotated" or (self.classifier in ANCHORED and self.anchors == "simplex"))
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

    def has_effect(self, name: str) -> bool:
        """Say whether the slots are such that the setting changes anything."""
        return not self.idle_because(name)

    def idle_because(self, name: str) -> list[Owner]:
        """Return the slots, and the values one of them would have to hold, because of which a setting is idle."""
        owners = self._owners.get(name, [])
        reasons = []
        for slot, values in owners if isinstance(owners, list) else [owners]:
            above = self.idle_because(slot)
            if not above and getattr(self, slot) in values:
                return []
            reasons += above or [(slot, values)]
        return reasons

    @model_validator(mode="after")
    def _slots_fit_each_other(self) -> Self:
        compatibility.check(self)
        return self
