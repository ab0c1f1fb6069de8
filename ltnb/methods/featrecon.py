"""FeatRecon: rebalancing features for skewed distributions (Yi et al., ICLR 2025)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Contrast, Count, NonNegative, Synthesis, Temperature, Views, Weight


class FeatRecon(MethodSettings):
    """L = λ_x L_LC + λ_c L_SC, where L_SC sees real and synthetic projections.

    - *Views, classifier, projector, λ*: those of BCL, which the paper follows.
    - *Contrast*: supervised contrastive over real and synthetic features (Definition 1).
    - *Synthesis* (Eqs. 7-10, ``ltnb.methods.synthesis``): tail classes are filled up with features drawn inside their
      confidence supports, after those were mixed with the supports of the nearest heads and capped.
    - *Temperature* (Eq. 11): τ₋ for the smallest class up to τ₊ for the largest.

    The paper as we have it leaves open: q, γ, how many features, from when and how often supports are estimated, what
    a head is, the law of sampling (uniform in the submission, truncated normal in the camera-ready) and whether
    synthetic features are anchors. Here they fill every class of a batch up to its largest and are anchors as well
    as keys, since the balanced optimum (Theorem 1) needs balanced anchors no less than balanced keys. The printed
    weight ω of the heads does not sum to one; ``corrected`` does.
    """

    system: Literal["featrecon"] = "featrecon"
    views: Views = ("strong", "strong", "strong")
    classification: Classification = "logit-adjusted"
    classification_weight: Weight = 2.0
    contrast: Contrast = "supervised"
    contrast_weight: Weight = 0.6
    head_temperature: Temperature | None = 0.15  # τ₊; the paper takes it from Kukleva et al., whose range ends at 1
    synthesis: Synthesis = "supports"
    head_above: NonNegative = 20  # the digits have one class of more than 100 images
    nearest_heads: Count = 2
    snapshots: NonNegative = 4  # to draw supports and synthetic features as training goes on
