"""What corrects for the class sizes outside the losses: weights, samplers, corrections, scales, smoothed labels."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from bars import bars, settings_of
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ltnb import training
from ltnb.data.prepare import Dataset
from ltnb.methods import (
    CRT,
    LDAM,
    LWS,
    ClassBalanced,
    CrossEntropy,
    DotRegression,
    MethodSettings,
    MixUp,
    PostHocAdjustment,
    Resampling,
    TauNormalised,
)
from ltnb.methods.assembly import Method
from ltnb.methods.stages import Stage
from ltnb.models.heads import RescaledClassifier

COUNTS = [24, 9, 4, 1]
Y = torch.tensor([0, 0, 1, 2, 0, 3])
FIRST = Stage("everything", 6, 0.1, 2, 1e-3)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bars()


def method_of(settings: MethodSettings) -> Method:
    torch.manual_seed(0)
    return Method(settings, "resnet8", 1, COUNTS)


def images(number: int = len(Y), seed: int = 1) -> Tensor:
    return torch.randn(number, 1, 8, 8, generator=Generator().manual_seed(seed))


def weights_by_hand(beta: float) -> list[float]:
    raw = [(1 - beta) / (1 - beta**n) for n in COUNTS]
    return [weight * len(raw) / sum(raw) for weight in raw]


def first_stage_of(run_folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(run_folder / "model.safetensors")


# Weights of the classification term.


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.9999])
@pytest.mark.parametrize("labels", [Y.tolist(), [0, 0, 0, 0, 0, 0], [3, 2, 2, 2, 2, 2]])
def test_balanced_weights_are_those_of_torch(beta: float, labels: list[int]) -> None:
    method, y = method_of(ClassBalanced(class_balance=beta)), torch.tensor(labels)
    found = method.losses([images()], [y], Generator())["total"]
    expected = F.cross_entropy(
        method.classifier(method.encoder(images())), y, weight=torch.tensor(weights_by_hand(beta))
    )
    torch.testing.assert_close(found, expected)


def test_weights_of_every_view_and_of_soft_labels() -> None:
    """A view with soft labels weighs an image by what its labels are made of; views count the same."""
    method = method_of(ClassBalanced(views=("strong", "mixup"), classified_views="all", class_balance=0.9))
    views = [images(seed=1), images(seed=2)]
    soft = torch.softmax(torch.randn(len(Y), 4, generator=Generator().manual_seed(3)), dim=1)
    found = method.losses(views, [Y, soft], Generator())["total"]
    features = method.encoder(torch.cat(views)).chunk(2)
    by_view = []
    for of_view, labels in zip(features, (F.one_hot(Y, 4).float(), soft), strict=True):
        logits = method.classifier(of_view).double().tolist()
        total = weight_of_all = 0.0
        for row, label in zip(logits, labels.double().tolist(), strict=True):
            log_sum = math.log(sum(math.exp(f) for f in row))
            weight = sum(share * w for share, w in zip(label, weights_by_hand(0.9), strict=True))
            total += weight * sum(share * (log_sum - f) for share, f in zip(label, row, strict=True))
            weight_of_all += weight
        by_view.append(total / weight_of_all)
    assert found.item() == pytest.approx(sum(by_view) / 2, rel=1e-5)


def test_weights_are_of_the_classification_term_alone() -> None:
    changes: dict[str, Any] = {"views": ("strong", "strong"), "contrast": "supervised"}
    weighted, plain = method_of(ClassBalanced(**changes)), method_of(CrossEntropy(**changes))
    views = [images(seed=1), images(seed=2)]
    terms, expected = (method.losses(views, [Y, Y], Generator()) for method in (weighted, plain))
    torch.testing.assert_close(terms["contrast"], expected["contrast"])
    assert terms["classification"].item() != pytest.approx(expected["classification"].item(), rel=1e-3)


@pytest.mark.parametrize(
    ("start", "epochs", "unweighted"),
    [(0.8, 200, 160), (0.8, 60, 48), (0.8, 4, 3), (0.5, 3, 2), (0.01, 60, 1), (0.99, 60, 59), (0.29, 100, 29)],
)
def test_how_long_deferred_weights_wait(start: float, epochs: int, unweighted: int) -> None:
    settings = LDAM(weighting_start=start)
    assert settings.unweighted_epochs(epochs) == unweighted
    method = method_of(settings)
    counted = []
    for epoch in range(epochs):
        counted.append(bool(method.weights_count))
        method.after_epoch(epoch + 1, epochs)
    assert counted == [False] * unweighted + [True] * (epochs - unweighted)


def test_deferred_weights_are_none_and_then_those_of_balanced_ones() -> None:
    changes: dict[str, Any] = {"class_balance": 0.9, "classification": "focal", "focal_gamma": 1.0}
    plain = CrossEntropy(classification="focal", focal_gamma=1.0)
    deferred = method_of(CrossEntropy(class_weighting="deferred", weighting_start=0.5, **changes))
    before, after = (
        method_of(settings).losses([images()], [Y], Generator())["total"]
        for settings in (plain, CrossEntropy(class_weighting="balanced", **changes))
    )
    assert before.item() != pytest.approx(after.item(), rel=1e-3)
    torch.testing.assert_close(deferred.losses([images()], [Y], Generator())["total"], before)
    deferred.after_epoch(1, 4)
    torch.testing.assert_close(deferred.losses([images()], [Y], Generator())["total"], before)
    deferred.after_epoch(2, 4)
    torch.testing.assert_close(deferred.losses([images()], [Y], Generator())["total"], after)
    # A run that goes on knows it from its state, which others do not have.
    resumed = method_of(deferred.settings)
    resumed.load_state_dict(deferred.state_dict())
    torch.testing.assert_close(resumed.losses([images()], [Y], Generator())["total"], after)
    with_flag = {
        weighting: "weights_count" in method_of(CrossEntropy(class_weighting=weighting)).state_dict()  # type: ignore[arg-type]
        for weighting in ("none", "balanced", "deferred")
    }
    assert with_flag == {"none": False, "balanced": False, "deferred": True}


def test_a_run_is_the_unweighted_one_until_its_weights_count(dataset: Dataset, tmp_path: Path) -> None:
    deferred = training.train(settings_of(LDAM(weighting_start=0.5)), dataset, tmp_path / "deferred")
    plain = training.train(settings_of(LDAM(class_weighting="none")), dataset, tmp_path / "plain")
    same = (deferred.history["total"] == plain.history["total"]).tolist()
    assert same == [True, True, False, False]


def test_a_second_stage_leaves_the_weights_as_they_were() -> None:
    method = method_of(LDAM(second_stage="retrain", weighting_start=0.5))
    for epoch in (1, 2):
        method.after_epoch(epoch, 2)
    assert method.weights_count
    method.begin(1)
    method.after_epoch(1, 100)
    assert method.weights_count


# How often a class is shown.


def test_the_sampler_is_of_the_first_stage(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [stage.sampler for stage in method_of(Resampling()).stages(FIRST)] == ["class-balanced"]
    assert [s.sampler for s in method_of(Resampling(second_stage="rebalance")).stages(FIRST)] == [
        "class-balanced",
        "instance",
    ]
    assert [s.sampler for s in method_of(CRT()).stages(FIRST)] == ["instance", "class-balanced"]
    shown: list[Tensor] = []
    losses = Method.losses

    def watched(self: Method, views: Any, targets: Any, generator: Any) -> Any:
        shown.append(targets[0])
        return losses(self, views, targets, generator)

    monkeypatch.setattr(Method, "losses", watched)
    training.train(settings_of(Resampling(), epochs=8), dataset, tmp_path / "run")
    counts = torch.cat(shown).bincount(minlength=4)
    assert counts.sum() == 8 * sum(COUNTS)
    expected = counts.sum() / 4
    assert ((counts - expected).abs() < 4 * (expected * 3 / 4).sqrt()).all()


# Corrections at evaluation.


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_post_hoc_adjustment_by_hand(tau: float) -> None:
    method = method_of(PostHocAdjustment(correction_strength=tau)).eval()
    raw = method.classifier(method.encoder(images())).tolist()
    for row, found in zip(raw, method.logits(images()).tolist(), strict=True):
        expected = [f - tau * math.log(n / sum(COUNTS)) for f, n in zip(row, COUNTS, strict=True)]
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_tau_normalisation_by_hand(tau: float) -> None:
    method = method_of(TauNormalised(correction_strength=tau)).eval()
    assert isinstance(method.classifier, nn.Linear)
    nn.init.normal_(method.classifier.bias)  # which does not count
    features = method.encoder(images()).tolist()
    for x, found in zip(features, method.logits(images()).tolist(), strict=True):
        expected = [
            sum(a * b for a, b in zip(w, x, strict=True)) / math.hypot(*w) ** tau
            for w in method.classifier.weight.tolist()
        ]
        assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("settings", [PostHocAdjustment(), TauNormalised()], ids=lambda settings: settings.system)
def test_a_correction_changes_nothing_of_training(settings: MethodSettings, dataset: Dataset, tmp_path: Path) -> None:
    corrected = training.train(settings_of(settings), dataset, tmp_path / "corrected")
    plain = training.train(settings_of(CrossEntropy()), dataset, tmp_path / "plain")
    weights, expected = first_stage_of(tmp_path / "corrected"), first_stage_of(tmp_path / "plain")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(values, expected[name]) for name, values in weights.items())
    np.testing.assert_array_equal(corrected.history["total"], plain.history["total"])
    np.testing.assert_array_equal(corrected.embeddings["test_features"], plain.embeddings["test_features"])
    features = torch.from_numpy(plain.embeddings["test_features"]).double()
    weight = expected["first_classifier.weight"].double()
    logits = (
        torch.from_numpy(plain.embeddings["test_logits"]).double() - (torch.tensor(COUNTS) / sum(COUNTS)).log()
        if settings.correction == "logit-adjusted"
        else features @ F.normalize(weight, dim=1).T
    )
    np.testing.assert_allclose(corrected.embeddings["test_logits"], logits, rtol=1e-4, atol=1e-4)
    labels = torch.from_numpy(plain.embeddings["test_labels"])
    assert corrected.metrics["accuracy"] == (logits.argmax(dim=1) == labels).double().mean().item()


# Second stages.


def test_scales_start_at_one_with_the_vectors_that_the_first_stage_trained(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []
    begin = Method.begin

    def watched(self: Method, stage: int) -> Any:
        parameters = begin(self, stage)
        if stage == 1:
            head = self.classifier
            assert isinstance(head, RescaledClassifier)
            assert torch.equal(head.scales, torch.ones(4))
            assert torch.equal(head.weight, self.first_classifier.weight)
            assert torch.equal(head.bias, self.first_classifier.bias)  # type: ignore[arg-type]
            starts.append([id(head.scales)] == [id(parameter) for parameter in parameters])
        return parameters

    monkeypatch.setattr(Method, "begin", watched)
    rescaled = training.train(settings_of(LWS(second_stage_epochs=3)), dataset, tmp_path / "lws")
    assert starts == [True]
    plain = training.train(settings_of(CrossEntropy()), dataset, tmp_path / "plain")
    weights, expected = first_stage_of(tmp_path / "lws"), first_stage_of(tmp_path / "plain")
    assert all(torch.equal(weights[name], values) for name, values in expected.items())  # byte for byte
    assert weights.keys() - expected.keys() == {
        f"second_classifier.{name}" for name in ("frozen_weight", "frozen_bias", "scales")
    }
    assert torch.equal(weights["second_classifier.frozen_weight"], expected["first_classifier.weight"])
    assert torch.equal(weights["second_classifier.frozen_bias"], expected["first_classifier.bias"])
    scales = weights["second_classifier.scales"]
    assert (scales != 1).all()
    np.testing.assert_array_equal(
        rescaled.embeddings["classifier_weight"], scales[:, None] * expected["first_classifier.weight"]
    )
    logits = torch.from_numpy(plain.embeddings["test_logits"]) * scales
    np.testing.assert_allclose(rescaled.embeddings["test_logits"], logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("system", [CRT, LWS])
@pytest.mark.parametrize(("head", "tail"), [(0.4, 0.1), (0.4, 0.0), (0.0, 0.0)])
def test_smoothed_labels_of_a_second_stage_by_hand(system: Any, head: float, tail: float) -> None:
    method = method_of(system(smoothing_head=head, smoothing_tail=tail))
    first = method.losses([images()], [Y], Generator())["total"]  # the first stage knows of none
    torch.testing.assert_close(first, F.cross_entropy(method.classifier(method.encoder(images())), Y))
    method.begin(1)
    method.train()
    found = method.losses([images()], [Y], Generator())["total"].item()
    total = 0.0
    for row, k in zip(method.logits(images()).tolist(), Y.tolist(), strict=True):
        share = (COUNTS[k] - min(COUNTS)) / (max(COUNTS) - min(COUNTS))
        given = tail + (head - tail) * math.sin(share * math.pi / 2)
        log_sum = math.log(sum(math.exp(f) for f in row))
        labels = [1 - given if j == k else given / 3 for j in range(4)]
        total += sum(label * (log_sum - f) for label, f in zip(labels, row, strict=True))
    assert found == pytest.approx(total / len(Y), rel=1e-5)


@pytest.mark.parametrize("second_stage", ["retrain", "rescale", "rebalance"])
@pytest.mark.parametrize(
    ("first_view", "of_one"),
    [
        ("mixup", "strong"),
        ("cutmix", "strong"),
        ("mixup-flip", "crop-flip"),
        ("cutmix-flip", "crop-flip"),
        ("weak", "weak"),
    ],
)
def test_a_second_stage_sees_one_unmixed_view(
    second_stage: Any, first_view: Any, of_one: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = MixUp(views=(first_view,), second_stage=second_stage, second_stage_epochs=2)
    method = method_of(settings)
    assert method.views == (first_view,)
    method.begin(1)
    assert method.views == (of_one,)
    seen = []
    losses = Method.losses

    def watched(self: Method, views: Any, targets: Any, generator: Any) -> Any:
        seen.append((self.stage, [of_view.is_floating_point() for of_view in targets]))
        return losses(self, views, targets, generator)

    monkeypatch.setattr(Method, "losses", watched)
    training.train(settings_of(settings, epochs=2), dataset, tmp_path / "run")
    assert seen == [(0, [first_view != "weak"])] * 6 + [(1, [False])] * 6


# Classifiers of a fixed shape.


def test_dot_regression_of_normalised_features_on_a_simplex() -> None:
    method = method_of(DotRegression())
    terms = method.losses([images()], [Y], Generator())
    features = F.normalize(method.encoder(images()), dim=1)
    cosines = (features * method.classifier.weight[Y]).sum(dim=1)
    torch.testing.assert_close(terms["total"], ((cosines - 1) ** 2).mean() / 2)
    # The batch normalisation is what lets features reach the simplex: behind a ReLU they could not.
    torch.testing.assert_close(method.encoder(images()).mean(dim=0), torch.zeros(64), rtol=0, atol=1e-5)


def test_a_run_of_dot_regression_moves_features_to_their_anchors(dataset: Dataset, tmp_path: Path) -> None:
    run = training.train(settings_of(DotRegression(), epochs=12), dataset, tmp_path / "run")
    assert run.history["total"].iloc[-1] < 0.5 * run.history["total"].iloc[0]
    np.testing.assert_allclose(run.history["classifier_smallest_angle"].dropna(), 109.4712, atol=1e-2)
