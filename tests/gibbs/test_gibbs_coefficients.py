"""Draws of coefficients against their closed forms."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.gibbs import coefficients as steps

Q = np.array([[4.0, 1.5, 0.0], [1.5, 3.0, -0.5], [0.0, -0.5, 2.0]])
h = np.array([2.0, -1.0, 0.5])
ALL = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("centre", "deviation", "reach"), [(0.3, 1.0, 0.5), (0.2, 0.4, 3.0), (5.0, 1.0, 1.0), (-9.0, 1.0, 8.0)]
)
def test_truncated_normal(centre, deviation, reach):
    rng = np.random.Generator(np.random.PCG64(0))
    draws = np.array([steps.truncated_normal(rng, centre, deviation, reach) for _ in range(4000)])
    law = stats.truncnorm((-reach - centre) / deviation, (reach - centre) / deviation, centre, deviation)
    assert stats.kstest(draws, law.cdf).pvalue > 0.001
    assert np.abs(draws).max() <= reach


def chain(draw, present=ALL, count=20_000):
    rng, w = np.random.Generator(np.random.PCG64(1)), np.where(present, 0.1, 0.0)
    found = np.empty((count, 3))
    for k in range(count):
        draw(rng, w)
        found[k] = w
    return found


def in_turn(log_scales, inverse_q, present=ALL):
    def draw(rng, w):
        steps.draw_in_turn(rng, Q, h - Q @ w, w, log_scales, present, inverse_q)

    return draw


def jointly(log_scales, present=ALL):
    factor = np.empty((3, 3))

    def draw(rng, w):
        steps.draw_jointly(rng, Q, h, w, log_scales, present, factor)

    return draw


@pytest.mark.parametrize("make", [lambda scales, there: in_turn(scales, 0.5, there), jointly])
@pytest.mark.parametrize("absent", [None, 1])
def test_normal_prior_gives_the_normal_posterior(make, absent):
    log_scales = np.log([0.5, 1.0, 2.0])
    present = np.arange(3) != absent
    draws = chain(make(log_scales, present), present)
    kept = np.flatnonzero(present)
    precision = (Q + np.diag(2.0 * np.exp(-2.0 * log_scales)))[np.ix_(kept, kept)]
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(draws[:, kept].mean(axis=0), covariance @ h[kept], atol=0.02)
    np.testing.assert_allclose(np.cov(draws[:, kept].T), covariance, atol=0.02)
    assert not draws[:, ~present].any()


@pytest.mark.parametrize("norm_q", [1.0, 1.3, 4.0, np.inf])
def test_any_exponent_against_quadrature(norm_q):
    """Two coefficients on a grid; the third does not exist."""
    log_scales, present = np.log([0.6, 0.9, 1.0]), np.array([True, True, False])
    draws = chain(in_turn(log_scales, 1.0 / norm_q, present), present)
    x = np.linspace(-4.0, 4.0, 801)
    a, b = np.meshgrid(x, x, indexing="ij")
    with np.errstate(over="ignore"):
        prior = (np.abs(a) / 0.6) ** norm_q + (np.abs(b) / 0.9) ** norm_q
    density = np.exp(h[0] * a + h[1] * b - 0.5 * (4.0 * a**2 + 3.0 * b**2 + 3.0 * a * b) - prior)
    density /= density.sum()
    for i, grid in enumerate((a, b)):
        assert draws[:, i].mean() == pytest.approx(np.sum(density * grid), abs=0.015)
        assert np.mean(draws[:, i] ** 2) == pytest.approx(np.sum(density * grid**2), abs=0.015)


def test_feature_without_information_has_its_prior():
    rng, w = np.random.Generator(np.random.PCG64(3)), np.array([0.2])
    found = []
    for _ in range(6000):
        steps.draw_in_turn(rng, np.zeros((1, 1)), np.zeros(1), w, np.log([1.5]), np.ones(1, dtype=bool), 1.0 / 3.0)
        found.append(w[0])
    assert stats.kstest(found[::5], stats.gennorm(3.0, scale=1.5).cdf).pvalue > 0.001
