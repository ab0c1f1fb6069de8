"""The report: every notebook that the pipeline executed, as pages that open from disk without a network.

    python -m ltnb.report      # results/ and runs/ of the project around the current folder → report/index.html

One part a data set: the comparison first, then a page a method, then the training runs. Sphinx builds it; the
notebooks are shown as they were executed and never run here.
"""

import csv
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, get_args

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from ltnb.claims import NOT_CHECKED, Verdict
from ltnb.notebooks import Cell, Notebook, read, to_bytes
from ltnb.params import FILE_NAME, Params, load
from ltnb.workspace import Workspace

TITLE = "What a long tail does to learned features"
NOTEBOOK = "notebook.ipynb"
HEADLINE = "headline.png"  # the figure of a comparison that the first page shows
MATHJAX = "tex-svg.js"  # glyphs as paths in one file: nothing else is loaded, and browsers refuse fonts from disk

VERDICTS = (*get_args(Verdict), NOT_CHECKED)
PAPERS = {
    "bcl": "Balanced contrastive learning (BCL)",
    "featrecon": "Geometry of long-tailed representation learning (FeatRecon)",
    "bce3s": "Tripartite binary cross-entropy (BCE3S)",
    "pal": "Prototype-anchored learning (PAL)",
    "ltnb": "Results of this project",
}

SETTINGS: Mapping[str, Any] = {
    "project": "ltnb",
    "extensions": ["myst_nb"],
    "myst_enable_extensions": ["dollarmath", "amsmath", "attrs_inline"],
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "nb_code_prompt_show": "code",
    "nb_code_prompt_hide": "code",
    "mathjax_path": MATHJAX,
    "html_title": TITLE,
    "html_theme": "sphinx_book_theme",
    "html_theme_options": {
        "use_fullscreen_button": False,
        "navbar_persistent": [],
        "footer_content_items": [],
    },
    "html_css_files": ["report.css"],
    "html_js_files": ["ledger.js"],
}

#: What stands in the place of a run's notebook where `ltnb.launch` trained it.
LAUNCHED: Notebook = {
    "cells": [
        {
            "cell_type": "markdown",
            "id": "launched",
            "metadata": {},
            "source": "# One training run\n\nTrained by processes that torchrun started, so without a notebook.",
        }
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}


class ReportError(Exception):
    """Sphinx warned or failed; what it said is in the log."""


def page_title(notebook: Notebook) -> str:
    """The # title that a notebook opens with."""
    return "".join(notebook["cells"][0]["source"]).splitlines()[0].removeprefix("# ")


def page(notebook: Notebook, about: str) -> Notebook:
    """An executed notebook as a page: what it is about joins its title, and code is shown when asked for.

    ``Geometry: bcl``; behind a question, ``Does it help? (digits-if100)``.
    """
    first, *others = notebook["cells"]
    lines = "".join(first["source"]).splitlines()
    if first["cell_type"] != "markdown" or not lines or not lines[0].startswith("# "):
        raise ValueError(f"the page about {about}: expected a notebook that opens with a # title, found {lines[:1]}")
    title = f"{lines[0]} ({about})" if lines[0].endswith("?") else f"{lines[0]}: {about}"
    titled = first | {"source": "\n".join([title, *lines[1:]])}
    return notebook | {"cells": [titled, *map(_code_folded, others)]}


def _code_folded(cell: Cell) -> Cell:
    if cell["cell_type"] != "code":
        return cell
    return cell | {"metadata": {**cell["metadata"], "tags": [*cell["metadata"].get("tags", []), "hide-input"]}}


def _toctree(caption: str, pages: Mapping[str, str]) -> str:
    """A table of contents, title → page, that fills the side bar and is not shown where it stands."""
    entries = [f"{title} <{page}>" for title, page in pages.items()]
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", *entries, "```"])


def _training_page(place: Workspace, dataset: str, params: Params) -> str:
    """Test accuracy of each run, linked to the run's page."""
    rows = []
    for method in params.methods:
        links = []
        for seed in params.seeds:
            metrics = json.loads((place.run(dataset, method, seed) / "metrics.json").read_text(encoding="utf-8"))
            links.append(f"[{100 * metrics['accuracy']:.1f} %](runs/{method}-seed-{seed}.ipynb)")
        rows.append(f"| `{method}` | {' | '.join(links)} |")
    header = f"| method | {' | '.join(f'seed {seed}' for seed in params.seeds)} |"
    pages = {
        f"{method}, seed {seed}": f"runs/{method}-seed-{seed}" for method in params.methods for seed in params.seeds
    }
    return "\n\n".join(
        [
            f"# Training runs: {dataset}",
            "Test accuracy after the last epoch; each number leads to the run's notebook as it was executed.",
            "\n".join([header, "|---|" + "---:|" * len(params.seeds), *rows]),
            _toctree(dataset, pages),
        ]
    )


def _ledger_page(table: Path, pages: Mapping[str, str]) -> str:
    """How many claims of each paper have which verdict, then every claim with its verdict and what it rests on.

    Args:
        table: what `ltnb.claims` wrote.
        pages: the page of a notebook, where the report has it; the keys are those of the column `where`.
    """
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    counts = Counter((row["paper"], row["verdict"]) for row in rows)
    papers = list(dict.fromkeys(row["paper"] for row in rows))
    verdicts = [verdict for verdict in VERDICTS if any(counts[paper, verdict] for paper in papers)]
    numbers = {PAPERS[paper]: [counts[paper, verdict] for verdict in verdicts] for paper in papers}
    numbers[f"all {len(rows)} claims"] = [sum(column) for column in zip(*numbers.values(), strict=True)]
    summary = [f"| {name} | {' | '.join(map(str, row))} |" for name, row in numbers.items()]
    parts = [
        "---\nhtml_theme.sidebar_secondary.remove: true\n---",  # its width is worth more to the table
        "# The ledger of claims",
        "What the papers state, and what the notebooks found when they checked it. An optimum and a trained model are "
        "two claims; a claim without evidence is *not yet checked*, never *holds*. Where a kind of evidence that the "
        "ledger asks for has not been brought, it is named as outstanding below the verdict.",
        "\n".join([f"| | {' | '.join(verdicts)} |", "|---|" + "---:|" * len(verdicts), *summary]),
    ]
    for paper in papers:
        lines = ["```{list-table}", ":header-rows: 1", ":widths: 13 15 42 30", ":class: ledger"]
        cells = [("", "verdict", "claim", "what was found, and where")]
        for row in rows:
            if row["paper"] == paper:
                verdict = f"[{row['verdict']}]{{.verdict .{row['verdict'].replace(' ', '-')}}}"
                if row["outstanding"]:
                    verdict += f" [outstanding: {row['outstanding']}]{{.outstanding}}"
                where = f"[{row['where']}]({pages[row['where']]})" if row["where"] in pages else f"*{row['where']}*"
                found = [row["detail"], row["evidence"] and f"({row['evidence']})", where]
                statement = f"{row['statement']} *Given:* {row['assumptions']}"
                cells.append((row["number"], verdict, statement, " ".join(filter(None, found))))
        for row_cells in cells:
            for position, cell in enumerate(row_cells):
                lines.append(f"{'* -' if position == 0 else '  -'} {' '.join(cell.split())}")
        parts += [f"## {PAPERS[paper]}", "\n".join([*lines, "```"])]
    return "\n\n".join(parts)


def _index_page(params: Params, theory: Mapping[str, str], papers: Mapping[str, str]) -> str:
    """What this is, the theory, a room for each paper, a picture and the pages of each data set, and the settings."""
    parts = [
        f"# {TITLE}",
        "Each page is a notebook as the pipeline executed it. *All methods* compares them, a method's own page draws "
        "the geometry of its features, and *training runs* has every run behind both.",
    ]
    if theory:
        parts.append("The theory notebooks derive the papers' bounds; the ledger says which of their claims hold.")
        links = " · ".join(f"[{title}]({page})" for title, page in theory.items())
        parts += [links, _toctree("Theory", theory)]
    if papers:
        parts.append("What each paper claims about trained networks, on the runs of this report, and its ablations.")
        links = " · ".join(f"[{title}]({page})" for title, page in papers.items())
        parts += [links, _toctree("The papers, trained", papers)]
    for dataset in params.datasets:
        methods = ", ".join(f"[{method}]({dataset}/{method}.ipynb)" for method in params.methods)
        parts += [
            f"## {dataset}",
            f"[![All methods on {dataset}]({dataset}/{HEADLINE})]({dataset}/compare.ipynb)",
            f"[All methods]({dataset}/compare.ipynb) · {methods} · [training runs]({dataset}/training.md)",
        ]
    parts += [
        "## The experiment",
        f"The settings that made all of it, `{FILE_NAME}`; `dvc repro` makes it again.",
        f"```{{literalinclude}} {FILE_NAME}\n:language: yaml\n```",
    ]
    for dataset in params.datasets:
        pages = {"All methods": f"{dataset}/compare"}
        pages |= {method: f"{dataset}/{method}" for method in params.methods}
        parts.append(_toctree(dataset, pages | {"Training runs": f"{dataset}/training"}))
    return "\n\n".join(parts)


def assemble(place: Workspace, params: Params, sources: Path) -> None:
    """Write the documents of the report below `sources`.

    Raises FileNotFoundError where a notebook is missing; the message names it.
    """

    def add(name: str, content: str | Notebook) -> None:
        path = sources / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else to_bytes(content))

    theory, pages = {}, {"experiments/compare": f"../{next(iter(params.datasets))}/compare.ipynb"}
    for notebook in sorted((place.folder / "results" / "theory").glob("*.ipynb")):
        content = read(notebook)
        theory[page_title(content)] = f"theory/{notebook.name}"
        pages[f"theory/{notebook.stem}"] = notebook.name
        add(f"theory/{notebook.name}", content)
    for notebook in sorted((place.folder / "results" / "free_features").glob(f"*/{NOTEBOOK}")):
        loss = notebook.parent.name
        theory[f"Free features: {loss}"] = f"theory/free_features_{loss}.ipynb"
        add(f"theory/free_features_{loss}.ipynb", page(read(notebook), loss))
    papers = {}
    # These two read presets with data of their own.
    rooms = dict.fromkeys(PAPERS, next(iter(params.datasets))) | {"noise": "digits and MNIST", "baselines": "digits"}
    for name, about in rooms.items():
        notebook = place.results("papers", name) / NOTEBOOK
        if notebook.exists():
            content = read(notebook)
            papers[page_title(content)] = f"papers/{name}.ipynb"
            pages[f"experiments/{name}"] = f"../papers/{name}.ipynb"
            add(f"papers/{name}.ipynb", page(content, about))
    table = place.folder / "results" / "claims" / "ledger.csv"
    if table.exists():
        theory["The ledger of claims"] = "theory/ledger.md"
        add("theory/ledger.md", _ledger_page(table, pages))
    add("index.md", _index_page(params, theory, papers))
    shutil.copyfile(place.project / FILE_NAME, sources / FILE_NAME)
    for dataset in params.datasets:
        compare = place.results(dataset, "compare")
        add(f"{dataset}/compare.ipynb", page(read(compare / NOTEBOOK), dataset))
        shutil.copyfile(compare / "figures" / HEADLINE, sources / dataset / HEADLINE)
        add(f"{dataset}/training.md", _training_page(place, dataset, params))
        for method in params.methods:
            add(f"{dataset}/{method}.ipynb", page(read(place.results(dataset, method) / NOTEBOOK), method))
            for seed in params.seeds:
                run = place.run(dataset, method, seed) / NOTEBOOK
                executed = read(run) if run.exists() else LAUNCHED
                add(f"{dataset}/runs/{method}-seed-{seed}.ipynb", page(executed, f"{method}, seed {seed}"))


def build(place: Workspace, params: Params, report: Path) -> None:
    """Build the report in a folder beside `report` and put it in its place when it is whole."""
    with tempfile.TemporaryDirectory(dir=report.parent, prefix=f".{report.name}.") as name:
        folder = Path(name)
        sources, static, html = folder / "sources", folder / "static", folder / "html"
        sources.mkdir()
        static.mkdir()
        assemble(place, params, sources)
        own = (files("ltnb") / name for name in ("report.css", "ledger.js"))
        for resource in (files("mathjax") / "static/mathjax/es5" / MATHJAX, *own):
            with as_file(resource) as path:
                shutil.copy(path, static)
        with docutils_namespace():  # what Sphinx registers with docutils is gone afterwards
            application = Sphinx(
                srcdir=sources,
                confdir=None,
                outdir=html,
                doctreedir=folder / "doctrees",
                buildername="html",
                confoverrides={**SETTINGS, "html_static_path": [str(static)]},
                status=None,
                warning=sys.stderr,
                warningiserror=True,
            )
            application.build()
        (html / ".buildinfo").unlink()  # a hash of temporary paths: the one file that differs from build to build
        if application.statuscode:
            raise ReportError("the report has warnings; nothing was changed")
        if report.exists():
            report.rename(folder / "old")
        html.rename(report)


def main() -> int:
    """Build report/ of the project around the current folder; returns the exit status."""
    place = Workspace.open(".")
    try:
        build(place, load(place.project / FILE_NAME), place.project / "report")
    except (ReportError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
