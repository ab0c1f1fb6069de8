import json
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from dvc_render.vega import VegaRenderer
from matplotlib.figure import Figure

from ltnb import plots
from ltnb.geometry import regular_simplex
from ltnb.plots import theme
from ltnb.plots.theme import STYLES

COUNTS = (124, 40, 16, 5, 1)
NAMES = ("zero", "one", "two", "three", "four")
TEMPLATES = Path(__file__).parents[1] / ".dvc" / "plots"


@pytest.fixture(autouse=True)
def _leaves_matplotlib_alone() -> Iterator[None]:
    """No function but `set_theme` may change the settings."""
    mpl.use("agg")
    with mpl.rc_context():
        before = dict(mpl.rcParams)
        yield
        assert dict(mpl.rcParams) == before
    plt.close("all")


def blobs(
    dim: int = 8, counts: tuple[int, ...] = COUNTS, noise: float = 0.1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Vertices of a regular simplex, and samples around them."""
    generator = torch.Generator().manual_seed(0)
    vertices = regular_simplex(len(counts), dim, generator=generator)
    labels = torch.arange(len(counts)).repeat_interleave(6)
    spread = noise * torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return vertices, vertices[labels] + spread, labels


def view(counts: tuple[int, ...] = COUNTS, seed: int = 0) -> plots.SphereView:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(counts)).repeat_interleave(6)
    return plots.sphere_view(torch.randn(len(labels), 8, generator=generator), labels, counts)


def accuracies() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"method": method, "seed": seed, "group": group, "accuracy": base + 0.1 * seed}
            for method, base in (("ce", 0.2), ("bcl", 0.6))
            for seed in (0, 1, 2)
            for group in ("few", "all", "many")
        ]
    )


# The theme


def test_known_methods_have_colours_and_markers_of_their_own() -> None:
    assert len({style.colour for style in STYLES.values()}) == len(STYLES)
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)


def test_an_ablation_has_one_colour_whoever_stands_beside_it() -> None:
    alone = plots.method_style("bcl-no-complement")
    assert alone.label == "bcl-no-complement"
    assert plots.method_palette(["ce", "bcl-no-complement", "x"])["bcl-no-complement"] == alone.colour
    keys = [f"bcl-{name}" for name in ("no-complement", "l2", "l3", "tau-05", "linear")]
    assert len(set(plots.method_palette(keys).values())) == len(keys)


def test_class_colours_go_by_rank_in_size() -> None:
    colours = plots.class_colours([3, 100, 3, 20])
    assert len(set(colours)) == 4  # equal classes too
    assert plots.class_colours([100, 20, 3, 3]) == [colours[1], colours[3], colours[0], colours[2]]
    assert plots.class_colours([7]) == plots.class_colours([100, 1])[:1]


def test_set_theme_sets_the_theme() -> None:
    before = dict(mpl.rcParams)
    plots.set_theme()
    assert mpl.rcParams["legend.frameon"] is False
    mpl.rcParams.update(before)


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_equal_figures_give_equal_files(tmp_path: Path, ending: str) -> None:
    for name in ("a", "b"):
        figure = plots.accuracy_by_group(accuracies(), title="t")
        plots.save(figure, tmp_path / "new" / f"{name}{ending}")
    first, second = ((tmp_path / "new" / f"{name}{ending}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert b"atplotlib version" not in first
    assert b"dc:date" not in first


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.png or \.svg, got 'a\.jpg'"):
        plots.save(plt.figure(), tmp_path / "a.jpg")


def test_what_is_shown_is_the_file_and_the_figure_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []
    monkeypatch.setattr(theme, "display", shown.append)
    plots.show(plots.accuracy_by_group(accuracies(), title="t"), tmp_path / "a.png")
    assert shown[0].data == (tmp_path / "a.png").read_bytes()
    assert shown[0].width == 900
    assert not plt.get_fignums()


# The sphere


@pytest.mark.parametrize(("num_classes", "kept"), [(2, 1), (3, 1), (4, 1), (5, 3 / 4), (9, 3 / 8)])
def test_share_of_a_regular_simplex_that_three_dimensions_keep(num_classes: int, kept: float) -> None:
    counts = tuple(range(num_classes, 0, -1))
    _, samples, labels = blobs(counts=counts, noise=0)
    shown = plots.sphere_view(samples, labels, counts)
    assert shown.kept == pytest.approx(kept)
    np.testing.assert_allclose(np.linalg.norm(shown.means, axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(shown.samples, axis=1), 1)


def test_three_dimensions_keep_every_angle_of_four_classes() -> None:
    _, samples, labels = blobs(counts=COUNTS[:4], noise=0)
    means = plots.sphere_view(samples, labels, COUNTS[:4]).means
    np.testing.assert_allclose(means @ means.T, np.eye(4) * 4 / 3 - 1 / 3, atol=1e-12)


def test_the_largest_classes_decide_the_orientation() -> None:
    means = view((5, 124, 1, 16, 40)).means
    np.testing.assert_allclose(means[1], [0, 0, 1], atol=1e-12)  # the largest on top
    assert means[4, 0] > 0  # the second in front,
    assert means[4, 1] == pytest.approx(0, abs=1e-12)
    assert means[3, 1] > 0  # the third to the right


def test_a_turn_of_the_features_changes_nothing() -> None:
    _, samples, labels = blobs()
    samples = samples + 0.2 * torch.arange(8)  # off the origin, no symmetry
    orthogonal = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    one, two = (plots.sphere_view(x, labels, COUNTS) for x in (samples, samples @ orthogonal))
    np.testing.assert_allclose(one.means, two.means, atol=1e-9)
    np.testing.assert_allclose(one.samples, two.samples, atol=1e-9)


@pytest.mark.parametrize("mirrored", [1, -1])
def test_aligned_undoes_a_turn_about_the_axis(mirrored: int) -> None:
    first = view()
    cos, sin = np.cos(2.0), np.sin(2.0)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]) @ np.diag([1, mirrored, 1])
    turned = first._replace(means=first.means @ turn, samples=first.samples @ turn)
    back = plots.aligned({"ce": first, "bcl": turned})
    np.testing.assert_allclose(back["bcl"].means, first.means, atol=1e-12)
    np.testing.assert_allclose(back["bcl"].samples, first.samples, atol=1e-12)
    np.testing.assert_allclose(back["ce"].means, first.means, atol=1e-12)


def test_aligned_keeps_the_heights_and_angles() -> None:
    views = {"ce": view(), "bcl": view(seed=1)}
    means = plots.aligned(views)["bcl"].means
    np.testing.assert_allclose(means[:, 2], views["bcl"].means[:, 2])
    np.testing.assert_allclose(means @ means.T, views["bcl"].means @ views["bcl"].means.T, atol=1e-12)


def test_on_the_map_the_distance_from_the_middle_is_the_angle_to_the_largest_class() -> None:
    shown = view()
    figure = plots.sphere_and_map(shown, NAMES, title="t")
    at = {text.get_text(): np.array(text.get_position()) for text in figure.axes[1].texts}
    for name, mean in zip(NAMES, shown.means, strict=True):
        angle = np.arccos(np.clip(mean @ shown.means[0], -1, 1))
        assert np.linalg.norm(at[name]) == pytest.approx(2 * np.sin(angle / 2))


def test_spheres_stand_side_by_side_with_a_key() -> None:
    figure = plots.spheres({"ce": view(), "bcl": view(seed=1)}, NAMES, title="t")
    assert [ax.get_title().split("\n")[0] for ax in figure.axes[::1] if ax.get_title()] == ["Cross-entropy", "BCL"]
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == [f"{n}: {c}" for n, c in zip(NAMES, COUNTS, strict=True)]


def test_many_classes_are_drawn_without_names() -> None:
    counts = tuple(range(60, 0, -1))
    figure = plots.sphere_and_map(view(counts), [f"class {k}" for k in range(60)], title="t")
    assert not figure.axes[0].texts
    assert len(figure.legends[0].get_texts()) == 10
    assert figure.legends[0].get_texts()[-1].get_text() == "class 59: 1"


# Matrices


def test_angle_maps_are_ordered_by_class_size() -> None:
    angles = np.array([[0.0, 10, 20], [10, 0, 30], [20, 30, 0]])
    figure = plots.angle_maps({"a": angles, "b": angles, "c": angles}, [5, 100, 20], ["x", "y", "z"], title="t")
    shown = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in shown] == ["a", "b", "c"]
    image = shown[0].images[0].get_array().filled(np.nan)
    np.testing.assert_array_equal(image, [[np.nan, 30, 10], [30, np.nan, 20], [10, 20, np.nan]])
    assert [label.get_text() for label in shown[0].get_yticklabels()] == ["y (100)", "z (20)", "x (5)"]
    norm = shown[0].images[0].norm
    assert norm(120) == pytest.approx(0.5)  # three classes: white at 120°


def test_what_stands_above_a_single_matrix_is_as_wide_as_that() -> None:
    title = "Angles between class means, test features, mean of 3 seeds"
    for panels, lines in (({"a": np.eye(2)}, 2), ({"a": np.eye(2), "b": np.eye(2)}, 1)):
        figure = plots.angle_maps(panels, [2, 1], ["x", "y"], title=title)
        assert figure.get_suptitle().count("\n") == lines - 1
        figure.draw_without_rendering()
        for text in figure.texts:
            assert text.get_window_extent().x0 >= 0
    plt.close("all")


def test_confusion_maps_show_shares_of_the_true_class() -> None:
    figure = plots.confusion_maps({"a": np.array([[3, 1], [0, 2]])}, [10, 5], ["x", "y"], title="t")
    (ax,) = (ax for ax in figure.axes if ax.images)
    np.testing.assert_array_equal(ax.images[0].get_array(), [[75, 25], [0, 100]])
    assert [text.get_text() for text in ax.texts] == ["75", "25", "0", "100"]


def test_transition_maps_show_probabilities_in_per_cent() -> None:
    matrix = np.array([[0.75, 0.25], [0.0, 1.0]])
    figure = plots.transition_maps({"wanted": matrix, "realised": matrix.T}, [5, 10], ["x", "y"], title="t")
    wanted, realised = (ax for ax in figure.axes if ax.images)
    np.testing.assert_array_equal(wanted.images[0].get_array(), [[100, 0], [25, 75]])  # the larger class first
    np.testing.assert_array_equal(realised.images[0].get_array(), [[100, 25], [0, 75]])
    assert [text.get_text() for text in wanted.texts] == ["100", "0", "25", "75"]
    assert figure.get_supxlabel().startswith("given label")
    assert figure.get_supylabel().startswith("true class")


# Curves


def test_training_curves_are_means_over_seeds_where_there_are_values() -> None:
    history = pd.DataFrame(
        {
            "method": "ce",
            "seed": [0, 0, 1, 1],
            "epoch": [1, 2, 1, 2],
            "accuracy": [np.nan, 0.4, np.nan, 0.6],
            "loss": [4.0, 2, 2, 1],
        }
    )
    figure = plots.training_curves(history, {"accuracy": "accuracy [%]", "loss": "loss"}, title="t")
    accuracy, loss = figure.axes
    np.testing.assert_allclose(accuracy.lines[0].get_xydata(), [[2, 50]])
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[1, 3], [2, 1.5]])
    assert accuracy.lines[0].get_color() == STYLES["ce"].colour
    assert accuracy.lines[0].get_marker() == STYLES["ce"].marker  # of a single point no line is to be seen
    assert loss.lines[0].get_marker() in ("", "None")
    assert (accuracy.get_xlabel(), accuracy.get_ylabel()) == ("epoch", "accuracy [%]")


def test_by_class_size_draws_test_solid_and_training_dashed() -> None:
    frame = pd.DataFrame(
        [
            {"method": "bcl", "seed": s, "split": split, "measure": "m", "class": k, "class_count": n, "value": n + s}
            for s in (0, 2)
            for split in ("train", "test")
            for k, n in enumerate((100, 10, 1))
        ]
        + [{"method": "bcl", "seed": 0, "split": "test", "measure": "m", "class": None, "value": 37.0}]
    )
    figure = plots.by_class_size(frame, {"m": "length [m]"}, title="t", simplex={"m": 5})
    (ax,) = figure.axes
    dashed, solid, reference = ax.lines
    assert (dashed.get_linestyle(), solid.get_linestyle(), reference.get_linestyle()) == ("--", "-", ":")
    np.testing.assert_allclose(solid.get_xydata(), [[1, 2], [10, 11], [100, 101]])
    assert ax.get_xscale() == "log"
    assert ax.xaxis_inverted()  # the head on the left
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["BCL", "test images", "training images", "regular simplex"]


@pytest.mark.parametrize(("classes", "points"), [(20, 20), (22, 2)])
def test_of_many_classes_those_of_one_size_are_averaged(classes: int, points: int) -> None:
    frame = pd.DataFrame(
        [
            {"method": "ce", "seed": s, "split": "test", "measure": "m", "class": k, "class_count": n, "value": k + s}
            for s in (0, 2)
            for k in range(classes)
            for n in (30 if k < classes // 2 else 3,)
        ]
    )
    (ax,) = plots.by_class_size(frame, {"m": "length"}, title="t").axes
    drawn = ax.lines[0].get_xydata()
    assert len(drawn) == points
    assert ax.lines[0].get_marker() == STYLES["ce"].marker
    if points == 2:
        np.testing.assert_allclose(drawn, [[3, 17], [30, 6]])  # means of 11 … 21 and 0 … 10, and of the seeds


def test_bars_stand_in_the_order_of_size_and_count_in_per_cent() -> None:
    figure = plots.accuracy_by_group(accuracies(), title="t")
    (ax,) = figure.axes
    assert [label.get_text().split("\n")[0] for label in ax.get_xticklabels()] == ["All", "Many", "Few"]
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, [30] * 3 + [70] * 3)


def test_one_seed_has_no_whisker_but_a_bar() -> None:
    alone = accuracies().query("seed == 0")
    (ax,) = plots.accuracy_by_group(alone, title="t").axes
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [20] * 3 + [60] * 3)


def test_difference_intervals_are_drawn_where_they_lie() -> None:
    differences = pd.DataFrame(
        {"method": ["bcl"], "baseline": "ce", "group": "few", "difference": 0.1, "low": -0.05, "high": 0.25, "n": 3}
    )
    figure = plots.difference_intervals(differences, title="t")
    zero, interval, centre = figure.axes[0].lines
    np.testing.assert_allclose(zero.get_xdata(), [0, 0])
    np.testing.assert_allclose(interval.get_xdata(), [-5, 25])
    np.testing.assert_allclose(centre.get_xdata(), [10])
    assert "Cross-entropy [percentage points]" in figure.get_supxlabel()


@pytest.mark.parametrize("number", [1, 6, 12])
def test_many_methods_keep_within_a_page_and_clear_of_each_other(number: int) -> None:
    methods = [f"method-{i}" for i in range(number)]
    accuracy = pd.concat(accuracies().query("method == 'bcl'").assign(method=method) for method in methods)
    curve = accuracy.assign(split="test", measure="m", class_count=3, value=1.0).assign(**{"class": 0})
    views = dict.fromkeys(methods, view())
    balls = plots.spheres(views, NAMES, title="t")
    assert len(balls.axes) == 2 * number
    for figure in (
        balls,
        plots.headline(views, accuracy, NAMES, dict.fromkeys(methods, "note"), title="t"),
        plots.accuracy_by_group(accuracy, title="t"),
        plots.by_class_size(curve, {"m": "length"}, title="t"),
    ):
        assert figure.get_figwidth() <= 14
        figure.draw_without_rendering()
        whole = figure.bbox.padded(1)
        keys = [*figure.legends, *(key for part in figure.subfigs for key in part.legends)]
        for key in keys:
            box = key.get_window_extent()
            assert whole.x0 <= box.x0
            assert box.x1 <= whole.x1
        boxes = [ax.get_window_extent() for ax in figure.axes]
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_headline_shows_every_method_twice() -> None:
    views = {"ce": view(), "bcl": view(seed=1)}
    figure = plots.headline(views, accuracies(), NAMES, {"ce": "note A", "bcl": "note B"}, title="t")
    texts = [text.get_text() for ax in figure.axes for text in ax.texts]
    assert {"note A", "note B"} <= set(texts)
    bars = [ax for ax in figure.axes if ax.get_ylabel() == "test accuracy [%]"]
    assert len(bars) == 1
    assert len(figure.axes) == 3


def test_figures_are_new_and_the_current_one_is_left_alone() -> None:
    mine = plt.figure()
    made = [
        plots.accuracy_by_group(accuracies(), title="t"),
        plots.sphere_and_map(view(), NAMES, title="t"),
        plots.angle_maps({"a": np.zeros((5, 5))}, COUNTS, NAMES, title="t"),
    ]
    assert not mine.axes
    assert all(isinstance(figure, Figure) and figure is not mine for figure in made)
    for figure in made:
        figure.canvas.draw()  # the layout of what is outside the axes warns only when it is drawn


# DVC's templates


@pytest.mark.parametrize(
    ("template", "x", "y", "fields"),
    [
        ("training", "epoch", "accuracy", ("method", "colour")),
        ("class_size", "class_count", "accuracy", ("method", "colour")),
        ("groups", "group", "accuracy", ("method", "colour")),
        ("confusion_by_method", "actual", "predicted", ("method",)),
    ],
)
def test_dvc_fills_every_anchor_of_the_templates(template: str, x: str, y: str, fields: tuple[str, ...]) -> None:
    row = {x: "1", y: "1", "rev": "workspace", **dict.fromkeys(fields, "#000000")}
    renderer = VegaRenderer(
        [row], "name", template=template, template_dir=str(TEMPLATES), x=x, y=y, x_label="X", y_label="Y", title="T"
    )
    text = json.dumps(renderer.get_filled_template())
    assert "DVC_METRIC" not in text
    assert json.loads(text)["data"]["values"] == [row]
    assert all(f'"field": "{field}"' in text for field in fields)


def test_every_template_is_tested() -> None:
    assert {file.stem for file in TEMPLATES.glob("*.json")} == {
        "training",
        "class_size",
        "groups",
        "confusion_by_method",
    }
