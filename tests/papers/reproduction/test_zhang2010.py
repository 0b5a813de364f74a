"""The protocol of Zhang, Yeung and Xu (2010): studies, standardisation, splits, and the tables' contents."""

import numpy as np
import pytest

from bayesmtfs.papers.reproduction import Table, cancer_studies, zhang2010
from bayesmtfs.papers.reproduction.cancer_studies import Effort, Studies
from bayesmtfs.papers.reproduction.zhang2010 import (
    compressed_sensing,
    largest_rows_are_true,
    measure_signals,
    task_relations,
    units_of_the_printed_rule,
)

TINY = zhang2010.Zhang2010Effort(
    Effort(n_splits=1, n_penalties=4, n_folds=2),
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
    return Studies(X, y, study)


def test_genes_are_standardised_within_studies_by_training_samples(studies):
    rows = np.random.default_rng(1).permutation(60)
    train, test = studies.take(rows[:40]), studies.take(rows[40:])
    given = test.X.copy()
    scaled, unseen = cancer_studies.standardized(train, test)
    for name in ("a", "b"):
        own = scaled.X[scaled.study == name]
        np.testing.assert_allclose(own.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(own.std(axis=0), [1, 1, 1, 1, 1, name == "a"], atol=1e-12)
    assert not unseen.X[unseen.study == "b", 5].any()
    np.testing.assert_array_equal(test.X, given)
    # other test samples change nothing in the training samples, nor in one another
    moved = cancer_studies.standardized(train, test._replace(X=np.vstack([test.X[:1], test.X[1:] + 5.0])))
    np.testing.assert_array_equal(moved[0].X, scaled.X)
    np.testing.assert_array_equal(moved[1].X[0], unseen.X[0])


def test_methods_see_training_samples_only(studies):
    seen = []

    def spy(train, effort, seed):
        seen.append(train)
        return cancer_studies.ridge_at(train, 0.1)

    found = cancer_studies.compare_methods(studies, {"spy": spy}, Effort(3, 4, 2), 0, ignore)["spy"]
    assert [np.sum(train.study == name) for train in seen for name in "ab"] == [28, 14] * 3
    assert len(found) == 3 and set(found[0].by_study) == {"a", "b"}
    assert found[0].error == pytest.approx(np.mean(list(found[0].by_study.values()))) and found[0].error < 20


def test_strength_is_chosen_by_held_out_samples(studies):
    class Guess:
        """Right where the strength is 2, wrong elsewhere."""

        def __init__(self, train, strength):
            self.strength, self.n_train = strength, len(train.y)

        def predict(self, X, tasks):
            decided = (X[:, 0] > np.where(tasks == "a", 3.0, 121.0)).astype(int)
            return decided if self.strength == 2 else 1 - decided

    model = cancer_studies.tuned(Guess, (1, 2, 3))(studies, Effort(1, 4, 3), 0)
    assert model.strength == 2 and model.n_train == 60


@pytest.mark.parametrize("name", cancer_studies.METHODS)
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.DataWarning", "ignore::bayesmtfs.types.SelectionWarning")
def test_every_method_finds_the_telling_gene(studies, name):
    method = {name: cancer_studies.METHODS[name]}
    result = cancer_studies.compare_methods(studies, method, Effort(1, 5, 3), 0, ignore)[name][0]
    assert result.error < 15 and 1 <= result.n_genes <= 6
    assert (result.norm_q is not None) == (name.startswith("PMTFS") and "integrated" not in name)


def test_papers_figures_stand_beside_ours():
    results = {name: [cancer_studies.Result(5.0, {"NKI": 1.0, "VDX": 9.0}, 7, 2.0)] for name in ("PMTFS1", "other")}
    figures = {(f.method, f.measure): f for f in cancer_studies.figures_of(results, zhang2010.BREAST)}
    assert figures["PMTFS1", "error, mean over studies, %"].paper == pytest.approx((30.72 + 2.98 + 17.86) / 3)
    assert figures["NKI: PMTFS1", "error by study, %"].paper == 2.98
    assert all(figures[name, "error by study, %"].paper is None for name in ("VDX: PMTFS1", "NKI: other"))
    assert figures["PMTFS1", "q learned"].paper == 2.5003 and figures["PMTFS1", "genes"].mean == 7


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
    units = {figure.method: figure.mean for figure in units_of_the_printed_rule(1, 0, ignore).figures}
    printed, staged = ([mean for name, mean in units.items() if name.startswith(start)] for start in ("as", "two"))
    assert max(printed) / min(printed) > 5 and max(staged) / min(staged) < 1.001
    sensing = {figure.method: figure.mean for figure in compressed_sensing((35,), 2, 0, ignore).figures}
    assert sensing["35 rows: l1,2, best penalty"] == 0.0 and sensing["35 rows: PMTFS1, W integrated out"] == 100.0
    relations = task_relations(1, 0, ignore).figures
    assert all(figure.mean > 90 for figure in relations if figure.measure.endswith("right sign, %"))


def test_a_small_run_gives_all_tables(need_data, monkeypatch):
    need_data("breast_er", "prostate_studies", "prostate_singh")
    methods = {name: cancer_studies.METHODS[name] for name in ("MTFS1,2", "PMTFS1")}
    monkeypatch.setattr(zhang2010, "QUICK", TINY)
    monkeypatch.setattr(zhang2010, "METHODS", methods)
    outcome = zhang2010.run(quick=True, seed=0, progress=False)
    assert outcome.quick and outcome.skipped == () and len(outcome.tables) == 7
    for table in outcome.tables[:2]:
        errors = {figure.method: figure.mean for figure in table.figures if figure.measure.startswith("error, mean")}
        assert set(errors) == set(methods) and all(0 <= error < 30 for error in errors.values())
    assert all("|" not in figure.measure + figure.method for table in outcome.tables for figure in table.figures)


@pytest.mark.usefixtures("no_data")
def test_without_data_the_simulations_remain(monkeypatch):
    for name in ("learning_q", "units_of_the_printed_rule", "task_relations", "compressed_sensing"):
        monkeypatch.setattr(zhang2010, name, lambda *given, name=name: Table(name, "", ()))
    outcome = zhang2010.run(quick=True, progress=False)
    assert len(outcome.tables) == 4 and len(outcome.skipped) == 3
