"""How evenly a run treats its classes, as single numbers: what the papers' claims about trained networks are about.

`ltnb.tables.measure` has every measure class by class; here each becomes a mean over the classes and a spread, which
runs of many seeds are compared by.
"""

import math
from collections.abc import Iterable, Iterator

import pandas as pd
import torch
from torch import Tensor

from ltnb import geometry, trained_supports
from ltnb.data.long_tail import class_groups
from ltnb.runs import Run
from ltnb.tables import SPLITS

FITTED = 0.9  # share of training images
HELD = 0.99  # share of a class's images in its cap: the quantile of FeatRecon's supports


def measures(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns method, seed, measure, value: a row a run and measure.

    ``<measure>_mean`` is the mean over classes and ``<measure>_spread`` their standard deviation (of all K, so by K and
    not K − 1); a class without a value, such as the compactness of a single image, is left out of both. *Tail* classes
    have fewer than 20 training images, *head* classes are all others. Features are seen from the mean of class means.

    - ``train_…``, ``test_…``: of the features ``compactness``, ``separability`` (BCE3S, 0 to 100), ``norm`` (mean
      length), ``margin`` (PAL's γ_k of the worst image, with the classifier's vectors as prototypes) and
      ``margin_smallest`` (γ_min); ``alignment`` (cosine of class mean and classifier vector); ``head_head``,
      ``head_tail`` and ``tail_tail`` (separability of class means, pair by pair).
    - ``train_projection_…``, ``test_projection_…``, where there are projections, as the contrast sees them, from the
      origin: ``simplex_distance`` of class means, directions alone; ``compactness``; ``head_head``, ``head_tail`` and
      ``tail_tail``; and ``tail_overlap``, how deep the caps that hold 99 % of the images of two tail classes reach into
      each other, in degrees, around the centres of the training images, on average over pairs.
    - ``classifier_…``: ``separability``, ``norm``, ``norm_variation`` (standard deviation of the lengths over their
      mean), ``smallest_angle`` in degrees, and again ``head_head``, ``head_tail``, ``tail_tail``.
    - ``fitting_epoch``: the first epoch, of those that were watched, after which 90 % of the training images are right.
    - ``head_share``, for features of two dimensions: the share of all directions that a head class takes
      (`ltnb.geometry.direction_shares`).

    What does not exist is absent: separability of pairs without two such classes, or an epoch that never came.
    """
    rows = [
        {"method": run.method, "seed": run.seed, "measure": measure, "value": value}
        for run in runs
        for measure, value in _measures(run)
        if not math.isnan(value)
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "measure", "value"])


def tail_classes(class_counts: Iterable[int]) -> Tensor:
    """Classes of fewer than 20 training images, which may be none."""
    return class_groups(list(class_counts)).get("few", torch.empty(0, dtype=torch.int64))


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
    fitted = run.history.loc[run.history["train_accuracy"] >= FITTED, "epoch"]
    if len(fitted):
        yield "fitting_epoch", float(fitted.iloc[0])
    if weight.shape[1] == 2:
        yield "head_share", 1 - float(geometry.direction_shares(deciding_weight(run))[tail].sum())


def deciding_weight(run: Run) -> Tensor:
    """Classifier vectors (K, d) whose largest w_k·x + b_k decides: unit rows where their lengths play no part."""
    weight = torch.from_numpy(run.embeddings["classifier_weight"]).double()
    learned_lengths = run.params["method"]["classifier"] == "linear"
    return weight if learned_lengths else torch.nn.functional.normalize(weight, dim=1)


def deciding_bias(run: Run) -> Tensor | None:
    """What a linear classifier adds to w_k·x, (K,): the mean over test images of f_k(x) − w_k·x; None for others.

    Embeddings keep logits and not the bias, which is the same for every image up to rounding.
    """
    if run.params["method"]["classifier"] != "linear":
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
    yield from _mean_and_spread("compactness", geometry.compactness(z, labels, num_classes, centring="none"))
    yield from geometry.pair_separability(geometry.cosine_matrix(means), tail)._asdict().items()
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
