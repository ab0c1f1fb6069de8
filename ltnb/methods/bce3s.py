"""BCE3S: binary cross-entropy based tripartite synergistic learning (Fan et al., AAAI 2026)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Classifier, Contrast, PositiveShare, Spread, Temperature, Views, Weight


class BCE3S(MethodSettings):
    """L = L_bce^(sc) + λ_ss L_bce^(ss) + λ_cc L_bce^(cc): three terms, each a sum of sigmoids.

    - *Joint* (sc): one sigmoid a class on w̄_j·x + b_j, unit vectors w̄_j and features x as they are; of the negatives
      a share r is drawn (``negatives: independent`` as the paper says, ``batch`` as its code does it).
    - *Contrastive* (ss): the projection against a memory of one projection a class, the class's last image.
    - *Uniform* (cc): the classifier's vectors against each other.

    Every term is a slot that can be ``none``, softmax, binary or squared error, so each row of the paper's ablation is
    a row of ``params.yaml``. Weights and temperature are those of the released code for CIFAR-100-LT. Its r = 0.4
    keeps 40 of 100 classes; of ten classes it would keep 3.6 negatives, so here all stay. Its mixed images are
    ``views: [strong, mixup, cutmix], classified_views: all``, its second stage ``second_stage: rebalance,
    max_norm: 0.1``: neither is the default, since no other method here has them.
    """

    system: Literal["bce3s"] = "bce3s"
    views: Views = ("strong",)
    classifier: Classifier = "normalised"
    classification: Classification = "binary"
    negative_rate: PositiveShare = 1.0
    contrast: Contrast = "binary"
    contrast_weight: Weight = 0.1  # λ_ss
    temperature: Temperature = 1.0
    projection_norm: bool = False
    spread: Spread = "binary"
    spread_weight: Weight = 1.0  # λ_cc
