"""The training loop. It knows no method by name: a method says which views it takes and names its terms."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Generator, Tensor, distributed
from tqdm import tqdm

from ltnb import runs
from ltnb.checkpoints import State
from ltnb.data.augmentation import normalise
from ltnb.data.draws import Draws, ShareOfDraws
from ltnb.data.feeding import Feed, feed
from ltnb.data.prepare import Dataset
from ltnb.data.views import MIXED_VIEWS, draw
from ltnb.distributed import joined, num_processes, own_rows, process_number, wait_for_all
from ltnb.evaluation import Evaluation
from ltnb.methods.assembly import Method
from ltnb.methods.stages import Stage, learning_rate
from ltnb.params import RunSettings, TrainingSettings
from ltnb.processes import in_processes

# What decides a run's numbers, relative to the package. `dvc.yaml` names the same files as dependencies.
CODE = (
    "checkpoints.py", "data", "distributed.py", "evaluation.py", "files.py", "geometry", "inputs.py", "losses",
    "methods", "models", "params.py", "processes.py", "runs.py", "training.py", "workspace.py",
)  # fmt: skip


class NonFiniteLossError(ArithmeticError):
    """A term of the loss, or what it is of, is no longer finite; the message names method, term, epoch and step."""


def batches(
    labels: Tensor, batch_size: int, generator: Generator, sampler: Literal["instance", "class-balanced"] = "instance"
) -> tuple[Tensor, ...]:
    """Return one epoch of sample numbers, cut into the fewest batches of at most ``batch_size``.

    The sizes differ by at most one, so no batch is left with the few samples that batch normalisation cannot
    work on.

    Args:
        labels: (N,) class of every sample.
        batch_size: of the largest batch.
        generator: on the CPU.
        sampler: ``instance``, every sample once in a random order; or ``class-balanced``, N draws with replacement
            in which every class that has samples is as likely as the others.
    """
    if sampler == "instance":
        order = torch.randperm(len(labels), generator=generator)
    else:
        probabilities = 1 / torch.bincount(labels)[labels].double()
        order = torch.multinomial(probabilities, len(labels), replacement=True, generator=generator)
    return order.tensor_split(math.ceil(len(labels) / batch_size))


def device_of(training: TrainingSettings) -> torch.device:
    """Return the device that ``training.device`` asks for; ``auto`` takes a GPU where there is one.

    Of several processes on a machine each takes a GPU of its own, by its number there (``LOCAL_RANK``).

    Raises:
        ValueError: ``cuda`` is asked for and this machine has none, or fewer GPUs than processes.
    """
    available = torch.cuda.is_available()
    if training.device == "cuda" and not available:
        raise ValueError("training.device: 'cuda' is not available on this machine; expected 'auto' or 'cpu'")
    if not available or training.device == "cpu":
        return torch.device("cpu")
    number = int(os.environ.get("LOCAL_RANK", "0")) if num_processes() > 1 else 0
    if number >= torch.cuda.device_count():
        raise ValueError(
            f"training.processes: {training.processes}, and this machine has {torch.cuda.device_count()} GPUs; "
            "expected one for each process"
        )
    return torch.device("cuda", number)


def describe(settings: RunSettings, dataset: Dataset, method: Method) -> dict[str, Any]:
    """Return what goes into ``params.json``: everything that a run's numbers depend on.

    With label noise that includes ``noise``, how much was wanted and how much came about.
    """
    device = device_of(settings.training)
    return {
        **settings.model_dump(mode="json"),
        "class_counts": dataset.class_counts.tolist(),
        "class_names": dataset.class_names,
        **({} if dataset.noise is None else {"noise": dataset.noise}),
        "encoder": {
            "name": settings.training.encoder,
            "parameters": sum(parameter.numel() for parameter in method.encoder.parameters()),
        },
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in ("ltnb", "numpy", "torch")},
        },
        "fingerprints": {"code": code_fingerprint(), "data": dataset.fingerprint},
    }


def code_fingerprint() -> str:
    """Return the SHA-256 of the package's files that decide a run's numbers, names included."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for entry in CODE:
        path = package / entry
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def train(settings: RunSettings, dataset: Dataset, output: Path, checkpoint: Path | None = None) -> runs.Run:
    """Train one method on one data set with one seed, and write the run into ``output``.

    The weights, the order of images, the augmentation and what a method draws each have a random stream of their own,
    all four from ``settings.seed``. What is reported is the last epoch's; the test accuracies in the history are
    only watched.

    With ``training.processes`` above 1 that many processes are started, which share each batch; in a process of a
    group that is there already, as ``torchrun`` starts them, they are those. The results are those of one process, but
    for rounding. Processes on several machines need ``output`` and ``checkpoint`` on a disk that all of them see.

    Args:
        settings: the run, as ``Params.run`` gives it.
        dataset: the prepared data set, on the CPU.
        output: the run's folder.
        checkpoint: a file outside ``output``, where the state is kept every ``checkpoint_every`` epochs. A killed run
            that is started again goes on from there and ends with exactly the numbers of an unbroken one. It is removed
            once the run is written.

    Raises:
        NonFiniteLossError: a term, or what the last step leaves, became infinite or NaN.
        ValueError: the device that is asked for is not there, or these classes do not allow what the method asks for.
    """
    processes = settings.training.processes
    if processes > 1 and not distributed.is_initialized():
        in_processes(processes, _train, settings, dataset, output, checkpoint)
    else:
        if processes != num_processes():
            raise ValueError(f"training.processes: {processes}, in a group of {num_processes()}; expected the same")
        _train(settings, dataset, output, checkpoint)
    return runs.read(output)


def _train(settings: RunSettings, dataset: Dataset, output: Path, checkpoint: Path | None) -> None:
    training = settings.training
    device = device_of(training)
    _make_repeatable(training, device)
    seeds = np.random.SeedSequence(settings.seed).generate_state(4).tolist()
    method = _new_method(settings, dataset, seeds[0]).to(device)
    if training.compiled:
        method.encoder.compile(dynamic=False)  # for each of an epoch's two sizes of batches
    generators = {
        "order": torch.Generator().manual_seed(seeds[1]),
        "augmentation": torch.Generator(device).manual_seed(seeds[2]),
        "method": torch.Generator(device).manual_seed(seeds[3]),
    }
    labels = dataset.train_labels.to(device)
    feeds = {"train": feed(dataset.train_images, device), "test": feed(dataset.test_images, device)}
    evaluation = Evaluation(dataset, feeds, device)
    stages = method.stages(training.stage)
    params = describe(settings, dataset, method)
    state = State(json.dumps(params, sort_keys=True), method, generators, stages, training)
    history = state.restore(checkpoint, device)
    moments = _moments(settings.method.snapshots, training.epochs)

    name = f"{settings.dataset_name} {settings.method_name} seed {settings.seed}"
    total = sum(stage.epochs for stage in stages)
    is_first = process_number() == 0
    bar = tqdm(
        range(len(history), total),
        desc=name,
        unit="epoch",
        initial=len(history),
        total=total,
        mininterval=1,
        ncols=100,
        disable=not is_first,
    )
    for epoch in bar:
        stage, epoch_of_stage = _place(stages, epoch)
        state.enter(stage)
        rate = learning_rate(epoch_of_stage, stages[stage])
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        method.train()
        terms: list[dict[str, Tensor]] = []
        order = batches(dataset.train_labels, training.batch_size, generators["order"], stages[stage].sampler)
        for images, of_batch in _epoch(order, feeds["train"], labels):
            views, targets = _draw(dataset, images, of_batch, method.views, generators["augmentation"])
            try:
                with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
                    losses = method.losses(views, targets, generators["method"])
            except ValueError as error:  # a projection too long for its type has no direction any more
                raise NonFiniteLossError(
                    f"{name}: step {len(terms) + 1} of epoch {epoch + 1}: {error} "
                    f"(is learning_rate {stages[stage].learning_rate:g} too large?)"
                ) from error
            state.step(losses["total"])
            method.after_step()
            terms.append({term: value.detach() for term, value in losses.items()})
        row = {
            "epoch": float(epoch + 1),
            "stage": float(stage + 1),
            "learning_rate": rate,
            **_mean_terms(terms, settings, epoch, stages[stage]),
        }
        method.after_epoch(epoch_of_stage + 1, stages[stage].epochs)
        last_of_stage = epoch_of_stage + 1 == stages[stage].epochs
        if (epoch + 1) % training.evaluate_every == 0 or last_of_stage:
            row |= evaluation.watch(method)
        history.append(row)
        if epoch + 1 in moments:
            state.snapshots[epoch + 1] = evaluation.projections(method)
        bar.set_postfix(loss=f"{row['total']:.3f}", refresh=False)
        if checkpoint and is_first and (epoch + 1) % training.checkpoint_every == 0:
            state.save(checkpoint, history)

    embeddings = evaluation.embeddings(method)
    for array, values in embeddings.items():  # the last step's weights have been through no loss yet
        if not np.isfinite(values).all():
            raise NonFiniteLossError(f"{name}: {array} is not finite after the last step of epoch {total}")
    for moment, arrays in state.snapshots.items():
        embeddings |= {f"{array}_epoch_{moment}": values for array, values in arrays.items()}
    metrics = evaluation.metrics(method, history)
    if is_first:
        runs.write(
            output,
            params=params,
            metrics=metrics,
            history=pd.DataFrame(history).astype({"epoch": int, "stage": int}),
            embeddings=embeddings,
            weights=method.state_dict(),
        )
        if checkpoint:
            checkpoint.unlink(missing_ok=True)
    wait_for_all()  # before anybody reads what the first one wrote


def _new_method(settings: RunSettings, dataset: Dataset, seed: int) -> Method:
    """Return the method with its first weights, which are the same in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return Method(
                settings.method,
                settings.training.encoder,
                dataset.train_images.shape[1],
                dataset.known_counts.tolist(),
                noise_rate=dataset.settings.average_noise_rate,
            )
        except ValueError as error:
            raise ValueError(f"methods.{settings.method_name}: {error}") from error


def _epoch(order: Sequence[Tensor], images: Feed, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield of each batch the images of this process's share and the labels of all its samples, on their device."""
    shares = [chosen[own_rows(len(chosen))] for chosen in order]
    of_epoch = labels[torch.cat(list(order)).to(labels.device)]  # at once: each copy to a device makes the host wait
    of_batches = torch.split(of_epoch, [len(chosen) for chosen in order])
    return zip(images.batches(shares), of_batches, strict=True)


def _draw(
    dataset: Dataset, images: Tensor, labels: Tensor, policies: Sequence[str], generator: Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """Return of each policy the views of this process's images, normalised, and the targets of the whole batch.

    Args:
        dataset: of the images.
        images: (n, C, H, W) uint8 of this process's share of a batch, on the device.
        labels: (N,) of the whole batch.
        policies: names of views.
        generator: on the device, in the same state in all processes.
    """
    total, rows, partners = len(labels), own_rows(len(labels)), None
    draws: Draws = generator
    if num_processes() > 1:
        draws = ShareOfDraws(generator, total=total, first=rows.start)
        if MIXED_VIEWS.keys() & set(policies):
            partners = (joined([images], total)[0], labels)
    size, mean, std = dataset.settings.image_size, dataset.mean.tolist(), dataset.std.tolist()
    views, targets = [], []
    for policy in policies:
        view, shown = draw(
            images, labels[rows], policy, draws, num_classes=dataset.num_classes, size=size, partners=partners
        )
        views.append(normalise(view.to(torch.get_default_dtype()), mean, std))
        targets.append(joined([shown], total)[0] if policy in MIXED_VIEWS else labels)
    return views, targets


def _place(stages: list[Stage], epoch: int) -> tuple[int, int]:
    """Return the stage that an epoch of the whole run belongs to, and the epoch within it, all from 0."""
    stage = 0
    while epoch >= stages[stage].epochs:
        epoch -= stages[stage].epochs
        stage += 1
    return stage, epoch


def _moments(snapshots: int, epochs: int) -> set[int]:
    """Return so many epochs from 1 to ``epochs``, evenly spaced, the last one included."""
    return {math.ceil(epochs * moment / snapshots) for moment in range(1, snapshots + 1)}


def _make_repeatable(training: TrainingSettings, device: torch.device) -> None:
    """Set what torch keeps for the whole process, whatever an earlier run of it has set."""
    torch.set_num_threads(training.threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # Must be in place before CUDA's first matrix product; without it deterministic mode refuses to run.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(training.deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # to find faults only
        torch.backends.cudnn.benchmark = not training.deterministic
        # Torch's default would round the factors of convolutions. The losses' products never are: at a temperature of
        # 0.1 ten bits of a cosine are too few.
        torch.backends.cudnn.allow_tf32 = training.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = False


def _mean_terms(terms: list[dict[str, Tensor]], settings: RunSettings, epoch: int, stage: Stage) -> dict[str, float]:
    """Return every term's mean over the epoch, having looked at each step: one transfer from the device."""
    names = list(terms[0])
    values = torch.stack([torch.stack([step[name].float() for name in names]) for step in terms]).cpu()
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        step, term = bad[0].tolist()
        raise NonFiniteLossError(
            f"{settings.dataset_name} {settings.method_name} seed {settings.seed}: the term {names[term]!r} is "
            f"{values[step, term].item()} in step {step + 1} of epoch {epoch + 1}; "
            f"expected a finite loss (is learning_rate {stage.learning_rate:g} too large?)"
        )
    return dict(zip(names, values.double().mean(dim=0).tolist(), strict=True))
