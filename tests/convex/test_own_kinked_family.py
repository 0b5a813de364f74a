"""A user's own piecewise linear family, the quantile loss: solved, certified and compared with cvxpy."""

import cvxpy as cp
import numpy as np
import pytest

from bayesmtfs import MixedNormRegressor, MixedNormRegressorCV, TaskData
from bayesmtfs.convex import automatic, nonsmooth
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import Family, Kinks
from bayesmtfs.priors import RowPenalty

DUAL_NORM = {1.0: "inf", 2.0: 2, np.inf: 1}


class Quantile(Family):
    """``tau (y - eta)`` below the target and ``(1 - tau) (eta - y)`` above it: the check loss of Koenker and Bassett."""

    name = "my_quantile"
    smooth = False

    def __init__(self, tau):
        self.tau = tau

    def value(self, y, eta):
        return np.maximum((self.tau - 1.0) * (y - eta), self.tau * (y - eta))

    def gradient(self, y, eta):
        return np.where(eta > y, 1.0 - self.tau, np.where(eta < y, -self.tau, 0.0))

    def conjugate(self, y, dual):
        return np.where((dual < -self.tau) | (dual > 1.0 - self.tau), np.inf, y * dual)

    def kinks(self, y):
        return Kinks(y, np.full_like(y, -self.tau), np.full_like(y, 1.0 - self.tau))

    def mean(self, eta):
        return np.array(eta)


def draw(rounded=False):
    """Three tasks of unequal sizes, with noise of one heavy tail."""
    rng = np.random.default_rng(5)
    tasks = np.repeat(["a", "b", "c"], [40, 25, 60])
    X = rng.standard_normal((125, 9)) + 1.0
    y = X[:, 0] - X[:, 1] + (tasks == "c") * X[:, 2] + rng.exponential(1.0, 125)
    return X, (np.round(y) if rounded else y), tasks


def make_problem(tau=0.8, norm_q=2.0, fit_intercept=True, rounded=False, loss_scale="mean"):
    data = TaskData.from_long(*draw(rounded))
    return Problem(data, Quantile(tau), RowPenalty(1.0, norm_q), data.loss_weights(loss_scale), fit_intercept)


def by_cvxpy(problem):
    data, tau, value = problem.data, problem.family.tau, 0.0
    W, b = cp.Variable((data.n_features, data.n_tasks)), cp.Variable(data.n_tasks)
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        residual = data.y[start:stop] - X @ W[:, t] - b[t]
        value += problem.weight[start:stop] @ cp.maximum(tau * residual, (tau - 1) * residual)
    norms = cp.norm(W, problem.penalty.norm_q if problem.penalty.norm_q < np.inf else "inf", axis=1)
    constraints = [] if problem.fit_intercept else [b == 0]
    solved = cp.Problem(cp.Minimize(value + problem.penalty.strength * cp.sum(norms)), constraints)
    return solved.solve(solver=cp.CLARABEL, tol_gap_rel=1e-10, tol_gap_abs=1e-10)


def largest_penalty_by_cvxpy(problem):
    """Smallest largest dual norm over all theta that are optimal at W = 0."""
    data, tau, theta = problem.data, problem.family.tau, cp.Variable(problem.data.n_observations)
    scores = cp.vstack([X.T @ theta[a:b] for X, (a, b) in zip(data.task_designs, data.spans, strict=True)])
    constraints = [theta >= -tau * problem.weight, theta <= (1 - tau) * problem.weight]
    constraints += [-data.y @ theta >= problem.null_objective - 1e-10]
    if problem.fit_intercept:
        constraints += [cp.sum(theta[a:b]) == 0 for a, b in data.spans]
    largest = cp.max(cp.norm(scores, DUAL_NORM[problem.penalty.norm_q], axis=0))
    return cp.Problem(cp.Minimize(largest), constraints).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("norm_q", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("share", [0.7, 0.2, 1e-2, 1e-5])
def test_solutions_are_certified_and_those_of_cvxpy(share, norm_q, fit_intercept):
    problem = make_problem(norm_q=norm_q, fit_intercept=fit_intercept)
    problem = problem.with_strength(share * problem.largest_penalty)
    solution = automatic.solve(problem)
    assert solution.converged
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-12)
    assert solution.objective == pytest.approx(by_cvxpy(problem), rel=2e-6)


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("norm_q", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("tau", [0.1, 0.8])
def test_the_largest_penalty_is_exact(tau, norm_q, fit_intercept, rounded):
    problem = make_problem(tau, norm_q, fit_intercept, rounded)
    largest = nonsmooth.largest_penalty(problem)
    assert largest == pytest.approx(largest_penalty_by_cvxpy(problem), rel=1e-5)
    assert not automatic.solve(problem.with_strength(largest * (1 + 1e-9))).W.any()
    assert automatic.solve(problem.with_strength(0.99 * largest), tol=1e-8).W.any()


def test_extragradient_agrees():
    problem = make_problem()
    problem = problem.with_strength(0.2 * problem.largest_penalty)
    slow = automatic.solve(problem, solver="extragradient", tol=1e-4, max_iter=20_000)
    fast = automatic.solve(problem)
    assert slow.converged and abs(slow.objective - fast.objective) <= slow.gap + fast.gap


@pytest.mark.parametrize("loss_scale", ["mean", "sum"])
def test_the_best_intercept_at_zero_is_the_quantile(loss_scale):
    problem = make_problem(loss_scale=loss_scale)
    for t, (start, stop) in enumerate(problem.data.spans):
        own = problem.data.y[start:stop]
        wanted = np.quantile(own, 0.8, method="inverted_cdf")
        assert problem.null_intercept[t] == wanted
    theta = problem.null_dual
    np.testing.assert_allclose(problem.task_sums(theta), 0.0, atol=1e-12)
    assert problem.dual_objective(theta) <= problem.null_objective * (1 + 1e-12)


@pytest.mark.parametrize("tau", [0.5, 0.8])
def test_the_estimator_takes_the_family(tau):
    X, y, tasks = draw()
    model = MixedNormRegressor(loss=Quantile(tau)).fit(X, y, tasks=tasks)
    assert model.converged_
    sparse = MixedNormRegressor(loss=Quantile(tau), penalty_strength=6 * model.penalty_strength_)
    assert 0 < sparse.fit(X, y, tasks=tasks).get_support().sum() < 9
    below = [np.mean(y[tasks == name] <= model.predict(X, tasks=tasks)[tasks == name]) for name in model.tasks_]
    np.testing.assert_allclose(below, tau, atol=0.1)
    if tau == 0.5:
        absolute = MixedNormRegressor(loss="absolute", penalty_strength=2 * model.penalty_strength_)
        assert absolute.fit(X, y, tasks=tasks).objective_ == pytest.approx(2 * model.objective_, rel=3e-6)


def test_the_path_and_folds_take_the_family():
    X, y, tasks = draw()
    model = MixedNormRegressorCV(loss=Quantile(0.8), n_penalties=6, penalty_ratio=0.05, cv=3, random_state=0)
    assert model.fit(X, y, tasks=tasks).converged_ and model.get_support()[:2].all()


def test_slopes_must_be_on_both_sides_of_zero():
    problem = make_problem(tau=1.2)
    with pytest.raises(ValueError, match="left <= 0 <= right"):
        automatic.solve(problem)
