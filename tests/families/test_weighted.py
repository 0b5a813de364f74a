import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from bayesmtfs.families import (
    Absolute,
    Gaussian,
    find_family,
    names,
    total,
    total_conjugate,
)

LOSSES = tuple(name for name in names(labels=False) + names(labels=True) if find_family(name).offers("conjugate"))
repeatable = settings(deadline=None, derandomize=True)
Y = np.array([1.0, -1.0, -1.0, 1.0, 1.0])
ETA = np.array([0.3, 0.8, -2.0, -0.7, 1.9])


def targets_of(family):
    return np.abs(Y) if family.targets == "counts" else Y


@pytest.fixture(params=LOSSES)
def family(request):
    return find_family(request.param)


def test_no_weights_are_weights_of_one(family):
    y = targets_of(family)
    dual = 0.5 * family.gradient(y, ETA)
    assert total(family, y, ETA) == pytest.approx(np.sum(family.value(y, ETA)), rel=1e-15)
    assert total(family, y, ETA, np.ones(5)) == total(family, y, ETA)
    assert total_conjugate(family, y, dual, np.ones(5)) == total_conjugate(family, y, dual)


def test_a_whole_weight_is_a_repeated_row(family):
    counts = np.array([2, 1, 0, 3, 1])
    y = targets_of(family)
    dual = 0.7 * family.gradient(y, ETA)
    y_repeated, eta_repeated, dual_repeated = (np.repeat(column, counts) for column in (y, ETA, dual))
    weight = counts.astype(float)
    repeated = total(family, y_repeated, eta_repeated)
    assert total(family, y, ETA, weight) == pytest.approx(repeated, rel=1e-14)
    conjugate_repeated = total_conjugate(family, y_repeated, dual_repeated)
    assert total_conjugate(family, y, weight * dual, weight) == pytest.approx(conjugate_repeated, rel=1e-14)


def test_a_row_of_weight_zero_counts_nothing_even_at_an_infinite_loss():
    y, eta, weight = np.zeros(2), np.array([2.0, 1e300]), np.array([1.0, 0.0])
    assert total(Gaussian(), y, eta, weight) == 2.0


def test_a_dual_on_a_row_of_weight_zero_is_outside_the_domain(family):
    weight = np.array([1.0, 1.0, 0.0, 1.0, 1.0])
    y = targets_of(family)
    dual = 0.5 * family.gradient(y, ETA)
    dual[2] = -1e-9 * y[2]
    assert total_conjugate(family, y, dual, weight) == np.inf
    dual[2] = 0.0
    assert np.isfinite(total_conjugate(family, y, dual, weight))


@pytest.mark.parametrize("weight", [0.2, 3.0])
def test_conjugate_is_that_of_the_weighted_loss(family, weight):
    y, weights = np.ones(1), np.array([weight])
    dual = np.array([-0.3 * weight])
    nearest = minimize_scalar(
        lambda eta: total(family, y, np.array([eta]), weights) - dual[0] * eta,
        bounds=(-20, 20),
        options={"xatol": 1e-9},
    )
    # The minimiser places a kink to sqrt(eps) only, always on the far side of the conjugate.
    missed = 1e-12 if family.smooth else 1e-7
    assert -1e-12 <= total_conjugate(family, y, dual, weights) + nearest.fun <= missed


@pytest.mark.parametrize("loss", LOSSES)
@repeatable
@given(label=st.sampled_from([-1.0, 1.0]), eta=st.floats(-1e3, 1e3), weight=st.floats(1e-12, 1e12))
def test_a_weighted_gradient_never_leaves_the_domain(loss, label, eta, weight):
    family, y, etas, weights = find_family(loss), np.array([label]), np.array([eta]), np.array([weight])
    if family.targets == "counts":  # whose losses are exponential
        y, etas = np.abs(y), 0.02 * etas
        eta = etas[0]
    dual = weights * family.gradient(y, etas)
    value, conjugate = total(family, y, etas, weights), total_conjugate(family, y, dual, weights)
    scale = weight * (1.0 + abs(eta)) ** 2 + abs(value) * (1.0 + abs(eta))
    np.testing.assert_allclose(value + conjugate, dual[0] * eta, rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize("weight", [None, np.ones(2, dtype=np.float32)])
def test_float32_rows_are_summed_in_float64(weight):
    # 2^24 + 1 has no float32.
    y, eta = np.zeros(2, dtype=np.float32), np.array([2.0**24, 1.0], dtype=np.float32)
    assert total(Absolute(), y, eta, weight) == 2.0**24 + 1.0
    assert total_conjugate(Absolute(), eta, np.ones(2, dtype=np.float32), weight) == 2.0**24 + 1.0
