"""What a preset's rows cost: ``presets/results/<name>-cost.csv``, which ``benchmarks/methods.py`` measures.

A row of the file is a row of the preset, on its first data set:

- ``epoch_seconds`` and ``second_stage_epoch_seconds``: processor time of an epoch of either stage, evaluation left
  out (on a GPU the time on the clock); the second is missing where there is no second stage;
- ``run_seconds``: of all epochs of the preset, both stages; ``ratio``: over the ``run_seconds`` of the preset's first
  row, *as it was measured together with this one*, so that rows of several sessions can stand in one table;
- ``memory_mib``: by how much training raises the peak of memory; ``state_mib``: weights, momentum encoder, queue,
  moments and so on, and the optimiser's state;
- ``rounds``: of which each epoch's fastest counts; ``device`` and ``torch``, the version.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from ltnb import presets
from ltnb.files import replacing

NUMBERS = [
    "epoch_seconds", "second_stage_epoch_seconds", "run_seconds", "ratio", "memory_mib", "state_mib", "rounds"
]  # fmt: skip
COLUMNS = [*NUMBERS, "device", "torch"]
OPTIONAL = "second_stage_epoch_seconds"
TYPES = dict.fromkeys(NUMBERS, float) | {"rounds": int}


def record(measured: pd.DataFrame, preset: str, project: Path) -> None:
    """Write costs into the preset's file, in place of what stands there of the same rows.

    Rows come in the preset's order; what it no longer has goes.

    Args:
        measured: as `cost` gives it.
        preset: its name, such as ``digits-bcl``.
        project: the project's folder.

    Raises:
        ParamsError: there is no such preset.
        ValueError: what would stand in the file is not what `cost` reads, or the present file lacks a column.
    """
    rows = list(presets.load(preset, project).methods)
    file = _file(preset, project)
    earlier = _read(file)
    kept = earlier[earlier["row"].isin(rows) & ~earlier["row"].isin(measured.index)]
    frame = _checked(pd.concat([kept, measured.reset_index()], ignore_index=True), file, rows)
    with replacing(file) as temporary:
        frame.to_csv(temporary, float_format="%.4g", lineterminator="\n")


def cost(preset: str, project: Path) -> pd.DataFrame:
    """Index row, columns `COLUMNS`, in the preset's order; empty before anything was measured.

    Args:
        preset: its name, such as ``digits-bcl``.
        project: the project's folder.

    Raises:
        ParamsError: there is no such preset.
        ValueError: the table lacks a column, has a row twice or one that the preset lacks, or a number that is not
            positive and finite; the message names the file.
    """
    rows = list(presets.load(preset, project).methods)
    file = _file(preset, project)
    return _checked(_read(file), file, rows)


def _checked(frame: pd.DataFrame, file: Path, rows: list[str]) -> pd.DataFrame:
    """Return what `cost` does of a table that has all columns."""
    for row in frame["row"]:
        if row not in rows:
            raise ValueError(f"{file}: row {row!r} is not in the preset; expected one of {', '.join(rows)}")
    twice = frame.loc[frame["row"].duplicated(), "row"].tolist()
    if twice:
        raise ValueError(f"{file}: row {twice[0]!r} stands twice; expected each once")
    for column in NUMBERS:
        good = pd.to_numeric(frame[column], errors="coerce").between(0, np.inf, inclusive="neither")
        if column == OPTIONAL:
            good |= frame[column].isna()
        for row, value in frame.loc[~good, ["row", column]].itertuples(index=False):
            raise ValueError(f"{file}: {row} has {column} {value}; expected a positive number")
    frame = frame.set_index("row")[COLUMNS].astype(TYPES)
    return frame.reindex([row for row in rows if row in frame.index])


def _read(file: Path) -> pd.DataFrame:
    if not file.is_file():
        return pd.DataFrame(columns=["row", *COLUMNS], dtype=str)
    frame = pd.read_csv(file, dtype={"row": str, "device": str, "torch": str})
    for column in ("row", *COLUMNS):
        if column not in frame:
            raise ValueError(f"{file}: has no column {column!r}; expected {', '.join(('row', *COLUMNS))}")
    return frame


def _file(preset: str, project: Path) -> Path:
    return project / "presets" / "results" / f"{preset}-cost.csv"
