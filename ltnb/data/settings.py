"""The settings of a data set: one row under `datasets` in `params.yaml`.

Checked without torch or scikit-learn, so that a mistake is reported at once.
"""

import operator
from pathlib import Path
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

from ltnb.data.facts import FACTS, LARGEST_BYTES, Facts
from ltnb.data.listings import IN_FILES, LISTINGS, Listing, lists
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

    source: Literal["digits", "mnist", "cifar10", "cifar100", "folder", "lists", "npz"] = Field(
        description="Where the images come from. `digits` is part of scikit-learn: nothing to download. `mnist`, "
        "`cifar10` and `cifar100` are read from `root`, where torchvision keeps them. `folder`: any images in "
        "`root`/{train,test}/<class>/. `lists`: images below `root` that two lists name, as there are of ImageNet-LT "
        "and iNaturalist 2018. `npz`: a numpy archive with `train_images`, `train_labels`, `test_images` and "
        "`test_labels`."
    )
    root: str | None = Field(
        default=None,
        description="The folder of a source that is read from disk. In the layout of torchvision `mnist` has there "
        "`MNIST/raw/train-images-idx3-ubyte` and three more, `cifar10` `cifar-10-batches-py/`, `cifar100` "
        "`cifar-100-python/`. Of `npz` it is the archive itself. Relative to the project's folder.",
    )
    download: bool = Field(
        default=False,
        description="Fetch `cifar10` or `cifar100` into `root`, checked by its MD5, if it is not there. It decides "
        "nothing about the data, and is not recorded with them.",
    )
    train_list: str | None = Field(
        default=None,
        description="The training images of `lists`: a text file of lines `path label`, the path relative to `root`, "
        "the label a number from 0 on. Relative to the project's folder.",
    )
    test_list: str | None = Field(default=None, description="Likewise the test images.")
    test_root: str | None = Field(
        default=None,
        description="The folder that the paths in `test_list` begin at, where it is not `root`: of WebVision "
        "`val_images_256`. Relative to the project's folder.",
    )
    classes: int | None = Field(
        default=None,
        ge=2,
        description="Of `lists` that have more classes, take the first so many: 50 of WebVision's 1,000 are "
        "WebVision-mini. By default all.",
    )
    imbalance: Annotated[float, Field(ge=1, allow_inf_nan=False)] | Literal["as-is"] = Field(
        description="Imbalance factor: training images of the largest class over those of the smallest. `as-is` "
        "takes all images that are not for testing, long-tailed or not. "
        "No default: it is what an experiment is about.",
    )
    tail: Literal["exponential", "step"] = Field(
        default="exponential",
        description="How class sizes fall from the first class to the last: by the same ratio from each to the next, "
        "or in one step, the first half of the classes as large as the largest and the others as the smallest.",
    )
    subset: Literal["shuffled", "first"] = Field(
        default="shuffled",
        description="Which images of a class stay: after a shuffle by `seed`, or the first ones in the source's order. "
        "Both are in use for CIFAR.",
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
        description="Test images of each class: 50 for digits, and of the others, which have a test split of their "
        "own, all (of mnist 10,000, 892 to 1,135 a class).",
    )
    image_size: int = Field(
        default=16,
        ge=8,
        description="Height and width in pixels: 16 for digits, 28 for mnist, 32 for cifar10 and cifar100. Of folders, "
        "lists and archives, whose images may have any size, it must be said: the square in an image's middle is "
        "scaled to it.",
    )
    decoded_size: int | None = Field(
        default=None,
        description="Height and width that images are decoded to and kept at, from which the views of `image_size` "
        "pixels are cut, those of the evaluation from the middle. 256 with an `image_size` of 224 is usual for "
        "photographs. By default, and at least, `image_size`.",
    )
    held_in: Literal["auto", "files"] = Field(
        default="auto",
        description="Where the images of `folder` and `lists` are once they are prepared: in memory as far as "
        "4 GiB hold them, and else in their files, from which they are decoded again in every epoch; or in their "
        "`files` in any case.",
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
        "root": ("source", (*(name for name, facts in FACTS.items() if facts.on_disk), *LISTINGS)),
        "download": ("source", ("cifar10", "cifar100")),
        "train_list": ("source", ("lists",)),
        "test_list": ("source", ("lists",)),
        "test_root": ("source", ("lists",)),
        "classes": ("source", ("lists",)),
        "held_in": ("source", IN_FILES),
        "noise_rate": ("noise", ("symmetric", "asymmetric")),
        "noise_mapping": ("noise", ("asymmetric",)),
        "noise_order": ("noise", ("symmetric", "asymmetric")),
    }

    # Likewise, while a tail is cut at all.
    _of_the_cut: ClassVar[tuple[str, ...]] = ("tail", "subset", "largest")

    # Not recorded by default: data sets were prepared before there was a choice.
    _by_default_unsaid: ClassVar[tuple[str, ...]] = ("test_root", "classes", "decoded_size", "held_in")

    @property
    def facts(self) -> Facts | None:
        """What is known of the source without a look at its files; None: only they tell, see `facts_in`."""
        return FACTS.get(self.source)

    @property
    def stored_size(self) -> int:
        """Height and width that images are decoded to."""
        return self.image_size if self.decoded_size is None else self.decoded_size

    def stays_in_files(self, facts: Facts) -> bool:
        """Whether images are decoded anew whenever they are used, for they would not fit into memory or should not."""
        return self.source in IN_FILES and (self.held_in == "files" or self._bytes(facts) > LARGEST_BYTES)

    def path(self, name: Literal["root", "train_list", "test_list", "test_root"], project: Path) -> Path:
        """Where the source, or one of its lists, lies; a relative path begins at the project's folder."""
        return project / Path(getattr(self, name)).expanduser()

    def listing(self, project: Path) -> Listing:
        """The images of a source of which only its files tell what there is.

        Raises:
            FileNotFoundError: the source, or a part of it, is missing; the message names it.
            ValueError: it is not as expected; likewise.
        """
        root = self.path("root", project)
        if self.source != "lists":
            return LISTINGS[self.source](root)
        train_list, test_list = self.path("train_list", project), self.path("test_list", project)
        return lists(root, train_list, test_list, self.test_path(project), self.classes)

    def test_path(self, project: Path) -> Path:
        """Where the test images of a source begin that lie in files."""
        return self.path("root" if self.test_root is None else "test_root", project)

    def facts_in(self, project: Path) -> Facts:
        """What is known of the source; where only its files tell, from a look at them.

        Raises:
            FileNotFoundError: as `listing`.
            ValueError: likewise, or as `check`.
        """
        if self.facts is not None:
            return self.facts  # and checked
        facts = self.listing(project).facts
        self.check(facts)
        return facts

    def class_counts(self, facts: Facts) -> list[int]:
        """Images of each class that the long tail is cut to, in class order."""
        if self.imbalance == "as-is":
            return self._left(facts)
        largest = min(self._left(facts)) if self.largest is None else self.largest
        kind: Literal["exp", "step"] = "step" if self.tail == "step" else "exp"
        return long_tail_counts(largest, self.imbalance, facts.num_classes, kind)

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

    def expected_label_counts(self, facts: Facts) -> list[int]:
        """How often each label will be given, to the nearest whole number but at least once, in class order.

        Σ_i n_i T_ij where noise comes after the tail n; how many there really are is known when they are drawn.
        """
        counts = self.class_counts(facts)
        if self.noise_rate is None or self.noise_order == "before-tail":
            return counts
        rows = transition_rows(self.noise_rate, facts.num_classes, self.mapping)
        columns = zip(*rows, strict=True)
        return [max(1, round(sum(map(operator.mul, counts, column)))) for column in columns]

    def _left(self, facts: Facts) -> list[int]:
        """What testing leaves of each class."""
        if facts.test_sizes is not None:
            return list(facts.class_sizes)
        assert isinstance(self.test_per_class, int)
        return [size - self.test_per_class for size in facts.class_sizes]

    def _idle(self, name: str) -> bool:
        owner, values = self._owners[name]
        return getattr(self, owner) not in values

    @model_serializer(mode="wrap")
    def _what_has_an_effect(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        idle = {name for name in self._owners if self._idle(name)} | {"download"}
        if self.noise == "none":
            idle.add("noise")
        if self.imbalance == "as-is":
            idle |= set(self._of_the_cut)
        idle |= {name for name in self._by_default_unsaid if getattr(self, name) == self._default(name)}
        if self.source in ("digits", "mnist"):  # recorded long before there was a choice
            idle |= {name for name in ("tail", "subset") if getattr(self, name) == self._default(name)}
        return {name: value for name, value in serialise(self).items() if name not in idle}

    @classmethod
    def _default(cls, name: str) -> Any:
        return cls.model_fields[name].default

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_source(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        source = values.get("source")
        if source in LISTINGS:
            return {"test_per_class": "all", **values}
        if source not in FACTS:
            return values
        facts = FACTS[source]
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
    def _a_cut_is_one(self) -> Self:
        if self.imbalance != "as-is":
            return self
        for name in (*self._of_the_cut, "noise_order"):
            if getattr(self, name) != self._default(name):
                raise ValueError(
                    f"{name} = {getattr(self, name)!r} has no effect while imbalance is 'as-is'; expected a factor to "
                    "cut the tail to"
                )
        return self

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        needed = {"root": f"the {'file' if self.source == 'npz' else 'folder'} that {self.source} is read from"}
        if self.source == "lists":
            needed |= {f"{part}_list": f"the list of {part} images" for part in ("train", "test")}
        for name, what in needed.items():
            if not self._idle(name) and getattr(self, name) is None:
                raise ValueError(f"{name} is missing; expected {what}")
        if self.facts is None and "image_size" not in self.model_fields_set:
            raise ValueError(f"image_size is missing; expected one for all images of {self.source}, in pixels")
        if self.decoded_size is not None and self.decoded_size < self.image_size:
            raise ValueError(
                f"decoded_size = {self.decoded_size}: expected at least image_size, the {self.image_size} pixels that "
                "views are cut to"
            )
        return self

    @model_validator(mode="after")
    def _noise_is_complete(self) -> Self:
        if self.noise != "none" and self.noise_rate is None:
            raise ValueError(f"noise_rate is missing; expected a probability below 1 with noise {self.noise!r}")
        if isinstance(self.noise_mapping, str) and self.facts is None and self.noise_mapping not in MAPPINGS:
            raise ValueError(
                f"noise_mapping = {self.noise_mapping!r}: expected {' or '.join(map(repr, MAPPINGS))}, or "
                "{class: other class}"
            )
        return self

    @model_validator(mode="after")
    def _fits_what_is_known(self) -> Self:
        if self.facts is not None:
            self.check(self.facts)
        return self

    def check(self, facts: Facts) -> None:
        """Refuse settings that do not fit the source.

        Raises:
            ValueError: the message names the setting, and what was expected.
        """
        self._check_sizes(facts)
        if self.noise_rate is not None:
            self._check_noise(self.noise_rate, facts)

    def _check_sizes(self, facts: Facts) -> None:
        if facts.test_sizes is None:
            if self.test_per_class == "all" or self.test_per_class >= min(facts.class_sizes):
                raise ValueError(
                    f"test_per_class = {self.test_per_class} leaves nothing to train on: the smallest class of "
                    f"{self.source} has {min(facts.class_sizes)} images"
                )
        elif self.test_per_class != "all" and self.test_per_class > min(facts.test_sizes):
            raise ValueError(
                f"test_per_class = {self.test_per_class}: expected 'all' or at most {min(facts.test_sizes)}, the "
                f"smallest class in the test split of {self.source}"
            )
        if self.imbalance != "as-is":
            left = min(self._left(facts))
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
        needed = self._bytes(facts)
        if needed > LARGEST_BYTES and self.source not in IN_FILES:
            name = "image_size" if self.decoded_size is None else "decoded_size"
            size = self.stored_size
            raise ValueError(
                f"{name} = {size}: {needed // (facts.channels * size**2)} images of {facts.channels} × {size} × {size} "
                f"bytes are {needed / 2**30:.1f} GiB; expected at most {LARGEST_BYTES / 2**30:g}, since those of "
                f"{self.source} are held in memory: a smaller {name}, largest or test_per_class"
            )

    def _bytes(self, facts: Facts) -> int:
        """What all images need in memory."""
        images = sum(self.class_counts(facts))
        images += (
            sum(facts.test_sizes or ()) if self.test_per_class == "all" else (self.test_per_class * facts.num_classes)
        )
        return images * facts.channels * self.stored_size**2

    def _check_noise(self, rate: float | list[float], facts: Facts) -> None:
        try:
            rates = check_rates(rate, facts.num_classes)
        except ValueError as error:
            raise ValueError(f"noise_{error}") from error
        if self.noise == "asymmetric":
            known = facts.noise_mappings
            if self.noise_mapping is None or (isinstance(self.noise_mapping, str) and self.noise_mapping not in known):
                by_name = f"{' or '.join(map(repr, known))}, or " if known else ""
                raise ValueError(
                    f"noise_mapping = {self.noise_mapping!r}: expected {by_name}{{class: other class}}, with noise "
                    f"'asymmetric' of {self.source}"
                )
            assert self.mapping is not None
            try:
                check_mapping(self.mapping, facts.num_classes)
            except ValueError as error:
                raise ValueError(f"noise_{error}") from error
            kept = [k for k, value in enumerate(rates) if value > 0 and k not in self.mapping]
            if isinstance(rate, list) and kept:
                raise ValueError(
                    f"noise_rate = {rates[kept[0]]:g} of class {kept[0]} has no effect: noise_mapping leaves it out; "
                    "expected 0"
                )
            idle = [k for k in self.mapping if rates[k] == 0]
            if isinstance(rate, list) and idle and any(rates):
                raise ValueError(
                    f"noise_mapping {idle[0]} → {self.mapping[idle[0]]} has no effect: noise_rate of class {idle[0]} "
                    "is 0; expected a positive one"
                )
        if not any(rates):
            raise ValueError("noise_rate = 0 has no effect; expected a positive one, or noise to be 'none'")
