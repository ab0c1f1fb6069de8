"""Checkpoints: a killed run goes on and ends with the bytes of an unbroken one, whatever a method remembers."""

import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from bars import bars, settings_of
from stateful_methods import STATEFUL

from ltnb import training
from ltnb.checkpoints import State
from ltnb.data.prepare import Dataset
from ltnb.methods import BCL
from ltnb.methods.stages import Stage


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bars()


def folder_content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_run_killed_after_any_epoch_ends_the_same(
    kind: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(STATEFUL[kind])
    checkpoint = tmp_path / "c.pt"
    kept = []
    save = State.save

    def save_and_keep(self: Any, file: Path, history: Any) -> None:
        save(self, file, history)
        kept.append(tmp_path / f"{len(history)}.pt")
        shutil.copyfile(file, kept[-1])

    with monkeypatch.context() as patch:
        patch.setattr(State, "save", save_and_keep)
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

    def killed(epoch: int, stage: Stage) -> float:
        if epoch == killed_in_epoch:
            raise KeyboardInterrupt
        return original(epoch, stage)

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
