"""Presets of several data sets: what each row reached on each of them, and how sure the differences are.

A grid is one experiment at several rates of wrong labels, or imbalance factors, or both: the data sets of
``presets/<name>.yaml``. `ltnb.ablations` looks at the rows of one data set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ltnb import ablations, preset_results, presets, tables
from ltnb.ablations import Interval
from ltnb.claims import Evidence, Verdict
from ltnb.data.settings import DatasetSettings
from ltnb.params import Params

Gains = dict[str, Interval | None]


@dataclass(frozen=True)
class Grid:
    """A preset, and what its runs reached so far."""

    preset: Params
    measured: pd.DataFrame  # dataset, method, seed, measure, value; the measure accuracy is of all classes, in [0, 1]
    history: pd.DataFrame  # dataset, method, seed, epoch, and what was watched

    def at(self, dataset: str) -> pd.DataFrame:
        """Columns method, seed, measure, value of one data set."""
        return self.measured[self.measured["dataset"] == dataset].drop(columns="dataset")

    def of(self, measure: str) -> pd.DataFrame:
        """Columns dataset, method, seed and one named as the measure."""
        chosen = self.measured[self.measured["measure"] == measure]
        return chosen.drop(columns="measure").rename(columns={"value": measure}).reset_index(drop=True)


def read(name: str, project: Path) -> Grid:
    """Read a grid from the project's ``presets/``; before it has run, it is empty.

    Args:
        name: of the preset, such as ``digits-noise-scale``.
        project: the project's folder.

    Raises:
        ParamsError: there is no such preset, or it is wrong.
        ValueError: as `ltnb.preset_results.accuracy`.
    """
    preset = presets.load(name, project)
    accuracy = preset_results.accuracy(name, preset, project)
    accuracy = accuracy[accuracy["group"] == "all"].drop(columns="group").rename(columns={"accuracy": "value"})
    measured = preset_results.measured(name, preset, project)
    history = preset_results.history(name, preset, project)
    both = [frame for frame in (accuracy.assign(measure="accuracy"), measured) if len(frame)]
    if both:
        measured = pd.concat(both, ignore_index=True)[list(measured)]
    return Grid(preset, _in_order(measured, preset), _in_order(history, preset))


def _in_order(frame: pd.DataFrame, preset: Params) -> pd.DataFrame:
    places = {row: place for place, row in enumerate(preset.methods)}
    return frame.sort_values("method", key=lambda rows: rows.map(places), kind="stable", ignore_index=True)


def wrong_labels(settings: DatasetSettings) -> str:
    """Say how many training labels of a data set are wrong, and how: ``40 % symmetric``."""
    if settings.noise_rate is None:
        return "no wrong labels"
    rates = settings.noise_rate if isinstance(settings.noise_rate, list) else [settings.noise_rate]
    ends = dict.fromkeys(f"{100 * rate:g}" for rate in (min(rates), max(rates)))
    return f"{' to '.join(ends)} % {settings.noise}"


def gains(grid: Grid, row: str, baseline: str, *, measure: str = "accuracy") -> Gains:
    """Mean and interval of measure(row) − measure(baseline), paired by seed, on each data set.

    See `ltnb.ablations.difference`; None where the two have no seed in common.
    """
    found: Gains = {}
    for dataset in grid.preset.datasets:
        at = grid.at(dataset)
        found[dataset] = ablations.difference(at[at["measure"] == measure], row, baseline, value="value")
    return found


def drop_difference(grid: Grid, row: str, baseline: str, *, from_dataset: str, to_dataset: str) -> Interval | None:
    """How much less accuracy a row loses between two data sets than the baseline does, paired by seed.

    (a_baseline(from) − a_baseline(to)) − (a_row(from) − a_row(to)): positive where the row loses less.
    """
    accuracy = grid.of("accuracy").pivot_table(index=["method", "seed"], columns="dataset", values="accuracy")
    lost = accuracy.reindex(columns=[from_dataset, to_dataset])
    kept = (lost[to_dataset] - lost[from_dataset]).rename("kept").reset_index()
    return ablations.difference(kept, row, baseline, value="kept")


def table(grid: Grid, *, measure: str = "accuracy") -> pd.DataFrame:
    """A measure in per cent, mean ± sd over seeds, and their number: a line a row, a column a data set."""
    frame = grid.of(measure)
    wanted = [row for row in grid.preset.methods if row in set(frame["method"])]
    summary = tables.summarise(frame, ["method", "dataset"], measure)
    readable = tables.readable(summary, rows="method", columns="dataset", scale=100, digits=1)
    columns = [dataset for dataset in grid.preset.datasets if dataset in readable]
    seeds = frame.groupby("method")["seed"].nunique()
    return readable.loc[wanted, columns].assign(n=[int(seeds[row]) for row in wanted])


def gain_table(grid: Grid, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Paired differences in points with 95 % intervals: a line a pair (row, baseline), a column a data set."""
    lines = {
        f"{row} − {baseline}": {
            dataset: interval.text(scale=100) if interval else ""
            for dataset, interval in gains(grid, row, baseline).items()
        }
        for row, baseline in pairs
    }
    return pd.DataFrame.from_dict(lines, orient="index")


def record_most(evidence: Evidence, claim: str, differences: Gains, *, always: Sequence[str], data: str) -> str:
    """Record what differences say about a claim of *most* settings of several comparisons, and of *every* one of some.

    The label of a difference is ``setting: comparison``. A comparison does as claimed where more than half of its
    intervals lie above 0, and one of ``always`` where all do. The claim ``holds`` where every comparison does as
    claimed, ``holds only under`` those that do, and ``fails`` where none does.

    Args:
        evidence: the notebook's.
        claim: its key in ``claims.yaml``.
        differences: by label; a claim one of whose differences does not exist is left unchecked.
        always: comparisons that are claimed of every setting.
        data: a sentence that says what they were measured on.
    """
    found = {label: interval for label, interval in differences.items() if interval}
    if len(found) < len(differences):
        return (
            f"{claim}: not yet checked, for lack of {len(differences) - len(found)} of {len(differences)} differences"
        )
    comparisons: dict[str, list[Interval]] = {}
    for label, interval in found.items():
        comparisons.setdefault(label.rpartition(": ")[2], []).append(interval)
    as_claimed, counts = [], []
    for comparison, intervals in comparisons.items():
        above, below = sum(i.low > 0 for i in intervals), sum(i.high < 0 for i in intervals)
        if above == len(intervals) or (comparison not in always and above > len(intervals) / 2):
            as_claimed.append(comparison)
        counts.append(f"{comparison}: {above} above 0 and {below} below, of {len(intervals)}")
    verdict: Verdict = "fails"
    if as_claimed:
        verdict = "holds" if len(as_claimed) == len(comparisons) else "holds only under"
    detail = f"For {'; '.join(as_claimed) or 'none'}. Settings: {'; '.join(counts)}. {data}"
    evidence.record(claim, verdict, kind="trained", detail=detail)
    return f"{claim}: {verdict}. {detail}"


def missing(grid: Grid) -> str:
    """Say how many of the preset's runs are still to come; empty where all are there."""
    wanted = len(grid.preset.datasets) * len(grid.preset.methods) * len(grid.preset.seeds)
    there = len(grid.of("accuracy"))
    return f"{there} of {wanted} runs are there; what is there is shown." if there < wanted else ""
