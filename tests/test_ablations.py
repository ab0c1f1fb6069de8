"""Ablations: presets, their results and the published numbers beside them."""

import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ltnb import ablations, preset_results
from ltnb.ablations import Interval
from ltnb.claims import Evidence
from ltnb.methods import BCL
from ltnb.params import ParamsError

PROJECT = Path(__file__).parents[1]

PRESET = """\
datasets:
  digits-if100: {source: digits, imbalance: 100}
methods:
  supcon: {system: supcon}
  bcl-ema: {system: bcl, prototypes: ema}
  bcl: {system: bcl}
seeds: [0, 1, 2]
training: {encoder: resnet8, epochs: 60}
"""

DATASET = "digits-if100"

PUBLISHED = """\
paper,row,dataset,quantity,published,source
bcl,supcon,CIFAR,accuracy,50.1,paper
bcl,bcl,CIFAR,accuracy,51.93,second-hand
bcl,bcl,CIFAR,accuracy few,32.9,second-hand
bcl,bcl-ema,ImageNet,accuracy,57.2,paper
bcl,bcl-ema,CIFAR,gain over supcon,0.5,README
pal,pal,CIFAR,accuracy,1.0,paper
"""

# By row, for the seeds 0, 1, 2.
ACCURACIES = {"bcl": (0.70, 0.74, 0.72), "supcon": (0.66, 0.67, 0.71), "bcl-ema": (0.65,)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "presets" / "results").mkdir(parents=True)
    (tmp_path / "presets" / "digits-bcl.yaml").write_text(PRESET, encoding="utf-8")
    (tmp_path / "presets" / "published.csv").write_text(PUBLISHED, encoding="utf-8")
    write_results(tmp_path)
    return tmp_path


def test_a_data_set_other_than_the_first(project: Path) -> None:
    results, other = project / "presets" / "results", "digits-if10"
    preset = PRESET.replace("methods:", f"  {other}: {{source: digits, imbalance: 10}}\nmethods:")
    (project / "presets" / "digits-bcl.yaml").write_text(preset, encoding="utf-8")
    with (results / "digits-bcl.csv").open("a", encoding="utf-8") as file:
        file.write(f"{other},bcl,0,all,0.9\n")
    origins = json.loads((results / "digits-bcl.json").read_text(encoding="utf-8"))
    origins[other] = {"bcl": {"settings": {}, "data": "", "code": {"older": [0], "newer": [1]}}}
    (results / "digits-bcl.json").write_text(json.dumps(origins), encoding="utf-8")
    second, first = ablations.read("digits-bcl", project, other), ablations.read("digits-bcl", project)
    assert second.accuracy.to_dict("records") == [{"method": "bcl", "seed": 0, "group": "all", "accuracy": 0.9}]
    assert 0.9 not in set(first.accuracy["accuracy"])
    assert (first.code_versions, second.code_versions) == (1, 2)
    with pytest.raises(ParamsError, match=r"digits-bcl.yaml: 'digits-if1' .*expected one of digits-if100, digits-if10"):
        ablations.read("digits-bcl", project, "digits-if1")


def write_results(project: Path, *further: tuple[str, int, str, float]) -> None:
    rows = [
        (DATASET, name, seed, group, accuracy - (0.2 if group == "few" else 0))
        for name, of_seeds in ACCURACIES.items()
        for seed, accuracy in enumerate(of_seeds)
        for group in ("all", "few")
    ]
    frame = pd.DataFrame([*rows, *((DATASET, *row) for row in further)], columns=preset_results.ACCURACY)
    results = project / "presets" / "results"
    frame.to_csv(results / "digits-bcl.csv", index=False)
    origin = {"settings": {}, "data": "", "code": {"": [0, 1, 2]}}
    origins = {DATASET: dict.fromkeys(frame["method"], origin)}
    (results / "digits-bcl.json").write_text(json.dumps(origins), encoding="utf-8")


def test_rows_come_in_the_order_of_the_preset(project: Path) -> None:
    ablation = ablations.read("digits-bcl", project)
    assert list(ablation.rows) == list(ablation.accuracy["method"].unique()) == ["supcon", "bcl-ema", "bcl"]
    assert set(ablation.published["row"]) == {"supcon", "bcl", "bcl-ema"}
    of_bcl = ablation.accuracy.query("method == 'bcl' and group == 'all'")
    assert list(of_bcl["accuracy"]) == list(ACCURACIES["bcl"])


def test_without_results_the_rows_are_there_and_empty(project: Path) -> None:
    (project / "presets" / "results" / "digits-bcl.csv").unlink()
    ablation = ablations.read("digits-bcl", project)
    table = ablations.table(ablation, baseline="supcon")
    assert list(table["seeds"]) == ["0 of 3"] * 3
    assert set(table["all [points]"]) == {""}
    assert "supcon (0), bcl-ema (0), bcl (0)" in ablations.missing(ablation)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (("bcl-emma", 0, "all", 0.5), "method 'bcl-emma'"),
        (("bcl-ema", 7, "all", 0.5), "seed 7"),
        (("bcl", 0, "all", 0.5), "bcl stands twice"),
        (("bcl-ema", 1, "all", 50.0), "accuracy 50.0"),
        (("bcl-ema", 1, "all", math.nan), "accuracy nan"),
    ],
)
def test_wrong_results_are_named(project: Path, row: tuple[str, int, str, float], named: str) -> None:
    write_results(project, row)
    with pytest.raises(ValueError, match=named):
        ablations.read("digits-bcl", project)


def test_a_published_row_must_be_in_the_preset(project: Path) -> None:
    with (project / "presets" / "published.csv").open("a", encoding="utf-8") as file:
        file.write("bcl,bcl-l9,CIFAR,accuracy,1.0,paper\n")
    with pytest.raises(ValueError, match="row 'bcl-l9'"):
        ablations.read("digits-bcl", project)


def test_an_unknown_preset_is_an_error(project: Path) -> None:
    with pytest.raises(ParamsError, match=r"'digits-bcx' is not a preset .*expected one of digits-bcl"):
        ablations.read("digits-bcx", project)


def test_the_difference_is_paired_by_seed(project: Path) -> None:
    overall = ablations.read("digits-bcl", project).accuracy.query("group == 'all'")
    interval = ablations.difference(overall, "bcl", "supcon")
    gains = np.array(ACCURACIES["bcl"]) - ACCURACIES["supcon"]
    low, high = stats.t.interval(0.95, 2, gains.mean(), stats.sem(gains))
    assert interval is not None
    np.testing.assert_allclose(interval, (gains.mean(), low, high, 3))


def test_seeds_of_one_row_alone_do_not_count(project: Path) -> None:
    overall = ablations.read("digits-bcl", project).accuracy.query("group == 'all'")
    interval = ablations.difference(overall, "bcl-ema", "bcl")
    assert interval is not None
    assert interval.mean == pytest.approx(0.65 - 0.70)
    assert (interval.n, math.isnan(interval.low), interval.text(scale=100)) == (1, True, "-5.0")
    assert ablations.difference(overall, "bcl-l2", "bcl") is None
    later = overall[(overall["method"] != "bcl") | (overall["seed"] > 0)]
    assert ablations.difference(later, "bcl-ema", "bcl") is None


def test_a_difference_of_any_measure() -> None:
    frame = pd.DataFrame({"method": ["a", "a", "b", "b"], "seed": [0, 1, 0, 1], "angle": [3.0, 5.0, 1.0, 2.0]})
    interval = ablations.difference(frame, "a", "b", value="angle")
    assert interval is not None
    assert (interval.mean, interval.n) == (2.5, 2)


@pytest.mark.parametrize(
    ("intervals", "claimed", "expected"),
    [
        ([(0.1, 0.3)], "higher", "holds"),
        ([(0.1, 0.3)], "lower", "fails"),
        ([(-0.3, -0.1)], "lower", "holds"),
        ([(-0.3, -0.1)], "higher", "fails"),
        ([(-0.1, 0.3)], "higher", "not reproduced"),
        ([(0.0, 0.0)], "higher", "not reproduced"),
        ([(math.nan, math.nan)], "higher", "not reproduced"),
        ([(0.1, 0.3), (0.2, 0.4)], "higher", "holds"),
        ([(0.1, 0.3), (-0.2, 0.4)], "higher", "not reproduced"),
        ([(-0.2, 0.4), (-0.3, -0.1)], "higher", "fails"),
        ([(0.1, 0.3), (math.nan, math.nan)], "higher", "not reproduced"),
    ],
)
def test_the_verdict_is_that_of_the_intervals(
    intervals: list[tuple[float, float]], claimed: Literal["higher", "lower"], expected: str
) -> None:
    assert ablations.verdict(*(Interval(0, low, high, 10) for low, high in intervals), claimed=claimed) == expected


def test_a_verdict_needs_a_difference() -> None:
    with pytest.raises(ValueError, match="got none"):
        ablations.verdict()


def test_published_gains_are_of_one_data_set_and_keep_their_source(project: Path) -> None:
    published = ablations.published_differences(ablations.read("digits-bcl", project), baseline="supcon").set_index(
        "row"
    )
    assert sorted(published.index) == ["bcl", "bcl-ema"]  # few has no baseline, ImageNet neither
    assert published.loc["bcl", "published"] == pytest.approx(1.83)
    assert published.loc["bcl-ema", "published"] == 0.5
    assert published.loc["bcl", "source"] == "second-hand"
    assert published.loc["bcl-ema", "source"] == "README"


def test_a_difference_is_second_hand_where_its_baseline_is(project: Path) -> None:
    ablation = ablations.read("digits-bcl", project)
    published = ablations.published_differences(ablation, baseline="bcl").set_index("row")
    assert published.loc["supcon", "published"] == pytest.approx(-1.83)
    assert published.loc["supcon", "source"] == "second-hand"


def test_table_keeps_ours_and_theirs_apart(project: Path) -> None:
    table = ablations.table(ablations.read("digits-bcl", project), baseline="supcon", groups=("all", "few"))
    assert table.loc["bcl", "seeds"] == "3 of 3"
    assert table.loc["bcl", "accuracy [%]"] == "72.0 ± 2.0"
    assert table.loc["bcl", "all [points]"] == "+4.0 [-3.5, +11.5]"
    assert table.loc["bcl", "all [points]"] == table.loc["bcl", "few [points]"]
    assert table.loc["bcl", "published [points]"] == "+1.83"
    assert table.loc["bcl", "source"] == "CIFAR (second-hand)"
    assert table.loc["bcl-ema", "settings"] == "bcl, prototypes=ema"
    assert table.loc["supcon", "all [points]"] == table.loc["supcon", "published [points]"] == ""


def test_what_has_not_run_is_said(project: Path) -> None:
    assert "bcl-ema (1)" in ablations.missing(ablations.read("digits-bcl", project))
    write_results(project, ("bcl-ema", 1, "all", 0.5), ("bcl-ema", 2, "all", 0.5))
    assert ablations.missing(ablations.read("digits-bcl", project)) == ""


def test_differences_are_of_the_rows_that_ran(project: Path) -> None:
    ablation = ablations.read("digits-bcl", project)
    table = ablations.differences(ablation, baseline="supcon").set_index(["method", "group"])
    assert list(table.index.unique("method")) == ["bcl-ema", "bcl"]
    assert table.loc[("bcl", "few"), "difference"] == pytest.approx(0.04)
    assert list(ablations.differences(ablation, baseline="supcon", rows=["bcl"])["method"].unique()) == ["bcl"]
    (project / "presets" / "results" / "digits-bcl.csv").unlink()
    assert ablations.differences(ablations.read("digits-bcl", project), baseline="supcon").empty


def test_rows_can_be_chosen(project: Path) -> None:
    table = ablations.table(ablations.read("digits-bcl", project), baseline="supcon", rows=["bcl", "supcon"])
    assert list(table.index) == ["bcl", "supcon"]


def test_a_record_holds_the_verdict_and_its_numbers() -> None:
    evidence = Evidence("experiments/bcl")
    gains = {"BCL − SupCon": Interval(0.02, 0.01, 0.03, 10), "BCL − CE": Interval(0.2, 0.1, 0.3, 3)}
    text = ablations.record(evidence, "bcl-head-and-tail", gains, remark="Many is one class.")
    (finding,) = evidence.findings
    assert (finding.claim, finding.kind, finding.verdict) == ("bcl-head-and-tail", "trained", "holds")
    assert finding.detail.startswith("BCL − SupCon: +2.0 [+1.0, +3.0] points (10 seeds); BCL − CE: +20.0 [")
    assert finding.detail.endswith("not CIFAR. Many is one class.")
    assert text == f"bcl-head-and-tail: holds. {finding.detail}"


def test_a_claim_may_hold_in_part() -> None:
    evidence = Evidence("experiments/pal")
    clear, open_ = Interval(0.02, 0.01, 0.03, 10), Interval(0.001, -0.01, 0.012, 10)
    ablations.record(evidence, "pal-long-tail-trained", {"alone": clear, "on top": open_}, in_part=True)
    ablations.record(evidence, "pal-long-tail-trained", {"alone": clear, "on top": open_})
    ablations.record(evidence, "pal-long-tail-trained", {"alone": clear}, in_part=True)
    against = Interval(-0.02, -0.03, -0.01, 10)
    ablations.record(evidence, "pal-long-tail-trained", {"alone": clear, "on top": against}, in_part=True)
    verdicts = ["holds only under", "not reproduced", "holds", "fails"]
    assert [finding.verdict for finding in evidence.findings] == verdicts
    assert evidence.findings[0].detail.startswith("For alone. All: alone: +2.0 [")


def test_one_of_many_differences_has_to_be_clearer_to_decide() -> None:
    barely, open_ = Interval(0.02, 0.001, 0.039, 10), Interval(0.0, -0.01, 0.01, 10)
    evidence = Evidence("experiments/pal")
    ablations.record(evidence, "pal-long-tail-trained", {"alone": barely}, in_part=True)
    ablations.record(evidence, "pal-long-tail-trained", {"alone": barely, "a": open_, "b": open_}, in_part=True)
    assert [finding.verdict for finding in evidence.findings] == ["holds", "not reproduced"]
    assert ablations.verdict(barely, claimed="lower") == "fails"
    assert ablations.verdict(barely, open_, claimed="lower") == "not reproduced"
    # As wide as stats.t makes it: 95 % of one, 98.33 % of one of three.
    quantiles = stats.t.ppf([1 - 0.025 / 3, 0.975], 9)
    assert barely.among(3).high - 0.02 == pytest.approx(0.019 * quantiles[0] / quantiles[1])
    assert Interval(0.02, math.nan, math.nan, 1).among(3).n == 1


def test_a_row_that_has_not_run_leaves_the_claim_unchecked() -> None:
    evidence = Evidence("experiments/bcl")
    text = ablations.record(evidence, "bcl-head-and-tail", {"a": Interval(1, 1, 1, 2), "b": None})
    assert evidence.findings == []
    assert text == "bcl-head-and-tail: not yet checked, for lack of runs with one seed of b"


def test_changes_are_against_the_defaults_of_the_system() -> None:
    assert ablations.changes(BCL()) == "bcl"
    row = BCL(views=("strong", "sim", "rand"), complement=False)
    assert ablations.changes(row) == "bcl, views=strong/sim/rand, complement=False"


@pytest.mark.parametrize("preset", ["digits-bcl", "digits-featrecon", "digits-bce3s", "digits-pal"])
def test_the_papers_own_presets_can_be_read(preset: str) -> None:
    ablation = ablations.read(preset, PROJECT)
    assert len(ablation.seeds) == 10
    assert len(ablations.table(ablation, baseline=next(iter(ablation.rows)))) == len(ablation.rows)


def test_what_goes_beyond_a_control() -> None:
    def frame(heads: list[float], tails: list[float]) -> pd.DataFrame:
        rows = [("bcl", s, m, v) for m, of in (("head", heads), ("tail", tails)) for s, v in enumerate(of)]
        return pd.DataFrame([*rows, ("ce", 0, "head", 100.0)], columns=["method", "seed", "measure", "value"])

    here, control = frame([9.0, 8.0, 7.0], [1.0, 2.0, 1.0]), frame([5.0, 5.0], [4.0, 3.0])
    single = ablations.beyond_control(here, control, "bcl", "head")
    assert single is not None
    assert (single.mean, single.n) == (3.5, 2)
    of_two = ablations.beyond_control(here, control, "bcl", "head", "tail")
    assert of_two is not None
    np.testing.assert_allclose(of_two, (5.5, *stats.t.interval(0.95, 1, 5.5, 1.5), 2))
    assert ablations.beyond_control(here, control, "pal", "head") is None
    assert ablations.beyond_control(here, control, "ce", "tail") is None
    assert ablations.beyond_control(here, control.iloc[:0], "bcl", "head") is None


def test_the_interval_of_values_is_student_s() -> None:
    values = [1.0, 2.0, 4.0, 8.0]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert Interval.of(values) == pytest.approx((np.mean(values), low, high, 4))
    assert Interval.of(pd.Series([*values, math.nan])) == Interval.of(values)
    assert math.isnan(Interval.of([2.0]).low)
    assert Interval.of(values).shifted(0.5) == pytest.approx((np.mean(values) + 0.5, low + 0.5, high + 0.5, 4))


def test_differences_that_stand_for_themselves_restrict_a_claim_and_do_not_refute_it() -> None:
    above, below = Interval(1, 0.5, 1.5, 10), Interval(-1, -1.5, -0.5, 10)
    evidence = Evidence("here")
    ablations.record(evidence, "a", {"one": above, "two": below}, in_part=True, data="Somewhere else.")
    ablations.record(evidence, "b", {"one": above, "two": below}, each=True)
    ablations.record(evidence, "c", {"one": below, "two": below}, each=True)
    ablations.record(evidence, "d", {"one": above}, corrected=True, remark="Earlier, too.")
    assert [finding.verdict for finding in evidence.findings] == [
        "fails", "holds only under", "fails", "holds with a correction",
    ]  # fmt: skip
    assert "Somewhere else." in evidence.findings[0].detail
    assert evidence.findings[1].detail.startswith("For one. All: ")


def test_what_a_run_was_trained_on_is_said() -> None:
    params = {
        "dataset_name": "pets",
        "dataset": {"source": "digits", "imbalance": 100.0},
        "training": {"encoder": "resnet8"},
    }
    assert ablations.measured_on(params) == ablations.DATA
    for change in ({"dataset": {"source": "folder", "imbalance": 100.0}}, {"training": {"encoder": "resnet32"}}):
        assert ablations.measured_on(params | change).startswith(
            "The data set pets (imbalance 100.0) and the encoder r"
        )
