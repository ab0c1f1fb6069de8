"""Figures of what training reached beside what theory predicts."""

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from ltnb import plots


@pytest.fixture(autouse=True)
def _on_paper() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


COUNTS = (124, 16, 2)


def test_bounds_are_lines_at_their_values_below_the_loss() -> None:
    history = pd.DataFrame({"method": "bcl", "seed": 0, "epoch": [1, 2, 3], "contrast": [2.0, 0.5, 0.1]})
    bounds = {"bound": 1.3e-4, "minimum": 1e-4}
    figure = plots.loss_over_bounds(history, "contrast", "contrast", bounds, title="loss")
    (ax,) = figure.axes
    assert ax.get_yscale() == "log"
    curve, *lines = ax.lines
    np.testing.assert_allclose(np.asarray(curve.get_ydata()), [2.0, 0.5, 0.1])
    assert [line.get_ydata()[0] for line in lines] == list(bounds.values())
    assert [text.get_text() for text in ax.texts] == list(bounds)
    assert ax.get_ylim()[0] < 1e-4


def test_a_prediction_stands_in_its_methods_panel_alone() -> None:
    measured = pd.DataFrame(
        [
            {"method": method, "seed": seed, "split": split, "class": k, "class_count": n, "value": 0.1 * k + seed}
            for method in ("supcon", "bcl")
            for seed in (0, 1)
            for split in ("train", "test")
            for k, n in enumerate(COUNTS)
        ]
    )
    predicted = {"bcl": np.array([-0.6, -0.5, -0.4])}
    figure = plots.cosines_beside_optimum(measured, predicted, COUNTS, simplex=-0.5, title="cosines")
    left, right = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["SupCon + LA", "BCL"]
    assert (len(left.lines), len(right.lines)) == (3, 4)
    # The means over the seeds, by class size, from the smallest on.
    np.testing.assert_allclose(np.asarray(left.lines[0].get_ydata()), [0.7, 0.6, 0.5])
    np.testing.assert_allclose(np.asarray(right.lines[2].get_ydata()), predicted["bcl"])
    assert left.get_xlim()[0] > left.get_xlim()[1]
