"""Hinge and absolute loss at penalties that hardly count: certified, and the minimum of the loss alone."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData, simulate_tasks
from bayesmtfs.convex import nonsmooth, saddle_point
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

ESTIMATORS = {"absolute": MixedNormRegressor, "hinge": MixedNormClassifier}


def draw(loss, seed=0):
    """Three tasks, of which the hinge can separate two but not the third."""
    kind = "classification" if loss == "hinge" else "regression"
    sim = simulate_tasks(n_tasks=3, n_features=8, n_relevant=5, n_samples=40, kind=kind, random_state=seed)
    y = sim.y.copy()
    if loss == "hinge":
        noisy = np.flatnonzero(sim.tasks == sim.tasks[-1])
        y[noisy] = np.random.default_rng(seed).permutation(y[noisy])
    return sim.X, y, sim.tasks


def make_problem(loss, share, norm_q=2.0, task_sparsity=0.0, fit_intercept=True, form=np.asarray):
    X, y, tasks = draw(loss)
    data = TaskData.from_long(form(X), y, tasks)
    penalty = RowPenalty(1.0, norm_q, task_sparsity)
    problem = Problem(data, find_family(loss), penalty, data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


def smallest_loss(loss, X, y, tasks):
    """Minimum of the mean losses by cvxpy, summed over tasks."""
    value = 0.0
    for name in np.unique(tasks):
        own = tasks == name
        w, b = cp.Variable(X.shape[1]), cp.Variable()
        eta = X[own] @ w + b
        sizes = cp.abs(y[own] - eta) if loss == "absolute" else cp.pos(1 - cp.multiply(y[own], eta))
        value += cp.Problem(cp.Minimize(cp.sum(sizes) / own.sum())).solve(solver=cp.CLARABEL)
    return value


@pytest.mark.parametrize("norm_q, task_sparsity", [(1.0, 0.0), (1.5, 0.0), (2.0, 0.0), (2.0, 0.5), (np.inf, 0.0)])
@pytest.mark.parametrize("loss", ["absolute", "hinge"])
@pytest.mark.parametrize("share", [1e-4, 1e-5, 1e-6, 1e-8, 1e-12])
def test_every_small_penalty_is_certified(loss, share, norm_q, task_sparsity):
    problem = make_problem(loss, share, norm_q, task_sparsity)
    solution = nonsmooth.solve(problem)
    assert solution.converged
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_vertex_is_the_exact_solution_at_a_small_penalty(fit_intercept, form):
    problem = make_problem("absolute", 1e-4, fit_intercept=fit_intercept, form=form)
    found = saddle_point.solve_at_vertex(problem, nonsmooth._at_zero(problem, 1e-9), tol=1e-9)
    assert found.converged
    assert found.n_iter == 1
    at_kink = np.abs(problem.data.y - problem.data.linear_predictor(found.W, found.intercept)) < 1e-9
    assert at_kink.sum() == 3 * (8 + fit_intercept)
    at_larger_penalty = saddle_point.solve_at_vertex(
        problem.with_strength(1e3 * problem.penalty.strength), found, tol=1e-9
    )
    assert at_larger_penalty is found


@pytest.mark.parametrize("loss", ["absolute", "hinge"])
def test_no_penalty_gives_the_smallest_loss(loss):
    X, y, tasks = draw(loss)
    model = ESTIMATORS[loss](loss=loss, penalty_strength=0.0).fit(X, y, tasks=tasks)
    assert model.converged_
    labels = np.where(y == np.unique(y)[-1], 1.0, -1.0) if loss == "hinge" else y
    smallest = smallest_loss(loss, X, labels, tasks)
    assert smallest > 0.05
    assert model.objective_ == pytest.approx(smallest, rel=1e-6)


@pytest.mark.parametrize("norm_q, task_sparsity", [(1.0, 0.0), (1.5, 0.0), (2.0, 0.0), (2.0, 0.5), (np.inf, 0.0)])
@pytest.mark.parametrize("groups", [None, np.array([0, 0, 1, 2, 2, 2, 3, 4])])
def test_gradient_of_the_penalty_against_finite_differences(norm_q, task_sparsity, groups):
    X, y, tasks = draw("absolute")
    data = TaskData.from_long(X, y, tasks, groups=groups)
    problem = Problem(data, find_family("absolute"), RowPenalty(0.7, norm_q, task_sparsity), data.loss_weights("mean"))
    W = np.random.default_rng(0).standard_normal((8, 3))
    numeric = np.empty_like(W)
    for place in np.ndindex(W.shape):
        step = np.zeros_like(W)
        step[place] = 1e-6
        above, below = (problem.penalty.value(problem.blocks.gather(W + s * step)) for s in (1, -1))
        numeric[place] = (above - below) / 2e-6
    np.testing.assert_allclose(
        problem.blocks.scatter(problem.penalty.gradient(problem.blocks.gather(W))), numeric, atol=1e-8
    )


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_inner_points_balance_the_features_of_tasks_that_cannot_be_separated(fit_intercept):
    problem = make_problem("hinge", 1e-6, fit_intercept=fit_intercept)
    theta = saddle_point.inner_points(problem)
    box = problem.kinks
    start, stop = problem.data.spans[-1]
    inner = theta[start:stop]
    assert ((box.left[start:stop] < inner) & (inner < box.right[start:stop])).all()
    np.testing.assert_allclose(inner @ problem.data.task_designs[-1], 0.0, atol=1e-12)
    assert not fit_intercept or abs(inner.sum()) < 1e-12
    assert np.isnan(theta[slice(*problem.data.spans[1])]).all()


def test_a_vertex_is_for_small_penalties_and_many_observations():
    assert saddle_point.vertex_applies(make_problem("absolute", 1e-5))
    assert not saddle_point.vertex_applies(make_problem("absolute", 1e-2))
    few = TaskData.from_long(np.eye(6), np.arange(6.0), [0, 0, 0, 1, 1, 1])
    assert not saddle_point.vertex_applies(
        Problem(few, find_family("absolute"), RowPenalty(1e-9, 2.0), few.loss_weights("mean"))
    )
