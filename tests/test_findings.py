from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic_runs import make_run

from ltnb import findings, tables
from ltnb.runs import Run


def accuracy(**by_method: tuple[list[float], list[float]]) -> pd.DataFrame:
    """Accuracies over seeds, of all and of few classes."""
    return pd.DataFrame(
        [
            {"method": method, "seed": seed, "group": group, "accuracy": value}
            for method, groups in by_method.items()
            for group, values in zip(("all", "few"), groups, strict=True)
            for seed, value in enumerate(values)
        ]
    )


def distances(**by_method: float) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "method": method,
            "measure": "simplex_distance",
            "split": "test",
            "space": "features",
            "centring": "class",
            "value": value,
        }
        for method, value in by_method.items()
    )


def compare(frame: pd.DataFrame, far: dict[str, float], baseline: str = "ce") -> str:
    return findings.of_comparison(frame, distances(**far), {name: name.upper() for name in far}, baseline=baseline)


def test_a_sure_gain_and_one_that_is_not() -> None:
    frame = accuracy(
        ce=([0.50, 0.52, 0.54], [0.30, 0.31, 0.32]),
        bcl=([0.60, 0.62, 0.641], [0.50, 0.51, 0.521]),
        pal=([0.55, 0.66, 0.64], [0.20, 0.45, 0.30]),
    )
    text = compare(frame, {"ce": 0.9, "bcl": 0.3, "pal": 0.5})
    assert "Over all classes BCL has the highest mean, 62.0 %; these seeds do not tell it apart from PAL." in text
    assert "Against CE, on classes with few images, BCL gained and nobody lost." in text
    assert "about 0.2 of these 4 intervals" in text
    assert "The test features of BCL are closest to a regular simplex." in text
    assert "correlation" not in text  # over three methods


def test_a_sure_loss_and_a_sure_lead() -> None:
    frame = accuracy(ce=([0.5, 0.51, 0.53], [0.5, 0.51, 0.53]), bcl=([0.6, 0.61, 0.631], [0.1, 0.11, 0.131]))
    text = compare(frame, {"ce": 0.9, "bcl": 0.3})
    assert "BCL has the highest mean, 61.4 %; the interval of its lead on each other one leaves out 0." in text
    assert "on classes with few images, nobody gained and BCL lost" in text


def test_one_seed_tells_nothing_and_one_method_is_compared_with_nobody() -> None:
    text = compare(accuracy(ce=([0.5], [0.2]), bcl=([0.9], [0.8])), {"ce": 0.9, "bcl": 0.3})
    assert "these seeds do not tell it apart from CE" in text
    assert "nobody gained and nobody lost" in text
    assert "nothing can be told" in text
    alone = compare(accuracy(ce=([0.5], [0.2])), {"ce": 0.9})
    assert alone == "- The test features of CE are closest to a regular simplex."


@pytest.mark.parametrize(
    ("far", "said"), [((0.9, 0.7, 0.5, 0.3), "-1.00: closer goes"), ((0.3, 0.5, 0.7, 0.9), "+1.00: closer does not")]
)
def test_geometry_and_accuracy_over_the_methods(far: tuple[float, ...], said: str) -> None:
    names = ("ce", "bcl", "pal", "bce3s")
    frame = accuracy(**{name: ([0.5 + i / 10, 0.52 + i / 10], [0.3, 0.31]) for i, name in enumerate(names)})
    assert said in compare(frame, dict(zip(names, far, strict=True)))


def measured(folder: Path, **settings: object) -> tuple[list[Run], pd.DataFrame]:
    runs = [make_run(folder, "bcl", seed, **settings) for seed in (0, 1)]  # type: ignore[arg-type]
    return runs, pd.concat(map(tables.measure, runs), ignore_index=True)


def test_what_is_said_of_a_geometry_is_what_was_measured(tmp_path: Path) -> None:
    runs, frame = measured(tmp_path, bend=0.6)
    counts = runs[0].params["class_counts"]
    text = findings.of_geometry(frame, counts)
    chosen = frame.query("space == 'features' and centring == 'class' and `class`.isna()")
    means = chosen.groupby(["measure", "split"])["value"].mean()
    closest, few = means["nearest_angle"], means["minority_collapse_angle"]
    assert f"are {closest['train']:.0f}° apart on training images and {closest['test']:.0f}° on test images" in text
    assert "any two are 96° apart" in text
    assert f"are {few['train']:.0f}° apart on average on training images, {96 - round(few['train'])}° less than" in text
    alike = frame.query("measure == 'classifier_alignment' and split == 'test' and centring == 'class'")
    for k in (0, 9):
        assert f"{alike[alike['class'] == k]['value'].mean():.2f} for the" in text


def test_without_a_tail_nothing_is_said_of_it(tmp_path: Path) -> None:
    runs, frame = measured(tmp_path, class_counts=(40, 30, 25))
    text = findings.of_geometry(frame, runs[0].params["class_counts"])
    assert "fewer than 20" not in text
    assert "any two are 120° apart" in text


@pytest.mark.parametrize(("order", "counted_for"), [("after-tail", "true class"), ("before-tail", "given label")])
def test_it_is_said_which_labels_are_meant(tmp_path: Path, order: str, counted_for: str) -> None:
    run = make_run(tmp_path)
    assert findings.of_labels(run) == ""
    dataset = {"noise": "symmetric", "noise_order": order}
    noise = {"rate": {"wanted": 0.4, "realised": 0.3355}}
    said = findings.of_labels(replace(run, params={**run.params, "dataset": dataset, "noise": noise}))
    assert "34 % of the training labels are wrong: symmetric noise" in said
    assert f"counts for its {counted_for}" in said
