"""One sweep of the Gibbs sampler by observation, and many of them: for labels, and where features outnumber the rows.

The order matters where something is integrated out:

1. active rows, intercepts and the global scale along a Hamiltonian path (`gibbs_block`), with the Pólya-Gamma
   precisions of labels integrated out; not for normal targets at q = 2, where nothing is left for it to do;
2. the precisions given the linear predictors;
3. at q = 2 the scales of active rows with all their coefficients integrated out, then those (`gibbs_collapsed`);
4. all features in turn (`gibbs_features`), the global scale in three parametrisations (`gibbs_scales`), shared means with
   the coefficients fixed (`gibbs_mean`), and the noise of normal targets.

The exponent q stays as it is.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.protocols import FloatArray
from bayesmtfs.solvers.gibbs.gibbs_block import FEATURES, Block, block_for, step_on_block
from bayesmtfs.solvers.gibbs.gibbs_block_tuning import tune_block
from bayesmtfs.solvers.gibbs.gibbs_collapsed import step_on_collapsed_scales
from bayesmtfs.solvers.gibbs.gibbs_features import fill_direction, step_on_features
from bayesmtfs.solvers.gibbs.gibbs_mean import recentre
from bayesmtfs.solvers.gibbs.gibbs_observations import (
    Observations,
    Working,
    dot,
    fill_predictors,
    fill_scores,
    working_for,
)
from bayesmtfs.solvers.gibbs.gibbs_scales import step_on_global_scale
from bayesmtfs.solvers.gibbs.gibbs_state import INVERSE_Q, Law, Rows, State
from bayesmtfs.solvers.gibbs.gibbs_sweep import Kept, draw_noise, keep

LONGEST_PATH = 3.0  # in standard deviations


class ObservedSpace(NamedTuple):
    """Arrays that a sweep writes to."""

    working: Working
    block: Block
    h: FloatArray  # (m, p)
    residuals: FloatArray  # (m, p)


def observed_space_for(observations: Observations, rows: Rows) -> ObservedSpace:
    """Allocate."""
    shape = rows.present.shape
    return ObservedSpace(working_for(observations), block_for(observations, rows), np.zeros(shape), np.zeros(shape))


@njit(cache=True, nogil=True, error_model="numpy")
def run_observed(
    rng: np.random.Generator,
    observations: Observations,
    rows: Rows,
    law: Law,
    state: State,
    space: ObservedSpace,
    kept: Kept,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept."""
    for number in range(first, stop):
        observed_sweep(rng, observations, rows, law, state, space, number + 1 if number < tune else 0, tune)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@njit(cache=True, nogil=True, error_model="numpy")
def observed_sweep(
    rng: np.random.Generator,
    observations: Observations,
    rows: Rows,
    law: Law,
    state: State,
    space: ObservedSpace,
    tuning: int,
    tune: int,
) -> None:
    """Move everything once; ``tuning`` is the number of the sweep from 1 to ``tune`` while steps are tuned, else 0."""
    working, block, inverse_q = space.working, space.block, state.numbers[INVERSE_Q]
    normal = inverse_q == 0.5
    fill_predictors(observations, rows, state, working.predictors)
    acceptance = -1.0
    if block.counts[FEATURES] > 0 and 0.0 < inverse_q <= 1.0 and (observations.labels or not normal):
        acceptance = step_on_block(rng, observations, working, rows, law, state, block, LONGEST_PATH)
    if tuning > 0:
        tune_block(observations, working, rows, law, state, block, acceptance, tuning, tune)
    fill_scores(rng, observations, state, working)
    if law.intercept_variance > 0.0:
        _draw_intercepts(rng, observations, working, law, state)
    if block.counts[FEATURES] > 0 and normal:
        step_on_collapsed_scales(rng, observations, working, rows, law, state, block)
    step_on_features(rng, observations, working, rows, law, state, tuning)
    if law.learn_global_scale:
        _fill_moments(observations, working, rows, state, space)
        step_on_global_scale(rng, space.h, space.residuals, rows, law, state)
    if law.mean_precision > 0.0:
        recentre(rng, rows, law, state)
    if law.learn_noise and not observations.labels:
        _draw_noise(rng, observations, rows, law, state, working)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_intercepts(
    rng: np.random.Generator, observations: Observations, working: Working, law: Law, state: State
) -> None:
    """``b_t`` given everything else."""
    for t in range(len(state.W)):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        precision, pull = 1.0 / law.intercept_variance, -state.intercept[t] / law.intercept_variance
        for n in range(start, stop):
            precision += working.precisions[n]
            pull += working.scores[n]
        change = pull / precision + rng.standard_normal() / math.sqrt(precision)
        state.intercept[t] += change
        for n in range(start, stop):
            working.predictors[n] += change
            working.scores[n] -= working.precisions[n] * change


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_moments(observations: Observations, working: Working, rows: Rows, state: State, space: ObservedSpace) -> None:
    """``X's`` and ``X's + X'diag(omega)X w`` of every task."""
    fill_direction(observations, working, rows, state, 0, len(rows.sizes))
    for n in range(len(working.direction)):
        working.direction[n] *= working.precisions[n]
    for i in range(len(observations.design)):
        x = observations.design[i]
        for t in range(len(state.W)):
            start, stop = observations.offsets[t], observations.offsets[t + 1]
            space.residuals[t, i] = dot(x[start:stop], working.scores[start:stop])
            space.h[t, i] = space.residuals[t, i] + dot(x[start:stop], working.direction[start:stop])


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_noise(
    rng: np.random.Generator, observations: Observations, rows: Rows, law: Law, state: State, working: Working
) -> None:
    """``sigma_t`` given the residuals."""
    fill_predictors(observations, rows, state, working.predictors)
    total, total_count = 0.0, 0.0
    for t in range(len(state.W)):
        square, count = 0.0, 0.0
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            count += observations.weights[n]
            square += observations.weights[n] * (observations.targets[n] - working.predictors[n]) ** 2
        total += square
        total_count += count
        if not law.shared_noise:
            state.noise[t] = draw_noise(rng, law, state.noise[t], square, count)
    if law.shared_noise:
        noise = draw_noise(rng, law, state.noise[0], total, total_count)
        for t in range(len(state.W)):
            state.noise[t] = noise
