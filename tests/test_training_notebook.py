"""The notebook of a training run, executed for rows whose views, stages and classifiers are not the usual ones."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PARAMS = """\
datasets: {digits: {source: digits, imbalance: 10, largest: 40, image_size: 8}}
methods:
  mixup: {system: mixup, second_stage: retrain, second_stage_epochs: 1}
  bce3s: {system: bce3s, views: [strong, mixup, cutmix], classified_views: all}
seeds: [0]
training: {epochs: 2, warmup_epochs: 0, evaluate_every: 1}
"""


@pytest.mark.parametrize("method", ["mixup", "bce3s"])
def test_mixed_views_are_shown_and_trained_with(method: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS, encoding="utf-8")
    shutil.copytree(PROJECT / "ltnb", tmp_path / "ltnb", ignore=shutil.ignore_patterns("__pycache__"))
    notebook = PROJECT / "notebooks" / "experiments" / "train.ipynb"
    folder = tmp_path / "runs" / "digits" / method / "seed-0"
    prepare = [sys.executable, "-m", "ltnb.inputs", "digits"]
    run = [sys.executable, "-m", "ltnb.notebooks", "run", str(notebook), str(folder / "notebook.ipynb")]
    chosen = ["-p", "dataset", "digits", "-p", "method", method, "-p", "workspace", "."]
    for command in (prepare, [*run, *chosen]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    assert 0 <= json.loads((folder / "metrics.json").read_text())["accuracy"] <= 1
