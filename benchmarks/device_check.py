"""A device against the CPU in under five minutes: every loss, every view, a step of BCL; then what BCL's epochs cost.

    PYTHONPATH=. python benchmarks/device_check.py [--device cuda|cpu] [--quick]

It needs torch and NumPy, nothing else of what the package needs: BCL is put together here, without its settings.
Random inputs are drawn on the CPU and moved. Operations are deterministic on an accelerator, as they are in training:
one that cannot be is an error here, and the check that met it fails.

- Losses: values and gradients of float32 inputs, and of bfloat16 inputs under autocast, against those that the CPU
  computes of the same inputs in float64. The difference is relative to the largest value of the same tensor.
- Views: whatever a view draws is drawn on the CPU and moved, so that both devices make the same of the same images.
  Rounding decides on which side of a threshold a pixel falls, where a view has thresholds (solarise, equalise, the edge
  of a box); so what counts is the share of values that are off by more than 10⁻⁴. Beside it images per second, with
  the device's own random numbers.
- BCL: the loss and the gradients of one step of the same views, against float64 on the CPU, by the length of the
  difference; then epochs on data of CIFAR-100-LT's shape, 10,847 random images, in batches of 256. An epoch's time is
  the second one's, the first one compiles; 200 epochs are projected from it. float32 is as torch has it by default,
  with TF32 in convolutions; only the step is without.

The last line says OK or FAILED, and so does the exit status. With --quick there is little of everything, for a test of
this file; the compiler then only traces.
"""

import argparse
import copy
import inspect
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ltnb import losses
from ltnb.data.augmentation import VIEWS, normalise
from ltnb.data.profiles import long_tail_counts
from ltnb.data.views import MIXED_VIEWS, draw
from ltnb.models.encoders import encoder

# Ten times what a CPU is off by in float32, and one rounding of a gradient to bfloat16 (2⁻⁸).
LOSS_TOLERANCE = {torch.float32: 5e-6, torch.bfloat16: 1e-2}
# Of a step's loss and of its gradients, where 32 layers amplify the rounding: a CPU is off by 0.01 and 0.16.
STEP_TOLERANCE = {torch.float32: (1e-5, 0.05), torch.bfloat16: (1e-2, 0.3)}
# A last bit that differs in the images moves 4 · 10⁻⁵ of the values of "auto", and hardly any of the others.
VALUE_TOLERANCE, SHARE_TOLERANCE = 1e-4, 1e-3
# Of the mean loss of the first epoch, between ways to train that differ in rounding alone.
MEAN_LOSS_TOLERANCE = 0.05

MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
BCL_VIEWS = ("auto", "sim-flip", "sim-flip")
EPOCHS_IN_ALL = 200
AIM = "the aim on one H200 is 120 s"


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    encoder: str = "resnet32"
    largest_class: int = 500
    batch: int = 256
    step_batch: int = 64  # of the step that is compared with the CPU's
    view_repeats: int = 20
    compiler: str = "inductor"


FULL = Size()
QUICK = Size(encoder="resnet8", largest_class=9, batch=16, step_batch=8, view_repeats=1, compiler="eager")


@dataclass(frozen=True)
class Case:
    """A call of a loss: `inputs` of `loss_inputs` by the parameter's name, or ``parameter=input``, and the rest."""

    loss: str
    inputs: str
    options: Mapping[str, Any] = field(default_factory=dict)


WARM, SHARP = {"temperature": 0.5}, {"temperature": 0.1}
CASES = (
    Case("balanced_contrastive", "z y prototypes", SHARP),
    Case("balanced_contrastive", "z y prototypes", {**SHARP, "averaging": "none"}),
    Case("balanced_contrastive", "z y prototypes", {**SHARP, "averaging": "L2"}),
    Case("balanced_contrastive", "z y prototypes", {**SHARP, "averaging": "L3"}),
    Case("balanced_contrastive", "z y prototypes", {**SHARP, "anchor_weighting": "class"}),
    Case("balanced_contrastive", "z y", SHARP),
    Case("balanced_contrastive", "z y", {**SHARP, "averaging": "L2", "anchor_weighting": "class"}),
    Case("bce_contrastive", "z y memory", WARM),
    Case("bce_contrastive", "z y=soft memory seen", WARM),
    Case("bce_joint", "features y weight bias"),
    Case("bce_joint", "features y=soft weight bias generator", {"negative_rate": 0.5}),
    Case("bce_joint", "features y weight bias generator", {"negative_rate": 0.5, "negatives": "batch"}),
    Case("bce_uniform", "weight"),
    Case("ce_contrastive", "z y memory", WARM),
    Case("ce_contrastive", "z y=soft memory seen", WARM),
    Case("ce_uniform", "weight"),
    Case("class_balanced_weights", "class_counts", {"beta": 0.9999}),
    Case("class_temperatures", "class_counts", {"lowest": 0.1, "highest": 1.0}),
    Case("decoupled_contrastive", "z y", {**SHARP, "own_weight": 0.1}),
    Case("dot_regression", "features=z y weight=prototypes"),
    Case("dot_regression", "features=z y=soft weight=prototypes"),
    Case("draw_positives", "y key_labels generator", {"number": 3}),
    Case("expected_logits", "z naturals", SHARP),
    Case("focal", "logits y", {"gamma": 0.5}),
    Case("gce", "logits y", {"q": 0.7}),
    Case("k_positive_contrastive", "z y keys key_labels positives", SHARP),
    Case("ldam_margins", "class_counts"),
    Case("logit_adjusted_cross_entropy", "logits y class_counts"),
    Case("logit_adjusted_cross_entropy", "logits y=soft class_counts", {"tau": 1.5}),
    Case("mae", "logits y"),
    Case("margin_cross_entropy", "cosines y margins", {"scale": 10.0}),
    Case("margin_cross_entropy", "cosines y", {"margins": 0.2, "scale": 10.0}),
    Case("mse_contrastive", "z y memory"),
    Case("mse_contrastive", "z y=soft memory seen"),
    Case("mse_joint", "features y weight bias"),
    Case("mse_joint", "features y=soft weight bias"),
    Case("mse_uniform", "weight"),
    Case("nce", "logits y"),
    Case("nfl", "logits y", {"gamma": 0.5}),
    Case("nsl", "logits y"),
    Case("parametric_contrastive", "z y keys key_labels scores=logits class_counts", {**SHARP, "sample_weight": 0.1}),
    Case("probabilistic_contrastive", "z y naturals class_counts", SHARP),
    Case("probabilistic_contrastive", "z y naturals class_counts seen", SHARP),
    Case("rce", "logits y"),
    Case("running_class_means", "means counts=class_counts z y"),
    Case("sce", "logits y", {"alpha": 0.5, "beta": 1.0}),
    Case("smoothed_labels", "y factors", {"num_classes": 10}),
    Case("smoothing_factors", "class_counts", {"head": 0.4, "tail": 0.1}),
    Case("supervised_contrastive", "z y", SHARP),
    Case("supervised_contrastive", "z y temperature=temperatures keys key_labels"),
    Case("targeted_contrastive", "z y keys key_labels positives targets=prototypes assignment", {**SHARP, "weight": 2}),
    Case("valid_anchors", "y key_labels"),
    Case("valid_anchors", "y", {"prototypes": True}),
    Case("vmf_naturals", "means"),
    Case("weighted_mean", "losses y weights"),
    Case("weighted_mean", "losses y=soft weights"),
)

# Inputs that a network computes, and that have a gradient.
COMPUTED = frozenset(
    "bias cosines features keys logits losses means memory naturals prototypes weight z".split()  # noqa: SIM905
)


def loss_inputs(seed: int) -> dict[str, Tensor]:
    """Return what the losses are given, on the CPU: two views of 32 images, 10 classes, unit rows of length 16."""
    generator = Generator().manual_seed(seed)
    images, further, num_classes, dim = 32, 48, 10, 16

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def unit(*shape: int) -> Tensor:
        return F.normalize(normal(*shape), dim=1)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    # The last class is in no image.
    y = torch.randint(num_classes - 1, (images,), generator=generator).repeat(2)
    key_labels = torch.cat([y, torch.randint(num_classes, (further,), generator=generator)])
    share = uniform(len(y), 1)
    one_hot = F.one_hot(y, num_classes).float()
    means = 0.7 * unit(num_classes, dim)
    return {
        "assignment": torch.randperm(num_classes, generator=generator),
        "bias": normal(num_classes),
        "class_counts": torch.tensor(long_tail_counts(100, 50, num_classes)),
        "cosines": 2 * uniform(len(y), num_classes) - 1,
        "factors": uniform(num_classes) / 2,
        "features": normal(len(y), dim),
        "key_labels": key_labels,
        "keys": unit(len(key_labels), dim),
        "logits": 3 * normal(len(y), num_classes),
        "losses": uniform(len(y)),
        "margins": uniform(num_classes) / 2,
        "means": means,
        "memory": normal(num_classes, dim),
        "naturals": losses.vmf_naturals(means),
        "positives": losses.draw_positives(y, key_labels, number=3, generator=generator),
        "prototypes": unit(num_classes, dim),
        "seen": torch.arange(num_classes) % 4 > 0,
        "soft": share * one_hot + (1 - share) * one_hot.roll(5, dims=0),
        "temperatures": 0.1 + uniform(len(y)),
        "weight": normal(num_classes, dim),
        "weights": 0.5 + uniform(num_classes),
        "y": y,
        "z": unit(len(y), dim),
    }


class DrawnOnCpu(TorchFunctionMode):
    """Random numbers come from a generator on the CPU and are moved to where they are asked for."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Draw on the CPU."""
        kwargs = dict(kwargs or {})
        if function in (torch.rand, torch.randint, torch.randn):
            device = kwargs.pop("device", None)
            return function(*args, **kwargs).to(device)
        return function(*args, **kwargs)


def outcome(case: Case, device: torch.device, dtype: torch.dtype, *, exact: bool = False) -> list[Tensor]:
    """Return the values of a loss and the gradients of its inputs; of losses of samples, every sample's.

    With `exact`, inputs are rounded to `dtype` all the same, but go on in float64.
    """
    inputs = loss_inputs(seed=0)
    arguments: dict[str, Any] = dict(case.options)
    leaves: list[Tensor] = []
    for name in case.inputs.split():
        parameter, _, given = name.partition("=")
        given = given or parameter
        if given == "generator":
            arguments[parameter] = Generator().manual_seed(1)
            continue
        value = inputs[given].to(device)
        if given in COMPUTED:
            value = value.to(dtype)
            value = (value.double() if exact else value).requires_grad_()
            leaves.append(value)
        arguments[parameter] = value
    function = getattr(losses, case.loss)
    if "reduction" in inspect.signature(function).parameters:
        arguments["reduction"] = "none"
    lowered = dtype == torch.bfloat16 and not exact
    with DrawnOnCpu(), torch.autocast(device.type, torch.bfloat16, enabled=lowered):
        result = function(**arguments)
    results = list(result) if isinstance(result, tuple) else [result]
    gradients: list[Tensor] = []
    if results[0].requires_grad:
        weights = torch.linspace(0.5, 1.5, results[0].numel(), device=device).view_as(results[0])
        gradients = list(torch.autograd.grad((weights * results[0]).sum(), leaves))
    return [tensor.detach() for tensor in (*results, *gradients)]


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest value that is expected; not a number if there is one."""
    found, expected = found.cpu().double(), expected.cpu().double()
    scale = expected.abs().max().item()
    return (found - expected).abs().max().item() / (scale or 1)


class Report:
    """One line a check, and what failed."""

    def __init__(self) -> None:
        """Start without a failure."""
        self.failed: list[str] = []

    def check(self, name: str, measure: Callable[[], tuple[str, bool]]) -> None:
        """Print what `measure` says, and remember the name if it is not right; an error is not right either."""
        try:
            text, right = measure()
        except Exception as error:  # the other checks are worth their time on a device all the same
            text, right = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", False
        print(f"{name:<30}{text}  {'OK' if right else 'FAILED'}", flush=True)
        if not right:
            self.failed.append(name)


def check_loss(name: str, device: torch.device) -> tuple[str, bool]:
    """Compare all cases of a loss in both types."""
    texts, right = [], True
    for dtype, tolerance in LOSS_TOLERANCE.items():
        worst = 0.0
        for case in CASES:
            if case.loss != name:
                continue
            found, expected = outcome(case, device, dtype), outcome(case, torch.device("cpu"), dtype, exact=True)
            off = [difference(*pair) for pair in zip(found, expected, strict=True)]
            right &= all(value <= tolerance for value in off)  # asked this way round, NaN is wrong
            worst = max([worst, *off], key=lambda value: math.inf if math.isnan(value) else value)
        texts.append(f"{worst:>10.1e}")
    return "".join(texts), right


def random_images(number: int) -> Tensor:
    """Smooth colours with noise on them: (N, 3, 32, 32) uint8."""
    generator = Generator().manual_seed(0)
    smooth = F.interpolate(torch.rand(number, 3, 4, 4, generator=generator), size=32, mode="bilinear")
    noise = torch.rand(number, 3, 32, 32, generator=generator)
    return ((0.8 * smooth + 0.2 * noise) * 255).round().to(torch.uint8)


def check_view(policy: str, device: torch.device, size: Size) -> tuple[str, bool]:
    """Compare a view of the same draws, and measure it with the device's own."""
    images, labels = random_images(size.batch), torch.arange(size.batch) % 10

    def same_draws(on: torch.device) -> list[Tensor]:
        with DrawnOnCpu():
            return list(draw(images.to(on), labels.to(on), policy, Generator().manual_seed(1), num_classes=10))

    share = 0.0
    for found, expected in zip(same_draws(device), same_draws(torch.device("cpu")), strict=True):
        wrong = ~((found.cpu().double() - expected.double()).abs() <= VALUE_TOLERANCE)
        share = max(share, wrong.double().mean().item())

    moved, targets, own = images.to(device), labels.to(device), Generator(device).manual_seed(0)
    best = math.inf
    for _ in range(3):
        wait(device)
        start = time.perf_counter()
        for _ in range(size.view_repeats):
            draw(moved, targets, policy, own, num_classes=10)
        wait(device)
        best = min(best, time.perf_counter() - start)
    return f"{share:>10.1e}{size.batch * size.view_repeats / best:>16,.0f} images/s", share <= SHARE_TOLERANCE


def wait(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def head(feature_dim: int) -> nn.Sequential:
    """Make a head onto the space of the contrast, of the shape of `ltnb.models.heads.Projector`."""
    return nn.Sequential(nn.Linear(feature_dim, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 128))


class Bcl(nn.Module):
    """The loss of `ltnb.methods.BCL` on three views."""

    class_counts: Tensor

    def __init__(self, encoder_name: str, class_counts: list[int]) -> None:
        """Make the networks for classes of these sizes."""
        super().__init__()
        self.encoder = encoder(encoder_name, in_channels=3)
        self.classifier = nn.Linear(self.encoder.feature_dim, len(class_counts))
        self.projector = head(self.encoder.feature_dim)
        self.prototypes = head(self.encoder.feature_dim)
        self.register_buffer("class_counts", torch.tensor(class_counts))

    def forward(self, views: list[Tensor], labels: Tensor) -> Tensor:
        """Map three views (N, 3, H, W) and labels (N,) to the loss."""
        classified, *contrasted = self.encoder(torch.cat(views)).chunk(3)
        z = F.normalize(self.projector(torch.cat(contrasted)), dim=1)
        prototypes = F.normalize(self.prototypes(self.classifier.weight), dim=1)
        classification = losses.logit_adjusted_cross_entropy(self.classifier(classified), labels, self.class_counts)
        contrast = losses.balanced_contrastive(z, labels.repeat(2), prototypes, temperature=0.1)
        return 2 * classification + 0.6 * contrast


def class_sizes(size: Size) -> list[int]:
    """Return those of CIFAR-100-LT, or fewer classes of a small set."""
    return long_tail_counts(size.largest_class, min(100, size.largest_class), num_classes=min(100, size.largest_class))


def new_model(size: Size, device: torch.device) -> Bcl:
    """Make the same network every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Bcl(size.encoder, class_sizes(size)).to(device)


def check_step(device: torch.device, dtype: torch.dtype, size: Size) -> tuple[str, bool]:
    """Compare the loss of a step and its gradients, without TF32, by the length of the difference."""
    images, generator = random_images(size.step_batch), Generator().manual_seed(0)
    labels = torch.randint(len(class_sizes(size)), (len(images),), generator=generator)
    views = [normalise(draw(images, labels, view, generator, num_classes=100)[0], MEAN, STD) for view in BCL_VIEWS]
    model = new_model(size, torch.device("cpu"))

    def step(on: torch.device, weights: torch.dtype, *, lowered: bool) -> tuple[Tensor, Tensor]:
        there = copy.deepcopy(model).to(on, weights)
        with (
            torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False),
            torch.autocast(on.type, torch.bfloat16, enabled=lowered),
        ):
            loss = there([view.to(on, weights) for view in views], labels.to(on))
            gradients = torch.autograd.grad(loss, list(there.parameters()))
        return loss.detach(), torch.cat([gradient.flatten().double().cpu() for gradient in gradients])

    loss, gradient = step(device, torch.float32, lowered=dtype == torch.bfloat16)
    exact_loss, exact = step(torch.device("cpu"), torch.float64, lowered=False)
    loss_off, off = difference(loss, exact_loss), ((gradient - exact).norm() / exact.norm()).item()
    loss_tolerance, tolerance = STEP_TOLERANCE[dtype]
    return f"loss {loss_off:.1e}, gradients {off:.1e}", loss_off <= loss_tolerance and off <= tolerance


@dataclass(frozen=True)
class Way:
    """How the network is trained; each is compared with the first."""

    name: str
    dtype: torch.dtype
    compiled: bool = False
    deterministic: bool = True


WAYS = (
    Way("float32", torch.float32),
    Way("bfloat16", torch.bfloat16),
    Way("bfloat16 compiled", torch.bfloat16, compiled=True),
    Way("bfloat16 not deterministic", torch.bfloat16, deterministic=False),
)


@dataclass(frozen=True)
class Training:
    """Two epochs: the mean loss of the first, the seconds of each, and the most memory in use (GiB)."""

    mean_loss: float
    first: float
    second: float
    memory: float


def train(way: Way, device: torch.device, size: Size) -> Training:
    """Train for two epochs, the loop that `ltnb.training` has."""
    counts = class_sizes(size)
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)).to(device)
    images = random_images(len(labels)).to(device)
    model = new_model(size, device)
    if way.compiled:
        model.encoder.compile(backend=size.compiler, dynamic=False)  # as in training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    order, own = Generator().manual_seed(0), Generator(device).manual_seed(0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.use_deterministic_algorithms(way.deterministic)
    seconds, mean_losses = [], []
    for _ in range(2):
        wait(device)
        start = time.perf_counter()
        total = torch.zeros((), device=device)
        shuffled = torch.randperm(len(labels), generator=order).to(device)  # at once, as in training
        batches = shuffled.tensor_split(math.ceil(len(labels) / size.batch))
        for chosen in batches:
            of_batch = images[chosen], labels[chosen]
            drawn = [draw(*of_batch, view, own, num_classes=len(counts))[0] for view in BCL_VIEWS]
            views = [normalise(view, MEAN, STD) for view in drawn]
            with torch.autocast(device.type, torch.bfloat16, enabled=way.dtype == torch.bfloat16):
                loss = model(views, of_batch[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean_losses.append(total.item() / len(batches))
        seconds.append(time.perf_counter() - start)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else math.nan
    return Training(mean_losses[0], seconds[0], seconds[1], memory)


def check_training(device: torch.device, size: Size, report: Report) -> None:
    """Train in each way, one line each, and compare the mean losses of their first epochs."""
    number, reference, shortest = sum(class_sizes(size)), math.nan, (math.inf, "no way to train")
    print(
        f"\nBCL of {size.encoder}, {number:,} images, views {' + '.join(BCL_VIEWS)}, batch {size.batch}\n"
        f"{'':<30}{'epoch':>9}{'first':>9}{'images/s':>10}{'200 epochs':>12}{'memory':>11}{'mean loss':>11}"
    )
    for way in WAYS:

        def measure(way: Way = way) -> tuple[str, bool]:
            nonlocal reference, shortest
            done = train(way, device, size)
            shortest = min(shortest, (EPOCHS_IN_ALL * done.second, way.name))
            if way is WAYS[0]:
                reference = done.mean_loss
            text = (
                f"{done.second:>7.2f} s{done.first:>7.1f} s{number / done.second:>10,.0f}"
                f"{EPOCHS_IN_ALL * done.second:>10,.0f} s"
                f"{'' if math.isnan(done.memory) else f'{done.memory:.2f} GiB':>11}{done.mean_loss:>11.4f}"
            )
            return text, abs(done.mean_loss - reference) <= MEAN_LOSS_TOLERANCE * abs(reference)

        report.check(way.name, measure)
    if size == FULL:  # of another size the aim says nothing
        print(f"{EPOCHS_IN_ALL} epochs of BCL would take {shortest[0]:,.0f} s in {shortest[1]}; {AIM}")


def describe(device: torch.device) -> str:
    """Return hardware and versions."""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if device.type != "cuda":
        return f"{versions}, {platform.machine()}, {torch.get_num_threads()} threads"
    memory = torch.cuda.get_device_properties(device).total_memory / 2**30
    return (
        f"{versions}, {torch.cuda.get_device_name(device)} ({memory:.0f} GiB), CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}"
    )


def check(device: torch.device, size: Size) -> list[str]:
    """Run all checks, print the report, and return the names of those that failed."""
    start, report = time.perf_counter(), Report()
    print(f"{describe(device)}\n\nlosses: relative difference{'float32':>13}{'bfloat16':>10}")
    for name in losses.__all__:
        report.check(name, lambda name=name: check_loss(name, device))  # type: ignore[misc]
    print(f"\nviews, batch {size.batch}: share of values that are off, speed")
    for policy in (*VIEWS, *MIXED_VIEWS):
        report.check(policy, lambda policy=policy: check_view(policy, device, size))  # type: ignore[misc]
    print(f"\na step of BCL, batch {size.step_batch}: relative difference")
    for dtype in STEP_TOLERANCE:
        name = str(dtype).removeprefix("torch.")
        report.check(f"step in {name}", lambda dtype=dtype: check_step(device, dtype, size))  # type: ignore[misc]
    check_training(device, size, report)
    print(f"\n{time.perf_counter() - start:.0f} s in all")
    print("OK" if not report.failed else f"FAILED: {', '.join(report.failed)}")
    return report.failed


def main() -> None:
    """Run all checks on the device that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="little of everything")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            sys.exit("FAILED: no CUDA device on this machine; --device cpu runs the checks without one")
        # As in training; cuBLAS reads it at the first matrix product.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    sys.exit(1 if check(device, QUICK if arguments.quick else FULL) else 0)


if __name__ == "__main__":
    main()
