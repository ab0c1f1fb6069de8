"""What wrong labels did to a run, against loops over images in plain Python."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from bars import bars, noisy_bars, settings_of
from numpy.typing import NDArray
from torch import Generator

from ltnb import noisy_labels
from ltnb.data.augmentation import augment, normalise
from ltnb.data.noise import symmetric_noise, transition_matrix
from ltnb.geometry import regular_simplex
from ltnb.methods import (
    BCE3S,
    BCL,
    FNPAL,
    LWS,
    PAL,
    RBL,
    ClassBalanced,
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
from ltnb.runs import Run
from ltnb.theory.anchored_prototypes import noise_excess_risk
from ltnb.training import train

K, DIM = 4, 6
CLEAN = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3]
TEST = [0, 0, 1, 1, 2, 2, 3, 3]
BIAS = [0.5, -1.0, 0.0, 2.0]
GIVEN = {
    "asymmetric": [0, 1, 0, 1, 1, 0, 1, 2, 2, 3, 0, 3],
    "one flipped": [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 1],
    "a class without labels": [0, 0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3],
    "no label wrong": CLEAN,  # by chance, with noise in the settings
}
MAPPING = {0: 1, 1: 0, 3: 0}
SOURCE = {"source": "digits", "imbalance": 1.0}
NOISY = SOURCE | {"noise": "asymmetric", "noise_rate": 0.3, "noise_mapping": MAPPING}
SCALES = {"linear": 1.0, "anchored": 3.0, "cosine": 2.0, "anchored-cosine": 0.25 / 0.35}


def made(classifier: str = "linear", data: str = "asymmetric", **method: Any) -> Run:
    """A run of random features, a training and a test image's zero, whose classifier is known."""
    generator = np.random.default_rng(0)
    anchored = classifier.startswith("anchored")
    weight = regular_simplex(K, DIM).numpy() if anchored else generator.normal(size=(K, DIM))
    features = {split: generator.normal(size=(n, DIM)) for split, n in (("train", len(CLEAN)), ("test", len(TEST)))}
    features["train"][0] = features["test"][3] = 0
    run = Run(
        folder=Path("none"),
        params={
            "method_name": "m",
            "seed": 3,
            "dataset": SOURCE if data == "clean" else NOISY,
            "method": {
                "classification": "cross-entropy",
                "classifier": classifier,
                "classifier_scale": "noise-aware" if classifier == "anchored-cosine" else SCALES[classifier],
                "anchors": "simplex",
                "second_stage": "none",
                **method,
            },
        },
        metrics={"accuracy": 0.5, "train_accuracy": 0.7},
        history=pd.DataFrame({"epoch": [1, 2, 3, 4], "test_accuracy": [np.nan, 0.6, 0.6, 0.5]}),
        embeddings={
            "train_features": features["train"],
            "test_features": features["test"],
            "train_labels": np.array(CLEAN if data == "clean" else GIVEN[data]),
            "test_labels": np.array(TEST),
            "classifier_weight": weight,
        },
    )
    run.embeddings["test_logits"] = np.array([scores(run, x) for x in features["test"]])
    if data != "clean":
        wanted = transition_matrix(0.3, K, MAPPING).tolist()
        run.params["noise"] = {"transition_matrix": {"wanted": wanted}, "rate": {"wanted": 0.25}}
        run.embeddings["train_clean_labels"] = np.array(CLEAN)
        run.metrics.update(train_accuracy_clean=0.8, memorised=0.25, recovered=0.5)
    return run


def cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def scores(run: Run, x: NDArray[np.float64]) -> list[float]:
    """f(x) of the classifiers' definitions."""
    kind, weight = run.params["method"]["classifier"], run.embeddings["classifier_weight"]
    if kind in ("cosine", "anchored-cosine"):
        return [SCALES[kind] * cosine(x, w) for w in weight]
    products = [float(sum(a * b for a, b in zip(x, w, strict=True))) for w in weight]
    return [p + b for p, b in zip(products, BIAS, strict=True)] if kind == "linear" else [3 * p for p in products]


def losses(run: Run, x: NDArray[np.float64]) -> list[float]:
    """−log softmax(f(x))_k of every class k."""
    f = scores(run, x)
    return [math.log(sum(math.exp(other) for other in f)) - own for own in f]


def expected(run: Run) -> dict[str, float]:
    """Every measure that is not read from the run's metrics and history."""
    arrays = run.embeddings
    train, weight, given = arrays["train_features"], arrays["classifier_weight"], arrays["train_labels"].tolist()
    clean = CLEAN
    transition = transition_matrix(0.3, K, MAPPING).tolist() if "noise" in run.params else np.eye(K).tolist()

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else math.nan

    def noisy(features: NDArray[np.float64], labels: list[int]) -> float:
        return mean(
            [sum(transition[y][j] * losses(run, x)[j] for j in range(K)) for x, y in zip(features, labels, strict=True)]
        )

    wrong = [i for i in range(len(train)) if clean[i] != given[i]]
    angles = [math.degrees(math.acos(cosine(weight[j], weight[k]))) for j in range(K) for k in range(j)]
    found = {
        "train_cosine_clean": mean([cosine(x, weight[y]) for x, y in zip(train, clean, strict=True)]),
        "train_cosine_wrong": mean([cosine(train[i], weight[given[i]]) for i in wrong]),
        "test_cosine": mean([cosine(x, weight[y]) for x, y in zip(arrays["test_features"], TEST, strict=True)]),
        "classifier_smallest_angle": min(angles),
        "risk_clean_train": mean([losses(run, x)[y] for x, y in zip(train, clean, strict=True)]),
        "risk_given_train": mean([losses(run, x)[y] for x, y in zip(train, given, strict=True)]),
        "risk_noisy_train": noisy(train, clean),
        "risk_clean_test": mean([losses(run, x)[y] for x, y in zip(arrays["test_features"], TEST, strict=True)]),
        "risk_noisy_test": noisy(arrays["test_features"], TEST),
    }
    if run.params["method"]["classifier"] == "anchored-cosine":
        prototype = losses(run, weight[0])[0]  # a feature that is its prototype
        found["risk_excess"] = found["risk_clean_train"] - prototype
    return {name: value for name, value in found.items() if not math.isnan(value)}


def values_of(run: Run) -> dict[str, float]:
    frame = noisy_labels.measures([run])
    assert list(frame.columns) == ["method", "seed", "measure", "value"]
    assert not frame["measure"].duplicated().any()
    return dict(zip(frame["measure"], frame["value"], strict=True))


@pytest.mark.parametrize("data", [*GIVEN, "clean"])
@pytest.mark.parametrize("classifier", SCALES)
def test_every_measure_is_that_of_a_loop_over_images(classifier: str, data: str) -> None:
    if (classifier, data) == ("anchored-cosine", "clean"):
        run = made(classifier, data, classifier_scale=SCALES[classifier])
    else:
        run = made(classifier, data)
    of_run = {"best_accuracy": 0.6, "best_epoch": 2}
    if data != "clean":
        of_run |= {"train_accuracy_clean": 0.8, "memorised": 0.25, "recovered": 0.5}
    found = values_of(run)
    assert found == pytest.approx(expected(run) | of_run, abs=1e-12)
    assert ("train_cosine_wrong" in found) == (data not in ("clean", "no label wrong"))


def test_without_noise_all_risks_of_a_split_are_one() -> None:
    found = values_of(made(data="clean"))
    assert found["risk_given_train"] == found["risk_clean_train"] == pytest.approx(found["risk_noisy_train"])
    assert found["risk_clean_test"] == pytest.approx(found["risk_noisy_test"])
    assert not {"train_accuracy_clean", "memorised", "recovered"} & found.keys()


@pytest.mark.parametrize(
    "method",
    [
        {"classification": "logit-adjusted"},
        {"classification": "margin"},
        {"classification": "gce"},
        {"classification": "nce+rce"},
        {"classifier": "normalised"},
        {"second_stage": "retrain"},
    ],
)
def test_no_risks_where_no_plain_softmax_was_trained(method: dict[str, str]) -> None:
    found = values_of(replace(made(), params=made().params | {"method": made().params["method"] | method}))
    assert not [name for name in found if name.startswith("risk")]
    assert "train_cosine_wrong" in found


def test_an_excess_needs_a_simplex_and_normalised_features() -> None:
    assert "risk_excess" in values_of(made("anchored-cosine"))
    for run in (made("anchored-cosine", anchors="optimised"), made("anchored"), made("cosine")):
        found = values_of(run)
        assert "risk_excess" not in found
        assert "risk_clean_train" in found


def test_features_at_their_prototypes_have_no_excess() -> None:
    run = made("anchored-cosine")
    at_prototypes = 7 * run.embeddings["classifier_weight"][CLEAN]
    found = values_of(replace(run, embeddings=dict(run.embeddings) | {"train_features": at_prototypes}))
    assert found["risk_excess"] == pytest.approx(0, abs=1e-12)
    assert found["train_cosine_clean"] == pytest.approx(1)
    assert found["risk_given_train"] > found["risk_clean_train"]


def test_a_scale_goes_by_the_rate_of_the_settings_as_in_training() -> None:
    """Not by the share of wrong labels, which is lower where a mapping leaves classes out."""
    run = made("anchored-cosine")
    assert noisy_labels.classifier_scale(run) == pytest.approx(0.25 / (0.05 + 0.3))
    rates = {"noise_rate": [0.1, 0.2, 0, 0.6] + [0] * 6}
    by_class = replace(run, params=run.params | {"dataset": NOISY | rates})
    assert noisy_labels.classifier_scale(by_class) == pytest.approx(0.25 / (0.05 + 0.3))
    assert noisy_labels.classifier_scale(replace(run, params=run.params | {"dataset": SOURCE})) == pytest.approx(5)
    assert noisy_labels.classifier_scale(made("linear")) is None


METHODS = {
    "ce": CrossEntropy(),
    "pal": PAL(),
    "fnpal": FNPAL(classifier_scale="noise-aware"),
    "fnpn": FNPAL(classifier="cosine", classifier_scale=3.0),
}


@pytest.mark.parametrize("encoder", ["cnn4", "resnet8"])
@pytest.mark.parametrize("name", METHODS)
def test_risks_are_the_losses_of_the_network_itself(name: str, encoder: str, tmp_path: Path) -> None:
    dataset = noisy_bars(symmetric_noise(bars().train_labels, 0.4, K, seed=0))
    settings = settings_of(METHODS[name], encoder=encoder, epochs=2).model_copy(update={"dataset": dataset.settings})
    run = train(settings, dataset, tmp_path / "run")
    # The run's own logits first: stored of test images, and recomputed.
    stored = run.embeddings["test_logits"]
    np.testing.assert_allclose(noisy_labels.logits(run, "test").numpy(), stored, atol=1e-5 * np.abs(stored).max())

    method = Method(settings.method, encoder, 1, dataset.known_counts.tolist(), noise_rate=0.4)
    method.load_state_dict(safetensors.torch.load_file(tmp_path / "run" / "model.safetensors"))
    method.eval()
    images = normalise(augment(dataset.train_images, "none", Generator()), dataset.mean, dataset.std)
    with torch.no_grad():
        logits = method.logits(images).double()
    found = values_of(run)
    for measure, labels in (("clean", dataset.clean_labels), ("given", dataset.train_labels)):
        loss = torch.nn.functional.cross_entropy(logits, labels).item()
        assert found[f"risk_{measure}_train"] == pytest.approx(loss, rel=1e-4)
    assert found["risk_clean_train"] != pytest.approx(found["risk_given_train"], rel=1e-4)
    assert found["memorised"] == run.metrics["memorised"]
    assert found["classifier_smallest_angle"] == pytest.approx(
        run.history["classifier_smallest_angle"].iloc[-1], abs=1e-3
    )


@pytest.mark.parametrize("method", [BCL(), FeatRecon(head_above=5, nearest_heads=1), BCE3S()], ids=lambda m: m.system)
def test_systems_with_projections_are_measured_by_their_features(method: Any, tmp_path: Path) -> None:
    dataset = noisy_bars(bars().train_labels.where(bars().train_labels != 3, 0))
    run = train(settings_of(method, epochs=2), dataset, tmp_path / "run")
    assert values_of(run).keys() == {
        "train_accuracy_clean",
        "memorised",
        "recovered",
        "best_accuracy",
        "best_epoch",
        "train_cosine_clean",
        "train_cosine_wrong",
        "test_cosine",
        "classifier_smallest_angle",
    }


def test_a_row_a_run_and_measure() -> None:
    frame = noisy_labels.measures([made(), made("cosine", method_name="other")])
    assert frame.groupby("measure").size().eq(2).all()
    assert set(frame["seed"]) == {3}
    assert list(noisy_labels.measures([]).columns) == ["method", "seed", "measure", "value"]


@pytest.mark.parametrize("rate", [0.2, 0.6])
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_bound_on_the_risk_is_the_theorems_and_holds(rate: float, scale: float) -> None:
    decay = math.exp(-10 * scale / 9)
    constant = 10 * (1 - decay) / (1 + 9 * decay)
    bound = noisy_labels.risk_bound(10, rate, scale)
    assert bound == pytest.approx(2 * constant * scale * rate / ((1 - rate) * 10 - 1))
    assert bound > noise_excess_risk(10, rate, scale)


@pytest.mark.parametrize(
    "settings",
    [
        BCE3S(),
        RBL(),
        DotRegression(),
        LWS(second_stage_epochs=2),
        CrossEntropy(classifier="cosine", second_stage="retrain", second_stage_epochs=2),
        PAL(second_stage="retrain", second_stage_epochs=2),
        PostHocAdjustment(),
        TauNormalised(),
    ],
    ids=["normalised", "rotated", "anchored-cosine", "rescaled", "retrained", "retrained anchors", "adjusted", "tau"],
)
def test_logits_are_those_that_the_run_was_evaluated_by(settings: MethodSettings, tmp_path: Path) -> None:
    run = train(settings_of(settings), bars(), tmp_path)
    stored = run.embeddings["test_logits"]
    found = noisy_labels.logits(run, "test").numpy()
    np.testing.assert_allclose(found, stored, rtol=1e-4, atol=1e-4 * np.abs(stored).max())


@pytest.mark.parametrize(
    "settings",
    [
        ClassBalanced(),
        Resampling(),
        PostHocAdjustment(),
        TauNormalised(),
        PaCo(classification="cross-entropy"),
        CrossEntropy(classification_weight=0.0, views=("strong", "strong"), contrast="supervised"),
    ],
    ids=["weighted", "resampled", "adjusted", "tau", "parametric", "untrained"],
)
def test_no_risk_where_plain_cross_entropy_is_not_what_was_trained(settings: MethodSettings, tmp_path: Path) -> None:
    """Weights, samplers and corrections minimise another risk than the one that the bounds are about."""
    run = train(settings_of(settings), bars(), tmp_path)
    assert not noisy_labels.measures([run])["measure"].str.startswith("risk").any()
