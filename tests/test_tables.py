import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from synthetic_runs import CLASS_COUNTS, make_run

from ltnb import geometry, tables
from ltnb.runs import Run


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Matrices of ten rows: on a busy machine a second thread costs more than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder, method, seed, bend=bend, projections=method == "bcl")
        for method, bend in (("ce", 0.9), ("bcl", 0.2))
        for seed in (0, 1, 2)
    ]


def test_overview_has_a_row_a_run(runs: list[Run]) -> None:
    table = tables.overview(runs)
    assert list(table["method"]) == ["ce"] * 3 + ["bcl"] * 3
    assert list(table["accuracy_few"]) == [run.metrics["accuracy_few"] for run in runs]
    assert not any("class" in column for column in table)


def test_an_absent_group_has_no_row(tmp_path: Path) -> None:
    table = tables.accuracies([make_run(tmp_path, class_counts=(15, 9, 4))])
    assert list(table["group"]) == ["all", "few"]


def test_class_accuracies_average_to_the_accuracy(runs: list[Run]) -> None:
    means = tables.class_accuracies(runs).groupby(["method", "seed"], sort=False)["accuracy"].mean()
    np.testing.assert_allclose(means, [run.metrics["accuracy"] for run in runs])


def test_histories_keep_every_epoch(runs: list[Run]) -> None:
    table = tables.histories(runs)
    assert list(table)[:4] == ["dataset", "method", "seed", "epoch"]
    assert len(table) == sum(len(run.history) for run in runs)


def test_confusion_counts_as_a_loop_does(runs: list[Run]) -> None:
    run = runs[0]
    expected = np.zeros((10, 10), dtype=int)
    for actual, logits in zip(run.embeddings["test_labels"], run.embeddings["test_logits"], strict=True):
        expected[actual, max(range(10), key=lambda k, row=logits: row[k])] += 1
    np.testing.assert_array_equal(tables.confusion(run), expected)

    named = tables.predictions([run])
    crossed = pd.crosstab(named["actual"], named["predicted"]).reindex(columns=named["actual"].unique(), fill_value=0)
    np.testing.assert_array_equal(crossed.sort_index(axis=1), expected)


def test_summarise_counts_what_is_there() -> None:
    frame = pd.DataFrame({"method": ["a", "a", "a", "b"], "value": [1.0, 2.0, np.nan, 5.0]})
    table = tables.summarise(frame, ["method"], "value").set_index("method")
    assert table.loc["a"].tolist() == [1.5, pytest.approx(np.sqrt(0.5)), 2]
    assert table.loc["b", "n"] == 1
    assert np.isnan(table.loc["b", "sd"])


def test_readable_keeps_the_given_order() -> None:
    summary = pd.DataFrame({"m": ["z", "a"], "g": ["few", "all"], "mean": [0.5, 0.25], "sd": [0.01, np.nan]})
    table = tables.readable(summary, rows="m", columns="g", scale=100, digits=1)
    assert table.to_dict("index") == {"z": {"few": "50.0 ± 1.0", "all": ""}, "a": {"few": "", "all": "25.0"}}
    assert list(table.index) == ["z", "a"]


def paired(differences: list[float]) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    base = rng.uniform(size=len(differences))
    return pd.DataFrame(
        {
            "method": ["ce"] * len(base) + ["bcl"] * len(base),
            "seed": list(range(len(base))) * 2,
            "group": "all",
            "accuracy": [*base, *(base + differences)],
        }
    )


def test_the_interval_of_three_differences_by_hand() -> None:
    row = tables.paired_differences(paired([0.01, 0.02, 0.03]), baseline="ce").iloc[0]
    margin = 4.302653 * 0.01 / np.sqrt(3)  # Student's t with two degrees of freedom at 97.5 %
    assert row["difference"] == pytest.approx(0.02)
    assert (row["low"], row["high"]) == (pytest.approx(0.02 - margin), pytest.approx(0.02 + margin))
    assert row["n"] == 3


def test_the_interval_is_that_of_the_paired_t_test() -> None:
    frame = paired([0.05, -0.01, 0.02, 0.08, 0.03]).sample(frac=1, random_state=1)
    row = tables.paired_differences(frame, baseline="ce", confidence=0.9).iloc[0]
    wide = frame.pivot_table(index="seed", columns="method", values="accuracy")
    expected = stats.ttest_rel(wide["bcl"], wide["ce"]).confidence_interval(0.9)
    assert (row["low"], row["high"]) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_one_seed_has_a_difference_but_no_interval() -> None:
    row = tables.paired_differences(paired([0.02]), baseline="ce").iloc[0]
    assert row["difference"] == pytest.approx(0.02)
    assert row[["low", "high"]].isna().all()


def test_only_seeds_in_common_are_paired() -> None:
    frame = paired([0.01, 0.02, 0.03])
    frame = frame[(frame["method"] != "bcl") | (frame["seed"] != 2)]
    assert tables.paired_differences(frame, baseline="ce").iloc[0]["n"] == 2


@pytest.mark.parametrize(
    ("frame", "settings", "message"),
    [
        (paired([0.01]), {"baseline": "pal"}, "baseline must be one of .*ce, bcl.*'pal'"),
        (paired([0.01]), {"baseline": "ce", "confidence": 95.0}, "confidence .*95.0"),
        (paired([0.01]).assign(seed=[0, 1]), {"baseline": "ce"}, "seed that 'bcl' and 'ce' both"),
        (pd.concat([paired([0.01])] * 2), {"baseline": "ce"}, "each method, seed and group once"),
    ],
)
def test_unpaired_runs_are_refused(frame: pd.DataFrame, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tables.paired_differences(frame, **settings)


def scalar(measured: pd.DataFrame, measure: str, split: str, centring: str, space: str = "features") -> float:
    rows = measured[
        (measured["measure"] == measure)
        & (measured["split"] == split)
        & (measured["centring"] == centring)
        & (measured["space"] == space)
        & measured["class"].isna()
    ]
    (value,) = rows["value"]
    return float(value)


def test_a_collapsed_simplex_is_measured_as_one(tmp_path: Path) -> None:
    counts = (40, 12, 6, 3, 2)
    measured = tables.measure(make_run(tmp_path, bend=0, noise=0, class_counts=counts, projections=True))
    for split in ("train", "test"):
        for space in ("features", "projections"):
            of = {name: scalar(measured, name, split, "class", space) for name in ("cosine", "nearest_angle")}
            assert of["cosine"] == pytest.approx(-1 / 4, abs=1e-6)
            assert of["nearest_angle"] == pytest.approx(np.degrees(np.arccos(-1 / 4)), abs=1e-4)
            for name in ("cosine_spread", "simplex_distance", "within_class_variability"):
                assert scalar(measured, name, split, "class", space) == pytest.approx(0, abs=1e-6)
            assert scalar(measured, "compactness", split, "class", space) == pytest.approx(100, abs=1e-4)
            assert scalar(measured, "alignment", split, "none", space) == pytest.approx(0, abs=1e-6)
        assert scalar(measured, "classifier_alignment", split, "class") == pytest.approx(1, abs=1e-6)
    # The mean of images lies by the head under a long tail, but in the middle of a balanced test set.
    assert scalar(measured, "simplex_distance", "test", "sample") == pytest.approx(0, abs=1e-6)
    assert scalar(measured, "simplex_distance", "train", "sample") > 0.1
    assert scalar(measured, "separability", "none", "none", "classifier") == pytest.approx(50 * 5 / 4, abs=1e-4)


def test_what_softmax_ignores_does_not_count_as_distance(runs: list[Run]) -> None:
    shifted = {**runs[0].embeddings, "classifier_weight": runs[0].embeddings["classifier_weight"] + 1}
    measured = tables.measure(replace(runs[0], embeddings=shifted))
    assert scalar(measured, "simplex_distance", "none", "none", "classifier") == pytest.approx(0, abs=1e-6)


def test_measures_are_those_of_the_geometry_module(runs: list[Run]) -> None:
    run = runs[-1]
    measured = tables.measure(run)
    z, y = (torch.from_numpy(run.embeddings[f"train_{name}"]) for name in ("projections", "labels"))
    chosen = measured[(measured["split"] == "train") & (measured["space"] == "projections")]
    by_class = chosen.dropna(subset=["class"]).set_index(["measure", "centring", "class"])["value"].sort_index()
    cosines = geometry.class_cosines(z, y, 10, centring="sample")
    for k in range(10):
        others = [cosines[k, j].item() for j in range(10) if j != k]
        assert by_class["cosine", "sample", k] == pytest.approx(np.mean(others))
        assert by_class["nearest_angle", "sample", k] == pytest.approx(np.degrees(np.arccos(max(others))))
    np.testing.assert_allclose(
        by_class["compactness", "class"], geometry.compactness(z, y, 10, centring="class"), equal_nan=True
    )
    variances = geometry.class_distance_normalised_variance(z, y, 10)
    assert scalar(measured, "class_distance_normalised_variance", "train", "none", "projections") == pytest.approx(
        np.nanmean(variances)
    )


def test_measure_says_where_each_value_was_taken(runs: list[Run]) -> None:
    for run, places in ((runs[0], {"features", "classifier"}), (runs[-1], {"features", "projections", "classifier"})):
        measured = tables.measure(run)
        assert set(measured["space"]) == places
        key = ["split", "space", "centring", "measure", "class"]
        assert not measured.duplicated(key).any()
        of_classes = measured[measured["class"].notna()]
        assert (of_classes["class_count"] == of_classes["class"].map(dict(enumerate(CLASS_COUNTS)))).all()
        missing = of_classes[of_classes["value"].isna()]
        assert set(missing["measure"]) == {"compactness"}  # the class with one image has no pair
        assert set(missing["class"]) == {9}


def test_seen_from_adds_what_needs_no_centre(runs: list[Run]) -> None:
    measured = tables.measure(runs[0])
    chosen = tables.seen_from(measured, "class")
    assert set(chosen["centring"]) == {"class", "none"}
    assert set(chosen.loc[chosen["centring"] == "none", "measure"]) == set(tables.WITHOUT_CENTRE)


def test_mean_angles_average_over_runs(runs: list[Run]) -> None:
    one_by_one = [tables.mean_angles([run], "features", "test", "class") for run in runs[:3]]
    np.testing.assert_allclose(tables.mean_angles(runs[:3], "features", "test", "class"), np.mean(one_by_one, axis=0))


def test_headline_metrics_are_flat_means(runs: list[Run]) -> None:
    measured = pd.concat(map(tables.measure, runs[:3]))
    metrics = tables.headline_metrics(runs[:3], measured)
    values = [run.metrics["accuracy"] for run in runs[:3]]
    assert metrics["accuracy"] == pytest.approx(np.mean(values))
    assert metrics["accuracy_sd"] == pytest.approx(np.std(values, ddof=1))
    assert metrics["seeds"] == 3
    distances = [scalar(tables.measure(run), "simplex_distance", "test", "class") for run in runs[:3]]
    assert metrics["test_simplex_distance"] == pytest.approx(np.mean(distances))


def test_headline_metrics_leave_out_what_does_not_exist(tmp_path: Path) -> None:
    run = make_run(tmp_path, class_counts=(120, 60, 30))
    metrics = tables.headline_metrics([run], tables.measure(run))
    assert not {"accuracy_sd", "accuracy_few", "test_minority_collapse_angle"} & set(metrics)
    json.dumps(metrics, allow_nan=False)


def test_a_single_method_has_no_differences() -> None:
    frame = pd.DataFrame({"method": ["bcl"] * 2, "seed": [0, 1], "group": ["all"] * 2, "accuracy": [0.5, 0.6]})
    differences = tables.paired_differences(frame, baseline="bcl")
    assert list(differences) == ["method", "baseline", "group", "difference", "low", "high", "n"]
    assert differences.empty
    assert tables.pairwise_differences(frame).empty


def test_every_pair_of_methods_is_compared_once() -> None:
    methods = ["ce"] * 2 + ["supcon"] * 2 + ["bcl"] * 2
    frame = pd.DataFrame(
        {"method": methods, "seed": [0, 1] * 3, "group": "all", "accuracy": [0, 0, 0.4, 0.6, 0.5, 0.7]}
    )
    pairs = tables.pairwise_differences(frame).set_index(["baseline", "method"])["difference"]
    assert pairs.to_dict() == pytest.approx({("ce", "supcon"): 0.5, ("ce", "bcl"): 0.6, ("supcon", "bcl"): 0.1})


def test_a_feature_without_direction_leaves_its_measures_missing(runs: list[Run]) -> None:
    dead = dict(runs[0].embeddings)
    dead["test_features"] = np.where(np.arange(len(dead["test_features"]))[:, None] == 0, 0, dead["test_features"])
    measured = tables.measure(replace(runs[0], embeddings=dead)).set_index(["split", "space", "measure"])["value"]
    for measure in ("alignment", "uniformity"):
        assert np.isnan(measured["test", "features", measure])
        assert np.isfinite(measured["train", "features", measure])


def noisy(run: Run, order: str) -> Run:
    """The run as if its whole last class had been given the first one's label, before or after the tail was cut."""
    clean = run.embeddings["train_labels"]
    given = np.where(clean == len(CLASS_COUNTS) - 1, 0, clean)
    noise = {"rate": {"wanted": 0.1, "realised": float((given != clean).mean())}}
    return replace(
        run,
        params={**run.params, "dataset": {"noise": "asymmetric", "noise_order": order}, "noise": noise},
        embeddings={**run.embeddings, "train_labels": given, "train_clean_labels": clean},
    )


def test_a_class_that_noise_left_no_label_is_measured_by_its_true_images(runs: list[Run]) -> None:
    run = noisy(runs[0], "after-tail")
    pd.testing.assert_frame_equal(tables.measure(run), tables.measure(runs[0]))
    angles = [tables.mean_angles([each], "features", "train", "class") for each in (run, runs[0])]
    np.testing.assert_array_equal(*angles)


def test_images_count_for_the_labels_that_the_tail_was_cut_by(runs: list[Run]) -> None:
    before, after = (noisy(runs[0], order) for order in ("before-tail", "after-tail"))
    np.testing.assert_array_equal(tables.labels(before, "train"), before.embeddings["train_labels"])
    np.testing.assert_array_equal(tables.labels(after, "train"), after.embeddings["train_clean_labels"])
    for run in (before, after, runs[0]):
        np.testing.assert_array_equal(tables.labels(run, "test"), run.embeddings["test_labels"])
