"""The elastic part: against scikit-learn, closed forms, cvxpy, and between solvers."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import MultiTaskElasticNet, Ridge

from bayesmtfs import (
    MixedNormClassifier,
    MixedNormClassifierCV,
    MixedNormRegressor,
    MixedNormRegressorCV,
    mixed_norm_path,
)
from bayesmtfs.convex import automatic, quadratic_models, shared_rows
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.priors.row_penalty import RowPenalty

TASKS = np.repeat(["a", "b", "c"], [25, 15, 20])
GROUPS = np.array([0, 0, 1, 1, 1, 2, 3, 4, 5, 6])


@pytest.fixture
def wide():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(50, 30)) * rng.uniform(0.3, 4.0, 30) + 5.0
    X[:, 1] = X[:, 0] + 0.01 * rng.normal(size=50)
    W = np.zeros((30, 4))
    W[:6] = rng.normal(size=(6, 4))
    return X, X @ W + rng.normal(size=(50, 4))


@pytest.fixture
def long():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(60, 10)) * rng.uniform(0.5, 3.0, 10) + 1.0
    y = X @ rng.normal(size=10) + 5.0 * (TASKS == "b") + rng.normal(size=60)
    return X, y, rng.uniform(0.5, 2.0, 60)


@pytest.mark.parametrize("solver", ["shared_design", "working_set", "proximal_gradient"])
@pytest.mark.parametrize(("alpha", "l1_ratio"), [(0.1, 0.5), (1.0, 0.95), (0.01, 0.1)])
def test_multi_task_elastic_net_is_a_special_case(wide, solver, alpha, l1_ratio):
    theirs = MultiTaskElasticNet(alpha=alpha, l1_ratio=l1_ratio, tol=1e-9, max_iter=100_000).fit(*wide)
    strengths = {"penalty_strength": alpha * l1_ratio, "ridge": alpha * (1 - l1_ratio)}
    ours = MixedNormRegressor(**strengths, solver=solver, tol=1e-11, max_iter=100_000).fit(*wide)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-5)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-4)
    assert ours.converged_


@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_without_penalty_it_is_ridge_regression(long, ridge):
    X, y, weight = long
    ours = MixedNormRegressor(penalty_strength=0.0, ridge=ridge, tol=1e-8).fit(X, y, tasks=TASKS, sample_weight=weight)
    assert ours.converged_
    for t, task in enumerate(ours.tasks_):
        own = TASKS == task
        theirs = Ridge(alpha=ridge * weight[own].sum(), tol=1e-12).fit(X[own], y[own], weight[own])
        np.testing.assert_allclose(ours.coef_[t], theirs.coef_, atol=1e-4)


def oracle(X, y, weight, loss, norm_q, sparsity, groups, fit_intercept):
    cp = pytest.importorskip("cvxpy")
    W, b, parts = cp.Variable((X.shape[1], 3)), cp.Variable(3), []
    losses = {
        "squared": lambda y, eta: cp.square(y - eta) / 2,
        "absolute": lambda y, eta: cp.abs(y - eta),
        "logistic": lambda y, eta: cp.logistic(-cp.multiply(y, eta)),
        "hinge": lambda y, eta: cp.pos(1 - cp.multiply(y, eta)),
    }
    for t, task in enumerate("abc"):
        own = TASKS == task
        eta = X[own] @ W[:, t] + (b[t] if fit_intercept else 0.0)
        parts.append(weight[own] / weight[own].sum() @ losses[loss](y[own], eta))
    for group in np.unique(groups):
        row = cp.vec(W[groups == group], order="C")
        parts.append(0.1 * (cp.norm(row, norm_q) + sparsity * cp.norm(row, 1)))
    problem = cp.Problem(cp.Minimize(sum(parts) + 0.15 * cp.sum_squares(W)))
    problem.solve(solver="CLARABEL")
    return problem.value, W.value.T


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute"])
@pytest.mark.parametrize(
    ("norm_q", "sparsity", "grouped", "fit_intercept"),
    [
        (2, 0.0, False, True),
        (1, 0.0, False, False),
        (np.inf, 0.0, True, True),
        (3, 0.0, False, True),
        (2, 0.5, True, False),
    ],
)
def test_every_loss_and_norm_against_cvxpy(long, loss, norm_q, sparsity, grouped, fit_intercept):
    X, y, weight = long
    model = MixedNormRegressor if loss in ("squared", "absolute") else MixedNormClassifier
    y = y if model is MixedNormRegressor else np.where(y > np.median(y), 1.0, -1.0)
    groups = GROUPS if grouped else np.arange(10)
    best, coef = oracle(X, y, weight, loss, norm_q, sparsity, groups, fit_intercept)
    options = {"norm_q": norm_q, "task_sparsity": sparsity, "groups": groups, "fit_intercept": fit_intercept}
    tol = 1e-8 if loss in ("squared", "logistic") else 1e-5
    found = model(loss=loss, penalty_strength=0.1, ridge=0.3, tol=tol, max_iter=100_000, **options)
    found.fit(X, y, tasks=TASKS, sample_weight=weight)
    assert found.converged_ and abs(found.objective_ - best) <= found.dual_gap_ + 1e-7
    np.testing.assert_allclose(found.coef_, coef, atol=1e-3 if tol == 1e-8 else 0.02)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_models_without_gram_matrices_agree(long, loss, form, monkeypatch):
    X, y, _ = long
    y = y if loss == "squared" else np.where(y > np.median(y), 1.0, -1.0)
    data = TaskData.from_long(form(X), y, TASKS)
    problem = Problem(data, find_family(loss), RowPenalty(0.05, 3.0), data.loss_weights("mean"), ridge=0.02)
    by_gram = automatic.solve(problem, solver="working_set", tol=1e-10)
    monkeypatch.setattr(quadratic_models, "GRAM_LIMIT", 0)
    monkeypatch.setattr(quadratic_models, "SMALL_DENSE", 0)
    by_columns = automatic.solve(problem, solver="working_set", tol=1e-10)
    assert by_gram.converged and by_columns.converged
    np.testing.assert_allclose(by_columns.W, by_gram.W, atol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_descent_without_gram_matrix_agrees(wide, form, monkeypatch):
    X, Y = wide
    stored = MixedNormRegressor(penalty_strength=0.05, ridge=0.1, tol=1e-12).fit(X, Y)
    monkeypatch.setattr("bayesmtfs.convex.shared_design.SharedRounds._largest_gram", lambda self: 0)
    monkeypatch.setattr(shared_rows, "NEWTON_STEPS", np.inf)
    by_columns = MixedNormRegressor(penalty_strength=0.05, ridge=0.1, tol=1e-12).fit(form(X), Y)
    assert by_columns.converged_
    np.testing.assert_allclose(by_columns.coef_, stored.coef_, atol=1e-5)


def test_path_begins_at_the_same_penalty_and_keeps_its_ridge(wide):
    plain = mixed_norm_path(*wide, n_penalties=5, penalty_ratio=0.1)
    path = mixed_norm_path(*wide, n_penalties=5, penalty_ratio=0.1, ridge=0.5, tol=1e-9)
    assert path.penalties[0] == plain.penalties[0] and path.converged.all()
    single = MixedNormRegressor(penalty_strength=path.penalties[-1], ridge=0.5, tol=1e-9).fit(*wide)
    np.testing.assert_allclose(path.coefs[-1], single.coef_, atol=1e-4)


def test_cross_validation_takes_a_ridge_where_the_signal_is_dense():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 60)) / np.sqrt(60)
    Y = X @ rng.normal(size=(60, 3)) + 0.3 * rng.normal(size=(40, 3))
    model = MixedNormRegressorCV(ridge=[0.0, 0.003, 0.01], n_penalties=15, cv=4).fit(X, Y)
    assert model.ridge_ in (0.003, 0.01) and model.cv_results_["ridge"].tolist() == [0.0, 0.003, 0.01]
    assert MixedNormClassifierCV(ridge=0.1, n_penalties=5, cv=2).fit(X, Y[:, 0] > 0).ridge_ == 0.1


@pytest.mark.parametrize("ridge", [-1.0, np.nan, [0.1, -0.1]])
def test_bad_ridges_are_named(wide, ridge):
    with pytest.raises(ValueError, match="ridge is"):
        MixedNormRegressorCV(ridge=ridge).fit(*wide)
    with pytest.raises(ValueError, match="ridge is"):
        MixedNormRegressor(ridge=ridge).fit(*wide)
