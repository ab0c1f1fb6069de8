"""Stages: the parts that training is cut into, one after the other."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Stage:
    """What is trained, for how long, how fast and on which images.

    ``trained`` is the whole network or the classifier alone, on a frozen encoder; ``sampler`` shows every image once
    an epoch, or draws classes with equal probability, with replacement, as many images an epoch. The learning rate
    of an epoch is `learning_rate`.
    """

    trained: Literal["everything", "classifier"]
    epochs: int  #: E
    learning_rate: float  #: η, the largest
    warmup_epochs: int  #: w
    weight_decay: float
    sampler: Literal["instance", "class-balanced"] = "instance"
    schedule: Literal["cosine", "steps", "exponential"] = "cosine"
    decay: float = 0.1  #: d, of steps and the exponential
    decay_epochs: tuple[int, ...] = ()  #: of steps


def learning_rate(epoch: int, stage: Stage) -> float:
    """Return η_e = η · (e+1)/w during w warm-up epochs, and then by ``stage.schedule``

        "cosine"       η/2 · (1 + cos(π (e−w+1)/(E−w+1)))
        "steps"        η · d^n, with n of ``stage.decay_epochs`` over: d begins with the epoch that follows one
        "exponential"  η · d^(e−w)

    Args:
        epoch: e, from 0 to E − 1.
        stage: η, w, E and d, as its fields say.

    >>> [round(learning_rate(e, Stage("everything", 4, 0.1, 2, 0)), 3) for e in range(4)]
    [0.05, 0.1, 0.075, 0.025]
    >>> fall = Stage("everything", 4, 0.1, 0, 0, schedule="steps", decay_epochs=(2, 3))
    >>> [round(learning_rate(e, fall), 3) for e in range(4)]
    [0.1, 0.1, 0.01, 0.001]
    """
    rate, warmup, epochs = stage.learning_rate, stage.warmup_epochs, stage.epochs
    if epoch < warmup:
        return rate * (epoch + 1) / warmup
    match stage.schedule:
        case "cosine":
            return rate / 2 * (1 + math.cos(math.pi * (epoch - warmup + 1) / (epochs - warmup + 1)))
        case "steps":
            return rate * stage.decay ** sum(end <= epoch for end in stage.decay_epochs)
        case "exponential":
            return rate * stage.decay ** (epoch - warmup)
