"""What the presets' runs reached: ``presets/results/<name>.csv``, and from what settings it came.

Three files a preset, four where labels are wrong, all of them committed:

- ``<name>.csv``: test accuracies, a row a data set, method, seed and group;
- ``<name>-measures.csv``: the numbers of `ltnb.balance`, or of `ltnb.noisy_labels` where one of the preset's data sets
  has wrong labels, a row a data set, method and seed;
- ``<name>-history.csv``, where one has: how much of the wrong labels was memorised when, a row a data set, method, seed
  and epoch that was watched;
- ``<name>.json``: for each data set and method the settings that had an effect, the fingerprint of the data, and
  which seeds ran with which version of the package's code. A number whose settings are no longer those of the preset
  is refused when it is read, and goes when a run of the present settings is recorded.
"""

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from ltnb import balance, noisy_labels, tables
from ltnb.files import replacing
from ltnb.params import Params, RunSettings
from ltnb.runs import Run

KEYS = ["dataset", "method", "seed"]
ACCURACY = [*KEYS, "group", "accuracy"]
HISTORY = [
    *KEYS, "epoch", "test_accuracy", "train_accuracy_clean", "memorised", "recovered", "classifier_smallest_angle"
]  # fmt: skip
ABSENT = {
    "dataset": {"noise": "none", "tail": "exponential", "subset": "shuffled"}
}  # what a part of the settings says by not saying it

Settings = dict[str, dict[str, Any]]
Origins = dict[str, dict[str, Any]]


def record(found: Sequence[Run], preset: str, settings: Params, project: Path) -> None:
    """Write what the runs reached into the preset's tables, in place of what stands there; each file once.

    Args:
        found: finished runs of the preset.
        preset: its name, such as ``digits-bcl``.
        settings: what its file holds.
        project: the project's folder.

    Raises:
        ValueError: a run has other settings than the preset gives it.
    """
    for run in found:
        if not settings.run(run.dataset, run.method, run.seed).model_dump(mode="json").items() <= run.params.items():
            raise ValueError(
                f"{run.folder} has other settings than the preset {preset!r} gives {run.method}; expected the same"
            )
    frames = {"": tables.accuracies(found)[ACCURACY], "-measures": _measures(found, settings)}
    if _has_noise(settings):
        frames["-history"] = tables.histories(found).dropna(subset=["test_accuracy"]).reindex(columns=HISTORY)
    lock = project / "build" / "presets" / f"{preset}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):  # several processes may run one preset
        origins = _origins(preset, project)
        outdated = _enter(found, settings, origins)
        ran = [(run.dataset, run.method, run.seed) for run in found]
        for ending, frame in frames.items():
            earlier = _read(preset + ending, project)
            rows = pd.MultiIndex.from_frame(earlier[KEYS])
            replaced = rows.isin(ran) | rows.droplevel("seed").isin(outdated)
            frame = pd.concat([earlier[~replaced], frame], ignore_index=True).sort_values(KEYS, kind="stable")
            digits = 4 if ending == "-history" else 6
            with replacing(_file(preset + ending, project)) as temporary:
                frame.to_csv(temporary, index=False, float_format=f"%.{digits}g", lineterminator="\n")
        # Last: numbers without their settings are refused, settings without numbers do no harm.
        with replacing(_file(preset, project, "json")) as temporary:
            temporary.write_text(json.dumps(origins, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def accuracy(preset: str, settings: Params, project: Path) -> pd.DataFrame:
    """Columns dataset, method, seed, group, accuracy in [0, 1]; empty before any row ran.

    Args:
        preset: its name, such as ``digits-bcl``.
        settings: what its file holds.
        project: the project's folder.

    Raises:
        ValueError: the table has a data set, method or seed that the preset lacks, one of them twice, an accuracy
            outside [0, 1], or a row that ran with other settings than the preset's; the message names the file.
    """
    frame = _read(preset, project).reindex(columns=ACCURACY)
    file = _file(preset, project)
    for column, known in (
        ("dataset", list(settings.datasets)),
        ("method", list(settings.methods)),
        ("seed", list(settings.seeds)),
    ):
        unknown = frame.loc[~frame[column].isin(known), column].tolist()
        if unknown:
            raise ValueError(f"{file}: {column} {unknown[0]!r} is not in the preset; expected one of {known}")
    twice = frame[frame.duplicated([*KEYS, "group"])]
    if len(twice):
        raise ValueError(f"{file}: {twice['method'].iloc[0]} stands twice with one seed and group; expected each once")
    outside = frame.loc[~frame["accuracy"].between(0, 1), "accuracy"]
    if len(outside):
        raise ValueError(f"{file}: accuracy {outside.iloc[0]}; expected a share in [0, 1]")
    _check_origins(frame, preset, settings, project)
    return frame


def measured(preset: str, settings: Params, project: Path) -> pd.DataFrame:
    """Columns dataset, method, seed, measure, value: the numbers of `ltnb.balance` or `ltnb.noisy_labels`.

    Empty before any row ran.

    Raises:
        ValueError: a row ran with other settings than the preset's; the message names the file.
    """
    frame = _read(f"{preset}-measures", project)
    _check_origins(frame, preset, settings, project)
    return frame.melt(KEYS, var_name="measure", value_name="value").dropna(ignore_index=True)


def history(preset: str, settings: Params, project: Path) -> pd.DataFrame:
    """Columns `HISTORY`, shares in [0, 1] and an angle in degrees: a row for each epoch that was watched.

    Only a preset one of whose data sets has wrong labels has any. On the others of its data sets
    ``train_accuracy_clean``, ``memorised`` and ``recovered`` are missing. Empty before any row ran.

    Raises:
        ValueError: a row ran with other settings than the preset's; the message names the file.
    """
    frame = _read(f"{preset}-history", project).reindex(columns=HISTORY)
    _check_origins(frame, preset, settings, project)
    return frame


def code_versions(preset: str, project: Path, dataset: str | None = None) -> int:
    """Return from how many versions of the package's code the preset's numbers are, of one data set or of all."""
    origins = _origins(preset, project)
    of_datasets = list(origins.values()) if dataset is None else [origins.get(dataset, {})]
    return len({code for of_data in of_datasets for row in of_data.values() for code in row["code"]})


def _has_noise(settings: Params) -> bool:
    return any(dataset.noise != "none" for dataset in settings.datasets.values())


def _measures(found: Sequence[Run], settings: Params) -> pd.DataFrame:
    """Return columns dataset, method, seed and one a measure, a row a run."""
    measures = noisy_labels.measures if _has_noise(settings) else balance.measures
    of_datasets = groupby(found, key=lambda run: run.dataset)
    frame = pd.concat([measures(of_dataset).assign(dataset=name) for name, of_dataset in of_datasets])
    return frame.pivot_table(index=KEYS, columns="measure", values="value", sort=False).reset_index()


def _enter(found: Sequence[Run], settings: Params, origins: Origins) -> list[tuple[str, str]]:
    """Enter the runs into ``origins``; return the rows, as (dataset, method), whose earlier numbers are outdated."""
    outdated = []
    for run in found:
        of_data = origins.setdefault(run.dataset, {})
        now = {
            "settings": _effective(settings.run(run.dataset, run.method, run.seed)),
            "data": run.params["fingerprints"]["data"],
        }
        row: dict[str, Any] = of_data.get(run.method, now | {"code": {}})
        if row["data"] != now["data"] or _difference(row["settings"], now["settings"]):
            print(f"{run.dataset} {run.method}: the numbers of other settings are dropped", file=sys.stderr)
            outdated.append((run.dataset, run.method))
            row = {"code": {}}
        code = {version: set(seeds) - {run.seed} for version, seeds in row["code"].items()}
        code.setdefault(run.params["fingerprints"]["code"], set()).add(run.seed)
        of_data[run.method] = now | {"code": {version: sorted(seeds) for version, seeds in code.items() if seeds}}
    return outdated


def _effective(settings: RunSettings) -> Settings:
    return {
        "dataset": settings.dataset.model_dump(mode="json"),
        "method": settings.method.slots(),
        "training": settings.training.model_dump(mode="json"),
    }


def _check_origins(frame: pd.DataFrame, preset: str, settings: Params, project: Path) -> None:
    origins = _origins(preset, project)
    for dataset, method, seed in frame[KEYS].drop_duplicates().itertuples(index=False):
        row: dict[str, Any] = origins.get(dataset, {}).get(method, {"code": {}})
        if not any(seed in seeds for seeds in row["code"].values()):
            raise ValueError(
                f"{_file(preset, project, 'json')}: lacks the settings of {dataset} {method} seed {seed}; "
                f"expected what `python -m ltnb.presets {preset}` writes"
            )
        different = _difference(row["settings"], _effective(settings.run(dataset, method, seed)))
        if different:
            name, value, of_preset = different
            raise ValueError(
                f"{_file(preset, project)}: {dataset} {method} ran with {name} = {value!r}, and the preset has "
                f"{of_preset!r}; expected the same (python -m ltnb.presets {preset} --rows {method})"
            )


def _difference(then: Settings, now: Settings) -> tuple[str, Any, Any] | None:
    """Return a setting that a row ran with and that is another one now, by name, with both values; None: there is none.

    A setting that did not exist yet when the row ran is none that could differ.
    """
    for part, values in then.items():
        absent = ABSENT.get(part, {})
        values_now = absent | now[part]
        for name, value in (absent | values).items():
            if values_now.get(name, value) != value:
                return name, value, values_now[name]
    return None


def _origins(preset: str, project: Path) -> Origins:
    file = _file(preset, project, "json")
    origins: Origins = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return origins


def _read(name: str, project: Path) -> pd.DataFrame:
    file = _file(name, project)
    if not file.is_file():
        return pd.DataFrame(columns=KEYS).astype({"seed": int})
    return pd.read_csv(file, dtype={"dataset": str, "method": str})


def _file(name: str, project: Path, ending: str = "csv") -> Path:
    return project / "presets" / "results" / f"{name}.{ending}"
