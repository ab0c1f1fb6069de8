import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from image_sources import write_folder
from PIL import Image

from ltnb.data import feeding
from ltnb.data.feeding import FiledFeed, HeldFeed, feed, workers_of_a_process
from ltnb.data.prepare import load, prepare
from ltnb.data.settings import DatasetSettings

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The training images of one data set, in memory and in files."""
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder / "images", {"train": {"a": 40, "b": 50}, "test": {"a": 1, "b": 1}})
    found = {}
    for held_in in ("auto", "files"):
        settings = DatasetSettings(source="folder", root="images", imbalance="as-is", image_size=8, held_in=held_in)
        prepare("pets", settings, folder / held_in, folder)
        found[held_in] = load(folder / held_in).train_images
    return found


def test_what_lies_in_memory_and_what_lies_in_files(parts):
    assert isinstance(feed(parts["auto"], CPU), HeldFeed)
    assert isinstance(feed(parts["files"], CPU), FiledFeed)


@pytest.mark.parametrize("piece", [7, 32, 90])
def test_batches_are_the_same_from_memory_and_from_files(parts, monkeypatch, piece):
    monkeypatch.setattr(feeding, "_PIECE", piece)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    for chosen in (order.split(33), (order[:5],), (order[:0], order[:9]), ()):
        held, filed = (list(feed(parts[name], CPU).batches(chosen)) for name in ("auto", "files"))
        assert len(held) == len(filed) == len(chosen)
        for one, other in zip(held, filed, strict=True):
            assert one.dtype == other.dtype == torch.uint8
            assert torch.equal(one, other)


def test_the_batches_of_one_feed_may_be_asked_for_twice_at_once(parts):
    images = feed(parts["files"], CPU)
    chosen = torch.arange(90).split(45)
    for one, other in zip(images.batches(chosen), images.batches(chosen), strict=True):
        assert torch.equal(one, other)


def test_reading_changes_no_global_state(parts):
    before = torch.random.get_rng_state()
    list(feed(parts["files"], CPU).batches(torch.arange(90).split(45)))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_pieces_are_let_go_once_they_are_copied(parts, monkeypatch):
    pieces = []

    def kept(piece):
        pieces.append(weakref.ref(piece))
        assert sum(piece() is not None for piece in pieces) <= 2  # this one, and the one that was copied last
        return piece

    monkeypatch.setattr(feeding, "_PIECE", 9)
    monkeypatch.setattr(feeding, "_sound", kept)
    (batch,) = feed(parts["files"], CPU).batches([torch.arange(90)])
    assert len(pieces) == 10
    assert torch.equal(batch, parts["auto"])


def test_too_little_shared_memory_is_told(parts, monkeypatch):
    def full(_):
        raise RuntimeError("No space left on device (28)")

    images = feed(parts["files"], CPU)
    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(MemoryError, match=r"^shared memory has no room .*No space left.*`--shm-size`"):
        list(images.batches([torch.arange(5)]))


@pytest.mark.parametrize("rows", [90, 5])  # by other processes, and by this one
def test_what_is_wrong_with_a_file_is_told_as_it_is(tmp_path, rows):
    write_folder(tmp_path / "images", {"train": {"a": 40, "b": 50}, "test": {"a": 1, "b": 1}})
    settings = DatasetSettings(source="folder", root="images", imbalance="as-is", image_size=8, held_in="files")
    prepare("pets", settings, tmp_path / "out", tmp_path)
    images = feed(load(tmp_path / "out").train_images, CPU)
    chosen = torch.arange(rows).split(45)
    began = time.monotonic()
    file = tmp_path / "images" / "train" / "a" / "003.png"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file)
    with pytest.raises(ValueError, match=rf"^{file} is not what it was when the data set was prepared"):
        list(images.batches(chosen))
    file.unlink()
    with pytest.raises(FileNotFoundError, match=rf"^{file} is missing$"):
        list(images.batches(chosen))
    # Processes that miss their end are waited for, five seconds each.
    gc.collect()
    assert time.monotonic() - began < 5


def test_processors_are_shared_by_the_processes_that_train(monkeypatch):
    monkeypatch.setattr(feeding, "cpu_count", lambda: 16)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert workers_of_a_process() == 16
    for processes, workers in (("3", 5), ("16", 1), ("32", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert workers_of_a_process() == workers


def test_threads_beside_the_decoders_do_no_harm(parts):
    # A fork would inherit whatever lock one of them holds.
    stop = threading.Event()
    threads = [threading.Thread(target=lambda: [os.urandom(8) for _ in iter(stop.is_set, True)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            assert sum(map(len, feed(parts["files"], CPU).batches(torch.arange(90).split(30)))) == 90
    finally:
        stop.set()
        for thread in threads:
            thread.join()


ENDLESS = """
import pathlib, sys, torch
from ltnb.data.feeding import feed
from ltnb.data.prepare import load
if __name__ == "__main__":
    images = feed(load(pathlib.Path(sys.argv[1])).train_images, torch.device("cpu"))
    for _ in images.batches([torch.arange(90)] * 5_000):
        print("decoding", flush=True)
"""


def descendants(process):
    """Numbers of a process's children, and of theirs."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/stat") as stream:
                    parents[int(entry)] = int(stream.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, new = set(), {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def running(process):
    try:
        with open(f"/proc/{process}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="Processes are looked up in /proc")
def test_decoders_end_with_the_process_that_trains(parts, tmp_path):
    assert parts
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    folder = parts["files"].root.parent / "files"
    trains = subprocess.Popen(
        [sys.executable, script, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert trains.stdout.readline() == "decoding\n"
    decoders = descendants(trains.pid)
    assert len(decoders) >= 2
    trains.send_signal(signal.SIGKILL)
    trains.stdout.close()
    trains.wait(20)
    deadline = time.monotonic() + 20
    while any(map(running, decoders)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [process for process in decoders if running(process)]
