"""Stages: the parts that training is cut into, one after the other."""

from dataclasses import dataclass
from typing import Literal, Protocol


class Schedule(Protocol):
    """What decides the learning rate of an epoch."""

    @property
    def epochs(self) -> int:
        """Length, E."""

    @property
    def learning_rate(self) -> float:
        """Largest rate, η."""

    @property
    def warmup_epochs(self) -> int:
        """Epochs of linear rise, w."""


@dataclass(frozen=True)
class Stage:
    """What is trained, for how long, how fast and on which images.

    ``trained`` is the whole network or the classifier alone, on a frozen encoder; ``sampler`` shows every image once
    an epoch, or draws classes with equal probability, with replacement, as many images an epoch.
    """

    trained: Literal["everything", "classifier"]
    epochs: int
    learning_rate: float
    warmup_epochs: int
    weight_decay: float
    sampler: Literal["instance", "class-balanced"] = "instance"
