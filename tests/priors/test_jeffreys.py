import numpy as np
import pytest
from scipy.stats import gamma, gennorm

from bayesmtfs.priors import Jeffreys

ROW = np.array([0.8, -0.3, 1.7])
SHAPES = (0.7, 1.0, 2.0, 4.0)
HYPERPRIORS = [(0.0, 0.0), (1.5, 0.4), (0.5, 0.0), (0.0, 0.4)]


def scale_density(log_rho, q, shape, rate):
    """Density of log rho that follows from the Gamma distribution of rho^-q; improper ones as the module states them."""
    power = np.exp(-q * log_rho)
    if shape > 0 and rate > 0:
        return gamma(shape, scale=1 / rate).pdf(power) * q * power
    return power**shape * np.exp(-rate * power)


def integral_over_scales(row, q, shape, rate, power=0.0):
    """Integral of rho^-power times the likelihood of the row times the prior, over log rho.

    The integrand is smooth and dies at both ends: the trapezoidal rule converges exponentially.
    """
    log_rho = np.linspace(-10.0, 20.0, 3001)
    family = np.exp(gennorm.logpdf(row, q, scale=np.exp(log_rho)[:, np.newaxis]).sum(axis=1))
    integrand = np.exp(-power * log_rho) * family * scale_density(log_rho, q, shape, rate)
    return np.trapezoid(integrand, log_rho)


@pytest.mark.parametrize(("shape", "rate"), HYPERPRIORS)
@pytest.mark.parametrize("q", SHAPES)
def test_density_equals_the_integral_over_the_scale(q, shape, rate):
    density = np.exp(-Jeffreys(q, shape, rate).negative_log_density(ROW[np.newaxis]))
    assert density == pytest.approx(integral_over_scales(ROW, q, shape, rate), rel=1e-8)


@pytest.mark.parametrize(("shape", "rate"), HYPERPRIORS)
@pytest.mark.parametrize("q", SHAPES)
def test_weights_equal_their_integrals(q, shape, rate):
    prior = Jeffreys(q, shape, rate)
    evidence = integral_over_scales(ROW, q, shape, rate)
    expected = integral_over_scales(ROW, q, shape, rate, q) / evidence
    assert np.exp(prior.log_em_weights(ROW[np.newaxis]))[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("q", SHAPES)
def test_weights_are_those_of_the_paper_without_hyperprior(q):
    rows = np.vstack([ROW, 3 * ROW])
    expected = 3 / (q * np.sum(np.abs(rows) ** q, axis=1))
    np.testing.assert_allclose(np.exp(Jeffreys(q).log_em_weights(rows)), expected, rtol=1e-13)


def test_infinite_q_is_the_limit():
    # rho is at least max |w|: the integral of (2 rho)^-m / rho from there
    density = np.exp(-Jeffreys(np.inf).negative_log_density(ROW[np.newaxis]))
    assert density == pytest.approx((2 * 1.7) ** -3 / 3, rel=1e-12)
    near = Jeffreys(1e7)
    assert np.exp(-near.negative_log_density(ROW[np.newaxis])) == pytest.approx(density, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-300, 1e-120, 1e120, 1e300])
def test_powers_of_entries_never_overflow(scale):
    prior, rows = Jeffreys(7.0), ROW[np.newaxis]
    shift = 3 * np.log(scale)
    expected = prior.negative_log_density(rows) + shift
    assert prior.negative_log_density(scale * rows) == pytest.approx(expected, rel=1e-12)
    logs = prior.log_em_weights(scale * rows)
    np.testing.assert_allclose(logs, prior.log_em_weights(rows) - 7 * np.log(scale), rtol=1e-12)


def test_zero_rows():
    zero = np.zeros((1, 3))
    assert Jeffreys(2.0).negative_log_density(zero) == -np.inf
    assert np.exp(Jeffreys(2.0).log_em_weights(zero))[0] == np.inf
    assert np.isfinite(Jeffreys(2.0, 1.0, 0.5).negative_log_density(zero))
    assert np.exp(Jeffreys(2.0, 1.0, 0.5).log_em_weights(zero))[0] == pytest.approx((1.0 + 1.5) / 0.5)


def test_padding_does_not_count():
    rows, sizes = np.array([[1.0, -2.0, 0.5], [0.3, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.array([3, 1, 0])
    prior = Jeffreys(1.5, 0.3, 0.2)
    expected = prior.negative_log_density(rows[:1]) + prior.negative_log_density(rows[1:2, :1])
    assert prior.negative_log_density(rows, sizes) == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(
        np.exp(prior.log_em_weights(rows, sizes))[1], np.exp(prior.log_em_weights(rows[1:2, :1]))[0]
    )
    assert not np.any(np.isnan(np.exp(Jeffreys(1.5).log_em_weights(rows, sizes))))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Jeffreys(0.0), "norm_q is 0.0; pass a number above 0"),
        (lambda: Jeffreys(2.0, shape=-1.0), "shape is -1.0; pass"),
        (lambda: Jeffreys(2.0, rate=np.nan), "rate is nan; pass"),
        (lambda: Jeffreys(np.inf, shape=1.0), "shape is 1.0 and rate is 0.0 with norm_q=inf.*; pass"),
        (lambda: Jeffreys(np.inf).log_em_weights(np.ones((1, 2))), "norm_q is inf.*; pass a finite norm_q"),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
