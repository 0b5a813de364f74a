"""Newton steps against finite differences, dense linear algebra and optimality conditions."""

import numpy as np
import pytest

from bayesmtfs.convex import semismooth_newton as newton
from bayesmtfs.convex.shared_design_rows import RowProblem, StoredGram
from bayesmtfs.priors import RowPenalty

SMOOTH = [RowPenalty(0.7, q) for q in (1.3, 1.5, 2, 3, 8)] + [RowPenalty(0.7, task_sparsity=0.4)]
ALL = [*SMOOTH, RowPenalty(0.7, 1), RowPenalty(0.7, np.inf)]


def name(penalty):
    return f"sparse group {penalty.task_sparsity}" if penalty.entrywise else f"q = {penalty.norm_q}"


def hessians(bend):
    """Dense Hessian of the penalty at each row."""
    diagonal = np.broadcast_to(bend.diagonal, bend.direction.shape)
    return [np.diag(d) - c * np.outer(g, g) for d, c, g in zip(diagonal, bend.scale, bend.direction, strict=True)]


@pytest.mark.parametrize("penalty", SMOOTH, ids=name)
def test_curvature_is_the_second_derivative(penalty):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3, 4)) + np.sign(rng.standard_normal((3, 4)))
    bend = newton.curvature(penalty, np.arange(3), W)
    h = 1e-4
    for row, found in zip(W, hessians(bend), strict=True):
        steps = h * np.eye(4)
        value = np.array(
            [
                [
                    sum(s * r * penalty.value((row + s * a + r * b)[None]) for s in (1, -1) for r in (1, -1))
                    for a in steps
                ]
                for b in steps
            ]
        )
        np.testing.assert_allclose(found, value / (4 * h**2), atol=2e-6)


def test_curvature_of_weighted_rows():
    W = np.random.default_rng(1).standard_normal((3, 4))
    weights = np.array([1.0, 5.0, 2.0, 0.5])
    rows = np.array([1, 2, 3])
    weighted = newton.curvature(RowPenalty(1.0, 3, weights=weights), rows, W)
    plain = newton.curvature(RowPenalty(1.0, 3), rows, W)
    np.testing.assert_allclose(weighted.scale, weights[rows] * plain.scale)
    np.testing.assert_allclose(weighted.diagonal, weights[rows][:, None] * plain.diagonal)


def test_entries_at_kinks_are_held_or_bound():
    W = np.array([[2.0, 0.0, -1.0], [1.0, -1.0, 0.5]])
    rows = np.arange(2)
    assert newton.curvature(RowPenalty(1.0, 1), rows, W).diagonal.tolist() == [[0, np.inf, 0], [0, 0, 0]]
    sparse = newton.curvature(RowPenalty(1.0, task_sparsity=0.5), rows, W)
    assert np.isinf(sparse.diagonal).tolist() == [
        [0, 1, 0],
        [0, 0, 0],
    ]
    alone, tied = hessians(newton.curvature(RowPenalty(1.0, np.inf), rows, W))
    assert not alone.any()
    np.testing.assert_allclose(tied @ [1, -1, 7], 0, atol=1e-6)  # ties may move together, the rest is free
    assert tied[0] @ [1, 1, 0] > 1e6


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
    bend = newton.curvature(penalty, np.arange(a), W)
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
    bend = newton.curvature(RowPenalty(1.0, 1), np.arange(2), np.ones((2, 1)))
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
