"""The loop: budget and batches, resuming after a kill, non-finite losses, and what a run leaves behind."""

import ast
import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from bars import COUNTS, bars, noisy_bars, settings_of
from ruamel.yaml import YAML

from ltnb import runs, training
from ltnb.data.noise import symmetric_noise
from ltnb.data.prepare import Dataset
from ltnb.methods import BCE3S, BCL, CrossEntropy, FeatRecon, LogitAdjustment, SupervisedContrastive
from ltnb.methods.assembly import Method
from ltnb.params import TrainingSettings

NOISE_NAMES = {"train_accuracy_clean", "memorised", "recovered", "train_clean_labels", "noise", "noise_rate"}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bars()


def folder_content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize(("samples", "size"), [(304, 128), (257, 128), (129, 128), (128, 128), (5, 128), (7, 2)])
def test_an_epoch_is_every_sample_once_in_nearly_equal_batches(samples: int, size: int) -> None:
    parts = training.batches(torch.zeros(samples, dtype=torch.int64), size, torch.Generator().manual_seed(0))
    assert torch.cat(parts).sort().values.tolist() == list(range(samples))
    lengths = [len(part) for part in parts]
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1
    assert len(lengths) == math.ceil(samples / size)


@pytest.mark.parametrize("method", [CrossEntropy(), LogitAdjustment(), SupervisedContrastive(), BCL()])
def test_what_a_run_leaves(method: Any, dataset: Dataset, tmp_path: Path) -> None:
    run = training.train(settings_of(method), dataset, tmp_path / "run", tmp_path / "c.pt")
    assert {"params.json", "metrics.json", "history.csv", "embeddings.npz", "model.safetensors"} == set(
        folder_content(tmp_path / "run")
    )
    assert not (tmp_path / "c.pt").exists()
    assert (run.dataset, run.method, run.seed) == ("bars", "m", 0)
    assert run.params["class_counts"] == COUNTS
    assert run.params["method"]["system"] == method.system
    assert run.params["device"] == "cpu" or torch.cuda.is_available()
    # The reported numbers are those of the stored logits.
    predictions = run.embeddings["test_logits"].argmax(axis=1)
    right = predictions == run.embeddings["test_labels"]
    assert run.metrics["accuracy"] == pytest.approx(right.mean())
    assert run.metrics["accuracy_class_3"] == pytest.approx(right[15:].mean())
    assert "accuracy_many" not in run.metrics
    assert run.history["epoch"].tolist() == [1, 2, 3, 4]
    assert run.history["stage"].tolist() == [1, 1, 1, 1]
    assert run.history["test_accuracy"].isna().tolist() == [True, False, True, False]
    assert run.history["test_accuracy"].iloc[-1] == run.metrics["accuracy"]
    # Logits are the classifier's on the stored features: arrays and weights belong together.
    weights = torch.nn.Linear(64, 4)
    state = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    weights.load_state_dict({"weight": state["first_classifier.weight"], "bias": state["first_classifier.bias"]})
    logits = weights(torch.from_numpy(run.embeddings["test_features"])).detach().numpy()
    np.testing.assert_allclose(logits, run.embeddings["test_logits"], rtol=1e-5, atol=1e-5)
    has_contrast = method.contrast != "none"
    assert ("train_projections" in run.embeddings) == has_contrast
    assert ("prototypes" in run.embeddings) == (method.contrast == "balanced")
    assert ("contrast" in run.history) == has_contrast
    # Nothing tells of label noise where there is none.
    for found in (run.history, run.metrics, run.embeddings, run.params, run.params["dataset"]):
        assert not [name for name in found if name in NOISE_NAMES]


@pytest.mark.parametrize("method", [CrossEntropy(), BCE3S(second_stage="rebalance", second_stage_epochs=2)])
def test_what_a_run_on_wrong_labels_leaves(method: Any, dataset: Dataset, tmp_path: Path) -> None:
    noisy = noisy_bars(symmetric_noise(dataset.train_labels, 0.4, 4, seed=0))
    settings = settings_of(method, epochs=2, learning_rate=0.3).model_copy(update={"dataset": noisy.settings})
    run = training.train(settings, noisy, tmp_path / "run")
    given, clean = run.embeddings["train_labels"], run.embeddings["train_clean_labels"]
    assert given.tolist() == noisy.train_labels.tolist()
    assert clean.tolist() == dataset.train_labels.tolist()
    # Groups go by the tail that the experiment made, whatever the labels say.
    assert run.params["class_counts"] == run.embeddings["class_counts"].tolist() == COUNTS
    assert run.params["noise"] == noisy.noise
    assert run.params["noise"]["label_counts"] == np.bincount(given, minlength=4).tolist() != COUNTS
    assert run.params["dataset"]["noise_rate"] == 0.4
    assert {"accuracy_medium", "accuracy_few"} <= run.metrics.keys()

    method_again = Method(method, "resnet8", 1, noisy.known_counts.tolist())
    method_again.begin(len(run.history) // 4)
    method_again.load_state_dict(safetensors.torch.load_file(tmp_path / "run" / "model.safetensors"))
    logits = method_again.classifier(torch.from_numpy(run.embeddings["train_features"]))
    right = clean_right = memorised = recovered = wrong = 0
    for predicted, label, true in zip(logits.argmax(dim=1).tolist(), given, clean, strict=True):
        right += predicted == label
        clean_right += predicted == true
        if label != true:
            wrong += 1
            memorised += predicted == label
            recovered += predicted == true
    assert wrong > 5
    expected = {
        "train_accuracy": right / len(given),
        "train_accuracy_clean": clean_right / len(given),
        "memorised": memorised / wrong,
        "recovered": recovered / wrong,
    }
    assert {name: run.metrics[name] for name in expected} == pytest.approx(expected)
    assert run.history[list(expected)].iloc[-1].to_dict() == pytest.approx(expected)
    assert run.history["memorised"].isna().tolist() == run.history["train_accuracy"].isna().tolist()


def test_with_wrong_labels_a_method_knows_the_counts_of_what_is_given(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[int]] = []
    original = Method.__init__

    def method(self: Method, settings: Any, encoder: str, channels: int, counts: list[int], **rates: float) -> None:
        told.append(counts)
        original(self, settings, encoder, channels, counts, **rates)

    monkeypatch.setattr(Method, "__init__", method)
    training.train(settings_of(epochs=1, warmup_epochs=0), dataset, tmp_path / "a")
    noisy = noisy_bars(dataset.train_labels.where(dataset.train_labels != 3, 0))
    training.train(settings_of(epochs=1, warmup_epochs=0), noisy, tmp_path / "b")
    assert told == [COUNTS, [25, 9, 4, 1]]


@pytest.mark.parametrize(
    "method",
    [
        LogitAdjustment(),
        CrossEntropy(classifier="cosine", classification="margin", margins="ldam"),
        BCL(),
        FeatRecon(head_above=5, nearest_heads=1, synthesis_start=0.0),
        BCE3S(second_stage="rebalance", second_stage_epochs=1),
        SupervisedContrastive(second_stage="retrain", second_stage_epochs=1),
    ],
    ids=lambda method: method.system,
)
def test_a_class_can_lose_all_its_labels(method: Any, dataset: Dataset, tmp_path: Path) -> None:
    noisy = noisy_bars(dataset.train_labels.where(dataset.train_labels != 3, 0))
    run = training.train(settings_of(method, epochs=3), noisy, tmp_path / "run")
    assert np.isfinite(run.history["total"]).all()
    assert run.params["noise"]["label_counts"] == [25, 9, 4, 0]
    assert 0 <= run.metrics["accuracy_class_3"] <= 1


def test_it_learns(dataset: Dataset, tmp_path: Path) -> None:
    run = training.train(settings_of(LogitAdjustment(views=("none",)), epochs=30), dataset, tmp_path / "run")
    assert run.metrics["accuracy"] >= 0.9


def test_the_same_settings_give_the_same_bytes_and_another_seed_others(dataset: Dataset, tmp_path: Path) -> None:
    torch.manual_seed(1)
    training.train(settings_of(BCL()), dataset, tmp_path / "a")
    torch.manual_seed(2)  # the global state decides nothing
    training.train(settings_of(BCL()), dataset, tmp_path / "b")
    training.train(settings_of(BCL(), seed=1), dataset, tmp_path / "c")
    assert folder_content(tmp_path / "a") == folder_content(tmp_path / "b")
    assert folder_content(tmp_path / "a")["history.csv"] != folder_content(tmp_path / "c")["history.csv"]


def test_weights_that_the_last_step_ruins_are_not_a_result(dataset: Dataset, tmp_path: Path) -> None:
    ruinous = settings_of(learning_rate=1e38, epochs=1, warmup_epochs=0, batch_size=100)  # a single step
    with pytest.raises(
        training.NonFiniteLossError, match=r"bars m seed 0: .* not finite after the last step of epoch 1"
    ):
        training.train(ruinous, dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_non_finite_loss_names_method_term_and_step(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Method.losses
    steps = iter(range(100))

    def losses(self: Method, *batch: Any) -> Any:
        terms = original(self, *batch)
        if next(steps) == 4:  # three steps an epoch: the second of the second
            terms["contrast"] = terms["contrast"] * torch.nan
        return terms

    monkeypatch.setattr(Method, "losses", losses)
    with pytest.raises(
        training.NonFiniteLossError, match=r"bars m seed 0: the term 'contrast' is nan in step 2 of epoch 2"
    ):
        training.train(settings_of(BCL()), dataset, tmp_path / "run", tmp_path / "c.pt")
    assert not (tmp_path / "run").exists()


def test_a_diverging_run_stops(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(training.NonFiniteLossError, match=r"expected a finite loss \(is learning_rate 1e\+30"):
        training.train(settings_of(learning_rate=1e30, epochs=20), dataset, tmp_path / "run")


@pytest.mark.parametrize("method", [BCL(), FeatRecon(head_above=5, nearest_heads=1, synthesis_start=0.0), BCE3S()])
@pytest.mark.parametrize("rate", [1e6, 1e30])
def test_projections_that_diverge_are_said_to(rate: float, method: Any, dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(training.NonFiniteLossError, match=r"bars m seed 0: .*step \d of epoch \d.*is learning_rate 1e"):
        training.train(settings_of(method, learning_rate=rate, warmup_epochs=0), dataset, tmp_path / "run")


def test_a_rows_own_learning_rate_is_the_one_that_is_named(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(training.NonFiniteLossError, match=r"is learning_rate 1e\+30 too large"):
        training.train(settings_of(CrossEntropy(learning_rate=1e30), warmup_epochs=0), dataset, tmp_path / "run")


def test_classes_that_a_method_does_not_allow_are_told_with_its_name(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"methods\.m: nearest_heads: 2 of 1 classes with more than 20"):
        training.train(settings_of(FeatRecon()), dataset, tmp_path / "run")


def test_cuda_that_is_not_there(dataset: Dataset, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"training\.device: 'cuda' is not available"):
        training.train(settings_of(device="cuda"), dataset, tmp_path / "run")


@pytest.fixture
def _torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("_torch_as_it_was")
def test_what_is_asked_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a run before has asked; only a machine with one can tell whether it is heeded."""
    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    for precision, of_convolutions in (("float32", False), ("tf32", True), ("bfloat16", False)):
        for deterministic in (True, False):
            asked = TrainingSettings(precision=precision, deterministic=deterministic)
            training._make_repeatable(asked, torch.device("cuda", 0))
            assert torch.backends.cudnn.allow_tf32 == of_convolutions
            assert not torch.backends.cuda.matmul.allow_tf32
            assert torch.are_deterministic_algorithms_enabled() == deterministic
            assert torch.backends.cudnn.benchmark == (not deterministic)


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    settings = TrainingSettings(processes=4)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert training.device_of(TrainingSettings()) == torch.device("cuda", 0)  # of a group that is no more
    monkeypatch.setattr(training, "num_processes", lambda: 4)
    assert training.device_of(settings) == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"training.processes: 4, and this machine has 2 GPUs; expected one for each"):
        training.device_of(settings)
    assert training.device_of(TrainingSettings(processes=4, device="cpu")) == torch.device("cpu")


def test_the_fingerprint_covers_what_training_imports() -> None:
    """Every module of the package that a training notebook loads decides the numbers, so CODE must hold it."""
    code = "import sys, ltnb.inputs; print(*[m for m in sys.modules if m.startswith('ltnb.')])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    covered = {entry.removesuffix(".py") for entry in training.CODE}
    assert {module.split(".")[1] for module in loaded} <= covered
    assert covered <= {module.split(".")[1] for module in loaded}


def test_the_pipeline_retrains_when_the_fingerprint_changes() -> None:
    pipeline = YAML(typ="safe").load(Path(__file__).parents[1] / "dvc.yaml")
    dependencies = {name for name in pipeline["stages"]["train"]["deps"] if name.startswith("ltnb/")}
    assert dependencies == {f"ltnb/{entry}" for entry in training.CODE}


@pytest.mark.parametrize(
    ("stage", "notebook"),
    [
        *(("papers", name) for name in ("bcl", "featrecon", "bce3s", "pal")),
        ("noise", "noise"),
        ("baselines", "baselines"),
    ],
)
def test_the_papers_stages_depend_on_all_that_their_notebooks_load(stage: str, notebook: str) -> None:
    project = Path(__file__).parents[1]
    cells = json.loads((project / "notebooks" / "experiments" / f"{notebook}.ipynb").read_text())["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    imports = [ast.unparse(line) for line in ast.parse(source).body if isinstance(line, ast.Import | ast.ImportFrom)]
    code = "\n".join([*imports, "import sys; print(*[m for m in sys.modules if m.startswith('ltnb.')])"])
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    definition = YAML(typ="safe").load(project / "dvc.yaml")["stages"][stage]
    dependencies = definition.get("do", definition)["deps"]
    covered = {name.removeprefix("ltnb/").removesuffix(".py") for name in dependencies if name.startswith("ltnb/")}
    assert {module.split(".")[1] for module in loaded} - covered == set()


def test_reading_an_unfinished_run(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"metrics\.json is missing"):
        runs.read(tmp_path)
    training.train(settings_of(), dataset, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "params.json").read_text())["dataset_name"] == "bars"
    (tmp_path / "run" / "embeddings.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"embeddings\.npz is missing"):
        runs.read(tmp_path / "run")


def test_data_with_another_fingerprint_is_another_run(dataset: Dataset) -> None:
    other = dataclasses.replace(dataset, fingerprint="1" * 64)
    method = Method(CrossEntropy(), "resnet8", 1, COUNTS)
    assert training.describe(settings_of(), dataset, method) != training.describe(settings_of(), other, method)


@pytest.mark.parametrize("method", [None, BCL(), FeatRecon(head_above=5, nearest_heads=1, snapshots=0)])
def test_in_bfloat16_weights_and_results_stay_in_float32(method: Any, dataset: Dataset, tmp_path: Path) -> None:
    run = training.train(settings_of(method, precision="bfloat16"), dataset, tmp_path / "half")
    plain = training.train(settings_of(method), dataset, tmp_path / "plain")
    assert {array.dtype for array in safetensors.torch.load_file(tmp_path / "half" / "model.safetensors").values()} <= {
        torch.float32,
        torch.int64,
        torch.bool,
    }
    assert run.embeddings["test_logits"].dtype == np.float32
    # Eight significant bits: the first epoch's loss is close, and not the same.
    first, of_plain = run.history["total"].iloc[0], plain.history["total"].iloc[0]
    assert first == pytest.approx(of_plain, rel=0.05)
    assert first != of_plain


def test_a_compiled_run_has_the_same_weights_by_name_and_nearly_the_same_losses(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    compile_module = torch.nn.Module.compile

    def compile_plainly(self: torch.nn.Module, dynamic: bool) -> None:
        compiled.append(self)
        compile_module(
            self, backend="eager", dynamic=dynamic
        )  # the same calls, without half a minute of a C++ compiler

    monkeypatch.setattr(torch.nn.Module, "compile", compile_plainly)
    run = training.train(settings_of(compiled=True), dataset, tmp_path / "compiled")
    plain = training.train(settings_of(), dataset, tmp_path / "plain")
    assert [type(module).__name__ for module in compiled] == ["ResNet"]
    np.testing.assert_allclose(run.history["total"], plain.history["total"], rtol=1e-4)
    names = [
        safetensors.torch.load_file(tmp_path / part / "model.safetensors").keys() for part in ("compiled", "plain")
    ]
    assert names[0] == names[1]
