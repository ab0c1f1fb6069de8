"""Methods: one file a system, the slots they share, and the modules that put them together.

Importing this package reads settings only; ``ltnb.methods.assembly`` brings torch.
"""

from ltnb.methods.baselines.class_balanced import ClassBalanced, Resampling
from ltnb.methods.baselines.decoupling import CRT, LWS, TauNormalised
from ltnb.methods.baselines.dot_regression import DotRegression
from ltnb.methods.baselines.focal import Focal
from ltnb.methods.baselines.k_positive import KCL
from ltnb.methods.baselines.ldam import LDAM
from ltnb.methods.baselines.mixup import MixUp
from ltnb.methods.baselines.parametric import PaCo
from ltnb.methods.baselines.probabilistic import ProCo
from ltnb.methods.baselines.rotated import RBL
from ltnb.methods.baselines.targeted import TSC
from ltnb.methods.bce3s import BCE3S
from ltnb.methods.bcl import BCL
from ltnb.methods.cross_entropy import CrossEntropy
from ltnb.methods.featrecon import FeatRecon
from ltnb.methods.logit_adjustment import LogitAdjustment, PostHocAdjustment
from ltnb.methods.pal import FNPAL, PAL
from ltnb.methods.settings import MethodSettings
from ltnb.methods.supervised_contrastive import SupervisedContrastive

# Every row of params.yaml is one of these, told apart by its key ``system``.
System = (
    CrossEntropy | LogitAdjustment | SupervisedContrastive | BCL | FeatRecon | BCE3S | PAL | FNPAL
    | Focal | ClassBalanced | Resampling | LDAM | PostHocAdjustment
    | CRT | LWS | TauNormalised | MixUp
    | KCL | TSC | PaCo | DotRegression | RBL | ProCo
)  # fmt: skip

__all__ = [
    "BCE3S",
    "BCL",
    "CRT",
    "FNPAL",
    "KCL",
    "LDAM",
    "LWS",
    "PAL",
    "RBL",
    "TSC",
    "ClassBalanced",
    "CrossEntropy",
    "DotRegression",
    "FeatRecon",
    "Focal",
    "LogitAdjustment",
    "MethodSettings",
    "MixUp",
    "PaCo",
    "PostHocAdjustment",
    "ProCo",
    "Resampling",
    "SupervisedContrastive",
    "System",
    "TauNormalised",
]
