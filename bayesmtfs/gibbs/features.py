r"""Gibbs steps on the coefficients of a feature over all tasks and on the scale of its row, by observation.

With ``a_t = x'diag(omega)x`` and ``g_t = x's + a_t w_t`` of a feature in task t, everything else given, its coefficients
have the log-likelihood ``g_t w_t - a_t w_t^2 / 2`` and the prior GN(0, rho, q):

- q = 2: rho with the coefficients integrated out, ``sum_t [g^2 / (2 (a + k)) - ln(1 + a / k) / 2] + ln p(ln rho | tau)``,
  ``k = 2 / rho^2``, by a slice step; then the coefficients, which are normal;
- q = 1 and q = inf: the same with other integrals (`gibbs_integrated`);
- any other q: the coefficients by the uniform mixture (`gibbs_coefficients`), then rho given them, and then rho with the
  coefficients carried along, each at its place in the normal approximation of its conditional law (`gibbs_slice`).

In a row of several features rho moves given the coefficients, and then with ``w / rho`` fixed. With a shared mean the
same steps draw the deviations from it, and the mean given them.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.gibbs.cells import jump_by_cells
from bayesmtfs.gibbs.coefficients import bound_of, truncated_normal
from bayesmtfs.gibbs.integrated import draw_given_scale
from bayesmtfs.gibbs.observations import Observations, Working, dot, move_along, weighted_square
from bayesmtfs.gibbs.scales import NONE, beta_prime_power, log_largest, log_power_sum, tune_row, unit_variance
from bayesmtfs.gibbs.slice import LogScaleDensity, slice_step
from bayesmtfs.gibbs.state import INVERSE_Q, LOG_TAU, Law, Rows, State
from bayesmtfs.types import FloatArray

REACH_BELOW, REACH_ABOVE = 5.0, 12.0  # of the scales that are drawn anew, around ln tau


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_features(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    tuning: int,
) -> None:
    """Draw all coefficients, their means and their row scales, row by row.

    Parameters
    ----------
    rng : generator
    observations, working : likelihood; predictors and scores follow the coefficients
    rows, law, state : the problem and the state
    tuning : number of the sweep, 1, 2, ..., while steps are tuned; 0: leave them as they are
    """
    normal = state.numbers[INVERSE_Q] == 0.5
    integrable = state.numbers[INVERSE_Q] == 0.0 or state.numbers[INVERSE_Q] == 1.0
    for row in range(len(rows.sizes)):
        before = state.log_scales[row]
        single = rows.starts[row + 1] - rows.starts[row] == 1
        information = 1e-300
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            information += _fill_terms(observations, working, rows, state, i)
            if single and normal:
                step_on_normal_scale(rng, working, law, state, row)
            if normal:
                _draw_normal(rng, observations, working, rows, state, row, i)
            elif single and integrable:
                _step_on_integrated_row(rng, observations, working, rows, law, state, row)
            else:
                _draw_bounded(rng, observations, working, rows, state, row, i)
            if law.mean_precision > 0.0:
                _draw_mean(rng, observations, working, rows, law, state, i)
        if not (single and (normal or integrable)):
            _step_given_coefficients(rng, rows, law, state, row)
            if not single:
                _step_with_row(rng, observations, working, rows, law, state, row)
            else:
                _step_carrying(rng, observations, working, rows, law, state, row)
        if tuning > 0:
            tune_row(state, row, before, math.log(information / max(rows.sizes[row], 1.0)), tuning)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_terms(observations: Observations, working: Working, rows: Rows, state: State, i: int) -> float:
    """``a_t`` and ``g_t`` of a feature in every task that has it, else 0; the sum of the first."""
    x, total = observations.design[i], 0.0
    for t in range(len(state.W)):
        working.curvatures[t] = working.pulls[t] = 0.0
        if rows.present[t, i]:
            start, stop = observations.offsets[t], observations.offsets[t + 1]
            a = weighted_square(x[start:stop], working.precisions[start:stop])
            working.curvatures[t] = a
            working.pulls[t] = dot(x[start:stop], working.scores[start:stop]) + a * state.W[t, i]
            total += a
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _anchors(law: Law, state: State) -> FloatArray:
    """Ln tau, from which the prior of a row scale is measured; none for the log-uniform law."""
    return state.numbers[LOG_TAU : LOG_TAU + (0 if law.log_uniform else 1)]


@njit(cache=True, nogil=True, error_model="numpy")
def _normal_scale_density(working: Working, law: Law, state: State) -> LogScaleDensity:
    """Log-density of the scale of a feature at q = 2 with its coefficients integrated out.

    Coefficients at their conditional means, ``z = 0`` in `gibbs_slice`, have the value of the integral up to a constant.
    """
    m = len(state.W)
    zeros = np.zeros(m)
    return LogScaleDensity(
        float(m), NONE, 2.0, 0.0, 0.0, 0.0, working.curvatures, working.pulls, zeros, 0.5,
        _anchors(law, state), beta_prime_power(law, 0.5), law.spike_shape, law.tail_shape, 0.0, 0.0, law.low, law.high,
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_normal_scale(rng: np.random.Generator, working: Working, law: Law, state: State, row: int) -> None:
    """Move the scale of a feature at q = 2 with its coefficients integrated out."""
    target = _normal_scale_density(working, law, state)
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])


@njit(cache=True, nogil=True, error_model="numpy")
def jump_on_normal_scale(rng: np.random.Generator, working: Working, law: Law, state: State, row: int) -> None:
    """Draw the scale of a feature at q = 2 anew, with its coefficients integrated out."""
    target, centre = _normal_scale_density(working, law, state), state.numbers[LOG_TAU]
    low, high = (law.low, law.high) if law.log_uniform else (centre - REACH_BELOW, centre + REACH_ABOVE)
    state.log_scales[row] = jump_by_cells(rng, state.log_scales[row], target, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _set_coefficient(observations: Observations, working: Working, state: State, t: int, i: int, new: float) -> None:
    """Put a coefficient to a new value."""
    start, stop = observations.offsets[t], observations.offsets[t + 1]
    move_along(working, start, stop, observations.design[i], new - state.W[t, i])
    state.W[t, i] = new


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_normal(
    rng: np.random.Generator, observations: Observations, working: Working, rows: Rows, state: State, row: int, i: int
) -> None:
    """Coefficients of a feature at q = 2."""
    prior_precision = 2.0 * math.exp(-2.0 * state.log_scales[row])
    for t in range(len(state.W)):
        if rows.present[t, i]:
            precision = working.curvatures[t] + prior_precision
            new = working.pulls[t] / precision + rng.standard_normal() / math.sqrt(precision)
            _set_coefficient(observations, working, state, t, i, new)


@njit(cache=True, nogil=True, error_model="numpy")
def _step_on_integrated_row(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    row: int,
) -> None:
    """Scale of a feature at q = 1 or q = inf with its coefficients integrated out, and then they."""
    i, inverse_q, anchors = rows.members[rows.starts[row]], state.numbers[INVERSE_Q], _anchors(law, state)
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    # where a task does not have the feature, its integral is that of the prior, which the slope takes back
    target = LogScaleDensity(
        float(len(state.W)), NONE, norm_q, 0.0, 0.0, 0.0, working.curvatures, working.pulls, anchors[:0], 1.0,
        anchors, beta_prime_power(law, inverse_q), law.spike_shape, law.tail_shape, 0.0, 0.0, law.low, law.high,
    )  # fmt: skip
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])
    for t in range(len(state.W)):
        if rows.present[t, i]:
            new = draw_given_scale(rng, working.curvatures[t], working.pulls[t], state.log_scales[row], norm_q)
            _set_coefficient(observations, working, state, t, i, new)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_bounded(
    rng: np.random.Generator, observations: Observations, working: Working, rows: Rows, state: State, row: int, i: int
) -> None:
    """Coefficients of a feature at any q, by the mixture of uniforms."""
    for t in range(len(state.W)):
        if rows.present[t, i]:
            a = working.curvatures[t]
            reach = bound_of(rng, state.W[t, i], state.log_scales[row], state.numbers[INVERSE_Q])
            if a > 0.0:
                new = truncated_normal(rng, working.pulls[t] / a, 1.0 / math.sqrt(a), reach)
            else:
                new = reach * (2.0 * rng.random() - 1.0)
            _set_coefficient(observations, working, state, t, i, new)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_mean(
    rng: np.random.Generator, observations: Observations, working: Working, rows: Rows, law: Law, state: State, i: int
) -> None:
    """Mean of a feature's coefficients given their deviations from it; terms are those before the deviations moved."""
    x, precision, pull = observations.design[i], law.mean_precision, 0.0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            start, stop = observations.offsets[t], observations.offsets[t + 1]
            precision += working.curvatures[t]
            pull += dot(x[start:stop], working.scores[start:stop]) + working.curvatures[t] * state.mean[i]
    change = pull / precision + rng.standard_normal() / math.sqrt(precision) - state.mean[i]
    state.mean[i] += change
    for t in range(len(state.W)):
        if rows.present[t, i]:
            move_along(working, observations.offsets[t], observations.offsets[t + 1], x, change)


@njit(cache=True, nogil=True, error_model="numpy")
def _step_given_coefficients(rng: np.random.Generator, rows: Rows, law: Law, state: State, row: int) -> None:
    """Move the scale of a row given its coefficients."""
    inverse_q, anchors = state.numbers[INVERSE_Q], _anchors(law, state)
    low, log_sum, norm_q, none = law.low, NONE, np.inf, anchors[:0]
    if inverse_q > 0.0:
        norm_q = 1.0 / inverse_q
        log_sum = log_power_sum(state.W, rows, row, norm_q)
    else:
        low = max(low, log_largest(state.W, rows, row))
    target = LogScaleDensity(
        rows.sizes[row], log_sum, norm_q, 0.0, 0.0, 0.0, none, none, none, 1.0,
        anchors, beta_prime_power(law, inverse_q), law.spike_shape, law.tail_shape, 0.0, 0.0, low, law.high,
    )  # fmt: skip
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])


@njit(cache=True, nogil=True, error_model="numpy")
def _step_carrying(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    row: int,
) -> None:
    """Move the scale of a feature and carry its coefficients at their standardised positions."""
    m, i, inverse_q = len(state.W), rows.members[rows.starts[row]], state.numbers[INVERSE_Q]
    log_scale, spread = state.log_scales[row], unit_variance(inverse_q)
    _fill_terms(observations, working, rows, state, i)
    positions = np.zeros(m)
    for t in range(m):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(working.curvatures[t] + math.exp(-2.0 * log_scale) / spread)
            positions[t] = state.W[t, i] / s - s * working.pulls[t]
    target = LogScaleDensity(
        float(m), NONE, 1.0 / inverse_q, 0.0, 0.0, 0.0, working.curvatures, working.pulls, positions, spread,
        _anchors(law, state), beta_prime_power(law, inverse_q), law.spike_shape, law.tail_shape, 0.0, 0.0, law.low,
        law.high,
    )  # fmt: skip
    moved = slice_step(rng, log_scale, target, state.widths[row])
    state.log_scales[row] = moved
    for t in range(m):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(working.curvatures[t] + math.exp(-2.0 * moved) / spread)
            _set_coefficient(observations, working, state, t, i, s * (s * working.pulls[t] + positions[t]))


@njit(cache=True, nogil=True, error_model="numpy")
def _step_with_row(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    row: int,
) -> None:
    """Move the scale of a row of several features together with all its coefficients."""
    fill_direction(observations, working, rows, state, row, row + 1)
    log_scale, anchors = state.log_scales[row], _anchors(law, state)
    curvature = weighted_square(working.direction, working.precisions)
    pull = dot(working.direction, working.scores) + curvature
    target = LogScaleDensity(
        0.0, NONE, 0.0, pull, curvature, log_scale, anchors[:0], anchors[:0], anchors[:0], 1.0,
        anchors, beta_prime_power(law, state.numbers[INVERSE_Q]), law.spike_shape, law.tail_shape, 0.0, 0.0, law.low,
        law.high,
    )  # fmt: skip
    moved = slice_step(rng, log_scale, target, state.widths[row])
    state.log_scales[row] = moved
    factor = math.exp(moved - log_scale)
    move_along(working, 0, len(working.direction), working.direction, factor - 1.0)
    for place in range(rows.starts[row], rows.starts[row + 1]):
        for t in range(len(state.W)):
            state.W[t, rows.members[place]] *= factor


@njit(cache=True, nogil=True, error_model="numpy")
def fill_direction(
    observations: Observations, working: Working, rows: Rows, state: State, first: int, last: int
) -> None:
    """What rows ``first`` to ``last - 1`` contribute to the predictors, means left out."""
    for n in range(len(working.direction)):
        working.direction[n] = 0.0
    for place in range(rows.starts[first], rows.starts[last]):
        i = rows.members[place]
        for t in range(len(state.W)):
            w, x = state.W[t, i], observations.design[i]
            for n in range(observations.offsets[t], observations.offsets[t + 1]):
                working.direction[n] += w * x[n]
