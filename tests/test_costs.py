"""What a preset's rows cost: written row by row, read with complaints about what cannot be."""

from pathlib import Path

import pandas as pd
import pytest
from short_preset import PRESET, write_project

from ltnb.costs import COLUMNS, cost, record
from ltnb.params import ParamsError

NAME = "digits-pal"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, NAME, PRESET)
    return tmp_path


def measured(*rows: str, **values: object) -> pd.DataFrame:
    """Costs of one stage, at which ``values`` are other ones."""
    plain = {
        "epoch_seconds": 0.25,
        "second_stage_epoch_seconds": float("nan"),
        "run_seconds": 15.0,
        "ratio": 1.0,
        "memory_mib": 22.5,
        "state_mib": 1.5,
        "rounds": 3,
        "device": "a processor, threads: 1",
        "torch": "2.14",
    }
    return pd.DataFrame([plain | values] * len(rows), index=pd.Index(rows, name="row", dtype=str))


def write(project: Path, frame: pd.DataFrame) -> None:
    file = project / "presets" / "results" / f"{NAME}-cost.csv"
    file.parent.mkdir(exist_ok=True)
    frame.to_csv(file)


def test_before_any_measurement_the_table_is_empty(project: Path) -> None:
    frame = cost(NAME, project)
    assert len(frame) == 0
    assert list(frame) == COLUMNS
    assert frame.index.name == "row"


def test_what_is_recorded_is_read(project: Path) -> None:
    frame = pd.concat([measured("ce"), measured("pal", second_stage_epoch_seconds=0.125, ratio=1.25)])
    record(frame, NAME, project)
    pd.testing.assert_frame_equal(cost(NAME, project), frame[COLUMNS])


def test_rows_not_measured_again_stay_and_the_preset_gives_the_order(project: Path) -> None:
    record(measured("pal", ratio=2.0), NAME, project)
    record(measured("ce"), NAME, project)
    record(measured("ce", epoch_seconds=0.5), NAME, project)
    frame = cost(NAME, project)
    assert list(frame.index) == ["ce", "pal"]
    assert frame["epoch_seconds"].tolist() == [0.5, 0.25]
    assert frame["ratio"].tolist() == [1.0, 2.0]
    assert frame["rounds"].dtype == int


def test_a_row_that_the_preset_lost_goes_when_another_is_recorded(project: Path) -> None:
    write(project, measured("ce", "bcl"))
    record(measured("pal"), NAME, project)
    assert list(cost(NAME, project).index) == ["ce", "pal"]


def test_what_could_not_be_read_is_not_written(project: Path) -> None:
    record(measured("ce"), NAME, project)
    with pytest.raises(ValueError, match=r"digits-pal-cost\.csv: pal has memory_mib 0\.0; expected a positive number"):
        record(measured("pal", memory_mib=0.0), NAME, project)
    assert list(cost(NAME, project).index) == ["ce"]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (measured("ce", "bcl"), r"row 'bcl' is not in the preset; expected one of ce, pal"),
        (measured("ce", "ce"), r"row 'ce' stands twice"),
        (measured("ce").drop(columns="state_mib"), r"has no column 'state_mib'; expected row, epoch_seconds, "),
        (measured("ce").rename_axis("method"), r"has no column 'row'"),
        (measured("ce", epoch_seconds=-1.5), r"ce has epoch_seconds -1\.5; expected a positive number"),
        (measured("ce", ratio=float("nan")), r"ce has ratio nan; expected a positive number"),
        (measured("ce", run_seconds=float("inf")), r"ce has run_seconds inf; expected a positive number"),
        (measured("ce", state_mib="many"), r"ce has state_mib many; expected a positive number"),
        (measured("ce", rounds=0), r"ce has rounds 0; expected a positive number"),
        (
            measured("ce", second_stage_epoch_seconds=0.0),
            r"ce has second_stage_epoch_seconds 0\.0; expected a positive number",
        ),
    ],
)
def test_what_cannot_be_is_refused(project: Path, frame: pd.DataFrame, said: str) -> None:
    write(project, frame)
    with pytest.raises(ValueError, match=rf"presets/results/digits-pal-cost\.csv: {said}"):
        cost(NAME, project)


def test_an_unknown_preset_is_refused(project: Path) -> None:
    with pytest.raises(ParamsError, match=r"'digits' is not a preset"):
        cost("digits", project)
