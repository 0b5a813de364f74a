"""A shared mean with many more features than observations: the same minimum, found on few columns at a time."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData
from bayesmtfs.convex import wide_mean
from bayesmtfs.estimators.path import problem_of

SIZES = (6, 4, 5)
N_FEATURES = 80


def wide_data(loss, seed=0):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(3), SIZES)
    X = rng.standard_normal((len(tasks), N_FEATURES)) * (rng.random((len(tasks), N_FEATURES)) < 0.6)
    eta = X[:, :3].sum(axis=1) + X[:, 3] * (tasks - 1)
    y = eta + 0.3 * rng.standard_normal(len(tasks)) + 1.0
    return X, np.sign(y - np.median(y) + 1e-9) if loss == "logistic" else y, tasks


def cvxpy_minimum(X, y, tasks, loss, norm_q, strength, mean_strength, mean_penalty, fit_intercept):
    mean, V, constant, shift = cp.Variable(N_FEATURES), cp.Variable((N_FEATURES, 3)), cp.Variable(), cp.Variable(3)
    value = mean_strength / 2 * cp.sum_squares(mean) + mean_penalty * cp.norm1(mean)
    for t in range(3):
        own = tasks == t
        eta = X[own] @ (mean + V[:, t]) + ((constant + shift[t]) if fit_intercept else 0)
        each = 0.5 * cp.square(y[own] - eta) if loss == "squared" else cp.logistic(-cp.multiply(y[own], eta))
        value += cp.sum(each) / own.sum()
    rows = [V[i] for i in range(N_FEATURES)] + ([shift] if fit_intercept else [])
    problem = cp.Problem(cp.Minimize(value + strength * sum(cp.pnorm(row, norm_q) for row in rows)))
    problem.solve(solver=cp.CLARABEL)
    return problem.value, (mean.value[:, None] + V.value).T


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(
    ("norm_q", "mean_strength", "mean_penalty", "fit_intercept", "sparse"),
    [
        (2, 0.05, 0.0, True, False),
        (2, 0.5, 0.0, False, True),
        (np.inf, 0.02, 0.0, True, True),
        (2, 0.02, 0.05, True, True),
        (3, 0.05, 0.1, True, False),
    ],
)
def test_minimum_equals_cvxpy(loss, norm_q, mean_strength, mean_penalty, fit_intercept, sparse, monkeypatch):
    X, y, tasks = wide_data(loss)
    model = (MixedNormRegressor if loss == "squared" else MixedNormClassifier)(
        norm_q=norm_q,
        penalty_strength=0.08,
        shared_mean=True,
        mean_strength=mean_strength,
        mean_penalty=mean_penalty,
        fit_intercept=fit_intercept,
        tol=1e-9,
    )
    model.fit(sp.csr_matrix(X) if sparse else X, y, tasks=tasks)
    arguments = (X, y, tasks, loss, norm_q, 0.08, mean_strength, mean_penalty, fit_intercept)
    value, coef = cvxpy_minimum(*arguments)
    assert model.converged_ and model.objective_ == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(model.coef_, coef, atol=2e-3)


def test_such_problems_take_this_way_and_others_do_not():
    X, y, tasks = wide_data("squared")
    model = MixedNormRegressor(shared_mean=True)
    wide = problem_of(model, TaskData.from_long(X, y, tasks))
    assert wide_mean.serves(wide)
    assert not wide_mean.serves(problem_of(model, TaskData.from_long(X[:, :12], y, tasks)))
    groups = np.arange(N_FEATURES) // 2
    assert not wide_mean.serves(problem_of(model, TaskData.from_long(X, y, tasks, groups=groups)))


def test_the_same_fit_of_one_design_for_all_tasks():
    X, _, _ = wide_data("squared")
    Y = np.column_stack([X[:, 0] + X[:, 1], X[:, 0] - X[:, 2]]) + 0.5
    long = MixedNormRegressor(penalty_strength=0.1, shared_mean=True, mean_strength=0.1, tol=1e-9)
    wide = MixedNormRegressor(penalty_strength=0.1, shared_mean=True, mean_strength=0.1, tol=1e-9)
    wide.fit(X[:, :72], Y[:, :])
    tasks = np.repeat([0, 1], len(X))
    long.fit(np.vstack([X[:, :72], X[:, :72]]), Y.T.ravel(), tasks=tasks)
    assert wide.objective_ == pytest.approx(long.objective_, rel=1e-7)
    np.testing.assert_allclose(wide.coef_, long.coef_, atol=1e-4)
