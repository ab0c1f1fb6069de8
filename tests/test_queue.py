"""A sweep in DVC's experiment queue, as the README sends one there: stages of the shell, in a project of their own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Our pipeline's shape. Outside the experiments' folders each `train` says that it ran, and waits until the other one
# has, a minute at most: two that ran one after the other would leave a single `beside`.
PIPELINE = """\
stages:
  train:
    matrix:
      method: ${methods}
    cmd: >-
      echo ${item.method} >> LOG;
      for i in $(seq 120); do test $(grep -c ^new- LOG) -ge 2 && echo beside >> LOG && break;
      test ${item.method} = old && break; sleep 0.5; done;
      mkdir runs/${item.method}; pwd > runs/${item.method}/folder
    params: ["methods.${item.method}"]
    outs: ["runs/${item.method}"]
  compare:
    cmd: ls runs > compared
    deps: [runs]
    params: [methods]
    outs: [compared]
"""
OLD = "methods:\n  old: {temperature: 1}\n"
ROWS = ("new-1: {temperature: 0.1}", "new-2: {temperature: 0.2}")


def run(project: Path, *command: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # as in an activated environment
    environment = {**os.environ, "PATH": path, "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "dvc.yaml").write_text(PIPELINE.replace("LOG", str(tmp_path / "log")))
    (project / "params.yaml").write_text(OLD)
    (project / ".gitignore").write_text("/runs\n/compared\n")
    run(project, "git", "init", "--quiet")
    for key in ("name", "email"):
        run(project, "git", "config", f"user.{key}", "test")
    run(project, "dvc", "init", "--quiet")
    (project / "runs").mkdir()
    run(project, "dvc", "repro", "--quiet")
    run(project, "git", "add", ".")
    run(project, "git", "commit", "--quiet", "--message", "before the sweep")
    yield project
    run(project, "dvc", "queue", "stop", "--kill")  # a worker waits ten seconds for more


def wait_for_queue(project: Path) -> str:
    deadline = time.monotonic() + 180
    while True:
        status = run(project, "dvc", "queue", "status")
        if "Queued" not in status and "Running" not in status:
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.5)


def test_a_sweep_in_the_queue_runs_side_by_side_and_compare_reads_its_runs(project: Path) -> None:
    log = project.parent / "log"
    before = run(project, "git", "status", "--porcelain")
    sweep = ",".join(f"{{{row}}}" for row in ROWS)
    run(project, "dvc", "exp", "run", "--queue", "compare", "-S", f"+methods={sweep}")
    run(project, "dvc", "queue", "start", "-j", "2")
    assert wait_for_queue(project).count("Success") == 2
    assert sorted(log.read_text().split()) == ["beside", "beside", "new-1", "new-2", "old"]
    assert run(project, "git", "status", "--porcelain") == before
    assert os.listdir(project / "runs") == ["old"]

    # Once the rows stand in the experiment, its runs come out of DVC's cache, byte for byte, and nothing trains.
    (project / "params.yaml").write_text(OLD + "".join(f"  {row}\n" for row in ROWS))
    run(project, sys.executable, "-m", "ltnb.pipeline", "--jobs", "2")
    assert log.read_text().count("new-") == 2
    assert (project / "compared").read_text().split() == ["new-1", "new-2", "old"]
    folders = {(project / "runs" / row.split(":")[0] / "folder").read_text() for row in ROWS}
    assert len(folders) == 2
    assert all(".dvc/tmp/exps" in folder for folder in folders)
