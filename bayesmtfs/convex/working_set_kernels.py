"""Compiled loops over dense designs: products by task, Gram matrices by task, and sweeps over rows with them.

A design is (N, k), one row per observation, sorted by task; ``offsets`` (m + 1,) says where each task begins. Arrays
with one entry per feature and task are (k, m), but running gradients are (m, k): task by task, so that the update of
all features is one contiguous loop. A row of the penalty is a run of features, from ``starts[r]`` to ``starts[r + 1]``:
one feature, or a group of them.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.convex.row_steps import row_step
from bayesmtfs.priors.row_prox import Scratch
from bayesmtfs.types import FloatArray, IntArray

LANES = 8  # numbers in one vector register: rows of working memory are padded to a multiple of it
NO_CURVATURE = 1e-300  # of an entry that nothing depends on, which is held at zero
PANEL = 256  # observations that are multiplied at once, few enough to stay in the cache


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def dense_adjoint(A: FloatArray, values: FloatArray, offsets: IntArray, result: FloatArray) -> None:
    """Write ``A_t' values_t`` of every task to ``result`` (m, k or more), four observations at a time."""
    k = A.shape[1]
    for t in range(offsets.size - 1):
        for j in range(k):
            result[t, j] = 0.0
        i = offsets[t]
        stop = offsets[t + 1]
        while i + 3 < stop:
            a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
            for j in range(k):
                result[t, j] += a * A[i, j] + b * A[i + 1, j] + c * A[i + 2, j] + d * A[i + 3, j]
            i += 4
        while i < stop:
            for j in range(k):
                result[t, j] += values[i] * A[i, j]
            i += 1


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"}, nogil=True)
def dense_predictor(A: FloatArray, W: FloatArray, offsets: IntArray, result: FloatArray) -> None:
    """Write ``A_t w_t`` of every task to ``result`` (N,)."""
    k = A.shape[1]
    w = np.empty(k)
    for t in range(offsets.size - 1):
        for j in range(k):
            w[j] = W[j, t]
        for i in range(offsets[t], offsets[t + 1]):
            total = 0.0
            for j in range(k):
                total += A[i, j] * w[j]
            result[i] = total


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"}, nogil=True)
def gram(A: FloatArray, weight: FloatArray, means: FloatArray, offsets: IntArray, Q: FloatArray) -> None:
    """Write ``sum_i h_i (x_ij - mean_jt) (x_il - mean_lt)`` over the observations of task t to ``Q[j, t, l]``.

    Observations are taken a panel at a time, transposed, and multiplied two features by two.
    """
    k = A.shape[1]
    panel = np.empty((k + 1, PANEL + LANES))  # a power of two as its length would make the rows share cache lines
    for t in range(offsets.size - 1):
        for a in range(k):
            for b in range(Q.shape[2]):
                Q[a, t, b] = 0.0
        for first in range(offsets[t], offsets[t + 1], PANEL):
            n = min(offsets[t + 1] - first, PANEL)
            padded = (n + LANES - 1) // LANES * LANES
            for i in range(n):
                root = math.sqrt(weight[first + i])
                for j in range(k):
                    panel[j, i] = root * (A[first + i, j] - means[j, t])
                panel[k, i] = 0.0
            for j in range(k + 1):
                for i in range(n, padded):
                    panel[j, i] = 0.0
            for a in range(0, k, 2):
                for b in range(a, k, 2):
                    s00, s01, s10, s11 = 0.0, 0.0, 0.0, 0.0
                    for i in range(padded):
                        s00 += panel[a, i] * panel[b, i]
                        s01 += panel[a, i] * panel[b + 1, i]
                        s10 += panel[a + 1, i] * panel[b, i]
                        s11 += panel[a + 1, i] * panel[b + 1, i]
                    Q[a, t, b] += s00
                    if b + 1 < k:
                        Q[a, t, b + 1] += s01
                    if a + 1 < k and b > a:
                        Q[a + 1, t, b] += s10
                    if a + 1 < k and b + 1 < k:
                        Q[a + 1, t, b + 1] += s11
        for a in range(k):
            for b in range(a):
                Q[a, t, b] = Q[b, t, a]


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def sweep_gram(
    Q: FloatArray,
    bounds: FloatArray,
    gradient: FloatArray,
    W: FloatArray,
    norms: FloatArray,
    starts: IntArray,
    strengths: FloatArray,
    norm_q: float,
    sparsity: FloatArray,
    work: Scratch,
    W_iterates: FloatArray,
    gradient_iterates: FloatArray,
) -> None:
    """Sweep over the rows as often as the iterates have room, keeping W and its gradient after every sweep.

    Parameters
    ----------
    Q : (k, m, k or more) array
        Gram matrix of every task.
    bounds : (k, m) array
        Curvature used for every entry: that of Q, or for the features of a group a bound on it.
    gradient, W, norms : (m, k or more), (k, m) and (R,) arrays
        Gradient of the quadratic part, coefficients and their q-norms by row; updated. The first sweep visits every
        row, the others only those that are not zero.
    starts, strengths, norm_q, sparsity, work
        The rows and their penalty, see `row_step`.
    W_iterates, gradient_iterates : (n + 1, ...) arrays
        Receive the values before the first and after each of the n sweeps.
    """
    k, m = W.shape
    width = gradient.shape[1]
    size = longest_row(starts) * m
    linear = np.empty(size)
    moves = np.empty(size)
    copy(W, W_iterates[0])
    copy(gradient, gradient_iterates[0])
    for sweep in range(1, W_iterates.shape[0]):
        for r in range(starts.size - 1):
            if sweep > 1 and norms[r] == 0.0:
                continue
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    linear[e] = bounds[j, t] * W[j, t] - gradient[t, j]
                    e += 1
            if not move_row(r, linear, bounds, W, norms, starts, strengths, norm_q, sparsity, work, moves):
                continue
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    if moves[e] != 0.0:
                        for i in range(width):
                            gradient[t, i] += moves[e] * Q[j, t, i]
                    e += 1
        copy(W, W_iterates[sweep])
        copy(gradient, gradient_iterates[sweep])


@njit(cache=True, error_model="numpy", inline="always")
def move_row(
    r: int,
    linear: FloatArray,
    bounds: FloatArray,
    W: FloatArray,
    norms: FloatArray,
    starts: IntArray,
    strengths: FloatArray,
    norm_q: float,
    sparsity: FloatArray,
    work: Scratch,
    moves: FloatArray,
) -> bool:
    """Take the step of row r, write how far its entries went to ``moves``, and return False if it was and is zero.

    ``linear`` is b of the row problem; the other arguments are those of `sweep_gram`.
    """
    k, m = W.shape
    first, stop = starts[r] * m, starts[r + 1] * m
    coefficients = W.reshape(k * m)[first:stop]
    curvature = bounds.reshape(k * m)[first:stop]
    for e in range(stop - first):
        moves[e] = coefficients[e]
        if curvature[e] <= NO_CURVATURE:
            linear[e] = 0.0
    start = norms[r]
    row = moves[: stop - first]
    norms[r] = row_step(linear[: stop - first], curvature, strengths[r], norm_q, sparsity[r], start, row, work)
    if norms[r] == 0.0 and start == 0.0:
        return False
    for e in range(stop - first):
        before = coefficients[e]
        coefficients[e] = row[e]
        row[e] -= before
    return True


@njit(cache=True, error_model="numpy")
def longest_row(starts: IntArray) -> int:
    """Largest number of features in a row."""
    longest = 0
    for r in range(starts.size - 1):
        longest = max(longest, starts[r + 1] - starts[r])
    return longest


@njit(cache=True, error_model="numpy")
def copy(source: FloatArray, target: FloatArray) -> None:
    """Copy a matrix (an array assignment compiles thirty times slower than this loop)."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]
