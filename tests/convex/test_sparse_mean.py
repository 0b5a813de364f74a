"""A sparse shared mean and an elastic part together: the minimum of the stated objective, and what it is for."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, MixedNormRegressorCV, mixed_norm_path
from bayesmtfs.convex import quadratic_models

TASKS = np.repeat([0, 1, 2], [14, 20, 11])
GROUPS = np.array([0, 1, 1, 2, 3, 4])
STRENGTHS = {"penalty_strength": 0.05, "mean_strength": 0.1, "mean_penalty": 0.15, "ridge": 0.2}


def rows(loss):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(45, 6)) * rng.uniform(0.5, 2.0, 6) + 1.0
    y = X[:, :3] @ [1.0, -1.0, 0.5] + 0.5 * X[:, 3] * TASKS + TASKS + rng.normal(size=45)
    return X, y if loss == "squared" else np.where(y > np.median(y), 1.0, -1.0)


def minimum(X, y, loss, norm_q, groups):
    mean, V, constant, shift = cp.Variable(6), cp.Variable((6, 3)), cp.Variable(), cp.Variable(3)
    value = 0.05 * cp.sum_squares(mean) + 0.15 * cp.norm(mean, 1) + 0.1 * (cp.sum_squares(V) + cp.sum_squares(shift))
    for t in range(3):
        own = TASKS == t
        eta = X[own] @ (mean + V[:, t]) + constant + shift[t]
        each = 0.5 * cp.square(y[own] - eta) if loss == "squared" else cp.logistic(-cp.multiply(y[own], eta))
        value += cp.sum(each) / own.sum()
    penalised = [shift, *(cp.vec(V[groups == group], order="C") for group in np.unique(groups))]
    problem = cp.Problem(cp.Minimize(value + 0.05 * sum(cp.norm(row, norm_q) for row in penalised)))
    problem.solve(solver=cp.CLARABEL)
    return problem.value, (mean.value[:, None] + V.value).T, mean.value


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("norm_q", "grouped"), [(2, False), (1, False), (np.inf, False), (2, True), (3, True)])
@pytest.mark.parametrize("kind", ["gram", "columns"])
def test_minimum_equals_cvxpy(loss, norm_q, grouped, kind, monkeypatch):
    X, y = rows(loss)
    groups = GROUPS if grouped else np.arange(6)
    if kind == "columns":
        monkeypatch.setattr(quadratic_models, "GRAM_LIMIT", 0)
        monkeypatch.setattr(quadratic_models, "SMALL_DENSE", 0)
    model = MixedNormRegressor if loss == "squared" else MixedNormClassifier
    found = model(norm_q=norm_q, groups=groups, shared_mean=True, tol=1e-8, **STRENGTHS)
    found.fit(X if kind == "gram" else sp.csr_matrix(X), y, tasks=TASKS)
    best, coef, mean = minimum(X, y, loss, norm_q, groups)
    assert found.converged_ and -1e-7 <= found.objective_ - best <= found.dual_gap_ + 1e-7
    np.testing.assert_allclose(found.coef_, coef, atol=3e-3)
    np.testing.assert_allclose(found.mean_coef_, mean, atol=3e-3)
    assert np.array_equal(found.mean_coef_ == 0, np.abs(mean) < 1e-4) and (found.mean_coef_ == 0).any()


def test_large_weights_leave_no_mean_and_paths_take_them():
    X, y = rows("squared")
    options = {"shared_mean": True, "mean_strength": 0.1, "penalties": [0.1]}
    found = mixed_norm_path(X, y, tasks=TASKS, mean_penalty=1e3, tol=1e-8, **options)
    centred = MixedNormRegressor(penalty_strength=0.1, shared_mean=True, mean_strength=1e9, tol=1e-8)
    np.testing.assert_allclose(found.coefs[0], centred.fit(X, y, tasks=TASKS).coef_, atol=1e-3)
    with pytest.raises(ValueError, match="mean_penalty is -1"):
        MixedNormRegressor(shared_mean=True, mean_penalty=-1.0).fit(X, y, tasks=TASKS)


def test_the_mean_does_not_break_where_features_are_as_many_as_rows():
    rng = np.random.default_rng(21)
    w = np.zeros(60)
    w[:4] = [1.0, -1.0, 1.0, 0.7]
    X, tasks = rng.normal(size=(120, 60)), np.repeat(np.arange(4), 30)
    y = X @ w + rng.normal(size=120)
    options = {"shared_mean": True, "n_penalties": 15, "cv": 3}
    sparse = MixedNormRegressorCV(**options).fit(X, y, tasks=tasks)
    dense = MixedNormRegressorCV(mean_penalty=0.0, **options).fit(X, y, tasks=tasks)
    missed = [np.mean((model.coef_ - w) ** 2) / np.mean(w**2) for model in (sparse, dense)]
    assert sparse.mean_penalty_ > 0 and missed[0] < min(0.15, missed[1])
    assert sparse.mean_results_["error"].min() < 0.85 * dense.mean_results_["error"].min()
