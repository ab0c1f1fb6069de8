import pytest
import torch
from random_images import assert_independent, noise, seeded
from scipy import stats

from ltnb.data import rand_augment as module
from ltnb.data.operations import MOVES
from ltnb.data.rand_augment import (
    MOVE,
    OPERATIONS,
    STRONG_MOVE,
    STRONG_OPERATIONS,
    rand_augment,
    strong_rand_augment,
)


@pytest.fixture
def seen(monkeypatch):
    """What operates in a batch of 6,000, a tuple for each turn."""
    calls = []

    def leave(images, *parameters):
        calls.append(parameters)
        return images

    monkeypatch.setattr(module, "operate", leave)
    return calls


@pytest.fixture
def drawn(seen):
    """Operation and change of 6,000 samples of one batch."""
    rand_augment(torch.zeros(6000, 1, 2, 2), seeded())
    [(operation, change, names, move)] = seen
    assert names == tuple(OPERATIONS)
    assert move is MOVE
    return operation, change


def test_every_operation_is_as_likely(drawn):
    counts = torch.bincount(drawn[0], minlength=len(OPERATIONS))
    assert len(counts) == len(OPERATIONS)
    assert stats.chisquare(counts.numpy()).pvalue > 0.01


def test_strength_is_uniform_and_independent_of_the_operation(drawn):
    operation, change = drawn
    largest = torch.tensor(list(OPERATIONS.values()))[operation]
    assert (change[largest == 0] == 0).all()
    strength = (change / largest)[largest > 0]
    assert strength.abs().max() <= 1
    assert stats.kstest(strength.numpy(), "uniform", args=(-1, 2)).pvalue > 0.01
    assert_independent(torch.column_stack([operation[largest > 0], strength]).double())


def test_strong_operations_are_two_of_all_in_half_of_the_images_each_and_moves_go_either_way(seen):
    strong_rand_augment(torch.zeros(6000, 1, 2, 2), seeded())
    turns = []
    for operation, change, names, move in seen:
        assert names == tuple(STRONG_OPERATIONS)
        assert move is STRONG_MOVE
        number = len(names)
        applied = torch.bincount(operation, minlength=number).double()
        # Half of the images draw nothing, and identity is one of those that the other half draws.
        shares = torch.full((number,), 0.5 / number, dtype=torch.float64)
        shares[0] += 0.5
        assert stats.chisquare(applied.numpy(), (6000 * shares).numpy()).pvalue > 0.01
        for place, (name, largest) in enumerate(STRONG_OPERATIONS.items()):
            if place > 0:
                changes = change[operation == place]
                torch.testing.assert_close(changes.abs(), torch.full_like(changes, largest))
                if name in MOVES:
                    assert stats.binomtest(int((changes < 0).sum()), len(changes), 0.5).pvalue > 0.001
                else:
                    assert (changes >= 0).all()
        turns.append(torch.column_stack([operation, change.sign()]).double())
    assert len(turns) == 2
    assert_independent(torch.column_stack([turns[0][:, 0], turns[1][:, 0]]))


@pytest.mark.parametrize("views", [rand_augment, strong_rand_augment])
def test_two_channels_are_no_colour(views):
    with pytest.raises(ValueError, match="2 channels: expected 1"):
        views(noise((2, 2, 4, 4)), seeded())
