r"""Posterior under the prior with exact zeros (`bayesmtfs.priors.spike`) by a Gibbs sampler that draws whole rows.

One sweep:

1. hidden precisions of labels (`bayesmtfs.families.augmentation`), scores and intercepts;
2. every row given all others, with its slab, pattern and coefficients integrated out (`spike_row`): on or off, then all
   of it. Rows that were hardly ever on while steps were tuned are visited less often, with a probability that then stays;
3. locations: rows that are on, in random order, may move to a correlated feature. With N[i] the neighbours of i, itself
   included, an anchor a is drawn from N[i], row i is taken out, and a new place j among the rows of N[a] that are off with
   probability proportional to ``evidence_j / |N[j]|``: a Gibbs step on (place, anchor), without which chains stay
   with the feature that they found first;
4. weights of the slabs and patterns, rates of tasks, pi, alpha and the noise.

Targets are held by residuals. A task with more rows than features p is first reduced to p + 2 rows that have the same sums
``X'X, X'y, y'y`` (the triangle of a QR factorisation), so that a step on a row costs min(n, p) operations for every task,
and one design serves all tasks that share theirs.

References
----------
E. I. George, R. E. McCulloch (1997), Approaches for Bayesian variable selection, Statistica Sinica 7:339-373.
R. M. Neal (2000), Markov chain sampling methods for Dirichlet process mixture models, Journal of Computational and
Graphical Statistics 9:249-265.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator
from scipy.special import logsumexp

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NORMAL, draw_precision_and_score, log_density_and_score
from bayesmtfs.gibbs.chain import ChainSettings, Report, conditionally_normal, in_slices
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.gibbs.spike_row import (
    Nodes,
    Row,
    Slabs,
    Weights,
    choose,
    draw_row,
    exponentiate,
    log_bound,
    log_evidence,
    n_seated,
    nodes_for,
    row_space,
    slab_grid,
)
from bayesmtfs.gibbs.state import RowMap, rows_of
from bayesmtfs.priors.spike import SpikePrior
from bayesmtfs.types import BoolArray, FloatArray, IntArray

NEIGHBOUR = 0.3  # correlation from which on two features are neighbours
MOST_NEIGHBOURS = 15
MOVES = 1 / 3  # probability that a row that is on may move in a sweep
LEAST_VISITS = 0.15  # probability that a row is visited in a sweep
VISITS_PER_CHANCE = 10.0  # a row that is on with probability 0.1 is visited in every sweep
NEVER_OFF = -1e10  # logarithm of the probability that a task with rate 1 is off


class SpikeDraws(NamedTuple):
    """Draws of one chain; fewer than asked for where it was interrupted."""

    W: FloatArray  # (draws, p, m)
    included: BoolArray  # (draws, p, m)
    intercept: FloatArray  # (draws, m)
    noise: FloatArray  # (draws, m)
    inclusion_rate: FloatArray  # (draws,) pi
    log_likelihood: FloatArray  # (draws,)
    n_features: FloatArray  # (draws,) features that are on in some task
    interrupted: bool


class SpikeData(NamedTuple):
    """Data of all tasks by rows, and what the likelihood is at the present state."""

    design: FloatArray  # (p, columns)
    places: IntArray  # (m,) first column of each task's design
    ones: FloatArray  # (columns,) the column of the intercepts
    targets: FloatArray  # (N,)
    weights: FloatArray  # (N,)
    offsets: IntArray  # (m + 1,) first row of each task
    counts: FloatArray  # (m,) observations, by weight
    form: int  # `Augmentation.form`
    predictors: FloatArray  # (N,)
    precisions: FloatArray  # (N,)
    scores: FloatArray  # (N,) derivative of the log-likelihood in the predictors


class SpikeNumbers(NamedTuple):
    """The prior as numbers, and which features are neighbours."""

    slabs: Slabs
    pattern_rates: FloatArray
    task_rates: FloatArray
    log_task_rates: FloatArray
    concentrations: FloatArray
    rates: FloatArray
    log_rates: FloatArray
    log_odds: FloatArray  # of a row being on, given how many others are, pi integrated out
    n_left_out: int
    dirichlet: FloatArray  # (3,) of rho, C and omega
    noise_shape: float
    noise_rate: float
    learn_noise: bool
    shared_noise: bool
    intercept_precision: float  # of the prior; 0: no intercept
    neighbours: IntArray  # (R, k) rows
    n_neighbours: IntArray  # (R,)


class SpikeState(NamedTuple):
    """What changes from sweep to sweep, in place; single numbers are arrays of one."""

    W: FloatArray  # (p, m)
    patterns: BoolArray  # (R, m)
    on: BoolArray  # (R,)
    slab: IntArray  # (R,)
    table: IntArray  # (R,)
    table_rate: IntArray  # (T,) number of omega of each table
    weights: Weights
    task_rate: FloatArray  # (m,) kappa
    rate: FloatArray  # (1,) pi
    intercept: FloatArray  # (m,)
    noise: FloatArray  # (m,)
    chance: FloatArray  # (R,) sum of the probabilities of being on, while visits are tuned
    visits: FloatArray  # (R,) probability of a visit
    log_likelihood: FloatArray  # (1,)


class SpikeSpace(NamedTuple):
    """Space of a sweep."""

    row: Row
    nodes: Nodes
    order: IntArray  # (R,)
    numbers: FloatArray  # space for weights of a grid or of neighbours


class SpikeParts(NamedTuple):
    """All that a sweep reads and writes."""

    data: SpikeData
    rows: RowMap
    prior: SpikeNumbers
    state: SpikeState
    space: SpikeSpace


def sample_spike_chain(
    data: TaskData, prior: SpikePrior, settings: ChainSettings, family: Family, report: Report | None = None
) -> SpikeDraws:
    """Draw one chain.

    Parameters
    ----------
    data : observations in deviations within tasks, features and numeric targets centred there if there are intercepts
    prior : with every number known
    settings : lengths and seed
    family : a conditionally normal family
    report : called every now and then with the fraction of the sweeps that are done

    Examples
    --------
    >>> from bayesmtfs.families import Gaussian
    >>> from bayesmtfs.priors.spike import spike_prior_for
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = X @ [0.8, 0.0, 0.0] + 0.6 * rng.standard_normal(200)
    >>> data = TaskData.from_long(X - X.mean(axis=0), y - y.mean())
    >>> draws = sample_spike_chain(data, spike_prior_for(data, Gaussian()), ChainSettings(200, 100), Gaussian())
    >>> draws.included.mean(axis=0).ravel().round().tolist()
    [1.0, 0.0, 0.0]
    """
    conditionally_normal(data, family)
    rows, rng = rows_of(data), Generator(np.random.PCG64(settings.random_seed))
    observed = spike_data(data, family, prior.fit_intercept)
    numbers = spike_numbers(prior, family, observed, rows)
    state, kept = first_state(observed, numbers, rows), kept_for(settings.draws, rows)
    parts = SpikeParts(observed, rows, numbers, state, space_for(numbers, state, rows))
    done, interrupted = in_slices(partial(run, rng, parts, kept, settings.sweeps), settings, report)
    count = max(done // settings.sweeps - settings.tune, 0)
    arrays = {name: getattr(kept, name)[:count] for name in SpikeDraws._fields[:-1]}
    return SpikeDraws(**arrays, interrupted=interrupted)


# ---------------------------------------------------------------------- what a chain begins with


def spike_data(data: TaskData, family: Family, fit_intercept: bool) -> SpikeData:
    """Rows of all tasks, numeric targets reduced to at most p + 2 of them; one design if all tasks have the same rows."""
    form, weights = family.augmentation.form, np.asarray(data.weight, dtype=np.float64)
    y, spans = np.asarray(data.y, dtype=np.float64), data.spans
    alike = data.is_complete and bool(np.all(weights.reshape(data.n_tasks, -1) == weights[: spans[0][1]]))
    groups = [list(range(data.n_tasks))] if alike else [[t] for t in range(data.n_tasks)]
    designs, targets, places, column = [], [], [], 0
    for tasks in groups:
        start, stop = spans[tasks[0]]
        Z = np.column_stack([np.full(stop - start, float(fit_intercept)), data.task_designs[tasks[0]]])
        Y = np.column_stack([y[slice(*spans[t])] for t in tasks])
        if form == NORMAL:
            root = np.sqrt(weights[start:stop, np.newaxis])
            Z, Y = _reduced(root * Z, root * Y)
        designs.append(Z)
        targets += list(Y.T)
        places += [column] * len(tasks)
        column += len(Z)
    stacked, lengths = np.concatenate(designs).T, [len(part) for part in targets]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SpikeData(
        design=np.ascontiguousarray(stacked[1:]),
        places=np.array(places, dtype=np.int64),
        ones=np.ascontiguousarray(stacked[0]),
        targets=np.concatenate(targets),
        weights=np.ones(offsets[-1]) if form == NORMAL else weights,
        offsets=offsets,
        counts=data.task_weights,
        form=form,
        predictors=np.zeros(offsets[-1]),
        precisions=np.zeros(offsets[-1]),
        scores=np.zeros(offsets[-1]),
    )


def _reduced(Z: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fewer rows with the same sums of squares and products, one of them for what Z leaves of each column of Y."""
    if len(Z) <= Z.shape[1] + 1:
        return Z, Y
    Q, R = np.linalg.qr(Z)
    top = Q.T @ Y
    left = np.linalg.norm(Y - Q @ top, axis=0)
    return np.vstack([R, np.zeros(Z.shape[1])]), np.vstack([top, left])


def spike_numbers(prior: SpikePrior, family: Family, data: SpikeData, rows: RowMap) -> SpikeNumbers:
    """Prior as numbers."""
    if 0.0 not in prior.shares and len(rows.sizes) < len(data.design):
        raise ValueError(f"shares is {prior.shares}, but a group of features has independent effects; add 0.0")
    neighbours, n_neighbours = neighbours_of(data, rows)
    rates, log_rates = np.array(prior.inclusion_rates), np.log(np.maximum(prior.inclusion_weights, 1e-300))
    return SpikeNumbers(
        slabs=slab_grid(prior.scales, prior.shares),
        pattern_rates=np.array(prior.pattern_rates),
        task_rates=np.array(prior.task_rates),
        log_task_rates=np.log(prior.task_rate_weights),
        concentrations=np.array(prior.concentrations),
        rates=rates,
        log_rates=log_rates,
        log_odds=_log_odds(rates, log_rates, len(rows.sizes) + prior.n_left_out),
        n_left_out=prior.n_left_out,
        dirichlet=np.array([prior.scale_concentration, prior.share_concentration, prior.rate_concentration]),
        noise_shape=prior.noise_shape,
        noise_rate=prior.noise_rate,
        learn_noise=family.has_noise,
        shared_noise=prior.shared_noise,
        intercept_precision=prior.intercept_scale**-2.0 if prior.fit_intercept else 0.0,
        neighbours=neighbours,
        n_neighbours=n_neighbours,
    )


def _log_odds(rates: FloatArray, log_weights: FloatArray, n_rows: int) -> FloatArray:
    """(R,) ``ln E[pi^(k+1) (1 - pi)^(R-k-1)] - ln E[pi^k (1 - pi)^(R-k)]`` for k other rows that are on."""
    on = np.arange(n_rows + 1)[:, np.newaxis]
    with np.errstate(divide="ignore"):
        terms = log_weights + on * np.log(rates) + np.where(on < n_rows, (n_rows - on) * np.log1p(-rates), 0.0)
    return np.asarray(np.diff(logsumexp(terms, axis=1)))


def neighbours_of(data: SpikeData, rows: RowMap) -> tuple[IntArray, IntArray]:
    """Rows (R, k) that correlate with each row, itself first, and their numbers (R,); groups have none but themselves."""
    single = np.flatnonzero(np.diff(rows.starts) == 1)
    X = data.design[rows.members[rows.starts[single]]]
    X = X - np.outer(X @ data.ones, data.ones) / max(float(data.ones @ data.ones), 1e-300)
    length = np.linalg.norm(X, axis=1)
    X /= np.where(length > 0, length, 1.0)[:, np.newaxis]
    found: list[set[int]] = [{row} for row in range(len(rows.sizes))]
    for start in range(0, len(single), 500):
        likeness = np.abs(X[start : start + 500] @ X.T)
        nearest = np.argsort(-likeness, axis=1)[:, :MOST_NEIGHBOURS]
        for i, near in enumerate(nearest, start=start):
            for j in near[likeness[i - start, near] >= NEIGHBOUR]:
                found[single[i]].add(int(single[j]))
                found[single[j]].add(int(single[i]))
    counts = np.array([len(rows_near) for rows_near in found], dtype=np.int64)
    table = np.zeros((len(found), int(counts.max())), dtype=np.int64)
    for row, rows_near in enumerate(found):
        table[row, : counts[row]] = sorted(rows_near)
    return table, counts


def first_state(data: SpikeData, prior: SpikeNumbers, rows: RowMap) -> SpikeState:
    """All rows off, the noise that of the targets, and equal weights."""
    (R, m), p = (len(rows.sizes), len(data.counts)), len(data.design)
    slabs, n_rates = prior.slabs, len(prior.pattern_rates)
    weights = Weights(
        log_scale=np.full(slabs.scale.max() + 1, -math.log(slabs.scale.max() + 1)),
        log_share=np.full(slabs.share.max() + 1, -math.log(slabs.share.max() + 1)),
        log_rate=np.full(n_rates, -math.log(n_rates)),
        entry_rates=np.zeros((n_rates, m)),
        empty=np.zeros(n_rates),
        tables=np.zeros((R + 1, m), dtype=np.bool_),
        counts=np.zeros(R + 1, dtype=np.int64),
        n_tables=np.zeros(1, dtype=np.int64),
        log_concentration=np.log(
            prior.concentrations[len(prior.concentrations) // 2 : len(prior.concentrations) // 2 + 1]
        ),
    )
    squares = np.add.reduceat(data.targets**2, data.offsets[:-1])
    noise = np.sqrt((squares + 2.0 * prior.noise_rate) / (data.counts + 2.0 * prior.noise_shape))
    return SpikeState(
        W=np.zeros((p, m)),
        patterns=np.zeros((R, m), dtype=np.bool_),
        on=np.zeros(R, dtype=np.bool_),
        slab=np.zeros(R, dtype=np.int64),
        table=np.zeros(R, dtype=np.int64),
        table_rate=np.zeros(R + 1, dtype=np.int64),
        weights=weights,
        task_rate=np.full(m, prior.task_rates[-1]),
        rate=np.array([prior.rates[len(prior.rates) // 3]]),
        intercept=np.zeros(m),
        noise=noise if prior.learn_noise else np.ones(m),
        chance=np.zeros(R),
        visits=np.ones(R),
        log_likelihood=np.zeros(1),
    )


def space_for(prior: SpikeNumbers, state: SpikeState, rows: RowMap) -> SpikeSpace:
    """Allocate."""
    nodes = nodes_for(len(prior.slabs.scale), len(prior.pattern_rates), len(state.weights.counts))
    longest = max(prior.neighbours.shape[1], len(prior.rates), len(prior.concentrations), len(prior.task_rates))
    longest = max(longest, len(prior.pattern_rates), len(prior.slabs.scale))
    row = row_space(len(state.intercept), int(np.diff(rows.starts).max()))
    return SpikeSpace(row, nodes, np.zeros(len(rows.sizes), dtype=np.int64), np.zeros(longest))


def kept_for(draws: int, rows: RowMap) -> SpikeDraws:
    """Allocate."""
    m, p = rows.present.shape
    return SpikeDraws(
        W=np.zeros((draws, p, m)),
        included=np.zeros((draws, p, m), dtype=np.bool_),
        intercept=np.zeros((draws, m)),
        noise=np.zeros((draws, m)),
        inclusion_rate=np.zeros(draws),
        log_likelihood=np.zeros(draws),
        n_features=np.zeros(draws),
        interrupted=False,
    )


# ---------------------------------------------------------------------- the sweep


@njit(cache=True, nogil=True, error_model="numpy")
def run(rng: Generator, parts: SpikeParts, kept: SpikeDraws, sweeps: int, first: int, stop: int, tune: int) -> None:
    """Sweeps ``first`` to ``stop - 1``; one of ``sweeps`` from ``tune`` on is kept, before that visits are tuned."""
    data, rows, prior, state, space = parts
    for number in range(first, stop):
        fill_rates(prior, state)
        fill_predictors(data, state)
        fill_scores(rng, data, state)
        if prior.intercept_precision > 0.0:
            draw_intercepts(rng, data, prior, state)
        tune_visits(state, number, tune)
        for i in range(len(state.on)):
            if state.visits[i] >= 1.0 or rng.random() < state.visits[i]:
                step_on_row(rng, parts, i)
        step_on_locations(rng, parts)
        draw_weights(rng, prior, rows, state, space.numbers)
        draw_task_rates(rng, prior, state, space.numbers)
        draw_rates(rng, prior, state, space.numbers)
        draw_noise(rng, data, prior, state)
        if number >= tune and (number - tune) % sweeps == sweeps - 1:
            keep(rows, state, kept, (number - tune) // sweeps)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_rates(prior: SpikeNumbers, state: SpikeState) -> None:
    """Entry rates ``omega kappa_t``, the probability of an empty pattern, and which tables are in use."""
    weights = state.weights
    for o in range(len(prior.pattern_rates)):
        empty = 1.0
        for t in range(len(state.task_rate)):
            rate = prior.pattern_rates[o] * state.task_rate[t]
            weights.entry_rates[o, t] = rate
            empty *= 1.0 - rate
        weights.empty[o] = empty
    while weights.n_tables[0] > 0 and weights.counts[weights.n_tables[0] - 1] == 0:
        weights.n_tables[0] -= 1


@njit(cache=True, nogil=True, error_model="numpy")
def fill_predictors(data: SpikeData, state: SpikeState) -> None:
    """Linear predictors of the state, without the error that many small steps add up to."""
    for t in range(len(data.counts)):
        start, place = data.offsets[t], data.places[t]
        for n in range(start, data.offsets[t + 1]):
            data.predictors[n] = state.intercept[t] * data.ones[place + n - start]
        for i in range(len(state.W)):
            if state.W[i, t] != 0.0:
                for n in range(start, data.offsets[t + 1]):
                    data.predictors[n] += state.W[i, t] * data.design[i, place + n - start]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_scores(rng: Generator, data: SpikeData, state: SpikeState) -> None:
    """Precisions and scores of all rows; hidden precisions are drawn."""
    for t in range(len(data.counts)):
        precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            data.precisions[n], data.scores[n] = draw_precision_and_score(
                rng, data.form, data.weights[n], data.targets[n], data.predictors[n], precision
            )


@njit(cache=True, nogil=True, error_model="numpy")
def move_along(data: SpikeData, t: int, x: FloatArray, change: float) -> None:
    """Predictors and scores of a task after a step of ``change`` along x."""
    start = data.offsets[t]
    for n in range(len(x)):
        step = change * x[n]
        data.predictors[start + n] += step
        data.scores[start + n] -= data.precisions[start + n] * step


@njit(cache=True, nogil=True, error_model="numpy")
def draw_intercepts(rng: Generator, data: SpikeData, prior: SpikeNumbers, state: SpikeState) -> None:
    """Intercepts given everything else."""
    for t in range(len(data.counts)):
        start, stop = data.offsets[t], data.offsets[t + 1]
        x = data.ones[data.places[t] : data.places[t] + stop - start]
        precision = prior.intercept_precision + product(x, x, data.precisions[start:stop])
        pull = dot(x, data.scores[start:stop]) - prior.intercept_precision * state.intercept[t]
        change = pull / precision + rng.standard_normal() / math.sqrt(precision)
        state.intercept[t] += change
        move_along(data, t, x, change)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def product(x: FloatArray, z: FloatArray, weights: FloatArray) -> float:
    """Sum of weights times products."""
    total = 0.0
    for n in range(len(x)):
        total += weights[n] * x[n] * z[n]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def tune_visits(state: SpikeState, number: int, tune: int) -> None:
    """Count over the second half of the tuning sweeps, then set how often rows are visited."""
    for i in range(len(state.on)):
        if number == tune // 2:
            state.chance[i] = 0.0
        if number == tune and tune > 1:
            share = state.chance[i] / (tune - tune // 2)
            state.visits[i] = min(1.0, max(LEAST_VISITS, VISITS_PER_CHANCE * share))


# ---------------------------------------------------------------------- steps on rows


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_row(rng: Generator, parts: SpikeParts, i: int) -> None:
    """Draw whether a row is on, and all of it; a uniform number first, so that a bound of the evidence may be enough."""
    data, rows, prior, state, space = parts
    leave_table(state, i)
    fill_row(data, rows, state, space.row, i)
    uniform = rng.random()
    needed = math.log(uniform / (1.0 - uniform)) - prior.log_odds[n_seated(state.weights)]
    on = log_bound(space.row, state.weights) > needed
    if on:
        on = log_evidence(space.row, prior.slabs, state.weights, space.nodes) > needed
    state.chance[i] += 1.0 if on else 0.0
    if on:
        switch_on(rng, parts, i)
    elif state.on[i]:
        switch_off(data, rows, state, i)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_row(data: SpikeData, rows: RowMap, state: SpikeState, row: Row, i: int) -> None:
    """The likelihood of a row given all others."""
    first, k = rows.starts[i], rows.starts[i + 1] - rows.starts[i]
    row.size[0] = k
    for t in range(len(data.counts)):
        start, stop, place = data.offsets[t], data.offsets[t + 1], data.places[t]
        precisions, scores = data.precisions[start:stop], data.scores[start:stop]
        for a in range(k):
            x = data.design[rows.members[first + a], place : place + stop - start]
            for b in range(a + 1):
                z = data.design[rows.members[first + b], place : place + stop - start]
                row.curvature[t, a, b] = row.curvature[t, b, a] = product(x, z, precisions)
            row.pull[t, a] = dot(x, scores)
        if state.on[i]:
            for a in range(k):
                for b in range(k):
                    row.pull[t, a] += row.curvature[t, a, b] * state.W[rows.members[first + b], t]


@njit(cache=True, nogil=True, error_model="numpy")
def switch_on(rng: Generator, parts: SpikeParts, i: int) -> None:
    """Draw slab, pattern and coefficients of a row whose evidence was just computed."""
    data, rows, prior, state, space = parts
    row = space.row
    slab, rate, table = draw_row(rng, row, prior.slabs, state.weights, space.nodes)
    if table < 0:
        table = new_table(state, row.on, rate)
    state.weights.counts[table] += 1
    state.on[i], state.slab[i], state.table[i] = True, slab, table
    for t in range(len(row.on)):
        state.patterns[i, t] = row.on[t]
        for a in range(row.size[0]):
            set_coefficient(data, rows, state, rows.members[rows.starts[i] + a], t, row.W[a, t])


@njit(cache=True, nogil=True, error_model="numpy")
def switch_off(data: SpikeData, rows: RowMap, state: SpikeState, i: int) -> None:
    """Set a row to zero; it sits at no table any more."""
    state.on[i] = False
    for t in range(len(data.counts)):
        state.patterns[i, t] = False
        for a in range(rows.starts[i], rows.starts[i + 1]):
            set_coefficient(data, rows, state, rows.members[a], t, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def set_coefficient(data: SpikeData, rows: RowMap, state: SpikeState, feature: int, t: int, w: float) -> None:
    """Set a coefficient, 0 where a task does not have the feature, and move the scores along."""
    change = (w if rows.present[t, feature] else 0.0) - state.W[feature, t]
    if change != 0.0:
        place, length = data.places[t], data.offsets[t + 1] - data.offsets[t]
        move_along(data, t, data.design[feature, place : place + length], change)
        state.W[feature, t] += change
        if w == 0.0:
            state.W[feature, t] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def leave_table(state: SpikeState, i: int) -> None:
    """Take a row from its table, if it sits at one."""
    if state.on[i]:
        state.weights.counts[state.table[i]] -= 1


@njit(cache=True, nogil=True, error_model="numpy")
def new_table(state: SpikeState, pattern: BoolArray, rate: int) -> int:
    """Open a table with a pattern, and give its number."""
    weights, number = state.weights, 0
    while weights.counts[number] > 0:
        number += 1
    weights.n_tables[0] = max(weights.n_tables[0], number + 1)
    state.table_rate[number] = rate
    for t in range(len(pattern)):
        weights.tables[number, t] = pattern[t]
    return number


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_locations(rng: Generator, parts: SpikeParts) -> None:
    """Let every row that is on move to a correlated one."""
    state, prior, space = parts.state, parts.prior, parts.space
    count = 0
    for i in range(len(state.on)):
        if state.on[i] and prior.n_neighbours[i] > 1:
            space.order[count] = i
            count += 1
    for k in range(count - 1, 0, -1):
        other = int(rng.random() * (k + 1))
        space.order[k], space.order[other] = space.order[other], space.order[k]
    for k in range(count):
        if rng.random() < MOVES:
            move_row(rng, parts, space.order[k])


@njit(cache=True, nogil=True, error_model="numpy")
def move_row(rng: Generator, parts: SpikeParts, i: int) -> None:
    """Take out a row and switch on one of its anchor's neighbours."""
    data, rows, prior, state, space = parts
    anchor = prior.neighbours[i, int(rng.random() * prior.n_neighbours[i])]
    leave_table(state, i)
    switch_off(data, rows, state, i)
    near, chances, n_near = prior.neighbours[anchor], space.numbers, prior.n_neighbours[anchor]
    place = -1
    for k in range(n_near + 1):
        if k == n_near:  # all are known: choose, and compute the choices of that row once more
            exponentiate(chances, n_near)
            place = near[choose(rng, chances, n_near)]
        candidate = near[k] if place < 0 else place
        if state.on[candidate]:
            chances[k] = -np.inf
        else:
            fill_row(data, rows, state, space.row, candidate)
            evidence = log_evidence(space.row, prior.slabs, state.weights, space.nodes)
            if place < 0:
                chances[k] = evidence - math.log(prior.n_neighbours[candidate])
    switch_on(rng, parts, place)


# ---------------------------------------------------------------------- hyperparameters and noise


@njit(cache=True, nogil=True, error_model="numpy")
def draw_dirichlet(rng: Generator, counts: FloatArray, concentration: float, log_weights: FloatArray) -> None:
    """Weights given counts; their logarithms."""
    total = 0.0
    for k in range(len(log_weights)):
        drawn = rng.standard_gamma(counts[k] + concentration) + 1e-300
        total += drawn
        log_weights[k] = math.log(drawn)
    for k in range(len(log_weights)):
        log_weights[k] -= math.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_weights(rng: Generator, prior: SpikeNumbers, rows: RowMap, state: SpikeState, counts: FloatArray) -> None:
    """Weights of rho and C over the rows that are on, of omega over the tables."""
    weights = state.weights
    for part in range(2):
        for k in range(len(prior.slabs.scale)):
            counts[k] = 0.0
        for i in range(len(state.on)):
            if state.on[i]:
                if part == 0:
                    counts[prior.slabs.scale[state.slab[i]]] += 1.0
                elif rows.starts[i + 1] - rows.starts[i] == 1:
                    counts[prior.slabs.share[state.slab[i]]] += 1.0
        draw_dirichlet(rng, counts, prior.dirichlet[part], weights.log_scale if part == 0 else weights.log_share)
    for table in range(weights.n_tables[0]):
        if weights.counts[table] > 0:
            for o in range(len(weights.log_rate)):
                counts[o] = weights.log_rate[o] + log_base(weights, table, o)
            exponentiate(counts, len(weights.log_rate))
            state.table_rate[table] = choose(rng, counts, len(weights.log_rate))
    for o in range(len(weights.log_rate)):
        counts[o] = 0.0
    for table in range(weights.n_tables[0]):
        if weights.counts[table] > 0:
            counts[state.table_rate[table]] += 1.0
    draw_dirichlet(rng, counts, prior.dirichlet[2], weights.log_rate)


@njit(cache=True, nogil=True, error_model="numpy")
def log_base(weights: Weights, table: int, o: int) -> float:
    """Logarithm of the base measure of a table's pattern at an omega."""
    value = -math.log(1.0 - weights.empty[o])
    for t in range(weights.tables.shape[1]):
        value += log_entry(weights.entry_rates[o, t], weights.tables[table, t])
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def log_entry(rate: float, on: bool) -> float:
    """Logarithm of the probability of an entry."""
    if on:
        return math.log(rate)
    return math.log1p(-rate) if rate < 1.0 else NEVER_OFF


@njit(cache=True, nogil=True, error_model="numpy")
def draw_task_rates(rng: Generator, prior: SpikeNumbers, state: SpikeState, chances: FloatArray) -> None:
    """Rates kappa of all tasks given the patterns of the tables."""
    weights, m = state.weights, len(state.task_rate)
    for t in range(m):
        for k in range(len(prior.task_rates)):
            chances[k] = prior.log_task_rates[k]
        for table in range(weights.n_tables[0]):
            if weights.counts[table] == 0:
                continue
            omega, others = prior.pattern_rates[state.table_rate[table]], 1.0
            for other in range(m):
                others *= 1.0 - omega * state.task_rate[other] if other != t else 1.0
            for k in range(len(prior.task_rates)):
                rate = omega * prior.task_rates[k]
                chances[k] += log_entry(rate, weights.tables[table, t]) - math.log(1.0 - others * (1.0 - rate))
        exponentiate(chances, len(prior.task_rates))
        state.task_rate[t] = prior.task_rates[choose(rng, chances, len(prior.task_rates))]


@njit(cache=True, nogil=True, error_model="numpy")
def draw_rates(rng: Generator, prior: SpikeNumbers, state: SpikeState, chances: FloatArray) -> None:
    """Draw pi and alpha given how many rows are on, at how many tables."""
    n_rows, n_on, n_tables = len(state.on) + prior.n_left_out, n_seated(state.weights), 0
    for table in range(state.weights.n_tables[0]):
        n_tables += 1 if state.weights.counts[table] > 0 else 0
    for k in range(len(prior.rates)):
        pi = prior.rates[k]
        chances[k] = prior.log_rates[k] + n_on * math.log(pi) + (n_rows - n_on) * math.log1p(-pi)
    exponentiate(chances, len(prior.rates))
    state.rate[0] = prior.rates[choose(rng, chances, len(prior.rates))]
    for k in range(len(prior.concentrations)):
        alpha = prior.concentrations[k]
        chances[k] = n_tables * math.log(alpha) + math.lgamma(alpha) - math.lgamma(alpha + n_on)
    exponentiate(chances, len(prior.concentrations))
    state.weights.log_concentration[0] = math.log(prior.concentrations[choose(rng, chances, len(prior.concentrations))])


@njit(cache=True, nogil=True, error_model="numpy")
def draw_noise(rng: Generator, data: SpikeData, prior: SpikeNumbers, state: SpikeState) -> None:
    """``sigma_t^2`` given the residuals, and the log-likelihood."""
    total, total_count, value = 0.0, 0.0, 0.0
    for t in range(len(data.counts)):
        square = 0.0
        for n in range(data.offsets[t], data.offsets[t + 1]):
            if data.form == NORMAL:
                square += (data.targets[n] - data.predictors[n]) ** 2
            else:
                value += log_density_and_score(data.form, data.weights[n], data.targets[n], data.predictors[n], 1.0)[0]
        total += square
        total_count += data.counts[t]
        if prior.learn_noise and not prior.shared_noise:
            value += _draw_noise(rng, prior, state, t, t + 1, square, data.counts[t])
    if prior.learn_noise and prior.shared_noise:
        value += _draw_noise(rng, prior, state, 0, len(data.counts), total, total_count)
    state.log_likelihood[0] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_noise(
    rng: Generator, prior: SpikeNumbers, state: SpikeState, first: int, stop: int, square: float, count: float
) -> float:
    """The noise of some tasks, and their log-likelihood."""
    variance = (prior.noise_rate + 0.5 * square) / rng.standard_gamma(prior.noise_shape + 0.5 * count)
    for t in range(first, stop):
        state.noise[t] = math.sqrt(variance)
    return -0.5 * (count * math.log(2.0 * math.pi * variance) + square / variance)


@njit(cache=True, nogil=True, error_model="numpy")
def keep(rows: RowMap, state: SpikeState, kept: SpikeDraws, draw: int) -> None:
    """Copy the state."""
    p, m = state.W.shape
    kept.inclusion_rate[draw], kept.log_likelihood[draw] = state.rate[0], state.log_likelihood[0]
    for t in range(m):
        kept.intercept[draw, t], kept.noise[draw, t] = state.intercept[t], state.noise[t]
    for i in range(p):
        some = False
        for t in range(m):
            on = state.patterns[rows.row_of_feature[i], t] and rows.present[t, i]
            kept.W[draw, i, t], kept.included[draw, i, t] = state.W[i, t], on
            some = some or on
        kept.n_features[draw] += 1.0 if some else 0.0
