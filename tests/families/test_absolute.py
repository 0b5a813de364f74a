import numpy as np
import pytest
from scipy.integrate import quad

from bayesmtfs.families import Absolute


def test_value_is_minus_the_log_density_of_the_laplace():
    mass, _ = quad(lambda y: float(np.exp(-Absolute().value(np.asarray(y), np.asarray(0.7)))), -40, 40, points=[0.7])
    assert mass == pytest.approx(2.0, rel=1e-10)


def test_conjugate_at_and_beyond_the_ends_of_its_domain():
    y = np.array([3.0, 3.0, 0.0])
    np.testing.assert_array_equal(Absolute().conjugate(y, np.array([1.0, -1.0, 1.0])), [3.0, -3.0, 0.0])
    beyond = np.nextafter([1.0, -1.0, 1.0], [2.0, -2.0, 2.0])
    assert np.all(Absolute().conjugate(y, beyond) == np.inf)


def test_gradient_is_zero_at_the_kink():
    assert Absolute().gradient(np.array([2.0]), np.array([2.0]))[0] == 0.0


def test_mean_is_the_predictor():
    np.testing.assert_array_equal(Absolute().mean(np.array([-1.5, 2.0])), [-1.5, 2.0])
