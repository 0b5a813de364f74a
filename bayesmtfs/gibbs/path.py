r"""Hamiltonian steps at q = 2 on all coefficients, intercepts, the global scale and a common scale of leading rows.

Given the Pólya-Gamma precisions of labels, predictors stay near where they are, and with them the size of all effects
together: the slowest number of a posterior with more features than observations. Here the precisions are integrated
out. With ``z = sqrt(2) w / rho`` of the active rows, v of the others (`gibbs_rest`), ``x = ln tau``, and c the
logarithm of a factor of the scales of the leading rows, which are the active ones that the data know well,

    eta = b + X diag(rho) z / sqrt(2) + e^(x - x_0) (L v + u),
    ln p = sum ln p(y | eta) - (|z|^2 + |v|^2) / 2 + sum_leading ln p(l_0 + c - x) + ln p(x) + ln p(b)

up to a constant. rho is ``e^(l_0 + c)`` in leading rows; in all others ``rho / tau`` stays. u is what `gibbs_rest` does
not move. The relations of the scales to each other are left to `gibbs_collapsed` and `gibbs_features`: scales of rows
that are now relevant and now not are what makes other Hamiltonian paths (`gibbs_block`) take small steps.

Variances of the coordinates are ``1 / (1 + curvature)``, with the curvature of the likelihood for the mean precisions
at the mean levels of c and x, found while the sampler is tuned (`gibbs_path_tuning`); they hang on nothing that a path
changes. The larger x, the steeper the likelihood is in v, so that the step size is drawn anew for every path.

References
----------
R. M. Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.block import FEATURES, LOG_STEP, ROWS, Block, add_intercepts, fill_likelihood, read_state
from bayesmtfs.gibbs.leapfrog import draw_momentum, drift, kinetic_energy, push
from bayesmtfs.gibbs.observations import Observations, Working, dot, weighted_square
from bayesmtfs.gibbs.rest import (
    Rest,
    choose_rest,
    fill_factor,
    gather,
    move_rest,
    rest_for,
    scale_factor,
    spread,
    whiten,
)
from bayesmtfs.gibbs.scales import beta_prime_power
from bayesmtfs.gibbs.slice import softplus
from bayesmtfs.gibbs.state import LOG_TAU, Law, Rows, State
from bayesmtfs.types import FloatArray, IntArray

LONGEST_PATH = 6.0  # in standard deviations
MOST_STEPS = 100
LEAST_STEP, STEP_RANGE = 0.4, 0.8  # a step is this much of the tuned one, and up to so much more
SCALE_VARIANCE = 0.1  # of x and c
MEAN_LEADING, MEAN_LOG_TAU, SWEEPS = 5, 6, 7  # places in Path.numbers; the first five are those of Block.numbers


class Path(NamedTuple):
    """Arrays over the coordinates: z of each active feature and task, v of each observation, b, c, and x."""

    numbers: FloatArray  # (8,) logarithm of the step size, what its tuning needs, and mean levels
    leading: IntArray  # (R,) 1 or 0; rows that are not active do not lead
    weights: FloatArray  # (R,) by which rows are made active; inf: always
    curvatures: FloatArray  # (R,) ln of the mean precision with which the data determine a coefficient of the row
    relevance: FloatArray  # (R,) what the data know of a row beyond the prior, averaged while tuned
    precisions: FloatArray  # (N,) mean precisions of the observations
    position: FloatArray  # (D,)
    momentum: FloatArray  # (D,)
    slope: FloatArray  # (D,)
    variance: FloatArray  # (D,) 0: the coordinate is fixed
    factors: FloatArray  # (F,) rho / sqrt(2) of the active features at the position
    rest: Rest


def path_for(observations: Observations, rows: Rows, block: Block) -> Path:
    """Allocate."""
    m, count, n_features = len(observations.offsets) - 1, len(observations.targets), len(block.features)
    n_coordinates = n_features * m + count + m + 2
    return Path(
        numbers=np.zeros(8),
        leading=np.zeros(len(rows.sizes), dtype=np.int64),
        weights=np.ones(len(rows.sizes)),
        curvatures=np.zeros(len(rows.sizes)),
        relevance=np.zeros(len(rows.sizes)),
        precisions=np.zeros(count),
        position=np.zeros(n_coordinates),
        momentum=np.zeros(n_coordinates),
        slope=np.zeros(n_coordinates),
        variance=np.zeros(n_coordinates),
        factors=np.zeros(n_features),
        rest=rest_for(observations, n_features),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def prepare_path(observations: Observations, rows: Rows, law: Law, state: State, block: Block, path: Path) -> None:
    """Before paths with new active rows, or after the scales of other rows have moved, except with tau."""
    if path.rest.factor.shape[1] > 0:
        choose_rest(rows, law, state, block.is_active, path.rest)
        fill_factor(observations, rows, state, path.rest)


@njit(cache=True, nogil=True, error_model="numpy")
def step_along_path(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    block: Block,
    path: Path,
) -> float:
    """Follow one path and accept or refuse where it ends; the predictors of ``working`` follow. Its acceptance rate.

    Parameters
    ----------
    rng : generator
    observations, working : likelihood; only the predictors are used
    rows, law, state : the problem and the state
    block : says which rows are active
    path : coordinates, after `prepare_path`
    """
    read_path(observations, working, rows, state, block, path)
    fill_variances(observations, rows, law, state, block, path)
    size, log_tau = first_intercept(block, len(state.W)) + len(state.W) + 2, state.numbers[LOG_TAU]
    step = math.exp(path.numbers[LOG_STEP]) * (LEAST_STEP + STEP_RANGE * rng.random())
    draw_momentum(rng, path.variance, path.momentum, size)
    energy = kinetic_energy(path.variance, path.momentum, size)
    energy -= path_density(observations, law, state, block, path, log_tau)
    value = 0.0
    for _ in range(1 + int(rng.random() * min(LONGEST_PATH / step, MOST_STEPS))):
        push(path.momentum, path.slope, step, size)
        drift(path.position, path.variance, path.momentum, step, size)
        value = path_density(observations, law, state, block, path, log_tau)
        push(path.momentum, path.slope, step, size)
        if not value > -np.inf:
            return 0.0
    change = energy + value - kinetic_energy(path.variance, path.momentum, size)
    if -rng.standard_exponential() < change:
        write_path(observations, working, rows, state, block, path)
    return math.exp(min(change, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def first_intercept(block: Block, m: int) -> int:
    """Place of the first intercept among the coordinates, after z and v; c and x come after the intercepts."""
    place: int = block.counts[FEATURES] * m + len(block.predictors)
    return place


@njit(cache=True, nogil=True, error_model="numpy")
def read_path(observations: Observations, working: Working, rows: Rows, state: State, block: Block, path: Path) -> None:
    """Coordinates of the state, and the parts of the predictors that do not move by themselves."""
    m, rest = len(state.W), path.rest
    first_v, first_b = block.counts[FEATURES] * m, first_intercept(block, m)
    read_state(observations, working, rows, state, block)
    for d in range(first_v):
        path.position[d] = math.sqrt(2.0) * block.position[d]
    if rest.factor.shape[1] > 0:
        whiten(observations, state, rest, path.position[first_v:first_b])
        for n in range(len(block.following)):
            block.following[n] -= rest.moved[n]
    for t in range(m):
        path.position[first_b + t] = state.intercept[t]
    path.position[first_b + m] = 0.0
    path.position[first_b + m + 1] = state.numbers[LOG_TAU]


@njit(cache=True, nogil=True, error_model="numpy")
def leading_level(state: State, block: Block, path: Path) -> tuple[int, float]:
    """Number of leading rows, and the mean logarithm of their scales."""
    count, total = 0, 0.0
    for k in range(block.counts[ROWS]):
        if path.leading[block.rows[k]] == 1:
            count += 1
            total += state.log_scales[block.rows[k]]
    return count, total / max(count, 1)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_variances(observations: Observations, rows: Rows, law: Law, state: State, block: Block, path: Path) -> None:
    """Variances of all coordinates, the scales moved to their mean levels first."""
    m, offsets, precisions = len(state.W), observations.offsets, path.precisions
    count, level = leading_level(state, block, path)
    to_leading = path.numbers[MEAN_LEADING] - level
    to_others = path.numbers[MEAN_LOG_TAU] - state.numbers[LOG_TAU]
    for f in range(block.counts[FEATURES]):
        row = block.rows[block.places[f]]
        scale = math.exp(state.log_scales[row] + (to_leading if path.leading[row] == 1 else to_others))
        for t in range(m):
            start, stop = offsets[t], offsets[t + 1]
            curvature = 0.5 * scale * scale * weighted_square(block.design[f, start:stop], precisions[start:stop])
            path.variance[f * m + t] = 1.0 / (1.0 + curvature) if rows.present[t, block.features[f]] else 0.0
    first_b = first_intercept(block, m)
    _fill_rest_variances(observations, path, path.variance[block.counts[FEATURES] * m : first_b], to_others)
    for t in range(m):
        path.variance[first_b + t] = 0.0
        if law.intercept_variance > 0.0:
            total = 1.0 / law.intercept_variance
            for n in range(offsets[t], offsets[t + 1]):
                total += precisions[n]
            path.variance[first_b + t] = 1.0 / total
    path.variance[first_b + m] = SCALE_VARIANCE if count > 0 else 0.0
    path.variance[first_b + m + 1] = SCALE_VARIANCE if law.learn_global_scale else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_rest_variances(observations: Observations, path: Path, variance: FloatArray, to_mean: float) -> None:
    """Variances of v; 0 where a direction is left out."""
    factor, scale = path.rest.factor, math.exp(2.0 * to_mean)
    for n in range(len(variance)):
        variance[n] = 0.0
    if factor.shape[1] == 0:
        return
    for t in range(len(observations.offsets) - 1):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        for n in range(start, stop):
            weight = scale * path.precisions[n]
            for k in range(n - start + 1):
                variance[start + k] += weight * factor[n, k] * factor[n, k]
        for n in range(start, stop):
            variance[n] = 1.0 / (1.0 + variance[n]) if factor[n, n - start] > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def path_density(observations: Observations, law: Law, state: State, block: Block, path: Path, log_tau: float) -> float:
    """Log-density at the position, whose slope is filled in.

    Parameters
    ----------
    observations, law : the problem
    state : where the path began
    block : says which rows are active; its predictors and scores are those at the position
    path : its position is where the density is wanted
    log_tau : where the path began
    """
    m, scores = len(state.W), block.scores
    first_v, first_b = block.counts[FEATURES] * m, first_intercept(block, m)
    c, x = path.position[first_b + m], path.position[first_b + m + 1]
    _fill_predictors(observations, state, block, path, log_tau)
    value = fill_likelihood(observations, state, block.predictors, scores)
    factor, slope_c, slope_x = math.exp(x - log_tau), 0.0, law.log_global_scale - x
    value -= 0.5 * slope_x * slope_x
    slope_x += factor * (dot(block.following, scores) + dot(path.rest.moved, scores))
    for f in range(block.counts[FEATURES]):
        along = 0.0
        for t in range(m):
            start, stop, d = observations.offsets[t], observations.offsets[t + 1], f * m + t
            pull = path.factors[f] * dot(block.design[f, start:stop], scores[start:stop])
            path.slope[d] = pull
            along += pull * path.position[d]
        if path.leading[block.rows[block.places[f]]] == 1:
            slope_c += along
        else:
            slope_x += along
    if path.rest.factor.shape[1] > 0:
        gather(observations, path.rest, scores, factor, path.slope[first_v:first_b])
    for d in range(first_b):
        value -= 0.5 * path.position[d] * path.position[d]
        path.slope[d] -= path.position[d]
    prior, pull = _leading_prior(law, state, block, path, c, x)
    path.slope[first_b + m], path.slope[first_b + m + 1] = slope_c + pull, slope_x - pull
    return value + prior + add_intercepts(observations, law, scores, path.position[first_b:], path.slope[first_b:])


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_predictors(observations: Observations, state: State, block: Block, path: Path, log_tau: float) -> None:
    """Linear predictors at the position, and the factors of the active features."""
    m, offsets, predictors = len(state.W), observations.offsets, block.predictors
    first_v, first_b = block.counts[FEATURES] * m, first_intercept(block, m)
    c, shift = path.position[first_b + m], path.position[first_b + m + 1] - log_tau
    if path.rest.factor.shape[1] > 0:
        spread(observations, path.rest, path.position[first_v:first_b])
    factor = math.exp(shift)
    for t in range(m):
        b = path.position[first_b + t]
        for n in range(offsets[t], offsets[t + 1]):
            predictors[n] = b + block.fixed[n] + factor * (block.following[n] + path.rest.moved[n])
    for f in range(block.counts[FEATURES]):
        row, feature = block.rows[block.places[f]], block.design[f]
        path.factors[f] = math.sqrt(0.5) * math.exp(state.log_scales[row] + (c if path.leading[row] == 1 else shift))
        for t in range(m):
            w = path.factors[f] * path.position[f * m + t]
            for n in range(offsets[t], offsets[t + 1]):
                predictors[n] += w * feature[n]


@njit(cache=True, nogil=True, error_model="numpy")
def _leading_prior(law: Law, state: State, block: Block, path: Path, c: float, x: float) -> tuple[float, float]:
    """Log-prior of the scales of leading rows, and its derivative with respect to c."""
    exponent, shapes = beta_prime_power(law, 0.5), law.spike_shape + law.tail_shape
    value, pull = 0.0, 0.0
    for k in range(block.counts[ROWS]):
        row = block.rows[k]
        if path.leading[row] == 1:
            if not law.low <= state.log_scales[row] + c <= law.high:
                return -np.inf, 0.0
            if not law.log_uniform:
                y = exponent * (state.log_scales[row] + c - x)
                value += law.spike_shape * y - shapes * softplus(y)
                pull += exponent * (law.spike_shape - shapes / (1.0 + math.exp(-y)))
    return value, pull


@njit(cache=True, nogil=True, error_model="numpy")
def write_path(
    observations: Observations, working: Working, rows: Rows, state: State, block: Block, path: Path
) -> None:
    """Put the state where the path ended."""
    m = len(state.W)
    first_v, first_b = block.counts[FEATURES] * m, first_intercept(block, m)
    if path.rest.factor.shape[1] > 0:
        move_rest(observations, rows, state, path.rest, path.position[first_v:first_b])
    c, shift = path.position[first_b + m], path.position[first_b + m + 1] - state.numbers[LOG_TAU]
    factor = math.exp(shift)
    scale_factor(path.rest, factor)
    state.numbers[LOG_TAU] += shift
    for row in range(len(rows.sizes)):
        state.log_scales[row] += c if path.leading[row] == 1 and block.is_active[row] == 1 else shift
        if block.is_active[row] == 0:
            for place in range(rows.starts[row], rows.starts[row + 1]):
                for t in range(m):
                    state.W[t, rows.members[place]] *= factor
    for f in range(block.counts[FEATURES]):
        for t in range(m):
            state.W[t, block.features[f]] = path.factors[f] * path.position[f * m + t]
    for t in range(m):
        state.intercept[t] = path.position[first_b + t]
    for n in range(len(working.predictors)):
        working.predictors[n] = block.predictors[n]
