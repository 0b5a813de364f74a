"""Hyperprior densities against SciPy and quadrature, and defaults that follow the units of the data."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.stats import betaprime, halfcauchy, norm, t

from bayesmtfs import TaskData
from bayesmtfs.priors.hyperpriors import (
    Hyperprior,
    hyperprior_for,
    log_global_scale_density,
    log_noise_density,
    log_scale_density,
)

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 8)) * np.linspace(0.5, 3.0, 8)
Y = RNG.normal(size=60) + 4.0
TASKS = np.arange(60) % 3
LOG_SCALES = np.linspace(-6.0, 6.0, 13)


def long(**options):
    return TaskData.from_long(X, Y, **({"tasks": TASKS} | options))


def test_without_an_intercept_features_are_measured_from_zero():
    shifted = TaskData.from_long(X + 30.0, Y, tasks=TASKS)
    with_intercept = [hyperprior_for(data).global_scale for data in (long(), shifted)]
    assert with_intercept[0] == pytest.approx(with_intercept[1])
    sizes = [np.sqrt(np.mean((X + shift) ** 2)) for shift in (0.0, 30.0)]
    without = [hyperprior_for(data, fit_intercept=False).global_scale for data in (long(), shifted)]
    assert without[0] / without[1] == pytest.approx(sizes[1] / sizes[0])


@pytest.mark.parametrize("tau", [0.02, 1.0, 7.0])
def test_half_cauchy_at_q_2(tau):
    rho = np.exp(LOG_SCALES)
    expected = halfcauchy.logpdf(rho, scale=tau) + LOG_SCALES
    np.testing.assert_allclose(log_scale_density(LOG_SCALES, tau, 2.0, Hyperprior()), expected, rtol=1e-12)


@pytest.mark.parametrize(("q", "tail", "spike"), [(1.0, 0.5, 0.5), (3.0, 0.2, 1.4), (8.0, 2.0, 0.3)])
def test_power_of_the_scale_is_beta_prime(q, tail, spike):
    prior = Hyperprior(tail_shape=tail, spike_shape=spike, scale_power=None)
    u = np.exp(q * (LOG_SCALES - np.log(0.7)))
    expected = betaprime.logpdf(u, spike, tail) + np.log(q * u)  # du/dl = q u
    np.testing.assert_allclose(log_scale_density(LOG_SCALES, 0.7, q, prior), expected, rtol=1e-10)


def test_exponent_of_the_scale_law():
    at_two = log_scale_density(LOG_SCALES, 0.7, 2.0, Hyperprior())
    follows_q = Hyperprior(scale_power=None)
    np.testing.assert_array_equal(log_scale_density(LOG_SCALES, 0.7, 9.0, Hyperprior()), at_two)
    np.testing.assert_array_equal(log_scale_density(LOG_SCALES, 0.7, np.inf, follows_q), at_two)
    assert not np.allclose(log_scale_density(LOG_SCALES, 0.7, 9.0, follows_q), at_two)


@pytest.mark.parametrize("q", [1.0, 2.5, np.inf])
@pytest.mark.parametrize("kind", ["beta_prime", "log_uniform"])
def test_scale_densities_integrate_to_one(kind, q):
    prior = Hyperprior(kind=kind, bounds=(0.01, 30.0), tail_shape=0.8, spike_shape=0.4)
    low, high = np.log(prior.bounds) if kind == "log_uniform" else (-80.0, 60.0)
    mass, _ = quad(lambda x: np.exp(log_scale_density(x, 2.0, q, prior)), low, high, points=[0.0], limit=200)
    assert mass == pytest.approx(1.0, abs=1e-8)
    outside = log_scale_density(np.array([low - 0.1, high + 0.1]), 2.0, q, prior)
    assert np.all(outside == -np.inf) if kind == "log_uniform" else np.all(np.isfinite(outside))


def test_jeffreys_is_the_limit_of_small_shapes():
    prior = Hyperprior(tail_shape=1e-9, spike_shape=1e-9)
    density = log_scale_density(LOG_SCALES, 1.0, 3.0, prior)
    np.testing.assert_allclose(density, density[0], rtol=0, atol=1e-7)


def test_other_densities():
    prior = Hyperprior(global_scale=0.3, noise_scale=1.7, intercept_centre=4.0, intercept_scale=6.0)
    np.testing.assert_allclose(log_global_scale_density(LOG_SCALES, prior), norm.logpdf(LOG_SCALES, np.log(0.3)))
    noise = np.exp(LOG_SCALES)
    np.testing.assert_allclose(log_noise_density(noise, prior), np.log(2) + t.logpdf(noise, 3, scale=1.7))


def typical_spread():
    """Root mean square deviation of the features within tasks."""
    means = np.array([X[TASKS == task].mean(axis=0) for task in range(3)])
    return np.sqrt(np.mean((X - means[TASKS]) ** 2))


def test_global_scale_follows_from_the_expected_features():
    prior = hyperprior_for(long(), expected_features=3)
    levels = np.array([Y[TASKS == task].mean() for task in range(3)])
    noise = np.sqrt(np.mean((Y - levels[TASKS]) ** 2))
    spread = typical_spread()
    assert prior.noise_scale == pytest.approx(noise)
    assert prior.global_scale == pytest.approx(3 / 5 * noise / np.sqrt(20) / spread)
    assert prior.intercept_centre == pytest.approx(tuple(levels)) and prior.intercept_scale == pytest.approx(5 * noise)
    assert prior.bounds == pytest.approx((1e-3 * prior.global_scale, 10 * noise / spread))
    labels = hyperprior_for(long().with_target(np.sign(Y - 4.0)), "logistic", expected_features=3)
    assert labels.global_scale == pytest.approx(3 / 5 * 2 / np.sqrt(20) / spread)
    assert (labels.intercept_centre, labels.intercept_scale) == (0.0, 5.0)


@pytest.mark.parametrize(("n_features", "odds"), [(1, 1.0), (2, 1.0), (3, 1 / 2), (40, 1 / 9)])
def test_a_tenth_of_the_features_is_expected(n_features, odds):
    design = np.tile([[1.0], [-1.0]], (4, n_features))
    data = TaskData.from_long(design, np.tile([1.0, 1.0, -1.0, -1.0], 2))
    assert hyperprior_for(data).global_scale == pytest.approx(odds / np.sqrt(8))


def test_groups_and_absent_rows_count_as_rows():
    data = long(groups=[0, 0, 0, 0, 1, 1, 2, 3])
    ratio = (
        hyperprior_for(data, expected_features=1).global_scale
        / hyperprior_for(long(), expected_features=1).global_scale
    )
    assert ratio == pytest.approx((1 / 3) / (1 / 7))
    present = np.ones((8, 3), dtype=bool)
    present[5:] = False
    absent = hyperprior_for(replace(long(), present=present), expected_features=1)
    fewer = hyperprior_for(TaskData.from_long(X[:, :5], Y, tasks=TASKS), expected_features=1)
    assert absent.global_scale == pytest.approx(fewer.global_scale)


def test_a_weight_of_two_is_the_row_twice():
    weight = np.where(RNG.uniform(size=60) < 0.3, 2.0, 1.0)
    twice = np.repeat(np.arange(60), weight.astype(int))
    repeated = TaskData.from_long(X[twice], Y[twice], tasks=TASKS[twice])
    weighted, plain = hyperprior_for(long(sample_weight=weight)), hyperprior_for(repeated)
    for name in ("global_scale", "noise_scale", "intercept_centre", "bounds"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name), rel=1e-12)


def test_all_forms_of_the_data_give_the_same():
    sparse = TaskData.from_long(sp.csr_matrix(X), Y, tasks=TASKS)
    wide = TaskData.from_wide(X, np.where(TASKS[:, None] == np.arange(3), Y[:, None], np.nan))
    for data in (sparse, wide):
        assert hyperprior_for(data).global_scale == pytest.approx(hyperprior_for(long()).global_scale, rel=1e-12)


def test_units_of_the_data_carry_over():
    plain, scaled = hyperprior_for(long()), hyperprior_for(TaskData.from_long(10 * X, 100 * Y, tasks=TASKS))
    assert scaled.global_scale == pytest.approx(10 * plain.global_scale)
    assert scaled.noise_scale == pytest.approx(100 * plain.noise_scale)
    assert scaled.bounds == pytest.approx((10 * plain.bounds[0], 10 * plain.bounds[1]))


def test_scale_of_a_shared_mean():
    spread = typical_spread()
    plain, weak = hyperprior_for(long()), hyperprior_for(long(), shared_mean=True)
    assert plain.mean_scale == 0.0 and weak.mean_scale == pytest.approx(plain.noise_scale / spread)
    strong = hyperprior_for(long(), shared_mean=True, mean_strength=25.0)
    assert strong.mean_scale == pytest.approx(plain.noise_scale / 5)


def test_targets_without_spread_within_tasks():
    singles = TaskData.from_long(X, Y, tasks=np.arange(60))
    assert hyperprior_for(singles).noise_scale == pytest.approx(Y.std())
    assert hyperprior_for(TaskData.from_long(np.ones((4, 2)), np.full(4, 3.0))).noise_scale == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "cauchy"}, "kind is 'cauchy'; choose"),
        ({"loss": "hinge"}, "learned scales needs a log-density; Hinge offers value, gradient"),
        ({"expected_features": 8}, "expected_features is 8 but there are 8 features or groups; pass"),
        ({"expected_features": 0}, "expected_features is 0 but"),
        ({"tail_shape": 0.0}, "tail_shape is 0.0; pass a finite number above 0"),
        ({"spike_shape": -1.0}, "spike_shape is -1.0; pass"),
        ({"global_scale": np.inf}, "global_scale is inf; pass"),
        ({"noise_scale": 0.0}, "noise_scale is 0.0; pass"),
        ({"scale_power": 0.0}, "scale_power is 0.0; pass"),
        ({"shared_mean": True, "mean_strength": -1.0}, "mean_strength is -1.0; pass"),
        ({"bounds": (1.0, 0.5)}, r"bounds is \(1.0, 0.5\); pass two"),
        ({"norm_q_bounds": (0.0, 5.0)}, "norm_q_bounds is .*; pass two"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hyperprior_for(long(), **options)
