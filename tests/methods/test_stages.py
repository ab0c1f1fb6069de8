"""A second stage: a classifier on the frozen encoder, reported apart from the first stage."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from bars import bars, settings_of
from torch import Tensor
from torch.nn import functional as F

from ltnb import training
from ltnb.data.prepare import Dataset
from ltnb.methods import BCE3S, BCL, KCL, LDAM, LWS, PAL, RBL, TSC, CrossEntropy, MethodSettings, PaCo, ProCo
from ltnb.methods.assembly import Method
from ltnb.methods.stages import Stage, learning_rate

COUNTS = [24, 9, 4, 1]
FIRST = Stage("everything", 6, 0.1, 2, 1e-3)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bars()


def method_of(settings: MethodSettings) -> Method:
    torch.manual_seed(0)
    return Method(settings, "resnet8", 1, COUNTS)


def trained(settings: MethodSettings, dataset: Dataset, folder: Path) -> tuple[Any, dict[str, Tensor]]:
    run = training.train(settings_of(settings, epochs=3, evaluate_every=3), dataset, folder)
    return run, safetensors.torch.load_file(folder / "model.safetensors")


def test_stages_of_each_kind() -> None:
    assert method_of(CrossEntropy()).stages(FIRST) == [FIRST]
    rebalanced = method_of(BCE3S(second_stage="rebalance", second_stage_epochs=4, second_stage_learning_rate=0.5))
    assert rebalanced.stages(FIRST) == [FIRST, Stage("classifier", 4, 0.5, 0, 0.0, "instance")]
    retrained = method_of(CrossEntropy(second_stage="retrain")).stages(FIRST)
    assert retrained == [FIRST, Stage("classifier", 10, 0.01, 0, 0.0, "class-balanced")]
    rescaled = method_of(LWS(second_stage_epochs=3, second_stage_learning_rate=0.2)).stages(FIRST)
    assert rescaled == [FIRST, Stage("classifier", 3, 0.2, 0, 0.0, "class-balanced")]


def rates(stage: Stage) -> list[float]:
    return [learning_rate(epoch, stage) for epoch in range(stage.epochs)]


def test_half_a_cosine_warms_up_and_ends_near_zero() -> None:
    found = rates(Stage("everything", 20, 0.1, 5, 0.0))
    assert found[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert found[4:] == sorted(found[4:], reverse=True)
    assert found[19] == pytest.approx(0.05 * (1 + math.cos(math.pi * 15 / 16)))
    assert rates(Stage("everything", 1, 0.1, 0, 0.0)) == pytest.approx([0.05])


def test_steps_fall_after_their_epochs() -> None:
    stage = Stage("everything", 6, 0.4, 2, 0.0, schedule="steps", decay=0.1, decay_epochs=(3, 5))
    assert rates(stage) == pytest.approx([0.2, 0.4, 0.4, 0.04, 0.04, 0.004])


def test_the_exponential_falls_after_every_epoch_that_is_no_warm_up() -> None:
    stage = Stage("everything", 5, 0.4, 2, 0.0, schedule="exponential", decay=0.5)
    assert rates(stage) == pytest.approx([0.2, 0.4, 0.4, 0.2, 0.1])


def test_a_second_stage_has_its_own_schedule() -> None:
    first = replace(FIRST, schedule="steps", decay=0.2, decay_epochs=(4,))
    found, second = method_of(CrossEntropy(learning_rate=0.3, second_stage="retrain")).stages(first)
    assert found == replace(first, learning_rate=0.3)
    assert second.schedule == "cosine"


def test_a_rows_own_optimiser_replaces_the_protocols_in_the_first_stage_alone() -> None:
    first, second = method_of(CrossEntropy(learning_rate=0.3, weight_decay=0.0, second_stage="retrain")).stages(FIRST)
    assert first == Stage("everything", 6, 0.3, 2, 0.0)
    assert (second.learning_rate, second.weight_decay) == (0.01, 0.0)


@pytest.mark.parametrize(
    ("settings", "trained_names"),
    [
        (BCE3S(second_stage="rebalance"), {"first_classifier.weight", "first_classifier.bias"}),
        (BCL(second_stage="retrain"), {"second_classifier.weight", "second_classifier.bias"}),
        (PAL(second_stage="retrain"), {"second_classifier.weight", "second_classifier.bias"}),
        (LWS(), {"second_classifier.scales"}),
        (KCL(), {"second_classifier.weight", "second_classifier.bias"}),
        (RBL(classification="cross-entropy", second_stage="rebalance"), {"first_classifier.generator_matrix"}),
    ],
)
def test_what_each_stage_trains(settings: MethodSettings, trained_names: set[str]) -> None:
    method = method_of(settings)
    names = {id(p): name for name, p in method.named_parameters()}
    first = {names[id(p)] for p in method.begin(0)}
    assert first == {name for name in names.values() if not name.startswith(("second_classifier", "contrast.key_"))}
    assert {names[id(p)] for p in method.begin(1)} == trained_names
    assert {name for name, p in method.named_parameters() if p.requires_grad} == trained_names
    assert not method.train().encoder.training
    assert method.begin(0)
    assert method.train().encoder.training


@pytest.mark.parametrize(
    "settings",
    [
        BCE3S(second_stage="rebalance", max_norm=0.3, second_stage_epochs=2),
        BCL(second_stage="retrain", prototypes="ema", second_stage_epochs=2),
        PAL(second_stage="retrain", second_stage_epochs=2, snapshots=1),
        KCL(second_stage="retrain", second_stage_epochs=2, queue_size=9, snapshots=1),
        TSC(second_stage="retrain", second_stage_epochs=2),
        PaCo(second_stage="retrain", second_stage_epochs=2),
        ProCo(second_stage="retrain", second_stage_epochs=2),
        LDAM(second_stage="retrain", second_stage_epochs=2),
        RBL(second_stage="retrain", second_stage_epochs=2),
    ],
    ids=lambda settings: settings.system,
)
def test_the_second_stage_moves_the_classifier_and_nothing_else(
    settings: MethodSettings, dataset: Dataset, tmp_path: Path
) -> None:
    changes = settings.model_fields_set - {name for name in type(settings)._owners if "second_stage" in name}
    kept = {name: getattr(settings, name) for name in changes - {"second_stage", "max_norm"}}
    alone, first_state = trained(type(settings)(**kept, second_stage="none"), dataset, tmp_path / "alone")
    both, second_state = trained(settings, dataset, tmp_path / "both")
    moved = "first_classifier" if settings.second_stage == "rebalance" else "second_classifier"
    # Byte for byte, statistics of batch normalisation, prototypes and memory included.
    for name, values in first_state.items():
        assert torch.equal(values, second_state[name]) == (not name.startswith(moved)), name
    assert "encoder.bn.running_var" in first_state
    np.testing.assert_array_equal(alone.embeddings["test_features"], both.embeddings["test_features"])

    names = [name for name in alone.metrics if name.startswith("accuracy") and "class" not in name]
    assert "accuracy_few" in names
    assert {f"first_{name.replace('accuracy', 'stage_accuracy')}" for name in names} == {
        name for name in both.metrics if name.startswith("first_stage")
    }
    for name in names:
        assert both.metrics[f"first_stage_{name}"] == alone.metrics[name]
    assert not any(name.startswith("first_stage") for name in alone.metrics)
    assert both.history["stage"].tolist() == [1, 1, 1, 2, 2]
    assert both.history["epoch"].tolist() == [1, 2, 3, 4, 5]
    assert both.history["test_accuracy"].isna().tolist() == [True, True, False, True, False]
    columns = alone.history.columns
    np.testing.assert_array_equal(both.history[columns].iloc[:3], alone.history[columns])
    logits = F.linear(
        torch.from_numpy(both.embeddings["test_features"]),
        F.normalize(second_state[f"{moved}.weight"], dim=1)
        if settings.second_stage == "rebalance"
        else second_state[f"{moved}.weight"],
        second_state[f"{moved}.bias"],
    )
    np.testing.assert_allclose(both.embeddings["test_logits"], logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(both.embeddings["classifier_weight"], second_state[f"{moved}.weight"])


def test_the_second_stage_warms_nothing_up_and_looks_at_the_classified_view_alone(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    losses = Method.losses

    def counted(self: Method, views: Any, *others: Any) -> Any:
        seen.append((self.stage, len(views)))
        return losses(self, views, *others)

    monkeypatch.setattr(Method, "losses", counted)
    run, _ = trained(BCL(second_stage="retrain", second_stage_epochs=2), dataset, tmp_path / "run")
    assert seen == [(0, 3)] * 9 + [(1, 1)] * 6
    assert run.history["learning_rate"].iloc[3:].tolist() == pytest.approx([0.0075, 0.0025])
    assert run.history["contrast"].isna().tolist() == [False] * 3 + [True] * 2


def test_max_norm_holds_after_every_step(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[int, float]] = []
    after_step = Method.after_step

    def watched(self: Method) -> None:
        after_step(self)
        lengths.append((self.stage, float(self.first_classifier.weight.detach().norm(dim=1).max())))

    monkeypatch.setattr(Method, "after_step", watched)
    trained(BCE3S(second_stage="rebalance", max_norm=0.3, second_stage_epochs=2), dataset, tmp_path / "run")
    assert len(lengths) == 9 + 6
    assert min(length for stage, length in lengths if stage == 0) > 0.3
    assert max(length for stage, length in lengths if stage == 1) <= 0.3 + 1e-6


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_a_rebalanced_loss_weighs_images_by_their_class_by_hand(beta: float) -> None:
    method = method_of(CrossEntropy(second_stage="rebalance", class_balance=beta))
    method.begin(1)
    method.train()
    view = torch.randn(5, 1, 8, 8)
    y = torch.tensor([0, 3, 1, 0, 2])
    terms = method.losses([view], [y], torch.Generator())
    raw = [(1 - beta) / (1 - beta**n) for n in COUNTS]
    logits = method.logits(view).detach().double()
    weights = [weight * len(raw) / sum(raw) for weight in raw]
    expected = [weights[k] * (row.exp().sum().log() - row[k]) for row, k in zip(logits, y.tolist(), strict=True)]
    assert set(terms) == {"classification", "total"}
    assert terms["total"].item() == pytest.approx(float(sum(expected)) / 5, rel=1e-5)
    terms["total"].backward()
    assert all(p.grad is None for p in method.encoder.parameters())
    assert method.classifier.weight.grad is not None


def test_a_retrained_classifier_minimises_plain_cross_entropy_whatever_the_first_stage_did() -> None:
    method = method_of(BCE3S(second_stage="retrain"))
    method.begin(1)
    view, y = torch.randn(5, 1, 8, 8), torch.tensor([0, 3, 1, 0, 2])
    method.train()
    terms = method.losses([view], [y], torch.Generator())
    torch.testing.assert_close(terms["total"], F.cross_entropy(method.second_classifier(method.encoder(view)), y))  # type: ignore[misc]


def test_the_class_balanced_sampler_draws_classes_alike_and_images_of_a_class_alike() -> None:
    labels = torch.tensor([0] * 24 + [1] * 9 + [2] * 4 + [4])  # class 3 has no image
    generator = torch.Generator().manual_seed(0)
    epochs = [training.batches(labels, 16, generator, "class-balanced") for _ in range(400)]
    assert all(sorted(len(batch) for batch in epoch) == [12, 13, 13] for epoch in epochs)
    drawn = torch.cat([batch for epoch in epochs for batch in epoch])
    number = len(drawn)
    by_class = labels[drawn].bincount(minlength=5)
    assert by_class[3] == 0
    for k in (0, 1, 2, 4):
        assert abs(int(by_class[k]) - number / 4) < 4 * (number * 3 / 16) ** 0.5
    by_image = drawn.bincount(minlength=len(labels))
    for i, k in enumerate(labels.tolist()):
        share = 1 / (4 * int((labels == k).sum()))
        assert abs(int(by_image[i]) - number * share) < 4.5 * (number * share * (1 - share)) ** 0.5
    assert any(len(set(torch.cat(epoch).tolist())) < len(labels) for epoch in epochs)  # with replacement


def test_snapshots_are_of_evenly_spaced_epochs_of_the_first_stage(dataset: Dataset, tmp_path: Path) -> None:
    run, _ = trained(BCL(snapshots=2, second_stage="retrain", second_stage_epochs=2), dataset, tmp_path / "bcl")
    moments = {name for name in run.embeddings if "_epoch_" in name}
    assert moments == {f"{part}_projections_epoch_{epoch}" for part in ("train", "test") for epoch in (2, 3)}
    # The encoder and the projector stand still from then on.
    np.testing.assert_array_equal(run.embeddings["test_projections_epoch_3"], run.embeddings["test_projections"])
    assert not np.allclose(run.embeddings["test_projections_epoch_2"], run.embeddings["test_projections"])
    plain, _ = trained(CrossEntropy(snapshots=9), dataset, tmp_path / "ce")
    moments = {name for name in plain.embeddings if "_epoch_" in name}
    assert moments == {f"{part}_features_epoch_{epoch}" for part in ("train", "test") for epoch in (1, 2, 3)}
    np.testing.assert_array_equal(plain.embeddings["train_features_epoch_3"], plain.embeddings["train_features"])
