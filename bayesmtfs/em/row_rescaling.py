r"""Whole rows of W stretched or shrunk to the best length, which EM reaches only slowly at large q.

Along ``w^i -> c_i w^i`` the objective of `em_jeffreys` is, with the quadratic model of the loss at W,

    1/2 c'Hc - k'c + sum_i a_i ln c_i,   H_ij = sum_t (A_t w_t)_i' (A_t w_t)_j / sigma_t^2,   a_i = m,

with ``(A_t w_t)_i`` the part of task t's fit that row i makes. One row at a time the best factor is the larger root of
``h c^2 - k c + a = 0``; where there is none, or the row is on the slope towards zero, and EM makes it smaller, it is
made smaller at once.
The E-step bounds the same logarithm by ``(m/q) c^q``, so that EM alone changes a row by a factor of about ``ln(q)/q``.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.em.row_ridge import Curvature
from bayesmtfs.types import BoolArray, FloatArray, IntArray

SWEEPS = 3
SHRINKING = 0.25  # factor per sweep of a row on its way to zero
LEAST_FACTOR = 0.1  # per call


def best_factors(
    curv: Curvature,
    precision: FloatArray,
    gradient: FloatArray,
    W: FloatArray,
    rows: IntArray,
    entries: IntArray,
    falling: BoolArray,
) -> FloatArray:
    """(R,) Factor of each row that lowers the model of the objective.

    Parameters
    ----------
    curv : curvature of the losses
    precision : (m,) factor of each task's loss
    gradient : (p, m) gradient of the loss in W, precision included
    W : (p, m) coefficients
    rows : (p,) row of each feature
    entries : (R,) number of entries of each row
    falling : (R,) rows that EM is making smaller
    """
    n_rows = len(entries)
    H = np.zeros((n_rows, n_rows))
    for t, A in enumerate(curv.roots):
        parts = A * W[:, t]
        if n_rows < len(W):
            merged = np.zeros((n_rows, len(A)))
            np.add.at(merged, rows, parts.T)
            parts = merged.T
        H += precision[t] * (parts.T @ parts)
    slopes = np.bincount(rows, weights=np.sum(gradient * W, axis=1), minlength=n_rows)
    factors = np.ones(n_rows)
    _sweep(H, slopes, entries.astype(np.float64), falling, factors)
    return factors


@njit(cache=True)
def _sweep(H: FloatArray, slopes: FloatArray, entries: FloatArray, falling: BoolArray, factors: FloatArray) -> None:
    """Minimise over one factor at a time; ``slopes`` is the derivative of the loss in c at c = 1."""
    for _ in range(SWEEPS):
        for i in range(len(factors)):
            h = H[i, i]
            slope = slopes[i]
            for j in range(len(factors)):
                slope += H[i, j] * (factors[j] - 1.0)
            k = h * factors[i] - slope
            square = k * k - 4.0 * h * entries[i]
            root = math.sqrt(max(square, 0.0))
            if k > 0.0 and square > 0.0 and factors[i] > (k - root) / (2.0 * h):
                factors[i] = (k + root) / (2.0 * h)
            elif falling[i]:
                factors[i] = max(SHRINKING * factors[i], LEAST_FACTOR)
