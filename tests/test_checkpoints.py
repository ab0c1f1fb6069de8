"""One step of the optimiser; tests/test_resuming.py kills whole runs."""

import pytest
import torch
from torch import Tensor

from ltnb.checkpoints import State
from ltnb.methods import CrossEntropy
from ltnb.methods.assembly import Method
from ltnb.params import TrainingSettings

PLAIN = {"momentum": 0.5, "weight_decay": 0.0, "learning_rate": 0.1}
SLOPES = {"first_classifier.bias": 3.0, "encoder.bn.bias": 4.0}  # of a linear loss; together sqrt(16 · 16 + 4 · 9)
LENGTH = (16 * 16 + 4 * 9) ** 0.5


def updates(steps: int, **changes: float) -> dict[str, Tensor]:
    """By how much the bias of the classifier and a shift of the encoder go down in each of so many steps."""
    training = TrainingSettings.model_validate(PLAIN | changes)
    method = Method(CrossEntropy(), "resnet8", 1, [5, 4, 3, 2])
    state = State("", method, {}, method.stages(training.stage), training)
    of_name = dict(method.named_parameters())
    moved = []
    for _ in range(steps):
        before = {name: of_name[name].detach().clone() for name in SLOPES}
        state.step(torch.stack([slope * of_name[name].sum() for name, slope in SLOPES.items()]).sum())
        moved.append({name: (before[name] - of_name[name].detach()) for name in SLOPES})
    return {name: torch.stack([step[name] for step in moved]) for name in SLOPES}


@pytest.mark.parametrize(
    ("changes", "factors"),
    [
        ({}, [1.0, 1.5]),  # v = 0.5 v + g, w = w − 0.1 v
        ({"nesterov": True}, [1.5, 1.75]),  # w = w − 0.1 (g + 0.5 v)
        ({"clip_norm": 1.0}, [1 / LENGTH, 1.5 / LENGTH]),
        ({"clip_norm": 100.0}, [1.0, 1.5]),  # longer than they are: as they are
    ],
)
def test_steps_follow_their_formula(changes: dict[str, float], factors: list[float]) -> None:
    for name, moved in updates(2, **changes).items():
        expected = torch.tensor(factors)[:, None] * 0.1 * SLOPES[name]
        torch.testing.assert_close(moved, expected.expand_as(moved), rtol=1e-4, atol=1e-6)
