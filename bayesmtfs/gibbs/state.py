r"""What the Gibbs sampler carries: the data in sums or by observation, rows, the prior as numbers, and the state.

Plain named tuples of arrays and numbers, which compiled functions take as they are. Coefficients are kept task by task,
``(m, p)``, since every task has its own likelihood

    ln p(y_t | w_t, sigma_t) = h_t'w_t - w_t'Q_t w_t / 2 + constant,

in which the intercept ``b_t ~ N(c, s^2)`` is integrated out: with features and targets centred within the task,

    Q = X'X / sigma^2 + k xbar xbar',   h = X'y / sigma^2 + k xbar (ybar - c),   k = 1 / (sigma^2 / n + s^2).

With a shared mean, ``w_it = mu_i + v_it``, the state holds the deviations v, whose likelihood has ``h - Q mu`` for h.

**By observation**, for labels and for many features: every observation n has a linear predictor
``eta_n = b_t + x_n'w_t``, a precision ``omega_n`` and a score ``s_n``,

    normal targets   omega_n = weight_n / sigma_t^2,        s_n = omega_n (y_n - eta_n)
    labels           omega_n ~ PG(weight_n, eta_n),         s_n = weight_n y_n / 2 - omega_n eta_n

(`bayesmtfs.families.augmentation`, which has the other forms too; y is -1 or +1). Given omega both are normal in the
predictors: moving them by d changes the log-likelihood by ``s'd - d' diag(omega) d / 2``. The features of a task are
never multiplied with each other, so that a step on one coefficient costs as many operations as its task has rows,
whatever the number of features.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import (
    MULTINOMIAL,
    NEGATIVE_BINOMIAL,
    NORMAL,
    POLYA_GAMMA,
    draw_precision_and_score,
    log_density_and_score,
)
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.hyperpriors import NOISE_DEGREES, Hyperprior
from bayesmtfs.types import BoolArray, FloatArray, IntArray

LOG_REACH = 80.0  # of the row scales around tau_0
FIRST_EXPONENT_STEP = 0.05  # of the walk on 1/q, before it is tuned


class TaskSums(NamedTuple):
    """Weighted sums over the observations of each task, features and targets centred."""

    grams: FloatArray  # (m, p, p) X'X
    correlations: FloatArray  # (m, p) X'y
    means: FloatArray  # (m, p) xbar
    squares: FloatArray  # (m,) y'y
    target_means: FloatArray  # (m,) ybar - c
    counts: FloatArray  # (m,) n


class SumsSpace(NamedTuple):
    """The likelihood of every task in sums, as a sweep writes it."""

    Q: FloatArray  # (m, p, p)
    h: FloatArray  # (m, p) less Q mu with a shared mean
    residuals: FloatArray  # (m, p) h - Q w
    w: FloatArray  # (p,) coefficients of one task
    log_scales: FloatArray  # (p,) ln rho of each feature's row


class RowMap(NamedTuple):
    """Which coefficients share a scale."""

    row_of_feature: IntArray  # (p,)
    starts: IntArray  # (R + 1,) into members
    members: IntArray  # (p,) features, row by row
    sizes: FloatArray  # (R,) coefficients that are not fixed at 0
    present: BoolArray  # (m, p)


class GibbsPrior(NamedTuple):
    """A hyperprior as numbers."""

    log_uniform: bool
    low: float  # of ln rho
    high: float
    tail_shape: float  # a
    spike_shape: float  # c
    scale_power: float  # exponent of the beta-prime distribution; 0: q
    log_global_scale: float  # ln tau_0
    learn_global_scale: bool
    intercept_variance: float  # s^2; 0: no intercept
    noise_anchor: float  # the noise is this, squared, times a beta-prime distribution, as a logarithm
    noise_shapes: tuple[float, float]  # c and a of that distribution; zeros: p(sigma) = 1 / sigma
    shared_noise: bool
    learn_noise: bool
    inverse_low: float  # of 1/q
    inverse_high: float
    learn_q: bool
    mean_precision: float  # 1 / s^2, of the slab of mu; 0: no shared mean


class GibbsState(NamedTuple):
    """What changes from sweep to sweep, in place; single numbers are arrays of one."""

    W: FloatArray  # (m, p) deviations from the mean where there is one
    mean: FloatArray  # (p,) mu; zeros without a shared mean
    intercept: FloatArray  # (m,) less c
    noise: FloatArray  # (m,)
    log_scales: FloatArray  # (R,)
    log_tau: FloatArray  # (1,) ln tau
    inverse_q: FloatArray  # (1,) 1/q
    exponent_step: FloatArray  # (1,) step of the walk on 1/q
    widths: FloatArray  # (R,) of the slice steps on the row scales
    information: FloatArray  # (R,) ln of the data's precision over the prior's, averaged while steps are tuned
    mean_log_scales: FloatArray  # (p,) ln lambda, of the means
    mean_log_tau: FloatArray  # (1,) ln tau_mu


def sums_of(data: TaskData, centre: FloatArray | float) -> TaskSums:
    """Sums of the observations; ``centre`` is the prior mean of the intercepts, one number or (m,)."""
    m, p = data.n_tasks, data.n_features
    sums = TaskSums(np.empty((m, p, p)), np.empty((m, p)), np.empty((m, p)), np.empty(m), np.empty(m), np.empty(m))
    for t, (design, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        X = np.asarray(design.toarray() if sp.issparse(design) else design, dtype=np.float64)
        y, weight = np.asarray(data.y[start:stop], dtype=np.float64), data.weight[start:stop]
        sums.counts[t] = weight.sum()
        sums.means[t] = weight @ X / sums.counts[t]
        mean = weight @ y / sums.counts[t]
        X, y = X - sums.means[t], y - mean
        sums.grams[t] = (weight[:, np.newaxis] * X).T @ X
        sums.correlations[t] = (weight * y) @ X
        sums.squares[t] = weight @ y**2
        sums.target_means[t] = mean
    sums.target_means[:] -= centre
    return sums


def space_for(sums: TaskSums) -> SumsSpace:
    """Allocate."""
    m, p = sums.means.shape
    return SumsSpace(np.empty((m, p, p)), np.empty((m, p)), np.empty((m, p)), np.empty(p), np.empty(p))


def single_rows(present: BoolArray) -> RowMap:
    """Every feature its own row; ``present`` is (m, p)."""
    features = np.arange(present.shape[1])
    return RowMap(
        row_of_feature=features,
        starts=np.append(features, len(features)),
        members=features,
        sizes=present.sum(axis=0).astype(np.float64),
        present=present,
    )


def rows_of(data: TaskData) -> RowMap:
    """Rows of the prior: features, or groups of them; absent features do not count."""
    shape = (data.n_tasks, data.n_features)
    present = np.ones(shape, dtype=np.bool_) if data.present is None else np.ascontiguousarray(data.present.T)
    if data.groups is None:
        return single_rows(present)
    blocks = Blocks(data.n_features, data.n_tasks, data.groups, data.present)
    counts = np.bincount(blocks.row_of_feature, minlength=blocks.n_rows)
    return RowMap(
        row_of_feature=blocks.row_of_feature,
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        members=np.argsort(blocks.row_of_feature, kind="stable"),
        sizes=blocks.sizes.astype(np.float64),
        present=present,
    )


def gibbs_prior(prior: Hyperprior, learn_q: bool, learn_noise: bool = True) -> GibbsPrior:
    """Hyperprior as numbers."""
    if prior.kind == "log_uniform":
        low, high = np.log(prior.bounds)
    else:  # farther away lies nothing that floating-point numbers would notice
        low, high = math.log(prior.global_scale) + np.array([-LOG_REACH, LOG_REACH])
    return GibbsPrior(
        log_uniform=prior.kind == "log_uniform",
        low=float(low),
        high=float(high),
        tail_shape=prior.tail_shape,
        spike_shape=prior.spike_shape,
        scale_power=0.0 if prior.scale_power is None else float(prior.scale_power),
        log_global_scale=math.log(prior.global_scale),
        learn_global_scale=prior.kind == "beta_prime" and prior.learn_global_scale,
        intercept_variance=float(prior.intercept_scale) ** 2 if prior.fit_intercept else 0.0,
        noise_anchor=math.log(prior.noise_scale) + 0.5 * math.log(NOISE_DEGREES),
        noise_shapes=(0.5, 0.5 * NOISE_DEGREES),
        shared_noise=prior.shared_noise,
        learn_noise=learn_noise,
        inverse_low=1.0 / prior.norm_q_bounds[1],
        inverse_high=1.0 / prior.norm_q_bounds[0],
        learn_q=learn_q,
        mean_precision=prior.mean_scale**-2.0 if prior.mean_scale > 0.0 else 0.0,
    )


def log_uniform_prior(
    log_scale_bounds: tuple[float, float], norm_q_bounds: tuple[float, float], learn_q: bool, learn_noise: bool
) -> GibbsPrior:
    """``ln rho`` uniform, without global scale and intercepts, and ``p(sigma) = 1 / sigma``."""
    bounded = Hyperprior(kind="log_uniform", norm_q_bounds=norm_q_bounds, fit_intercept=False)
    low, high = log_scale_bounds
    numbers = gibbs_prior(bounded, learn_q, learn_noise)
    return numbers._replace(low=float(low), high=float(high), noise_anchor=0.0, noise_shapes=(0.0, 0.0))


def ridge_start(sums: TaskSums, rows: RowMap, prior: GibbsPrior) -> FloatArray:
    """(m, p) Ridge estimates, with a prior variance of one noise variance over the mean squared feature."""
    m, p = sums.means.shape
    W = np.empty((m, p))
    for t in range(m):
        gram, correlation = sums.grams[t], sums.correlations[t]
        if prior.intercept_variance == 0.0:
            gram = gram + sums.counts[t] * np.outer(sums.means[t], sums.means[t])
            correlation = correlation + sums.counts[t] * sums.means[t] * sums.target_means[t]
        strength = max(float(np.trace(gram)) / (p * sums.counts[t]), 1e-12) if p else 1.0
        W[t] = np.linalg.solve(gram + strength * np.eye(p), correlation)
    return np.where(rows.present, W, 0.0)


def first_state(
    sums: TaskSums, rows: RowMap, prior: GibbsPrior, W: FloatArray, norm_q: float, rng: Generator
) -> GibbsState:
    """State around given coefficients, with scales that fit them up to some random spread, so that chains differ."""
    W = np.where(rows.present, W, 0.0)
    gaps = sums.target_means - np.einsum("ti,ti->t", sums.means, W)
    intercept = gaps if prior.intercept_variance > 0.0 else np.zeros(len(gaps))
    squares = sums.squares - 2.0 * np.einsum("ti,ti->t", W, sums.correlations)
    squares += np.einsum("ti,tij,tj->t", W, sums.grams, W) + sums.counts * (gaps - intercept) ** 2
    least = 1e-3 * math.exp(prior.noise_anchor)
    noise = np.sqrt(np.maximum(squares, 0.0) / sums.counts) + least
    if prior.shared_noise:
        noise[:] = np.sqrt(np.average(noise**2, weights=sums.counts))
    return state_around(rows, prior, W, intercept, noise, norm_q, rng)


def state_around(
    rows: RowMap,
    prior: GibbsPrior,
    W: FloatArray,
    intercept: FloatArray,
    noise: FloatArray,
    norm_q: float,
    rng: Generator,
) -> GibbsState:
    """State with given coefficients, intercepts and noise, and scales that fit up to some random spread."""
    mean = _row_means(W, rows) if prior.mean_precision > 0.0 else np.zeros(W.shape[1])
    W = _without_zeros(np.where(rows.present, W - mean, 0.0), rows, prior, rng)
    log_scales = _fitting_scales(W, rows, norm_q)
    # a standard deviation of a scale given the coefficients is 1 / sqrt(k q); at q = inf no scale is below the row
    spread = 2.0 * rng.standard_normal(len(log_scales)) / np.sqrt(np.maximum(rows.sizes, 1.0) * min(norm_q, 50.0))
    log_scales += np.abs(spread) if norm_q == math.inf else spread
    log_scales = np.clip(log_scales, prior.low, prior.high)
    if norm_q == math.inf:  # where a bound is below the row
        reach = np.exp(log_scales)[rows.row_of_feature]
        W = np.clip(W, -reach, reach)
    state = new_state(np.ascontiguousarray(W), mean, intercept, noise, log_scales, prior.log_global_scale, norm_q)
    if prior.mean_precision > 0.0:
        state.mean_log_scales[:] = np.clip(np.log(np.abs(mean) + _typical(prior)), prior.low, prior.high)
    return state


def new_state(
    W: FloatArray,
    mean: FloatArray,
    intercept: FloatArray,
    noise: FloatArray,
    log_scales: FloatArray,
    log_tau: float,
    norm_q: float,
) -> GibbsState:
    """State of which nothing is tuned."""
    return GibbsState(
        W=W,
        mean=mean,
        intercept=intercept,
        noise=noise,
        log_scales=log_scales,
        log_tau=np.array([log_tau]),
        inverse_q=np.array([1.0 / norm_q]),
        exponent_step=np.array([FIRST_EXPONENT_STEP]),
        widths=np.ones(len(log_scales)),
        information=np.zeros(len(log_scales)),
        mean_log_scales=np.full(len(mean), log_tau),
        mean_log_tau=np.array([log_tau]),
    )


def _row_means(W: FloatArray, rows: RowMap) -> FloatArray:
    """(p,) Mean of each feature's coefficients over the tasks that have it."""
    mean: FloatArray = W.sum(axis=0) / np.maximum(rows.present.sum(axis=0), 1)
    return mean


def _without_zeros(W: FloatArray, rows: RowMap, prior: GibbsPrior, rng: Generator) -> FloatArray:
    """Coefficients with small random numbers for zeros, which would stay where rows are multiplied by a factor."""
    return np.where(rows.present & (W == 0.0), 0.1 * _typical(prior) * rng.uniform(-1.0, 1.0, W.shape), W)


def _typical(prior: GibbsPrior) -> float:
    """A scale in the middle of the prior."""
    return math.exp(prior.low + 0.5 * (prior.high - prior.low) if prior.log_uniform else prior.log_global_scale)


def _fitting_scales(W: FloatArray, rows: RowMap, norm_q: float) -> FloatArray:
    """(R,) ``ln rho`` that fits each row best: ``(ln S + ln(q / k)) / q``."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(W))
    scales = np.zeros(len(rows.sizes))
    for row in range(len(scales)):
        own = logs[:, rows.members[rows.starts[row] : rows.starts[row + 1]]]
        if rows.sizes[row] > 0:
            top = float(own.max())
            scales[row] = top
            if norm_q < math.inf:
                total = float(np.sum(np.exp(norm_q * (own - top))))
                scales[row] += math.log(total * norm_q / rows.sizes[row]) / norm_q
    return scales


class Observed(NamedTuple):
    """Data of all tasks, one after the other, and what the likelihood is at the present state."""

    design: FloatArray  # (p, N) each feature over all observations
    targets: FloatArray  # (N,) less the prior mean of the intercepts; -1 and +1 for labels
    weights: FloatArray  # (N,)
    offsets: IntArray  # (m + 1,) first observation of each task
    form: int  # `Augmentation.form`
    predictors: FloatArray  # (N,) eta, less the shifts
    precisions: FloatArray  # (N,) omega
    scores: FloatArray  # (N,)
    direction: FloatArray  # (N,) space
    curvatures: FloatArray  # (m,) space: x'diag(omega)x of one feature
    pulls: FloatArray  # (m,) space
    shifts: FloatArray  # (N,) known part of eta: the prior mean of the intercept where it is not taken off the targets
    parameters: FloatArray  # (m,) `Augmentation.parameter` of each task, which may be learned
    n_classes: int = 1  # that share a softmax likelihood: an observation stands once for each, N / n_classes apart


def observations_of(data: TaskData, centre: FloatArray | float, form: int = NORMAL, parameter: float = 0.0) -> Observed:
    """Observations of the data; ``centre`` is the prior mean of the intercepts, one number or (m,)."""
    design = np.empty((data.n_features, data.n_observations))
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        design[:, start:stop] = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64).T
    middle, targets = np.broadcast_to(centre, data.n_tasks)[data.task], np.asarray(data.y, dtype=np.float64)
    shifts = np.zeros_like(targets) if form == NORMAL else np.array(middle, dtype=np.float64)
    targets = targets - middle if form == NORMAL else targets
    weights = np.asarray(data.weight, dtype=np.float64)
    offsets, zeros = np.asarray(data.offsets, dtype=np.int64), np.zeros((4, data.n_observations))
    spaces, parameters = np.zeros((2, data.n_tasks)), np.full(data.n_tasks, float(parameter))
    arrays = [*zeros, *spaces, shifts, parameters]
    return Observed(design, targets, weights, offsets, form, *arrays)


@inner(error_model="numpy")
def fill_predictors(data: Observed, rows: RowMap, state: GibbsState, predictors: FloatArray) -> None:
    """Linear predictors of the state, without the error that many small steps add up to."""
    m, p = state.W.shape
    for t in range(m):
        start, stop = data.offsets[t], data.offsets[t + 1]
        for n in range(start, stop):
            predictors[n] = state.intercept[t]
        for i in range(p):
            if rows.present[t, i]:
                w, x = state.W[t, i] + state.mean[i], data.design[i]
                for n in range(start, stop):
                    predictors[n] += w * x[n]


@inner(error_model="numpy")
def fill_scores(rng: Generator, data: Observed, state: GibbsState) -> None:
    """Precisions and scores of all observations; hidden precisions are drawn."""
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            weight, target, eta = data.weights[n], data.targets[n], data.predictors[n] + data.shifts[n]
            data.precisions[n], data.scores[n] = draw_precision_and_score(
                rng, data.form, weight, target, eta, noise_precision, data.parameters[t]
            )


@njit(cache=True, nogil=True, error_model="numpy")
def renew_scores(rng: Generator, data: Observed, rows: RowMap, state: GibbsState) -> None:
    """Predictors of a design that has changed, then scores."""
    fill_predictors(data, rows, state, data.predictors)
    fill_scores(rng, data, state)


@inner(error_model="numpy")
def softmax_likelihood(data: Observed, predictors: FloatArray, direction: FloatArray, growth: float) -> float:
    """Log-likelihood of several classes at ``predictors + growth direction``."""
    value, count = 0.0, len(predictors) // data.n_classes
    for first in range(count):
        top, own, total = -np.inf, 0.0, 0.0
        for n in range(first, len(predictors), count):
            eta = predictors[n] + growth * direction[n]
            top = max(top, eta)
            if data.targets[n] > 0.0:
                own = eta
        for n in range(first, len(predictors), count):
            total += math.exp(predictors[n] + growth * direction[n] - top)
        value += data.weights[first] * (own - top - math.log(total))
    return value


@inner(error_model="numpy")
def fill_softmax_scores(data: Observed, predictors: FloatArray, scores: FloatArray) -> float:
    """Log-likelihood of several classes, and its derivatives in the predictors."""
    value, count = 0.0, len(predictors) // data.n_classes
    for first in range(count):
        top, total, weight = -np.inf, 0.0, data.weights[first]
        for n in range(first, len(predictors), count):
            top = max(top, predictors[n])
        for n in range(first, len(predictors), count):
            scores[n] = math.exp(predictors[n] - top)
            total += scores[n]
        for n in range(first, len(predictors), count):
            share = scores[n] / total
            scores[n] = -weight * share
            if data.targets[n] > 0.0:
                scores[n] += weight
                value += weight * (predictors[n] - top - math.log(total))
    return value


@inner(error_model="numpy")
def log_likelihood(data: Observed, state: GibbsState, predictors: FloatArray) -> float:
    """Log-likelihood of predictors up to a constant; hidden precisions are integrated out."""
    if data.form == MULTINOMIAL:
        return softmax_likelihood(data, predictors, data.direction, 0.0)
    value = 0.0
    for t in range(len(state.W)):
        square, noise_precision = 0.0, 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            target, weight = data.targets[n], data.weights[n]
            if data.form == NORMAL:
                square += weight * (target - predictors[n]) ** 2
            else:
                eta, parameter = predictors[n] + data.shifts[n], data.parameters[t]
                value += log_density_and_score(data.form, weight, target, eta, noise_precision, parameter)[0]
        value -= 0.5 * square * noise_precision
    return value


@inner(error_model="numpy")
def move_along(data: Observed, start: int, stop: int, x: FloatArray, change: float) -> None:
    """Predictors and scores of one task after a step of ``change`` along x."""
    predictors, scores, precisions = data.predictors, data.scores, data.precisions
    for n in range(start, stop):
        step = change * x[n]
        predictors[n] += step
        scores[n] -= precisions[n] * step


def _on_line(data: Observed) -> FloatArray:
    """(N,) Targets as numbers that a linear predictor may be near: of counts their logarithms."""
    if data.form == NEGATIVE_BINOMIAL:
        return np.asarray(np.log(data.targets + 0.5) - data.shifts)
    return np.asarray(data.targets - data.shifts)


def dual_ridge_start(data: Observed, rows: RowMap) -> FloatArray:
    """(m, p) Ridge estimates ``X'(X X' + s I)^-1 y`` with X and y centred and multiplied by the roots of the weights.

    s is the mean diagonal of ``X X'`` over the rows, a row of weight 2 counted twice.
    """
    W = np.zeros(rows.present.shape)
    for t, (start, stop) in enumerate(zip(data.offsets, data.offsets[1:], strict=False)):
        X, y, weight = (data.design[:, start:stop], _on_line(data)[start:stop], data.weights[start:stop])
        roots = np.sqrt(weight)
        X = (X - np.average(X, axis=1, weights=weight)[:, np.newaxis]) * roots
        y = (y - np.average(y, weights=weight)) * roots
        products = X.T @ X
        strength = float(np.trace(products) / weight.sum()) or 1.0
        W[t] = X @ np.linalg.solve(products + strength * np.eye(len(products)), y)
    return np.where(rows.present, W, 0.0)


def first_observed_state(
    data: Observed, rows: RowMap, prior: GibbsPrior, W: FloatArray, norm_q: float, rng: Generator
) -> GibbsState:
    """State around given coefficients, with scales that fit them up to some random spread, so that chains differ."""
    W = np.where(rows.present, W, 0.0)
    offsets, weights = data.offsets, data.weights
    counts = np.add.reduceat(weights, offsets[:-1])
    predictors = np.empty(len(weights))
    for t, (start, stop) in enumerate(zip(offsets, offsets[1:], strict=False)):
        predictors[start:stop] = W[t] @ data.design[:, start:stop]
    intercept, noise = np.zeros(len(W)), np.ones(len(W))
    if data.form not in (POLYA_GAMMA, NEGATIVE_BINOMIAL, MULTINOMIAL):
        residuals = data.targets - data.shifts - predictors
        if prior.intercept_variance > 0.0:
            intercept = np.add.reduceat(weights * residuals, offsets[:-1]) / counts
        squares = np.add.reduceat(weights * (residuals - np.repeat(intercept, np.diff(offsets))) ** 2, offsets[:-1])
        noise = np.sqrt(squares / counts) + 1e-3 * math.exp(prior.noise_anchor)
        if prior.shared_noise:
            noise[:] = np.sqrt(np.average(noise**2, weights=counts))
    return state_around(rows, prior, W, intercept, noise, norm_q, rng)
