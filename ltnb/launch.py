"""Train one run of params.yaml without a notebook, in the processes that ``torchrun`` starts.

    torchrun --nproc-per-node 4 -m ltnb.launch imagenet-lt bcl 0

The run is written where the pipeline's training stage would write it, and `dvc commit` enters it there. On one machine
``training.processes`` is enough, and the pipeline does all of it; this is for processes on several machines, which see
the project on one disk.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from torch import distributed

from ltnb.distributed import backend, process_number
from ltnb.inputs import prepared_dataset
from ltnb.params import FILE_NAME, load
from ltnb.training import train
from ltnb.workspace import Workspace


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the run that the command line names."""
    parser = argparse.ArgumentParser(prog="torchrun -m ltnb.launch", description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help="a key of `datasets` in params.yaml, prepared: dvc repro prepare@DATASET")
    parser.add_argument("method", help="a key of `methods`")
    parser.add_argument("seed", type=int)
    options = parser.parse_args(arguments)
    place = Workspace.open(".")
    params = load(place.project / FILE_NAME)
    settings = params.run(options.dataset, options.method, options.seed)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        distributed.init_process_group(backend())
    folder = place.run(options.dataset, options.method, options.seed)
    checkpoint = place.checkpoint(options.dataset, options.method, options.seed)
    run = train(settings, prepared_dataset(place, options.dataset, params), folder, checkpoint)
    if process_number() == 0:  # known as long as there is a group
        print(f"{folder}: accuracy {100 * run.metrics['accuracy']:.1f} %")
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:  # of params.yaml, or of the group
        sys.exit(str(error))
