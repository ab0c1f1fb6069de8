import base64
import json
import re
from html.parser import HTMLParser

import pytest

from ltnb.notebooks import read, to_bytes
from ltnb.params import load
from ltnb.report import assemble, build, main, page, page_title
from ltnb.workspace import Workspace

# The theme uses what Sphinx 11 will drop.
pytestmark = pytest.mark.filterwarnings("ignore::sphinx.deprecation.RemovedInSphinx11Warning")

PARAMS = """
datasets:
  digits-if100: {source: digits, imbalance: 100}
methods:
  ce: {system: ce}
  bcl: {system: bcl}
seeds: [0, 1]
training: {}
"""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel, PNG
)


def markdown(source):
    return {"cell_type": "markdown", "id": "m", "metadata": {}, "source": source}


def code(source, *tags, outputs=()):
    metadata = {"tags": list(tags)} if tags else {}
    return {
        "cell_type": "code",
        "execution_count": 1,
        "id": "c",
        "metadata": metadata,
        "outputs": list(outputs),
        "source": source,
    }


def executed(method):
    cells = [
        markdown("# Geometry\n\nThe simplex has $\\cos\\theta = -1/(K-1)$, and\n\n$$\\sum_k w_k = 0$$\n\n## Angles"),
        code("method = 'default'", "parameters"),
        code(f"method = '{method}'", "injected-parameters"),
        code(
            "draw()",
            outputs=[
                {"data": {"image/png": PIXEL, "text/plain": "<Figure>"}, "metadata": {}, "output_type": "display_data"},
                {
                    "data": {"text/html": "<table class='dataframe'><tr><td>0.91</td></tr></table>", "text/plain": ""},
                    "execution_count": 1,
                    "metadata": {},
                    "output_type": "execute_result",
                },
                {"data": {"text/latex": "$\\tau$", "text/plain": "tau"}, "metadata": {}, "output_type": "display_data"},
            ],
        ),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    metadata = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


LEDGER = """\
id,paper,number,statement,assumptions,verdict,detail,evidence,outstanding,where
a,bcl,Theorem 1,"$L\\ge0$.",Unit length.,holds,,derived,"numerical, trained",theory/01_regular_simplex
b,bcl,Theorem 3,It is attained.,Any counts.,holds only under,equal counts,"derived, numerical",,experiments/compare
c,pal,Lemma 1,It is so.,None.,not yet checked,,,derived,theory/06_anchored_prototypes
"""


def put(folder, notebook):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notebook.ipynb").write_bytes(to_bytes(notebook))


THEORY = to_bytes({"cells": [markdown("# The regular simplex")], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def make_project(folder):
    (folder / "params.yaml").write_text(PARAMS)
    place = Workspace(folder, folder)
    params = load(folder / "params.yaml")
    for name, content in (("claims/ledger.csv", LEDGER.encode()), ("theory/01_regular_simplex.ipynb", THEORY)):
        (folder / "results" / name).parent.mkdir(parents=True)
        (folder / "results" / name).write_bytes(content)
    for dataset in params.datasets:
        put(place.results(dataset, "compare"), executed("all"))
        figures = place.results(dataset, "compare") / "figures"
        figures.mkdir()
        (figures / "headline.png").write_bytes(base64.b64decode(PIXEL))
        for method in params.methods:
            put(place.results(dataset, method), executed(method))
            for seed in params.seeds:
                put(place.run(dataset, method, seed), executed(method))
                (place.run(dataset, method, seed) / "metrics.json").write_text(json.dumps({"accuracy": 0.5 + seed / 8}))
    return place, params


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    place, params = make_project(folder)
    (folder / "report").mkdir()
    (folder / "report" / "stale.html").touch()
    build(place, params, folder / "report")
    return folder


def pages_of(project):
    """The pages, without the theme's own snippets."""
    return [path for path in (project / "report").rglob("*.html") if "_static" not in path.parts]


def html(project, name):
    return (project / "report" / name).read_text()


def test_every_notebook_has_its_page_and_the_old_report_is_gone(project):
    pages = {str(path.relative_to(project / "report")) for path in pages_of(project)}
    runs = {f"digits-if100/runs/{method}-seed-{seed}.html" for method in ("ce", "bcl") for seed in (0, 1)}
    parts = {f"digits-if100/{name}.html" for name in ("compare", "ce", "bcl", "training")}
    theory = {"theory/01_regular_simplex.html", "theory/ledger.html"}
    assert pages == {"index.html", "genindex.html", "search.html"} | parts | runs | theory
    assert sorted(path.name for path in project.iterdir()) == ["params.yaml", "report", "results", "runs"]


def test_the_first_page_shows_the_headline_the_settings_and_every_method(project):
    index = html(project, "index.html")
    assert "_images/headline.png" in index
    assert "imbalance" in index
    for name in ("compare", "ce", "bcl", "training"):
        assert f'href="digits-if100/{name}.html"' in index


def test_a_page_shows_figure_table_math_and_the_parameters_of_its_run(project):
    text = html(project, "digits-if100/bcl.html")
    assert re.search(r'<img [^>]*src="\.\./_images/[0-9a-f]+\.png"', text)
    assert "<td>0.91</td>" in text
    assert r"\sum_k w_k = 0" in text
    assert r"\[\tau\]" in text
    assert "method = 'bcl'" in re.sub(r"<[^>]+>", "", text).replace("&#39;", "'")


def test_the_training_page_links_each_accuracy_to_its_run(project):
    text = html(project, "digits-if100/training.html")
    assert re.search(r'href="runs/bcl-seed-1\.html"><span[^>]*>62\.5 %', text)


def cells_of(table):
    return [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr.*?>(.*?)</tr>", table, re.DOTALL)]


def test_the_ledger_counts_verdicts_and_puts_each_second_with_what_is_outstanding(project):
    summary, bcl, pal = re.findall(r"<table.*?</table>", html(project, "theory/ledger.html"), re.DOTALL)
    numbers = [re.findall(r">(\d+)<", row) for row in re.findall(r"<tr.*?</tr>", summary, re.DOTALL)]
    assert re.findall(r"<p>(h.*?|n.*?)</p>", summary) == ["holds", "holds only under", "not yet checked"]
    assert numbers == [[], ["1", "1", "0"], ["0", "0", "1"], ["1", "1", "1"]]

    _, theorem_1, theorem_3 = cells_of(bcl)
    assert '<span class="verdict holds">holds</span>' in theorem_1[1]
    assert '<span class="outstanding">outstanding: numerical, trained</span>' in theorem_1[1]
    assert 'href="01_regular_simplex.html"' in theorem_1[3]
    assert r"\(L\ge0\)" in theorem_1[2]
    assert '<span class="verdict holds-only-under">' in theorem_3[1]
    assert "outstanding" not in theorem_3[1]
    assert "equal counts (derived, numerical)" in theorem_3[3]
    assert 'href="../digits-if100/compare.html"' in theorem_3[3]
    assert "<em>theory/06_anchored_prototypes</em>" in cells_of(pal)[1][3]  # it did not run: there is no page of it


def test_the_ledger_has_all_its_columns_and_a_choice_of_rows(project):
    text = html(project, "theory/ledger.html")
    assert "ledger.js" in text
    assert "bd-sidebar-secondary" not in text  # the page's contents, at the right, would take the table's room
    for name in ("verdict", "outstanding", "ledger"):  # what the script looks for
        assert f".{name}" in (project / "report/_static/ledger.js").read_text()
        assert f'class="{name}' in text or f" {name}" in text


class Loaded(HTMLParser):
    """Addresses that a browser fetches by itself when it opens a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        names = ["src", "data", "poster"] + (["href"] if tag == "link" else [])
        self.addresses += [attributes[name] for name in names if attributes.get(name)]


def test_nothing_is_loaded_from_a_network_and_everything_loaded_is_there(project):
    for path in pages_of(project):
        loaded = Loaded()
        loaded.feed(path.read_text())
        assert path.name != "bcl.html" or any("tex-svg.js" in address for address in loaded.addresses)
        for address in loaded.addresses:
            assert not re.match(r"(https?:)?//", address), path
            file = (path.parent / re.split(r"[?#]", address)[0]).resolve()
            assert file.exists(), (path, address)
    for path in (project / "report").rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text()), path


def test_the_noise_and_the_baselines_have_rooms_beside_the_papers(tmp_path):
    place, params = make_project(tmp_path)
    for name in ("baselines", "noise", "pal"):
        put(place.results("papers", name), executed(name) | {"cells": [markdown(f"# What of {name}?")]})
    assemble(place, params, tmp_path / "sources")
    rooms = re.findall(r"What of (\w+)\? <papers/(\w+)\.ipynb>", (tmp_path / "sources" / "index.md").read_text())
    assert [name for name, _ in rooms] == ["pal", "noise", "baselines"]
    titles = {name: page_title(read(tmp_path / "sources" / "papers" / f"{name}.ipynb")) for name, _ in rooms}
    assert titles["baselines"] == "What of baselines? (digits)"
    assert titles["pal"] == "What of pal? (digits-if100)"


def test_a_missing_notebook_is_named_and_the_report_stays(tmp_path, monkeypatch, capsys):
    place, _ = make_project(tmp_path)
    missing = place.results("digits-if100", "bcl") / "notebook.ipynb"
    missing.unlink()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("before")
    monkeypatch.chdir(tmp_path)
    assert main() == 1
    assert str(missing) in capsys.readouterr().err
    assert html(tmp_path, "index.html") == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["params.yaml", "report", "results", "runs"]


def test_a_run_without_a_notebook_has_a_page_that_says_why(tmp_path):
    make_project(tmp_path)
    place = Workspace(tmp_path, tmp_path)
    (place.run("digits-if100", "bcl", 1) / "notebook.ipynb").unlink()
    (tmp_path / "sources").mkdir()
    assemble(place, load(tmp_path / "params.yaml"), tmp_path / "sources")
    (cell,) = read(tmp_path / "sources" / "digits-if100" / "runs" / "bcl-seed-1.ipynb")["cells"]
    assert "# One training run: bcl, seed 1\n\nTrained by processes that torchrun started" in "".join(cell["source"])


def test_a_warning_of_sphinx_is_an_error_and_the_report_stays(tmp_path, monkeypatch, capsys):
    place, _ = make_project(tmp_path)
    put(place.results("digits-if100", "bcl"), executed("bcl") | {"cells": [markdown("# A\n\n![](missing.png)")]})
    monkeypatch.chdir(tmp_path)
    assert main() == 1
    assert "missing.png" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


def test_what_a_page_is_about_joins_its_title():
    titled = {"cells": [markdown(["# Geometry\n", "text"]), code("1")], "metadata": {}}
    assert page(titled, "bcl")["cells"] == [markdown("# Geometry: bcl\ntext"), code("1", "hide-input")]
    question = {"cells": [markdown("# BCL: does it help?")], "metadata": {}}
    assert page(question, "digits-if100")["cells"] == [markdown("# BCL: does it help? (digits-if100)")]
    with pytest.raises(ValueError, match=r"about bcl: expected .* found \['1'\]"):
        page({"cells": [code("1")], "metadata": {}}, "bcl")
