"""Symbolic powers and norms against NumPy, with their first and second derivatives."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import optimize

from bayesmtfs.models.distributions import absolute_power, row_norm

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module")
def norm():
    """Norm of one row, its gradient and its Hessian."""
    row, q = pt.dvector("row"), pt.dscalar("q")
    value = row_norm(row, q)
    gradient = pt.grad(value, row)
    hessian = pt.stack([pt.grad(gradient[i], row) for i in range(4)])
    return pytensor.function([row, q], [value, gradient, hessian])


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 4.0, np.inf])
def test_norm_and_its_derivatives(norm, q):
    row = np.array([0.3, -1.4, 2.0, 0.8])
    value, gradient, hessian = norm(row, q)
    assert value == pytest.approx(np.linalg.norm(row, q), rel=1e-14)
    np.testing.assert_allclose(gradient, optimize.approx_fprime(row, lambda x: norm(x, q)[0], 1e-8), atol=1e-6)
    # The scaling inside the norm is a constant to the gradient; the second derivatives show that nothing is lost.
    numeric = np.stack([optimize.approx_fprime(row, lambda x, i=i: norm(x, q)[1][i], 1e-7) for i in range(4)])
    np.testing.assert_allclose(hessian, numeric, atol=1e-5)


def test_norms_of_several_orders_at_once():
    rows = np.random.default_rng(1).normal(size=(3, 4, 5))
    orders = np.array([1.0, 2.0, 3.5, np.inf])
    expected = [[np.linalg.norm(rows[i, j], orders[j]) for j in range(4)] for i in range(3)]
    np.testing.assert_allclose(row_norm(pt.constant(rows), pt.constant(orders)).eval(), expected, rtol=1e-14)


def test_power_and_its_limits():
    base, q = np.array([-2.0, -1.0, -0.5, 0.0, 1e-200, 1.0, 3.0]), np.array([[0.4], [1.0], [2.5], [np.inf]])
    expected = np.abs(base) ** q[:3]
    power = absolute_power(pt.constant(base), pt.constant(q)).eval()
    np.testing.assert_allclose(power[:3], expected)
    np.testing.assert_array_equal(power[3], [np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf])
