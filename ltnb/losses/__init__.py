"""Loss functions of the four papers and of the usual baselines, as pure functions of tensors, one family a file.

Every loss takes float32, float64 or bfloat16, computes in at least float32 and returns that type. None of them reads
a tensor's values back from an accelerator: on the CPU a bad value is a ValueError, elsewhere see each docstring.
Plain cross-entropy is `torch.nn.functional.cross_entropy`.
"""

from ltnb.losses.anchors import valid_anchors
from ltnb.losses.balanced_contrastive import balanced_contrastive
from ltnb.losses.binary_cross_entropy import bce_contrastive, bce_joint, bce_uniform
from ltnb.losses.class_weights import class_balanced_weights, weighted_mean
from ltnb.losses.cross_entropy import ce_contrastive, ce_uniform
from ltnb.losses.decoupled import decoupled_contrastive
from ltnb.losses.dot_regression import dot_regression
from ltnb.losses.k_positive import draw_positives, k_positive_contrastive
from ltnb.losses.logit_adjustment import logit_adjusted_cross_entropy
from ltnb.losses.margin import ldam_margins, margin_cross_entropy
from ltnb.losses.modified_cross_entropy import focal, gce, sce
from ltnb.losses.parametric import parametric_contrastive
from ltnb.losses.probabilistic import (
    expected_logits,
    probabilistic_contrastive,
    running_class_means,
    vmf_naturals,
)
from ltnb.losses.smoothing import smoothed_labels, smoothing_factors
from ltnb.losses.squared_error import mse_contrastive, mse_joint, mse_uniform
from ltnb.losses.supervised_contrastive import supervised_contrastive
from ltnb.losses.symmetric import mae, nce, nfl, nsl, rce
from ltnb.losses.targeted import targeted_contrastive
from ltnb.losses.temperatures import class_temperatures

__all__ = [
    "balanced_contrastive",
    "bce_contrastive",
    "bce_joint",
    "bce_uniform",
    "ce_contrastive",
    "ce_uniform",
    "class_balanced_weights",
    "class_temperatures",
    "decoupled_contrastive",
    "dot_regression",
    "draw_positives",
    "expected_logits",
    "focal",
    "gce",
    "k_positive_contrastive",
    "ldam_margins",
    "logit_adjusted_cross_entropy",
    "mae",
    "margin_cross_entropy",
    "mse_contrastive",
    "mse_joint",
    "mse_uniform",
    "nce",
    "nfl",
    "nsl",
    "parametric_contrastive",
    "probabilistic_contrastive",
    "rce",
    "running_class_means",
    "sce",
    "smoothed_labels",
    "smoothing_factors",
    "supervised_contrastive",
    "targeted_contrastive",
    "valid_anchors",
    "vmf_naturals",
    "weighted_mean",
]
