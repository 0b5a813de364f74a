r"""Normal vectors of which only the prior variance moves: one reduction to tridiagonal form, then O(k) for each variance.

With ``y'u - u'B u / 2`` the log-likelihood of a vector u (k,) and ``u ~ N(0, I / c)`` its prior, B of any rank,

    ln int exp(y'u - u'(B + c I) u / 2) du = y'(B + c I)^-1 y / 2 - ln det(B + c I) / 2 + constant,

is wanted for many c. Reflections ``H_j = I - v_j v_j'``, ``|v_j|^2 = 2``, give ``T = H B H'`` with
``H = H_{k-3} ... H_0`` (Golub and Van Loan 2013, section 8.3.1), and ``T + c I = L D L'`` costs O(k); so does a draw of
``H u``. A reduction takes about ``2 k^3`` operations, as much as a few Cholesky factors.

References
----------
G. H. Golub, C. F. Van Loan (2013), Matrix Computations, 4th edition.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.types import FloatArray


class Tridiagonal(NamedTuple):
    """A symmetric matrix, which is overwritten, and its tridiagonal form."""

    matrix: FloatArray  # (k, k)
    reflections: FloatArray  # (k, k) v_j from column j + 1 on, zeros before that
    diagonal: FloatArray  # (k,) of T
    couplings: FloatArray  # (k - 1,) beside the diagonal
    pulls: FloatArray  # (k,) y
    vector: FloatArray  # (k,) space, or what was drawn
    pivots: FloatArray  # (k,) space


def tridiagonal_for(k: int) -> Tridiagonal:
    """Allocate."""
    zeros = np.zeros((4, k))
    return Tridiagonal(np.zeros((k, k)), np.zeros((k, k)), zeros[0], np.zeros(max(k - 1, 0)), *zeros[1:])


@inner(error_model="numpy")
def reduce_matrix(space: Tridiagonal) -> None:
    """Diagonal, couplings and reflections of the matrix, of which both triangles are read."""
    A, k, p = space.matrix, len(space.matrix), space.vector
    for j in range(k - 2):
        v = space.reflections[j]
        norm = math.sqrt(dot(A[j, j + 1 :], A[j, j + 1 :]))
        first = A[j, j + 1]
        space.couplings[j] = -norm if first > 0.0 else norm
        shrink = 1.0 / math.sqrt(norm * (norm + abs(first))) if norm > 0.0 else 0.0
        for i in range(j + 1, k):
            v[i] = shrink * A[j, i]
        v[j + 1] -= shrink * space.couplings[j]
        for i in range(j + 1, k):
            p[i] = dot(A[i, j + 1 :], v[j + 1 :])
        half = 0.5 * dot(p[j + 1 :], v[j + 1 :])
        for i in range(j + 1, k):
            p[i] -= half * v[i]
        for i in range(j + 1, k):
            for n in range(j + 1, k):
                A[i, n] -= v[i] * p[n] + p[i] * v[n]
    for j in range(k):
        space.diagonal[j] = A[j, j]
    if k > 1:
        space.couplings[k - 2] = A[k - 2, k - 1]


@inner(error_model="numpy")
def reflect(space: Tridiagonal, x: FloatArray, back: bool) -> None:
    """Write ``H x`` over x, or back ``H'x``."""
    k = len(x)
    for step in range(k - 2):
        j = k - 3 - step if back else step
        v = space.reflections[j]
        share = dot(v[j + 1 :], x[j + 1 :])
        for i in range(j + 1, k):
            x[i] -= share * v[i]


@inner(error_model="numpy")
def log_normal_integral(precision: float, diagonal: FloatArray, couplings: FloatArray, pulls: FloatArray) -> float:
    """The integral above, c the precision; -inf where rounding makes the matrix indefinite."""
    value, product, pivot, left = 0.0, 1.0, 1.0, 0.0
    for j in range(len(diagonal)):
        share = couplings[j - 1] / pivot if j > 0 else 0.0
        pivot = diagonal[j] + precision - (share * couplings[j - 1] if j > 0 else 0.0)
        left = pulls[j] - share * left
        if not pivot > 0.0:
            return -np.inf
        value += 0.5 * left * left / pivot
        product *= pivot
        if product > 1e100 or product < 1e-100:  # one logarithm for many factors
            value -= 0.5 * math.log(product)
            product = 1.0
    return value - 0.5 * math.log(product)


@inner(error_model="numpy")
def draw_vector(rng: Generator, precision: float, space: Tridiagonal) -> None:
    """Draw ``H u`` from N((T + c I)^-1 y, (T + c I)^-1) into ``space.vector``."""
    k, x, pivots, couplings = len(space.diagonal), space.vector, space.pivots, space.couplings
    for j in range(k):
        share = couplings[j - 1] / pivots[j - 1] if j > 0 else 0.0
        pivots[j] = space.diagonal[j] + precision - (share * couplings[j - 1] if j > 0 else 0.0)
        x[j] = space.pulls[j] - (share * x[j - 1] if j > 0 else 0.0)
    for j in range(k):
        x[j] = x[j] / pivots[j] + rng.standard_normal() / math.sqrt(pivots[j])
    for j in range(k - 2, -1, -1):
        x[j] -= couplings[j] / pivots[j] * x[j + 1]
