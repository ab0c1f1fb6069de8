"""How evenly a run treats its classes, as single numbers: what the papers' claims about trained networks are about.

`ltnb.tables.measure` has every measure class by class; here each becomes a mean over the classes and a spread, which
runs of many seeds are compared by.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version

import numpy as np
import pandas as pd
import torch
from safetensors import safe_open
from torch import Tensor

from ltnb import geometry, trained_supports
from ltnb.data.long_tail import class_groups
from ltnb.methods import MethodSettings
from ltnb.methods.assembly import Method
from ltnb.methods.slots import SIMPLEX
from ltnb.methods.stages import Stage, learning_rate
from ltnb.models.corrections import tau_normalised
from ltnb.params import TrainingSettings
from ltnb.runs import Run
from ltnb.tables import SPLITS, by_run

IMBALANCE = 100  # of the long tail that balanced data is the control of
FITTED = 0.9  # share of training images
CONVERGED = 0.9  # share of the last epoch's test accuracy
HELD = 0.99  # share of a class's images in its cap: the quantile of FeatRecon's supports


def measures(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns method, seed, measure, value: a row a run and measure.

    ``<measure>_mean`` is the mean over classes and ``<measure>_spread`` their standard deviation (of all K, so by K and
    not K − 1); a class without a value, such as the compactness of a single image, is left out of both. *Tail* classes
    are those of `tail_classes`, *head* classes all others. Features are seen from the mean of class means.

    - ``train_…``, ``test_…``: of the features ``compactness``, ``separability`` (BCE3S, 0 to 100), ``norm`` (mean
      length), ``margin`` (PAL's γ_k of the worst image, with the classifier's vectors as prototypes) and
      ``margin_smallest`` (γ_min); ``alignment`` (cosine of class mean and classifier vector); ``head_head``,
      ``head_tail`` and ``tail_tail`` (separability of class means, pair by pair).
    - ``train_projection_…``, ``test_projection_…``, where there are projections, as the contrast sees them, from the
      origin: ``simplex_distance`` of class means, directions alone; ``compactness``, and its mean over the tail
      classes, ``tail_compactness``; ``head_head``, ``head_tail`` and ``tail_tail``; ``tail_angle``, the mean angle
      between two tail classes in degrees; and ``tail_overlap``, how deep the caps that hold 99 % of the images of two
      tail classes reach into each other, in degrees, around the centres of the training images, on average over pairs.
    - ``classifier_…``: ``separability``, ``norm``, ``norm_variation`` (standard deviation of the lengths over their
      mean), ``smallest_angle`` in degrees, and again ``head_head``, ``head_tail``, ``tail_tail``; and
      ``gradient_ratio``, the mean length over heads of what training added up for a vector (`received_gradients`), over
      that over tails: 1 where heads do not get more.
    - ``fitting_epoch``: the first epoch, of those that were watched, after which 90 % of the training images are right;
      ``converging_epoch``: the first after which the accuracy on test images, where every class counts the same, is
      90 % of the last epoch's.
    - ``head_share``, for features of two dimensions: the share of all directions that a head class takes
      (`ltnb.geometry.direction_shares`).

    What does not exist is absent: separability of pairs without two such classes, or an epoch that never came.
    """
    return by_run(runs, _measures)


def tail_classes(class_counts: Sequence[int]) -> Tensor:
    """Classes of fewer than 20 training images, which may be none.

    Where all classes have the same number of images, they are the control of a long tail of as many images in all, with
    an imbalance factor of 100: the tail classes are those that would have fewer than 20 images there, so that the same
    classes are compared.

    >>> tail_classes([124, 74, 44, 26, 16, 9, 5, 3, 2, 1]), tail_classes([30] * 10)
    (tensor([4, 5, 6, 7, 8, 9]), tensor([4, 5, 6, 7, 8, 9]))
    """
    counts = torch.tensor(class_counts, dtype=torch.float64)
    if len(counts) > 1 and (counts == counts[0]).all():
        shares = IMBALANCE ** (-torch.arange(len(counts), dtype=torch.float64) / (len(counts) - 1))
        counts = counts.sum() * shares / shares.sum()
    return class_groups(counts).get("few", torch.empty(0, dtype=torch.int64))


def _measures(run: Run) -> Iterator[tuple[str, float]]:
    tail = tail_classes(run.params["class_counts"])
    weight = torch.from_numpy(run.embeddings["classifier_weight"]).double()
    for split in SPLITS:
        features = torch.from_numpy(run.embeddings[f"{split}_features"])
        labels = torch.from_numpy(run.embeddings[f"{split}_labels"]).long()
        yield from ((f"{split}_{name}", value) for name, value in _of_features(features, labels, weight, tail))
        if f"{split}_projections" in run.embeddings:
            yield from ((f"{split}_projection_{name}", value) for name, value in _of_projections(run, split, tail))
    yield from ((f"classifier_{name}", value) for name, value in _of_classifier(weight, tail))
    gradients = received_gradients(run)
    if gradients is not None:
        is_tail = torch.zeros(len(gradients), dtype=torch.bool).index_fill(0, tail, True)
        lengths = gradients.norm(dim=1)
        yield "classifier_gradient_ratio", float(lengths[~is_tail].mean() / lengths[is_tail].mean())
    fitted = run.history.loc[run.history["train_accuracy"] >= FITTED, "epoch"]
    if len(fitted):
        yield "fitting_epoch", float(fitted.iloc[0])
    watched = run.history.dropna(subset=["test_accuracy"])
    converged = watched["test_accuracy"] >= CONVERGED * watched["test_accuracy"].iloc[-1]
    yield "converging_epoch", float(watched.loc[converged, "epoch"].iloc[0])
    if weight.shape[1] == 2:
        yield "head_share", 1 - float(geometry.direction_shares(deciding_weight(run))[tail].sum())


def received_gradients(run: Run) -> Tensor | None:
    """Σ_t c_t g_t = a w(0) − w(T): all gradients that each classifier vector got in training, added up, (K, d) float64.

    SGD with momentum m and weight decay λ goes v ← m v + g + λ w, w ← w − η v. This is linear in the first vectors w(0)
    and in the gradients g_t: the last vectors w(T) are a w(0), with the number a of `kept_by_decay`, less a sum of the
    gradients, whose weights c_t follow from η, m and λ and are the same for every class.

    w(0) is not among a run's files. It is drawn again from the seed, as `ltnb.training.train` draws it.

    Returns:
        None where there is no such sum (vectors that are not trained, or trained in two stages), or where w(0) cannot
        be had: without the run's ``model.safetensors``, or with another version of torch than the run's.
    """
    file = run.folder / "model.safetensors"
    if run.params.get("versions", {}).get("torch") != version("torch") or not file.is_file():
        return None
    # As the run had them, settings without an effect included, which a row of params.yaml may not have.
    settings = MethodSettings.model_construct(**run.params["method"])
    if settings.classifier in SIMPLEX or settings.second_stage != "none":
        return None
    training = TrainingSettings.model_validate(run.params["training"])
    with safe_open(file, "pt") as weights:
        names = [name for name in weights.keys() if name.startswith("encoder.")]  # noqa: SIM118, a file and no dict
        shapes = [weights.get_slice(name).get_shape() for name in names]
        channels = min(shape[1] for shape in shapes if len(shape) == 4)  # every layer but the first has more
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(np.random.SeedSequence(run.seed).generate_state(4).tolist()[0])
        method = Method(settings, training.encoder, channels, run.params["class_counts"])
    (stage,) = method.stages(training.stage)
    steps = math.ceil(sum(run.params["class_counts"]) / training.batch_size)
    kept = kept_by_decay(stage, steps, training.momentum)
    start = method.classifier.weight.detach().double()
    return kept * start - torch.from_numpy(run.embeddings["classifier_weight"]).double()


def kept_by_decay(stage: Stage, steps: int, momentum: float) -> float:
    """Return a: what weight decay alone makes of a weight of 1 in a stage, with so many steps an epoch."""
    weight, velocity = 1.0, 0.0
    for epoch in range(stage.epochs):
        for _ in range(steps):
            velocity = momentum * velocity + stage.weight_decay * weight
            weight -= learning_rate(epoch, stage) * velocity
    return weight


def deciding_weight(run: Run) -> Tensor:
    """Classifier vectors (K, d) whose largest w_k·x + b_k decides: unit rows where their lengths play no part."""
    weight = torch.from_numpy(run.embeddings["classifier_weight"]).double()
    method = run.params["method"]
    if method.get("correction") == "tau-normalised":
        return tau_normalised(weight, exponent=method["correction_strength"])
    return weight if deciding_classifier(run) == "linear" else torch.nn.functional.normalize(weight, dim=1)


def deciding_classifier(run: Run) -> str:
    """Return the kind of classifier that a run was evaluated with: a second stage may have trained a linear one."""
    method = run.params["method"]
    return "linear" if method.get("second_stage") in ("retrain", "rescale") else str(method["classifier"])


def deciding_bias(run: Run) -> Tensor | None:
    """What a classifier adds to w_k·x, (K,): the mean over test images of f_k(x) − w_k·x; None without a bias.

    Embeddings keep logits and not the bias, which is the same for every image up to rounding.
    """
    no_bias = run.params["method"].get("correction") == "tau-normalised"
    if no_bias or deciding_classifier(run) not in ("linear", "normalised"):
        return None
    logits, features = (torch.from_numpy(run.embeddings[f"test_{name}"]).double() for name in ("logits", "features"))
    return (logits - features @ deciding_weight(run).T).mean(dim=0)


def margins_by_class(runs: Iterable[Run]) -> pd.DataFrame:
    """PAL's γ_k (`ltnb.geometry.class_margins`) of every run, as `ltnb.plots.by_class_size` draws it.

    Columns method, seed, split, measure (``margin``), class, class_count, value.
    """
    rows = []
    for run in runs:
        weight = torch.from_numpy(run.embeddings["classifier_weight"])
        for split in SPLITS:
            features, labels = (torch.from_numpy(run.embeddings[f"{split}_{name}"]) for name in ("features", "labels"))
            margins = geometry.class_margins(features, labels, weight).tolist()
            rows += [
                {
                    "method": run.method,
                    "seed": run.seed,
                    "split": split,
                    "measure": "margin",
                    "class": k,
                    "class_count": count,
                    "value": margin,
                }
                for k, (count, margin) in enumerate(zip(run.params["class_counts"], margins, strict=True))
            ]
    return pd.DataFrame(rows)


def _of_features(features: Tensor, labels: Tensor, weight: Tensor, tail: Tensor) -> Iterator[tuple[str, float]]:
    num_classes = len(weight)
    means = geometry.centred_class_means(features, labels, num_classes, centring="class")
    margins = geometry.class_margins(features, labels, weight)
    by_class = {
        "compactness": geometry.compactness(features, labels, num_classes, centring="class"),
        "separability": geometry.separability(features, labels, num_classes, centring="class"),
        "norm": geometry.feature_norms(features, labels, num_classes),
        "margin": margins,
        "alignment": geometry.classifier_alignment(weight, means),
    }
    for name, values in by_class.items():
        yield from _mean_and_spread(name, values)
    yield "margin_smallest", float(margins.min())
    yield from geometry.pair_separability(geometry.cosine_matrix(means), tail)._asdict().items()


def _of_projections(run: Run, split: str, tail: Tensor) -> Iterator[tuple[str, float]]:
    z, labels = trained_supports.projections(run, split)
    num_classes = len(run.params["class_counts"])
    means = geometry.centred_class_means(z, labels, num_classes, centring="none")
    yield "simplex_distance", geometry.simplex_distance(torch.nn.functional.normalize(means))
    compactness = geometry.compactness(z, labels, num_classes, centring="none")
    yield from _mean_and_spread("compactness", compactness)
    yield "tail_compactness", float(compactness[tail].nanmean())
    cosines = geometry.cosine_matrix(means)
    yield from geometry.pair_separability(cosines, tail)._asdict().items()
    yield "tail_angle", geometry.minority_collapse_angle(cosines, tail)
    of_training = geometry.confidence_supports(*trained_supports.projections(run, "train"), num_classes)
    overlaps = trained_supports.image_overlaps(z, labels, of_training, HELD)
    yield "tail_overlap", float(overlaps[tail][:, tail].nanmean())


def _of_classifier(weight: Tensor, tail: Tensor) -> Iterator[tuple[str, float]]:
    norms, cosines = weight.norm(dim=1), geometry.cosine_matrix(weight)
    yield from _mean_and_spread("separability", geometry.classifier_separability(weight))
    yield from _mean_and_spread("norm", norms)
    yield "norm_variation", float(norms.std(correction=0) / norms.mean())
    yield from geometry.pair_separability(cosines, tail)._asdict().items()
    yield "smallest_angle", float(cosines.fill_diagonal_(-1).amax().arccos().rad2deg())


def _mean_and_spread(name: str, values: Tensor) -> Iterator[tuple[str, float]]:
    values = values[~values.isnan()]
    yield f"{name}_mean", float(values.mean())
    yield f"{name}_spread", float(values.std(correction=0))
