"""The scale s of normalised features, swept over rates of wrong labels: what is best, and what theory allows.

A sweep is a `ltnb.grids.Grid` whose rows are called ``<classifier>-s<scale>`` and whose data sets have symmetric noise.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd

from ltnb import ablations, noisy_labels
from ltnb.ablations import Interval
from ltnb.claims import Evidence, Verdict
from ltnb.grids import Grid
from ltnb.theory import anchored_prototypes as pal


def noise_rates(grid: Grid) -> dict[str, float]:
    """η of each data set; 0 where no label is wrong.

    Raises:
        ValueError: a data set has a rate for every class: s* is that of one rate.
    """
    found = {}
    for name, settings in grid.preset.datasets.items():
        if isinstance(settings.noise_rate, list):
            raise ValueError(f"noise_rate of {name} is {settings.noise_rate}; expected one rate for all classes")
        found[name] = settings.noise_rate or 0.0
    return found


def by_scale(grid: Grid, classifier: str) -> dict[float, str]:
    """The rows of a classifier (``fnpn``, ``fnpal``) by their scale, from the smallest on."""
    rows = {
        row: settings for row, settings in grid.preset.methods.items() if re.fullmatch(rf"{classifier}-s[\d_]+", row)
    }
    scales = {settings.classifier_scale: row for row, settings in rows.items()}
    return {scale: scales[scale] for scale in sorted(s for s in scales if s != "noise-aware")}


def swept(grid: Grid, measures: Sequence[str], classifiers: Sequence[str] = ("fnpn", "fnpal")) -> pd.DataFrame:
    """Columns dataset, seed, classifier, scale and a column a measure: what `ltnb.plots.accuracy_over_scale` draws."""
    chosen = grid.measured[grid.measured["measure"].isin(list(measures))]
    wide = chosen.pivot_table(index=["dataset", "method", "seed"], columns="measure", values="value").reset_index()
    rows = [(row, name, scale) for name in classifiers for scale, row in by_scale(grid, name).items()]
    places = pd.DataFrame(rows, columns=["method", "classifier", "scale"])
    wide = wide.reindex(columns=["dataset", "method", "seed", *measures])
    return wide.merge(places, on="method").rename_axis(columns=None).drop(columns="method")


def best(grid: Grid, classifier: str) -> dict[str, float]:
    """The scale of the largest mean test accuracy on each data set: by the test images, so it flatters itself."""
    accuracy = swept(grid, ["accuracy"], [classifier])
    means = accuracy.pivot_table(index="dataset", columns="scale", values="accuracy")
    largest = means.idxmax(axis=1)
    return {dataset: float(largest[dataset]) for dataset in grid.preset.datasets if dataset in largest.index}


def across_tolerance(grid: Grid, classifier: str, num_classes: int) -> dict[str, tuple[float, float]]:
    """On each data set the largest scale of the sweep up to s* and the next one, which lies beyond."""
    found = {}
    for dataset, rate in noise_rates(grid).items():
        limit = pal.largest_tolerant_scale(num_classes, rate)
        for below, above in pairwise(by_scale(grid, classifier)):
            if below <= limit < above:
                found[dataset] = (below, above)
    return found


def risks(grid: Grid, classifier: str, num_classes: int) -> pd.DataFrame:
    """Mean risks on training images in nats, of a data set (η in per cent) and scale, beside Theorem 4.4's bound.

    Returns:
        Index rate [%] and s; columns ``clean``, ``noisy, expected``, ``as given``, ``excess`` of the clean risk over
        the least there is, and the ``bound`` of that excess.
    """
    names = {
        "risk_clean_train": "clean",
        "risk_noisy_train": "noisy, expected",
        "risk_given_train": "as given",
        "risk_excess": "excess",
    }
    frame = swept(grid, list(names), [classifier]).rename(columns=names)
    rates = noise_rates(grid)
    frame["noise [%]"] = [100 * rates[dataset] for dataset in frame["dataset"]]
    means = frame.rename(columns={"scale": "s"}).groupby(["noise [%]", "s"])[list(names.values())].mean()
    bounds = [noisy_labels.risk_bound(num_classes, rate / 100, scale) for rate, scale in means.index]
    return means.assign(bound=bounds)


def excess_over_bound(grid: Grid, classifier: str, num_classes: int) -> dict[tuple[float, float], Interval]:
    """By rate η and scale: mean and interval over seeds of the excess clean risk less its bound, in nats."""
    frame = swept(grid, ["risk_excess"], [classifier])
    found = {}
    for dataset, rate in noise_rates(grid).items():
        for scale in by_scale(grid, classifier):
            excess = frame.loc[(frame["dataset"] == dataset) & (frame["scale"] == scale), "risk_excess"].dropna()
            if len(excess):
                bound = noisy_labels.risk_bound(num_classes, rate, scale)
                found[rate, scale] = Interval.of(excess - bound)
    return found


def gain(grids: Sequence[Grid], dataset: str, row: str, baseline: str) -> Interval | None:
    """Accuracy(row) − accuracy(baseline) on a data set that the grids share, paired by seed."""
    at = pd.concat([grid.at(dataset) for grid in grids], ignore_index=True)
    return ablations.difference(at[at["measure"] == "accuracy"], row, baseline, value="value")


def record_bound(evidence: Evidence, claim: str, cells: Mapping[tuple[float, float], Interval], *, data: str) -> str:
    """Record whether the excess risk stays below its bound: it holds in all cells, only under some, or fails.

    Args:
        evidence: the notebook's.
        claim: its key in ``claims.yaml``.
        cells: as `excess_over_bound` gives them; a claim without any is left unchecked.
        data: a sentence that says what was measured.
    """
    if not cells:
        return f"{claim}: not yet checked, for lack of runs"
    below = {cell: interval for cell, interval in cells.items() if interval.high < 0}
    verdict: Verdict = "holds" if len(below) == len(cells) else "holds only under" if below else "fails"
    of_rates = []
    for rate in dict.fromkeys(rate for rate, _ in cells):
        lines = [f"s = {s:g}: {interval.text(digits=2)}" for (at, s), interval in cells.items() if at == rate]
        kept = [f"{s:g}" for at, s in below if at == rate]
        of_rates.append(f"{100 * rate:g} %: below at s = {', '.join(kept) or 'none'} ({'; '.join(lines)})")
    detail = f"Excess less bound in nats. {'. '.join(of_rates)}. {data}"
    evidence.record(claim, verdict, kind="trained", detail=detail)
    return f"{claim}: {verdict}. {detail}"
