"""The parameters that the papers' codes set for each loss and data set, as presets/noise-parameters.csv lists them."""

from pathlib import Path

import pandas as pd
import pytest

from ltnb.methods import FNPAL, CrossEntropy
from ltnb.methods.slots import REQUIRED

FILE = Path(__file__).parents[2] / "presets" / "noise-parameters.csv"


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(FILE)


def test_columns(table: pd.DataFrame) -> None:
    assert list(table) == ["loss", "dataset", "parameter", "value", "source"]
    assert table.notna().all(axis=None)
    assert not table.duplicated(["loss", "dataset", "parameter", "source"]).any()
    assert set(table["dataset"]) == {"mnist", "cifar10", "cifar100", "webvision-mini"}


def test_each_entry_is_a_complete_row_of_params(table: pd.DataFrame) -> None:
    for (loss, dataset, source), rows in table.groupby(["loss", "dataset", "source"]):
        given = dict(zip(rows["parameter"], rows["value"].astype(float), strict=True))
        for system in (CrossEntropy, FNPAL):
            settings = system(classification=loss, **given)
            assert {name for name in REQUIRED if name in settings.slots()} == given.keys(), (loss, dataset, source)


def test_every_loss_with_parameters_is_there_for_mnist_from_both_sources(table: pd.DataFrame) -> None:
    sources = table[table["dataset"] == "mnist"].groupby("loss")["source"].nunique()
    assert sources.to_dict() == {
        "focal": 2, "gce": 3, "nce+mae": 2, "nce+rce": 2, "nfl": 1, "nfl+rce": 2, "sce": 2,
    }  # fmt: skip


def test_where_the_sources_disagree(table: pd.DataFrame) -> None:
    values = table.groupby(["loss", "dataset", "parameter"])["value"].unique().map(sorted)
    assert {key: found for key, found in values.items() if len(found) > 1} == {
        ("gce", "mnist", "gce_q"): [0.01, 0.7],
        ("gce", "cifar10", "gce_q"): [0.01, 0.7],
        ("gce", "cifar100", "gce_q"): [0.001, 0.7],
        ("sce", "mnist", "active_weight"): [0.01, 1],
        ("nce+mae", "mnist", "passive_weight"): [10, 100],
        ("nce+rce", "mnist", "passive_weight"): [10, 100],
        ("nce+rce", "cifar100", "passive_weight"): [0.1, 1],
        ("nfl+rce", "mnist", "passive_weight"): [10, 100],
        ("nfl+rce", "cifar100", "passive_weight"): [0.1, 1],
    }
