"""What is known of each source before any of its images is read, so that settings can be checked at once."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Facts:
    """A source: its classes and their sizes, and what a data set made of it is by default."""

    num_classes: int
    smallest_class: int  #: images of the smallest class, those of a test split of the source's own left out
    smallest_test_class: int | None  #: likewise in that test split; None: test images are taken from all the others
    test_per_class: int | Literal["all"]  #: by default
    image_size: int  #: by default
    noise_mappings: tuple[str, ...]  #: names in `ltnb.data.mappings.MAPPINGS` that make sense for its classes
    on_disk: bool  #: read from a folder, `root`


FACTS = {
    # 500 test images in all give an accuracy of 90 % a standard error of 1.3 points, and leave 124 of the smallest
    # digit's 174 for training. Twice the 8 pixels of the scans, so that the two halvings of a CIFAR-style ResNet end
    # at 4 × 4.
    "digits": Facts(
        num_classes=10,
        smallest_class=174,
        smallest_test_class=None,
        test_per_class=50,
        image_size=16,
        noise_mappings=("digits", "mnist"),
        on_disk=False,
    ),
    # Of its 60,000 training images 5,421 (the fives) to 6,742 (the ones), of its 10,000 test images 892 to 1,135.
    "mnist": Facts(
        num_classes=10,
        smallest_class=5421,
        smallest_test_class=892,
        test_per_class="all",
        image_size=28,
        noise_mappings=("mnist", "digits"),
        on_disk=True,
    ),
}
