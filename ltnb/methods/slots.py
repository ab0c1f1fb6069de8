"""The slots of a method: the names that may stand in each, which of them belong together, and ranges of numbers."""

from typing import Annotated, Literal

from pydantic import Field

View = Literal[
    "none",
    "weak",
    "strong",
    "sim",
    "rand",
    "crop-flip",
    "crop-flip-turn",
    "auto",
    "sim-flip",
    "sim-blur",
    "rand-flip",
    "zoom-flip",
    "zoom-jitter",
    "zoom-hue",
    "zoom-rand",
    "zoom-sim",
    "zoom-sim-rand",
    "mixup",
    "cutmix",
    "mixup-flip",
    "cutmix-flip",
    "mixup-zoom",
    "cutmix-zoom",
]
# Of two images each, whose labels are soft; to the view of either of them.
MIXED_VIEWS = {
    "mixup": "strong",
    "cutmix": "strong",
    "mixup-flip": "crop-flip",
    "cutmix-flip": "crop-flip",
    "mixup-zoom": "zoom-jitter",
    "cutmix-zoom": "zoom-jitter",
}
Views = Annotated[tuple[View, ...], Field(min_length=1, strict=False)]
Classifier = Literal["linear", "cosine", "normalised", "anchored", "anchored-cosine", "rotated"]
Classification = Literal[
    "cross-entropy",
    "logit-adjusted",
    "margin",
    "binary",
    "mse",
    "dot-regression",
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
Contrast = Literal[
    "none",
    "supervised",
    "balanced",
    "decoupled",
    "binary",
    "cross-entropy",
    "mse",
    "k-positive",
    "targeted",
    "parametric",
    "probabilistic",
]
Prototypes = Literal["classifier", "ema", "learnable", "anchored"]
Spread = Literal["none", "binary", "cross-entropy", "mse"]
Synthesis = Literal["none", "up-sampling", "supports"]
Sampler = Literal["instance", "class-balanced"]
ClassWeighting = Literal["none", "balanced", "deferred"]
Correction = Literal["none", "logit-adjusted", "tau-normalised"]
SecondStage = Literal["none", "rebalance", "retrain", "rescale"]
Count = Annotated[int, Field(ge=1)]
Dimension = Annotated[int, Field(ge=2)]
NonNegative = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Temperature = Annotated[float, Field(ge=1e-3, allow_inf_nan=False)]  # below, 1/τ leaves float32's useful range
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Scale = Positive | Literal["noise-aware"]
Share = Annotated[float, Field(ge=0, le=1)]
OpenShare = Annotated[float, Field(gt=0, lt=1)]
HalfOpenShare = Annotated[float, Field(ge=0, lt=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]

PAIRED_CONTRASTS = ("supervised", "balanced")  # an image against the others of its batch, synthetic ones among them
MEMORY_CONTRASTS = ("binary", "cross-entropy", "mse")  # an image against one remembered projection a class
MOMENTUM_CONTRASTS = ("k-positive", "targeted", "parametric")  # against a momentum encoder's keys and their queue
CONTRASTS = (*PAIRED_CONTRASTS, "decoupled", *MEMORY_CONTRASTS, *MOMENTUM_CONTRASTS, "probabilistic")
PRIOR_CONTRASTS = ("parametric", "probabilistic")  # correct for the class sizes themselves
ANCHORED = ("anchored", "anchored-cosine")  # classifiers that are fixed before training
SIMPLEX = (*ANCHORED, "rotated")  # classifiers whose vectors form one, whatever is trained
NORMALISED_FEATURES = ("cosine", "anchored-cosine", "rotated")  # classifiers whose logits lie in [−s, s]
SOFT_LABELS = ("cross-entropy", "binary", "mse", "dot-regression")  # classifications that take mixed labels
WEIGHTED_SUMS = ("sce", "nce+mae", "nce+rce", "nfl+rce")  # of an active and a passive loss
Owner = tuple[str, tuple[str | bool, ...]]  # a slot, and the values at which it makes a setting count
# What a loss needs and no default could know: its papers set it for every data set anew.
REQUIRED = ("focal_gamma", "gce_q", "active_weight", "passive_weight")
