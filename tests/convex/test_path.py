"""A sequence of penalties: the grid, its order, its warm starts and where it may stop."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex import automatic, path
from bayesmtfs.convex.path import SolveSettings, largest_penalty, penalty_grid, solve_path
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty


def make_problem(loss="squared", norm_q=2, noise=0.5, n=30, p=6, seed=0):
    rng = np.random.default_rng(seed)
    tasks = np.repeat([0, 1, 2], n)
    X = rng.standard_normal((3 * n, p))
    y = X[:, 0] + X[:, 1] * (tasks - 1) + noise * rng.standard_normal(3 * n) + 1.0
    y = np.where(y > 1, 1.0, -1.0) if loss == "logistic" else y
    data = TaskData.from_long(X, y, tasks)
    return Problem(data, find_family(loss), RowPenalty(0.0, norm_q), data.loss_weights("mean"))


def test_grid_is_geometric_and_begins_at_the_largest():
    grid = penalty_grid(0.3, 7, 1e-3)
    assert grid[0] == 0.3 and grid[-1] == pytest.approx(3e-4)
    np.testing.assert_allclose(grid[1:] / grid[:-1], 1e-3 ** (1 / 6))
    assert penalty_grid(0.0, 7, 1e-3).tolist() == [0.0]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
def test_every_point_equals_a_cold_solve(loss, norm_q):
    problem = make_problem(loss, norm_q)
    grid = penalty_grid(largest_penalty(problem, SolveSettings()), 6, 0.05)
    found = solve_path(problem, grid, SolveSettings(tol=1e-9))
    assert found.stop_reason == "" and (found.penalties == grid).all()
    assert (found.solutions[0].W == 0).all() and (found.solutions[1].W != 0).any()
    for strength, solution in zip(grid, found.solutions, strict=True):
        cold = automatic.solve(problem.with_strength(strength), tol=1e-9)
        assert solution.converged
        assert solution.objective == pytest.approx(cold.objective, rel=1e-7)
        np.testing.assert_allclose(solution.W, cold.W, atol=1e-3)


def test_any_order_and_duplicates_come_back_as_passed():
    problem = make_problem()
    penalties = np.array([0.1, 0.5, 0.1, 0.02, 5.0])
    found = solve_path(problem, penalties, SolveSettings(tol=1e-8))
    again = solve_path(problem, np.sort(penalties)[::-1], SolveSettings(tol=1e-8))
    by_strength = dict(zip(again.penalties.tolist(), again.solutions, strict=True))
    assert found.penalties.tolist() == penalties.tolist()
    for strength, solution in zip(penalties.tolist(), found.solutions, strict=True):
        np.testing.assert_array_equal(solution.W, by_strength[strength].W)


def test_warm_starts_save_iterations():
    problem = make_problem(p=25)
    grid = penalty_grid(problem.largest_penalty, 40, 0.01)
    warm = sum(s.n_iter for s in solve_path(problem, grid, SolveSettings(solver="proximal_gradient")).solutions)
    cold = sum(automatic.solve(problem.with_strength(s), solver="proximal_gradient").n_iter for s in grid)
    assert warm < 0.8 * cold


@pytest.mark.parametrize(
    ("noise", "n", "p", "ratio", "reason"),
    [(0.0, 30, 6, 1e-3, "of the deviance is explained"), (1.0, 30, 6, 1e-9, "the explained deviance stays at")],
)
def test_saturation_stops_where_it_may(noise, n, p, ratio, reason):
    problem = make_problem(noise=noise, n=n, p=p)
    grid = penalty_grid(problem.largest_penalty, 60, ratio)
    short = solve_path(problem, grid, SolveSettings(), may_stop=True)
    assert 5 <= len(short.penalties) < 60 and reason in short.stop_reason
    assert (short.penalties == grid[: len(short.penalties)]).all()
    some = grid[[0, 20, 59]]
    assert len(solve_path(problem, some, SolveSettings()).solutions) == 3


def test_a_finer_grid_does_not_stop_earlier():
    problem = make_problem(noise=1.0)
    ends = [
        solve_path(problem, penalty_grid(problem.largest_penalty, k, 1e-6), SolveSettings(tol=1e-8), may_stop=True)
        for k in (30, 120)
    ]
    assert all(end.stop_reason for end in ends)
    assert 0.3 < ends[0].penalties[-1] / ends[1].penalties[-1] < 3


def test_a_loss_with_kinks_does_not_stop_where_its_path_stands_still():
    problem = make_problem("absolute", norm_q=1, n=10, noise=1.0)
    grid = penalty_grid(largest_penalty(problem, SolveSettings()), 60, 0.1)
    found = solve_path(problem, grid, SolveSettings(), may_stop=True)
    losses = [path._explained(problem.with_strength(k), s, False) for k, s in zip(grid, found.solutions, strict=True)]
    assert (np.abs(np.diff(losses[5:])) < 1e-7).any()  # it stands still on the way
    assert found.stop_reason == "" and len(found.solutions) == 60


def test_an_interrupted_solver_stops_the_path(monkeypatch):
    solve = automatic.solve
    monkeypatch.setattr(path.automatic, "solve", lambda *a, **k: solve(*a, **k)._replace(interrupted=True))
    problem = make_problem()
    with pytest.raises(KeyboardInterrupt):
        solve_path(problem, np.array([0.1]), SolveSettings())


@pytest.mark.parametrize("norm_q", [1, 2])
def test_largest_penalty_with_a_shared_mean_is_that_of_the_pooled_ridge(norm_q):
    problem = make_problem(norm_q=norm_q)
    settings = SolveSettings(tol=1e-10, mean_strength=0.5)
    X = np.column_stack([problem.data.X, np.ones(problem.data.n_observations)])
    y, weight = problem.data.y, problem.weight
    ridge = np.diag([0.5] * 6 + [0.0])
    mean = np.linalg.solve(X.T @ (weight[:, None] * X) + ridge, X.T @ (weight * y))
    residual = weight * (y - X @ mean)
    gradient = np.column_stack([X[t == problem.data.task].T @ residual[t == problem.data.task] for t in range(3)])
    expected = np.linalg.norm(gradient, np.inf if norm_q == 1 else 2, axis=1).max()
    largest = largest_penalty(problem, settings)
    assert largest == pytest.approx(expected, rel=1e-4)
    found = solve_path(problem, np.array([1.01, 0.97]) * expected, settings).solutions
    assert np.ptp(found[0].W, axis=1).max() < 1e-12
    assert max(np.ptp(found[1].W, axis=1).max(), np.ptp(found[1].intercept)) > 1e-6
