"""Spectral proximal gradient: KKT conditions, starts, interruption, and rows seen only through sums over parts."""

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.convex import proximal_gradient, working_set
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.proximal_gradient import RowSums, Spectral, row_conjugate, row_sums
from bayesmtfs.families import Logistic, find_family
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
    plain = proximal_gradient.Spectral.step

    def interrupted(*arguments):
        if next(steps) == 30:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(proximal_gradient.Spectral, "step", interrupted)
    solution = proximal_gradient.solve(problem, tol=1e-14)
    assert solution.interrupted and not solution.converged
    assert solution.objective < problem.null_objective
    assert np.isfinite(solution.gap)


def test_constant_target_has_no_gap():
    data = TaskData.from_long(np.eye(5), np.full(5, 0.1))
    problem = Problem(data, find_family("squared"), RowPenalty(0.1, 2), data.loss_weights("mean"))
    solution = proximal_gradient.solve(problem)
    assert solution.converged and (solution.W == 0).all()


class HalfByHalf:
    """Passes over two halves of the rows, which are added."""

    def __init__(self, data, halves, weights):
        self.halves, self.weights = halves, weights
        self.means = data.adjoint(data.weight) / np.add.reduceat(data.weight, data.offsets[:-1])

    def sums(self, W, intercept):
        found = [row_sums(d, w, Logistic(), W, intercept) for d, w in zip(self.halves, self.weights, strict=True)]
        return RowSums(*(sum(part) for part in zip(*found, strict=True)))

    def conjugate(self, *point):
        parts = zip(self.halves, self.weights, strict=True)
        return sum(row_conjugate(data, weight, Logistic(), *point) for data, weight in parts)


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=3, n_features=6, n_relevant=2, n_samples=40, kind="classification", random_state=0)


@pytest.fixture(scope="module")
def passes(sim):
    data = TaskData.from_long(sim.X + 2.0, sim.y, sim.tasks)
    halves = [
        TaskData.from_long(sim.X[i] + 2.0, sim.y[i], sim.tasks[i]) for i in (slice(0, None, 2), slice(1, None, 2))
    ]
    return data, HalfByHalf(data, halves, [np.full(len(half.y), 1 / 40) for half in halves])


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("norm_q", "task_sparsity"), [(1, 0.0), (2, 0.0), (np.inf, 0.0), (2, 0.4)])
def test_the_same_minimum_and_a_true_gap(passes, fit_intercept, norm_q, task_sparsity):
    data, parts = passes
    problem = Problem(
        data, Logistic(), RowPenalty(0.02, norm_q, task_sparsity), data.loss_weights("mean"), fit_intercept
    )
    whole = working_set.solve(problem, tol=1e-12)
    spectral = Spectral(parts, problem.penalty, fit_intercept)
    start = spectral.at(np.zeros((6, 3)), problem.null_intercept)
    found = spectral.minimise(start, start.objective, 1e-12, 10_000)
    assert found.converged
    np.testing.assert_allclose(found.W, whole.W, atol=1e-5)
    assert abs(found.objective - whole.objective) < 1e-11
    early = spectral.minimise(start, start.objective, 1e-12, 3)
    assert not early.converged
    assert early.gap >= early.objective - whole.objective > 0
    assert spectral.balance(start)[2] == pytest.approx(problem.largest_penalty, rel=1e-12)


def test_sums_are_the_gradient(passes):
    data, parts = passes
    rng = np.random.default_rng(0)
    W, b, direction = rng.standard_normal((6, 3)), rng.standard_normal(3), rng.standard_normal((6, 3))
    sums, step = parts.sums(W, b), 1e-6
    slope = (parts.sums(W + step * direction, b).value - parts.sums(W - step * direction, b).value) / (2 * step)
    assert np.sum((sums.positive + sums.negative) * direction) == pytest.approx(slope, rel=1e-6)
    slope = (parts.sums(W, b + step).value - parts.sums(W, b - step).value) / (2 * step)
    assert np.sum(sums.positive_total + sums.negative_total) == pytest.approx(slope, rel=1e-6)


def test_a_penalty_at_which_nothing_is_selected_needs_no_step(passes):
    data, parts = passes
    problem = Problem(data, Logistic(), RowPenalty(0.0, 2), data.loss_weights("mean"))
    strength = 1.01 * problem.largest_penalty
    spectral = Spectral(parts, RowPenalty(strength, 2), True)
    start = spectral.at(np.zeros((6, 3)), problem.null_intercept)
    found = spectral.minimise(start, start.objective, 1e-9, 10_000)
    assert found.n_iter == 0 and found.converged and not found.W.any()
