"""Newton directions on rows that are not zero, against the system written out."""

import numpy as np
import pytest

from bayesmtfs.convex.newton_directions import TaskColumns, direction_by_observations, newton_direction
from bayesmtfs.convex.problem import PenaltyRows
from bayesmtfs.priors import RowPenalty

K, M = 5, 3
STARTS = {"alone": np.arange(K + 1), "groups": np.array([0, 2, 3, 5])}


def rows_of(kind, norm_q, sparsity=0.0):
    return PenaltyRows(np.arange(K), STARTS[kind], RowPenalty(0.7, norm_q, sparsity))


def hessian(rows, W, stiff):
    """(K M, K M) Hessian of the penalty, entry by entry."""
    blocks = rows.blocks(M)
    lines = blocks.gather(W)
    curvature = rows.penalty.curvature(lines, stiff)
    dense = np.diag(blocks.scatter(np.broadcast_to(curvature.diagonal, lines.shape)).ravel())
    for r in range(rows.n_rows):
        z = np.zeros_like(lines)
        z[r] = curvature.direction[r]
        dense -= curvature.scale[r] * np.outer(blocks.scatter(z), blocks.scatter(z))
    return dense


@pytest.fixture
def coefficients():
    return np.random.default_rng(0).standard_normal((K, M))


@pytest.mark.parametrize("kind", ["alone", "groups"])
@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 3, np.inf])
def test_direction_solves_the_whole_system(coefficients, kind, norm_q):
    W = coefficients
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((M, 20, K))
    Q = np.einsum("tij,til->jtl", factors, factors)
    rows = rows_of(kind, norm_q)
    gradient = rng.standard_normal((K, M))
    direction = newton_direction(Q, gradient, W, rows)[0]
    system = hessian(rows, W, 1e7 * np.einsum("jtj->jt", Q).max()).reshape(K, M, K, M)
    for t in range(M):
        system[:, t, :, t] += Q[:, t, :]
    penalty_gradient = rows.blocks(M).scatter(rows.penalty.gradient(rows.gather(W)))
    residual = np.einsum("jtls,ls->jt", system, direction) + gradient + penalty_gradient
    np.testing.assert_allclose(residual, 0.0, atol=1e-5 if norm_q == np.inf else 1e-8)


@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (2, 0.5)])
def test_entries_at_a_kink_do_not_move(coefficients, norm_q, sparsity):
    W = coefficients
    W[0, 1] = 0.0
    Q = np.tile(2 * np.eye(K)[:, np.newaxis], (1, M, 1))
    rows = rows_of("alone", norm_q, sparsity)
    direction = newton_direction(Q, np.ones((K, M)), W, rows)[0]
    assert direction[0, 1] == 0.0 and np.count_nonzero(direction) == K * M - 1


def test_largest_entries_move_together_at_infinity(coefficients):
    W = coefficients
    W[2] = [1.0, -1.0, 0.2]
    Q = np.tile(np.eye(K)[:, np.newaxis], (1, M, 1)) * np.array([1.0, 3.0, 2.0])[:, np.newaxis]
    rows = rows_of("alone", np.inf)
    direction = newton_direction(Q, np.random.default_rng(2).standard_normal((K, M)), W, rows)[0]
    assert direction[2, 0] == pytest.approx(-direction[2, 1], rel=1e-5)


@pytest.mark.parametrize("kind", ["alone", "groups"])
@pytest.mark.parametrize(("norm_q", "sparsity", "ridge"), [(2, 0.0, 0.0), (2, 0.5, 0.0), (2, 0.0, 0.3), (1, 0.0, 0.3)])
def test_direction_by_observations_is_the_same(coefficients, kind, norm_q, sparsity, ridge):
    rng = np.random.default_rng(3)
    W = coefficients
    W[1, 2] = 0.0
    offsets = np.array([0, 4, 9, 12])
    A, curvature = rng.standard_normal((12, K)) + 2.0, rng.uniform(0.5, 2.0, 12)
    means = rng.standard_normal((K, M))
    rows = rows_of(kind, norm_q, sparsity)
    gradient = rng.standard_normal((K, M))
    Q = np.empty((K, M, K))
    for t in range(M):
        part = slice(offsets[t], offsets[t + 1])
        Z = (A[part] - means[:, t]) * np.sqrt(curvature[part])[:, np.newaxis]
        Q[:, t] = Z.T @ Z + ridge * np.eye(K)
    expected = newton_direction(Q, gradient, W, rows)[0]
    found = direction_by_observations(TaskColumns(A, means, curvature, offsets), gradient, W, rows, ridge)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
