r"""The variational posterior: the coefficients as a sum of single effects, fitted by coordinate ascent.

Under the prior with exact zeros (`bayesmtfs.priors.spike`) K of the R rows of W are on, with the probability f(K) of each
set of K rows, ``f(K) = E[pi^K (1 - pi)^(R - K)]``. The posterior is approximated by ``W = sum_l W_l`` with independent
effects l, each of which is nothing at all, or one row: which one, its slab, pattern and coefficients have the joint
distribution

    q(row i, its content) ~ exp(h_l) p(content) exp(sum_t g_it'w_t - w_t'a_it w_t / 2),   q(nothing) ~ 1,

    h_l = E[ln f(K + 1) - ln f(K) - ln(L - K)],   K = how many of the other effects are on,

g the products of the features with what the other effects leave, a those of the features of a row with each other: the
sum of single effects of Wang et al. (2020), with rows of W for its coefficients, a null for each, and everything about the
row integrated out together (`row`). ``L - K`` counts the effects that could take up the same row. Within an effect the
locations compete, so that correlated features share its probability. The noise has
its inverse gamma distribution, intercepts normal ones; patterns are those of the base measure with all task rates 1; the
weights of rho, C and omega are ``(n_k + a_k) / (n + a)``, n the expected numbers of effects, the mode under a Dirichlet
prior with one more count. Every step raises one lower bound of the evidence (`objective`), in which ``ln L!`` stands for
the orders of the effects, and so does an effect that is added.

Effects are added one at a time, as long as each is more likely on than not and is not spread over all rows.

References
----------
G. Wang, A. Sarkar, P. Carbonetto, M. Stephens (2020), A simple new approach to variable selection in regression, with
application to genetic fine mapping, Journal of the Royal Statistical Society B 82:1273-1300.
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, logsumexp

from bayesmtfs.gibbs.spike_row import Slabs, slab_grid
from bayesmtfs.gibbs.state import RowMap
from bayesmtfs.priors.spike import SpikePrior
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, IntArray
from bayesmtfs.variational.observations import TaskRows
from bayesmtfs.variational.row import (
    PatternPrior,
    RowMoments,
    Space,
    fill_evidences,
    fill_moments,
    moments_for,
    space_for,
)

LIKELY = 0.5  # probability of being on from which on another effect is added
FEW_ROWS, SPREAD = 20.0, 0.2  # an effect is everywhere where it is spread over more rows, and a larger share of them
LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True)
class AscentSettings:
    """How far to go.

    Attributes
    ----------
    tol : change of the objective in a sweep over all effects at convergence
    max_iter : sweeps
    most_effects : that there may be
    dropped : share of an effect's probability that may be left out, on its least likely rows
    most_rows : that an effect may be
    """

    tol: float = 1e-2
    max_iter: int = 200
    most_effects: int = 100
    dropped: float = 1e-2
    most_rows: int = 1000


class RowTable(NamedTuple):
    """Rows of the prior as places in the columns of `TaskRows`, padded with a place of zeros."""

    members: IntArray  # (R, k)
    sizes: IntArray  # (R,)


class Counts(NamedTuple):
    """Expected numbers of rows that are on, by their slab and rate; or the logarithms of the weights of these."""

    scale: FloatArray  # (J,) of rho
    share: FloatArray  # (H,) of C, where the row is one feature
    rate: FloatArray  # (O,) of omega

    def dot(self, other: "Counts") -> float:
        """Sum of all products."""
        return float(sum(a @ b for a, b in zip(self, other, strict=True)))


class Effect(NamedTuple):
    """One effect: the rows that it may be, and its expectations."""

    rows: IntArray  # (r,) with a probability above 0
    chance: FloatArray  # (r,) the rest is that it is nothing
    moments: RowMoments  # of these rows
    pull: FloatArray  # (r, k, m) with which these were computed
    choices: FloatArray  # (r, K, O) probabilities of slabs and rates
    coefficients: FloatArray  # (r, k, m) chance times mean
    predictors: list[FloatArray]  # (n,) expected, per task
    divergence: float  # from the prior of its content with all log-weights 0, the number of effects apart
    counts: Counts

    @property
    def on(self) -> float:
        """Probability that it is not nothing."""
        return min(float(self.chance.sum()), 1.0)

    @property
    def spread(self) -> float:
        """Number of equally likely rows that would be as uncertain."""
        share = self.chance[self.chance > 0] / max(self.on, 1e-300)
        return math.exp(-float(share @ np.log(share)))


@dataclass(eq=False)
class EffectsState:
    """What changes, beside the effects themselves."""

    effects: list[Effect]
    log_weights: Counts
    noise_shape: FloatArray  # (m,) of the inverse gamma distribution of sigma^2
    noise_rate: FloatArray
    intercept: FloatArray  # (m,) mean
    intercept_variance: FloatArray
    predictors: list[FloatArray]  # (n,) expected, per task, intercept included
    precisions: list[FloatArray]  # (n,) omega
    linear: list[FloatArray]  # (n,) l
    curvature: FloatArray  # (R, m, k, k) of all rows
    label_terms: float = 0.0  # constant of the bound of labels
    trace: list[float] = field(default_factory=list)


class EffectsProblem(NamedTuple):
    """What stays."""

    observations: TaskRows
    table: RowTable
    prior: SpikePrior
    slabs: Slabs
    log_f: FloatArray  # (R' + 1,) or as many as there may be effects
    learn_noise: bool
    base: FloatArray  # (R, m, k, k) curvature of all rows at precision 1
    space: Space
    settings: AscentSettings


class Found(NamedTuple):
    """A fit."""

    state: EffectsState
    converged: bool
    interrupted: bool
    n_iter: int


def problem_of(
    observations: TaskRows, rows: RowMap, prior: SpikePrior, learn_noise: bool, settings: AscentSettings
) -> EffectsProblem:
    """Lay out what the steps need."""
    table, m = row_table(rows), observations.n_tasks
    slabs, k = slab_grid(prior.scales, prior.shares), table.members.shape[1]
    problem = EffectsProblem(
        observations.of_features(table.members.ravel()),
        RowTable(np.arange(table.members.size).reshape(table.members.shape), table.sizes),
        prior,
        slabs,
        log_set_probability(prior, len(table.sizes) + prior.n_left_out, settings.most_effects),
        learn_noise,
        np.zeros(0),
        space_for(m, k),
        settings,
    )
    if not observations.normal:
        return problem
    return problem._replace(base=curvatures(problem, [np.ones(len(y)) for y in observations.targets]))


def row_table(rows: RowMap) -> RowTable:
    """Members of every row, padded with -1.

    Examples
    --------
    >>> from bayesmtfs.gibbs.state import single_rows
    >>> row_table(single_rows(np.ones((2, 3), dtype=bool))).members.ravel().tolist()
    [0, 1, 2]
    """
    sizes = np.diff(rows.starts)
    members = np.full((len(sizes), int(sizes.max())), -1)
    for i, (start, size) in enumerate(zip(rows.starts[:-1], sizes, strict=True)):
        members[i, :size] = rows.members[start : start + size]
    return RowTable(members, sizes)


def log_set_probability(prior: SpikePrior, n_rows: int, most: int) -> FloatArray:
    """(most + 1,) ``ln f(K)`` for K = 0, ..., most."""
    rates, weights = np.array(prior.inclusion_rates), np.maximum(np.array(prior.inclusion_weights), 1e-300)
    on = np.arange(min(most, n_rows) + 1)[:, np.newaxis]
    with np.errstate(divide="ignore"):
        off = np.where(on < n_rows, (n_rows - on) * np.log1p(-rates), 0.0)
    return np.asarray(logsumexp(np.log(weights) + on * np.log(rates) + off, axis=1))


# ---------------------------------------------------------------------- one effect


def row_prior(problem: EffectsProblem, state: EffectsState) -> PatternPrior:
    """Prior of a row that is on, at the present weights."""
    slabs, rates = problem.slabs, np.array(problem.prior.pattern_rates)
    m, scale = problem.observations.n_tasks, state.log_weights.scale[slabs.scale]
    return PatternPrior(
        mean_variance=slabs.mean_variance,
        own_variance=slabs.own_variance,
        log_slab=np.stack([scale + state.log_weights.share[slabs.share], scale]),
        log_rate=state.log_weights.rate,
        entry_rates=np.repeat(rates[:, np.newaxis], m, axis=1),
        empty=(1.0 - rates) ** m,
    )


def number_on(effects: list[Effect]) -> FloatArray:
    """(L + 1,) Distribution of the number of effects that are on."""
    found = np.ones(1)
    for effect in effects:
        found = np.convolve(found, [1.0 - effect.on, effect.on])
    return found


def log_number_prior(problem: EffectsProblem, n_effects: int) -> FloatArray:
    """(L + 1,) ``ln f(K) + ln (L - K)!``."""
    return problem.log_f[: n_effects + 1] + gammaln(1.0 + n_effects - np.arange(n_effects + 1))


def log_odds(problem: EffectsProblem, others: list[Effect]) -> float:
    """h, from the distribution of the number of other effects that are on."""
    return float(number_on(others) @ np.diff(log_number_prior(problem, len(others) + 1)))


def scores_without(state: EffectsState, effect: Effect | None) -> list[FloatArray]:
    """What the targets say about an effect when all others are as expected."""
    without = state.predictors if effect is None else list(map(np.subtract, state.predictors, effect.predictors))
    return [part - omega * eta for part, omega, eta in zip(state.linear, state.precisions, without, strict=True)]


def pulls_of(problem: EffectsProblem, scores: list[FloatArray]) -> FloatArray:
    """(R, k, m) Products of the features of all rows with scores."""
    return problem.observations.pulls(scores).reshape(*problem.table.members.shape, -1)


def update_effect(problem: EffectsProblem, state: EffectsState, number: int) -> None:
    """Fit one effect to what the others leave; ``number`` may be that of a new one."""
    old = state.effects[number] if number < len(state.effects) else None
    others = [effect for place, effect in enumerate(state.effects) if place != number]
    pull, h = pulls_of(problem, scores_without(state, old)), log_odds(problem, others)
    effect = fitted_effect(problem, state, pull, h)
    change = effect.predictors if old is None else list(map(np.subtract, effect.predictors, old.predictors))
    state.predictors = list(map(np.add, state.predictors, change))
    state.effects[number:] = [effect, *state.effects[number + 1 :]]


def fitted_effect(problem: EffectsProblem, state: EffectsState, pull: FloatArray, h: float) -> Effect:
    """Effect over its likeliest rows, given sums of products of all rows and the log-odds h of the prior."""
    prior, sizes = row_prior(problem, state), problem.table.sizes
    R, k, m = pull.shape
    shape = (len(prior.mean_variance), len(prior.log_rate))
    evidence, choices = np.empty(R), np.empty((R, *shape))
    fill_evidences(pull, state.curvature, sizes, -h, prior, problem.space, evidence, choices)
    logits = evidence + h
    top = max(float(logits.max()), 0.0)
    odds, nothing = np.exp(logits - top), math.exp(-top)
    order = np.argsort(-odds, kind="stable")[: problem.settings.most_rows]
    sums = np.cumsum(odds[order])
    few = int(np.searchsorted(sums, sums[-1] - problem.settings.dropped * (sums[-1] + nothing))) + 1
    rows = order[: few if odds[order[0]] > 0.0 else 0]
    total = odds[rows].sum() + nothing
    chance = odds[rows] / total
    pull, curvature, choices = pull[rows], state.curvature[rows], choices[rows]
    moments = moments_for(len(rows), m, k, *shape)
    fill_moments(pull, curvature, sizes[rows], choices, prior, problem.space, moments)
    coefficients = chance[:, np.newaxis, np.newaxis] * moments.mean
    expected = float(np.sum(coefficients * pull))
    expected -= 0.5 * float(np.einsum("r,rtab,rtab->", chance, moments.second, curvature))
    counts = counts_of(problem, rows, chance, moments)
    divergence = expected - top - math.log(total) + h * chance.sum() + counts.dot(state.log_weights)
    features = problem.table.members[rows].ravel()
    predictors = problem.observations.predictors(features, coefficients.reshape(len(features), m))
    return Effect(rows, chance, moments, pull, choices, coefficients, predictors, divergence, counts)


def counts_of(problem: EffectsProblem, rows: IntArray, chance: FloatArray, moments: RowMoments) -> Counts:
    """Expected counts of one effect."""
    slabs, single = problem.slabs, problem.table.sizes[rows] == 1
    every = np.einsum("r,rko->ko", chance, moments.choices)
    alone = np.einsum("r,rk->k", chance * single, moments.choices.sum(axis=2))
    n_scales, n_shares = len(problem.prior.scales), len(problem.prior.shares)
    return Counts(
        np.bincount(slabs.scale, every.sum(axis=1), n_scales),
        np.bincount(slabs.share, alone, n_shares),
        every.sum(axis=0),
    )


# ---------------------------------------------------------------------- everything else


def first_state(problem: EffectsProblem) -> EffectsState:
    """No effects, the noise that of the targets, and equal weights."""
    observations, prior = problem.observations, problem.prior
    sizes = (len(prior.scales), len(prior.shares), len(prior.pattern_rates))
    m, lengths = observations.n_tasks, [len(y) for y in observations.targets]
    state = EffectsState(
        effects=[],
        log_weights=Counts(*(np.full(size, -math.log(size)) for size in sizes)),
        noise_shape=np.full(m, prior.noise_shape),
        noise_rate=np.full(m, prior.noise_rate),
        intercept=np.zeros(m),
        intercept_variance=np.zeros(m),
        predictors=[np.zeros(length) for length in lengths],
        precisions=[np.ones(length) for length in lengths],
        linear=[np.zeros(length) for length in lengths],
        curvature=np.zeros(0),
    )
    update_targets(problem, state)
    return state


def expected_squares(problem: EffectsProblem, state: EffectsState) -> FloatArray:
    """(m,) ``E sum_n omega_n (y_n - eta_n)^2 / omega`` of normal targets."""
    observations, found = problem.observations, np.empty(problem.observations.n_tasks)
    omega = np.array([precision[0] for precision in state.precisions])
    for t, (y, eta) in enumerate(zip(observations.targets, state.predictors, strict=True)):
        column = observations.intercept(t)
        found[t] = np.sum((y - eta) ** 2) + state.intercept_variance[t] * (column @ column)
    for effect in state.effects:
        curvature = state.curvature[effect.rows]
        found += np.einsum("r,rtab,rtab->t", effect.chance, effect.moments.second, curvature) / omega
        found -= np.array([part @ part for part in effect.predictors])
    return found


def update_targets(problem: EffectsProblem, state: EffectsState) -> None:
    """Noise of normal targets, or precisions of labels; then the curvature of all rows."""
    observations, prior = problem.observations, problem.prior
    if observations.normal:
        if problem.learn_noise:
            squares = expected_squares(problem, state) if state.curvature.size else _plain_squares(observations)
            counts = observations.counts
            if prior.shared_noise:
                counts, squares = (np.full(len(counts), part.sum()) for part in (counts, squares))
            state.noise_shape = prior.noise_shape + 0.5 * counts
            state.noise_rate = prior.noise_rate + 0.5 * squares
        omega = state.noise_shape / state.noise_rate if problem.learn_noise else np.ones(observations.n_tasks)
        state.precisions = [np.full(len(y), omega[t]) for t, y in enumerate(observations.targets)]
        state.linear = [omega[t] * y for t, y in enumerate(observations.targets)]
        state.curvature = problem.base * omega[:, np.newaxis, np.newaxis]
    else:
        _update_labels(problem, state)
        state.curvature = curvatures(problem, state.precisions)


def _plain_squares(observations: TaskRows) -> FloatArray:
    return np.array([y @ y for y in observations.targets])


def _update_labels(problem: EffectsProblem, state: EffectsState) -> None:
    hidden, state.label_terms = problem.observations.family.augmentation, 0.0
    for t, (y, weight) in enumerate(zip(problem.observations.targets, problem.observations.weights, strict=True)):
        xi = np.sqrt(second_moment(problem, state, t))
        state.precisions[t] = weight * hidden.expected_precision(xi)
        state.linear[t] = weight * hidden.linear(y)
        state.label_terms -= float(weight @ hidden.bound_constant(xi))


def second_moment(problem: EffectsProblem, state: EffectsState, t: int) -> FloatArray:
    """(n,) ``E[eta_n^2]`` in one task."""
    observations = problem.observations
    found = state.predictors[t] ** 2 + state.intercept_variance[t] * observations.intercept(t) ** 2
    for effect in state.effects:
        X = observations.design(t)[problem.table.members[effect.rows]]  # (r, k, n)
        square = effect.chance[:, np.newaxis, np.newaxis] * effect.moments.second[:, t]
        found += np.einsum("ran,rab,rbn->n", X, square, X, optimize=True) - effect.predictors[t] ** 2
    return np.maximum(found, 0.0)


def curvatures(problem: EffectsProblem, precisions: list[FloatArray]) -> FloatArray:
    """(R, m, k, k) Products of the features of each row with each other."""
    observations, (R, k) = problem.observations, problem.table.members.shape
    found = np.empty((R, observations.n_tasks, k, k))
    for t, omega in enumerate(precisions):
        if k == 1:
            X = observations.design(t)
            found[:, t, 0, 0] = np.einsum("pn,pn,n->p", X, X, omega)
        else:
            X = observations.design(t).reshape(R, k, -1)
            found[:, t] = np.einsum("ran,rbn,n->rab", X, X, omega, optimize=True)
    return found


def update_intercepts(problem: EffectsProblem, state: EffectsState) -> None:
    """Intercepts given everything else."""
    prior, observations = problem.prior, problem.observations
    for t in range(observations.n_tasks if prior.fit_intercept else 0):
        column, omega = observations.intercept(t), state.precisions[t]
        precision = float(column**2 @ omega) + prior.intercept_scale**-2.0
        rest = state.linear[t] - omega * (state.predictors[t] - state.intercept[t] * column)
        mean = float(column @ rest) / precision
        state.predictors[t] = state.predictors[t] + (mean - state.intercept[t]) * column
        state.intercept[t], state.intercept_variance[t] = mean, 1.0 / precision


def concentrations(prior: SpikePrior) -> tuple[float, float, float]:
    """Of the Dirichlet distributions of rho, C and omega."""
    return prior.scale_concentration, prior.share_concentration, prior.rate_concentration


def update_weights(problem: EffectsProblem, state: EffectsState) -> None:
    """Weights of rho, C and omega."""
    sums = [np.sum([effect.counts[part] for effect in state.effects], axis=0) for part in range(3)]
    more = [n + a for n, a in zip(sums, concentrations(problem.prior), strict=True)]
    state.log_weights = Counts(*(np.log(part / part.sum()) for part in more))


def objective(problem: EffectsProblem, state: EffectsState) -> float:
    """Lower bound of the log-evidence, with the log-density of the weights."""
    value = float(number_on(state.effects) @ log_number_prior(problem, len(state.effects)))
    value -= sum(effect.divergence - effect.counts.dot(state.log_weights) for effect in state.effects)
    for log_weights, a in zip(state.log_weights, concentrations(problem.prior), strict=True):
        value += (
            float(a * log_weights.sum()) + gammaln(len(log_weights) * (a + 1.0)) - len(log_weights) * gammaln(a + 1.0)
        )
    value += _expected_log_likelihood(problem, state)
    if problem.prior.fit_intercept:
        ratio = state.intercept_variance / problem.prior.intercept_scale**2
        value += 0.5 * float(
            np.sum(np.log(ratio) + 1.0 - ratio - (state.intercept / problem.prior.intercept_scale) ** 2)
        )
    return value


def _expected_log_likelihood(problem: EffectsProblem, state: EffectsState) -> float:
    observations, prior = problem.observations, problem.prior
    if not observations.normal:
        value = state.label_terms
        for t, (linear, omega) in enumerate(zip(state.linear, state.precisions, strict=True)):
            value += float(linear @ state.predictors[t] - 0.5 * omega @ second_moment(problem, state, t))
        return value
    squares = expected_squares(problem, state)
    if not problem.learn_noise:
        return -0.5 * float(np.sum(observations.counts * LOG_2PI + squares))
    a, b = state.noise_shape, state.noise_rate
    log_variance, precision = np.log(b) - digamma(a), a / b
    value = -0.5 * float(np.sum(observations.counts * (LOG_2PI + log_variance) + precision * squares))
    own = prior.noise_shape * math.log(prior.noise_rate) - gammaln(prior.noise_shape)
    terms = own - (prior.noise_shape + 1.0) * log_variance - prior.noise_rate * precision
    terms -= a * np.log(b) - gammaln(a) - (a + 1.0) * log_variance - a
    return value + float(terms[0] if prior.shared_noise else terms.sum())


# ---------------------------------------------------------------------- the ascent


def is_placed(problem: EffectsProblem, effect: Effect) -> bool:
    """Whether an effect is likely on, and the data say something about where."""
    return effect.on > LIKELY and effect.spread <= max(FEW_ROWS, SPREAD * len(problem.table.sizes))


def sweep(problem: EffectsProblem, state: EffectsState) -> bool:
    """Fit every effect once, a new one where the last is likely on, then everything else; True if there is a new one."""
    room = len(state.effects) < min(problem.settings.most_effects, len(problem.log_f) - 1)
    grows = room and all(is_placed(problem, effect) for effect in state.effects)
    for number in range(len(state.effects) + grows):
        update_effect(problem, state, number)
    update_weights(problem, state)
    update_intercepts(problem, state)
    update_targets(problem, state)
    state.trace.append(objective(problem, state))
    return grows


def ascend(problem: EffectsProblem, state: EffectsState, progress: bool | None = None) -> Found:
    """Sweep until the objective stands still."""
    settings, converged, n_iter = problem.settings, False, 0
    with Progress("variational posterior", progress) as work:
        while not converged and n_iter < settings.max_iter:
            grown = sweep(problem, state)
            n_iter += 1
            gain = state.trace[-1] - state.trace[-2] if len(state.trace) > 1 else np.inf
            converged = not grown and abs(gain) < settings.tol
            work.update(n_iter / settings.max_iter, f"{len(state.effects)} effects")
    if not state.trace:
        raise KeyboardInterrupt
    return Found(state, converged, work.interrupted, n_iter)


def inclusion(state: EffectsState, n_rows: int) -> FloatArray:
    """(R,) Probability that each row is on."""
    off = np.ones(n_rows)
    for effect in state.effects:
        off[effect.rows] *= 1.0 - effect.chance
    return np.asarray(1.0 - off)
