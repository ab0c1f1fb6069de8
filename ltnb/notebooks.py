"""Notebooks as reproducible programs: source-only copies to depend on, and runs that repeat byte for byte.

Running a notebook in JupyterLab and saving it changes its file but not what it computes. So the pipeline
depends on *canonical sources*: copies with nothing but the cells' type, text and tags. And papermill's output
tells when each cell ran and holds new random ids, so a run's notebook is *normalised* before it is kept.

    python -m ltnb.notebooks sources notebooks build/notebooks
    python -m ltnb.notebooks run build/notebooks/experiments/train.ipynb out.ipynb -p method bcl -p seed 0
"""

import argparse
import ast
import difflib
import itertools
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

# ruff: noqa: E402
# For jsonschema, which papermill imports, rfc3987_syntax checks addresses, and takes 1.5 s to compile its grammar.
# No notebook's format has any: without it jsonschema leaves the check out.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

import papermill
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from traitlets import default

from ltnb.files import replacing

Notebook = dict[str, Any]
Cell = dict[str, Any]

FAILED = Path("build/failed")
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


# The stage of the pipeline that this is, if it is one.
STAGE = os.environ.get("DVC_STAGE", "")

# Turns that an idle OpenMP thread waits busily before it sleeps. Unset, it waits for milliseconds, and where something
# else needs its core, the threads of a training step wait for each other: a step of 40 ms took 350 ms beside one busy
# process, with 2,000 turns 77 ms; on an idle machine it makes no difference.
SPIN_COUNT = os.environ.get("GOMP_SPINCOUNT", "2000")

# Stages run side by side, so each has one thread, unless its notebook asks for more; and its results do not depend on
# how many processors there are.
THREADS = os.environ.get("OMP_NUM_THREADS", "1")


class NotebookError(Exception):
    """A notebook's code failed, or its kernel died; the message says where the partly executed copy is."""


def _text(lines: str | list[str]) -> str:
    return lines if isinstance(lines, str) else "".join(lines)


def _tags(cell: Cell) -> list[str]:
    tags: list[str] = cell["metadata"].get("tags", [])
    return tags


def read(path: Path) -> Notebook:
    """The notebook in a file, as plain dictionaries; ValueError where it is not a notebook of format 4."""
    try:
        notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: expected a notebook, found text that is not JSON ({error})") from error
    if notebook.get("nbformat") != 4:
        raise ValueError(f"{path}: expected notebook format 4, found {notebook.get('nbformat')!r}")
    return notebook


def to_bytes(notebook: Notebook) -> bytes:
    """One notebook, one sequence of bytes: sorted keys, an indent of one, a final newline."""
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()


def canonical(notebook: Notebook) -> Notebook:
    """What a notebook computes, and nothing of when, where or whether it was run.

    Kept: each cell's type, text, tags and attachments. Ids count the cells. Empty cells go: JupyterLab adds
    one each time the last cell is run with Shift-Enter.
    """
    cells: list[Cell] = []
    for cell in notebook["cells"]:
        source = _text(cell["source"])
        if not source.strip():
            continue
        kept: Cell = {
            "cell_type": cell["cell_type"],
            "id": f"cell-{len(cells)}",
            "metadata": {"tags": _tags(cell)} if _tags(cell) else {},
            "source": source.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            kept |= {"execution_count": None, "outputs": []}
        elif cell.get("attachments"):
            kept["attachments"] = cell["attachments"]
        cells.append(kept)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def write_sources(notebooks: Path, sources: Path) -> list[Path]:
    """Mirror the canonical copy of each notebook below `notebooks` at the same place below `sources`.

    Returns the files it changed: a copy is written only where its bytes differ, and removed where its
    notebook is gone.
    """
    if sources.resolve().is_relative_to(notebooks.resolve()):
        raise ValueError(f"sources: expected a folder outside {notebooks}, found {sources}")
    originals = [path for path in notebooks.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts]
    if not originals:
        raise ValueError(f"notebooks: expected a folder that holds notebooks, found none below {notebooks}")
    copies = {sources / path.relative_to(notebooks): to_bytes(canonical(read(path))) for path in originals}
    changed = []
    for copy, content in sorted(copies.items()):
        if not copy.exists() or copy.read_bytes() != content:
            with replacing(copy) as temporary:
                temporary.write_bytes(content)
            changed.append(copy)
    for copy in sorted(sources.rglob("*.ipynb")):
        if copy not in copies:
            copy.unlink()
            changed.append(copy)
    return changed


def default_parameters(notebook: Notebook) -> dict[str, Any]:
    """Names and default values in the cell tagged `parameters`, which holds assignments of literals only."""
    cells = [cell for cell in notebook["cells"] if "parameters" in _tags(cell)]
    if len(cells) > 1:
        raise ValueError(f"expected one cell tagged 'parameters', found {len(cells)}")
    defaults: dict[str, Any] = {}
    for statement in ast.parse(_text(cells[0]["source"])).body if cells else []:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                raise ValueError(f"parameters cell: expected name = literal, found {ast.unparse(statement)}")
        try:
            defaults[name] = ast.literal_eval(value)
        except ValueError as error:
            raise ValueError(f"parameters cell: {name}: expected a literal, found {ast.unparse(value)}") from error
    return defaults


def typed_parameters(defaults: dict[str, Any], given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Read each text as YAML 1.2, as params.yaml is read, and hold it to the type of the notebook's default.

    `1e-3` is a float, `true` a boolean, `[1, 2]` a list. Where the default is a string the text is kept as it
    stands, so a dataset may be called `001`; where it is a float, an integer is one too; where it is None,
    anything goes.
    """
    parameters: dict[str, Any] = {}
    for name, text in given:
        if name not in defaults:
            nearest = difflib.get_close_matches(name, defaults, n=1, cutoff=0)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else "; this notebook takes none"
            raise ValueError(f"parameter {name!r}: unknown{hint}")
        expected = type(defaults[name])
        if expected is str:
            parameters[name] = text
            continue
        try:
            value = YAML(typ="safe", pure=True).load(text)
        except YAMLError as error:
            raise ValueError(f"parameter {name!r}: expected {expected.__name__}, found {text!r}") from error
        if expected is float and type(value) is int:
            value = float(value)
        if defaults[name] is not None and type(value) is not expected:
            raise ValueError(f"parameter {name!r}: expected {expected.__name__}, found {text!r}")
        parameters[name] = value
    return parameters


def _normalised_outputs(cell: Cell) -> list[dict[str, Any]]:
    """Streams merged: how many messages carried a text, and how stdout and stderr interleave, is chance.

    Nor is it an error to `raise SystemExit(0)`: papermill takes it for the end of a notebook that is done.
    """
    dropped = "stderr" if "progress" in _tags(cell) else None
    kept = [output for output in cell["outputs"] if output.get("name") != dropped or dropped is None]
    kept = [output for output in kept if output.get("ename") != "SystemExit"]  # how a notebook ends early
    outputs: list[dict[str, Any]] = []
    for is_stream, group in itertools.groupby(kept, key=lambda output: output["output_type"] == "stream"):
        if not is_stream:
            outputs.extend(group)
            continue
        texts = {"stdout": "", "stderr": ""}
        for output in group:
            texts[output["name"]] += _text(output["text"])
        outputs.extend(
            {"name": name, "output_type": "stream", "text": text.splitlines(keepends=True)}
            for name, text in texts.items()
            if text
        )
    return outputs


def normalised(notebook: Notebook) -> Notebook:
    """An executed notebook without what differs from one run to the next: times, durations, random ids.

    Execution counts and outputs stay. A cell tagged `progress` loses its stderr, which has the bars.
    """
    cells: list[Cell] = []
    for cell in notebook["cells"]:
        injected = "injected-parameters" in _tags(cell)
        kept = {key: value for key, value in cell.items() if key != "metadata"}
        kept["id"] = "injected-parameters" if injected else cell["id"]
        kept["metadata"] = {"tags": _tags(cell)} if _tags(cell) else {}
        if cell["cell_type"] == "code":
            kept["outputs"] = _normalised_outputs(cell)
        cells.append(kept)
    metadata = dict(METADATA)
    if "widgets" in notebook["metadata"]:
        metadata["widgets"] = notebook["metadata"]["widgets"]
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


class NotebookKernel(AsyncKernelManager):
    """A kernel of this very interpreter, whatever kernels are installed, over encrypted sockets."""

    @default("transport_encryption")
    def _encrypted(self) -> str:
        return "required"

    @property
    def kernel_spec(self) -> KernelSpec:
        """The kernel that runs `sys.executable`."""
        environment = {"GOMP_SPINCOUNT": SPIN_COUNT, "OMP_NUM_THREADS": THREADS}
        return KernelSpec(resource_dir=RESOURCES, env=environment, **get_kernel_dict())


@dataclass
class RedrawnLines:
    """Pass text on, but of a line that is redrawn with carriage returns only what it shows every few seconds.

    A progress bar redraws itself ten times a second; in a log file each redrawing would stay. Lines open with `label`,
    so that the lines of several programs on one stream can be told apart.
    """

    stream: TextIO
    seconds: float = 5.0
    label: str = ""
    line: str = ""
    shown: float = -math.inf

    def write(self, text: str) -> None:
        """Write what has become final."""
        for piece in re.split(r"(\r?\n|\r)", text):
            if piece.endswith("\n"):
                self.stream.write(f"{self.label}{self.line}\n")
                self.line = ""
            elif piece == "\r":
                now = time.monotonic()
                if self.line.strip() and now - self.shown >= self.seconds:
                    self.stream.write(f"{self.label}{self.line}\n")
                    self.shown = now
                self.line = ""
            else:
                self.line += piece

    def flush(self) -> None:
        """Hand on what was written; an unfinished line waits for its end."""
        self.stream.flush()


@contextmanager
def _log(stream: TextIO) -> Iterator[TextIO | RedrawnLines]:
    if stream.isatty() and not STAGE:
        yield stream
        return
    log = RedrawnLines(stream, label=f"{STAGE}: " if STAGE else "")
    try:
        yield log
    finally:
        if log.line:
            stream.write(log.label + log.line)


def _failed_copy(output: Path) -> Path:
    """The output's own place, below build/failed/: so the runs of a matrix do not overwrite each other."""
    here, place = Path.cwd().resolve(), output.resolve()
    return FAILED / (place.relative_to(here) if place.is_relative_to(here) else place.name)


def run(source: Path, output: Path, given: Sequence[tuple[str, str]] = ()) -> None:
    """Execute `source` with parameters in the current folder and write the normalised result to `output`.

    The output is written whole, at the end, or not at all. Where a cell fails or the kernel dies,
    NotebookError names the copy that was executed so far. Streams of the cells go to this process's own.
    """
    notebook = read(source)
    parameters = typed_parameters(default_parameters(notebook), given)
    failed = _failed_copy(output)
    with (
        tempfile.TemporaryDirectory(prefix="ltnb-") as folder,
        _log(sys.stdout) as stdout,
        _log(sys.stderr) as stderr,
    ):
        executed = Path(folder, "executed.ipynb")
        try:
            papermill.execute_notebook(
                str(source),
                str(executed),
                parameters=parameters,
                kernel_name="python3",
                language="python",
                kernel_manager_class=NotebookKernel,
                progress_bar=False,
                stdout_file=stdout,
                stderr_file=stderr,
            )
        except Exception as error:
            if executed.exists():
                with replacing(failed) as temporary:
                    shutil.copyfile(executed, temporary)
            raise NotebookError(f"{error}\n{source} failed; what it did so far: {failed}") from error
        with replacing(output) as temporary:
            temporary.write_bytes(to_bytes(normalised(read(executed))))
    failed.unlink(missing_ok=True)


def _stop_with_parent() -> None:
    """End this process when its parent is gone: DVC, killed and started again, would run the stage beside it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this module; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ltnb.notebooks", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sources = commands.add_parser("sources", help="write source-only copies of a folder's notebooks")
    sources.add_argument("notebooks", type=Path)
    sources.add_argument("sources", type=Path)
    runner = commands.add_parser("run", help="execute one source with parameters")
    runner.add_argument("source", type=Path)
    runner.add_argument("output", type=Path)
    runner.add_argument("-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    options = parser.parse_args(arguments)
    try:
        if options.command == "sources":
            for path in write_sources(options.notebooks, options.sources):
                print(path)
        else:
            if STAGE:
                _stop_with_parent()
            run(options.source, options.output, [(name, value) for name, value in options.parameters])
    except (NotebookError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: no output written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
