"""What is kept of the presets' runs: numbers and the settings that they are from."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from short_preset import NOISY_PRESET, PRESET, write_project

from ltnb import balance, files, noisy_labels, preset_results, presets
from ltnb.params import Params
from ltnb.preset_results import accuracy, code_versions, history, measured, record
from ltnb.runs import Run
from ltnb.workspace import Workspace

NAME = "digits-pal"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, NAME, PRESET)
    return presets.runs(Workspace(folder, folder), NAME, presets.load(NAME, folder), ["ce", "pal"], [0, 1])


@pytest.fixture
def preset(tmp_path: Path) -> Params:
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / f"{NAME}.yaml").write_text(PRESET, encoding="utf-8")
    return presets.load(NAME, tmp_path)


def with_learning_rate(preset: Params, value: float) -> Params:
    return preset.model_copy(update={"training": preset.training.model_copy(update={"learning_rate": value})})


def test_before_any_run_the_tables_are_empty(preset: Params, tmp_path: Path) -> None:
    assert list(accuracy(NAME, preset, tmp_path)) == preset_results.ACCURACY
    assert list(measured(NAME, preset, tmp_path)) == [*preset_results.KEYS, "measure", "value"]
    assert len(accuracy(NAME, preset, tmp_path)) == len(measured(NAME, preset, tmp_path)) == 0
    assert code_versions(NAME, tmp_path) == 0


def test_records_replace_what_stands_there(found: list[Run], preset: Params, tmp_path: Path) -> None:
    record(found, NAME, preset, tmp_path)
    record(found[:1], NAME, preset, tmp_path)
    kept = accuracy(NAME, preset, tmp_path)
    assert list(kept["method"].unique()) == ["ce", "pal"]
    assert not kept.duplicated(["dataset", "method", "seed", "group"]).any()
    chosen = kept.query("method == 'pal' and seed == 1 and group == 'all'")
    assert chosen["accuracy"].item() == pytest.approx(found[3].metrics["accuracy"], abs=1e-6)
    order = ["method", "seed", "measure"]
    expected = (
        balance.measures(found)
        .assign(dataset="digits-if100")[["dataset", "method", "seed", "measure", "value"]]
        .sort_values(order)
    )
    read = measured(NAME, preset, tmp_path).sort_values(order)
    pd.testing.assert_frame_equal(read.reset_index(drop=True), expected.reset_index(drop=True), rtol=1e-5)
    assert code_versions(NAME, tmp_path) == 1


def test_numbers_of_other_settings_are_refused(found: list[Run], preset: Params, tmp_path: Path) -> None:
    record(found, NAME, preset, tmp_path)
    other = with_learning_rate(preset, 0.05)
    for read in (accuracy, measured):
        said = (
            r"digits-if100 ce ran with learning_rate = 0.1, and the preset has 0.05; .*presets digits-pal --rows ce\)"
        )
        with pytest.raises(ValueError, match=said):
            read(NAME, other, tmp_path)
    changed = preset.model_copy(
        update={"methods": preset.methods | {"pal": preset.methods["pal"].model_copy(update={"classifier_scale": 2.0})}}
    )
    with pytest.raises(ValueError, match=r"pal ran with classifier_scale = 1.0, and the preset has 2.0"):
        accuracy(NAME, changed, tmp_path)


def test_wrong_labels_differ_from_right_ones(found: list[Run], preset: Params, tmp_path: Path) -> None:
    """Without noise the settings do not name it, as those did not that were written before there was any."""
    record(found[:1], NAME, preset, tmp_path)
    clean = preset.datasets["digits-if100"]
    noisy = clean.model_copy(update={"noise": "symmetric", "noise_rate": 0.4})
    with pytest.raises(ValueError, match=r"ce ran with noise = 'none', and the preset has 'symmetric'"):
        accuracy(NAME, preset.model_copy(update={"datasets": {"digits-if100": noisy}}), tmp_path)
    file = tmp_path / "presets" / "results" / f"{NAME}.json"
    origins = json.loads(file.read_text())
    origins["digits-if100"]["ce"]["settings"]["dataset"] = noisy.model_dump(mode="json")
    file.write_text(json.dumps(origins))
    with pytest.raises(ValueError, match=r"ce ran with noise = 'symmetric', and the preset has 'none'"):
        accuracy(NAME, preset, tmp_path)


@pytest.mark.parametrize(("name", "usual", "other"), [("tail", "exponential", "step"), ("subset", "shuffled", "first")])
def test_another_tail_differs_from_the_usual_one(
    found: list[Run], preset: Params, tmp_path: Path, name: str, usual: str, other: str
) -> None:
    """Likewise of how the tail is cut: the settings of the digits only name what is not the usual way."""
    record(found[:1], NAME, preset, tmp_path)
    cut = preset.datasets["digits-if100"].model_copy(update={name: other})
    changed = preset.model_copy(update={"datasets": {"digits-if100": cut}})
    with pytest.raises(ValueError, match=rf"ce ran with {name} = '{usual}', and the preset has '{other}'"):
        accuracy(NAME, changed, tmp_path)
    file = tmp_path / "presets" / "results" / f"{NAME}.json"
    origins = json.loads(file.read_text())
    origins["digits-if100"]["ce"]["settings"]["dataset"] = cut.model_dump(mode="json")
    file.write_text(json.dumps(origins))
    with pytest.raises(ValueError, match=rf"ce ran with {name} = '{other}', and the preset has '{usual}'"):
        accuracy(NAME, preset, tmp_path)


def test_a_run_of_other_settings_takes_the_place_of_a_whole_row(
    found: list[Run], preset: Params, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(found, NAME, preset, tmp_path)
    other = with_learning_rate(preset, 0.05)
    newer = Run(
        found[0].folder,
        found[0].params | {"training": found[0].params["training"] | {"learning_rate": 0.05}},
        found[0].metrics,
        found[0].history,
        found[0].embeddings,
    )
    record([newer], NAME, other, tmp_path)
    assert "digits-if100 ce: the numbers of other settings are dropped" in capsys.readouterr().err
    kept = pd.read_csv(tmp_path / "presets" / "results" / f"{NAME}.csv")
    assert set(kept.loc[kept["method"] == "ce", "seed"]) == {0}
    assert set(kept.loc[kept["method"] == "pal", "seed"]) == {0, 1}


def test_a_run_that_is_not_the_presets_is_not_recorded(found: list[Run], preset: Params, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"seed-0 has other settings than the preset 'digits-pal' gives ce"):
        record(found, NAME, with_learning_rate(preset, 0.05), tmp_path)
    assert not (tmp_path / "presets" / "results").exists()


def test_versions_of_the_code_are_told_apart(found: list[Run], preset: Params, tmp_path: Path) -> None:
    record(found, NAME, preset, tmp_path)
    newer = found[0]
    fingerprints = newer.params["fingerprints"] | {"code": "another"}
    newer = Run(
        newer.folder, newer.params | {"fingerprints": fingerprints}, newer.metrics, newer.history, newer.embeddings
    )
    record([newer], NAME, preset, tmp_path)
    assert code_versions(NAME, tmp_path) == 2
    origins = json.loads((tmp_path / "presets" / "results" / f"{NAME}.json").read_text())
    code = origins["digits-if100"]["ce"]["code"]
    assert code == {"another": [0], found[0].params["fingerprints"]["code"]: [1]}


def test_numbers_without_settings_are_refused(found: list[Run], preset: Params, tmp_path: Path) -> None:
    record(found, NAME, preset, tmp_path)
    (tmp_path / "presets" / "results" / f"{NAME}.json").unlink()
    with pytest.raises(ValueError, match=r"digits-pal.json: lacks the settings of digits-if100 ce seed 0"):
        accuracy(NAME, preset, tmp_path)


def test_several_may_record_at_once(found: list[Run], preset: Params, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda run: record([run], NAME, preset, tmp_path), found))
    kept = accuracy(NAME, preset, tmp_path)
    assert set(zip(kept["method"], kept["seed"], strict=True)) == {("ce", 0), ("ce", 1), ("pal", 0), ("pal", 1)}


def test_a_setting_that_came_later_is_none_that_differs(found: list[Run], preset: Params, tmp_path: Path) -> None:
    record(found, NAME, preset, tmp_path)
    file = tmp_path / "presets" / "results" / f"{NAME}.json"
    origins = json.loads(file.read_text())
    del origins["digits-if100"]["ce"]["settings"]["method"]["last_relu"]
    file.write_text(json.dumps(origins))
    assert len(accuracy(NAME, preset, tmp_path)) > 0
    record(found[:1], NAME, preset, tmp_path)
    kept = accuracy(NAME, preset, tmp_path)
    assert set(kept.loc[kept["method"] == "ce", "seed"]) == {0, 1}


NOISY_NAME = "noise-two"
DATASETS = ["clean", "symmetric-40"]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Both rows with one seed on a clean and on a noisy data set, trained."""
    folder = tmp_path_factory.mktemp("noisy")
    write_project(folder, NOISY_NAME, NOISY_PRESET)
    preset = presets.load(NOISY_NAME, folder)
    return presets.runs(Workspace(folder, folder), NOISY_NAME, preset, ["ce", "pal"], [0])


@pytest.fixture
def noisy_preset(noisy: list[Run], monkeypatch: pytest.MonkeyPatch) -> Params:
    """Its settings; its measures are made up, so that they depend on the run alone."""

    def measures(runs: Iterable[Run]) -> pd.DataFrame:
        rows = [(run.method, run.seed, "right", run.metrics["accuracy"]) for run in runs]
        return pd.DataFrame(rows, columns=["method", "seed", "measure", "value"])

    monkeypatch.setattr(noisy_labels, "measures", measures)
    monkeypatch.setattr(balance, "measures", lambda _: pytest.fail("measured as if no label were wrong"))
    return presets.load(NOISY_NAME, noisy[0].folder.parents[5])


def cells(frame: pd.DataFrame) -> list[tuple[str, str, int]]:
    return [*frame[preset_results.KEYS].drop_duplicates().itertuples(index=False, name=None)]


def test_several_data_sets_are_told_apart(noisy: list[Run], noisy_preset: Params, tmp_path: Path) -> None:
    record([noisy[0], noisy[2], noisy[1], noisy[3]], NOISY_NAME, noisy_preset, tmp_path)
    expected = [(run.dataset, run.method, run.seed) for run in noisy]
    assert expected == [(dataset, row, 0) for dataset in DATASETS for row in ("ce", "pal")]
    reached = accuracy(NOISY_NAME, noisy_preset, tmp_path).query("group == 'all'")
    values = measured(NOISY_NAME, noisy_preset, tmp_path)
    assert cells(reached) == cells(values) == cells(history(NOISY_NAME, noisy_preset, tmp_path)) == expected
    of_runs = pytest.approx([run.metrics["accuracy"] for run in noisy])
    assert list(reached["accuracy"]) == of_runs
    assert list(values["value"]) == of_runs
    assert set(values["measure"]) == {"right"}


def test_a_history_has_the_epochs_that_were_watched(noisy: list[Run], noisy_preset: Params, tmp_path: Path) -> None:
    assert list(history(NOISY_NAME, noisy_preset, tmp_path)) == preset_results.HISTORY
    assert history(NOISY_NAME, noisy_preset, tmp_path).empty
    record(noisy, NOISY_NAME, noisy_preset, tmp_path)
    record(noisy[3:], NOISY_NAME, noisy_preset, tmp_path)
    read = history(NOISY_NAME, noisy_preset, tmp_path)
    assert list(read["epoch"]) == [2, 3] * 4
    of_labels = ["train_accuracy_clean", "memorised", "recovered"]
    assert read.loc[read["dataset"] == "clean", of_labels].isna().all(axis=None)
    for run in noisy:
        rows = read[(read["dataset"] == run.dataset) & (read["method"] == run.method)]
        columns = [*(of_labels if run.dataset != "clean" else []), "test_accuracy", "classifier_smallest_angle"]
        watched = run.history.loc[run.history["epoch"].isin([2, 3]), columns]
        np.testing.assert_allclose(rows[columns], watched, rtol=1e-3)
    file = tmp_path / "presets" / "results" / f"{NOISY_NAME}-history.csv"
    digits = [
        value.lstrip("0.").replace(".", "") for line in file.read_text().split()[1:] for value in line.split(",")[4:]
    ]
    assert max(map(len, digits)) == 4


def test_a_history_of_other_settings_is_refused_and_replaced(
    noisy: list[Run], noisy_preset: Params, tmp_path: Path
) -> None:
    record(noisy, NOISY_NAME, noisy_preset, tmp_path)
    noisier = noisy_preset.datasets["symmetric-40"].model_copy(update={"noise_rate": 0.5})
    other = noisy_preset.model_copy(update={"datasets": noisy_preset.datasets | {"symmetric-40": noisier}})
    for read in (accuracy, measured, history):
        with pytest.raises(ValueError, match=r"symmetric-40 ce ran with noise_rate = 0.4, and the preset has 0.5"):
            read(NOISY_NAME, other, tmp_path)
    newer = replace(noisy[2], params=noisy[2].params | {"dataset": noisier.model_dump(mode="json")})
    record([newer, replace(newer, params=newer.params | {"seed": 1})], NOISY_NAME, other, tmp_path)
    file = tmp_path / "presets" / "results" / f"{NOISY_NAME}-history.csv"
    kept = pd.read_csv(file).query("dataset == 'symmetric-40' and method == 'ce'")
    assert list(kept["seed"]) == [0, 0, 1, 1]


def test_a_table_is_written_once_for_all_runs(
    noisy: list[Run], noisy_preset: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def replacing(file: Path) -> AbstractContextManager[Path]:
        written.append(file.name)
        return files.replacing(file)

    monkeypatch.setattr(preset_results, "replacing", replacing)
    record(noisy, NOISY_NAME, noisy_preset, tmp_path)
    endings = (".csv", "-measures.csv", "-history.csv", ".json")
    assert written == [f"{NOISY_NAME}{ending}" for ending in endings]


def test_right_labels_have_no_history(found: list[Run], preset: Params, tmp_path: Path) -> None:
    record(found[:1], NAME, preset, tmp_path)
    assert not (tmp_path / "presets" / "results" / f"{NAME}-history.csv").exists()
    assert history(NAME, preset, tmp_path).empty
