"""BCL's contrast and its bounds on runs whose projections are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic_runs import CLASS_COUNTS, make_run

from ltnb import geometry, losses
from ltnb.runs import Run
from ltnb.theory.balanced_contrastive import lower_bound
from ltnb.trained_bounds import contrast_and_bounds

NUM_CLASSES = len(CLASS_COUNTS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = make_run(tmp_path_factory.mktemp("runs"), "bcl", projections=True)
    prototypes = geometry.regular_simplex(NUM_CLASSES, 16, generator=torch.Generator().manual_seed(1))
    return replace(
        made,
        params=made.params | {"method": {"temperature": 0.1}},
        embeddings=dict(made.embeddings) | {"prototypes": prototypes.numpy()},
    )


def test_at_the_simplex_loss_and_bounds_are_one(run: Run) -> None:
    prototypes = run.embeddings["prototypes"]
    collapsed = {"train_projections": prototypes[run.embeddings["train_labels"]]}
    table = contrast_and_bounds(replace(run, embeddings=dict(run.embeddings) | collapsed))
    assert list(table["anchors"]) == ["by sample", "by class"]
    expected = lower_bound(1, NUM_CLASSES, 0.1)
    np.testing.assert_allclose(table[["loss", "theorem_2", "theorem_3"]], expected, rtol=1e-6)


def test_anchors_by_class_are_the_mean_of_the_classes_means(run: Run) -> None:
    table = contrast_and_bounds(run).set_index("anchors")
    z = torch.nn.functional.normalize(torch.from_numpy(run.embeddings["train_projections"]).double())
    y, prototypes = torch.from_numpy(run.embeddings["train_labels"]), torch.from_numpy(run.embeddings["prototypes"])
    loss = losses.balanced_contrastive(z, y, prototypes, temperature=0.1, reduction="none")
    means = [loss[y == k].mean().item() for k in range(NUM_CLASSES)]
    assert table.loc["by class", "loss"] == pytest.approx(np.mean(means))
    assert table.loc["by sample", "loss"] == pytest.approx(loss.mean().item())
    assert (table["theorem_2"] < table["loss"]).all()


def test_without_prototypes_there_is_no_such_loss(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="supcon has no prototypes"):
        contrast_and_bounds(make_run(tmp_path, "supcon", projections=True))
