"""Supports of finished runs, against loops over classes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from synthetic_runs import CLASS_COUNTS, make_run

from ltnb import geometry, runs, trained_supports
from ltnb.methods import FeatRecon

SETTINGS = FeatRecon()
NUM_CLASSES = len(CLASS_COUNTS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> runs.Run:
    return make_run(tmp_path_factory.mktemp("runs"), "featrecon", projections=True)


@pytest.fixture(scope="module")
def noisy(run: runs.Run) -> runs.Run:
    """Class 7, of three images, has swollen to a head: 30 images of class 0 are called by its name."""
    labels = run.embeddings["train_labels"].copy()
    labels[:30] = 7
    return with_labels(run, labels)


def with_labels(run: runs.Run, labels: np.ndarray) -> runs.Run:
    noise = {"label_counts": np.bincount(labels, minlength=NUM_CLASSES).tolist()}
    return replace(
        run, params=run.params | {"noise": noise}, embeddings=dict(run.embeddings) | {"train_labels": labels}
    )


def angle(a: torch.Tensor, b: torch.Tensor) -> float:
    return math.degrees(math.acos(float((a @ b).clamp(-1, 1))))


def quantile(angles: list[float]) -> float:
    return float(np.quantile(angles, SETTINGS.support_quantile))


def test_projections_are_unit_rows_of_a_moment(run: runs.Run) -> None:
    late = dict(run.embeddings) | {
        f"{split}_projections_epoch_{epoch}": 3 * run.embeddings[f"{split}_projections"][::-1]
        for split in ("train", "test")
        for epoch in (30, 5)
    }
    kept = replace(run, embeddings=late)
    assert (trained_supports.kept_epochs(kept), trained_supports.kept_epochs(run)) == ([5, 30], [])
    at_end, labels = trained_supports.projections(kept, "test")
    early, same = trained_supports.projections(kept, "test", 5)
    np.testing.assert_allclose(early, at_end.flip(0), atol=1e-6)
    assert torch.equal(labels, same)


def test_rectified_supports_leave_the_heads_and_move_the_tail(run: runs.Run) -> None:
    z, labels = trained_supports.projections(run, "train")
    made = trained_supports.supports(z, labels, CLASS_COUNTS, SETTINGS)
    heads = trained_supports.heads(CLASS_COUNTS, SETTINGS)
    assert heads.tolist() == [0, 1, 2, 3]
    cap = geometry.largest_common_radius(NUM_CLASSES)
    np.testing.assert_allclose(made["rectified"].centres[heads], made["estimated"].centres[heads])
    assert (made["rectified"].radii <= cap + 1e-12).all()
    assert made["estimated"].radii[-1] == 0  # a single image


def test_needed_radii_hold_the_test_images(run: runs.Run) -> None:
    table = trained_supports.radii(run, SETTINGS).set_index(["support", "class"])["radius"]
    z, labels = trained_supports.projections(run, "test")
    train, train_labels = trained_supports.projections(run, "train")
    for k in range(NUM_CLASSES):
        mean = train[train_labels == k].mean(dim=0)
        needed = quantile([angle(z[i], mean / mean.norm()) for i in range(len(z)) if labels[i] == k])
        assert table["needed", k] == pytest.approx(needed, abs=1e-5)


def test_supports_used_in_training_are_those_of_the_weights(run: runs.Run) -> None:
    assert trained_supports.used(run) is None
    parts = {"centres": torch.eye(NUM_CLASSES), **dict.fromkeys(("radii", "angle_means", "angle_stds"), torch.ones(10))}
    for estimated in (False, True):
        weights = {f"contrast.synthesis.{name}": value.clone() for name, value in parts.items()}
        weights["contrast.synthesis.estimated"] = torch.tensor(estimated)
        save_file(weights, run.folder / "model.safetensors")
        found = trained_supports.used(run)
        kinds = set(trained_supports.radii(run, SETTINGS)["support"])
        assert (found is not None) == estimated == ("used" in kinds)
    save_file({}, run.folder / "model.safetensors")
    assert found is not None
    assert torch.equal(found.centres, torch.eye(NUM_CLASSES, dtype=torch.float64))
    assert torch.equal(found.radii, torch.ones(10, dtype=torch.float64))


def test_overlaps_are_those_of_a_loop(run: runs.Run) -> None:
    table = trained_supports.overlaps(run, SETTINGS).set_index(["centres", "split"])
    made = trained_supports.supports(*trained_supports.projections(run, "train"), CLASS_COUNTS, SETTINGS)
    tail = [k for k, count in enumerate(CLASS_COUNTS) if count < 20]
    for centres in ("estimated", "rectified"):
        middles = made[centres].centres
        for split in ("train", "test"):
            z, labels = trained_supports.projections(run, split)
            wrong, radius = [], []
            for k in range(NUM_CLASSES):
                of_class = [z[i] for i in range(len(z)) if labels[i] == k]
                nearest = [min(range(NUM_CLASSES), key=lambda j: angle(x, middles[j])) for x in of_class]
                wrong.append(sum(j != k for j in nearest) / len(nearest))
                radius.append(quantile([angle(x, middles[k]) for x in of_class]))
            deep = [radius[j] + radius[k] - angle(middles[j], middles[k]) for j in tail for k in tail if j != k]
            row = table.loc[(centres, split)]
            assert row["error"] == pytest.approx(sum(wrong) / NUM_CLASSES)
            assert row["tail_overlap"] == pytest.approx(sum(deep) / len(deep), abs=1e-4)


@pytest.mark.parametrize("law", ["uniform", "truncated-normal"])
def test_synthetic_features_lie_in_their_supports(run: runs.Run, law: str) -> None:
    settings = FeatRecon.model_validate({"support_law": law})
    made = trained_supports.supports(*trained_supports.projections(run, "train"), CLASS_COUNTS, settings)["rectified"]
    z, labels = trained_supports.synthetic(made, settings, 7, torch.Generator().manual_seed(0))
    assert torch.bincount(labels).tolist() == [7] * NUM_CLASSES
    angles = trained_supports.angles_to_centres(z, labels, made.centres)
    assert (angles <= made.radii[labels].rad2deg() + 1e-6).all()
    relative = (angles / made.radii[labels].rad2deg())[made.radii[labels] > 0].mean()
    assert (relative > 0.9) == (law == "uniform")  # in 16 dimensions most of a cap lies at its rim


def test_the_nearest_row_names_the_class() -> None:
    others = torch.eye(3)
    z = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]])
    assert trained_supports.nearest_class(z, others, torch.tensor([4, 5, 6])).tolist() == [4, 6]


def test_a_neighbourhood_is_that_of_the_nearest_head(run: runs.Run) -> None:
    arrays = {f"{split}_projections_epoch_30": run.embeddings[f"{split}_projections"] for split in ("train", "test")}
    kept = replace(run, embeddings=dict(run.embeddings) | arrays)
    tail, generator = 7, torch.Generator().manual_seed(0)
    found = trained_supports.neighbourhood(kept, 30, tail, SETTINGS, generator)
    made = trained_supports.supports(*trained_supports.projections(run, "train"), CLASS_COUNTS, SETTINGS)
    angles = [angle(made["estimated"].centres[head], made["estimated"].centres[tail]) for head in range(4)]
    assert found.head == int(np.argmin(angles))
    np.testing.assert_allclose(found.centre, made["rectified"].centres[tail])
    assert {name: len(rows) for name, rows in found.points.items()} == {
        "head": CLASS_COUNTS[found.head], "tail": CLASS_COUNTS[tail], "tail, test": 20, "synthetic": 40
    }  # fmt: skip
    longer = replace(kept, params=kept.params | {"training": {"epochs": 60}})  # its second half begins after epoch 30
    assert "synthetic" not in trained_supports.neighbourhood(longer, 30, tail, SETTINGS, generator).points


def test_reach_counts_what_a_loop_counts(run: runs.Run) -> None:
    angles, shares = trained_supports.reach(run, SETTINGS, torch.Generator().manual_seed(0))
    made = trained_supports.supports(*trained_supports.projections(run, "train"), CLASS_COUNTS, SETTINGS)["rectified"]
    drawn, classes = trained_supports.synthetic(made, SETTINGS, 100, torch.Generator().manual_seed(0))
    test, labels = trained_supports.projections(run, "test")
    assert angles.groupby("features").size().to_dict() == {
        "training images": sum(CLASS_COUNTS), "synthetic features": 1000, "test images": 200
    }  # fmt: skip
    for k in (0, 7):
        of_class = [x for x, j in zip(drawn, classes, strict=True) if j == k]
        right = [int(labels[max(range(len(test)), key=lambda i, x=x: float(x @ test[i]))]) == k for x in of_class[:20]]
        inside = [angle(x, made.centres[k]) <= math.degrees(made.radii[k]) for x in test[labels == k]]
        assert shares.loc[k, "test_inside"] == pytest.approx(np.mean(inside))
        found = trained_supports.nearest_class(torch.stack(of_class[:20]), test, labels) == k
        assert found.tolist() == right
        all_right = trained_supports.nearest_class(torch.stack(of_class), test, labels) == k
        assert shares.loc[k, "synthetic_right"] == pytest.approx(float(all_right.double().mean()))


def test_wrong_labels_count_as_they_are_given(run: runs.Run, noisy: runs.Run) -> None:
    given = [94, 74, 44, 26, 16, 9, 5, 33, 2, 1]
    assert trained_supports.given_counts(run) == list(CLASS_COUNTS)
    assert trained_supports.given_counts(noisy) == given
    z, labels = trained_supports.projections(noisy, "train")
    table = trained_supports.radii(noisy, SETTINGS).set_index(["support", "class"])
    assert table.loc[("rectified", 7), "class_count"] == 3
    cap = math.degrees(geometry.largest_common_radius(NUM_CLASSES))
    for k in (0, 7):  # heads lend and do not borrow
        own = min(table.loc[("estimated", k), "radius"], cap)
        assert table.loc[("rectified", k), "radius"] == pytest.approx(own)
    expected = trained_supports.supports(z, labels, given, SETTINGS)["rectified"]
    np.testing.assert_allclose(table.loc["rectified", "radius"], expected.radii.rad2deg())
    of_images = trained_supports.supports(z, labels, CLASS_COUNTS, SETTINGS)["rectified"]
    assert not np.allclose(expected.centres[4:], of_images.centres[4:], atol=0.01)
    angles, _ = trained_supports.reach(noisy, SETTINGS, torch.Generator().manual_seed(0))
    synthetic = angles.query("features == 'synthetic features'").groupby("class")["angle"].max()
    assert (synthetic <= expected.radii.rad2deg().numpy() + 1e-6).all()


def test_few_are_those_of_few_images(noisy: runs.Run) -> None:
    table = trained_supports.overlaps(noisy, SETTINGS).set_index(["centres", "split"])
    made = trained_supports.supports(
        *trained_supports.projections(noisy, "train"), trained_supports.given_counts(noisy), SETTINGS
    )
    for centres, of in made.items():
        pairs = trained_supports.image_overlaps(
            *trained_supports.projections(noisy, "test"), of, SETTINGS.support_quantile
        )
        mean = float(pairs[4:, 4:].nanmean())
        assert table.loc[(centres, "test"), "tail_overlap"] == pytest.approx(mean)


def test_a_class_that_swelled_to_a_head_is_not_its_own_nearest(noisy: runs.Run) -> None:
    arrays = {f"{split}_projections_epoch_5": noisy.embeddings[f"{split}_projections"] for split in ("train", "test")}
    kept = replace(noisy, embeddings=dict(noisy.embeddings) | arrays)
    centres = trained_supports.neighbourhood(kept, 5, 7, SETTINGS, torch.Generator()).head
    assert centres in (0, 1, 2, 3)
    of_8 = trained_supports.neighbourhood(kept, 5, 8, SETTINGS, torch.Generator()).head
    assert of_8 in (0, 1, 2, 3, 7)


def test_a_class_without_a_label_is_named(run: runs.Run) -> None:
    labels = run.embeddings["train_labels"].copy()
    labels[labels == 9] = 0
    lost = with_labels(run, labels)
    arrays = {f"{split}_projections_epoch_5": run.embeddings[f"{split}_projections"] for split in ("train", "test")}
    lost = replace(lost, embeddings=dict(lost.embeddings) | arrays)
    for called in (
        lambda: trained_supports.radii(lost, SETTINGS),
        lambda: trained_supports.overlaps(lost, SETTINGS),
        lambda: trained_supports.reach(lost, SETTINGS, torch.Generator()),
        lambda: trained_supports.neighbourhood(lost, 5, 8, SETTINGS, torch.Generator()),
    ):
        with pytest.raises(ValueError, match=r"featrecon/seed-0: noise has left class 9 no label"):
            called()
