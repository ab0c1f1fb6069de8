import errno
import os
from pathlib import Path

import pytest

from ltnb.files import replacing


def test_a_file_is_replaced_when_the_block_ends_well(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "down" / "a.csv"
    for content in ("old", "new"):
        with replacing(file) as temporary:
            assert temporary.suffix == ".csv"
            temporary.write_text(content)
        assert file.read_text() == content
    assert list(file.parent.iterdir()) == [file]


def test_after_an_error_the_old_file_stands_and_nothing_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("old")
    with pytest.raises(RuntimeError), replacing(file) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    with pytest.raises(OSError, match=rf"No space left on device: '{file}'"), replacing(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(FileNotFoundError, match="'elsewhere'"), replacing(file):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "elsewhere")
    assert not list(tmp_path.iterdir())
