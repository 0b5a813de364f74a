"""Cross-validated estimators: errors against plain loops, the choice, the final fit, files."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GroupKFold, KFold
from sklearn.utils.validation import check_is_fitted

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData, load, simulate_tasks
from bayesmtfs.convex.shared_mean import MEAN_SHARE
from bayesmtfs.estimators import penalised_cv as cross_validation
from bayesmtfs.estimators.path import mixed_norm_path, path_of
from bayesmtfs.estimators.penalised_cv import (
    MixedNormClassifierCV,
    MixedNormRegressorCV,
    choose,
    information_criterion,
    mean_task_error,
    standard_error,
)
from bayesmtfs.families import find_family
from bayesmtfs.types import ConvergenceWarning

PENALTIES = np.array([0.1, 1.0, 0.3])
ROWS = [(train, test) for train, test in KFold(3, shuffle=True, random_state=0).split(np.zeros(75))]


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=3, n_features=8, n_relevant=3, n_samples=[20, 30, 25], random_state=3)


@pytest.fixture(scope="module")
def model(sim):
    return MixedNormRegressorCV(norm_q=[1, 2], n_penalties=12, penalty_ratio=0.01, cv=4).fit(
        sim.X, sim.y, tasks=sim.tasks
    )


# errors against plain loops


@pytest.fixture
def exact_folds(monkeypatch):
    """Folds solved as tightly as the user asks."""
    monkeypatch.setattr(cross_validation, "LOOSEST_TOL", 0.0)


def loop_errors(estimator, X, y, tasks, weight, folds, error):
    """Fold errors with nothing but the plain estimator."""
    result = np.empty((len(PENALTIES), len(folds)))
    for k, strength in enumerate(PENALTIES):
        for f, (train, test) in enumerate(folds):
            fitted = estimator.set_params(penalty_strength=strength, unknown_task="mean")
            fitted.fit(X[train], y[train], tasks=tasks[train], sample_weight=weight[train])
            eta = fitted._linear_predictor(X[test], tasks[test])
            losses = error(y[test], eta)
            result[k, f] = np.mean(
                [
                    np.average(losses[tasks[test] == t], weights=weight[test][tasks[test] == t])
                    for t in np.unique(tasks[test])
                ]
            )
    return result


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_q": 1, "fit_intercept": False},
        {"norm_q": np.inf, "loss_scale": "sum"},
        {"standardize": True},
        {"task_sparsity": 0.4},
        {"refit": True},
        {"shared_mean": True, "mean_strength": 0.3, "mean_penalty": 0.0},
    ],
    ids=str,
)
@pytest.mark.usefixtures("exact_folds")
def test_fold_errors_equal_plain_loops(sim, settings):
    weight = 1.0 + np.arange(75) % 3
    found = MixedNormRegressorCV(penalties=PENALTIES, cv=ROWS, tol=1e-9, **settings)
    found.fit(sim.X, sim.y, tasks=sim.tasks, sample_weight=weight)
    plain = MixedNormRegressor(tol=1e-9, **settings)
    expected = loop_errors(plain, sim.X, sim.y, sim.tasks, weight, ROWS, lambda y, eta: (y - eta) ** 2)
    results = found.cv_results_
    np.testing.assert_allclose(results["fold_errors"][0], expected, rtol=1e-3)
    np.testing.assert_allclose(results["mean_error"], results["fold_errors"].mean(axis=2))
    np.testing.assert_allclose(results["standard_error"], results["fold_errors"].std(axis=2, ddof=1) / np.sqrt(3))
    assert found.penalty_strength_ == PENALTIES[expected.mean(axis=1).argmin()]


@pytest.mark.parametrize("cv", ["leave_one_task_out", GroupKFold(3), {0: "x", 1: "y", 2: "z"}], ids=str)
@pytest.mark.usefixtures("exact_folds")
def test_tasks_left_out_are_predicted_with_the_average(sim, cv):
    folds = [(np.flatnonzero(sim.tasks != t), np.flatnonzero(sim.tasks == t)) for t in range(3)]
    found = MixedNormRegressorCV(penalties=PENALTIES, cv=cv, tol=1e-8).fit(sim.X, sim.y, tasks=sim.tasks)
    plain = MixedNormRegressor(tol=1e-8)
    expected = loop_errors(plain, sim.X, sim.y, sim.tasks, np.ones(75), folds, lambda y, eta: (y - eta) ** 2)
    got = found.cv_results_["fold_errors"][0]
    np.testing.assert_allclose(np.sort(got, axis=1), np.sort(expected, axis=1), rtol=1e-3)


@pytest.mark.usefixtures("exact_folds")
def test_logistic_errors_are_deviances(sim):
    y = np.where(sim.y > np.median(sim.y), "yes", "no")
    found = MixedNormClassifierCV(penalties=PENALTIES / 10, cv=ROWS, tol=1e-8).fit(sim.X, y, tasks=sim.tasks)
    for k, strength in enumerate(PENALTIES / 10):
        train, test = ROWS[1]
        plain = MixedNormClassifier(penalty_strength=strength, tol=1e-8).fit(
            sim.X[train], y[train], tasks=sim.tasks[train]
        )
        probability = plain.predict_proba(sim.X[test], tasks=sim.tasks[test])
        own = -2 * np.log(probability[np.arange(25), (y[test] == "yes").astype(int)])
        expected = np.mean([own[sim.tasks[test] == t].mean() for t in range(3)])
        assert found.cv_results_["fold_errors"][0, k, 1] == pytest.approx(expected, rel=1e-3)


@pytest.mark.usefixtures("exact_folds")
def test_wide_rows_with_missing_cells(sim):
    Y = np.column_stack([sim.y, -sim.y, sim.y**2])
    Y[::3, 1] = np.nan
    Y[2:, 2] = np.nan  # observed in two rows only, so that some training sets have none
    pairs = [(np.arange(2, 75), np.arange(2)), (np.arange(40), np.arange(40, 75))]
    found = MixedNormRegressorCV(penalties=PENALTIES, cv=pairs, tol=1e-8).fit(sim.X, Y)
    train, test = pairs[0]
    for k, strength in enumerate(PENALTIES):
        plain = MixedNormRegressor(penalty_strength=strength, tol=1e-8).fit(sim.X[train], Y[train, :2])
        eta = plain.predict(sim.X[test])
        error = (Y[test] - np.column_stack([eta, eta.mean(axis=1)])) ** 2
        assert found.cv_results_["fold_errors"][0, k, 0] == pytest.approx(np.nanmean(error, axis=0).mean(), rel=1e-3)


def test_one_class_in_a_training_task_is_accepted(sim):
    y = np.where(sim.y > np.median(sim.y), 1, 0)
    first = np.flatnonzero(sim.tasks == 0)
    y[first], y[first[:2]] = 0, 1
    pairs = [(np.setdiff1d(np.arange(75), first[:2]), first[:5]), (np.arange(1, 75, 2), np.arange(0, 75, 2))]
    found = MixedNormClassifierCV(penalties=PENALTIES / 10, cv=pairs).fit(sim.X, y, tasks=sim.tasks)
    assert np.isfinite(found.cv_results_["mean_error"]).all()
    alone = MixedNormClassifierCV(penalties=[0.01, 0.1], cv=[(first[2:], first), (first, first)])
    alone.fit(sim.X, np.where(np.arange(75) == first[0], 1, y))
    assert np.isfinite(alone.cv_results_["mean_error"]).all()


# the choice and the final fit


def test_the_choice_is_the_smallest_mean_error_and_the_fit_that_of_the_plain_estimator(sim, model):
    results = model.cv_results_
    candidate, place = np.unravel_index(np.nanargmin(results["mean_error"]), results["mean_error"].shape)
    assert model.penalty_strength_ == results["penalties"][candidate, place]
    assert model.norm_q_ == results["norm_q"][candidate] == model.path_.norm_q
    assert results["fold_errors"].shape == (*results["penalties"].shape, 4)
    plain = MixedNormRegressor(norm_q=model.norm_q_, penalty_strength=model.penalty_strength_)
    plain.fit(sim.X, sim.y, tasks=sim.tasks)
    for name in ("coef_", "intercept_", "objective_", "dual_gap_", "n_iter_", "converged_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(plain, name))
    path = mixed_norm_path(sim.X, sim.y, sim.tasks, norm_q=model.norm_q_, n_penalties=12, penalty_ratio=0.01)
    np.testing.assert_array_equal(model.path_.coefs, path.coefs)
    assert model.result_.method == "MixedNormRegressorCV"
    assert model.result_.settings["penalty_strength"] == model.penalty_strength_


@pytest.mark.parametrize("seed", range(3))
def test_one_se_never_takes_a_smaller_penalty(seed):
    sim = simulate_tasks(n_tasks=3, n_features=10, n_relevant=2, n_samples=20, snr=1.0, random_state=seed)
    settings = {"n_penalties": 8, "penalty_ratio": 0.05, "cv": 3, "random_state": seed}
    least, one_se = (MixedNormRegressorCV(rule=rule, **settings) for rule in ("min", "one_se"))
    for model in (least, one_se):
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    assert one_se.penalty_strength_ >= least.penalty_strength_
    results = least.cv_results_
    best = int(np.nanargmin(results["mean_error"][0]))
    bound = results["mean_error"][0, best] + results["standard_error"][0, best]
    assert one_se.penalty_strength_ == results["penalties"][0][results["mean_error"][0] <= bound].max()


@pytest.mark.parametrize("alike", [True, False])
def test_a_shared_mean_is_chosen_with_norm_and_ridge(alike):
    rng = np.random.default_rng(5)
    X, tasks = rng.standard_normal((120, 40)), np.repeat(np.arange(4), 30)
    dense = rng.standard_normal(40) / 6.0
    W = np.tile(dense, (4, 1)) if alike else np.where(np.arange(40) < 3, rng.standard_normal((4, 40)), 0.0)
    y = np.einsum("np,np->n", X, W[tasks]) + 0.5 * rng.standard_normal(120)
    settings = {"norm_q": [1, 2], "ridge": [0.0, 0.1], "n_penalties": 12, "penalty_ratio": 0.02, "cv": 3}
    both = MixedNormRegressorCV(shared_mean=[False, True], **settings).fit(X, y, tasks=tasks)
    errors = both.cv_results_["mean_error"]  # (8, k)
    assert both.shared_mean_ is bool(np.nanmin(errors[4:]) < np.nanmin(errors[:4]))
    assert both.shared_mean_ or not alike
    assert both.cv_results_["shared_mean"].tolist() == [False] * 4 + [True] * 4
    alone = MixedNormRegressorCV(shared_mean=both.shared_mean_, **settings).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(both.coef_, alone.coef_, rtol=1e-8)
    assert (both.norm_q_, both.ridge_, both.mean_strength_) == (alone.norm_q_, alone.ridge_, alone.mean_strength_)
    assert hasattr(both, "mean_coef_") == both.shared_mean_


def test_whether_there_is_a_shared_mean_is_a_truth_value_or_a_list(sim):
    for wrong in ("auto", [], [1, 0]):
        with pytest.raises(ValueError, match="or \\[False, True\\] to leave it to the folds"):
            MixedNormRegressorCV(shared_mean=wrong).fit(sim.X, sim.y, tasks=sim.tasks)


def test_ridge_on_the_shared_mean_is_chosen(sim):
    settings = {"shared_mean": True, "penalties": [0.3], "cv": 3}
    model = MixedNormRegressorCV(**settings).fit(sim.X, sim.y, tasks=sim.tasks)
    squares = sum((sim.X[sim.tasks == t] ** 2).mean(axis=0) for t in range(3)).mean()
    results = model.mean_results_
    tried, weights = results["mean_strength"], results["mean_penalty"]
    factors = tried / (MEAN_SHARE * squares)
    np.testing.assert_allclose(np.log10(factors), np.round(np.log10(factors)), atol=1e-9)
    assert factors.min() >= 0.1 * (1 - 1e-9) and len(set(tried)) >= 2
    best = results["error"].argmin()
    assert model.mean_strength_ == tried[best] and model.mean_penalty_ == weights[best]
    chosen = {"mean_strength": model.mean_strength_, "mean_penalty": model.mean_penalty_}
    plain = MixedNormRegressor(shared_mean=True, penalty_strength=0.3, **chosen)
    np.testing.assert_array_equal(model.coef_, plain.fit(sim.X, sim.y, tasks=sim.tasks).coef_)
    error = MixedNormRegressorCV(**chosen, **settings).fit(sim.X, sim.y, tasks=sim.tasks).cv_results_["mean_error"]
    np.testing.assert_allclose(results["error"][best], error[0, 0], rtol=0.01)  # solved less accurately
    fixed = MixedNormRegressorCV(mean_strength=0.7, **settings).fit(sim.X, sim.y, tasks=sim.tasks)
    assert set(fixed.mean_results_["mean_strength"]) == {0.7} and fixed.mean_results_["mean_penalty"][0] == 0.0
    assert fixed.mean_strength_ == 0.7 and fixed.cv_results_["mean_strength"].tolist() == [0.7]


def test_the_number_of_jobs_changes_no_bit(sim, model):
    again = clone(model).set_params(n_jobs=2).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(again.cv_results_["fold_errors"], model.cv_results_["fold_errors"])
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_forms_of_the_data_agree(sim, model):
    frame = pd.DataFrame(sim.X, columns=list("abcdefgh")).assign(task=sim.tasks)
    for estimator, call in (
        (clone(model).set_params(task_column="task"), (frame, sim.y)),
        (clone(model), (TaskData.from_long(sim.X, sim.y, sim.tasks),)),
    ):
        np.testing.assert_allclose(estimator.fit(*call).coef_, model.coef_, atol=1e-10)


def test_several_classes_are_stratified_and_chosen_together(sim):
    y = np.array(["u", "v", "w"])[np.digitize(sim.X[:, 0], [-0.4, 0.4])]
    model = MixedNormClassifierCV(n_penalties=8, penalty_ratio=0.02, cv=3).fit(sim.X, y)
    assert model.coef_.shape == (3, 8) and model.score(sim.X, y) > 0.8
    with pytest.raises(ValueError, match="leaves out tasks, but y has several classes in one task"):
        model.set_params(cv="leave_one_task_out").fit(sim.X, y)


# files, errors, interruption


@pytest.mark.parametrize("cv", [3, KFold(3), ROWS, {0: 0, 1: 0, 2: 1}], ids=["int", "splitter", "rows", "mapping"])
def test_saved_estimator_predicts_the_same(tmp_path, sim, cv):
    model = MixedNormRegressorCV(norm_q=[1, np.inf], penalties=PENALTIES, cv=cv).fit(sim.X, sim.y, tasks=sim.tasks)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert type(again) is MixedNormRegressorCV
    np.testing.assert_array_equal(again.predict(sim.X, tasks=sim.tasks), model.predict(sim.X, tasks=sim.tasks))
    np.testing.assert_array_equal(again.path_.coefs, model.path_.coefs)
    np.testing.assert_array_equal(again.cv_results_["fold_errors"], model.cv_results_["fold_errors"])
    assert again.penalty_strength_ == model.penalty_strength_ and again.norm_q_ == model.norm_q_
    assert isinstance(model.path_.n_selected, np.ndarray) and repr(again.path_) == repr(model.path_)
    assert again.cv is None if isinstance(cv, KFold) else type(again.cv) is type(cv)


def test_saved_classifier_keeps_its_classes(tmp_path, sim):
    y = np.where(sim.y > np.median(sim.y), "yes", "no")
    model = MixedNormClassifierCV(penalties=[0.05], cv=2).fit(sim.X, y, tasks=sim.tasks)
    model.save(tmp_path / "model")
    assert (load(tmp_path / "model").predict(sim.X, tasks=sim.tasks) == model.predict(sim.X, tasks=sim.tasks)).all()


def test_clone_and_pickle(sim, model):
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.path_.coefs, model.path_.coefs)
    with pytest.raises(NotFittedError):
        clone(model).save("nowhere")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rule": "best"}, "rule is 'best'; choose one of 'min', 'one_se'"),
        ({"criterion": "aic"}, "criterion is 'aic'; choose one of"),
        ({"norm_q": []}, "norm_q is .*; pass one number of at least 1, or a list"),
        ({"norm_q": [2, 0.5]}, "norm_q is 0.5"),
        ({"penalties": [-1.0]}, "penalties has a negative"),
        ({"penalties": None, "n_penalties": 0}, "n_penalties is 0"),
        ({"random_state": np.random.RandomState(0)}, "random_state is .*; pass a whole number"),
        ({"criterion": "ebic", "ebic_gamma": 2.0}, "ebic_gamma is 2.0"),
        ({"criterion": "bic", "shared_mean": True}, "does not count a shared mean; use 'cv'"),
        ({"cv": 100}, "cv is 100"),
        ({"tol": 0.0}, "tol is 0.0"),
    ],
)
def test_bad_parameters_leave_the_estimator_unfitted(sim, parameters, message):
    model = MixedNormRegressorCV(**{"penalties": [0.5], **parameters})
    with pytest.raises(ValueError, match=message):
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)


def test_hinge_has_no_information_criterion(sim):
    with pytest.raises(ValueError, match="loss='hinge' has no likelihood; use 'cv'"):
        MixedNormClassifierCV(loss="hinge", criterion="bic").fit(sim.X, np.sign(sim.y), tasks=sim.tasks)


def test_interruption_propagates_and_keeps_the_last_fit(sim, monkeypatch):
    model = MixedNormRegressorCV(penalties=[0.5], cv=2).fit(sim.X, sim.y, tasks=sim.tasks)
    before = dict(vars(model))

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cross_validation, "fold_errors", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(sim.X[:60], sim.y[:60], tasks=sim.tasks[:60])
    assert vars(model) == before


def test_fits_that_did_not_converge_are_counted(sim):
    model = MixedNormRegressorCV(penalties=[1e-4, 10.0], cv=2, max_iter=1, solver="proximal_gradient")
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    messages = " ".join(str(warning.message) for warning in caught)
    assert "2 of 4 fits in the folds" in messages and "1 of 2 penalties of the path" in messages


# Errors of folds and the choice that follows from them


ERRORS = {
    "squared": lambda y, eta: (y - eta) ** 2,
    "absolute": lambda y, eta: np.abs(y - eta),
    "logistic": lambda y, eta: 2 * np.log(1 + np.exp(-y * eta)),
    "hinge": lambda y, eta: np.maximum(1 - y * eta, 0),
}


@pytest.mark.parametrize("loss", ERRORS)
def test_error_is_the_mean_over_tasks_of_weighted_means(loss):
    rng = np.random.default_rng(0)
    tasks = np.repeat([0, 1, 2], [3, 10, 5])
    y, eta, weight = np.sign(rng.standard_normal(18)), rng.standard_normal(18), rng.uniform(0.5, 2, 18)
    data = TaskData.from_long(np.ones((18, 1)), y, tasks, sample_weight=weight)
    by_task = [np.average(ERRORS[loss](y, eta)[tasks == t], weights=weight[tasks == t]) for t in range(3)]
    assert mean_task_error(data, find_family(loss), eta) == pytest.approx(np.mean(by_task), rel=1e-12)


def test_standard_error():
    assert standard_error(np.array([[1.0, 2.0, 6.0]])) == pytest.approx(np.sqrt(7 / 3))
    assert standard_error(np.array([[1.0]])).tolist() == [0.0]


def test_ties_go_to_the_largest_penalty_and_missing_entries_to_nobody():
    penalties = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, np.nan]])
    score = np.array([[0.5, 0.5, 0.7], [0.6, 0.6, np.nan]])
    assert choose(penalties, score) == (0, 1)
    assert choose(penalties, np.full((2, 3), np.inf)) == (1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_one_standard_error_never_takes_a_smaller_penalty(seed):
    rng = np.random.default_rng(seed)
    penalties, score, margin = rng.random((3, 8)), rng.random((3, 8)), 0.3 * rng.random((3, 8))
    least, one_se = choose(penalties, score), choose(penalties, score, margin)
    assert score[least] == score.min() and one_se[0] == least[0]
    assert penalties[one_se] >= penalties[least]
    allowed = score[least[0]] <= score[least] + margin[least]
    assert penalties[one_se] == penalties[least[0]][allowed].max()


# BIC and EBIC along a path, written out by hand


FEW_PENALTIES = np.array([5.0, 0.4, 0.05])


@pytest.fixture(scope="module")
def data_set():
    return simulate_tasks(n_tasks=3, n_features=7, n_relevant=2, n_samples=[15, 25, 20], random_state=2)


def predictions(data_set, path, k):
    return np.einsum("ip,ip->i", data_set.X, path.coefs[k][data_set.tasks]) + path.intercepts[k][data_set.tasks]


def minus_two_log_likelihood(loss, y, eta, weight):
    n = weight.sum()
    if loss == "squared":
        return n * math.log(np.sum(weight * (y - eta) ** 2) / n)
    if loss == "absolute":
        return 2 * n * math.log(np.sum(weight * np.abs(y - eta)) / n)
    return 2 * np.sum(weight * np.log1p(np.exp(-y * eta)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic"])
def test_bic_by_hand(data_set, loss, weighted):
    y = np.sign(data_set.y) if loss == "logistic" else data_set.y
    weight = 1.0 + np.arange(60) % 3 if weighted else np.ones(60)
    data = TaskData.from_long(data_set.X, y, data_set.tasks, sample_weight=weight)
    fitted = MixedNormClassifier() if loss == "logistic" else MixedNormRegressor()
    path = path_of(data, fitted, FEW_PENALTIES)
    value, freedom = information_criterion(data, path, replace(fitted, loss=loss))
    for k in range(3):
        df = int((path.coefs[k] != 0).sum()) + 3
        expected = (
            minus_two_log_likelihood(loss, y, predictions(data_set, path, k), weight) + math.log(weight.sum()) * df
        )
        assert value[k] == pytest.approx(expected, rel=1e-10)
        assert freedom[k] == df


@pytest.mark.parametrize(
    ("settings", "groups", "available"),
    [
        (MixedNormRegressor(norm_q=2), None, 7),
        (MixedNormRegressor(norm_q=1), None, 21),
        (MixedNormRegressor(task_sparsity=0.5), None, 21),
        (MixedNormRegressor(norm_q=2, fit_intercept=False), [0, 0, 0, 1, 1, 2, 3], 4),
    ],
    ids=["rows", "entries", "sparse entries", "groups"],
)
def test_ebic_adds_the_logarithm_of_the_number_of_models(data_set, settings, groups, available):
    data = TaskData.from_long(data_set.X, data_set.y, data_set.tasks, groups=groups)
    path = path_of(data, settings, FEW_PENALTIES)
    difference = information_criterion(data, path, settings, 0.7)[0] - information_criterion(data, path, settings)[0]
    for k in range(3):
        active = path.coefs[k] != 0
        if available == 21:
            used = int(active.sum())
        else:
            labels = np.arange(7) if groups is None else np.array(groups)
            used = len(set(labels[active.any(axis=0)]))
        assert difference[k] == pytest.approx(1.4 * math.log(math.comb(available, used)), abs=1e-9)


def test_as_many_coefficients_as_observations_is_no_model():
    rng = np.random.default_rng(0)
    data = TaskData.from_long(rng.standard_normal((6, 12)), rng.standard_normal(6))
    path = path_of(data, MixedNormRegressor(norm_q=2), np.array([10.0, 1e-3]))
    path.coefs[1] = 1.0
    assert np.isinf(information_criterion(data, path, MixedNormRegressor())[0]).tolist() == [False, True]


@pytest.mark.parametrize("criterion", ["bic", "ebic"])
def test_the_estimator_takes_the_smallest(data_set, criterion):
    model = MixedNormRegressorCV(criterion=criterion, norm_q=[1, 2], n_penalties=15, penalty_ratio=0.01)
    model.fit(data_set.X, data_set.y, tasks=data_set.tasks)
    values, penalties = model.cv_results_["criterion"], model.cv_results_["penalties"]
    assert np.nanmin(values) == values[penalties == model.penalty_strength_].min()
    assert "fold_errors" not in model.cv_results_
    settings = MixedNormRegressor(norm_q=model.norm_q_)
    data = TaskData.from_long(data_set.X, data_set.y, data_set.tasks)
    again, _ = information_criterion(data, model.path_, settings, 0.5 if criterion == "ebic" else 0.0)
    assert np.nanmin(values) == pytest.approx(again.min(), rel=1e-12)
    plain = MixedNormRegressor(norm_q=model.norm_q_, penalty_strength=model.penalty_strength_)
    np.testing.assert_array_equal(model.coef_, plain.fit(data_set.X, data_set.y, tasks=data_set.tasks).coef_)


def test_ebic_selects_no_more_than_bic_where_features_are_many():
    data_set = simulate_tasks(n_tasks=3, n_features=60, n_relevant=3, n_samples=40, snr=4.0, random_state=5)
    chosen = [
        MixedNormRegressorCV(criterion=name, n_penalties=20, penalty_ratio=0.03).fit(
            data_set.X, data_set.y, tasks=data_set.tasks
        )
        for name in ("bic", "ebic")
    ]
    assert chosen[1].penalty_strength_ >= chosen[0].penalty_strength_
    assert chosen[1].get_support()[data_set.support].all() and chosen[1].get_support().sum() < 20
