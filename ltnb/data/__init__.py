"""Which images, which labels: sources, long tails, label noise, prepared data sets and augmentation on the device.

What needs torch is imported when it is first used, so that settings can be checked without loading it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltnb.data.profiles import long_tail_counts

if TYPE_CHECKING:
    from ltnb.data.long_tail import class_groups, long_tail_subset
    from ltnb.data.noise import asymmetric_noise, realised_transition_matrix, symmetric_noise, transition_matrix

__all__ = [
    "asymmetric_noise",
    "class_groups",
    "long_tail_counts",
    "long_tail_subset",
    "realised_transition_matrix",
    "symmetric_noise",
    "transition_matrix",
]

_LONG_TAIL = ("class_groups", "long_tail_subset")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ltnb.data.long_tail" if name in _LONG_TAIL else "ltnb.data.noise"), name)
