"""A run without a notebook, in processes that torchrun starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ltnb import launch
from ltnb.data.prepare import load as load_dataset
from ltnb.inputs import main as prepare
from ltnb.params import ParamsError, load
from ltnb.runs import read
from ltnb.training import train
from ltnb.workspace import Workspace

PARAMS = """\
datasets:
  digits: {source: digits, imbalance: 10, largest: 20}
methods:
  bcl: {system: bcl}
  ce: {system: ce}
seeds: [0]
training: {epochs: 2, warmup_epochs: 0, processes: 2}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "params.yaml").write_text(PARAMS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    prepare("digits")
    return tmp_path


def torchrun(project: Path, processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", "ltnb.launch"]
    return subprocess.run(
        [sys.executable, "-m", *command, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )


def test_torchrun_trains_what_the_pipeline_would(project: Path) -> None:
    place, params = Workspace.open("."), load(project / "params.yaml")
    done = torchrun(project, 2, "digits", "bcl", "0")
    assert done.returncode == 0, done.stderr
    expected = train(params.run("digits", "bcl", 0), load_dataset(place.data("digits")), project / "expected")
    for file in expected.folder.iterdir():
        assert (place.run("digits", "bcl", 0) / file.name).read_bytes() == file.read_bytes()
    accuracy = read(expected.folder).metrics["accuracy"]
    assert done.stdout.splitlines() == [f"{place.run('digits', 'bcl', 0)}: accuracy {100 * accuracy:.1f} %"]
    assert not place.checkpoint("digits", "bcl", 0).exists()


@pytest.mark.usefixtures("project")
def test_without_torchrun_it_is_one_run_in_as_many_processes(capsys: pytest.CaptureFixture[str]) -> None:
    launch.main(["digits", "ce", "0"])
    assert "accuracy" in capsys.readouterr().out
    with pytest.raises(ParamsError, match=r"methods.c is not in params.yaml"):
        launch.main(["digits", "c", "0"])
