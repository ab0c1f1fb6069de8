"""The training loop. It knows no method by name: a method says which views it takes and names its terms."""

import hashlib
import io
import json
import math
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Generator, Tensor
from tqdm import tqdm

from ltnb import runs
from ltnb.data.augmentation import augment, normalise
from ltnb.data.feeding import feed
from ltnb.data.long_tail import class_groups
from ltnb.data.prepare import Dataset
from ltnb.data.views import draw
from ltnb.files import replacing
from ltnb.methods.assembly import Method
from ltnb.methods.stages import Schedule, Stage
from ltnb.params import RunSettings, TrainingSettings

# What decides a run's numbers, relative to the package. `dvc.yaml` names the same files as dependencies.
CODE = (
    "data", "files.py", "geometry", "inputs.py", "losses", "methods", "models", "params.py", "runs.py", "training.py",
    "workspace.py",
)  # fmt: skip

History = list[dict[str, float]]


class NonFiniteLossError(ArithmeticError):
    """A term of the loss, or what it is of, is no longer finite; the message names method, term, epoch and step."""


def learning_rate(epoch: int, schedule: Schedule) -> float:
    """Return η · (e+1)/w during w warm-up epochs, then η/2 · (1 + cos(π (e−w+1)/(E−w+1))).

    Args:
        epoch: e, from 0 to E − 1.
        schedule: η is ``learning_rate``, w ``warmup_epochs``, E ``epochs``, as training settings or a stage have them.

    >>> [round(learning_rate(e, TrainingSettings(epochs=4, warmup_epochs=2)), 3) for e in range(4)]
    [0.05, 0.1, 0.075, 0.025]
    """
    warmup, epochs = schedule.warmup_epochs, schedule.epochs
    if epoch < warmup:
        return schedule.learning_rate * (epoch + 1) / warmup
    return schedule.learning_rate / 2 * (1 + math.cos(math.pi * (epoch - warmup + 1) / (epochs - warmup + 1)))


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


def accuracies(predictions: Tensor, labels: Tensor, class_counts: Tensor) -> dict[str, float]:
    """Return ``accuracy`` and ``accuracy_<group>`` for many, medium and few: shares of right predictions.

    The groups go by the class's number of *training* images, as the experiment cut its tail; a group without classes is
    absent.
    """
    right = (predictions == labels).double()
    result = {"accuracy": right.mean().item()}
    for group, classes in class_groups(class_counts).items():
        result[f"accuracy_{group}"] = right[torch.isin(labels, classes)].mean().item()
    return result


def memorisation(predictions: Tensor, labels: Tensor, clean_labels: Tensor) -> dict[str, float]:
    """Return what a network makes of training images some of which have a wrong label.

    ``train_accuracy_clean`` is the share of all images that are predicted as their true class. Of the images with a
    wrong label, ``memorised`` is the share that are predicted as that label and ``recovered`` the share that are
    predicted as their true class; both are absent where no label is wrong.
    """
    wrong = labels != clean_labels
    recognised = (predictions == clean_labels).double()
    result = {"train_accuracy_clean": recognised.mean().item()}
    if wrong.any():
        result["memorised"] = (predictions == labels)[wrong].double().mean().item()
        result["recovered"] = recognised[wrong].mean().item()
    return result


def device_of(training: TrainingSettings) -> torch.device:
    """Return the device that ``training.device`` asks for; ``auto`` takes a GPU where there is one.

    Raises:
        ValueError: ``cuda`` is asked for and this machine has none.
    """
    available = torch.cuda.is_available()
    if training.device == "cuda" and not available:
        raise ValueError("training.device: 'cuda' is not available on this machine; expected 'auto' or 'cpu'")
    return torch.device("cuda" if available and training.device != "cpu" else "cpu")


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
    training = settings.training
    device = device_of(training)
    _make_repeatable(training, device)
    seeds = np.random.SeedSequence(settings.seed).generate_state(4).tolist()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds[0])
        channels = dataset.train_images.shape[1]
        try:
            method = Method(
                settings.method,
                training.encoder,
                channels,
                dataset.known_counts.tolist(),
                noise_rate=dataset.settings.average_noise_rate,
            )
        except ValueError as error:
            raise ValueError(f"methods.{settings.method_name}: {error}") from error
    method.to(device)
    if training.compiled:
        method.encoder.compile()
    generators = {
        "order": torch.Generator().manual_seed(seeds[1]),
        "augmentation": torch.Generator(device).manual_seed(seeds[2]),
        "method": torch.Generator(device).manual_seed(seeds[3]),
    }
    images, labels = feed(dataset.train_images, device), dataset.train_labels.to(device)
    evaluation = _Evaluation(dataset, device)
    stages = method.stages(
        Stage("everything", training.epochs, training.learning_rate, training.warmup_epochs, training.weight_decay)
    )
    params = describe(settings, dataset, method)
    state = _State(json.dumps(params, sort_keys=True), method, generators, stages, training.momentum)
    history = state.restore(checkpoint, device)
    moments = _moments(settings.method.snapshots, training.epochs)

    name = f"{settings.dataset_name} {settings.method_name} seed {settings.seed}"
    total = sum(stage.epochs for stage in stages)
    epochs = range(len(history), total)
    bar = tqdm(epochs, desc=name, unit="epoch", initial=len(history), total=total, mininterval=1, ncols=100)
    for epoch in bar:
        stage, epoch_of_stage = _place(stages, epoch)
        state.enter(stage)
        rate = learning_rate(epoch_of_stage, stages[stage])
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        method.train()
        terms: list[dict[str, Tensor]] = []
        order = batches(dataset.train_labels, training.batch_size, generators["order"], stages[stage].sampler)
        for batch, pixels in zip(order, images.batches(order), strict=True):
            chosen = batch.to(device)
            drawn = [
                draw(pixels, labels[chosen], view, generators["augmentation"], num_classes=dataset.num_classes)
                for view in method.views
            ]
            views = [normalise(view, dataset.mean, dataset.std) for view, _ in drawn]
            try:
                with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16"):
                    losses = method.losses(views, [targets for _, targets in drawn], generators["method"])
            except ValueError as error:  # a projection too long for its type has no direction any more
                raise NonFiniteLossError(
                    f"{name}: step {len(terms) + 1} of epoch {epoch + 1}: {error} "
                    f"(is learning_rate {stages[stage].learning_rate:g} too large?)"
                ) from error
            state.optimizer.zero_grad()
            torch.autograd.backward(losses["total"])
            state.optimizer.step()
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
        if checkpoint and (epoch + 1) % training.checkpoint_every == 0:
            state.save(checkpoint, history)

    embeddings = evaluation.embeddings(method)
    for array, values in embeddings.items():  # the last step's weights have been through no loss yet
        if not np.isfinite(values).all():
            raise NonFiniteLossError(f"{name}: {array} is not finite after the last step of epoch {total}")
    for moment, arrays in state.snapshots.items():
        embeddings |= {f"{array}_epoch_{moment}": values for array, values in arrays.items()}
    runs.write(
        output,
        params=params,
        metrics=evaluation.metrics(method, history),
        history=pd.DataFrame(history).astype({"epoch": int, "stage": int}),
        embeddings=embeddings,
        weights=method.state_dict(),
    )
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
    return runs.read(output)


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
    torch.set_num_threads(training.threads)
    if device.type == "cuda":
        # Must be in place before CUDA's first matrix product; without it deterministic mode refuses to run.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


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


class _State:
    """What a checkpoint holds: everything that the rest of a run depends on."""

    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        identity: str,
        method: Method,
        generators: dict[str, Generator],
        stages: list[Stage],
        momentum: float,
    ) -> None:
        self.identity = identity
        self.method = method
        self.generators = generators
        self.stages = stages
        self.momentum = momentum
        self.snapshots: dict[int, dict[str, np.ndarray]] = {}
        self.stage = -1
        self.enter(0)

    def enter(self, stage: int) -> None:
        """Go over to a stage, with an optimiser of its own, unless it is the current one."""
        if stage == self.stage:
            return
        self.stage = stage
        self.optimizer = torch.optim.SGD(
            self.method.begin(stage),
            lr=self.stages[stage].learning_rate,
            momentum=self.momentum,
            weight_decay=self.stages[stage].weight_decay,
            fused=True,
        )

    def save(self, file: Path, history: History) -> None:
        content = io.BytesIO()
        torch.save(
            {
                "identity": self.identity,
                "method": self.method.state_dict(),
                "stage": self.stage,
                "optimizer": self.optimizer.state_dict(),
                "snapshots": {
                    moment: {name: torch.from_numpy(array) for name, array in arrays.items()}
                    for moment, arrays in self.snapshots.items()
                },
                "generators": {name: generator.get_state() for name, generator in self.generators.items()},
                "history": history,
            },
            content,
        )
        with replacing(file) as temporary:
            temporary.write_bytes(hashlib.sha256(content.getbuffer()).digest() + content.getbuffer())

    def restore(self, file: Path | None, device: torch.device) -> History:
        """Load ``file`` if it is there and belongs to this run; return the history up to it."""
        if file is None:
            return []
        for leftover in file.parent.glob(f".{file.name}.*"):  # of a kill while a checkpoint was written
            shutil.rmtree(leftover)
        if not file.is_file():
            return []
        digest, content = file.read_bytes()[:32], file.read_bytes()[32:]
        if hashlib.sha256(content).digest() != digest:
            print(f"{file} is damaged; starting from the first epoch", file=sys.stderr)
            return []
        saved = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        if saved["identity"] != self.identity:
            print(
                f"{file} belongs to other settings, code or data; starting from the first epoch",
                file=sys.stderr,
            )
            return []
        self.enter(saved["stage"])
        self.method.load_state_dict(saved["method"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.snapshots = {
            moment: {name: array.numpy(force=True) for name, array in arrays.items()}
            for moment, arrays in saved["snapshots"].items()
        }
        for name, generator in self.generators.items():
            generator.set_state(saved["generators"][name].cpu())
        history: History = saved["history"]
        print(f"going on after epoch {len(history)}, from {file}", file=sys.stderr)
        return history


class _Evaluation:
    """The images without augmentation, and what a method makes of them."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self.dataset = dataset
        self.untouched = Generator(device)
        self.feeds = {
            part: feed(images, device)
            for part, images in (("train", dataset.train_images), ("test", dataset.test_images))
        }

    def batches(self, part: str) -> Iterator[Tensor]:
        rows = torch.arange(len(self.dataset.train_labels if part == "train" else self.dataset.test_labels))
        for images in self.feeds[part].batches(torch.split(rows, 500)):
            yield normalise(augment(images, "none", self.untouched), self.dataset.mean, self.dataset.std)

    @torch.no_grad()
    def _logits(self, method: Method, part: str) -> Tensor:
        method.eval()
        return torch.cat([method.logits(images) for images in self.batches(part)]).cpu()

    def watch(self, method: Method) -> dict[str, float]:
        """Return ``train_accuracy``; of the test images ``test_accuracy`` and its groups; and the classifier's shape.

        That is the mean length of its vectors and, in degrees, the smallest angle between two of them. With wrong
        training labels ``train_accuracy`` goes by those, and what `memorisation` says stands beside it.
        """
        dataset = self.dataset
        predictions = self._logits(method, "train").argmax(dim=1)
        train = {"train_accuracy": (predictions == dataset.train_labels).double().mean().item()}
        if dataset.train_clean_labels is not None:
            train |= memorisation(predictions, dataset.train_labels, dataset.train_clean_labels)
        predictions = self._logits(method, "test").argmax(dim=1)
        test = accuracies(predictions, dataset.test_labels, dataset.class_counts)
        weight = method.classifier.weight.detach().double().cpu()
        directions = torch.nn.functional.normalize(weight, dim=1)
        largest = (directions @ directions.T).fill_diagonal_(-1).amax().clamp(-1, 1)
        return {
            **train,
            **{f"test_{name}": value for name, value in test.items()},
            "classifier_norm": weight.norm(dim=1).mean().item(),
            "classifier_smallest_angle": largest.arccos().rad2deg().item(),
        }

    def metrics(self, method: Method, history: History) -> dict[str, float]:
        """Return ``metrics.json``: test accuracies (all, by group, by class), and how training ended.

        That is the loss and what `watch` says of the training images.
        After a second stage the first one's accuracies stand beside it, as ``first_stage_accuracy`` and its groups.
        """
        dataset, last = self.dataset, history[-1]
        predictions = self._logits(method, "test").argmax(dim=1)
        result = accuracies(predictions, dataset.test_labels, dataset.class_counts)
        for k in range(dataset.num_classes):
            of_class = dataset.test_labels == k
            result[f"accuracy_class_{k}"] = (predictions[of_class] == k).double().mean().item()
        if last["stage"] > 1:
            first = [row for row in history if row["stage"] == 1][-1]
            result |= {
                name.replace("test_", "first_stage_"): value
                for name, value in first.items()
                if name.startswith("test_accuracy")
            }
        watched = ("train_accuracy", "train_accuracy_clean", "memorised", "recovered")
        return {**result, **{name: last[name] for name in watched if name in last}, "train_loss": last["total"]}

    @torch.no_grad()
    def projections(self, method: Method) -> dict[str, np.ndarray]:
        """Return where the images lie at a moment of training: projections, or features of a method without them."""
        method.eval()
        arrays = {}
        for part in self.feeds:
            embedded = [method.embed(batch) for batch in self.batches(part)]
            kind = "features" if embedded[0].projections is None else "projections"
            rows = torch.cat([batch.features if batch.projections is None else batch.projections for batch in embedded])
            arrays[f"{part}_{kind}"] = rows.numpy(force=True)
        return arrays

    @torch.no_grad()
    def embeddings(self, method: Method) -> dict[str, np.ndarray]:
        """Return the arrays of ``embeddings.npz``; those that the method does not have are left out."""
        method.eval()
        dataset = self.dataset
        arrays: dict[str, Tensor | None] = {
            "train_labels": dataset.train_labels,
            "train_clean_labels": dataset.train_clean_labels,
            "test_labels": dataset.test_labels,
            "test_logits": self._logits(method, "test"),
            "class_counts": dataset.class_counts,
            "classifier_weight": method.classifier.weight,
            "prototypes": method.prototypes(),
        }
        for part in self.feeds:
            embedded = [method.embed(batch) for batch in self.batches(part)]
            arrays[f"{part}_features"] = torch.cat([batch.features for batch in embedded])
            if method.contrast is not None:
                arrays[f"{part}_projections"] = torch.cat(
                    [b.projections for b in embedded if b.projections is not None]
                )
        return {name: array.numpy(force=True) for name, array in arrays.items() if array is not None}
