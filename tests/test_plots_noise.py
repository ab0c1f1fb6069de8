"""Accuracy against the scale, the epoch, the rate of wrong labels and with a long tail."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ltnb import params
from ltnb.plots import accuracy_over_rate, accuracy_over_scale, heat_maps, method_style, over_epochs
from ltnb.plots.theme import ROW_STYLES, STYLES

PRESETS = Path(__file__).parents[1] / "presets"


@pytest.fixture(autouse=True)
def _closes_its_figures() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


def drawn(ax: Axes) -> dict[str, Line2D]:
    """Lines by their name in the key."""
    return {str(line.get_label()): line for line in ax.lines if not str(line.get_label()).startswith("_")}


def y(line: Line2D) -> list[float]:
    return np.asarray(line.get_ydata(), dtype=float).tolist()


def band(ax: Axes, number: int) -> list[float]:
    """Heights of a band, from its lowest to its highest point at every x."""
    points = np.asarray(ax.collections[number].get_paths()[0].vertices)
    return [float(np.ptp(points[points[:, 0] == x, 1])) for x in np.unique(points[:, 0])]


def key_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def scales() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "classifier": classifier,
                "scale": scale,
                "seed": seed,
                "accuracy": base - 0.1 * i + 0.02 * seed,
                "angle": 60.0 + i,
            }
            for dataset in ("low", "high")
            for classifier, base in (("fnpn", 0.8), ("fnpal", 0.9))
            for i, scale in enumerate((0.2, 0.4, 0.8))
            for seed in (0, 1)
        ]
    )


def test_a_line_a_classifier_and_the_scales_of_theory_and_paper() -> None:
    figure = accuracy_over_scale(
        scales().sort_values("scale", ascending=False, kind="stable"),
        {"low": 3.2, "high": 1.6},
        paper={"low": 1.0, "high": 0.5},
        panels={"low": "20 %", "high": "60 %"},
        measures={"accuracy": "test accuracy [%]", "angle": "angle [°]"},
        title="t",
    )
    upper, right, lower, _ = figure.axes
    assert [upper.get_title(), right.get_title(), lower.get_title()] == ["20 %", "60 %", ""]
    assert [upper.get_ylabel(), lower.get_ylabel(), lower.get_xlabel()] == ["test accuracy [%]", "angle [°]", "scale s"]
    assert y(drawn(upper)["FNPAL"]) == pytest.approx([91, 81, 71])
    assert band(upper, 0) == pytest.approx([2 * 100 * 0.02 / np.sqrt(2)] * 3)
    assert y(drawn(lower)["FNPN"]) == pytest.approx([60, 61, 62])
    assert drawn(upper)["FNPN"].get_color() == method_style("fnpn").colour
    for ax, tolerant, paper in ((upper, 3.2, 1.0), (right, 1.6, 0.5), (lower, 3.2, 1.0)):
        at = {str(line.get_linestyle()): np.asarray(line.get_xdata())[0] for line in ax.lines}
        assert at[":"] == tolerant
        assert at["--"] == paper
        assert ax.get_xscale() == "log"
    assert key_of(figure) == ["FNPN", "FNPAL", "s*, the largest tolerant scale", "the paper's s"]


def history(clean: str = "") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "dataset": dataset,
                "method": method,
                "scale": scale,
                "seed": seed,
                "epoch": epoch,
                "test_accuracy": np.nan if epoch == 1 else 0.1 * epoch + 0.1 * seed,
                "memorised": np.nan if epoch == 1 or dataset == clean else scale * epoch / 10,
            }
            for dataset in ("low", "high")
            for method, scale in (("fnpal", 0.8), ("ce", 0.2), ("gce-fnpal", 0.4))
            for seed in (0, 1)
            for epoch in (1, 2, 3)
        ]
    )


def test_a_line_a_scale_from_light_to_dark() -> None:
    figure = over_epochs(history(), {"low": "20 %", "high": "60 %"}, lines="scale", title="t")
    upper, _, lower, _ = figure.axes
    assert key_of(figure) == ["s = 0.2", "s = 0.4", "s = 0.8"]
    lightness = [sum(to_rgb(str(line.get_color()))) for line in drawn(upper).values()]
    assert lightness == sorted(lightness, reverse=True)
    assert len(set(lightness)) == 3
    line = drawn(upper)["s = 0.4"]
    assert np.asarray(line.get_xdata()).tolist() == [2, 3]  # only what was watched
    assert y(line) == pytest.approx([25, 35])
    assert band(upper, 0) == pytest.approx([200 * np.std([0, 0.1], ddof=1)] * 2)
    assert y(drawn(lower)["s = 0.4"]) == pytest.approx([8, 12])


def test_a_line_a_method_in_its_style() -> None:
    figure = over_epochs(history(), {"low": "20 %"}, lines="method", title="t")
    for line, method in zip(drawn(figure.axes[0]).values(), ("fnpal", "ce", "gce-fnpal"), strict=True):
        style = method_style(method)
        assert (line.get_label(), line.get_color(), line.get_linestyle()) == (style.label, style.colour, style.stroke)
    assert len(figure.axes) == 2


def test_clean_labels_are_not_memorised() -> None:
    figure = over_epochs(history(clean="low"), {"low": "0 %", "high": "60 %"}, lines="method", title="t")
    assert [ax.get_visible() for ax in figure.axes] == [True, True, False, True]
    figure.canvas.draw()


def test_a_loss_and_its_variant_share_a_colour_over_the_rate() -> None:
    frame = pd.DataFrame(
        [
            {"method": method, "noise_rate": rate, "seed": seed, "accuracy": base - rate / 2 + 0.1 * seed}
            for method, base in (("gce", 0.5), ("gce-fnpal", 0.7), ("nce-rce", 0.6))
            for rate in (0.4, 0.2)
            for seed in (0, 1)
        ]
    )
    figure = accuracy_over_rate(frame, title="t")
    (ax,) = figure.axes
    lines = drawn(ax)
    assert key_of(figure) == ["GCE", "GCE, FNPAL", "NCE+RCE"]
    assert lines["GCE"].get_color() == lines["GCE, FNPAL"].get_color() != lines["NCE+RCE"].get_color()
    assert [line.get_linestyle() for line in lines.values()] == ["-", "--", "-"]
    assert y(lines["GCE"]) == pytest.approx([45, 35])
    np.testing.assert_allclose(np.asarray(lines["GCE"].get_xdata()), [20, 40], atol=1.3)  # beside each other
    (whiskers,) = ax.containers[0].lines[2]
    heights = [float(np.ptp(np.asarray(segment)[:, 1])) for segment in whiskers.get_segments()]
    assert heights == pytest.approx([20 / np.sqrt(2)] * 2)
    assert ax.get_xticks().tolist() == pytest.approx([20, 40])


def grid(seeds: tuple[int, ...] = (0, 1)) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "method": m,
                "imbalance": f,
                "noise_rate": r,
                "seed": s,
                "accuracy": 0.9 - f / 100 - r / 2 + 0.01 * s - low,
            }
            for m, low in (("ce", 0.1), ("bcl", 0.0))
            for f in (50.0, 1.0)
            for r in (0.2, 0.0, 0.4)
            for s in seeds
        ]
    )


def test_a_heat_map_a_method_with_its_numbers() -> None:
    figure = heat_maps(grid(), title="t")
    first, second, *_ = figure.axes
    assert [first.get_title(), second.get_title()] == ["Cross-entropy", "BCL"]
    np.testing.assert_allclose(
        np.asarray(second.images[0].get_array()), [[89.5, 79.5, 69.5], [40.5, 30.5, 20.5]], rtol=1e-9
    )
    assert [text.get_text() for text in second.texts[:4]] == ["89.5", "± 0.7", "79.5", "± 0.7"]
    assert [label.get_text() for label in second.get_xticklabels()] == ["0", "20", "40"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["1", "50"]
    limits = {(image.norm.vmin, image.norm.vmax) for ax in (first, second) for image in ax.images}
    assert limits == {(10, 90)}  # one scale: 10.5 of cross-entropy is the least


def test_cells_without_runs_are_empty_and_one_seed_has_no_spread() -> None:
    frame = grid(seeds=(0,))
    some = frame[~((frame["method"] == "bcl") & (frame["imbalance"] == 50) & (frame["noise_rate"] == 0.4))]
    second = heat_maps(some, title="t").axes[1]
    assert [text.get_text() for text in second.texts] == ["89.0", "79.0", "69.0", "40.0", "30.0"]


def test_all_cells_alike_still_have_a_colour_scale() -> None:
    figure = heat_maps(grid(seeds=(0,)).assign(accuracy=1.0), title="t")
    figure.canvas.draw()
    norm = figure.axes[0].images[0].norm
    assert (norm.vmin, norm.vmax) == (90, 100)


@pytest.mark.parametrize("name", ["symmetric", "asymmetric", "scale", "imbalance"])
def test_rows_of_a_preset_are_named_and_stand_apart(name: str) -> None:
    """A loss, with FNPAL and at another learning rate, has one colour, and strokes and markers that differ."""
    rows = list(params.load(PRESETS / f"digits-noise-{name}.yaml").methods)
    assert [row for row in rows if row not in STYLES | ROW_STYLES] == []
    styles = {row: method_style(row) for row in rows}
    assert len({style.label for style in styles.values()}) == len(rows)
    assert len({(style.colour.lower(), style.stroke) for style in styles.values()}) == len(rows)
    for row, style in styles.items():
        of_colour = {other for other in rows if styles[other].colour.lower() == style.colour.lower()}
        plain = row.removesuffix("-slow").removesuffix("-fnpal")
        assert of_colour <= {plain, f"{plain}-fnpal", f"{plain}-slow"}
        assert len({styles[other].marker for other in of_colour}) == len(of_colour)
    assert to_hex(method_style("fnpal").colour) == "#882255"


def test_a_scale_in_a_key_is_in_its_name() -> None:
    assert method_style("fnpn-s0_2").label == "FNPN, s = 0.2"
    assert method_style("fnpal-s12_8").label == "FNPAL, s = 12.8"
    assert method_style("fnpal-s12_8").marker == method_style("fnpal").marker
