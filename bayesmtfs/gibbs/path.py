r"""Hamiltonian steps at q = 2 on all coefficients, intercepts, the global scale and a common scale of leading rows.

Given the Polya-Gamma precisions of labels, predictors stay near where they are, and with them the size of all effects
together: the slowest number of a posterior with more features than observations. Here the precisions are integrated
out. With ``z = sqrt(2) w / rho`` of the active rows, v of the others (below), ``x = ln tau``, and c the logarithm of a
factor of the scales of the leading rows, which are the active ones that the data know well,

    eta = b + X diag(rho) z / sqrt(2) + e^(x - x_0) (L v + u),
    ln p = sum ln p(y | eta) - (|z|^2 + |v|^2) / 2 + sum_leading ln p(l_0 + c - x) + ln p(x) + ln p(b)

up to a constant. rho is ``e^(l_0 + c)`` in leading rows; in all others ``rho / tau`` stays. u is the part of rows that do
not move. The relations of the scales to each other are left to `features`: scales of rows that are now
relevant and now not are what makes other Hamiltonian paths (`block`) take small steps.

Variances of the coordinates are ``1 / (1 + curvature)``, with the curvature of the likelihood for the mean precisions
at the mean levels of c and x, found while the sampler is tuned; a path changes nothing that they depend on. The larger
x, the steeper the likelihood is in v, so that the step size is drawn anew for every path.

**Active rows.** Among thousands of features many may stand for another, each for some part of the time, and only
together can they change places. So rows are made active by chance, anew in every sweep, whatever the state: first those
of which the data know most, a third of all that there is room for, and then others with probabilities that grow with
what the data know of them (draws without replacement by exponential keys, Efraimidis and Spirakis 2006). These weights,
the leading rows, the mean precisions and levels and the step size are found while the sampler is tuned, and then stay.

**Other rows** move together in as many directions as there are observations: thousands of small coefficients are known
to the data by their sums alone. With z of the rows that are not active, standard normal a priori, and
``B = X diag(rho) / sqrt(2)`` of a task with n observations, their part of the predictors is ``B z``. Let
``K = B B' = L L'`` (Cholesky). The n rows of ``Q = L^-1 B`` are orthonormal, so that in

    z = Q'v + (the part of z in the null space of B),   B z = L v,   v = Q z,

v is standard normal and independent of that part: v may move as any other coordinate, and a path costs what n numbers
cost. Afterwards w moves by ``diag(rho^2 / 2) X' L^-T`` times the change of v. The rows follow the global scale,
``rho / tau`` stays, so that at another tau L is multiplied by a number. Rows with ``rho < LEAST_REST tau`` contribute
next to nothing, and their z stay. That is a condition on what a path does not change; so is the set of active rows.
Pivots of the factorisation that are 0 up to rounding are left out with their direction.

References
----------
R. M. Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5.
P. S. Efraimidis, P. G. Spirakis (2006), Weighted random sampling with a reservoir, Information Processing Letters
97:181-185.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.gibbs.block import (
    STEP_SIZE,
    ActiveBlock,
    Coordinates,
    Record,
    add_intercepts,
    fill_block,
    fill_likelihood,
    follow_acceptance,
    keep_step,
    new_coordinates,
    new_record,
    path_follower,
    read_state,
    restart_step,
)
from bayesmtfs.gibbs.distributions import dot, softplus, weighted_square
from bayesmtfs.gibbs.scales import beta_prime_power
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, Observed, RowMap
from bayesmtfs.types import FloatArray, IntArray

LONGEST_PATH = 6.0  # in standard deviations
LEAST_STEP, STEP_RANGE = 0.4, 0.8  # a step is this much of the tuned one, and up to so much more
SCALE_VARIANCE = 0.1  # of x and c
PATH_MEANS = [("leading", "f8"), ("log_tau", "f8"), ("sweeps", "f8")]
LEADING_CHOICES = (0.1, 0.3, 0.6)  # shares of the tuning after which leading rows are chosen anew
ALWAYS_ACTIVE = 3  # one row in so many that there is room for
LEADING = 1.0  # least relevance of a leading row
KNOWN = 1.0  # ln of the data's precision over the prior's, from which on a row counts as relevant
LEAST_WEIGHT = 0.02
FIRST_PATH_STEP = 0.2
MEMORY, LONG_MEMORY = 200.0, 1000.0  # sweeps over which means and relevance are averaged
LEAST_REST = 2.0  # of tau
LEAST_PIVOT = 1e-8  # of the diagonal


class OtherRows(NamedTuple):
    """Features that move, and the factor of their covariance."""

    size: IntArray  # (1,) features that move
    features: IntArray  # (p,)
    factor: FloatArray  # (N, K) L of each task, K observations of the largest
    moved: FloatArray  # (N,) L v
    first: FloatArray  # (N,) v before a path


class WidePath(NamedTuple):
    """Arrays over the coordinates: z of each active feature and task, v of each observation, b, c, and x."""

    step_size: Record
    means: Record  # of ln rho of the leading rows and ln tau, over so many sweeps
    leading: IntArray  # (R,) 1 or 0; rows that are not active do not lead
    weights: FloatArray  # (R,) by which rows are made active; inf: always
    curvatures: FloatArray  # (R,) ln of the mean precision with which the data determine a coefficient of the row
    relevance: FloatArray  # (R,) what the data know of a row beyond the prior, averaged while tuned
    precisions: FloatArray  # (N,) mean precisions of the observations
    at: Coordinates
    factors: FloatArray  # (F,) rho / sqrt(2) of the active features at the position
    rest: OtherRows


def path_for(data: Observed, rows: RowMap, block: ActiveBlock) -> WidePath:
    """Allocate."""
    m, count, n_features = len(data.offsets) - 1, len(data.targets), len(block.features)
    n_coordinates = n_features * m + count + m + 2
    return WidePath(
        step_size=new_record(STEP_SIZE),
        means=new_record(PATH_MEANS),
        leading=np.zeros(len(rows.sizes), dtype=np.int64),
        weights=np.ones(len(rows.sizes)),
        curvatures=np.zeros(len(rows.sizes)),
        relevance=np.zeros(len(rows.sizes)),
        precisions=np.zeros(count),
        at=new_coordinates(n_coordinates),
        factors=np.zeros(n_features),
        rest=rest_for(data),
    )


def rest_for(data: Observed) -> OtherRows:
    """Allocate."""
    (p, count), longest = data.design.shape, int(np.diff(data.offsets).max())
    size, features = np.zeros(1, dtype=np.int64), np.zeros(p, dtype=np.int64)
    return OtherRows(size, features, np.zeros((count, longest)), np.zeros(count), np.zeros(count))


@inner(error_model="numpy")
def prepare_path(
    data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock, path: WidePath
) -> None:
    """Before paths with new active rows, or after the scales of other rows have moved, except with tau."""
    choose_rest(rows, prior, state, block.is_active, path.rest)
    fill_factor(data, rows, state, path.rest)


@inner(error_model="numpy")
def step_along_path(
    rng: Generator,
    data: Observed,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    block: ActiveBlock,
    path: WidePath,
) -> float:
    """Follow one path and accept or refuse where it ends; the predictors of ``data`` follow. Its acceptance rate."""
    read_path(data, rows, state, block, path)
    fill_variances(data, rows, prior, state, block, path)
    size = first_intercept(block, len(state.W)) + len(state.W) + 2
    step = math.exp(path.step_size.log_step) * (LEAST_STEP + STEP_RANGE * rng.random())
    problem = (data, prior, state, block, path)
    accepted, rate = _follow_path(rng, problem, path.at, size, 0, step, LONGEST_PATH)
    if accepted:
        write_path(data, rows, state, block, path)
    return rate


@inner(error_model="numpy")
def first_intercept(block: ActiveBlock, m: int) -> int:
    """Place of the first intercept among the coordinates, after z and v; c and x come after the intercepts."""
    place: int = block.sizes.features * m + len(block.predictors)
    return place


@inner(error_model="numpy")
def read_path(data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock, path: WidePath) -> None:
    """Coordinates of the state, and the parts of the predictors that do not move by themselves."""
    m = len(state.W)
    first_v, first_b = block.sizes.features * m, first_intercept(block, m)
    read_state(data, rows, state, block)
    for d in range(first_v):
        path.at.position[d] = math.sqrt(2.0) * block.at.position[d]
    whiten(data, state, path.rest, path.at.position[first_v:first_b])
    for n in range(len(block.following)):
        block.following[n] -= path.rest.moved[n]
    for t in range(m):
        path.at.position[first_b + t] = state.intercept[t]
    path.at.position[first_b + m] = 0.0
    path.at.position[first_b + m + 1] = state.log_tau[0]


@inner(error_model="numpy")
def leading_level(state: GibbsState, block: ActiveBlock, path: WidePath) -> tuple[int, float]:
    """Number of leading rows, and the mean logarithm of their scales."""
    count, total = 0, 0.0
    for k in range(block.sizes.rows):
        if path.leading[block.rows[k]] == 1:
            count += 1
            total += state.log_scales[block.rows[k]]
    return count, total / max(count, 1)


@inner(error_model="numpy")
def fill_variances(
    data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock, path: WidePath
) -> None:
    """Variances of all coordinates, the scales moved to their mean levels first."""
    m, offsets, precisions = len(state.W), data.offsets, path.precisions
    count, level = leading_level(state, block, path)
    to_leading = path.means.leading - level
    to_others = path.means.log_tau - state.log_tau[0]
    for f in range(block.sizes.features):
        row = block.rows[block.places[f]]
        scale = math.exp(state.log_scales[row] + (to_leading if path.leading[row] == 1 else to_others))
        for t in range(m):
            start, stop = offsets[t], offsets[t + 1]
            curvature = 0.5 * scale * scale * weighted_square(block.design[f, start:stop], precisions[start:stop])
            path.at.variance[f * m + t] = 1.0 / (1.0 + curvature) if rows.present[t, block.features[f]] else 0.0
    first_b = first_intercept(block, m)
    _fill_rest_variances(data, path, path.at.variance[block.sizes.features * m : first_b], to_others)
    for t in range(m):
        path.at.variance[first_b + t] = 0.0
        if prior.intercept_variance > 0.0:
            total = 1.0 / prior.intercept_variance
            for n in range(offsets[t], offsets[t + 1]):
                total += precisions[n]
            path.at.variance[first_b + t] = 1.0 / total
    path.at.variance[first_b + m] = SCALE_VARIANCE if count > 0 else 0.0
    path.at.variance[first_b + m + 1] = SCALE_VARIANCE if prior.learn_global_scale else 0.0


@inner(error_model="numpy")
def _fill_rest_variances(data: Observed, path: WidePath, variance: FloatArray, to_mean: float) -> None:
    """Variances of v; 0 where a direction is left out."""
    factor, scale = path.rest.factor, math.exp(2.0 * to_mean)
    for n in range(len(variance)):
        variance[n] = 0.0
    for t in range(len(data.offsets) - 1):
        start, stop = data.offsets[t], data.offsets[t + 1]
        for n in range(start, stop):
            weight = scale * path.precisions[n]
            for k in range(n - start + 1):
                variance[start + k] += weight * factor[n, k] * factor[n, k]
        for n in range(start, stop):
            variance[n] = 1.0 / (1.0 + variance[n]) if factor[n, n - start] > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def path_density(data: Observed, prior: GibbsPrior, state: GibbsState, block: ActiveBlock, path: WidePath) -> float:
    """Log-density at the position, whose slope is filled in; the state is where the path began."""
    m, scores, log_tau = len(state.W), block.scores, state.log_tau[0]
    first_v, first_b = block.sizes.features * m, first_intercept(block, m)
    c, x = path.at.position[first_b + m], path.at.position[first_b + m + 1]
    _fill_path_predictors(data, state, block, path)
    value = fill_likelihood(data, state, block.predictors, scores)
    factor, slope_c, slope_x = math.exp(x - log_tau), 0.0, prior.log_global_scale - x
    value -= 0.5 * slope_x * slope_x
    slope_x += factor * (dot(block.following, scores) + dot(path.rest.moved, scores))
    for f in range(block.sizes.features):
        along = 0.0
        for t in range(m):
            start, stop, d = data.offsets[t], data.offsets[t + 1], f * m + t
            pull = path.factors[f] * dot(block.design[f, start:stop], scores[start:stop])
            path.at.slope[d] = pull
            along += pull * path.at.position[d]
        if path.leading[block.rows[block.places[f]]] == 1:
            slope_c += along
        else:
            slope_x += along
    gather(data, path.rest, scores, factor, path.at.slope[first_v:first_b])
    for d in range(first_b):
        value -= 0.5 * path.at.position[d] * path.at.position[d]
        path.at.slope[d] -= path.at.position[d]
    scales, pull = _leading_prior(prior, state, block, path, c, x)
    path.at.slope[first_b + m], path.at.slope[first_b + m + 1] = slope_c + pull, slope_x - pull
    return value + scales + add_intercepts(data, prior, scores, path.at.position[first_b:], path.at.slope[first_b:])


_follow_path = path_follower(path_density)


@inner(error_model="numpy")
def _fill_path_predictors(data: Observed, state: GibbsState, block: ActiveBlock, path: WidePath) -> None:
    """Linear predictors at the position, and the factors of the active features."""
    m, offsets, predictors = len(state.W), data.offsets, block.predictors
    first_v, first_b = block.sizes.features * m, first_intercept(block, m)
    c, shift = path.at.position[first_b + m], path.at.position[first_b + m + 1] - state.log_tau[0]
    spread(data, path.rest, path.at.position[first_v:first_b])
    factor = math.exp(shift)
    for t in range(m):
        b = path.at.position[first_b + t]
        for n in range(offsets[t], offsets[t + 1]):
            predictors[n] = b + block.fixed[n] + factor * (block.following[n] + path.rest.moved[n])
    for f in range(block.sizes.features):
        row, feature = block.rows[block.places[f]], block.design[f]
        path.factors[f] = math.sqrt(0.5) * math.exp(state.log_scales[row] + (c if path.leading[row] == 1 else shift))
        for t in range(m):
            w = path.factors[f] * path.at.position[f * m + t]
            for n in range(offsets[t], offsets[t + 1]):
                predictors[n] += w * feature[n]


@inner(error_model="numpy")
def _leading_prior(
    prior: GibbsPrior, state: GibbsState, block: ActiveBlock, path: WidePath, c: float, x: float
) -> tuple[float, float]:
    """Log-prior of the scales of leading rows, and its derivative with respect to c."""
    exponent, shapes = beta_prime_power(prior, 0.5), prior.spike_shape + prior.tail_shape
    value, pull = 0.0, 0.0
    for k in range(block.sizes.rows):
        row = block.rows[k]
        if path.leading[row] == 1:
            if not prior.low <= state.log_scales[row] + c <= prior.high:
                return -np.inf, 0.0
            if not prior.log_uniform:
                y = exponent * (state.log_scales[row] + c - x)
                value += prior.spike_shape * y - shapes * softplus(y)
                pull += exponent * (prior.spike_shape - shapes / (1.0 + math.exp(-y)))
    return value, pull


@inner(error_model="numpy")
def write_path(data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock, path: WidePath) -> None:
    """Put the state where the path ended."""
    m = len(state.W)
    first_v, first_b = block.sizes.features * m, first_intercept(block, m)
    move_rest(data, rows, state, path.rest, path.at.position[first_v:first_b])
    c, shift = path.at.position[first_b + m], path.at.position[first_b + m + 1] - state.log_tau[0]
    factor = math.exp(shift)
    scale_factor(path.rest, factor)
    state.log_tau[0] += shift
    for row in range(len(rows.sizes)):
        state.log_scales[row] += c if path.leading[row] == 1 and block.is_active[row] == 1 else shift
        if block.is_active[row] == 0:
            for place in range(rows.starts[row], rows.starts[row + 1]):
                for t in range(m):
                    state.W[t, rows.members[place]] *= factor
    for f in range(block.sizes.features):
        for t in range(m):
            state.W[t, block.features[f]] = path.factors[f] * path.at.position[f * m + t]
    for t in range(m):
        state.intercept[t] = path.at.position[first_b + t]
    for n in range(len(data.predictors)):
        data.predictors[n] = block.predictors[n]


@inner(error_model="numpy")
def tune_path(
    data: Observed,
    rows: RowMap,
    state: GibbsState,
    block: ActiveBlock,
    path: WidePath,
    acceptance: float,
    number: int,
    tune: int,
) -> None:
    """Learn from a sweep, once the precisions of the observations are drawn."""
    for choice in LEADING_CHOICES:
        if number == max(int(choice * tune), 1):
            _fill_row_curvatures(data, rows, path)
            weigh_rows(block, path)
            choose_leading(block, path)
    path.means.sweeps += 1.0
    share = 1.0 / min(path.means.sweeps, MEMORY)
    for n in range(len(path.precisions)):
        path.precisions[n] += share * (data.precisions[n] - path.precisions[n])
    _, level = leading_level(state, block, path)
    path.means.leading += share * (level - path.means.leading)
    path.means.log_tau += share * (state.log_tau[0] - path.means.log_tau)
    for row in range(len(path.relevance)):
        known = path.curvatures[row] + 2.0 * state.log_scales[row] - math.log(2.0)
        path.relevance[row] += (max(known - KNOWN, 0.0) - path.relevance[row]) / min(0.5 * number + 1.0, LONG_MEMORY)
    if acceptance >= 0.0:
        follow_acceptance(path.step_size, acceptance)
    if number == tune:
        weigh_rows(block, path)
        keep_step(path.step_size)


@inner(error_model="numpy")
def _fill_row_curvatures(data: Observed, rows: RowMap, path: WidePath) -> None:
    """Mean precision of the coefficients of each row, as a logarithm."""
    for row in range(len(rows.sizes)):
        total = 1e-300
        for place in range(rows.starts[row], rows.starts[row + 1]):
            total += weighted_square(data.design[rows.members[place]], data.precisions)
        path.curvatures[row] = math.log(total / max(rows.sizes[row], 1.0))


@inner(error_model="numpy")
def weigh_rows(block: ActiveBlock, path: WidePath) -> None:
    """Rows that are always active, and weights of all others."""
    room = len(block.rows) // ALWAYS_ACTIVE
    order = np.argsort(-path.relevance)
    for place in range(len(order)):
        row = order[place]
        path.weights[row] = np.inf if place < room else path.relevance[row] + LEAST_WEIGHT


@inner(error_model="numpy")
def choose_leading(block: ActiveBlock, path: WidePath) -> None:
    """Rows that lead; means and the step size begin anew."""
    for row in range(len(path.leading)):
        path.leading[row] = 1 if path.weights[row] == np.inf and path.relevance[row] > LEADING else 0
    path.means.sweeps = 0.0
    restart_step(path.step_size, math.log(FIRST_PATH_STEP))


@inner(error_model="numpy")
def redraw_rows(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, block: ActiveBlock, path: WidePath
) -> None:
    """Make rows active by chance."""
    keys = np.empty(len(path.weights))
    for row in range(len(keys)):
        keys[row] = rng.standard_exponential() / path.weights[row]
    fill_block(data, rows, prior, block, np.argsort(keys))


@inner(error_model="numpy")
def choose_rest(rows: RowMap, prior: GibbsPrior, state: GibbsState, is_active: IntArray, rest: OtherRows) -> None:
    """Features of rows that are neither active nor too small to matter."""
    count, least = 0, state.log_tau[0] + math.log(LEAST_REST)
    for row in range(len(rows.sizes)):
        if is_active[row] == 0 and (prior.log_uniform or state.log_scales[row] > least):
            for place in range(rows.starts[row], rows.starts[row + 1]):
                rest.features[count] = rows.members[place]
                count += 1
    rest.size[0] = count


@inner(error_model="numpy")
def fill_factor(data: Observed, rows: RowMap, state: GibbsState, rest: OtherRows) -> None:
    """``L`` of every task at the scales of the state."""
    offsets, design, features, count = data.offsets, data.design, rest.features, rest.size[0]
    variances = np.empty(count)
    for t in range(len(state.W)):
        start, stop = offsets[t], offsets[t + 1]
        for f in range(count):
            variances[f] = 0.0
            if rows.present[t, features[f]]:
                variances[f] = 0.5 * math.exp(2.0 * state.log_scales[rows.row_of_feature[features[f]]])
        K = rest.factor[start:stop, : stop - start]
        for n in range(stop - start):
            for k in range(stop - start):
                K[n, k] = 0.0
        for f in range(0, count - count % 4, 4):
            a, b, c, d = features[f], features[f + 1], features[f + 2], features[f + 3]
            first, second = design[a, start:stop], design[b, start:stop]
            _add_four(K, first, second, design[c, start:stop], design[d, start:stop], variances[f:])
        for f in range(count - count % 4, count):
            _add_one(K, design[features[f], start:stop], variances[f])
        _factorise_rest(K)


@inner(error_model="numpy")
def scale_factor(rest: OtherRows, factor: float) -> None:
    """``L`` after the rows have followed the global scale."""
    for n in range(rest.factor.shape[0]):
        for k in range(rest.factor.shape[1]):
            rest.factor[n, k] *= factor


@inner(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _add_four(K: FloatArray, a: FloatArray, b: FloatArray, c: FloatArray, d: FloatArray, variances: FloatArray) -> None:
    """Lower part of ``K + s a a' + ...`` of four features."""
    for n in range(len(a)):
        first, second = variances[0] * a[n], variances[1] * b[n]
        third, fourth = variances[2] * c[n], variances[3] * d[n]
        line = K[n]
        for k in range(n + 1):
            line[k] += first * a[k] + second * b[k] + third * c[k] + fourth * d[k]


@inner(error_model="numpy")
def _add_one(K: FloatArray, a: FloatArray, variance: float) -> None:
    for n in range(len(a)):
        for k in range(n + 1):
            K[n, k] += variance * a[n] * a[k]


@inner(error_model="numpy")
def _factorise_rest(K: FloatArray) -> None:
    """Cholesky factor in place of the lower part; a column is 0 where its pivot is 0 up to rounding."""
    for n in range(len(K)):
        diagonal = K[n, n]
        for k in range(n):
            K[n, k] = (K[n, k] - dot(K[n, :k], K[k, :k])) / K[k, k] if K[k, k] > 0.0 else 0.0
        pivot = diagonal - dot(K[n, :n], K[n, :n])
        K[n, n] = math.sqrt(pivot) if pivot > LEAST_PIVOT * diagonal else 0.0


@inner(error_model="numpy")
def whiten(data: Observed, state: GibbsState, rest: OtherRows, v: FloatArray) -> None:
    """``v`` of the state, and ``L v``; 0 where a direction is left out."""
    offsets = data.offsets
    for t in range(len(state.W)):
        start, stop = offsets[t], offsets[t + 1]
        for n in range(start, stop):
            v[n] = 0.0
        for f in range(rest.size[0]):
            i = rest.features[f]
            w, x = state.W[t, i], data.design[i]
            for n in range(start, stop):
                v[n] += w * x[n]
        L = rest.factor[start:stop]
        for n in range(stop - start):
            value = v[start + n] - dot(L[n, :n], v[start : start + n])
            v[start + n] = value / L[n, n] if L[n, n] > 0.0 else 0.0
    for n in range(len(v)):
        rest.first[n] = v[n]
    spread(data, rest, v)


@inner(error_model="numpy")
def spread(data: Observed, rest: OtherRows, v: FloatArray) -> None:
    """``L v`` of all tasks into ``rest.moved``."""
    for t in range(len(data.offsets) - 1):
        start, stop = data.offsets[t], data.offsets[t + 1]
        for n in range(stop - start):
            rest.moved[start + n] = dot(rest.factor[start + n, : n + 1], v[start : start + n + 1])


@inner(error_model="numpy")
def gather(data: Observed, rest: OtherRows, scores: FloatArray, factor: float, slope: FloatArray) -> None:
    """``factor L's`` of all tasks into ``slope``."""
    for t in range(len(data.offsets) - 1):
        start, stop = data.offsets[t], data.offsets[t + 1]
        for n in range(start, stop):
            slope[n] = 0.0
        for n in range(stop - start):
            score, line = factor * scores[start + n], rest.factor[start + n]
            for k in range(n + 1):
                slope[start + k] += score * line[k]


@inner(error_model="numpy")
def move_rest(data: Observed, rows: RowMap, state: GibbsState, rest: OtherRows, v: FloatArray) -> None:
    """Coefficients after v has changed, at the scales for which L was taken."""
    change = rest.first
    for t in range(len(state.W)):
        start, stop = data.offsets[t], data.offsets[t + 1]
        L = rest.factor[start:stop]
        for n in range(start, stop):
            change[n] = v[n] - change[n]
        for k in range(stop - start - 1, -1, -1):  # L' is solved from below, column by column
            change[start + k] = change[start + k] / L[k, k] if L[k, k] > 0.0 else 0.0
            for n in range(k):
                change[start + n] -= L[k, n] * change[start + k]
        for f in range(rest.size[0]):
            i = rest.features[f]
            if rows.present[t, i]:
                variance = 0.5 * math.exp(2.0 * state.log_scales[rows.row_of_feature[i]])
                state.W[t, i] += variance * dot(data.design[i, start:stop], change[start:stop])
