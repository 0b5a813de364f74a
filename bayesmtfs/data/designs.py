"""Designs, dense or CSR: the few matrix operations that differ between the two."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from bayesmtfs.types import FloatArray

Design = Any  # (n, p) float32 or float64: a C- or F-ordered ndarray, or a CSR matrix


def stack_rows(designs: list[Design]) -> Design:
    """Put designs on top of each other."""
    return sp.vstack(designs, format="csr") if any(sp.issparse(X) for X in designs) else np.concatenate(designs)


def row_span(X: Design, start: int, stop: int) -> Design:
    """Rows start to stop, over the same memory."""
    if not sp.issparse(X):
        return X[start:stop]
    first, last = X.indptr[start], X.indptr[stop]
    parts = (X.data[first:last], X.indices[first:last], X.indptr[start : stop + 1] - first)
    return sp.csr_matrix(parts, shape=(stop - start, X.shape[1]), copy=False)


def times_columns(X: Design, factor: FloatArray) -> Design:
    """Multiply column i by ``factor[i]``."""
    if not sp.issparse(X):
        return X * factor.astype(X.dtype)
    scaled = X.copy()
    scaled.data *= factor.astype(X.dtype)[X.indices]
    return scaled


def weighted_deviation(X: Design, weight: FloatArray) -> FloatArray:
    """Weighted standard deviation of each column; exactly 0 for a constant one."""
    total = weight.sum()
    if not sp.issparse(X):
        mean = weight @ X / total
        deviation = np.sqrt(weight @ np.square(X - mean) / total)
        return np.where(np.ptp(X, axis=0) == 0, 0.0, deviation)
    mean = np.asarray(X.T @ weight) / total
    row_weight = np.repeat(weight, np.diff(X.indptr))
    squares = row_weight * np.square(X.data - mean[X.indices])
    spread = np.bincount(X.indices, weights=squares, minlength=X.shape[1])
    stored = np.bincount(X.indices, weights=row_weight, minlength=X.shape[1])
    full = np.bincount(X.indices, minlength=X.shape[1]) == X.shape[0]
    variance = (spread + (total - stored) * mean**2 * ~full) / total
    return np.where(variance <= 1e-28 * mean**2, 0.0, np.sqrt(variance))
