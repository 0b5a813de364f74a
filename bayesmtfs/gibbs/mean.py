r"""Gibbs steps on the mean that the coefficients of a feature have in common over tasks.

    w_it = mu_i + v_it,   v_it ~ GN(0, rho_i, q),   mu_i ~ N(0, (1 / lambda_i^2 + 1 / s^2)^-1)

with lambda_i and their global scale tau_mu under the prior of row scales and tau (`bayesmtfs.priors.hyperpriors`): most
means are near 0, and s is the width of a slab. Each mean moves with its scale, in two parametrisations in turn
(interweaving, Yu and Meng 2011, *Journal of Computational and Graphical Statistics* 20:531-570), both exact:

- given the deviations v: the likelihood of mu_i is normal. lambda_i is drawn with mu_i integrated out, over the whole
  range of scales (`scales`), so that a mean may come and go, and then mu_i. All means are then drawn jointly given
  their scales. It moves far where tasks hardly differ.
- given the coefficients w, so that v = w - mu follows: likewise at q = 2, where w is normal given mu. This is how a row of
  like effects goes over from its deviations to its mean, and back. At other q the same step is a proposal (it is
  reversible for normal deviations of the same variance) that is accepted by the ratio of the densities of v, followed by
  a slice step on mu_i (Neal 2003, *Annals of Statistics* 31:705-767, without stepping out). It moves far where tasks
  differ more than the data leave open.

Where a task does not have a feature, its coefficient is 0 and tells nothing of the mean.

By observation (`draw_observed_mean`): given the deviations v and the precisions omega of all observations, moving the
means by d changes the linear predictors by X d, so that d is normal with precision ``X'diag(omega)X + D`` and linear
term ``X's - D mu``, D the prior precisions and s the scores of `state`. One mean at a time (`features`) hardly moves where
features are nearly alike; this step costs ``O(N k^2)`` and is made for the k = `MOST_JOINT_MEANS` means of largest scale.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.gibbs.coefficients import draw_jointly, factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.distributions import dot, power_of, unit_variance
from bayesmtfs.gibbs.scales import (
    SLICE_WIDTH,
    ScalePrior,
    beta_prime_power,
    jump_by_cells,
    log_normal_scale,
    of_mean,
    reach_of,
    scale_prior,
    slice_step,
    with_multiplied,
)
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, Observed, RowMap, SumsSpace, move_along
from bayesmtfs.types import BoolArray, FloatArray, IntArray

SLICE_DEVIATIONS = 6.0  # width of the slice step, in standard deviations of a mean of as many coefficients
SHRINK_STEPS = 200  # most steps inwards: far more than rounding leaves room for
MOST_JOINT_MEANS = 64


class MeanSpace(NamedTuple):
    """Arrays that the steps write to."""

    Q: FloatArray  # (p, p) sum over tasks
    h: FloatArray  # (p,)
    before: FloatArray  # (p,) means before the step
    log_scales: FloatArray  # (p,) ln rho of the normal prior as GN(0, rho, 2)
    everywhere: BoolArray  # (p,) no mean is fixed at 0
    factor: FloatArray  # (p, p)


def mean_space(n_features: int) -> MeanSpace:
    """Allocate."""
    p = n_features
    present = np.ones(p, dtype=np.bool_)
    return MeanSpace(np.empty((p, p)), np.empty(p), np.empty(p), np.empty(p), present, np.empty((p, p)))


@inner(error_model="numpy")
def take_out_mean(Q: FloatArray, vector: FloatArray, mean: FloatArray, present: BoolArray) -> None:
    """``vector - Q mean`` of one task, in place, over the features that it has."""
    p = len(mean)
    for i in range(p):
        if present[i]:
            for j in range(p):
                vector[j] -= Q[i, j] * mean[i]


@inner(error_model="numpy", inline="always")
def mean_precision(prior: GibbsPrior, state: GibbsState, i: int) -> float:
    """``1 / lambda_i^2 + 1 / s^2``."""
    return math.exp(-2.0 * state.mean_log_scales[i]) + prior.mean_precision


@inner(error_model="numpy")
def draw_with_scale(
    rng: Generator, prior: GibbsPrior, state: GibbsState, i: int, precision: float, pull: float
) -> float:
    """Draw lambda_i with mu_i integrated out, then mu_i; its likelihood is ``pull mu - precision mu^2 / 2``."""
    own_prior = scale_prior(prior, state.mean_log_tau, 0.5, prior.low)
    target = of_mean(own_prior, np.array([precision]), np.array([pull]), prior.mean_precision)
    log_scale = state.mean_log_scales[i]
    log_scale = jump_by_cells(rng, log_scale, target, *reach_of(prior, state.mean_log_tau[0]))
    state.mean_log_scales[i] = slice_step(rng, log_scale, target, SLICE_WIDTH)
    precision += mean_precision(prior, state, i)
    return pull / precision + rng.standard_normal() / math.sqrt(precision)


@inner(error_model="numpy")
def draw_mean(
    rng: Generator, sums: SumsSpace, rows: RowMap, prior: GibbsPrior, state: GibbsState, space: MeanSpace
) -> None:
    """Draw means and their scales given the deviations, one by one and then all means jointly.

    ``h`` (less Q mu) and residuals ``h - Q v`` in place.
    """
    m, p = state.W.shape
    for i in range(p):
        for j in range(p):
            space.Q[i, j] = 0.0
    for t in range(m):
        present = rows.present[t]
        for i in range(p):
            if present[i]:
                for j in range(p):
                    if present[j]:
                        space.Q[i, j] += sums.Q[t, i, j]
    for i in range(p):
        space.before[i] = state.mean[i]
        space.h[i] = 0.0
        for t in range(m):
            if rows.present[t, i]:
                space.h[i] += sums.residuals[t, i]
    for i in range(p):
        precision, pull = space.Q[i, i], space.h[i] + space.Q[i, i] * state.mean[i]
        change = draw_with_scale(rng, prior, state, i, precision, pull) - state.mean[i]
        state.mean[i] += change
        space.log_scales[i] = log_normal_scale(state.mean_log_scales[i], prior.mean_precision)
        for j in range(p):
            space.h[j] -= space.Q[i, j] * change
    for i in range(p):
        for j in range(p):
            space.h[i] += space.Q[i, j] * state.mean[j]
    draw_jointly(rng, space.Q, space.h, state.mean, space.log_scales, space.everywhere, space.factor)
    for i in range(p):
        space.before[i] = state.mean[i] - space.before[i]
    for t in range(m):
        take_out_mean(sums.Q[t], sums.h[t], space.before, rows.present[t])
        take_out_mean(sums.Q[t], sums.residuals[t], space.before, rows.present[t])


@inner(error_model="numpy")
def recentre(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState) -> None:
    """Move each mean and its scale with the coefficients fixed (deviations go the other way), and then tau_mu."""
    for i in range(len(state.mean)):
        _move_mean(rows, state, i, _drawn_shift(rng, rows, prior, state, i))
        if state.inverse_q[0] != 0.5:  # elsewhere the first step is exact
            _move_mean(rows, state, i, _slice_shift(rng, rows, prior, state, i))
    if prior.learn_global_scale:
        anchors, shapes = (
            state.mean_log_scales,
            (prior.tail_shape, prior.spike_shape),
        )  # seen from tau they change places
        exponent, centre = beta_prime_power(prior, 0.5), prior.log_global_scale
        alone = ScalePrior(anchors, exponent, *shapes, centre, 1.0, prior.low, prior.high)
        target = with_multiplied(alone, 0.0, 0.0, 0.0)
        state.mean_log_tau[0] = slice_step(rng, state.mean_log_tau[0], target, SLICE_WIDTH)


@inner(error_model="numpy")
def _move_mean(rows: RowMap, state: GibbsState, i: int, shift: float) -> None:
    state.mean[i] += shift
    for t in range(len(state.W)):
        if rows.present[t, i]:
            state.W[t, i] -= shift


@inner(error_model="numpy")
def _drawn_shift(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState, i: int) -> float:
    """Draw the mean of one feature and its scale as if deviations were normal, and accept that at their true density."""
    log_scale, inverse_q = state.log_scales[rows.row_of_feature[i]], state.inverse_q[0]
    own, before, mean = math.exp(-2.0 * log_scale) / unit_variance(inverse_q), state.mean_log_scales[i], state.mean[i]
    precision, pull = 0.0, 0.0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            precision += own
            pull += own * (state.W[t, i] + mean)
    shift = draw_with_scale(rng, prior, state, i, precision, pull) - mean
    if inverse_q == 0.5:
        return shift
    change = 0.0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            v = state.W[t, i]
            change += 0.5 * own * ((v - shift) ** 2 - v**2)
    change += _deviation_density(rows, state, i, shift, log_scale, inverse_q)
    change -= _deviation_density(rows, state, i, 0.0, log_scale, inverse_q)
    if -rng.standard_exponential() < change:
        return shift
    state.mean_log_scales[i] = before
    return 0.0


@inner(error_model="numpy")
def _slice_shift(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState, i: int) -> float:
    """How far the mean of one feature moves."""
    log_scale, inverse_q = state.log_scales[rows.row_of_feature[i]], state.inverse_q[0]
    count = 0
    for t in range(len(state.W)):
        count += rows.present[t, i]
    own = mean_precision(prior, state, i)
    precision = own + count * math.exp(-2.0 * log_scale) / unit_variance(inverse_q)
    width = SLICE_DEVIATIONS / math.sqrt(precision)
    level = _deviation_density(rows, state, i, 0.0, log_scale, inverse_q) - rng.standard_exponential()
    level -= 0.5 * own * state.mean[i] ** 2
    if level == -np.inf:  # rounding has put a coefficient on the edge of a uniform distribution
        return 0.0
    left = -width * rng.random()
    right = left + width
    for _ in range(SHRINK_STEPS):
        shift = left + (right - left) * rng.random()
        value = _deviation_density(rows, state, i, shift, log_scale, inverse_q)
        if value - 0.5 * own * (state.mean[i] + shift) ** 2 >= level:
            return shift
        if shift < 0.0:
            left = shift
        else:
            right = shift
    return 0.0


@inner(error_model="numpy")
def _deviation_density(
    rows: RowMap, state: GibbsState, i: int, shift: float, log_scale: float, inverse_q: float
) -> float:
    """``-sum_t |(v_it - shift) / rho_i|^q``; at q = inf v stays within rho."""
    value, shrink = 0.0, math.exp(-log_scale)
    for t in range(len(state.W)):
        if rows.present[t, i]:
            z = abs(state.W[t, i] - shift) * shrink
            if inverse_q > 0.0:
                value -= power_of(z, 1.0 / inverse_q)
            elif z > 1.0:
                return -np.inf
    return value


@inner(error_model="numpy")
def draw_observed_mean(rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState) -> None:
    """Draw the means of largest scale given the deviations; predictors and scores follow."""
    m, features = len(state.W), _largest(state.mean_log_scales, MOST_JOINT_MEANS)
    p = len(features)
    A, change = np.zeros((p, p)), np.empty(p)
    for f in range(p):
        A[f, f] = mean_precision(prior, state, features[f])
        change[f] = -A[f, f] * state.mean[features[f]]
    for t in range(m):
        _add_task(data, rows, t, features, A, change)
    factorise(A, p)
    solve_lower(A, change, p)
    for f in range(p):
        change[f] += rng.standard_normal()
    solve_upper(A, change, p)
    for f in range(p):
        i = features[f]
        state.mean[i] += change[f]
        for t in range(m):
            if rows.present[t, i]:
                start, stop = data.offsets[t], data.offsets[t + 1]
                move_along(data, start, stop, data.design[i], change[f])


@inner(error_model="numpy")
def _largest(numbers: FloatArray, most: int) -> IntArray:
    """Where the largest of the numbers are, at most so many."""
    left, found = numbers.copy(), np.empty(min(most, len(numbers)), dtype=np.int64)
    for f in range(len(found)):
        found[f] = np.argmax(left)
        left[found[f]] = -np.inf
    return found


@inner(error_model="numpy")
def _add_task(data: Observed, rows: RowMap, t: int, features: IntArray, A: FloatArray, linear: FloatArray) -> None:
    """What one task adds to the lower triangle of the precision, and to the linear term."""
    start, stop = data.offsets[t], data.offsets[t + 1]
    precisions, scores = data.precisions[start:stop], data.scores[start:stop]
    weighted = np.empty(stop - start)
    for f in range(len(features)):
        if rows.present[t, features[f]]:
            x = data.design[features[f], start:stop]
            linear[f] += dot(x, scores)
            for n in range(stop - start):
                weighted[n] = x[n] * precisions[n]
            for g in range(f + 1):
                if rows.present[t, features[g]]:
                    A[f, g] += dot(data.design[features[g], start:stop], weighted)
