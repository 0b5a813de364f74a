r"""The likelihood of the Gibbs sampler kept by observation instead of in sums, for labels and for many features.

Every observation n has a linear predictor ``eta_n = b_t + x_n'w_t``, a precision ``omega_n`` and a score ``s_n``,

    normal targets   omega_n = weight_n / sigma_t^2,        s_n = omega_n (y_n - eta_n)
    labels           omega_n ~ PG(weight_n, eta_n),         s_n = weight_n y_n / 2 - omega_n eta_n

(`gibbs_polya_gamma`; y is -1 or +1). Given omega both are normal in the predictors: moving them by d changes the
log-likelihood by ``s'd - d' diag(omega) d / 2``. The features of a task are never multiplied with each other, so that a
step on one coefficient costs as many operations as its task has rows, whatever the number of features.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs.polya_gamma import draw_polya_gamma
from bayesmtfs.gibbs.slice import softplus
from bayesmtfs.gibbs.state import Rows, State
from bayesmtfs.types import FloatArray, IntArray


class Observations(NamedTuple):
    """Data of all tasks, one after the other."""

    design: FloatArray  # (p, N) each feature over all observations
    targets: FloatArray  # (N,) less the prior mean of the intercepts; -1 and +1 for labels
    weights: FloatArray  # (N,)
    offsets: IntArray  # (m + 1,) first observation of each task
    labels: bool


class Working(NamedTuple):
    """What the likelihood is at the present state."""

    predictors: FloatArray  # (N,) eta
    precisions: FloatArray  # (N,) omega
    scores: FloatArray  # (N,)
    direction: FloatArray  # (N,) space
    curvatures: FloatArray  # (m,) space: x'diag(omega)x of one feature
    pulls: FloatArray  # (m,) space


def observations_of(data: TaskData, centre: float, labels: bool) -> Observations:
    """Observations of the data.

    Parameters
    ----------
    data : observations; y is -1 and +1 for labels
    centre : prior mean of the intercepts
    labels : whether the targets are labels
    """
    design = np.empty((data.n_features, data.n_observations))
    for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
        design[:, start:stop] = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64).T
    targets = np.asarray(data.y, dtype=np.float64) - (0.0 if labels else centre)
    weights = np.asarray(data.weight, dtype=np.float64)
    return Observations(design, targets, weights, np.asarray(data.offsets, dtype=np.int64), labels)


def working_for(observations: Observations) -> Working:
    """Allocate."""
    count, m = len(observations.targets), len(observations.offsets) - 1
    zeros = np.zeros((4, count))
    return Working(zeros[0], zeros[1], zeros[2], zeros[3], np.zeros(m), np.zeros(m))


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def dot(a: FloatArray, b: FloatArray) -> float:
    """Sum of products."""
    total = 0.0
    for k in range(len(a)):
        total += a[k] * b[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def weighted_square(a: FloatArray, weights: FloatArray) -> float:
    """Sum of weights times squares."""
    total = 0.0
    for k in range(len(a)):
        total += weights[k] * a[k] * a[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def fill_predictors(observations: Observations, rows: Rows, state: State, predictors: FloatArray) -> None:
    """Linear predictors of the state, without the error that many small steps add up to."""
    m, p = state.W.shape
    for t in range(m):
        start, stop = observations.offsets[t], observations.offsets[t + 1]
        for n in range(start, stop):
            predictors[n] = state.intercept[t]
        for i in range(p):
            if rows.present[t, i]:
                w, x = state.W[t, i] + state.mean[i], observations.design[i]
                for n in range(start, stop):
                    predictors[n] += w * x[n]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_scores(rng: np.random.Generator, observations: Observations, state: State, working: Working) -> None:
    """Precisions and scores of all observations; for labels the precisions are drawn."""
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            weight, target, eta = observations.weights[n], observations.targets[n], working.predictors[n]
            if observations.labels:
                omega = draw_polya_gamma(rng, int(weight), eta)
                working.scores[n] = 0.5 * weight * target - omega * eta
            else:
                omega = weight * noise_precision
                working.scores[n] = omega * (target - eta)
            working.precisions[n] = omega


@njit(cache=True, nogil=True, error_model="numpy")
def log_likelihood(observations: Observations, state: State, predictors: FloatArray) -> float:
    """Log-likelihood of predictors up to a constant; the precisions of labels are integrated out."""
    value = 0.0
    for t in range(len(state.W)):
        square = 0.0
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            target, weight = observations.targets[n], observations.weights[n]
            if observations.labels:
                value -= weight * softplus(-target * predictors[n])
            else:
                square += weight * (target - predictors[n]) ** 2
        value -= 0.5 * square / (state.noise[t] * state.noise[t])
    return value


@njit(cache=True, nogil=True, error_model="numpy")
def move_along(working: Working, start: int, stop: int, x: FloatArray, change: float) -> None:
    """Predictors and scores of one task after a step of ``change`` along x."""
    predictors, scores, precisions = working.predictors, working.scores, working.precisions
    for n in range(start, stop):
        step = change * x[n]
        predictors[n] += step
        scores[n] -= precisions[n] * step
