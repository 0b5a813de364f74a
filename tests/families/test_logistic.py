import math

import numpy as np
import pytest

from bayesmtfs.families import Logistic

LABELS = np.array([1.0, -1.0])
PREDICTORS = np.linspace(-30.0, 30.0, 61)


def test_probabilities_of_the_two_labels_add_to_one():
    likelihood_of_plus = np.exp(-Logistic().value(np.ones(61), PREDICTORS))
    likelihood_of_minus = np.exp(-Logistic().value(-np.ones(61), PREDICTORS))
    np.testing.assert_allclose(likelihood_of_plus + likelihood_of_minus, 1.0, rtol=1e-14)
    np.testing.assert_allclose(Logistic().mean(PREDICTORS), likelihood_of_plus, rtol=1e-13)


@pytest.mark.parametrize("margin", [20.0, 40.0, 300.0, 700.0])
def test_the_tail_keeps_its_relative_accuracy(margin):
    # ln(1 + exp(-margin)) = exp(-margin) (1 + O(exp(-margin))); adding 1 first would give 0 from margin 37 on.
    for found in (
        Logistic().value(LABELS, margin * LABELS),
        Logistic().curvature(LABELS, margin * LABELS),
        -LABELS * Logistic().gradient(LABELS, margin * LABELS),
    ):
        np.testing.assert_allclose(found, math.exp(-margin), rtol=1e-8)


def test_far_predictors():
    np.testing.assert_array_equal(
        Logistic().value(np.ones(4), np.array([1e3, -1e3, 1e300, -1e300])), [0, 1e3, 0, 1e300]
    )
    np.testing.assert_array_equal(Logistic().gradient(np.ones(2), np.array([1e300, -1e300])), [0.0, -1.0])
    np.testing.assert_array_equal(Logistic().mean(np.array([1e300, -1e300])), [1.0, 0.0])


def test_conjugate_at_and_beyond_the_ends_of_its_domain():
    np.testing.assert_array_equal(Logistic().conjugate(LABELS, -LABELS), [0.0, 0.0])
    np.testing.assert_array_equal(Logistic().conjugate(LABELS, 0.0 * LABELS), [0.0, 0.0])
    assert np.all(Logistic().conjugate(LABELS, -LABELS * np.nextafter(1.0, 2.0)) == np.inf)
    assert np.all(Logistic().conjugate(LABELS, LABELS * 5e-324) == np.inf)


def test_conjugate_keeps_its_accuracy_for_tiny_shares():
    share = 1e-20
    expected = share * math.log(share) - share
    np.testing.assert_allclose(Logistic().conjugate(LABELS, -share * LABELS), expected, rtol=1e-14)
