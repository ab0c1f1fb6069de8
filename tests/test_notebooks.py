import io
import json
import os
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

import nbval.kernel
import pytest

from ltnb.notebooks import (
    NotebookError,
    RedrawnLines,
    canonical,
    default_parameters,
    main,
    normalised,
    read,
    run,
    to_bytes,
    typed_parameters,
    write_sources,
)


def cell(source, *tags, kind="code"):
    made = {"cell_type": kind, "id": "a", "metadata": {"tags": list(tags)} if tags else {}, "source": source}
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebook(*cells):
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def write(path, *cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_bytes(canonical(notebook(*cells))))
    return path


def text_of(executed, stream="stdout"):
    return "".join(
        "".join(output["text"])
        for executed_cell in executed["cells"]
        for output in executed_cell.get("outputs", [])
        if output.get("name") == stream
    )


def command(*arguments):
    return [sys.executable, "-m", "ltnb.notebooks", *map(str, arguments)]


# Canonical sources


ORIGINAL = notebook(
    cell("# Title\n\nwith $x$", kind="markdown"),
    cell("seed = 0\n", "parameters"),
    cell("print(seed)\nseed"),
)


def saved_after_a_run(original):
    """The same notebook as JupyterLab leaves it after Run All, Shift-Enter on the last cell, and Save."""
    saved = deepcopy(original)
    for number, each in enumerate(saved["cells"]):
        each["id"] = f"f00d{number}"
        each["metadata"] |= {"collapsed": False, "jupyter": {"source_hidden": True}, "trusted": True}
        each["source"] = each["source"].splitlines(keepends=True)
        if each["cell_type"] == "code":
            each["execution_count"] = number
            each["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["0\n"]}]
            each["metadata"]["execution"] = {"iopub.execute_input": "2026-01-01T00:00:00Z"}
    saved["cells"].append(cell("") | {"metadata": {"trusted": True}})
    saved["metadata"] = {
        "kernelspec": {"display_name": "mine", "language": "python", "name": "mine"},
        "language_info": {"name": "python", "version": "3.13.1", "nbconvert_exporter": "python"},
        "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {}}},
        "toc": {"base_numbering": 1},
    }
    return saved


def test_a_saved_run_leaves_the_canonical_bytes_as_they_were():
    assert to_bytes(canonical(saved_after_a_run(ORIGINAL))) == to_bytes(canonical(ORIGINAL))


@pytest.mark.parametrize("minor", [0, 4])
def test_a_notebook_without_cell_ids_has_the_same_canonical_bytes(minor):
    older = deepcopy(ORIGINAL) | {"nbformat_minor": minor}
    for each in older["cells"]:
        del each["id"]
    assert to_bytes(canonical(older)) == to_bytes(canonical(ORIGINAL))


@pytest.mark.parametrize(
    "change",
    [
        lambda cells: cells[2].update(source="print(seed)\nseed + 1"),
        lambda cells: cells[0].update(source="# Another title"),
        lambda cells: cells[1].update(metadata={}),
        lambda cells: cells[2].update(metadata={"tags": ["progress"]}),
        lambda cells: cells.reverse(),
        lambda cells: cells.append(cell("1 + 1")),
        lambda cells: cells[0].update(attachments={"a.png": {"image/png": "AAAA"}}),
    ],
)
def test_what_is_computed_or_said_changes_the_canonical_bytes(change):
    changed = deepcopy(ORIGINAL)
    change(changed["cells"])
    assert to_bytes(canonical(changed)) != to_bytes(canonical(ORIGINAL))


def test_canonical_is_idempotent_and_a_valid_notebook():
    import nbformat

    once = canonical(ORIGINAL)
    assert canonical(once) == once
    nbformat.validate(nbformat.from_dict(once))


def test_sources_mirror_a_folder_and_touch_only_what_changed(tmp_path):
    notebooks, sources = tmp_path / "notebooks", tmp_path / "build" / "notebooks"
    for name in ("tour.ipynb", "theory/one.ipynb", ".ipynb_checkpoints/tour-checkpoint.ipynb"):
        (notebooks / name).parent.mkdir(parents=True, exist_ok=True)
        (notebooks / name).write_text(json.dumps(ORIGINAL))
    assert write_sources(notebooks, sources) == [sources / "theory/one.ipynb", sources / "tour.ipynb"]
    assert read(sources / "tour.ipynb") == canonical(ORIGINAL)

    (notebooks / "tour.ipynb").write_text(json.dumps(saved_after_a_run(ORIGINAL), indent=2) + "\n")
    assert write_sources(notebooks, sources) == []

    (notebooks / "theory/one.ipynb").unlink()
    write(notebooks / "tour.ipynb", cell("2"))
    assert write_sources(notebooks, sources) == [sources / "tour.ipynb", sources / "theory/one.ipynb"]
    assert not (sources / "theory/one.ipynb").exists()


def test_sources_refuse_a_folder_without_notebooks_and_to_overwrite_the_notebooks(tmp_path):
    with pytest.raises(ValueError, match="found none below"):
        write_sources(tmp_path / "notebook", tmp_path / "build")
    write(tmp_path / "notebooks" / "a.ipynb", cell("1"))
    with pytest.raises(ValueError, match="outside"):
        write_sources(tmp_path / "notebooks", tmp_path / "notebooks" / "build")


@pytest.mark.parametrize(("content", "message"), [("not json", "JSON"), ('{"nbformat": 3}', "format 4")])
def test_read_refuses_what_is_no_notebook(tmp_path, content, message):
    (tmp_path / "a.ipynb").write_text(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.ipynb")


# Parameters


DEFAULTS = {"rate": 0.1, "epochs": 60, "name": "bcl", "cosine": False, "seeds": [0], "extra": None}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rate", "1e-3", 0.001),
        ("rate", "1E-3", 0.001),
        ("rate", "2", 2.0),
        ("epochs", "001", 1),
        ("epochs", "-3", -3),
        ("name", "001", "001"),
        ("name", "true", "true"),
        ("name", "1e-3", "1e-3"),
        ("name", "digits-if100", "digits-if100"),
        ("cosine", "true", True),
        ("seeds", "[0, 1, 2]", [0, 1, 2]),
        ("extra", "1e-3", 0.001),
        ("extra", "true", True),
        ("extra", "yes", "yes"),
        ("extra", "null", None),
        ("extra", "a b", "a b"),
    ],
)
def test_parameters_are_read_as_yaml_1_2_and_keep_the_type_of_the_default(name, text, value):
    parameters = typed_parameters(DEFAULTS, [(name, text)])
    assert parameters == {name: value}
    assert type(parameters[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "text"), [("epochs", "1.5"), ("epochs", "true"), ("cosine", "1"), ("rate", "fast"), ("seeds", "[")]
)
def test_a_parameter_of_another_type_is_refused_by_name(name, text):
    with pytest.raises(ValueError, match=rf"parameter '{name}': expected {type(DEFAULTS[name]).__name__}"):
        typed_parameters(DEFAULTS, [(name, text)])


def test_an_unknown_parameter_names_the_nearest_valid_one():
    with pytest.raises(ValueError, match="parameter 'epoch': unknown; did you mean 'epochs'"):
        typed_parameters(DEFAULTS, [("epoch", "3")])
    with pytest.raises(ValueError, match="takes none"):
        typed_parameters({}, [("epoch", "3")])


def test_defaults_are_the_literals_of_the_parameters_cell():
    cells = cell("# comment\nrate = -1e-3\nname: str = 'a'  # why\nseeds = [0, 1]", "parameters")
    assert default_parameters(notebook(cell("other = 1"), cells)) == {
        "rate": -0.001,
        "name": "a",
        "seeds": [0, 1],
    }
    assert default_parameters(notebook(cell("other = 1"))) == {}


@pytest.mark.parametrize("source", ["import os", "rate = 1 / 3", "a, b = 1, 2"])
def test_a_parameters_cell_with_more_than_literals_is_refused(source):
    with pytest.raises(ValueError, match="parameters cell"):
        default_parameters(notebook(cell(source, "parameters")))


# The log


def test_a_redrawn_line_is_shown_now_and_then_and_at_its_end():
    log = io.StringIO()
    lines = RedrawnLines(log, seconds=60)
    for text in ("plain\n", "\r 0%", "\r 10%", "\r 2", "0%\r 100%", "\n", "half", " line\r\n", "end"):
        lines.write(text)
    assert log.getvalue() == "plain\n 0%\n 100%\nhalf line\n"
    assert lines.line == "end"


def test_every_line_has_its_label():
    log = io.StringIO()
    lines = RedrawnLines(log, seconds=60, label="train: ")
    for text in ("plain\n", "\r 0%", "\r 10%", "\n"):
        lines.write(text)
    assert log.getvalue() == "train: plain\ntrain:  0%\ntrain:  10%\n"


def test_a_redrawn_line_is_shown_each_time_after_enough_seconds():
    log = io.StringIO()
    lines = RedrawnLines(log, seconds=0)
    lines.write("\r 0%\r 10%\r 20%\n")
    assert log.getvalue() == " 0%\n 10%\n 20%\n"


# Normalised runs


def test_streams_are_merged_whatever_their_messages_and_order():
    def streams(*pairs):
        return [{"name": name, "output_type": "stream", "text": text} for name, text in pairs]

    shown = {"data": {"text/plain": "1"}, "metadata": {}, "output_type": "display_data"}
    one, other = cell("f()"), cell("f()")
    one["outputs"] = [*streams(("stdout", "a"), ("stderr", "x\n"), ("stdout", "b\n")), shown]
    other["outputs"] = [*streams(("stderr", "x\n"), ("stdout", "ab\n")), shown]
    assert normalised(notebook(one)) == normalised(notebook(other))
    assert [output["output_type"] for output in normalised(notebook(one))["cells"][0]["outputs"]] == [
        "stream",
        "stream",
        "display_data",
    ]


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """The same notebook run in two processes at once: their outputs and logs."""
    folder = tmp_path_factory.mktemp("twice")
    source = write(
        folder / "source.ipynb",
        cell("# A notebook", kind="markdown"),
        cell('seed = 0\nrate = 0.5\nname = "none"', "parameters"),
        cell(
            "import json, os, sys, time\n"
            "import ipykernel\n"
            "from tqdm import tqdm\n"
            "for _ in tqdm(range(5), desc='training'):\n"
            "    time.sleep(0.1)\n"
            "print('done')",
            "progress",
        ),
        cell("print([seed, rate, name], sys.executable, os.getcwd())\nprint('careful', file=sys.stderr)"),
        cell("json.load(open(ipykernel.get_connection_file())).keys() >= {'curve_publickey'}"),
        cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"),
    )
    outputs = [folder / "runs" / name / "notebook.ipynb" for name in ("one", "other")]
    processes = [
        subprocess.Popen(
            command("run", source, output, "-p", "seed", "3", "-p", "rate", "1e-3", "-p", "name", "001"),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for output in outputs
    ]
    logs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], logs
    return folder, outputs, logs


def test_two_runs_at_once_give_identical_bytes(twice):
    _, (one, other), _ = twice
    assert one.read_bytes() == other.read_bytes()


def test_a_run_has_its_parameters_its_folder_and_this_interpreter(twice):
    folder, (one, _), _ = twice
    assert f"[3, 0.001, '001'] {sys.executable} {folder}\n" in text_of(read(one))


def test_a_run_keeps_counts_and_figures_and_no_times(twice):
    _, (one, _), _ = twice
    counts = [each["execution_count"] for each in read(one)["cells"] if each["cell_type"] == "code"]
    assert counts == [1, 2, 3, 4, 5, 6]
    assert "image/png" in one.read_text()
    assert "start_time" not in one.read_text()
    assert "iopub" not in one.read_text()


def test_progress_is_in_the_log_and_not_in_the_notebook(twice):
    _, (one, _), logs = twice
    for stdout, stderr in logs:
        assert "done\n" in stdout
        assert "training: 100%" in stderr
        assert "\r" not in stderr
    assert text_of(read(one), "stderr") == "careful\n"


def test_kernels_of_runs_are_encrypted(twice):
    _, (one, _), _ = twice
    results = [output for each in read(one)["cells"] for output in each.get("outputs", []) if "data" in output]
    assert results[0]["data"]["text/plain"] == ["True"]


def test_kernels_of_nbval_are_encrypted():
    manager, client = nbval.kernel.start_new_kernel(kernel_name=nbval.kernel.CURRENT_ENV_KERNEL_NAME)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    assert "curve_publickey" in manager.get_connection_info()


def test_a_failed_run_leaves_its_notebook_aside_and_no_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / "source.ipynb", cell("print('so far')"), cell("1 / 0"), cell("print('never')"))
    assert main(["run", str(source), "runs/one.ipynb"]) == 1
    assert not Path("runs/one.ipynb").exists()
    failed = read(Path("build/failed/runs/one.ipynb"))
    assert text_of(failed) == "so far\n"
    assert "ZeroDivisionError" in json.dumps(failed)
    message = capsys.readouterr().err
    assert "build/failed/runs/one.ipynb" in message
    assert "ZeroDivisionError" in message

    write(source, cell("print('mended')"))
    run(source, Path("runs/one.ipynb"))
    assert not Path("build/failed/runs/one.ipynb").exists()


def test_a_failed_run_leaves_the_last_output_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / "source.ipynb", cell("import os\nos._exit(1)"))
    output = tmp_path / "one.ipynb"
    output.write_text("before")
    with pytest.raises(NotebookError, match="died"):
        run(source, output)
    assert output.read_text() == "before"


def test_an_unknown_parameter_stops_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path / "source.ipynb", cell("seed = 0", "parameters"), cell("open('ran', 'w')"))
    assert main(["run", str(source), "one.ipynb", "-p", "sed", "3"]) == 1
    assert "did you mean 'seed'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["source.ipynb"]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_no_output_and_no_kernel(tmp_path, sent):
    source = write(tmp_path / "source.ipynb", cell("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"))
    process = subprocess.Popen(
        command("run", source, "one.ipynb"),
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    kernel = int(process.stdout.readline())
    process.send_signal(sent)
    process.communicate()
    assert process.returncode == -sent
    assert not (tmp_path / "one.ipynb").exists()
    assert_ends(kernel)


def test_a_stage_ends_with_the_process_that_started_it_and_labels_its_lines(tmp_path):
    source = write(tmp_path / "source.ipynb", cell("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"))
    starter = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *command("run", source, "one")],
        cwd=tmp_path,
        env=os.environ | {"DVC_STAGE": "train@one", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    label, kernel = starter.stdout.readline().split()
    assert label == "train@one:"
    starter.kill()
    starter.communicate()
    assert_ends(int(kernel))


def assert_ends(process):
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
