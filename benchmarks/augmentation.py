"""Images per second of each view of a batch, against torchvision's transforms image by image.

torchvision v2 draws one set of parameters for a whole batch, so the plain way to give each image its own is
a loop. What is compared does the same work, but not always by the same law: torchvision's RandAugment has two more
operations and one strength, its mixup and CutMix one share a batch and one view of each image where ours draws two.
All take turns, and the fastest round of each counts: the one that the machine disturbed least.

    python benchmarks/augmentation.py
"""

import platform
from collections.abc import Callable
from time import perf_counter

import torch
import torchvision
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from ltnb.data.augmentation import VIEWS
from ltnb.data.views import MIXED_VIEWS, draw

ROUNDS = 10
NUM_CLASSES = 10
SHAPES = [(256, 1, 16, 16), (256, 3, 32, 32)]
POLICIES = [*VIEWS, *MIXED_VIEWS][1:]  # "none" is a cast

View = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def image_by_image(policy: str, size: int) -> View:
    """The view in torchvision's own transforms."""
    crop = [v2.RandomCrop(size, padding=2)]
    strong = [v2.RandomAffine(15, (1 / 16, 1 / 16), (0.8, 1.2), interpolation=InterpolationMode.BILINEAR), *crop]
    sim = [
        v2.RandomResizedCrop(size, (0.6, 1)),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8),
        v2.RandomGrayscale(0.2),
    ]
    rand = [*sim, v2.RandAugment(num_ops=1, interpolation=InterpolationMode.BILINEAR)]
    alone = {"weak": crop, "strong": strong, "sim": sim, "rand": rand, "mixup": strong, "cutmix": strong}
    transform = v2.Compose([v2.ToDtype(torch.float32, scale=True), *alone[policy]])
    mix = {"mixup": v2.MixUp(num_classes=NUM_CLASSES), "cutmix": v2.CutMix(num_classes=NUM_CLASSES)}.get(policy)

    def view(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        moved = torch.stack([transform(image) for image in images])
        return mix(moved, labels) if mix else (moved, labels)

    return view


def batched(policy: str) -> View:
    """The view as `ltnb` draws it."""
    generator = torch.Generator().manual_seed(0)
    return lambda images, labels: draw(images, labels, policy, generator, num_classes=NUM_CLASSES)


def main() -> None:
    torch.set_num_threads(1)  # a second one slows the loop down: single images are too small to share
    generator = torch.Generator().manual_seed(0)
    print(
        f"torch {torch.__version__}, torchvision {torchvision.__version__}, {platform.machine()}, "
        f"{torch.get_num_threads()} thread, fastest of {ROUNDS} rounds"
    )
    print("batch             view     ltnb images/s   torchvision images/s   ratio")
    for shape in SHAPES:
        images = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        labels = torch.randint(NUM_CLASSES, shape[:1], generator=generator)
        ways = {
            (policy, library): view
            for policy in POLICIES
            for library, view in (("ltnb", batched(policy)), ("torchvision", image_by_image(policy, shape[-1])))
        }
        seconds = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for way, view in ways.items():
                start = perf_counter()
                view(images, labels)
                seconds[way] = min(seconds[way], perf_counter() - start)
        for policy in POLICIES:
            ours, theirs = (shape[0] / seconds[policy, library] for library in ("ltnb", "torchvision"))
            print(
                f"{' × '.join(map(str, shape)):<17} {policy:<8} {ours:>13,.0f} {theirs:>22,.0f} {ours / theirs:>7.1f}"
            )


if __name__ == "__main__":
    main()
