"""Landmine and spam: their protocol, the measure, and a small run."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bayesmtfs import simulate_tasks
from bayesmtfs.papers.reproduction import murugesan2016
from bayesmtfs.papers.reproduction.common import TaskRows, split_each_task
from bayesmtfs.papers.reproduction.murugesan2016 import ACCURACY, AUC, BATCH, LANDMINE_UNIT, SECONDS, SPAM


@pytest.fixture(scope="module")
def simulated():
    sim = simulate_tasks(n_tasks=3, n_samples=60, n_features=5, n_relevant=3, kind="classification", random_state=0)
    return TaskRows(sim.X, sim.y, sim.tasks)


class Scores:
    """A model with the scores it was given."""

    def __init__(self, scores):
        self.scores = scores

    def decision_function(self, X, tasks):
        return self.scores


def test_auc_is_averaged_over_tasks_that_have_both_classes():
    rng = np.random.default_rng(0)
    y, tasks, scores = rng.integers(0, 2, 60), np.repeat([0, 1, 2], 20), rng.standard_normal(60)
    y[tasks == 2] = 0
    expected = np.mean([roc_auc_score(y[tasks == t], scores[tasks == t]) for t in (0, 1)])
    assert murugesan2016.mean_auc(Scores(scores), TaskRows(np.empty((60, 0)), y, tasks)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "reader", "n_train", "n_tasks"),
    [("landmine", murugesan2016.read_landmine, 160, 19), ("spam", murugesan2016.read_spam, 100, 15)],
    ids=["landmine", "spam"],
)
def test_draws_keep_the_share_of_positives(need_data, name, reader, n_train, n_tasks):
    need_data(name)
    data = reader()
    split = split_each_task(data.tasks, n_train, 0, data.y)
    assert len(split.train) == n_train * n_tasks and not np.intersect1d(split.train, split.test).size
    for task in np.unique(data.tasks):
        share = data.y[data.tasks == task].mean()
        assert abs(data.y[split.train][data.tasks[split.train] == task].mean() - share) <= 0.5 / n_train


@pytest.mark.parametrize("method", [*LANDMINE_UNIT, *BATCH], ids=lambda method: method.name)
def test_every_method_learns_at_its_stated_setting_and_with_its_grid(simulated, method):
    grid = {name: values[:1] for name, values in method.grid.items()} | dict([next(iter(method.grid.items()))])
    small = method._replace(grid=grid)
    stated, tuned = (murugesan2016.measure(small, simulated, 30, folds, 0) for folds in (0, 2))
    assert stated[AUC] > 0.6 and tuned[AUC] > 0.6 and stated[SECONDS] > 0
    assert set(tuned) == {AUC, ACCURACY}  # the time would be that of the choice


def test_tables_have_the_papers_seven_rows_in_order():
    names = ["PA-ONE", "PA-ITL", "OSGL", "FOML", "OMTRL", "OSMTL-t", "OSMTL-e"]
    for methods, first, last in ((LANDMINE_UNIT, 0.5473, 0.6404), (SPAM, 0.8739, 0.9596)):
        assert [method.name for method in methods] == names
        assert (methods[0].paper, methods[-1].paper) == (first, last)


def test_landmine_table_lies_in_the_range_of_the_paper(need_data):
    need_data("landmine")
    effort = murugesan2016.PAPER.quick._replace(draws={"Landmine online": (2, 0)})
    table = murugesan2016.compare("Landmine online", False, effort, 0, lambda share: None)
    assert murugesan2016.compare("Landmine online", True, effort, 0, lambda share: None) is None
    reached = {figure.method: figure for figure in table.figures if figure.measure == AUC}
    assert len(reached) == 14
    for name in ("PA-ITL", "OSGL", "OSMTL-t", "OSMTL-e"):
        assert 0.6 < reached[f"{name}, unit rows"].mean < 0.78
    assert reached["OSMTL-t, unit rows"].mean > reached["OSMTL-t, raw rows"].mean


def test_what_cannot_be_run_is_named(no_data):
    outcome = murugesan2016.PAPER.run(quick=True, progress=False)
    assert outcome.tables == ()
    assert any(text.startswith("Sentiment") for text in outcome.skipped)
    assert any(text.startswith("Spam online: the data could not be read.") for text in outcome.skipped)
