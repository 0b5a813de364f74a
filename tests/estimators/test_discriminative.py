"""Discriminative selection: invariances, forms of the data, number of features, files."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bayesmtfs import TaskData
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.discriminative import DiscriminativeSelector
from bayesmtfs.types import ConvergenceWarning

RELEVANT = [0, 3, 4]


def labelled(n=40, p=30, seed=1):
    """Two tasks with classes of their own, three and four, and three relevant features."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(["first", "second"], n)
    y = np.concatenate([np.array(["a", "b", "c"])[np.arange(n) % 3], np.array(list("wxyz"))[np.arange(n) % 4]])
    X = rng.standard_normal((2 * n, p)) * rng.uniform(0.8, 1.2, p)
    for label in np.unique(y):
        X[np.ix_(y == label, RELEVANT)] += 3.0 * rng.standard_normal(3)
    return X, y, tasks


@pytest.fixture(scope="module", params=[(80, 30), (15, 250)], ids=["p < n", "p > n"])
def data(request):
    return labelled(*request.param)


@pytest.fixture(scope="module")
def fitted(data):
    X, y, tasks = data
    return DiscriminativeSelector(n_features_to_select=3).fit(X, y, tasks=tasks)


# ---------------------------------------------------------------------- what is selected


def test_finds_the_features_that_tell_classes_apart(fitted):
    assert fitted.get_support(indices=True).tolist() == RELEVANT
    np.testing.assert_array_equal(np.sort(fitted.ranking_), np.arange(1, len(fitted.ranking_) + 1))
    best_first = fitted.scores_[np.argsort(fitted.ranking_)]
    assert np.all(np.diff(best_first) <= 0)
    assert [classes.tolist() for classes in fitted.classes_] == [["a", "b", "c"], ["w", "x", "y", "z"]]
    assert np.all((fitted.gamma_ > 0) & (fitted.gamma_ < 1))
    assert not any(hasattr(fitted, name) for name in ("coef_", "predict", "score"))


def test_surrogate_trace_falls_and_result_says_so(fitted):
    trace = fitted.surrogate_trace_
    assert np.all(np.diff(trace) <= 1e-12) and len(trace) == fitted.n_iter_ + 1 and fitted.converged_
    assert fitted.result_.convergence.objective == trace[-1]
    np.testing.assert_array_equal(fitted.result_.selected, fitted.get_support())
    assert "3 of" in fitted.result_.summary()


@pytest.mark.parametrize("change", ["order", "scale", "task scale", "labels", "shift"])
def test_ranking_does_not_depend_on(change, data, fitted):
    X, y, tasks = data
    order = np.arange(X.shape[1])
    if change == "order":
        order = np.random.default_rng(1).permutation(X.shape[1])
        X = X[:, order]
    elif change == "scale":
        X = 1e-3 * X
    elif change == "task scale":
        X = np.where(tasks == "first", 7.0, 0.1)[:, None] * X
    elif change == "shift":
        X = X + np.where(tasks == "first", 3.0, -2.0)[:, None]
    else:
        names = dict(zip(np.unique(y), [5, 3, 9, 1, 0, 7, 2], strict=True))
        y = np.array([names[label] for label in y])
    other = clone(fitted).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(other.scores_, fitted.scores_[order], atol=1e-6)
    kept = np.argsort(fitted.ranking_[order])[:10]
    np.testing.assert_array_equal(np.argsort(other.ranking_)[:10], kept)


def test_two_runs_agree(data, fitted):
    X, y, tasks = data
    again = clone(fitted).fit(X, y, tasks=tasks)
    np.testing.assert_array_equal(again.ranking_, fitted.ranking_)
    np.testing.assert_array_equal(again.scores_, fitted.scores_)


def test_features_below_the_floor_are_ranked_by_the_unpenalised_solution(data):
    X, y, tasks = data
    strong = DiscriminativeSelector(0.1, 0.1).fit(X, y, tasks=tasks)
    free = DiscriminativeSelector(0.0, 0.0).fit(X, y, tasks=tasks)
    zero = np.flatnonzero(strong.scores_ == 0)
    assert len(zero) > 0.6 * X.shape[1]
    by_rank = zero[np.argsort(strong.ranking_[zero])]
    assert np.all(np.diff(free.scores_[by_rank]) <= 0)


def test_shrinkage_keeps_noise_out_where_rows_are_as_many_as_features():
    printed = DiscriminativeSelector(n_features_to_select=3, shrinkage=0.0, directions="classes")
    found = np.zeros(2)
    for seed in range(4):
        X, y, tasks = labelled(60, 60, seed)
        for number, model in enumerate((printed, DiscriminativeSelector(n_features_to_select=3))):
            found[number] += model.fit(X, y, tasks=tasks).get_support()[RELEVANT].sum()
    assert found[0] <= 4 and found[1] >= 9  # of twelve


def test_more_starts_never_end_higher(data):
    X, y, tasks = data
    one = DiscriminativeSelector(1e-3, 1e-3).fit(X, y, tasks=tasks)
    more = DiscriminativeSelector(1e-3, 1e-3, n_init=3, random_state=0).fit(X, y, tasks=tasks)
    assert more.surrogate_trace_[-1] <= one.surrogate_trace_[-1]


# ---------------------------------------------------------------------- forms of the same data


def test_forms_of_the_same_data_agree(data, fitted):
    X, y, tasks = data
    frame = pd.DataFrame(X).add_prefix("f").assign(task=tasks)
    forms = [
        clone(fitted).fit(sp.csr_matrix(X), y, tasks=tasks),
        clone(fitted).set_params(task_column="task").fit(frame, y),
        clone(fitted).fit(TaskData.from_long(X, y, tasks)),
    ]
    for other in forms:
        np.testing.assert_allclose(other.scores_, fitted.scores_, atol=1e-8)
        np.testing.assert_array_equal(other.get_support(), fitted.get_support())
    assert forms[1].get_feature_names_out().tolist() == ["f0", "f3", "f4"]


def test_wide_form_is_one_task_per_column_and_leaves_gaps_out():
    X, y, _ = labelled(30, 20)
    Y = np.column_stack([(y == "a").astype(float), np.isin(y, ["w", "x", "b"]).astype(float)])
    Y[:7, 1] = np.nan
    wide = DiscriminativeSelector().fit(X, Y)
    rows, columns = np.nonzero(~np.isnan(Y))
    long = DiscriminativeSelector().fit(X[rows], Y[rows, columns], tasks=columns)
    np.testing.assert_allclose(wide.scores_, long.scores_, atol=1e-8)


def test_weight_two_is_a_repeated_row(data):
    X, y, tasks = data
    weight = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(len(y)), weight.astype(int))
    weighted = DiscriminativeSelector().fit(X, y, tasks=tasks, sample_weight=weight)
    repeated = DiscriminativeSelector().fit(X[twice], y[twice], tasks=tasks[twice])
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, atol=1e-6)


def test_standardized_features_make_units_irrelevant(data):
    X, y, tasks = data
    units = np.random.default_rng(3).uniform(0.01, 100.0, X.shape[1])
    model = DiscriminativeSelector(standardize=True)
    np.testing.assert_allclose(
        clone(model).fit(X * units, y, tasks=tasks).scores_, clone(model).fit(X, y, tasks=tasks).scores_, atol=1e-6
    )


def test_categorical_columns_are_selected_whole():
    X, y, tasks = labelled(30, 6)
    colour = pd.Categorical(np.where(y == "a", "red", np.where(y == "b", "blue", "green")))
    frame = pd.DataFrame(X[:, :3]).add_prefix("f").assign(colour=colour)
    model = DiscriminativeSelector(n_features_to_select=1, standardize=True).fit(frame, y, tasks=tasks)
    assert all("colour" in name for name in model.get_feature_names_out())
    assert len(model.get_feature_names_out()) == 2 and model.ranking_.max() == 4  # blue is the reference


# ---------------------------------------------------------------------- how many features


@pytest.mark.parametrize(("size", "wanted"), [(5, 5), (0.1, 3), (1.0, 30), (30, 30)])
def test_number_or_share_of_features(size, wanted):
    X, y, tasks = labelled()
    model = DiscriminativeSelector(n_features_to_select=size).fit(X, y, tasks=tasks)
    assert model.get_support().sum() == wanted == model.transform(X).shape[1]


@pytest.mark.parametrize("classifier", [None, KNeighborsClassifier(3)])
def test_cross_validation_chooses_about_the_true_number(classifier):
    X, y, tasks = labelled(60, 40)
    model = DiscriminativeSelector(n_features_to_select="cv", cv=3, classifier=classifier, random_state=0)
    model.fit(X, y, tasks=tasks)
    assert 2 <= model.n_features_to_select_ <= 8 and model.get_support()[RELEVANT].sum() >= 2


def test_cross_validation_says_when_a_task_is_too_small():
    X, y, tasks = labelled(4, 5)
    with pytest.raises(ValueError, match="too few rows for cross-validation"):
        DiscriminativeSelector(n_features_to_select="cv", cv=4).fit(X[:, :5], np.arange(8) // 3, tasks=tasks)


# ---------------------------------------------------------------------- files and messages


def test_round_trips(tmp_path, data, fitted):
    X = data[0]
    fitted.save(tmp_path / "selector")
    for other in (load(tmp_path / "selector"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.transform(X), fitted.transform(X))
        np.testing.assert_array_equal(other.ranking_, fitted.ranking_)
        np.testing.assert_array_equal(other.task_scores_, fitted.task_scores_)
        np.testing.assert_array_equal(other.surrogate_trace_, fitted.surrogate_trace_)
        assert [c.tolist() for c in other.classes_] == [c.tolist() for c in fitted.classes_]
        assert not hasattr(other, "coef_")


def test_inverse_transform_puts_columns_back(data, fitted):
    X = data[0]
    back = fitted.inverse_transform(fitted.transform(X))
    np.testing.assert_array_equal(back, np.where(fitted.get_support(), X, 0.0))
    with pytest.raises(ValueError, match="pass the 3 columns"):
        fitted.inverse_transform(X)


def test_works_in_a_pipeline():
    X, y, _ = labelled()
    assert make_pipeline(DiscriminativeSelector(n_features_to_select=3), LinearSVC()).fit(X, y).score(X, y) > 0.6


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"within_strength": -1.0}, "within_strength is -1"),
        ({"joint_strength": "strong"}, "joint_strength is 'strong'"),
        ({"n_features_to_select": 0}, "n_features_to_select is 0"),
        ({"n_features_to_select": 6}, "n_features_to_select is 6 but there are 5 features"),
        ({"n_features_to_select": 1.5}, "n_features_to_select is 1.5"),
        ({"n_features_to_select": "all"}, "n_features_to_select is 'all'"),
        ({"row_floor": 0.0}, "row_floor is 0"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"n_init": -1}, "n_init is -1"),
        ({"shrinkage": -0.1}, "shrinkage is -0.1"),
        ({"directions": "all"}, "directions is 'all'"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X, y, tasks = labelled(12, 5)
    with pytest.raises(ValueError, match=message):
        DiscriminativeSelector(**parameters).fit(X, y, tasks=tasks)


def test_a_task_of_one_class_is_named():
    X, y, tasks = labelled(12, 5)
    with pytest.raises(ValueError, match="only one class in 1 of 2 tasks: 'first'"):
        DiscriminativeSelector().fit(X, np.where(tasks == "first", "a", y), tasks=tasks)


def test_too_few_iterations_are_warned_of(data):
    X, y, tasks = data
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        DiscriminativeSelector(max_iter=1).fit(X, y, tasks=tasks)
