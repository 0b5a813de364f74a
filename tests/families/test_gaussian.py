import numpy as np
import pytest
from scipy.integrate import quad

from bayesmtfs.families import Gaussian


def test_value_is_minus_the_log_density_of_the_normal():
    mass, _ = quad(lambda y: float(np.exp(-Gaussian().value(np.asarray(y), np.asarray(0.7)))), -20, 20)
    assert mass == pytest.approx(np.sqrt(2 * np.pi), rel=1e-10)


def test_a_square_beyond_the_largest_number_is_inf():
    assert Gaussian().value(np.zeros(1), np.array([1e300]))[0] == np.inf
    assert Gaussian().conjugate(np.zeros(1), np.array([1e300]))[0] == np.inf


def test_conjugate_far_out_keeps_its_sign():
    # dual * y and dual^2 / 2 overflow with opposite signs: their sum must not become nan.
    assert Gaussian().conjugate(np.array([1e200]), np.array([-1e200]))[0] == -np.inf
    assert Gaussian().conjugate(np.array([1e200]), np.array([-4e200]))[0] == np.inf


def test_mean_is_the_predictor():
    np.testing.assert_array_equal(Gaussian().mean(np.array([-1.5, 2.0])), [-1.5, 2.0])
