"""Methods: one file a system, the slots they share, and the modules that put them together.

Importing this package reads settings only; ``ltnb.methods.assembly`` brings torch.
"""

from ltnb.methods.bce3s import BCE3S
from ltnb.methods.bcl import BCL
from ltnb.methods.cross_entropy import CrossEntropy
from ltnb.methods.featrecon import FeatRecon
from ltnb.methods.logit_adjustment import LogitAdjustment
from ltnb.methods.pal import FNPAL, PAL
from ltnb.methods.settings import MethodSettings
from ltnb.methods.supervised_contrastive import SupervisedContrastive

# Every row of params.yaml is one of these, told apart by its key ``system``.
System = CrossEntropy | LogitAdjustment | SupervisedContrastive | BCL | FeatRecon | BCE3S | PAL | FNPAL

__all__ = [
    "BCE3S",
    "BCL",
    "FNPAL",
    "PAL",
    "CrossEntropy",
    "FeatRecon",
    "LogitAdjustment",
    "MethodSettings",
    "SupervisedContrastive",
    "System",
]
