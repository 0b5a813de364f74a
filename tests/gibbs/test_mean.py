"""Shared means in sums and by observation, against closed forms."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import mean as gibbs_mean
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.gibbs.mean import MOST_JOINT_MEANS, draw_observed_mean
from bayesmtfs.gibbs.state import observations_of
from bayesmtfs.priors.hyperpriors import Hyperprior, log_scale_density

PRESENT = np.array([[True, True, False], [True, True, True], [False, True, True], [True, True, True]])  # (m, p)
MEAN_SCALE, LOG_TAU = 0.8, -1.0
PRIOR = Hyperprior(mean_scale=MEAN_SCALE, learn_global_scale=False)


@pytest.fixture
def rng():
    return np.random.Generator(np.random.PCG64(7))


def state_of(W, mean, log_scales, norm_q):
    m, p = W.shape
    return gibbs_state.GibbsState(
        W=W.copy(),
        mean=mean.copy(),
        intercept=np.zeros(m),
        noise=np.ones(m),
        log_scales=log_scales,
        log_tau=np.array([0.0]),
        inverse_q=np.array([1.0 / norm_q]),
        exponent_step=np.array([0.1]),
        widths=np.ones(p),
        information=np.zeros(p),
        mean_log_scales=np.linspace(-1.0, 0.5, p),
        mean_log_tau=np.array([LOG_TAU]),
    )


def prior_numbers():
    return gibbs_state.gibbs_prior(PRIOR, learn_q=False)


def mean_density(mean):
    """p(mu) with lambda integrated out, by quadrature over ln lambda."""
    log_scales = np.linspace(-30.0, 30.0, 6001)
    weights = np.exp(log_scale_density(log_scales, np.exp(LOG_TAU), 2.0, PRIOR)) * (log_scales[1] - log_scales[0])
    deviations = (np.exp(-2.0 * log_scales) + MEAN_SCALE**-2) ** -0.5
    return np.array([weights @ stats.norm.pdf(one, 0.0, deviations) for one in np.ravel(mean)]).reshape(np.shape(mean))


def test_means_given_deviations(rng):
    """Against sums over a grid that is finer near 0, where the density has a pole."""
    m, p = PRESENT.shape
    roots = rng.standard_normal((m, 6, p))
    Q, h = np.einsum("tni,tnj->tij", roots, roots), rng.standard_normal((m, p))
    V, mean = np.where(PRESENT, rng.standard_normal((m, p)), 0.0), rng.standard_normal(p)
    rows, space = gibbs_state.single_rows(PRESENT), gibbs_mean.mean_space(p)
    masked = Q * PRESENT[:, :, np.newaxis] * PRESENT[:, np.newaxis, :]
    left = np.where(PRESENT, h - np.einsum("tij,tj->ti", Q, V), 0.0).sum(axis=0)
    state = state_of(V, mean, np.zeros(p), 2.0)
    reduced = h - np.einsum("tij,tj->ti", Q, PRESENT * mean)
    residuals = reduced - np.einsum("tij,tj->ti", Q, V)
    sums = gibbs_state.SumsSpace(Q, reduced, residuals, np.empty(p), np.empty(p))
    draws = np.empty((20_000, p))
    for draw in draws:
        gibbs_mean.draw_mean(rng, sums, rows, prior_numbers(), state, space)
        draw[:] = state.mean
    ends = 3.0 * np.linspace(-1.0, 1.0, 82) ** 3
    middles = 0.5 * (ends[1:] + ends[:-1])
    log_cells = np.log(mean_density(middles) * np.diff(ends))
    axes = np.meshgrid(middles, middles, middles, indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    log_mass = np.sum(np.stack(np.meshgrid(log_cells, log_cells, log_cells, indexing="ij")), axis=0).ravel()
    log_mass += points @ left - 0.5 * np.einsum("ki,ij,kj->k", points, masked.sum(axis=0), points)
    mass = np.exp(log_mass - log_mass.max())
    for f in (lambda x: x, np.abs, lambda x: x * x[:, [1, 2, 0]]):
        wanted = mass @ f(points) / mass.sum()
        np.testing.assert_allclose(f(draws).mean(axis=0), wanted, atol=0.02 * MEAN_SCALE)
    # after all these steps h and the residuals still belong to the state
    np.testing.assert_allclose(reduced, h - np.einsum("tij,tj->ti", Q, PRESENT * state.mean), atol=1e-8)
    np.testing.assert_allclose(residuals, reduced - np.einsum("tij,tj->ti", Q, V), atol=1e-8)


@pytest.mark.parametrize("norm_q", [2.0, 1.3, np.inf])
def test_means_given_coefficients(rng, norm_q):
    p, scales = PRESENT.shape[1], np.array([0.7, 1.5, 4.0])
    mean = np.array([0.5, -0.3, 1.0])
    V = np.where(PRESENT, rng.uniform(-0.6, 0.6, PRESENT.shape) * scales, 0.0)
    state = state_of(V, mean, np.log(scales), norm_q)
    W = np.where(PRESENT, V + mean, 0.0)
    draws = np.empty((8_000, p))
    for draw in draws:
        gibbs_mean.recentre(rng, gibbs_state.single_rows(PRESENT), prior_numbers(), state)
        draw[:] = state.mean
    np.testing.assert_allclose(np.where(PRESENT, state.W + state.mean, 0.0), W, atol=1e-10)
    grid = 5.0 * np.linspace(-1.0, 1.0, 4000) ** 3
    prior = mean_density(grid)
    for i in range(p):
        z = np.abs(W[PRESENT[:, i], i, np.newaxis] - grid) / scales[i]
        density = prior * (np.exp(-(z**norm_q).sum(axis=0)) if norm_q < np.inf else (z < 1.0).all(axis=0))
        mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
        assert stats.kstest(draws[::8, i], lambda x, mass=mass: np.interp(x, grid, mass / mass[-1])).pvalue > 1e-4


def test_mean_of_many_tasks_is_found_and_draws_tasks_to_it():
    """Tasks of three rows each, noise as large as what they tell: the coefficients come from the others."""
    rng = np.random.default_rng(3)
    true = np.array([2.0, -1.0])
    tasks = np.repeat(np.arange(40), 3)
    X = rng.standard_normal((120, 2))
    y = X @ true + rng.standard_normal(120)
    prior = Hyperprior(mean_scale=3.0, global_scale=0.1, shared_noise=True, fit_intercept=False)
    draws = sample_chain(TaskData.from_long(X, y, tasks=tasks), prior, ChainSettings(draws=2000, tune=300))
    np.testing.assert_allclose(draws.mean.mean(axis=0), np.linalg.lstsq(X, y)[0], atol=0.05)
    np.testing.assert_allclose(draws.W.mean(axis=0), true[:, np.newaxis] * np.ones(40), atol=0.3)


def test_no_mean_without_the_prior_of_one():
    data = TaskData.from_long(np.eye(3), [1.0, 2.0, 3.0])
    assert not sample_chain(data, Hyperprior(), ChainSettings(draws=5, tune=5)).mean.any()


OBSERVED_MEAN_MEAN_SCALE = 0.8


def problem(p, n=9, seed=3):
    """Two tasks, the second without the first feature; precisions and scores as they come."""
    rng = np.random.Generator(np.random.PCG64(seed))
    data = TaskData.from_long(rng.standard_normal((n, p)), np.zeros(n), tasks=np.arange(n) % 2)
    observations = observations_of(data, 0.0)
    observations.precisions[:], observations.scores[:] = rng.uniform(0.5, 2.0, n), rng.standard_normal(n)
    present = np.ones((2, p), dtype=bool)
    present[1, 0] = False
    prior_numbers = gibbs_state.gibbs_prior(Hyperprior(mean_scale=OBSERVED_MEAN_MEAN_SCALE), learn_q=False)
    rows = gibbs_state.single_rows(present)
    state = gibbs_state.state_around(rows, prior_numbers, np.zeros((2, p)), np.zeros(2), np.ones(2), 2.0, rng)
    state.mean[:] = rng.standard_normal(p)
    return rng, observations, rows, prior_numbers, state


def test_means_are_normal_and_predictors_follow():
    rng, observations, rows, prior_numbers, state = problem(p=3)
    X = np.where(rows.present[np.repeat([0, 1], np.diff(observations.offsets))], observations.design.T, 0.0)
    before, mean = observations.scores.copy(), state.mean.copy()
    own = np.exp(-2.0 * state.mean_log_scales) + OBSERVED_MEAN_MEAN_SCALE**-2
    precision = X.T @ (observations.precisions[:, np.newaxis] * X) + np.diag(own)
    centre = np.linalg.solve(precision, X.T @ (before + observations.precisions * (X @ mean)))
    draws = np.empty((8_000, 3))
    for draw in draws:
        draw_observed_mean(rng, observations, rows, prior_numbers, state)
        draw[:] = state.mean
    standard = (draws - centre) @ np.linalg.cholesky(precision)
    np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(np.cov(standard.T), np.eye(3), atol=0.07)
    moved = X @ (state.mean - mean)
    np.testing.assert_allclose(observations.predictors, moved, atol=1e-9)
    np.testing.assert_allclose(observations.scores, before - observations.precisions * moved, atol=1e-9)


def test_of_many_means_those_of_largest_scale_move_together():
    rng, observations, rows, prior_numbers, state = problem(p=MOST_JOINT_MEANS + 3)
    state.mean_log_scales[:] = rng.permutation(MOST_JOINT_MEANS + 3) / 100.0
    mean = state.mean.copy()
    draw_observed_mean(rng, observations, rows, prior_numbers, state)
    np.testing.assert_array_equal(state.mean == mean, state.mean_log_scales < 0.03)
