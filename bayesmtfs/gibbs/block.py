r"""Hamiltonian steps on the rows that the data know most of, together with intercepts and the global scale.

Single steps are slow where the data tie many numbers together: large coefficients of separable labels grow and shrink
together, correlated features stand in for each other, and the Pólya-Gamma precisions hold predictors where they are.
Here the coefficients w and scales ``l = ln rho`` of the active rows, the intercepts b and ``x = ln tau`` move together
along a Hamiltonian path (Neal 2011), with the precisions of labels integrated out. All other rows follow tau: their
``rho / tau`` and ``w / rho`` stay. With u their part of the predictors at ``x_0``,

    eta = b + X w + e^(x - x_0) u,
    ln p = sum ln p(y | eta) - sum |w / rho|^q + sum ln p(l - x) + ln p(x) + ln p(b)

up to a constant, in the coordinates ``w / rho``, ``l - x``, b and x (non-centred); at q = inf, ``w / rho`` is reflected at
-1 and 1. Which rows are active, the step size and
the scale of every coordinate are found while the sampler is tuned, and then stay.

References
----------
R. M. Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5.
M. D. Hoffman, A. Gelman (2014), The No-U-Turn sampler, Journal of Machine Learning Research 15:1593-1623 (section 3.2,
step sizes).
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.leapfrog import draw_momentum, drift, kinetic_energy, push, reflect
from bayesmtfs.gibbs.observations import Observations, Working, dot
from bayesmtfs.gibbs.scales import beta_prime_power
from bayesmtfs.gibbs.slice import power_of, softplus
from bayesmtfs.gibbs.state import INVERSE_Q, LOG_TAU, Law, Rows, State
from bayesmtfs.types import FloatArray, IntArray

MOST_FEATURES = 64
FIRST_VARIANCE, FIRST_STEP = 0.1, 0.1
FEATURES, ROWS, MOMENTS = 0, 1, 2  # places in Block.counts: active features and rows, states in the moments
LOG_STEP = 0  # place in Block.numbers; the others belong to `gibbs_block_tuning`


class Block(NamedTuple):
    """Active rows, and arrays over the coordinates: w / rho of each feature and task, l - x of each row, b, and x."""

    counts: IntArray  # (3,)
    numbers: FloatArray  # (5,) logarithm of the step size, and what its tuning needs
    features: IntArray  # (F,) active features
    places: IntArray  # (F,) place of the row of each among the active rows
    rows: IntArray  # (F,) active rows
    is_active: IntArray  # (R,) 1 or 0
    design: FloatArray  # (F, N)
    position: FloatArray  # (D,)
    momentum: FloatArray  # (D,)
    slope: FloatArray  # (D,)
    variance: FloatArray  # (D,) of the coordinates, as far as is known; 0: the coordinate is fixed
    moments: FloatArray  # (2, D) means and sums of squares while tuned
    fixed: FloatArray  # (N,) part of the predictors that stays
    following: FloatArray  # (N,) part of the rows that follow tau
    predictors: FloatArray  # (N,)
    scores: FloatArray  # (N,) derivatives of the log-likelihood


def block_for(observations: Observations, rows: Rows, most_features: int = MOST_FEATURES) -> Block:
    """Allocate."""
    m, count = len(observations.offsets) - 1, len(observations.targets)
    n_features = min(most_features, len(observations.design))
    n_coordinates = n_features * (m + 1) + m + 1
    return Block(
        counts=np.zeros(3, dtype=np.int64),
        numbers=np.zeros(5),
        features=np.zeros(n_features, dtype=np.int64),
        places=np.zeros(n_features, dtype=np.int64),
        rows=np.zeros(n_features, dtype=np.int64),
        is_active=np.zeros(len(rows.sizes), dtype=np.int64),
        design=np.zeros((n_features, count)),
        position=np.zeros(n_coordinates),
        momentum=np.zeros(n_coordinates),
        slope=np.zeros(n_coordinates),
        variance=np.zeros(n_coordinates),
        moments=np.zeros((2, n_coordinates)),
        fixed=np.zeros(count),
        following=np.zeros(count),
        predictors=np.zeros(count),
        scores=np.zeros(count),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_block(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    block: Block,
    longest: float,
) -> float:
    """Follow one path and accept or refuse where it ends; the predictors of ``working`` follow. Its acceptance rate.

    Parameters
    ----------
    rng : generator
    observations, working : likelihood; only the predictors are used
    rows, law, state : the problem and the state
    block : active rows
    longest : longest path, in standard deviations; its length is drawn
    """
    m, size = len(state.W), n_coordinates(block, len(state.W))
    read_state(observations, working, rows, state, block)
    step, log_tau = math.exp(block.numbers[LOG_STEP]), state.numbers[LOG_TAU]
    draw_momentum(rng, block.variance, block.momentum, size)
    energy = kinetic_energy(block.variance, block.momentum, size)
    energy -= log_density(observations, rows, law, state, block, log_tau)
    value = 0.0
    for _ in range(1 + int(rng.random() * min(longest / step, 100.0))):
        push(block.momentum, block.slope, step, size)
        drift(block.position, block.variance, block.momentum, step, size)
        if state.numbers[INVERSE_Q] == 0.0:
            reflect(block.position, block.momentum, block.counts[FEATURES] * m)
        value = log_density(observations, rows, law, state, block, log_tau)
        push(block.momentum, block.slope, step, size)
        if not value > -np.inf:
            return 0.0
    change = energy + value - kinetic_energy(block.variance, block.momentum, size)
    if -rng.standard_exponential() < change:
        write_state(working, rows, state, block, m)
    return math.exp(min(change, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def n_coordinates(block: Block, m: int) -> int:
    """Number of coordinates that are in use."""
    count: int = block.counts[FEATURES] * m + block.counts[ROWS] + m + 1
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def read_state(observations: Observations, working: Working, rows: Rows, state: State, block: Block) -> None:
    """Coordinates of the state, and the parts of the predictors that do not hang on active rows."""
    m, offsets = len(state.W), observations.offsets
    first_scale = block.counts[FEATURES] * m
    first_intercept = first_scale + block.counts[ROWS]
    for t in range(m):
        block.position[first_intercept + t] = state.intercept[t]
    block.position[first_intercept + m] = state.numbers[LOG_TAU]
    for k in range(block.counts[ROWS]):
        block.position[first_scale + k] = state.log_scales[block.rows[k]] - state.numbers[LOG_TAU]
    _fill_fixed(observations, rows, state, block)
    for t in range(m):
        for n in range(offsets[t], offsets[t + 1]):
            block.following[n] = working.predictors[n] - block.fixed[n] - state.intercept[t]
    for f in range(block.counts[FEATURES]):
        place, i = block.places[f], block.features[f]
        shrink = math.exp(-state.log_scales[block.rows[place]])
        for t in range(m):
            block.position[f * m + t] = state.W[t, i] * shrink
            for n in range(offsets[t], offsets[t + 1]):
                block.following[n] -= state.W[t, i] * block.design[f, n]


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_fixed(observations: Observations, rows: Rows, state: State, block: Block) -> None:
    """Part of the shared means."""
    for n in range(len(block.fixed)):
        block.fixed[n] = 0.0
    for i in range(len(state.mean)):
        if state.mean[i] != 0.0:
            for t in range(len(state.W)):
                if rows.present[t, i]:
                    for n in range(observations.offsets[t], observations.offsets[t + 1]):
                        block.fixed[n] += state.mean[i] * observations.design[i, n]


@njit(cache=True, nogil=True, error_model="numpy")
def write_state(working: Working, rows: Rows, state: State, block: Block, m: int) -> None:
    """Put the state where the path ended."""
    first_scale = block.counts[FEATURES] * m
    first_intercept = first_scale + block.counts[ROWS]
    log_tau = block.position[first_intercept + m]
    shift = log_tau - state.numbers[LOG_TAU]
    factor = math.exp(shift)
    state.numbers[LOG_TAU] = log_tau
    for row in range(len(rows.sizes)):
        if block.is_active[row] == 0 and shift != 0.0:
            state.log_scales[row] += shift
            for place in range(rows.starts[row], rows.starts[row + 1]):
                for t in range(m):
                    state.W[t, rows.members[place]] *= factor
    for k in range(block.counts[ROWS]):
        state.log_scales[block.rows[k]] = block.position[first_scale + k] + log_tau
    for f in range(block.counts[FEATURES]):
        place = block.places[f]
        scale = math.exp(state.log_scales[block.rows[place]])
        for t in range(m):
            state.W[t, block.features[f]] = scale * block.position[f * m + t]
    for t in range(m):
        state.intercept[t] = block.position[first_intercept + t]
    for n in range(len(working.predictors)):
        working.predictors[n] = block.predictors[n]


@njit(cache=True, nogil=True, error_model="numpy")
def log_density(observations: Observations, rows: Rows, law: Law, state: State, block: Block, log_tau: float) -> float:
    """Log-density at the position, whose slope is filled in.

    Parameters
    ----------
    observations, rows, law, state : the problem; of the state only q and the noise are used
    block : its position is where the density is wanted
    log_tau : at which ``following`` was taken
    """
    m = len(state.W)
    first_scale = block.counts[FEATURES] * m
    first_intercept = first_scale + block.counts[ROWS]
    x = block.position[first_intercept + m]
    _fill_predictors(observations, block, m, math.exp(x - log_tau))
    value = fill_likelihood(observations, state, block.predictors, block.scores)
    value += _add_coefficients(observations, rows, state, block, x) - 0.5 * (x - law.log_global_scale) ** 2
    slope_x = math.exp(x - log_tau) * dot(block.following, block.scores) - (x - law.log_global_scale)
    exponent, shapes = beta_prime_power(law, state.numbers[INVERSE_Q]), law.spike_shape + law.tail_shape
    for k in range(first_scale, first_intercept):
        slope_x += block.slope[k]
        if not law.low <= block.position[k] + x <= law.high:
            return -np.inf
        if not law.log_uniform:
            y = exponent * block.position[k]
            value += law.spike_shape * y - shapes * softplus(y)
            block.slope[k] += exponent * (law.spike_shape - shapes / (1.0 + math.exp(-y)))
    block.slope[first_intercept + m] = slope_x
    position, slope = block.position[first_intercept:], block.slope[first_intercept:]
    return value + add_intercepts(observations, law, block.scores, position, slope)


@njit(cache=True, nogil=True, error_model="numpy")
def add_intercepts(
    observations: Observations, law: Law, scores: FloatArray, position: FloatArray, slope: FloatArray
) -> float:
    """Log-prior of the intercepts, which are the first coordinates given; their slopes are filled in."""
    value = 0.0
    for t in range(len(observations.offsets) - 1):
        slope[t] = 0.0
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            slope[t] += scores[n]
        if law.intercept_variance > 0.0:
            value -= 0.5 * position[t] * position[t] / law.intercept_variance
            slope[t] -= position[t] / law.intercept_variance
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_predictors(observations: Observations, block: Block, m: int, factor: float) -> None:
    """Linear predictors at the position."""
    first_scale = block.counts[FEATURES] * m
    first_intercept, predictors = first_scale + block.counts[ROWS], block.predictors
    x = block.position[first_intercept + m]
    for t in range(m):
        b = block.position[first_intercept + t]
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            predictors[n] = b + block.fixed[n] + factor * block.following[n]
    for f in range(block.counts[FEATURES]):
        place, feature = block.places[f], block.design[f]
        scale = math.exp(block.position[first_scale + place] + x)
        for t in range(m):
            w = scale * block.position[f * m + t]
            for n in range(observations.offsets[t], observations.offsets[t + 1]):
                predictors[n] += w * feature[n]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_likelihood(observations: Observations, state: State, predictors: FloatArray, scores: FloatArray) -> float:
    """Log-likelihood of the predictors, and its derivatives."""
    value = 0.0
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            target, weight = observations.targets[n], observations.weights[n]
            if observations.labels:
                margin = target * predictors[n]
                small = math.exp(-abs(margin))
                value -= weight * (math.log1p(small) + max(-margin, 0.0))
                scores[n] = weight * target * (small if margin > 0.0 else 1.0) / (1.0 + small)
            else:
                residual = target - predictors[n]
                scores[n] = weight * noise_precision * residual
                value -= 0.5 * scores[n] * residual
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def _add_coefficients(observations: Observations, rows: Rows, state: State, block: Block, x: float) -> float:
    """``-sum |z|^q``; slopes of all z, and what the likelihood adds to those of the scales."""
    m, inverse_q, value = len(state.W), state.numbers[INVERSE_Q], 0.0
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    first_scale = block.counts[FEATURES] * m
    for k in range(block.counts[ROWS]):
        block.slope[first_scale + k] = 0.0
    for f in range(block.counts[FEATURES]):
        k, feature = first_scale + block.places[f], block.design[f]
        scale = math.exp(block.position[k] + x)
        for t in range(m):
            z, d = block.position[f * m + t], f * m + t
            block.slope[d] = 0.0
            if rows.present[t, block.features[f]]:
                start, stop = observations.offsets[t], observations.offsets[t + 1]
                pull = scale * dot(feature[start:stop], block.scores[start:stop])
                block.slope[k] += pull * z
                block.slope[d] = pull
                if norm_q < np.inf and z != 0.0:
                    power = power_of(abs(z), norm_q)
                    value -= power
                    block.slope[d] -= norm_q * power / z
    return value
