"""Images per second of each view of a batch, against the usual loader: two workers, Pillow images, one by one.

What is compared does the same work, but not always by the same law: torchvision's RandAugment has other operations and
one strength, its mixup and CutMix one share a batch and one view of each image where ours draws two. Its images come as
decoded Pillow images and leave as float tensors, ours come as bytes on the device. Views of 224 × 224 pixels are cut
from 256 × 256.

Both take turns, and the fastest round of each counts: the one that the machine disturbed least. Images per second are
those of the wall clock, of one core here (or an accelerator) and of two there. On a machine with other work the
comparison is that per busy core: images per second of processor time, of the workers there, of this process here.

    python benchmarks/augmentation.py [--device cuda] [--rounds 5] [--size 224]
"""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import PIL
import torch
import torchvision
from hardware import processor
from PIL import Image, ImageFilter
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode, v2

from ltnb.data.augmentation import VIEWS
from ltnb.data.views import MIXED_VIEWS, draw

BATCH, WORKERS = 256, 2
NUM_CLASSES = 10
POLICIES = [*VIEWS, *MIXED_VIEWS][1:]  # "none" is a cast
LARGE = [policy for policy in POLICIES if "zoom" in policy]
SMALL = [policy for policy in POLICIES if policy not in LARGE]


@dataclass(frozen=True)
class Case:
    """Images, the size of their views, and what is measured."""

    shape: tuple[int, int, int]
    size: int
    batches: int
    policies: list[str]


CASES = [
    Case((1, 16, 16), 16, 8, SMALL),
    Case((3, 32, 32), 32, 8, SMALL),
    Case((3, 256, 256), 224, 2, ["crop-flip", *LARGE]),
]


@dataclass(frozen=True)
class Speed:
    """Images per second, by the wall clock and per busy core."""

    wall: float
    core: float

    def better(self, other: "Speed") -> "Speed":
        """The larger of each."""
        return Speed(max(self.wall, other.wall), max(self.core, other.core))


def blurred(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(torch.empty(()).uniform_(0.1, 2).item()))


def transform(policy: str, size: int) -> v2.Compose:
    """The view of one Pillow image in torchvision's own transforms."""
    bilinear = InterpolationMode.BILINEAR
    weak = [v2.RandomCrop(size, padding=2)]
    strong = [v2.RandomAffine(15, (1 / 16, 1 / 16), (0.8, 1.2), interpolation=bilinear), *weak]
    crop_flip = [v2.RandomCrop(size, padding=0 if size == 224 else size // 8), v2.RandomHorizontalFlip()]
    colours = [v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8), v2.RandomGrayscale(0.2)]
    sim = [v2.RandomResizedCrop(size, (0.6, 1)), *colours]
    sim_flip = [v2.RandomResizedCrop(size, (0.2, 1)), v2.RandomHorizontalFlip(), *colours]
    rand = [v2.RandAugment(num_ops=1, interpolation=bilinear)]
    zoom_flip = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    zoom_jitter = [*zoom_flip, v2.ColorJitter(0.4, 0.4, 0.4)]
    strong_rand = [
        v2.RandomApply([v2.RandAugment(num_ops=1, magnitude=30, interpolation=bilinear, fill=116)]) for _ in range(2)
    ]
    before = {
        "weak": weak,
        "strong": strong,
        "sim": sim,
        "rand": [*sim, *rand],
        "crop-flip": crop_flip,
        "crop-flip-turn": [*crop_flip, v2.RandomRotation(20, interpolation=bilinear)],
        "zoom-flip": zoom_flip,
        "zoom-jitter": zoom_jitter,
        "zoom-hue": [*zoom_flip, v2.ColorJitter(0.4, 0.4, 0.4, 0.2)],
        "zoom-rand": [*zoom_jitter, *strong_rand],
        "zoom-sim": [*zoom_flip, *colours],
        "zoom-sim-rand": [*zoom_flip, *colours, *strong_rand],
        "auto": [*crop_flip, v2.AutoAugment(AutoAugmentPolicy.CIFAR10, fill=128)],
        "sim-flip": sim_flip,
        "sim-blur": [*sim_flip, v2.RandomApply([v2.Lambda(blurred)], 0.5)],
        "rand-flip": [*sim_flip, *rand],
        "mixup": strong,
        "cutmix": strong,
        "mixup-flip": crop_flip,
        "cutmix-flip": crop_flip,
        "mixup-zoom": zoom_jitter,
        "cutmix-zoom": zoom_jitter,
    }[policy]
    after = [v2.RandomErasing(1, (0.25, 0.25), (1, 1))] if policy == "auto" else []
    return v2.Compose([*before, v2.ToImage(), v2.ToDtype(torch.float32, scale=True), *after])


def loader(images: Tensor, labels: Tensor, policy: str, size: int) -> DataLoader:
    """Batches of views and labels, the worker that made them and its processor time so far."""
    how = policy.split("-")[0]
    mix = {"mixup": v2.MixUp(num_classes=NUM_CLASSES), "cutmix": v2.CutMix(num_classes=NUM_CLASSES)}.get(how)

    view = transform(policy, size)
    decoded = [v2.functional.to_pil_image(image) for image in images]

    def collate(samples: list[tuple[Image.Image, Tensor]]) -> tuple[Tensor, Tensor, int, float]:
        views, y = torch.stack([view(image) for image, _ in samples]), torch.stack([label for _, label in samples])
        if mix:
            views, y = mix(views, y)
        return views, y, get_worker_info().id, time.process_time()

    samples = list(zip(decoded, labels, strict=True))
    return DataLoader(samples, BATCH, collate_fn=collate, num_workers=WORKERS, persistent_workers=True)


def loader_speed(batches: DataLoader, images: int) -> Callable[[], Speed]:
    busy = dict.fromkeys(range(WORKERS), 0.0)

    def measure() -> Speed:
        before, start = sum(busy.values()), time.perf_counter()
        for _views, _labels, worker, seconds in batches:
            busy[worker] = seconds
        return speed(images, time.perf_counter() - start, sum(busy.values()) - before)

    return measure


def batched_speed(images: Tensor, labels: Tensor, policy: str, size: int) -> Callable[[], Speed]:
    generator = torch.Generator(images.device).manual_seed(0)
    wait: Callable[[], None] = torch.cuda.synchronize if images.device.type == "cuda" else lambda: None

    def measure() -> Speed:
        wait()
        start, busy = time.perf_counter(), time.process_time()
        for batch, y in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            draw(batch, y, policy, generator, num_classes=NUM_CLASSES, size=size)
        wait()
        return speed(len(images), time.perf_counter() - start, time.process_time() - busy)

    return measure


def speed(images: int, wall: float, core: float) -> Speed:
    return Speed(images / wall, images / core)


def best(ways: Iterable[Callable[[], Speed]], rounds: int) -> list[Speed]:
    """The best of the rounds of each, taken in turns, after one to warm up."""
    ways = list(ways)
    speeds = [Speed(0, 0) for _ in ways]
    for round_ in range(rounds + 1):
        for i, measure in enumerate(ways):
            measured = measure()
            if round_ > 0:
                speeds[i] = speeds[i].better(measured)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="where the batched views are drawn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--size", type=int, choices=[case.size for case in CASES], help="of the views; all if not given"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(arguments.device)
    accelerator = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ", 1 thread"
    print(
        f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}, "
        f"{processor()}{accelerator}, {WORKERS} workers, best of {arguments.rounds} rounds in batches of {BATCH}"
    )
    print("                                  images/s (wall)           images/s per busy core")
    print("images         policy             ltnb     loader  ratio        ltnb     loader  ratio")
    generator = torch.Generator().manual_seed(0)
    for case in CASES:
        if arguments.size not in (None, case.size):
            continue
        number = BATCH * case.batches
        images = torch.randint(256, (number, *case.shape), generator=generator, dtype=torch.uint8)
        labels = torch.randint(NUM_CLASSES, (number,), generator=generator)
        for policy in case.policies:
            ours, theirs = best(
                [
                    batched_speed(images.to(device), labels.to(device), policy, case.size),
                    loader_speed(loader(images, labels, policy, case.size), number),
                ],
                arguments.rounds,
            )
            print(
                f"{' × '.join(map(str, case.shape)):<14} {policy:<14}"
                f"{ours.wall:>9,.0f} {theirs.wall:>10,.0f} {ours.wall / theirs.wall:>6.1f} "
                f"{ours.core:>11,.0f} {theirs.core:>10,.0f} {ours.core / theirs.core:>6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
