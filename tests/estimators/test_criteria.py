"""BIC and EBIC along a path, written out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import MixedNormRegressor, TaskData, simulate_tasks
from bayesmtfs.estimators.criteria import information_criterion
from bayesmtfs.estimators.path import PathSettings, path_of
from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV

PENALTIES = np.array([5.0, 0.4, 0.05])


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=3, n_features=7, n_relevant=2, n_samples=[15, 25, 20], random_state=2)


def predictions(sim, path, k):
    return np.einsum("ip,ip->i", sim.X, path.coefs[k][sim.tasks]) + path.intercepts[k][sim.tasks]


def minus_two_log_likelihood(loss, y, eta, weight):
    n = weight.sum()
    if loss == "squared":
        return n * math.log(np.sum(weight * (y - eta) ** 2) / n)
    if loss == "absolute":
        return 2 * n * math.log(np.sum(weight * np.abs(y - eta)) / n)
    return 2 * np.sum(weight * np.log1p(np.exp(-y * eta)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic"])
def test_bic_by_hand(sim, loss, weighted):
    y = np.sign(sim.y) if loss == "logistic" else sim.y
    weight = 1.0 + np.arange(60) % 3 if weighted else np.ones(60)
    data = TaskData.from_long(sim.X, y, sim.tasks, sample_weight=weight)
    fitted = PathSettings(loss="logistic" if loss == "logistic" else "squared")
    path = path_of(data, fitted, PENALTIES)
    found = information_criterion(data, path, replace(fitted, loss=loss))
    for k in range(3):
        df = int((path.coefs[k] != 0).sum()) + 3
        expected = minus_two_log_likelihood(loss, y, predictions(sim, path, k), weight) + math.log(weight.sum()) * df
        assert found.value[k] == pytest.approx(expected, rel=1e-10)
        assert found.degrees_of_freedom[k] == df


@pytest.mark.parametrize(
    ("settings", "groups", "available"),
    [
        (PathSettings(norm_q=2), None, 7),
        (PathSettings(norm_q=1), None, 21),
        (PathSettings(task_sparsity=0.5), None, 21),
        (PathSettings(norm_q=2, fit_intercept=False), [0, 0, 0, 1, 1, 2, 3], 4),
    ],
    ids=["rows", "entries", "sparse entries", "groups"],
)
def test_ebic_adds_the_logarithm_of_the_number_of_models(sim, settings, groups, available):
    data = TaskData.from_long(sim.X, sim.y, sim.tasks, groups=groups)
    path = path_of(data, settings, PENALTIES)
    difference = (
        information_criterion(data, path, settings, 0.7).value - information_criterion(data, path, settings).value
    )
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
    path = path_of(data, PathSettings(norm_q=2), np.array([10.0, 1e-3]))
    path.coefs[1] = 1.0
    assert np.isinf(information_criterion(data, path, PathSettings()).value).tolist() == [False, True]


@pytest.mark.parametrize("criterion", ["bic", "ebic"])
def test_the_estimator_takes_the_smallest(sim, criterion):
    model = MixedNormRegressorCV(criterion=criterion, norm_q=[1, 2], n_penalties=15, penalty_ratio=0.01)
    model.fit(sim.X, sim.y, tasks=sim.tasks)
    values, penalties = model.cv_results_["criterion"], model.cv_results_["penalties"]
    assert np.nanmin(values) == values[penalties == model.penalty_strength_].min()
    assert "fold_errors" not in model.cv_results_
    settings = PathSettings(norm_q=model.norm_q_)
    data = TaskData.from_long(sim.X, sim.y, sim.tasks)
    again = information_criterion(data, model.path_, settings, 0.5 if criterion == "ebic" else 0.0)
    assert np.nanmin(values) == pytest.approx(again.value.min(), rel=1e-12)
    plain = MixedNormRegressor(norm_q=model.norm_q_, penalty_strength=model.penalty_strength_)
    np.testing.assert_array_equal(model.coef_, plain.fit(sim.X, sim.y, tasks=sim.tasks).coef_)


def test_ebic_selects_no_more_than_bic_where_features_are_many():
    sim = simulate_tasks(n_tasks=3, n_features=60, n_relevant=3, n_samples=40, snr=4.0, random_state=5)
    chosen = [
        MixedNormRegressorCV(criterion=name, n_penalties=20, penalty_ratio=0.03).fit(sim.X, sim.y, tasks=sim.tasks)
        for name in ("bic", "ebic")
    ]
    assert chosen[1].penalty_strength_ >= chosen[0].penalty_strength_
    assert chosen[1].get_support()[sim.support].all() and chosen[1].get_support().sum() < 20
