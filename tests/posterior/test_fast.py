"""The approximation against the Gibbs sampler, against exact posteriors, and in its corners."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.families import Gaussian, Logistic
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.posterior import fast
from bayesmtfs.posterior.fast import conditional, scale_grid, tilt
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for, log_scale_density


def standard_problem(design, seed=1):
    sim = simulate_tasks(
        n_tasks=5, n_features=12, n_samples=40, n_relevant=3, snr=2.0, design=design, random_state=seed
    )
    return TaskData.from_long(sim.X, (sim.y - sim.y.mean()) / sim.y.std(), tasks=sim.tasks)


def flat(values):
    return values.reshape(-1, *values.shape[2:])


@pytest.mark.parametrize(("design", "kind"), [("independent", "beta_prime"), ("ar", "log_uniform")])
def test_regression_agrees_with_the_gibbs_sampler(design, kind):
    data = standard_problem(design)
    prior = hyperprior_for(data, kind=kind)
    draws = fast.sample(data, Gaussian(), prior, 2000, 2, 0).variables
    exact = sample_chain(data, prior, ChainSettings(6000, 500, 3, 2.0))
    W, deviation = flat(draws["coef"]), exact.W.std(axis=0)
    assert np.max(np.abs(W.mean(axis=0) - exact.W.mean(axis=0)) / deviation) < 0.2
    assert np.max(np.abs(W.std(axis=0) / deviation - 1.0)) < 0.2
    included = [(np.abs(w).max(axis=2) > 0.05).mean(axis=0) for w in (W, exact.W)]
    assert np.max(np.abs(included[0] - included[1])) < 0.1
    np.testing.assert_allclose(flat(draws["noise"]).mean(axis=0), exact.noise.mean(axis=0), rtol=0.05)


def test_logistic_means_by_importance_sampling():
    """One feature, one task: the exact posterior is an average over draws of the prior."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = np.where(rng.random(60) < expit(1.0 * x), 1.0, -1.0)
    data = TaskData.from_long(x[:, None], y)
    prior = hyperprior_for(data, "logistic", global_scale=1.0, learn_global_scale=False)
    scale = np.abs(rng.standard_cauchy(200_000))
    w, b = scale / np.sqrt(2) * rng.normal(size=200_000), 5.0 * rng.normal(size=200_000)
    log_weight = np.zeros(200_000)
    for x_i, y_i in zip(x, y, strict=True):
        log_weight -= np.logaddexp(0.0, -y_i * (x_i * w + b))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ w
    deviation = np.sqrt(weight @ (w - mean) ** 2)
    found = flat(fast.sample(data, Logistic(), prior, 4000, 1, 0).variables["coef"])[:, 0, 0]
    assert abs(found.mean() - mean) < 0.2 * deviation
    assert found.std() == pytest.approx(deviation, rel=0.15)


def test_weight_two_is_a_repeated_row():
    data = standard_problem("independent")
    weighted = replace(data, weight=np.where(np.arange(len(data.y)) % 4 == 0, 2.0, 1.0))
    twice = np.sort(np.append(np.arange(len(data.y)), np.arange(0, len(data.y), 4)))
    repeated = TaskData.from_long(data.X[twice], data.y[twice], tasks=data.task[twice])
    normals = [fast.approximate(d, Gaussian(), hyperprior_for(d)).normals for d in (weighted, repeated)]
    for one, other in zip(*normals, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-9)


def test_both_sizes_of_system_give_the_same_inverse():
    rng = np.random.default_rng(0)
    X, precision, prior = rng.normal(size=(6, 9)), rng.gamma(1.0, size=6), rng.gamma(1.0, size=9) + 0.1
    wanted = np.linalg.inv(X.T @ (precision[:, None] * X) + np.diag(prior))
    np.testing.assert_allclose(fast._inverse(X, precision, prior), wanted, rtol=1e-8)
    tall = rng.normal(size=(20, 9))
    wanted = np.linalg.inv(tall.T @ tall + np.diag(prior))
    np.testing.assert_allclose(fast._inverse(tall, np.ones(20), prior), wanted, rtol=1e-8)


def test_separable_labels_settle():
    X = np.repeat([[-1.0, 0.3], [1.0, -0.3]], 10, axis=0) + 0.05 * np.random.default_rng(0).normal(size=(20, 2))
    data = TaskData.from_long(X, np.repeat([-1.0, 1.0], 10))
    found = fast.approximate(data, Logistic(), hyperprior_for(data, "logistic"))
    assert found.converged and np.isfinite(found.normals[0].mean).all() and found.normals[0].mean[0] > 0


def test_groups_share_a_scale_and_absent_features_are_zero(lacking):
    data, present = lacking
    data = replace(data, present=present, groups=np.array([0, 1, 1]))
    draws = fast.sample(data, Gaussian(), hyperprior_for(data), 50, 2, 0).variables
    assert not draws["coef"][:, :, 0, 1].any() and draws["coef"][:, :, 0, 0].all()
    np.testing.assert_array_equal(draws["row_scale"][:, :, 1], draws["row_scale"][:, :, 2])


@pytest.mark.parametrize("shared", [True, False])
def test_same_seed_same_draws_and_fixed_parts(shared):
    data = standard_problem("independent")
    prior = hyperprior_for(data, shared_noise=shared, fit_intercept=False, learn_global_scale=False)
    one, other = (fast.sample(data, Gaussian(), prior, 30, 2, 5) for _ in range(2))
    for name, values in one.variables.items():
        np.testing.assert_array_equal(values, other.variables[name])
    assert one.fixed == {"norm_q", "intercept", "global_scale"} and not one.variables["intercept"].any()
    assert np.all(one.variables["noise"] == one.variables["noise"][:, :, :1]) == shared


FIXED = Hyperprior(global_scale=0.1, learn_global_scale=False)
BOUNDED = Hyperprior(kind="log_uniform", bounds=(1e-2, 5.0))


@pytest.mark.parametrize("prior", [FIXED, BOUNDED], ids=["half-Cauchy", "log-uniform"])
def test_moments_of_a_row_by_quadrature(prior):
    mean, variance = np.array([0.3, -0.2]), np.array([0.01, 0.04])

    def weight(log_scale):
        scale = np.exp(2 * log_scale) / 2
        evidence = np.prod(norm.pdf(mean, scale=np.sqrt(variance + scale)))
        return float(np.exp(log_scale_density(log_scale, 0.1, 2.0, prior)) * evidence)

    def integral(function):
        low, high = np.log(prior.bounds) if prior is BOUNDED else (np.log(0.1) - 12, np.log(10.0))
        return quad(lambda value: weight(value) * function(value), low, high, limit=400)[0]

    def at(log_scale):
        return conditional(mean, variance, np.exp(2 * log_scale) / 2)

    total = integral(lambda value: 1.0)
    found = tilt(mean[None], variance[None], np.ones((1, 2)), scale_grid(prior))
    for t in range(2):
        first = integral(lambda value, t=t: at(value)[0][t]) / total
        second = integral(lambda value, t=t: at(value)[1][t] + at(value)[0][t] ** 2) / total
        assert found.mean[0, t] == pytest.approx(first, rel=5e-3)
        assert found.variance[0, t] == pytest.approx(second - first**2, rel=2e-2)


def test_global_scale_follows_the_rows():
    grid = scale_grid(Hyperprior(global_scale=0.1))
    variance, real = np.full((20, 3), 1e-4), np.ones((20, 3))
    large, small = (
        tilt(size * np.ones((20, 3)), variance, real, grid).global_probability @ grid.log_global for size in (1.0, 1e-3)
    )
    assert large > np.log(0.1) > small


def test_padding_says_nothing_about_a_scale():
    grid = scale_grid(FIXED)
    alone = tilt(np.array([[0.5]]), np.array([[0.01]]), np.ones((1, 1)), grid)
    padded = tilt(np.array([[0.5, 9.0]]), np.array([[0.01, 1.0]]), np.array([[1.0, 0.0]]), grid)
    np.testing.assert_allclose(padded.mean[0, 0], alone.mean[0, 0])
