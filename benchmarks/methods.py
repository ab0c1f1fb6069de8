"""What each row of a preset costs: seconds per epoch and per run, peak memory, and the state that it keeps.

    python benchmarks/methods.py presets/digits-bcl.yaml [--rows bcl bcl-ema] [--epochs 3] [--rounds 3]

Each row is trained on the preset's first data set as `ltnb.training` does it: views, terms of the loss, backward,
optimiser, and what the method does after a step and after an epoch. So momentum encoders, queues and class moments are
in the time, and so is a second stage, which has epochs of its own. Evaluation is left out: it is the same for all.

*Time.* A method may change during training (synthesis begins late): the epochs that are timed stand in the middle of so
many equal parts of each stage, after one that is not timed, and their mean times the stage's length is the run. Rows
take turns, in ``--rounds`` rounds from the same seed, and of every epoch the fastest round counts: other processes only
add time. On a CPU it is processor time, on a GPU the time on the clock, until the last kernel has ended. The preset's
first row is always measured along, since the ratio to it holds only within one session.

*Memory.* By how much training raises a process's peak over what is resident just before the method is made, torch and
images included. Each row has a new process, which has trained once before: else most of it, some 150 MiB, would be code
that torch loads at first use. Freed tensors are given back at once, so that the first training leaves no room for the
second. It is not ``ru_maxrss``, which starts with the peak of the process that started this one, and would not grow
below that: Linux forgets the peak (``/proc/self/clear_refs``) and is asked again (``VmHWM``). It comes out the same to
about 1 MiB. On a GPU it is the most that torch had allocated, images included.

*State.* Everything in ``Method.state_dict()`` and the optimiser's state: the larger of the two stages.

The table goes to ``presets/results/<name>-cost.csv`` (`ltnb.costs`); rows that are not measured again stay there, and
fewer rounds than a row has there are refused.
"""

import argparse
import gc
import itertools
import math
import os
import platform
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Generator
from tqdm import tqdm

from ltnb import costs, presets
from ltnb.data.augmentation import normalise
from ltnb.data.prepare import Dataset, load, prepare
from ltnb.data.views import draw
from ltnb.methods.assembly import Method
from ltnb.methods.stages import learning_rate
from ltnb.params import ParamsError, RunSettings
from ltnb.training import batches, device_of

MIB = 2**20
PROJECT = Path(__file__).parents[1]


def train(settings: RunSettings, dataset: Dataset, looks: int) -> tuple[list[list[float]], float]:
    """Return the seconds of the epochs that are looked at in each stage, and the MiB of state."""
    training, device = settings.training, device_of(settings.training)
    torch.set_num_threads(training.threads)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(settings.seed)
    channels, counts, noise = dataset.train_images.shape[1], dataset.known_counts, dataset.settings.average_noise_rate
    method = Method(settings.method, training.encoder, channels, counts.tolist(), noise_rate=noise).to(device)
    order = Generator().manual_seed(1)
    augmentation, generator = Generator(device).manual_seed(2), Generator(device).manual_seed(3)
    images, labels = dataset.train_images.to(device), dataset.train_labels.to(device)
    stages = method.stages(training.stage)
    seconds, state = [], 0.0
    for number, stage in enumerate(stages):
        optimizer = torch.optim.SGD(
            method.begin(number),
            lr=learning_rate(0, stage),  # the first epoch's in all: it changes no cost, and nothing diverges
            momentum=training.momentum,
            weight_decay=stage.weight_decay,
            fused=True,
        )
        count = min(looks, stage.epochs)
        middles = [math.ceil(stage.epochs * (i + 0.5) / count) for i in range(count)]
        times = []
        for following in (*middles, stage.epochs + 1):
            start = now(device)
            method.train()
            terms = []
            for batch in batches(dataset.train_labels, training.batch_size, order, stage.sampler):
                chosen = batch.to(device)
                drawn = [
                    draw(images[chosen], labels[chosen], view, augmentation, num_classes=dataset.num_classes)
                    for view in method.views
                ]
                views = [normalise(view, dataset.mean, dataset.std) for view, _ in drawn]
                losses = method.losses(views, [targets for _, targets in drawn], generator)
                optimizer.zero_grad()
                torch.autograd.backward(losses["total"])
                optimizer.step()
                method.after_step()
                terms.append(torch.stack([value.detach().float() for value in losses.values()]))
            if not torch.stack(terms).cpu().isfinite().all():
                raise ArithmeticError(f"{settings.method_name}: a term of the loss is not finite")
            method.after_epoch(following - 1, stage.epochs)  # as if the next to be looked at came next
            times.append(now(device) - start)
        seconds.append(times[1:])
        kept = [*method.state_dict().values()]
        kept += [value for of_one in optimizer.state.values() for value in of_one.values() if torch.is_tensor(value)]
        state = max(state, sum({tensor.data_ptr(): tensor.nbytes for tensor in kept}.values()) / MIB)
    return seconds, state


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def memory(settings: RunSettings, folder: Path, looks: int) -> float:
    """Return by how many MiB training raises the peak of this process, which should be a new one."""
    dataset = load(folder)
    train(settings, dataset, 1)
    gc.collect()
    if device_of(settings.training).type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        train(settings, dataset, looks)
        return torch.cuda.max_memory_allocated() / MIB
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what is resident now
    before = named("/proc/self/status", "VmHWM")
    train(settings, dataset, looks)
    return (int(named("/proc/self/status", "VmHWM").split()[0]) - int(before.split()[0])) / 1024


def named(file: str, name: str) -> str:
    """Return what stands behind the first ``name`` of a file of Linux, or nothing."""
    lines = (line.partition(":") for line in Path(file).read_text(encoding="utf-8").splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", type=Path, help="presets/<name>.yaml, or of this project its name alone")
    parser.add_argument("--rows", nargs="+", help="of the preset, besides its first; by default all")
    parser.add_argument("--epochs", type=int, default=3, help="to look at in each stage (default: 3)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3; 10 give ratios to about 2 %%")
    options = parser.parse_args()
    if min(options.epochs, options.rounds) < 1:
        parser.error("--epochs and --rounds: expected at least 1")
    file = options.preset if options.preset.suffix else PROJECT / "presets" / f"{options.preset}.yaml"
    name, project = file.stem, file.resolve().parents[1]
    preset = presets.load(name, project)
    for row in options.rows or ():
        if row not in preset.methods:
            parser.error(f"--rows: {row!r} is not in {file}; expected one of {', '.join(preset.methods)}")
    first, data = next(iter(preset.methods)), next(iter(preset.datasets))
    rows = [row for row in preset.methods if options.rows is None or row in (first, *options.rows)]
    more = costs.cost(name, project).query("rounds > @options.rounds").index.intersection(rows)
    if len(more):
        parser.error(f"--rounds: {options.rounds} are fewer than those in which {', '.join(more)} were measured")
    runs = {row: preset.run(data, row, preset.seeds[0]) for row in rows}
    folder = project / "build" / "presets" / name / ".data" / data
    prepare(data, preset.datasets[data], folder, project)
    dataset, device = load(folder), device_of(preset.training)

    seconds: dict[str, list[list[list[float]]]] = {row: [] for row in rows}  # of each round, stage and epoch
    state = {}
    for _, row in tqdm([*itertools.product(range(options.rounds), rows)], desc="time", ncols=100):
        of_stages, state[row] = train(runs[row], dataset, options.epochs)
        seconds[row].append(of_stages)
    processor = named("/proc/cpuinfo", "model name") or platform.machine()
    hardware = f"{processor}, threads: {preset.training.threads}"
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name()
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # for new processes: what is freed is given back
    found = {}
    for row in tqdm(rows, desc="memory", ncols=100):
        epoch = [np.min(rounds, axis=0).mean() for rounds in zip(*seconds[row], strict=True)]
        lengths = [preset.training.epochs, preset.methods[row].second_stage_epochs][: len(epoch)]
        with get_context("spawn").Pool(1) as pool:
            added = pool.apply(memory, (runs[row], folder, options.epochs))
        second = epoch[1] if len(epoch) > 1 else math.nan
        found[row] = [epoch[0], second, np.dot(epoch, lengths), math.nan, added, state[row], options.rounds]
    frame = pd.DataFrame.from_dict(found, orient="index", columns=costs.NUMBERS).rename_axis("row")
    frame = frame.assign(device=hardware, torch=torch.__version__)
    frame["ratio"] = frame["run_seconds"] / frame["run_seconds"].iloc[0]
    costs.record(frame, name, project)
    print(f"{hardware}, torch {torch.__version__}, n: {options.rounds} rounds × {options.epochs} epochs")
    print(frame[costs.NUMBERS].to_string(float_format="{:.4g}".format, na_rep=""))


if __name__ == "__main__":
    try:
        main()
    except (ParamsError, FileNotFoundError) as error:
        sys.exit(str(error))
