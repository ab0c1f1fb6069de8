"""One training step over several processes against one process: images a second, and how long a run takes to start.

    python benchmarks/processes.py [--encoder resnet32] [--batch 256] [--steps 2] [--method bcl]

Each way takes the same steps on the same random images of 32 × 32 pixels: the encoder on its share of every view, the
features of the whole batch, all terms of the loss, backward, the gradients' mean, optimiser. The views are drawn
beforehand. Ways are one process on one thread, one on as many threads as there are cores or processes, and so many
processes on a thread each. They take turns, each in new processes, and the fastest step counts. Times are on the clock:
other work on the machine adds to them.

- "step" is the slowest process's, which is everybody's.
- "start" is from the call until all processes have met: a Python and torch for each of them.
"""

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
from hardware import processor
from torch import Generator
from training_step import at_random, on_photographs

from ltnb import params
from ltnb.distributed import average_gradients, num_processes, own_rows, process_number, wait_for_all
from ltnb.methods import MethodSettings
from ltnb.methods.assembly import Method
from ltnb.processes import in_processes

FILE = Path(__file__).parents[1] / "params.yaml"
SIDE = 32


def steps(settings: MethodSettings, encoder: str, batch: int, number: int, threads: int, file: Path) -> None:
    """Take ``number`` steps after one that is not timed; write when they began, and the seconds of each."""
    began = time.time()
    torch.set_num_threads(threads)
    images = at_random(SIDE, batch)
    torch.manual_seed(0)
    method = Method(settings, encoder, 3, images.class_counts)
    optimizer = torch.optim.SGD(method.begin(0), lr=1e-3, momentum=0.9, fused=True)
    generator = Generator().manual_seed(0)
    views = [torch.randn(batch, 3, SIDE, SIDE, generator=generator)[own_rows(batch)] for _ in method.views]
    seconds = []
    for _ in range(1 + number):
        wait_for_all()
        start = time.perf_counter()
        terms = method.losses(views, [images.labels] * len(views), generator)
        optimizer.zero_grad()
        terms["total"].backward()
        average_gradients(method.parameters())
        optimizer.step()
        method.after_step()
        wait_for_all()
        seconds.append(time.perf_counter() - start)
    torch.save((began, seconds[1:]), file.with_suffix(f".{process_number()}-of-{num_processes()}"))


def measured(processes: int, *arguments: object) -> tuple[float, float]:
    """Seconds of the fastest step, the slowest process's, and from the call until the last process begins."""
    with tempfile.TemporaryDirectory() as folder:
        called = time.time()
        in_processes(processes, steps, *arguments, Path(folder) / "found")
        found = [torch.load(file) for file in Path(folder).iterdir()]
    assert len(found) == processes
    slowest = [max(of_step) for of_step in zip(*(seconds for _, seconds in found), strict=True)]
    return min(slowest), max(began for began, _ in found) - called


def main() -> None:
    experiment = params.load(FILE)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="resnet32")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--method", default="ce", choices=list(experiment.methods))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    settings = on_photographs(experiment.methods[arguments.method])
    print(
        f"torch {torch.__version__}, {processor()}, {arguments.encoder}, {arguments.method}, "
        f"{arguments.batch} × 3 × {SIDE} × {SIDE}, fastest of {arguments.rounds} × {arguments.steps} steps"
    )
    ways = ((1, 1), (1, arguments.processes), (arguments.processes, 1))
    best = [(math.inf, math.inf)] * len(ways)
    for _ in range(arguments.rounds):
        for i, (processes, threads) in enumerate(ways):
            found = measured(processes, settings, arguments.encoder, arguments.batch, arguments.steps, threads)
            best[i] = min(best[i][0], found[0]), min(best[i][1], found[1])
    print(f"{'processes':>9}{'threads':>9}{'step':>12}{'images / s':>12}{'speed-up':>10}{'start':>9}")
    for (processes, threads), (step, start) in zip(ways, best, strict=True):
        print(
            f"{processes:>9}{threads:>9}{1e3 * step:>9.0f} ms{arguments.batch / step:>12.0f}"
            f"{best[0][0] / step:>10.2f}{start:>7.1f} s"
        )


if __name__ == "__main__":
    main()
