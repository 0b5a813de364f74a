"""The README: its examples run, and the files it names exist."""

import doctest
import re
import shlex
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayesmtfs as bm
from bayesmtfs.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=3, n_features=4, n_relevant=2, n_samples=30, random_state=0)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_examples_run():
    failures, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert tried > 0 and failures == 0


def test_commands_for_a_table_work_as_printed(sim, here):
    frame = pd.DataFrame(sim.X, columns=["a", "b", "c", "d"]).assign(school=sim.tasks, score=sim.y)
    frame.to_csv("table.csv", index=False)
    frame.drop(columns="score").iloc[::9].to_csv("new.csv", index=False)
    printed = [line.partition("#")[0] for line in README.splitlines() if line.startswith("uv run bayesmtfs ")]
    assert len(printed) == 3
    for line in printed:
        result = CliRunner().invoke(app, shlex.split(line)[3:])
        assert result.exit_code == 0, result.output
    assert {path.name for path in (here / "results").iterdir()} >= {"model.bayesmtfs", "effects.csv", "report.html"}
    assert len(pd.read_csv("predictions.csv")) == 10


def test_lines_without_a_prompt_run(sim, here):
    """The block that is no doctest, with fits that take less time."""
    (block,) = [text for text in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL) if ">>>" not in text]
    own = {"bm": bm, "sim": sim}
    own["model"] = bm.MixedNormRegressor(penalty_strength=0.1).fit(sim.X, sim.y, tasks=sim.tasks)
    own["em"] = bm.JeffreysRegressor().fit(sim.X, sim.y, tasks=sim.tasks)
    draws = {"draws": 100, "tune": 100, "chains": 2, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        own["posterior"] = bm.BayesianRegressor(**draws).fit(sim.X, sim.y, tasks=sim.tasks)
        exec(block, own)
    plt.close("all")
    assert "Side by side" in (here / "report.html").read_text(encoding="utf-8")


def test_named_files_and_names_exist():
    for path in re.findall(r"`((?:bayesmtfs|models|notebooks|docs)/[\w/]+\.(?:py|ipynb|md))`", README):
        assert (ROOT / path).exists(), path
    for name in set(re.findall(r"\bbm\.(\w+)", README)):
        assert hasattr(bm, name), name
    for name in set(re.findall(r"\bbm\.selection\.(\w+)", README)):
        assert hasattr(bm.selection, name), name
    table = README.partition("## Methods")[2].partition("## Results")[0]
    for name in set(re.findall(r"`(\w+(?:Regressor|Classifier|Selector|CV))\b", table)):
        assert hasattr(bm, name), name


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_pages_for_developers_name_files_that_exist(page):
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:py|md|toml)|(?:[\w.]+/)+)`", text)
    assert named
    for path in named:
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "bayesmtfs", ROOT / "tests")), path
