r"""The likelihood of the Gibbs sampler kept by observation instead of in sums, for labels and for many features.

Every observation n has a linear predictor ``eta_n = b_t + x_n'w_t``, a precision ``omega_n`` and a score ``s_n``,

    normal targets   omega_n = weight_n / sigma_t^2,        s_n = omega_n (y_n - eta_n)
    labels           omega_n ~ PG(weight_n, eta_n),         s_n = weight_n y_n / 2 - omega_n eta_n

(`bayesmtfs.families.augmentation`; y is -1 or +1). Given omega both are normal in the predictors: moving them by d
changes the log-likelihood by ``s'd - d' diag(omega) d / 2``. The features of a task are never multiplied with each
other, so that a step on one coefficient costs as many operations as its task has rows, whatever the number of features.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.random import Generator

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import NORMAL, draw_precision_and_score, log_density_and_score
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, RowMap, state_around
from bayesmtfs.types import FloatArray, IntArray


class Observed(NamedTuple):
    """Data of all tasks, one after the other."""

    design: FloatArray  # (p, N) each feature over all observations
    targets: FloatArray  # (N,) less the prior mean of the intercepts; -1 and +1 for labels
    weights: FloatArray  # (N,)
    offsets: IntArray  # (m + 1,) first observation of each task
    form: int  # `Augmentation.form`


class ObservedWork(NamedTuple):
    """What the likelihood is at the present state."""

    predictors: FloatArray  # (N,) eta
    precisions: FloatArray  # (N,) omega
    scores: FloatArray  # (N,)
    direction: FloatArray  # (N,) space
    curvatures: FloatArray  # (m,) space: x'diag(omega)x of one feature
    pulls: FloatArray  # (m,) space


def observations_of(data: TaskData, centre: float, form: int = NORMAL) -> Observed:
    """Observations of the data; ``centre`` is the prior mean of the intercepts."""
    design = np.empty((data.n_features, data.n_observations))
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        design[:, start:stop] = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64).T
    targets = np.asarray(data.y, dtype=np.float64) - centre
    weights = np.asarray(data.weight, dtype=np.float64)
    return Observed(design, targets, weights, np.asarray(data.offsets, dtype=np.int64), form)


def working_for(data: Observed) -> ObservedWork:
    """Allocate."""
    count, m = len(data.targets), len(data.offsets) - 1
    zeros = np.zeros((4, count))
    return ObservedWork(zeros[0], zeros[1], zeros[2], zeros[3], np.zeros(m), np.zeros(m))


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def fill_scores(rng: Generator, data: Observed, state: GibbsState, work: ObservedWork) -> None:
    """Precisions and scores of all observations; hidden precisions are drawn."""
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(data.offsets[t], data.offsets[t + 1]):
            weight, target, eta = data.weights[n], data.targets[n], work.predictors[n]
            work.precisions[n], work.scores[n] = draw_precision_and_score(
                rng, data.form, weight, target, eta, noise_precision
            )


@njit(cache=True, nogil=True, error_model="numpy")
def log_likelihood(data: Observed, state: GibbsState, predictors: FloatArray) -> float:
    """Log-likelihood of predictors up to a constant; hidden precisions are integrated out."""
    value = 0.0
    for t in range(len(state.W)):
        square = 0.0
        for n in range(data.offsets[t], data.offsets[t + 1]):
            target, weight = data.targets[n], data.weights[n]
            if data.form == NORMAL:
                square += weight * (target - predictors[n]) ** 2
            else:
                value += log_density_and_score(data.form, weight, target, predictors[n], 1.0)[0]
        value -= 0.5 * square / (state.noise[t] * state.noise[t])
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def move_along(work: ObservedWork, start: int, stop: int, x: FloatArray, change: float) -> None:
    """Predictors and scores of one task after a step of ``change`` along x."""
    predictors, scores, precisions = work.predictors, work.scores, work.precisions
    for n in range(start, stop):
        step = change * x[n]
        predictors[n] += step
        scores[n] -= precisions[n] * step


def dual_ridge_start(data: Observed, rows: RowMap) -> FloatArray:
    """(m, p) Ridge estimates ``X'(X X' + s I)^-1 y`` with X and y centred and multiplied by the roots of the weights.

    s is the mean diagonal of ``X X'`` over the rows, a row of weight 2 counted twice.
    """
    W = np.zeros(rows.present.shape)
    for t, (start, stop) in enumerate(zip(data.offsets, data.offsets[1:], strict=False)):
        X, y, weight = (data.design[:, start:stop], data.targets[start:stop], data.weights[start:stop])
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
    if data.form == NORMAL:
        residuals = data.targets - predictors
        if prior.intercept_variance > 0.0:
            intercept = np.add.reduceat(weights * residuals, offsets[:-1]) / counts
        squares = np.add.reduceat(weights * (residuals - np.repeat(intercept, np.diff(offsets))) ** 2, offsets[:-1])
        noise = np.sqrt(squares / counts) + 1e-3 * math.exp(prior.noise_anchor)
        if prior.shared_noise:
            noise[:] = np.sqrt(np.average(noise**2, weights=counts))
    return state_around(rows, prior, W, intercept, noise, norm_q, rng)
