"""Joint draws of well-known coefficients against quadrature."""

import numpy as np
import pytest

from bayesmtfs.gibbs.ellipse import draw_on_ellipse
from bayesmtfs.gibbs.scales import unit_variance

Q = 8.0 * np.array([[4.0, 3.0, 0.2, 0.1], [3.0, 3.0, -0.5, 0.3], [0.2, -0.5, 1e-3, 0.0], [0.1, 0.3, 0.0, 2.0]])
h = 8.0 * np.array([2.0, 1.4, 0.5, 1.0])
SCALES = np.array([0.6, 0.9, 1.0, 1.0])
PRESENT = np.array([True, True, True, False])  # the data know little of the third coefficient; the last is not there
THIRD = 0.3


def chain(norm_q, count=20_000):
    rng, w = np.random.Generator(np.random.PCG64(1)), np.array([0.1, 0.1, THIRD, 0.0])
    residual, factor, found = h - Q @ w, np.empty((4, 4)), np.empty((count, 4))
    variance = unit_variance(1.0 / norm_q)
    for k in range(count):
        draw_on_ellipse(rng, Q, residual, w, np.log(SCALES), PRESENT, 1.0 / norm_q, variance, factor)
        found[k] = w
    np.testing.assert_allclose(residual, h - Q @ w, atol=1e-9)
    return found


def moments(norm_q):
    """Mean and mean products of the first two coefficients given the third, on a grid."""
    x = np.linspace(-1.5, 1.5, 1201)
    a, b = np.meshgrid(x, x, indexing="ij")
    with np.errstate(over="ignore"):
        prior = (np.abs(a) / SCALES[0]) ** norm_q + (np.abs(b) / SCALES[1]) ** norm_q
    pull = h - Q[:, 2] * THIRD
    log_density = pull[0] * a + pull[1] * b - 0.5 * (Q[0, 0] * a**2 + Q[1, 1] * b**2 + 2.0 * Q[0, 1] * a * b) - prior
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    return [float(np.sum(density * value)) for value in (a, b, a * a, b * b, a * b)]


@pytest.mark.parametrize("norm_q", [0.8, 1.3, 4.0, 20.0, np.inf])
def test_well_known_coefficients_against_quadrature(norm_q):
    draws = chain(norm_q)
    a, b = draws[:, 0], draws[:, 1]
    found = [float(np.mean(value)) for value in (a, b, a * a, b * b, a * b)]
    np.testing.assert_allclose(found, moments(norm_q), atol=0.012)


def test_other_coefficients_stay():
    draws = chain(4.0, count=50)
    assert np.all(draws[:, 2] == THIRD)
    assert not draws[:, 3].any()


def test_normal_prior_gives_independent_draws():
    """At q = 2 nothing is left of the prior beside the normal law, and every angle is as good as another."""
    draws = chain(2.0)[:, :2]
    after = np.corrcoef(draws[:-1].T, draws[1:].T)[:2, 2:]
    assert np.abs(after).max() < 0.03


def test_one_known_coefficient_is_left_to_itself():
    rng, w = np.random.Generator(np.random.PCG64(1)), np.array([0.1, 0.2])
    Q_two = np.diag([100.0, 1e-3])
    draw_on_ellipse(rng, Q_two, -Q_two @ w, w, np.zeros(2), np.ones(2, bool), 0.25, 0.338, np.empty((2, 2)))
    assert w.tolist() == [0.1, 0.2]
