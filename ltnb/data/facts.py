"""What is known of a source before any of its images is read, so that settings can be checked at once."""

from dataclasses import dataclass
from typing import Literal

#: A data set that is held in memory is one tensor of bytes, and more than one while it is written or read. Larger ones
#: stay in files, one an image.
LARGEST_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Facts:
    """A source: its classes and their sizes, and what a data set made of it is by default."""

    class_sizes: tuple[int, ...]  #: images of each class, those of a test split of the source's own left out
    test_sizes: tuple[int, ...] | None  #: likewise in that test split; None: test images are taken from all the others
    channels: int  #: 1: grey, 3: red, green, blue
    test_per_class: int | Literal["all"]  #: by default
    image_size: int | None  #: by default; None: there is none
    noise_mappings: tuple[str, ...]  #: names in `ltnb.data.mappings.MAPPINGS` that make sense for its classes
    on_disk: bool  #: read from `root`

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_sizes)


#: Source name, as in `params.yaml`, to what is known of it. What is in
#: `ltnb.data.listings` instead, only its files tell of.
FACTS = {
    # 500 test images in all give an accuracy of 90 % a standard error of 1.3 points, and leave 124 of the smallest
    # digit's 174 for training. Twice the 8 pixels of the scans, so that the two halvings of a CIFAR-style ResNet end
    # at 4 × 4.
    "digits": Facts(
        class_sizes=(178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
        test_sizes=None,
        channels=1,
        test_per_class=50,
        image_size=16,
        noise_mappings=("digits", "mnist"),
        on_disk=False,
    ),
    "mnist": Facts(
        class_sizes=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test_sizes=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        channels=1,
        test_per_class="all",
        image_size=28,
        noise_mappings=("mnist", "digits"),
        on_disk=True,
    ),
    "cifar10": Facts(
        class_sizes=(5000,) * 10,
        test_sizes=(1000,) * 10,
        channels=3,
        test_per_class="all",
        image_size=32,
        noise_mappings=("cifar10",),
        on_disk=True,
    ),
    "cifar100": Facts(
        class_sizes=(500,) * 100,
        test_sizes=(100,) * 100,
        channels=3,
        test_per_class="all",
        image_size=32,
        noise_mappings=("cifar100-blocks", "cifar100-superclasses"),
        on_disk=True,
    ),
}
