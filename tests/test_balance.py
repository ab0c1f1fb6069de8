"""Single numbers of how evenly a run treats its classes, against the class-by-class measures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from bars import COUNTS, bars, settings_of
from synthetic_runs import CLASS_COUNTS, make_run
from torch import Tensor

from ltnb import balance, tables, trained_supports
from ltnb.data.profiles import long_tail_counts
from ltnb.methods import (
    BCE3S,
    LDAM,
    LWS,
    PAL,
    RBL,
    CrossEntropy,
    DotRegression,
    FeatRecon,
    MethodSettings,
    PaCo,
    PostHocAdjustment,
    Resampling,
    TauNormalised,
)  # fmt: skip
from ltnb.methods.assembly import Method
from ltnb.methods.stages import Stage
from ltnb.runs import Run
from ltnb.training import learning_rate, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs"), bend=0.9)


def values_of(run: Run) -> pd.Series:
    return balance.measures([run]).set_index("measure")["value"]


@pytest.mark.parametrize(
    ("name", "measure", "split", "space"),
    [
        ("test_compactness", "compactness", "test", "features"),
        ("train_compactness", "compactness", "train", "features"),
        ("test_separability", "separability", "test", "features"),
        ("test_norm", "feature_norm", "test", "features"),
        ("test_alignment", "classifier_alignment", "test", "features"),
        ("classifier_separability", "separability", "none", "classifier"),
        ("classifier_norm", "norm", "none", "classifier"),
    ],
)
def test_mean_and_spread_over_classes(run: Run, name: str, measure: str, split: str, space: str) -> None:
    table = tables.seen_from(tables.measure(run), "class" if space == "features" else "none")
    chosen = table[(table["measure"] == measure) & (table["split"] == split) & (table["space"] == space)]
    by_class = chosen.loc[chosen["class"].notna(), "value"].to_numpy()
    found = values_of(run)
    assert found[f"{name}_mean"] == pytest.approx(np.nanmean(by_class))
    assert found[f"{name}_spread"] == pytest.approx(np.nanstd(by_class), abs=1e-6)


def test_pairs_margins_and_angles_of_a_classifier_at_the_simplex(run: Run) -> None:
    found = values_of(run)
    for pair in ("head_head", "head_tail", "tail_tail"):
        assert found[f"classifier_{pair}"] == pytest.approx(50 * (1 + 1 / 9), abs=1e-4)
    assert found["classifier_smallest_angle"] == pytest.approx(np.degrees(np.arccos(-1 / 9)), abs=1e-3)
    assert found["classifier_norm_variation"] == pytest.approx(0, abs=1e-6)
    assert found["train_margin_smallest"] <= found["train_margin_mean"] < 10 / 9
    assert found["test_head_head"] > found["test_tail_tail"]  # the tail is bent together


def test_what_does_not_exist_is_absent(tmp_path: Path, run: Run) -> None:
    assert "head_share" not in values_of(run)  # sixteen dimensions
    assert values_of(run)["fitting_epoch"] == 5  # 1 − e^(−epoch/2) ≥ 0.9
    history = run.history.assign(train_accuracy=0.5)
    assert "fitting_epoch" not in values_of(replace(run, history=history))
    no_tail = values_of(make_run(tmp_path, class_counts=(60, 40, 20)))
    assert "classifier_head_head" in no_tail
    assert not {"classifier_head_tail", "classifier_tail_tail"} & {*no_tail.index}


@pytest.mark.parametrize("classifier", ["linear", "anchored-cosine"])
def test_lengths_take_directions_only_where_they_decide(run: Run, classifier: str) -> None:
    turn = 2 * np.pi * np.arange(3) / 3
    weight = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    weight[0] *= 0.5  # the triangle's corner there has an angle of 2 arctan(sin 60° / (0.5 + cos 60°))
    shorter = 1 / 2 - np.arctan(np.sqrt(0.75)) / np.pi
    labels = np.arange(3).repeat(2)
    features = weight[labels] + [[0.1, 0], [0, 0.1]] * 3
    planar = replace(
        run,
        params={**run.params, "class_counts": [5, 10, 20], "method": {"classifier": classifier}},
        embeddings={
            "classifier_weight": weight,
            **{f"{split}_features": features for split in ("train", "test")},
            **{f"{split}_labels": labels for split in ("train", "test")},
        },
    )
    expected = (1 - shorter) / 2 if classifier == "linear" else 1 / 3
    assert values_of(planar)["head_share"] == pytest.approx(expected, abs=1e-3)
    assert (1 - shorter) / 2 > 0.34


def test_the_bias_comes_back_from_the_logits(run: Run) -> None:
    weight, features = run.embeddings["classifier_weight"], run.embeddings["test_features"]
    bias = np.linspace(-3, 3, len(weight))
    linear = replace(
        run,
        params={**run.params, "method": {"classifier": "linear"}},
        embeddings={**run.embeddings, "test_logits": features @ weight.T + bias},
    )
    found = balance.deciding_bias(linear)
    assert found is not None
    assert found.tolist() == pytest.approx(bias, abs=1e-5)
    assert balance.deciding_bias(replace(linear, params={"method": {"classifier": "cosine"}})) is None


def test_margins_by_class_agree_with_the_single_numbers(run: Run) -> None:
    table = balance.margins_by_class([run])
    assert list(table["class_count"]) == [*CLASS_COUNTS, *CLASS_COUNTS]
    for split in ("train", "test"):
        margins = table.loc[table["split"] == split, "value"]
        assert margins.min() == pytest.approx(values_of(run)[f"{split}_margin_smallest"])
        assert margins.mean() == pytest.approx(values_of(run)[f"{split}_margin_mean"])


def test_tail_classes() -> None:
    assert balance.tail_classes(CLASS_COUNTS).tolist() == [4, 5, 6, 7, 8, 9]
    assert balance.tail_classes([30, 20]).tolist() == []


@pytest.mark.parametrize(("largest", "num_classes"), [(124, 10), (124, 5), (500, 100), (5000, 10), (200, 3)])
def test_balanced_data_has_the_tail_of_as_many_images(largest: int, num_classes: int) -> None:
    counts = long_tail_counts(largest, 100, num_classes)
    control = [round(sum(counts) / num_classes)] * num_classes
    assert balance.tail_classes(control).tolist() == [k for k, count in enumerate(counts) if count < 20]


def test_heads_and_tails_of_a_balanced_run_are_those_of_its_long_tail(tmp_path: Path, run: Run) -> None:
    vectors = run.embeddings["classifier_weight"].copy()
    vectors[4:] = vectors[9]
    found = values_of(
        replace(
            make_run(tmp_path, class_counts=(30,) * 10), embeddings={**run.embeddings, "classifier_weight": vectors}
        )
    )
    assert found["classifier_tail_tail"] == pytest.approx(0, abs=1e-4)
    assert found["classifier_head_head"] == pytest.approx(50 * (1 + 1 / 9), abs=1e-4)


def test_the_first_epoch_near_the_last_accuracy(run: Run) -> None:
    assert values_of(run)["converging_epoch"] == 10  # half of it in epoch 5
    late = run.history.assign(test_accuracy=[np.nan, 0.1, 0.2, 0.44, np.nan, 0.45, 0.5, 0.4, np.nan, 0.5])
    assert values_of(replace(run, history=late))["converging_epoch"] == 6


GRADIENTS = {
    "linear": CrossEntropy(),
    "normalised": BCE3S(weight_decay=0.01, learning_rate=0.05),
    "cosine": PAL(classifier="cosine"),
    # Whatever else is weighed, drawn or learned beside it.
    "parametric": PaCo(queue_size=20),
    "deferred": LDAM(weighting_start=0.5),
    "resampled": Resampling(),
    "corrected": TauNormalised(),
}


@pytest.mark.parametrize(("name", "encoder"), [*((name, "resnet8") for name in GRADIENTS), ("linear", "cnn4")])
def test_what_vectors_received_is_what_every_step_gave(
    name: str, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step's gradient written down, and the optimiser's rule applied to vectors that start at 0."""
    steps: list[Tensor] = []
    original = Method.after_step

    def after_step(method: Method) -> None:
        gradient = method.classifier.weight.grad
        assert gradient is not None
        steps.append(gradient.detach().double().clone())
        original(method)

    monkeypatch.setattr(Method, "after_step", after_step)
    settings = settings_of(GRADIENTS[name], weight_decay=0.02, encoder=encoder)
    run = train(settings, bars(), tmp_path)
    (stage,) = Method(settings.method, encoder, 1, COUNTS).stages(Stage("everything", 4, 0.1, 1, 0.02))
    position, velocity = torch.zeros_like(steps[0]), torch.zeros_like(steps[0])
    for number, gradient in enumerate(steps):
        velocity = settings.training.momentum * velocity + gradient + stage.weight_decay * position
        position = position - learning_rate(number // 3, stage) * velocity
    found = balance.received_gradients(run)
    assert found is not None
    torch.testing.assert_close(found, -position, rtol=1e-4, atol=1e-5)

    lengths = position.norm(dim=1)
    heads_over_tails = float(lengths[:1].mean() / lengths[1:].mean())  # one class has 20 images
    assert values_of(run)["classifier_gradient_ratio"] == pytest.approx(heads_over_tails, rel=1e-3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_decay_alone_is_what_the_optimiser_makes_of_it(momentum: float) -> None:
    stage = Stage("everything", 5, 0.3, 2, 0.05)
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=momentum, weight_decay=stage.weight_decay)
    for step in range(5 * 4):
        optimizer.param_groups[0]["lr"] = learning_rate(step // 4, stage)
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    kept = balance.kept_by_decay(stage, 4, momentum)
    assert kept == pytest.approx(float(weight.detach()), rel=1e-12)
    assert 0.1 < kept < 0.95
    assert balance.kept_by_decay(replace(stage, weight_decay=0.0), 4, momentum) == 1


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        (PAL(), {}),  # fixed vectors
        (RBL(), {}),  # vectors that are no parameters: decay draws their rotation back, and not them
        (CrossEntropy(second_stage="retrain", second_stage_epochs=1), {}),
        (CrossEntropy(), {"versions": {"torch": "0.4.0"}}),
    ],
)
def test_no_gradients_where_there_is_no_such_sum(method: Any, changes: dict[str, Any], tmp_path: Path) -> None:
    run = train(settings_of(method, epochs=2), bars(), tmp_path)
    assert balance.received_gradients(replace(run, params={**run.params, **changes})) is None
    (run.folder / "model.safetensors").unlink()
    assert balance.received_gradients(run) is None
    assert "classifier_gradient_ratio" not in values_of(run)


def test_a_row_a_run_and_measure(run: Run) -> None:
    table = balance.measures([run, replace(run, params={**run.params, "seed": 1})])
    assert list(table) == ["method", "seed", "measure", "value"]
    assert set(table.loc[table["seed"] == 0, "measure"]) == set(table.loc[table["seed"] == 1, "measure"])
    assert not table.duplicated(["method", "seed", "measure"]).any()
    assert list(balance.measures([])) == list(table)


def test_projections_are_seen_as_the_contrast_sees_them(tmp_path: Path, run: Run) -> None:
    assert not values_of(run).index.str.contains("projection").any()
    contrasted = make_run(tmp_path, "supcon", bend=0.9, projections=True)
    found = values_of(contrasted)
    table = tables.seen_from(tables.measure(contrasted), "none").query("space == 'projections'")
    by_class, table = table[table["class"].notna()], table[table["class"].isna()]
    overlaps = trained_supports.overlaps(contrasted, FeatRecon()).query("centres == 'estimated'")
    for split in tables.SPLITS:
        distance = table.query(f"split == '{split}' and measure == 'simplex_distance_of_directions'")["value"].item()
        assert found[f"{split}_projection_simplex_distance"] == pytest.approx(distance)
        angle = table.query(f"split == '{split}' and measure == 'minority_collapse_angle'")["value"].item()
        assert found[f"{split}_projection_tail_angle"] == pytest.approx(angle)
        tail = by_class.query(f"split == '{split}' and measure == 'compactness' and class_count < 20")["value"]
        assert found[f"{split}_projection_tail_compactness"] == pytest.approx(tail.mean())
        tail_overlap = overlaps.query(f"split == '{split}'")["tail_overlap"].item()
        assert found[f"{split}_projection_tail_overlap"] == pytest.approx(tail_overlap)
        assert found[f"{split}_projection_head_head"] > found[f"{split}_projection_tail_tail"]


DECIDING: dict[str, MethodSettings] = {
    "linear": CrossEntropy(),
    "normalised": BCE3S(),
    "cosine": CrossEntropy(classifier="cosine"),
    "rotated": RBL(),
    "anchored": DotRegression(),
    "rescaled": LWS(second_stage_epochs=2),
    "a linear one after cosines": CrossEntropy(classifier="cosine", second_stage="retrain", second_stage_epochs=2),
    "adjusted": PostHocAdjustment(),
    "vectors shortened": TauNormalised(correction_strength=2.0),
}


@pytest.mark.parametrize("kind", DECIDING)
def test_the_deciding_vectors_decide_as_the_run_was_evaluated(kind: str, tmp_path: Path) -> None:
    run = train(settings_of(DECIDING[kind]), bars(), tmp_path)
    weight, bias = balance.deciding_weight(run), balance.deciding_bias(run)
    scores = torch.from_numpy(run.embeddings["test_features"]).double() @ weight.T
    scores = scores if bias is None else scores + bias
    np.testing.assert_array_equal(scores.argmax(dim=1), run.embeddings["test_logits"].argmax(axis=1))
    # Beyond the images at hand: differences of scores are those of logits, up to the features' lengths and a scale.
    logits = torch.from_numpy(run.embeddings["test_logits"]).double()
    gaps, expected = (values - values[:, :1] for values in (scores, logits))
    ratio = (gaps * expected).sum(dim=1, keepdim=True) / gaps.square().sum(dim=1, keepdim=True)
    torch.testing.assert_close(ratio * gaps, expected, rtol=1e-2, atol=1e-3)
    assert (ratio > 0).all()
