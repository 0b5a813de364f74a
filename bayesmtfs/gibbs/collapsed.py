r"""Scales of the active rows at q = 2 with the coefficients of all of them integrated out, then those coefficients.

Given the precisions omega of the observations, the coefficients v of the active features of a task and its intercept
are normal: with ``A = X'diag(omega)X`` and ``h = X'(s + diag(omega) X v)``,

    ln p(v | rest) = h'v - v'(A + diag(k)) v / 2,   k_i = 2 / rho_i^2,

S the inverse of ``A + diag(k)`` and mean ``S h``. Without feature i, whose row and column are swept out of S, the others
integrated out leave ``g v_i - a v_i^2 / 2`` with ``a = A_ii - A_i'S_-i A_i`` and ``g = h_i - A_i'S_-i h``: the scale of i
then moves by the same one-dimensional step as in `features`, and i is swept in again. So a feature may take the
place of another that stands for the same, which single coefficients hardly ever do. Last the coefficients of each task
are drawn jointly.

The inverses have as many rows as there are active features, whatever the number of all features. All of this costs
``O(m F^3)`` for F of them.
"""

import math

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.gibbs.block import ActiveBlock
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.gibbs.features import jump_on_normal_scale, step_on_normal_scale
from bayesmtfs.gibbs.observations import Observed, ObservedWork, move_along
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap
from bayesmtfs.types import FloatArray

LEAST_SHARE = 1e-11  # of a feature that the others leave


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_collapsed_scales(
    rng: Generator,
    data: Observed,
    work: ObservedWork,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    block: ActiveBlock,
) -> None:
    """Draw scales, coefficients and intercepts of the active rows; predictors and scores follow."""
    m, size = len(state.W), block.sizes.features + 1
    A, S = np.zeros((m, size, size)), np.zeros((m, size, size))
    h, mean, v = np.zeros((m, size)), np.zeros((m, size)), np.zeros((m, size))
    for t in range(m):
        _fill_normal(data, work, rows, state, block, t, A[t], h[t])
        if prior.intercept_variance > 0.0:
            sweep_in(A[t], h[t], S[t], mean[t], v[t], size - 1, 1.0 / prior.intercept_variance)
        for f in range(size - 1):
            if rows.present[t, block.features[f]]:
                sweep_in(A[t], h[t], S[t], mean[t], v[t], f, _prior_precision(state, block, f))
    for f in range(size - 1):
        row = block.rows[block.places[f]]
        if rows.starts[row + 1] - rows.starts[row] > 1:
            continue
        for t in range(m):
            work.curvatures[t] = work.pulls[t] = 0.0
            if rows.present[t, block.features[f]]:
                sweep_out(S[t], mean[t], f)
                work.curvatures[t], work.pulls[t] = terms_without(A[t], h[t], S[t], mean[t], v[t], f)
        jump_on_normal_scale(rng, work, prior, state, row)
        step_on_normal_scale(rng, work, prior, state, row)
        for t in range(m):
            if rows.present[t, block.features[f]]:
                sweep_in(A[t], h[t], S[t], mean[t], v[t], f, _prior_precision(state, block, f))
    for t in range(m):
        _draw_coefficients(rng, data, work, state, block, t, S[t], mean[t], v[t])


@njit(cache=True, nogil=True, error_model="numpy")
def _prior_precision(state: GibbsState, block: ActiveBlock, f: int) -> float:
    return 2.0 * math.exp(-2.0 * state.log_scales[block.rows[block.places[f]]])


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_normal(
    data: Observed,
    work: ObservedWork,
    rows: RowMap,
    state: GibbsState,
    block: ActiveBlock,
    t: int,
    A: FloatArray,
    h: FloatArray,
) -> None:
    """A and h of a task; the intercept comes last, and what a task does not have is 0."""
    start, stop, size = data.offsets[t], data.offsets[t + 1], len(h)
    precisions, scores = work.precisions[start:stop], work.scores[start:stop]
    weighted = np.empty(stop - start)
    for f in range(size):
        if f == size - 1:
            for n in range(stop - start):
                weighted[n] = precisions[n]
                h[f] += scores[n]
        elif rows.present[t, block.features[f]]:
            x = block.design[f, start:stop]
            h[f] = dot(x, scores)
            for n in range(stop - start):
                weighted[n] = x[n] * precisions[n]
        else:
            continue
        for g in range(min(f + 1, size - 1)):
            if rows.present[t, block.features[g]]:
                A[f, g] = A[g, f] = dot(block.design[g, start:stop], weighted)
    total = 0.0
    for n in range(stop - start):
        total += precisions[n]
    A[size - 1, size - 1] = total
    for f in range(size):
        for g in range(size - 1):
            h[f] += A[f, g] * state.W[t, block.features[g]]
        h[f] += A[f, size - 1] * state.intercept[t]


@njit(cache=True, nogil=True, error_model="numpy")
def terms_without(
    A: FloatArray, h: FloatArray, S: FloatArray, mean: FloatArray, v: FloatArray, f: int
) -> tuple[float, float]:
    """``a`` and ``g`` of a feature that is swept out, and ``v = S A_f``.

    ``g^2 / a`` is bounded: where the others leave nothing of a feature but rounding errors, both are 0.
    """
    for j in range(len(h)):
        v[j] = dot(S[j], A[f])
    a, g = A[f, f] - dot(v, A[f]), h[f] - dot(A[f], mean)
    return (a, g) if a > LEAST_SHARE * A[f, f] else (0.0, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_in(
    A: FloatArray, h: FloatArray, S: FloatArray, mean: FloatArray, v: FloatArray, f: int, prior_precision: float
) -> None:
    """Let a feature in again that was swept out."""
    a, g = terms_without(A, h, S, mean, v, f)
    variance = 1.0 / (a + prior_precision)
    own = variance * g
    for j in range(len(h)):
        mean[j] -= v[j] * own
        factor = variance * v[j]
        for k in range(len(h)):
            S[j, k] += factor * v[k]
    for j in range(len(h)):
        S[f, j] = S[j, f] = -variance * v[j]
    S[f, f], mean[f] = variance, own


@njit(cache=True, nogil=True, error_model="numpy")
def sweep_out(S: FloatArray, mean: FloatArray, f: int) -> None:
    """Covariance and mean of the others where a feature is held at 0."""
    inverse = 1.0 / S[f, f]
    own = mean[f] * inverse
    for j in range(len(mean)):
        if j != f:
            mean[j] -= S[j, f] * own
            factor = S[j, f] * inverse
            for k in range(len(mean)):
                if k != f:
                    S[j, k] -= factor * S[f, k]
    for j in range(len(mean)):
        S[f, j] = S[j, f] = 0.0
    mean[f] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_coefficients(
    rng: Generator,
    data: Observed,
    work: ObservedWork,
    state: GibbsState,
    block: ActiveBlock,
    t: int,
    S: FloatArray,
    mean: FloatArray,
    normals: FloatArray,
) -> None:
    """Draw from N(mean, S) by the Cholesky factor of S, which is written over it."""
    size = len(mean)
    start, stop = data.offsets[t], data.offsets[t + 1]
    for f in range(size):
        normals[f] = rng.standard_normal()
    for f in range(size):
        for g in range(f + 1):
            value = S[f, g] - dot(S[f, :g], S[g, :g])
            if f == g:
                S[f, f] = math.sqrt(max(value, 0.0))
            else:
                S[f, g] = value / S[g, g] if S[g, g] > 0.0 else 0.0
    for f in range(size):
        new = mean[f] + dot(S[f, : f + 1], normals[: f + 1])
        if f < size - 1:
            i = block.features[f]
            move_along(work, start, stop, data.design[i], new - state.W[t, i])
            state.W[t, i] = new
        elif S[f, f] > 0.0:
            change = new - state.intercept[t]
            state.intercept[t] = new
            for n in range(start, stop):
                work.predictors[n] += change
                work.scores[n] -= work.precisions[n] * change
