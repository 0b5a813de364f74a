r"""Noise that tasks on the same rows have in common, under the prior with exact zeros.

Targets of one row (genes of a person, sensors at a moment) often err together. Taken for independent, such noise
looks like effects that all tasks share, and many features are found that are none. So where tasks have the same rows,
the noise is

    y_nt = x_n' w_t + b_t + sum_k L_tk f_nk + e_nt,    f_nk ~ N(0, 1),   e_nt ~ N(0, sigma_t^2),   L_tk ~ N(0, tau_k^2)

with few factors f and tau_k on the grid `SPREADS`. Given the factors the tasks are independent again, so that the steps
on rows (`bayesmtfs.gibbs.spike`) stay as they are, with ``y - L f`` as targets; after every few of their sweeps the factors
are drawn given the residuals R, then the loadings, then tau:

    f_n | rest ~ N(P^-1 L' S^-1 r_n, P^-1),   P = I + L' S^-1 L,   S = diag(sigma^2)

and a regression of each task's residuals on f for its row of L. The mean of a factor and the intercepts are moved together
(f + c, b - L c), and so are the scales of f and L, since neither moves far while the other stands.

**How many, and where they begin.** A chain that began without factors would explain common noise by features, and one that
began with the main components of Y would explain common effects by factors; either is slow to leave. Factors are
therefore looked for in the residuals of rows that a penalised fit has not seen: eigenvalues of their correlations above
``EDGE (1 + sqrt(m / n))^2``, the largest that independent noise has (Marchenko and Pastur 1967), at most `MOST_FACTORS`.
Where there are none the sampler is the one without.

References
----------
D. Geweke, G. Zhou (1996), Measuring the pricing error of the arbitrage pricing theory, Review of Financial Studies
9:557-587.
V. A. Marchenko, L. A. Pastur (1967), Distribution of eigenvalues for some sets of random matrices, Mathematics of the
USSR-Sbornik 1:457-483.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.convex import automatic
from bayesmtfs.convex.path import penalty_grid
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.gibbs.spike_state import SpikeData, SpikeState
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray, Solution

SPREADS = np.array([0.05, 0.1, 0.2, 0.4, 0.8])  # grid of tau, in deviations of the target
MOST_FACTORS = 3
EDGE = 1.1
FEWEST_ROWS = 20
FOLDS, PENALTIES, SMALLEST, TOL = 4, 10, 0.05, 1e-3  # of the fit whose residuals are looked at
LEAST_OWN = 0.1  # share of the variance of residuals that is each task's own at the beginning


class CommonNoise(NamedTuple):
    """Factors at present, in place."""

    factors: FloatArray  # (n, k) f
    loadings: FloatArray  # (m, k) L
    spreads: FloatArray  # (k,) tau
    targets: FloatArray  # (m, n) y, of which the sampler sees what the factors leave
    products: FloatArray  # (p, k) X'f


def find_factors(data: TaskData, fit_intercept: bool) -> tuple[FloatArray, FloatArray] | None:
    """Factors (n, k) and loadings (m, k) to begin with; None where tasks have no common rows or no common noise.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, noise = rng.standard_normal((100, 5)), rng.standard_normal((100, 4))
    >>> find_factors(TaskData.from_wide(X, noise), True) is None
    True
    >>> factors, loadings = find_factors(TaskData.from_wide(X, noise + rng.standard_normal((100, 1))), True)
    >>> factors.shape, loadings.shape
    ((100, 1), (4, 1))
    """
    m = data.n_tasks
    if m < 2 or not data.is_complete or data.n_observations < FEWEST_ROWS * m or np.any(data.weight != 1.0):
        return None
    residuals = held_out_residuals(data, fit_intercept)
    residuals = residuals - residuals.mean(axis=0)
    scale = residuals.std(axis=0)
    if not np.all(scale > 0):
        return None
    values, vectors = np.linalg.eigh(np.corrcoef(residuals.T))
    k = min(int(np.sum(values > EDGE * (1.0 + math.sqrt(m / len(residuals))) ** 2)), MOST_FACTORS, m - 1)
    if k == 0:
        return None
    own = values[:-k].mean()
    loadings = scale[:, np.newaxis] * vectors[:, -k:] * np.sqrt(values[-k:] - own)
    noise = np.maximum(scale**2 - np.sum(loadings**2, axis=1), LEAST_OWN * scale**2)
    weighted = loadings / noise[:, np.newaxis]
    return np.linalg.solve(np.eye(k) + loadings.T @ weighted, (residuals @ weighted).T).T, loadings


def held_out_residuals(data: TaskData, fit_intercept: bool) -> FloatArray:
    """(n, m) What a fit with rows of norm 2 leaves of rows that it has not seen, at the penalty that leaves least."""
    X = data.task_designs[0]
    Y = np.asarray(data.y, dtype=np.float64).reshape(data.n_tasks, -1).T
    fold = np.random.default_rng(0).permutation(len(Y)) % FOLDS
    residuals = np.empty((PENALTIES, *Y.shape))
    for number in range(FOLDS):
        seen = fold != number
        train = TaskData.from_wide(X[seen], Y[seen])
        problem = Problem(train, Gaussian(), RowPenalty(0.0, 2.0), train.weight, fit_intercept)
        last: Solution | None = None
        grid = penalty_grid(problem.largest_penalty, PENALTIES, SMALLEST)
        for place in range(PENALTIES):
            if place < len(grid):
                last = automatic.solve(problem.with_strength(float(grid[place]) or 1.0), last, tol=TOL)
            assert last is not None
            residuals[place][~seen] = Y[~seen] - X[~seen] @ last.W - last.intercept
    return residuals[np.argmin((residuals**2).sum(axis=(1, 2)))]


def common_noise_of(data: SpikeData, factors: FloatArray, loadings: FloatArray) -> CommonNoise:
    """Take the factors off the targets of the sampler, whose rows are not reduced."""
    k = loadings.shape[1]
    targets = data.targets.reshape(len(loadings), -1).copy()
    common = CommonNoise(factors.copy(), loadings.copy(), np.full(k, SPREADS[-2]), targets, data.design @ factors)
    _take_off(data, common)
    return common


def _take_off(data: SpikeData, common: CommonNoise) -> None:
    data.targets[:] = (common.targets - common.loadings @ common.factors.T).ravel()


def draw_common_noise(
    rng: Generator, data: SpikeData, state: SpikeState, common: CommonNoise, intercept_precision: float
) -> None:
    """Draw factors, loadings and their spreads given coefficients and noise; targets and X'r follow."""
    (m, k), n = common.loadings.shape, len(common.factors)
    residuals = (common.targets - data.predictors.reshape(m, n)).T
    before = common.products @ common.loadings.T
    weighted = common.loadings / np.square(state.noise)[:, np.newaxis]
    root = np.linalg.cholesky(np.eye(k) + common.loadings.T @ weighted)
    half = np.linalg.solve(root, (residuals @ weighted).T) + rng.standard_normal((k, n))
    common.factors[:] = np.linalg.solve(root.T, half).T
    precision = common.factors.T @ common.factors / np.square(state.noise)[:, np.newaxis, np.newaxis]
    precision = precision + np.diag(common.spreads**-2.0)
    pull = (residuals.T @ common.factors) / np.square(state.noise)[:, np.newaxis]
    roots = np.linalg.cholesky(precision)
    half = np.linalg.solve(roots, pull[..., np.newaxis]) + rng.standard_normal((m, k, 1))
    common.loadings[:] = np.linalg.solve(np.swapaxes(roots, 1, 2), half)[..., 0]
    for factor in range(k):
        square = np.sum(common.loadings[:, factor] ** 2)
        logs = -m * np.log(SPREADS) - 0.5 * square / SPREADS**2
        chances = np.exp(logs - logs.max())
        common.spreads[factor] = rng.choice(SPREADS, p=chances / chances.sum())
    common.products[:] = data.design @ common.factors
    data.sums.pulls[:] += (before - common.products @ common.loadings.T).T
    _rescale(rng, common)
    if intercept_precision > 0.0:
        _shift_means(rng, data, state, common, intercept_precision)
    _take_off(data, common)


def _rescale(rng: Generator, common: CommonNoise) -> None:
    """Metropolis step along (f / a, a L), which leaves the likelihood as it is: each alone moves by little."""
    (m, k), n = common.loadings.shape, len(common.factors)
    of_factors, of_loadings = (common.factors**2).sum(axis=0), (common.loadings**2).sum(axis=0) / common.spreads**2
    log_a = rng.standard_normal(k) / math.sqrt(n)
    gain = (m - n) * log_a - 0.5 * of_factors * np.expm1(-2.0 * log_a) - 0.5 * of_loadings * np.expm1(2.0 * log_a)
    a = np.exp(np.where(np.log(rng.random(k)) < gain, log_a, 0.0))
    common.factors[:] /= a
    common.products[:] /= a
    common.loadings[:] *= a


def _shift_means(
    rng: Generator, data: SpikeData, state: SpikeState, common: CommonNoise, intercept_precision: float
) -> None:
    """Move the means of factors and the intercepts along the line on which residuals stay what they are."""
    n = len(common.factors)
    for k, loading in enumerate(common.loadings.T):
        precision = n + intercept_precision * float(loading @ loading)
        pull = intercept_precision * float(state.intercept @ loading) - float(common.factors[:, k].sum())
        change = pull / precision + rng.standard_normal() / math.sqrt(precision)
        common.factors[:, k] += change
        common.products[:, k] += change * data.sums.totals[0]
        state.intercept[:] -= change * loading
        data.predictors[:] -= np.repeat(change * loading, n)


def whole_noise(state: SpikeState, common: CommonNoise) -> FloatArray:
    """(m,) Deviations of the noise, common parts included."""
    return np.sqrt(state.noise**2 + np.sum(common.loadings**2, axis=1))


def log_density(data: SpikeData, state: SpikeState, common: CommonNoise) -> tuple[float, float]:
    """Log-likelihood with the factors integrated out, and the log prior density of loadings and spreads."""
    m, n = len(common.loadings), len(common.factors)
    residuals = common.targets - data.predictors.reshape(m, n)
    covariance = np.diag(state.noise**2) + common.loadings @ common.loadings.T
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, residuals)
    value = -n * (0.5 * m * math.log(2.0 * math.pi) + np.log(np.diag(root)).sum()) - 0.5 * float(np.sum(white**2))
    scaled = common.loadings / common.spreads
    return value, float(-0.5 * np.sum(scaled**2) - m * np.log(common.spreads).sum())
