"""``dvc repro`` with several stages at once: the same results, and the same ``dvc.lock`` byte for byte.

    python -m ltnb.pipeline             # as many stages at once as there are processors
    python -m ltnb.pipeline --jobs 1

A stage starts when every stage that it depends on has ended. DVC decides what is stale, runs the command, and takes
its outputs into the cache, one stage a thread; its own lock, which it lets go while a command runs, keeps the threads
apart. Only ``dvc.lock`` is written here: once, at the end, in the order in which ``dvc repro`` would have written it.
Where this process is killed before, DVC's run cache still knows what had been finished, and nothing runs twice.
"""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import takewhile

from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.repo.reproduce import plan_repro
from dvc.stage import PipelineStage
from joblib import cpu_count


def _reproduce_stage(root: str, name: str) -> PipelineStage:
    """Run one stage, or take its outputs from the run cache, as ``dvc repro --single-item`` would."""
    started = time.monotonic()
    with Repo(root, _wait_for_lock=True) as repo, repo.lock:  # a lock serves one thread: each has a Repo of its own
        stage: PipelineStage = repo.stage.load_one(name=name)
        stage.reproduce()
    print(f"{name}: done, {time.monotonic() - started:.0f} s", flush=True)
    return stage


def reproduce(jobs: int, root: str = ".") -> int:
    """Bring the pipeline of the project in `root` up to date, `jobs` stages at once; returns how many were stale.

    After a failure no further stage starts; those that run go on to their end, and are kept.

    Raises:
        ValueError: `jobs` is below one.
        DvcException: a stage failed; the message names it. Or ``dvc.yaml`` is wrong, or there is none.
    """
    if jobs < 1:
        raise ValueError(f"jobs: {jobs}: expected at least 1")
    with Repo(root, _wait_for_lock=True) as repo, ThreadPoolExecutor(jobs) as pool:
        graph = repo.index.graph
        plan: list[PipelineStage] = plan_repro(graph)  # the order of `dvc repro`
        started: set[PipelineStage] = set()
        running: dict[Future[PipelineStage], PipelineStage] = {}
        ended: dict[PipelineStage, PipelineStage | None] = {}  # None: it was up to date
        failures: list[str] = []

        def start_what_can_start() -> None:
            for stage in plan:
                if len(running) == jobs:
                    return
                if stage in started or not ended.keys() >= set(graph.successors(stage)):
                    continue
                started.add(stage)
                with repo.lock:
                    stale = stage.changed()
                if stale:
                    running[pool.submit(_reproduce_stage, repo.root_dir, stage.name)] = stage
                else:
                    ended[stage] = None

        try:
            start_what_can_start()
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    stage = running.pop(future)
                    try:
                        ended[stage] = future.result()
                    except DvcException as error:
                        failures.append(f"{stage.name}: {error}")
                        print(f"error: {failures[-1]}; no further stage starts", file=sys.stderr, flush=True)
                if not failures:
                    start_what_can_start()
        finally:
            wait(running)  # after Ctrl-C, which reaches the commands, too
            # Up to the first gap, so that the order never depends on which was faster; the run cache has the rest.
            to_record = filter(None, (ended[stage] for stage in takewhile(ended.__contains__, plan)))
            with repo.lock:
                plan[0].dvcfile.dump_stages(list(to_record), update_pipeline=False)
    if failures:
        raise DvcException("failed to reproduce " + "\n".join(failures))
    return sum(stage is not None for stage in ended.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this module; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ltnb.pipeline", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=cpu_count(), help="stages at once; by default, the processors")
    jobs = parser.parse_args(arguments).jobs
    interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    # Ctrl-C ends the commands as well: whether it or their failure is seen first here, it was Ctrl-C.
    signal.signal(signal.SIGINT, interrupt)
    try:
        count = reproduce(jobs)
    except KeyboardInterrupt:
        interrupted.set()
    except (DvcException, ValueError) as error:
        if not interrupted.is_set():
            print(f"error: {error}", file=sys.stderr)
            return 1
    if interrupted.is_set():
        print("interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    print(f"{count} stages were stale, and are up to date." if count else "Data and pipelines are up to date.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
