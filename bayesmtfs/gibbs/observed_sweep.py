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
from bayesmtfs.gibbs.observations import Observed, ObservedWork, fill_predictors, fill_scores, working_for
from bayesmtfs.gibbs.path import WidePath, path_for, prepare_path, redraw_rows, step_along_path, tune_path
from bayesmtfs.gibbs.scales import draw_noise, step_on_global_scale
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap
from bayesmtfs.gibbs.sweep import KeptDraws, keep
from bayesmtfs.types import FloatArray

EXPONENT_STEPS = 3  # on 1/q in a sweep; cheap beside the rest
CYCLES = 3  # in a sweep


class ObservedSpace(NamedTuple):
    """Arrays that a sweep writes to."""

    work: ObservedWork
    block: ActiveBlock
    h: FloatArray  # (m, p)
    residuals: FloatArray  # (m, p)


class ObservedParts(NamedTuple):
    """What only some sweeps have."""

    free: ActiveBlock | None  # active rows along a path with their scales: labels, or q other than 2
    collapsed: ActiveBlock | None  # active rows with coefficients integrated out: q stays at 2
    path: WidePath | None  # instead of both: q stays at 2, and there are more features than rows
    exponent: ObservedExponentSpace | None  # q is learned
    mean: RowMap | None  # a shared mean


def observed_space_for(data: Observed, rows: RowMap) -> ObservedSpace:
    """Allocate."""
    shape = rows.present.shape
    return ObservedSpace(working_for(data), block_for(data, rows), np.zeros(shape), np.zeros(shape))


def observed_parts_for(
    data: Observed, rows: RowMap, prior: GibbsPrior, norm_q: float, block: ActiveBlock
) -> ObservedParts:
    """Allocate what the prior and the data ask for."""
    normal = norm_q == 2.0 and not prior.learn_q
    path = path_for(data, rows, block)
    wide = normal and path.rest.factor.shape[1] > 0
    return ObservedParts(
        free=block if not wide and (data.form != NORMAL or not normal) else None,
        collapsed=block if normal and not wide else None,
        path=path if wide else None,
        exponent=observed_exponent_space(data, rows) if prior.learn_q else None,
        mean=rows if prior.mean_precision > 0.0 else None,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run_observed(
    rng: Generator,
    data: Observed,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: ObservedSpace,
    kept: KeptDraws,
    free: ActiveBlock | None,
    collapsed: ActiveBlock | None,
    path: WidePath | None,
    exponent: ObservedExponentSpace | None,
    mean: RowMap | None,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept, before that steps are tuned.

    What is None is not compiled, which would take longer than most chains.
    """
    work, block = space.work, space.block
    for number in range(first, stop):
        tuning, acceptance, by_path = number + 1 if number < tune else 0, -1.0, False
        fill_predictors(data, rows, state, work.predictors)
        if data.form != NORMAL:
            step_on_sizes(rng, data, work, rows, prior, state, block)
        if free is not None:
            if free.sizes.features > 0 and state.inverse_q[0] <= 1.0:
                acceptance = step_on_block(rng, data, work, rows, prior, state, free)
        if tuning > 0:
            tune_block(data, work, rows, prior, state, block, acceptance, tuning, tune)
        if exponent is not None:
            fill_precisions(data, work, rows, state, tuning, exponent)
            for _ in range(EXPONENT_STEPS):
                step_on_observed_exponent(rng, data, work, rows, prior, state, tuning, exponent)
        if path is not None:
            if block.sizes.features > 0:
                step_on_active_rows(rng, data, work, rows, prior, state, block, path, tuning, tune)
                by_path = True
        if not by_path:
            fill_scores(rng, data, state, work)
            if prior.intercept_variance > 0.0:
                _draw_intercepts(rng, data, work, prior, state)
        if collapsed is not None:
            if collapsed.sizes.features > 0:
                step_on_collapsed_scales(rng, data, work, rows, prior, state, collapsed)
        step_on_features(rng, data, work, rows, prior, state, tuning)
        if mean is not None:
            draw_observed_mean(rng, data, work, mean, prior, state)
        if prior.learn_global_scale:
            _fill_moments(data, work, rows, state, space)
            step_on_global_scale(rng, space.h, space.residuals, rows, prior, state)
        if mean is not None:
            recentre(rng, mean, prior, state)
        if prior.learn_noise:
            _draw_noise(rng, data, rows, prior, state, work)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_intercepts(rng: Generator, data: Observed, work: ObservedWork, prior: GibbsPrior, state: GibbsState) -> None:
    """``b_t`` given everything else."""
    for t in range(len(state.W)):
        start, stop = data.offsets[t], data.offsets[t + 1]
        precision, pull = 1.0 / prior.intercept_variance, -state.intercept[t] / prior.intercept_variance
        for n in range(start, stop):
            precision += work.precisions[n]
            pull += work.scores[n]
        change = pull / precision + rng.standard_normal() / math.sqrt(precision)
        state.intercept[t] += change
        for n in range(start, stop):
            work.predictors[n] += change
            work.scores[n] -= work.precisions[n] * change


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_moments(data: Observed, work: ObservedWork, rows: RowMap, state: GibbsState, space: ObservedSpace) -> None:
    """``X's`` and ``X's + X'diag(omega)X w`` of every task."""
    fill_direction(data, work, rows, state, 0, len(rows.sizes))
    for n in range(len(work.direction)):
        work.direction[n] *= work.precisions[n]
    for i in range(len(data.design)):
        x = data.design[i]
        for t in range(len(state.W)):
            start, stop = data.offsets[t], data.offsets[t + 1]
            space.residuals[t, i] = dot(x[start:stop], work.scores[start:stop])
            space.h[t, i] = space.residuals[t, i] + dot(x[start:stop], work.direction[start:stop])


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_noise(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, work: ObservedWork
) -> None:
    """``sigma_t`` given the residuals."""
    fill_predictors(data, rows, state, work.predictors)
    total, total_count = 0.0, 0.0
    for t in range(len(state.W)):
        square, count = 0.0, 0.0
        for n in range(data.offsets[t], data.offsets[t + 1]):
            count += data.weights[n]
            square += data.weights[n] * (data.targets[n] - work.predictors[n]) ** 2
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
    data: Observed,
    work: ObservedWork,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    block: ActiveBlock,
    path: WidePath,
    tuning: int,
    tune: int,
) -> None:
    """Move active rows and intercepts, and for labels all coefficients; precisions and scores are drawn."""
    redraw_rows(rng, data, rows, prior, block, path)
    if data.form != NORMAL:
        prepare_path(data, rows, prior, state, block, path)
    for cycle in range(CYCLES if data.form != NORMAL else 1):
        acceptance = -1.0
        if data.form != NORMAL:
            acceptance = step_along_path(rng, data, work, rows, prior, state, block, path)
        fill_scores(rng, data, state, work)
        if tuning > 0 and cycle == 0:
            tune_path(data, work, rows, state, block, path, acceptance, tuning, tune)
        step_on_collapsed_scales(rng, data, work, rows, prior, state, block)
