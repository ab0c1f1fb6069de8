"""Training as it goes on an accelerator: on one device, with the CPU's numbers, and when the host waits for it."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from any_method import COUNTS
from bars import bars
from pretended_accelerator import DEVICE, Accelerator, OwnGenerator, accelerator, bring
from shares_of_batches import SYSTEMS, small
from stateful_methods import STATEFUL
from torch import Generator, Tensor

from ltnb import training
from ltnb.data.augmentation import VIEWS
from ltnb.data.feeding import HeldFeed
from ltnb.data.views import MIXED_VIEWS, draw
from ltnb.evaluation import Evaluation
from ltnb.methods import BCL, MethodSettings, SupervisedContrastive
from ltnb.methods.assembly import Method

CPU = torch.device("cpu")
METHODS: dict[str, MethodSettings] = {
    **{name: system(**small(name)) for name, system in SYSTEMS.items()},
    **STATEFUL,
    "temperatures of classes, no complement": SupervisedContrastive(head_temperature=0.5),
    "anchored prototypes, anchors weighted by class": BCL(prototypes="anchored", anchor_weighting="class"),
}
# How many synthetic features there are depends on the batch, and the tail of the normal law is SciPy's; torch chooses
# the terms of a matrix exponential by its size.
SYNTHETIC = {"methods/synthesis.py forward: repeat_interleave.Tensor"}
STEPS_THAT_WAIT = {
    "featrecon": SYNTHETIC | {"geometry/caps.py truncated_normal_angles: copy"},
    "supports, drawn features, snapshots": SYNTHETIC | {"geometry/caps.py truncated_normal_angles: copy"},
    "repeated features": SYNTHETIC,
    "rbl": {"geometry/rotation.py rotation: linalg_matrix_exp.default", "backward: linalg_matrix_exp.default"},
}
STEPS_THAT_WAIT["a simplex that is turned, behind batch normalisation"] = STEPS_THAT_WAIT["rbl"]


def steps(
    settings: MethodSettings, device: torch.device, waits: Callable[[], set[str]]
) -> tuple[list[float], set[str]]:
    """Train both stages for three epochs of two batches; the losses, and the waits in the steps but for the first."""
    torch.manual_seed(0)
    method = Method(settings, "resnet8", 1, COUNTS, noise_rate=0.2)
    generator = Generator() if device == CPU else OwnGenerator()
    generator.manual_seed(1)
    if device != CPU:
        bring(method)
    labels = torch.repeat_interleave(torch.arange(len(COUNTS)), torch.tensor(COUNTS))
    images = torch.randint(0, 256, (len(labels), 1, 8, 8), generator=Generator().manual_seed(2), dtype=torch.uint8)
    feed, there = HeldFeed(images, device), labels.to(device)
    losses: list[Tensor] = []
    seen: set[str] = set()
    for stage in range(1 if settings.second_stage == "none" else 2):
        parameters = method.begin(stage)
        optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9) if parameters else None
        for epoch in range(3):
            method.train()
            order = torch.arange(len(labels)).view(2, -1).unbind()
            for batch, (pixels, of_batch) in enumerate(training._epoch(order, feed, there)):
                waits()
                views, targets = training._draw(bars(), pixels, of_batch, method.views, generator)
                terms = method.losses(views, targets, generator)
                if optimizer is not None:
                    optimizer.zero_grad()
                    torch.autograd.backward(terms["total"])
                    optimizer.step()
                method.after_step()
                losses.append(terms["total"].detach())
                if (stage, epoch, batch) != (0, 0, 0):
                    seen |= waits()
            method.after_epoch(epoch + 1, 3)
    return [float(loss) for loss in losses], seen


def taken(mode: Accelerator) -> set[str]:
    """The waits since the last call."""
    found = set(mode.waits)
    mode.waits.clear()
    return found


@pytest.mark.parametrize("name", METHODS)
def test_steps_have_the_cpus_losses_and_the_host_waits_only_where_it_must(name: str) -> None:
    expected, _ = steps(METHODS[name], CPU, set)
    with accelerator() as mode:
        found, waits = steps(METHODS[name], DEVICE, partial(taken, mode))
    assert found == pytest.approx(expected, rel=1e-5)
    assert waits == STEPS_THAT_WAIT.get(name, set())


@pytest.mark.parametrize("policy", [*VIEWS, *MIXED_VIEWS])
def test_views_are_the_cpus_and_the_host_does_not_wait(policy: str) -> None:
    images = torch.randint(0, 256, (12, 3, 16, 16), generator=Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(12) % 4
    expected = [draw(images, labels, policy, Generator().manual_seed(1), num_classes=4, size=12) for _ in range(2)]
    with accelerator() as mode:
        generator = OwnGenerator()
        moved = images.to(DEVICE), labels.to(DEVICE)
        for view, target in expected:
            taken(mode)  # the first time tables are copied
            generator.manual_seed(1)
            found = draw(*moved, policy, generator, num_classes=4, size=12)
            torch.testing.assert_close(found[0].cpu(), view, rtol=0, atol=1e-5)
            assert torch.equal(found[1].cpu(), target)
    assert {wait for wait in mode.waits if not wait.endswith("copy")} == set()
    assert sum(mode.waits.values()) == 2  # of this test, for the comparison


def test_batches_of_an_epoch_come_without_a_wait() -> None:
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None]
    with accelerator() as mode:
        feed = HeldFeed(images, DEVICE)
        taken(mode)
        batches = list(feed.batches(torch.tensor([5, 0, 3, 1]).split(2)))
        assert dict(mode.waits) == {"data/feeding.py batches: copy": 1}
        assert [batch.flatten().tolist() for batch in batches] == [[5, 0], [3, 1]]


def test_evaluation_brings_everything_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(device: torch.device) -> dict[str, float]:
        torch.manual_seed(0)
        method = Method(BCL(), "resnet8", 1, COUNTS)
        if device != CPU:
            bring(method)
        data = bars()
        feeds = {"train": HeldFeed(data.train_images, device), "test": HeldFeed(data.test_images, device)}
        evaluation = Evaluation(data, feeds, device)
        means = {name: float(values.mean()) for name, values in evaluation.embeddings(method).items()}
        return means | evaluation.watch(method)

    expected = seen(CPU)
    monkeypatch.setattr("ltnb.evaluation.Generator", lambda device: OwnGenerator() if device == DEVICE else Generator())
    with accelerator():
        assert seen(DEVICE) == pytest.approx(expected)


def test_mixed_devices_and_the_wrong_generator_are_errors() -> None:
    with accelerator():
        there = torch.ones(2, device=DEVICE)
        with pytest.raises(RuntimeError, match="two devices"):
            there + torch.ones(2)
        with pytest.raises(RuntimeError, match="with a generator on cpu"):
            torch.rand(2, device=DEVICE, generator=Generator())
