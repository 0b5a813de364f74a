"""USPS, MIML and Protein: the draws, the selectors, and a small run on simulated classes."""

import numpy as np
import pytest

from bayesmtfs.papers.baselines import FisherScoreSelector
from bayesmtfs.papers.reproduction import han2013
from bayesmtfs.papers.reproduction.common import Split
from bayesmtfs.papers.reproduction.han2013 import EachClassAgainstTheRest, Entrant, Han2013Effort, SelectionProblem

METHODS = {"Fisher score", "SBMLR", "SVM-21", "LSR-21", "FSSI", "DMTFS", "random"}
TELLING = (2, 7)  # the features that differ between classes


def simulated_problem(n_classes, in_tasks):
    rng = np.random.default_rng(0)
    y = np.arange(40 * n_classes) % n_classes
    X = rng.standard_normal((len(y), 12))
    X[:, TELLING[0]] += 4.0 * (y % 2)
    X[:, TELLING[1]] += 4.0 * (y // 2)
    paper = han2013.printed(0.5, 0.4, 0.3, 0.3, 0.3, 0.4, 0.6)
    # classes 0 and 3, and classes 1 and 2, differ in both features
    return SelectionProblem(
        "Simulated", X, y, np.isin(y, [0, 3]) if in_tasks else None, (2, 6), paper, "Simulated classes."
    )


@pytest.mark.parametrize("n_test", [None, 30])
def test_five_training_rows_of_each_class_and_disjoint_test_rows(n_test):
    y = np.repeat([0, 1, 2], [20, 30, 50])
    splits = han2013.draw_splits(y, 3, n_test, seed=0)
    for split in splits:
        assert np.bincount(y[split.train]).tolist() == [5, 5, 5]
        assert len(split.test) == (85 if n_test is None else n_test)
        assert not np.intersect1d(split.train, split.test).size
    assert len({tuple(np.sort(split.train)) for split in splits}) == 3


def test_rate_of_the_most_frequent_class():
    y = np.array([0, 0, 1, 1, 1, 2])
    split = Split(np.array([0, 5]), np.array([1, 2, 3, 4]))
    assert han2013.majority_rates(y, [split]) == [75.0]


def test_classes_against_the_rest_become_tasks():
    problem = simulated_problem(3, in_tasks=False)
    found = EachClassAgainstTheRest(FisherScoreSelector()).fit(problem.X, problem.y)
    assert set(np.argsort(found.ranking_)[:2]) == set(TELLING)


@pytest.mark.parametrize(("n_classes", "in_tasks"), [(4, True), (3, False)])
def test_the_benchmark_sees_every_selector_and_all_features(monkeypatch, n_classes, in_tasks):
    monkeypatch.setattr(han2013, "SINGLE_TASK", {name: shorter(e) for name, e in han2013.SINGLE_TASK.items()})
    monkeypatch.setattr(han2013, "TWO_STRENGTHS", {name: shorter(e) for name, e in han2013.TWO_STRENGTHS.items()})
    problem = simulated_problem(n_classes, in_tasks)
    table = han2013.compare_selectors(lambda: problem, Han2013Effort(2, None, tuned=True), 0, lambda share: None)
    by_measure = {}
    for figure in table.figures:
        by_measure.setdefault(figure.measure, {})[figure.method] = figure
    few = by_measure["accuracy with 2 features, %"]
    assert set(few) == METHODS
    assert few["DMTFS"].mean > few["random"].mean and few["DMTFS"].mean > 70.0
    accuracy = by_measure[han2013.ACCURACY]
    assert set(accuracy) - METHODS == {
        "all features",
        "most frequent class",
        "DMTFS, best mean by the test rows",
        "DMTFS, best of each draw",
    }
    assert accuracy["DMTFS"].paper == 60.0 and accuracy["all features"].paper == 50.0
    # whoever chooses by the test rows cannot do worse than who does not
    assert accuracy["DMTFS, best of each draw"].mean >= accuracy["DMTFS, best mean by the test rows"].mean
    assert accuracy["DMTFS, best of each draw"].mean >= accuracy["DMTFS"].mean
    assert set(by_measure[han2013.BALANCED]) == METHODS | {"all features"}


def shorter(entrant):
    """At most two values of the first strength, one of the others."""
    return Entrant(
        entrant.selector,
        {name: values[: 2 if place == 0 else 1] for place, (name, values) in enumerate(entrant.grid.items())},
    )


def test_problems_have_the_sizes_of_the_data(need_data):
    need_data("usps", "miml_scene", "protein")
    problems = [han2013.digits(), han2013.scenes(), han2013.proteins()]
    assert [problem.X.shape for problem in problems] == [(9298, 256), (1543, 135), (2871, 357)]
    assert [len(np.unique(problem.y)) for problem in problems] == [10, 5, 3]
    assert [problem.paper["DMTFS"] for problem in problems] == pytest.approx([81.55, 39.17, 43.65])


def test_what_cannot_be_run_is_named(no_data):
    outcome = han2013.PAPER.run(quick=True, progress=False)
    assert outcome.tables == ()
    assert [text.split(":")[0] for text in outcome.skipped] == ["USPS", "MIML", "Protein", "SensIT Vehicle (table 1)"]
