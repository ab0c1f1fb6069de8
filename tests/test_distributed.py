"""Several processes on the CPU do what one does with the joined batch, to the precision of float64."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shares_of_batches
import torch
from shares_of_batches import CASES
from stateful_methods import STATEFUL
from torch import Tensor, nn
from torch.testing import assert_close

from ltnb import processes, training
from ltnb.distributed import num_processes, own_rows
from ltnb.processes import in_processes
from ltnb.runs import read

Found = dict[str, dict[str, Tensor]]


def of_processes(number: int, function: Callable[[Path], None], folder: Path) -> list[dict[Any, Any]]:
    in_processes(number, function, folder / "found")
    return [torch.load(folder / f"found.{process}") for process in range(number)]


def of_one_process(function: Callable[[Path], None], folder: Path) -> dict[Any, Any]:
    try:
        function(folder / "found")
    finally:
        torch.set_default_dtype(torch.float32)
    return torch.load(folder / "found.0")  # type: ignore[no-any-return]


def test_without_a_group_there_is_one_process_that_has_every_row() -> None:
    assert num_processes() == 1
    assert own_rows(7) == slice(0, 7)


def test_rows_are_joined_in_their_order_with_gradient_from_every_process(tmp_path: Path) -> None:
    shares = {1: [[0], [], []], 2: [[0], [1], []], 5: [[0, 1], [2, 3], [4]]}
    for process, found in enumerate(of_processes(3, shares_of_batches.collectives, tmp_path)):
        for total, rows in shares.items():
            joint = torch.arange(total, dtype=torch.float64)[:, None].expand(total, 3)
            assert_close(found[total]["first"], joint)
            assert_close(found[total]["second"], joint + 100)
            # Row i weighs i + r in process r's first sum and 1 in its second: 3i + 3 and 3 of all three.
            own = torch.tensor([3 * row + 6 for row in rows[process]], dtype=torch.float64)
            assert_close(found[total]["gradient"], own[:, None].expand(len(own), 3))
        assert_close(found["sum"]["sum"], torch.tensor(4.0 + 9 + 16, dtype=torch.float64))
        assert_close(found["sum"]["gradient"], torch.tensor(2.0 * (2 + process) * (1 + 2 + 3), dtype=torch.float64))
        assert found["bytes"].tolist() == [0, 1]


def test_batch_normalisation_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    number = 3
    processes = of_processes(number, shares_of_batches.normalisations, tmp_path)
    for shape in processes[0]:
        generator = torch.Generator().manual_seed(0)
        x, weights = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        x = (x + 5).requires_grad_()
        norm = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(3, dtype=torch.float64)
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
            norm.bias.copy_(torch.tensor([0.5, 0.0, -1.0]))
        y = norm(x)
        torch.autograd.backward((y * weights).sum())
        for name, expected in (("y", y), ("gradient", x.grad)):
            assert_close(torch.cat([found[shape][name] for found in processes]), expected)
        norm.eval()
        assert_close(torch.cat([found[shape]["evaluated"] for found in processes]), norm(x))
        for found in processes:
            # Each process's loss is of its own rows, so that the mean over processes is a share of the whole.
            assert_close(found[shape]["weight"] * number, norm.weight.grad)
            assert_close(found[shape]["bias"] * number, norm.bias.grad)
            for name, value in norm.state_dict().items():
                assert_close(found[shape][f"state {name}"], value)


@pytest.fixture(scope="module")
def of_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    return of_processes(2, shares_of_batches.steps_of_every_system, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    return of_processes(3, shares_of_batches.steps_of_every_system, tmp_path_factory.mktemp("three"))


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Tensor]]:
    return of_one_process(shares_of_batches.steps_of_every_system, tmp_path_factory.mktemp("one"))


@pytest.mark.parametrize(("system", "batch"), CASES)
@pytest.mark.parametrize("number", ["of_two", "of_three"])
def test_terms_gradients_and_state_are_those_of_one_process(
    number: str, system: str, batch: str, of_one: Found, request: pytest.FixtureRequest
) -> None:
    expected = of_one[f"{system}, {batch}"]
    for found in request.getfixturevalue(number):
        assert found[f"{system}, {batch}"].keys() == expected.keys()
        for name, value in expected.items():
            assert_close(
                found[f"{system}, {batch}"][name], value, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    alone, together = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("together")
    in_processes(1, shares_of_batches.train_all, alone)
    in_processes(2, shares_of_batches.train_all, together)
    return alone, together


@pytest.mark.parametrize("number", range(len(STATEFUL)), ids=list(STATEFUL))
def test_two_processes_train_the_weights_of_one(number: int, trained: tuple[Path, Path]) -> None:
    alone, together = (read(folder / str(number)) for folder in trained)
    assert together.params["training"]["processes"] == 2
    assert together.metrics == pytest.approx(alone.metrics, abs=1e-9)
    assert together.embeddings.keys() == alone.embeddings.keys()
    for name, values in alone.embeddings.items():
        np.testing.assert_allclose(together.embeddings[name], values, rtol=1e-9, atol=1e-11, err_msg=name)


def test_an_error_of_one_process_is_the_callers_and_stops_the_others() -> None:
    with pytest.raises(training.NonFiniteLossError, match=r"^as it was$"):
        in_processes(2, shares_of_batches.raise_in_the_last, "as it was")


def test_an_error_that_pickle_cannot_read_back_is_told_all_the_same() -> None:
    with pytest.raises(RuntimeError, match=r"^ErrorOfTwo: 1 and 2$") as raised:
        in_processes(1, shares_of_batches.raise_of_two)
    assert "raise ErrorOfTwo(1, 2)" in str(raised.value.__cause__)


def test_a_process_that_a_signal_ends_is_named_and_stops_the_others() -> None:
    with pytest.raises(ChildProcessError, match=r"^process 1 of 2 was ended by SIGKILL$"):
        in_processes(2, shares_of_batches.end_the_last_by_a_signal)


def test_an_error_of_a_process_that_has_long_ended_is_told(tmp_path: Path) -> None:
    class Ended:
        """A process that ended between its start and the first look at it."""

        exitcode = 1

        def __init__(self) -> None:
            self.sentinel, other = os.pipe()
            os.close(other)  # so that it can be read from, as of a process that has ended

    told = pickle.dumps(ValueError("as it was"))
    (tmp_path / "error-0").write_bytes(pickle.dumps((told, "where")))
    with pytest.raises(ValueError, match=r"^as it was$"):
        processes._wait_for_the_end([Ended()], tmp_path)  # type: ignore[list-item]


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(by: signal.Signals, tmp_path: Path) -> None:
    # What a script starts in the background ignores SIGINT, and so do its children.
    handling = signal.signal(signal.SIGINT, signal.default_int_handler if by == signal.SIGINT else signal.SIG_IGN)
    try:
        parent = subprocess.Popen(
            [sys.executable, shares_of_batches.__file__, str(tmp_path)], stderr=subprocess.DEVNULL
        )
    finally:
        signal.signal(signal.SIGINT, handling)
    end = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    processes = [int(file.name) for file in tmp_path.iterdir()]
    assert len(processes) == 2
    parent.send_signal(by)
    parent.wait(60)
    end = time.monotonic() + 20
    while any(map(is_running, processes)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_running, processes))


def test_what_a_group_refuses_is_told_by_all_of_it(tmp_path: Path) -> None:
    for told in of_processes(2, shares_of_batches.refused, tmp_path):
        assert told["another size"] == "training.processes: 3, in a group of 2; expected the same"
        assert told["a single value"].startswith("expected more than one value of each channel")
        assert re.search("goes on after epoch [04] and others do not; expected a disk that all", told["two disks"])
