"""Compiled loops over sparse designs: products by task, and sweeps over rows without Gram matrices.

Observations are sorted by task; ``offsets`` (m + 1,) says where each task begins. Columns are segments of two long
arrays: the entries of feature j in task t are those from ``segments[j, t]`` to ``segments[j, t + 1]`` of
``observation`` and ``values``. Shapes and rows of the penalty are as in `working_set_kernels`.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.convex.working_set_kernels import copy, longest_row, move_row
from bayesmtfs.priors.row_prox import Scratch
from bayesmtfs.types import FloatArray, IntArray

FEW_TIMES = 8  # reading numbers in order is so much faster than looking them up

Int32Array = NDArray[np.int32]
IndexArray = NDArray[np.int32] | NDArray[np.int64]


@njit(cache=True, error_model="numpy", nogil=True)
def columns_of(
    indptr: IndexArray,
    indices: IndexArray,
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


@njit(cache=True, error_model="numpy", nogil=True)
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


@njit(cache=True, error_model="numpy", nogil=True)
def sums_over_tasks(
    indptr: IndexArray,
    indices: IndexArray,
    data: FloatArray,
    rows: IntArray,
    offsets: IntArray,
    vector: FloatArray,
    n_features: int,
    squared: bool,
) -> FloatArray:
    """(p,) Sum over tasks of ``|X_t' vector_t|``, or of its square, feature by feature, from a CSR matrix.

    A task's products are scattered into one array and collected from there, so that nothing of size (p, m) is written:
    from all features, or only from those the task has entries of where these are few.
    """
    sums = np.zeros(n_features)
    product = np.zeros(n_features)
    for t in range(offsets.size - 1):
        count = 0
        for i in range(offsets[t], offsets[t + 1]):
            value = vector[i]
            row = rows[i]
            count += indptr[row + 1] - indptr[row]
            for e in range(indptr[row], indptr[row + 1]):
                product[indices[e]] += value * data[e]
        if n_features <= FEW_TIMES * count:
            for j in range(n_features):
                sums[j] += product[j] * product[j] if squared else abs(product[j])
                product[j] = 0.0
            continue
        for i in range(offsets[t], offsets[t + 1]):
            for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
                size = product[indices[e]]
                sums[indices[e]] += size * size if squared else abs(size)
                product[indices[e]] = 0.0
    return sums


@njit(cache=True, error_model="numpy", nogil=True)
def sparse_adjoint(
    segments: IntArray, observation: Int32Array, values: FloatArray, vector: FloatArray, result: FloatArray
) -> None:
    """Write ``X_t' vector_t`` of every task to ``result`` (m, k)."""
    for j in range(segments.shape[0]):
        for t in range(segments.shape[1] - 1):
            result[t, j] = segment_sum(segments[j, t], segments[j, t + 1], observation, values, vector)


@njit(cache=True, error_model="numpy", nogil=True)
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


@njit(cache=True, error_model="numpy", nogil=True)
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


@njit(cache=True, error_model="numpy", nogil=True)
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
    work: Scratch,
    W_iterates: FloatArray,
    slope_iterates: FloatArray,
    shift_iterates: FloatArray,
) -> None:
    """Sweep over the rows as `sweep_gram` does, without Gram matrices.

    ``slope`` (N,) is the derivative of the quadratic part in the linear predictor without the move ``shift`` (m,) of
    the intercepts, so that no column has to be centred; ``sums`` and ``means`` (k, m) are the weighted sums of the
    columns and what a unit of their coefficient takes from the intercept.
    """
    m = W.shape[1]
    size = longest_row(starts) * m
    linear = np.empty(size)
    moves = np.empty(size)
    for sweep in range(W_iterates.shape[0]):
        for r in range(starts.size - 1):
            if sweep == 0 or (sweep > 1 and norms[r] == 0.0):
                continue
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    total = segment_sum(segments[j, t], segments[j, t + 1], observation, values, slope)
                    linear[e] = bounds[j, t] * W[j, t] - total - sums[j, t] * shift[t]
                    e += 1
            if not move_row(r, linear, bounds, W, norms, starts, strengths, norm_q, sparsity, work, moves):
                continue
            e = 0
            for j in range(starts[r], starts[r + 1]):
                for t in range(m):
                    move = moves[e]
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
