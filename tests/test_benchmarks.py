"""The benchmarks run and count right, on little of everything; no time is asked for."""

import importlib
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ltnb.methods import BCL

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    """Import a benchmark as a script would find it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


def test_peak_is_what_lives_together(load) -> None:
    peak = load("allocations").peak_bytes
    x = torch.ones(1000)

    def one_after_the_other() -> torch.Tensor:
        a = x + 1
        del a
        b = x + 1
        b.add_(1)  # in place: nothing new
        return b[:5]  # a view: nothing new

    def two_at_once() -> torch.Tensor:
        a = x + 1
        return a + a

    assert peak(one_after_the_other) == 4000
    assert peak(two_at_once) == 8000
    assert peak(lambda: x.add_(0)) == 0  # what was there before does not count


def test_peak_sees_the_backward_pass(load) -> None:
    x = torch.ones(1000, requires_grad=True)
    forward = load("allocations").peak_bytes(lambda: x.exp().sum())
    both = load("allocations").peak_bytes(lambda: x.exp().sum().backward())
    assert both >= forward + 4000  # the gradient


def test_bcl_needs_less_memory_than_the_plain_way(load) -> None:
    script, peak = load("balanced_contrastive_loss"), load("allocations").peak_bytes
    batch = script.long_tailed_batch(1000)
    plain, ours = (peak(lambda loss=loss: script.forward_backward(loss, batch)) for loss in (script.plain, script.ours))
    assert plain > 3 * ours
    for expected, found in zip(
        script.forward_backward(script.plain, batch)[1], script.forward_backward(script.ours, batch)[1], strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_operations_of_a_product_and_of_a_step(load) -> None:
    script = load("training_step")
    assert script.operations(script.matrix_product()) == 2 * script.SIDE_OF_PEAK**3
    batch, settings = script.at_random(8, 4), load("scaling").SYSTEMS["ce"]()
    step, network = script.calls(settings, "resnet8", batch, script.WAYS[0])
    classifier = 2 * 3 * 4 * 64 * 100  # forward, and both sides of backward
    assert script.operations(step) - script.operations(network) == classifier


def test_growth_is_the_exponent_of_the_largest_two(load) -> None:
    growth = load("scaling").growth
    assert growth((10, 100, 1000), (5.0, 3.0, 300.0)) == pytest.approx(2)
    assert growth((10, 100, 1000), (5.0, 5.0)) == 0
    assert math.isnan(growth((10, 100), (5.0,)))


def test_scaling_measures_every_system(
    load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load("scaling")
    monkeypatch.setattr(script, "BASE_CLASSES", 6)
    monkeypatch.setattr(script, "BASE_BATCH", 8)
    monkeypatch.setattr(script, "BASE_SAMPLES", 60)
    arguments = ["--classes", "4", "8", "--batches", "8", "12", "--samples", "60", "160"]
    monkeypatch.setattr(sys, "argv", ["scaling.py", *arguments])
    threads = torch.get_num_threads()
    try:
        script.main()
    finally:
        torch.set_num_threads(threads)
    output = capsys.readouterr().out
    step_table = output.partition("ms a step, against K")[2].partition("\n\n")[0].splitlines()[2:]
    assert [line.split()[0] for line in step_table] == list(script.SYSTEMS)
    assert all(len(line.split()) == 4 for line in step_table)
    assert "of an epoch; keeps" in output
    assert "class-balanced" in output


def test_scaling_measures_synthesis_with_its_features(load) -> None:
    script = load("scaling")
    method = script.assembled("featrecon", script.class_counts(6, 60))
    script.collect(method, 60, torch.Generator().manual_seed(0))
    synthesis = method.contrast.synthesis
    assert sum(len(z) for z, _ in synthesis.epoch) == 60
    method.after_epoch(script.EPOCHS - 2, script.EPOCHS)
    assert synthesis.estimated
    assert synthesis.epoch == []


def test_processes_are_measured_in_every_way(
    load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load("processes")
    step, start = script.measured(2, script.on_photographs(BCL()), "resnet8", 8, 1, 1)
    assert step > 0
    assert start > 0
    monkeypatch.setattr(script, "measured", lambda *_: (step, start))
    monkeypatch.setattr(sys, "argv", ["processes.py"])
    script.main()
    table = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[:2] for line in table] == [["1", "1"], ["1", "2"], ["2", "1"]]
    assert all(float(line.split()[2]) > 0 for line in table)
