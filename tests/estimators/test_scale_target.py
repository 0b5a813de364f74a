"""Targets and features in different units: what is scaled, what comes back, what is shown, and what is warned of."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import bayesmtfs as bm
from bayesmtfs.types import DataWarning, PosteriorWarning, SelectionWarning

UNITS = np.array([1.0, 1000.0, 0.01])
GIBBS = {"draws": 100, "tune": 100, "chains": 2, "random_state": 0}
pytestmark = pytest.mark.filterwarnings(f"ignore::bayesmtfs.types.{PosteriorWarning.__name__}")


@pytest.fixture(scope="module")
def wide():
    return bm.simulate_tasks(
        n_tasks=3, n_features=8, n_relevant=3, n_samples=60, snr=4.0, shared_design=True, random_state=12
    )


@pytest.fixture(scope="module")
def long():
    return bm.simulate_tasks(n_tasks=10, n_features=8, n_relevant=3, n_samples=40, snr=4.0, random_state=13)


def r2_by_task(model, X, Y):
    return 1.0 - ((Y - model.predict(X)) ** 2).sum(axis=0) / ((Y - Y.mean(axis=0)) ** 2).sum(axis=0)


@pytest.mark.parametrize(
    "model",
    [
        bm.MixedNormRegressor(penalty_strength=0.05, scale_target=True),
        bm.MixedNormRegressorCV(n_penalties=10, cv=3, scale_target=True),
        bm.OnlineMixedNormRegressor(penalty_strength=0.05, epochs=5, scale_target=True, random_state=0),
        bm.GeneralizedNormalRegressor(),
        bm.JeffreysRegressor(),
        bm.JeffreysRegressor(coefficients="integrated", shared_mean=True),
        bm.MatrixVariateRegressor(),
        bm.MatrixVariateRegressor(coefficients="integrated"),
        bm.BayesianRegressor(**GIBBS),
        bm.BayesianRegressor(sampler="variational", random_state=0),
        bm.baselines.SharedMeanRegressor(scale_target=True),
    ],
    ids=lambda model: type(model).__name__,
)
def test_targets_in_different_units_are_fitted_alike_and_come_back_in_them(model, wide, tmp_path):
    first, second = clone(model).fit(wide.X, wide.y), clone(model).fit(wide.X, wide.y * UNITS)
    np.testing.assert_allclose(second.coef_, first.coef_ * UNITS[:, None], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(second.intercept_, first.intercept_ * UNITS, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(second.predict(wide.X), first.predict(wide.X) * UNITS, rtol=1e-5, atol=1e-7)
    if hasattr(first, "noise_"):
        np.testing.assert_allclose(second.noise_, first.noise_ * UNITS, rtol=1e-6)
    if first.result_.effect_unit is not None:
        ones, others = (fit.result_.as_effects().coef for fit in (first, second))
        np.testing.assert_allclose(others, ones, rtol=1e-6, atol=1e-9)
    assert r2_by_task(second, wide.X, wide.y * UNITS).min() > 0.5
    second.save(tmp_path / "model")
    loaded = bm.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(wide.X), second.predict(wide.X))
    assert loaded.get_params()["scale_target"] == model.scale_target


def test_cross_validation_measures_errors_in_the_deviations_that_it_fits(wide):
    model = bm.MixedNormRegressorCV(n_penalties=10, cv=3, scale_target=True)
    first, second = clone(model).fit(wide.X, wide.y), clone(model).fit(wide.X, wide.y * UNITS)
    np.testing.assert_allclose(second.cv_results_["mean_error"], first.cv_results_["mean_error"], rtol=1e-6)
    assert second.penalty_strength_ == pytest.approx(first.penalty_strength_)


def test_only_em_and_posteriors_scale_targets_by_themselves_and_only_in_the_wide_form(wide, long):
    for model in (bm.JeffreysRegressor(), bm.BayesianRegressor(sampler="variational", random_state=0)):
        scaled = clone(model).set_params(scale_target=True)
        same = clone(model).fit(wide.X, wide.y).coef_
        np.testing.assert_array_equal(same, clone(scaled).fit(wide.X, wide.y).coef_)
        grouped = clone(model).fit(long.X, long.y, tasks=long.tasks).coef_
        plain = clone(model).set_params(scale_target=False).fit(long.X, long.y, tasks=long.tasks).coef_
        np.testing.assert_array_equal(grouped, plain)
        assert np.abs(clone(scaled).fit(long.X, long.y, tasks=long.tasks).coef_ - plain).max() > 1e-6
    plain, scaled = (bm.MixedNormRegressor(scale_target=value).fit(wide.X, wide.y) for value in (None, True))
    assert np.abs(plain.coef_ - scaled.coef_).max() > 1e-6


def test_a_noise_that_is_given_is_in_the_users_units(wide):
    model = bm.GeneralizedNormalRegressor(noise=0.5).fit(wide.X, wide.y)
    np.testing.assert_array_equal(model.noise_, 0.5)
    other = bm.GeneralizedNormalRegressor(noise=0.5, scale_target=False).fit(wide.X, wide.y)
    np.testing.assert_array_equal(model.coef_, other.coef_)


def test_wrong_values_are_refused(wide):
    with pytest.raises(ValueError, match="scale_target is 'yes'; pass True, False or None"):
        bm.JeffreysRegressor(scale_target="yes").fit(wide.X, wide.y)
    with pytest.raises(ValueError, match="scale_target=True takes its scales from all rows and goes with fit only"):
        bm.OnlineMixedNormRegressor(scale_target=True).partial_fit(wide.X, wide.y)
    assert "scale_target" not in bm.BayesianClassifier().get_params()


# ---------------------------------------------------------------------- warnings


def test_penalties_warn_of_targets_in_different_units(wide):
    for model in (bm.MixedNormRegressor(), bm.MixedNormRegressorCV(n_penalties=3, cv=2), bm.OnlineMixedNormRegressor()):
        message = (
            r"differ \d\d,\d{3} times, from .* \(targets of task 2\) to .* \(targets of task 1\), .* set scale_target"
        )
        with pytest.warns(DataWarning, match=message):
            clone(model).fit(wide.X, wide.y * UNITS)
        clone(model).set_params(scale_target=True).fit(wide.X, wide.y * UNITS)
        clone(model).set_params(scale_target=False).fit(wide.X, wide.y * UNITS)
        clone(model).fit(wide.X, wide.y * [1.0, 5.0, 1.0])


def test_penalties_warn_of_columns_in_different_units(long):
    seconds = np.where(np.arange(8) == 2, 3600.0, 1.0)
    labels = np.sign(long.y - np.median(long.y))
    for model, y in (
        (bm.MixedNormRegressor(), long.y),
        (bm.MixedNormClassifier(), labels),
        (bm.OnlineMixedNormClassifier(penalty_strength=0.1), labels),
    ):
        message = re.compile(
            r"differ 3,\d{3} times, from .* \(column 'x\d'\) to .* \(column 'x2'\), .* set standardize=True"
        )
        with pytest.warns(DataWarning, match=message):
            clone(model).fit(long.X * seconds, y, tasks=long.tasks)
        clone(model).set_params(standardize=True).fit(long.X * seconds, y, tasks=long.tasks)
        clone(model).fit(long.X * np.where(seconds > 1, 50.0, 1.0), y, tasks=long.tasks)


def test_levels_and_constants_are_no_units(long):
    X = np.column_stack([long.X + 1e4 * long.tasks[:, None], np.full(len(long.y), 3.0)])
    bm.MixedNormRegressor(penalty_strength=0.1).fit(X, long.y + 1e4 * long.tasks, tasks=long.tasks)


# ---------------------------------------------------------------------- effects


def test_inclusion_does_not_collapse_with_the_level_of_a_task(long):
    y = long.y + 200.0 * (long.tasks == 3)
    model = bm.BayesianRegressor(**GIBBS).fit(long.X, y, tasks=long.tasks)
    assert model.inclusion_probability_[long.support].min() > 0.99
    assert model.task_inclusion_probability_.shape == (10, 8)
    assert (model.task_inclusion_probability_.max(axis=0) <= model.inclusion_probability_).all()


def test_noise_whose_level_differs_by_task_is_not_included(long):
    levels = 30.0 * np.random.default_rng(0).standard_normal((10, 8)) * ~long.support
    plain, moved = (
        bm.BayesianRegressor(standardize=True, **GIBBS).fit(X, long.y, tasks=long.tasks).inclusion_probability_
        for X in (long.X, long.X + levels[long.tasks])
    )
    np.testing.assert_allclose(moved, plain, atol=1e-6)


def test_features_that_a_task_lacks_or_that_were_screened_out_have_probability_zero(long):
    whole = bm.TaskData.from_long(long.X, long.y, tasks=long.tasks)
    present = np.ones((8, 10), dtype=bool)
    present[0, 4] = False
    data = replace(whole, present=present)
    with pytest.warns(SelectionWarning, match="screened out"):
        model = bm.BayesianRegressor(**GIBBS, max_features=5).fit(data)
    assert model.task_inclusion_probability_[4, 0] == 0.0
    assert not model.task_inclusion_probability_[:, model.result_.screened_out].any()


def test_the_order_of_features_does_not_depend_on_their_units(long):
    seconds = np.where(np.arange(8) == np.flatnonzero(long.support)[0], 3600.0, 1.0)
    first, second = (bm.JeffreysRegressor().fit(long.X * unit, long.y, tasks=long.tasks) for unit in (1.0, seconds))
    shown = [model.result_.summary().splitlines()[2:] for model in (first, second)]  # but for the objective
    assert shown[0] == shown[1]
    assert repr(first.result_).splitlines()[2] == repr(second.result_).splitlines()[2]
    shown = [model.result_.summary(user_units=True).splitlines()[3:] for model in (first, second)]
    assert shown[0] != shown[1]
    images = [bm.plots.coefficient_heatmap(model).images[0].get_array() for model in (first, second)]
    np.testing.assert_allclose(images[0], images[1], atol=1e-8)
    own = bm.plots.coefficient_heatmap(second, user_units=True).images[0].get_array()
    assert np.abs(own).max() == pytest.approx(np.abs(second.coef_).max())
    names = [[text.get_text() for text in bm.plots.row_norms(model).get_yticklabels()] for model in (first, second)]
    assert names[0] == names[1]


def test_no_point_is_outside_its_interval():
    """Signs that differ from draw to draw make the norm of the mean smaller than the norm of every draw."""
    sim = bm.simulate_tasks(n_tasks=4, n_features=3, n_relevant=1, n_samples=15, snr=0.5, random_state=3)
    X = np.column_stack([sim.X, sim.X[:, 0]])  # twice the same column: their effects are known together only
    result = bm.BayesianRegressor(**GIBBS).fit(X, sim.y, tasks=sim.tasks).result_
    low, middle, high = result.as_effects().norm_quantiles([0.055, 0.5, 0.945])
    assert ((low <= middle) & (middle <= high)).all()
    shown = {row.split()[0]: float(row.split()[1]) for row in result.summary().splitlines()[5:]}
    for name, value in shown.items():
        place = result.feature_names.tolist().index(name)
        assert value == pytest.approx(middle[place], rel=1e-3)
