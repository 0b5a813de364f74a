r"""Gibbs steps on the scales of generalized normal rows and on their global scale.

For row i with k entries, ``S_i = sum |w|^q`` and ``l_i = ln rho_i``; each scale is moved in several parametrisations in
turn (interweaving, Yu and Meng 2011, *Journal of Computational and Graphical Statistics* 20:531-570), all exact:

- l_i with w fixed: ``-k l - S_i e^(-q l) + ln p(l | tau)``;
- l_i with the row's coefficients carried along, each at its place in the normal approximation of its conditional
  distribution (`slice`; at q = 2 this is the same as integrating them out); in a row of several features with
  ``w / rho_i`` fixed;
- instead of these, in rows of one feature at q = 1 and q = inf, l_i with the row's coefficients integrated out
  (`distributions`), and then they;
- ln tau with rho fixed; with ``rho / tau`` and w fixed; with ``rho / tau`` and ``w / rho`` fixed.
"""

import math

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.gibbs.distributions import draw_given_scale, power_of, softplus, unit_variance
from bayesmtfs.gibbs.slice import (
    NONE,
    SLICE_WIDTH,
    LogScaleDensity,
    ScalePrior,
    beta_prime_power,
    given_sample,
    row_scale_prior,
    slice_step,
    with_carried,
    with_multiplied,
)
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap
from bayesmtfs.types import FloatArray

WIDTH_PER_MOVE = 3.0  # width of a slice step in typical moves


@njit(cache=True, nogil=True, error_model="numpy")
def log_largest(W: FloatArray, rows: RowMap, row: int) -> float:
    """``ln max |w|`` of a row; -inf where all of it is 0."""
    largest = 0.0
    for t in range(len(W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            largest = max(largest, abs(W[t, rows.members[place]]))
    return math.log(largest) if largest > 0.0 else NONE


@njit(cache=True, nogil=True, error_model="numpy")
def log_power_sum(W: FloatArray, rows: RowMap, row: int, norm_q: float) -> float:
    """``ln S`` of a row, scaled by its largest entry; -inf where all of it is 0."""
    top = log_largest(W, rows, row)
    if top == NONE:
        return NONE
    scale, total = math.exp(-top), 0.0
    for t in range(len(W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            total += power_of(abs(W[t, rows.members[place]]) * scale, norm_q)
    return math.log(total) + norm_q * top


@njit(cache=True, nogil=True, error_model="numpy")
def density_given_row(rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int) -> LogScaleDensity:
    """Density of the scale of a row given its coefficients, which at q = inf are all below it."""
    low, log_sum, norm_q, inverse_q = prior.low, NONE, np.inf, state.inverse_q[0]
    if inverse_q > 0.0:
        norm_q = 1.0 / inverse_q
        log_sum = log_power_sum(state.W, rows, row, norm_q)
    else:
        low = max(low, log_largest(state.W, rows, row))
    return given_sample(row_scale_prior(prior, state, low), rows.sizes[row], log_sum, norm_q)


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_row(
    rng: Generator,
    Q: FloatArray,
    residuals: FloatArray,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    row: int,
    tuning: int,
) -> None:
    """Move one row scale given w, and then together with w; residuals ``h - Q w`` in place."""
    log_scales, inverse_q, width = state.log_scales, state.inverse_q[0], state.widths[row]
    before, norm_q = log_scales[row], 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    log_scales[row] = slice_step(rng, before, density_given_row(rows, prior, state, row), width)
    curvature, pull = _scaling_terms(Q, residuals, rows, state, row)
    own_prior = row_scale_prior(prior, state, prior.low)
    scaled = with_multiplied(own_prior, pull + curvature, curvature, log_scales[row])
    moved = slice_step(rng, log_scales[row], scaled, width)
    _scale_row(Q, residuals, rows, state, row, math.exp(moved - log_scales[row]))
    log_scales[row] = moved
    if inverse_q > 0.0 and rows.starts[row + 1] - rows.starts[row] == 1:
        feature = rows.members[rows.starts[row]]
        Q_row, pulls, positions = _standard_positions(Q, residuals, rows, state, feature, moved)
        spread = unit_variance(inverse_q)
        carrying = with_carried(own_prior, rows.sizes[row], norm_q, Q_row, pulls, positions, spread)
        log_scales[row] = slice_step(rng, moved, carrying, width)
        _move_to_positions(Q, residuals, rows, state, feature, carrying, log_scales[row])
    if tuning > 0:
        tune_row(state, row, before, log_information(Q, rows, row), tuning)


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_integrated_row(
    rng: Generator,
    Q: FloatArray,
    residuals: FloatArray,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    row: int,
    tuning: int,
) -> None:
    """Move the scale of a feature with its coefficients integrated out, and draw them; residuals in place."""
    inverse_q, before = state.inverse_q[0], state.log_scales[row]
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    feature = rows.members[rows.starts[row]]
    precisions, pulls, positions = _standard_positions(Q, residuals, rows, state, feature, before)
    own_prior = row_scale_prior(prior, state, prior.low)
    target = with_carried(own_prior, rows.sizes[row], norm_q, precisions, pulls, positions[:0], 1.0)
    moved = slice_step(rng, before, target, state.widths[row])
    state.log_scales[row] = moved
    count = 0
    for t in range(len(state.W)):
        if rows.present[t, feature]:
            new = draw_given_scale(rng, precisions[count], pulls[count], moved, norm_q)
            _set_coefficient(Q, residuals, state, t, feature, new)
            count += 1
    if tuning > 0:
        tune_row(state, row, before, log_information(Q, rows, row), tuning)


@njit(cache=True, nogil=True, error_model="numpy")
def tune_row(state: GibbsState, row: int, before: float, information: float, tuning: int) -> None:
    """Width of the slice steps from the moves made, and how much the data know of the row."""
    share = 1.0 / min(tuning + 1, 100)
    wished = WIDTH_PER_MOVE * abs(state.log_scales[row] - before)
    state.widths[row] = min(max(state.widths[row] + share * (wished - state.widths[row]), 0.01), 5.0)
    prior_variance = 2.0 * state.log_scales[row] + math.log(unit_variance(state.inverse_q[0]))
    state.information[row] += share * (information + prior_variance - state.information[row])


@njit(cache=True, nogil=True, error_model="numpy")
def log_information(Q: FloatArray, rows: RowMap, row: int) -> float:
    """Logarithm of the mean precision with which the data determine a coefficient of a row."""
    total = 1e-300
    for t in range(len(Q)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            if rows.present[t, i]:
                total += Q[t, i, i]
    return math.log(total / max(rows.sizes[row], 1.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _standard_positions(
    Q: FloatArray, residuals: FloatArray, rows: RowMap, state: GibbsState, i: int, log_scale: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Precisions, pulls and standardised positions of the coefficients of a feature over its tasks."""
    m = len(state.W)
    precisions, pulls, positions = np.empty(m), np.empty(m), np.empty(m)
    prior_precision = math.exp(-2.0 * log_scale) / unit_variance(state.inverse_q[0])
    count = 0
    for t in range(m):
        if rows.present[t, i]:
            precisions[count] = Q[t, i, i]
            pulls[count] = residuals[t, i] + Q[t, i, i] * state.W[t, i]
            s = 1.0 / math.sqrt(Q[t, i, i] + prior_precision)
            positions[count] = state.W[t, i] / s - s * pulls[count]
            count += 1
    return precisions[:count], pulls[:count], positions[:count]


@njit(cache=True, nogil=True, error_model="numpy")
def _move_to_positions(
    Q: FloatArray,
    residuals: FloatArray,
    rows: RowMap,
    state: GibbsState,
    i: int,
    row: LogScaleDensity,
    log_scale: float,
) -> None:
    """Coefficients of a feature at their standardised positions for a new scale."""
    prior_precision = math.exp(-2.0 * log_scale) / row.spread
    count = 0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(row.precisions[count] + prior_precision)
            _set_coefficient(Q, residuals, state, t, i, s * (s * row.pulls[count] + row.positions[count]))
            count += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _set_coefficient(Q: FloatArray, residuals: FloatArray, state: GibbsState, t: int, i: int, new: float) -> None:
    """Put a coefficient to a new value."""
    change = new - state.W[t, i]
    for j in range(Q.shape[1]):
        residuals[t, j] -= Q[t, i, j] * change
    state.W[t, i] = new


@njit(cache=True, nogil=True, error_model="numpy")
def _scaling_terms(
    Q: FloatArray, residuals: FloatArray, rows: RowMap, state: GibbsState, row: int
) -> tuple[float, float]:
    """``w'Q w`` and ``w' residual`` of a row of several features."""
    start, stop = rows.starts[row], rows.starts[row + 1]
    curvature, pull = 0.0, 0.0
    for t in range(len(state.W)):
        for place in range(start, stop):
            i = rows.members[place]
            pull += state.W[t, i] * residuals[t, i]
            for other in range(start, stop):
                j = rows.members[other]
                curvature += state.W[t, i] * Q[t, i, j] * state.W[t, j]
    return max(curvature, 0.0), pull


@njit(cache=True, nogil=True, error_model="numpy")
def _scale_row(Q: FloatArray, residuals: FloatArray, rows: RowMap, state: GibbsState, row: int, factor: float) -> None:
    """Multiply a row of several features."""
    for t in range(len(state.W)):
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            change = (factor - 1.0) * state.W[t, i]
            for j in range(Q.shape[1]):
                residuals[t, j] -= Q[t, i, j] * change
            state.W[t, i] += change


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_global_scale(
    rng: Generator, h: FloatArray, residuals: FloatArray, rows: RowMap, prior: GibbsPrior, state: GibbsState
) -> None:
    """Move tau alone, with the row scales, and with scales and coefficients; residuals in place."""
    W, log_scales, log_tau, inverse_q = state.W, state.log_scales, state.log_tau, state.inverse_q[0]
    exponent, centre, none = beta_prime_power(prior, inverse_q), prior.log_global_scale, log_scales[:0]
    # the beta-prime distribution seen from tau: shapes change places
    alone = ScalePrior(log_scales, exponent, prior.tail_shape, prior.spike_shape, centre, 1.0, prior.low, prior.high)
    log_tau[0] = slice_step(rng, log_tau[0], with_multiplied(alone, 0.0, 0.0, 0.0), SLICE_WIDTH)

    tau, low, norm_q, total, size = log_tau[0], prior.low, 0.0, 0.0, 0.0
    for row in range(len(log_scales)):
        size += rows.sizes[row]
        if inverse_q > 0.0:
            norm_q = 1.0 / inverse_q
            total += math.exp(log_power_sum(W, rows, row, norm_q) - norm_q * log_scales[row])
        else:
            low = max(low, tau + log_largest(W, rows, row) - log_scales[row])
    log_sum = math.log(total) + norm_q * tau if total > 0.0 else NONE
    with_rows = ScalePrior(none, 1.0, 0.0, 0.0, centre, 1.0, low, prior.high)
    log_tau[0] = slice_step(rng, tau, given_sample(with_rows, size, log_sum, norm_q), SLICE_WIDTH)
    _shift(log_scales, log_tau[0] - tau)

    tau, curvature, pull = log_tau[0], 0.0, 0.0
    for t in range(len(W)):
        for i in range(W.shape[1]):
            pull += W[t, i] * h[t, i]
            curvature += W[t, i] * (h[t, i] - residuals[t, i])
    with_all = ScalePrior(none, 1.0, 0.0, 0.0, centre, 1.0, prior.low, prior.high)
    log_tau[0] = slice_step(rng, tau, with_multiplied(with_all, pull, max(curvature, 0.0), tau), SLICE_WIDTH)
    _shift(log_scales, log_tau[0] - tau)
    factor = math.exp(log_tau[0] - tau)
    for t in range(len(W)):
        for i in range(W.shape[1]):
            residuals[t, i] = h[t, i] - factor * (h[t, i] - residuals[t, i])
            W[t, i] *= factor


@njit(cache=True, nogil=True, error_model="numpy")
def _shift(numbers: FloatArray, amount: float) -> None:
    for k in range(len(numbers)):
        numbers[k] += amount


@njit(cache=True, nogil=True, error_model="numpy")
def draw_noise(rng: Generator, prior: GibbsPrior, noise: float, square: float, count: float) -> float:
    """``sigma`` by a Metropolis step whose proposals have the distribution under a flat prior of ``ln sigma``."""
    proposal = math.sqrt(0.5 * max(square, 1e-300) / rng.standard_gamma(0.5 * count))
    first, second = prior.noise_shapes
    y, y_new = 2.0 * (math.log(noise) - prior.noise_anchor), 2.0 * (math.log(proposal) - prior.noise_anchor)
    change = first * (y_new - y) - (first + second) * (softplus(y_new) - softplus(y))
    return proposal if -rng.standard_exponential() < change else noise
