r"""Sweeps of the Gibbs sampler in sums: coefficients, their mean, scales, exponent, intercepts, noise.

The order matters where something is integrated out: coefficients, scales and q move with the intercepts integrated out;
then intercepts given everything, and the noise given the intercepts.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.gibbs.coefficients import draw_in_turn, draw_jointly, draw_on_ellipse, step_on_pairs
from bayesmtfs.gibbs.distributions import integrable, unit_variance
from bayesmtfs.gibbs.exponent import ExponentSpace, exponent_space, step_on_exponent
from bayesmtfs.gibbs.mean import MeanSpace, draw_mean, mean_space, recentre, take_out_mean
from bayesmtfs.gibbs.scales import draw_noise, step_on_global_scale, step_on_integrated_row, step_on_row
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap, TaskSums
from bayesmtfs.types import FloatArray, IntArray

EXPONENT_STEPS = 2  # on 1/q in a sweep


class SumsSpace(NamedTuple):
    """Arrays that a sweep writes to."""

    Q: FloatArray  # (m, p, p)
    h: FloatArray  # (m, p) less Q mu with a shared mean
    residuals: FloatArray  # (m, p) h - Q w
    w: FloatArray  # (p,) coefficients of one task
    log_scales: FloatArray  # (p,) ln rho of each feature's row


class SumsParts(NamedTuple):
    """What only some sweeps have."""

    normal: FloatArray | None  # (p, p) space for joint draws, where q stays at 2
    any_q: FloatArray | None  # (p, p) space for draws at another q
    integrated: RowMap | None  # scales of rows move with coefficients integrated out
    mean: MeanSpace | None  # a shared mean
    exponent: ExponentSpace | None  # q is learned
    pairs: IntArray | None  # (K, 3) features that are nearly alike, and the sign of their correlation


class KeptDraws(NamedTuple):
    """Draws that are kept."""

    sweeps: int  # for each of them
    W: FloatArray  # (draws, p, m)
    mean: FloatArray  # (draws, p)
    intercept: FloatArray  # (draws, m)
    noise: FloatArray  # (draws, m)
    log_scales: FloatArray  # (draws, R)
    log_tau: FloatArray  # (draws,)
    inverse_q: FloatArray  # (draws,)


def space_for(sums: TaskSums) -> SumsSpace:
    """Allocate."""
    m, p = sums.means.shape
    return SumsSpace(np.empty((m, p, p)), np.empty((m, p)), np.empty((m, p)), np.empty(p), np.empty(p))


def kept_for(rows: RowMap, draws: int, sweeps: int = 1) -> KeptDraws:
    """Allocate for so many draws, each the last of some sweeps."""
    m, p = rows.present.shape
    R = len(rows.sizes)
    return KeptDraws(
        sweeps=sweeps,
        W=np.empty((draws, p, m)),
        mean=np.empty((draws, p)),
        intercept=np.empty((draws, m)),
        noise=np.empty((draws, m)),
        log_scales=np.empty((draws, R)),
        log_tau=np.empty(draws),
        inverse_q=np.empty(draws),
    )


def parts_for(rows: RowMap, prior: GibbsPrior, norm_q: float, pairs: IntArray | None) -> SumsParts:
    """Allocate what the prior and the data ask for."""
    m, p = rows.present.shape
    always_normal = norm_q == 2.0 and not prior.learn_q
    return SumsParts(
        np.empty((p, p)) if always_normal else None,
        None if always_normal else np.empty((p, p)),
        rows if integrable(norm_q) and not prior.learn_q and len(rows.sizes) == p else None,
        mean_space(p) if prior.mean_precision > 0.0 else None,
        exponent_space(m, p, len(rows.sizes)) if prior.learn_q else None,
        pairs if pairs is not None and len(pairs) else None,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run(
    rng: Generator,
    sums: TaskSums,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
    kept: KeptDraws,
    normal: FloatArray | None,
    any_q: FloatArray | None,
    integrated: RowMap | None,
    mean: MeanSpace | None,
    exponent: ExponentSpace | None,
    pairs: IntArray | None,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept, before that steps are tuned.

    What is None is not compiled, which would take longer than most chains.
    """
    for number in range(first, stop):
        tuning = number + 1 if number < tune else 0
        _draw_coefficients(rng, sums, rows, prior, state, space, normal, any_q, integrated)
        if mean is not None:
            draw_mean(rng, space.Q, space.h, space.residuals, rows, prior, state, mean)
        if pairs is not None:
            step_on_pairs(rng, space.Q, space.residuals, pairs, state)
        for row in range(len(rows.sizes)):
            if integrated is not None:
                step_on_integrated_row(rng, space.Q, space.residuals, integrated, prior, state, row, tuning)
            else:
                step_on_row(rng, space.Q, space.residuals, rows, prior, state, row, tuning)
        if prior.learn_global_scale:
            step_on_global_scale(rng, space.h, space.residuals, rows, prior, state)
        if exponent is not None:
            for _ in range(EXPONENT_STEPS):
                step_on_exponent(rng, space.Q, space.residuals, rows, prior, state, tuning, exponent)
        if mean is not None:
            recentre(rng, rows, prior, state)
        _draw_intercepts_and_noise(rng, sums, rows, prior, state, space.w)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@njit(cache=True, nogil=True, error_model="numpy")
def keep(rows: RowMap, state: GibbsState, kept: KeptDraws, sweep: int) -> None:
    """Copy the state after the last sweep of a draw (by loops: assignments to slices take seconds to compile)."""
    if (sweep + 1) % kept.sweeps != 0:
        return
    draw, (m, p) = sweep // kept.sweeps, state.W.shape
    for t in range(m):
        kept.intercept[draw, t] = state.intercept[t]
        kept.noise[draw, t] = state.noise[t]
        for i in range(p):
            kept.W[draw, i, t] = state.W[t, i] + (state.mean[i] if rows.present[t, i] else 0.0)
    for i in range(p):
        kept.mean[draw, i] = state.mean[i]
    for row in range(len(state.log_scales)):
        kept.log_scales[draw, row] = state.log_scales[row]
    kept.log_tau[draw], kept.inverse_q[draw] = state.log_tau[0], state.inverse_q[0]


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_coefficients(
    rng: Generator,
    sums: TaskSums,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
    normal: FloatArray | None,
    any_q: FloatArray | None,
    integrated: RowMap | None,
) -> None:
    """Coefficients of every task given their mean, scales and noise, and the residuals."""
    m, p = state.W.shape
    for i in range(p):
        space.log_scales[i] = state.log_scales[rows.row_of_feature[i]]
    inverse_q = state.inverse_q[0]
    variance = unit_variance(inverse_q)
    for t in range(m):
        Q, h, residual, w, present = space.Q[t], space.h[t], space.residuals[t], state.W[t], rows.present[t]
        condition_on_noise(sums, prior, t, state.noise[t], Q, h)
        if prior.mean_precision > 0.0:
            take_out_mean(Q, h, state.mean, present)
        if normal is not None:
            draw_jointly(rng, Q, h, w, space.log_scales, present, normal)
        for i in range(p):
            residual[i] = h[i]
        for i in range(p):
            for j in range(p):
                residual[j] -= Q[i, j] * w[i]
        if any_q is not None:
            if integrated is None:
                draw_in_turn(rng, Q, residual, w, space.log_scales, present, inverse_q)
            draw_on_ellipse(rng, Q, residual, w, space.log_scales, present, inverse_q, variance, any_q)


@njit(cache=True, nogil=True, error_model="numpy")
def condition_on_noise(sums: TaskSums, prior: GibbsPrior, t: int, noise: float, Q: FloatArray, h: FloatArray) -> None:
    """Q and h of a task."""
    precision = 1.0 / (noise * noise)
    along_mean = 1.0 / (noise * noise / sums.counts[t] + prior.intercept_variance)
    for i in range(len(h)):
        pull = along_mean * sums.means[t, i]
        h[i] = precision * sums.correlations[t, i] + pull * sums.target_means[t]
        for j in range(len(h)):
            Q[i, j] = precision * sums.grams[t, i, j] + pull * sums.means[t, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_intercepts_and_noise(
    rng: Generator, sums: TaskSums, rows: RowMap, prior: GibbsPrior, state: GibbsState, w: FloatArray
) -> None:
    """``b_t`` given w and sigma, then ``sigma_t`` given w and b."""
    m, p = state.W.shape
    total, total_count = 0.0, 0.0
    for t in range(m):
        count, variance = sums.counts[t], state.noise[t] ** 2
        gap, square = sums.target_means[t], sums.squares[t]
        for i in range(p):
            w[i] = state.W[t, i] + (state.mean[i] if rows.present[t, i] else 0.0)
            gap -= sums.means[t, i] * w[i]
            square -= 2.0 * w[i] * sums.correlations[t, i]
            for j in range(i):
                square += 2.0 * w[i] * sums.grams[t, i, j] * w[j]
            square += w[i] * sums.grams[t, i, i] * w[i]
        if prior.intercept_variance > 0.0:
            precision = count / variance + 1.0 / prior.intercept_variance
            state.intercept[t] = count * gap / variance / precision + rng.standard_normal() / math.sqrt(precision)
        square = max(square, 0.0) + count * (gap - state.intercept[t]) ** 2
        if prior.shared_noise:
            total += square
            total_count += count
        elif prior.learn_noise:
            state.noise[t] = draw_noise(rng, prior, state.noise[t], square, count)
    if prior.shared_noise and prior.learn_noise:
        noise = draw_noise(rng, prior, state.noise[0], total, total_count)
        for t in range(m):
            state.noise[t] = noise
