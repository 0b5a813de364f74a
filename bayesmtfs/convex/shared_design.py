"""Working sets for the squared loss where all tasks share one design.

    minimise over W, b:   sum_i c_i/2 ||y_i - W'x_i - b||^2 + sum_j penalty_j(w^j) + ridge / 2 ||W||^2

for any row penalty and row factors c that are the same for all tasks. The rounds are those of `working_set`; the solve
on the columns in use is that of `shared_rows`. What makes it fast:

- The product of X with the residuals is most of the work, so that there are as few of them as can be: one to begin
  with and one per round. A working set is solved to the accuracy that is wanted in the end, unless that takes longer
  than another look; and where the residuals hardly moved, most columns are certified without one (`Scores`).
- Where it pays the product is one in single precision, with a rigorous bound of its error: rows that are in doubt are
  looked at again in double precision.
- The Gram matrix of the working set serves all tasks, and rows have isotropic curvature: an exact row update is one
  proximal step, and at q = 2 a Newton step takes one Cholesky factor of the size of the support.
- Along a path `SharedDesignState` carries columns, Gram matrix and scores on, so that few full products are left.

Columns of a working set that is too large for a Gram matrix are kept in single precision; their exact products, one per
round, are made from X (`StreamedColumns`).

X is never centred, and copied in single precision at most. With one factor ``c_i`` per row of the design the loss is
``unit / 2 ||Y - Z W||^2`` where row i of Z is ``sqrt(c_i / unit) (x_i - mean)`` and ``unit`` is the mean of the factors:
only columns in use are ever written out as columns of Z. Scores of all columns need no centring, since the residuals are
centred already. Residuals are kept task by row ``(m, n)``: their product with X is then the fast one.

A row of the penalty may also be a group of columns, at q = 2. These are scaled alike, so that the penalty stays a 2-norm;
descent then takes a proximal gradient step per group, and Newton steps are what they are for single columns.

The ridge stands for one more row of Z per column, ``sqrt(ridge / unit)`` there and 0 elsewhere, with targets of 0: these
rows are never written out, but count in the length of a column, of which they are the ``own`` share of the square.
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bayesmtfs.compiled import one_thread, threads_that_pay
from bayesmtfs.convex.group_penalty import GroupPenalty, group_norms
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.row_grams import ColumnGram, RowGram, StoredGram
from bayesmtfs.convex.shared_rows import Goal, RowProblem, best_dual, minimise
from bayesmtfs.convex.working_set import WorkingSetRounds, run
from bayesmtfs.data.column_sums import column_chunks, weighted_moments
from bayesmtfs.data.inputs import Design
from bayesmtfs.data.scaling import column_moments
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import BoolArray, FloatArray, IntArray, Solution

FIRST_COLUMNS = 100  # smallest size of the first working set
MARGIN = 1.5  # columns brought in, per column that violates its bound
KEPT_SHARE = 0.1  # how far below 1 a score may be for its column to stay, per root of the relative gap
SMALLEST_MARGIN, LARGEST_MARGIN = 1e-3, 0.1  # and at least, and at most
INNER_SHARE = 0.3  # of the gap that is wanted: where a working set counts as solved
ROUGH_SHARE = 0.1  # of the gap before a round: where a working set may be left that takes long to solve
MAX_REPEATS = 3  # rounds on the same columns, each ten times as accurate; then rounding is in the way
LARGEST_GRAM = 6000  # columns
GRAM_PER_TASK = 200  # columns per task, above which epochs without a Gram matrix are cheaper than the matrix
FEW_ROWS = 0.5  # share of the columns in use, below which a copy of them is worth its time
MOST_KEPT = 0.9  # share of them, above which those that may leave stay
LARGEST_SHARE = 0.4  # of the columns; where the sphere test leaves more, all are looked at
LARGEST_RADIUS = 0.15  # of a sphere, in units of the penalty strength, that is worth a test
MAX_SPECTRUM = 300  # tasks or rows, above which a spectral norm is bounded by the Frobenius norm
STREAM_FROM = 1_000_000  # numbers of columns in use, from which they are no longer written out
STREAM_CHUNK = 60_000  # numbers of columns that are made from X at a time
FAR = 1e-2  # relative gap, above which correlations in single precision are good enough to go on from
SLACK = 1e-12  # of a bound, for rounding
SINGLE_LOOK = 5_000_000  # products of a look, from which single precision pays
SINGLE_TASKS = 8  # from which a copy of X in single precision pays
SINGLE_COST = 0.4  # of a look, compared to double precision
SINGLE_SIZE = 50_000_000  # numbers in X, up to which there is one
SINGLE_RANGE = 1e15  # largest length of a column, and its inverse the smallest, that single precision bears
SINGLE_ERROR = 0.01  # bound of its error, in units of the penalty strength, that a look may have
SINGLE_ROUNDING = 2.0**-24  # of one operation
CLEARLY_OUTSIDE = 1.03  # rough score at which a row cannot be at its bound: twice the error, and more, above it
CONSTANT = 1e-13  # spread of a column, relative to its mean, up to which it is constant
DOUBTFUL = 1e-6  # the same, up to which the spread of a sparse column is computed on the centred column


class SharedDesign:
    """The data of a problem, weighted and centred.

    Attributes
    ----------
    factor : (n,) factors of the rows' losses
    unit : their mean
    root : (n,) square root of each factor, in that unit
    share : (n,) factors of sum 1, with which columns are centred; None without intercepts
    Y : (m, n) weighted and centred targets
    rows : rows of the penalty: one column each, or a group of columns
    is_null : (R,) rows whose columns were found to be zeros, or constant where there is an intercept
    """

    def __init__(self, problem: Problem) -> None:
        self.data = data = problem.data
        self.X: Design = data.design
        n, m = self.X.shape[0], data.n_tasks
        self.factor = factor = problem.weight[:n]
        self.unit = float(factor.mean())
        self.ridge = problem.ridge / self.unit
        self.weighted = bool(np.any(factor != factor[0]))
        self.root = np.sqrt(factor / self.unit) if self.weighted else np.ones(n)
        self.share = factor / factor.sum() if problem.fit_intercept else None
        Y = data.y.reshape(m, n)
        self.y_mean = np.zeros(m) if self.share is None else Y @ self.share
        self.Y = self.times_root(Y - self.y_mean[:, None])
        self.rows = PenaltyRows.of(problem)
        self.is_null = np.zeros(self.rows.n_rows, dtype=bool)

    def times_root(self, values: FloatArray) -> FloatArray:
        """Values (..., n) times the root of each row's factor."""
        return values * self.root if self.weighted else values

    def centred(self, residual: FloatArray) -> FloatArray:
        """Residuals (m, n) without the rounding error of their weighted sums, which large means of X would multiply."""
        if self.share is None:
            return residual
        return residual - np.outer(residual @ self.root / len(self.root), self.root)

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """(p,) Weighted means and deviations of the columns of X."""
        weight = self.data.weight[: len(self.factor)]
        if np.allclose(self.factor * weight.sum(), weight * self.factor.sum(), rtol=1e-12, atol=0.0):
            means, scales = column_moments(self.data)  # which a fit has at hand
            return means[:, 0], scales[:, 0]
        return weighted_moments(self.X, self.factor)

    @cached_property
    def lengths(self) -> FloatArray:
        """(p,) Length of every column of Z."""
        return np.sqrt(self.X.shape[0]) * self.moments[1] if self.share is not None else self.lengths_about_zero

    @cached_property
    def lengths_about_zero(self) -> FloatArray:
        """(p,) Length of every column of Z before it is centred."""
        return np.sqrt(self.X.shape[0]) * np.hypot(*self.moments)

    @cached_property
    def single(self) -> NDArray[np.float32] | None:
        """X in single precision, if it can be had and pays."""
        X = self.X
        if sp.issparse(X) or X.size * len(self.Y) < SINGLE_LOOK:
            return None
        longest = float(self.lengths_about_zero.max())
        if not 1.0 / SINGLE_RANGE < longest < SINGLE_RANGE:
            return None
        if X.dtype == np.float32:
            return X
        return X.astype(np.float32) if len(self.Y) >= SINGLE_TASKS and X.size <= SINGLE_SIZE else None

    def rough_correlations(self, residual: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """(p, m) Inner products with the residuals in single precision, and bounds (p,) of the lengths of their errors.

        A sum of n products is off by at most ``(n + 3) u`` of the product of the lengths, whatever its order (Higham
        2002, *Accuracy and Stability of Numerical Algorithms*, section 3.1). None where there is no such copy of X.
        """
        size, share = float(np.abs(residual).max(initial=0.0)), (self.X.shape[0] + 3) * SINGLE_ROUNDING
        if size == 0.0 or share > SINGLE_ERROR or self.single is None:
            return None
        weighted = self.times_root(residual / size).astype(np.float32)
        products = size * (weighted @ self.single).T.astype(np.float64)
        return products, share / (1.0 - share) * float(np.linalg.norm(residual)) * self.lengths_about_zero

    def correlations(self, residual: FloatArray, features: IntArray | None = None) -> FloatArray:
        """(p, m) or (k, m) inner products of columns of Z with the residuals (m, n)."""
        weighted = self.times_root(residual)
        X = self.X if features is None else self.X[:, features]
        if sp.issparse(X):
            return np.asarray(X.T @ weighted.T)
        if X.dtype == np.float64:
            return (weighted @ X).T
        result = np.empty((X.shape[1], len(residual)))
        for part in column_chunks(X):
            result[part] = (weighted @ X[:, part].astype(np.float64)).T
        return result

    def columns(self, features: IntArray, starts: IntArray | None = None) -> "UnitColumns":
        """Columns of Z, scaled to length 1; or those from each of the starts (R + 1,) to the next to that on average."""
        return self._sparse_columns(features) if sp.issparse(self.X) else self._dense_columns(features, starts)

    def _dense_columns(self, features: IntArray, starts: IntArray | None) -> "UnitColumns":
        Z = self.raw_columns(features)
        mean = np.zeros(len(features)) if self.share is None else Z @ self.share
        self._centre(Z, mean)
        length = np.sqrt(np.einsum("in,in->i", Z, Z))
        length[length <= CONSTANT * np.sqrt(Z.shape[1]) * np.abs(mean)] = 0.0
        if starts is not None and self.rows.grouped:
            Z[length == 0.0] = 0.0
            length = np.repeat(group_norms(length, starts) / np.sqrt(np.diff(starts)), np.diff(starts))
        length, own = self._with_ridge(length)
        Z *= inverse(length)[:, None]
        return UnitColumns(self.root, Z, mean, length, np.zeros_like(mean), own, Z @ self.Y.T)

    def raw_columns(self, features: IntArray) -> FloatArray:
        """(k, n) Columns of X, as a copy."""
        return np.asarray(self.X.T[features].astype(np.float64, order="C", copy=False))

    def _centre(self, columns: FloatArray, mean: FloatArray) -> None:
        """Centre and weight columns (k, n) in place."""
        if self.share is not None:
            columns -= mean[:, None]
        if self.weighted:
            columns *= self.root

    def centred_columns(self, features: IntArray, mean: FloatArray) -> FloatArray:
        """(k, n) Columns of Z, dense, whose means are known."""
        Z = self.raw_columns(features)
        self._centre(Z, mean)
        return Z

    @property
    def can_stream(self) -> bool:
        """Whether `StreamedColumns` can stand for columns in use."""
        return not (sp.issparse(self.X) or self.rows.grouped)

    def streamed(self, features: IntArray, known: "StreamedColumns") -> "StreamedColumns":
        """Columns of Z of length 1, written out in single precision, after those that are known."""
        k, n_fresh = len(known.features), len(features)
        means, lengths = self.moments[0][features], self.lengths[features].copy()
        mean = np.zeros(n_fresh) if self.share is None else means
        lengths[lengths <= CONSTANT * np.sqrt(self.X.shape[0]) * np.abs(mean)] = 0.0
        length, own = self._with_ridge(lengths)
        A = np.empty((k + n_fresh, self.X.shape[0]), dtype=np.float32)
        A[:k] = known.rough.A
        target, scale = np.empty((n_fresh, len(self.Y))), inverse(length)[:, None]
        for part in self.chunks(n_fresh):
            Z = self.centred_columns(features[part], mean[part])
            Z *= scale[part]
            A[k:][part] = Z
            target[part] = (self.Y @ Z.T).T
        fresh = mean, length, np.zeros_like(mean), own, target
        numbers = (np.concatenate(pair) for pair in zip(known.rough[2:], fresh, strict=True))
        return StreamedColumns(self, np.append(known.features, features), UnitColumns(self.root, A, *numbers))

    def chunks(self, n_columns: int) -> list[slice]:
        """Runs of so few columns that they stay in the fast cache."""
        step = max(1, STREAM_CHUNK // self.X.shape[0])
        return [slice(start, start + step) for start in range(0, n_columns, step)]

    def _sparse_columns(self, features: IntArray) -> "UnitColumns":
        A = sp.csc_matrix(self.X[:, features], dtype=np.float64).T
        mean = np.zeros(len(features)) if self.share is None else np.asarray(A @ self.share)
        A = sp.csr_matrix(A.multiply(self.root))
        length = np.sqrt(np.maximum(np.asarray(A.multiply(A).sum(axis=1)).ravel() - A.shape[1] * mean**2, 0.0))
        size = np.sqrt(A.shape[1]) * np.abs(mean)
        for j in np.flatnonzero((length <= DOUBTFUL * size) & (size > 0)):
            length[j] = np.linalg.norm(A[[j]].toarray()[0] - self.root * mean[j])
        length[length <= CONSTANT * size] = 0.0
        length, own = self._with_ridge(length)
        scale = inverse(length)
        A = sp.csr_matrix(A.multiply(scale[:, None]))
        return UnitColumns(self.root, A, mean, length, mean * scale, own, np.asarray(A @ self.Y.T))

    def _with_ridge(self, length: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lengths (k,) of columns with their row of the ridge, if they have any, and its share of the square."""
        if self.ridge == 0.0:
            return length, np.zeros_like(length)
        length = np.where(length > 0.0, np.sqrt(length**2 + self.ridge), 0.0)
        return length, self.ridge * inverse(length) ** 2


class UnitColumns(NamedTuple):
    """Columns of Z of length 1: rows of A, and where that is sparse a rank-one centring, ``Z' = A - centre root'``."""

    root: FloatArray  # (n,)
    A: Any  # (k, n) array, or CSR
    mean: FloatArray  # (k,)
    length: FloatArray  # (k,) before they were scaled
    centre: FloatArray  # (k,) mean in units of the length
    own: FloatArray  # (k,) share of the ridge in the squared length
    target: FloatArray  # (k, m) inner products with the targets

    @property
    def typical_length(self) -> float:
        """Median length; 0 of no columns."""
        middle = len(self.length) // 2
        return float(np.partition(self.length, middle)[middle]) if middle > 0 else float(self.length.max(initial=0.0))

    def take(self, rows: IntArray | slice) -> Self:
        """Some of the columns."""
        if not isinstance(rows, slice) and len(rows) == len(self.length):
            return self
        return type(self)(self.root, *(part[rows] for part in self[1:]))

    def join(self, other: Self) -> Self:
        """These columns and others."""
        numbers = [np.concatenate([mine, theirs]) for mine, theirs in zip(self[2:], other[2:], strict=True)]
        both = [self.A, other.A]
        A = sp.vstack(both, format="csr") if sp.issparse(self.A) else np.concatenate(both)
        return type(self)(self.root, A, *numbers)

    def gram(self, other: Self) -> FloatArray:
        """Inner products with other columns."""
        products = self.A @ other.A.T
        if not sp.issparse(self.A):
            return np.asarray(products)
        return np.asarray(products.toarray() - len(self.root) * np.outer(self.centre, other.centre))

    def own_gram(self) -> FloatArray:
        """Inner products with each other."""
        return self.gram(self) + np.diag(self.own) if self.own.any() else self.gram(self)

    def streamed(self, design: SharedDesign, features: IntArray) -> "StreamedColumns":
        """The same columns, dense ones, kept in single precision."""
        return StreamedColumns(design, features, self.in_single_precision())

    def written(self) -> Self:
        """The same columns, written out."""
        return self

    def in_single_precision(self) -> Self:
        """The same columns, where they are dense in single precision, for products with what is small."""
        return self if sp.issparse(self.A) else self._replace(A=self.A.astype(np.float32))

    def predict(self, W: FloatArray) -> FloatArray:
        """(m, n) Linear predictor of W (k, m)."""
        predictor = np.asarray(W.T.astype(self.A.dtype, copy=False) @ self.A)
        return predictor - np.outer(self.centre @ W, self.root) if sp.issparse(self.A) else predictor

    def predict_active(self, W: FloatArray) -> FloatArray:
        """(m, n) Linear predictor of W (k, m), from its rows that are not zero where these are few."""
        rows = np.flatnonzero(W.any(axis=1))
        return self.take(rows).predict(W[rows]) if len(rows) < FEW_ROWS * len(W) else self.predict(W)

    def correlations(self, residual: FloatArray, W: FloatArray | None = None) -> FloatArray:
        """(k, m) Inner products with the residuals (m, n), and with those of the ridge at W (k, m)."""
        residual = residual.astype(self.A.dtype, copy=False)
        products = np.asarray(self.A @ residual.T) if sp.issparse(self.A) else (residual @ self.A.T).T
        return products if W is None or not self.own.any() else products - self.own[:, None] * W


class StreamedColumns:
    """Dense columns of Z of length 1 that are kept in single precision, for products with what is small.

    Exact products are made from X, as many columns at a time as stay in the cache. Where there are very many columns this
    takes less time than to write them out and to carry them along, unless many solves share them.
    """

    def __init__(self, design: SharedDesign, features: IntArray, rough: UnitColumns) -> None:
        self.design, self.features, self.rough = design, features, rough
        self.mean, self.length, self.own, self.target = rough.mean, rough.length, rough.own, rough.target
        self.typical_length = rough.typical_length

    def take(self, rows: IntArray | slice) -> "StreamedColumns":
        """Some of the columns."""
        return type(self)(self.design, self.features[rows], self.rough.take(rows))

    def streamed(self, design: SharedDesign, features: IntArray) -> "StreamedColumns":
        """The same columns."""
        return self

    def written(self) -> UnitColumns:
        """The same columns, written out."""
        return self.design.columns(self.features)

    def own_gram(self) -> FloatArray:
        """Inner products with each other."""
        return self.written().own_gram()

    def in_single_precision(self) -> UnitColumns:
        """The same columns in single precision."""
        return self.rough

    def predict(self, W: FloatArray) -> FloatArray:
        """(m, n) Linear predictor of W (k, m)."""
        return self.predict_active(W)

    def predict_active(self, W: FloatArray) -> FloatArray:
        """(m, n) Linear predictor of W (k, m), from its rows that are not zero."""
        rows = np.flatnonzero(W.any(axis=1))
        predictor = np.zeros((W.shape[1], self.design.X.shape[0]))
        for part in self.design.chunks(len(rows)):
            some = rows[part]
            Z = self.design.centred_columns(self.features[some], self.mean[some])
            predictor += (W[some] * inverse(self.length[some])[:, None]).T @ Z
        return predictor

    def correlations(self, residual: FloatArray, W: FloatArray | None = None) -> FloatArray:
        """(k, m) Inner products with the residuals (m, n), and with those of the ridge at W (k, m)."""
        products, weighted = np.empty((len(residual), len(self.features))), self.design.times_root(residual)
        for part in self.design.chunks(len(self.features)):
            products[:, part] = weighted @ self.design.raw_columns(self.features[part]).T
        products *= inverse(self.length)
        return products.T if W is None or not self.own.any() else products.T - self.own[:, None] * W


AnyColumns = UnitColumns | StreamedColumns


def inverse(length: FloatArray) -> FloatArray:
    """``1 / length``, and 0 for a column of zeros."""
    return np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)


class Scores:
    """Dual norms of the correlations of all rows with their columns, for one penalty up to its strength.

    The last look at all columns was at the residuals ``old`` (m, n), and gave upper bounds ``old_norms`` (R,).
    """

    def __init__(self, design: SharedDesign, penalty: RowPenalty) -> None:
        self.design, self.penalty = design, penalty
        self.old: FloatArray | None = None
        self.old_norms = np.empty(0)

    def exact(self, residual: FloatArray) -> FloatArray:
        """(R,) Dual norms at residuals (m, n), by a look at all columns."""
        return self.remember(residual, self.design.correlations(residual))

    def remember(self, residual: FloatArray, correlations: FloatArray) -> FloatArray:
        """(R,) Dual norms at residuals (m, n) whose correlations with all columns are known."""
        return self._remember(residual, self._norms(correlations))

    def _norms(self, correlations: FloatArray, rows: IntArray | None = None) -> FloatArray:
        """Dual norms of all rows from the correlations of all columns, or of some rows from those of theirs."""
        design, penalty = self.design, self.penalty if rows is None else self.penalty.take(rows)
        if not design.rows.grouped:
            return penalty.dual_norm(correlations)
        norms = np.sqrt(np.einsum("km,km->k", correlations, correlations))
        return self._of_rows(norms[design.rows.features] if rows is None else norms, rows)

    def _of_rows(self, norms: FloatArray, rows: IntArray | None = None) -> FloatArray:
        """(R,) Dual norms of rows from the 2-norms of their columns' parts."""
        sizes = self.design.rows.sizes if rows is None else self.design.rows.sizes[rows]
        norms = group_norms(norms, row_starts(sizes))
        weights = self.penalty.weights
        return norms if weights is None else norms / (weights if rows is None else weights[rows])

    def _remember(self, residual: FloatArray, norms: FloatArray) -> FloatArray:
        self.old, self.old_norms = residual, np.where(self.design.is_null, 0.0, norms)
        return self.old_norms.copy()

    def bounds(
        self, residual: FloatArray, strength: float, length: float, working: "ColumnsInUse | None" = None
    ) -> FloatArray:
        """(R,) Dual norms at residuals (m, n); those below the penalty strength may be upper bounds.

        So may all be where some row is clearly outside its bound. ``length`` is that of a typical column, 0 where none is
        known; columns in use are at hand.
        """
        bounds = self._sphere_bounds(residual, strength, length)
        if bounds is None or np.count_nonzero(bounds >= strength) > LARGEST_SHARE * len(bounds):
            bounds = self._rough_bounds(residual, strength)
            if bounds is None:
                return self.exact(residual)
            if bounds.max() > CLEARLY_OUTSIDE * strength:
                return bounds
        unsure = np.flatnonzero(bounds >= strength)
        if working is not None and len(unsure) > 0:
            correlations = working.columns.length[:, None] * working.columns.correlations(residual)
            bounds[working.rows] = self._norms(correlations, working.rows)
            unsure = np.setdiff1d(unsure, working.rows, assume_unique=True)
        if len(unsure) > LARGEST_SHARE * len(bounds):
            return self.exact(residual)
        features = self.design.rows.features_of(unsure)
        bounds[unsure] = self._norms(self.design.correlations(residual, features), unsure)
        return np.where(self.design.is_null, 0.0, bounds)

    def _rough_bounds(self, residual: FloatArray, strength: float) -> FloatArray | None:
        """(R,) Upper bounds by a look at all columns in single precision; None where there is none that is of use."""
        found = self.design.rough_correlations(residual)
        if found is None:
            return None
        correlations, errors = found
        error = self._of_rows(errors[self.design.rows.features]) * self.penalty.largest_dual_norm(len(residual))
        if error.max() > SINGLE_ERROR * strength:
            return None
        return self._remember(residual, self._norms(correlations) + error)

    def _sphere_bounds(self, residual: FloatArray, strength: float, length: float) -> FloatArray | None:
        """(R,) Upper bounds from the last look; None where that was too far away to be of use."""
        old = self.old
        if old is None:
            return None
        square = float(np.vdot(old, old))
        share = max(float(np.vdot(old, residual)) / square, 0.0) if square > 0 else 0.0
        radius = spectral_norm(residual - share * old) * self.penalty.largest_dual_norm(len(old))
        if radius == 0.0:
            return share * self.old_norms
        if radius * length > LARGEST_RADIUS * strength:
            return None
        lengths = self._of_rows(self.design.lengths[self.design.rows.features])
        return (1.0 + SLACK) * (share * self.old_norms + radius * lengths)


def row_starts(sizes: IntArray) -> IntArray:
    """(R + 1,) Where rows of such sizes begin, one after the other."""
    return np.concatenate([[0], np.cumsum(sizes)])


def spectral_norm(matrix: FloatArray) -> float:
    """Largest singular value of a matrix with a small side; of others an upper bound."""
    if min(matrix.shape) > MAX_SPECTRUM:
        return float(np.linalg.norm(matrix))
    small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return (1.0 + SLACK) * float(np.sqrt(max(np.linalg.eigvalsh(small)[-1], 0.0)))


class ColumnsInUse(NamedTuple):
    """Columns in use and what is known of them."""

    rows: IntArray  # (r,) numbers of their rows of the penalty
    starts: IntArray  # (r + 1,) where each row begins
    features: IntArray  # (k,) row by row
    columns: AnyColumns
    Q: FloatArray | None  # (k, k) their Gram matrix, unless there are too many of them
    W: FloatArray  # (k, m) coefficients on columns of length 1

    @property
    def is_active(self) -> BoolArray:
        """(r,) Whether a row is not zero."""
        alive = self.W.any(axis=1)
        return alive if len(self.rows) == len(alive) else np.logical_or.reduceat(alive, self.starts[:-1])

    @property
    def active(self) -> IntArray:
        """Places of the columns whose rows are not zero."""
        return self.places(self.is_active)

    def places(self, chosen: BoolArray) -> IntArray:
        """Places of the columns of some rows (r,)."""
        return np.flatnonzero(
            chosen if len(self.rows) == len(self.features) else np.repeat(chosen, np.diff(self.starts))
        )


class SharedDesignState:
    """What one solve leaves to the next on the same data: pass one object along a path of penalty strengths.

    Only the strength of the problem's penalty may change later.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.design = SharedDesign(problem)
        self.scores = Scores(self.design, problem.penalty)
        self.working: ColumnsInUse | None = None

    def fits(self, problem: Problem) -> bool:
        """Whether the state belongs to a problem, up to its penalty strength."""
        mine = self.problem
        same_data = mine.data is problem.data and mine.weight is problem.weight
        return same_data and mine.fit_intercept == problem.fit_intercept and mine.penalty.is_like(problem.penalty)


class Certificate(NamedTuple):
    """A point and what is known of it, on the scale of `SharedDesign`."""

    working: ColumnsInUse
    objective: float
    gap: float
    scores: FloatArray  # (R,) dual norms relative to the penalty strength; where they are below 1, upper bounds


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
    state: SharedDesignState | None = None,
) -> Solution:
    """Minimise the problem, see `automatic.solve`; where its ``has_one_gram`` is true.

    ``max_iter`` counts epochs of coordinate descent and Newton steps together; ``state`` is what an earlier solve on the
    same data and penalty left, and is brought up to date.
    """
    if state is None:
        state = SharedDesignState(problem)
    elif not state.fits(problem):
        raise ValueError("state belongs to other data or another penalty; pass one made from this problem, or None")
    with threads_that_pay(2.0 * problem.data.design.size * problem.data.n_tasks):
        return run(SharedRounds(problem, state, start), tol, max_iter, progress)


class SharedRounds(WorkingSetRounds):
    """One solve: the problem at its penalty strength, and the state that changes from round to round.

    Objectives and gaps inside are in the unit of the design.
    """

    def __init__(self, problem: Problem, state: SharedDesignState, start: Solution | None) -> None:
        self.problem, self.state, self.design = problem, state, state.design
        self.penalty = problem.penalty
        self.strength = self.penalty.strength / self.design.unit
        self.strengths = self.penalty.strengths(self.design.rows.n_rows) / self.design.unit
        self.null_objective = float(np.vdot(self.design.Y, self.design.Y)) / 2
        self.scale = problem.gap_scale
        self.best_dual = -np.inf
        self.streams = state.working is None and self.design.can_stream  # along a path columns written out serve longer
        self.newton_began = False
        self.n_repeats = 0  # rounds in which no column was missing: the working set was not solved well enough
        self._begin(start)
        self.best = Certificate(self.working, np.inf, np.inf, np.empty(0))

    def _begin(self, start: Solution | None) -> None:
        """Put the rows of the start into the working set."""
        working = self.state.working
        if working is None:
            none = np.empty(0, dtype=np.int64)
            empty = np.zeros((0, self.problem.data.n_tasks))
            working = ColumnsInUse(
                none, np.zeros(1, np.int64), none, self.design.columns(none), np.zeros((0, 0)), empty
            )
        self.working = working._replace(W=np.zeros_like(working.W))
        if start is not None:
            support = self.design.rows.rows_of(start.W.any(axis=1))
            missing = support[~np.isin(support, self.working.rows)]
            if len(missing) > 0:
                self._add(missing)
            W = start.W[self.working.features] * self.working.columns.length[:, None]
            self.working = self.working._replace(W=W)

    def look(self) -> tuple[float, float]:
        """Certify the working set's coefficients on all columns; the smallest gap so far."""
        current, unit = self._certify(), self.design.unit
        self.best = current if current.gap <= self.best.gap else self.best._replace(scores=current.scores)
        return current.objective * unit, self.best.gap * unit

    def improve(self, wanted: float, max_iter: int) -> int:
        """Bring in the columns that were missing and solve on those in use.

        The smaller gap is sought as long as that takes no more work than another look at all columns.
        """
        self.n_repeats = 0 if self._extend(self.best.scores) else self.n_repeats + 1
        self.stuck = self.n_repeats > MAX_REPEATS
        gap = INNER_SHARE * wanted / self.design.unit * 0.1 ** max(self.n_repeats - 1, 0)
        rough_gap = ROUGH_SHARE * self.best.gap
        look = 2.0 * self.design.X.size * self.problem.data.n_tasks
        look *= 1.0 if self.design.single is None else SINGLE_COST
        # where no column is missing Newton steps need not lead to the end, either: some may have left that belong there
        newton_gap = rough_gap if self.n_repeats <= 1 else 0.0
        rough_gap = rough_gap if self.n_repeats == 0 else 0.0
        goal = Goal(gap, rough_gap, look, max_iter, newton_gap, newton_began=self.newton_began)
        n_iter = self._minimise(goal)
        self.newton_began = goal.newton_began
        return n_iter

    def _certify(self) -> Certificate:
        """Objective and duality gap of the working set's coefficients, on all columns."""
        working, design = self.working, self.design
        active = working.active
        W, columns = working.W[active], working.columns
        self.residual = residual = design.centred(design.Y - columns.predict_active(working.W))
        known = None if working.W.any() else self.problem.known_null_gradient
        if known is None:
            scores = self.state.scores.bounds(residual, self.strength, working.columns.typical_length, working)
        else:
            scores = self.state.scores.remember(residual, known / design.unit)
        scores /= self.strength
        square, cross = float(np.vdot(residual, residual)), float(np.vdot(residual, design.Y))
        if design.ridge > 0.0:
            self.best_dual = max(self.best_dual, cross - (square + self._excess(scores)) / 2)
            rows = working.features[active]  # a ridge goes with single rows
            gradient = design.correlations(residual, rows) - design.ridge * inverse(columns.length[active])[:, None] * W
            scores[rows] = self.penalty.take(rows).dual_norm(gradient) / self.strength
            square += float(columns.own[active] @ np.einsum("im,im->i", W, W))
        self.best_dual = max(self.best_dual, best_dual(cross, square, float(scores.max())))
        objective = square / 2 + self._penalty(working.is_active).value(W)
        return Certificate(working, objective, max(objective - self.best_dual, 0.0), scores)

    def _excess(self, scores: FloatArray) -> float:
        """Square of what the correlations of all columns exceed their balls by, over the ridge."""
        outside = np.flatnonzero(scores > 1.0)
        penalty = self.penalty.take(outside).with_strength(self.strength)
        excess = penalty.prox(self.design.correlations(self.residual, outside), 1.0)
        return float(np.vdot(excess, excess)) / self.design.ridge

    def _extend(self, scores: FloatArray) -> bool:
        """Bring rows into the working set, drop others; whether there were any that violate their bound."""
        working = self.working
        outside = scores.copy()
        outside[working.rows] = 0.0
        n_violating = int(np.count_nonzero(outside > 1.0))
        self._keep(working.is_active | (scores[working.rows] > self._kept_score()))
        if n_violating == 0:
            return False
        n_rows, m = len(scores), self.problem.data.n_tasks
        n_columns = max(FIRST_COLUMNS, int(np.sqrt(0.3 * self.problem.data.n_features * m)))
        first = -(-n_columns * n_rows // self.problem.data.n_features)
        n_active = int(np.count_nonzero(self.working.is_active))
        n_new = first if len(self.working.rows) == 0 else min(int(MARGIN * n_violating), max(first, 6 * n_active))
        n_new = min(n_new + 1, n_rows)
        best = np.argpartition(outside, n_rows - n_new)[n_rows - n_new :]
        best = best[np.argsort(-outside[best])]
        self._add(best[outside[best] > 0.0])
        return True

    def _kept_score(self) -> float:
        """Score below which columns of zeros leave: dual points are off by about the root of the gap."""
        gap = self.best.gap * self.design.unit / self.scale
        return 1.0 - min(max(KEPT_SHARE * math.sqrt(gap), SMALLEST_MARGIN), LARGEST_MARGIN)

    def _keep(self, kept: BoolArray) -> None:
        working = self.working
        if np.count_nonzero(kept) > MOST_KEPT * len(kept):
            return
        places = working.places(kept)
        Q = None if working.Q is None else working.Q[np.ix_(places, places)]
        starts = row_starts(np.diff(working.starts)[kept])
        columns = working.columns.take(places)
        self.working = ColumnsInUse(working.rows[kept], starts, working.features[places], columns, Q, working.W[places])

    def _add(self, rows: IntArray) -> None:
        """Add the columns of some rows, with coefficients of zero."""
        old, sizes = self.working, self.design.rows.sizes[rows]
        features = self.design.rows.features_of(rows)
        with_gram = len(old.features) + len(features) <= self._largest_gram()
        columns = self._joined_columns(features, row_starts(sizes), written=with_gram)
        k, starts = len(old.features), row_starts(sizes)
        usable = columns.length[k:][starts[:-1]] > 0
        if not usable.all():
            self.design.is_null[rows[~usable]] = True
            places = np.flatnonzero(np.repeat(usable, sizes))
            rows, sizes, features = rows[usable], sizes[usable], features[places]
            columns = columns.take(np.append(np.arange(k), k + places))
        Q = self._joined_gram(columns, k) if with_gram else None
        W = np.concatenate([old.W, np.zeros((len(features), old.W.shape[1]))])
        starts = row_starts(np.append(np.diff(old.starts), sizes))
        both = np.append(old.rows, rows), starts, np.append(old.features, features)
        self.working = ColumnsInUse(*both, columns, Q, W)

    def _joined_columns(self, features: IntArray, starts: IntArray, *, written: bool) -> Any:
        """Columns in use and those of some features: ``written`` out, or streamed where that pays."""
        old, design = self.working, self.design
        size = (len(old.features) + len(features)) * design.X.shape[0]
        if self.streams and not written and size >= STREAM_FROM:
            return design.streamed(features, old.columns.streamed(design, old.features))
        fresh = design.columns(features, starts)
        return old.columns.written().join(fresh) if len(old.features) > 0 else fresh

    def _joined_gram(self, columns: UnitColumns, n_old: int) -> FloatArray:
        """Gram matrix of columns, the first of which were in use before."""
        known, fresh = columns.take(slice(n_old)), columns.take(slice(n_old, None))
        Q = np.empty((len(columns.length), len(columns.length)))
        Q[:n_old, :n_old] = known.own_gram() if self.working.Q is None else self.working.Q
        Q[n_old:, :n_old] = fresh.gram(known)
        Q[:n_old, n_old:] = Q[n_old:, :n_old].T
        Q[n_old:, n_old:] = fresh.own_gram()
        return Q

    def _largest_gram(self) -> int:
        """Columns up to which a Gram matrix pays: in memory, and against epochs that do without."""
        n, m = self.design.X.shape[0], self.problem.data.n_tasks
        return max(3 * FIRST_COLUMNS, min(max(n, 10 * FIRST_COLUMNS), GRAM_PER_TASK * m, LARGEST_GRAM))

    def _minimise(self, goal: Goal) -> int:
        """Solve the problem on the working set; the number of iterations."""
        working, columns = self.working, self.working.columns
        penalty = self._penalty(np.ones(len(working.rows), dtype=bool))
        gram: RowGram
        if working.Q is None:
            rough = columns.in_single_precision()
            far = self.best.gap * self.design.unit > FAR * self.scale
            correlation = (rough if far else columns).correlations(self.residual, working.W)
            gram = ColumnGram(columns, (working.W, correlation.astype(np.float64, copy=False)), rough)
            target = columns.target
        else:
            gram = StoredGram(working.Q)
            # as seen from the residual: what rounding did to the Gram matrix shrinks from round to round
            target = columns.correlations(self.residual, working.W) + gram.times(working.W)
        rows = RowProblem(gram, self.design.Y, target, penalty, self.null_objective)
        with one_thread():
            W = minimise(rows, working.W, goal)
        self.working = working._replace(W=W)
        return goal.n_iter

    def _penalty(self, chosen: BoolArray) -> RowPenalty | GroupPenalty:
        """Penalty of some rows of the working set, for columns of length 1."""
        working = self.working
        rows = working.rows[chosen]
        weights = self.strengths[rows] / working.columns.length[working.starts[:-1][chosen]]
        if self.design.rows.grouped:
            return GroupPenalty(weights, row_starts(np.diff(working.starts)[chosen]))
        return replace(self.penalty.take(rows), strength=1.0, weights=weights)

    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Return the result in the units of the problem, and leave the working set to the next solve."""
        self.state.working = self.working
        data, unit, working = self.problem.data, self.design.unit, self.best.working
        active = working.active
        rows = working.W[active] / working.columns.length[active][:, None]
        W = np.zeros((data.n_features, data.n_tasks))
        W[working.features[active]] = rows
        intercept = self.design.y_mean - working.columns.mean[active] @ rows
        return W, intercept, self.best.objective * unit, self.best.gap * unit
