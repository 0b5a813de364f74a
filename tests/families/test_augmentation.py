"""Pólya-Gamma draws against the moments and the Laplace transform of their law."""

import numpy as np
import pytest

from bayesmtfs.families.augmentation import draw_polya_gamma

COUNT = 20_000


def draws(count, tilt, seed=0):
    rng = np.random.Generator(np.random.PCG64(seed))
    return np.array([draw_polya_gamma(rng, count, tilt) for _ in range(COUNT)])


def moments(count, tilt):
    """Mean and variance of PG(b, c) (Polson, Scott and Windle 2013, section 2.2 and its second derivative)."""
    if tilt == 0.0:
        return count / 4.0, count / 24.0
    variance = (np.sinh(tilt) - tilt) / (4.0 * tilt**3 * np.cosh(0.5 * tilt) ** 2)
    return count * np.tanh(0.5 * tilt) / (2.0 * tilt), count * variance


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("tilt", [0.0, 0.4, -2.0, 3.2, 12.0])
def test_moments_and_laplace_transform(count, tilt):
    found = draws(count, tilt)
    mean, variance = moments(count, tilt)
    assert abs(found.mean() - mean) < 4.0 * np.sqrt(variance / COUNT)
    assert found.var() == pytest.approx(variance, rel=0.1)
    for t in (0.3, 2.0, 10.0):
        wanted = (np.cosh(0.5 * tilt) / np.cosh(np.sqrt(0.25 * tilt**2 + 0.5 * t))) ** count
        values = np.exp(-t * found)
        assert abs(values.mean() - wanted) < 4.5 * values.std() / np.sqrt(COUNT) + 1e-12


def test_far_tilts_do_not_overflow():
    found = draws(1, 2e3)
    assert np.all(found > 0.0) and found.mean() == pytest.approx(1.0 / 4e3, rel=0.02)
    assert np.all(draws(1, 1e160)[:10] >= 0.0)


def test_seed_repeats_every_bit():
    np.testing.assert_array_equal(draws(1, 1.0, seed=3)[:100], draws(1, 1.0, seed=3)[:100])
