"""The whole pipeline on a tiny experiment in a copy of the project: run, run again, interrupted, and changed by hand.

The tests share one copy and stand in the order in which they change it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from ruamel.yaml import YAML

PROJECT = Path(__file__).parents[1]
EXPERIMENT = """\
datasets:
  tiny: {source: digits, imbalance: 10, largest: 40, test_per_class: 20, image_size: 8}
methods:
  ce: {system: ce}
  bcl: {system: bcl, temperature: 0.1}
seeds: [0, 1]
training: {epochs: 20, batch_size: 64, warmup_epochs: 1, checkpoint_every: 1, threads: 1}
"""


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}


def run(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=project, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def git(project: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "core.hooksPath=/dev/null"]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=project, check=True, capture_output=True, text=True
    ).stdout


def stale(project: Path) -> set[str]:
    """Names of the stages that `dvc repro` would run because of what was changed."""
    return set(json.loads(run(project, "dvc", "status", "--json")))


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project as it stands, uncommitted changes included, with a tiny experiment, run once."""
    project = tmp_path_factory.mktemp("pipeline") / "project"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file():
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, project / name)
    (project / "params.yaml").write_text(EXPERIMENT, encoding="utf-8")
    # The papers' rooms train rows of their presets: here short ones, and so without the numbers of the long ones.
    shutil.rmtree(project / "presets" / "results")
    for file in (project / "presets").glob("digits-*.yaml"):
        preset = YAML(typ="safe").load(file)
        preset["training"] |= {"epochs": 2, "warmup_epochs": 0}
        YAML(typ="safe").dump(preset, file)
    # Theory and free features depend on no parameter and take minutes; nbval runs their notebooks.
    pipeline = YAML(typ="safe").load(project / "dvc.yaml")
    for stage in ("theory", "free-features", "claims"):
        del pipeline["stages"][stage]
    YAML(typ="safe").dump(pipeline, project / "dvc.yaml")
    (project / "dvc.lock").unlink(missing_ok=True)
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message", "a tiny experiment")
    run(project, "ltnb.pipeline")
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message", "its results")
    return project


def test_it_leaves_runs_results_and_a_report(project: Path) -> None:
    for method in ("ce", "bcl"):
        for seed in (0, 1):
            folder = project / "runs/tiny" / method / f"seed-{seed}"
            assert {file.name for file in folder.iterdir()} == {
                "params.json", "metrics.json", "history.csv", "embeddings.npz", "model.safetensors", "notebook.ipynb",
            }  # fmt: skip
            assert 0 <= json.loads((folder / "metrics.json").read_text())["accuracy"] <= 1
        assert (project / "results/tiny" / method / "geometry.csv").stat().st_size > 0
    assert (project / "results/tiny/compare/accuracy.csv").stat().st_size > 0
    assert "tiny" in (project / "report/index.html").read_text(encoding="utf-8")
    assert not (project / "checkpoints").exists() or not list((project / "checkpoints").rglob("*.pt"))


def test_git_tracks_nothing_that_it_makes_but_the_lock(project: Path) -> None:
    assert git(project, "status", "--porcelain") == ""
    changed = git(project, "diff", "--name-only", "HEAD~1", "HEAD").split()
    assert changed == ["dvc.lock"]


def test_a_second_run_does_nothing(project: Path) -> None:
    assert "Data and pipelines are up to date" in run(project, "ltnb.pipeline")
    assert "Data and pipelines are up to date" in run(project, "dvc", "repro")
    assert stale(project) == set()


def test_forcing_a_run_again_gives_the_same_bytes(project: Path) -> None:
    folder = project / "runs/tiny/bcl/seed-0"
    before = content(folder)
    run(project, "dvc", "repro", "--single-item", "--force", "train@tiny-bcl-0")
    assert content(folder) == before
    assert stale(project) == set()


def test_a_killed_run_leaves_nothing_half_written_and_goes_on(project: Path) -> None:
    folder, checkpoint = project / "runs/tiny/bcl/seed-1", project / "checkpoints/tiny/bcl/seed-1.pt"
    before = content(folder)
    repro = [sys.executable, "-m", "dvc", "repro", "--single-item", "--force", "train@tiny-bcl-1"]
    process = subprocess.Popen(repro, cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process_of_stage = psutil.Process(process.pid)
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.002)
    everything = [process_of_stage, *process_of_stage.children(recursive=True)]  # the kernel has a session of its own
    for part in everything:
        part.kill()
    process.communicate()
    psutil.wait_procs(everything)
    assert checkpoint.exists()
    assert not folder.exists() or not (folder / "metrics.json").exists()

    done = subprocess.run(repro, cwd=project, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"going on after epoch \d+", done.stdout + done.stderr)
    assert content(folder) == before
    assert not checkpoint.exists()
    assert stale(project) == set()


def test_running_and_saving_a_notebook_by_hand_makes_no_result_stale(project: Path) -> None:
    notebook = project / "notebooks/experiments/train.ipynb"
    original = notebook.read_bytes()
    cells = json.loads(original)
    for number, cell in enumerate(cell for cell in cells["cells"] if cell["cell_type"] == "code"):
        cell["execution_count"] = number + 1
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["seen\n"]}]
        cell["metadata"]["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
    notebook.write_text(json.dumps(cells, indent=2), encoding="utf-8")
    assert stale(project) == {"notebooks"}
    run(project, "dvc", "repro", "notebooks")
    assert stale(project) == set()
    notebook.write_bytes(original)
    run(project, "dvc", "repro", "notebooks")
    assert git(project, "status", "--porcelain") == ""


def test_changing_one_method_makes_that_method_stale_and_no_other(project: Path) -> None:
    params = project / "params.yaml"
    params.write_text(EXPERIMENT.replace("temperature: 0.1", "temperature: 0.2"), encoding="utf-8")
    trains = {stage for stage in stale(project) if stage.startswith("train")}
    assert trains == {"train@tiny-bcl-0", "train@tiny-bcl-1"}
    assert "temperature" in run(project, "dvc", "params", "diff")
    params.write_text(EXPERIMENT, encoding="utf-8")


def test_a_new_method_or_seed_adds_only_its_own_runs(project: Path) -> None:
    params = project / "params.yaml"
    changed = EXPERIMENT.replace("[0, 1]", "[0, 1, 2]").replace("seeds", "  supcon: {system: supcon}\nseeds")
    params.write_text(changed, encoding="utf-8")
    trains = {stage for stage in stale(project) if stage.startswith("train")}
    assert trains == {"train@tiny-ce-2", "train@tiny-bcl-2", *(f"train@tiny-supcon-{seed}" for seed in range(3))}
    params.write_text(EXPERIMENT, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "may_be_stale"),
    [
        ("ltnb/plots/theme.py", ("geometry", "compare", "papers", "noise", "baselines")),
        ("ltnb/tables.py", ("geometry", "compare", "papers", "noise", "baselines")),
        ("ltnb/report.py", ("report",)),
        ("ltnb/training.py", ("train", "papers", "noise", "baselines")),
        ("ltnb/inputs.py", ("train", "geometry", "compare", "papers", "noise", "baselines")),
        ("ltnb/losses/balanced_contrastive.py", ("train", "papers", "noise", "baselines")),
        ("README.md", ()),
    ],
)
def test_editing_a_file_reruns_what_depends_on_it(project: Path, file: str, may_be_stale: tuple[str, ...]) -> None:
    original = (project / file).read_bytes()
    (project / file).write_bytes(original + b"\n# a remark\n")
    found = {stage.split("@")[0] for stage in stale(project)}
    (project / file).write_bytes(original)  # before the check: other tests go on with the project
    assert found == set(may_be_stale)


def test_the_tables_that_dvc_shows(project: Path) -> None:
    metrics = run(project, "dvc", "metrics", "show", "--md")
    assert "accuracy_few" in metrics or "accuracy_medium" in metrics
    assert "results/tiny/bcl/metrics.json" in metrics
    every_run = [str(path.relative_to(project)) for path in sorted(project.glob("runs/*/*/*/metrics.json"))]
    assert len(run(project, "dvc", "metrics", "show", "--md", *every_run).strip().splitlines()) == 2 + 4
    run(project, "dvc", "plots", "show", "--out", "dvc_plots")
    page = (project / "dvc_plots/index.html").read_text(encoding="utf-8")
    assert "training" in page
    assert "confusion" in page


def test_a_mistake_in_params_stops_before_anything_runs(project: Path) -> None:
    params = project / "params.yaml"
    params.write_text(EXPERIMENT.replace("temperature", "temprature"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "ltnb.params"], cwd=project, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "methods.bcl.temprature: 0.1: unknown key; did you mean temperature?" in done.stderr
    params.write_text(EXPERIMENT, encoding="utf-8")
