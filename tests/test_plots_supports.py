"""Figures of FeatRecon's supports: the map keeps angles, the others show what they are given."""

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from ltnb import geometry, plots


@pytest.fixture(autouse=True)
def _on_paper() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


CENTRE, HEAD = np.eye(8)[0], np.array([0.5, np.sqrt(0.75), 0, 0, 0, 0, 0, 0])


def drawn(radius: float, number: int = 50) -> np.ndarray:
    centres = torch.from_numpy(np.tile(CENTRE, (number, 1)))
    generator = torch.Generator().manual_seed(0)
    return geometry.uniform_in_cap(centres, torch.full((number,), np.radians(radius)), generator).numpy()


def example() -> plots.SupportMap:
    points = {"synthetic": drawn(30), "tail": drawn(60), "head": HEAD[None]}
    return plots.support_map(CENTRE, HEAD, points, {"tail": (CENTRE, 30.0), "head": (HEAD, 20.0)})


def test_the_map_keeps_angles_to_the_middle() -> None:
    content = example()
    for name, rows in (("synthetic", drawn(30)), ("tail", drawn(60))):
        np.testing.assert_allclose(
            np.linalg.norm(content.points[name], axis=1), np.degrees(np.arccos(rows @ CENTRE)), atol=1e-9
        )
    np.testing.assert_allclose(content.points["head"], [[60, 0]], atol=1e-6)


def test_rims_are_those_of_the_caps() -> None:
    rims = example().rims
    np.testing.assert_allclose(np.linalg.norm(rims["tail"], axis=1), 30)
    # On the axis through both centres the head's cap reaches from 40° to 80°.
    on_axis = rims["head"][np.abs(rims["head"][:, 1]) < 1]
    np.testing.assert_allclose([on_axis[:, 0].min(), on_axis[:, 0].max()], [40, 80], atol=0.1)


def test_maps_draw_what_there_is() -> None:
    first = example()
    without = first._replace(points={name: p for name, p in first.points.items() if name != "synthetic"})
    figure = plots.support_maps({"epoch 15": without, "epoch 30": first}, title="supports")
    assert [ax.get_title() for ax in figure.axes] == ["epoch 15", "epoch 30"]
    assert [len(ax.collections) for ax in figure.axes] == [2, 3]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(labels) == ["head, training images", "tail, synthetic features", "tail, training images"]


def test_radii_are_means_over_seeds_with_the_cap_across() -> None:
    radii = pd.DataFrame(
        [
            {"method": "bcl", "seed": seed, "class": k, "class_count": n, "support": name, "radius": 10 * k + 2 * seed}
            for seed in (0, 1)
            for k, n in enumerate((100, 10, 1))
            for name in ("estimated", "rectified", "needed")
        ]
    )
    (ax,) = plots.support_radii(radii, 48.2, title="radii").axes
    *lines, cap = ax.lines
    assert len(lines) == 3
    np.testing.assert_allclose(np.asarray(lines[0].get_ydata()), [21, 11, 1])
    assert list(np.asarray(cap.get_ydata())) == [48.2, 48.2]


def test_overlap_goes_from_estimated_to_rectified() -> None:
    overlaps = pd.DataFrame(
        [
            {
                "method": "bcl",
                "seed": seed,
                "centres": centres,
                "split": split,
                "error": e + seed / 10,
                "tail_overlap": 5.0,
            }
            for seed in (0, 1)
            for centres, e in (("estimated", 0.2), ("rectified", 0.4))
            for split in ("train", "test")
        ]
    )
    left, right = plots.overlap_changes(overlaps, title="overlap").axes
    np.testing.assert_allclose(np.asarray(left.lines[0].get_xdata()), [25, 45])
    np.testing.assert_allclose(np.asarray(right.lines[0].get_xdata()), [5, 5])
    assert [label.get_text() for label in left.get_yticklabels()] == ["BCL, training images", "BCL, test images"]


def test_boxes_stand_by_class_and_kind() -> None:
    kinds = ("training images", "synthetic features", "test images")
    angles = pd.DataFrame(
        [
            {"class": name, "features": kind, "angle": 10.0 * i + a}
            for name in ("7 (3)", "8 (2)")
            for i, kind in enumerate(kinds)
            for a in (1, 2, 3)
        ]
    )
    figure = plots.angles_to_centre(angles, 48.2, title="angles")
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["7 (3)", "8 (2)"]
    assert len(ax.patches) == 6
    assert [text.get_text() for text in figure.legends[0].get_texts()][:3] == list(kinds)


def test_temperatures_have_a_line_a_method() -> None:
    (ax,) = plots.class_temperatures((100, 10, 1), {"bcl": [0.1] * 3, "featrecon": [0.2, 0.12, 0.1]}, title="t").axes
    np.testing.assert_allclose(np.asarray(ax.lines[1].get_ydata()), [0.2, 0.12, 0.1])
