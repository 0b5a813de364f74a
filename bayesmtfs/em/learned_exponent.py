r"""Learn q from a fit: its active coefficients as estimates with errors, or integrated out by Gibbs draws.

The mode of W takes the shape that q imposes, so that a joint mode over (W, q) (Zhang, Yeung and Xu 2010, section 4.2)
does not recover q. Here the mode only says which rows are active; what these rows are like is read off the likelihood
of their coefficients, normal with precision ``X'X / sigma^2`` (for the logistic loss its normal approximation at the
mode).

- ``"two_stage"``: least-squares estimates of the active coefficients and their standard errors, then the likelihood of
  q of `noisy_rows`. Where a task has too few rows for them, the mode itself is taken (`exponent.row_profile`).
- ``"integrated"``: draws of q, W, the row scales and the noise by `gibbs`.
"""

from typing import Literal, NamedTuple

import numpy as np

from bayesmtfs.em import noisy_rows
from bayesmtfs.em.active_tasks import ActiveTasks
from bayesmtfs.em.exponent import ExponentPosterior, from_draws, posterior, row_profile
from bayesmtfs.em.row_ridge import curvature
from bayesmtfs.gibbs import settings as gibbs
from bayesmtfs.types import BoolArray, FloatArray

LEAST_SPARE = 3  # observations beyond the number of coefficients for which a task's estimates count
LEAST_SHARE = 0.5  # of the entries with estimates, below which the mode is taken
WORST_CONDITION = 1e10
TUNE, DRAWS = 400, 1000


class NormalLikelihood(NamedTuple):
    """Likelihood of the active coefficients as a normal law, intercept taken out."""

    sums: gibbs.Sums
    noise: FloatArray  # (m,)
    learn_noise: bool
    counted: BoolArray  # (p, m) entries that the task has


def normal_likelihood(tasks: ActiveTasks, W: FloatArray, eta: FloatArray, noise: FloatArray) -> NormalLikelihood:
    """Normal law of the coefficients: exact for the squared loss, else at W.

    Parameters
    ----------
    tasks : active features
    W, eta : (p, m) coefficients and their linear predictor
    noise : (m,) sigma
    """
    family, squared = tasks.family, tasks.family.name == "squared"
    bends = tasks.weight * family.curvature(tasks.y, eta)
    curv = curvature(tasks.designs, [bends[a:b] for a, b in tasks.spans], tasks.fit_intercept)
    theta = tasks.weight * family.gradient(tasks.y, eta)
    sums = tasks.sums(theta) if tasks.fit_intercept else np.zeros(tasks.n_tasks)
    slope = tasks.adjoint(theta) - curv.means * sums
    grams = np.stack([A.T @ A for A in curv.roots])
    correlations = np.einsum("tij,jt->ti", grams, W) - slope.T
    # y'y from the loss at W, since only sums are known: 2 L = y'y - 2 c'w + w'Gw
    fitted = 2.0 * np.einsum("ti,it->t", correlations, W) - np.einsum("it,tij,jt->t", W, grams, W)
    centred = 2.0 * tasks.losses(eta) - np.divide(sums**2, curv.totals, out=np.zeros_like(sums), where=curv.totals > 0)
    counted = np.ones(W.shape, dtype=bool) if tasks.present is None else tasks.present
    counts = tasks.counts - float(tasks.fit_intercept)
    squares = centred + fitted if squared else np.ones(tasks.n_tasks)
    return NormalLikelihood(gibbs.Sums(grams, correlations, squares, counts), noise, squared, counted)


def estimates(normal: NormalLikelihood) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(p, m) Least-squares estimates, their standard errors, and where there are any."""
    grams, correlations, squares, counts = normal.sums
    m, p = correlations.shape
    W, errors, known = np.zeros((p, m)), np.ones((p, m)), np.zeros((p, m), dtype=bool)
    for t in range(m):
        own = np.flatnonzero(normal.counted[:, t])
        gram = grams[t][np.ix_(own, own)]
        spare = counts[t] - len(own)
        if spare < LEAST_SPARE or not np.linalg.cond(gram) < WORST_CONDITION:
            continue
        inverse = np.linalg.inv(gram)
        W[own, t] = inverse @ correlations[t, own]
        variance = max((squares[t] - correlations[t, own] @ W[own, t]) / spare, 0.0) if normal.learn_noise else 1.0
        errors[own, t] = np.sqrt(variance * np.diag(inverse))
        known[own, t] = True
    return W, errors, known


def learn(
    tasks: ActiveTasks,
    W: FloatArray,
    eta: FloatArray,
    noise: FloatArray,
    bounds: tuple[float, float],
    method: Literal["two_stage", "integrated"],
    random_seed: int,
) -> ExponentPosterior:
    """Posterior of q given the active rows of a fit.

    Parameters
    ----------
    tasks : active features only
    W, eta, noise : the fit at them; no row of W is zero
    bounds : smallest and largest q
    method : how W enters
    random_seed : of the draws
    """
    normal = normal_likelihood(tasks, W, eta, noise)
    if method == "integrated":
        return from_draws(_draws(normal, W, bounds, random_seed), bounds)
    W_hat, errors, known = estimates(normal)
    if known.sum() >= LEAST_SHARE * normal.counted.sum():
        return posterior(lambda q: noisy_rows.log_likelihood(W_hat, errors, known, q), bounds)
    sizes = normal.counted.sum(axis=1)
    return posterior(lambda q: row_profile(W, sizes, q), bounds)


def _draws(normal: NormalLikelihood, W: FloatArray, bounds: tuple[float, float], random_seed: int) -> FloatArray:
    """Draws of q."""
    settings = gibbs.Settings(
        inverse_bounds=(1.0 / bounds[1], 1.0 / bounds[0]),
        learn_noise=normal.learn_noise,
        tune=TUNE,
        draws=DRAWS,
        random_seed=random_seed,
    )
    # An entry of exactly 0 has no logarithm; the first sweep moves it.
    start = np.where(W == 0.0, 1e-3 * np.max(np.abs(W), axis=1, keepdims=True), W)
    return gibbs.sample(normal.sums, gibbs.Start(start, normal.noise), settings).norm_q
