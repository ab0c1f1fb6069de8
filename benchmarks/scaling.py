"""How the cost of every system grows with the classes K, the images of a batch, and those of an epoch N.

    python benchmarks/scaling.py [--systems bcl featrecon] [--classes 10 100 1000 8142] [--batches 32 128 512 1024]
                                 [--samples 1000 10000 100000 437513]

Each of K, batch and N is varied alone, from 100 classes, 256 images and 10,000 of them an epoch. Methods are put
together as `ltnb.training` does, with a stand-in for the encoder that scales 128 features and costs next to nothing: so
what is timed is heads, classification, contrast, spread and synthesis. A step is all terms of the loss, backward, and
what follows an update; an epoch's end is `Method.after_epoch` with the projections of N images collected, where a
method collects them. Two views make twice as many anchors as images. The fastest of a few rounds counts, in processor
time of one thread. "growth" is the slope between the two largest sizes in logarithms: 1 is linear, 2 quadratic.

Where the last K is left out the method cannot be made or run at that size, for the reason that is printed.

Beside it: FeatRecon's refresh at the size of iNaturalist 2018 as a share of an epoch, which cannot be shorter than
forward and backward of ResNet-50 at 224 pixels on three views of all images at this processor's bfloat16 peak; and the
refresh on the default digits against the network's measured forward and backward.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args
from unittest import mock

import torch
from allocations import peak_bytes
from hardware import processor
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from ltnb import geometry
from ltnb.data.profiles import long_tail_counts
from ltnb.methods import FeatRecon, MethodSettings, System
from ltnb.methods.assembly import Method
from ltnb.methods.contrast import PairedContrast
from ltnb.methods.synthesis import SupportSynthesis
from ltnb.models.encoders import encoder
from ltnb.training import batches

SYSTEMS: dict[str, type[MethodSettings]] = {kind.model_fields["system"].default: kind for kind in get_args(System)}
CLASSES, BATCHES, SAMPLES = (10, 100, 1000, 8142), (32, 128, 512, 1024), (1000, 10_000, 100_000, 437_513)
BASE_CLASSES, BASE_BATCH, BASE_SAMPLES = 100, 256, 10_000
FEATURE_DIM, IMBALANCE, EPOCHS = 128, 100, 10
ROUNDS, LONG = 3, 2.0  # what takes more seconds than that is done once
MIB = 2**20

# The most classes that a system can have here, and why not more.
SIMPLEX = "a simplex needs K − 1 dimensions, so the classifier alone is K², as many weights as its paper asks for"
LIMITS = {
    "pal": (1000, SIMPLEX),
    "fnpal": (1000, SIMPLEX),
    "etf-dr": (1000, SIMPLEX),
    "rbl": (1000, "the rotation of K − 1 dimensions is a matrix exponential, K³"),
    "featrecon": (1000, "all classes are filled up to the largest of the batch: K · max rows, each against each other"),
}
# What grows faster than linearly by design.
REASONS = {
    "bce3s": "the spread term compares each pair of classifier vectors: K² cosines",
    "tsc": "targets are assigned to classes once an epoch by the Hungarian algorithm, K³",
}


class StandIn(nn.Module):
    """Features as they come, each scaled by a parameter, so that gradients reach every feature."""

    def __init__(self, feature_dim: int, *, norm: bool) -> None:
        """Scale by 1, and end with batch normalisation if a method asks for it."""
        super().__init__()
        self.feature_dim = feature_dim
        self.scale = nn.Parameter(torch.ones(feature_dim))
        self.norm = nn.BatchNorm1d(feature_dim) if norm else nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        """Map features (N, d) to features (N, d)."""
        scaled: Tensor = self.norm(features * self.scale)
        return scaled


def feature_dim(system: str, num_classes: int) -> int:
    """128, or as many as a simplex needs."""
    return max(FEATURE_DIM, num_classes - 1) if system in ("pal", "fnpal", "etf-dr", "rbl") else FEATURE_DIM


def class_counts(num_classes: int, num_samples: int) -> list[int]:
    """A long tail of at least one image a class, of about so many in all."""
    shares = torch.tensor(long_tail_counts(10**6, IMBALANCE, num_classes=num_classes)).double()
    return (num_samples * shares / shares.sum()).round().clamp(min=1).long().tolist()


def assembled(system: str, counts: Sequence[int]) -> Method:
    """Make the system's method on the stand-in; TSC's targets at random, whose search is timed apart."""
    changes = {"head_above": 0} if system == "featrecon" else {}
    settings, dim = SYSTEMS[system](**changes), feature_dim(system, len(counts))

    def stand_in(_name: str, _channels: int, **_options: object) -> StandIn:
        return StandIn(dim, norm=settings.feature_norm)

    def targets(number: int, width: int, *, generator: Generator) -> Tensor:
        return F.normalize(torch.randn(number, width, generator=generator, dtype=torch.float64), dim=1)

    with mock.patch("ltnb.methods.assembly.encoder", stand_in), mock.patch.object(geometry, "uniform_targets", targets):
        return Method(settings, "stand-in", 0, counts)


@dataclass(frozen=True)
class Cost:
    """Seconds of a step and of an epoch's end, and MiB of state."""

    step: float
    epoch_end: float
    state: float


def fastest(function: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Seconds of processor time in the best round; one that takes long is not repeated."""
    best = math.inf
    for _ in range(rounds):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
        if best > LONG:
            break
    return best


def collect(method: Method, num_samples: int, generator: Generator) -> None:
    """Give the method an epoch's projections, if it keeps them."""
    if isinstance(method.contrast, PairedContrast) and method.contrast.synthesis is not None:
        num_classes, dim = len(method.class_counts), method.settings.projection_dim
        labels = torch.arange(max(num_samples, num_classes)) % num_classes
        centres = torch.randn(num_classes, dim, generator=generator)
        for of_batch in labels.split(4096):
            near = centres[of_batch] + 0.3 * torch.randn(len(of_batch), dim, generator=generator)
            method.contrast.synthesis.collect(F.normalize(near, dim=1), of_batch)


def cost(system: str, num_classes: int, batch: int, num_samples: int) -> Cost:
    """Measure a system at one size."""
    torch.manual_seed(0)
    generator = Generator().manual_seed(0)
    counts = class_counts(num_classes, num_samples)
    method = assembled(system, counts)
    method.begin(0)
    method.train()
    labels = torch.multinomial(torch.tensor(counts).double(), batch, replacement=True, generator=generator)
    features = [torch.randn(batch, feature_dim(system, num_classes), generator=generator) for _ in method.views]
    targets = [F.one_hot(labels, num_classes).float() if "mix" in view else labels for view in method.views]

    def step() -> None:
        method.losses(features, targets, generator)["total"].backward()
        method.zero_grad()
        method.after_step()

    step()
    ends = []
    for epoch in range(EPOCHS - 2, EPOCHS):
        collect(method, num_samples, generator)
        ends.append(fastest(lambda epoch=epoch: method.after_epoch(epoch, EPOCHS), rounds=1))  # type: ignore[misc]
        if ends[0] > LONG:
            break
    state = sum(tensor.nbytes for tensor in method.state_dict().values()) / MIB
    return Cost(fastest(step), min(ends), state)


def growth(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope between the two largest sizes in logarithms: values ∝ size^slope; NaN of fewer than two."""
    if len(values) < 2 or min(values[-2:]) <= 0:
        return math.nan
    return math.log(values[-1] / values[-2]) / math.log(sizes[len(values) - 1] / sizes[len(values) - 2])


def table(title: str, sizes: Sequence[int], rows: dict[str, list[float]]) -> None:
    print(f"\n{title}\n{'':<16}{''.join(f'{size:>11,}' for size in sizes)}{'growth':>9}")
    for system, values in rows.items():
        cells = [f"{value:>11.2f}" for value in values] + [" " * 11] * (len(sizes) - len(values))
        print(f"{system:<16}{''.join(cells)}{growth(sizes, values):>9.2f}", flush=True)


def peak_rate() -> float:
    """Floating-point operations a second of a product of two large bfloat16 matrices."""
    side = 2048
    left, right = torch.rand(2, side, side).bfloat16()
    return 2 * side**3 / fastest(lambda: left @ right, rounds=5)


def operations_of_image(name: str, channels: int, side: int) -> int:
    """Operations of forward and backward of one image, counted on tensors without values."""
    with torch.device("meta"):
        network = encoder(name, channels)
        images = torch.empty(2, channels, side, side)
        with FlopCounterMode(display=False) as counter:
            network(images).sum().backward()
    return counter.get_total_flops() // 2


def refresh(num_samples: int, num_classes: int, dim: int) -> tuple[float, float, float]:
    """Seconds of FeatRecon's refresh, GiB that it makes on the way, and GiB of projections that it had kept."""
    generator = Generator().manual_seed(0)
    counts = class_counts(num_classes, num_samples)
    settings = FeatRecon(projection_dim=dim, head_above=0)
    synthesis = SupportSynthesis(settings, counts)
    centres = torch.randn(num_classes, dim, generator=generator)
    labels = (torch.arange(num_samples) % num_classes)[torch.randperm(num_samples, generator=generator)]

    def collected() -> None:
        for of_batch in labels.split(256):
            near = centres[of_batch] + 0.3 * torch.randn(len(of_batch), dim, generator=generator)
            synthesis.collect(F.normalize(near, dim=1), of_batch)

    collected()
    kept = sum(z.nbytes for z, _ in synthesis.epoch) / 2**30
    seconds = fastest(lambda: synthesis.after_epoch(EPOCHS - 1, EPOCHS), rounds=1)
    collected()
    return seconds, peak_bytes(lambda: synthesis.after_epoch(EPOCHS - 1, EPOCHS)) / 2**30, kept


def report_refresh(num_samples: int, num_classes: int) -> None:
    """Print what FeatRecon's refresh costs, against an epoch."""
    epoch = num_samples * 3 * operations_of_image("resnet50", 3, 224) / peak_rate()
    print(
        f"\nFeatRecon's refresh, {num_samples:,} images, {num_classes:,} classes; an epoch of at least {epoch:,.0f} s"
    )
    for dim in (128, 1024):
        seconds, made, kept = refresh(num_samples, num_classes, dim)
        print(
            f"  {dim:>4} dimensions: {seconds:.1f} s, at most {seconds / epoch:.3%} of an epoch; "
            f"keeps {kept:.2f} GiB, needs {made:.2f} GiB on the way"
        )
    digits = long_tail_counts(124, IMBALANCE, num_classes=10)
    network, images = encoder("resnet8", 1), torch.rand(48, 1, 16, 16)  # batches of params.yaml
    per_image = fastest(lambda: network(images).sum().backward(), rounds=10) / len(images)
    seconds = min(refresh(sum(digits), 10, 128)[0] for _ in range(5))
    share = seconds / (3 * sum(digits) * per_image)
    print(f"  digits: {1e3 * seconds:.2f} ms, {share:.1%} of the network's forward and backward on three views")


def report_sampler(num_samples: int, num_classes: int) -> None:
    """Print what drawing an epoch's batches costs, and a step of the search for TSC's targets."""
    labels = torch.arange(num_samples) % num_classes
    generator = Generator().manual_seed(0)
    print(f"\nan epoch's order, {num_samples:,} images: ", end="")
    print(
        f"instance {1e3 * fastest(lambda: batches(labels, 256, generator)):.0f} ms, class-balanced "
        f"{1e3 * fastest(lambda: batches(labels, 256, generator, 'class-balanced')):.0f} ms"
    )
    one = Generator().manual_seed(0)
    number = min(num_classes, 2000)
    seconds = fastest(lambda: geometry.uniform_targets(number, FEATURE_DIM, generator=one, steps=1), rounds=1)
    print(f"TSC's search for {number:,} targets in {FEATURE_DIM} dimensions: {seconds:.2f} s a step of 1,000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--classes", nargs="+", type=int, default=CLASSES, help="K, growing")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES, help="images in a batch, growing")
    parser.add_argument("--samples", nargs="+", type=int, default=SAMPLES, help="N, growing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, {processor()}, one thread, float32, n: fastest of {ROUNDS} rounds "
        f"(of one above {LONG:.0f} s), processor time"
    )
    by_classes, by_batch, by_samples = {}, {}, {}
    for system in options.systems:
        most = LIMITS.get(system, (max(options.classes), ""))[0]
        by_classes[system] = [cost(system, k, BASE_BATCH, BASE_SAMPLES) for k in options.classes if k <= most]
        by_batch[system] = [cost(system, BASE_CLASSES, batch, BASE_SAMPLES) for batch in options.batches]
        by_samples[system] = [cost(system, BASE_CLASSES, BASE_BATCH, n) for n in options.samples]
    for title, sizes, costs in (
        ("against K", options.classes, by_classes),
        ("against the images of a batch", options.batches, by_batch),
        ("against N", options.samples, by_samples),
    ):
        table(f"ms a step, {title}", sizes, {name: [1e3 * c.step for c in row] for name, row in costs.items()})
        ends = {name: [1e3 * c.epoch_end for c in row] for name, row in costs.items()}
        notable = {name: row for name, row in ends.items() if max(row) > 1}
        if costs is not by_batch:
            table(f"ms at an epoch's end, {title}; the others take less than 1", sizes, notable)
            table(f"MiB of state, {title}", sizes, {name: [c.state for c in row] for name, row in costs.items()})
    print()
    for system in options.systems:
        if system in LIMITS:
            print(f"{system} to {LIMITS[system][0]:,} classes: {LIMITS[system][1]}")
        if system in REASONS:
            print(f"{system}: {REASONS[system]}")
    report_refresh(max(options.samples), max(options.classes))
    report_sampler(max(options.samples), max(options.classes))


if __name__ == "__main__":
    main()
