"""Interior points for hinge and absolute loss: degenerate problems, exact zeros, sparse designs."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.likelihoods import named
from bayesmtfs.priors import row_penalty
from bayesmtfs.solvers import nonsmooth
from bayesmtfs.solvers.problem import Problem

CASES = ["p > n", "duplicate columns", "zero column", "one task", "one feature", "collinear tasks", "unequal scales"]


def hard_data(case, loss):
    rng = np.random.default_rng(7)
    n, p, m = 30, 10, 3
    p = {"p > n": 60, "one feature": 1}.get(case, p)
    m = 1 if case == "one task" else m
    tasks = np.arange(n) % m
    X = rng.standard_normal((n, p))
    if case == "duplicate columns":
        X[:, 1] = X[:, 0]
    if case == "zero column":
        X[:, 0] = 0.0
    if case == "collinear tasks":
        X[tasks == 1] = X[tasks == 0]
    if case == "unequal scales":
        X *= np.geomspace(1e-2, 1e2, p)
    y = X[:, -1] + rng.standard_normal(n)
    return X, (np.sign(y) if loss == "hinge" else y), tasks


def problem_of(X, y, tasks, loss, norm_q=2.0, share=0.1):
    data = TaskData.from_long(X, y, tasks)
    problem = Problem(data, named(loss), row_penalty(1.0, norm_q), data.loss_weights("mean"))
    return problem.with_strength(share * problem.largest_penalty)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("case", CASES)
def test_degenerate_problems_are_certified(case, loss):
    for norm_q in (1.0, 2.0, np.inf):
        problem = problem_of(*hard_data(case, loss), loss, norm_q)
        solution = nonsmooth.solve(problem)
        assert solution.converged, (case, loss, norm_q, solution.gap / solution.scale)
        eta = problem.data.linear_predictor(solution.W, solution.intercept)
        assert solution.objective == pytest.approx(problem.objective(solution.W, eta), rel=1e-10)


def test_rows_off_the_support_are_exactly_zero():
    problem = problem_of(*hard_data("p > n", "hinge"), "hinge", share=0.5)
    rows = (nonsmooth.solve(problem).W != 0).any(axis=1)
    assert 0 < rows.sum() < 60


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_a_sparse_design_gives_the_same_minimum(loss):
    X, y, tasks = hard_data("p > n", loss)
    X[np.abs(X) < 0.8] = 0.0
    dense = nonsmooth.solve(problem_of(X, y, tasks, loss))
    sparse = nonsmooth.solve(problem_of(sp.csr_matrix(X), y, tasks, loss))
    assert dense.converged and sparse.converged
    assert dense.objective == pytest.approx(sparse.objective, abs=dense.gap + sparse.gap)
