"""Every system's own row, its crosses with others, and methods drawn at random, all through the same loop."""

import random
import warnings
from pathlib import Path
from typing import Any, get_args

import any_method
import numpy as np
import pytest
import torch
from bars import COUNTS, bars, noisy_bars, settings_of

from ltnb.data.prepare import Dataset
from ltnb.methods import BCE3S, BCL, FNPAL, PAL, CrossEntropy, FeatRecon, MethodSettings, SupervisedContrastive
from ltnb.methods.slots import Classification
from ltnb.training import train

# The small classes of the bars have no more than one head, and their runs few epochs.
SMALL: dict[type[MethodSettings], dict[str, Any]] = {
    FeatRecon: {"head_above": 5, "synthesis_start": 0.5, "snapshots": 2}
}

ROWS: dict[str, MethodSettings] = {
    **{system.model_fields["system"].default: system(**SMALL.get(system, {})) for system in any_method.SYSTEMS},
    "BCE3S's uniform term on BCL": BCL(spread="binary"),
    "PAL's anchors in BCL's class-complement": BCL(prototypes="anchored"),
    "FeatRecon's features in BCL's loss": BCL(
        synthesis="supports", head_above=5, nearest_heads=1, synthesis_start=0.5, snapshots=2
    ),
    "BCE3S's contrast beside PAL's anchors": PAL(contrast="binary"),
    "LDAM on FNPAL": FNPAL(classification="margin", margins="ldam"),
    "FNPN": FNPAL(classifier="cosine"),
    "BCE3S in two stages on mixed images": BCE3S(
        views=("strong", "mixup", "cutmix"),
        classified_views="all",
        negative_rate=0.4,
        negatives="batch",
        second_stage="rebalance",
        second_stage_epochs=2,
        max_norm=0.1,
    ),
    "wrong labels: a sum of two losses on FNPAL, scaled by the noise": FNPAL(
        classification="nce+rce", active_weight=1.0, passive_weight=0.1, classifier_scale="noise-aware"
    ),
    "wrong labels: generalised cross-entropy beside BCL's contrast": BCL(classification="gce", gce_q=0.7),
    "squared error in every slot": BCE3S(classification="mse", contrast="mse", spread="mse"),
    "softmax in every slot": BCE3S(classification="cross-entropy", contrast="cross-entropy", spread="cross-entropy"),
    "views of two kinds": BCL(views=("strong", "sim", "rand")),
    "temperatures alone": SupervisedContrastive(head_temperature=0.2),
    "two dimensions": CrossEntropy(feature_dim=2, last_relu=False),
}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bars()


@pytest.mark.parametrize("row", ROWS)
def test_every_row_runs(row: str, dataset: Dataset, tmp_path: Path) -> None:
    settings = ROWS[row]
    run = train(settings_of(settings), dataset, tmp_path / "run")
    weight = run.embeddings["classifier_weight"]
    assert weight.shape == (len(COUNTS), settings.feature_dim or 64)
    first = run.history[run.history["stage"] == 1]
    assert ("contrast" in first) == (settings.contrast != "none")
    assert ("spread" in first) == (settings.spread != "none")
    parts = settings.classification_weight * first["classification"]
    if settings.contrast != "none":
        parts = parts + settings.contrast_weight * first["contrast"]
    if settings.spread != "none":
        parts = parts + settings.spread_weight * first["spread"]
    np.testing.assert_allclose(first["total"], parts, rtol=1e-5)
    # What PAL fixes stays a simplex, and is 109.47° wide for four classes.
    if settings.classifier in ("anchored", "anchored-cosine"):
        np.testing.assert_allclose(run.history["classifier_smallest_angle"].dropna(), 109.4712, atol=1e-2)
        np.testing.assert_allclose(run.history["classifier_norm"].dropna(), 1, atol=1e-5)
    if settings.prototypes == "anchored" and settings.contrast == "balanced":
        gram = run.embeddings["prototypes"] @ run.embeddings["prototypes"].T
        np.testing.assert_allclose(gram, 4 / 3 * np.eye(4) - 1 / 3, atol=1e-5)


def test_synthetic_features_count_from_the_epoch_they_begin_in(dataset: Dataset, tmp_path: Path) -> None:
    with_them = train(settings_of(ROWS["featrecon"]), dataset, tmp_path / "with")
    without = FeatRecon(synthesis="none", snapshots=2)
    plain = train(settings_of(without), dataset, tmp_path / "without")
    same = (with_them.history["total"] == plain.history["total"]).tolist()
    assert same == [True, True, False, False]


@pytest.mark.parametrize("classification", get_args(Classification))
def test_every_classification_takes_a_step(classification: Any) -> None:
    head = {"binary": "normalised", "mse": "normalised"}.get(classification, "anchored-cosine")
    parameters = any_method.parameters_of(classification, random.Random(0))
    before = any_method.train_a_little(CrossEntropy(classification=classification, classifier=head, **parameters), 0)
    after = any_method.train_a_little(CrossEntropy(classification=classification, classifier=head, **parameters), 1)
    moved = [not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    assert all(moved)


def test_the_network_of_the_mnist_runs_trains(dataset: Dataset, tmp_path: Path) -> None:
    run = train(settings_of(PAL(), encoder="cnn4"), dataset, tmp_path / "run")
    assert run.embeddings["test_features"].shape == (20, 128)
    assert run.history["total"].iloc[-1] < run.history["total"].iloc[0]


def test_a_noise_aware_scale_knows_the_data_sets_rate(tmp_path: Path) -> None:
    dataset = noisy_bars(bars().train_labels.roll(5))
    assert dataset.settings.noise_rate == 0.4
    aware = train(settings_of(FNPAL(classifier_scale="noise-aware")), dataset, tmp_path / "aware")
    fixed = train(settings_of(FNPAL(classifier_scale=0.25 / 0.45)), dataset, tmp_path / "fixed")
    np.testing.assert_array_equal(aware.embeddings["test_logits"], fixed.embeddings["test_logits"])
    assert np.abs(aware.embeddings["test_logits"]).max() <= 0.25 / 0.45 + 1e-6


def test_methods_drawn_at_random_train() -> None:
    """What passes the checks of the settings fails nowhere later."""
    source = random.Random(3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*cannot form a regular simplex", category=UserWarning)
        for _ in range(20):
            settings = any_method.valid_method(source)
            try:
                any_method.train_a_little(settings)
            except Exception as error:
                raise AssertionError(settings.slots()) from error
