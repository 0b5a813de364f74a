"""The documentation: every example runs, every page is in a menu, docstrings survive, and notebooks are in two forms."""

import doctest
import re
import sys
from pathlib import Path

import jupytext
import pytest

import bayesmtfs
from bayesmtfs import public_names

DOCS = Path(__file__).parents[1] / "docs"
PAGES = DOCS / "pages"
NAMES = sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))
NOTEBOOKS = sorted((DOCS.parent / "notebooks").glob("*.py"))


def text(name):
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in NAMES if ">>>" in text(name)])
def test_examples_run(name):
    failures, _ = doctest.testfile(str(PAGES / name), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert failures == 0


def test_every_page_is_in_one_menu():
    listed = ["index"]
    for name in NAMES:
        for menu in re.findall(r"```\{toctree\}\n(.*?)```", text(name), flags=re.DOTALL):
            entries = [line for line in menu.splitlines() if line and not line.startswith(":") and "*" not in line]
            found = [re.sub(r".*<(.+)>", r"\1", entry) for entry in entries]
            listed += [str(Path(name).parent / entry) for entry in found]
    assert sorted(f"{name}.md" for name in listed) == NAMES


def test_every_public_name_is_in_the_reference():
    shown = "".join(text(name) for name in NAMES if name.startswith("api/"))
    for name in {*public_names.HOMES} - {*public_names.BASELINES}:
        assert f"bayesmtfs.{name}\n" in shown, name
    for name in public_names.MODULES:
        assert f"automodule:: bayesmtfs.{name}\n" in shown, name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script(path):
    script, notebook = jupytext.read(path), jupytext.read(path.with_suffix(".ipynb"))
    cells = [[(cell.cell_type, cell.source) for cell in one.cells] for one in (script, notebook)]
    assert cells[0] == cells[1]
    assert not any(cell.get("outputs") for cell in notebook.cells), "the documentation executes notebooks"


@pytest.fixture
def docstrings(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import docstrings

    yield docstrings
    del sys.modules["docstrings"]


def rendered(docstrings, plain):
    """What docutils makes of a plain docstring: its text, and its literal blocks."""
    from docutils import nodes
    from docutils.core import publish_doctree

    lines = docstrings.escaped(docstrings.literal_blocks(plain.splitlines()))
    tree = publish_doctree("\n".join(lines), settings_overrides={"report_level": 1, "halt_level": 1})
    return tree.astext(), [block.astext() for block in tree.findall(nodes.literal_block)]


def test_marks_in_a_docstring_mean_themselves(docstrings):
    plain = "The |effect| of w_ and coef_, a * b and ``c * d_``; a lone * and a path\\name."
    assert rendered(docstrings, plain)[0] == plain.replace("``", "")


def test_formulas_in_a_docstring_keep_their_lines(docstrings):
    plain = "With both:\n\n    minimise  |W|_1 * 2\n              + f(W_)\n\nThe end_."
    text, blocks = rendered(docstrings, plain)
    assert blocks == ["minimise  |W|_1 * 2\n          + f(W_)"]
    assert text.endswith("The end_.")


def test_the_whole_package_has_readable_docstrings(docstrings):
    for name in public_names.HOMES:
        if name not in public_names.BASELINES:
            above = getattr(bayesmtfs, name).__doc__.split("\n\nParameters")[0]
            rendered(docstrings, above)
