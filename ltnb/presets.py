"""The papers' ablations and their controls, run: the rows of ``presets/<name>.yaml``.

    python -m ltnb.presets digits-pal                        # every data set, row and seed
    python -m ltnb.presets digits-noise-scale --datasets symmetric-40 --rows fnpal-s1_6 --seeds 0 1

Runs go to ``build/presets/<name>/``, and one that is there already, from the same settings, code and data, is not run
again. What is kept of them goes to ``presets/results/`` (`ltnb.preset_results`): the tables and verdicts of the papers'
notebooks are made from it. Several processes may run one preset at once.
"""

import argparse
import itertools
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pandas as pd

from ltnb import params, preset_results
from ltnb.data.prepare import load as load_dataset
from ltnb.data.prepare import prepare
from ltnb.inputs import SHORT_EPOCHS
from ltnb.params import Params, ParamsError, RunSettings
from ltnb.runs import Run, read
from ltnb.training import code_fingerprint, train
from ltnb.workspace import Workspace

Entry = TypeVar("Entry", str, int)


def load(name: str, project: Path) -> Params:
    """Read ``presets/<name>.yaml``.

    Raises:
        ParamsError: there is no such preset, and the message lists those that there are; or as `ltnb.params.load`.
    """
    known = sorted(file.stem for file in (project / "presets").glob("*.yaml"))
    if name not in known:
        raise ParamsError(f"{name!r} is not a preset of {project / 'presets'}; expected one of {', '.join(known)}")
    return params.load(project / "presets" / f"{name}.yaml")


def runs(
    place: Workspace,
    name: str,
    preset: Params,
    rows: Sequence[str],
    seeds: Sequence[int],
    datasets: Sequence[str] | None = None,
) -> list[Run]:
    """Read the runs of ``datasets`` × ``rows`` × ``seeds``, in this order; what is not there is trained.

    By hand a run that the pipeline has is taken as it is, and one that it lacks is a short one, and said to be.

    Args:
        place: where to work.
        name: of the preset, such as ``digits-pal``.
        preset: what its file holds, or more rows than that.
        rows: keys of its methods.
        seeds: any.
        datasets: keys of its data sets; None: all.

    Raises:
        ParamsError: a row or a data set is not in the preset.
    """
    found = []
    for dataset in preset.datasets if datasets is None else datasets:
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
    training = settings.training.shortened(SHORT_EPOCHS)
    print(f"{settings.method_name}, seed {settings.seed}: {training.epochs} epochs, by hand", file=sys.stderr)
    return settings.model_copy(update={"training": training})


def _trained(settings: RunSettings, folder: Path, project: Path) -> Run:
    # Prepared beside the run, by the preset's own settings: params.yaml may call other data by this name.
    prepared = folder.parents[2] / ".data" / settings.dataset_name
    try:
        prepare(settings.dataset_name, settings.dataset, prepared, project)
    except ValueError as error:
        raise ParamsError(f"data set {settings.dataset_name} of the preset: {error}") from error
    data = load_dataset(prepared)
    if (folder / "metrics.json").is_file():
        earlier = read(folder)
        fingerprints = {"code": code_fingerprint(), "data": data.fingerprint}
        if {**settings.model_dump(mode="json"), "fingerprints": fingerprints}.items() <= earlier.params.items():
            return earlier
    return train(settings, data, folder, folder.with_suffix(".pt"))


def _chosen(wanted: Sequence[Entry] | None, known: Iterable[Entry], kind: str, name: str) -> list[Entry]:
    """Return what is wanted of what a preset has, in the preset's order; None: all of it."""
    known = list(known)
    for entry in wanted or ():
        if entry not in known:
            expected = ", ".join(map(str, known))
            raise ParamsError(f"presets/{name}.yaml has no {kind} {entry!r}; expected one of {expected}")
    return [entry for entry in known if wanted is None or entry in wanted]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a preset, in the pipeline's workspace; each run is recorded as it ends."""
    parser = argparse.ArgumentParser(prog="python -m ltnb.presets", description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a file of presets/, without its ending: digits-pal")
    parser.add_argument("--datasets", nargs="+", help="of the preset; by default all")
    parser.add_argument("--rows", nargs="+", help="of the preset, each a method; by default all")
    parser.add_argument("--seeds", nargs="+", type=int, help="of the preset; by default all")
    options = parser.parse_args(arguments)
    place = Workspace.open(".")
    name, preset = options.name, load(options.name, place.project)
    datasets = _chosen(options.datasets, preset.datasets, "data set", name)
    rows = _chosen(options.rows, preset.methods, "row", name)
    # One that the preset lacks could be trained, but its numbers would be refused when they are read.
    seeds = _chosen(options.seeds, preset.seeds, "seed", name)
    for seed, dataset, row in itertools.product(seeds, datasets, rows):
        found = runs(place, name, preset, [row], [seed], [dataset])
        preset_results.record(found, name, preset, place.project)
        reached = f"{100 * found[0].metrics['accuracy']:.1f} %"
        print(f"{dataset} {row} seed {seed}: {reached}, in presets/results/{name}.csv", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (ParamsError, FileNotFoundError) as error:  # a preset, or a source that lies on disk
        sys.exit(str(error))
