"""Draws of the hyperprior's variables against SciPy's laws."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import gamma
from scipy.stats import betaprime, halfcauchy, kstest, norm, t, uniform

from bayesmtfs.models.rows import exponent, log_unit_deviation, row_scale_per_feature
from bayesmtfs.models.terms import intercept_per_task, noise_per_task
from bayesmtfs.priors import Blocks
from bayesmtfs.priors.hyperpriors import Hyperprior

COORDS = {"feature": range(4), "task": range(3)}
BLOCKS = Blocks(4, 3)


def draws_of(name, prior, norm_q=2.0, blocks=BLOCKS, draws=500):
    with pm.Model(coords=COORDS) as model:
        row_scale_per_feature(prior, exponent(norm_q, prior), blocks)
        noise_per_task(prior)
        intercept_per_task(prior)
    return pm.draw(model[name], draws=draws, random_seed=7, mode="FAST_COMPILE")


LAWS = {
    "half-Cauchy at q = 2": (2.0, {}, lambda rho: halfcauchy.cdf(rho, scale=0.3)),
    "half-Cauchy at q = inf": (np.inf, {}, lambda rho: halfcauchy.cdf(rho, scale=0.3)),
    "half-Cauchy by its power": (5.0, {"scale_power": 2.0}, lambda rho: halfcauchy.cdf(rho, scale=0.3)),
    "beta prime": (
        4.0,
        {"tail_shape": 1.5, "spike_shape": 0.2, "scale_power": None},
        lambda rho: betaprime.cdf((rho / 0.3) ** 4.0, 0.2, 1.5),
    ),
    "log-uniform": (
        3.0,
        {"kind": "log_uniform", "bounds": (0.01, 2.0)},
        lambda rho: uniform.cdf(np.log(rho), np.log(0.01), np.log(200.0)),
    ),
    "log-uniform, q learned": (
        "learn",
        {"kind": "log_uniform", "bounds": (0.01, 2.0)},
        lambda rho: uniform.cdf(np.log(rho), np.log(0.01), np.log(200.0)),
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_row_scales_follow_their_law(law):
    norm_q, options, cdf = LAWS[law]
    prior = Hyperprior(global_scale=0.3, learn_global_scale=False, **options)
    rho = draws_of("row_scale", prior, norm_q)
    assert rho.shape == (500, 4)
    assert kstest(cdf(rho).ravel(), "uniform").pvalue > 0.01


def test_features_of_a_group_share_a_scale():
    rho = draws_of("row_scale", Hyperprior(), blocks=Blocks(4, 3, np.array([0, 1, 0, 1])), draws=5)
    np.testing.assert_array_equal(rho[:, :2], rho[:, 2:])
    assert np.all(rho[:, 0] != rho[:, 1])


def test_global_scale_is_log_normal():
    log_tau = np.log(draws_of("global_scale", Hyperprior(global_scale=0.3)))
    assert kstest(log_tau, norm(np.log(0.3), 1.0).cdf).pvalue > 0.01
    fixed = draws_of("global_scale", Hyperprior(global_scale=0.3, learn_global_scale=False), draws=3)
    np.testing.assert_allclose(fixed, 0.3)


def test_learned_q_is_uniform_in_its_inverse():
    q = draws_of("norm_q", Hyperprior(norm_q_bounds=(1.5, 30.0)), "learn")
    assert kstest(1 / q, uniform(1 / 30, 1 / 1.5 - 1 / 30).cdf).pvalue > 0.01


def test_noise_and_intercepts():
    noise = draws_of("noise", Hyperprior(noise_scale=1.7))
    assert kstest(2 * t.cdf(noise / 1.7, 3).ravel() - 1, "uniform").pvalue > 0.01
    shared = draws_of("noise", Hyperprior(shared_noise=True), draws=5)
    assert shared.shape == (5, 3)
    assert np.all(shared == shared[:, :1])
    intercept = draws_of("intercept", Hyperprior(intercept_centre=4.0, intercept_scale=6.0))
    assert kstest(intercept.ravel(), norm(4.0, 6.0).cdf).pvalue > 0.01
    np.testing.assert_array_equal(draws_of("intercept", Hyperprior(fit_intercept=False), draws=2), 0.0)


@pytest.mark.parametrize("q", [0.7, 1.0, 2.0, 40.0])
def test_unit_deviation(q):
    deviation = np.exp(log_unit_deviation(np.float64(q)).eval(mode="FAST_COMPILE"))
    assert deviation == pytest.approx(np.sqrt(gamma(3 / q) / gamma(1 / q)), rel=1e-12)


@pytest.mark.parametrize(("norm_q", "message"), [("two", "norm_q is 'two'; pass"), (0.0, "norm_q is 0.0; pass")])
def test_wrong_exponents_are_refused(norm_q, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        exponent(norm_q, Hyperprior())
