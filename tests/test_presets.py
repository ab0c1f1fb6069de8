"""Presets, run: what is trained, what is taken as it is, and what is written down."""

import shutil
from pathlib import Path

import pytest
from short_preset import PRESET

from ltnb import preset_results, presets
from ltnb.params import ParamsError
from ltnb.runs import Run, read
from ltnb.workspace import Workspace


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in whose scratch/ both rows have run, by hand."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "presets").mkdir()
    for name in ("params.yaml", "presets/digits-pal.yaml"):
        (folder / name).write_text(PRESET, encoding="utf-8")
    presets.runs(Workspace(folder, folder / "scratch"), "pal", presets.load("pal", folder), ["ce", "pal"], [0])
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Workspace:
    """A copy of it."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return Workspace(tmp_path, tmp_path / "scratch")


def time_of(run: Run) -> int:
    return (run.folder / "metrics.json").stat().st_mtime_ns


def test_a_run_that_is_there_is_not_run_again(place: Workspace) -> None:
    preset = presets.load("pal", place.project)
    folder = place.folder / "build" / "presets" / "pal" / "digits-if100"
    before = time_of(read(folder / "ce" / "seed-0"))
    first, second = presets.runs(place, "pal", preset, ["ce", "pal"], [0])
    assert [(run.method, run.seed) for run in (first, second)] == [("ce", 0), ("pal", 0)]
    assert time_of(first) == before

    other = preset.model_copy(update={"training": preset.training.model_copy(update={"learning_rate": 0.01})})
    (changed,) = presets.runs(place, "pal", other, ["ce"], [0])
    assert time_of(changed) != before
    assert changed.params["training"]["learning_rate"] == 0.01


def test_by_hand_the_pipelines_run_is_taken(place: Workspace) -> None:
    (place.folder / "build").rename(place.project / "build")
    (taken,) = presets.runs(place, "pal", presets.load("pal", place.project), ["ce"], [0])
    assert taken.folder.is_relative_to(place.project / "build")


def test_a_row_that_is_not_there(place: Workspace) -> None:
    with pytest.raises(ParamsError, match=r"methods\.pall is not in .*did you mean pal\?"):
        presets.runs(place, "pal", presets.load("pal", place.project), ["pall"], [0])


def test_every_data_set_of_a_preset_is_run(place: Workspace) -> None:
    preset = presets.load("pal", place.project)
    balanced = preset.datasets["digits-if100"].model_copy(update={"imbalance": 1.0, "largest": 5})
    two = preset.model_copy(update={"datasets": preset.datasets | {"digits-if1": balanced}})
    first, second = presets.runs(place, "pal", two, ["ce"], [0])
    assert (first.dataset, second.dataset) == ("digits-if100", "digits-if1")
    assert second.params["class_counts"] == [5] * 10


def test_the_command_runs_and_records(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.project)
    presets.main(["pal", "--rows", "pal", "--seeds", "1"])
    preset = presets.load("pal", place.project)
    accuracy = preset_results.accuracy("pal", preset, place.project)
    run = read(place.project / "build" / "presets" / "pal" / "digits-if100" / "pal" / "seed-1")
    assert accuracy.query("group == 'all'")["accuracy"].item() == pytest.approx(run.metrics["accuracy"], abs=1e-6)
    assert len(presets.measured("pal", place.project)) > 0
