"""Compiled row updates for a design that all tasks share.

On columns of length 1 the loss of one row of W, all others held, is ``1/2 ||w - v||^2`` with v the row plus its
correlation with the residuals. Its exact minimiser under a row penalty is therefore one proximal step: the update of
block coordinate descent (Yuan and Lin 2006, *Journal of the Royal Statistical Society B* 68, section 3; Tseng 2001 for
its convergence). The Euclidean norm has a kernel of its own, since the general one takes seconds to compile.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.priors.row_prox import Scratch, prox_row_of_type
from bayesmtfs.types import FloatArray


@njit(cache=True, error_model="numpy")
def _change_row(i: int, row: FloatArray, gram: FloatArray, correlation: FloatArray, W: FloatArray) -> float:
    """Put a new row into W and bring the correlations up to date; the squared length of the change."""
    square = 0.0
    for t in range(row.size):
        change = row[t] - W[i, t]
        W[i, t] = row[t]
        square += change * change
        if change != 0.0:
            for k in range(len(W)):
                correlation[t, k] -= change * gram[i, k]
    return square


@njit(cache=True, error_model="numpy", nogil=True)
def sweep_euclidean(
    gram: FloatArray, correlation: FloatArray, W: FloatArray, thresholds: FloatArray, entry_thresholds: FloatArray
) -> float:
    """Update every row of a block exactly, one after the other, under ``threshold ||.||_2 + entry_threshold ||.||_1``.

    Parameters
    ----------
    gram : (b, b) array
        Inner products of the block's columns, which have length 1.
    correlation : (m, b) array
        Inner products of the residuals with the columns, task by task; kept up to date, in place.
    W : (b, m) array
        Rows of the block, overwritten.
    thresholds, entry_thresholds : (b,) arrays
        Strengths of the two norms of each row.

    Returns
    -------
    float
        Sum of the squared moves of all rows; half of it bounds the decrease of the objective from below.
    """
    n_rows, n_tasks = W.shape
    row = np.empty(n_tasks)
    total = 0.0
    for i in range(n_rows):
        square = 0.0
        for t in range(n_tasks):
            value = W[i, t] + correlation[t, i]
            size = max(abs(value) - entry_thresholds[i], 0.0)
            row[t] = math.copysign(size, value)
            square += size * size
        norm = math.sqrt(square)
        kept = 1.0 - thresholds[i] / norm if norm > thresholds[i] else 0.0
        for t in range(n_tasks):
            row[t] = row[t] * kept if row[t] != 0.0 else 0.0
        total += _change_row(i, row, gram, correlation, W)
    return total


@njit(cache=True, error_model="numpy")
def _is_surely_zero(row: FloatArray, threshold: float, norm_q: float) -> bool:
    """Whether a simple bound on the dual norm of a row shows that its proximal point is zero.

    The q*-norm is at most the 1-norm, and at most the 2-norm where q <= 2.
    """
    total = 0.0
    square = 0.0
    for value in row:
        total += abs(value)
        square += value * value
    return total <= threshold or (norm_q <= 2.0 and square <= threshold * threshold)


@njit(cache=True, error_model="numpy", nogil=True)
def sweep_general(
    gram: FloatArray,
    correlation: FloatArray,
    W: FloatArray,
    thresholds: FloatArray,
    norms: FloatArray,
    norm_q: float,
    work: Scratch,
) -> float:
    """Update every row of a block exactly, one after the other, under ``threshold ||.||_q``.

    Parameters
    ----------
    gram, correlation, W, thresholds : arrays
        As in `sweep_euclidean`.
    norms : (b,) array
        First guesses of the q-norms of the rows, overwritten by their values; 0 for none.
    norm_q : float
        Norm of the penalty.
    work : tuple of arrays
        What `bayesmtfs.priors.row_prox.scratch` gives for q.

    Returns
    -------
    float
        Sum of the squared moves of all rows; half of it bounds the decrease of the objective from below.
    """
    n_rows, n_tasks = W.shape
    row = np.empty(n_tasks)
    total = 0.0
    for i in range(n_rows):
        for t in range(n_tasks):
            row[t] = W[i, t] + correlation[t, i]
        if norms[i] == 0.0 and _is_surely_zero(row, thresholds[i], norm_q):
            continue
        norms[i] = prox_row_of_type(row, thresholds[i], norm_q, work, norms[i])
        total += _change_row(i, row, gram, correlation, W)
    return total
