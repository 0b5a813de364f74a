r"""Sweeps of the Gibbs sampler by observation: for labels, and where features outnumber the rows.

The order matters where something is integrated out:

1. the sizes of effects of labels (`features`), with the Polya-Gamma precisions integrated out;
2. active rows, intercepts and the global scale along a Hamiltonian path (`block`), with the precisions integrated out
   too; not for normal targets at a fixed q = 2, where nothing is left for it to do;
3. a learned q, with scales and coefficients carried along (`exponent`), the precisions integrated out too;
4. the precisions given the linear predictors, and the intercepts;
5. at a fixed q = 2 the scales of active rows with all their coefficients integrated out, then those (`collapsed`);
6. all features in turn (`features`), shared means together (`mean`), the global scale in three parametrisations
   (`scales`), shared means with the coefficients fixed (`mean`), and the noise of normal targets.

At a fixed q = 2 with more features than rows in every task, steps 2, 4 and 5 are those of `step_on_active_rows`, several
in a sweep, since they cost less than a look at thousands of features: active rows are drawn by chance (`path`); then, for
labels several times, a Hamiltonian path with the precisions integrated out (`path`), the precisions given the linear
predictors, and the scales of the active rows with all their coefficients integrated out (`collapsed`).

All steps but the third leave q as it is, and are right for any. What is tuned is tuned over the q that are visited.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.families.augmentation import NORMAL
from bayesmtfs.gibbs.block import ActiveBlock, block_for, step_on_block, tune_block
from bayesmtfs.gibbs.collapsed import step_on_collapsed_scales
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.gibbs.exponent import (
    ObservedExponentSpace,
    fill_precisions,
    observed_exponent_space,
    step_on_observed_exponent,
)
from bayesmtfs.gibbs.features import fill_direction, step_on_features, step_on_sizes
from bayesmtfs.gibbs.mean import draw_observed_mean, recentre
from bayesmtfs.gibbs.observations import ObservedData, ObservedWork, fill_predictors, fill_scores, working_for
from bayesmtfs.gibbs.path import WidePath, path_for, prepare_path, redraw_rows, step_along_path, tune_path
from bayesmtfs.gibbs.scales import draw_noise, step_on_global_scale
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowLayout
from bayesmtfs.gibbs.sweep import KeptDraws, keep
from bayesmtfs.types import FloatArray

EXPONENT_STEPS = 3  # on 1/q in a sweep; cheap beside the rest
CYCLES = 3  # in a sweep


class ObservedSpace(NamedTuple):
    """Arrays that a sweep writes to."""

    working: ObservedWork
    block: ActiveBlock
    h: FloatArray  # (m, p)
    residuals: FloatArray  # (m, p)


class ObservedParts(NamedTuple):
    """What only some sweeps have."""

    free: ActiveBlock | None  # active rows along a path with their scales: labels, or q other than 2
    collapsed: ActiveBlock | None  # active rows with coefficients integrated out: q stays at 2
    path: WidePath | None  # instead of both: q stays at 2, and there are more features than rows
    exponent: ObservedExponentSpace | None  # q is learned
    mean: RowLayout | None  # a shared mean


def observed_space_for(observations: ObservedData, rows: RowLayout) -> ObservedSpace:
    """Allocate."""
    shape = rows.present.shape
    return ObservedSpace(working_for(observations), block_for(observations, rows), np.zeros(shape), np.zeros(shape))


def observed_parts_for(
    observations: ObservedData, rows: RowLayout, prior: GibbsPrior, norm_q: float, block: ActiveBlock
) -> ObservedParts:
    """Allocate what the prior and the data ask for."""
    normal = norm_q == 2.0 and not prior.learn_q
    path = path_for(observations, rows, block)
    wide = normal and path.rest.factor.shape[1] > 0
    return ObservedParts(
        free=block if not wide and (observations.form != NORMAL or not normal) else None,
        collapsed=block if normal and not wide else None,
        path=path if wide else None,
        exponent=observed_exponent_space(observations, rows) if prior.learn_q else None,
        mean=rows if prior.mean_precision > 0.0 else None,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run_observed(
    rng: Generator,
    observations: ObservedData,
    rows: RowLayout,
    prior: GibbsPrior,
    state: GibbsState,
    space: ObservedSpace,
    kept: KeptDraws,
    free: ActiveBlock | None,
    collapsed: ActiveBlock | None,
    path: WidePath | None,
    exponent: ObservedExponentSpace | None,
    mean: RowLayout | None,
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
        if observations.form != NORMAL:
            step_on_sizes(rng, observations, working, rows, prior, state, block)
        if free is not None:
            if free.sizes.features > 0 and state.inverse_q[0] <= 1.0:
                acceptance = step_on_block(rng, observations, working, rows, prior, state, free)
        if tuning > 0:
            tune_block(observations, working, rows, prior, state, block, acceptance, tuning, tune)
        if exponent is not None:
            fill_precisions(observations, working, rows, state, tuning, exponent)
            for _ in range(EXPONENT_STEPS):
                step_on_observed_exponent(rng, observations, working, rows, prior, state, tuning, exponent)
        if path is not None:
            if block.sizes.features > 0:
                step_on_active_rows(rng, observations, working, rows, prior, state, block, path, tuning, tune)
                by_path = True
        if not by_path:
            fill_scores(rng, observations, state, working)
            if prior.intercept_variance > 0.0:
                _draw_intercepts(rng, observations, working, prior, state)
        if collapsed is not None:
            if collapsed.sizes.features > 0:
                step_on_collapsed_scales(rng, observations, working, rows, prior, state, collapsed)
        step_on_features(rng, observations, working, rows, prior, state, tuning)
        if mean is not None:
            draw_observed_mean(rng, observations, working, mean, prior, state)
        if prior.learn_global_scale:
            _fill_moments(observations, working, rows, state, space)
            step_on_global_scale(rng, space.h, space.residuals, rows, prior, state)
        if mean is not None:
            recentre(rng, mean, prior, state)
        if prior.learn_noise:
            _draw_noise(rng, observations, rows, prior, state, working)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_intercepts(
    rng: Generator, observations: ObservedData, working: ObservedWork, prior: GibbsPrior, state: GibbsState
) -> None:
    """``b_t`` given everything else."""
    for t in range(len(state.W)):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        precision, pull = 1.0 / prior.intercept_variance, -state.intercept[t] / prior.intercept_variance
        for n in range(start, stop):
            precision += working.precisions[n]
            pull += working.scores[n]
        change = pull / precision + rng.standard_normal() / math.sqrt(precision)
        state.intercept[t] += change
        for n in range(start, stop):
            working.predictors[n] += change
            working.scores[n] -= working.precisions[n] * change


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_moments(
    observations: ObservedData, working: ObservedWork, rows: RowLayout, state: GibbsState, space: ObservedSpace
) -> None:
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
    rng: Generator,
    observations: ObservedData,
    rows: RowLayout,
    prior: GibbsPrior,
    state: GibbsState,
    working: ObservedWork,
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
        if not prior.shared_noise:
            state.noise[t] = draw_noise(rng, prior, state.noise[t], square, count)
    if prior.shared_noise:
        noise = draw_noise(rng, prior, state.noise[0], total, total_count)
        for t in range(len(state.W)):
            state.noise[t] = noise


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_active_rows(
    rng: Generator,
    observations: ObservedData,
    working: ObservedWork,
    rows: RowLayout,
    prior: GibbsPrior,
    state: GibbsState,
    block: ActiveBlock,
    path: WidePath,
    tuning: int,
    tune: int,
) -> None:
    """Move active rows and intercepts, and for labels all coefficients; precisions and scores are drawn."""
    redraw_rows(rng, observations, rows, prior, block, path)
    if observations.form != NORMAL:
        prepare_path(observations, rows, prior, state, block, path)
    for cycle in range(CYCLES if observations.form != NORMAL else 1):
        acceptance = -1.0
        if observations.form != NORMAL:
            acceptance = step_along_path(rng, observations, working, rows, prior, state, block, path)
        fill_scores(rng, observations, state, working)
        if tuning > 0 and cycle == 0:
            tune_path(observations, working, rows, state, block, path, acceptance, tuning, tune)
        step_on_collapsed_scales(rng, observations, working, rows, prior, state, block)
