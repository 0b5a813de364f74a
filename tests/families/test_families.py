"""What every loss must keep: derivatives, conjugate, range of numbers and types."""

import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import bayesmtfs as bm
from bayesmtfs import families
from bayesmtfs.families import Family, Gaussian, find_family, names, register

LOSSES = names(labels=False) + names(labels=True)
WITH_DENSITY = tuple(name for name in LOSSES if find_family(name).offers("log_density"))
CONVEX = tuple(name for name in LOSSES if find_family(name).offers("conjugate"))
METHODS = ("value", "gradient", "curvature", "conjugate")
repeatable = settings(deadline=None, derandomize=True)
predictors = st.floats(-1e3, 1e3, allow_subnormal=False)
REACH = {"counts": 0.3}  # of predictors in units of those above: the losses of counts are exponential


def targets_of(loss, numbers):
    """Real numbers as they are, their sizes rounded as counts, or their signs as labels."""
    numbers, kind = np.asarray(numbers), find_family(loss).targets
    if kind == "counts":
        return np.round(np.abs(numbers))
    return numbers if kind == "numbers" else np.where(numbers < 0, -1.0, 1.0)


@pytest.fixture(params=LOSSES)
def family(request):
    return find_family(request.param)


@pytest.fixture(params=CONVEX)
def convex(request):
    return find_family(request.param)


def skip_unless_offered(family, method):
    if not family.offers(method):
        pytest.skip(f"{family.name} offers no {method}")


def test_only_student_t_is_not_convex_and_it_is_not():
    assert set(LOSSES) - set(CONVEX) == {"student_t"}
    assert find_family("student_t").curvature(np.zeros(1), np.array([2.1])) < 0.0


@pytest.fixture
def rows(family):
    """Targets and predictors, none of them within 1e-3 of a kink."""
    rng = np.random.default_rng(5)
    y = targets_of(family.name, rng.normal(size=200))
    eta = 3.0 * rng.normal(size=200)
    away = family.smooth | (np.abs(y - eta) > 1e-3) & (np.abs(1.0 - y * eta) > 1e-3)
    return y[away], eta[away]


@pytest.mark.parametrize(("method", "derivative"), [("value", "gradient"), ("gradient", "curvature")])
def test_derivatives_are_those_of_central_differences(family, rows, method, derivative):
    y, eta = rows
    step = 1e-5
    function = getattr(family, method)
    difference = (function(y, eta + step) - function(y, eta - step)) / (2 * step)
    np.testing.assert_allclose(getattr(family, derivative)(y, eta), difference, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", CONVEX)
@repeatable
@given(number=predictors, eta=predictors, other_eta=predictors, factor=st.floats(-2, 2))
def test_fenchel_young_inequality(loss, number, eta, other_eta, factor):
    family = find_family(loss)
    y, reach = targets_of(loss, number), REACH.get(family.targets, 1.0)
    eta, other_eta = reach * eta, reach * other_eta
    dual = factor * family.gradient(y, np.asarray(other_eta))
    value, conjugate = family.value(y, np.asarray(eta)), family.conjugate(y, dual)
    rounding = 1e-13 * (1.0 + abs(value) + abs(dual * eta) + abs(dual * y) + abs(np.nan_to_num(conjugate, posinf=0.0)))
    assert value + conjugate >= dual * eta - rounding


@pytest.mark.parametrize("loss", CONVEX)
@repeatable
@given(number=predictors, eta=predictors)
def test_fenchel_young_equality_at_the_gradient(loss, number, eta):
    family = find_family(loss)
    y, eta = targets_of(loss, number), np.asarray(REACH.get(family.targets, 1.0) * eta)
    dual = family.gradient(y, eta)
    value = family.value(y, eta)
    scale = 1.0 + abs(value) + abs(dual * eta) + abs(dual * y)
    np.testing.assert_allclose(value + family.conjugate(y, dual), dual * eta, rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("number", [-1.7, 0.4])
def test_conjugate_is_the_largest_distance_to_a_line(convex, number, share):
    family = convex
    y = targets_of(family.name, 2.0 * number)
    dual = -share * np.sign(y)
    if family.name == "quantile":
        dual = 0.5 * dual  # whose slopes are half as large
    nearest = minimize_scalar(
        lambda eta: float(family.value(y, np.asarray(eta)) - dual * eta), bounds=(-20, 20), options={"xatol": 1e-9}
    )
    # Whatever point the minimiser stops at, the conjugate is not below it; it places a kink to sqrt(eps) only.
    missed = 1e-12 if family.smooth else 1e-7
    assert -1e-12 <= family.conjugate(y, dual) + nearest.fun <= missed


def test_conjugate_of_nan_is_nan(convex):
    assert np.isnan(convex.conjugate(np.ones(1), np.array([np.nan]))).all()


@pytest.mark.parametrize("size", [1e3, 1e300])
def test_far_predictors_neither_warn_nor_give_nan(family, size):
    y = targets_of(family.name, np.array([1.0, -1.0, 1.0, -1.0]))
    eta = np.array([size, size, -size, -size])
    for method in ("value", "gradient", "curvature"):
        assert not np.isnan(getattr(family, method)(y, eta)).any()
    if family.offers("mean"):
        assert np.all(np.isfinite(family.mean(eta)))
    assert np.all(family.value(y, eta)[1:3] >= 0.49 * (size if family.offers("conjugate") else np.log(size)))


def test_curvature_bounds_the_curvature_and_is_reached(family, rows):
    y, eta = rows
    assert (family.curvature_bound is None) == (not family.smooth or family.targets == "counts")
    if family.curvature_bound is not None:
        assert np.all(family.curvature(y, eta) <= family.curvature_bound)
        at = np.ones(1) if family.offers("conjugate") else np.zeros(1)  # for squares grow slower than lines
        assert family.curvature(at, np.zeros(1)).max() == family.curvature_bound


def test_a_loss_of_infinite_curvature_has_a_gradient_that_jumps(family):
    just_above, just_below = np.array([1.0 + 1e-12]), np.array([1.0 - 1e-12])
    jump = family.gradient(np.ones(1), just_above) - family.gradient(np.ones(1), just_below)
    assert (jump >= 0.99) == (not family.smooth)


@pytest.mark.parametrize("method", METHODS)
def test_float32_in_float32_out(family, rows, method):
    skip_unless_offered(family, method)
    y, eta = rows
    second = 0.9 * family.gradient(y, eta) if method == "conjugate" else eta
    y_single, second_single = y.astype(np.float32), second.astype(np.float32)
    single = getattr(family, method)(y_single, second_single)
    assert single.dtype == np.float32
    double = getattr(family, method)(y_single.astype(float), second_single.astype(float))
    np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", WITH_DENSITY)
def test_mean_keeps_float32_and_does_not_share_memory(loss):
    family = find_family(loss)
    eta = np.linspace(-2, 2, 5, dtype=np.float32)
    mean = family.mean(eta)
    assert mean.dtype == np.float32
    assert not np.shares_memory(mean, eta)


@pytest.mark.parametrize("method", METHODS)
def test_methods_broadcast_and_take_read_only_arrays(family, method):
    skip_unless_offered(family, method)
    y = targets_of(family.name, np.array([[1.0], [-1.0]]))
    second = np.array([-0.5, 0.0, 0.5])
    y.setflags(write=False)
    second.setflags(write=False)
    function = getattr(family, method)
    table = function(y, second)
    assert table.shape == (2, 3)
    for i, k in np.ndindex(2, 3):
        np.testing.assert_array_equal(table[i, k], function(y[i], second[k : k + 1])[0])


def test_compiled_slope_is_value_and_gradient(family, rows):
    skip_unless_offered(family, "slope")
    y, eta = rows
    found = np.array([family.slope(*row) for row in zip(y, eta, strict=True)])
    np.testing.assert_allclose(found[:, 0], family.value(y, eta), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(found[:, 1], family.gradient(y, eta), rtol=1e-13, atol=1e-300)


def test_kinks_are_those_of_the_value(family, rows):
    y, eta = rows
    assert family.offers("kinks") == (not family.smooth)
    if family.offers("kinks"):
        place, left, right = family.kinks(y)
        pieces = np.where(eta < place, left, right) * (eta - place)
        np.testing.assert_allclose(family.value(y, eta), pieces, rtol=1e-13)


@pytest.mark.parametrize("loss", WITH_DENSITY)
def test_log_density_is_minus_the_loss_up_to_a_constant(loss):
    family, rng = find_family(loss), np.random.default_rng(3)
    y, eta = targets_of(loss, rng.normal(size=20)), rng.normal(size=(2, 20))
    shift = family.log_density(y, eta) + family.value(y, eta)
    np.testing.assert_allclose(shift[0], shift[1], rtol=0, atol=1e-13)
    if family.targets != "counts":  # whose constant is that of the count
        np.testing.assert_allclose(shift, shift[0, 0], rtol=0, atol=1e-13)


def test_pymc_term_is_the_log_density(family, rows):
    """With its constants; of a pseudo-likelihood minus the loss."""
    y, eta = (part[:30] for part in rows)
    noise = 0.7 if family.has_noise else 1.0
    wanted = family.log_density(y, eta, noise) if family.offers("log_density") else -family.value(y, eta)
    found = pm.logp(family.pymc_dist(eta, noise, shape=y.shape), y).eval(mode="FAST_COMPILE")
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("loss", WITH_DENSITY)
def test_draws_have_the_mean_of_the_family(loss):
    family, rng = find_family(loss), np.random.default_rng(4)
    eta = np.repeat([-1.0, 0.3, 2.0], 20_000)
    drawn = family.draw(rng, eta, 0.5).reshape(3, -1).mean(axis=1)
    expected = family.mean(eta).reshape(3, -1)[:, 0]
    if family.targets == "labels":
        expected = 2.0 * expected - 1.0
    np.testing.assert_allclose(drawn, expected, atol=0.03 if family.targets != "counts" else 0.08)


@pytest.mark.parametrize("loss", WITH_DENSITY)
def test_noise_that_a_normal_target_would_have(loss):
    family = find_family(loss)
    if family.curvature_bound is not None:
        y = targets_of(loss, np.array([-1.0, 1.0, -1.3, 1.3]))
        assert find_family(loss).smooth
        if not family.offers("conjugate"):
            y = np.zeros(4)  # where a loss that is not convex is as curved as it gets
        assert family.working_noise(y, np.ones(4)) == pytest.approx(family.curvature_bound**-0.5)


def test_best_constant_has_the_smallest_loss(family):
    y = targets_of(family.name, np.array([-1.0, 1.5, 0.3, 0.8, 2.0]))
    weight = np.array([1.0, 2.0, 1.0, 3.0, 1.0])
    total_at = lambda eta: float(weight @ family.value(y, np.full(5, eta)))  # noqa: E731
    best = family.best_constant(y, weight)
    assert all(total_at(best) <= total_at(best + shift) + 1e-12 for shift in (-0.1, -1e-3, 1e-3, 0.1))


class OnlyLoss(Family):
    """A family that offers what it must."""

    name = "only_loss"

    def __init__(self, power=4.0):
        self.power = power

    def value(self, y, eta):
        return np.abs(y - eta) ** self.power

    def gradient(self, y, eta):
        return self.power * np.sign(eta - y) * np.abs(y - eta) ** (self.power - 1.0)


def test_routes_hear_what_is_missing():
    assert OnlyLoss().offers("gradient") and not OnlyLoss().offers("augmentation")
    OnlyLoss().require("A stream", "value", "gradient")
    with pytest.raises(ValueError, match="NUTS needs a PyMC term and a log-density; OnlyLoss offers value, gradient$"):
        OnlyLoss().require("NUTS", "pymc_dist", "log_density")
    with pytest.raises(ValueError, match="OnlyLoss does not offer mean; define `mean`"):
        OnlyLoss().mean(np.zeros(2))


def test_a_constant_is_searched_where_a_family_does_not_know_it():
    assert OnlyLoss().best_constant(np.array([0.0, 1.0]), np.ones(2)) == pytest.approx(0.5, abs=1e-3)


def test_families_are_equal_by_kind_and_parameters():
    assert OnlyLoss() == OnlyLoss() and OnlyLoss() != OnlyLoss(3.0) and Gaussian() != OnlyLoss()
    assert len({OnlyLoss(), OnlyLoss(), OnlyLoss(3.0)}) == 2


def test_registered_families_have_a_name(monkeypatch):
    monkeypatch.setattr(families.family, "_KNOWN", dict(families.family._KNOWN))
    register(OnlyLoss())
    register(OnlyLoss())  # twice is once
    assert find_family("only_loss") == OnlyLoss() and "only_loss" in names(labels=False)
    with pytest.raises(ValueError, match="'only_loss' is the name of OnlyLoss"):
        register(OnlyLoss(3.0))
    with pytest.raises(TypeError, match="family is a str; pass an object"):
        register("squared")


def test_named_finds_every_loss(family):
    assert find_family(family.name) == family
    assert repr(family).split("(")[0] in families.__all__


@pytest.mark.parametrize("loss", ["hubert", None, ["squared"]])
def test_unknown_loss_lists_the_known_ones(loss):
    with pytest.raises(ValueError, match="'squared', 'absolute', 'logistic', 'hinge'") as raised:
        find_family(loss)
    assert repr(loss) in str(raised.value)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("squared", "deviations of the target per deviation"),
        ("poisson", "changes of the log of the expected count per deviation"),
        ("logistic", "changes of the log-odds per deviation"),
        ("hinge", "changes of the linear predictor per deviation"),
    ],
)
def test_summaries_say_what_effects_are(loss, words):
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = targets_of(loss, X[:, 0])
    kind = bm.MixedNormClassifier if find_family(loss).targets == "labels" else bm.MixedNormRegressor
    assert words in kind(loss=loss).fit(X, y).result_.summary()
