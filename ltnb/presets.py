"""The papers' ablations and their controls, run: the rows of ``presets/digits-<name>.yaml``.

    python -m ltnb.presets pal                               # every row, every seed
    python -m ltnb.presets pal --rows ce pal --seeds 0 1

Runs go to ``build/presets/<name>/``, and one that is there already, from the same settings, code and data, is not run
again. What is kept of them goes to ``presets/results/`` (`ltnb.preset_results`): the tables and verdicts of the papers'
notebooks are made from it. Several processes may run one preset at once.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ltnb import params, preset_results
from ltnb.data.prepare import load as load_dataset
from ltnb.data.prepare import prepare
from ltnb.inputs import SHORT_EPOCHS
from ltnb.params import Params, RunSettings
from ltnb.runs import Run, read
from ltnb.training import code_fingerprint, train
from ltnb.workspace import Workspace


def load(name: str, project: Path) -> Params:
    """Read ``presets/digits-<name>.yaml``, with `ltnb.params.load` and its errors."""
    return params.load(project / "presets" / f"digits-{name}.yaml")


def runs(place: Workspace, name: str, preset: Params, rows: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Read the runs of ``rows`` × ``seeds`` on every data set, a row after the other; what is not there is trained.

    By hand a run that the pipeline has is taken as it is, and one that it lacks is a short one, and said to be.

    Args:
        place: where to work.
        name: of the preset, such as ``pal``.
        preset: what its file holds, or more rows than that.
        rows: keys of its methods.
        seeds: any.

    Raises:
        ParamsError: a row is not in the preset.
    """
    found = []
    for dataset in preset.datasets:
        for row in rows:
            for seed in seeds:
                settings = preset.run(dataset, row, seed)
                folder = Path("build", "presets", name, dataset, row, f"seed-{seed}")
                if not place.is_pipeline and (place.project / folder / "metrics.json").is_file():
                    found.append(read(place.project / folder))
                    continue
                if not place.is_pipeline:
                    settings = _shortened(settings)
                found.append(_trained(settings, place.folder / folder, place.project))
    return found


def measured(name: str, project: Path) -> pd.DataFrame:
    """Columns method, seed, measure, value: what was measured on the runs of the preset's first data set."""
    preset = load(name, project)
    frame = preset_results.measured(name, preset, project)
    return frame[frame["dataset"] == next(iter(preset.datasets))].drop(columns="dataset").reset_index(drop=True)


def _shortened(settings: RunSettings) -> RunSettings:
    epochs = min(SHORT_EPOCHS, settings.training.epochs)
    print(f"{settings.method_name}, seed {settings.seed}: {epochs} epochs, by hand", file=sys.stderr)
    training = settings.training.model_copy(update={"epochs": epochs, "warmup_epochs": epochs // 10})
    return settings.model_copy(update={"training": training})


def _trained(settings: RunSettings, folder: Path, project: Path) -> Run:
    # Prepared beside the run, by the preset's own settings: params.yaml may call other data by this name.
    prepared = folder.parents[2] / ".data" / settings.dataset_name
    prepare(settings.dataset_name, settings.dataset, prepared, project)
    data = load_dataset(prepared)
    if (folder / "metrics.json").is_file():
        earlier = read(folder)
        fingerprints = {"code": code_fingerprint(), "data": data.fingerprint}
        if {**settings.model_dump(mode="json"), "fingerprints": fingerprints}.items() <= earlier.params.items():
            return earlier
    return train(settings, data, folder)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a preset, in the pipeline's workspace; each run is recorded as it ends."""
    parser = argparse.ArgumentParser(prog="python -m ltnb.presets", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=["balanced", "bce3s", "bcl", "featrecon", "pal"])
    parser.add_argument("--rows", nargs="+", help="rows of the preset; by default all")
    parser.add_argument("--seeds", nargs="+", type=int, help="by default those of the preset")
    options = parser.parse_args(arguments)
    place = Workspace.open(".")
    preset = load(options.name, place.project)
    for seed in options.seeds or preset.seeds:
        for row in options.rows or preset.methods:
            found = runs(place, options.name, preset, [row], [seed])
            preset_results.record(found, options.name, preset, place.project)


if __name__ == "__main__":
    try:
        main()
    except params.ParamsError as error:
        sys.exit(str(error))
