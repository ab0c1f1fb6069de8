"""What a notebook starts from: in the pipeline, what the stages before it left; by hand, made on the spot.

python -m ltnb.inputs digits-if100     # prepare a data set for the pipeline
"""

import sys
from collections.abc import Iterable

from ltnb.data.prepare import Dataset, load, prepare
from ltnb.params import FILE_NAME, Params, ParamsError
from ltnb.params import load as load_params
from ltnb.runs import Run, read
from ltnb.training import code_fingerprint, train
from ltnb.workspace import Workspace

SHORT_EPOCHS = 3  # enough to see that everything runs and the geometry begin, one to two seconds a run


def prepared_dataset(place: Workspace, name: str, params: Params) -> Dataset:
    """Load the data set ``name``; by hand, prepare it first.

    Raises:
        FileNotFoundError: in the pipeline's workspace, it has not been prepared; the message names the file.
    """
    if not place.is_pipeline:
        prepare(name, params.datasets[name], place.data(name), place.project)
    return load(place.data(name))


def finished_runs(
    place: Workspace, dataset: str, methods: Iterable[str], seeds: Iterable[int], params: Params
) -> list[Run]:
    """Read the runs of ``methods`` × ``seeds``, a method after the other.

    By hand they are the pipeline's too; where it has none, a short one is trained, unless an earlier notebook has
    trained the same, and said to be.

    Raises:
        FileNotFoundError: in the pipeline's workspace, a run is missing; the message names the file.
    """
    pipeline = Workspace(place.project, place.project)
    found = []
    for method in methods:
        for seed in seeds:
            folder = pipeline.run(dataset, method, seed)
            if place.is_pipeline or (folder / "metrics.json").is_file():
                found.append(read(folder))
            else:
                found.append(_short_run(place, dataset, method, seed, params))
    return found


def _short_run(place: Workspace, dataset: str, method: str, seed: int, params: Params) -> Run:
    settings = params.run(dataset, method, seed)
    training = settings.training.shortened(SHORT_EPOCHS)
    print(
        f"the pipeline has no run of {method} with seed {seed}: training {training.epochs} epochs instead",
        file=sys.stderr,
    )
    settings = settings.model_copy(update={"training": training})
    data, folder = prepared_dataset(place, dataset, params), place.run(dataset, method, seed)
    if (folder / "metrics.json").is_file():
        earlier = read(folder)
        fingerprints = {"code": code_fingerprint(), "data": data.fingerprint}
        wanted = {**settings.model_dump(mode="json"), "fingerprints": fingerprints}
        if wanted.items() <= earlier.params.items():
            return earlier
    return train(settings, data, folder)


def main(name: str) -> None:
    """Prepare the data set ``name`` of ``params.yaml`` in the pipeline's workspace."""
    place = Workspace.open(".")
    params = load_params(place.project / FILE_NAME)
    if name not in params.datasets:
        raise ParamsError(f"datasets.{name} is not in {FILE_NAME}; expected one of {', '.join(params.datasets)}")
    try:
        prepare(name, params.datasets[name], place.data(name), place.project)
    except ValueError as error:
        raise ParamsError(f"{place.project / FILE_NAME}: datasets.{name}: {error}") from error


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ParamsError, OSError) as error:
        sys.exit(str(error))
