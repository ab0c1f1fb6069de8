"""Stages of the shell, in a DVC project of their own: what runs beside what, what a failure or a kill leaves."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ltnb.pipeline import reproduce

# `slow` waits for `quick` to end, three seconds at most, and says whether it did; both say that they ran.
PIPELINE = """\
stages:
  slow:
    cmd: >-
      echo slow >> log; for i in 1 2 3 4 5 6; do test -e quick.out && echo beside >> log && break; sleep 0.5; done;
      echo 1 > slow.out
    deps: [source]
    outs: [slow.out]
  quick:
    cmd: echo quick >> log; echo 1 > quick.out
    deps: [source]
    outs: [quick.out]
  both:
    cmd: echo both >> log; cat slow.out quick.out > both.out
    deps: [slow.out, quick.out]
    outs: [both.out]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    (tmp_path / "source").write_text("1\n")
    run(tmp_path, "dvc", "init", "--no-scm", "--quiet")
    return tmp_path


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=project,
        env={**os.environ, "DVC_NO_ANALYTICS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(project: Path, *arguments: str, status: int = 0) -> str:
    process = start(project, *arguments)
    output = "".join(process.communicate())
    assert process.returncode == status, output
    return output


def ran(project: Path) -> list[str]:
    log = project / "log"
    return log.read_text().split() if log.exists() else []


def wait_for(project: Path, line: str) -> None:
    deadline = time.monotonic() + 60
    while line not in ran(project):
        assert time.monotonic() < deadline, f"{line} never ran"
        time.sleep(0.02)


def test_stages_run_beside_each_other_and_the_lock_is_that_of_dvc_repro(project: Path) -> None:
    run(project, "ltnb.pipeline", "--jobs", "2")
    assert sorted(ran(project)) == ["beside", "both", "quick", "slow"]
    assert ran(project)[-1] == "both"
    lock = (project / "dvc.lock").read_bytes()
    assert "Data and pipelines are up to date" in run(project, "ltnb.pipeline")

    for made in ("dvc.lock", "slow.out", "quick.out", "both.out", "log"):
        (project / made).unlink()
    run(project, "dvc", "repro", "--no-run-cache")
    assert ran(project) == ["slow", "quick", "both"]
    assert (project / "dvc.lock").read_bytes() == lock


def test_with_one_job_nothing_runs_beside_anything(project: Path) -> None:
    run(project, "ltnb.pipeline", "--jobs", "1")
    assert ran(project) == ["slow", "quick", "both"]


def test_no_jobs_are_refused(project: Path) -> None:
    with pytest.raises(ValueError, match="jobs: 0: expected at least 1"):
        reproduce(0, str(project))


def test_only_what_a_change_makes_stale_runs_again(project: Path) -> None:
    run(project, "ltnb.pipeline")
    (project / "log").unlink()
    text = PIPELINE.replace("echo quick >> log;", "echo quick >> log; echo again >> log;")
    (project / "dvc.yaml").write_text(text)
    run(project, "ltnb.pipeline")
    assert ran(project) == ["quick", "again"]  # its output is as before: `both` has nothing to do


def test_a_failure_names_its_stage_and_keeps_what_ran_beside_it(project: Path) -> None:
    (project / "dvc.yaml").write_text(PIPELINE.replace("echo 1 > quick.out", "exit 3"))
    output = run(project, "ltnb.pipeline", "--jobs", "2", status=1)
    assert "failed to reproduce quick: failed to run: echo quick >> log; exit 3, exited with 3" in output
    assert sorted(ran(project)) == ["quick", "slow"]

    (project / "dvc.yaml").write_text(PIPELINE)
    run(project, "ltnb.pipeline")
    assert ran(project)[2:] == ["quick", "both"]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_after_a_kill_what_was_finished_does_not_run_again(project: Path, sent: signal.Signals) -> None:
    once = "mkdir once && echo both >> log && exec sleep 60; echo both"
    (project / "dvc.yaml").write_text(PIPELINE.replace("echo both", once))
    process = start(project, "ltnb.pipeline", "--jobs", "2")
    wait_for(project, "both")
    os.killpg(process.pid, sent)  # as Ctrl-C does, and as the kernel does when memory runs out
    process.communicate()
    assert process.returncode == (130 if sent == signal.SIGINT else -sent)
    assert not (project / "both.out").exists()
    run(project, "ltnb.pipeline", "--jobs", "2")
    assert [line for line in ran(project) if line != "beside"] in (
        ["slow", "quick", "both", "both"],
        ["quick", "slow", "both", "both"],
    )
