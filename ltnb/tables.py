"""Runs as data frames: what was measured, its mean and spread over seeds, and paired differences."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import special
from torch import Tensor
from torch.nn.functional import normalize

from ltnb import geometry
from ltnb.data.long_tail import class_groups
from ltnb.runs import Run

GROUPS = ("all", "many", "medium", "few")
SPLITS = ("train", "test")
WITHOUT_CENTRE = (
    "feature_norm",
    "class_distance_normalised_variance",
    "class_distance_normalised_variance_spread",
    "alignment",
    "uniformity",
)
CENTRINGS: tuple[geometry.Centring, ...] = ("class", "sample", "none")


def overview(runs: Iterable[Run]) -> pd.DataFrame:
    """A row a run: dataset, method, seed, every accuracy that is not of a single class, and the protocol."""
    return pd.DataFrame(
        {
            "dataset": run.dataset,
            "method": run.method,
            "seed": run.seed,
            **{name: run.metrics[name] for name in map(_accuracy_name, GROUPS) if name in run.metrics},
            "epochs": run.params["training"]["epochs"],
            "encoder": run.params["encoder"]["name"],
            "encoder_parameters": run.params["encoder"]["parameters"],
            "device": run.params["device"],
        }
        for run in runs
    )


def accuracies(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns dataset, method, seed, group, accuracy in [0, 1]; a group without classes has no row."""
    return pd.DataFrame(
        {**_key(run), "group": group, "accuracy": run.metrics[_accuracy_name(group)]}
        for run in runs
        for group in GROUPS
        if _accuracy_name(group) in run.metrics
    )


def class_accuracies(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns dataset, method, seed, class, class_name, class_count, accuracy in [0, 1]: a row a class."""
    return pd.DataFrame(
        {
            **_key(run),
            "class": k,
            "class_name": run.params["class_names"][k],
            "class_count": count,
            "accuracy": run.metrics[f"accuracy_class_{k}"],
        }
        for run in runs
        for k, count in enumerate(run.params["class_counts"])
    )


def histories(runs: Iterable[Run]) -> pd.DataFrame:
    """The runs' histories below each other, with columns dataset, method and seed in front."""
    return pd.concat([run.history.assign(**_key(run))[[*_key(run), *run.history]] for run in runs], ignore_index=True)


def predictions(runs: Iterable[Run]) -> pd.DataFrame:
    """Columns dataset, method, seed, actual, predicted (names of classes): a row a test image and run."""
    frames = []
    for run in runs:
        names = np.asarray(run.params["class_names"], dtype=object)
        actual, predicted = run.embeddings["test_labels"], run.embeddings["test_logits"].argmax(axis=1)
        frames.append(pd.DataFrame({**_key(run), "actual": names[actual], "predicted": names[predicted]}))
    return pd.concat(frames, ignore_index=True)


def confusion(run: Run) -> np.ndarray:
    """(K, K) numbers of test images, the true class down the rows and the predicted one along the columns."""
    num_classes = len(run.params["class_counts"])
    matrix = np.zeros((num_classes, num_classes), dtype=np.int64)
    np.add.at(matrix, (run.embeddings["test_labels"], run.embeddings["test_logits"].argmax(axis=1)), 1)
    return matrix


def by_run(runs: Iterable[Run], numbers: Callable[[Run], Iterable[tuple[str, float]]]) -> pd.DataFrame:
    """Columns method, seed, measure, value: a row for each number of a run that exists, in the order of the runs."""
    rows = [
        {"method": run.method, "seed": run.seed, "measure": measure, "value": value}
        for run in runs
        for measure, value in numbers(run)
        if not np.isnan(value)
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "measure", "value"])


def summarise(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Mean, sample standard deviation (n − 1) and n of a column over the rows that share the columns `by`.

    Rows whose value is missing do not count; the deviation of a single value is missing, not 0.
    """
    groups = frame.groupby(list(by), sort=False, observed=True, dropna=False)[value]
    return groups.agg(mean="mean", sd="std", n="count").reset_index()


def readable(summary: pd.DataFrame, *, rows: str, columns: str, scale: float = 1, digits: int = 2) -> pd.DataFrame:
    """A summary laid out for reading: one cell "mean ± sd" for each entry of `rows` and `columns`, in given order."""

    def cell(row: pd.Series) -> str:
        mean = f"{scale * row['mean']:.{digits}f}"
        return mean if np.isnan(row["sd"]) else f"{mean} ± {scale * row['sd']:.{digits}f}"

    cells = summary.assign(cell=summary.apply(cell, axis=1))
    table = cells.pivot_table(index=rows, columns=columns, values="cell", aggfunc="first", sort=False)
    return table.fillna("").rename_axis(index=None, columns=None)


def paired_differences(frame: pd.DataFrame, *, baseline: str, confidence: float = 0.95) -> pd.DataFrame:
    """Differences from a baseline, paired by seed: d_s = a_s(method) − a_s(baseline), mean d̄ ± t · s_d / √n.

    t is the quantile of Student's distribution with n − 1 degrees of freedom, s_d the sample standard deviation of
    the n differences. The interval speaks of other seeds on the same images: the draw of the test set is not in it.

    Args:
        frame: columns method, seed, group, accuracy, of one dataset, as `accuracies` makes them.
        baseline: a method in it.
        confidence: of the interval, in (0, 1).

    Returns:
        Columns method, baseline, group, difference, low, high, n. With one seed in common low and high are missing.

    Raises:
        ValueError: the baseline has no runs, a method shares no seed with it, or a run stands twice.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    methods = list(frame["method"].unique())
    if baseline not in methods:
        raise ValueError(f"baseline must be one of the methods that ran ({', '.join(methods)}), got {baseline!r}")
    if frame.duplicated(["method", "seed", "group"]).any():
        raise ValueError("frame must hold each method, seed and group once; expected the runs of one dataset")
    paired = frame.merge(
        frame.loc[frame["method"] == baseline, ["seed", "group", "accuracy"]],
        on=["seed", "group"],
        suffixes=("", "_baseline"),
    )
    paired = paired[paired["method"] != baseline]
    for method in methods:
        if method not in {baseline, *paired["method"]}:
            raise ValueError(f"frame must have a seed that {method!r} and {baseline!r} both ran with, found none")
    paired["difference"] = paired["accuracy"] - paired["accuracy_baseline"]
    table = summarise(paired, ["method", "group"], "difference").rename(columns={"mean": "difference"})
    margin = interval_margin(table["sd"], table["n"], confidence)
    table = table.assign(baseline=baseline, low=table["difference"] - margin, high=table["difference"] + margin)
    return table[["method", "baseline", "group", "difference", "low", "high", "n"]]


def interval_margin(sd: pd.Series | float, n: pd.Series | int, confidence: float) -> Any:
    """t · s / √n, half the width of Student's interval of a mean; missing where the deviation is."""
    return special.stdtrit(n - 1, (1 + confidence) / 2) * sd / np.sqrt(n)


def pairwise_differences(frame: pd.DataFrame) -> pd.DataFrame:
    """`paired_differences` of every method from every method before it; empty for a single method."""
    methods = list(frame["method"].unique())
    tables = [
        paired_differences(frame[frame["method"].isin(pair)], baseline=pair[0])
        for pair in itertools.combinations(methods, 2)
    ]
    return pd.concat(tables, ignore_index=True) if tables else paired_differences(frame, baseline=methods[0])


def spaces(run: Run) -> list[str]:
    """Where the run can be measured: its features and, where the method has a projector, its projections."""
    return [space for space in ("features", "projections") if f"train_{space}" in run.embeddings]


def measure(run: Run) -> pd.DataFrame:
    """Every measure of `ltnb.geometry` on a run's training and test images, in each space and with each centring.

    Which class an image is of where labels are wrong, `labels` says.

    Returns:
        Columns dataset, method, seed, split, space, centring, measure, class, class_count, value. Class and
        class_count are missing where the value is of all classes together. A measure that needs no centre has
        centring ``none``; the classifier's own have space ``classifier`` and split ``none``. Measures of pairs are
        averaged over the other classes, and over all pairs; of ``nearest_angle`` it is the smallest. A value that does
        not exist (the compactness of a class of one image) is missing.
    """
    counts = run.params["class_counts"]
    rows = [("none", "classifier", "none", *row) for row in _of_classifier(_tensor(run, "classifier_weight"))]
    tail = class_groups(counts).get("few", torch.empty(0, dtype=torch.int64))
    for split in SPLITS:
        of_split = labels(run, split)
        for space in spaces(run):
            vectors = _tensor(run, f"{split}_{space}")
            weight = _tensor(run, "classifier_weight") if space == "features" else None
            rows += [(split, space, "none", *row) for row in _without_centre(vectors, of_split, len(counts))]
            rows += [
                (split, space, centring, *row)
                for centring in CENTRINGS
                for row in _around_centre(vectors, of_split, len(counts), centring, tail, weight)
            ]
    table = pd.DataFrame(rows, columns=["split", "space", "centring", "measure", "class", "value"])
    table["class"] = table["class"].astype("Int64")
    table.insert(5, "class_count", table["class"].map(dict(enumerate(counts))).astype("Int64"))
    for position, (name, value) in enumerate(_key(run).items()):
        table.insert(position, name, value)
    return table


def seen_from(measured: pd.DataFrame, centring: geometry.Centring) -> pd.DataFrame:
    """Rows of `measure` with this centring, and those of measures that need no centre."""
    return measured[(measured["centring"] == centring) | measured["measure"].isin(WITHOUT_CENTRE)]


def labels(run: Run, split: str) -> Tensor:
    """The classes (N,) that a run's images are measured by: those that its class counts count.

    Of training images with wrong labels they are the true classes, of which every class has an image; or the given
    ones where noise came before the tail, because then the tail was cut by those. Of test images they are always true.
    """
    cut_by_given = run.params.get("dataset", {}).get("noise_order") == "before-tail"
    true = f"{split}_clean_labels"
    return _tensor(run, f"{split}_labels" if cut_by_given or true not in run.embeddings else true).long()


def mean_angles(runs: Sequence[Run], space: str, split: str, centring: geometry.Centring) -> np.ndarray:
    """(K, K) angles between class means in degrees, the mean over runs; see `ltnb.geometry.class_angles`."""
    angles = [
        geometry.class_angles(
            _tensor(run, f"{split}_{space}"),
            labels(run, split),
            len(run.params["class_counts"]),
            centring=centring,
        )
        for run in runs
    ]
    return torch.stack(angles).mean(dim=0).numpy()


def headline_metrics(runs: Sequence[Run], measured: pd.DataFrame) -> dict[str, float]:
    """A method's line in ``dvc metrics show``: means over its runs, flat.

    Accuracies by group, the standard deviation of the accuracy over seeds (left out for a single one) and the number
    of seeds; on test features, centred at the mean of class means: the distance to a regular simplex, the mean cosine
    between classes, NC1 and the angle between tail classes.
    """
    means = accuracies(runs).groupby("group", sort=False)["accuracy"]
    metrics = {_accuracy_name(str(group)): float(mean) for group, mean in means.mean().items()}
    if len(runs) > 1:
        metrics["accuracy_sd"] = float(means.std()["all"])
    metrics["seeds"] = len(runs)
    chosen = measured.query("split == 'test' and space == 'features' and centring == 'class' and `class`.isna()")
    for name in ("simplex_distance", "cosine", "within_class_variability", "minority_collapse_angle"):
        value = float(chosen.loc[chosen["measure"] == name, "value"].mean())
        if np.isfinite(value):  # JSON has no NaN, and an absent tail has no angle
            metrics[f"test_{name}"] = value
    return metrics


MeasureRow = tuple[str, int | None, float]


def _of_classifier(weight: Tensor) -> Iterator[MeasureRow]:
    yield from _by_class("separability", geometry.classifier_separability(weight))
    yield from _by_class("norm", weight.norm(dim=1))
    yield "simplex_distance", None, geometry.simplex_distance(weight - weight.mean(dim=0))


def _without_centre(vectors: Tensor, labels: Tensor, num_classes: int) -> Iterator[MeasureRow]:
    yield from _by_class("feature_norm", geometry.feature_norms(vectors, labels, num_classes))
    variances = geometry.class_distance_normalised_variance(vectors, labels, num_classes)
    yield from _of_pairs("class_distance_normalised_variance", variances)
    # A feature behind a ReLU may be zero, and has no direction then.
    has_direction = bool((vectors != 0).any(dim=1).all())
    unit = normalize(vectors)
    yield "alignment", None, geometry.alignment(unit, labels) if has_direction else math.nan
    yield "uniformity", None, geometry.uniformity(unit) if has_direction else math.nan


def _around_centre(
    vectors: Tensor,
    labels: Tensor,
    num_classes: int,
    centring: geometry.Centring,
    tail: Tensor,
    weight: Tensor | None,
) -> Iterator[MeasureRow]:
    means = geometry.centred_class_means(vectors, labels, num_classes, centring=centring)
    cosines = geometry.class_cosines(vectors, labels, num_classes, centring=centring)
    yield from _of_pairs("cosine", cosines.fill_diagonal_(torch.nan))
    yield from _nearest_angle(cosines)
    yield from _by_class("mean_norm", means.norm(dim=1))
    yield "simplex_distance", None, geometry.simplex_distance(means)
    yield "simplex_distance_of_directions", None, geometry.simplex_distance(normalize(means))
    yield "minority_collapse_angle", None, geometry.minority_collapse_angle(cosines, tail)
    by_class: tuple[Callable[..., Tensor], ...] = (geometry.compactness, geometry.separability)
    for function in by_class:
        yield from _by_class(function.__name__, function(vectors, labels, num_classes, centring=centring))
    if centring != "none":
        nc1 = geometry.within_class_variability(vectors, labels, num_classes, centring=centring)
        yield "within_class_variability", None, nc1
    if weight is not None:
        yield from _by_class("classifier_alignment", geometry.classifier_alignment(weight, means))


def _by_class(measure: str, values: Tensor) -> Iterator[MeasureRow]:
    """One row a class, and their mean."""
    yield measure, None, float(values.nanmean())
    yield from ((measure, k, value) for k, value in enumerate(values.tolist()))


def _of_pairs(measure: str, matrix: Tensor) -> Iterator[MeasureRow]:
    """The mean over a class's pairs for each class, the mean over all pairs, and the pairs' standard deviation."""
    yield from _by_class(measure, matrix.nanmean(dim=1))
    pairs = matrix[~matrix.isnan()]
    yield f"{measure}_spread", None, float(pairs.std(correction=0))


def _nearest_angle(cosines: Tensor) -> Iterator[MeasureRow]:
    """Angle in degrees from each class mean to the nearest other one, and the smallest of all."""
    largest = cosines.nan_to_num(nan=-torch.inf).amax(dim=1)
    angles = torch.where(largest.isinf(), torch.nan, largest.arccos().rad2deg())
    yield "nearest_angle", None, float(angles.nan_to_num(nan=torch.inf).amin())
    yield from (("nearest_angle", k, angle) for k, angle in enumerate(angles.tolist()))


def _tensor(run: Run, name: str) -> Tensor:
    return torch.from_numpy(run.embeddings[name])


def _key(run: Run) -> dict[str, str | int]:
    return {"dataset": run.dataset, "method": run.method, "seed": run.seed}


def _accuracy_name(group: str) -> str:
    return "accuracy" if group == "all" else f"accuracy_{group}"
