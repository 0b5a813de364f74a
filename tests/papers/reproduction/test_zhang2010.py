"""The protocol of Zhang, Yeung and Xu (2010): studies, standardisation, splits, and the tables' contents."""

from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from bayesmtfs.papers.reproduction import Table, zhang2010
from bayesmtfs.papers.reproduction.common import TaskRows, fit_best, stratified_splits
from bayesmtfs.papers.reproduction.zhang2010 import (
    compare_methods,
    compressed_sensing,
    largest_rows_are_true,
    measure_signals,
    task_relations,
    units_of_the_printed_rule,
)

TINY = zhang2010.Zhang2010Effort(
    n_splits=1,
    n_penalties=4,
    n_folds=2,
    q_sets=1,
    q_methods=("two_stage",),
    relation_sets=1,
    row_counts=(5,),
    sensing_sets=1,
)


def ignore(share):
    """Tell nobody how far the work is."""


@pytest.fixture
def studies():
    """Two studies on different scales, in which the first of six genes decides; the last is constant in one of them."""
    rng = np.random.default_rng(0)
    study, y = np.repeat(["a", "b"], [40, 20]), np.tile([0, 1], 30)
    X = rng.standard_normal((60, 6))
    X[:, 0] += 6.0 * y
    X[study == "b"] = 100.0 + 7.0 * X[study == "b"]
    X[study == "b", 5] = 0.1
    return TaskRows(X, y, study)


def test_genes_are_standardised_within_studies_by_training_samples(studies):
    rows = np.random.default_rng(1).permutation(60)
    train, test = studies.take(rows[:40]), studies.take(rows[40:])
    given = test.X.copy()
    scaled, unseen = zhang2010.standardized(train, test)
    for name in ("a", "b"):
        own = scaled.X[scaled.tasks == name]
        np.testing.assert_allclose(own.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(own.std(axis=0), [1, 1, 1, 1, 1, name == "a"], atol=1e-12)
    assert not unseen.X[unseen.tasks == "b", 5].any()
    np.testing.assert_array_equal(test.X, given)
    # other test samples change nothing in the training samples, nor in one another
    moved = zhang2010.standardized(train, test._replace(X=np.vstack([test.X[:1], test.X[1:] + 5.0])))
    np.testing.assert_array_equal(moved[0].X, scaled.X)
    np.testing.assert_array_equal(moved[1].X[0], unseen.X[0])


class Spy(BaseEstimator):
    """Right by the first gene where the strength is 2, wrong elsewhere; remembers what it was trained on."""

    seen: ClassVar[list] = []

    def __init__(self, penalty_strength=2):
        self.penalty_strength = penalty_strength

    def fit(self, X, y, tasks):
        self.seen.append(tasks)
        self.cuts = {task: X[tasks == task, 0].mean() for task in np.unique(tasks)}
        self.coef_ = np.ones((2, 6))
        return self

    def predict(self, X, tasks):
        decided = (X[:, 0] > [self.cuts[task] for task in tasks]).astype(int)
        return decided if self.penalty_strength == 2 else 1 - decided


def test_methods_see_training_samples_only(studies):
    Spy.seen.clear()
    found = compare_methods(studies, {"spy": (Spy(), {})}, TINY._replace(n_splits=3), 0, ignore).values
    assert [np.sum(tasks == name) for tasks in Spy.seen for name in "ab"] == [28, 14] * 3
    assert set(found[zhang2010.BY_STUDY]) == {"a: spy", "b: spy"}
    errors = found[zhang2010.ERROR]["spy"]
    np.testing.assert_allclose(errors, np.mean(list(found[zhang2010.BY_STUDY].values()), axis=0))
    assert len(errors) == 3 and errors[0] < 20


def test_strength_is_chosen_by_held_out_samples(studies):
    Spy.seen.clear()
    folds = stratified_splits([studies.tasks, studies.y], 3, 0.8, 0)
    model = fit_best(Spy(), {"penalty_strength": (1, 2, 3)}, studies, folds, zhang2010.study_scores)
    assert model.penalty_strength == 2 and [len(tasks) for tasks in Spy.seen] == [48] * 9 + [60]


@pytest.mark.parametrize("name", zhang2010.methods_for(TINY, 0))
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.DataWarning", "ignore::bayesmtfs.types.SelectionWarning")
def test_every_method_finds_the_telling_gene(studies, name):
    effort = TINY._replace(n_penalties=5, n_folds=3)
    method = {name: zhang2010.methods_for(effort, 0)[name]}
    found = compare_methods(studies, method, effort, 0, ignore).values
    assert found[zhang2010.ERROR][name][0] < 15 and 1 <= found[zhang2010.GENES][name][0] <= 6
    assert bool(found[zhang2010.NORM]) == (name.startswith("PMTFS") and "integrated" not in name)


def test_papers_figures_stand_beside_ours():
    numbers = zhang2010.BREAST.beside()
    assert numbers["PMTFS1", "error, mean over studies, %"][0] == pytest.approx((30.72 + 2.98 + 17.86) / 3)
    assert numbers["NKI: PMTFS1", "error by study, %"] == (2.98, "")
    assert ("VDX: PMTFS1", "error by study, %") not in numbers and ("NKI: other", "error by study, %") not in numbers
    assert numbers["PMTFS1", "q learned"] == (2.5003, "")


def test_signals_have_the_stated_noise_and_support():
    A, Y, truth = measure_signals(20, seed=4, n=2000)
    assert truth.sum() == 20
    residual = Y - A[:, truth] @ np.linalg.lstsq(A[:, truth], Y)[0]
    assert 10 * np.log10(np.mean(Y**2) / np.mean(residual**2)) == pytest.approx(30.0, abs=0.3)


def test_largest_rows():
    truth = np.array([True, False, True, False])
    assert largest_rows_are_true(np.array([[3.0, 0.1, -2.0, 0.0]]), truth)
    assert not largest_rows_are_true(np.array([[3.0, 2.5, -2.0, 0.0]]), truth)


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.DataWarning")
def test_simulations_show_what_the_remarks_say():
    units = {figure.method: figure.mean for figure in units_of_the_printed_rule(TINY, 0, ignore).figures}
    printed, staged = ([mean for name, mean in units.items() if name.startswith(start)] for start in ("as", "two"))
    assert max(printed) / min(printed) > 5 and max(staged) / min(staged) < 1.001
    found = compressed_sensing(TINY._replace(row_counts=(35,), sensing_sets=2), 0, ignore)
    sensing = {figure.method: figure.mean for figure in found.figures}
    assert sensing["35 rows: l1,2, best penalty"] == 0.0 and sensing["35 rows: PMTFS1, W integrated out"] == 100.0
    relations = task_relations(TINY, 0, ignore).figures
    assert all(figure.mean > 90 for figure in relations if figure.measure.endswith("right sign, %"))


def test_a_small_run_gives_all_tables(need_data, monkeypatch):
    need_data("breast_er", "prostate_studies", "prostate_singh")
    methods = {name: zhang2010.methods_for(TINY, 0)[name] for name in ("MTFS1,2", "PMTFS1")}
    monkeypatch.setattr(zhang2010, "methods_for", lambda effort, seed: methods)
    outcome = zhang2010.PAPER._replace(quick=TINY).run(quick=True, seed=0, progress=False)
    assert outcome.quick and outcome.skipped == () and len(outcome.tables) == 7
    for table in outcome.tables[:2]:
        errors = {figure.method: figure.mean for figure in table.figures if figure.measure.startswith("error, mean")}
        assert set(errors) == set(methods) and all(0 <= error < 30 for error in errors.values())
    assert all("|" not in figure.measure + figure.method for table in outcome.tables for figure in table.figures)


@pytest.mark.usefixtures("no_data")
def test_without_data_the_simulations_remain():
    simulations = {name: lambda *_: Table("made", "", ()) for name in list(zhang2010.PAPER.jobs)[3:]}
    outcome = zhang2010.PAPER._replace(jobs={**zhang2010.PAPER.jobs, **simulations}).run(quick=True, progress=False)
    assert len(outcome.tables) == 4 and len(outcome.skipped) == 3
