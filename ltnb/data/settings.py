"""The settings of a data set: one row under `datasets` in `params.yaml`.

Checked without torch or scikit-learn, so that a mistake is reported at once.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ltnb.data.profiles import long_tail_counts

#: Images in the smallest class of each source, from which the test split is taken first.
SMALLEST_CLASS = {"digits": 174}

NUM_CLASSES = {"digits": 10}


class DatasetSettings(BaseModel):
    """Which images to take, how many of each class to train on, and how many to test on."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: Literal["digits"] = Field(
        description="Where the images come from. `digits` is part of scikit-learn: nothing to download."
    )
    imbalance: float = Field(
        ge=1,
        allow_inf_nan=False,
        description="Imbalance factor: training images of the largest class over those of the smallest. "
        "No default: it is what an experiment is about.",
    )
    largest: int | None = Field(
        default=None,
        ge=1,
        description="Training images of the largest class. By default, and at most, what the test split "
        "leaves of the smallest one (124 for digits), so that every factor down to 1, the balanced set, is possible.",
    )
    test_per_class: int = Field(
        default=50,
        ge=1,
        description="Test images of each class. 50 leave 124 of the 174 images of the smallest digit for "
        "training; 500 in all give an accuracy of 90 % a standard error of 1.3 points.",
    )
    image_size: int = Field(
        default=16,
        ge=8,
        description="Height and width in pixels. Twice the 8 of the digits, so that the two halvings of a "
        "CIFAR-style ResNet end at 4 × 4.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="Chooses the test images and the training images that stay. Shared by all training "
        "seeds, so that their runs differ in initialisation, order and views but not in data.",
    )

    @property
    def class_counts(self) -> list[int]:
        """Training images of each class, in class order."""
        largest = SMALLEST_CLASS[self.source] - self.test_per_class if self.largest is None else self.largest
        return long_tail_counts(largest, self.imbalance, NUM_CLASSES[self.source])

    @model_validator(mode="after")
    def _fits_the_source(self) -> Self:
        left = SMALLEST_CLASS[self.source] - self.test_per_class
        if left < 1:
            raise ValueError(
                f"test_per_class = {self.test_per_class} leaves nothing to train on: the smallest class of "
                f"{self.source} has {SMALLEST_CLASS[self.source]} images"
            )
        largest = left if self.largest is None else self.largest
        if largest > left:
            raise ValueError(
                f"largest = {largest}: expected at most {left}, what a test split of {self.test_per_class} "
                f"leaves of the smallest class of {self.source}"
            )
        if self.imbalance > largest:
            raise ValueError(
                f"imbalance = {self.imbalance:g} leaves the smallest class without an image: expected at "
                f"most the {largest} images of the largest class"
            )
        return self
