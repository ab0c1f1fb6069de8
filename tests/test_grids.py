"""Presets of several data sets: differences, tables and verdicts, from numbers that are known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ltnb import grids, params, preset_results
from ltnb.ablations import Interval
from ltnb.claims import Evidence
from ltnb.data.settings import DatasetSettings
from ltnb.grids import Grid

SMALL = """\
datasets:
  clean: {source: digits, imbalance: 1, largest: 10}
  wrong: {source: digits, imbalance: 1, largest: 10, noise: symmetric, noise_rate: 0.4}
methods:
  ce: {system: ce}
  fnpal: {system: fnpal, classifier_scale: noise-aware}
seeds: [0, 1, 2]
training: {encoder: resnet8, epochs: 2, warmup_epochs: 0, batch_size: 32, learning_rate: 0.1, weight_decay: 1e-3}
"""
ACCURACY = {
    ("clean", "ce"): [0.90, 0.92, 0.94],
    ("clean", "fnpal"): [0.91, 0.92, 0.96],
    ("wrong", "ce"): [0.60, 0.62, 0.67],
    ("wrong", "fnpal"): [0.80, 0.83, 0.85],
}


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    (tmp_path / "small.yaml").write_text(SMALL)
    rows = [
        (dataset, method, seed, "accuracy", value)
        for (dataset, method), values in ACCURACY.items()
        for seed, value in enumerate(values)
    ]
    measured = pd.DataFrame(rows, columns=["dataset", "method", "seed", "measure", "value"])
    memorised = measured.query("dataset == 'wrong'").assign(measure="memorised", value=lambda frame: 1 - frame["value"])
    measured = pd.concat([measured, memorised], ignore_index=True)
    return Grid(params.load(tmp_path / "small.yaml"), measured, pd.DataFrame())


def expected(differences: list[float]) -> tuple[float, float, float]:
    mean, margin = np.mean(differences), stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return float(mean), float(mean - margin), float(mean + margin)


def test_gains_are_paired_by_seed_on_each_data_set(grid: Grid) -> None:
    found = grids.gains(grid, "fnpal", "ce")
    assert list(found) == ["clean", "wrong"]
    for dataset, interval in found.items():
        pairs = zip(ACCURACY[dataset, "fnpal"], ACCURACY[dataset, "ce"], strict=True)
        assert interval[:3] == pytest.approx(expected([row - baseline for row, baseline in pairs]))
        assert interval.n == 3


def test_a_data_set_without_the_measure_has_no_gain(grid: Grid) -> None:
    found = grids.gains(grid, "fnpal", "ce", measure="memorised")
    assert found["clean"] is None
    assert found["wrong"].mean == pytest.approx(-grids.gains(grid, "fnpal", "ce")["wrong"].mean)


def test_what_a_row_loses_less_than_the_baseline(grid: Grid) -> None:
    found = grids.drop_difference(grid, "fnpal", "ce", from_dataset="clean", to_dataset="wrong")
    lost = {m: np.array(ACCURACY["clean", m]) - ACCURACY["wrong", m] for m in ("ce", "fnpal")}
    assert found[:3] == pytest.approx(expected(list(lost["ce"] - lost["fnpal"])))


def test_a_table_has_a_line_a_row_a_column_a_data_set_and_the_seeds(grid: Grid) -> None:
    table = grids.table(grid)
    assert list(table.columns) == ["clean", "wrong", "n"]
    assert table.loc["ce"].tolist() == ["92.0 ± 2.0", "63.0 ± 3.6", 3]
    assert list(grids.table(grid, measure="memorised").columns) == ["wrong", "n"]


def test_a_table_of_gains_says_points_and_intervals(grid: Grid) -> None:
    table = grids.gain_table(grid, [("fnpal", "ce")])
    mean, low, high = (100 * value for value in grids.gains(grid, "fnpal", "ce")["wrong"][:3])
    assert table.loc["fnpal − ce", "wrong"] == f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def test_what_is_missing_is_said(grid: Grid) -> None:
    assert grids.missing(grid) == ""
    fewer = Grid(grid.preset, grid.measured.query("not (method == 'ce' and seed == 2)"), grid.history)
    assert grids.missing(fewer).startswith("10 of 12 runs")


@pytest.mark.parametrize(
    ("noise", "text"),
    [
        ({}, "no wrong labels"),
        ({"noise": "symmetric", "noise_rate": 0.4}, "40 % symmetric"),
        ({"noise": "asymmetric", "noise_rate": 0.1, "noise_mapping": "digits"}, "10 % asymmetric"),
        ({"noise": "symmetric", "noise_rate": [0.1] * 5 + [0.25] * 5}, "10 to 25 % symmetric"),
    ],
)
def test_wrong_labels_in_words(noise: dict[str, object], text: str) -> None:
    assert grids.wrong_labels(DatasetSettings(source="digits", imbalance=1, **noise)) == text


ABOVE, BELOW, UNDECIDED = Interval(1, 0.5, 1.5, 10), Interval(-1, -1.5, -0.5, 10), Interval(0.1, -0.5, 0.7, 10)


@pytest.mark.parametrize(
    ("of_every", "of_most", "verdict"),
    [
        ([ABOVE, ABOVE], [ABOVE, ABOVE, UNDECIDED], "holds"),
        ([ABOVE, ABOVE], [ABOVE, ABOVE, BELOW], "holds"),
        ([ABOVE, UNDECIDED], [ABOVE, ABOVE, ABOVE], "holds only under"),
        ([ABOVE, ABOVE], [ABOVE, BELOW], "holds only under"),  # half of them is not most
        ([ABOVE, BELOW], [UNDECIDED], "fails"),
    ],
)
def test_a_claim_of_most_settings_and_of_every_one(
    of_every: list[Interval], of_most: list[Interval], verdict: str
) -> None:
    evidence = Evidence("here")
    differences = {f"{i}: every": interval for i, interval in enumerate(of_every)}
    differences |= {f"{i}: most": interval for i, interval in enumerate(of_most)}
    grids.record_most(evidence, "a-claim", differences, always=["every"], data="Somewhere.")
    (finding,) = evidence.findings
    assert finding.verdict == verdict
    assert f"every: {of_every.count(ABOVE)} above 0 and {of_every.count(BELOW)} below, of 2" in finding.detail


def test_a_claim_with_a_missing_difference_is_left_unchecked() -> None:
    evidence = Evidence("here")
    said = grids.record_most(evidence, "a-claim", {"a: x": ABOVE, "b: x": None}, always=["x"], data="Somewhere.")
    assert "not yet checked" in said
    assert not evidence.findings


def test_a_grid_that_has_not_run_is_empty(tmp_path: Path) -> None:
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "small.yaml").write_text(SMALL)
    empty = grids.read("small", tmp_path)
    assert len(empty.measured) == len(empty.history) == 0
    assert list(empty.measured) == [*preset_results.KEYS, "measure", "value"]
    assert grids.missing(empty).startswith("0 of 12 runs")
