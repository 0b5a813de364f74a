"""Sums over the rows of each task: variances about each task's own mean, products with a vector, and Gram matrices.

A constant column has the variance 0 exactly, whatever its level.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.compiled import LEAN, inner, lean, one_thread
from bayesmtfs.types import FloatArray, IntArray

Design = Any  # that of `inputs`, which asks this module for sums

COLUMN_CHUNK = 500_000  # numbers that are worked on at a time: they stay in the cache
ROUNDING = 1e-28  # of a squared mean, below which the variance of a sparse column is 0
CANCELLED = 1e-4  # of the mean square, below which the variance is not taken as its difference from the squared mean
LOST = 1e-2  # of the mean square, below which their difference has lost digits that a dense column has at hand
LARGE = 1_000_000  # numbers of a dense design, from which one compiled pass over it pays
ROWS_AT_A_TIME = 4  # of a design that is kept row by row: sums are read and written once for all of them
FEW_TIMES = 8  # reading numbers in order is so much faster than looking them up

LANES = 8  # numbers in one vector register: rows of working memory are padded to a multiple of it
PANEL = 256  # observations that are multiplied at once, few enough to stay in the cache
TILE = 4  # features by so many are multiplied at once, as many as there are registers for

RowEntries = tuple[NDArray[np.int32] | NDArray[np.int64], NDArray[np.int32] | NDArray[np.int64], FloatArray]  # CSR


def weighted_deviation(X: Design, weight: FloatArray) -> FloatArray:
    """Weighted standard deviation (p,) of each column of one design; exactly 0 for a constant one."""
    return weighted_moments(X, weight)[1]


def weighted_moments(X: Design, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation (p,) of each column of one design, in one pass over it."""
    share = weight / weight.sum()
    if sp.issparse(X):
        deviation = np.sqrt(sparse_variances(X, weight, np.array([0, len(weight)]))[:, 0])
        return np.asarray(X.T @ share), deviation
    equal = bool(np.all(share == share[0]))
    sums = plain_sums(X) if equal else None
    if sums is not None and np.isfinite(sums).all():
        return moments_of_sums(X, sums)
    mean, variance = np.empty((2, X.shape[1]))
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for part in column_chunks(X):
            columns = X[:, part].astype(np.float64, copy=False)
            mean[part] = share @ columns
            if equal:
                square = np.einsum("ij,ij->j", columns, columns) * share[0]
            else:
                square = share @ (columns * columns)
            variance[part] = square - mean[part] ** 2
            close = np.flatnonzero(~(variance[part] > LOST * square))
            if len(close) > 0:
                variance[part][close] = _variance_about_entry(columns[:, close], share)
    return mean, np.sqrt(np.maximum(variance, 0.0))


def plain_sums(X: Any) -> FloatArray | None:
    """(2, p) Sums of every column and of its squares, of a large dense design; None of others.

    They are finite only if all numbers are.
    """
    if sp.issparse(X) or X.size < LARGE:
        return None
    sums = np.zeros((2, X.shape[1]))
    if X.flags.f_contiguous:
        _sum_lines(X.T, sums)
    elif X.flags.c_contiguous:
        _sum_across_lines(X, sums)
    else:
        return None
    return sums


def moments_of_sums(X: FloatArray, sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation (p,) of every column of a design, from what `plain_sums` gave for it."""
    mean, square = sums / len(X)
    variance = square - mean**2
    close = np.flatnonzero(~(variance > LOST * square))
    share = np.full(len(X), 1.0 / len(X))
    for part in column_chunks(X) if len(close) > 0 else ():
        variance[close[part]] = _variance_about_entry(X[:, close[part]].astype(np.float64, copy=False), share)
    return mean, np.sqrt(np.maximum(variance, 0.0))


@lean(fastmath={"reassoc", "contract"})
def _sum_lines(A: FloatArray, sums: FloatArray) -> None:
    """Sums (2, k) of the numbers of every line of A (k, n), and of their squares."""
    for j in range(A.shape[0]):
        total = 0.0
        square = 0.0
        for i in range(A.shape[1]):
            value = np.float64(A[j, i])
            total += value
            square += value * value
        sums[0, j] = total
        sums[1, j] = square


@lean(fastmath={"contract"})
def _sum_across_lines(A: FloatArray, sums: FloatArray) -> None:
    """Add numbers of A (n, k) column by column, and their squares, to sums (2, k)."""
    n, k = A.shape
    i = 0
    while i + ROWS_AT_A_TIME <= n:
        for j in range(k):
            a, b = np.float64(A[i, j]), np.float64(A[i + 1, j])
            c, d = np.float64(A[i + 2, j]), np.float64(A[i + 3, j])
            sums[0, j] += (a + b) + (c + d)
            sums[1, j] += (a * a + b * b) + (c * c + d * d)
        i += ROWS_AT_A_TIME
    while i < n:
        for j in range(k):
            value = np.float64(A[i, j])
            sums[0, j] += value
            sums[1, j] += value * value
        i += 1


def _variance_about_entry(columns: FloatArray, share: FloatArray) -> FloatArray:
    """Variance about an entry of each column, the heaviest: that is 0 for a constant one, and never far from the mean."""
    moved = columns - columns[share.argmax()]
    return share @ (moved * moved) - (share @ moved) ** 2


def column_chunks(X: Design) -> list[slice]:
    """Runs of columns of so few numbers that they stay in the cache."""
    step = max(1, COLUMN_CHUNK // X.shape[0])
    return [slice(start, start + step) for start in range(0, X.shape[1], step)]


def dense_variances(A: FloatArray, weight: FloatArray, offsets: IntArray) -> FloatArray:
    """(p, m) Variance of every column in every task, of a design (N, p) whose rows are sorted by task."""
    by_task = np.empty((len(offsets) - 1, A.shape[1]))
    _write_dense_variances(A, weight, offsets, by_task)
    return by_task.T


def sparse_variances(X: Design, weight: FloatArray, offsets: IntArray) -> FloatArray:
    """(p, m) The same of a CSR matrix (N, p)."""
    result = np.zeros((X.shape[1], len(offsets) - 1))
    _write_sparse_variances((X.indptr, X.indices, X.data), weight, offsets, result)
    return result


def pooled_sparse_variances(X: Design, weight: FloatArray, offsets: IntArray) -> FloatArray:
    """(p,) The same, averaged over tasks by their weights: nothing of size (p, m) is made."""
    entries, p, totals = (X.indptr, X.indices, X.data), X.shape[1], np.add.reduceat(weight, offsets[:-1])
    share = np.repeat(1.0 / np.sqrt(totals * totals.sum()), np.diff(offsets))
    squared_means = sums_over_tasks(entries, np.arange(len(weight)), offsets, weight * share, p, True)
    squares = _weighted_squares(entries, weight, p) / totals.sum()
    pooled: FloatArray = squares - squared_means
    unclear = np.flatnonzero(pooled < CANCELLED * squares)
    if len(unclear) > 0:
        pooled[unclear] = sparse_variances(X[:, unclear], weight, offsets) @ totals / totals.sum()
    return pooled


@njit(cache=True, error_model="numpy", nogil=True)
def sums_over_tasks(
    entries: RowEntries, rows: IntArray, offsets: IntArray, vector: FloatArray, n_features: int, squared: bool
) -> FloatArray:
    """(p,) Sum over tasks of ``|X_t' vector_t|``, or of its square, feature by feature, from a CSR matrix.

    A task's products are scattered into one array and collected from there, so that nothing of size (p, m) is written:
    from all features, or only from those the task has entries of where these are few.
    """
    indptr, indices, data = entries
    sums = np.zeros(n_features)
    product = np.zeros(n_features)
    for t in range(offsets.size - 1):
        count = 0
        for i in range(offsets[t], offsets[t + 1]):
            value = vector[i]
            row = rows[i]
            count += indptr[row + 1] - indptr[row]
            for e in range(indptr[row], indptr[row + 1]):
                product[np.uint32(indices[e])] += value * data[e]
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
def _weighted_squares(entries: RowEntries, weight: FloatArray, n_features: int) -> FloatArray:
    """(p,) Weighted sum of the squares of every column of a CSR matrix."""
    indptr, indices, data = entries
    squares = np.zeros(n_features)
    for i in range(weight.size):
        for e in range(indptr[i], indptr[i + 1]):
            squares[indices[e]] += weight[i] * data[e] * data[e]
    return squares


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def _write_dense_variances(A: FloatArray, weight: FloatArray, offsets: IntArray, result: FloatArray) -> None:
    """Write the variances of task t to ``result[t]``, about the entries of its heaviest row, four rows at a time."""
    p = A.shape[1]
    entry, sums, squares = np.empty(p), np.empty(p), np.empty(p)
    for t in range(offsets.size - 1):
        total = 0.0
        heaviest = offsets[t]
        for i in range(offsets[t], offsets[t + 1]):
            if weight[i] > weight[heaviest]:
                heaviest = i
        for j in range(p):
            entry[j] = A[heaviest, j]
            sums[j] = 0.0
            squares[j] = 0.0
        i = offsets[t]
        stop = offsets[t + 1]
        while i + 3 < stop:
            u, v, w, x = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
            total += u + v + w + x
            for j in range(p):
                a, b, c, d = A[i, j] - entry[j], A[i + 1, j] - entry[j], A[i + 2, j] - entry[j], A[i + 3, j] - entry[j]
                sums[j] += u * a + v * b + w * c + x * d
                squares[j] += u * a * a + v * b * b + w * c * c + x * d * d
            i += 4
        while i < stop:
            total += weight[i]
            for j in range(p):
                moved = A[i, j] - entry[j]
                sums[j] += weight[i] * moved
                squares[j] += weight[i] * moved * moved
            i += 1
        for j in range(p):
            mean = sums[j] / total
            result[t, j] = max(squares[j] / total - mean * mean, 0.0)


@njit(cache=True, error_model="numpy", nogil=True)
def _write_sparse_variances(entries: RowEntries, weight: FloatArray, offsets: IntArray, result: FloatArray) -> None:
    """Write the variances of task t to ``result[:, t]``, which is 0 where the task has no entry."""
    indptr, indices, data = entries
    p = result.shape[0]
    count, seen = np.zeros(p, dtype=np.int64), np.empty(p, dtype=np.int64)
    means, squares, stored = np.empty(p), np.empty(p), np.empty(p)
    for t in range(offsets.size - 1):
        n_seen = 0
        total = 0.0
        for i in range(offsets[t], offsets[t + 1]):
            total += weight[i]
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                if count[j] == 0:
                    seen[n_seen] = j
                    n_seen += 1
                    means[j], squares[j], stored[j] = 0.0, 0.0, 0.0
                count[j] += 1
                means[j] += weight[i] * data[e]
                stored[j] += weight[i]
        for s in range(n_seen):
            means[seen[s]] /= total
        for i in range(offsets[t], offsets[t + 1]):
            for e in range(indptr[i], indptr[i + 1]):
                moved = data[e] - means[indices[e]]
                squares[indices[e]] += weight[i] * moved * moved
        for s in range(n_seen):
            j = seen[s]
            if count[j] < offsets[t + 1] - offsets[t]:
                squares[j] += (total - stored[j]) * means[j] * means[j]
            if squares[j] > ROUNDING * total * means[j] * means[j]:
                result[j, t] = squares[j] / total
            count[j] = 0


class TaskProducts(NamedTuple):
    """Products of the columns of every task, and its targets as one column more, about means or about 0."""

    means: FloatArray  # (p + 1, m) weighted means; zeros for products about 0
    products: FloatArray  # (p + 1, m, p + 1 or more) weighted; feature, task, other feature, and zeros
    squares: FloatArray  # (p + 1, m) products of every column with itself

    @property
    def with_target(self) -> FloatArray:
        """(p, m) Products of every feature with the target."""
        return self.products[:-1, :, len(self.means) - 1]


def task_products(A: FloatArray, y: FloatArray, weight: FloatArray, offsets: IntArray, centred: bool) -> TaskProducts:
    """Products of a design (N, p) in float64 whose rows are sorted by task, in one pass over it."""
    k, m = A.shape[1] + 1, len(offsets) - 1
    means, products = np.zeros((k, m)), np.empty((k, m, padded(k)))
    gram(A, y, weight, offsets, centred, means, products)
    return TaskProducts(means, products, products[np.arange(k), :, np.arange(k)])


def padded(size: int) -> int:
    """Size of a row of working memory for so many numbers."""
    return -(-size // LANES) * LANES


@njit(cache=True, error_model="numpy", nogil=True)
def gram(
    A: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    offsets: IntArray,
    centring: bool,
    means: FloatArray,
    Q: FloatArray,
) -> None:
    """Write ``sum_i h_i (x_ij - mean_jt) (x_il - mean_lt)`` over the observations of task t to ``Q[j, t, l]``.

    A target y (N,) is one column more; it may be empty. The means (k, m) are given, or written first (``centring``).
    Observations are taken a panel at a time and transposed, so that products run along them.
    """
    k = A.shape[1] + min(y.size, 1)
    even = (k + TILE - 1) // TILE * TILE
    panel, products = (
        np.zeros((even, PANEL + LANES)),
        np.empty((even, even)),
    )  # no power of two: rows share no cache lines
    mean = np.empty(k)
    for t in range(offsets.size - 1):
        if centring:
            _write_means(A, y, weight, offsets[t], offsets[t + 1], mean, products[0])
            for j in range(k):
                means[j, t] = mean[j]
        for j in range(k):
            mean[j] = means[j, t]
        for a in range(even):
            for b in range(even):
                products[a, b] = 0.0
        for first in range(offsets[t], offsets[t + 1], PANEL):
            n = min(offsets[t + 1] - first, PANEL)
            _write_panel(A, y, weight, first, n, mean, panel)
            _add_products(panel, (n + LANES - 1) // LANES * LANES, products)
        for a in range(k):
            for b in range(Q.shape[2]):
                Q[a, t, b] = 0.0 if b >= k else products[min(a, b), max(a, b)]


@inner(**LEAN, fastmath={"contract"})
def _write_means(
    A: FloatArray, y: FloatArray, weight: FloatArray, first: int, stop: int, mean: FloatArray, entry: FloatArray
) -> None:
    """Weighted means of columns, as deviations from their first entries: exact where a column is constant."""
    p = A.shape[1]
    for j in range(mean.size):
        entry[j] = A[first, j] if j < p else y[first]
        mean[j] = 0.0
    total = 0.0
    i = first
    while i < stop:
        a = weight[i]
        b, c, d = 0.0, 0.0, 0.0
        f, g, h = i, i, i
        if i + 3 < stop:  # four rows at a time
            f, g, h = i + 1, i + 2, i + 3
            b, c, d = weight[f], weight[g], weight[h]
        for j in range(p):
            e = entry[j]
            mean[j] += a * (A[i, j] - e) + b * (A[f, j] - e) + c * (A[g, j] - e) + d * (A[h, j] - e)
        if p < mean.size:
            e = entry[p]
            mean[p] += a * (y[i] - e) + b * (y[f] - e) + c * (y[g] - e) + d * (y[h] - e)
        total += a + b + c + d
        i = h + 1
    for j in range(mean.size):
        mean[j] = entry[j] + mean[j] / total


@inner(**LEAN, fastmath={"contract"})
def _write_panel(
    A: FloatArray, y: FloatArray, weight: FloatArray, first: int, n: int, mean: FloatArray, panel: FloatArray
) -> None:
    """Transpose n rows about the means, times the roots of their weights; zeros up to a multiple of the lanes."""
    p = A.shape[1]
    i = 0
    while i + 3 < n:
        f = first + i
        a, b, c, d = math.sqrt(weight[f]), math.sqrt(weight[f + 1]), math.sqrt(weight[f + 2]), math.sqrt(weight[f + 3])
        for j in range(p):
            panel[j, i] = a * (A[f, j] - mean[j])
            panel[j, i + 1] = b * (A[f + 1, j] - mean[j])
            panel[j, i + 2] = c * (A[f + 2, j] - mean[j])
            panel[j, i + 3] = d * (A[f + 3, j] - mean[j])
        i += 4
    while i < n:
        for j in range(p):
            panel[j, i] = math.sqrt(weight[first + i]) * (A[first + i, j] - mean[j])
        i += 1
    for i in range(n if p < mean.size else 0):
        panel[p, i] = math.sqrt(weight[first + i]) * (y[first + i] - mean[p])
    for j in range(mean.size):
        for i in range(n, (n + LANES - 1) // LANES * LANES):
            panel[j, i] = 0.0


@inner(**LEAN, fastmath={"reassoc", "contract"})
def _add_products(panel: FloatArray, n: int, products: FloatArray) -> None:
    """Add the products of all rows of a panel to the upper triangle, four rows by four."""
    for a in range(0, products.shape[0], TILE):
        w, x, y, z = panel[a, :n], panel[a + 1, :n], panel[a + 2, :n], panel[a + 3, :n]
        for b in range(a, products.shape[0], TILE):
            o, p, q, r = panel[b, :n], panel[b + 1, :n], panel[b + 2, :n], panel[b + 3, :n]
            wo, wp, wq, wr, xo, xp, xq, xr = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            yo, yp, yq, yr, zo, zp, zq, zr = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                wo += w[i] * o[i]
                wp += w[i] * p[i]
                wq += w[i] * q[i]
                wr += w[i] * r[i]
                xo += x[i] * o[i]
                xp += x[i] * p[i]
                xq += x[i] * q[i]
                xr += x[i] * r[i]
                yo += y[i] * o[i]
                yp += y[i] * p[i]
                yq += y[i] * q[i]
                yr += y[i] * r[i]
                zo += z[i] * o[i]
                zp += z[i] * p[i]
                zq += z[i] * q[i]
                zr += z[i] * r[i]
            sums = ((wo, wp, wq, wr), (xo, xp, xq, xr), (yo, yp, yq, yr), (zo, zp, zq, zr))
            for c in range(TILE):
                for d in range(TILE):
                    products[a + c, b + d] += sums[c][d]
