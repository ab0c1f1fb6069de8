"""Presets, run: what is trained, what is taken as it is, and what is written down."""

import shutil
from pathlib import Path

import pytest
from short_preset import NOISY_PRESET, PRESET, write_project

from ltnb import preset_results, presets
from ltnb.params import ParamsError
from ltnb.runs import Run, read
from ltnb.workspace import Workspace


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in whose scratch/ both rows have run, by hand."""
    folder = tmp_path_factory.mktemp("project")
    write_project(folder, "digits-pal", PRESET)
    presets.runs(
        Workspace(folder, folder / "scratch"), "digits-pal", presets.load("digits-pal", folder), ["ce", "pal"], [0]
    )
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Workspace:
    """A copy of it."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return Workspace(tmp_path, tmp_path / "scratch")


def time_of(run: Run) -> int:
    return (run.folder / "metrics.json").stat().st_mtime_ns


def test_a_run_that_is_there_is_not_run_again(place: Workspace) -> None:
    preset = presets.load("digits-pal", place.project)
    folder = place.folder / "build" / "presets" / "digits-pal" / "digits-if100"
    before = time_of(read(folder / "ce" / "seed-0"))
    first, second = presets.runs(place, "digits-pal", preset, ["ce", "pal"], [0])
    assert [(run.method, run.seed) for run in (first, second)] == [("ce", 0), ("pal", 0)]
    assert time_of(first) == before

    other = preset.model_copy(update={"training": preset.training.model_copy(update={"learning_rate": 0.01})})
    (changed,) = presets.runs(place, "digits-pal", other, ["ce"], [0])
    assert time_of(changed) != before
    assert changed.params["training"]["learning_rate"] == 0.01


def test_a_killed_run_goes_on(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = presets.load("digits-pal", place.project)
    often = preset.training.model_copy(update={"learning_rate": 0.01, "checkpoint_every": 1})
    other = preset.model_copy(update={"training": often})
    with monkeypatch.context() as patch:
        patch.setattr("ltnb.runs.write", lambda *_args, **_kwargs: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            presets.runs(place, "digits-pal", other, ["ce"], [0])
    capsys.readouterr()
    presets.runs(place, "digits-pal", other, ["ce"], [0])
    assert "going on after epoch" in capsys.readouterr().err
    assert not list((place.folder / "build").rglob("*.pt"))


def test_by_hand_the_pipelines_run_is_taken(place: Workspace) -> None:
    (place.folder / "build").rename(place.project / "build")
    (taken,) = presets.runs(place, "digits-pal", presets.load("digits-pal", place.project), ["ce"], [0])
    assert taken.folder.is_relative_to(place.project / "build")


def test_a_row_that_is_not_there(place: Workspace) -> None:
    with pytest.raises(ParamsError, match=r"methods\.pall is not in .*did you mean pal\?"):
        presets.runs(place, "digits-pal", presets.load("digits-pal", place.project), ["pall"], [0])


def test_a_preset_that_is_not_there(place: Workspace) -> None:
    (place.project / "presets" / "mnist.yaml").write_text(PRESET, encoding="utf-8")
    for name in ("pal", "../params", "digits-pal.yaml"):
        with pytest.raises(ParamsError, match=rf"'{name}' is not a preset of .*; expected one of digits-pal, mnist$"):
            presets.load(name, place.project)


@pytest.fixture
def noisy(tmp_path: Path) -> Workspace:
    """A project with a preset of two data sets, of which nothing has run."""
    (tmp_path / "presets").mkdir()
    for name in ("params.yaml", "presets/noise-two.yaml"):
        (tmp_path / name).write_text(NOISY_PRESET, encoding="utf-8")
    return Workspace(tmp_path, tmp_path)


def test_every_data_set_of_a_preset_is_run(noisy: Workspace) -> None:
    preset = presets.load("noise-two", noisy.project)
    found = presets.runs(noisy, "noise-two", preset, ["ce", "pal"], [0])
    folder = noisy.folder / "build" / "presets" / "noise-two"
    keys = [("clean", "ce"), ("clean", "pal"), ("symmetric-40", "ce"), ("symmetric-40", "pal")]
    assert [run.folder for run in found] == [folder / dataset / method / "seed-0" for dataset, method in keys]
    assert [(run.dataset, run.method) for run in found] == keys
    assert ["noise" in run.params for run in found] == [False, False, True, True]
    times = [time_of(run) for run in found[2:]]
    again = presets.runs(noisy, "noise-two", preset, ["ce", "pal"], [0], ["symmetric-40"])
    assert [run.dataset for run in again] == ["symmetric-40"] * 2
    assert [time_of(run) for run in again] == times
    with pytest.raises(ParamsError, match=r"datasets\.symmetric is not in .*did you mean symmetric-40\?"):
        presets.runs(noisy, "noise-two", preset, ["ce"], [0], ["symmetric"])


def test_the_command_runs_and_records(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.project)
    presets.main(["digits-pal", "--rows", "pal", "--seeds", "1"])
    preset = presets.load("digits-pal", place.project)
    accuracy = preset_results.accuracy("digits-pal", preset, place.project)
    run = read(place.project / "build" / "presets" / "digits-pal" / "digits-if100" / "pal" / "seed-1")
    assert accuracy.query("group == 'all'")["accuracy"].item() == pytest.approx(run.metrics["accuracy"], abs=1e-6)
    assert len(presets.measured("digits-pal", place.project)) > 0


def test_the_command_runs_one_cell_of_several_data_sets(noisy: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(noisy.project)
    presets.main(["noise-two", "--datasets", "symmetric-40", "--rows", "pal", "ce", "--seeds", "1"])
    accuracy = preset_results.accuracy("noise-two", presets.load("noise-two", noisy.project), noisy.project)
    assert set(zip(accuracy["dataset"], accuracy["method"], accuracy["seed"], strict=True)) == {
        ("symmetric-40", "ce", 1), ("symmetric-40", "pal", 1)
    }  # fmt: skip
    assert not (noisy.folder / "build" / "presets" / "noise-two" / "clean").exists()
    assert presets.measured("noise-two", noisy.project).empty  # of the first data set


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["noise-three"], r"'noise-three' is not a preset of .*; expected one of noise-two"),
        (["noise-two", "--datasets", "clean", "clear"], "has no data set 'clear'; expected one of clean, symmetric-40"),
        (["noise-two", "--rows", "ce", "pall"], "has no row 'pall'; expected one of ce, pal"),
        (["noise-two", "--seeds", "0", "2"], "has no seed 2; expected one of 0, 1"),
    ],
)
def test_what_a_preset_lacks_is_said_before_anything_runs(
    noisy: Workspace, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(noisy.project)
    with pytest.raises(ParamsError, match=said):
        presets.main(arguments)
    assert not (noisy.project / "build").exists()


def test_data_that_cannot_be_prepared_is_named(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = "largest: 10, noise: asymmetric, noise_order: before-tail, noise_rate: 0.99, noise_mapping: {0: 1}"
    text = PRESET.replace("imbalance: 100}", f"imbalance: 1, {noise}}}")
    (place.project / "presets" / "digits-pal.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(place.project)
    with pytest.raises(ParamsError, match=r"data set digits-if100 of the preset: .*noise before the tail leaves"):
        presets.main(["digits-pal", "--rows", "ce", "--seeds", "0"])
