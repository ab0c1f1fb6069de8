"""``params.yaml``, typed and checked: the only reader of it.

``python -m ltnb.params`` checks the file of the project that the current folder belongs to.
"""

import difflib
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ltnb.data.settings import DatasetSettings
from ltnb.methods import MethodSettings, System
from ltnb.methods.stages import Stage

FILE_NAME = "params.yaml"

# Keys become names of folders and of DVC's stages; DVC takes a dot for the path of a setting.
Key = Annotated[str, Field(pattern=r"^[a-z0-9]+([_-][a-z0-9]+)*$", max_length=60)]
RESERVED = ("compare", "training")  # names of pages and folders that stand beside the methods'
RESERVED_DATASETS = ("claims", "free_features", "papers", "theory")  # … and beside the data sets'
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class ParamsError(ValueError):
    """Something in a params file is wrong; the message names the file, the key's path and the value."""


class TrainingSettings(BaseModel):
    """The protocol that every method of an experiment shares: backbone, budget, optimiser, machine.

    The defaults are those of the digits. Batch size, learning rate and weight decay were chosen by the accuracy on
    the 993 digits that the default experiment neither trains nor tests on, with seed 0 and a few tries.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    encoder: Literal[
        "resnet8", "resnet20", "resnet32", "resnet32-wide", "resnet34", "cnn4", "cnn8", "resnet50", "resnext50"
    ] = "resnet8"
    epochs: Annotated[int, Field(ge=1)] = 60
    batch_size: Annotated[int, Field(ge=2)] = 48  # at most: an epoch is cut into nearly equal batches
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-3
    nesterov: bool = False
    clip_norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # of all gradients together
    warmup_epochs: Annotated[int, Field(ge=0)] = 5  # linear; then the schedule
    # Half a cosine down to zero, times `decay` after each of `decay_epochs`, or times `decay` after every epoch.
    schedule: Literal["cosine", "steps", "exponential"] = "cosine"
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.1
    decay_epochs: list[Annotated[int, Field(ge=1)]] = []
    evaluate_every: Annotated[int, Field(ge=1)] = 5  # epochs; to look at only, nothing is chosen by it
    checkpoint_every: Annotated[int, Field(ge=1)] = 10  # epochs; where a killed run goes on from
    device: Literal["auto", "cpu", "cuda"] = "auto"
    # Of the training steps; weights, losses and evaluation stay in float32. bfloat16 pays on processors that have it;
    # tf32 is of a GPU's convolutions, elsewhere it is float32.
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    deterministic: bool = True  # on a GPU: the same run twice, for some speed
    compiled: bool = False  # the encoder, by torch.compile: half a minute before the first step, and other last bits
    threads: Annotated[int, Field(ge=1)] = (
        1  # two runs side by side beat one on two threads; the last bits depend on it
    )

    # A run's batches are shared by so many, each on a GPU of its own or on `threads`; see ltnb.distributed.
    processes: Annotated[int, Field(ge=1)] = 1

    @property
    def stage(self) -> Stage:
        """What is trained of a method that has no wishes of its own."""
        return Stage(
            "everything",
            self.epochs,
            self.learning_rate,
            self.warmup_epochs,
            self.weight_decay,
            schedule=self.schedule,
            decay=self.decay,
            decay_epochs=tuple(self.decay_epochs),
        )

    def shortened(self, epochs: int) -> "TrainingSettings":
        """Return a protocol of at most so many epochs, to see that everything runs: half a cosine, whatever it was."""
        epochs = min(epochs, self.epochs)
        plain = {name: type(self).model_fields[name].get_default() for name in ("schedule", "decay", "decay_epochs")}
        return self.model_copy(update={**plain, "epochs": epochs, "warmup_epochs": epochs // 10})

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.schedule != "steps" and self.decay_epochs:
            raise ValueError(
                f"decay_epochs: {self.decay_epochs} has no effect while schedule is {self.schedule!r}; expected "
                "schedule to be 'steps'"
            )
        if self.schedule == "cosine" and self.decay != type(self).model_fields["decay"].default:
            raise ValueError(
                f"decay: {self.decay:g} has no effect while schedule is 'cosine'; expected 'steps' or 'exponential'"
            )
        if self.schedule == "exponential" and "decay" not in self.model_fields_set:
            raise ValueError("decay: is missing; expected what the learning rate is multiplied by after every epoch")
        if self.schedule == "steps":
            rising = sorted({self.warmup_epochs, *self.decay_epochs, self.epochs})
            if not self.decay_epochs or rising != [self.warmup_epochs, *self.decay_epochs, self.epochs]:
                raise ValueError(
                    f"decay_epochs: {self.decay_epochs}: expected epochs in rising order, after the "
                    f"{self.warmup_epochs} of the warm-up and before the last, {self.epochs}"
                )
        if self.compiled and self.processes > 1:
            raise ValueError(
                f"compiled: True does not go with processes: {self.processes}, whose batch normalisations wait for "
                "each other; expected one of the two"
            )
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov: True has no effect while momentum is 0; expected a positive momentum")
        return self

    @model_validator(mode="after")
    def _warmup_leaves_time(self) -> Self:
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs: {self.warmup_epochs} takes all {self.epochs} epochs; expected fewer")
        return self


def _no_repeats(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{seeds} has a seed twice; expected each once")
    return seeds


class RunSettings(BaseModel):
    """Everything that decides one training run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset_name: str
    dataset: DatasetSettings
    method_name: str
    method: System
    seed: int
    training: TrainingSettings


class Params(BaseModel):
    """One experiment: every method on every dataset with every seed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    datasets: Annotated[dict[Key, DatasetSettings], Field(min_length=1)]
    methods: Annotated[dict[Key, Annotated[System, Field(discriminator="system")]], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1), AfterValidator(_no_repeats)]
    training: TrainingSettings

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        for name in RESERVED:
            if name in self.methods:
                raise ValueError(f"methods.{name}: {name!r} is taken by the pipeline; expected another name")
        for name in RESERVED_DATASETS:
            if name in self.datasets:
                raise ValueError(f"datasets.{name}: {name!r} is taken by the pipeline; expected another name")
        stages: dict[str, str] = {}
        for dataset in self.datasets:
            for method in self.methods:
                pair = f"{dataset} × {method}"
                if stages.setdefault(f"{dataset}-{method}", pair) != pair:
                    raise ValueError(
                        f"methods.{method}: {pair} and {stages[f'{dataset}-{method}']} are both called "
                        f"{dataset}-{method}; expected names that stay apart"
                    )
        return self

    @model_validator(mode="after")
    def _methods_fit_the_datasets_and_the_budget(self) -> Self:
        faults: dict[str, str] = {}
        for name, method in self.methods.items():
            for dataset, settings in self.datasets.items():
                if settings.facts is None:
                    continue  # its classes are known when its files are looked at: `check_files`
                try:
                    method.check_classes(settings.expected_label_counts(settings.facts))
                except ValueError as error:
                    faults.setdefault(name, f"{error} (with the classes of {dataset})")
            epochs = self.training.epochs
            if method.class_weighting == "deferred" and epochs < 2:
                faults.setdefault(name, f"class_weighting: 'deferred' never begins in {epochs} epoch; expected 2")
            if "synthesis_start" in method.slots() and method.first_synthetic_epoch(epochs) > epochs:
                faults.setdefault(name, f"synthesis: {method.synthesis!r} never begins in {epochs} epochs; expected 2")
        if faults:
            raise ValidationError.from_exception_data(
                "Params",
                [
                    InitErrorDetails(
                        type=PydanticCustomError("value_error", "{error}", {"error": fault}),
                        loc=("methods", name),
                        input=self.methods[name],
                    )
                    for name, fault in faults.items()
                ],
            )
        return self

    def run(self, dataset: str, method: str, seed: int) -> RunSettings:
        """Return the settings of one run.

        Raises:
            ParamsError: the dataset or the method is not in the file. The seed may be any.
        """
        for kind, name, known in (("datasets", dataset, self.datasets), ("methods", method, self.methods)):
            if name not in known:
                raise ParamsError(f"{kind}.{name} is not in {FILE_NAME}{_nearest(name, known)}")
        return RunSettings(
            dataset_name=dataset,
            dataset=self.datasets[dataset],
            method_name=method,
            method=self.methods[method],
            seed=seed,
            training=self.training,
        )


def find_project(start: Path | None = None) -> Path:
    """Return the nearest folder at or above ``start`` (the current folder) that holds a ``params.yaml``.

    Outside any project it is the one that this package is installed from.

    Raises:
        ParamsError: there is none.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents, Path(__file__).parents[1]):
        if (folder / FILE_NAME).is_file():
            return folder
    raise ParamsError(f"no {FILE_NAME} in {start} or above it; expected to run inside a project")


def load(file: Path | None = None) -> Params:
    """Read and check a params file, by default that of the project around the current folder.

    Raises:
        ParamsError: the file is missing, is not YAML, or holds an unknown key, a value of the wrong type or
        one
            that is out of range. Every fault is listed with its line, the key's path, the value, and what was
            expected.
    """
    file = file or find_project() / FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"{file}: cannot be read ({error}); expected a params file in UTF-8") from None
    try:
        # ruamel reads YAML 1.2, as DVC does: 1e-3 is a number (to PyYAML it is text) and a key stands once.
        content = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ParamsError(f"{file}:{line}: is not valid YAML: {error.problem}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ParamsError(f"{file}: is not valid YAML: {error}") from None
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        lines = YAML(typ="rt").load(text)
        faults = [_fault(details, file, lines) for details in error.errors(include_url=False)]
        raise ParamsError("\n".join(faults)) from None


def check_files(params: Params, file: Path) -> None:
    """Check what only the files of a data set tell: a folder's classes, and whether the settings and methods fit them.

    No image is opened. Of the other sources everything was checked by `load`.

    Args:
        params: what a params file holds.
        file: that file, in the project's folder.

    Raises:
        ParamsError: files are missing or not as expected, or something does not fit; the message names the key.
    """
    faults = []
    for name, settings in params.datasets.items():
        if settings.facts is not None:
            continue
        try:
            counts = settings.expected_label_counts(settings.facts_in(file.parent))
        except (ValueError, OSError) as error:
            faults.append(f"{file}: datasets.{name}: {error}")
            continue
        for method_name, method in params.methods.items():
            try:
                method.check_classes(counts)
            except ValueError as error:
                faults.append(f"{file}: methods.{method_name}: {error} (with the classes of {name})")
    if faults:
        raise ParamsError("\n".join(faults))


def _fault(details: ErrorDetails, file: Path, lines: Any) -> str:
    path = list(details["loc"])
    system = None
    if path[:1] == ["methods"] and len(path) > 2 and path[2] in _systems():
        system = _systems()[str(path.pop(2))]  # pydantic's tag of the union, not a key of the file
    if path[-1:] == ["[key]"]:
        path.pop()
    path[3:] = [place for place in path[3:] if isinstance(place, int)]  # a setting's alternatives are pydantic's, too
    name = ".".join(map(str, path)) or "the file"
    where = f"{file}:{_line(lines, path)}: {name}"
    value, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            known = _known_keys(path, system)
            return f"{where}: {value!r}: unknown key{_nearest(str(path[-1]), known)}"
        case "missing":
            return f"{where}: is missing"
        case "union_tag_invalid":
            tag = str(context["tag"])
            return f"{where}.system: {tag!r}: unknown system{_nearest(tag, _systems())}"
        case "union_tag_not_found":
            return f"{where}.system: is missing; expected one of {', '.join(_systems())}"
        case "literal_error":
            options = re.findall(r"'([^']+)'", str(context["expected"]))
            return f"{where}: {value!r}{_nearest(str(value), options)}"
        case "value_error":
            return f"{where}: {context['error']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{where}: {value!r}: expected a mapping"
        case "string_pattern_mismatch" | "string_too_long":
            return f"{where}: {value!r}: expected at most 60 lower-case letters and digits, with single - or _ inside"
        case "too_short":
            return f"{where}: {value!r}: expected at least one"
        case _:
            return f"{where}: {value!r}: {details['msg'].replace('Input should', 'should')}"


def _known_keys(path: Sequence[int | str], system: type[MethodSettings] | None) -> list[str]:
    model: type[BaseModel] = Params
    if system is not None:
        model = system
    elif path[0] == "training" and len(path) > 1:
        model = TrainingSettings
    elif path[0] == "datasets" and len(path) > 1:
        model = DatasetSettings
    return list(model.model_fields)


def _systems() -> dict[str, type[MethodSettings]]:
    return {system.model_fields["system"].default: system for system in get_args(System)}


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; expected one of {', '.join(known)}"


def _line(lines: Any, path: Sequence[int | str]) -> int:
    """Return the line of the last key of ``path`` that stands in the file."""
    number = 0
    for key in path:
        try:
            place = lines.lc.key(key) if isinstance(key, str) else lines.lc.item(key)
            number = place[0]
            lines = lines[key]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return number + 1


if __name__ == "__main__":
    try:
        file = find_project() / FILE_NAME
        check_files(load(file), file)
    except ParamsError as error:
        sys.exit(str(error))
