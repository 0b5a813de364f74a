"""The documentation: every example runs, and every page is in the menu."""

import doctest
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "pages"
MENU = (PAGES.parent / "mkdocs.yml").read_text(encoding="utf-8")
NAMES = sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))


@pytest.mark.parametrize("name", [name for name in NAMES if ">>>" in (PAGES / name).read_text(encoding="utf-8")])
def test_examples_run(name):
    failures, _ = doctest.testfile(str(PAGES / name), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert failures == 0


def test_menu_and_pages_agree():
    assert sorted(re.findall(r"[\w/]+\.md", MENU)) == NAMES
