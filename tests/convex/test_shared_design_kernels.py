"""Compiled row updates against the proximal step of the penalty, row by row."""

import numpy as np
import pytest

from bayesmtfs.convex.shared_design_kernels import sweep_euclidean, sweep_general
from bayesmtfs.priors import RowPenalty
from bayesmtfs.priors.row_prox import scratch


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

    check(block, prox, lambda Q, c, rows: sweep_general(Q, c, rows, thresholds, norms, float(norm_q), work))
    rows = updated_row_by_row(*block[:3], prox)
    np.testing.assert_allclose(norms, np.linalg.norm(rows, ord=norm_q, axis=1), atol=1e-12)


@pytest.mark.parametrize("sparsity", [0.0, 0.6])
def test_euclidean_sweep(block, sparsity):
    thresholds = block[3]

    def prox(i, row):
        return RowPenalty(thresholds[i], task_sparsity=sparsity).prox(row[None], 1.0)[0]

    check(block, prox, lambda Q, c, rows: sweep_euclidean(Q, c, rows, thresholds, sparsity * thresholds))
