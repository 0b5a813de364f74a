"""Compiled loops of the working-set solver: products with a stacked design, Gram matrices, and sweeps over rows.

Observations are sorted by task; ``offsets`` (m + 1,) says where each task begins. Arrays with one entry per feature and
task are (k, m), but running gradients are (m, k): task by task, so that the update of all features is one contiguous
loop. A dense design is (N, k), one row per observation. A sparse one is held by columns: the entries of feature j in
task t are those from ``segments[j, t]`` to ``segments[j, t + 1]`` of ``observation`` and ``values``.

A row of the penalty is a run of features, from ``starts[r]`` to ``starts[r + 1]``: one feature, or a group of them.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.solvers.row_steps import row_step

LANES = 8  # numbers in one vector register: rows of working memory are padded to a multiple of it
NO_CURVATURE = 1e-300  # of an entry that nothing depends on, which is held at zero
PANEL = 256  # observations that are multiplied at once, few enough to stay in the cache

Int32Array = NDArray[np.int32]


# ---------------------------------------------------------------------- dense designs


@njit(cache=True, error_model="numpy", fastmath={"contract"})
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


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
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


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
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


@njit(cache=True, error_model="numpy", fastmath={"contract"})
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
    work: FloatArray | None,
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
    flat_bounds = bounds.reshape(k * m)
    size = longest_row(starts) * m
    linear = np.empty(size)
    row = np.empty(size)
    copy(W, W_iterates[0])
    copy(gradient, gradient_iterates[0])
    for sweep in range(1, W_iterates.shape[0]):
        for r in range(starts.size - 1):
            if sweep > 1 and norms[r] == 0.0:
                continue
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    linear[e] = bounds[j, t] * W[j, t] - gradient[t, j] if bounds[j, t] > NO_CURVATURE else 0.0
                    row[e] = W[j, t]
                    e += 1
            curvature = flat_bounds[starts[r] * m : starts[r + 1] * m]
            norm = row_step(linear[:e], curvature, strengths[r], norm_q, sparsity[r], norms[r], row[:e], work)
            if norm == 0.0 and norms[r] == 0.0:
                continue
            norms[r] = norm
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    move = row[e] - W[j, t]
                    W[j, t] = row[e]
                    e += 1
                    if move != 0.0:
                        for i in range(width):
                            gradient[t, i] += move * Q[j, t, i]
        copy(W, W_iterates[sweep])
        copy(gradient, gradient_iterates[sweep])


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


# ---------------------------------------------------------------------- sparse designs


@njit(cache=True, error_model="numpy")
def columns_of(
    indptr: NDArray[np.signedinteger],
    indices: NDArray[np.signedinteger],
    data: FloatArray,
    rows: IntArray,
    n_features: int,
) -> tuple[IntArray, Int32Array, FloatArray]:
    """Entries of a CSR matrix, one of whose rows each observation uses, sorted by feature and then by observation.

    Returns
    -------
    pointer : (p + 1,) where each feature begins
    observation, values : entries
    """
    pointer = np.zeros(n_features + 1, dtype=np.int64)
    for i in range(rows.size):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            pointer[indices[e] + 1] += 1
    for j in range(n_features):
        pointer[j + 1] += pointer[j]
    observation = np.empty(pointer[n_features], dtype=np.int32)
    values = np.empty(pointer[n_features])
    place = pointer.copy()
    for i in range(rows.size):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            j = indices[e]
            observation[place[j]] = i
            values[place[j]] = data[e]
            place[j] += 1
    return pointer, observation, values


@njit(cache=True, error_model="numpy")
def segments_of(pointer: IntArray, observation: Int32Array, features: IntArray, offsets: IntArray) -> IntArray:
    """(k, m + 1) Where the entries of each task begin, for some of the features."""
    m = offsets.size - 1
    segments = np.empty((features.size, m + 1), dtype=np.int64)
    for j in range(features.size):
        e = pointer[features[j]]
        stop = pointer[features[j] + 1]
        for t in range(m):
            segments[j, t] = e
            while e < stop and observation[e] < offsets[t + 1]:
                e += 1
        segments[j, m] = stop
    return segments


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def segment_sum(first: int, stop: int, observation: Int32Array, values: FloatArray, vector: FloatArray) -> float:
    """Sum of value times vector over a segment."""
    total = 0.0
    for e in range(first, stop):
        total += values[e] * vector[observation[e]]
    return total


@njit(cache=True, error_model="numpy")
def sums_over_tasks(
    indptr: NDArray[np.signedinteger],
    indices: NDArray[np.signedinteger],
    data: FloatArray,
    rows: IntArray,
    offsets: IntArray,
    vector: FloatArray,
    n_features: int,
    squared: bool,
) -> FloatArray:
    """(p,) Sum over tasks of ``|X_t' vector_t|``, or of its square, feature by feature, from a CSR matrix.

    A task's products are scattered into one array and collected from there, so that nothing of size (p, m) is written.
    """
    sums = np.zeros(n_features)
    product = np.zeros(n_features)
    for t in range(offsets.size - 1):
        for i in range(offsets[t], offsets[t + 1]):
            for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
                product[indices[e]] += vector[i] * data[e]
        for i in range(offsets[t], offsets[t + 1]):
            for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
                size = product[indices[e]]
                sums[indices[e]] += size * size if squared else abs(size)
                product[indices[e]] = 0.0
    return sums


@njit(cache=True, error_model="numpy")
def sparse_adjoint(
    segments: IntArray, observation: Int32Array, values: FloatArray, vector: FloatArray, result: FloatArray
) -> None:
    """Write ``X_t' vector_t`` of every task to ``result`` (m, k)."""
    for j in range(segments.shape[0]):
        for t in range(segments.shape[1] - 1):
            result[t, j] = segment_sum(segments[j, t], segments[j, t + 1], observation, values, vector)


@njit(cache=True, error_model="numpy")
def sparse_predictor(
    segments: IntArray, observation: Int32Array, values: FloatArray, W: FloatArray, result: FloatArray
) -> None:
    """Write ``X_t w_t`` of every task to ``result`` (N,)."""
    for i in range(result.size):
        result[i] = 0.0
    for j in range(W.shape[0]):
        for t in range(W.shape[1]):
            if W[j, t] != 0.0:
                for e in range(segments[j, t], segments[j, t + 1]):
                    result[observation[e]] += W[j, t] * values[e]


@njit(cache=True, error_model="numpy")
def column_moments(
    segments: IntArray,
    observation: Int32Array,
    values: FloatArray,
    offsets: IntArray,
    weight: FloatArray,
    totals: FloatArray,
    sums: FloatArray,
    squares: FloatArray,
) -> None:
    """Write the weighted sum of every column in every task, and the weighted squares about its mean, to (k, m) arrays.

    ``totals`` (m,) are the sums of the weights; inf for a task whose columns are not to be centred.
    """
    for j in range(sums.shape[0]):
        for t in range(sums.shape[1]):
            sums[j, t] = segment_sum(segments[j, t], segments[j, t + 1], observation, values, weight)
            mean = sums[j, t] / totals[t]
            square = 0.0
            stored = 0.0
            for e in range(segments[j, t], segments[j, t + 1]):
                h = weight[observation[e]]
                square += h * (values[e] - mean) ** 2
                stored += h
            if mean != 0.0 and segments[j, t + 1] - segments[j, t] < offsets[t + 1] - offsets[t]:
                square += (totals[t] - stored) * mean * mean
            squares[j, t] = square


@njit(cache=True, error_model="numpy")
def sweep_columns(
    segments: IntArray,
    observation: Int32Array,
    values: FloatArray,
    weight: FloatArray,
    sums: FloatArray,
    means: FloatArray,
    bounds: FloatArray,
    slope: FloatArray,
    shift: FloatArray,
    W: FloatArray,
    norms: FloatArray,
    starts: IntArray,
    strengths: FloatArray,
    norm_q: float,
    sparsity: FloatArray,
    work: FloatArray | None,
    W_iterates: FloatArray,
    slope_iterates: FloatArray,
    shift_iterates: FloatArray,
) -> None:
    """Sweep over the rows as `sweep_gram` does, without Gram matrices.

    ``slope`` (N,) is the derivative of the quadratic part in the linear predictor without the move ``shift`` (m,) of the
    intercepts, so that no column has to be centred; ``sums`` and ``means`` (k, m) are the weighted sums of the columns
    and what a unit of their coefficient takes from the intercept.
    """
    k, m = W.shape
    flat_bounds = bounds.reshape(k * m)
    size = longest_row(starts) * m
    linear = np.empty(size)
    row = np.empty(size)
    for sweep in range(W_iterates.shape[0]):
        for r in range(starts.size - 1):
            if sweep == 0 or (sweep > 1 and norms[r] == 0.0):
                continue
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    total = segment_sum(segments[j, t], segments[j, t + 1], observation, values, slope)
                    total += sums[j, t] * shift[t]
                    linear[e] = bounds[j, t] * W[j, t] - total if bounds[j, t] > NO_CURVATURE else 0.0
                    row[e] = W[j, t]
                    e += 1
            curvature = flat_bounds[starts[r] * m : starts[r + 1] * m]
            norm = row_step(linear[:e], curvature, strengths[r], norm_q, sparsity[r], norms[r], row[:e], work)
            if norm == 0.0 and norms[r] == 0.0:
                continue
            norms[r] = norm
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    move = row[e] - W[j, t]
                    W[j, t] = row[e]
                    e += 1
                    if move != 0.0:
                        shift[t] -= means[j, t] * move
                        for i in range(segments[j, t], segments[j, t + 1]):
                            slope[observation[i]] += weight[observation[i]] * values[i] * move
        copy(W, W_iterates[sweep])
        for i in range(slope.size):
            slope_iterates[sweep, i] = slope[i]
        for t in range(m):
            shift_iterates[sweep, t] = shift[t]
