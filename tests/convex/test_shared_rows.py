"""The problem on the columns in use: descent in all forms, Newton steps, the gap, and the minimum."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex import proximal_point as newton
from bayesmtfs.convex import shared_rows as rows_module
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.row_grams import ColumnGram, StoredGram
from bayesmtfs.convex.shared_design import SharedDesign
from bayesmtfs.convex.shared_rows import (
    BlockDescent,
    Goal,
    RowProblem,
    WholeDescent,
    best_dual,
    minimise,
    start_descent,
    sweep_rows,
)
from bayesmtfs.families import Gaussian
from bayesmtfs.priors import RowPenalty
from bayesmtfs.priors.row_prox import scratch

PENALTIES = [RowPenalty(1.0, q) for q in (1, 1.5, 2, 3, np.inf)] + [RowPenalty(1.0, task_sparsity=0.5)]


def exact(gap, max_iter=20_000):
    return Goal(gap, rough_gap=0.0, work=0.0, max_iter=max_iter)


def make_rows(penalty, gram="stored", n=40, k=120, seed=0):
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.standard_normal((n, k)), axis=1)
    data = TaskData.from_wide(X, X[:, :4] @ rng.standard_normal((4, 3)) + rng.standard_normal((n, 3)))
    design = SharedDesign(Problem(data, Gaussian(), penalty, data.weight))
    columns = design.columns(np.arange(k))
    Q = columns.gram(columns)
    target = columns.correlations(design.Y)
    strength = 0.05 * penalty.dual_norm(target).max()
    strengthened = replace(penalty, strength=1.0, weights=np.full(k, strength))
    kind = StoredGram(Q) if gram == "stored" else ColumnGram(columns)
    return RowProblem(kind, design.Y, target, strengthened, float(np.sum(design.Y**2)) / 2), columns


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_all_descents_make_the_same_epochs(penalty, monkeypatch):
    found = []
    for gram, small, kind in (
        ("stored", 360, WholeDescent),
        ("stored", 359, BlockDescent),
        ("columns", 0, BlockDescent),
    ):
        monkeypatch.setattr(rows_module, "SMALL", small)
        problem, _ = make_rows(penalty, gram)
        W = np.zeros(problem.target.shape)
        descent = start_descent(problem, W)
        assert type(descent) is kind
        before = problem.objective_and_gap(W, problem.correlation(W))[0]
        for _ in range(rows_module.ZEROS_EVERY):
            fell = descent.epoch()
            after = problem.objective_and_gap(W, problem.correlation(W))[0]
            assert 0 < fell <= (before - after) * (1 + 1e-9)
            before = after
        np.testing.assert_allclose(descent.correlation(), problem.correlation(W), atol=1e-10)
        found.append(before)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert found[0] == pytest.approx(found[2], rel=1e-2)


def test_grams_are_the_same_matrix():
    stored, columns = (make_rows(PENALTIES[2], gram)[0].gram for gram in ("stored", "columns"))
    V = np.zeros((120, 3))
    V[5:9] = np.random.default_rng(0).standard_normal((4, 3))
    np.testing.assert_allclose(stored.times(V), columns.times(V), atol=1e-12)
    some = np.array([7, 3, 100])
    np.testing.assert_allclose(stored.block(some), columns.block(some), atol=1e-12)


def test_objective_and_gap_are_those_of_the_residuals():
    problem, columns = make_rows(RowPenalty(1.0, 3))
    W = np.random.default_rng(1).standard_normal((120, 3)) * (np.arange(120) % 7 == 0)[:, None]
    objective, gap = problem.objective_and_gap(W, problem.correlation(W))
    R = problem.Y - columns.predict(W)
    value = np.sum(R**2) / 2 + problem.penalty.value(W)
    assert objective == pytest.approx(value, rel=1e-12)
    largest = problem.penalty.dual_norm(columns.correlations(R)).max()
    scales = np.linspace(0, 1 / largest, 100_001)
    duals = scales * np.sum(R * problem.Y) - scales**2 / 2 * np.sum(R**2)
    assert gap == pytest.approx(value - duals.max(), rel=1e-8)


def test_best_dual_of_nothing():
    assert best_dual(0.0, 0.0, 0.0) == 0
    assert best_dual(-1.0, 1.0, 0.5) == 0
    assert best_dual(4.0, 4.0, 0.0) == 2


@pytest.mark.parametrize(("gram", "small"), [("stored", 5000), ("stored", 0), ("columns", 0)])
@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_minimum(penalty, gram, small, monkeypatch):
    monkeypatch.setattr(rows_module, "SMALL", small)
    problem, _ = make_rows(penalty, gram)
    goal = exact(1e-11 * problem.null_objective)
    W = minimise(problem, np.zeros(problem.target.shape), goal)
    assert problem.objective_and_gap(W, problem.correlation(W))[1] <= goal.gap
    assert goal.n_iter > 0 and not W.any(axis=1).all()
    ahead = problem.penalty.prox(W + problem.correlation(W), 1.0)
    assert np.linalg.norm(W - ahead, axis=1).max() <= 1e-4 * problem.penalty.weights.max()


def test_coordinate_descent_alone_reaches_it_too(monkeypatch):
    monkeypatch.setattr(rows_module, "MAX_FACTORS", 0)
    problem, _ = make_rows(RowPenalty(1.0, 2), "columns")
    goal = exact(1e-4 * problem.null_objective)
    W = minimise(problem, np.zeros(problem.target.shape), goal)
    assert problem.objective_and_gap(W, problem.correlation(W))[1] <= goal.gap


def test_failed_steps_are_not_taken(monkeypatch):
    problem, _ = make_rows(RowPenalty(1.0, 2))
    monkeypatch.setattr(rows_module, "proximal_point", lambda gram, penalty, W, *rest: (W + 1.0, 1))
    goal = exact(1e-6 * problem.null_objective)
    W = minimise(problem, np.zeros(problem.target.shape), goal)
    assert not W.any(axis=1).all()


def test_goal_is_rough_once_the_work_is_done():
    goal = Goal(gap=1.0, rough_gap=10.0, work=15.0, max_iter=5)
    assert goal.reached(1.0) and not goal.reached(10.0)
    goal.add(3, 5.0)
    assert (goal.n_iter, goal.spent) == (3, 15.0)
    assert goal.reached(10.0) and not goal.reached(11.0)


def test_no_more_iterations_than_allowed():
    problem, _ = make_rows(RowPenalty(1.0, 2))
    goal = exact(1e-11, max_iter=2)
    minimise(problem, np.zeros(problem.target.shape), goal)
    assert goal.n_iter == 2


@pytest.fixture
def block():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((15, 6))
    Z /= np.linalg.norm(Z, axis=0)
    W = rng.standard_normal((6, 4))
    W[[1, 4]] = 0.0
    Y = rng.standard_normal((15, 4))
    thresholds = np.array([0.1, 0.5, 0.2, 9.0, 1.5, 0.3])
    return Z, Y, W, thresholds


def updated_row_by_row(Z, Y, W, prox):
    W = W.copy()
    for i in range(len(W)):
        W[i] = prox(i, W[i] + Z[:, i] @ (Y - Z @ W))
    return W


def check(block, prox, sweep):
    Z, Y, W, _ = block
    correlation, rows = np.ascontiguousarray((Y - Z @ W).T @ Z), W.copy()
    moved = sweep(Z.T @ Z, correlation, rows)
    expected = updated_row_by_row(Z, Y, W, prox)
    np.testing.assert_allclose(rows, expected, atol=1e-12)
    assert np.array_equal(rows == 0, expected == 0)
    np.testing.assert_allclose(correlation, (Y - Z @ rows).T @ Z, atol=1e-12)
    np.testing.assert_allclose(moved, np.sum((rows - W) ** 2), rtol=1e-12)


@pytest.mark.parametrize("norm_q", [1, 1.2, 1.5, 3, 10, np.inf])
def test_general_sweep(block, norm_q):
    _, _, W, thresholds = block
    norms, work = np.linalg.norm(W, ord=norm_q, axis=1), scratch(float(norm_q), W.shape[1])

    def prox(i, row):
        return RowPenalty(thresholds[i], norm_q).prox(row[None], 1.0)[0]

    check(
        block, prox, lambda Q, c, rows: sweep_rows(Q, c, rows, thresholds, 0.0 * thresholds, norms, float(norm_q), work)
    )
    rows = updated_row_by_row(*block[:3], prox)
    np.testing.assert_allclose(norms, np.linalg.norm(rows, ord=norm_q, axis=1), atol=1e-12)


@pytest.mark.parametrize("sparsity", [0.0, 0.6])
def test_euclidean_sweep(block, sparsity):
    thresholds = block[3]

    def prox(i, row):
        return RowPenalty(thresholds[i], task_sparsity=sparsity).prox(row[None], 1.0)[0]

    rest = thresholds, sparsity * thresholds, np.zeros(6), 2.0, scratch(2.0, 4)
    check(block, prox, lambda Q, c, rows: sweep_rows(Q, c, rows, *rest))


SMOOTH = [RowPenalty(0.7, q) for q in (1.3, 1.5, 2, 3, 8)] + [RowPenalty(0.7, task_sparsity=0.4)]
ALL = [*SMOOTH, RowPenalty(0.7, 1), RowPenalty(0.7, np.inf)]


def name(penalty):
    return f"sparse group {penalty.task_sparsity}" if penalty.entrywise else f"q = {penalty.norm_q}"


def hessians(bend):
    """Dense Hessian of the penalty at each row."""
    diagonal = np.broadcast_to(bend.diagonal, bend.direction.shape)
    return [np.diag(d) - c * np.outer(g, g) for d, c, g in zip(diagonal, bend.scale, bend.direction, strict=True)]


@pytest.mark.parametrize("penalty", ALL, ids=name)
def test_solve_rows_solves_the_whole_system(penalty):
    rng = np.random.default_rng(2)
    a, m, ridge = 5, 3, 0.01
    Z = rng.standard_normal((8, a))
    Q = Z.T @ Z / 8
    W = rng.standard_normal((a, m))
    W[1, 2] = W[3, 0] = 0.0
    W[2, :2] = [3.0, -3.0]
    right = rng.standard_normal((a, m))
    bend = penalty.curvature(W, newton.STIFF)
    found = newton.solve_rows(Q, bend, ridge, right)
    free = np.broadcast_to(np.isfinite(bend.diagonal), W.shape)
    finite = bend._replace(diagonal=np.where(np.isfinite(bend.diagonal), bend.diagonal, 0.0))
    system = np.kron(Q, np.eye(m)) + ridge * np.eye(a * m)
    for i, block in enumerate(hessians(finite)):
        system[i * m : (i + 1) * m, i * m : (i + 1) * m] += block
    kept = np.flatnonzero(free.ravel())
    expected = np.zeros(a * m)
    expected[kept] = np.linalg.solve(system[np.ix_(kept, kept)], right.ravel()[kept])
    np.testing.assert_allclose(found, expected.reshape(a, m), rtol=1e-6, atol=1e-8)


def test_a_system_that_is_not_definite_has_no_solution():
    bend = RowPenalty(1.0, 1).curvature(np.ones((2, 1)), newton.STIFF)
    assert newton.solve_rows(np.array([[1.0, 2.0], [2.0, 1.0]]), bend, 1e-3, np.ones((2, 1))) is None


@pytest.mark.parametrize("penalty", ALL, ids=name)
@pytest.mark.parametrize("design", ["independent", "duplicates", "nearly collinear"])
def test_proximal_steps_reach_the_minimum(penalty, design):
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((20, 12))
    if design == "duplicates":
        Z = Z[:, [0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]]
    elif design == "nearly collinear":
        Z = Z[:, :2] @ rng.standard_normal((2, 12)) + 1e-3 * Z
    Z /= np.linalg.norm(Z, axis=0)
    Y = 10 * Z[:, :3] @ rng.standard_normal((3, 4)) + rng.standard_normal((20, 4))
    problem = RowProblem(StoredGram(Z.T @ Z), Y.T, Z.T @ Y, penalty, float(np.sum(Y**2)) / 2)
    W = np.zeros((12, 4))
    for sigma in 10.0 ** np.arange(0, 6):
        for _ in range(5):
            W, _ = newton.proximal_point(problem.gram, penalty, W, problem.correlation(W), sigma, 0.0)
    gap = problem.objective_and_gap(W, problem.correlation(W))[1]
    assert W.any() and gap <= 1e-7 * problem.null_objective


def test_a_step_to_zero():
    gram = StoredGram(np.eye(2))
    W, _ = newton.proximal_point(gram, RowPenalty(5.0, 2), np.ones((2, 3)), np.zeros((2, 3)), 100.0, 0.0)
    np.testing.assert_array_equal(W, 0)
