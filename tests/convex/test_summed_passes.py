"""A solver that sees the rows only through sums over parts finds what the others find."""

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.convex import proximal_gradient
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.summed_passes import RowSums, largest_penalty, row_conjugate, row_sums, solve
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Logistic
from bayesmtfs.priors import RowPenalty


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
    whole = proximal_gradient.solve(problem, tol=1e-12)
    found = solve(parts, problem.penalty, problem.null_intercept, fit_intercept=fit_intercept, tol=1e-12)
    assert found.converged
    np.testing.assert_allclose(found.W, whole.W, atol=1e-5)
    assert abs(found.objective - whole.objective) < 1e-11
    early = solve(parts, problem.penalty, problem.null_intercept, fit_intercept=fit_intercept, tol=1e-12, max_iter=3)
    assert not early.converged
    assert early.gap >= early.objective - whole.objective > 0
    strongest = largest_penalty(parts, problem.penalty, problem.null_intercept, fit_intercept)
    assert strongest == pytest.approx(problem.largest_penalty, rel=1e-12)


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
    found = solve(parts, RowPenalty(strength, 2), problem.null_intercept, tol=1e-9)
    assert found.n_iter == 0 and found.converged and not found.W.any()
