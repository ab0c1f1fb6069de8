"""Files are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path`` and move it onto ``path`` when the block ends well.

    The folder is made if need be. After an error or a kill, ``path`` is what it was before.

    Raises:
        OSError: it cannot be written, as on a full disk; the message names it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder) / path.name  # numpy and pandas look at the ending of a name
        try:
            yield temporary
        except OSError as error:
            if error.filename is not None or error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, str(path)) from error
        os.replace(temporary, path)
