r"""Hamiltonian steps on the rows that the data know most of, together with intercepts and the global scale.

Single steps are slow where the data tie many numbers together: large coefficients of separable labels grow and shrink
together, correlated features stand in for each other, and the Polya-Gamma precisions hold predictors where they are.
Here the coefficients w and scales ``l = ln rho`` of the active rows, the intercepts b and ``x = ln tau`` move together
along a Hamiltonian path, with the precisions of labels integrated out. All other rows follow tau: their
``rho / tau`` and ``w / rho`` stay. With u their part of the predictors at ``x_0``,

    eta = b + X w + e^(x - x_0) u,
    ln p = sum ln p(y | eta) - sum |w / rho|^q + sum ln p(l - x) + ln p(x) + ln p(b)

up to a constant, in the coordinates ``w / rho``, ``l - x``, b and x (non-centred); at q = inf, ``w / rho`` is reflected at
-1 and 1.

What is tuned, and then stays: active rows are those of which the data know most, by ``ln`` of the data's precision over
the prior's, averaged over the last sweeps; scales of the coordinates are their standard deviations over some sweeps; the
step size follows dual averaging.

**Paths** have a diagonal mass (Neal 2011, section 5.2),

    H = -ln p(position) + sum variance momentum^2 / 2,   momentum ~ N(0, 1 / variance),

the variance of a coordinate as far as it is known; a coordinate of variance 0 stays where it is. Within walls a path is
reflected (section 5.5.1 there), which changes neither its volume nor its way back. Dual averaging of the step size is that
of Hoffman and Gelman (2014, eq. 6).

References
----------
R. M. Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5.
M. D. Hoffman, A. Gelman (2014), The No-U-Turn sampler, Journal of Machine Learning Research 15:1593-1623.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.families.augmentation import MULTINOMIAL, log_density_and_score
from bayesmtfs.gibbs.distributions import dot, power_of, softplus
from bayesmtfs.gibbs.scales import beta_prime_power
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, Observed, RowMap, fill_softmax_scores
from bayesmtfs.types import FloatArray, IntArray

type Record = Any  # np.record, whose numbers have names

WISHED_ACCEPTANCE = 0.8
MOST_STEPS = 100.0  # of a path
STEP_SIZE = [("log_step", "f8"), ("mean_log_step", "f8"), ("error", "f8"), ("steps", "f8"), ("centre", "f8")]


class Coordinates(NamedTuple):
    """Where a path is."""

    position: FloatArray  # (D,)
    momentum: FloatArray  # (D,)
    slope: FloatArray  # (D,) of the log-density
    variance: FloatArray  # (D,) of the coordinates, as far as is known; 0: the coordinate is fixed


def new_coordinates(size: int) -> Coordinates:
    """Allocate."""
    return Coordinates(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size))


def new_record(fields: list[tuple[str, str]]) -> Record:
    """Numbers with names, all 0, which compiled functions may change."""
    return np.zeros(1, fields).view(np.recarray)[0]


def path_follower(log_density: Any) -> Any:
    """Make the compiled loop over a path under a log-density.

    Parameters
    ----------
    log_density : compiled function of the parts of a problem; fills in the slope at the position

    Returns
    -------
    compiled function
        Whether the end of a path is accepted, and its acceptance rate; the position moves along in either case. The
        first ``size`` coordinates are in use, of which the first ``walls`` stay between -1 and 1; ``longest`` is the
        longest path in standard deviations, whose length is drawn.
    """

    @njit(nogil=True, error_model="numpy")  # what calls it is cached
    def follow_path(
        rng: Generator, problem: Any, coordinates: Coordinates, size: int, walls: int, step: float, longest: float
    ) -> tuple[bool, float]:
        position, momentum, slope, variance = coordinates
        draw_momentum(rng, variance, momentum, size)
        energy = kinetic_energy(variance, momentum, size)
        energy -= log_density(*problem)
        value = 0.0
        for _ in range(1 + int(rng.random() * min(longest / step, MOST_STEPS))):
            push(momentum, slope, step, size)
            drift(position, variance, momentum, step, size)
            reflect(position, momentum, walls)
            value = log_density(*problem)
            push(momentum, slope, step, size)
            if not value > -np.inf:
                return False, 0.0
        change = energy + value - kinetic_energy(variance, momentum, size)
        return -rng.standard_exponential() < change, math.exp(min(change, 0.0))

    return follow_path


@inner(error_model="numpy")
def draw_momentum(rng: Generator, variance: FloatArray, momentum: FloatArray, size: int) -> None:
    """Momenta of the first ``size`` coordinates."""
    for d in range(size):
        momentum[d] = rng.standard_normal() / math.sqrt(variance[d]) if variance[d] > 0.0 else 0.0


@inner(error_model="numpy")
def kinetic_energy(variance: FloatArray, momentum: FloatArray, size: int) -> float:
    """Half the sum of variances times squared momenta."""
    total = 0.0
    for d in range(size):
        total += variance[d] * momentum[d] * momentum[d]
    return 0.5 * total


@inner(error_model="numpy")
def push(momentum: FloatArray, slope: FloatArray, step: float, size: int) -> None:
    """Change momenta by half a step along the slope."""
    for d in range(size):
        momentum[d] += 0.5 * step * slope[d]


@inner(error_model="numpy")
def drift(position: FloatArray, variance: FloatArray, momentum: FloatArray, step: float, size: int) -> None:
    """Move positions by a step along the momenta."""
    for d in range(size):
        position[d] += step * variance[d] * momentum[d]


@inner(error_model="numpy")
def reflect(position: FloatArray, momentum: FloatArray, size: int) -> None:
    """Turn the first ``size`` coordinates back at walls at -1 and 1 that they have run through."""
    for d in range(size):
        if abs(position[d]) > 1.0:
            way = (position[d] + 1.0) % 4.0  # there and back
            if way > 2.0:
                way = 4.0 - way
                momentum[d] = -momentum[d]
            position[d] = way - 1.0


@inner(error_model="numpy")
def restart_step(step_size: Record, log_step: float) -> None:
    """Begin from a step size."""
    step_size.log_step = step_size.mean_log_step = log_step
    step_size.error = step_size.steps = 0.0
    step_size.centre = log_step + math.log(2.0)


@inner(error_model="numpy")
def follow_acceptance(step_size: Record, acceptance: float) -> None:
    """Dual averaging of the step size."""
    step_size.steps += 1.0
    count = step_size.steps
    step_size.error += (WISHED_ACCEPTANCE - acceptance - step_size.error) / (count + 10.0)
    step_size.log_step = min(step_size.centre - 20.0 * math.sqrt(count) * step_size.error, 0.5)
    step_size.mean_log_step += count**-0.75 * (step_size.log_step - step_size.mean_log_step)


@inner(error_model="numpy")
def keep_step(step_size: Record) -> None:
    """Take the mean of the step sizes from now on."""
    if step_size.steps > 0.0:
        step_size.log_step = step_size.mean_log_step


MOST_FEATURES = 64
FIRST_VARIANCE, FIRST_STEP = 0.1, 0.1
BLOCK_SIZES = [("features", "i8"), ("rows", "i8"), ("states", "i8")]
LONGEST_PATH = 3.0  # in standard deviations
CHOICES = (0.1, 0.3)  # shares of the tuning after which active rows are chosen anew
SCALINGS = (0.45, 0.7)  # and those after which scales are
LEAST_STATES = 10  # behind a standard deviation


class ActiveBlock(NamedTuple):
    """Active rows, and arrays over the coordinates: w / rho of each feature and task, l - x of each row, b, and x."""

    sizes: Record  # numbers of active features and rows, and states in the moments
    step_size: Record
    features: IntArray  # (F,) active features
    places: IntArray  # (F,) place of the row of each among the active rows
    rows: IntArray  # (F,) active rows
    is_active: IntArray  # (R,) 1 or 0
    design: FloatArray  # (F, N)
    at: Coordinates
    moments: FloatArray  # (2, D) means and sums of squares while tuned
    fixed: FloatArray  # (N,) part of the predictors that stays
    following: FloatArray  # (N,) part of the rows that follow tau
    predictors: FloatArray  # (N,)
    scores: FloatArray  # (N,) derivatives of the log-likelihood


def block_for(data: Observed, rows: RowMap, most_features: int = MOST_FEATURES) -> ActiveBlock:
    """Allocate."""
    m, count = len(data.offsets) - 1, len(data.targets)
    n_features = min(most_features, len(data.design))
    n_coordinates = n_features * (m + 1) + m + 1
    return ActiveBlock(
        sizes=new_record(BLOCK_SIZES),
        step_size=new_record(STEP_SIZE),
        features=np.zeros(n_features, dtype=np.int64),
        places=np.zeros(n_features, dtype=np.int64),
        rows=np.zeros(n_features, dtype=np.int64),
        is_active=np.zeros(len(rows.sizes), dtype=np.int64),
        design=np.zeros((n_features, count)),
        at=new_coordinates(n_coordinates),
        moments=np.zeros((2, n_coordinates)),
        fixed=np.zeros(count),
        following=np.zeros(count),
        predictors=np.zeros(count),
        scores=np.zeros(count),
    )


@inner(error_model="numpy")
def step_on_block(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock
) -> float:
    """Follow one path and accept or refuse where it ends; the predictors of ``data`` follow. Its acceptance rate."""
    m, size = len(state.W), n_coordinates(block, len(state.W))
    read_state(data, rows, state, block)
    walls = block.sizes.features * m if state.inverse_q[0] == 0.0 else 0
    problem = (data, rows, prior, state, block)
    step = math.exp(block.step_size.log_step)
    accepted, rate = _follow_path(rng, problem, block.at, size, walls, step, LONGEST_PATH)
    if accepted:
        write_state(data, rows, state, block, m)
    return rate


@njit(cache=True, nogil=True, error_model="numpy")
def n_coordinates(block: ActiveBlock, m: int) -> int:
    """Number of coordinates that are in use."""
    count: int = block.sizes.features * m + block.sizes.rows + m + 1
    return count


@inner(error_model="numpy")
def read_state(data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock) -> None:
    """Coordinates of the state, and the parts of the predictors that do not depend on active rows."""
    m, offsets = len(state.W), data.offsets
    first_scale = block.sizes.features * m
    first_intercept = first_scale + block.sizes.rows
    for t in range(m):
        block.at.position[first_intercept + t] = state.intercept[t]
    block.at.position[first_intercept + m] = state.log_tau[0]
    for k in range(block.sizes.rows):
        block.at.position[first_scale + k] = state.log_scales[block.rows[k]] - state.log_tau[0]
    _fill_fixed(data, rows, state, block)
    for t in range(m):
        for n in range(offsets[t], offsets[t + 1]):
            block.following[n] = data.predictors[n] - block.fixed[n] - state.intercept[t]
    for f in range(block.sizes.features):
        place, i = block.places[f], block.features[f]
        shrink = math.exp(-state.log_scales[block.rows[place]])
        for t in range(m):
            block.at.position[f * m + t] = state.W[t, i] * shrink
            for n in range(offsets[t], offsets[t + 1]):
                block.following[n] -= state.W[t, i] * block.design[f, n]


@inner(error_model="numpy")
def _fill_fixed(data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock) -> None:
    """Part of the shared means."""
    for n in range(len(block.fixed)):
        block.fixed[n] = 0.0
    for i in range(len(state.mean)):
        if state.mean[i] != 0.0:
            for t in range(len(state.W)):
                if rows.present[t, i]:
                    for n in range(data.offsets[t], data.offsets[t + 1]):
                        block.fixed[n] += state.mean[i] * data.design[i, n]


@inner(error_model="numpy")
def write_state(data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock, m: int) -> None:
    """Put the state where the path ended."""
    first_scale = block.sizes.features * m
    first_intercept = first_scale + block.sizes.rows
    log_tau = block.at.position[first_intercept + m]
    shift = log_tau - state.log_tau[0]
    factor = math.exp(shift)
    state.log_tau[0] = log_tau
    for row in range(len(rows.sizes)):
        if block.is_active[row] == 0 and shift != 0.0:
            state.log_scales[row] += shift
            for place in range(rows.starts[row], rows.starts[row + 1]):
                for t in range(m):
                    state.W[t, rows.members[place]] *= factor
    for k in range(block.sizes.rows):
        state.log_scales[block.rows[k]] = block.at.position[first_scale + k] + log_tau
    for f in range(block.sizes.features):
        place = block.places[f]
        scale = math.exp(state.log_scales[block.rows[place]])
        for t in range(m):
            state.W[t, block.features[f]] = scale * block.at.position[f * m + t]
    for t in range(m):
        state.intercept[t] = block.at.position[first_intercept + t]
    for n in range(len(data.predictors)):
        data.predictors[n] = block.predictors[n]


@njit(cache=True, nogil=True, error_model="numpy")
def block_density(data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock) -> float:
    """Log-density at the position, whose slope is filled in; the state is where the path began."""
    m, log_tau = len(state.W), state.log_tau[0]
    first_scale = block.sizes.features * m
    first_intercept = first_scale + block.sizes.rows
    x = block.at.position[first_intercept + m]
    _fill_predictors(data, block, m, math.exp(x - log_tau))
    value = fill_likelihood(data, state, block.predictors, block.scores)
    value += _add_coefficients(data, rows, state, block, x) - 0.5 * (x - prior.log_global_scale) ** 2
    slope_x = math.exp(x - log_tau) * dot(block.following, block.scores) - (x - prior.log_global_scale)
    exponent, shapes = beta_prime_power(prior, state.inverse_q[0]), prior.spike_shape + prior.tail_shape
    for k in range(first_scale, first_intercept):
        slope_x += block.at.slope[k]
        if not prior.low <= block.at.position[k] + x <= prior.high:
            return -np.inf
        if not prior.log_uniform:
            y = exponent * block.at.position[k]
            value += prior.spike_shape * y - shapes * softplus(y)
            block.at.slope[k] += exponent * (prior.spike_shape - shapes / (1.0 + math.exp(-y)))
    block.at.slope[first_intercept + m] = slope_x
    position, slope = block.at.position[first_intercept:], block.at.slope[first_intercept:]
    return value + add_intercepts(data, prior, block.scores, position, slope)


_follow_path = path_follower(block_density)


@inner(error_model="numpy")
def add_intercepts(
    data: Observed, prior: GibbsPrior, scores: FloatArray, position: FloatArray, slope: FloatArray
) -> float:
    """Log-prior of the intercepts, which are the first coordinates given; their slopes are filled in."""
    value = 0.0
    for t in range(len(data.offsets) - 1):
        slope[t] = 0.0
        for n in range(data.offsets[t], data.offsets[t + 1]):
            slope[t] += scores[n]
        if prior.intercept_variance > 0.0:
            value -= 0.5 * position[t] * position[t] / prior.intercept_variance
            slope[t] -= position[t] / prior.intercept_variance
    return value


@inner(error_model="numpy")
def _fill_predictors(data: Observed, block: ActiveBlock, m: int, factor: float) -> None:
    """Linear predictors at the position."""
    first_scale = block.sizes.features * m
    first_intercept, predictors = first_scale + block.sizes.rows, block.predictors
    x = block.at.position[first_intercept + m]
    for t in range(m):
        b = block.at.position[first_intercept + t]
        for n in range(data.offsets[t], data.offsets[t + 1]):
            predictors[n] = b + block.fixed[n] + factor * block.following[n]
    for f in range(block.sizes.features):
        place, feature = block.places[f], block.design[f]
        scale = math.exp(block.at.position[first_scale + place] + x)
        for t in range(m):
            w = scale * block.at.position[f * m + t]
            for n in range(data.offsets[t], data.offsets[t + 1]):
                predictors[n] += w * feature[n]


@inner(error_model="numpy")
def fill_likelihood(data: Observed, state: GibbsState, predictors: FloatArray, scores: FloatArray) -> float:
    """Log-likelihood of the predictors, and its derivatives."""
    if data.form == MULTINOMIAL:
        return fill_softmax_scores(data, predictors, scores)
    value = 0.0
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            target, weight, eta = data.targets[n], data.weights[n], predictors[n] + data.shifts[n]
            own, scores[n] = log_density_and_score(data.form, weight, target, eta, noise_precision, data.parameters[t])
            value += own
    return value


@inner(error_model="numpy")
def _add_coefficients(data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock, x: float) -> float:
    """``-sum |z|^q``; slopes of all z, and what the likelihood adds to those of the scales."""
    m, inverse_q, value = len(state.W), state.inverse_q[0], 0.0
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    first_scale = block.sizes.features * m
    for k in range(block.sizes.rows):
        block.at.slope[first_scale + k] = 0.0
    for f in range(block.sizes.features):
        k, feature = first_scale + block.places[f], block.design[f]
        scale = math.exp(block.at.position[k] + x)
        for t in range(m):
            z, d = block.at.position[f * m + t], f * m + t
            block.at.slope[d] = 0.0
            if rows.present[t, block.features[f]]:
                start, stop = data.offsets[t], data.offsets[t + 1]
                pull = scale * dot(feature[start:stop], block.scores[start:stop])
                block.at.slope[k] += pull * z
                block.at.slope[d] = pull
                if norm_q < np.inf and z != 0.0:
                    power = power_of(abs(z), norm_q)
                    value -= power
                    block.at.slope[d] -= norm_q * power / z
    return value


@inner(error_model="numpy")
def tune_block(
    data: Observed,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    block: ActiveBlock,
    acceptance: float,
    number: int,
    tune: int,
) -> None:
    """Learn from a sweep."""
    if acceptance >= 0.0:
        follow_acceptance(block.step_size, acceptance)
        read_state(data, rows, state, block)
        _add_to_moments(block, n_coordinates(block, len(state.W)))
    for share in CHOICES:
        if number == max(int(share * tune), 1):
            choose_rows(data, rows, prior, state, block)
    for share in SCALINGS:
        if number == int(share * tune) and block.sizes.states >= LEAST_STATES:
            _scale_coordinates(block, n_coordinates(block, len(state.W)))
    if number == tune:
        keep_step(block.step_size)


@inner(error_model="numpy")
def choose_rows(data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock) -> None:
    """Make the rows active of which the data know most, as many as there is room for; steps are tuned anew."""
    fill_block(data, rows, prior, block, np.argsort(-state.information))
    _restart_block(block, math.log(FIRST_STEP))


@inner(error_model="numpy")
def fill_block(data: Observed, rows: RowMap, prior: GibbsPrior, block: ActiveBlock, order: IntArray) -> None:
    """Make the first rows in an order active, as many as there is room for."""
    m, n_features, n_rows = len(rows.present), 0, 0
    for row in range(len(rows.sizes)):
        block.is_active[row] = 0
    for row in order:
        if n_features + rows.starts[row + 1] - rows.starts[row] > len(block.features):
            break
        block.is_active[row] = 1
        block.rows[n_rows] = row
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            block.features[n_features] = i
            block.places[n_features] = n_rows
            for n in range(len(data.targets)):
                block.design[n_features, n] = data.design[i, n]
            for t in range(m):
                block.at.variance[n_features * m + t] = FIRST_VARIANCE if rows.present[t, i] else 0.0
            n_features += 1
        n_rows += 1
    block.sizes.features, block.sizes.rows = n_features, n_rows
    first_intercept = n_features * m + n_rows
    for d in range(n_features * m, first_intercept):
        block.at.variance[d] = FIRST_VARIANCE
    for t in range(m):
        block.at.variance[first_intercept + t] = FIRST_VARIANCE if prior.intercept_variance > 0.0 else 0.0
    block.at.variance[first_intercept + m] = FIRST_VARIANCE if prior.learn_global_scale else 0.0


@inner(error_model="numpy")
def _restart_block(block: ActiveBlock, log_step: float) -> None:
    """Forget the moments, and begin from a step size."""
    block.sizes.states = 0
    for d in range(block.moments.shape[1]):
        block.moments[0, d] = block.moments[1, d] = 0.0
    restart_step(block.step_size, log_step)


@inner(error_model="numpy")
def _add_to_moments(block: ActiveBlock, size: int) -> None:
    block.sizes.states += 1
    for d in range(size):
        difference = block.at.position[d] - block.moments[0, d]
        block.moments[0, d] += difference / block.sizes.states
        block.moments[1, d] += difference * (block.at.position[d] - block.moments[0, d])


@inner(error_model="numpy")
def _scale_coordinates(block: ActiveBlock, size: int) -> None:
    """Variances from the moments, drawn a little to what they were; the step size begins anew."""
    count = block.sizes.states
    for d in range(size):
        if block.at.variance[d] > 0.0:
            block.at.variance[d] = (block.moments[1, d] + 5.0 * min(block.at.variance[d], 1e-2)) / (count + 4.0)
    _restart_block(block, math.log(2.0 * FIRST_STEP))
