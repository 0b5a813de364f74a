import numpy as np
import pytest

from bayesmtfs.families import Hinge

LABELS = np.array([1.0, -1.0])


def test_value_is_the_saddle_point_form():
    # max over z in [0, 1] of z (1 - y eta), attained at an end.
    rng = np.random.default_rng(2)
    y, eta = rng.choice(LABELS, 50), 2.0 * rng.normal(size=50)
    ends = np.array([[0.0], [1.0]])
    np.testing.assert_array_equal(Hinge().value(y, eta), np.max(ends * (1.0 - y * eta), axis=0))


def test_conjugate_at_and_beyond_the_ends_of_its_domain():
    np.testing.assert_array_equal(Hinge().conjugate(LABELS, -LABELS), [-1.0, -1.0])
    np.testing.assert_array_equal(Hinge().conjugate(LABELS, 0.0 * LABELS), [0.0, 0.0])
    assert np.all(Hinge().conjugate(LABELS, -LABELS * np.nextafter(1.0, 2.0)) == np.inf)
    assert np.all(Hinge().conjugate(LABELS, LABELS * 5e-324) == np.inf)


def test_gradient_is_zero_at_the_kink_and_beyond():
    np.testing.assert_array_equal(Hinge().gradient(LABELS, LABELS), [0.0, 0.0])
    np.testing.assert_array_equal(Hinge().gradient(LABELS, 3.0 * LABELS), [0.0, 0.0])


def test_there_is_no_mean_since_there_is_no_density():
    with pytest.raises(ValueError, match="Hinge does not offer mean"):
        Hinge().mean(np.zeros(2))
