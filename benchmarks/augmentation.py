"""Images per second of the "strong" view of a batch, against torchvision's transforms image by image.

torchvision v2 draws one set of parameters for a whole batch, so the plain way to give each image its own is
a loop. The two take turns, and the fastest round of each counts: the one that the machine disturbed least.

    python benchmarks/augmentation.py
"""

import platform
from collections.abc import Callable
from time import perf_counter

import torch
import torchvision
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from ltnb.data.augmentation import augment

ROUNDS = 30
SHAPES = [(256, 1, 16, 16), (256, 3, 32, 32)]


def image_by_image(size: int) -> Callable[[Tensor], Tensor]:
    """The same view as "strong", in torchvision's own transforms."""
    transform = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomAffine(15, (1 / 16, 1 / 16), (0.8, 1.2), interpolation=InterpolationMode.BILINEAR),
            v2.RandomCrop(size, padding=2),
        ]
    )
    return lambda images: torch.stack([transform(image) for image in images])


def main() -> None:
    torch.set_num_threads(1)  # a second one slows the loop down: single images are too small to share
    generator = torch.Generator().manual_seed(0)
    print(
        f"torch {torch.__version__}, torchvision {torchvision.__version__}, {platform.machine()}, "
        f"{torch.get_num_threads()} thread, fastest of {ROUNDS} rounds"
    )
    print("batch            ltnb images/s   torchvision images/s   ratio")
    for shape in SHAPES:
        images = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
        ways: dict[str, Callable[[Tensor], Tensor]] = {
            "ltnb": lambda batch: augment(batch, "strong", generator),
            "torchvision": image_by_image(shape[-1]),
        }
        seconds = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, view in ways.items():
                start = perf_counter()
                view(images)
                seconds[name] = min(seconds[name], perf_counter() - start)
        speed = {name: shape[0] / best for name, best in seconds.items()}
        print(
            f"{' × '.join(map(str, shape)):<16} {speed['ltnb']:>13,.0f} {speed['torchvision']:>22,.0f} "
            f"{speed['ltnb'] / speed['torchvision']:>7.1f}"
        )


if __name__ == "__main__":
    main()
