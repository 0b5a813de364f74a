"""The certificate: never below the true suboptimality."""

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.convex import proximal_gradient
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty


def make_problem(seed=0, norm_q=2.0, loss="squared", fit_intercept=True, share=0.2, task_sparsity=0.0):
    kind = "regression" if loss == "squared" else "classification"
    sim = simulate_tasks(n_tasks=3, n_features=12, n_relevant=3, n_samples=[20, 30, 25], kind=kind, random_state=seed)
    data = TaskData.from_long(sim.X, sim.y, sim.tasks)
    penalty = RowPenalty(1.0, norm_q, task_sparsity)
    problem = Problem(data, find_family(loss), penalty, data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


def solve(problem, tol):
    return proximal_gradient.solve(problem, tol=tol, max_iter=100_000)


@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 4, np.inf])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gap_bounds_the_suboptimality_of_any_point(norm_q, loss, fit_intercept):
    problem = make_problem(norm_q=norm_q, loss=loss, fit_intercept=fit_intercept)
    best = solve(problem, 1e-11)
    assert best.converged
    rng = np.random.default_rng(0)
    for size in (0.0, 1e-6, 1e-3, 1.0):
        W = best.W + size * rng.standard_normal(best.W.shape)
        b = best.intercept + size * rng.standard_normal(3) * fit_intercept
        eta = problem.data.linear_predictor(W, b)
        excess = problem.objective(W, eta) - best.objective
        assert problem.gap(W, eta) >= excess - 1e-12 * best.scale


def test_sparse_group_gap():
    problem = make_problem(task_sparsity=0.7)
    rough, exact = solve(problem, 1e-3), solve(problem, 1e-11)
    assert exact.converged and rough.objective - exact.objective <= rough.gap
    assert exact.gap <= 1e-11 * exact.scale


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_zero_is_optimal_from_the_largest_penalty_on(loss, norm_q):
    problem = make_problem(loss=loss, norm_q=norm_q)
    largest = problem.largest_penalty
    zero = np.zeros((12, 3))
    eta = problem.null_intercept[problem.data.task]
    assert problem.with_strength(largest).gap(zero, eta) <= 1e-13 * problem.gap_scale
    assert problem.with_strength(0.99 * largest).gap(zero, eta) > 1e-6 * problem.gap_scale


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute"])
def test_null_intercept_minimises_the_loss_of_a_constant(loss):
    problem = make_problem(loss="squared" if loss == "absolute" else "logistic")
    family = find_family(loss)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.1, 2.0, 30)
    y = problem.data.y[20:50]
    best = family.best_constant(y, weight)
    around = best + np.linspace(-1, 1, 2001)
    values = [np.sum(weight * family.value(y, np.full(30, c))) for c in around]
    assert np.sum(weight * family.value(y, np.full(30, best))) <= min(values) + 1e-12


@pytest.mark.parametrize("norm_q", [1, 3, np.inf])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_largest_penalty_of_constant_columns_is_no_rounding_error(loss, norm_q, dtype):
    rng = np.random.default_rng(11)
    X = np.tile(rng.uniform(0.1, 7.0, 4), (50, 1)).astype(dtype)
    y = np.where(rng.standard_normal(50) > 0, 1.0, -1.0) if loss in ("logistic", "hinge") else rng.standard_normal(50)
    data = TaskData.from_long(X, y, np.arange(50) % 3)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"))
    assert problem.largest_penalty == 0.0
    varying = TaskData.from_long(np.hstack([X, 1e-6 * rng.standard_normal((50, 1))]).astype(dtype), y, data.task)
    assert Problem(varying, find_family(loss), RowPenalty(1.0, norm_q), problem.weight).largest_penalty > 0.0
