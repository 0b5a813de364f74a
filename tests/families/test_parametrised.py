"""Huber and quantile losses away from their defaults, names with parameters, and counts at large rates."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.integrate import quad

from bayesmtfs.families import (
    Absolute,
    Huber,
    NegativeBinomial,
    Poisson,
    Quantile,
    find_family,
    is_known,
    registered_name,
)


def test_absolute_is_twice_the_quantile_loss_at_one_half():
    y, eta = np.random.default_rng(0).normal(size=(2, 50))
    np.testing.assert_allclose(2.0 * Quantile().value(y, eta), Absolute().value(y, eta))
    np.testing.assert_allclose(2.0 * Quantile().gradient(y, eta), Absolute().gradient(y, eta))


@pytest.mark.parametrize("family", [Quantile(0.9), Quantile(0.1), Huber(0.7), Huber(3.0)])
def test_densities_integrate_to_one_and_draws_follow_them(family):
    density = lambda y: float(np.exp(family.log_density(np.array(y), np.array(0.5), 0.8)))  # noqa: E731
    assert sum(quad(density, *ends)[0] for ends in [(-150, 0.5), (0.5, 150)]) == pytest.approx(1.0, abs=1e-6)
    drawn = family.draw(np.random.default_rng(1), np.full(4000, 0.5), 0.8)
    at = [-1.0, 0.0, 0.5, 1.0, 2.0]
    below = [quad(density, -150, 0.5)[0] + quad(density, 0.5, end)[0] for end in at]
    np.testing.assert_allclose([np.mean(drawn <= end) for end in at], below, atol=0.03)


@pytest.mark.parametrize("family", [Quantile(0.8), Huber(0.7)])
def test_pymc_terms_are_the_densities(family):
    y, eta = np.random.default_rng(2).normal(size=(2, 20))
    found = pm.logp(family.pymc_dist(eta, 0.6, shape=(20,)), y).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(found, family.log_density(y, eta, 0.6), rtol=1e-12)
    drawn = pm.draw(family.pymc_dist(np.zeros(4000), 0.6, shape=(4000,)), random_seed=3, mode="FAST_COMPILE")
    assert stats.ks_2samp(drawn, family.draw(np.random.default_rng(4), np.zeros(4000), 0.6)).pvalue > 0.01


@pytest.mark.parametrize("threshold", [0.1, 1.0, 30.0])
def test_the_best_constant_of_huber_has_slope_zero(threshold):
    rng = np.random.default_rng(5)
    y, weight = rng.standard_cauchy(41), rng.uniform(0.1, 2.0, 41)
    best = Huber(threshold).best_constant(y, weight)
    assert weight @ Huber(threshold).gradient(y, np.full(41, best)) == pytest.approx(0.0, abs=1e-12 * weight.sum())


def test_names_state_parameters():
    for family in (Quantile(0.9), Huber(2.0), Quantile(1 / 3), NegativeBinomial(0.25)):
        assert find_family(family.name) == family and registered_name(family) == family.name
    assert Quantile(0.9).name == "quantile(0.9)" and Quantile().name == "quantile" and Huber().name == "huber"
    assert find_family("negative_binomial( 0.5 )") == NegativeBinomial(0.5)
    assert is_known("quantile(.9)") and not is_known("quantum(0.9)")
    with pytest.raises(ValueError, match="'squared', which has no parameter"):
        find_family("squared(2)")
    with pytest.raises(ValueError, match=r"level is 1\.5; pass a number between 0 and 1"):
        find_family("quantile(1.5)")
    with pytest.raises(ValueError, match="threshold is 0; pass a positive number"):
        Huber(0)
    with pytest.raises(ValueError, match="dispersion is 0; pass a positive number, .*or use loss='poisson'"):
        NegativeBinomial(0)


def test_counts_at_large_rates_neither_overflow_nor_warn():
    y, eta = np.array([0.0, 3.0]), np.array([700.0, 700.0])
    family = Poisson()
    for found in (family.value(y, eta), family.gradient(y, eta), family.curvature(y, eta), family.mean(eta)):
        np.testing.assert_allclose(found, np.exp(700.0))
    assert np.isfinite(family.slope(3.0, 1e4)).all() and np.isfinite(family.mean(np.array([1e4]))).all()
    drawn = family.draw(np.random.default_rng(0), np.array([1.0, 50.0, 700.0]))
    assert np.isfinite(drawn).all() and drawn[1] == pytest.approx(np.exp(50.0), rel=1e-6)


def test_deviance_of_counts_is_that_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(1)
    y, eta, weight = rng.poisson(2.0, 30).astype(float), rng.normal(size=30), rng.uniform(0.5, 2.0, 30)
    wanted = sm.families.Poisson().deviance(y, np.exp(eta), freq_weights=weight)
    assert Poisson().deviance(y, eta, weight) == pytest.approx(wanted)


@pytest.mark.parametrize("dispersion", [0.2, 3.0])
def test_negative_binomial_counts_follow_scipys_law(dispersion):
    family, eta = NegativeBinomial(dispersion), np.log(4.0)
    law = stats.nbinom(1.0 / dispersion, 1.0 / (1.0 + dispersion * 4.0))
    y = np.arange(30.0)
    np.testing.assert_allclose(family.log_density(y, np.full(30, eta)), law.logpmf(y), rtol=1e-10)
    found = pm.logp(family.pymc_dist(np.full(30, eta), 1.0, shape=(30,)), y.astype(int)).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(found, law.logpmf(y), rtol=1e-8)
    drawn = family.draw(np.random.default_rng(6), np.full(20_000, eta))
    for end in (0.0, 2.0, 6.0, 15.0):
        assert np.mean(drawn <= end) == pytest.approx(law.cdf(end), abs=0.015)


def test_negative_binomial_is_poisson_without_dispersion_and_does_not_overflow():
    y, eta = np.array([0.0, 3.0, 8.0]), np.array([-1.0, 0.5, 2.0])
    near, limit = NegativeBinomial(1e-6), Poisson()
    np.testing.assert_allclose(near.log_density(y, eta), limit.log_density(y, eta), atol=1e-3)
    np.testing.assert_allclose(near.gradient(y, eta), limit.gradient(y, eta), atol=1e-3)
    far = np.array([700.0, -700.0, 1e4])
    family = NegativeBinomial()
    for found in (family.value(y, far), family.gradient(y, far), family.curvature(y, far), family.mean(far)):
        assert np.isfinite(found).all()
    loss, slope = family.slope(3.0, 700.0)
    assert loss == pytest.approx(float(family.value(np.array(3.0), np.array(700.0)))) and slope == pytest.approx(1.0)
