"""Cholesky factors and triangular systems of the leading part of an array, in place, for compiled samplers.

``np.linalg`` inside compiled functions costs many seconds of compilation, and at some tens of rows is no faster.
"""

import math

from numba import njit

from bayesmtfs.types import FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def factorise(A: FloatArray, size: int) -> None:
    """Write L over the lower triangle of ``A = L L'``; only that triangle is read."""
    for i in range(size):
        for j in range(i + 1):
            value = A[i, j]
            for k in range(j):
                value -= A[i, k] * A[j, k]
            A[i, j] = math.sqrt(value) if i == j else value / A[j, j]


@njit(cache=True, nogil=True, error_model="numpy")
def solve_lower(L: FloatArray, x: FloatArray, size: int) -> None:
    """Write ``L^-1 x`` over x."""
    for i in range(size):
        value = x[i]
        for k in range(i):
            value -= L[i, k] * x[k]
        x[i] = value / L[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
def solve_upper(L: FloatArray, x: FloatArray, size: int) -> None:
    """Write ``L'^-1 x`` over x."""
    for i in range(size - 1, -1, -1):
        x[i] /= L[i, i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]
