"""Steps of the interior-point method: strictly feasible for all rows, whether they take part or not."""

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.convex import interior_point, nonsmooth, saddle_point
from bayesmtfs.convex.interior_point import BreakdownError
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty


def make_setup(loss, norm_q, monkeypatch, first_rows=3):
    monkeypatch.setattr(nonsmooth, "FIRST_ROWS", first_rows)
    kind = "classification" if loss == "hinge" else "regression"
    sim = simulate_tasks(n_tasks=3, n_features=40, n_relevant=5, n_samples=25, kind=kind, random_state=1)
    data = TaskData.from_long(sim.X, sim.y, sim.tasks)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"))
    setup = nonsmooth._setup(problem.with_strength(0.2 * problem.largest_penalty))
    return setup, nonsmooth._first_state(setup, None, np.zeros(3, dtype=bool))


@pytest.mark.parametrize("norm_q", [1.0, 1.5, 2.0, np.inf])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_every_iterate_bounds_the_minimum(loss, norm_q, monkeypatch):
    setup, state = make_setup(loss, norm_q, monkeypatch)
    problem = setup.problem
    minimum = nonsmooth.solve(problem, tol=1e-8).objective
    assert len(state.working) < problem.blocks.n_rows
    products, bounds = [interior_point.mean_product(state)], []
    for gap in (1.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.01, 0.01):
        state = interior_point.step(interior_point.Linearised(setup, state, gap), floor=0.0)
        theta = state.theta(setup)
        np.testing.assert_allclose(state.scores, problem.data.adjoint(theta), atol=1e-12)
        assert (np.abs(theta - setup.centre) < setup.intervals.strength).all()
        assert problem.row_dual_norms(theta).max() < problem.penalty.strength
        np.testing.assert_allclose(problem.task_sums(theta), 0.0, atol=1e-13)
        bounds.append(-theta @ problem.data.y)
        products.append(interior_point.mean_product(state))
    assert max(bounds) <= minimum * (1 + 1e-7)
    assert minimum - bounds[-1] < 0.05 * minimum
    assert products[-1] < 0.1 * products[0]


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_the_predicted_point_is_close_once_the_gap_is_small(loss, monkeypatch):
    setup, state = make_setup(loss, 2.0, monkeypatch)
    problem = setup.problem
    solution = nonsmooth.solve(problem, tol=1e-8)
    now = solution.objective
    for _ in range(20):
        linearised = interior_point.Linearised(setup, state, now / solution.objective)
        theta, coefficients = linearised.ahead()
        assert (np.abs(theta - setup.centre) <= setup.intervals.strength * (1 + 1e-12)).all()
        now = solution.objective + state.theta(setup) @ problem.data.y
        if now < 1e-3 * solution.objective:
            break
        state = interior_point.step(linearised, floor=0.0)
    assert now < 1e-3 * solution.objective
    predicted = solution.objective - problem.dual_objective(saddle_point.balanced(problem, theta))
    assert 0 <= predicted < 0.2 * now
    W = np.zeros_like(solution.W)
    W[linearised.state.columns.features] = coefficients
    np.testing.assert_allclose(W, solution.W, atol=0.05 * np.abs(solution.W).max())


def test_a_state_that_is_not_finite_is_refused(monkeypatch):
    setup, state = make_setup("absolute", 2.0, monkeypatch)
    state.rows.entries[:] = np.nan
    with pytest.raises(BreakdownError, match="mean product of slack and price is nan"):
        interior_point.Linearised(setup, state, 1.0)


def test_the_working_set_grows_to_what_is_needed_and_shrinks(monkeypatch):
    setup, state = make_setup("absolute", 2.0, monkeypatch, first_rows=1)
    solution = nonsmooth.solve(setup.problem)
    support = np.flatnonzero(solution.W.any(axis=1))
    sizes = []
    for _ in range(14):
        gap = (solution.objective + state.theta(setup) @ setup.problem.data.y) / solution.objective
        state = interior_point.step(interior_point.Linearised(setup, state, gap), floor=1e-12)
        sizes.append(len(state.working))
    assert np.isin(support, state.working).all()
    assert sizes[0] < max(sizes) < 40 and sizes[-1] < max(sizes)
