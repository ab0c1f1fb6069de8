"""The baselines beside the papers' methods: what stands beside what, and the numbers of the table."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ltnb import ablations, baselines, costs, preset_results, presets
from ltnb.baselines import FAMILIES, ORIGINS, PAPERS, REASONS
from ltnb.plots import method_style
from ltnb.plots.theme import BASELINES, FAMILY_STYLES, ROW_STYLES, STYLES

PROJECT = Path(__file__).parents[1]
DATASET = "digits-if100"

HEAD = "datasets:\n  digits-if100: {source: digits, imbalance: 100}\nmethods:\n"
TAIL = "seeds: [0, 1, 2]\ntraining: {encoder: resnet8, epochs: 60}\n"
PRESETS = {
    "digits-baselines": """\
  focal: {system: focal}
  ce: {system: ce}
  class-balanced-focal: {system: class-balanced, classification: focal, focal_gamma: 1.0}
  crt: {system: crt}
  supcon: {system: supcon}
  kcl: {system: kcl}
""",
    "digits-bcl": "  supcon: {system: supcon}\n  bcl: {system: bcl}\n",
    "digits-bce3s": "  ce-sc: {system: bce3s, contrast: none}\n  bce3s: {system: bce3s}\n",
}
FURTHER = {"bcl": "digits-bcl", "bce3s": "digits-bce3s"}
FEW = {  # by row, for the seeds 0, 1, 2
    "digits-baselines": {
        "ce": (0.50, 0.52, 0.54),
        "focal": (0.51, 0.51, 0.56),  # +1, −1, +2
        "class-balanced-focal": (0.60, 0.63, 0.64),
        "crt": (0.49,),
        "supcon": (0.70, 0.72, 0.71),
    },
    "digits-bcl": {"supcon": (0.70, 0.72, 0.75), "bcl": (0.71, 0.75, 0.73)},
}
PUBLISHED = """\
paper,row,dataset,quantity,published,source
baselines,ce,"CIFAR-10-LT, factor 100, ResNet-32",accuracy,71.36,README of LA
baselines,ce,"CIFAR-100-LT, factor 100, ResNet-32",accuracy,39.87,README of LA
baselines,ce,"CIFAR-100-LT, factor 10, ResNet-32",accuracy,55.7,README of LA
baselines,focal,"CIFAR-100-LT, factor 100, ResNet-32, 200 epochs",accuracy few,1.0,second-hand
baselines,supcon,"CIFAR-10-LT, factor 100, ResNet-32",accuracy,70.4,another
baselines,supcon,"CIFAR-100-LT, factor 100, ResNet-32",accuracy,38.3,second-hand
bcl,bcl,"CIFAR-100-LT, factor 100, ResNet-32, 200 epochs",accuracy,51.93,second-hand
bcl,supcon,"CIFAR-100-LT, factor 100, ResNet-32, 200 epochs",accuracy,50.1,paper
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "presets" / "results").mkdir(parents=True)
    for name, rows in PRESETS.items():
        (tmp_path / "presets" / f"{name}.yaml").write_text(HEAD + rows + TAIL, encoding="utf-8")
    (tmp_path / "presets" / "published.csv").write_text(PUBLISHED, encoding="utf-8")
    for name, of_rows in FEW.items():
        write_results(tmp_path, name, of_rows)
    return tmp_path


def write_results(project: Path, name: str, of_rows: dict[str, tuple[float, ...]]) -> None:
    rows = [
        (DATASET, row, seed, group, accuracy + (0.2 if group == "all" else 0))
        for row, few in of_rows.items()
        for seed, accuracy in enumerate(few)
        for group in ("all", "few")
    ]
    results = project / "presets" / "results"
    pd.DataFrame(rows, columns=preset_results.ACCURACY).to_csv(results / f"{name}.csv", index=False)
    origin = {"settings": {}, "data": "", "code": {"": [0, 1, 2]}}
    (results / f"{name}.json").write_text(json.dumps({DATASET: dict.fromkeys(of_rows, origin)}), encoding="utf-8")


def write_costs(project: Path, name: str, *rows: tuple[str, float, float, float, str]) -> None:
    """Of row, epoch's and run's seconds, ratio, device."""
    frame = pd.DataFrame(
        [
            {
                "row": row,
                "epoch_seconds": epoch,
                "run_seconds": run,
                "ratio": ratio,
                "memory_mib": 8.0,
                "state_mib": 0.574,
                "rounds": 3,
                "device": device,
                "torch": "2",
            }
            for row, epoch, run, ratio, device in rows
        ]
    )
    file = project / "presets" / "results" / f"{name}-cost.csv"
    frame.reindex(columns=["row", *costs.COLUMNS]).to_csv(file, index=False)


def write_all_costs(project: Path) -> None:
    of_baselines = (("focal", 0.1, 6.0, 1.0, "A"), ("ce", 0.1, 5.0, 1.0, "A"), ("supcon", 0.25, 15.0, 3.0, "A"))
    write_costs(project, "digits-baselines", *of_baselines, ("kcl", 0.2, 15.0, 3.0, "A"))


# What stands beside what


def test_every_row_has_a_family_a_paper_and_a_name_in_the_colour_of_its_family() -> None:
    preset = presets.load(baselines.PRESET, PROJECT)
    rows = list(dict.fromkeys([*preset.methods, *PAPERS]))
    assert set(rows) == set(ORIGINS) == set(FAMILIES)
    assert next(iter(preset.methods)) == baselines.PARITY  # what costs are relative to
    assert [row for row in rows if row not in STYLES | ROW_STYLES] == []
    assert [row for row, origin in ORIGINS.items() if not origin.paper] == [baselines.PARITY]
    assert len({method_style(row).label for row in rows}) == len(rows)
    assert {row: family for family, names in BASELINES.items() for row in names}.items() <= FAMILIES.items()
    assert set(FAMILIES.values()) - set(FAMILY_STYLES) == {baselines.OWN}
    for row in set(rows) - {*PAPERS, "focal"}:  # which has a colour among the losses for wrong labels
        assert method_style(row)[1:3] == FAMILY_STYLES[FAMILIES[row]][1:3]


def test_every_reason_is_of_a_row() -> None:
    assert set(REASONS) <= set(ORIGINS) - {baselines.PARITY}


def test_rows_of_other_presets_stand_behind_the_baselines(project: Path) -> None:
    found = baselines.with_papers(project, FURTHER)
    assert list(found.rows) == ["focal", "ce", "class-balanced-focal", "crt", "supcon", "kcl", "bcl", "bce3s"]
    assert set(found.published["row"]) == {"ce", "focal", "supcon", "bcl"}
    of_supcon = found.accuracy.query("method == 'supcon' and group == 'few'")
    assert tuple(of_supcon["accuracy"]) == FEW["digits-baselines"]["supcon"]  # the baselines', not BCL's
    assert tuple(found.published.query("row == 'supcon'")["published"]) == (70.4, 38.3)
    gains = np.subtract(FEW["digits-bcl"]["bcl"], FEW["digits-baselines"]["ce"])
    interval = baselines.gain(found, "bcl", "ce", "few")
    assert interval is not None
    assert interval[:3] == pytest.approx((gains.mean(), *stats.t.interval(0.95, 2, gains.mean(), stats.sem(gains))))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("epochs: 60", "epochs: 50"), r"digits-bcl.yaml: training.epochs is 50, and digits-baselines has 60"),
        (("imbalance: 100", "imbalance: 10"), r"data.imbalance is 10"),
        (("seeds: [0, 1, 2]", "seeds: [0, 1]"), r"seeds is \[0, 1\], and digits-baselines has \[0, 1, 2\]"),
        (("  bcl: ", "  bcl-2: "), r"has no row 'bcl'; expected one of supcon, bcl-2"),
    ],
)
def test_another_protocol_is_refused(project: Path, change: tuple[str, str], named: str) -> None:
    file = project / "presets" / "digits-bcl.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    (project / "presets" / "results" / "digits-bcl.csv").unlink()
    with pytest.raises(ValueError, match=named):
        baselines.with_papers(project, FURTHER)


def test_the_projects_own_presets_stand_beside_each_other() -> None:
    found = baselines.with_papers(PROJECT)
    table = baselines.table(found, costs.cost(baselines.PRESET, PROJECT))
    assert set(table.index) == set(ORIGINS)
    assert len(table) == len(ORIGINS)
    assert table.index[0] == baselines.PARITY
    of_row = found.published[found.published["quantity"] == "accuracy"]
    of_row = of_row[~of_row["row"].isin(list(PAPERS))]
    assert not of_row.assign(benchmark=of_row["dataset"].str.split(",").str[0]).duplicated(["row", "benchmark"]).any()
    assert table.loc["proco", ["CIFAR-10-LT", "CIFAR-100-LT"]].tolist() == ["85.9", "52.8"]


def test_every_row_of_ours_that_does_not_help_the_tail_has_its_reason() -> None:
    assert set(baselines.below_baseline(baselines.with_papers(PROJECT))) == set(REASONS)


def test_a_row_that_two_presets_have_is_compared(project: Path) -> None:
    shared = baselines.shared_rows(project, FURTHER.values())
    ((row, preset, seeds, mean, largest),) = shared.itertuples(index=False)
    assert (row, preset, seeds) == ("supcon", "digits-bcl", 3)
    assert (mean, largest) == pytest.approx((-0.04 / 3, 0.04))
    file = project / "presets" / "digits-bcl.yaml"
    other = file.read_text(encoding="utf-8").replace(
        "supcon: {system: supcon}", "supcon: {system: supcon, temperature: 1.0}"
    )
    file.write_text(other, encoding="utf-8")
    assert baselines.shared_rows(project, FURTHER.values()).empty  # called alike, and another method


# The numbers


def test_before_anything_ran_the_table_has_its_rows_and_says_so(project: Path) -> None:
    for file in (project / "presets" / "results").iterdir():
        file.unlink()
    found, cost = baselines.with_papers(project, FURTHER), costs.cost(baselines.PRESET, project)
    table = baselines.table(found, cost)
    assert set(table["seeds"]) == {"0 of 3"}
    numbers = [column for column in table if column.endswith(("[%]", "[points]", "[MiB]", "[CE = 1]"))]
    assert len(numbers) == 9
    assert set(table[numbers].to_numpy().ravel()) == {""}
    assert cost.empty
    assert baselines.below_baseline(found) == {}
    assert baselines.by_family(found).empty
    assert baselines.accuracy_and_cost(found, cost).empty
    assert baselines.contrast_costs(found, cost).empty
    assert baselines.shared_rows(project, FURTHER.values()).empty
    assert baselines.one_network(project, ["ce", "crt"], ["test_norm_mean"]) == {}
    assert set(baselines.gain_table(found, {"a": ("focal", "ce")}).iloc[0, 1:]) == {""}
    assert "ce (0)" in ablations.missing(found)


def test_a_line_of_the_table(project: Path) -> None:
    write_all_costs(project)
    table = baselines.table(baselines.with_papers(project, FURTHER), costs.cost(baselines.PRESET, project))
    assert list(table.index[:2]) == ["ce", "focal"]
    assert table.loc["ce", "name"] == "Cross-entropy (parity)"
    parity = {"few [%]": "52.0 ± 2.0", "all [%]": "72.0 ± 2.0", "many [%]": "", "few − CE [points]": ""}
    assert table.loc["ce", list(parity)].to_dict() == parity
    assert table.loc["ce", ["CIFAR-10-LT", "CIFAR-100-LT", "source"]].tolist() == ["71.4", "39.9", "README of LA"]
    line = table.loc["class-balanced-focal"]
    assert line["paper"] == "Cui et al., CVPR 2019"
    assert line["settings"] == "class-balanced, classification=focal, focal_gamma=1.0"
    low, high = stats.t.interval(0.95, 2, 31 / 3, stats.sem([10, 11, 10]))
    assert line["few − CE [points]"] == line["all − CE [points]"] == f"+10.3 [{low:+.1f}, {high:+.1f}]"
    assert table.loc["crt", ["seeds", "few [%]", "few − CE [points]"]].tolist() == ["1 of 3", "49.0", "-1.0"]
    assert table.loc["supcon", "source"] == "another; second-hand"
    assert table.loc["bcl", ["seeds", "CIFAR-10-LT", "CIFAR-100-LT"]].tolist() == ["3 of 3", "", "51.9"]
    assert table.loc["focal", "CIFAR-100-LT"] == ""  # of few classes alone
    assert table.loc["ce", ["time [CE = 1]", "memory [MiB]", "state [MiB]"]].tolist() == ["1.00", "8.0", "0.57"]
    assert table.loc[["supcon", "bcl", "crt"], "time [CE = 1]"].tolist() == ["3.00", "", ""]


def test_what_does_not_beat_cross_entropy_on_the_tail(project: Path) -> None:
    below = baselines.below_baseline(baselines.with_papers(project, FURTHER))
    assert list(below) == ["focal"]  # cRT has one seed of three, and is not judged
    assert below["focal"].mean == pytest.approx(0.02 / 3)
    assert below["focal"].low < 0 < below["focal"].high
    worse = FEW["digits-baselines"] | {"focal": (0.40, 0.42, 0.44), "supcon": (0.51, 0.53, 0.55)}
    write_results(project, "digits-baselines", worse)
    assert list(baselines.below_baseline(baselines.with_papers(project, FURTHER))) == ["focal"]


def test_differences_in_a_table_by_group(project: Path) -> None:
    table = baselines.gain_table(
        baselines.with_papers(project, FURTHER), {"which?": ("focal", "supcon"), "b": ("kcl", "ce")}
    )
    assert table.loc["which?", "difference"] == "Focal − SupCon + LA"
    assert table.loc["which?", "few [points]"].startswith("-18.3 [")
    assert table.loc["which?", "many [points]"] == table.loc["b", "all [points]"] == ""


def test_means_and_intervals_by_family(project: Path) -> None:
    frame = baselines.by_family(baselines.with_papers(project, FURTHER)).set_index(["method", "group"])
    assert frame.loc[("bcl", "few"), "family"] == "the four papers"
    low, high = stats.t.interval(0.95, 2, 0.52, stats.sem(FEW["digits-baselines"]["ce"]))
    assert frame.loc[("ce", "few"), ["mean", "low", "high", "n"]].tolist() == pytest.approx([0.52, low, high, 3])
    assert math.isnan(frame.loc[("crt", "all"), "low"])


def test_the_front_has_what_nothing_beats(project: Path) -> None:
    write_all_costs(project)
    points = baselines.accuracy_and_cost(baselines.with_papers(project, FURTHER), costs.cost(baselines.PRESET, project))
    assert points["method"].tolist() == ["focal", "ce", "supcon"]  # KCL has not run, cRT no cost
    # Focal is as fast as cross-entropy and better.
    assert points["method"][points["on_front"]].tolist() == ["focal", "supcon"]
    assert points["accuracy"].tolist() == pytest.approx([0.52667 + 0.2, 0.72, 0.91], abs=1e-4)
    assert points["family"].tolist() == ["loss and sampling", "parity", "contrast"]


def test_what_a_contrast_costs(project: Path) -> None:
    write_all_costs(project)
    found = baselines.contrast_costs(baselines.with_papers(project, FURTHER), costs.cost(baselines.PRESET, project))
    assert list(found.index) == ["Cross-entropy", "SupCon + LA", "KCL"]
    assert found.loc["KCL", ["views", "momentum encoder", "queue [keys]", "second stage [epochs]"]].tolist() == [
        2, "yes", 256, 10,
    ]  # fmt: skip
    assert found.loc["SupCon + LA", ["momentum encoder", "queue [keys]", "second stage [epochs]"]].tolist() == [""] * 3
    # An epoch of cross-entropy is a 50th of its run here, one of KCL a 75th of a run three times as long.
    assert found["epoch [CE = 1]"].tolist() == pytest.approx([1, 2.5, 2], abs=0.01)


def test_one_network_has_one_set_of_features(project: Path) -> None:
    rows = [
        (DATASET, row, seed, 80.0 + seed + (row == "focal") * seed / 100, float(row == "crt"))
        for row in ("ce", "crt", "focal")
        for seed in ((0, 1) if row != "crt" else (1,))
    ]
    frame = pd.DataFrame(rows, columns=[*preset_results.KEYS, "test_norm_mean", "classifier_norm_mean"])
    frame.to_csv(project / "presets" / "results" / "digits-baselines-measures.csv", index=False)
    same = baselines.one_network(project, ["ce", "crt", "focal", "kcl"], ["test_norm_mean"])
    assert same == {"crt": True, "focal": False}
    assert baselines.one_network(project, ["ce", "crt"], ["classifier_norm_mean"]) == {"crt": False}
