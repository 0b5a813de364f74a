"""What every loss must keep: derivatives, conjugate, range of numbers and types."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from bayesmtfs import families
from bayesmtfs.families import find_family, names

LOSSES = names(labels=False) + names(labels=True)
METHODS = ("value", "gradient", "curvature", "conjugate")
repeatable = settings(deadline=None, derandomize=True)
predictors = st.floats(-1e3, 1e3, allow_subnormal=False)


def targets_of(loss, numbers):
    """Real numbers as they are, or their signs as labels."""
    return np.asarray(numbers) if loss in names(labels=False) else np.where(np.asarray(numbers) < 0, -1.0, 1.0)


@pytest.fixture(params=LOSSES)
def family(request):
    return find_family(request.param)


@pytest.fixture
def rows(family):
    """Targets and predictors, none of them within 1e-3 of a kink."""
    rng = np.random.default_rng(5)
    y = targets_of(family.name, rng.normal(size=200))
    eta = 3.0 * rng.normal(size=200)
    away = (np.abs(y - eta) > 1e-3) & (np.abs(1.0 - y * eta) > 1e-3)
    return y[away], eta[away]


@pytest.mark.parametrize(("method", "derivative"), [("value", "gradient"), ("gradient", "curvature")])
def test_derivatives_are_those_of_central_differences(family, rows, method, derivative):
    y, eta = rows
    step = 1e-5
    function = getattr(family, method)
    difference = (function(y, eta + step) - function(y, eta - step)) / (2 * step)
    np.testing.assert_allclose(getattr(family, derivative)(y, eta), difference, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@repeatable
@given(number=predictors, eta=predictors, other_eta=predictors, factor=st.floats(-2, 2))
def test_fenchel_young_inequality(loss, number, eta, other_eta, factor):
    family = find_family(loss)
    y = targets_of(loss, number)
    dual = factor * family.gradient(y, np.asarray(other_eta))
    value, conjugate = family.value(y, np.asarray(eta)), family.conjugate(y, dual)
    rounding = 1e-13 * (1.0 + abs(value) + abs(dual * eta) + abs(dual * y))
    assert value + conjugate >= dual * eta - rounding


@pytest.mark.parametrize("loss", LOSSES)
@repeatable
@given(number=predictors, eta=predictors)
def test_fenchel_young_equality_at_the_gradient(loss, number, eta):
    family = find_family(loss)
    y, eta = targets_of(loss, number), np.asarray(eta)
    dual = family.gradient(y, eta)
    value = family.value(y, eta)
    scale = 1.0 + abs(value) + abs(dual * eta) + abs(dual * y)
    np.testing.assert_allclose(value + family.conjugate(y, dual), dual * eta, rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("number", [-1.7, 0.4])
def test_conjugate_is_the_largest_distance_to_a_line(family, number, share):
    y = targets_of(family.name, number)
    dual = -share * np.sign(y)
    nearest = minimize_scalar(
        lambda eta: float(family.value(y, np.asarray(eta)) - dual * eta), bounds=(-20, 20), options={"xatol": 1e-9}
    )
    # Whatever point the minimiser stops at, the conjugate is not below it; it places a kink to sqrt(eps) only.
    missed = 1e-12 if family.smooth else 1e-7
    assert -1e-12 <= family.conjugate(y, dual) + nearest.fun <= missed


def test_conjugate_of_nan_is_nan(family):
    assert np.isnan(family.conjugate(np.ones(1), np.array([np.nan]))).all()


@pytest.mark.parametrize("size", [1e3, 1e300])
def test_far_predictors_neither_warn_nor_give_nan(family, size):
    y = np.array([1.0, -1.0, 1.0, -1.0])
    eta = np.array([size, size, -size, -size])
    for method in ("value", "gradient", "curvature"):
        assert not np.isnan(getattr(family, method)(y, eta)).any()
    assert np.all(np.isfinite(family.mean(eta)))
    assert np.all(family.value(y, eta)[1:3] >= size)


def test_curvature_bounds_the_curvature_and_is_reached(family, rows):
    y, eta = rows
    assert np.all(family.curvature(y, eta) <= family.curvature_bound)
    if family.smooth:
        assert family.curvature(np.ones(1), np.zeros(1)).max() == family.curvature_bound


def test_a_loss_of_infinite_curvature_has_a_gradient_that_jumps(family):
    just_above, just_below = np.array([1.0 + 1e-12]), np.array([1.0 - 1e-12])
    jump = family.gradient(np.ones(1), just_above) - family.gradient(np.ones(1), just_below)
    assert (jump >= 1.0) == (not family.smooth)


@pytest.mark.parametrize("method", METHODS)
def test_float32_in_float32_out(family, rows, method):
    y, eta = rows
    second = family.gradient(y, eta) if method == "conjugate" else eta
    y_single, second_single = y.astype(np.float32), second.astype(np.float32)
    single = getattr(family, method)(y_single, second_single)
    assert single.dtype == np.float32
    double = getattr(family, method)(y_single.astype(float), second_single.astype(float))
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-6)


def test_mean_keeps_float32_and_does_not_share_memory(family):
    eta = np.linspace(-2, 2, 5, dtype=np.float32)
    mean = family.mean(eta)
    assert mean.dtype == np.float32
    assert not np.shares_memory(mean, eta)


@pytest.mark.parametrize("method", METHODS)
def test_methods_broadcast_and_take_read_only_arrays(family, method):
    y = np.array([[1.0], [-1.0]])
    second = np.array([-0.5, 0.0, 0.5])
    y.setflags(write=False)
    second.setflags(write=False)
    function = getattr(family, method)
    table = function(y, second)
    assert table.shape == (2, 3)
    for i, k in np.ndindex(2, 3):
        np.testing.assert_array_equal(table[i, k], function(y[i], second[k : k + 1])[0])


def test_named_finds_every_loss(family):
    assert find_family(family.name) == family
    assert repr(family).removesuffix("()") in families.__all__


@pytest.mark.parametrize("loss", ["huber", None, ["squared"]])
def test_unknown_loss_lists_the_known_ones(loss):
    with pytest.raises(ValueError, match="'squared', 'absolute', 'logistic', 'hinge'") as raised:
        find_family(loss)
    assert repr(loss) in str(raised.value)
