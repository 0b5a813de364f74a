r"""Sweeps of the Gibbs sampler, in sums and by observation; the order matters where something is integrated out.

**In sums** coefficients, their mean, scales and q move with the intercepts integrated out; then intercepts given
everything, and the noise given the intercepts.

**By observation**, for labels, and where features outnumber the rows:

1. the sizes of effects of labels (`features`), with the Polya-Gamma precisions integrated out;
2. active rows, intercepts and the global scale along a Hamiltonian path (`block`), with the precisions integrated out
   too; not for normal targets at a fixed q = 2, where nothing is left for it to do;
3. a learned q, with scales and coefficients carried along (`exponent`), the precisions integrated out too;
4. the precisions given the linear predictors, and the intercepts;
5. at a fixed q = 2 the scales of active rows with all their coefficients integrated out, then those (`features`);
6. all features in turn (`features`), shared means together (`mean`), the global scale in three parametrisations
   (`scales`), shared means with the coefficients fixed (`mean`), and the noise of normal targets, or what other families
   have beside their linear predictors (`dispersion`).

At a fixed q = 2 with more features than rows in every task, steps 2, 4 and 5 are those of `step_on_active_rows`, several
in a sweep, since they cost less than a look at thousands of features: active rows are drawn by chance (`path`); then, for
labels several times, a Hamiltonian path with the precisions integrated out (`path`), the precisions given the linear
predictors, and the scales of the active rows with all their coefficients integrated out (`features`).

With several classes within tasks `classes` takes the place of steps 4 and 5 and of the features in step 6, and the global
scale moves given the coefficients, as well as with them in steps 1 and 2.

All steps but the third leave q as it is, and are right for any. What is tuned is tuned over the q that are visited.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.families.augmentation import MULTINOMIAL, NORMAL
from bayesmtfs.gibbs.block import MOST_FEATURES, ActiveBlock, block_for, step_on_block, tune_block
from bayesmtfs.gibbs.classes import ClassSpace, class_space, step_on_classes
from bayesmtfs.gibbs.coefficients import draw_in_turn, draw_jointly, draw_on_ellipse, step_on_pairs
from bayesmtfs.gibbs.dispersion import DispersionSpace, draw_dispersion
from bayesmtfs.gibbs.distributions import dot, integrable, unit_variance
from bayesmtfs.gibbs.exponent import (
    ExponentSpace,
    ObservedExponentSpace,
    exponent_space,
    fill_precisions,
    observed_exponent_space,
    step_on_exponent,
    step_on_observed_exponent,
)
from bayesmtfs.gibbs.features import (
    draw_intercepts,
    fill_direction,
    step_on_collapsed_scales,
    step_on_features,
    step_on_sizes,
)
from bayesmtfs.gibbs.mean import MeanSpace, draw_mean, draw_observed_mean, mean_space, recentre, take_out_mean
from bayesmtfs.gibbs.path import WidePath, path_for, prepare_path, redraw_rows, step_along_path, tune_path
from bayesmtfs.gibbs.scales import (
    draw_noise,
    step_on_global_scale,
    step_on_integrated_row,
    step_on_row,
    step_on_tau_with_all,
)
from bayesmtfs.gibbs.state import (
    GibbsPrior,
    GibbsState,
    Observed,
    RowMap,
    SumsSpace,
    TaskSums,
    fill_predictors,
    fill_scores,
)
from bayesmtfs.types import FloatArray, IntArray

EXPONENT_STEPS, OBSERVED_EXPONENT_STEPS = 2, 3  # on 1/q in a sweep; by observation they are cheap beside the rest
CYCLES = 3  # of a path and the precisions in a sweep
MOST_OBSERVATIONS = 300  # of a task whose features all move along a path


class SumsParts(NamedTuple):
    """What only some sweeps have."""

    normal: FloatArray | None  # (p, p) space for joint draws, where q stays at 2
    any_q: FloatArray | None  # (p, p) space for draws at another q
    integrated: RowMap | None  # scales of rows move with coefficients integrated out
    mean: MeanSpace | None  # a shared mean
    exponent: ExponentSpace | None  # q is learned
    pairs: IntArray | None  # (K, 3) features that are nearly alike, and the sign of their correlation


class KeptDraws(NamedTuple):
    """Draws that are kept."""

    sweeps: int  # for each of them
    W: FloatArray  # (draws, p, m)
    mean: FloatArray  # (draws, p)
    intercept: FloatArray  # (draws, m)
    noise: FloatArray  # (draws, m)
    log_scales: FloatArray  # (draws, R)
    log_tau: FloatArray  # (draws,)
    inverse_q: FloatArray  # (draws,)


def kept_for(rows: RowMap, draws: int, sweeps: int = 1) -> KeptDraws:
    """Allocate for so many draws, each the last of some sweeps."""
    m, p = rows.present.shape
    R = len(rows.sizes)
    return KeptDraws(
        sweeps=sweeps,
        W=np.empty((draws, p, m)),
        mean=np.empty((draws, p)),
        intercept=np.empty((draws, m)),
        noise=np.empty((draws, m)),
        log_scales=np.empty((draws, R)),
        log_tau=np.empty(draws),
        inverse_q=np.empty(draws),
    )


def parts_for(rows: RowMap, prior: GibbsPrior, norm_q: float, pairs: IntArray | None) -> SumsParts:
    """Allocate what the prior and the data ask for."""
    m, p = rows.present.shape
    always_normal = norm_q == 2.0 and not prior.learn_q
    return SumsParts(
        np.empty((p, p)) if always_normal else None,
        None if always_normal else np.empty((p, p)),
        rows if integrable(norm_q) and not prior.learn_q and len(rows.sizes) == p else None,
        mean_space(p) if prior.mean_precision > 0.0 else None,
        exponent_space(m, p, len(rows.sizes)) if prior.learn_q else None,
        pairs if pairs is not None and len(pairs) else None,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def run(
    rng: Generator,
    sums: TaskSums,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
    kept: KeptDraws,
    normal: FloatArray | None,
    any_q: FloatArray | None,
    integrated: RowMap | None,
    mean: MeanSpace | None,
    exponent: ExponentSpace | None,
    pairs: IntArray | None,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept, before that steps are tuned.

    What is None is not compiled, which would take longer than most chains.
    """
    for number in range(first, stop):
        tuning = number + 1 if number < tune else 0
        _draw_coefficients(rng, sums, rows, prior, state, space, normal, any_q, integrated)
        if mean is not None:
            draw_mean(rng, space, rows, prior, state, mean)
        if pairs is not None:
            step_on_pairs(rng, space, pairs, state)
        for row in range(len(rows.sizes)):
            if integrated is not None:
                step_on_integrated_row(rng, space, integrated, prior, state, row, tuning)
            else:
                step_on_row(rng, space, rows, prior, state, row, tuning)
        if prior.learn_global_scale:
            step_on_global_scale(rng, rows, prior, state)
            step_on_tau_with_all(rng, space.h, space.residuals, prior, state)
        if exponent is not None:
            for _ in range(EXPONENT_STEPS):
                step_on_exponent(rng, space, rows, prior, state, tuning, exponent)
        if mean is not None:
            recentre(rng, rows, prior, state)
        draw_intercepts_and_noise(rng, sums, rows, prior, state, space.w)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@inner(error_model="numpy")
def keep(rows: RowMap, state: GibbsState, kept: KeptDraws, sweep: int) -> None:
    """Copy the state after the last sweep of a draw (by loops: assignments to slices take seconds to compile)."""
    if (sweep + 1) % kept.sweeps != 0:
        return
    draw, (m, p) = sweep // kept.sweeps, state.W.shape
    for t in range(m):
        kept.intercept[draw, t] = state.intercept[t]
        kept.noise[draw, t] = state.noise[t]
        for i in range(p):
            kept.W[draw, i, t] = state.W[t, i] + (state.mean[i] if rows.present[t, i] else 0.0)
    for i in range(p):
        kept.mean[draw, i] = state.mean[i]
    for row in range(len(state.log_scales)):
        kept.log_scales[draw, row] = state.log_scales[row]
    kept.log_tau[draw], kept.inverse_q[draw] = state.log_tau[0], state.inverse_q[0]


@inner(error_model="numpy")
def _draw_coefficients(
    rng: Generator,
    sums: TaskSums,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
    normal: FloatArray | None,
    any_q: FloatArray | None,
    integrated: RowMap | None,
) -> None:
    """Coefficients of every task given their mean, scales and noise, and the residuals."""
    m, p = state.W.shape
    for i in range(p):
        space.log_scales[i] = state.log_scales[rows.row_of_feature[i]]
    inverse_q = state.inverse_q[0]
    variance = unit_variance(inverse_q)
    for t in range(m):
        Q, h, residual, w, present = space.Q[t], space.h[t], space.residuals[t], state.W[t], rows.present[t]
        condition_on_noise(sums, prior, t, state.noise[t], Q, h)
        if prior.mean_precision > 0.0:
            take_out_mean(Q, h, state.mean, present)
        if normal is not None:
            draw_jointly(rng, Q, h, w, space.log_scales, present, normal)
        for i in range(p):
            residual[i] = h[i]
        for i in range(p):
            for j in range(p):
                residual[j] -= Q[i, j] * w[i]
        if any_q is not None:
            if integrated is None:
                draw_in_turn(rng, Q, residual, w, space.log_scales, present, inverse_q)
            draw_on_ellipse(rng, Q, residual, w, space.log_scales, present, inverse_q, variance, any_q)


@inner(error_model="numpy")
def condition_on_noise(sums: TaskSums, prior: GibbsPrior, t: int, noise: float, Q: FloatArray, h: FloatArray) -> None:
    """Q and h of a task."""
    precision = 1.0 / (noise * noise)
    along_mean = 1.0 / (noise * noise / sums.counts[t] + prior.intercept_variance)
    for i in range(len(h)):
        pull = along_mean * sums.means[t, i]
        h[i] = precision * sums.correlations[t, i] + pull * sums.target_means[t]
        for j in range(len(h)):
            Q[i, j] = precision * sums.grams[t, i, j] + pull * sums.means[t, j]


@inner(error_model="numpy")
def draw_intercepts_and_noise(
    rng: Generator, sums: TaskSums, rows: RowMap, prior: GibbsPrior, state: GibbsState, w: FloatArray
) -> None:
    """``b_t`` given w and sigma, then ``sigma_t`` given w and b."""
    m, p = state.W.shape
    total, total_count = 0.0, 0.0
    for t in range(m):
        count, variance = sums.counts[t], state.noise[t] ** 2
        gap, square = sums.target_means[t], sums.squares[t]
        for i in range(p):
            w[i] = state.W[t, i] + (state.mean[i] if rows.present[t, i] else 0.0)
            gap -= sums.means[t, i] * w[i]
            square -= 2.0 * w[i] * sums.correlations[t, i]
            for j in range(i):
                square += 2.0 * w[i] * sums.grams[t, i, j] * w[j]
            square += w[i] * sums.grams[t, i, i] * w[i]
        if prior.intercept_variance > 0.0:
            precision = count / variance + 1.0 / prior.intercept_variance
            state.intercept[t] = count * gap / variance / precision + rng.standard_normal() / math.sqrt(precision)
        square = max(square, 0.0) + count * (gap - state.intercept[t]) ** 2
        if prior.shared_noise:
            total += square
            total_count += count
        elif prior.learn_noise:
            state.noise[t] = draw_noise(rng, prior, state.noise[t], square, count)
    if prior.shared_noise and prior.learn_noise:
        noise = draw_noise(rng, prior, state.noise[0], total, total_count)
        for t in range(m):
            state.noise[t] = noise


class ObservedSpace(NamedTuple):
    """Arrays that a sweep writes to."""

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
    dispersion: DispersionSpace | None  # the noise of targets that are not normal, or another number of their law
    classes: ClassSpace | None  # several within tasks


def observed_space_for(data: Observed, rows: RowMap) -> ObservedSpace:
    """Allocate."""
    shape = rows.present.shape
    # all classes of a row move together along paths only
    most_features = len(data.design) if data.form == MULTINOMIAL else MOST_FEATURES
    return ObservedSpace(block_for(data, rows, most_features), np.zeros(shape), np.zeros(shape))


def observed_parts_for(
    data: Observed,
    rows: RowMap,
    prior: GibbsPrior,
    norm_q: float,
    block: ActiveBlock,
    dispersion: DispersionSpace | None = None,
) -> ObservedParts:
    """Allocate what the prior and the data ask for."""
    normal = norm_q == 2.0 and not prior.learn_q
    n_features, longest = len(data.design), int(np.diff(data.offsets).max())
    several = data.form == MULTINOMIAL
    wide = normal and n_features > len(block.features) and longest <= min(MOST_OBSERVATIONS, n_features)
    return ObservedParts(
        free=block if not wide and (data.form != NORMAL or not normal) else None,
        collapsed=block if normal and not wide and not several else None,
        path=path_for(data, rows, block) if wide else None,
        exponent=observed_exponent_space(data, rows) if prior.learn_q else None,
        mean=rows if prior.mean_precision > 0.0 else None,
        dispersion=dispersion,
        classes=class_space(data, rows) if several else None,
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
    dispersion: DispersionSpace | None,
    classes: ClassSpace | None,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept, before that steps are tuned.

    What is None is not compiled, which would take longer than most chains.
    """
    block = space.block
    for number in range(first, stop):
        tuning, acceptance, by_path = number + 1 if number < tune else 0, -1.0, False
        fill_predictors(data, rows, state, data.predictors)
        if data.form != NORMAL:
            step_on_sizes(rng, data, rows, prior, state, block)
        if free is not None:
            if free.sizes.features > 0 and state.inverse_q[0] <= 1.0:
                acceptance = step_on_block(rng, data, rows, prior, state, free)
        if tuning > 0:
            tune_block(data, rows, prior, state, block, acceptance, tuning, tune)
        if exponent is not None:
            fill_precisions(data, rows, state, tuning, exponent)
            for _ in range(OBSERVED_EXPONENT_STEPS):
                step_on_observed_exponent(rng, data, rows, prior, state, tuning, exponent)
        if path is not None:
            if block.sizes.features > 0:
                step_on_active_rows(rng, data, rows, prior, state, block, path, tuning, tune)
                by_path = True
        if classes is not None:
            step_on_classes(rng, data, rows, prior, state, classes, tuning)
        elif not by_path:
            fill_scores(rng, data, state)
            if prior.intercept_variance > 0.0:
                draw_intercepts(rng, data, prior, state)
        if collapsed is not None:
            if collapsed.sizes.features > 0:
                step_on_collapsed_scales(rng, data, rows, prior, state, collapsed)
        if classes is None:
            step_on_features(rng, data, rows, prior, state, tuning)
        if mean is not None:
            draw_observed_mean(rng, data, mean, prior, state)
        if prior.learn_global_scale:
            step_on_global_scale(rng, rows, prior, state)
            if classes is None:
                _fill_moments(data, rows, state, space)
                step_on_tau_with_all(rng, space.h, space.residuals, prior, state)
        if mean is not None:
            recentre(rng, mean, prior, state)
        if dispersion is not None:
            _draw_dispersion(rng, data, rows, state, dispersion)
            if number >= tune and (number - tune + 1) % kept.sweeps == 0:
                for t in range(len(state.W)):
                    dispersion.kept[(number - tune) // kept.sweeps, t] = data.parameters[t]
        elif prior.learn_noise:
            _draw_noise(rng, data, rows, prior, state)
        if number >= tune:
            keep(rows, state, kept, number - tune)


@inner(error_model="numpy")
def _draw_dispersion(
    rng: Generator, data: Observed, rows: RowMap, state: GibbsState, dispersion: DispersionSpace
) -> None:
    """What the law of targets that are not normal has beside eta, given eta."""
    fill_predictors(data, rows, state, data.predictors)
    eta = dispersion.eta
    for n in range(len(eta)):
        eta[n] = data.predictors[n] + data.shifts[n]
    numbers, prior = (state.noise, data.parameters), dispersion.prior
    draw_dispersion(rng, data.form, data.weights, data.targets, eta, data.offsets, *numbers, prior)


@inner(error_model="numpy")
def _fill_moments(data: Observed, rows: RowMap, state: GibbsState, space: ObservedSpace) -> None:
    """``X's`` and ``X's + X'diag(omega)X w`` of every task."""
    fill_direction(data, rows, state, 0, len(rows.sizes))
    for n in range(len(data.direction)):
        data.direction[n] *= data.precisions[n]
    for i in range(len(data.design)):
        x = data.design[i]
        for t in range(len(state.W)):
            start, stop = data.offsets[t], data.offsets[t + 1]
            space.residuals[t, i] = dot(x[start:stop], data.scores[start:stop])
            space.h[t, i] = space.residuals[t, i] + dot(x[start:stop], data.direction[start:stop])


@inner(error_model="numpy")
def _draw_noise(rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState) -> None:
    """``sigma_t`` given the residuals."""
    fill_predictors(data, rows, state, data.predictors)
    total, total_count = 0.0, 0.0
    for t in range(len(state.W)):
        square, count = 0.0, 0.0
        for n in range(data.offsets[t], data.offsets[t + 1]):
            count += data.weights[n]
            square += data.weights[n] * (data.targets[n] - data.predictors[n]) ** 2
        total += square
        total_count += count
        if not prior.shared_noise:
            state.noise[t] = draw_noise(rng, prior, state.noise[t], square, count)
    if prior.shared_noise:
        noise = draw_noise(rng, prior, state.noise[0], total, total_count)
        for t in range(len(state.W)):
            state.noise[t] = noise


@inner(error_model="numpy")
def step_on_active_rows(
    rng: Generator,
    data: Observed,
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
            acceptance = step_along_path(rng, data, rows, prior, state, block, path)
        fill_scores(rng, data, state)
        if tuning > 0 and cycle == 0:
            tune_path(data, rows, state, block, path, acceptance, tuning, tune)
        step_on_collapsed_scales(rng, data, rows, prior, state, block)
