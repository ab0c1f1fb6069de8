"""What stands for a class in a contrast, followed by hand over several steps."""

import math

import pytest
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from ltnb.methods import BCL
from ltnb.methods.prototypes import AveragedPrototypes, ClassMemory, prototypes
from ltnb.models.heads import Projector

K, P = 4, 3

# Several images of a class in a batch, classes that come late, classes that are absent now and then; class 3 never is.
LABELS = [[0, 0, 1], [1, 1, 1, 0], [2], [0, 2, 2], [1]]


def steps(seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    generator = Generator().manual_seed(seed)
    drawn = []
    for labels in LABELS:
        z = F.normalize(torch.randn(len(labels), P, generator=generator, dtype=torch.float64), dim=1)
        drawn.append((z, torch.tensor(labels)))
    return drawn


def normalised(row: list[float]) -> list[float]:
    length = math.hypot(*row)
    return [value / length for value in row]


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_averaged_prototypes_by_hand(momentum: float) -> None:
    torch.manual_seed(0)
    averaged = AveragedPrototypes(K, P, momentum).double()
    known: dict[int, list[float]] = {}
    start = averaged(torch.empty(0)).tolist()
    for z, y in steps():
        averaged.update(z, y)
        for k in set(y.tolist()):
            rows = [row for row, label in zip(z.tolist(), y.tolist(), strict=True) if label == k]
            mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
            if k in known:
                mean = [momentum * old + (1 - momentum) * new for old, new in zip(known[k], mean, strict=True)]
            known[k] = normalised(mean)
        for k, row in enumerate(averaged(torch.empty(0)).tolist()):
            assert row == pytest.approx(known.get(k, start[k]))
    assert averaged.seen.tolist() == [True, True, True, False]
    torch.testing.assert_close(averaged.means.norm(dim=1), torch.ones(K, dtype=torch.float64))


def test_a_step_does_not_move_what_the_loss_was_given() -> None:
    averaged = AveragedPrototypes(K, P, 0.5).double()
    given = averaged(torch.empty(0))
    before = given.clone()
    averaged.update(*steps()[0])
    torch.testing.assert_close(given, before)
    assert not given.requires_grad


def test_the_memory_holds_the_last_image_of_each_class_by_hand() -> None:
    memory = ClassMemory(K, P).double()
    known: dict[int, list[float]] = {}
    for z, y in steps():
        memory.update(z, y)
        known |= dict(zip(y.tolist(), z.tolist(), strict=True))
        assert memory.seen.tolist() == [k in known for k in range(K)]
        for k, row in enumerate(memory.projections.tolist()):
            assert row == known.get(k, [0.0] * P)


def test_the_memory_of_reduced_precision_is_kept_in_full() -> None:
    memory = ClassMemory(K, P)
    z, y = steps()[0]
    memory.update(z.bfloat16(), y)
    assert memory.projections.dtype == torch.float32
    torch.testing.assert_close(memory.projections[0], z[1].bfloat16().float())


def test_prototypes_of_each_kind() -> None:
    def head() -> Projector:
        return Projector(5, 6, P, batch_norm=False)

    weight = torch.randn(K, 5, requires_grad=True)
    found = {}
    for kind in ("classifier", "ema", "learnable", "anchored"):
        settings = BCL(prototypes=kind, projection_dim=P)
        made = prototypes(settings, K, head)
        rows = made(weight)
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(K))
        assert rows.dtype == torch.float32
        found[kind] = made, rows
    assert found["classifier"][1].requires_grad
    torch.testing.assert_close(found["classifier"][1], found["classifier"][0].projector(weight))  # type: ignore[operator]
    assert [name for name, _ in found["learnable"][0].named_parameters()] == ["directions"]
    assert list(found["ema"][0].parameters()) == []
    assert list(found["anchored"][0].parameters()) == []
    # −1/3 between any two of four corners, exactly in as many dimensions as they need.
    anchors = found["anchored"][1]
    torch.testing.assert_close((anchors @ anchors.T)[~torch.eye(K, dtype=torch.bool)], torch.full((12,), -1 / 3))


def test_anchors_are_turned_by_the_runs_seed_and_kept_in_its_state() -> None:
    def made(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return prototypes(BCL(prototypes="anchored", projection_dim=P), K, lambda: Projector(2, 2, P)).anchors  # type: ignore[return-value]

    torch.testing.assert_close(made(1), made(1))
    assert not torch.allclose(made(1), made(2))
    assert "anchors" in prototypes(BCL(prototypes="anchored"), K, lambda: Projector(2, 2, P)).state_dict()
