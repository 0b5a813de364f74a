"""Gibbs draws from sums against laws that are known by other means."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.gibbs import settings as gibbs

FAST = {"tune": 300, "draws": 4000}


def one_row(norm_q, precision=(4.0, 9.0, 16.0), estimate=(1.0, -0.3, 0.6)):
    grams = np.asarray(precision)[:, None, None]
    correlations = (np.asarray(precision) * estimate)[:, None]
    sums = gibbs.Sums(grams, correlations, np.ones(3), np.ones(3))
    start = gibbs.Start(np.asarray(estimate)[None].copy(), np.ones(3))
    bounds = (-4.0, 2.0)
    settings = gibbs.Settings(
        norm_q=norm_q, learn_q=False, learn_noise=False, log_scale_bounds=bounds, random_seed=1, **FAST
    )
    return gibbs.sample(sums, start, settings), np.asarray(precision), np.asarray(estimate), bounds


@pytest.mark.parametrize("norm_q", [1.0, 2.0, 6.0])
def test_one_row_against_quadrature(norm_q):
    """Posterior of one coefficient and of its scale, the others integrated out numerically."""
    draws, precision, estimate, bounds = one_row(norm_q)

    def marginal(log_rho):
        rho = np.exp(log_rho)
        law, reach = stats.gennorm(norm_q, scale=rho), rho * 50 ** (1 / norm_q)
        values = []
        for k, w_hat in zip(precision, estimate, strict=True):
            w = np.linspace(max(-reach, w_hat - 8 / k**0.5), min(reach, w_hat + 8 / k**0.5), 2001)
            weight = law.pdf(w) * np.exp(-0.5 * k * (w - w_hat) ** 2)
            values.append((np.trapezoid(weight, w), np.trapezoid(w * weight, w)))
        return values

    grid = np.linspace(*bounds, 121)
    tables = np.array([marginal(x) for x in grid])
    density = np.prod(tables[:, :, 0], axis=1)
    expected_scale = np.trapezoid(grid * density, grid) / np.trapezoid(density, grid)
    means = [np.trapezoid(density * tables[:, j, 1] / tables[:, j, 0], grid) for j in range(3)]
    np.testing.assert_allclose(draws.mean[0], np.array(means) / np.trapezoid(density, grid), atol=0.04)
    assert np.log(draws.row_scales).mean() == pytest.approx(expected_scale, abs=0.08)


def test_noise_has_its_inverse_gamma_law():
    rng = np.random.default_rng(0)
    X, n = rng.standard_normal((40, 2)), 40
    y = X @ [1.0, -1.0] + 0.5 * rng.standard_normal(n)
    sums = gibbs.Sums((X.T @ X)[None], (X.T @ y)[None], np.array([y @ y]), np.array([float(n)]))
    start = gibbs.Start(np.array([[1.0], [-1.0]]), np.array([0.5]))
    draws = gibbs.sample(sums, start, gibbs.Settings(learn_q=False, **FAST))
    w = np.linalg.lstsq(X, y)[0]
    square = np.sum((y - X @ w) ** 2)
    # with a nearly flat prior sigma^2 is inverse gamma with n - p degrees of freedom
    law = stats.invgamma((n - 2) / 2, scale=square / 2)
    assert np.mean(draws.noise**2) == pytest.approx(law.mean(), rel=0.1)


def test_q_is_found_and_seeds_repeat():
    rng = np.random.default_rng(4)
    W = stats.gennorm(6.0).rvs((15, 40), random_state=rng)
    precision = 25.0
    seen = W + rng.standard_normal(W.shape) / precision**0.5
    grams = np.broadcast_to(precision * np.eye(15), (40, 15, 15)).copy()
    sums = gibbs.Sums(grams, precision * seen.T, np.ones(40), np.ones(40))
    settings = gibbs.Settings(learn_noise=False, tune=300, draws=700)
    draws = gibbs.sample(sums, gibbs.Start(seen, np.ones(40)), settings)
    assert np.quantile(draws.norm_q, 0.05) < 6.0 < np.quantile(draws.norm_q, 0.95)
    assert np.quantile(draws.norm_q, 0.05) > 2.0
    again = gibbs.sample(sums, gibbs.Start(seen, np.ones(40)), settings)
    np.testing.assert_array_equal(draws.norm_q, again.norm_q)
    np.testing.assert_array_equal(draws.W, again.W)
