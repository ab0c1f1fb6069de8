"""Methods: one file a system, the slots they share, and the module that assembles them.

Importing this package reads settings only; ``ltnb.methods.assembly`` brings torch.
"""

from ltnb.methods.bcl import BCL
from ltnb.methods.cross_entropy import CrossEntropy
from ltnb.methods.logit_adjustment import LogitAdjustment
from ltnb.methods.settings import MethodSettings
from ltnb.methods.supervised_contrastive import SupervisedContrastive

# Every row of params.yaml is one of these, told apart by its key ``system``.
System = CrossEntropy | LogitAdjustment | SupervisedContrastive | BCL

__all__ = ["BCL", "CrossEntropy", "LogitAdjustment", "MethodSettings", "SupervisedContrastive", "System"]
