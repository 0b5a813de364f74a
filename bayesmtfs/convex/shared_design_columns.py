"""A design that all tasks share, seen through row weights and an intercept, without a copy of it.

With one factor ``c_i`` per row of the design the loss is ``unit / 2 ||Y - Z W||^2`` where row i of Z is
``sqrt(c_i / unit) (x_i - mean)`` and ``unit`` is the mean of the factors: only columns in use are ever written out as
columns of Z. Scores of all columns need no centring, since the residuals are centred already. Residuals are kept
task by row ``(m, n)``: their product with X is then the fast one.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.inputs import Design
from bayesmtfs.types import FloatArray, IntArray

CHUNK = 500_000  # numbers that are converted at a time where X is float32: they stay in the cache
CONSTANT = 1e-13  # spread of a column, relative to its mean, up to which it is constant
DOUBTFUL = 1e-6  # the same, up to which the spread of a sparse column is computed on the centred column


class SharedDesign:
    """The data of a problem, weighted and centred.

    Attributes
    ----------
    unit : mean factor of a row's loss
    Y : (m, n) weighted and centred targets
    is_null : (p,) columns that were found to be zeros, or constant where there is an intercept
    """

    def __init__(self, problem: Problem) -> None:
        data = problem.data
        self.X: Design = data.design
        n, m = self.X.shape[0], data.n_tasks
        factor = problem.weight[:n]
        self.unit = float(factor.mean())
        self.root = None if np.all(factor == factor[0]) else np.sqrt(factor / self.unit)
        self.share = factor / factor.sum() if problem.fit_intercept else None
        self.y_mean = np.zeros(m)
        Y = data.y.reshape(m, n)
        if self.share is not None:
            self.y_mean = Y @ self.share
            Y = Y - self.y_mean[:, None]
        self.Y: FloatArray = Y if self.root is None else Y * self.root
        self.is_null = np.zeros(self.X.shape[1], dtype=bool)
        self._lengths: FloatArray | None = None

    def centred(self, residual: FloatArray) -> FloatArray:
        """Residuals (m, n) without the rounding error of their weighted sums, which large means of X would multiply."""
        if self.share is None:
            return residual
        root = np.ones(residual.shape[1]) if self.root is None else self.root
        return residual - np.outer(residual @ root / len(root), root)

    @property
    def lengths(self) -> FloatArray:
        """(p,) Length of every column of Z."""
        if self._lengths is None:
            self._lengths = self._column_lengths()
        return self._lengths

    def _column_lengths(self) -> FloatArray:
        n, p = self.X.shape
        weight = np.ones(n) if self.root is None else self.root**2
        if sp.issparse(self.X):
            squared = sp.csr_matrix((np.square(self.X.data, dtype=np.float64), self.X.indices, self.X.indptr), (n, p))
            square = np.asarray(squared.T @ weight)
            mean = np.zeros(p) if self.share is None else np.asarray(self.X.T @ self.share)
            return np.sqrt(np.maximum(square - n * mean**2, 0.0) + 1e-12 * square)
        lengths = np.empty(p)
        step = max(1, CHUNK // n)
        for start in range(0, p, step):
            part = self.X[:, start : start + step]
            if self.share is not None:
                part = part - self.share @ part
            weighted = part if self.root is None else part * self.root[:, None]
            lengths[start : start + step] = np.sqrt(np.einsum("ij,ij->j", weighted, weighted, dtype=np.float64))
        return lengths

    def correlations(self, residual: FloatArray, features: IntArray | None = None) -> FloatArray:
        """(p, m) or (k, m) inner products of columns of Z with the residuals (m, n)."""
        weighted = residual if self.root is None else residual * self.root
        X = self.X if features is None else self.X[:, features]
        if sp.issparse(X):
            return np.asarray(X.T @ weighted.T)
        if X.dtype == np.float64:
            return (weighted @ X).T
        result = np.empty((X.shape[1], len(residual)))
        step = max(1, CHUNK // X.shape[0])
        for start in range(0, X.shape[1], step):
            result[start : start + step] = (weighted @ X[:, start : start + step].astype(np.float64)).T
        return result

    def columns(self, features: IntArray) -> "Columns":
        """Columns of Z, scaled to length 1."""
        return SparseColumns(self, features) if sp.issparse(self.X) else DenseColumns(self, features)


class DenseColumns:
    """Columns of Z of length 1, written out."""

    def __init__(self, design: SharedDesign, features: IntArray) -> None:
        Z = design.X.T[features].astype(np.float64, order="C", copy=False)
        self.mean = np.zeros(len(features))
        if design.share is not None:
            self.mean = Z @ design.share
            Z -= self.mean[:, None]
        if design.root is not None:
            Z *= design.root
        self.Z: FloatArray = Z
        self.length = np.sqrt(np.einsum("in,in->i", Z, Z))
        self.length[self.length <= CONSTANT * np.sqrt(self.n_rows) * np.abs(self.mean)] = 0.0
        Z *= inverse(self.length)[:, None]

    @property
    def n_rows(self) -> int:
        """Number of rows of data n."""
        return self.Z.shape[1]

    def take(self, rows: IntArray | slice) -> "DenseColumns":
        """Some of the columns."""
        part = object.__new__(DenseColumns)
        part.Z, part.mean, part.length = self.Z[rows], self.mean[rows], self.length[rows]
        return part

    def join(self, other: "DenseColumns") -> "DenseColumns":
        """These columns and others."""
        part = object.__new__(DenseColumns)
        part.Z = np.concatenate([self.Z, other.Z])
        part.mean, part.length = np.append(self.mean, other.mean), np.append(self.length, other.length)
        return part

    def gram(self, other: "DenseColumns") -> FloatArray:
        """Inner products with other columns."""
        return self.Z @ other.Z.T

    def predict(self, W: FloatArray) -> FloatArray:
        """(m, n) Linear predictor of W (k, m)."""
        return W.T @ self.Z

    def correlations(self, residual: FloatArray) -> FloatArray:
        """(k, m) Inner products with the residuals (m, n)."""
        return self.Z @ residual.T


class SparseColumns:
    """Columns of Z of length 1, as a sparse matrix A and a rank-one centring: ``Z = A - root mean'``."""

    def __init__(self, design: SharedDesign, features: IntArray) -> None:
        A = sp.csc_matrix(design.X[:, features], dtype=np.float64)
        n = A.shape[0]
        self.mean = np.zeros(len(features)) if design.share is None else np.asarray(A.T @ design.share)
        self.root = np.ones(n) if design.root is None else design.root
        A = sp.csc_matrix(A.multiply(self.root[:, None]))
        square = np.asarray(A.multiply(A).sum(axis=0)).ravel() - n * self.mean**2
        self.length = np.sqrt(np.maximum(square, 0.0))
        size = np.sqrt(n) * np.abs(self.mean)
        for j in np.flatnonzero((self.length <= DOUBTFUL * size) & (size > 0)):
            centred = A[:, [j]].toarray()[:, 0] - self.root * self.mean[j]
            self.length[j] = np.linalg.norm(centred)
        self.length[self.length <= CONSTANT * size] = 0.0
        scale = inverse(self.length)
        self.A: Any = sp.csc_matrix(A.multiply(scale))
        self.centre = self.mean * scale

    @property
    def n_rows(self) -> int:
        """Number of rows of data n."""
        return len(self.root)

    def take(self, rows: IntArray | slice) -> "SparseColumns":
        """Some of the columns."""
        part = object.__new__(SparseColumns)
        part.A, part.root = self.A[:, rows], self.root
        part.mean, part.length, part.centre = self.mean[rows], self.length[rows], self.centre[rows]
        return part

    def join(self, other: "SparseColumns") -> "SparseColumns":
        """These columns and others."""
        part = object.__new__(SparseColumns)
        part.A, part.root = sp.hstack([self.A, other.A], format="csc"), self.root
        part.mean, part.length = np.append(self.mean, other.mean), np.append(self.length, other.length)
        part.centre = np.append(self.centre, other.centre)
        return part

    def gram(self, other: "SparseColumns") -> FloatArray:
        """Inner products with other columns."""
        products = (self.A.T @ other.A).toarray()
        return np.asarray(products - len(self.root) * np.outer(self.centre, other.centre))

    def predict(self, W: FloatArray) -> FloatArray:
        """(m, n) Linear predictor of W (k, m)."""
        return np.asarray((self.A @ W).T - np.outer(self.centre @ W, self.root))

    def correlations(self, residual: FloatArray) -> FloatArray:
        """(k, m) Inner products with the residuals (m, n)."""
        return np.asarray(self.A.T @ residual.T)


Columns = Any  # DenseColumns or SparseColumns


def inverse(length: FloatArray) -> FloatArray:
    """``1 / length``, and 0 for a column of zeros."""
    return np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
