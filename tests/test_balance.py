"""Single numbers of how evenly a run treats its classes, against the class-by-class measures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_runs import CLASS_COUNTS, make_run

from ltnb import balance, tables, trained_supports
from ltnb.methods import FeatRecon
from ltnb.runs import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs"), bend=0.9)


def values_of(run: Run) -> pd.Series:
    return balance.measures([run]).set_index("measure")["value"]


@pytest.mark.parametrize(
    ("name", "measure", "split", "space"),
    [
        ("test_compactness", "compactness", "test", "features"),
        ("train_compactness", "compactness", "train", "features"),
        ("test_separability", "separability", "test", "features"),
        ("test_norm", "feature_norm", "test", "features"),
        ("test_alignment", "classifier_alignment", "test", "features"),
        ("classifier_separability", "separability", "none", "classifier"),
        ("classifier_norm", "norm", "none", "classifier"),
    ],
)
def test_mean_and_spread_over_classes(run: Run, name: str, measure: str, split: str, space: str) -> None:
    table = tables.seen_from(tables.measure(run), "class" if space == "features" else "none")
    chosen = table[(table["measure"] == measure) & (table["split"] == split) & (table["space"] == space)]
    by_class = chosen.loc[chosen["class"].notna(), "value"].to_numpy()
    found = values_of(run)
    assert found[f"{name}_mean"] == pytest.approx(np.nanmean(by_class))
    assert found[f"{name}_spread"] == pytest.approx(np.nanstd(by_class), abs=1e-6)


def test_pairs_margins_and_angles_of_a_classifier_at_the_simplex(run: Run) -> None:
    found = values_of(run)
    for pair in ("head_head", "head_tail", "tail_tail"):
        assert found[f"classifier_{pair}"] == pytest.approx(50 * (1 + 1 / 9), abs=1e-4)
    assert found["classifier_smallest_angle"] == pytest.approx(np.degrees(np.arccos(-1 / 9)), abs=1e-3)
    assert found["classifier_norm_variation"] == pytest.approx(0, abs=1e-6)
    assert found["train_margin_smallest"] <= found["train_margin_mean"] < 10 / 9
    assert found["test_head_head"] > found["test_tail_tail"]  # the tail is bent together


def test_what_does_not_exist_is_absent(tmp_path: Path, run: Run) -> None:
    assert "head_share" not in values_of(run)  # sixteen dimensions
    assert values_of(run)["fitting_epoch"] == 5  # 1 − e^(−epoch/2) ≥ 0.9
    history = run.history.assign(train_accuracy=0.5)
    assert "fitting_epoch" not in values_of(replace(run, history=history))
    no_tail = values_of(make_run(tmp_path, class_counts=(60, 40, 20)))
    assert "classifier_head_head" in no_tail
    assert not {"classifier_head_tail", "classifier_tail_tail"} & {*no_tail.index}


@pytest.mark.parametrize("classifier", ["linear", "anchored-cosine"])
def test_lengths_take_directions_only_where_they_decide(run: Run, classifier: str) -> None:
    turn = 2 * np.pi * np.arange(3) / 3
    weight = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    weight[0] *= 0.5  # the triangle's corner there has an angle of 2 arctan(sin 60° / (0.5 + cos 60°))
    shorter = 1 / 2 - np.arctan(np.sqrt(0.75)) / np.pi
    labels = np.arange(3).repeat(2)
    features = weight[labels] + [[0.1, 0], [0, 0.1]] * 3
    planar = replace(
        run,
        params={**run.params, "class_counts": [5, 10, 20], "method": {"classifier": classifier}},
        embeddings={
            "classifier_weight": weight,
            **{f"{split}_features": features for split in ("train", "test")},
            **{f"{split}_labels": labels for split in ("train", "test")},
        },
    )
    expected = (1 - shorter) / 2 if classifier == "linear" else 1 / 3
    assert values_of(planar)["head_share"] == pytest.approx(expected, abs=1e-3)
    assert (1 - shorter) / 2 > 0.34


def test_the_bias_comes_back_from_the_logits(run: Run) -> None:
    weight, features = run.embeddings["classifier_weight"], run.embeddings["test_features"]
    bias = np.linspace(-3, 3, len(weight))
    linear = replace(
        run,
        params={**run.params, "method": {"classifier": "linear"}},
        embeddings={**run.embeddings, "test_logits": features @ weight.T + bias},
    )
    found = balance.deciding_bias(linear)
    assert found is not None
    assert found.tolist() == pytest.approx(bias, abs=1e-5)
    assert balance.deciding_bias(replace(linear, params={"method": {"classifier": "cosine"}})) is None


def test_margins_by_class_agree_with_the_single_numbers(run: Run) -> None:
    table = balance.margins_by_class([run])
    assert list(table["class_count"]) == [*CLASS_COUNTS, *CLASS_COUNTS]
    for split in ("train", "test"):
        margins = table.loc[table["split"] == split, "value"]
        assert margins.min() == pytest.approx(values_of(run)[f"{split}_margin_smallest"])
        assert margins.mean() == pytest.approx(values_of(run)[f"{split}_margin_mean"])


def test_tail_classes() -> None:
    assert balance.tail_classes(CLASS_COUNTS).tolist() == [4, 5, 6, 7, 8, 9]
    assert balance.tail_classes([30, 20]).tolist() == []


def test_a_row_a_run_and_measure(run: Run) -> None:
    table = balance.measures([run, replace(run, params={**run.params, "seed": 1})])
    assert list(table) == ["method", "seed", "measure", "value"]
    assert set(table.loc[table["seed"] == 0, "measure"]) == set(table.loc[table["seed"] == 1, "measure"])
    assert not table.duplicated(["method", "seed", "measure"]).any()
    assert list(balance.measures([])) == list(table)


def test_projections_are_seen_as_the_contrast_sees_them(tmp_path: Path, run: Run) -> None:
    assert not values_of(run).index.str.contains("projection").any()
    contrasted = make_run(tmp_path, "supcon", bend=0.9, projections=True)
    found = values_of(contrasted)
    table = tables.seen_from(tables.measure(contrasted), "none").query("space == 'projections' and `class`.isna()")
    overlaps = trained_supports.overlaps(contrasted, FeatRecon()).query("centres == 'estimated'")
    for split in tables.SPLITS:
        distance = table.query(f"split == '{split}' and measure == 'simplex_distance_of_directions'")["value"].item()
        assert found[f"{split}_projection_simplex_distance"] == pytest.approx(distance)
        tail_overlap = overlaps.query(f"split == '{split}'")["tail_overlap"].item()
        assert found[f"{split}_projection_tail_overlap"] == pytest.approx(tail_overlap)
        assert found[f"{split}_projection_head_head"] > found[f"{split}_projection_tail_tail"]
