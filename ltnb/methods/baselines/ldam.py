"""Label-distribution-aware margins (Cao et al., NeurIPS 2019), and re-weighting that is deferred."""

from typing import Literal

from ltnb.methods.settings import MethodSettings
from ltnb.methods.slots import Classification, Classifier, ClassWeighting


class LDAM(MethodSettings):
    """L = −log [exp s(c_y − m_y) / (exp s(c_y − m_y) + Σ_{j≠y} exp s c_j)], c = cosines, m_k = ½ (n_min/n_k)^¼.

    A rarer class has to win by a larger margin, as the paper's bound on the balanced error asks. Scale s = 30, largest
    margin ½ and weights as in its released code. ``class_weighting: none`` is LDAM alone.

    DRW, here the default as in the paper's best rows: all images count alike until 80 % of training (epoch 160 of 200),
    and by class-balanced weights from then on. The released code also cuts the learning rate to a hundredth there;
    here it follows the protocol's cosine, which is at 11 % by then.
    """

    system: Literal["ldam"] = "ldam"
    classifier: Classifier = "cosine"
    classification: Classification = "margin"
    margins: Literal["equal", "ldam"] = "ldam"
    class_weighting: ClassWeighting = "deferred"
