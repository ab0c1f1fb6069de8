"""PAL and FNPAL: prototype-anchored learning (Zhou et al., ICML 2022)."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classifier, Scale


class PAL(MethodSettings):
    """L = −log softmax(s W x)_y with W fixed at a regular simplex of unit vectors (Lemma 3.1): nothing else changes.

    Under any class counts the minimiser over bounded features is x ∝ w_y, with the largest min-margin (Theorems 4.1
    and 4.2). A feature behind a ReLU is non-negative and cannot reach such prototypes, so the last ReLU is off here;
    what the paper did about it is open. ``classification: logit-adjusted`` or ``margin`` puts PAL on top of another
    loss, ``second_stage: retrain`` makes it the first stage of decoupled training. With wrong labels every loss of
    ``classification`` may stand beside it.
    """

    system: Literal["pal"] = "pal"
    last_relu: bool = False
    classifier: Classifier = "anchored"
    classifier_scale: Scale = 1.0


class FNPAL(MethodSettings):
    """L = −log softmax(s W x/‖x‖)_y: PAL with normalised features of length s.

    The paper's s for CE and SCE is 0.25/(0.05 + η), η the rate of wrong labels: ``classifier_scale:
    noise-aware``, which is 5 on clean ones. For sums such as ``nce+mae`` it has s = 10, for the other losses we do not
    know it. Its control, FNPN, normalises as well but learns W: ``{system: fnpal, classifier: cosine}``.
    """

    system: Literal["fnpal"] = "fnpal"
    last_relu: bool = False
    classifier: Classifier = "anchored-cosine"
    classifier_scale: Scale = 5.0
