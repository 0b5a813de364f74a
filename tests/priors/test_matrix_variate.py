import numpy as np
import pytest
from scipy.stats import gamma, gennorm, multivariate_normal

from bayesmtfs.priors import Jeffreys, MatrixVariate

FACTOR = np.array([[1.0, 0.9, -0.2], [0.0, 0.5, 0.4], [0.3, -0.7, 1.1]])
SCALES = np.array([0.5, 1.0, 2.0, 0.8])


@pytest.fixture(name="W")
def coefficients():
    return np.random.default_rng(0).standard_normal((4, 3))


@pytest.mark.parametrize("q", [0.8, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("factor", [FACTOR, FACTOR[[1, 0, 2]]])  # determinants of both signs
def test_density_follows_from_the_change_of_variables(W, q, factor):
    Z = np.diag(1 / SCALES) @ W @ np.linalg.inv(factor)
    log_density = gennorm(beta=q).logpdf(Z).sum() - 3 * np.log(SCALES).sum() - 4 * np.log(abs(np.linalg.det(factor)))
    prior = MatrixVariate(q, factor, row_scale=SCALES)
    assert prior.negative_log_density(W) == pytest.approx(-log_density, rel=1e-12)


def test_density_at_q_2_is_normal_with_the_row_covariance(W):
    prior = MatrixVariate(2.0, FACTOR, row_scale=SCALES)
    rows = [multivariate_normal(cov=scale**2 * prior.row_covariance()) for scale in SCALES]
    expected = -sum(density.logpdf(row) for density, row in zip(rows, W, strict=True))
    assert prior.negative_log_density(W) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("q", [1.0, 2.0, 6.0])
def test_row_covariance_equals_that_of_draws(q):
    Z = gennorm(beta=q).rvs((400_000, 3), random_state=3)
    sample = np.cov((Z @ FACTOR).T)
    covariance = MatrixVariate(q, FACTOR).row_covariance()
    assert np.max(np.abs(sample - covariance)) < 0.02 * np.max(covariance)
    wrong = covariance[0, 0] / (FACTOR.T @ FACTOR)[0, 0] * FACTOR @ FACTOR.T
    assert np.max(np.abs(sample - wrong)) > 0.2 * np.max(covariance)


def test_row_covariance_at_infinite_q_is_that_of_the_uniform_distribution():
    np.testing.assert_allclose(MatrixVariate(np.inf, FACTOR).row_covariance(), FACTOR.T @ FACTOR / 3)


@pytest.mark.parametrize(("shape", "rate"), [(0.0, 0.0), (1.5, 0.4)])
def test_scales_are_integrated_out(W, shape, rate):
    q, row = 1.5, W[:1]

    log_rho = np.linspace(-10.0, 20.0, 3001)
    power = np.exp(-q * log_rho)
    # the Gamma(shape, rate) density of rho^-q, carried to log rho
    hyperprior = np.ones_like(power) if shape == 0.0 else gamma(shape, scale=1 / rate).pdf(power) * q * power
    given_scale = [MatrixVariate(q, FACTOR, row_scale=rho).negative_log_density(row) for rho in np.exp(log_rho)]
    expected = np.trapezoid(hyperprior * np.exp(-np.array(given_scale)), log_rho)
    density = np.exp(-MatrixVariate(q, FACTOR, shape, rate).negative_log_density(row))
    assert density == pytest.approx(expected, rel=1e-8)


def test_scale_of_the_factor_and_of_the_rows_cancels(W):
    expected = MatrixVariate(1.5, FACTOR, row_scale=SCALES).negative_log_density(W)
    assert MatrixVariate(1.5, FACTOR / 3, row_scale=3 * SCALES).negative_log_density(W) == pytest.approx(expected)


def test_identity_factor_means_independent_tasks(W):
    ours, other = MatrixVariate(1.5, np.eye(3), 0.2, 0.1), Jeffreys(1.5, 0.2, 0.1)
    assert ours.negative_log_density(W) == pytest.approx(other.negative_log_density(W), rel=1e-13)
    np.testing.assert_allclose(ours.em_weights(W), other.em_weights(W), rtol=1e-13)


def test_em_weights_are_those_of_the_whitened_rows(W):
    whitened = W @ np.linalg.inv(FACTOR)
    expected = (0.2 + 3 / 1.5) / (0.1 + np.sum(np.abs(whitened) ** 1.5, axis=1))
    np.testing.assert_allclose(MatrixVariate(1.5, FACTOR, 0.2, 0.1).em_weights(W), expected, rtol=1e-12)
    assert MatrixVariate(2.0, FACTOR).em_weights(np.zeros((1, 3)), floor=0.1)[0] == pytest.approx(1.5 / 0.01)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MatrixVariate(2.0, np.ones((2, 3))), r"task_factor has shape \(2, 3\); pass a square matrix"),
        (lambda: MatrixVariate(2.0, np.ones((2, 2))), "task_factor is singular.*; shrink it"),
        (lambda: MatrixVariate(2.0, np.array([[np.nan]])), "task_factor has entries that are infinite or NaN; pass"),
        (lambda: MatrixVariate(2.0, np.eye(2), 1.0, 1.0, row_scale=1.0), "row_scale is given together.*; pass"),
        (lambda: MatrixVariate(2.0, np.eye(2), row_scale=-1.0), "row_scale is -1.0; pass"),
        (lambda: MatrixVariate(2.0, np.eye(2), shape=-1.0), "shape is -1.0; pass"),
        (lambda: MatrixVariate(-2.0, np.eye(2)), "norm_q is -2.0; pass"),
        (
            lambda: MatrixVariate(2.0, np.eye(2), row_scale=1.0).em_weights(np.ones((1, 2))),
            "row_scale is given.*; pass",
        ),
        (lambda: MatrixVariate(2.0, np.eye(2)).em_weights(np.ones((1, 3))), r"W has shape \(1, 3\).*; pass one column"),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
