r"""Gibbs steps on the coefficients of a feature over all tasks and on the scale of its row, by observation.

With ``a_t = x'diag(omega)x`` and ``g_t = x's + a_t w_t`` of a feature in task t, everything else given, its coefficients
have the log-likelihood ``g_t w_t - a_t w_t^2 / 2`` and the prior GN(0, rho, q):

- q = 2: rho with the coefficients integrated out, ``sum_t [g^2 / (2 (a + k)) - ln(1 + a / k) / 2] + ln p(ln rho | tau)``,
  ``k = 2 / rho^2``, by a slice step; then the coefficients, which are normal;
- q = 1 and q = inf: the same with other integrals (`distributions`);
- any other q: the coefficients by the uniform mixture (`coefficients`), then rho given them, and then rho with the
  coefficients carried along, each at its place in the normal approximation of its conditional distribution (`slice`).

In a row of several features rho moves given the coefficients, and then with ``w / rho`` fixed. With a shared mean the
same steps draw the deviations from it, and the mean given them.

**Sizes of effects of labels**, of single rows and of all together, move by Metropolis steps. Labels that a hyperplane
separates do not say how far apart they are: coefficients and their scales may grow together almost as far as the prior
lets them, into a tail where Polya-Gamma precisions hold them and steps that were tuned elsewhere are refused. Here the
precisions are integrated out, and sizes move with ``w / rho`` fixed. With u the part of the predictors that grows, and s
the logarithm of its factor,

    ln p(s) = sum ln p(y | eta + (e^s - 1) u) + ln prior

up to a constant, the prior being that of ``ln rho + s`` for a row, and that of ``ln tau + s`` for all rows, ``rho / tau``
fixed. Proposals are normal with a deviation drawn anew each time, small or large: nothing needs to be tuned.
"""

import math

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.families.augmentation import log_density_and_score
from bayesmtfs.gibbs.block import ActiveBlock
from bayesmtfs.gibbs.coefficients import bound_of
from bayesmtfs.gibbs.distributions import (
    dot,
    draw_given_scale,
    softplus,
    truncated_normal,
    unit_variance,
    weighted_square,
)
from bayesmtfs.gibbs.observations import Observed, ObservedWork, move_along
from bayesmtfs.gibbs.scales import density_given_row, tune_row
from bayesmtfs.gibbs.slice import (
    LogScaleDensity,
    beta_prime_power,
    jump_by_cells,
    row_scale_prior,
    slice_step,
    with_carried,
    with_multiplied,
)
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap

REACH_BELOW, REACH_ABOVE = 5.0, 12.0  # of the scales that are drawn anew, around ln tau
SIZE_PROPOSALS = 4  # for a size; each costs a look at the labels
ROWS_AT_A_TIME = 4  # of the active ones
LEAST_LOG_SIZE, LOG_SIZE_RANGE = math.log(0.05), math.log(60.0)


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_features(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, prior: GibbsPrior, state: GibbsState, tuning: int
) -> None:
    """Draw all coefficients, their means and their row scales, row by row."""
    normal = state.inverse_q[0] == 0.5
    integrable = state.inverse_q[0] == 0.0 or state.inverse_q[0] == 1.0
    for row in range(len(rows.sizes)):
        before = state.log_scales[row]
        single = rows.starts[row + 1] - rows.starts[row] == 1
        information = 1e-300
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            information += _fill_terms(data, work, rows, state, i)
            if single and normal:
                step_on_normal_scale(rng, work, prior, state, row)
            if normal:
                _draw_normal(rng, data, work, rows, state, row, i)
            elif single and integrable:
                _step_on_integrated_row(rng, data, work, rows, prior, state, row)
            else:
                _draw_bounded(rng, data, work, rows, state, row, i)
            if prior.mean_precision > 0.0:
                _draw_mean(rng, data, work, rows, prior, state, i)
        if not (single and (normal or integrable)):
            target = density_given_row(rows, prior, state, row)
            state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])
            if not single:
                _step_with_row(rng, data, work, rows, prior, state, row)
            else:
                _step_carrying(rng, data, work, rows, prior, state, row)
        if tuning > 0:
            tune_row(state, row, before, math.log(information / max(rows.sizes[row], 1.0)), tuning)


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_terms(data: Observed, work: ObservedWork, rows: RowMap, state: GibbsState, i: int) -> float:
    """``a_t`` and ``g_t`` of a feature in every task that has it, else 0; the sum of the first."""
    x, total = data.design[i], 0.0
    for t in range(len(state.W)):
        work.curvatures[t] = work.pulls[t] = 0.0
        if rows.present[t, i]:
            start, stop = data.offsets[t], data.offsets[t + 1]
            a = weighted_square(x[start:stop], work.precisions[start:stop])
            work.curvatures[t] = a
            work.pulls[t] = dot(x[start:stop], work.scores[start:stop]) + a * state.W[t, i]
            total += a
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _normal_scale_density(work: ObservedWork, prior: GibbsPrior, state: GibbsState) -> LogScaleDensity:
    """Log-density of the scale of a feature at q = 2 with its coefficients integrated out.

    Coefficients at their conditional means, ``z = 0`` in `slice`, have the value of the integral up to a constant.
    """
    m, own_prior = len(state.W), row_scale_prior(prior, state, prior.low)
    return with_carried(own_prior, float(m), 2.0, work.curvatures, work.pulls, np.zeros(m), 0.5)


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_normal_scale(rng: Generator, work: ObservedWork, prior: GibbsPrior, state: GibbsState, row: int) -> None:
    """Move the scale of a feature at q = 2 with its coefficients integrated out."""
    target = _normal_scale_density(work, prior, state)
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])


@njit(cache=True, nogil=True, error_model="numpy")
def jump_on_normal_scale(rng: Generator, work: ObservedWork, prior: GibbsPrior, state: GibbsState, row: int) -> None:
    """Draw the scale of a feature at q = 2 anew, with its coefficients integrated out."""
    target, centre = _normal_scale_density(work, prior, state), state.log_tau[0]
    low, high = (prior.low, prior.high) if prior.log_uniform else (centre - REACH_BELOW, centre + REACH_ABOVE)
    state.log_scales[row] = jump_by_cells(rng, state.log_scales[row], target, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _set_coefficient(data: Observed, work: ObservedWork, state: GibbsState, t: int, i: int, new: float) -> None:
    """Put a coefficient to a new value."""
    start, stop = data.offsets[t], data.offsets[t + 1]
    move_along(work, start, stop, data.design[i], new - state.W[t, i])
    state.W[t, i] = new


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_normal(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, state: GibbsState, row: int, i: int
) -> None:
    """Coefficients of a feature at q = 2."""
    prior_precision = 2.0 * math.exp(-2.0 * state.log_scales[row])
    for t in range(len(state.W)):
        if rows.present[t, i]:
            precision = work.curvatures[t] + prior_precision
            new = work.pulls[t] / precision + rng.standard_normal() / math.sqrt(precision)
            _set_coefficient(data, work, state, t, i, new)


@njit(cache=True, nogil=True, error_model="numpy")
def _step_on_integrated_row(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int
) -> None:
    """Scale of a feature at q = 1 or q = inf with its coefficients integrated out, and then they."""
    i, inverse_q = rows.members[rows.starts[row]], state.inverse_q[0]
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    # where a task does not have the feature, its integral is that of the prior, which the slope takes back
    curvatures, pulls, own_prior = work.curvatures, work.pulls, row_scale_prior(prior, state, prior.low)
    target = with_carried(own_prior, float(len(state.W)), norm_q, curvatures, pulls, curvatures[:0], 1.0)
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])
    for t in range(len(state.W)):
        if rows.present[t, i]:
            new = draw_given_scale(rng, work.curvatures[t], work.pulls[t], state.log_scales[row], norm_q)
            _set_coefficient(data, work, state, t, i, new)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_bounded(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, state: GibbsState, row: int, i: int
) -> None:
    """Coefficients of a feature at any q, by the mixture of uniforms."""
    for t in range(len(state.W)):
        if rows.present[t, i]:
            a = work.curvatures[t]
            reach = bound_of(rng, state.W[t, i], state.log_scales[row], state.inverse_q[0])
            if a > 0.0:
                new = truncated_normal(rng, work.pulls[t] / a, 1.0 / math.sqrt(a), reach)
            else:
                new = reach * (2.0 * rng.random() - 1.0)
            _set_coefficient(data, work, state, t, i, new)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_mean(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, prior: GibbsPrior, state: GibbsState, i: int
) -> None:
    """Mean of a feature's coefficients given their deviations from it; terms are those before the deviations moved."""
    x, precision, pull = data.design[i], prior.mean_precision, 0.0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            start, stop = data.offsets[t], data.offsets[t + 1]
            precision += work.curvatures[t]
            pull += dot(x[start:stop], work.scores[start:stop]) + work.curvatures[t] * state.mean[i]
    change = pull / precision + rng.standard_normal() / math.sqrt(precision) - state.mean[i]
    state.mean[i] += change
    for t in range(len(state.W)):
        if rows.present[t, i]:
            move_along(work, data.offsets[t], data.offsets[t + 1], x, change)


@njit(cache=True, nogil=True, error_model="numpy")
def _step_carrying(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int
) -> None:
    """Move the scale of a feature and carry its coefficients at their standardised positions."""
    m, i, inverse_q = len(state.W), rows.members[rows.starts[row]], state.inverse_q[0]
    log_scale, spread = state.log_scales[row], unit_variance(inverse_q)
    _fill_terms(data, work, rows, state, i)
    positions = np.zeros(m)
    for t in range(m):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(work.curvatures[t] + math.exp(-2.0 * log_scale) / spread)
            positions[t] = state.W[t, i] / s - s * work.pulls[t]
    own_prior = row_scale_prior(prior, state, prior.low)
    target = with_carried(own_prior, float(m), 1.0 / inverse_q, work.curvatures, work.pulls, positions, spread)
    moved = slice_step(rng, log_scale, target, state.widths[row])
    state.log_scales[row] = moved
    for t in range(m):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(work.curvatures[t] + math.exp(-2.0 * moved) / spread)
            _set_coefficient(data, work, state, t, i, s * (s * work.pulls[t] + positions[t]))


@njit(cache=True, nogil=True, error_model="numpy")
def _step_with_row(
    rng: Generator, data: Observed, work: ObservedWork, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int
) -> None:
    """Move the scale of a row of several features together with all its coefficients."""
    fill_direction(data, work, rows, state, row, row + 1)
    log_scale = state.log_scales[row]
    curvature = weighted_square(work.direction, work.precisions)
    pull = dot(work.direction, work.scores) + curvature
    target = with_multiplied(row_scale_prior(prior, state, prior.low), pull, curvature, log_scale)
    moved = slice_step(rng, log_scale, target, state.widths[row])
    state.log_scales[row] = moved
    factor = math.exp(moved - log_scale)
    move_along(work, 0, len(work.direction), work.direction, factor - 1.0)
    for place in range(rows.starts[row], rows.starts[row + 1]):
        for t in range(len(state.W)):
            state.W[t, rows.members[place]] *= factor


@njit(cache=True, nogil=True, error_model="numpy")
def fill_direction(data: Observed, work: ObservedWork, rows: RowMap, state: GibbsState, first: int, last: int) -> None:
    """What rows ``first`` to ``last - 1`` contribute to the predictors, means left out."""
    for n in range(len(work.direction)):
        work.direction[n] = 0.0
    for place in range(rows.starts[first], rows.starts[last]):
        i = rows.members[place]
        for t in range(len(state.W)):
            w, x = state.W[t, i], data.design[i]
            for n in range(data.offsets[t], data.offsets[t + 1]):
                work.direction[n] += w * x[n]


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_sizes(
    rng: Generator,
    data: Observed,
    work: ObservedWork,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    block: ActiveBlock,
) -> None:
    """Move the sizes of some active rows, and of all rows where tau is learned; the predictors of ``work`` follow."""
    active = block.sizes.rows
    for _ in range(min(ROWS_AT_A_TIME, active)):
        row = block.rows[int(active * rng.random())]
        _step_on_size(rng, data, work, rows, prior, state, row, row + 1)
    if prior.learn_global_scale:
        _step_on_size(rng, data, work, rows, prior, state, 0, len(rows.sizes))


@njit(cache=True, nogil=True, error_model="numpy")
def _step_on_size(
    rng: Generator,
    data: Observed,
    work: ObservedWork,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    first: int,
    last: int,
) -> None:
    """Move rows ``first`` to ``last - 1`` by a common factor; all rows take tau along."""
    together = last - first == len(rows.sizes) and prior.learn_global_scale
    fill_direction(data, work, rows, state, first, last)
    shift = 0.0
    value = _size_prior(prior, state, first, together, 0.0) + _size_likelihood(data, work, 0.0)
    for _ in range(SIZE_PROPOSALS):
        step = math.exp(LEAST_LOG_SIZE + LOG_SIZE_RANGE * rng.random())
        proposal = shift + step * rng.standard_normal()
        moved = _size_prior(prior, state, first, together, proposal)
        if moved > -np.inf:
            moved += _size_likelihood(data, work, proposal)
        if -rng.standard_exponential() < moved - value:
            shift, value = proposal, moved
    if shift == 0.0:
        return
    factor = math.exp(shift)
    if together:
        state.log_tau[0] += shift
    for row in range(first, last):
        state.log_scales[row] += shift
        for place in range(rows.starts[row], rows.starts[row + 1]):
            for t in range(len(state.W)):
                state.W[t, rows.members[place]] *= factor
    for n in range(len(work.predictors)):
        work.predictors[n] += (factor - 1.0) * work.direction[n]


@njit(cache=True, nogil=True, error_model="numpy")
def _size_prior(prior: GibbsPrior, state: GibbsState, row: int, together: bool, shift: float) -> float:
    """Log-prior after a move of tau, or of one row; minus infinity beyond what scales may be."""
    log_tau = state.log_tau[0]
    log_scale = (log_tau if together else state.log_scales[row]) + shift
    if not prior.low < log_scale < prior.high:
        return -np.inf
    if together:
        return -0.5 * (log_scale - prior.log_global_scale) ** 2
    if prior.log_uniform:
        return 0.0
    y = beta_prime_power(prior, state.inverse_q[0]) * (log_scale - log_tau)
    return prior.spike_shape * y - (prior.spike_shape + prior.tail_shape) * softplus(y)


@njit(cache=True, nogil=True, error_model="numpy")
def _size_likelihood(data: Observed, work: ObservedWork, shift: float) -> float:
    """Log-likelihood after a move."""
    growth, value = math.exp(shift) - 1.0, 0.0
    for n in range(len(work.direction)):
        eta = work.predictors[n] + growth * work.direction[n]
        value += log_density_and_score(data.form, data.weights[n], data.targets[n], eta, 1.0)[0]
    return value
