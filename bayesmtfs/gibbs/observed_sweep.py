"""Sweeps of the Gibbs sampler by observation: for labels, and where features outnumber the rows.

The order matters where something is integrated out:

1. the sizes of effects of labels (`gibbs_size`), with the Pólya-Gamma precisions integrated out;
2. active rows, intercepts and the global scale along a Hamiltonian path (`gibbs_block`), with the
   precisions integrated out too; not for normal targets at a fixed q = 2, where nothing is left for it to do;
3. a learned q, with scales and coefficients carried along (`gibbs_observed_exponent`), the precisions integrated out too;
4. the precisions given the linear predictors, and the intercepts;
5. at a fixed q = 2 the scales of active rows with all their coefficients integrated out, then those (`gibbs_collapsed`);
6. all features in turn (`gibbs_features`), shared means together (`gibbs_observed_mean`), the global scale in three
   parametrisations (`gibbs_scales`), shared means with the coefficients fixed (`gibbs_mean`), and the noise of normal
   targets.

At a fixed q = 2 with more features than rows in every task, steps 2, 4 and 5 are those of `gibbs_active`.
All steps but the third leave q as it is, and are right for any. What is tuned is tuned over the q that are visited.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.active import step_on_active_rows
from bayesmtfs.gibbs.block import FEATURES, Block, block_for, step_on_block
from bayesmtfs.gibbs.block_tuning import tune_block
from bayesmtfs.gibbs.collapsed import step_on_collapsed_scales
from bayesmtfs.gibbs.features import fill_direction, step_on_features
from bayesmtfs.gibbs.mean import recentre
from bayesmtfs.gibbs.observations import Observations, Working, dot, fill_predictors, fill_scores, working_for
from bayesmtfs.gibbs.observed_exponent import (
    ObservedExponentSpace,
    fill_precisions,
    observed_exponent_space,
    step_on_observed_exponent,
)
from bayesmtfs.gibbs.observed_mean import step_on_means
from bayesmtfs.gibbs.path import Path, path_for
from bayesmtfs.gibbs.scales import step_on_global_scale
from bayesmtfs.gibbs.size import step_on_sizes
from bayesmtfs.gibbs.state import INVERSE_Q, Law, Rows, State
from bayesmtfs.gibbs.sweep import Kept, draw_noise, keep
from bayesmtfs.types import FloatArray

LONGEST_PATH = 3.0  # in standard deviations
EXPONENT_STEPS = 3  # on 1/q in a sweep; cheap beside the rest


class ObservedSpace(NamedTuple):
    """Arrays that a sweep writes to."""

    working: Working
    block: Block
    h: FloatArray  # (m, p)
    residuals: FloatArray  # (m, p)


class ObservedParts(NamedTuple):
    """What only some sweeps have."""

    free: Block | None  # active rows along a path with their scales: labels, or q other than 2
    collapsed: Block | None  # active rows with coefficients integrated out: q stays at 2
    path: Path | None  # instead of both: q stays at 2, and there are more features than rows
    exponent: ObservedExponentSpace | None  # q is learned
    mean: Rows | None  # a shared mean


def observed_space_for(observations: Observations, rows: Rows) -> ObservedSpace:
    """Allocate."""
    shape = rows.present.shape
    return ObservedSpace(working_for(observations), block_for(observations, rows), np.zeros(shape), np.zeros(shape))


def observed_parts_for(observations: Observations, rows: Rows, law: Law, norm_q: float, block: Block) -> ObservedParts:
    """Allocate what the prior and the data ask for.

    Parameters
    ----------
    observations, rows, law : the problem
    norm_q : q at the start
    block : of the space
    """
    normal = norm_q == 2.0 and not law.learn_q
    path = path_for(observations, rows, block)
    wide = normal and path.rest.factor.shape[1] > 0
    return ObservedParts(
        free=block if not wide and (observations.labels or not normal) else None,
        collapsed=block if normal and not wide else None,
        path=path if wide else None,
        exponent=observed_exponent_space(observations, rows) if law.learn_q else None,
        mean=rows if law.mean_precision > 0.0 else None,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run_observed(
    rng: np.random.Generator,
    observations: Observations,
    rows: Rows,
    law: Law,
    state: State,
    space: ObservedSpace,
    kept: Kept,
    free: Block | None,
    collapsed: Block | None,
    path: Path | None,
    exponent: ObservedExponentSpace | None,
    mean: Rows | None,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept, before that steps are tuned.

    What is None is not compiled, which would take longer than most chains.
    """
    working, block = space.working, space.block
    for number in range(first, stop):
        tuning, acceptance, by_path = number + 1 if number < tune else 0, -1.0, False
        fill_predictors(observations, rows, state, working.predictors)
        if observations.labels:
            step_on_sizes(rng, observations, working, rows, law, state, block)
        if free is not None:
            if free.counts[FEATURES] > 0 and state.numbers[INVERSE_Q] <= 1.0:
                acceptance = step_on_block(rng, observations, working, rows, law, state, free, LONGEST_PATH)
        if tuning > 0:
            tune_block(observations, working, rows, law, state, block, acceptance, tuning, tune)
        if exponent is not None:
            fill_precisions(observations, working, rows, state, tuning, exponent)
            for _ in range(EXPONENT_STEPS):
                step_on_observed_exponent(rng, observations, working, rows, law, state, tuning, exponent)
        if path is not None:
            if block.counts[FEATURES] > 0:
                step_on_active_rows(rng, observations, working, rows, law, state, block, path, tuning, tune)
                by_path = True
        if not by_path:
            fill_scores(rng, observations, state, working)
            if law.intercept_variance > 0.0:
                _draw_intercepts(rng, observations, working, law, state)
        if collapsed is not None:
            if collapsed.counts[FEATURES] > 0:
                step_on_collapsed_scales(rng, observations, working, rows, law, state, collapsed)
        step_on_features(rng, observations, working, rows, law, state, tuning)
        if mean is not None:
            step_on_means(rng, observations, working, mean, law, state)
        if law.learn_global_scale:
            _fill_moments(observations, working, rows, state, space)
            step_on_global_scale(rng, space.h, space.residuals, rows, law, state)
        if mean is not None:
            recentre(rng, mean, law, state)
        if law.learn_noise and not observations.labels:
            _draw_noise(rng, observations, rows, law, state, working)
        if number >= tune:
            keep(rows, state, kept, number - tune)


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
