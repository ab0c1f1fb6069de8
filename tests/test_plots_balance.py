"""Means against spreads, pairs of heads and tails, and a setting swept."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from ltnb import presets
from ltnb.plots import method_style
from ltnb.plots.balance import mean_and_spread, pair_separabilities, swept
from ltnb.plots.theme import ROW_STYLES, STYLES

PROJECT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _closes_its_figures() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


def measures(values: dict[str, dict[str, list[float]]]) -> pd.DataFrame:
    """By method and measure, a value a seed."""
    return pd.DataFrame(
        [
            {"method": method, "seed": seed, "measure": measure, "value": value}
            for method, of_method in values.items()
            for measure, of_seeds in of_method.items()
            for seed, value in enumerate(of_seeds)
        ]
    )


def errorbars(ax: Axes) -> list[ErrorbarContainer]:
    return [container for container in ax.containers if isinstance(container, ErrorbarContainer)]


def xy(line: Line2D) -> NDArray[np.float64]:
    return np.asarray(line.get_xydata(), dtype=float)


def lengths(container: ErrorbarContainer) -> list[float]:
    (bars,) = container.lines[2]
    return [float(np.ptp(np.asarray(segment)[:, 1])) for segment in bars.get_segments()]


def test_a_point_a_run() -> None:
    table = measures(
        {
            "bce3s": {"test_compactness_mean": [80, 82], "test_compactness_spread": [5, 6]},
            "ce": {"test_compactness_mean": [70, 75], "test_compactness_spread": [9, 8]},
        }
    )
    ax = mean_and_spread(table, {"test_compactness": "compactness"}, title="t").axes[0]
    drawn = {
        to_hex(np.asarray(points.get_facecolor())[0]): np.asarray(points.get_offsets()) for points in ax.collections
    }
    np.testing.assert_array_equal(drawn[method_style("bce3s").colour.lower()], [[80, 5], [82, 6]])
    np.testing.assert_array_equal(drawn[method_style("ce").colour.lower()], [[70, 9], [75, 8]])
    assert ax.get_ylim()[0] == 0
    assert ax.get_ylim()[1] > 9


def test_pairs_with_their_spread_over_seeds() -> None:
    table = measures(
        {
            method: {
                "classifier_head_head": [60 - shift, 62 - shift],
                "classifier_head_tail": [55.0, 55.0],
                "classifier_tail_tail": [20.0, 24.0],
            }
            for method, shift in (("ce", 0), ("pal", 5))
        }
    )
    ax = pair_separabilities(table, {"classifier": "classifier"}, simplex=55.6, title="t").axes[0]
    means = [xy(container.lines[0])[:, 1].tolist() for container in errorbars(ax)]
    assert means == [[61, 55, 22], [56, 55, 22]]
    assert lengths(errorbars(ax)[0]) == pytest.approx([2 * np.sqrt(2), 0, 4 * np.sqrt(2)])
    assert 55.6 in [xy(line)[0, 1] for line in ax.lines]


def test_a_method_is_left_out_of_panels_that_it_has_no_values_for() -> None:
    def pairs(place: str, value: float) -> dict[str, list[float]]:
        return {f"{place}_{pair}": [value] for pair in ("head_head", "head_tail", "tail_tail")}

    table = measures({"ce-sc": pairs("classifier", 40) | pairs("control", 55), "bce3s": pairs("classifier", 50)})
    panels = {"classifier": "classifier", "control": "control", "none": "empty"}
    figure = pair_separabilities(table, panels, simplex=55.6, title="t")
    drawn = [[xy(bars.lines[0])[0, 1] for bars in errorbars(ax)] for ax in figure.axes]
    assert drawn == [[40, 50], [55], []]
    assert len({ax.get_xlim() for ax in figure.axes}) == 1  # or the pairs would not stand below each other


def test_one_seed_has_no_spread() -> None:
    pairs = {f"classifier_{pair}": [50.0] for pair in ("head_head", "head_tail", "tail_tail")}
    ax = pair_separabilities(measures({"ce": pairs}), {"classifier": "c"}, simplex=55.6, title="t").axes[0]
    assert lengths(errorbars(ax)[0]) == [0, 0, 0]


def test_a_swept_setting_in_order_and_in_per_cent() -> None:
    table = measures({"pal-decay-1e-4": {"share": [0.1, 0.3]}, "pal": {"share": [0.4, 0.4]}})
    rows = {"pal": {1e-4: "pal-decay-1e-4", 1e-3: "pal", 1e-2: "not-run"}}
    figure = swept(table, rows, {"share": "accuracy [%]"}, setting="weight decay", title="t")
    (container,) = errorbars(figure.axes[0])
    np.testing.assert_allclose(xy(container.lines[0]), [[1e-4, 20], [1e-3, 40], [1e-2, np.nan]])
    assert figure.axes[0].get_xscale() == "log"


def test_rows_of_a_preset_have_styles_that_stand_apart() -> None:
    """Within a paper; a row of one that is a method of `STYLES` as well keeps that style."""
    for preset in ("digits-bce3s", "digits-pal"):
        drawn = [row for row in presets.load(preset, PROJECT).methods if row in STYLES | ROW_STYLES]
        assert len({method_style(row).colour for row in drawn}) == len(drawn)
        assert len({method_style(row).label for row in drawn}) == len(drawn)
