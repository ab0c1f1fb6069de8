"""Many methods at a glance: by family with their intervals, and against what they cost, with names that can be read."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from ltnb.plots import accuracy_by_family, accuracy_over_time, method_style, save
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


def points(number: int = 0) -> pd.DataFrame:
    """The rows above, and further ones in a heap, as losses that cost no time are."""
    generator = np.random.default_rng(0)
    lines = [
        {"method": method, "family": family, "accuracy": mean, "ratio": ratio, "memory_mib": memory, "on_front": front}
        for (method, (family, mean)), ratio, memory, front in zip(
            ROWS.items(),
            (1, 1.01, 1.02, 1.1, 3, 2),
            (8, 8, 8, 8, 24, 16),
            (True, False, True, False, True, False),
            strict=True,
        )
    ]
    heap = [
        {
            "method": f"a-further-loss-{i}",
            "family": "further rows",
            "accuracy": 0.7 + 0.1 * float(generator.random()),
            "ratio": 1 + 0.06 * float(generator.random()),
            "memory_mib": 8,
            "on_front": False,
        }
        for i in range(number)
    ]
    return pd.DataFrame([*lines, *heap])


def markers(ax: Axes) -> dict[tuple[float, float], PathCollection]:
    drawn = (item for item in ax.collections if isinstance(item, PathCollection))
    return {tuple(np.round(np.asarray(item.get_offsets())[0], 6)): item for item in drawn}


def test_a_point_a_method_the_larger_the_more_memory() -> None:
    (ax,) = accuracy_over_time(points(), title="t").axes
    drawn = markers(ax)
    assert set(drawn) == {(1, 70), (1.01, 69), (1.02, 80), (1.1, 75), (3, 84), (2, 60)}
    areas = {place: float(item.get_sizes()[0]) for place, item in drawn.items()}
    assert areas[3, 84] == pytest.approx(3 * areas[1, 70])
    assert areas[2, 60] == pytest.approx(2 * areas[1, 70])
    assert to_hex(drawn[3, 84].get_facecolor()[0]) == method_style("bcl").colour.lower()
    assert ax.get_xscale() == "log"
    ticks = ax.get_xticks()
    assert 1 in ticks
    assert 3 in ticks
    (front,) = (line for line in ax.lines if line.get_drawstyle() == "steps-post")
    np.testing.assert_allclose(np.asarray(front.get_xydata()), [[1, 70], [1.02, 80], [3, 84]])


def names(figure: Figure) -> dict[str, Bbox]:
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    texts = (text for text in figure.axes[0].texts if isinstance(text, Annotation))
    return {text.get_text(): Bbox(text.get_tightbbox(renderer)) for text in texts}


@pytest.mark.parametrize("number", [0, 14])
def test_names_cover_neither_each_other_nor_points_and_stay_inside(number: int) -> None:
    table = points(number)
    figure = accuracy_over_time(table, title="t")
    boxes = names(figure)
    assert set(boxes) == {method_style(method).label for method in table["method"]}
    ax = figure.axes[0]
    centres = ax.transData.transform(np.column_stack([table["ratio"], 100 * table["accuracy"]]))
    frame = ax.get_window_extent()
    for (first, one), (second, other) in itertools.combinations(boxes.items(), 2):
        common = Bbox.intersection(one, other)
        assert common is None or min(common.width, common.height) < 3, f"{first} lies on {second}"  # the halo may
    for name, box in boxes.items():
        assert not any(box.contains(*centre) for centre in centres), f"{name} covers a point"
        assert frame.x0 <= box.x0 + 3
        assert box.x1 <= frame.x1 + 3


def test_a_name_far_from_its_point_is_tied_to_it() -> None:
    figure = accuracy_over_time(points(14), title="t")
    ax = figure.axes[0]
    ties = [np.asarray(line.get_xydata()) for line in ax.lines if line.get_label() == "_line"]
    assert ties
    starts = {tuple(np.round(tie[0], 6)) for tie in ties}
    assert starts <= set(markers(ax))


def test_names_stay_where_they_are_at_another_resolution(tmp_path: Path) -> None:
    figure = accuracy_over_time(points(), title="t")
    before = names(figure)
    save(figure, tmp_path / "cost.png")
    figure.set_dpi(150)
    ratio = 150 / 100 if mpl.rcParams["figure.dpi"] == 100 else 150 / mpl.rcParams["figure.dpi"]
    for name, box in names(figure).items():
        np.testing.assert_allclose(box.get_points()[0], before[name].get_points()[0] * ratio, atol=4)


def test_the_key_says_families_and_sizes() -> None:
    figure = accuracy_over_time(points(), title="t")
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said[:3] == ["Parity", "Loss and sampling", "Classifier afterwards"]
    assert said[3:] == ["6 MiB", "20 MiB", "no other is faster and better"]
