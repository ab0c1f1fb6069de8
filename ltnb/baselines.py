"""The usual baselines on the digits: what each reached and cost here, and what was published about it.

``presets/digits-baselines.yaml`` names the rows. Rows of other presets may stand beside them, such as the controls of a
paper's ablation, where those have the same data, protocol and seeds; that they do is checked.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ltnb import ablations, preset_results, presets
from ltnb.ablations import Ablation, Interval
from ltnb.methods import System
from ltnb.methods.slots import MOMENTUM_CONTRASTS
from ltnb.params import Params
from ltnb.plots import method_style

PRESET = "digits-baselines"
PARITY = "ce"  # what every other row is compared with
PAPERS = {"bcl": "digits-bcl", "featrecon": "digits-featrecon", "bce3s": "digits-bce3s", "pal": "digits-pal"}
BENCHMARKS = ("CIFAR-10-LT", "CIFAR-100-LT")  # published at an imbalance factor of 100
GROUPS = ("all", "many", "medium", "few")


class Origin(NamedTuple):
    """Of what kind a row is, and which paper it is from."""

    family: str
    paper: str


LOSS, AFTERWARDS, MIXED = "loss and sampling", "classifier afterwards", "mixed images"
CONTRAST, FIXED, OWN = "contrast", "fixed geometry", "the four papers"
ORIGINS = {
    PARITY: Origin("parity", ""),
    "ce-cosine": Origin("parity", "control of LDAM"),
    "focal": Origin(LOSS, "Lin et al., ICCV 2017"),
    "focal-2": Origin(LOSS, "Lin et al., ICCV 2017"),
    "class-balanced": Origin(LOSS, "Cui et al., CVPR 2019"),
    "class-balanced-focal": Origin(LOSS, "Cui et al., CVPR 2019"),
    "resampling": Origin(LOSS, "Shen et al., ECCV 2016"),
    "ldam": Origin(LOSS, "Cao et al., NeurIPS 2019"),
    "ldam-drw": Origin(LOSS, "Cao et al., NeurIPS 2019"),
    "logit-adjustment": Origin(LOSS, "Menon et al., ICLR 2021"),
    "post-hoc-adjustment": Origin(AFTERWARDS, "Menon et al., ICLR 2021"),
    "tau-norm": Origin(AFTERWARDS, "Kang et al., ICLR 2020"),
    "crt": Origin(AFTERWARDS, "Kang et al., ICLR 2020"),
    "lws": Origin(AFTERWARDS, "Kang et al., ICLR 2020"),
    "mixup": Origin(MIXED, "Zhang et al., ICLR 2018"),
    "mixup-smoothed": Origin(MIXED, "after Zhong et al., CVPR 2021"),
    "supcon": Origin(CONTRAST, "Khosla et al., NeurIPS 2020"),
    "dscl": Origin(CONTRAST, "Xuan and Zhang, AAAI 2024"),
    "kcl": Origin(CONTRAST, "Kang et al., ICLR 2021"),
    "tsc": Origin(CONTRAST, "Li et al., CVPR 2022"),
    "paco": Origin(CONTRAST, "Cui et al., ICCV 2021"),
    "proco": Origin(CONTRAST, "Du et al., TPAMI 2024"),
    "etf-dr": Origin(FIXED, "Yang et al., NeurIPS 2022"),
    "etf-dr-slow": Origin(FIXED, "Yang et al., NeurIPS 2022"),
    "max-separability": Origin(FIXED, "Kasarla et al., NeurIPS 2022"),
    "simplex-adjusted": Origin(FIXED, "control of RBL"),
    "unit-adjusted": Origin(FIXED, "control: not fixed"),
    "bcl-unit": Origin(FIXED, "control: BCL so"),
    "rbl": Origin(FIXED, "Peifeng et al., ICML 2023"),
    "bcl": Origin(OWN, "Zhu et al., CVPR 2022"),
    "featrecon": Origin(OWN, "Yi et al., ICLR 2025"),
    "bce3s": Origin(OWN, "Fan et al., AAAI 2026"),
    "pal": Origin(OWN, "Zhou et al., ICML 2022"),
}
FAMILIES = {row: origin.family for row, origin in ORIGINS.items()}
OTHERS = "further rows"  # those that somebody adds to the preset

# Why a row probably does not beat cross-entropy on the classes with fewest images (`below_baseline`).
REASONS = {
    "focal": (
        "It weighs images by how hard they are, not by how rare their class is. Once the images of all classes are "
        "fitted, the rare ones too, (1 − p)^γ is small for all of them alike. At γ = 2 less so, and that row gains."
    ),
    "mixup": (
        "It mixes classes as often as they come, so a rare class is seen almost only beneath a frequent one, with a "
        "label that is a share. The classifier is at fault: with a second stage on balanced classes the row gains."
    ),
    "etf-dr-slow": (
        "The gradient of dot-regression fades as a feature nears its vector: at the learning rate of the others 60 "
        "epochs are too few. At ten times that rate the same row gains."
    ),
    "bce3s": (
        "Its first stage does not know the class counts, and ten classes leave its sigmoids and uniform term little "
        "to even out; the paper trains on mixed images, and a second stage corrects for the counts: neither is here."
    ),
}
NO_REASON = "not looked into"  # of rows that somebody adds


def with_papers(project: Path, further: Mapping[str, str] = PAPERS) -> Ablation:
    """Read the baselines, and rows of other presets beside them; what has not run is missing from the accuracies.

    Args:
        project: the project's folder.
        further: row, and the preset that it is from. A row that is among the baselines is taken from there, and only
            what was published about it from the other preset.

    Returns:
        The baselines first; ``code_versions`` is the baselines'.

    Raises:
        ParamsError: as `ltnb.ablations.read`.
        ValueError: a preset lacks its row, or differs from the baselines' in data, training or seeds, so that its rows
            cannot stand beside them; or as `ltnb.ablations.read`.
    """
    own = presets.load(PRESET, project)
    found = ablations.read(PRESET, project)
    rows, accuracy, published = dict(found.rows), [found.accuracy], [found.published]
    for row, name in further.items():
        if row in own.methods:
            of_paper = ablations.read(name, project).published
            published.append(of_paper[of_paper["row"] == row])
            continue
        other = presets.load(name, project)
        if row not in other.methods:
            raise ValueError(f"{_file(name, project)}: has no row {row!r}; expected one of {', '.join(other.methods)}")
        different = _difference(other, own)
        if different:
            setting, value, of_baselines = different
            raise ValueError(
                f"{_file(name, project)}: {setting} is {value!r}, and {PRESET} has {of_baselines!r}; expected the "
                f"same, for {row} to stand beside the baselines"
            )
        ablation = ablations.read(name, project)
        rows[row] = ablation.rows[row]
        accuracy.append(ablation.accuracy[ablation.accuracy["method"] == row])
        published.append(ablation.published[ablation.published["row"] == row])
    return Ablation(rows, found.seeds, _joined(accuracy), _joined(published), found.code_versions)


def shared_rows(project: Path, others: Iterable[str] = tuple(PAPERS.values())) -> pd.DataFrame:
    """How far a row reached the same in two presets: rows of other presets that the baselines have, too.

    Returns:
        Columns row, preset, seeds (that both ran); mean: of the accuracy of all classes here less that of the other
        preset; and largest: the difference of two accuracies with one seed and group, whatever its sign. Shares in
        [0, 1]. A row that only one of the two ran has no line.
    """
    own = ablations.read(PRESET, project)
    lines = []
    for name in others:
        other = ablations.read(name, project)
        for row, settings in own.rows.items():
            if row not in other.rows or _trained_alike(settings) != _trained_alike(other.rows[row]):
                continue
            keys = ["method", "seed", "group"]
            both = own.accuracy.merge(other.accuracy[other.accuracy["method"] == row], on=keys, suffixes=("", "_other"))
            if len(both):
                apart = both["accuracy"] - both["accuracy_other"]
                mean, largest = apart[both["group"] == "all"].mean(), apart.abs().max()
                lines.append((row, name, both["seed"].nunique(), float(mean), float(largest)))
    return pd.DataFrame(lines, columns=["row", "preset", "seeds", "mean", "largest"])


def table(ablation: Ablation, cost: pd.DataFrame) -> pd.DataFrame:
    """All about each row, in text: a line a row, cross-entropy first and flagged.

    Args:
        ablation: as `with_papers` gives it.
        cost: as `ltnb.costs.cost` gives it of the preset.

    Returns:
        Index row; columns name, paper, settings; seeds ("10 of 10"); accuracy of each group in per cent, mean ± sd; the
        paired difference from cross-entropy of all and few in points with its 95 % interval; time of a run relative to
        cross-entropy's, memory and state; the published accuracies at an imbalance factor of 100, and their sources.
        What is not known is empty.
    """
    lines = {name: _line(ablation, cost, name) for name in [PARITY, *(row for row in ablation.rows if row != PARITY)]}
    return pd.DataFrame.from_dict(lines, orient="index")


def _line(ablation: Ablation, cost: pd.DataFrame, name: str) -> dict[str, str]:
    accuracy = ablation.accuracy[ablation.accuracy["method"] == name]
    label = method_style(name).label
    line = {
        "name": f"{label} (parity)" if name == PARITY else label,
        "paper": ORIGINS[name].paper if name in ORIGINS else "",
        "settings": ablations.changes(ablation.rows[name]),
        "seeds": f"{accuracy['seed'].nunique()} of {len(ablation.seeds)}",
    }
    for group in GROUPS:
        values = 100 * accuracy.loc[accuracy["group"] == group, "accuracy"]
        line[f"{group} [%]"] = f"{values.mean():.1f}" if len(values) else ""
        if len(values) > 1:
            line[f"{group} [%]"] += f" ± {values.std():.1f}"
    for group in ("all", "few"):
        found = None if name == PARITY else gain(ablation, name, PARITY, group)
        line[f"{group} − CE [points]"] = found.text(scale=100) if found else ""
    known = _numbers(cost).get(name)
    line["time [CE = 1]"] = f"{known['ratio']:.2f}" if known else ""
    line["memory [MiB]"] = f"{known['memory_mib']:.1f}" if known else ""
    line["state [MiB]"] = f"{known['state_mib']:.2f}" if known else ""
    sources: dict[str, None] = {}
    for benchmark in BENCHMARKS:
        numbers = _published(ablation, name, benchmark)
        line[benchmark] = f"{numbers['published'].iloc[0]:.1f}" if len(numbers) else ""
        sources |= dict.fromkeys(numbers["source"].iloc[:1])
    return line | {"source": "; ".join(sources)}


def _published(ablation: Ablation, row: str, benchmark: str) -> pd.DataFrame:
    published = ablation.published
    of_row = published[(published["row"] == row) & (published["quantity"] == "accuracy")]
    return of_row[of_row["dataset"].str.startswith(f"{benchmark}, factor 100")]


def gain(ablation: Ablation, row: str, baseline: str, group: str = "all") -> Interval | None:
    """Accuracy(row) − accuracy(baseline) of a group of classes, paired by seed; None where one of them has not run."""
    return ablations.difference(ablation.accuracy[ablation.accuracy["group"] == group], row, baseline)


def gain_table(ablation: Ablation, pairs: Mapping[str, tuple[str, str]]) -> pd.DataFrame:
    """Paired differences in points with 95 % intervals: a line a pair, a column a group of classes.

    Args:
        ablation: as `with_papers` gives it.
        pairs: what a difference is of, in words, and its row and baseline.
    """
    lines = {}
    for words, (row, baseline) in pairs.items():
        line = {"difference": f"{method_style(row).label} − {method_style(baseline).label}"}
        for group in GROUPS:
            found = gain(ablation, row, baseline, group)
            line[f"{group} [points]"] = found.text(scale=100) if found else ""
        lines[words] = line
    return pd.DataFrame.from_dict(lines, orient="index")


def below_baseline(ablation: Ablation, baseline: str = PARITY) -> dict[str, Interval]:
    """Rows that do not beat the baseline on the classes with fewest images: the 95 % interval is not all above 0.

    Rows whose seeds have not all run are not judged.
    """
    found = {}
    for row in ablation.rows:
        interval = None if row == baseline else gain(ablation, row, baseline, "few")
        if interval and interval.n == len(ablation.seeds) and not interval.low > 0:
            found[row] = interval
    return found


def by_family(ablation: Ablation) -> pd.DataFrame:
    """Mean accuracy of each row that ran and its 95 % interval over seeds, as `ltnb.plots.accuracy_by_family` draws it.

    Returns:
        Columns method, family, group, mean, low, high (missing with one seed), n.
    """
    lines = []
    for (row, group), values in ablation.accuracy.groupby(["method", "group"], sort=False)["accuracy"]:
        lines.append((row, FAMILIES.get(str(row), OTHERS), group, *Interval.of(values)))
    return pd.DataFrame(lines, columns=["method", "family", "group", *Interval._fields])


def accuracy_and_cost(ablation: Ablation, cost: pd.DataFrame, group: str = "all") -> pd.DataFrame:
    """Rows that ran and were measured: mean accuracy beside time and memory.

    Returns:
        Columns method, family, accuracy (the mean over seeds, in [0, 1]), ratio (a run's time, of cross-entropy's),
        memory_mib, on_front: whether no other row is as accurate in less time, or more accurate in as little.
    """
    mean = ablation.accuracy[ablation.accuracy["group"] == group].groupby("method", sort=False)["accuracy"].mean()
    frame = mean.to_frame().join(cost[["ratio", "memory_mib"]], how="inner").dropna().rename_axis("method")
    more, less = (frame[name].to_numpy(dtype=float) for name in ("accuracy", "ratio"))
    beaten = (more >= more[:, None]) & (less <= less[:, None]) & ((more > more[:, None]) | (less < less[:, None]))
    frame = frame.assign(on_front=pd.Series(~beaten.any(axis=1), frame.index)).reset_index()
    frame.insert(1, "family", [FAMILIES.get(row, OTHERS) for row in frame["method"]])
    return frame


def contrast_costs(ablation: Ablation, cost: pd.DataFrame) -> pd.DataFrame:
    """What the rows with a contrast cost, cross-entropy first: more views, a momentum encoder, a queue, a second stage.

    Args:
        ablation: as `with_papers` gives it.
        cost: as `ltnb.costs.cost` gives it of the preset.

    Returns:
        Index name; columns views (of an image in a step), momentum encoder ("yes" or empty), queue (keys), second stage
        (epochs), epoch and run (time of cross-entropy's), memory and state (MiB). Rows that were not measured are left
        out.
    """
    lines, numbers = {}, _numbers(cost)
    for name, row in ablation.rows.items():
        if name not in numbers or (name != PARITY and row.contrast == "none"):
            continue
        known, momentum = numbers[name], row.contrast in MOMENTUM_CONTRASTS
        # By way of the ratios of runs, which hold between sessions, too.
        epoch = known["ratio"] * known["epoch_seconds"] / known["run_seconds"]
        parity = numbers.get(PARITY)
        of_parity = parity["epoch_seconds"] / parity["run_seconds"] if parity else math.nan
        lines[method_style(name).label] = {
            "views": len(row.views),
            "momentum encoder": "yes" if momentum else "",
            "queue [keys]": row.queue_size if momentum else "",
            "second stage [epochs]": row.second_stage_epochs if row.second_stage != "none" else "",
            "epoch [CE = 1]": round(epoch / of_parity, 2),
            "run [CE = 1]": round(known["ratio"], 2),
            "memory [MiB]": round(known["memory_mib"], 1),
            "state [MiB]": round(known["state_mib"], 2),
        }
    return pd.DataFrame.from_dict(lines, orient="index")


def one_network(project: Path, rows: Sequence[str], measures: Sequence[str]) -> dict[str, bool]:
    """Whether rows have one and the same encoder with each seed: their measures of features agree to the last digit.

    Args:
        project: the project's folder.
        rows: of the baselines; the first is what the others are compared with.
        measures: of `ltnb.balance`, such as ``test_compactness_mean``; not of the classifier, which may differ.

    Returns:
        By row whether it agrees with each seed that both ran; rows without one are left out.
    """
    preset = presets.load(PRESET, project)
    measured = preset_results.measured(PRESET, preset, project)
    values = measured[measured["measure"].isin(measures)].pivot_table(
        index=["seed", "measure"], columns="method", values="value"
    )
    agree = {}
    for row in rows[1:]:
        both = values.reindex(columns=[rows[0], row]).dropna()
        if len(both):
            agree[row] = bool((both[rows[0]] == both[row]).all())
    return agree


def _numbers(cost: pd.DataFrame) -> dict[Any, dict[Any, Any]]:
    """Return what is known of each row, by column."""
    return cost.to_dict("index")


def _difference(other: Params, own: Params) -> tuple[str, object, object] | None:
    """Return in what two presets differ that decides results, besides their rows, with both values."""
    if other.seeds != own.seeds:
        return "seeds", other.seeds, own.seeds
    parts = {
        "data": (next(iter(preset.datasets.values())) for preset in (other, own)),
        "training": (preset.training for preset in (other, own)),
    }
    for part, (theirs, ours) in parts.items():
        values, values_now = theirs.model_dump(mode="json"), ours.model_dump(mode="json")
        for name in values | values_now:
            if values.get(name) != values_now.get(name):
                return f"{part}.{name}", values.get(name), values_now.get(name)
    return None


def _trained_alike(row: System) -> dict[str, object]:
    """Return the settings of a row that decide what is trained: snapshots are only looked at."""
    return {name: value for name, value in row.slots().items() if name != "snapshots"}


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def _file(preset: str, project: Path) -> Path:
    return project / "presets" / f"{preset}.yaml"
