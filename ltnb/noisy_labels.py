"""What wrong labels did to a run, as single numbers: what was memorised, where features lie, and the risks.

y is an image's true class, ỹ the label that is given, T_ij = P(ỹ = j | y = i) as it was wanted, η the rate of wrong
labels, x the image's feature, w_k the classifier's vector of class k, of K, and f_k(x) its logit. Without noise ỹ = y
and T is the identity.
"""

from collections.abc import Iterable, Iterator

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ltnb import geometry
from ltnb.balance import deciding_bias, deciding_classifier, deciding_weight
from ltnb.data.settings import DatasetSettings
from ltnb.methods.slots import NORMALISED_FEATURES, SIMPLEX
from ltnb.runs import Run
from ltnb.tables import by_run
from ltnb.theory.anchored_prototypes import (
    lipschitz_constant,
    margin_loss_bound,
    noise_aware_scale,
    noise_risk_bound,
)

FIT = ("train_accuracy_clean", "memorised", "recovered")
SCALED = ("cosine", *SIMPLEX)  # classifiers with an s


def measures(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns method, seed, measure, value: a row a run and measure.

    Means over images, N of a split. Of the last epoch:

    - ``train_accuracy_clean``: the share of training images that are predicted as y; ``memorised`` and ``recovered``:
      the shares of those with ỹ ≠ y that are predicted as ỹ and as y (`ltnb.training.memorisation`).
    - ``train_cosine_clean`` = 1/N Σ cos(x, w_y); ``train_cosine_wrong``, the mean of cos(x, w_ỹ) over ỹ ≠ y;
      ``test_cosine`` = 1/N Σ cos(x, w_y). Features are seen from the origin; one that is 0 has the cosine 0.
    - ``classifier_smallest_angle``: min_{j≠k} ∠(w_j, w_k) in degrees.

    Of the whole training, to look at over-fitting and never to choose by, since test images decide:

    - ``best_accuracy``: the largest test accuracy of all watched epochs; ``best_epoch``: the first that has it.

    Risks in nats, of cross-entropy with a plain softmax, ℓ_k(x) = −log softmax(f(x))_k, where that is what was trained
    (no logit adjustment, no margin, no second stage):

    - ``risk_clean_train`` and ``risk_clean_test``: R = 1/N Σ ℓ_y(x).
    - ``risk_given_train`` = 1/N Σ ℓ_ỹ(x), of the labels as they came about.
    - ``risk_noisy_train`` and ``risk_noisy_test``: PAL's noisy risk R^η = 1/N Σ_i Σ_j T_{y_i j} ℓ_j(x_i), of
      labels as they may fall.
    - ``risk_excess`` = ``risk_clean_train`` − log(1 + (K−1) e^{−Ks/(K−1)}): over the least there is (Theorem 4.1),
      where features are normalised and prototypes anchored at a regular simplex (FNPAL).

    What does not exist is absent: ``memorised`` where no label is wrong, ``train_accuracy_clean`` without noise.
    """
    return by_run(runs, _measures)


def risk_bound(num_classes: int, noise_rate: float, scale: float) -> float:
    """2λsη / ((1−η)K − 1) ≥ R(f̂) − R(f*), with PAL's λ at ‖z‖ = s: Theorem 4.4 and Proposition 4.5 put together.

    What cross-entropy with FNPAL loses at most of its clean risk, in nats, where it minimises the risk under symmetric
    noise; K is ``num_classes``.

    Raises:
        ValueError: as `ltnb.theory.anchored_prototypes.noise_risk_bound`.
    """
    return noise_risk_bound(num_classes, noise_rate, scale, lipschitz_constant(num_classes, scale))


def classifier_scale(run: Run) -> float | None:
    """Return the s that multiplied a run's logits, ``noise-aware`` as training resolves it; None without one."""
    method = run.params["method"]
    if deciding_classifier(run) not in SCALED:
        return None
    if method["classifier_scale"] != "noise-aware":
        return float(method["classifier_scale"])
    # By the rate of the settings. `noise` in params.json has the share of wrong labels, which under asymmetric noise
    # is a lower one: classes that the mapping leaves out keep theirs.
    return noise_aware_scale(DatasetSettings.model_validate(run.params["dataset"]).average_noise_rate)


def logits(run: Run, split: str) -> Tensor:
    """Return f(x) = s W x + b of a split's images (N, K) in float64, which a run keeps of the test images alone.

    With x/‖x‖ in the place of x where the classifier normalises features.
    """
    features = torch.from_numpy(run.embeddings[f"{split}_features"]).double()
    if deciding_classifier(run) in NORMALISED_FEATURES:
        features = normalize(features, dim=1)
    scores: Tensor = features @ deciding_weight(run).T
    scale, bias = classifier_scale(run), deciding_bias(run)
    if scale is not None:
        scores = scale * scores
    return scores if bias is None else scores + bias


def _measures(run: Run) -> Iterator[tuple[str, float]]:
    yield from ((name, run.metrics[name]) for name in FIT if name in run.metrics)
    watched = run.history.set_index("epoch")["test_accuracy"].dropna()
    yield "best_accuracy", float(watched.max())
    yield "best_epoch", float(watched.index[watched == watched.max()][0])
    yield from _cosines(run)
    if _is_plain_softmax(run):
        yield from _risks(run)


def _labels(run: Run) -> tuple[Tensor, Tensor]:
    """True classes y and given labels ỹ of the training images."""
    given = torch.from_numpy(run.embeddings["train_labels"]).long()
    clean = run.embeddings.get("train_clean_labels")
    return given if clean is None else torch.from_numpy(clean).long(), given


def _cosines(run: Run) -> Iterator[tuple[str, float]]:
    weight = torch.from_numpy(run.embeddings["classifier_weight"]).double()
    train, test = (
        normalize(torch.from_numpy(run.embeddings[f"{split}_features"]).double(), dim=1) @ normalize(weight, dim=1).T
        for split in ("train", "test")
    )
    clean, given = _labels(run)
    wrong = clean != given
    yield "train_cosine_clean", float(_of_classes(train, clean).mean())
    yield "train_cosine_wrong", float(_of_classes(train, given)[wrong].mean())
    yield "test_cosine", float(_of_classes(test, torch.from_numpy(run.embeddings["test_labels"]).long()).mean())
    between = geometry.cosine_matrix(weight).fill_diagonal_(-1)
    yield "classifier_smallest_angle", float(between.amax().arccos().rad2deg())


def _is_plain_softmax(run: Run) -> bool:
    method = run.params["method"]
    return (
        method["classification"] == "cross-entropy"
        and method["classifier"] in ("linear", *SCALED)
        and method["second_stage"] == "none"
        and method.get("classification_weight", 1) > 0
        and method.get("class_weighting", "none") == "none"
        and method.get("sampler", "instance") == "instance"
        and method.get("correction", "none") == "none"
        and method.get("contrast") != "parametric"  # which trains the classifier as well
    )


def _risks(run: Run) -> Iterator[tuple[str, float]]:
    train, test = (-logits(run, split).log_softmax(dim=1) for split in ("train", "test"))
    clean, given = _labels(run)
    test_labels = torch.from_numpy(run.embeddings["test_labels"]).long()
    num_classes = train.shape[1]
    transition = _transition_matrix(run, num_classes)
    risk = float(_of_classes(train, clean).mean())
    yield "risk_clean_train", risk
    yield "risk_given_train", float(_of_classes(train, given).mean())
    yield "risk_noisy_train", float((transition[clean] * train).sum(dim=1).mean())
    yield "risk_clean_test", float(_of_classes(test, test_labels).mean())
    yield "risk_noisy_test", float((transition[test_labels] * test).sum(dim=1).mean())
    method, scale = run.params["method"], classifier_scale(run)
    if method["classifier"] == "anchored-cosine" and method["anchors"] == "simplex" and scale is not None:
        yield "risk_excess", risk - margin_loss_bound(num_classes, scale)


def _transition_matrix(run: Run, num_classes: int) -> Tensor:
    if "noise" not in run.params:
        return torch.eye(num_classes, dtype=torch.float64)
    return torch.tensor(run.params["noise"]["transition_matrix"]["wanted"], dtype=torch.float64)


def _of_classes(values: Tensor, classes: Tensor) -> Tensor:
    """values[i, classes[i]] for every image i."""
    return values.gather(1, classes[:, None]).squeeze(1)
