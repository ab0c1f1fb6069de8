"""Checkpoints: a killed run goes on and ends with the bytes of an unbroken one, whatever a method remembers."""

import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from bars import bars, settings_of

from ltnb import training
from ltnb.data.prepare import Dataset
from ltnb.methods import BCE3S, BCL, FNPAL, KCL, LDAM, LWS, RBL, TSC, FeatRecon, MethodSettings, PaCo, ProCo, Resampling
from ltnb.methods.stages import Schedule


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bars()


def folder_content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


STATEFUL: dict[str, MethodSettings] = {
    "averaged prototypes, a new classifier afterwards, snapshots": BCL(
        prototypes="ema", second_stage="retrain", second_stage_epochs=2, snapshots=2
    ),
    "class memory, drawn negatives, mixed views, a rebalanced classifier afterwards": BCE3S(
        views=("strong", "mixup", "cutmix"),
        classified_views="all",
        negative_rate=0.5,
        second_stage="rebalance",
        second_stage_epochs=2,
        max_norm=0.5,
    ),
    "supports, drawn features, snapshots": FeatRecon(
        synthesis_start=0.4, support_refresh=2, head_above=5, nearest_heads=1, snapshots=4, projection_dim=8
    ),
    "a loss for wrong labels, anchors, a scale that knows of them": FNPAL(
        classification="nfl+rce",
        active_weight=1.0,
        passive_weight=0.1,
        focal_gamma=0.5,
        classifier_scale="noise-aware",
    ),
    "repeated features": FeatRecon(synthesis="up-sampling", snapshots=0),
    "momentum encoder, a queue that fills up, drawn positives, a new classifier afterwards, snapshots": KCL(
        queue_size=50, num_positives=2, second_stage_epochs=2, snapshots=2, projection_dim=8
    ),
    "targets that change hands, their classes' centres": TSC(
        queue_size=9, second_stage="none", prototype_momentum=0.5, projection_dim=8
    ),
    "a classifier that learns from the queue": PaCo(queue_size=20, snapshots=3, projection_dim=8),
    "two running means of each class": ProCo(projection_dim=8),
    "classes shown alike": Resampling(),
    "weights that count from the third epoch": LDAM(weighting_start=0.5),
    "weights that count, and a classifier rebalanced afterwards": LDAM(
        weighting_start=0.5, second_stage="rebalance", second_stage_epochs=2
    ),
    "scales of the vectors that the first stage trained, smoothed labels": LWS(
        views=("mixup",), second_stage_epochs=2, smoothing_head=0.4, smoothing_tail=0.1
    ),
    "a simplex that is turned, behind batch normalisation": RBL(feature_norm=True),
}


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_run_killed_after_any_epoch_ends_the_same(
    kind: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(STATEFUL[kind])
    checkpoint = tmp_path / "c.pt"
    kept = []
    save = training._State.save

    def save_and_keep(self: Any, file: Path, history: Any) -> None:
        save(self, file, history)
        kept.append(tmp_path / f"{len(history)}.pt")
        shutil.copyfile(file, kept[-1])

    with monkeypatch.context() as patch:
        patch.setattr(training._State, "save", save_and_keep)
        unbroken = training.train(settings, dataset, tmp_path / "unbroken", checkpoint)
    assert len(kept) == len(unbroken.history) == 4 + (0 if settings.method.second_stage == "none" else 2)
    for left in kept:
        shutil.copyfile(left, checkpoint)
        training.train(settings, dataset, tmp_path / "resumed", checkpoint)
        assert folder_content(tmp_path / "resumed") == folder_content(tmp_path / "unbroken"), left


@pytest.mark.parametrize("killed_in_epoch", [0, 3])
def test_a_killed_run_goes_on_and_ends_the_same(
    killed_in_epoch: int, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = settings_of(BCL(), checkpoint_every=2, epochs=5)
    training.train(settings, dataset, tmp_path / "unbroken")

    def killed(epoch: int, schedule: Schedule) -> float:
        if epoch == killed_in_epoch:
            raise KeyboardInterrupt
        return original(epoch, schedule)

    original = training.learning_rate
    checkpoint = tmp_path / "checkpoint.pt"
    with monkeypatch.context() as patch:
        patch.setattr(training, "learning_rate", killed)
        with pytest.raises(KeyboardInterrupt):
            training.train(settings, dataset, tmp_path / "broken", checkpoint)
    assert not (tmp_path / "broken").exists()
    assert checkpoint.exists() == (killed_in_epoch >= 2)
    capsys.readouterr()
    training.train(settings, dataset, tmp_path / "broken", checkpoint)
    assert ("going on after epoch 2" in capsys.readouterr().err) == (killed_in_epoch >= 2)
    assert folder_content(tmp_path / "broken") == folder_content(tmp_path / "unbroken")
    assert not checkpoint.exists()


def test_a_checkpoint_of_other_settings_is_not_used(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    monkeypatch.setattr(Path, "unlink", lambda *_args, **_kwargs: None)  # keep the finished run's checkpoint
    training.train(settings_of(), dataset, tmp_path / "other", checkpoint)
    monkeypatch.undo()
    assert checkpoint.exists()
    settings = settings_of(weight_decay=0.01)
    training.train(settings, dataset, tmp_path / "run", checkpoint)
    assert "belongs to other settings" in capsys.readouterr().err
    training.train(settings, dataset, tmp_path / "fresh")
    assert folder_content(tmp_path / "run") == folder_content(tmp_path / "fresh")


def test_a_checkpoint_is_never_unpickled(dataset: Dataset, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("a checkpoint was unpickled",))

    content = io.BytesIO()
    torch.save({"identity": Trap()}, content)
    (tmp_path / "c.pt").write_bytes(hashlib.sha256(content.getvalue()).digest() + content.getvalue())
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        training.train(settings_of(), dataset, tmp_path / "run", tmp_path / "c.pt")


@pytest.mark.parametrize("damage", [b"", b"text", None])
def test_a_damaged_checkpoint_is_said_to_be_and_not_used(
    damage: bytes | None, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    checkpoint = tmp_path / "c.pt"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_args, **_kwargs: None)  # keep the finished run's checkpoint
        training.train(settings_of(), dataset, tmp_path / "before", checkpoint)
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1  # a bit of a weight: nothing but the digest can tell
    checkpoint.write_bytes(content if damage is None else damage)
    (tmp_path / ".c.pt.left").mkdir()
    training.train(settings_of(), dataset, tmp_path / "run", checkpoint)
    assert f"{checkpoint} is damaged" in capsys.readouterr().err
    assert folder_content(tmp_path / "run") == folder_content(tmp_path / "before")
    assert not (tmp_path / ".c.pt.left").exists()
