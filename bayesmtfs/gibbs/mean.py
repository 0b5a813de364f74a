r"""Gibbs steps on the mean that the coefficients of a feature have in common over tasks.

    w_it = mu_i + v_it,   v_it ~ GN(0, rho_i, q),   mu_i ~ N(0, s^2)

in two parametrisations in turn (interweaving, Yu and Meng 2011, *Journal of Computational and Graphical Statistics*
20:531-570), both exact:

- all means given the deviations v: normal, with precision ``sum_t Q_t + I / s^2``, drawn jointly. It moves far where
  tasks hardly differ.
- each mean given the coefficients w, so that v = w - mu follows: a slice step (Neal 2003, *Annals of Statistics*
  31:705-767, without stepping out). It moves far where tasks differ more than the data leave open.

Where a task does not have a feature, its coefficient is 0 and tells nothing of the mean.

By observation (`draw_observed_mean`): given the deviations v and the precisions omega of all observations, moving the
means by d changes the linear predictors by X d, so that d is normal with precision ``X'diag(omega)X + I / s^2`` and linear
term ``X's - mu / s^2``, s the scores of `state`. One mean at a time (`features`) hardly moves where features are
nearly alike; this step costs ``O(N p^2)`` and is made where p is at most `MOST_JOINT_MEANS`.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.gibbs.coefficients import draw_jointly, factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.distributions import dot, power_of, unit_variance
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, Observed, RowMap, SumsSpace, move_along
from bayesmtfs.types import BoolArray, FloatArray

SLICE_DEVIATIONS = 6.0  # width of the slice step, in standard deviations of a mean of as many coefficients
SHRINK_STEPS = 200  # most steps inwards: far more than rounding leaves room for
MOST_JOINT_MEANS = 64


class MeanSpace(NamedTuple):
    """Arrays that the steps write to."""

    Q: FloatArray  # (p, p) sum over tasks
    h: FloatArray  # (p,)
    before: FloatArray  # (p,) means before the step
    log_scales: FloatArray  # (p,) ln rho of the normal prior as GN(0, rho, 2)
    everywhere: BoolArray  # (p,) no mean is fixed at 0
    factor: FloatArray  # (p, p)


def mean_space(n_features: int) -> MeanSpace:
    """Allocate."""
    p = n_features
    present = np.ones(p, dtype=np.bool_)
    return MeanSpace(np.empty((p, p)), np.empty(p), np.empty(p), np.empty(p), present, np.empty((p, p)))


@njit(cache=True, nogil=True, error_model="numpy")
def take_out_mean(Q: FloatArray, vector: FloatArray, mean: FloatArray, present: BoolArray) -> None:
    """``vector - Q mean`` of one task, in place, over the features that it has."""
    p = len(mean)
    for i in range(p):
        if present[i]:
            for j in range(p):
                vector[j] -= Q[i, j] * mean[i]


@njit(cache=True, nogil=True, error_model="numpy")
def draw_mean(
    rng: Generator, sums: SumsSpace, rows: RowMap, prior: GibbsPrior, state: GibbsState, space: MeanSpace
) -> None:
    """Draw all means given the deviations; ``h`` (less Q mu) and residuals ``h - Q v`` in place."""
    m, p = state.W.shape
    for i in range(p):
        space.h[i] = 0.0
        space.before[i] = state.mean[i]
        space.log_scales[i] = 0.5 * math.log(2.0 / prior.mean_precision)
        for j in range(p):
            space.Q[i, j] = 0.0
    for t in range(m):
        present = rows.present[t]
        for i in range(p):
            if present[i]:
                space.h[i] += sums.residuals[t, i]
                for j in range(p):
                    if present[j]:
                        space.Q[i, j] += sums.Q[t, i, j]
    for i in range(p):
        for j in range(p):
            space.h[i] += space.Q[i, j] * space.before[j]
    draw_jointly(rng, space.Q, space.h, state.mean, space.log_scales, space.everywhere, space.factor)
    for i in range(p):
        space.before[i] = state.mean[i] - space.before[i]
    for t in range(m):
        take_out_mean(sums.Q[t], sums.h[t], space.before, rows.present[t])
        take_out_mean(sums.Q[t], sums.residuals[t], space.before, rows.present[t])


@njit(cache=True, nogil=True, error_model="numpy")
def recentre(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState) -> None:
    """Move each mean with the coefficients fixed: deviations go the other way."""
    for i in range(len(state.mean)):
        shift = _slice_shift(rng, rows, prior, state, i)
        state.mean[i] += shift
        for t in range(len(state.W)):
            if rows.present[t, i]:
                state.W[t, i] -= shift


@njit(cache=True, nogil=True, error_model="numpy")
def _slice_shift(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState, i: int) -> float:
    """How far the mean of one feature moves."""
    log_scale, inverse_q = state.log_scales[rows.row_of_feature[i]], state.inverse_q[0]
    count = 0
    for t in range(len(state.W)):
        count += rows.present[t, i]
    precision = prior.mean_precision + count * math.exp(-2.0 * log_scale) / unit_variance(inverse_q)
    width = SLICE_DEVIATIONS / math.sqrt(precision)
    level = _shift_density(rows, prior, state, i, 0.0, log_scale, inverse_q) - rng.standard_exponential()
    if level == -np.inf:  # rounding has put a coefficient on the edge of a uniform distribution
        return 0.0
    left = -width * rng.random()
    right = left + width
    for _ in range(SHRINK_STEPS):
        shift = left + (right - left) * rng.random()
        if _shift_density(rows, prior, state, i, shift, log_scale, inverse_q) >= level:
            return shift
        if shift < 0.0:
            left = shift
        else:
            right = shift
    return 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _shift_density(
    rows: RowMap, prior: GibbsPrior, state: GibbsState, i: int, shift: float, log_scale: float, inverse_q: float
) -> float:
    """``-sum_t |(v_it - shift) / rho_i|^q - (mu_i + shift)^2 / (2 s^2)``; at q = inf v stays within rho."""
    value, shrink = -0.5 * prior.mean_precision * (state.mean[i] + shift) ** 2, math.exp(-log_scale)
    for t in range(len(state.W)):
        if rows.present[t, i]:
            z = abs(state.W[t, i] - shift) * shrink
            if inverse_q > 0.0:
                value -= power_of(z, 1.0 / inverse_q)
            elif z > 1.0:
                return -np.inf
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def draw_observed_mean(rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState) -> None:
    """Draw all means given the deviations; predictors and scores follow."""
    m, p = state.W.shape
    if p > MOST_JOINT_MEANS:
        return
    A, change = np.zeros((p, p)), np.empty(p)
    for i in range(p):
        A[i, i] = prior.mean_precision
        change[i] = -prior.mean_precision * state.mean[i]
    for t in range(m):
        _add_task(data, rows, t, A, change)
    factorise(A, p)
    solve_lower(A, change, p)
    for i in range(p):
        change[i] += rng.standard_normal()
    solve_upper(A, change, p)
    for i in range(p):
        state.mean[i] += change[i]
        for t in range(m):
            if rows.present[t, i]:
                start, stop = data.offsets[t], data.offsets[t + 1]
                move_along(data, start, stop, data.design[i], change[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _add_task(data: Observed, rows: RowMap, t: int, A: FloatArray, linear: FloatArray) -> None:
    """What one task adds to the lower triangle of the precision, and to the linear term."""
    start, stop = data.offsets[t], data.offsets[t + 1]
    precisions, scores = data.precisions[start:stop], data.scores[start:stop]
    weighted = np.empty(stop - start)
    for i in range(len(linear)):
        if rows.present[t, i]:
            x = data.design[i, start:stop]
            linear[i] += dot(x, scores)
            for n in range(stop - start):
                weighted[n] = x[n] * precisions[n]
            for j in range(i + 1):
                if rows.present[t, j]:
                    A[i, j] += dot(data.design[j, start:stop], weighted)
