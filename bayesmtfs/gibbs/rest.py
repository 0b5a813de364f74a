r"""Rows that are not active, moved together in as many directions as there are observations (q = 2).

Thousands of small coefficients are known to the data by their sums alone. With ``z = sqrt(2) w / rho`` of the rows that
are not active, standard normal a priori, and ``B = X diag(rho) / sqrt(2)`` of a task with n observations, their part of
the predictors is ``u = B z``. Let ``K = B B' = L L'`` (Cholesky). The n rows of ``Q = L^-1 B`` are orthonormal, so that
in

    z = Q'v + (the part of z in the null space of B),   u = L v,   v = Q z,

v is standard normal and independent of that part: v may move along a Hamiltonian path (`gibbs_block`) as any other
coordinate, and a path costs what n numbers cost. Afterwards ``w`` moves by ``diag(rho^2 / 2) X' L^-T`` times the change
of v. The rows follow the global scale, ``rho / tau`` stays, so that at another tau L is multiplied by a number.

Rows with ``rho < LEAST_SHARE tau`` contribute next to nothing, and their z stay. That is a condition on what a path does
not change; so is the set of active rows. Pivots of the factorisation that are 0 up to rounding are left out with their
direction.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.observations import Observations, dot
from bayesmtfs.gibbs.state import LOG_TAU, Law, Rows, State
from bayesmtfs.types import FloatArray, IntArray

LEAST_SHARE = 2.0  # of tau
LEAST_PIVOT = 1e-8  # of the diagonal
MOST_OBSERVATIONS = 300  # of a task


class Rest(NamedTuple):
    """Features that move, and the factor of their covariance."""

    counts: IntArray  # (1,) features that move
    features: IntArray  # (p,)
    factor: FloatArray  # (N, K) L of each task, K observations of the largest; K = 0: nothing moves
    moved: FloatArray  # (N,) L v
    first: FloatArray  # (N,) v before a path


def rest_for(observations: Observations, n_active: int) -> Rest:
    """Allocate; nothing moves where all features are active or a task has many observations."""
    p, count = observations.design.shape
    longest = int(np.diff(observations.offsets).max())
    size = longest if p > n_active and longest <= min(MOST_OBSERVATIONS, p) else 0
    return Rest(
        np.zeros(1, dtype=np.int64),
        np.zeros(p, dtype=np.int64),
        np.zeros((count, size)),
        np.zeros(count),
        np.zeros(count),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def choose_rest(rows: Rows, law: Law, state: State, is_active: IntArray, rest: Rest) -> None:
    """Features of rows that are neither active nor too small to matter."""
    count, least = 0, state.numbers[LOG_TAU] + math.log(LEAST_SHARE)
    for row in range(len(rows.sizes)):
        if is_active[row] == 0 and (law.log_uniform or state.log_scales[row] > least):
            for place in range(rows.starts[row], rows.starts[row + 1]):
                rest.features[count] = rows.members[place]
                count += 1
    rest.counts[0] = count


@njit(cache=True, nogil=True, error_model="numpy")
def fill_factor(observations: Observations, rows: Rows, state: State, rest: Rest) -> None:
    """``L`` of every task at the scales of the state."""
    offsets, design, features, count = observations.offsets, observations.design, rest.features, rest.counts[0]
    variances = np.empty(count)
    for t in range(len(state.W)):
        start, stop = offsets[t], offsets[t + 1]
        for f in range(count):
            variances[f] = 0.0
            if rows.present[t, features[f]]:
                variances[f] = 0.5 * math.exp(2.0 * state.log_scales[rows.row_of_feature[features[f]]])
        K = rest.factor[start:stop, : stop - start]
        for n in range(stop - start):
            for k in range(stop - start):
                K[n, k] = 0.0
        for f in range(0, count - count % 4, 4):
            a, b, c, d = features[f], features[f + 1], features[f + 2], features[f + 3]
            _add_four(
                K,
                design[a, start:stop],
                design[b, start:stop],
                design[c, start:stop],
                design[d, start:stop],
                variances[f:],
            )
        for f in range(count - count % 4, count):
            _add_one(K, design[features[f], start:stop], variances[f])
        factorise(K)


@njit(cache=True, nogil=True, error_model="numpy")
def scale_factor(rest: Rest, factor: float) -> None:
    """``L`` after the rows have followed the global scale."""
    for n in range(rest.factor.shape[0]):
        for k in range(rest.factor.shape[1]):
            rest.factor[n, k] *= factor


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _add_four(K: FloatArray, a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray, variances: FloatArray) -> None:
    """Lower part of ``K + s a a' + ...`` of four features."""
    for n in range(len(a)):
        first, second = variances[0] * a[n], variances[1] * b[n]
        third, fourth = variances[2] * c[n], variances[3] * d[n]
        line = K[n]
        for k in range(n + 1):
            line[k] += first * a[k] + second * b[k] + third * c[k] + fourth * d[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_one(K: FloatArray, a: FloatArray, variance: float) -> None:
    for n in range(len(a)):
        for k in range(n + 1):
            K[n, k] += variance * a[n] * a[k]


@njit(cache=True, nogil=True, error_model="numpy")
def factorise(K: FloatArray) -> None:
    """Cholesky factor in place of the lower part; a column is 0 where its pivot is 0 up to rounding."""
    for n in range(len(K)):
        diagonal = K[n, n]
        for k in range(n):
            K[n, k] = (K[n, k] - dot(K[n, :k], K[k, :k])) / K[k, k] if K[k, k] > 0.0 else 0.0
        pivot = diagonal - dot(K[n, :n], K[n, :n])
        K[n, n] = math.sqrt(pivot) if pivot > LEAST_PIVOT * diagonal else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def whiten(observations: Observations, state: State, rest: Rest, v: FloatArray) -> None:
    """``v`` of the state, and ``L v``; 0 where a direction is left out."""
    offsets = observations.offsets
    for t in range(len(state.W)):
        start, stop = offsets[t], offsets[t + 1]
        for n in range(start, stop):
            v[n] = 0.0
        for f in range(rest.counts[0]):
            i = rest.features[f]
            w, x = state.W[t, i], observations.design[i]
            for n in range(start, stop):
                v[n] += w * x[n]
        L = rest.factor[start:stop]
        for n in range(stop - start):
            value = v[start + n] - dot(L[n, :n], v[start : start + n])
            v[start + n] = value / L[n, n] if L[n, n] > 0.0 else 0.0
    for n in range(len(v)):
        rest.first[n] = v[n]
    spread(observations, rest, v)


@njit(cache=True, nogil=True, error_model="numpy")
def spread(observations: Observations, rest: Rest, v: FloatArray) -> None:
    """``L v`` of all tasks into ``rest.moved``."""
    for t in range(len(observations.offsets) - 1):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        for n in range(stop - start):
            rest.moved[start + n] = dot(rest.factor[start + n, : n + 1], v[start : start + n + 1])


@njit(cache=True, nogil=True, error_model="numpy")
def gather(observations: Observations, rest: Rest, scores: FloatArray, factor: float, slope: FloatArray) -> None:
    """``factor L's`` of all tasks into ``slope``."""
    for t in range(len(observations.offsets) - 1):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        for n in range(start, stop):
            slope[n] = 0.0
        for n in range(stop - start):
            score, line = factor * scores[start + n], rest.factor[start + n]
            for k in range(n + 1):
                slope[start + k] += score * line[k]


@njit(cache=True, nogil=True, error_model="numpy")
def move_rest(observations: Observations, rows: Rows, state: State, rest: Rest, v: FloatArray) -> None:
    """Coefficients after v has changed, at the scales for which L was taken."""
    change = rest.first
    for t in range(len(state.W)):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        L = rest.factor[start:stop]
        for n in range(start, stop):
            change[n] = v[n] - change[n]
        for k in range(stop - start - 1, -1, -1):  # L' is solved from below, column by column
            change[start + k] = change[start + k] / L[k, k] if L[k, k] > 0.0 else 0.0
            for n in range(k):
                change[start + n] -= L[k, n] * change[start + k]
        for f in range(rest.counts[0]):
            i = rest.features[f]
            if rows.present[t, i]:
                variance = 0.5 * math.exp(2.0 * state.log_scales[rows.row_of_feature[i]])
                state.W[t, i] += variance * dot(observations.design[i, start:stop], change[start:stop])
