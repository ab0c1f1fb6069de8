"""A training step, as `ltnb.training` takes it, against the plain way and against the network alone.

    python benchmarks/training_step.py                     the default experiment
    python benchmarks/training_step.py --encoder resnet32 --image-size 32 --batch 256 --methods ce bcl --rounds 5

Four ways for each method: plain (float32, every channel on its own, NCHW), float32 with the channels last, which is how
ltnb keeps its encoders, bfloat16 (`training.precision`), and that compiled (`training.compiled`). Of each way (a) a
whole step: augmentation of every view, all terms of the loss, backward, optimiser; (b) the encoder alone on as many
images, forward and backward. All take turns, and the fastest round of each counts, because other processes only ever
add time. With one thread it is processor time, to which they add less.

- "step / network" is what everything but the network costs.
- "plain / step" is how much faster than the plain way a step is; the plain one has ltnb's augmentation and losses.
- "of peak" is the share that a step reaches of this machine's bfloat16 peak: its matrix products and convolutions,
  counted by torch.utils.flop_counter, over its time, against a product of two large matrices in the same rounds. A
  float32 step is measured against the same peak.

With --image-size images are random, of three channels and 100 classes in a long tail of 100, the views those of BCL on
CIFAR: "auto", and "sim-flip" for all but the first.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from hardware import processor
from torch import Generator, Tensor
from torch.utils.flop_counter import FlopCounterMode

from ltnb import params
from ltnb.data.augmentation import normalise
from ltnb.data.prepare import load, prepare
from ltnb.data.profiles import long_tail_counts
from ltnb.data.views import draw
from ltnb.methods import MethodSettings
from ltnb.methods.assembly import Method

FILE = Path(__file__).parents[1] / "params.yaml"

# Large enough for the peak: twice and four times the side are up to a tenth slower here, since they leave the cache.
SIDE_OF_PEAK = 2048


@dataclass(frozen=True)
class Way:
    """How the encoder is kept and run."""

    name: str
    layout: torch.memory_format
    dtype: torch.dtype = torch.float32
    compiled: bool = False


WAYS = (
    Way("plain", torch.contiguous_format),
    Way("channels last", torch.channels_last),
    Way("bfloat16", torch.channels_last, torch.bfloat16),
    Way("compiled", torch.channels_last, torch.bfloat16, compiled=True),
)


@dataclass(frozen=True)
class Batch:
    """One batch, and what the steps have to know of its data set."""

    images: Tensor
    labels: Tensor
    class_counts: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float]


def of_default(experiment: params.Params, size: int) -> Batch:
    """The first images of the experiment's data set."""
    name = next(iter(experiment.datasets))
    folder = FILE.parent / "scratch" / "data" / name
    prepare(name, experiment.datasets[name], folder)
    dataset = load(folder)
    return Batch(
        dataset.train_images[:size],
        dataset.train_labels[:size],
        dataset.class_counts.tolist(),
        dataset.mean.tolist(),
        dataset.std.tolist(),
    )


def at_random(side: int, size: int) -> Batch:
    """Images of noise, their labels as frequent as in CIFAR-100-LT."""
    generator = Generator().manual_seed(0)
    counts = long_tail_counts(500, 100, num_classes=100)
    labels = torch.multinomial(torch.tensor(counts).double(), size, replacement=True, generator=generator)
    images = torch.randint(256, (size, 3, side, side), generator=generator, dtype=torch.uint8)
    return Batch(images, labels, counts, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


def on_photographs(settings: MethodSettings) -> MethodSettings:
    """The same method with as many views of photographs."""
    views = ("auto", *["sim-flip"] * (len(settings.views) - 1))
    return type(settings)(**{**settings.model_dump(exclude_unset=True), "views": views})


def calls(
    settings: MethodSettings, encoder: str, batch: Batch, way: Way
) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step of training, and the network alone."""
    method = Method(settings, encoder, batch.images.shape[1], batch.class_counts)
    method.encoder.to(memory_format=way.layout)
    if way.compiled:
        method.encoder.compile()
    optimizer = torch.optim.SGD(method.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)
    generator = Generator().manual_seed(0)
    noise = torch.rand(len(batch.images) * len(method.views), *batch.images.shape[1:])
    # Of random direction, as a loss has it: batch normalisation takes the mean out of that of a sum, and denormal
    # numbers are left, which are slow.
    gradient = torch.randn(len(noise), method.encoder.feature_dim) / len(noise)
    lowered = torch.autocast("cpu", torch.bfloat16, enabled=way.dtype == torch.bfloat16)

    def step() -> None:
        drawn = [
            draw(batch.images, batch.labels, view, generator, num_classes=len(batch.class_counts))
            for view in method.views
        ]
        views = [normalise(view, batch.mean, batch.std) for view, _ in drawn]
        with lowered:
            total = method.losses(views, [targets for _, targets in drawn], generator)["total"]
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        method.after_step()

    def network() -> None:
        with lowered:
            features = method.encoder(noise)
        features.backward(gradient.to(features.dtype))
        method.zero_grad()

    return step, network


def fastest(
    functions: Sequence[Callable[[], None]], rounds: int, warmup: int, clock: Callable[[], float]
) -> list[float]:
    """The seconds of each in its best round, taken in turns."""
    best = [math.inf] * len(functions)
    for round_ in range(warmup + rounds):
        for i, function in enumerate(functions):
            start = clock()
            function()
            if round_ >= warmup:
                best[i] = min(best[i], clock() - start)
    return best


def matrix_product() -> Callable[[], None]:
    """The product of two large bfloat16 matrices, which is all that a processor can do at its best."""
    left, right = torch.rand(2, SIDE_OF_PEAK, SIDE_OF_PEAK).bfloat16()

    def product() -> None:
        left @ right

    return product


def operations(function: Callable[[], None]) -> int:
    """The floating-point operations of the matrix products and convolutions in a call, a multiply-add as two."""
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


def main() -> None:
    experiment = params.load(FILE)
    training = experiment.training
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default=training.encoder)
    parser.add_argument("--image-size", type=int, help="side of random colour images; without it, the default data set")
    parser.add_argument("--batch", type=int, default=training.batch_size)
    parser.add_argument("--methods", nargs="+", default=list(experiment.methods), help="names in params.yaml")
    parser.add_argument("--threads", type=int, default=training.threads)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    if unknown := set(arguments.methods) - set(experiment.methods):
        parser.error(
            f"--methods: {', '.join(sorted(unknown))} not in {FILE.name}; it has {', '.join(experiment.methods)}"
        )
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    random = arguments.image_size is not None
    batch = at_random(arguments.image_size, arguments.batch) if random else of_default(experiment, arguments.batch)
    print(
        f"torch {torch.__version__}, {processor()}, {arguments.threads} threads, {arguments.encoder}, "
        f"{' × '.join(map(str, batch.images.shape))}, fastest of {arguments.rounds} rounds by {clock.__name__}"
    )
    print(
        f"{'method':<20}{'way':<15}{'step':>11}{'network':>12}{'step / network':>16}{'plain / step':>14}{'of peak':>9}"
    )
    for key in arguments.methods:
        settings = on_photographs(experiment.methods[key]) if random else experiment.methods[key]
        pairs = [calls(settings, arguments.encoder, batch, way) for way in WAYS]
        functions = [function for pair in pairs for function in pair]
        *seconds, of_product = fastest([*functions, matrix_product()], arguments.rounds, 1 if random else 3, clock)
        steps, networks = seconds[::2], seconds[1::2]
        peak, work = 2 * SIDE_OF_PEAK**3 / of_product, operations(functions[0])
        for way, step, network in zip(WAYS, steps, networks, strict=True):
            print(
                f"{key:<20}{way.name:<15}{1e3 * step:>8.1f} ms{1e3 * network:>9.1f} ms"
                f"{step / network:>16.2f}{steps[0] / step:>14.2f}{work / step / peak:>8.0%}",
                flush=True,
            )
        print(f"{'':<20}{work / 1e9:.1f} GFLOP a step, peak {peak / 1e9:.0f} GFLOP/s in bfloat16")


if __name__ == "__main__":
    main()
