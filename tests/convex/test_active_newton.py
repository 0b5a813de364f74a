"""Newton direction: the Hessian of the penalty by finite differences, and the system against a dense solve."""

import numpy as np
import pytest

from bayesmtfs.convex.active_newton import newton_direction, penalty_curvature
from bayesmtfs.convex.penalty_rows import PenaltyRows
from bayesmtfs.priors import RowPenalty

K, M = 5, 3
STARTS = {"alone": np.arange(K + 1), "groups": np.array([0, 2, 3, 5])}


def rows_of(kind, norm_q, sparsity=0.0):
    return PenaltyRows(np.arange(K), STARTS[kind], RowPenalty(0.7, norm_q, sparsity))


def hessian(curvature, rows):
    """(K M, K M) Hessian of the penalty, entry by entry."""
    dense = np.diag(curvature.diagonal.ravel())
    for r in range(rows.n_rows):
        z = np.zeros((K, M))
        span = slice(rows.starts[r], rows.starts[r + 1])
        z[span] = curvature.z[span]
        dense -= curvature.factor[r] * np.outer(z, z)
    return dense


@pytest.fixture
def coefficients():
    return np.random.default_rng(0).standard_normal((K, M))


@pytest.mark.parametrize("kind", ["alone", "groups"])
@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (1.5, 0.0), (2, 0.0), (2, 0.5), (3, 0.0)])
def test_penalty_derivatives(coefficients, kind, norm_q, sparsity):
    W = coefficients
    rows = rows_of(kind, norm_q, sparsity)
    curvature = penalty_curvature(W, rows.norms(W), rows, stiff=1e9)
    steps = 1e-5 * np.eye(K * M).reshape(K * M, K, M)

    def value(V):
        return rows.value(V, rows.norms(V))

    gradient = np.array([(value(W + step) - value(W - step)) / 2e-5 for step in steps])
    np.testing.assert_allclose(curvature.gradient.ravel(), gradient, atol=1e-8)

    def gradient_at(V):
        return penalty_curvature(V, rows.norms(V), rows, stiff=1e9).gradient.ravel()

    differences = np.array([(gradient_at(W + step) - gradient_at(W - step)) / 2e-5 for step in steps])
    np.testing.assert_allclose(hessian(curvature, rows), differences, atol=1e-6)


@pytest.mark.parametrize("kind", ["alone", "groups"])
@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 3, np.inf])
def test_direction_solves_the_whole_system(coefficients, kind, norm_q):
    W = coefficients
    rng = np.random.default_rng(1)
    factors = rng.standard_normal((M, 20, K))
    Q = np.einsum("tij,til->jtl", factors, factors)
    rows = rows_of(kind, norm_q)
    gradient = rng.standard_normal((K, M))
    direction = newton_direction(Q, gradient, W, rows.norms(W), rows)
    curvature = penalty_curvature(W, rows.norms(W), rows, stiff=1e7 * np.einsum("jtj->jt", Q).max())
    system = hessian(curvature, rows).reshape(K, M, K, M)
    for t in range(M):
        system[:, t, :, t] += Q[:, t, :]
    residual = np.einsum("jtls,ls->jt", system, direction) + gradient + curvature.gradient
    np.testing.assert_allclose(residual, 0.0, atol=1e-5 if norm_q == np.inf else 1e-8)


@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (2, 0.5)])
def test_entries_at_a_kink_do_not_move(coefficients, norm_q, sparsity):
    W = coefficients
    W[0, 1] = 0.0
    Q = np.tile(2 * np.eye(K)[:, np.newaxis], (1, M, 1))
    rows = rows_of("alone", norm_q, sparsity)
    direction = newton_direction(Q, np.ones((K, M)), W, rows.norms(W), rows)
    assert direction[0, 1] == 0.0 and np.count_nonzero(direction) == K * M - 1


def test_largest_entries_move_together_at_infinity(coefficients):
    W = coefficients
    W[2] = [1.0, -1.0, 0.2]
    Q = np.tile(np.eye(K)[:, np.newaxis], (1, M, 1)) * np.array([1.0, 3.0, 2.0])[:, np.newaxis]
    rows = rows_of("alone", np.inf)
    direction = newton_direction(Q, np.random.default_rng(2).standard_normal((K, M)), W, rows.norms(W), rows)
    assert direction[2, 0] == pytest.approx(-direction[2, 1], rel=1e-5)
