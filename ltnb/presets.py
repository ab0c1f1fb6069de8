"""The papers' ablations, run: the rows of ``presets/digits-<paper>.yaml``, and what is kept of them.

    python -m ltnb.presets pal                               # every row, every seed
    python -m ltnb.presets pal --rows ce pal --seeds 0 1

Runs go to ``build/presets/<paper>/``, and one that is there already, from the same settings, code and data, is not run
again. Their accuracies go to ``presets/results/digits-<paper>.csv``, the numbers of `ltnb.balance` to
``digits-<paper>-measures.csv`` beside it: what the tables and verdicts of the papers' notebooks are made from.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ltnb import balance, params, tables
from ltnb.data.prepare import load as load_dataset
from ltnb.data.prepare import prepare
from ltnb.files import replacing
from ltnb.inputs import SHORT_EPOCHS
from ltnb.params import Params, RunSettings
from ltnb.runs import Run, read
from ltnb.training import code_fingerprint, train
from ltnb.workspace import Workspace

DATASET = "digits-if100"
KEYS = ["method", "seed"]


def load(paper: str, project: Path) -> Params:
    """Read ``presets/digits-<paper>.yaml``, with `ltnb.params.load` and its errors."""
    return params.load(project / "presets" / f"digits-{paper}.yaml")


def runs(place: Workspace, paper: str, preset: Params, rows: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Read the runs of ``rows`` × ``seeds``, a row after the other; what is not there is trained.

    By hand a run that the pipeline has is taken as it is, and one that it lacks is a short one, and said to be.

    Raises:
        ParamsError: a row is not in the preset.
    """
    found = []
    for row in rows:
        for seed in seeds:
            settings = preset.run(DATASET, row, seed)
            folder = Path("build", "presets", paper, row, f"seed-{seed}")
            if not place.is_pipeline and (place.project / folder / "metrics.json").is_file():
                found.append(read(place.project / folder))
                continue
            if not place.is_pipeline:
                settings = _shortened(settings)
            found.append(_trained(place, settings, preset, place.folder / folder))
    return found


def _shortened(settings: RunSettings) -> RunSettings:
    epochs = min(SHORT_EPOCHS, settings.training.epochs)
    print(f"{settings.method_name}, seed {settings.seed}: {epochs} epochs, by hand", file=sys.stderr)
    training = settings.training.model_copy(update={"epochs": epochs, "warmup_epochs": epochs // 10})
    return settings.model_copy(update={"training": training})


def _trained(place: Workspace, settings: RunSettings, preset: Params, folder: Path) -> Run:
    # Prepared apart, by the preset's own settings: params.yaml may call other data by this name.
    prepared = place.folder / "build" / "presets" / "data" / DATASET
    prepare(DATASET, preset.datasets[DATASET], prepared)
    data = load_dataset(prepared)
    if (folder / "metrics.json").is_file():
        earlier = read(folder)
        fingerprints = {"code": code_fingerprint(), "data": data.fingerprint}
        if {**settings.model_dump(mode="json"), "fingerprints": fingerprints}.items() <= earlier.params.items():
            return earlier
    return train(settings, data, folder)


def record(found: Sequence[Run], paper: str, project: Path) -> None:
    """Write the runs' accuracies and measures into the preset's tables, in place of those that stand there."""
    frames = {
        "": tables.accuracies(found)[[*KEYS, "group", "accuracy"]],
        "-measures": balance.measures(found),
    }
    for ending, frame in frames.items():
        file = project / "presets" / "results" / f"digits-{paper}{ending}.csv"
        if file.is_file():
            earlier = pd.read_csv(file)
            replaced = pd.MultiIndex.from_frame(earlier[KEYS]).isin(pd.MultiIndex.from_frame(frame[KEYS]))
            frame = pd.concat([earlier[~replaced], frame], ignore_index=True)
        frame = frame.sort_values(KEYS, kind="stable")
        with replacing(file) as temporary:
            frame.to_csv(temporary, index=False, float_format="%.6g", lineterminator="\n")


def measured(paper: str, project: Path) -> pd.DataFrame:
    """Columns method, seed, measure, value: what was measured on the preset's runs; empty before any ran."""
    file = project / "presets" / "results" / f"digits-{paper}-measures.csv"
    return pd.read_csv(file) if file.is_file() else balance.measures([])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a preset, in the pipeline's workspace; each run is recorded as it ends."""
    parser = argparse.ArgumentParser(prog="python -m ltnb.presets", description=__doc__.splitlines()[0])
    parser.add_argument("paper", choices=["bcl", "featrecon", "bce3s", "pal"])
    parser.add_argument("--rows", nargs="+", help="rows of the preset; by default all")
    parser.add_argument("--seeds", nargs="+", type=int, help="by default those of the preset")
    options = parser.parse_args(arguments)
    place = Workspace.open(".")
    preset = load(options.paper, place.project)
    for seed in options.seeds or preset.seeds:
        for row in options.rows or preset.methods:
            record(runs(place, options.paper, preset, [row], [seed]), options.paper, place.project)


if __name__ == "__main__":
    try:
        main()
    except params.ParamsError as error:
        sys.exit(str(error))
