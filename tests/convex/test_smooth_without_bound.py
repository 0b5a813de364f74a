"""A smooth loss whose curvature has no bound (a user's Poisson family): minima, certificates and paths."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import xlogy

from bayesmtfs import TaskData
from bayesmtfs.convex import automatic, proximal_gradient, shared_mean, working_set
from bayesmtfs.convex.path import SolveSettings, largest_penalty, penalty_grid, solve_path
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.refit import refit_selected
from bayesmtfs.families import Family
from bayesmtfs.priors import RowPenalty

SOLVERS = {"working_set": working_set.solve, "proximal_gradient": proximal_gradient.solve}
GROUPS = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4, 5])


class Counts(Family):
    """Poisson counts with a log link."""

    name = "test_counts"
    targets = "counts"

    def value(self, y, eta):
        return np.exp(eta) - y * eta

    def gradient(self, y, eta):
        return np.exp(eta) - y

    def curvature(self, y, eta):
        return np.exp(eta) + 0.0 * y

    def conjugate(self, y, dual):
        rate = np.maximum(y + dual, 0.0)
        return np.where(y + dual < 0.0, np.inf, xlogy(rate, rate) - rate)


class CountsByGradient(Counts):
    """The same without second derivatives."""

    curvature = Family.curvature


def make_data(form, sizes=(40, 25, 60), p=10, seed=0):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), p))
    if form == "sparse":
        X *= rng.random(X.shape) < 0.3
    W = np.zeros((p, len(sizes)))
    W[:3] = 0.5 * rng.standard_normal((3, len(sizes)))
    weight = rng.uniform(0.5, 2.0, len(tasks)) if form == "weights" else None
    groups = GROUPS if form == "groups" else None
    if form == "wide":
        X = X[: sizes[0]]
        return TaskData.from_wide(X, rng.poisson(np.exp(1.0 + X @ W)).astype(float))
    y = rng.poisson(np.exp(1.0 + np.sum(X * W[:, tasks].T, axis=1))).astype(float)
    return TaskData.from_long(
        sp.csr_matrix(X) if form == "sparse" else X, y, tasks, sample_weight=weight, groups=groups
    )


def make_problem(form="long", norm_q=2, sparsity=0.0, fit_intercept=True, share=0.1, family=None, **options):
    data = make_data(form, **options)
    penalty = RowPenalty(1.0, norm_q, sparsity)
    problem = Problem(data, family or Counts(), penalty, data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


def minimum_by_cvxpy(problem):
    data, penalty = problem.data, problem.penalty
    W, b = cp.Variable((data.n_features, data.n_tasks)), cp.Variable(data.n_tasks)
    loss = 0.0
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        X = X.toarray() if sp.issparse(X) else X
        eta = X @ W[:, t] + (b[t] if problem.fit_intercept else 0.0)
        loss += problem.weight[start:stop] @ (cp.exp(eta) - cp.multiply(data.y[start:stop], eta))
    groups = np.arange(data.n_features) if data.groups is None else data.groups
    rows = [cp.vec(W[np.flatnonzero(groups == g)], order="C") for g in np.unique(groups)]
    norms = [cp.norm(row, float(penalty.norm_q)) + penalty.task_sparsity * cp.norm1(row) for row in rows]
    objective = cp.Minimize(loss + penalty.strength * cp.sum(norms))
    return cp.Problem(objective).solve(solver=cp.CLARABEL, tol_gap_rel=1e-9, tol_gap_abs=1e-9)


def check(problem, solution, tol=1e-6):
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.converged and solution.gap <= tol * problem.gap_scale
    assert problem.gap(solution.W, eta) <= 1.01 * tol * problem.gap_scale
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), abs=1e-10)
    minimum = minimum_by_cvxpy(problem)
    assert -1e-7 <= solution.objective - minimum <= 1e-7 + solution.gap
    assert solution.objective == pytest.approx(minimum, abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (1.5, 0.0), (2, 0.0), (2, 0.5), (np.inf, 0.0)])
def test_minimum_for_every_penalty(norm_q, sparsity, fit_intercept, solver):
    problem = make_problem("long", norm_q, sparsity, fit_intercept)
    check(problem, SOLVERS[solver](problem, tol=1e-7), 1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("form", ["sparse", "groups", "weights", "wide"])
def test_minimum_for_every_form_of_data(form, solver):
    problem = make_problem(form)
    check(problem, SOLVERS[solver](problem, tol=1e-7), 1e-7)


def test_the_solver_is_chosen_by_what_the_family_offers():
    problem = make_problem()
    assert automatic.choose(problem) == "working_set"
    poor = make_problem(family=CountsByGradient())
    assert automatic.choose(poor) == "proximal_gradient"
    check(poor, automatic.solve(poor))
    with pytest.raises(ValueError, match="solver='working_set' needs curvature; CountsByGradient offers value"):
        automatic.solve(poor, solver="working_set")


@pytest.mark.parametrize("share", [0.9, 1e-2, 1e-4])
@pytest.mark.parametrize("solver", SOLVERS)
def test_weak_and_strong_penalties(share, solver):
    problem = make_problem(share=share)
    check(problem, SOLVERS[solver](problem, tol=1e-7, max_iter=100_000), 1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_large_counts_and_long_tails(solver):
    rng = np.random.default_rng(3)
    tasks = np.repeat([0, 1], 40)
    X = rng.standard_t(3, (80, 8))
    y = rng.poisson(np.exp(3.0 + X[:, 0])).astype(float)
    data = TaskData.from_long(X, y, tasks)
    problem = Problem(data, Counts(), RowPenalty(1.0), data.loss_weights("mean"))
    problem = problem.with_strength(0.01 * problem.largest_penalty)
    solution = SOLVERS[solver](problem, tol=1e-8, max_iter=100_000)
    assert solution.converged and np.isfinite(solution.objective)
    far = solution._replace(W=solution.W + 100.0)  # the loss overflows there
    assert not np.isfinite(problem.objective(far.W, data.linear_predictor(far.W, far.intercept)))


def test_many_features_by_working_sets():
    data = make_data("long", sizes=(30, 30), p=400)
    problem = Problem(data, Counts(), RowPenalty(1.0), data.loss_weights("mean"))
    problem = problem.with_strength(0.05 * problem.largest_penalty)
    solution = working_set.solve(problem)
    assert solution.converged and 0 < np.count_nonzero(solution.W.any(axis=1)) < 100
    plain = proximal_gradient.solve(problem, tol=1e-7, max_iter=100_000)
    assert solution.objective == pytest.approx(plain.objective, abs=2e-6 * problem.gap_scale)


def test_path_is_certified_and_warm():
    problem = make_problem()
    grid = penalty_grid(largest_penalty(problem, SolveSettings()), 8, 0.01)
    path = solve_path(problem, grid, SolveSettings(tol=1e-7))
    assert not path.solutions[0].W.any()
    for strength, solution in zip(grid[1:4], path.solutions[1:4], strict=True):
        check(problem.with_strength(strength), solution, 1e-7)
    assert all(solution.converged for solution in path.solutions)
    shares = solve_path(problem, grid, SolveSettings(), may_stop=True)
    assert shares.stop_reason == "" or "deviance" in shares.stop_reason


def test_largest_penalty_is_where_all_coefficients_vanish():
    problem = make_problem()
    assert not working_set.solve(problem.with_strength(1.001 * problem.largest_penalty)).W.any()
    assert working_set.solve(problem.with_strength(0.99 * problem.largest_penalty), tol=1e-9).W.any()


def test_shared_mean_is_certified():
    problem = make_problem(share=0.3)
    data, strength = problem.data, problem.penalty.strength
    found = shared_mean.solve(problem, 0.1, tol=1e-7).solution
    mean, V = cp.Variable(data.n_features + 1), cp.Variable((data.n_features + 1, data.n_tasks))
    objective = 0.05 * cp.sum_squares(mean[:-1]) + strength * cp.sum(cp.norm(V, axis=1))
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        eta = np.hstack([X, np.ones((len(X), 1))]) @ (mean + V[:, t])
        objective += problem.weight[start:stop] @ (cp.exp(eta) - cp.multiply(data.y[start:stop], eta))
    assert found.converged
    assert found.objective == pytest.approx(cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL), abs=1e-6)


def test_refit_keeps_the_zeros():
    problem = make_problem(share=0.3)
    solution = working_set.solve(problem)
    refitted = refit_selected(problem, solution)
    np.testing.assert_array_equal(refitted.W != 0, solution.W != 0)
    eta = problem.data.linear_predictor(refitted.W, refitted.intercept)
    sums = problem.data.adjoint(problem.dual_candidate(eta))[solution.W != 0]
    assert np.abs(sums).max() < 0.01 * problem.penalty.strength + 1e-6
