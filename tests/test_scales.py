"""The scale of normalised features, swept: what is best, and where theory's limit lies."""

import math
from pathlib import Path

import pandas as pd
import pytest

from ltnb import noisy_labels, params, scales
from ltnb.ablations import Interval
from ltnb.claims import Evidence
from ltnb.grids import Grid
from ltnb.theory import anchored_prototypes as pal

SWEEP = """\
datasets:
  few: {source: digits, imbalance: 1, largest: 10, noise: symmetric, noise_rate: 0.2}
  most: {source: digits, imbalance: 1, largest: 10, noise: symmetric, noise_rate: 0.8}
methods:
  fnpal-s10: {system: fnpal, classifier_scale: 10}
  fnpal-s0_5: {system: fnpal, classifier_scale: 0.5}
  fnpal-s2: {system: fnpal, classifier_scale: 2}
  fnpal-slow: {system: fnpal, classifier_scale: 7}
  fnpn-s2: {system: fnpal, classifier: cosine, classifier_scale: 2}
seeds: [0, 1]
training: {encoder: resnet8, epochs: 2, warmup_epochs: 0, batch_size: 32, learning_rate: 0.1, weight_decay: 1e-3}
"""


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    preset = params.load(tmp_path / "sweep.yaml")
    accuracy = {"fnpal-s10": 0.5, "fnpal-s0_5": 0.7, "fnpal-s2": 0.8, "fnpn-s2": 0.6}
    rows = []
    for dataset in preset.datasets:
        for row, value in accuracy.items():
            for seed in preset.seeds:
                at = value - (0.4 if dataset == "most" and row == "fnpal-s2" else 0) + 0.01 * seed
                rows.append((dataset, row, seed, "accuracy", at))
                rows.append((dataset, row, seed, "risk_clean_train", 1.0 + seed))
                if row.startswith("fnpal"):
                    rows.append((dataset, row, seed, "risk_excess", 0.3 + 0.1 * seed))
    return Grid(preset, pd.DataFrame(rows, columns=["dataset", "method", "seed", "measure", "value"]), pd.DataFrame())


def test_rates_and_rows_in_the_order_of_their_scale(grid: Grid) -> None:
    assert scales.noise_rates(grid) == {"few": 0.2, "most": 0.8}
    assert scales.by_scale(grid, "fnpal") == {0.5: "fnpal-s0_5", 2: "fnpal-s2", 10: "fnpal-s10"}
    assert scales.by_scale(grid, "fnpn") == {2: "fnpn-s2"}


def test_a_rate_for_every_class_is_refused(grid: Grid) -> None:
    settings = grid.preset.datasets["few"].model_copy(update={"noise_rate": [0.1] * 10})
    by_class = grid.preset.model_copy(update={"datasets": {"few": settings}})
    with pytest.raises(ValueError, match="noise_rate of few"):
        scales.noise_rates(Grid(by_class, grid.measured, grid.history))


def test_a_sweep_has_a_line_a_run(grid: Grid) -> None:
    frame = scales.swept(grid, ["accuracy", "risk_excess"])
    assert len(frame) == 2 * 4 * 2
    line = frame.query("dataset == 'few' and classifier == 'fnpal' and scale == 10 and seed == 1")
    assert line[["accuracy", "risk_excess"]].iloc[0].tolist() == pytest.approx([0.51, 0.4])
    assert frame.query("classifier == 'fnpn'")["risk_excess"].isna().all()


def test_the_best_scale_is_that_of_the_largest_mean(grid: Grid) -> None:
    assert scales.best(grid, "fnpal") == {"few": 2, "most": 0.5}


def test_the_two_scales_around_the_limit(grid: Grid) -> None:
    limits = {dataset: pal.largest_tolerant_scale(10, rate) for dataset, rate in scales.noise_rates(grid).items()}
    assert 2 < limits["few"] < 10
    assert 0.5 < limits["most"] < 2
    assert scales.across_tolerance(grid, "fnpal", 10) == {"few": (2, 10), "most": (0.5, 2)}


def test_risks_stand_beside_the_bound_of_theorem_4_4(grid: Grid) -> None:
    table = scales.risks(grid, "fnpal", 10)
    assert table.loc[(20, 2), "clean"] == pytest.approx(1.5)
    assert table.loc[(20, 2), "excess"] == pytest.approx(0.35)
    assert math.isnan(table.loc[(20, 2), "as given"])
    by_hand = 2 * pal.lipschitz_constant(10, 2) * 2 * 0.2 / (0.8 * 10 - 1)
    assert table.loc[(20, 2), "bound"] == pytest.approx(by_hand)


def test_excess_over_the_bound(grid: Grid) -> None:
    found = scales.excess_over_bound(grid, "fnpal", 10)
    assert list(found) == [(rate, s) for rate in (0.2, 0.8) for s in (0.5, 2, 10)]
    assert found[0.2, 2].mean == pytest.approx(0.35 - noisy_labels.risk_bound(10, 0.2, 2))
    assert found[0.2, 2].n == 2


@pytest.mark.parametrize(("signs", "verdict"), [((-1, -1), "holds"), ((-1, 1), "holds only under"), ((1, 1), "fails")])
def test_the_bound_holds_where_the_excess_lies_below_it(signs: tuple[int, int], verdict: str) -> None:
    evidence = Evidence("here")
    cells = {(0.4, s): Interval(sign, sign - 0.5, sign + 0.5, 10) for s, sign in zip((1.0, 2.0), signs, strict=True)}
    scales.record_bound(evidence, "a-claim", cells, data="Somewhere.")
    (finding,) = evidence.findings
    assert finding.verdict == verdict
    kept = ", ".join(f"{s:g}" for s, sign in zip((1.0, 2.0), signs, strict=True) if sign < 0) or "none"
    assert f"40 %: below at s = {kept} (" in finding.detail
    assert "not yet checked" in scales.record_bound(evidence, "a-claim", {}, data="Somewhere.")


def test_rows_of_two_grids_are_paired_on_a_data_set_of_both(grid: Grid) -> None:
    other = grid.measured.query("method == 'fnpal-s10'").assign(
        method="paper", value=lambda frame: frame["value"] + 0.1
    )
    found = scales.gain([grid, Grid(grid.preset, other, grid.history)], "few", "paper", "fnpal-s2")
    assert found.mean == pytest.approx(0.6 - 0.8)
    assert scales.gain([grid], "few", "paper", "fnpal-s2") is None
