"""Where chains of the sampler by observation begin: ridge estimates through the observations, and what fits them."""

import math

import numpy as np

from bayesmtfs.gibbs.observations import Observations
from bayesmtfs.gibbs.state import Law, Rows, State, state_around
from bayesmtfs.types import FloatArray


def dual_ridge_start(observations: Observations, rows: Rows) -> FloatArray:
    """(m, p) Ridge estimates ``X'(X X' + s I)^-1 y`` with X and y centred and multiplied by the roots of the weights.

    s is the mean diagonal of ``X X'`` over the rows, a row of weight 2 counted twice.
    """
    W = np.zeros(rows.present.shape)
    for t, (start, stop) in enumerate(zip(observations.offsets, observations.offsets[1:], strict=False)):
        X, y, weight = (
            observations.design[:, start:stop],
            observations.targets[start:stop],
            observations.weights[start:stop],
        )
        roots = np.sqrt(weight)
        X = (X - np.average(X, axis=1, weights=weight)[:, np.newaxis]) * roots
        y = (y - np.average(y, weights=weight)) * roots
        products = X.T @ X
        strength = float(np.trace(products) / weight.sum()) or 1.0
        W[t] = X @ np.linalg.solve(products + strength * np.eye(len(products)), y)
    return np.where(rows.present, W, 0.0)


def first_observed_state(
    observations: Observations, rows: Rows, law: Law, W: FloatArray, norm_q: float, rng: np.random.Generator
) -> State:
    """State around given coefficients, with scales that fit them up to some random spread, so that chains differ.

    Parameters
    ----------
    observations, rows, law : the problem
    W : (m, p) coefficients
    norm_q : q
    rng : generator
    """
    W = np.where(rows.present, W, 0.0)
    offsets, weights = observations.offsets, observations.weights
    counts = np.add.reduceat(weights, offsets[:-1])
    predictors = np.empty(len(weights))
    for t, (start, stop) in enumerate(zip(offsets, offsets[1:], strict=False)):
        predictors[start:stop] = W[t] @ observations.design[:, start:stop]
    intercept, noise = np.zeros(len(W)), np.ones(len(W))
    if not observations.labels:
        residuals = observations.targets - predictors
        if law.intercept_variance > 0.0:
            intercept = np.add.reduceat(weights * residuals, offsets[:-1]) / counts
        squares = np.add.reduceat(weights * (residuals - np.repeat(intercept, np.diff(offsets))) ** 2, offsets[:-1])
        noise = np.sqrt(squares / counts) + 1e-3 * math.exp(law.noise_anchor)
        if law.shared_noise:
            noise[:] = np.sqrt(np.average(noise**2, weights=counts))
    return state_around(rows, law, W, intercept, noise, norm_q, rng)
