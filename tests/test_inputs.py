"""What a notebook starts from: the pipeline's files, or, by hand, its own in scratch/."""

import re
from pathlib import Path

import pytest
from image_sources import write_folder
from mnist_files import write_mnist

from ltnb import inputs
from ltnb.params import Params, ParamsError, load
from ltnb.training import train
from ltnb.workspace import Workspace

EXPERIMENT = """\
datasets:
  tiny: {source: digits, imbalance: 5, largest: 10, test_per_class: 5, image_size: 8}
methods:
  ce: {system: ce}
seeds: [0]
training: {epochs: 12, warmup_epochs: 1, threads: 1}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text(EXPERIMENT, encoding="utf-8")
    notebooks = tmp_path / "notebooks" / "experiments"
    notebooks.mkdir(parents=True)
    monkeypatch.chdir(notebooks)
    return tmp_path.resolve()


@pytest.fixture
def params(project: Path) -> Params:
    return load(project / "params.yaml")


def test_a_workspace_lies_in_the_project_wherever_the_notebook_is(project: Path) -> None:
    by_hand, pipeline = Workspace.open("scratch"), Workspace.open(".")
    assert by_hand.run("d", "m", 3) == project / "scratch/runs/d/m/seed-3"
    assert pipeline.run("d", "m", 3) == project / "runs/d/m/seed-3"
    assert pipeline.is_pipeline
    assert not by_hand.is_pipeline
    # DVC empties a run's folder before it trains: the checkpoint must not lie there.
    assert not pipeline.checkpoint("d", "m", 3).is_relative_to(pipeline.run("d", "m", 3))


def test_a_root_is_relative_to_the_project_wherever_the_notebook_is(project: Path) -> None:
    write_mnist(project / "images", 9, 5)
    text = EXPERIMENT.replace("source: digits", "source: mnist, root: images").replace("largest: 10", "largest: 9")
    (project / "params.yaml").write_text(text, encoding="utf-8")
    params = load(project / "params.yaml")
    by_hand = inputs.prepared_dataset(Workspace.open("scratch"), "tiny", params)
    inputs.main("tiny")
    assert inputs.prepared_dataset(Workspace.open("."), "tiny", params).fingerprint == by_hand.fingerprint


def test_a_folder_of_images_is_prepared_and_trained_on(project: Path) -> None:
    write_folder(project / "pets", {"train": {"ant": 4, "cat": 6}, "test": {"ant": 2, "cat": 2}})
    settings = "tiny: {source: folder, root: pets, imbalance: as-is, image_size: 8}"
    text = re.sub("tiny: .*", settings, EXPERIMENT).replace("epochs: 12", "epochs: 2")
    (project / "params.yaml").write_text(text, encoding="utf-8")
    params = load(project / "params.yaml")
    inputs.main("tiny")
    pipeline = Workspace.open(".")
    dataset = inputs.prepared_dataset(pipeline, "tiny", params)
    run = train(params.run("tiny", "ce", 0), dataset, pipeline.run("tiny", "ce", 0))
    assert run.params["class_counts"] == [4, 6]
    (project / "pets" / "train" / "cat" / "003.png").write_bytes(b"")
    with pytest.raises(ParamsError, match=r"params\.yaml: datasets\.tiny: .*pets/train/cat/003\.png cannot be decoded"):
        inputs.main("tiny")


def test_the_pipeline_makes_up_for_nothing(project: Path, params: Params) -> None:
    pipeline = Workspace.open(".")
    with pytest.raises(FileNotFoundError, match=r"data/tiny"):
        inputs.prepared_dataset(pipeline, "tiny", params)
    with pytest.raises(FileNotFoundError, match=r"metrics\.json is missing"):
        inputs.finished_runs(pipeline, "tiny", ["ce"], [0], params)
    assert not (project / "scratch").exists()


def test_by_hand_a_missing_run_is_a_short_one_and_said_to_be(
    project: Path, params: Params, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = inputs.finished_runs(Workspace.open("scratch"), "tiny", ["ce"], [7], params)
    said = f"no run of ce with seed 7: training {inputs.SHORT_EPOCHS} epochs instead"
    assert said in capsys.readouterr().err
    assert (run.method, run.seed, len(run.history)) == ("ce", 7, inputs.SHORT_EPOCHS)
    assert not (project / "runs").exists()


def test_by_hand_the_pipelines_runs_are_read_where_there_are_some(project: Path, params: Params) -> None:
    inputs.main("tiny")
    pipeline = Workspace.open(".")
    dataset = inputs.prepared_dataset(pipeline, "tiny", params)
    train(params.run("tiny", "ce", 0), dataset, pipeline.run("tiny", "ce", 0))
    (run,) = inputs.finished_runs(Workspace.open("scratch"), "tiny", ["ce"], [0], params)
    assert run.folder == project / "runs/tiny/ce/seed-0"
    assert len(run.history) == 12


def test_what_cannot_be_prepared_names_the_file_and_the_row(project: Path) -> None:
    noise = "largest: 10, noise: asymmetric, noise_order: before-tail, noise_rate: 0.99, noise_mapping: {0: 1}"
    (project / "params.yaml").write_text(EXPERIMENT.replace("largest: 10", noise), encoding="utf-8")
    with pytest.raises(ParamsError, match=r"params\.yaml: datasets\.tiny: largest = 10: noise before the tail leaves"):
        inputs.main("tiny")


@pytest.mark.usefixtures("project")
def test_an_unknown_dataset_is_named() -> None:
    with pytest.raises(ParamsError, match=r"datasets\.tinny is not in params\.yaml; expected one of tiny"):
        inputs.main("tinny")
