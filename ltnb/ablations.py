"""The papers' ablations on the digits: what each row of a preset reached here, and what its paper published.

``presets/<name>.yaml`` names the rows, ``presets/results/<name>.csv`` holds the test accuracies that they reached, and
``presets/published.csv`` the papers' own numbers, under the preset's name without ``digits-``. Those come from other
images and larger networks: they stand beside ours for orientation, in columns of their own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd
from scipy import special

from ltnb import preset_results, presets, tables
from ltnb.claims import Evidence, Verdict
from ltnb.methods import System
from ltnb.params import ParamsError

DATA = "Digits with imbalance factor 100 and a ResNet-8, not CIFAR."


def measured_on(params: Mapping[str, Any]) -> str:
    """A sentence that says what a run, whose ``params.json`` is given, was trained on: `DATA` of the default one."""
    dataset, encoder = params["dataset"], params["training"]["encoder"]
    if (dataset["source"], dataset["imbalance"], encoder) == ("digits", 100, "resnet8"):
        return DATA
    return f"The data set {params['dataset_name']} (imbalance {dataset['imbalance']}) and the encoder {encoder}."


class Interval(NamedTuple):
    """The mean of n paired differences and the ends of its 95 % interval; of one pair the ends are missing (NaN)."""

    mean: float
    low: float
    high: float
    n: int

    def text(self, *, scale: float = 1, digits: int = 1) -> str:
        """Return ``+1.2 [+0.3, +2.1]``, or the mean alone where there is no interval."""
        mean, low, high = (f"{scale * value:+.{digits}f}" for value in self[:3])
        return mean if math.isnan(self.low) else f"{mean} [{low}, {high}]"

    @classmethod
    def of(cls, values: Sequence[float] | pd.Series) -> "Interval":
        """Mean and 95 % interval of Student's t of independent values, such as a seed's each."""
        there = pd.Series(values, dtype=float).dropna()
        mean, n = float(there.mean()), len(there)
        margin = float(tables.interval_margin(there.std(), n, 0.95))
        return cls(mean, mean - margin, mean + margin, n)

    def shifted(self, by: float) -> "Interval":
        """Return the interval of the differences plus a constant, such as a margin that is granted."""
        return self._replace(mean=self.mean + by, low=self.low + by, high=self.high + by)

    def among(self, number: int) -> "Interval":
        """Return the interval as wide as one of ``number`` has to be, for all to hold together (Bonferroni)."""
        quantiles = special.stdtrit(self.n - 1, [1 - 0.025 / number, 0.975]) if self.n > 1 else [1.0, 1.0]
        factor = float(quantiles[0] / quantiles[1])
        return self._replace(
            low=self.mean - factor * (self.mean - self.low), high=self.mean + factor * (self.high - self.mean)
        )


@dataclass(frozen=True)
class Ablation:
    """A preset's rows and seeds, the accuracies that are there so far, and what the paper published about the rows."""

    rows: dict[str, System]
    seeds: tuple[int, ...]
    accuracy: pd.DataFrame  # method, seed, group, accuracy in [0, 1]; rows in the preset's order
    published: pd.DataFrame  # row, dataset, quantity, published, source
    code_versions: int  # of the package, that the accuracies are from


def read(preset: str, project: Path, dataset: str | None = None) -> Ablation:
    """Read an ablation on one of its data sets from the project's ``presets/``; before it has run, it is empty.

    Args:
        preset: its name, such as ``digits-bcl``, or ``digits-balanced``, the control.
        project: the project's folder.
        dataset: a key of the preset's data sets; None: the first.

    Raises:
        ParamsError: there is no such preset, it is wrong, or it lacks the data set.
        ValueError: as `ltnb.preset_results.accuracy`; or a row was published that the preset lacks.
    """
    settings = presets.load(preset, project)
    if dataset is None:
        dataset = next(iter(settings.datasets))
    if dataset not in settings.datasets:
        raise ParamsError(
            f"{project / 'presets' / preset}.yaml: {dataset!r} is not among its data sets; "
            f"expected one of {', '.join(settings.datasets)}"
        )
    accuracy = preset_results.accuracy(preset, settings, project)
    accuracy = accuracy[accuracy["dataset"] == dataset].drop(columns="dataset")
    published = pd.read_csv(project / "presets" / "published.csv")
    of_preset = published["paper"] == preset.removeprefix("digits-")
    published = published[of_preset].drop(columns="paper").reset_index(drop=True)
    unknown = published.loc[~published["row"].isin(list(settings.methods)), "row"].tolist()
    if unknown:
        raise ValueError(
            f"{project / 'presets' / 'published.csv'}: row {unknown[0]!r} is not in the preset; "
            f"expected one of {list(settings.methods)}"
        )
    in_order = pd.concat([accuracy[accuracy["method"] == row] for row in settings.methods], ignore_index=True)
    versions = preset_results.code_versions(preset, project, dataset)
    return Ablation(dict(settings.methods), tuple(settings.seeds), in_order, published, versions)


def changes(row: System) -> str:
    """Return the slots in which a row differs from the defaults of its system: ``bcl, prototypes=ema``."""
    defaults = type(row)().model_dump()
    different = {name: value for name, value in row.model_dump().items() if value != defaults[name]}
    return ", ".join([row.system, *(f"{name}={_plain(value)}" for name, value in different.items())])


def difference(
    frame: pd.DataFrame, method: str, baseline: str, *, value: str = "accuracy", confidence: float = 0.95
) -> Interval | None:
    """Mean and interval of value(method) − value(baseline), paired by seed; see `ltnb.tables.paired_differences`.

    Args:
        frame: columns method, seed and ``value``, a row for each method and seed.
        method: the row of interest.
        baseline: the row that is subtracted.
        value: a column, any measure.
        confidence: of the interval, in (0, 1).

    Returns:
        ``None`` where the two have no seed in common.
    """
    pair = frame.loc[frame["method"].isin([method, baseline]), ["method", "seed", value]].dropna()
    seeds = [set(pair.loc[pair["method"] == name, "seed"]) for name in (method, baseline)]
    if not seeds[0] & seeds[1]:
        return None
    pair = pair.rename(columns={value: "accuracy"}).assign(group="all")
    row = tables.paired_differences(pair, baseline=baseline, confidence=confidence).iloc[0]
    return Interval(float(row["difference"]), float(row["low"]), float(row["high"]), int(row["n"]))


def beyond_control(
    measured: pd.DataFrame, control: pd.DataFrame, row: str, measure: str, minus: str | None = None
) -> Interval | None:
    """Mean and interval of a measure, or the difference of two, less the same under control, paired by seed.

    What a long tail does to a method is what its runs have beyond those of the same method on balanced data.

    Args:
        measured: columns method, seed, measure, value, of the runs of interest.
        control: the same of the control's runs.
        row: the method, called the same in both.
        measure: a measure of both.
        minus: another one, that is subtracted from it first.

    Returns:
        ``None`` where the two have no seed in common.
    """

    def values(frame: pd.DataFrame) -> pd.DataFrame:
        of_row = frame[frame["method"] == row].pivot_table(index="seed", columns="measure", values="value")
        of_row = of_row.reindex(columns=[measure, *([minus] if minus else [])])
        value = of_row[measure] - of_row[minus] if minus else of_row[measure]
        return value.rename("value").reset_index()

    both = pd.concat([values(measured).assign(method="here"), values(control).assign(method="control")])
    return difference(both, "here", "control", value="value")


def differences(ablation: Ablation, *, baseline: str, rows: Sequence[str] | None = None) -> pd.DataFrame:
    """Paired differences of the rows that ran, by group, as `ltnb.plots.difference_intervals` draws them.

    Args:
        ablation: as `read` gives it.
        baseline: the row that is subtracted.
        rows: those wanted; None: all.

    Returns:
        Columns as of `ltnb.tables.paired_differences`; no lines where no row has a seed in common with the baseline.
    """
    accuracy = ablation.accuracy
    seeds = set(accuracy.loc[accuracy["method"] == baseline, "seed"])
    paired = accuracy[accuracy["seed"].isin(seeds)]
    paired = paired[paired["method"].isin([baseline, *(rows or ablation.rows)])]
    if set(paired["method"]) <= {baseline}:
        return pd.DataFrame(columns=["method", "baseline", "group", "difference", "low", "high", "n"])
    return tables.paired_differences(paired, baseline=baseline)


def verdict(*differences: Interval, claimed: Literal["higher", "lower"] = "higher") -> Verdict:
    """What differences say about a claim of their sign, for the ledger.

    ``holds`` where every interval lies on the claimed side of 0, ``fails`` where one lies on the other side, as wide as
    so many intervals have to be for one of them to say so, and ``not reproduced`` otherwise: an interval that holds 0,
    or one pair, which has none, cannot tell.

    Args:
        differences: one or more; a claim of several has to hold for all of them.
        claimed: the sign.
    """
    if not differences:
        raise ValueError("differences must be one or more, got none")
    sign = 1 if claimed == "higher" else -1

    def ends(interval: Interval) -> list[float]:
        return sorted((sign * interval.low, sign * interval.high))

    if any(ends(interval.among(len(differences)))[1] < 0 for interval in differences):
        return "fails"
    return "holds" if all(ends(interval)[0] > 0 for interval in differences) else "not reproduced"


def published_differences(ablation: Ablation, *, baseline: str) -> pd.DataFrame:
    """What the paper says that its rows gain over a baseline, in points.

    A published gain is taken as it stands; two published accuracies of one data set are subtracted.

    Returns:
        Columns row, group, published, dataset, source; a difference is second-hand where one of its two numbers is.
    """
    published = ablation.published
    gains = published[published["quantity"] == f"gain over {baseline}"].assign(group="all")
    accuracies = published[published["quantity"].str.startswith("accuracy")]
    groups = accuracies["quantity"].str.removeprefix("accuracy").str.strip().replace("", "all")
    accuracies = accuracies.assign(group=groups)
    pairs = accuracies[accuracies["row"] != baseline].merge(
        accuracies[accuracies["row"] == baseline], on=["dataset", "group"], suffixes=("", "_of_baseline")
    )
    pairs["published"] = (pairs["published"] - pairs["published_of_baseline"]).round(2)
    pairs["source"] = pairs["source"].where(pairs["source"] != "paper", pairs["source_of_baseline"])
    columns = ["row", "group", "published", "dataset", "source"]
    return pd.concat([gains[columns], pairs[columns]], ignore_index=True)


def table(
    ablation: Ablation,
    *,
    baseline: str,
    rows: Sequence[str] | None = None,
    groups: Sequence[str] = ("all", "many", "medium", "few"),
) -> pd.DataFrame:
    """Rows of the preset: accuracy, paired differences from a baseline, and the published ones beside them.

    Args:
        ablation: as `read` gives it.
        baseline: the row that is subtracted; it stands in the table where it is among the rows.
        rows: those to show, in this order; None: all.
        groups: of classes, a column each.

    Returns:
        Index row; text columns: what the row changes; seeds that ran ("3 of 10"); accuracy in per cent, mean ± sd; a
        column a group with the difference in points and its 95 % interval, empty where one of the two has not run; and
        ``published``, the paper's own difference over all classes, with its source.
    """
    gains = published_differences(ablation, baseline=baseline)
    of_paper = {
        gain.row: (f"{gain.published:+.2f}", f"{gain.dataset} ({gain.source})")
        for gain in gains[gains["group"] == "all"].itertuples()
    }
    overall = ablation.accuracy[ablation.accuracy["group"] == "all"]
    lines = []
    for name in rows or ablation.rows:
        row = ablation.rows[name]
        accuracy = 100 * overall.loc[overall["method"] == name, "accuracy"]
        line = {
            "row": name,
            "settings": changes(row),
            "seeds": f"{len(accuracy)} of {len(ablation.seeds)}",
            "accuracy [%]": f"{accuracy.mean():.1f}" if len(accuracy) else "",
        }
        if len(accuracy) > 1:
            line["accuracy [%]"] += f" ± {accuracy.std():.1f}"
        for group in groups:
            of_group = ablation.accuracy[ablation.accuracy["group"] == group]
            interval = None if name == baseline else difference(of_group, name, baseline)
            line[f"{group} [points]"] = interval.text(scale=100) if interval else ""
        line["published [points]"], line["source"] = of_paper.get(name, ("", ""))
        lines.append(line)
    return pd.DataFrame(lines).set_index("row").rename_axis(None)


def missing(ablation: Ablation) -> str:
    """Say which runs are still to come, and if their code was not all the same; empty when nothing is amiss."""
    overall = ablation.accuracy[ablation.accuracy["group"] == "all"]
    done = overall.groupby("method")["seed"].nunique().reindex(list(ablation.rows), fill_value=0)
    lacking = done[done < len(ablation.seeds)]
    sentences = []
    if len(lacking):
        rows = ", ".join(f"{name} ({count})" for name, count in lacking.items())
        sentences.append(f"Not all of the {len(ablation.seeds)} seeds have run: {rows}. What is there is shown.")
    if ablation.code_versions > 1:
        sentences.append(f"The runs are of {ablation.code_versions} versions of the package's code.")
    return " ".join(sentences)


def record(
    evidence: Evidence,
    claim: str,
    differences: Mapping[str, Interval | None],
    *,
    claimed: Literal["higher", "lower"] = "higher",
    scale: float = 100,
    digits: int = 1,
    unit: str = " points",
    in_part: bool = False,
    each: bool = False,
    corrected: bool = False,
    data: str = DATA,
    remark: str = "",
) -> str:
    """Record the `verdict` of differences about a claim, and return it with what it rests on.

    A claim one of whose differences does not exist, since a row has not run, is left unchecked.

    Args:
        evidence: the notebook's.
        claim: its key in ``claims.yaml``.
        differences: a label each ("FeatRecon − BCL, few") and the interval.
        claimed: the sign that the claim gives all of them.
        scale, digits, unit: how the numbers are written.
        in_part: where a claim of several losses or measures fails for none and holds for some of the differences,
            each in an interval as wide as so many have to be, say ``holds only under``, and for which.
        each: where the differences stand for themselves, so that one that fails restricts the claim and does not
            refute it: say ``holds only under`` as with ``in_part``, also beside differences that fail.
        corrected: where the claim is to be read with the remark: ``holds`` becomes ``holds with a correction``.
        data: a sentence that says what the differences were measured on.
        remark: a sentence to end the detail with.
    """
    intervals = [interval for interval in differences.values() if interval is not None]
    if len(intervals) < len(differences):
        lacking = ", ".join(label for label, interval in differences.items() if interval is None)
        return f"{claim}: not yet checked, for lack of runs with one seed of {lacking}"
    numbers = "; ".join(
        f"{label}: {interval.text(scale=scale, digits=digits)}{unit} ({interval.n} seed{'s' if interval.n > 1 else ''})"
        for (label, _), interval in zip(differences.items(), intervals, strict=True)
    )
    detail = f"{numbers}. {data}{' ' + remark if remark else ''}"
    found = verdict(*intervals, claimed=claimed)
    alone = [
        label
        for label, interval in differences.items()
        if interval and verdict(interval.among(len(intervals)), claimed=claimed) == "holds"
    ]
    if (each or (in_part and found != "fails")) and 0 < len(alone) < len(intervals):
        found, detail = "holds only under", f"For {'; '.join(alone)}. All: {detail}"
    if corrected and found == "holds":
        found = "holds with a correction"
    evidence.record(claim, found, kind="trained", detail=detail)
    return f"{claim}: {found}. {detail}"


def _plain(value: object) -> object:
    return "/".join(map(str, value)) if isinstance(value, tuple) else value
