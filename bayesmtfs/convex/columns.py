"""Designs by columns: what the working-set solver needs of all features, and of the few it works on.

A design scores every row of the penalty against a dual point and hands out some of its columns; columns multiply.
Dense columns are those of an array with one row per observation. Sparse columns stay sparse: the entries of one feature
in one task are a segment of two long arrays, and columns of some features are other segments of the same arrays.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.penalty_rows import PenaltyRows
from bayesmtfs.convex.sparse_kernels import (
    Int32Array,
    column_moments,
    columns_of,
    segments_of,
    sparse_adjoint,
    sparse_predictor,
    sums_over_tasks,
)
from bayesmtfs.convex.working_set_kernels import LANES, dense_adjoint, dense_predictor
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.priors.row_penalty import divided_by_weights
from bayesmtfs.types import FloatArray, IntArray

CLEARLY_ZERO = 0.5  # share of the penalty strength below which a bound on a dual norm is good enough


class DenseColumns(NamedTuple):
    """Some columns of a dense design, one row per observation."""

    A: FloatArray  # (N, k)
    offsets: IntArray  # (m + 1,)

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

    def as_sparse(self) -> "SparseColumns":
        """Return the same columns as segments of one long array."""
        n, k = self.A.shape
        segments = np.arange(k)[:, np.newaxis] * n + self.offsets
        observation = np.tile(np.arange(n, dtype=np.int32), k)
        return SparseColumns(segments, observation, self.A.T.astype(np.float64).ravel(), self.offsets)


class SparseColumns(NamedTuple):
    """Some columns of a sparse design: segments of its entries."""

    segments: IntArray  # (k, m + 1)
    observation: Int32Array
    values: FloatArray
    offsets: IntArray  # (m + 1,)

    @property
    def entries(self) -> tuple[IntArray, Int32Array, FloatArray]:
        """Segments and the entries they point to."""
        return self.segments, self.observation, self.values

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(m, k) Sums over each task's observations of x times the value."""
        result = np.empty((self.segments.shape[1] - 1, len(self.segments)))
        sparse_adjoint(*self.entries, values, result)
        return result

    def linear_predictor(self, W: FloatArray) -> FloatArray:
        """(N,) x' w_t for every observation."""
        result = np.empty(self.offsets[-1])
        sparse_predictor(*self.entries, W, result)
        return result

    def as_dense(self) -> DenseColumns:
        """Return the same columns as an array."""
        A = np.zeros((self.offsets[-1], len(self.segments)))
        for j, (first, stop) in enumerate(self.segments[:, [0, -1]].tolist()):
            A[self.observation[first:stop], j] = self.values[first:stop]
        return DenseColumns(A, self.offsets)

    def moments(self, weight: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(k, m) Weighted sums of the columns, and their weighted squares about the means ``sums / totals``."""
        sums, squares = np.empty((2, len(self.segments), len(totals)))
        column_moments(*self.entries, self.offsets, weight, totals, sums, squares)
        return sums, squares


class DenseDesign:
    """All columns of a dense design."""

    def __init__(self, data: TaskData) -> None:
        self.data = data
        own_rows = not data.shared_design or data.n_tasks == 1
        self.stacked = own_rows and bool(data.design.flags.c_contiguous)

    def scores(self, rows: PenaltyRows, theta: FloatArray) -> FloatArray:
        """(R,) Dual norm of every row of ``X' theta``."""
        if self.stacked:
            by_task = np.empty((self.data.n_tasks, self.data.n_features))
            dense_adjoint(self.data.design, theta, self.data.offsets, by_task)
            gradient = by_task.T
        else:
            gradient = self.data.adjoint(theta)
        return rows.dual_norms(gradient[rows.features] if rows.grouped else gradient)

    def take(self, features: IntArray) -> DenseColumns:
        """Return some of the columns: a copy, unless it is all of them."""
        data = self.data
        if self.stacked and np.array_equal(features, np.arange(data.n_features)):
            return DenseColumns(data.design, data.offsets)
        columns = data.design[:, features]
        if data.shared_design and data.n_tasks > 1:
            columns = columns[data.rows]
        return DenseColumns(np.ascontiguousarray(columns), data.offsets)


class SparseDesign:
    """All columns of a sparse design, whose entries are sorted by feature once."""

    def __init__(self, data: TaskData) -> None:
        self.data = data
        X = data.design
        columns = columns_of(X.indptr, X.indices, X.data, data.rows, data.n_features)
        self.pointer, self.observation, self.values = columns

    def scores(self, rows: PenaltyRows, theta: FloatArray) -> FloatArray:
        """(R,) Dual norm of every row of ``X' theta``; where it is clearly below the strength, a bound on it.

        The 2-norm for q <= 2 and the 1-norm for q > 2 bound the dual norm; at q = 2 and q = inf they are the dual norm.
        """
        data, X = self.data, self.data.design
        squared = rows.norm_q <= 2.0
        entries = (X.indptr, X.indices, X.data, data.rows, data.offsets)
        sums = sums_over_tasks(*entries, theta, data.n_features, squared)
        if rows.grouped:
            sums = np.add.reduceat(sums[rows.features], rows.starts[:-1])
        scores = np.sqrt(sums) if squared else sums
        if rows.penalty.weights is not None:
            scores = divided_by_weights(scores, rows.penalty.weights)
        if rows.penalty_is_exactly(2.0) or rows.penalty_is_exactly(np.inf):
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
