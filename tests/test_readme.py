"""The README: its examples run, and the files it names exist."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_examples_run():
    failures, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried > 0 and failures == 0


def test_named_files_and_names_exist():
    import bayesmtfs

    text = (ROOT / "README.md").read_text()
    for path in re.findall(r"`((?:bayesmtfs|models|notebooks)/[\w/]+\.(?:py|ipynb))`", text):
        assert (ROOT / path).exists(), path
    for name in set(re.findall(r"\bbm\.(\w+)", text)):
        assert hasattr(bayesmtfs, name), name


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_pages_for_developers_name_files_that_exist(page):
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:py|md|toml)|(?:[\w.]+/)+)`", text)
    assert named
    for path in named:
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "bayesmtfs", ROOT / "tests")), path
