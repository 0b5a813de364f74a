"""The posterior with missing cells is that of a likelihood in which they are integrated out, by importance sampling.

One feature and one task: ``x ~ N(a, V)``, ``y ~ N(b + w x, s^2)``, and where x is missing ``y ~ N(b + w a, s^2 + w^2 V)``.
"""

import numpy as np
import pytest
from scipy import optimize, stats

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs.cells import cell_summary, gaps_of
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.priors.hyperpriors import NOISE_DEGREES, Hyperprior

SCALE, SHRINKAGE, SAMPLES = 1.2, 3.0, 60_000
PRIOR = Hyperprior(kind="log_uniform", bounds=(SCALE, 1.0000001 * SCALE), intercept_scale=2.0, noise_scale=0.8)


def problem():
    rng = np.random.default_rng(4)
    x = 0.5 + rng.standard_normal(24)
    y = 0.3 + 0.9 * x + 0.6 * rng.standard_normal(24)
    return x, y, rng.random(24) < 0.4


def log_posterior(theta, x, y, missing, gaps):
    """Of (w, b, ln s, a, ln V), rows of theta."""
    w, b, log_s, a, log_V = (part[:, np.newaxis] for part in theta.T)
    s, V = np.exp(log_s), np.exp(log_V)
    eta = np.where(missing, b + w * a, b + w * np.where(missing, 0.0, x))
    spread = np.sqrt(s**2 + np.where(missing, w**2 * V, 0.0))
    value = stats.norm.logpdf(y, eta, spread).sum(axis=1)
    value += np.where(missing, 0.0, stats.norm.logpdf(x, a, np.sqrt(V))).sum(axis=1)
    w, b, s, a, V = w[:, 0], b[:, 0], s[:, 0], a[:, 0], V[:, 0]
    value += stats.norm.logpdf(w, 0.0, SCALE / np.sqrt(2.0)) + stats.norm.logpdf(b, 0.0, PRIOR.intercept_scale)
    value += stats.t.logpdf(s / PRIOR.noise_scale, NOISE_DEGREES) + np.log(s)
    value += stats.norm.logpdf(a, gaps.centres[0, 0], gaps.spreads[0])
    degrees, rate = SHRINKAGE + 2.0, SHRINKAGE * gaps.variances[0]
    return value + stats.invgamma.logpdf(V, 0.5 * degrees, scale=0.5 * rate) + np.log(V)


def by_importance(x, y, missing, gaps):
    """Moments of w, b and s, and of every cell."""
    minus = lambda theta: -float(log_posterior(theta[np.newaxis], x, y, missing, gaps)[0])  # noqa: E731
    best = optimize.minimize(minus, np.zeros(5))
    law = stats.multivariate_t(best.x, 1.5 * best.hess_inv, df=6, seed=1)
    theta = law.rvs(SAMPLES)
    logs = log_posterior(theta, x, y, missing, gaps) - law.logpdf(theta)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    assert 1.0 / np.sum(weight**2) > 5_000
    w, b, s, a, V = theta[:, 0], theta[:, 1], np.exp(theta[:, 2]), theta[:, 3], np.exp(theta[:, 4])
    gain = w * V / (s**2 + w**2 * V)
    cells = a[:, np.newaxis] + gain[:, np.newaxis] * (y[missing] - (b + w * a)[:, np.newaxis])
    left = V * s**2 / (s**2 + w**2 * V)
    numbers = np.column_stack([w, b, s])
    mean, cell = weight @ numbers, weight @ cells
    return mean, np.sqrt(weight @ (numbers - mean) ** 2), cell, np.sqrt(weight @ (cells - cell) ** 2 + weight @ left)


@pytest.mark.parametrize("route", ["sums", "observations"])
def test_cells_integrated_out_and_cells_drawn_agree(route, monkeypatch):
    if route == "observations":
        monkeypatch.setattr("bayesmtfs.gibbs.chain.many_features", lambda data: True)
    x, y, missing = problem()
    data = TaskData.from_long(np.where(missing, 0.0, x)[:, np.newaxis], y)
    gaps = gaps_of(data, missing[:, np.newaxis], SHRINKAGE)
    gaps = gaps._replace(variances=np.array([1.3]), spreads=np.array([1.1]))  # which do not depend on what is filled in
    mean, deviation, cell, cell_deviation = by_importance(x, y, missing, gaps)
    draws = sample_chain(data, PRIOR, ChainSettings(15_000, 500, 1), gaps=gaps)
    numbers = np.column_stack([draws.W[:, 0, 0], draws.intercept[:, 0], draws.noise[:, 0]])
    np.testing.assert_allclose((numbers.mean(axis=0) - mean) / deviation, 0.0, atol=0.06)
    np.testing.assert_allclose(numbers.std(axis=0) / deviation, 1.0, atol=0.05)
    found = cell_summary(draws.cells)
    np.testing.assert_allclose((found[0] - cell) / cell_deviation, 0.0, atol=0.06)
    np.testing.assert_allclose(found[1] / cell_deviation, 1.0, atol=0.05)
