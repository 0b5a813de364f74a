import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from bayesmtfs.posterior.fast import conditional, scale_grid, tilt
from bayesmtfs.priors.hyperpriors import Hyperprior, log_scale_density

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
