"""Sweeps of the Gibbs sampler in sums: coefficients, their mean, scales, exponent, intercepts, noise.

The order matters where something is integrated out: coefficients, scales and q move with the intercepts integrated out;
then intercepts given everything, and the noise given the intercepts.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.coefficients import draw_in_turn, draw_jointly
from bayesmtfs.gibbs.ellipse import draw_on_ellipse
from bayesmtfs.gibbs.exponent import ExponentSpace, exponent_space, step_on_exponent
from bayesmtfs.gibbs.integrated import integrable
from bayesmtfs.gibbs.mean import MeanSpace, draw_mean, mean_space, recentre, take_out_mean
from bayesmtfs.gibbs.pairs import step_on_pairs
from bayesmtfs.gibbs.scales import step_on_global_scale, step_on_integrated_row, step_on_row, unit_variance
from bayesmtfs.gibbs.slice import softplus
from bayesmtfs.gibbs.state import INVERSE_Q, LOG_TAU, Law, Rows, State, Sums
from bayesmtfs.types import FloatArray, IntArray

EXPONENT_STEPS = 2  # on 1/q in a sweep


class Space(NamedTuple):
    """Arrays that a sweep writes to."""

    Q: FloatArray  # (m, p, p)
    h: FloatArray  # (m, p) less Q mu with a shared mean
    residuals: FloatArray  # (m, p) h - Q w
    w: FloatArray  # (p,) coefficients of one task
    log_scales: FloatArray  # (p,) ln rho of each feature's row


class Parts(NamedTuple):
    """What only some sweeps have."""

    normal: FloatArray | None  # (p, p) space for joint draws, where q stays at 2
    any_q: FloatArray | None  # (p, p) space for draws at another q
    integrated: Rows | None  # scales of rows move with coefficients integrated out
    mean: MeanSpace | None  # a shared mean
    exponent: ExponentSpace | None  # q is learned
    pairs: IntArray | None  # (K, 3) features that are nearly alike, and the sign of their correlation


class Kept(NamedTuple):
    """Draws that are kept."""

    sweeps: int  # for each of them
    W: FloatArray  # (draws, p, m)
    mean: FloatArray  # (draws, p)
    intercept: FloatArray  # (draws, m)
    noise: FloatArray  # (draws, m)
    log_scales: FloatArray  # (draws, R)
    numbers: FloatArray  # (draws, 2) ln tau, 1/q


def space_for(sums: Sums) -> Space:
    """Allocate."""
    m, p = sums.means.shape
    return Space(np.empty((m, p, p)), np.empty((m, p)), np.empty((m, p)), np.empty(p), np.empty(p))


def kept_for(rows: Rows, draws: int, sweeps: int = 1) -> Kept:
    """Allocate for so many draws, each the last of some sweeps."""
    m, p = rows.present.shape
    R = len(rows.sizes)
    return Kept(
        sweeps=sweeps,
        W=np.empty((draws, p, m)),
        mean=np.empty((draws, p)),
        intercept=np.empty((draws, m)),
        noise=np.empty((draws, m)),
        log_scales=np.empty((draws, R)),
        numbers=np.empty((draws, 2)),
    )


def parts_for(rows: Rows, law: Law, norm_q: float, pairs: IntArray | None) -> Parts:
    """Allocate what the prior and the data ask for.

    Parameters
    ----------
    rows, law : the problem
    norm_q : q at the start
    pairs : (K, 3) features that are nearly alike (`gibbs_pairs.alike`), None for none
    """
    m, p = rows.present.shape
    always_normal = norm_q == 2.0 and not law.learn_q
    return Parts(
        np.empty((p, p)) if always_normal else None,
        None if always_normal else np.empty((p, p)),
        rows if integrable(norm_q) and not law.learn_q and len(rows.sizes) == p else None,
        mean_space(p) if law.mean_precision > 0.0 else None,
        exponent_space(m, p, len(rows.sizes)) if law.learn_q else None,
        pairs if pairs is not None and len(pairs) else None,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run(
    rng: np.random.Generator,
    sums: Sums,
    rows: Rows,
    law: Law,
    state: State,
    space: Space,
    kept: Kept,
    normal: FloatArray | None,
    any_q: FloatArray | None,
    integrated: Rows | None,
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
        _draw_coefficients(rng, sums, rows, law, state, space, normal, any_q, integrated)
        if mean is not None:
            draw_mean(rng, space.Q, space.h, space.residuals, rows, law, state, mean)
        if pairs is not None:
            step_on_pairs(rng, space.Q, space.residuals, pairs, state)
        for row in range(len(rows.sizes)):
            if integrated is not None:
                step_on_integrated_row(rng, space.Q, space.residuals, integrated, law, state, row, tuning)
            else:
                step_on_row(rng, space.Q, space.residuals, rows, law, state, row, tuning)
        if law.learn_global_scale:
            step_on_global_scale(rng, space.h, space.residuals, rows, law, state)
        if exponent is not None:
            for _ in range(EXPONENT_STEPS):
                step_on_exponent(rng, space.Q, space.residuals, rows, law, state, tuning, exponent)
        if mean is not None:
            recentre(rng, rows, law, state)
        _draw_intercepts_and_noise(rng, sums, rows, law, state, space.w)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@njit(cache=True, nogil=True, error_model="numpy")
def keep(rows: Rows, state: State, kept: Kept, sweep: int) -> None:
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
    kept.numbers[draw, LOG_TAU] = state.numbers[LOG_TAU]
    kept.numbers[draw, INVERSE_Q] = state.numbers[INVERSE_Q]


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_coefficients(
    rng: np.random.Generator,
    sums: Sums,
    rows: Rows,
    law: Law,
    state: State,
    space: Space,
    normal: FloatArray | None,
    any_q: FloatArray | None,
    integrated: Rows | None,
) -> None:
    """Coefficients of every task given their mean, scales and noise, and the residuals."""
    m, p = state.W.shape
    for i in range(p):
        space.log_scales[i] = state.log_scales[rows.row_of_feature[i]]
    inverse_q = state.numbers[INVERSE_Q]
    variance = unit_variance(inverse_q)
    for t in range(m):
        Q, h, residual, w, present = space.Q[t], space.h[t], space.residuals[t], state.W[t], rows.present[t]
        condition_on_noise(sums, law, t, state.noise[t], Q, h)
        if law.mean_precision > 0.0:
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
def condition_on_noise(sums: Sums, law: Law, t: int, noise: float, Q: FloatArray, h: FloatArray) -> None:
    """Q and h of a task."""
    precision = 1.0 / (noise * noise)
    along_mean = 1.0 / (noise * noise / sums.counts[t] + law.intercept_variance)
    for i in range(len(h)):
        pull = along_mean * sums.means[t, i]
        h[i] = precision * sums.correlations[t, i] + pull * sums.target_means[t]
        for j in range(len(h)):
            Q[i, j] = precision * sums.grams[t, i, j] + pull * sums.means[t, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_intercepts_and_noise(
    rng: np.random.Generator, sums: Sums, rows: Rows, law: Law, state: State, w: FloatArray
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
        if law.intercept_variance > 0.0:
            precision = count / variance + 1.0 / law.intercept_variance
            state.intercept[t] = count * gap / variance / precision + rng.standard_normal() / math.sqrt(precision)
        square = max(square, 0.0) + count * (gap - state.intercept[t]) ** 2
        if law.shared_noise:
            total += square
            total_count += count
        elif law.learn_noise:
            state.noise[t] = draw_noise(rng, law, state.noise[t], square, count)
    if law.shared_noise and law.learn_noise:
        noise = draw_noise(rng, law, state.noise[0], total, total_count)
        for t in range(m):
            state.noise[t] = noise


@njit(cache=True, nogil=True, error_model="numpy")
def draw_noise(rng: np.random.Generator, law: Law, noise: float, square: float, count: float) -> float:
    """``sigma`` by a Metropolis step whose proposals have the law under a flat prior of ``ln sigma``."""
    proposal = math.sqrt(0.5 * max(square, 1e-300) / rng.standard_gamma(0.5 * count))
    first, second = law.noise_shapes
    y, y_new = 2.0 * (math.log(noise) - law.noise_anchor), 2.0 * (math.log(proposal) - law.noise_anchor)
    change = first * (y_new - y) - (first + second) * (softplus(y_new) - softplus(y))
    return proposal if -rng.standard_exponential() < change else noise
