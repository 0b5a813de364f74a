r"""What the Gibbs sampler carries: sums of the data, rows, the prior as numbers, and the state.

Plain named tuples of arrays and numbers, which compiled functions take as they are. Coefficients are kept task by task,
``(m, p)``, since every task has its own likelihood

    ln p(y_t | w_t, sigma_t) = h_t'w_t - w_t'Q_t w_t / 2 + constant,

in which the intercept ``b_t ~ N(c, s^2)`` is integrated out: with features and targets centred within the task,

    Q = X'X / sigma^2 + k xbar xbar',   h = X'y / sigma^2 + k xbar (ybar - c),   k = 1 / (sigma^2 / n + s^2).

With a shared mean, ``w_it = mu_i + v_it``, the state holds the deviations v, whose likelihood has ``h - Q mu`` for h.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from bayesmtfs.data.tasks import TaskData
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
    mean_precision: float  # of mu, one over the prior variance; 0: no shared mean


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


def sums_of(data: TaskData, centre: float) -> TaskSums:
    """Sums of the observations; ``centre`` is the prior mean of the intercepts."""
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
        sums.target_means[t] = mean - centre
    return sums


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
    return new_state(np.ascontiguousarray(W), mean, intercept, noise, log_scales, prior.log_global_scale, norm_q)


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
    )


def _row_means(W: FloatArray, rows: RowMap) -> FloatArray:
    """(p,) Mean of each feature's coefficients over the tasks that have it."""
    mean: FloatArray = W.sum(axis=0) / np.maximum(rows.present.sum(axis=0), 1)
    return mean


def _without_zeros(W: FloatArray, rows: RowMap, prior: GibbsPrior, rng: Generator) -> FloatArray:
    """Coefficients with small random numbers for zeros, which would stay where rows are multiplied by a factor."""
    typical = math.exp(prior.low + 0.5 * (prior.high - prior.low) if prior.log_uniform else prior.log_global_scale)
    return np.where(rows.present & (W == 0.0), 0.1 * typical * rng.uniform(-1.0, 1.0, W.shape), W)


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
