"""Noise that tasks on the same rows have in common: where it is found, and its steps against closed forms."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs import BayesianRegressor, TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.gibbs.common_noise import (
    CommonNoise,
    common_noise_of,
    draw_common_noise,
    find_factors,
    held_out_residuals,
    log_density,
)
from bayesmtfs.gibbs.spike_state import first_state, spike_data, spike_numbers
from bayesmtfs.gibbs.state import rows_of
from bayesmtfs.priors.spike import spike_prior_for


def drawn(rng, n, p, m, common, effect=0.0):
    X = rng.standard_normal((n, p))
    noise = np.sqrt(1 - common) * rng.standard_normal((n, m)) + np.sqrt(common) * rng.standard_normal((n, 1))
    return X - X.mean(axis=0), effect * X[:, :1] + noise


@pytest.fixture
def parts():
    """Data, state and factors of a problem in which nothing is on."""
    rng = np.random.default_rng(3)
    X, Y = drawn(rng, 60, 4, 5, 0.5)
    data = TaskData.from_wide(X, Y)
    prior = spike_prior_for(data, Gaussian())
    observed = spike_data(data, Gaussian(), True, reduce=False)
    common = common_noise_of(observed, *find_factors(data, True))
    state = first_state(observed, spike_numbers(prior, Gaussian(), observed, rows_of(data)), rows_of(data))
    return rng, observed, state, common


def test_factors_are_those_of_common_noise_and_not_of_common_effects():
    rng = np.random.default_rng(0)
    for effect in (0.0, 0.7):
        apart = [find_factors(TaskData.from_wide(*drawn(rng, 200, 10, 5, 0.0, effect)), True) for _ in range(5)]
        assert sum(found is not None for found in apart) <= 1
        factors, loadings = find_factors(TaskData.from_wide(*drawn(rng, 200, 10, 5, 0.6, effect)), True)
        assert loadings.shape == (5, 1)
        np.testing.assert_allclose(np.abs(loadings[:, 0]), np.sqrt(0.6), atol=0.2)
        assert 0.5 < factors.std() < 1.2


def test_no_factors_without_common_rows():
    rng = np.random.default_rng(1)
    X, Y = drawn(rng, 100, 3, 3, 0.6)
    Y[0, 0] = np.nan
    assert find_factors(TaskData.from_wide(X, Y), True) is None
    assert find_factors(TaskData.from_long(X, Y[:, 1], tasks=np.arange(100) % 2), True) is None
    assert find_factors(TaskData.from_wide(X[:10], Y[:10]), True) is None


def test_residuals_are_of_rows_that_the_fit_has_not_seen():
    rng = np.random.default_rng(2)
    X, Y = drawn(rng, 80, 60, 3, 0.0)
    residuals = held_out_residuals(TaskData.from_wide(X, Y), True)
    assert residuals.shape == Y.shape
    assert np.mean(residuals**2) > 0.9 * np.mean((Y - Y.mean(axis=0)) ** 2)  # nothing to find, nothing fitted


def test_targets_and_pulls_follow_the_factors(parts):
    rng, data, state, common = parts
    data.sums.pulls[:] = (data.targets - data.predictors).reshape(5, -1) @ data.design.T
    for _ in range(3):
        draw_common_noise(rng, data, state, common, 0.04)
        left = (common.targets - common.loadings @ common.factors.T).ravel()
        np.testing.assert_allclose(data.targets, left, atol=1e-10)
        residuals = (data.targets - data.predictors).reshape(5, -1)
        np.testing.assert_allclose(data.sums.pulls, residuals @ data.design.T, atol=1e-8)
        np.testing.assert_allclose(common.products, data.design @ common.factors, atol=1e-8)
        eta = np.repeat(state.intercept, 60)
        np.testing.assert_allclose(data.predictors, eta, atol=1e-10)


def test_the_density_is_that_of_a_multivariate_normal(parts):
    _, data, state, common = parts
    covariance = np.diag(state.noise**2) + common.loadings @ common.loadings.T
    rows = common.targets.T - data.predictors.reshape(5, -1).T
    value, prior = log_density(data, state, common)
    assert value == pytest.approx(stats.multivariate_normal(np.zeros(5), covariance).logpdf(rows).sum())
    each = [
        stats.norm(0, tau).logpdf(column).sum() for tau, column in zip(common.spreads, common.loadings.T, strict=True)
    ]
    assert prior + 0.5 * common.loadings.size * -np.log(2 * np.pi) == pytest.approx(sum(each))


def test_factors_and_loadings_keep_their_joint_distribution():
    """Geweke (2004): with new targets after every step, loadings and factors have their prior."""
    rng = np.random.default_rng(7)
    n, m, p = 6, 3, 2
    data = TaskData.from_wide(rng.standard_normal((n, p)), rng.standard_normal((n, m)))
    observed = spike_data(data, Gaussian(), True, reduce=False)
    prior = spike_prior_for(data, Gaussian())
    state = first_state(observed, spike_numbers(prior, Gaussian(), observed, rows_of(data)), rows_of(data))
    state.noise[:] = 0.8
    common = CommonNoise(
        rng.standard_normal((n, 1)),
        0.2 * rng.standard_normal((m, 1)),
        np.array([0.2]),
        np.empty((m, n)),
        np.empty((p, 1)),
    )
    common.products[:] = observed.design @ common.factors
    kept = []
    for _ in range(20000):
        common.targets[:] = common.loadings @ common.factors.T + state.intercept[:, None]
        common.targets[:] += 0.8 * rng.standard_normal((m, n))
        observed.predictors[:] = np.repeat(state.intercept, n)
        draw_common_noise(rng, observed, state, common, 1.0)
        kept.append([common.spreads[0], np.sum(common.factors**2), common.factors.mean(), state.intercept[0]])
    spreads, squares, means, levels = np.array(kept).T

    def error(values):
        batches = values[: len(values) // 50 * 50].reshape(50, -1).mean(axis=1)
        return batches.std(ddof=1) / np.sqrt(50)

    for values, expected in (
        (spreads, np.mean([0.05, 0.1, 0.2, 0.4, 0.8])),
        (squares, n),
        (means, 0.0),
        (levels, 0.0),
        (means**2, 1.0 / n),
        (squares**2, n * (n + 2)),
    ):
        assert abs(values.mean() - expected) < 4.0 * error(values), (values.mean(), expected, error(values))


def test_common_noise_makes_no_discoveries():
    rng = np.random.default_rng(4)
    X, Y = drawn(rng, 80, 40, 5, 0.8)
    Y[:, :3] += 1.0 * X[:, :1]
    model = BayesianRegressor(prior="spike", draws=100, tune=200, chains=1, random_state=0, progress=False)
    with pytest.warns(UserWarning):  # short chains
        model.fit(X, Y)
    assert model.task_inclusion_probability_[:3, 0].min() > 0.9
    others = np.delete(model.task_inclusion_probability_, 0, axis=1)
    assert (others > 0.5).sum() == 0
    np.testing.assert_allclose(model.noise_, 1.0, atol=0.25)  # common part included
