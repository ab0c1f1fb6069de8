"""Presets that are run within seconds."""

from pathlib import Path

PRESET = """\
datasets:
  digits-if100: {source: digits, imbalance: 100}
methods:
  ce: {system: ce}
  pal: {system: pal}
seeds: [0, 1]
training: {epochs: 1, warmup_epochs: 0}
"""

# Two data sets, the second with wrong labels; two of the three epochs are watched, the second and the last.
NOISY_PRESET = """\
datasets:
  clean: {source: digits, imbalance: 1, largest: 5, test_per_class: 5, image_size: 8}
  symmetric-40:
    {source: digits, imbalance: 1, largest: 5, test_per_class: 5, image_size: 8, noise: symmetric, noise_rate: 0.4}
methods:
  ce: {system: ce, views: [none]}
  pal: {system: pal, views: [none]}
seeds: [0, 1]
training: {epochs: 3, warmup_epochs: 0, evaluate_every: 2}
"""


def write_project(folder: Path, name: str, preset: str) -> None:
    """Make a project of one preset, which is its experiment, too."""
    (folder / "presets").mkdir(exist_ok=True)
    for file in ("params.yaml", f"presets/{name}.yaml"):
        (folder / file).write_text(preset, encoding="utf-8")
