"""Accelerated proximal gradient: KKT conditions, starts, interruption."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex import proximal_gradient
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

CASES = ["p > n", "duplicate columns", "zero column", "one task", "one feature", "collinear tasks", "unequal scales"]


def hard_problem(case, norm_q, loss="squared"):
    rng = np.random.default_rng(7)
    n, p, m = 30, 10, 3
    if case == "p > n":
        p = 60
    if case == "one task":
        m = 1
    if case == "one feature":
        p = 1
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
    y = X[:, 0] + rng.standard_normal(n)
    y = y if loss == "squared" else np.sign(y)
    data = TaskData.from_long(X, y, tasks)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"))
    return problem.with_strength(0.1 * problem.largest_penalty)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("norm_q", "loss"), [(1, "squared"), (2, "logistic"), (2, "squared"), (np.inf, "squared")])
def test_kkt_conditions_hold(case, norm_q, loss):
    problem = hard_problem(case, norm_q, loss)
    solution = proximal_gradient.solve(problem, tol=1e-10, max_iter=200_000)
    assert solution.converged
    theta = problem.weight * problem.family.gradient(
        problem.data.y, problem.data.linear_predictor(solution.W, solution.intercept)
    )
    np.testing.assert_allclose(problem.task_sums(theta), 0.0, atol=1e-5)
    rows = problem.blocks.gather(solution.W)
    gradient = problem.blocks.gather(problem.data.adjoint(theta))
    # <W, -gradient> = strength * norm for every row, and no dual norm above the strength
    strength = problem.penalty.strength
    assert (problem.penalty.dual_norm(gradient) <= strength * (1 + 1e-3)).all()
    pairing = -(rows * gradient).sum(axis=1)
    np.testing.assert_allclose(pairing, strength * problem.penalty.norms(rows), atol=1e-4 * strength)


def test_objective_trace_ends_at_the_objective():
    problem = hard_problem("p > n", 2)
    solution = proximal_gradient.solve(problem)
    assert solution.objective_trace[-1] == solution.objective
    assert solution.objective_trace[0] == pytest.approx(problem.null_objective)


def test_a_start_at_the_solution_is_recognised():
    problem = hard_problem("p > n", 2)
    solution = proximal_gradient.solve(problem)
    again = proximal_gradient.solve(problem, start=solution)
    assert again.n_iter == 0 and again.converged


def test_interruption_returns_the_best_so_far(monkeypatch):
    problem = hard_problem("unequal scales", 2)
    steps = iter(range(35))
    plain = proximal_gradient._step

    def interrupted(*arguments):
        if next(steps) == 30:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(proximal_gradient, "_step", interrupted)
    solution = proximal_gradient.solve(problem, tol=1e-14)
    assert solution.interrupted and not solution.converged
    assert solution.objective < problem.null_objective
    assert np.isfinite(solution.gap)


def test_constant_target_has_no_gap():
    data = TaskData.from_long(np.eye(5), np.full(5, 0.1))
    problem = Problem(data, find_family("squared"), RowPenalty(0.1, 2), data.loss_weights("mean"))
    solution = proximal_gradient.solve(problem)
    assert solution.converged and (solution.W == 0).all()
