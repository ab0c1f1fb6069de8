"""Many methods at a glance, by family: accuracy with its interval, and what they cost."""

import math
from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from ltnb.plots import accuracy_by_family, cost_by_family, method_style
from ltnb.plots.theme import FAMILY_STYLES


@pytest.fixture(autouse=True)
def _closes_its_figures() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


ROWS = {  # method: family, mean accuracy of all classes
    "ce": ("parity", 0.70),
    "focal": ("loss and sampling", 0.69),
    "ldam": ("loss and sampling", 0.80),
    "crt": ("classifier afterwards", 0.75),
    "bcl": ("the four papers", 0.84),
    "my-own": ("further rows", 0.60),
}


def accuracy() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "method": method,
                "family": family,
                "group": group,
                "mean": mean - less,
                "low": mean - less - 0.02 if method != "crt" else math.nan,  # crt has one seed
                "high": mean - less + 0.02 if method != "crt" else math.nan,
            }
            for method, (family, mean) in ROWS.items()
            for group, less in (("all", 0.0), ("many", -0.1), ("few", 0.2))
            if (method, group) != ("focal", "few")
        ]
    )


def dots(ax: Axes) -> dict[float, tuple[float, str]]:
    """Means in per cent and colours, by their line."""
    points = [line for line in ax.lines if len(np.atleast_1d(np.asarray(line.get_xdata()))) == 1]
    return {
        float(np.asarray(line.get_ydata())[0]): (float(np.asarray(line.get_xdata())[0]), to_hex(str(line.get_color())))
        for line in points
    }


def test_families_in_order_and_methods_from_best_to_worst() -> None:
    figure = accuracy_by_family(accuracy(), baseline="ce", title="t")
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == [
        "Cross-entropy", "loss and sampling", "LDAM", "Focal", "classifier afterwards", "cRT",
        "the four papers", "BCL", "further rows", "my-own",
    ]  # fmt: skip
    bold = [tick.get_text() for tick in figure.axes[0].get_yticklabels() if tick.get_fontweight() == "bold"]
    assert bold == ["loss and sampling", "classifier afterwards", "the four papers", "further rows"]
    overall, few = (dots(ax) for ax in figure.axes)
    assert {y: x for y, (x, _) in overall.items()} == pytest.approx({0: 70, 2: 80, 3: 69, 5: 75, 7: 84, 9: 60})
    assert {y: x for y, (x, _) in few.items()} == pytest.approx({0: 50, 2: 60, 5: 55, 7: 64, 9: 40})
    top, bottom = figure.axes[0].get_ylim()[::-1]
    assert top < 0 < 9 < bottom  # the first line is on top


def test_a_method_has_the_colour_of_its_family_or_of_no_family_its_own() -> None:
    overall = dots(accuracy_by_family(accuracy(), baseline="ce", title="t").axes[0])
    losses = FAMILY_STYLES["loss and sampling"].colour.lower()
    assert overall[2][1] == overall[3][1] == losses == method_style("logit-adjustment").colour.lower()
    assert overall[0][1] == method_style("ce").colour.lower()
    assert overall[7][1] == method_style("bcl").colour.lower()
    assert overall[9][1] == method_style("my-own").colour.lower()
    assert len({style.colour for style in FAMILY_STYLES.values()}) == len(FAMILY_STYLES)
    assert len({style.marker for style in FAMILY_STYLES.values()}) == len(FAMILY_STYLES)


def test_intervals_are_bars_and_the_baseline_s_a_band() -> None:
    ax = accuracy_by_family(accuracy(), baseline="ce", title="t").axes[1]
    bars = {
        float(np.asarray(line.get_ydata())[0]): np.asarray(line.get_xdata(), dtype=float).tolist()
        for line in ax.lines
        if len(np.asarray(line.get_xdata())) == 2 and line.get_linestyle() == "-"
    }
    assert bars[7] == pytest.approx([62, 66])
    assert np.isnan(bars[5]).all()
    (band,) = (patch for patch in ax.patches if isinstance(patch, Rectangle))
    assert (band.get_x(), band.get_width()) == pytest.approx((48, 4))
    (line,) = (line for line in ax.lines if line.get_linestyle() == "--")
    assert np.asarray(line.get_xdata(), dtype=float).tolist() == pytest.approx([50, 50])


def test_without_the_baseline_or_with_one_seed_of_it_there_is_no_band() -> None:
    alone = accuracy()[accuracy()["method"] == "crt"]
    for baseline in ("crt", "ce"):
        figure = accuracy_by_family(alone, baseline=baseline, title="t")
        assert [patch for ax in figure.axes for patch in ax.patches] == []
        figure.canvas.draw()


def points() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"method": method, "family": family, "accuracy": mean, "ratio": ratio, "memory_mib": memory, "on_front": on}
            for (method, (family, mean)), ratio, memory, on in zip(
                ROWS.items(),
                (1, 1.01, 1.02, 1.1, 3, 2),
                (8, 8, 8, 8, 24, 16),
                (True, False, True, False, True, False),
                strict=True,
            )
        ]
    )


def test_costs_are_a_line_a_method_from_most_to_least_accurate() -> None:
    figure = cost_by_family(points(), baseline="ce", title="t")
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names[:4] == ["Cross-entropy", "loss and sampling", "LDAM", "Focal"]
    time, memory = figure.axes
    drawn = [
        {
            float(np.asarray(line.get_ydata())[0]): float(np.asarray(line.get_xdata())[0])
            for line in ax.lines
            if len(np.atleast_1d(np.asarray(line.get_xdata()))) == 1 and line.get_fillstyle() != "none"
        }
        for ax in (time, memory)
    ]
    assert drawn[0] == pytest.approx({0: 1, 2: 1.02, 3: 1.01, 5: 1.1, 7: 3, 9: 2})
    assert drawn[1] == pytest.approx({0: 8, 2: 8, 3: 8, 5: 8, 7: 24, 9: 16})
    assert [ax.get_xlim()[0] for ax in figure.axes] == [0, 0]
    rings = [float(np.asarray(line.get_ydata())[0]) for line in time.lines if line.get_fillstyle() == "none"]
    assert rings == [0, 2, 7]
    assert not [line for line in memory.lines if line.get_fillstyle() == "none"]


def test_costs_can_be_drawn_without_the_baseline() -> None:
    figure = cost_by_family(points()[1:], baseline="ce", title="t")
    assert not [line for ax in figure.axes for line in ax.lines if line.get_linestyle() == "--"]
    figure.canvas.draw()
