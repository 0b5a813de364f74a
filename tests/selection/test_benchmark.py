"""The benchmark: nothing of the test rows leaks, every kind of selector enters, tables and messages."""

import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.neighbors import KNeighborsClassifier

from bayesmtfs import MixedNormClassifier, MixedNormRegressor
from bayesmtfs.estimators.discriminative import DiscriminativeSelector
from bayesmtfs.estimators.em import JeffreysClassifier
from bayesmtfs.papers.baselines import FisherScoreSelector, RandomSelector
from bayesmtfs.selection import benchmark_selectors
from bayesmtfs.selection.benchmark import (
    LabelledRows,
    binary_tasks,
    draw_splits,
    feature_order,
    inner_folds,
    strata,
)

matplotlib.use("Agg")


def labelled(n=60, p=15, classes=(3, 2), seed=0):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(classes)), n)
    y = np.concatenate([10 * t + np.arange(n) % c for t, c in enumerate(classes)])
    X = rng.standard_normal((len(y), p))
    for label in np.unique(y):
        X[np.ix_(y == label, [1, 4, 7])] += 2.0 * rng.standard_normal(3)
    return X, y, tasks


@pytest.fixture(scope="module")
def data():
    return labelled()


@pytest.fixture(scope="module")
def found(data):
    X, y, tasks = data
    entrants = {
        "fisher": FisherScoreSelector(),
        "trace ratio": (DiscriminativeSelector(), {"joint_strength": [1e-4, 1e-2]}),
        "random": None,
    }
    return benchmark_selectors(entrants, X, y, tasks, k=[3, 8], n_splits=4, random_state=0)


class Recorder(BaseEstimator):
    """Remembers the rows of every fit (the first feature is the number of the row)."""

    seen: list = []  # noqa: RUF012

    def __init__(self, flip=False):
        self.flip = flip

    def fit(self, X, y, tasks=None):
        Recorder.seen.append(np.sort(X[:, 0].astype(int)))
        self.scores_ = np.arange(X.shape[1], dtype=float) * (-1 if self.flip else 1)
        return self


# ---------------------------------------------------------------------- fairness


def test_no_selector_ever_sees_a_test_row(data):
    X, y, tasks = data
    X = np.column_stack([np.arange(len(y)), X])
    splits = [(np.arange(0, 120, 2), np.arange(1, 120, 2)), (np.arange(60), np.arange(60, 120))]
    Recorder.seen = []
    entry = (Recorder(), {"flip": [False, True]})
    benchmark_selectors({"recorder": entry}, X, y % 2, k=[2, 4], splits=splits, n_inner_folds=3)
    for seen in Recorder.seen:
        assert any(set(seen) <= set(train) for train, _ in splits)
    folds = [len(seen) for seen in Recorder.seen]
    assert max(folds) == 60 and sorted(set(folds))[0] <= 42  # inner fits are on a part of the training rows


def test_noise_stays_at_chance_however_large_the_grid():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 200)), np.arange(60) % 2
    grid = {"random_state": list(range(6))}
    found = benchmark_selectors({"r": (RandomSelector(), grid)}, X, y, k=[5, 20], n_splits=6, test_size=0.5)
    error = found.values("r", "chosen").std(ddof=1) / np.sqrt(6)
    assert abs(found.values("r", "chosen").mean() - 0.5) < 4 * error + 0.02


def test_all_selectors_get_the_same_splits_and_two_runs_agree(data):
    X, y, tasks = data
    entrants = {"one": FisherScoreSelector(), "same": FisherScoreSelector()}
    with parallel_config("threading"):
        runs = [
            benchmark_selectors(entrants, X, y, tasks, k=[2, 5], n_splits=3, random_state=1, n_jobs=jobs)
            for jobs in (None, 2)
        ]
    np.testing.assert_array_equal(runs[0].values("one", 5), runs[0].values("same", 5))
    np.testing.assert_array_equal(runs[0].values("one", "chosen"), runs[1].values("one", "chosen"))


def test_the_better_setting_is_chosen_inside(data):
    X, y, tasks = data
    worst_first = BestOrWorst()
    found = benchmark_selectors({"s": (worst_first, {"best": [False, True]})}, X, y, tasks, k=[3], n_splits=3)
    assert {record.parameters for record in found.records} == {"best=True"}


class BestOrWorst(FisherScoreSelector):
    """Fisher scores, upside down unless ``best``."""

    def __init__(self, best=False):
        super().__init__()
        self.best = best

    def _score_tasks(self, tasks):
        scores, end = super()._score_tasks(tasks)
        return (scores if self.best else 1.0 - scores), end


# ---------------------------------------------------------------------- results


def test_informed_selectors_beat_random_ones(found):
    for name in ("fisher", "trace ratio"):
        gap = found.difference(name, "random", 3)
        assert gap.mean > 2 * gap.standard_error
        assert found.stability(name, 3).value > 0.5 > found.stability("random", 3).value


def test_majority_rate_is_that_of_the_classes(found):
    # Three equal classes in one task, two in the other
    assert np.mean([record.majority_rate for record in found.records]) == pytest.approx((1 / 3 + 1 / 2) / 2, abs=0.02)


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_tables(found, backend):
    table = found.to_frame(backend)
    assert len(table) == 9  # three selectors at k = 3, 8 and chosen
    assert {"accuracy", "balanced_accuracy", "majority_rate", "stability_low", "seconds"} <= set(table.columns)
    assert len(found.to_frame(backend, per_split=True)) == 36
    assert "trace ratio" in found.summary() and "4 splits" in repr(found)


def test_plot_has_a_line_per_selector(found):
    axes = found.plot()
    assert [line.get_label() for line in axes.get_lines()] == ["fisher", "trace ratio", "random", "majority class"]
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata()[0], found.values("fisher", 3).mean())
    matplotlib.pyplot.close(axes.figure)


@pytest.mark.parametrize("pooled", [False, True])
def test_pooled_classifiers_see_all_classes_at_once(data, pooled):
    X, y, tasks = data
    found = benchmark_selectors(
        {"f": FisherScoreSelector()}, X, y, tasks, k=[5], pooled=pooled, per_class=8, n_splits=2
    )
    expected = 1 / 5 if pooled else (1 / 3 + 1 / 2) / 2
    assert found.values("f", 5, "majority_rate").mean() == pytest.approx(expected, abs=0.12)


# ---------------------------------------------------------------------- every selector


@pytest.mark.parametrize(
    "selector",
    [
        MixedNormClassifier(),
        MixedNormRegressor(),
        JeffreysClassifier(),
        SelectKBest(k=3),
        ExtraTreesClassifier(20, random_state=0),
        DiscriminativeSelector(),
    ],
    ids=lambda selector: type(selector).__name__,
)
@pytest.mark.parametrize("form", ["long", "wide", "single", "sparse"])
def test_every_kind_of_selector_enters(data, selector, form):
    X, y, tasks = data
    if form == "wide":
        if isinstance(selector, SelectKBest | ExtraTreesClassifier):
            pytest.skip("knows one target only")
        y, tasks = np.column_stack([y % 10 == 0, y % 10 == 1]).astype(float), None
    elif form == "single":
        tasks = None
    elif form == "sparse":
        X = sp.csr_matrix(X)
    found = benchmark_selectors({"s": selector}, X, y, tasks, k=[3], n_splits=1, classifier=KNeighborsClassifier(5))
    chosen = found.sets["s", 3][0]
    assert chosen.sum() <= 3 and chosen[[1, 4, 7]].sum() >= (1 if form == "wide" else 2)


def test_tasks_with_several_classes_become_one_task_per_class(data):
    X, y, tasks = data
    long_X, binary, labels = binary_tasks(LabelledRows(X, y.astype(float), tasks), classifier=True)
    assert long_X.shape == (3 * 60 + 60, 15) and np.unique(labels).tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(binary[labels == 1], y[tasks == 0] == 1)
    np.testing.assert_array_equal(binary[labels == 3], y[tasks == 1] == 11)
    _, signs, none = binary_tasks(LabelledRows(X[:60], y[:60].astype(float), None), classifier=False)
    assert signs.shape == (60, 3) and none is None and set(np.unique(signs)) == {-1.0, 1.0}


def test_ties_are_broken_at_random_and_unselected_features_left_out():
    class Fitted:
        coef_ = np.array([[0.0, 1.0, 1.0, 0.0, 2.0]])

    X = np.random.default_rng(0).permuted(np.tile(np.arange(8.0)[:, None], 5), axis=0)
    orders = {tuple(feature_order(Fitted(), X, np.random.RandomState(seed)).tolist()) for seed in range(20)}
    assert orders == {(4, 1, 2), (4, 2, 1)}


# ---------------------------------------------------------------------- splits and messages


def test_splits_hold_every_class_of_every_task(data):
    rows = LabelledRows(data[0], data[1].astype(float), data[2])
    rng = np.random.RandomState(0)
    for train, test in draw_splits(rows, 3, 0.25, 5, rng):
        assert np.bincount(strata(rows)[train]).tolist() == [5] * 5 and len(train) + len(test) == 120
    for train, test in draw_splits(rows, 3, 0.25, None, rng):
        np.testing.assert_array_equal(np.bincount(strata(rows)[test]), [5, 5, 5, 8, 8])
        assert not set(train) & set(test)
    held = np.concatenate([test for _, test in inner_folds(rows, 4, rng)])
    np.testing.assert_array_equal(np.sort(held), np.arange(120))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": []}, "k is"),
        ({"scoring": "r2"}, "scoring is 'r2'"),
        ({"per_class": 100}, "per_class is 100"),
        ({"test_size": 1.5}, "test_size is 1.5"),
        ({"n_splits": 0}, "n_splits is 0"),
        ({"n_inner_folds": 1}, "n_inner_folds is 1"),
        ({"tasks": [1, 2]}, "tasks has 2 entries"),
        ({"splits": []}, "splits is empty"),
        ({"splits": [([0, 1], [1, 2])]}, "both the training and the test"),
        ({"splits": [([0, 1], [500])]}, "row number 500"),
        ({"selectors": {}}, "selectors is empty"),
        ({"selectors": [FisherScoreSelector(), FisherScoreSelector()]}, "two of one class"),
    ],
)
def test_bad_arguments_are_named(data, change, message):
    X, y, tasks = data
    arguments = {"selectors": [FisherScoreSelector()], "X": X, "y": y, "tasks": tasks} | change
    with pytest.raises(ValueError, match=message):
        benchmark_selectors(**arguments)


@pytest.mark.parametrize("selector", ["fisher", KNeighborsClassifier()])
def test_what_selects_no_features_is_refused(data, selector):
    X, y, tasks = data
    with pytest.raises(TypeError, match="pass an object with fit|does not say which features"):
        benchmark_selectors({"s": selector}, X, y, tasks, k=[2], n_splits=1)


def test_unknown_selectors_and_measures_are_named(found):
    with pytest.raises(ValueError, match="no selector 'lasso'"):
        found.values("lasso", 3)
    with pytest.raises(ValueError, match="measure is 'auc'"):
        found.values("fisher", 3, "auc")
    with pytest.raises(ValueError, match="no selector 'fisher' with k=4"):
        found.stability("fisher", 4)
