"""Ordinal loss on given rows: derivatives, conjugate and cut points against numeric ones."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bayesmtfs.families import Ordinal


@pytest.fixture(params=[2, 3, 5])
def case(request):
    rng, k = np.random.default_rng(request.param), request.param
    y = rng.integers(0, k, 60).astype(float)
    y[:k] = y[30 : 30 + k] = np.arange(k)
    weight, eta = rng.uniform(0.5, 2.0, 60), 1.5 * rng.normal(size=60)
    return Ordinal().on(y, weight, np.array([0, 30, 60])), y, weight, eta


def total(case, eta):
    rows, y, weight, _ = case
    return float(weight @ rows.value(y, eta))


def test_value_is_the_smallest_over_the_cut_points(case):
    rows, y, weight, eta = case
    k = int(y.max()) + 1

    def loss(at):
        """One task after the other, cut points by their first one and the logarithms of the gaps."""
        value = 0.0
        for t, own in enumerate((slice(0, 30), slice(30, 60))):
            part = at[t * (k - 1) : (t + 1) * (k - 1)]
            cuts = np.cumsum(np.append(part[0], np.exp(part[1:])))
            p = Ordinal().probabilities(eta[own], cuts)[np.arange(30), y[own].astype(int)]
            value -= weight[own] @ np.log(np.maximum(p, 1e-300))
        return value

    wanted = minimize(loss, np.zeros(2 * (k - 1)), method="BFGS", options={"gtol": 1e-7}).fun
    assert total(case, eta) == pytest.approx(wanted, rel=1e-8)


def test_derivatives_are_those_of_differences(case):
    rows, y, weight, eta = case
    step = 1e-5 * np.eye(60)
    difference = [(total(case, eta + s) - total(case, eta - s)) / 2e-5 for s in step]
    gradient = weight * rows.gradient(y, eta)
    np.testing.assert_allclose(gradient, difference, atol=1e-7)
    np.testing.assert_allclose(np.add.reduceat(gradient, [0, 30]), 0.0, atol=1e-10)
    slopes = [weight * (rows.gradient(y, eta + s) - rows.gradient(y, eta - s)) / 2e-5 for s in step]
    slack = np.diag(weight * rows.curvature(y, eta)) - np.array(slopes)
    assert np.linalg.eigvalsh(0.5 * (slack + slack.T)).min() > -1e-6


@pytest.mark.parametrize("share", [0.0, 0.3, 0.95, 1.0])
def test_conjugate_is_the_largest_distance_to_a_plane(case, share):
    rows, y, weight, eta = case
    dual = share * weight * rows.gradient(y, eta)
    nearest = minimize(
        lambda at: total(case, at) - dual @ at,
        share * eta,
        jac=lambda at: weight * rows.gradient(y, at) - dual,
        method="BFGS",
        options={"gtol": 1e-8, "maxiter": 3000},
    )
    found = float(weight @ rows.conjugate(y, dual / weight))
    assert -1e-9 <= found + nearest.fun <= 1e-6 * (1.0 + abs(found))


def test_conjugate_is_infinite_outside_of_its_domain(case):
    rows, y, weight, eta = case
    dual = rows.gradient(y, eta)
    assert np.isinf(weight @ rows.conjugate(y, dual + 0.01))
    outside = np.where(y == 0, -0.1, 0.0)
    assert np.isinf(weight @ rows.conjugate(y, outside))


def test_far_predictors_are_finite(case):
    rows, y, weight, eta = case
    for scale in (1e3, 1e6):
        for found in (rows.value(y, scale * eta), rows.gradient(y, scale * eta), rows.curvature(y, scale * eta)):
            assert np.isfinite(found).all()


def test_classes_that_do_not_occur_have_no_room():
    y, eta = np.array([1.0, 3.0, 1.0, 3.0, 0.0, 4.0]), np.zeros(6)
    rows = Ordinal().on(y, np.ones(6), np.array([0, 4, 6]))
    cuts = rows.cuts(eta, 5)
    np.testing.assert_allclose(cuts, [[-np.inf, 0.0, 0.0, np.inf], [0.0, 0.0, 0.0, 0.0]], atol=1e-10)
    np.testing.assert_allclose(
        Ordinal().probabilities(np.zeros(2), cuts), [[0, 0.5, 0, 0.5, 0], [0.5, 0, 0, 0, 0.5]], atol=1e-10
    )
