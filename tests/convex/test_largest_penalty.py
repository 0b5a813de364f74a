"""Smallest penalty at which all coefficients are zero, of the hinge and the absolute loss: against a conic program."""

import cvxpy as cp
import numpy as np
import pytest

from bayesmtfs import MixedNormClassifier, TaskData
from bayesmtfs.convex import automatic, nonsmooth
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty


def make_problem(loss, norm_q, fit_intercept=True, balanced=False):
    """Two tasks with unequal classes, or with many targets at the median."""
    rng = np.random.default_rng(3)
    X, tasks = rng.standard_normal((60, 7)), np.repeat([0, 1], 30)
    score = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(60)
    if loss == "hinge":
        y = np.where(score > (np.median(score[:30]) if balanced else 0.8), 1.0, -1.0)
        y[30:] = y[:30] if balanced else y[30:]
    else:
        y = score if balanced else np.round(score)
    data = TaskData.from_long(X, y, tasks)
    return Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"), fit_intercept)


def by_cvxpy(problem):
    """Smallest largest dual norm over all theta that are optimal at W = 0."""
    data, box, theta = problem.data, problem.kinks, cp.Variable(problem.data.n_observations)
    q = problem.penalty.norm_q
    dual = {1.0: "inf", 2.0: 2, np.inf: 1}[q]
    scores = cp.vstack([X.T @ theta[a:b] for X, (a, b) in zip(data.task_designs, data.spans, strict=True)])
    largest = cp.max(cp.norm(scores, dual, axis=0))
    constraints = [theta >= box.left, theta <= box.right, -data.y @ theta >= problem.null_objective - 1e-10]
    if problem.fit_intercept:
        constraints += [cp.sum(theta[a:b]) == 0 for a, b in data.spans]
    return cp.Problem(cp.Minimize(largest), constraints).solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("norm_q", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_strength_is_that_of_a_conic_program(loss, norm_q, fit_intercept):
    problem = make_problem(loss, norm_q, fit_intercept)
    largest = nonsmooth.largest_penalty(problem)
    assert largest == pytest.approx(by_cvxpy(problem), rel=1e-5)
    assert largest <= problem.largest_penalty * (1 + 1e-12)
    if loss == "hinge" and fit_intercept:
        assert largest < 0.95 * problem.largest_penalty


@pytest.mark.parametrize("norm_q", [1.0, 2.0, np.inf])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_zero_there_and_not_below(loss, norm_q):
    problem = make_problem(loss, norm_q)
    largest = nonsmooth.largest_penalty(problem)
    at_largest = automatic.solve(problem.with_strength(largest))
    assert at_largest.converged and not at_largest.W.any()
    assert automatic.solve(problem.with_strength(0.99 * largest), tol=1e-8).W.any()


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_no_search_where_nothing_is_free(loss, monkeypatch):
    problem = make_problem(loss, 2.0, balanced=True)
    monkeypatch.setattr(nonsmooth, "solve", None)
    assert nonsmooth.largest_penalty(problem) == problem.largest_penalty


def test_the_default_strength_is_a_tenth_of_it():
    problem = make_problem("hinge", 2.0)
    model = MixedNormClassifier(loss="hinge").fit(problem.data)
    assert model.penalty_strength_ == pytest.approx(0.1 * nonsmooth.largest_penalty(problem))
