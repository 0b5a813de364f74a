"""Ridge fits against scikit-learn and cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.families import EpsilonInsensitive, find_family
from bayesmtfs.online.smoothed_ridge import RidgeSettings, fit_kinked, fit_smooth


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4)) + 0.5
    y = X @ [1.0, -2.0, 0.0, 0.5] + rng.normal(size=80) + 1.0
    return X, y, rng.uniform(0.1, 1.0, 80)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute", "epsilon_insensitive"])
def test_fits_are_minima(rows, loss, fit_intercept):
    X, y, weight = rows
    target = y if loss in ("squared", "absolute", "epsilon_insensitive") else np.sign(y)
    settings = RidgeSettings(0.7, fit_intercept, tol=1e-6)
    w, b = cp.Variable(4), cp.Variable()
    eta = X @ w + (b if fit_intercept else 0)
    values = {
        "squared": 0.5 * cp.square(target - eta),
        "logistic": cp.logistic(-cp.multiply(target, eta)),
        "hinge": cp.pos(1 - cp.multiply(target, eta)),
        "absolute": cp.abs(target - eta),
        "epsilon_insensitive": cp.pos(cp.abs(target - eta) - 0.2),
    }
    problem = cp.Problem(cp.Minimize(weight @ values[loss] + 0.35 * cp.sum_squares(w)))
    best = problem.solve(solver=cp.CLARABEL)
    family = EpsilonInsensitive(0.2) if loss == "epsilon_insensitive" else find_family(loss)
    fitter = fit_smooth if family.smooth else fit_kinked
    fits = [fitter(A, target, weight, family, settings, None) for A in (X, sp.csr_matrix(X))]
    for fit in fits:
        reached = weight @ family.value(target, X @ fit.w + fit.intercept) + 0.35 * fit.w @ fit.w
        assert fit.converged and reached == pytest.approx(best, rel=1e-6)
        np.testing.assert_allclose(fit.w, w.value, atol=2e-3)


def test_a_start_at_the_end_stays_there(rows):
    X, y, weight = rows
    settings = RidgeSettings(0.5)
    first = fit_smooth(X, np.sign(y), weight, find_family("logistic"), settings, None)
    again = fit_smooth(X, np.sign(y), weight, find_family("logistic"), settings, first)
    np.testing.assert_allclose(again.w, first.w, atol=1e-9)
    kinked = fit_kinked(X, np.sign(y), weight, find_family("hinge"), RidgeSettings(0.5, tol=1e-6), None)
    warm = fit_kinked(X, np.sign(y), weight, find_family("hinge"), RidgeSettings(0.5, tol=1e-6, max_iter=2), kinked)
    assert warm.converged
    np.testing.assert_allclose(warm.w, kinked.w, atol=1e-5)
