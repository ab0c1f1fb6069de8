"""What came out, in sentences: computed, so that they stay true whatever methods and seeds there are.

Each function takes the frames of `ltnb.tables` and returns Markdown, a list of sentences. A difference is called one
only where its paired 95 % interval leaves out 0; the rest is said not to be told apart.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ltnb import geometry, tables
from ltnb.runs import Run


def of_labels(run: Run) -> str:
    """How many training labels of a run are wrong, and which labels its class sizes and measures go by.

    Returns:
        Two sentences, or nothing where all labels are true.
    """
    noise = run.params.get("noise")
    if noise is None:
        return ""
    kind = run.params["dataset"]["noise"]
    share = f"{100 * noise['rate']['realised']:.0f} % of the training labels are wrong"
    if run.params["dataset"]["noise_order"] == "before-tail":
        cut, taken = "before the long tail was cut by the labels that are given", "given label"
        why = "so a class of training images holds images of others, and sizes are those of the given labels"
    else:
        cut, taken = "after the long tail was cut by the true ones", "true class"
        why = "and so do class sizes; methods saw the given labels, and know only how often each of them is given"
    return _list(
        [
            f"{share}: {kind} noise, {cut}.",
            f"Below, a training image counts for its {taken}, {why}. Test labels are true.",
        ]
    )


def of_geometry(measured: pd.DataFrame, class_counts: Sequence[int]) -> str:
    """How far one method's features are from a regular simplex, what the tail has of it, and whether tests agree.

    Args:
        measured: the measures of the method's runs below each other, as `ltnb.tables.measure` makes them.
        class_counts: (K,) training images of each class.
    """
    simplex = float(np.degrees(np.arccos(geometry.simplex_cosine(len(class_counts)))))
    seen = tables.seen_from(measured, "class")
    of_all = seen[seen["class"].isna() & (seen["space"] == "features")]
    means = of_all.groupby(["measure", "split"])["value"].mean()
    sentences = [
        f"The two closest classes are {means['nearest_angle', 'train']:.0f}° apart on training images and "
        f"{means['nearest_angle', 'test']:.0f}° on test images; at a regular simplex any two are {simplex:.0f}° apart."
    ]
    few = means.get(("minority_collapse_angle", "train"), np.nan)
    if np.isfinite(few):
        test = means["minority_collapse_angle", "test"]
        sentences.append(
            f"Two classes with fewer than 20 training images are {few:.0f}° apart on average on training images, "
            f"{_than(few, simplex)} a simplex asks for, and {test:.0f}° on test images, {_than(test, few)} that."
        )
    spread = means["class_distance_normalised_variance"]
    if spread["train"] > 0:
        sentences.append(
            "In units of the distance between classes, the variance within them is "
            f"{spread['test'] / spread['train']:.1f} times as large on test images as on training images."
        )
    aligned = seen[(seen["measure"] == "classifier_alignment") & (seen["split"] == "test")].dropna(subset=["class"])
    by_size = aligned.groupby("class")["value"].mean()
    largest, smallest = (int(function(class_counts)) for function in (np.argmax, np.argmin))
    sentences.append(
        "The classifier's vector has a cosine to the mean of its class's test images of "
        f"{by_size[largest]:.2f} for the largest class, and of {by_size[smallest]:.2f} for the smallest."
    )
    return _list(sentences)


def of_comparison(accuracy: pd.DataFrame, measured: pd.DataFrame, labels: Mapping[str, str], *, baseline: str) -> str:
    """Who is most accurate and how surely, who differs from the baseline where, and whether geometry goes with it.

    Args:
        accuracy: as `ltnb.tables.accuracies` makes it, of one dataset.
        measured: as `ltnb.tables.measure` makes it, of the same runs.
        labels: what each method is called.
        baseline: the method that the others are compared with.
    """
    sentences = []
    means = accuracy.groupby(["group", "method"], sort=False)["accuracy"].mean()
    for group, classes in (("all", "all classes"), ("few", "classes with few training images")):
        if group in means.index and len(labels) > 1:
            best = str(means[group].idxmax())
            others = tables.paired_differences(accuracy[accuracy["group"] == group], baseline=best)
            level = [labels[row["method"]] for _, row in others.iterrows() if not row["high"] < 0]
            sentences.append(
                f"Over {classes} {labels[best]} has the highest mean, {100 * means[group, best]:.1f} %; "
                + (
                    f"these seeds do not tell it apart from {_and(level)}."
                    if level
                    else "the interval of its lead on each other one leaves out 0."
                )
            )
    if len(labels) > 1:
        differences = tables.paired_differences(accuracy, baseline=baseline)
        for group in ("many", "medium", "few"):
            of_group = differences[differences["group"] == group]
            gained = [labels[method] for method in of_group.loc[of_group["low"] > 0, "method"]]
            lost = [labels[method] for method in of_group.loc[of_group["high"] < 0, "method"]]
            if len(of_group):
                sentences.append(
                    f"Against {labels[baseline]}, on classes with {group} images, "
                    f"{_and(gained) or 'nobody'} gained and {_and(lost) or 'nobody'} lost."
                )
        sentences.append(
            "With one seed in common there are no intervals, and nothing can be told."
            if (differences["n"] < 2).all()
            else f"Were all methods alike, about {len(differences) / 20:.1f} of these {len(differences)} intervals "
            "(with those over all classes) would leave out 0 by chance."
        )
    far = measured.query(
        "measure == 'simplex_distance' and split == 'test' and space == 'features' and centring == 'class'"
    )
    distance = far.groupby("method", sort=False)["value"].mean()
    sentences.append(f"The test features of {labels[str(distance.idxmin())]} are closest to a regular simplex.")
    if len(labels) > 3 and "all" in means.index:
        correlation = distance.rank().corr(means["all"].reindex(distance.index).rank())
        sentences.append(
            f"Across the {len(labels)} methods the rank correlation between distance to the simplex and accuracy is "
            f"{correlation:+.2f}: "
            + ("closer goes with more accurate" if correlation < -0.5 else "closer does not simply mean more accurate")
            + ", and a correlation over so few methods proves nothing."
        )
    return _list(sentences)


def _than(angle: float, other: float) -> str:
    difference = round(angle) - round(other)
    return f"{abs(difference)}° {'more' if difference > 0 else 'less'} than" if difference else "as much as"


def _and(names: Sequence[str]) -> str:
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _list(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
