"""Independent draws of the variational posterior, with all that belongs to them."""

from typing import NamedTuple

import numpy as np

from bayesmtfs.gibbs.state import RowMap
from bayesmtfs.types import BoolArray, FloatArray, IntArray
from bayesmtfs.variational.effects import Effect, EffectsProblem, EffectsState, row_prior
from bayesmtfs.variational.row import draw_rows


class VariationalDraws(NamedTuple):
    """Draws of all parameters."""

    W: FloatArray  # (S, p, m)
    included: BoolArray  # (S, p, m)
    intercept: FloatArray  # (S, m)
    noise: FloatArray  # (S, m)
    inclusion_rate: FloatArray  # (S,) pi given how many rows are on


def draw(problem: EffectsProblem, state: EffectsState, rows: RowMap, count: int, random_seed: int) -> VariationalDraws:
    """Draw every effect by itself; where two are in one place their coefficients add up."""
    rng = np.random.Generator(np.random.PCG64(random_seed))
    m, p = rows.present.shape
    found = VariationalDraws(
        W=np.zeros((count, p, m)),
        included=np.zeros((count, p, m), dtype=np.bool_),
        intercept=state.intercept + np.sqrt(state.intercept_variance) * rng.standard_normal((count, m)),
        noise=_noise(problem, state, rng, count),
        inclusion_rate=np.empty(count),
    )
    for effect in state.effects:
        _add_effect(problem, state, rows, effect, rng, found)
    n_on = _rows_on(found.included, rows).sum(axis=1)
    found.inclusion_rate[:] = _rates(problem, len(rows.sizes), n_on, rng)
    return found


def _add_effect(
    problem: EffectsProblem,
    state: EffectsState,
    rows: RowMap,
    effect: Effect,
    rng: np.random.Generator,
    found: VariationalDraws,
) -> None:
    count, (k, m) = len(found.W), effect.pull.shape[1:]
    place = rng.choice(len(effect.rows) + 1, size=count, p=np.append(effect.chance, 1.0 - effect.on))
    tools = (row_prior(problem, state), problem.space)
    for number in np.unique(place[place < len(effect.rows)]):
        draws, i = np.flatnonzero(place == number), effect.rows[number]
        on, W = np.zeros((len(draws), m), dtype=np.bool_), np.zeros((len(draws), k, m))
        size = int(problem.table.sizes[i])
        likelihood = (effect.pull[number], state.curvature[i], size, effect.choices[number])
        draw_rows(rng, *likelihood, *tools, on, W)
        for a in range(size):
            feature = rows.members[rows.starts[i] + a]
            found.W[draws, feature] += W[:, a] * rows.present[:, feature]
            found.included[draws, feature] |= on & rows.present[:, feature]


def _noise(problem: EffectsProblem, state: EffectsState, rng: np.random.Generator, count: int) -> FloatArray:
    """Standard deviations, 1 where there is no noise to learn."""
    m = len(state.noise_shape)
    if not problem.learn_noise:
        return np.ones((count, m))
    if problem.prior.shared_noise:
        return np.repeat(np.sqrt(state.noise_rate[0] / rng.gamma(state.noise_shape[0], size=(count, 1))), m, axis=1)
    return np.sqrt(state.noise_rate / rng.gamma(state.noise_shape, size=(count, m)))


def _rows_on(included: BoolArray, rows: RowMap) -> BoolArray:
    """(S, R) Rows that are on in some task."""
    some = included.any(axis=2)
    found: BoolArray = np.zeros((len(some), len(rows.sizes)), dtype=np.bool_)
    for feature, row in enumerate(rows.row_of_feature):
        found[:, row] |= some[:, feature]
    return found


def _rates(problem: EffectsProblem, n_rows: int, n_on: IntArray, rng: np.random.Generator) -> FloatArray:
    """(S,) Draws of pi given the number of rows that are on."""
    prior = problem.prior
    rates, weights = np.array(prior.inclusion_rates), np.maximum(np.array(prior.inclusion_weights), 1e-300)
    off = n_rows + prior.n_left_out - n_on[:, np.newaxis]
    logs = np.log(weights) + n_on[:, np.newaxis] * np.log(rates) + off * np.log1p(-rates)
    return rates[np.argmax(logs + rng.gumbel(size=logs.shape), axis=1)]
