"""The training loop. It knows no method by name: a method says which views it takes and names its terms."""

import hashlib
import io
import json
import math
import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Generator, Tensor
from tqdm import tqdm

from ltnb import runs
from ltnb.data.augmentation import augment, normalise
from ltnb.data.long_tail import class_groups
from ltnb.data.prepare import Dataset
from ltnb.files import replacing
from ltnb.methods.assembly import Method
from ltnb.models.encoders import encoder
from ltnb.params import RunSettings, TrainingSettings

# What decides a run's numbers, relative to the package. `dvc.yaml` names the same files as dependencies.
CODE = (
    "data", "files.py", "inputs.py", "losses", "methods", "models", "params.py", "runs.py", "training.py",
    "workspace.py",
)  # fmt: skip

History = list[dict[str, float]]


class NonFiniteLossError(ArithmeticError):
    """A term of the loss became infinite or NaN; the message names method, term, epoch and step."""


def learning_rate(epoch: int, training: TrainingSettings) -> float:
    """Return η · (e+1)/w during w warm-up epochs, then η/2 · (1 + cos(π (e−w+1)/(E−w+1))).

    Args:
        epoch: e, from 0 to E − 1.
        training: η is ``learning_rate``, w ``warmup_epochs``, E ``epochs``.

    >>> [round(learning_rate(e, TrainingSettings(epochs=4, warmup_epochs=2)), 3) for e in range(4)]
    [0.05, 0.1, 0.075, 0.025]
    """
    warmup, epochs = training.warmup_epochs, training.epochs
    if epoch < warmup:
        return training.learning_rate * (epoch + 1) / warmup
    return training.learning_rate / 2 * (1 + math.cos(math.pi * (epoch - warmup + 1) / (epochs - warmup + 1)))


def batches(num_samples: int, batch_size: int, generator: Generator) -> tuple[Tensor, ...]:
    """Return one epoch: a random order of all samples, cut into the fewest batches of at most ``batch_size``.

    The sizes differ by at most one, so no batch is left with the few samples that batch normalisation cannot
    work on, and every sample is seen exactly once.
    """
    order = torch.randperm(num_samples, generator=generator)
    return order.tensor_split(math.ceil(num_samples / batch_size))


def accuracies(predictions: Tensor, labels: Tensor, class_counts: Tensor) -> dict[str, float]:
    """Return ``accuracy`` and ``accuracy_<group>`` for many, medium and few: shares of right predictions.

    The groups go by the class's number of *training* images; a group without classes is absent.
    """
    right = (predictions == labels).double()
    result = {"accuracy": right.mean().item()}
    for group, classes in class_groups(class_counts).items():
        result[f"accuracy_{group}"] = right[torch.isin(labels, classes)].mean().item()
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
    """Return what goes into ``params.json``: everything that a run's numbers depend on."""
    device = device_of(settings.training)
    return {
        **settings.model_dump(mode="json"),
        "class_counts": dataset.class_counts.tolist(),
        "class_names": dataset.class_names,
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

    The weights, the order of images and the augmentation each have a random stream of their own, all three
    from ``settings.seed``. What is reported is the last epoch's; the test accuracies in the history are
    only watched.

    Args:
        settings: the run, as ``Params.run`` gives it.
        dataset: the prepared data set, on the CPU.
        output: the run's folder.
        checkpoint: a file outside ``output``, where the state is kept every ``checkpoint_every`` epochs. A
        killed
            run that is started again goes on from there and ends with exactly the numbers of an unbroken one.
            It is removed once the run is written.

    Raises:
        NonFiniteLossError: a term, or what the last step leaves, became infinite or NaN.
        ValueError: the device that is asked for is not there.
    """
    training = settings.training
    device = device_of(training)
    _make_repeatable(training, device)
    seeds = np.random.SeedSequence(settings.seed).generate_state(3).tolist()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds[0])
        channels = dataset.train_images.shape[1]
        method = Method(settings.method, encoder(training.encoder, channels), dataset.class_counts.tolist())
    method.to(device)
    optimizer = torch.optim.SGD(
        method.parameters(),
        lr=training.learning_rate,
        momentum=training.momentum,
        weight_decay=training.weight_decay,
        fused=True,
    )
    order = torch.Generator().manual_seed(seeds[1])
    augmentation = torch.Generator(device).manual_seed(seeds[2])
    images, labels = dataset.train_images.to(device), dataset.train_labels.to(device)
    evaluation = _Evaluation(dataset, device)

    params = describe(settings, dataset, method)
    state = _State(
        json.dumps(params, sort_keys=True), method, optimizer, {"order": order, "augmentation": augmentation}
    )
    history = state.restore(checkpoint, device)

    epochs = range(len(history), training.epochs)
    name = f"{settings.dataset_name} {settings.method_name} seed {settings.seed}"
    bar = tqdm(epochs, desc=name, unit="epoch", initial=len(history), total=training.epochs, mininterval=1, ncols=100)
    for epoch in bar:
        rate = learning_rate(epoch, training)
        for group in optimizer.param_groups:
            group["lr"] = rate
        method.train()
        terms: list[dict[str, Tensor]] = []
        for batch in batches(len(labels), training.batch_size, order):
            chosen = batch.to(device)
            views = [
                normalise(augment(images[chosen], view, augmentation), dataset.mean, dataset.std)
                for view in method.views
            ]
            losses = method.losses(views, labels[chosen])
            optimizer.zero_grad()
            torch.autograd.backward(losses["total"])
            optimizer.step()
            terms.append({name: term.detach() for name, term in losses.items()})
        row = {"epoch": float(epoch + 1), "learning_rate": rate, **_mean_terms(terms, settings, epoch)}
        if (epoch + 1) % training.evaluate_every == 0 or epoch + 1 == training.epochs:
            row |= evaluation.accuracies(method)
        history.append(row)
        bar.set_postfix(loss=f"{row['total']:.3f}", refresh=False)
        if checkpoint and (epoch + 1) % training.checkpoint_every == 0:
            state.save(checkpoint, history)

    embeddings = evaluation.embeddings(method)
    for array, values in embeddings.items():  # the last step's weights have been through no loss yet
        if not np.isfinite(values).all():
            raise NonFiniteLossError(f"{name}: {array} is not finite after the last step of epoch {training.epochs}")
    runs.write(
        output,
        params=params,
        metrics=evaluation.metrics(method, history),
        history=pd.DataFrame(history).astype({"epoch": int}),
        embeddings=embeddings,
        weights=method.state_dict(),
    )
    if checkpoint:
        checkpoint.unlink(missing_ok=True)
    return runs.read(output)


def _make_repeatable(training: TrainingSettings, device: torch.device) -> None:
    torch.set_num_threads(training.threads)
    if device.type == "cuda":
        # Must be in place before CUDA's first matrix product; without it deterministic mode refuses to run.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _mean_terms(terms: list[dict[str, Tensor]], settings: RunSettings, epoch: int) -> dict[str, float]:
    """Return every term's mean over the epoch, having looked at each step: one transfer from the device."""
    names = list(terms[0])
    values = torch.stack([torch.stack([step[name].float() for name in names]) for step in terms]).cpu()
    bad = (~values.isfinite()).nonzero()
    if len(bad):
        step, term = bad[0].tolist()
        raise NonFiniteLossError(
            f"{settings.dataset_name} {settings.method_name} seed {settings.seed}: the term {names[term]!r} is "
            f"{values[step, term].item()} in step {step + 1} of epoch {epoch + 1}; "
            f"expected a finite loss (is learning_rate {settings.training.learning_rate} too large?)"
        )
    return dict(zip(names, values.double().mean(dim=0).tolist(), strict=True))


class _State:
    """What a checkpoint holds: everything that the rest of a run depends on."""

    def __init__(
        self,
        identity: str,
        method: Method,
        optimizer: torch.optim.Optimizer,
        generators: dict[str, Generator],
    ) -> None:
        self.identity = identity
        self.method = method
        self.optimizer = optimizer
        self.generators = generators

    def save(self, file: Path, history: History) -> None:
        content = io.BytesIO()
        torch.save(
            {
                "identity": self.identity,
                "method": self.method.state_dict(),
                "optimizer": self.optimizer.state_dict(),
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
        self.method.load_state_dict(saved["method"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for name, generator in self.generators.items():
            generator.set_state(saved["generators"][name].cpu())
        history: History = saved["history"]
        print(f"going on after epoch {len(history)}, from {file}", file=sys.stderr)
        return history


class _Evaluation:
    """The images without augmentation, and what a method makes of them."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self.dataset = dataset
        untouched = Generator(device)
        self.images = {
            part: normalise(augment(images.to(device), "none", untouched), dataset.mean, dataset.std)
            for part, images in (("train", dataset.train_images), ("test", dataset.test_images))
        }

    @torch.no_grad()
    def _logits(self, method: Method, part: str) -> Tensor:
        method.eval()
        return torch.cat([method.logits(images) for images in torch.split(self.images[part], 500)]).cpu()

    def accuracies(self, method: Method) -> dict[str, float]:
        """Return ``train_accuracy`` and, of the test images, ``test_accuracy`` and its groups."""
        dataset = self.dataset
        train = (self._logits(method, "train").argmax(dim=1) == dataset.train_labels).double().mean().item()
        predictions = self._logits(method, "test").argmax(dim=1)
        test = accuracies(predictions, dataset.test_labels, dataset.class_counts)
        return {"train_accuracy": train, **{f"test_{name}": value for name, value in test.items()}}

    def metrics(self, method: Method, history: History) -> dict[str, float]:
        """Return ``metrics.json``: test accuracies (all, by group, by class), and how training ended."""
        dataset, last = self.dataset, history[-1]
        predictions = self._logits(method, "test").argmax(dim=1)
        result = accuracies(predictions, dataset.test_labels, dataset.class_counts)
        for k in range(dataset.num_classes):
            of_class = dataset.test_labels == k
            result[f"accuracy_class_{k}"] = (predictions[of_class] == k).double().mean().item()
        return {**result, "train_accuracy": last["train_accuracy"], "train_loss": last["total"]}

    @torch.no_grad()
    def embeddings(self, method: Method) -> dict[str, np.ndarray]:
        """Return the arrays of ``embeddings.npz``; those that the method does not have are left out."""
        method.eval()
        dataset = self.dataset
        arrays: dict[str, Tensor | None] = {
            "train_labels": dataset.train_labels,
            "test_labels": dataset.test_labels,
            "test_logits": self._logits(method, "test"),
            "class_counts": dataset.class_counts,
            "classifier_weight": method.classifier.weight,
            "prototypes": method.prototypes(),
        }
        for part, images in self.images.items():
            embedded = [method.embed(batch) for batch in torch.split(images, 500)]
            arrays[f"{part}_features"] = torch.cat([batch.features for batch in embedded])
            if method.projector is not None:
                arrays[f"{part}_projections"] = torch.cat(
                    [b.projections for b in embedded if b.projections is not None]
                )
        return {name: array.numpy(force=True) for name, array in arrays.items() if array is not None}
