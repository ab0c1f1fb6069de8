"""The settings of a data set: one row under `datasets` in `params.yaml`.

Checked without torch or scikit-learn, so that a mistake is reported at once.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from ltnb.data.facts import FACTS, Facts
from ltnb.data.mappings import MAPPINGS
from ltnb.data.profiles import long_tail_counts
from ltnb.data.transitions import check_mapping, check_rates, transition_rows


def _numbers_as_keys(mapping: Any) -> Any:
    """JSON, which a prepared data set and a run keep their settings in, has only text as keys."""
    if not isinstance(mapping, dict):
        return mapping
    numbers = {int(key) if isinstance(key, str) and key.isdecimal() else key: value for key, value in mapping.items()}
    return numbers if len(numbers) == len(mapping) else mapping  # 8 and "8": as it stands, which is refused


class DatasetSettings(BaseModel):
    """Which images to take, how many of each class to train on and to test on, and how many labels are wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: Literal["digits", "mnist"] = Field(
        description="Where the images come from. `digits` is part of scikit-learn: nothing to download. `mnist` is "
        "read from `root`."
    )
    root: str | None = Field(
        default=None,
        description="The folder of a source that is read from disk, in the layout of torchvision: of `mnist` it holds "
        "`MNIST/raw/train-images-idx3-ubyte` and three more. Relative to the project's folder. Nothing is downloaded.",
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
        "leaves of the smallest one (124 for digits, 5421 for mnist), so that every factor down to 1, the balanced "
        "set, is possible.",
    )
    test_per_class: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        default=50,
        description="Test images of each class: 50 for digits, and for mnist all 10,000 images of its own test split, "
        "892 to 1,135 a class.",
    )
    image_size: int = Field(
        default=16,
        ge=8,
        description="Height and width in pixels: 16 for digits, 28 for mnist.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="Chooses the test images, the training images that stay, and the labels that are wrong. Shared by "
        "all training seeds, so that their runs differ in initialisation, order and views but not in data.",
    )
    noise: Literal["none", "symmetric", "asymmetric"] = Field(
        default="none",
        description="Wrong training labels: `symmetric` flips to every other class alike, `asymmetric` to the class "
        "that `noise_mapping` says. Each image is drawn for itself. Test labels stay true.",
    )
    noise_rate: float | list[float] | None = Field(
        default=None,
        description="The probability that a label is flipped: one for all classes, or one a class; at least 0 and "
        "below 1.",
    )
    noise_mapping: Annotated[str | dict[int, int] | None, BeforeValidator(_numbers_as_keys)] = Field(
        default=None,
        description="Which class is mistaken for which: a name in `ltnb.data.mappings`, or {class: other class}.",
    )
    noise_order: Literal["after-tail", "before-tail"] = Field(
        default="after-tail",
        description="`after-tail`: the long tail is cut by the true labels, and then labels flip, so that wrong labels "
        "of the large classes swell the small ones. `before-tail`: labels flip first, and the tail is cut by the given "
        "ones, as of a collection in which nobody knows the true ones. Cutting by the true labels after the flips "
        "would be the first again, since every image is drawn for itself.",
    )

    # A setting means something only while another one holds one of these values.
    _owners: ClassVar[dict[str, tuple[str, tuple[str, ...]]]] = {
        "root": ("source", tuple(name for name, facts in FACTS.items() if facts.on_disk)),
        "noise_rate": ("noise", ("symmetric", "asymmetric")),
        "noise_mapping": ("noise", ("asymmetric",)),
        "noise_order": ("noise", ("symmetric", "asymmetric")),
    }

    @property
    def facts(self) -> Facts:
        """What is known of the source."""
        return FACTS[self.source]

    @property
    def class_counts(self) -> list[int]:
        """Images of each class that the long tail is cut to, in class order."""
        largest = self._left_of_the_smallest if self.largest is None else self.largest
        return long_tail_counts(largest, self.imbalance, self.facts.num_classes)

    @property
    def mapping(self) -> dict[int, int] | None:
        """Which class asymmetric noise mistakes for which."""
        return MAPPINGS[self.noise_mapping] if isinstance(self.noise_mapping, str) else self.noise_mapping

    @property
    def average_noise_rate(self) -> float:
        """η, the rate of wrong labels, on average over the classes that may have any; 0 without noise."""
        if not isinstance(self.noise_rate, list):
            return self.noise_rate or 0.0
        of_classes = self.noise_rate if self.mapping is None else [self.noise_rate[k] for k in self.mapping]
        return sum(of_classes) / len(of_classes)

    @property
    def expected_label_counts(self) -> list[int]:
        """How often each label will be given, to the nearest whole number but at least once, in class order.

        Σ_i n_i T_ij where noise comes after the tail n; how many there really are is known when they are drawn.
        """
        if self.noise_rate is None or self.noise_order == "before-tail":
            return self.class_counts
        rows = transition_rows(self.noise_rate, self.facts.num_classes, self.mapping)
        columns = zip(*rows, strict=True)
        return [
            max(1, round(sum(n * share for n, share in zip(self.class_counts, column, strict=True))))
            for column in columns
        ]

    @property
    def _left_of_the_smallest(self) -> int:
        taken = self.test_per_class if self.facts.smallest_test_class is None else 0
        assert isinstance(taken, int)
        return self.facts.smallest_class - taken

    def _idle(self, name: str) -> bool:
        owner, values = self._owners[name]
        return getattr(self, owner) not in values

    @model_serializer(mode="wrap")
    def _what_has_an_effect(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        idle = {name for name in self._owners if self._idle(name)} | ({"noise"} if self.noise == "none" else set())
        return {name: value for name, value in serialise(self).items() if name not in idle}

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_source(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("source") not in FACTS:
            return values
        facts = FACTS[values["source"]]
        return {"test_per_class": facts.test_per_class, "image_size": facts.image_size, **values}

    @model_validator(mode="after")
    def _every_setting_has_an_effect(self) -> Self:
        for name, (owner, values) in self._owners.items():
            if name in self.model_fields_set and self._idle(name) and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} has no effect while {owner} is {getattr(self, owner)!r}; "
                    f"expected {owner} to be {' or '.join(map(repr, values))}"
                )
        return self

    @model_validator(mode="after")
    def _fits_the_source(self) -> Self:
        facts = self.facts
        if facts.on_disk and self.root is None:
            raise ValueError(f"root is missing; expected the folder that {self.source} is read from")
        if facts.smallest_test_class is None:
            if self.test_per_class == "all" or self.test_per_class >= facts.smallest_class:
                raise ValueError(
                    f"test_per_class = {self.test_per_class} leaves nothing to train on: the smallest class of "
                    f"{self.source} has {facts.smallest_class} images"
                )
        elif self.test_per_class != "all" and self.test_per_class > facts.smallest_test_class:
            raise ValueError(
                f"test_per_class = {self.test_per_class}: expected 'all' or at most {facts.smallest_test_class}, the "
                f"smallest class in the test split of {self.source}"
            )
        left = self._left_of_the_smallest
        largest = left if self.largest is None else self.largest
        if largest > left:
            raise ValueError(
                f"largest = {largest}: expected at most {left}, what testing leaves of the smallest class of "
                f"{self.source}"
            )
        if self.imbalance > largest:
            raise ValueError(
                f"imbalance = {self.imbalance:g} leaves the smallest class without an image: expected at "
                f"most the {largest} images of the largest class"
            )
        return self

    @model_validator(mode="after")
    def _noise_is_complete(self) -> Self:
        if self.noise == "none":
            return self
        num_classes = self.facts.num_classes
        if self.noise_rate is None:
            raise ValueError(f"noise_rate is missing; expected a probability below 1 with noise {self.noise!r}")
        try:
            rates = check_rates(self.noise_rate, num_classes)
        except ValueError as error:
            raise ValueError(f"noise_{error}") from error
        if self.noise == "asymmetric":
            known = self.facts.noise_mappings
            if self.noise_mapping is None or (isinstance(self.noise_mapping, str) and self.noise_mapping not in known):
                raise ValueError(
                    f"noise_mapping = {self.noise_mapping!r}: expected {' or '.join(map(repr, known))}, or "
                    f"{{class: other class}}, with noise 'asymmetric' of {self.source}"
                )
            assert self.mapping is not None
            try:
                check_mapping(self.mapping, num_classes)
            except ValueError as error:
                raise ValueError(f"noise_{error}") from error
            kept = [k for k, rate in enumerate(rates) if rate > 0 and k not in self.mapping]
            if isinstance(self.noise_rate, list) and kept:
                raise ValueError(
                    f"noise_rate = {rates[kept[0]]:g} of class {kept[0]} has no effect: noise_mapping leaves it out; "
                    "expected 0"
                )
            idle = [k for k in self.mapping if rates[k] == 0]
            if isinstance(self.noise_rate, list) and idle and any(rates):
                raise ValueError(
                    f"noise_mapping {idle[0]} → {self.mapping[idle[0]]} has no effect: noise_rate of class {idle[0]} "
                    "is 0; expected a positive one"
                )
        if not any(rates):
            raise ValueError("noise_rate = 0 has no effect; expected a positive one, or noise to be 'none'")
        return self
