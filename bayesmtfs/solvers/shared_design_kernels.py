"""Compiled row updates for a design that all tasks share.

On columns of unit length the loss of one row of W, all others held, is ``1/2 ||w - v||^2`` with v the row plus its
correlation with the residual. Its exact minimiser under a row penalty is therefore one proximal step: the update of
block coordinate descent (Yuan and Lin 2006, section 2.2; Tseng 2001 for its convergence).
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.priors.row_prox import WORK_ROWS, prox_row
from bayesmtfs.protocols import FloatArray


@njit(cache=True, error_model="numpy")
def _soften(row: FloatArray, threshold: float) -> None:
    """Soft threshold of every entry, in place."""
    for j in range(row.size):
        if abs(row[j]) <= threshold:
            row[j] = 0.0
        else:
            row[j] -= math.copysign(threshold, row[j])


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


@njit(cache=True, error_model="numpy")
def sweep_rows(
    gram: FloatArray,
    correlation: FloatArray,
    W: FloatArray,
    thresholds: FloatArray,
    entry_thresholds: FloatArray,
    norms: FloatArray,
    norm_q: float,
) -> float:
    """Update every row of a block exactly, one after the other.

    Parameters
    ----------
    gram : (b, b) array
        Inner products of the block's columns, which have length 1.
    correlation : (b, m) array
        Inner products of the columns with the residuals; kept up to date, in place.
    W : (b, m) array
        Rows of the block, overwritten.
    thresholds, entry_thresholds : (b,) arrays
        Strength of the q-norm of each row, and of its 1-norm (0 but for the sparse-group penalty).
    norms : (b,) array
        First guesses of the q-norms of the rows, overwritten by their values; 0 for none.
    norm_q : float
        Norm of the penalty.

    Returns
    -------
    float
        Sum of the squared moves of all rows; half of it bounds the decrease of the objective from below.
    """
    n_rows, n_tasks = W.shape
    row = np.empty(n_tasks)
    work = np.empty((WORK_ROWS, n_tasks))
    total = 0.0
    for i in range(n_rows):
        for t in range(n_tasks):
            row[t] = W[i, t] + correlation[i, t]
        if entry_thresholds[i] > 0.0:
            _soften(row, entry_thresholds[i])
        if norms[i] == 0.0 and _is_surely_zero(row, thresholds[i], norm_q):
            continue
        norms[i] = prox_row(row, thresholds[i], norm_q, work, norms[i])
        move = 0.0
        for t in range(n_tasks):
            change = row[t] - W[i, t]
            W[i, t] = row[t]
            row[t] = change
            move += change * change
        if move == 0.0:
            continue
        total += move
        for k in range(n_rows):
            factor = gram[i, k]
            for t in range(n_tasks):
                correlation[k, t] -= factor * row[t]
    return total
