"""GeneralizedNormal against scipy.stats.gennorm, quadrature and finite differences."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import (
    BaseTestDistributionRandom,
    Domain,
    assert_support_point_is_expected,
    check_logccdf,
    check_logcdf,
    check_logp,
)
from scipy import integrate, optimize, stats
from scipy.special import gamma

from bayesmtfs.models import GeneralizedNormal

pytestmark = pytest.mark.usefixtures("quick_compilation")

SHAPES = np.array([0.3, 0.8, 1.0, 1.5, 2.0, 3.0, 8.0, 50.0])
REALS = Domain([-np.inf, -4.0, -1.2, -0.3, 0.0, 0.7, 3.0, np.inf])
PARAMETERS = {
    "mu": Domain([-np.inf, -1.0, 0.7, np.inf]),
    "rho": Domain([0, 1.9, 3.0, np.inf]),
    "q": Domain([0, 0.4, 1.0, 2.0, 5.5, np.inf]),
}


@pytest.fixture(scope="module")
def law():
    """Compiled functions of (value, mu, rho, q), all vectors of one length."""
    value, mu, rho, q = inputs = [pt.dvector(name) for name in ("value", "mu", "rho", "q")]
    variable = GeneralizedNormal.dist(mu, rho, q)
    functions = {"logp": pm.logp, "logcdf": pm.logcdf, "logccdf": pm.logccdf, "icdf": pm.icdf}
    graphs = {name: make(variable, value) for name, make in functions.items()}
    graphs["gradient"] = pt.stack(pt.grad(graphs["logp"].sum(), inputs))
    graphs["logcdf_gradient"] = pt.grad(graphs["logcdf"].sum(), value)
    compiled = {name: pytensor.function(inputs, graph) for name, graph in graphs.items()}

    def evaluate(name, value, mu, rho, q):
        arrays = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in (value, mu, rho, q)))
        flat = compiled[name](*(a.ravel() for a in arrays))
        return flat.reshape(*flat.shape[:-1], *arrays[0].shape)

    return evaluate


def with_scipy_names(function):
    return lambda value, mu, rho, q: function(value, q, loc=mu, scale=rho)


@pytest.mark.parametrize(
    ("check", "reference"),
    [
        (check_logp, stats.gennorm.logpdf),
        (check_logcdf, stats.gennorm.logcdf),
        (check_logccdf, stats.gennorm.logsf),
    ],
)
def test_agrees_with_scipy_and_refuses_impossible_parameters(check, reference):
    check(GeneralizedNormal, REALS, PARAMETERS, with_scipy_names(reference), decimal=9, n_samples=-1)


def test_log_density_on_a_grid_that_reaches_far_out(law):
    values = np.concatenate([-np.geomspace(1e-8, 50, 12), [0.0], np.geomspace(1e-8, 50, 12)])[:, None]
    np.testing.assert_allclose(law("logp", values, 0.4, 1.7, SHAPES), stats.gennorm.logpdf(values, SHAPES, 0.4, 1.7))


def test_infinite_shape_is_the_uniform_law(law):
    values = np.array([-4.0, -1.5, 0.0, 0.9, 2.49, 2.6])
    reference = stats.uniform(loc=-1.5, scale=4.0)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(law("logp", values, 0.5, 2.0, np.inf), reference.logpdf(values))
        np.testing.assert_allclose(law("logcdf", values, 0.5, 2.0, np.inf), reference.logcdf(values), atol=1e-15)
    levels = np.linspace(0.0, 1.0, 7)
    np.testing.assert_allclose(law("icdf", levels, 0.5, 2.0, np.inf), reference.ppf(levels))
    assert np.isfinite(law("gradient", [0.0, 0.5, 2.0], 0.5, 2.0, np.inf)).all()


@pytest.mark.parametrize("q", [0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 10.0, 60.0, np.inf])
def test_density_integrates_to_one(law, q):
    # z = mu + rho t^6 makes the integrand smooth where the density has a peak.
    edge = 45.0 ** (1 / q) if q < np.inf else 1.0
    mass = (
        2
        * integrate.quad(
            lambda t: float(np.exp(law("logp", [-0.3 + 2.0 * t**6], -0.3, 2.0, q))[0]) * 12.0 * t**5,
            0.0,
            edge ** (1 / 6),
        )[0]
    )
    assert mass == pytest.approx(1.0, abs=1e-8)


def log_tail_by_quadrature(u, q):
    """``ln P(z > u)`` for u > 0 from the integral of ``exp(u^q - (u + s)^q)`` over s."""
    width = u ** (1 - q) / q
    excess = integrate.quad(lambda t: np.exp(u**q - (u + width * t) ** q), 0.0, 60.0, epsabs=0, epsrel=1e-12)[0]
    return -(u**q) + np.log(width * excess) - np.log(2 * gamma(1 + 1 / q))


@pytest.mark.parametrize(
    ("q", "u"), [(0.7, 2e4), (1.0, 2000.0), (1.3, 300.0), (2.0, 24.0), (2.0, 30.0), (3.0, 20.0), (8.0, 4.0)]
)
def test_tails_stay_accurate_where_the_probability_underflows(law, q, u):
    expected = log_tail_by_quadrature(u, q)
    assert law("logcdf", [-u], 0.0, 1.0, q)[0] == pytest.approx(expected, rel=1e-11)
    assert law("logccdf", [u], 0.0, 1.0, q)[0] == pytest.approx(expected, rel=1e-11)
    # The hazard is density over tail.
    hazard = np.exp(law("logp", [-u], 0.0, 1.0, q) - expected)
    np.testing.assert_allclose(law("logcdf_gradient", [-u], 0.0, 1.0, q), hazard, rtol=1e-9)


def test_normal_tail_far_out(law):
    values = np.array([-5.0, -50.0, -500.0, -1e5])
    np.testing.assert_allclose(law("logcdf", values, 0.0, np.sqrt(2.0), 2.0), stats.norm.logcdf(values), rtol=1e-13)


def test_upper_tail_is_not_lost_in_the_log_of_almost_one(law):
    np.testing.assert_allclose(law("logcdf", [8.0, 20.0], 0.0, 1.0, 1.0), -0.5 * np.exp([-8.0, -20.0]), rtol=1e-3)


@pytest.mark.parametrize("q", [0.3, 1.0, 2.0, 8.0, 50.0])
def test_quantiles_agree_with_scipy(law, q):
    levels = np.array([0.0, 1e-300, 1e-12, 0.01, 0.2, 0.49, 0.5, 0.6, 0.93, 1 - 1e-12, 1.0])
    np.testing.assert_allclose(law("icdf", levels, 0.3, 1.6, q), stats.gennorm.ppf(levels, q, 0.3, 1.6), rtol=1e-10)


@pytest.mark.parametrize("q", [0.3, 2.0, 50.0, 1000.0])
def test_quantiles_invert_the_distribution_function(law, q):
    levels = np.array([1e-200, 1e-3, 0.3, 0.5 - 1e-9, 0.5, 0.5 + 1e-9, 0.8])
    values = law("icdf", levels, 0.0, 1.0, q)
    np.testing.assert_allclose(law("logcdf", values, 0.0, 1.0, q), np.log(levels), rtol=1e-11)


@pytest.mark.parametrize("q", [2.0, 50.0, 1000.0])
def test_quantiles_next_to_the_centre(law, q):
    # The density at the centre is 1 / (2 Gamma(1 + 1/q)).
    quantiles = law("icdf", [0.5 - 1e-9, 0.5 + 1e-9], 0.0, 1.0, q)
    np.testing.assert_allclose(quantiles, np.array([-2e-9, 2e-9]) * gamma(1 + 1 / q), rtol=1e-6)


def test_quantiles_of_what_is_no_probability_are_missing(law):
    assert np.isnan(law("icdf", [-0.1, 1.1], 0.0, 1.0, 2.0)).all()
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="rho > 0"):
        law("icdf", [0.5], 0.0, -1.0, 2.0)


def test_gradient_agrees_with_finite_differences(law):
    for q in (0.6, 1.0, 1.5, 2.0, 5.0):
        point = np.array([1.3, -0.4, 0.9, q])
        numeric = optimize.approx_fprime(point, lambda x: law("logp", *x[:, None])[0], 1e-7)
        np.testing.assert_allclose(law("gradient", *point[:, None])[:, 0], numeric, rtol=2e-5)


def test_gradient_is_finite_at_the_centre(law):
    gradient = law("gradient", 0.2, 0.2, 1.5, SHAPES)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[:2], 0.0)
    np.testing.assert_allclose(gradient[2], -1 / 1.5)
    # At the centre ln p = -ln 2 - ln rho - ln Gamma(1 + 1/q) is all there is.
    step = 1e-6
    numeric = (np.log(gamma(1 + 1 / (SHAPES - step))) - np.log(gamma(1 + 1 / (SHAPES + step)))) / (2 * step)
    np.testing.assert_allclose(gradient[3], numeric, rtol=1e-5, atol=1e-9)


def test_slope_of_the_distribution_function_at_the_centre_is_the_density(law):
    slope = law("logcdf_gradient", 0.2, 0.2, 1.5, SHAPES)
    np.testing.assert_allclose(slope, 2 * stats.gennorm.pdf(0.0, SHAPES, scale=1.5))


def test_draws_follow_the_density():
    shapes = np.array([0.5, 1.0, 2.0, 5.0, 50.0, 2000.0])[:, None]
    draws = pm.draw(GeneralizedNormal.dist(0.7, 1.8, shapes, shape=(6, 4000)), random_seed=20)
    for q, row in zip(shapes[:, 0], draws, strict=True):
        # From q = 1000 on scipy's distribution function loses its centre; the law is uniform to 1e-3 there.
        reference = stats.gennorm(q, 0.7, 1.8) if q < 1000 else stats.uniform(-1.1, 3.6)
        assert stats.kstest(row, reference.cdf).pvalue > 0.01
        assert np.var(row) == pytest.approx(reference.var(), rel=0.15)
    uniform = pm.draw(GeneralizedNormal.dist(0.7, 1.8, np.inf, shape=4000), random_seed=21)
    assert stats.kstest(uniform, stats.uniform(-1.1, 3.6).cdf).pvalue > 0.01


@pytest.mark.parametrize(("parameters", "message"), [((0.0, -1.0, 2.0), "rho > 0"), ((0.0, 1.0, -2.0), "q > 0")])
def test_draws_with_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(pm.logprob.utils.ParameterValueError, match=message):
        pm.draw(GeneralizedNormal.dist(*parameters))


class TestRandomVariable(BaseTestDistributionRandom):
    pymc_dist = GeneralizedNormal
    pymc_dist_params = {"mu": 0.5, "rho": 2.0, "q": 3.0}
    expected_rv_op_params = {"mu": 0.5, "rho": 2.0, "q": 3.0}
    checks_to_run = ["check_pymc_params_match_rv_op", "check_rv_size"]


@pytest.mark.parametrize(
    ("mu", "rho", "q", "size", "shape"),
    [
        (0, 1, 2, None, ()),
        ([0.0, 1.0], 1.0, 2.0, None, (2,)),
        (np.zeros((3, 1)), np.ones(4), 2.0, None, (3, 4)),
        ([0.0, 1.0], 1.0, [1.0, 3.0], (5, 2), (5, 2)),
    ],
)
def test_parameters_broadcast(mu, rho, q, size, shape):
    variable = GeneralizedNormal.dist(mu, rho, q, size=size)
    value = np.full(shape, 0.8)
    assert pm.draw(variable, random_seed=1).shape == shape
    np.testing.assert_allclose(
        pm.logp(variable, value).eval(), np.broadcast_to(stats.gennorm.logpdf(value, q, mu, rho), shape)
    )


@pytest.mark.parametrize(
    ("size", "expected"), [(None, np.array([0.0, 3.0])), ((2, 2), np.array([[0.0, 3.0], [0.0, 3.0]]))]
)
def test_support_point_is_the_location(size, expected):
    with pm.Model() as model:
        GeneralizedNormal("x", [0.0, 3.0], 1.0, 1.5, size=size)
    assert_support_point_is_expected(model, expected)


def test_truncated_censored_and_transformed_versions_are_derived_by_pymc():
    law = GeneralizedNormal.dist(0.0, 1.0, 3.0)
    reference = stats.gennorm(3.0)
    inside = np.log(reference.cdf(2.0) - reference.cdf(-1.0))
    truncated = pm.logp(pm.Truncated.dist(law, lower=-1.0, upper=2.0), 0.3).eval()
    assert truncated == pytest.approx(reference.logpdf(0.3) - inside, rel=1e-12)
    censored = pm.logp(pm.Censored.dist(law, lower=-1.0, upper=0.2), 0.2).eval()
    assert censored == pytest.approx(reference.logsf(0.2), rel=1e-12)
    assert pm.logp(pm.math.exp(law), 2.0).eval() == pytest.approx(reference.logpdf(np.log(2.0)) - np.log(2.0))
