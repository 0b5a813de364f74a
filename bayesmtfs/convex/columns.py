"""Designs by columns: what the working-set solver needs of all features, and of the few it works on.

A design scores every row of the penalty against a dual point and hands out some of its columns; columns multiply.
Observations are sorted by task; ``offsets`` (m + 1,) says where each task begins. Dense columns are those of an array
(N, k) with one row per observation. Sparse columns stay sparse: the entries of feature j in task t are those from
``segments[j, t]`` to ``segments[j, t + 1]`` of two long arrays, ``observation`` and ``values``, and columns of some
features are other segments of the same arrays.

Compiled loops that go down one column after the other take either kind as a tuple, its ``entries``: they tell them apart by
its length, which the compiler knows.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.compiled import LEAN, inner, lean
from bayesmtfs.convex.problem import PenaltyRows
from bayesmtfs.data.column_sums import LANES, sums_over_tasks
from bayesmtfs.data.tasks import TaskData, dense_adjoint
from bayesmtfs.priors.row_penalty import divided_by_weights
from bayesmtfs.types import FloatArray, IntArray

CLEARLY_ZERO = 0.5  # share of the penalty strength below which a bound on a dual norm is good enough

Int32Array = NDArray[np.int32]
DenseEntries = tuple[IntArray, FloatArray]  # offsets, columns one after the other (k, N)
SparseEntries = tuple[IntArray, Int32Array, FloatArray]  # segments, observation, values
Entries = DenseEntries | SparseEntries
DENSE: Final = 2  # length of the tuple


@dataclass(frozen=True, eq=False)
class DenseColumns:
    """Some columns of a dense design, one row per observation."""

    A: FloatArray  # (N, k)
    offsets: IntArray  # (m + 1,)
    alike: bool = False  # whether all tasks have the same rows

    @cached_property
    def entries(self) -> DenseEntries:
        """The same numbers column by column."""
        return self.offsets, np.ascontiguousarray(self.A.T, dtype=np.float64)

    @property
    def n_entries(self) -> int:
        """How many numbers are stored."""
        return self.A.size

    def take(self, places: IntArray) -> Self:
        """Return some of these columns."""
        return replace(self, A=np.take(self.A, places, axis=1))

    def as_dense(self) -> Self:
        """Return the columns, which are an array."""
        return self

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(m, k) Sums over each task's observations of x times the value, with rows padded by zeros."""
        width = -(-self.A.shape[1] // LANES) * LANES
        result = np.zeros((len(self.offsets) - 1, width))
        dense_adjoint(self.A, values, self.offsets, result)
        return result

    def linear_predictor(self, W: FloatArray) -> FloatArray:
        """(N,) x' w_t for every observation."""
        result = np.empty(len(self.A))
        dense_predictor(self.A, W, self.offsets, result)
        return result

    def moments(self, weight: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(k, m) Weighted sums of the columns, and their weighted squares about the means ``sums / totals``."""
        return _moments(self.entries, self.A.shape[1], self.offsets, weight, totals)


class SparseColumns(NamedTuple):
    """Some columns of a sparse design: segments of its entries."""

    segments: IntArray  # (k, m + 1)
    observation: Int32Array
    values: FloatArray
    offsets: IntArray  # (m + 1,)

    @property
    def entries(self) -> SparseEntries:
        """Segments and the entries they point to."""
        return self.segments, self.observation, self.values

    @property
    def n_entries(self) -> int:
        """How many numbers are stored."""
        return int(np.sum(self.segments[:, -1] - self.segments[:, 0]))

    def take(self, places: IntArray) -> Self:
        """Return some of these columns, over the same entries."""
        return self._replace(segments=self.segments[places])

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(m, k) Sums over each task's observations of x times the value."""
        result = np.empty((self.segments.shape[1] - 1, len(self.segments)))
        sparse_adjoint(self.entries, values, result)
        return result

    def linear_predictor(self, W: FloatArray) -> FloatArray:
        """(N,) x' w_t for every observation."""
        result = np.empty(self.offsets[-1])
        sparse_predictor(self.entries, W, result)
        return result

    def as_dense(self) -> DenseColumns:
        """Return the same columns as an array."""
        first, stop = self.segments[:, 0], self.segments[:, -1]
        sizes = stop - first
        entries = np.arange(sizes.sum()) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)
        A = np.zeros((self.offsets[-1], len(self.segments)))
        A[self.observation[entries], np.repeat(np.arange(len(sizes)), sizes)] = self.values[entries]
        return DenseColumns(A, self.offsets)

    def moments(self, weight: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(k, m) Weighted sums of the columns, and their weighted squares about the means ``sums / totals``."""
        return _moments(self.entries, len(self.segments), self.offsets, weight, totals)


def _moments(
    entries: Entries, k: int, offsets: IntArray, weight: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray]:
    sums, squares = np.empty((2, k, len(totals)))
    column_moments(entries, offsets, weight, totals, sums, squares)
    return sums, squares


class DenseDesign:
    """All columns of a dense design."""

    def __init__(self, data: TaskData) -> None:
        self.data = data
        own_rows = not data.shared_design or data.n_tasks == 1
        self.stacked = own_rows and bool(data.design.flags.c_contiguous)

    def gradient(self, theta: FloatArray) -> FloatArray:
        """(p, m) ``X' theta``."""
        if not self.stacked:
            return self.data.adjoint(theta)
        by_task = np.empty((self.data.n_tasks, self.data.n_features))
        dense_adjoint(self.data.design, theta, self.data.offsets, by_task)
        return by_task.T

    def scores(self, rows: PenaltyRows, theta: FloatArray) -> FloatArray:
        """(R,) Dual norm of every row of ``X' theta``."""
        gradient = self.gradient(theta)
        return rows.dual_norms(gradient[rows.features] if rows.grouped else gradient)

    def take(self, features: IntArray) -> DenseColumns:
        """Return some of the columns: a copy, unless it is all of them."""
        data = self.data
        if self.stacked and np.array_equal(features, np.arange(data.n_features)):
            return DenseColumns(data.design, data.offsets)
        columns = np.take(data.design, features, axis=1)  # three times faster than an index, whose copy is transposed
        if data.shared_design and data.n_tasks > 1:
            columns = columns[data.rows]
        return DenseColumns(np.ascontiguousarray(columns), data.offsets, data.is_complete)


class SparseDesign:
    """All columns of a sparse design, whose entries are sorted by feature once."""

    def __init__(self, data: TaskData) -> None:
        self.data = data
        X = data.design[data.rows] if data.shared_design and data.n_tasks > 1 else data.design
        columns = X.tocsc()
        self.pointer = columns.indptr.astype(np.int64)
        self.observation = columns.indices.astype(np.int32, copy=False)
        self.values = columns.data.astype(np.float64, copy=False)

    def scores(self, rows: PenaltyRows, theta: FloatArray) -> FloatArray:
        """(R,) Dual norm of every row of ``X' theta``; where it is clearly below the strength, a bound on it.

        The 2-norm for q <= 2 and the 1-norm for q > 2 bound the dual norm; at q = 2 and q = inf they are the dual norm.
        """
        data, X = self.data, self.data.design
        squared = rows.penalty.norm_q <= 2.0
        sums = sums_over_tasks((X.indptr, X.indices, X.data), data.rows, data.offsets, theta, data.n_features, squared)
        if rows.grouped:
            sums = np.add.reduceat(sums[rows.features], rows.starts[:-1])
        scores = np.sqrt(sums) if squared else sums
        if rows.penalty.weights is not None:
            scores = divided_by_weights(scores, rows.penalty.weights)
        if rows.penalty.norm_q in (2.0, np.inf) and not rows.penalty.entrywise:
            return scores
        unclear = np.flatnonzero(scores > CLEARLY_ZERO * rows.penalty.strength)
        some = rows.take(unclear)
        scores[unclear] = some.dual_norms(self.take(some.features).adjoint(theta).T)
        return scores

    def take(self, features: IntArray) -> SparseColumns:
        """Return some of the columns, over the same entries."""
        segments = segments_of(self.pointer, self.observation, features, self.data.offsets)
        return SparseColumns(segments, self.observation, self.values, self.data.offsets)


Columns = DenseColumns | SparseColumns
ColumnDesign = DenseDesign | SparseDesign


def by_columns(data: TaskData) -> ColumnDesign:
    """Open the design of a data set by columns."""
    return SparseDesign(data) if data.is_sparse else DenseDesign(data)


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


@lean()
def sparse_adjoint(entries: SparseEntries, vector: FloatArray, result: FloatArray) -> None:
    """Write ``X_t' vector_t`` of every task to ``result`` (m, k)."""
    segments = entries[0]
    for j in range(segments.shape[0]):
        for t in range(segments.shape[1] - 1):
            result[t, j] = _sparse_sum(entries, j, t, t + 1, vector)


@lean()
def sparse_predictor(entries: SparseEntries, W: FloatArray, result: FloatArray) -> None:
    """Write ``X_t w_t`` of every task to ``result`` (N,)."""
    segments, observation, values = entries
    for i in range(result.size):
        result[i] = 0.0
    for j in range(W.shape[0]):
        for t in range(W.shape[1]):
            if W[j, t] != 0.0:
                rows, column = (
                    observation[segments[j, t] : segments[j, t + 1]],
                    values[segments[j, t] : segments[j, t + 1]],
                )
                for e in range(rows.size):
                    result[np.uint32(rows[e])] += W[j, t] * column[e]


# Below, a run of entries is a slice counted from 0, and a row number is unsigned: where an index could be negative the
# compiler asks at every entry whether it counts from the end, and takes them one at a time.


@inner(**LEAN)
def column_sum(entries: Entries, j: int, first: int, stop: int, vector: FloatArray) -> float:
    """Sum of column j times a vector over the tasks from ``first`` to before ``stop``."""
    if len(entries) == DENSE:
        return _dense_sum(entries, j, first, stop, vector)
    else:
        return _sparse_sum(entries, j, first, stop, vector)


@inner(**LEAN, fastmath={"reassoc", "contract"})
def _dense_sum(entries: DenseEntries, j: int, first: int, stop: int, vector: FloatArray) -> float:
    offsets, columns = entries
    column, part = columns[j, offsets[first] : offsets[stop]], vector[offsets[first] : offsets[stop]]
    total = 0.0
    for i in range(column.size):
        total += column[i] * part[i]
    return total


@inner(**LEAN, fastmath={"reassoc", "contract"})
def _sparse_sum(entries: SparseEntries, j: int, first: int, stop: int, vector: FloatArray) -> float:
    segments, observation, values = entries
    rows, column = observation[segments[j, first] : segments[j, stop]], values[segments[j, first] : segments[j, stop]]
    total = 0.0
    for e in range(rows.size):
        total += column[e] * vector[np.uint32(rows[e])]
    return total


@inner(**LEAN)
def add_column(
    entries: Entries, j: int, first: int, stop: int, factor: float, weight: FloatArray, vector: FloatArray
) -> None:
    """Add column j times a factor and the weights to a vector, over the tasks from ``first`` to before ``stop``."""
    if len(entries) == DENSE:
        _add_dense(entries, j, first, stop, factor, weight, vector)
    else:
        _add_sparse(entries, j, first, stop, factor, weight, vector)


@inner(**LEAN, fastmath={"contract"})
def _add_dense(
    entries: DenseEntries, j: int, first: int, stop: int, factor: float, weight: FloatArray, vector: FloatArray
) -> None:
    offsets, columns = entries
    a, b = offsets[first], offsets[stop]
    column, weights, part = columns[j, a:b], weight[a:b], vector[a:b]
    for i in range(column.size):
        part[i] += weights[i] * column[i] * factor


@inner(**LEAN)
def _add_sparse(
    entries: SparseEntries, j: int, first: int, stop: int, factor: float, weight: FloatArray, vector: FloatArray
) -> None:
    segments, observation, values = entries
    rows, column = observation[segments[j, first] : segments[j, stop]], values[segments[j, first] : segments[j, stop]]
    for e in range(rows.size):
        i = np.uint32(rows[e])
        vector[i] += weight[i] * column[e] * factor


@lean()
def column_moments(
    entries: Entries, offsets: IntArray, weight: FloatArray, totals: FloatArray, sums: FloatArray, squares: FloatArray
) -> None:
    """Write the weighted sum of every column in every task, and the weighted squares about its mean, to (k, m) arrays.

    ``totals`` (m,) are the sums of the weights; inf for a task whose columns are not to be centred.
    """
    for j in range(sums.shape[0]):
        for t in range(sums.shape[1]):
            sums[j, t] = column_sum(entries, j, t, t + 1, weight)
            squares[j, t] = _squares_about(entries, j, t, sums[j, t] / totals[t], totals[t], weight, offsets)


@inner(**LEAN)
def _squares_about(
    entries: Entries, j: int, t: int, mean: float, total: float, weight: FloatArray, offsets: IntArray
) -> float:
    if len(entries) == DENSE:
        return _dense_squares(entries, j, t, mean, weight)
    else:
        return _sparse_squares(entries, j, t, mean, total, weight, offsets)


@inner(**LEAN, fastmath={"reassoc", "contract"})
def _dense_squares(entries: DenseEntries, j: int, t: int, mean: float, weight: FloatArray) -> float:
    offsets, columns = entries
    column, weights = columns[j, offsets[t] : offsets[t + 1]], weight[offsets[t] : offsets[t + 1]]
    square = 0.0
    for i in range(column.size):
        square += weights[i] * (column[i] - mean) ** 2
    return square


@inner(**LEAN, fastmath={"reassoc", "contract"})
def _sparse_squares(
    entries: SparseEntries, j: int, t: int, mean: float, total: float, weight: FloatArray, offsets: IntArray
) -> float:
    segments, observation, values = entries
    rows, column = observation[segments[j, t] : segments[j, t + 1]], values[segments[j, t] : segments[j, t + 1]]
    square = 0.0
    stored = 0.0
    for e in range(rows.size):
        h = weight[np.uint32(rows[e])]
        square += h * (column[e] - mean) ** 2
        stored += h
    if mean != 0.0 and rows.size < offsets[t + 1] - offsets[t]:
        square += (total - stored) * mean * mean
    return square
