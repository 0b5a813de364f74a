r"""Posterior under the prior with exact zeros (`bayesmtfs.priors.spike`) by a Gibbs sampler that draws whole rows.

One sweep:

1. of targets that are not normal the noise, dispersion or degrees of freedom (`dispersion`) and the hidden precisions
   (`bayesmtfs.families.augmentation`); scores and intercepts;
2. every row given all others, with its slab, pattern and coefficients integrated out (`spike_row`): on or off, then all
   of it. The uniform number comes first, so that an upper bound of the evidence leaves most rows of noise off without the
   integral, which changes no draw; rows that were hardly ever on, or hardly ever off, while steps were tuned are drawn
   anew less often, with a probability that then stays, and in between, where they are on, given their slab;
3. locations: a third of the rows that are on, in random order, may move to a correlated feature. With N[i] the
   neighbours of i, itself included, an anchor a is drawn from N[i], row i is taken out, and a new place j among the rows
   of N[a] that are off with probability proportional to ``evidence_j / |N[j]|``: a Gibbs step on (place, anchor), without
   which chains stay with the feature that they found first. The place is the largest of ``ln evidence_j - ln |N[j]|`` plus
   Gumbel numbers that are drawn beforehand, so that here, too, a bound settles most of them;
4. weights of the slabs and patterns, rates of tasks, pi, alpha and the noise of normal targets; where tasks with the same
   rows have noise in common, its factors (`common_noise`).

With normal targets a visit costs O(m) operations and a coefficient that changes O(p) (`spike_state`), so that a sweep takes
O(p m + number of rows on times p m); with others a visit costs O(n m).

References
----------
E. I. George, R. E. McCulloch (1997), Approaches for Bayesian variable selection, Statistica Sinica 7:339-373.
R. M. Neal (2000), Markov chain sampling methods for Dirichlet process mixture models, Journal of Computational and
Graphical Statistics 9:249-265.
"""

import math
from functools import partial

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import LEAN, inner, lean
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import (
    NORMAL,
    STUDENT_T,
    draw_precision_and_score,
    log_constant,
    log_density_and_score,
)
from bayesmtfs.gibbs.chain import ChainSettings, Report, conditionally_normal, in_slices
from bayesmtfs.gibbs.common_noise import (
    CommonNoise,
    common_noise_of,
    draw_common_noise,
    log_density,
    whole_noise,
)
from bayesmtfs.gibbs.dispersion import (
    DispersionPrior,
    dispersion_prior,
    draw_dispersion,
    log_parameter_prior,
)
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.gibbs.spike_row import (
    LOG_2PI,
    NEVER,
    Row,
    Weights,
    choose,
    draw_row,
    exponentiate,
    fill_choices_of_slab,
    log_evidence,
    n_seated,
)
from bayesmtfs.gibbs.spike_state import (
    SpikeData,
    SpikeDraws,
    SpikeNumbers,
    SpikeParts,
    SpikeState,
    first_state,
    kept_for,
    space_for,
    spike_data,
    spike_numbers,
)
from bayesmtfs.gibbs.state import RowMap, rows_of
from bayesmtfs.priors.spike import SpikePrior
from bayesmtfs.types import BoolArray, FloatArray, IntArray

MOVES = 1 / 3  # probability that a row that is on may move in a sweep
LEAST_VISITS = 0.5  # probability that a row is drawn anew in a sweep,
VISITS_PER_CHANCE = 10.0  # and 1 where it is on with a probability from 0.1 to 0.9
REFRESH = 50  # sweeps after which sums that were kept up to date are computed anew
NEVER_OFF = -1e10  # logarithm of the probability that a task with rate 1 is off


def sample_spike_chain(
    data: TaskData,
    prior: SpikePrior,
    settings: ChainSettings,
    family: Family,
    report: Report | None = None,
    common: tuple[FloatArray, FloatArray] | None = None,
) -> SpikeDraws:
    """Draw one chain.

    Parameters
    ----------
    data : observations in deviations within tasks, features and numeric targets centred there if there are intercepts
    prior : with every number known
    settings : lengths and seed
    family : a conditionally normal family
    report : called every now and then with the fraction of the sweeps that are done
    common : factors and loadings of noise that tasks have in common (`bayesmtfs.gibbs.common_noise.find_factors`)

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
    observed = spike_data(data, family, prior.fit_intercept, common is None, prior.intercept_centre)
    shared = None if common is None else common_noise_of(observed, *common)
    numbers = spike_numbers(prior, family, observed, rows)
    state, kept = first_state(observed, numbers, rows), kept_for(settings.draws, rows)
    parts = SpikeParts(observed, rows, numbers, state, space_for(numbers, state, rows))
    step, parameters = partial(advance, rng, parts, kept, settings.sweeps), np.zeros((settings.draws, data.n_tasks))
    if shared is not None:
        step = partial(advance_with_common_noise, shared, rng, parts, kept, settings.sweeps)
    if observed.form != NORMAL:
        beside = dispersion_prior_of(prior, family)
        step = partial(advance_with_precisions, beside, parameters, rng, parts, kept, settings.sweeps)
    done, interrupted = in_slices(step, settings, report)
    count = max(done // settings.sweeps - settings.tune, 0)
    found = kept._replace(intercept=kept.intercept + np.array(prior.intercept_centre) * (observed.form != NORMAL))
    arrays = {name: getattr(found, name)[:count] for name in SpikeDraws._fields[:-2]}
    learned = parameters[:count] if family.learned is not None else None
    return SpikeDraws(**arrays, interrupted=interrupted, parameter=learned)


def dispersion_prior_of(prior: SpikePrior, family: Family) -> DispersionPrior | None:
    """Prior of what the family has beside eta; None for nothing."""
    if not family.has_noise and family.learned is None:
        return None
    return dispersion_prior(family, 1.0, prior.shared_noise, (prior.noise_shape, prior.noise_rate))


# ---------------------------------------------------------------------- the sweep


def advance(rng: Generator, parts: SpikeParts, kept: SpikeDraws, sweeps: int, first: int, stop: int, tune: int) -> None:
    """Sweeps ``first`` to ``stop - 1`` of normal targets."""
    run(rng, parts, kept, sweeps, first, stop, tune)


def advance_with_precisions(
    beside: DispersionPrior | None,
    parameters: FloatArray,
    rng: Generator,
    parts: SpikeParts,
    kept: SpikeDraws,
    sweeps: int,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of other targets; ``parameters`` (draws, m) keep dispersions or degrees of freedom.

    What only they need is compiled apart, so that no family waits for another's.
    """
    data, state = parts.data, parts.state
    for number in range(first, stop):
        if beside is not None:
            draw_beside(rng, data, state, beside)
        draw_precisions(rng, data, state)
        run(rng, parts, kept, sweeps, number, number + 1, tune)
        if number >= tune and (number - tune) % sweeps == sweeps - 1:
            draw, value = (number - tune) // sweeps, log_likelihood(data, state)
            kept.log_likelihood[draw], parameters[draw] = value, data.parameters
            kept.log_posterior[draw] += value + (0.0 if beside is None else log_prior_beside(data, beside))


def advance_with_common_noise(
    common: CommonNoise,
    rng: Generator,
    parts: SpikeParts,
    kept: SpikeDraws,
    sweeps: int,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1``, and a step on the factors of the noise after as many as a draw has."""
    while first < stop:
        last = min(first + sweeps - (first - tune) % sweeps, stop)
        run(rng, parts, kept, sweeps, first, last, tune)
        if last > tune and (last - tune) % sweeps == 0:
            draw, (value, prior) = (last - 1 - tune) // sweeps, log_density(parts.data, parts.state, common)
            kept.noise[draw] = whole_noise(parts.state, common)
            kept.log_posterior[draw] += value + prior - kept.log_likelihood[draw]
            kept.log_likelihood[draw] = value
        draw_common_noise(rng, parts.data, parts.state, common, parts.prior.intercept_precision)
        first = last


@lean()
def run(rng: Generator, parts: SpikeParts, kept: SpikeDraws, sweeps: int, first: int, stop: int, tune: int) -> None:
    """Sweeps ``first`` to ``stop - 1``; one of ``sweeps`` from ``tune`` on is kept, before that visits are tuned."""
    data, rows, prior, state, space = parts
    for number in range(first, stop):
        fill_rates(prior, state)
        if data.form == NORMAL:
            fill_residual_scores(data, state)
            if number % REFRESH == 0:
                fill_pulls(data, state)
        if prior.intercept_precision > 0.0:
            draw_intercepts(rng, data, prior, state)
        tune_visits(state, number, tune)
        step_on_rows(rng, parts)
        draw_weights(rng, prior, rows, state, space.numbers)
        draw_task_rates(rng, prior, state, space.numbers)
        draw_rates(rng, prior, state, space.numbers)
        fill_predictors(data, state)
        if data.form == NORMAL:
            draw_noise(rng, data, prior, state)
        if number >= tune and (number - tune) % sweeps == sweeps - 1:
            fill_rates(prior, state)  # of the new rates of tasks, for the density
            keep(prior, rows, state, kept, (number - tune) // sweeps, space.numbers)


@inner(**LEAN)
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


@inner(**LEAN)
def fill_predictors(data: SpikeData, state: SpikeState) -> None:
    """Linear predictors of the state, without the error that many small steps add up to."""
    for t in range(len(data.counts)):
        start, place = data.offsets[t], data.places[t]
        for n in range(start, data.offsets[t + 1]):
            data.predictors[n] = data.known[n] + state.intercept[t] * data.ones[place + n - start]
        for i in range(len(state.W)):
            if state.W[i, t] != 0.0:
                for n in range(start, data.offsets[t + 1]):
                    data.predictors[n] += state.W[i, t] * data.design[i, place + n - start]


@inner(**LEAN)
def fill_residual_scores(data: SpikeData, state: SpikeState) -> None:
    """Precisions and scores of normal targets."""
    for t in range(len(data.counts)):
        precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            data.precisions[n], data.scores[n] = precision, precision * (data.targets[n] - data.predictors[n])


@lean()
def draw_precisions(rng: Generator, data: SpikeData, state: SpikeState) -> None:
    """Hidden precisions of other families, and their scores."""
    for t in range(len(data.counts)):
        precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            weight, target, eta = data.weights[n], data.targets[n], data.predictors[n]
            data.precisions[n], data.scores[n] = draw_precision_and_score(
                rng, data.form, weight, target, eta, precision, data.parameters[t]
            )


@lean()
def draw_beside(rng: Generator, data: SpikeData, state: SpikeState, prior: DispersionPrior) -> None:
    """Noise, dispersions and degrees of freedom of other families, hidden precisions integrated out."""
    numbers = (state.noise, data.parameters)
    draw_dispersion(rng, data.form, data.weights, data.targets, data.predictors, data.offsets, *numbers, prior)


@lean()
def log_likelihood(data: SpikeData, state: SpikeState) -> float:
    """Log-likelihood of other families, hidden precisions integrated out, up to a constant."""
    value = 0.0
    for t in range(len(data.counts)):
        precision, parameter = 1.0 / (state.noise[t] * state.noise[t]), data.parameters[t]
        for n in range(data.offsets[t], data.offsets[t + 1]):
            weight, target, eta = data.weights[n], data.targets[n], data.predictors[n]
            value += log_density_and_score(data.form, weight, target, eta, precision, parameter)[0]
            value += log_constant(data.form, weight, target, precision, parameter)
    return value


@lean()
def log_prior_beside(data: SpikeData, prior: DispersionPrior) -> float:
    """Log-density of the logarithms of dispersions or degrees of freedom, where they are learned."""
    value = 0.0
    if prior.learn_parameter:
        for t in range(1 if prior.shared or data.form == STUDENT_T else len(data.parameters)):
            value += log_parameter_prior(math.log(data.parameters[t]), data.form, prior)
    return value


@inner(**LEAN)
def fill_pulls(data: SpikeData, state: SpikeState) -> None:
    """X'r of all features."""
    for t in range(len(data.counts)):
        start, stop, place = data.offsets[t], data.offsets[t + 1], data.places[t]
        variance = state.noise[t] * state.noise[t]
        for i in range(len(data.design)):
            x = data.design[i, place : place + stop - start]
            data.sums.pulls[t, i] = variance * dot(x, data.scores[start:stop])


@inner(**LEAN)
def move_along(data: SpikeData, t: int, x: FloatArray, change: float) -> None:
    """Predictors and scores of a task after a step of ``change`` along x."""
    start = data.offsets[t]
    for n in range(len(x)):
        step = change * x[n]
        data.predictors[start + n] += step
        data.scores[start + n] -= data.precisions[start + n] * step


@inner(**LEAN)
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
        if data.form == NORMAL:
            take_off(data.sums.pulls[t], data.sums.totals[data.sums.design_of[t]], change)


@inner(**LEAN, fastmath={"reassoc", "contract", "nsz"})
def product(x: FloatArray, z: FloatArray, weights: FloatArray) -> float:
    """Sum of weights times products."""
    total = 0.0
    for n in range(len(x)):
        total += weights[n] * x[n] * z[n]
    return total


@inner(**LEAN, fastmath={"contract"})
def take_off(out: FloatArray, x: FloatArray, factor: float) -> None:
    """``out - factor x``."""
    for k in range(len(out)):
        out[k] -= factor * x[k]


@inner(**LEAN)
def tune_visits(state: SpikeState, number: int, tune: int) -> None:
    """Set how often rows are visited after a fifth of the tuning sweeps and after all, by their second halves."""
    for stop in (tune // 5, tune):
        start = stop // 2
        if start <= number < stop:
            for i in range(len(state.on)):
                state.chance[i] = (state.chance[i] if number > start else 0.0) + (1.0 if state.on[i] else 0.0)
        if number == stop and start < stop:
            for i in range(len(state.on)):
                share = state.chance[i] / (stop - start)
                state.visits[i] = min(1.0, max(LEAST_VISITS, VISITS_PER_CHANCE * min(share, 1.0 - share)))


# ---------------------------------------------------------------------- steps on rows


@inner(**LEAN)
def step_on_row(rng: Generator, parts: SpikeParts, i: int, anchor: int) -> None:
    """Draw whether a row is on, and all of it; with an anchor (not -1), which of the anchor's neighbours is on instead.

    Random numbers come before evidences, so that bounds of these may be enough.
    """
    data, rows, prior, state, space = parts
    leave_table(state, i)
    moves, place, last, n_near = anchor >= 0, -1, -1, 0
    if moves:
        switch_off(data, rows, state, i)
        best, place, n_near = NEVER, i, prior.n_neighbours[anchor]
    else:
        uniform = rng.random()
        best = math.log(uniform / (1.0 - uniform)) - prior.log_odds[n_seated(state.weights)]
    for k in range(-1, n_near + 1):  # the row itself first: it leaves most others without a chance
        candidate, luck = i, 0.0
        if k == n_near:  # the choices of the place may have been overwritten
            if place in (-1, last):
                break
            candidate, best = place, NEVER
        elif k >= 0:
            candidate = prior.neighbours[anchor, k]
            if state.on[candidate] or candidate == i:
                continue
        if moves and k < n_near:
            luck = -math.log(rng.standard_exponential()) - math.log(prior.n_neighbours[candidate])
        fill_row(data, rows, state, space.row, candidate)
        evidence = log_evidence(space.row, prior.slabs, state.weights, space.nodes, best - luck)
        last = candidate
        if evidence + luck > best:
            place, best = candidate, evidence + luck
    if place >= 0:
        switch_on(rng, parts, place)
    elif state.on[i]:
        switch_off(data, rows, state, i)


@inner(**LEAN)
def step_within_row(rng: Generator, parts: SpikeParts, i: int) -> None:
    """Draw pattern and coefficients of a row that is on, given its slab."""
    data, rows, prior, state, space = parts
    leave_table(state, i)
    fill_row(data, rows, state, space.row, i)
    if fill_choices_of_slab(space.row, prior.slabs, state.weights, space.nodes, state.slab[i]):
        switch_on(rng, parts, i)
    else:
        state.weights.counts[state.table[i]] += 1


@inner(**LEAN)
def fill_row(data: SpikeData, rows: RowMap, state: SpikeState, row: Row, i: int) -> None:
    """The likelihood of a row given all others."""
    first, k = rows.starts[i], rows.starts[i + 1] - rows.starts[i]
    row.size[0] = k
    for t in range(len(data.counts)):
        if data.form == NORMAL:
            sums, precision = data.sums, 1.0 / (state.noise[t] * state.noise[t])
            for a in range(k):
                row.pull[t, a] = precision * sums.pulls[t, rows.members[first + a]]
                for b in range(k):
                    place = sums.block_starts[i] + k * a + b
                    row.curvature[t, a, b] = precision * sums.blocks[sums.design_of[t], place]
        else:
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


@inner(**LEAN)
def switch_on(rng: Generator, parts: SpikeParts, i: int) -> None:
    """Draw a row from the choices that it has, and take it over."""
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


@inner(**LEAN)
def switch_off(data: SpikeData, rows: RowMap, state: SpikeState, i: int) -> None:
    """Set a row to zero; it sits at no table any more."""
    state.on[i] = False
    for t in range(len(data.counts)):
        state.patterns[i, t] = False
        for a in range(rows.starts[i], rows.starts[i + 1]):
            set_coefficient(data, rows, state, rows.members[a], t, 0.0)


@inner(**LEAN)
def set_coefficient(data: SpikeData, rows: RowMap, state: SpikeState, feature: int, t: int, w: float) -> None:
    """Set a coefficient, 0 where a task does not have the feature, and move what depends on it along."""
    change = (w if rows.present[t, feature] else 0.0) - state.W[feature, t]
    if change != 0.0:
        if data.form == NORMAL:
            take_off(data.sums.pulls[t], data.sums.columns[column_of(data, t, feature)], change)
        else:
            place, length = data.places[t], data.offsets[t + 1] - data.offsets[t]
            move_along(data, t, data.design[feature, place : place + length], change)
        state.W[feature, t] += change
        if w == 0.0:
            state.W[feature, t] = 0.0


@inner(**LEAN)
def column_of(data: SpikeData, t: int, feature: int) -> int:
    """Place of a column of X'X in the store, computed if it is not there."""
    sums, p = data.sums, len(data.design)
    number = sums.design_of[t]
    slot = sums.slots[number, feature]
    if slot < 0:
        slot = sums.owners[-1]
        if sums.owners[slot] >= 0:
            sums.slots[sums.owners[slot] // p, sums.owners[slot] % p] = -1
        sums.slots[number, feature], sums.owners[slot] = slot, number * p + feature
        sums.owners[-1] = (slot + 1) % len(sums.columns)
        start, stop = data.places[t], data.places[t] + data.offsets[t + 1] - data.offsets[t]
        for i in range(p):
            sums.columns[slot, i] = dot(data.design[i, start:stop], data.design[feature, start:stop])
    return slot


@inner(**LEAN)
def leave_table(state: SpikeState, i: int) -> None:
    """Take a row from its table, if it sits at one."""
    if state.on[i]:
        state.weights.counts[state.table[i]] -= 1


@inner(**LEAN)
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


@inner(**LEAN)
def step_on_rows(rng: Generator, parts: SpikeParts) -> None:
    """Visit rows in order, then let some of those that are on, in random order, move to a correlated one."""
    state, prior, space = parts.state, parts.prior, parts.space
    R, count = len(state.on), 0
    for step in range(2 * R):
        i = step
        if step >= R:
            if step - R == count:
                break
            i = space.order[step - R]
        if rng.random() < (state.visits[i] if step < R else MOVES):
            anchor = -1 if step < R else prior.neighbours[i, int(rng.random() * prior.n_neighbours[i])]
            step_on_row(rng, parts, i, anchor)
        elif step < R and state.on[i]:
            step_within_row(rng, parts, i)
        if step == R - 1:
            count = shuffled(rng, prior, state, space.order)


@inner(**LEAN)
def shuffled(rng: Generator, prior: SpikeNumbers, state: SpikeState, order: IntArray) -> int:
    """Fill in the rows that are on and have neighbours, in random order, and give their number."""
    count = 0
    for i in range(len(state.on)):
        if state.on[i] and prior.n_neighbours[i] > 1:
            order[count] = i
            count += 1
    for k in range(count - 1, 0, -1):
        other = int(rng.random() * (k + 1))
        order[k], order[other] = order[other], order[k]
    return count


# ---------------------------------------------------------------------- hyperparameters and noise


@inner(**LEAN)
def draw_dirichlet(rng: Generator, counts: FloatArray, concentration: float, weights: FloatArray) -> None:
    """Weights given counts."""
    total = 0.0
    for k in range(len(weights)):
        weights[k] = rng.standard_gamma(counts[k] + concentration) + 1e-300
        total += weights[k]
    for k in range(len(weights)):
        weights[k] /= total


@inner(**LEAN)
def draw_weights(rng: Generator, prior: SpikeNumbers, rows: RowMap, state: SpikeState, counts: FloatArray) -> None:
    """Weights of rho and C over the rows that are on, of omega over the tables."""
    weights = state.weights
    for part in range(2):
        count_slabs(prior, rows, state, part, counts)
        draw_dirichlet(rng, counts, prior.dirichlet[part], weights.scale if part == 0 else weights.share)
    for table in range(weights.n_tables[0]):
        if weights.counts[table] > 0:
            for o in range(len(weights.rate)):
                counts[o] = math.log(weights.rate[o]) + log_base(weights, table, o)
            exponentiate(counts, len(weights.rate))
            state.table_rate[table] = choose(rng, counts, len(weights.rate))
    count_rates(state, counts)
    draw_dirichlet(rng, counts, prior.dirichlet[2], weights.rate)


@inner(**LEAN)
def count_slabs(prior: SpikeNumbers, rows: RowMap, state: SpikeState, part: int, counts: FloatArray) -> None:
    """How many rows that are on have each rho (part 0) or, of single features, each C (part 1)."""
    for k in range(len(prior.slabs.scale)):
        counts[k] = 0.0
    for i in range(len(state.on)):
        if state.on[i]:
            if part == 0:
                counts[prior.slabs.scale[state.slab[i]]] += 1.0
            elif rows.starts[i + 1] - rows.starts[i] == 1:
                counts[prior.slabs.share[state.slab[i]]] += 1.0


@inner(**LEAN)
def count_rates(state: SpikeState, counts: FloatArray) -> None:
    """How many tables have each omega."""
    for o in range(len(state.weights.rate)):
        counts[o] = 0.0
    for table in range(state.weights.n_tables[0]):
        if state.weights.counts[table] > 0:
            counts[state.table_rate[table]] += 1.0


@inner(**LEAN)
def log_base(weights: Weights, table: int, o: int) -> float:
    """Logarithm of the base measure of a table's pattern at an omega."""
    value = -math.log(1.0 - weights.empty[o])
    for t in range(weights.tables.shape[1]):
        value += log_entry(weights.entry_rates[o, t], weights.tables[table, t])
    return value


@inner(**LEAN)
def log_entry(rate: float, on: bool) -> float:
    """Logarithm of the probability of an entry."""
    if on:
        return math.log(rate)
    return math.log1p(-rate) if rate < 1.0 else NEVER_OFF


@inner(**LEAN)
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


@inner(**LEAN)
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
    state.weights.concentration[0] = prior.concentrations[choose(rng, chances, len(prior.concentrations))]


@inner(**LEAN)
def draw_noise(rng: Generator, data: SpikeData, prior: SpikeNumbers, state: SpikeState) -> None:
    """``sigma_t^2`` of normal targets given the residuals, and their log-likelihood."""
    m, square, count, first = len(data.counts), 0.0, 0.0, 0
    state.log_likelihood[0] = 0.0
    if not prior.learn_noise:
        return
    for t in range(m):
        hidden = state.noise[t] * state.noise[t]
        for n in range(data.offsets[t], data.offsets[t + 1]):
            square += hidden * data.precisions[n] * (data.targets[n] - data.predictors[n]) ** 2
        count += data.counts[t]
        if t == m - 1 or not prior.shared_noise:
            variance = (prior.noise_rate + 0.5 * square) / rng.standard_gamma(prior.noise_shape + 0.5 * count)
            state.noise[first : t + 1] = math.sqrt(variance)
            state.log_likelihood[0] -= 0.5 * (count * math.log(2.0 * math.pi * variance) + square / variance)
            square, count, first = 0.0, 0.0, t + 1


@inner(**LEAN)
def log_prior(prior: SpikeNumbers, rows: RowMap, state: SpikeState, counts: FloatArray) -> float:
    """Logarithm of the prior density of the state, up to a constant; weights of rho, C and omega are integrated out."""
    weights, m, n_on, n_tables, alpha = state.weights, len(state.noise), 0, 0, state.weights.concentration[0]
    value = 0.0
    for i in range(len(state.on)):
        if state.on[i]:
            n_on += 1
            value += log_slab_density(prior, rows, state, i)
    for part in range(2):
        count_slabs(prior, rows, state, part, counts)
        value += log_of_counts(counts, len(weights.scale if part == 0 else weights.share), prior.dirichlet[part])
    count_rates(state, counts)
    value += log_of_counts(counts, len(weights.rate), prior.dirichlet[2])
    for table in range(weights.n_tables[0]):
        if weights.counts[table] > 0:
            n_tables += 1
            value += math.lgamma(weights.counts[table]) + log_base(weights, table, state.table_rate[table])
    value += n_tables * math.log(alpha) + math.lgamma(alpha) - math.lgamma(alpha + n_on)
    value += n_on * math.log(state.rate[0]) + (len(state.on) + prior.n_left_out - n_on) * math.log1p(-state.rate[0])
    for k in range(len(prior.rates)):
        value += prior.log_rates[k] if state.rate[0] == prior.rates[k] else 0.0
    for t in range(m):
        for k in range(len(prior.task_rates)):
            value += prior.log_task_rates[k] if state.task_rate[t] == prior.task_rates[k] else 0.0
        value -= 0.5 * prior.intercept_precision * state.intercept[t] ** 2
        if prior.learn_noise and (t == 0 or not prior.shared_noise):
            variance = state.noise[t] * state.noise[t]
            value -= (prior.noise_shape + 1.0) * math.log(variance) + prior.noise_rate / variance
    return value


@inner(**LEAN)
def log_of_counts(counts: FloatArray, size: int, concentration: float) -> float:
    """Logarithm of the probability of a sequence with these counts, Dirichlet weights integrated out."""
    value, total = -size * math.lgamma(concentration), 0.0
    for k in range(size):
        value += math.lgamma(concentration + counts[k])
        total += counts[k]
    return value + math.lgamma(size * concentration) - math.lgamma(size * concentration + total)


@inner(**LEAN)
def log_slab_density(prior: SpikeNumbers, rows: RowMap, state: SpikeState, i: int) -> float:
    """Logarithm of the density of the coefficients of a row that is on, given its slab and pattern."""
    M, V = prior.slabs.mean_variance[state.slab[i]], prior.slabs.own_variance[state.slab[i]]
    count, total, square = 0, 0.0, 0.0
    for a in range(rows.starts[i], rows.starts[i + 1]):
        for t in range(len(state.noise)):
            if state.patterns[i, t] and rows.present[t, rows.members[a]]:
                count += 1
                total += state.W[rows.members[a], t]
                square += state.W[rows.members[a], t] ** 2
    if count == 0:
        return 0.0
    if V == 0.0:  # all are equal
        return -0.5 * (LOG_2PI + math.log(M) + (total / count) ** 2 / M)
    spread = V + count * M
    value = count * LOG_2PI + (count - 1) * math.log(V) + math.log(spread)
    return -0.5 * (value + (square - M * total * total / spread) / V)


@inner(**LEAN)
def keep(
    prior: SpikeNumbers, rows: RowMap, state: SpikeState, kept: SpikeDraws, draw: int, numbers: FloatArray
) -> None:
    """Copy the state."""
    p, m = state.W.shape
    kept.inclusion_rate[draw], kept.log_likelihood[draw] = state.rate[0], state.log_likelihood[0]
    kept.log_posterior[draw] = state.log_likelihood[0] + log_prior(prior, rows, state, numbers)
    for t in range(m):
        kept.intercept[draw, t], kept.noise[draw, t] = state.intercept[t], state.noise[t]
    for i in range(p):
        some = False
        for t in range(m):
            on = state.patterns[rows.row_of_feature[i], t] and rows.present[t, i]
            kept.W[draw, i, t], kept.included[draw, i, t] = state.W[i, t], on
            some = some or on
        kept.n_features[draw] += 1.0 if some else 0.0
