"""Units: deviations within tasks, in every form of the data."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import (
    centred,
    column_means,
    column_scales,
    effect_unit,
    feature_deviation,
    in_sampling_units,
    plain_units,
    rescale,
    sampling_units,
    target_deviation,
)
from bayesmtfs.types import DataWarning


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("form", ["long", "wide", "wide with missing cells"])
def test_scaling_gives_unit_deviation_within_each_task(sparse, form):
    rng = np.random.default_rng(3)
    X, y, tasks = rng.standard_normal((12, 4)), rng.standard_normal(12), np.array(["b", "a", "c"] * 4)
    X[::5] = 0
    X[:, 3] = 2.0
    given = sp.csr_matrix(X) if sparse else X
    if form == "long":
        data = TaskData.from_long(given, y, tasks, sample_weight=np.arange(1.0, 13.0))
    else:
        Y = np.column_stack([y, y])
        Y[0, 0] = np.nan if form != "wide" else Y[0, 0]
        data = TaskData.from_wide(given, Y)
    scales = column_scales(data)
    assert (scales[3] == 0).all()
    with pytest.warns(DataWarning, match="1 feature is constant within every task \\(x3\\)"):
        scaled, scales, _ = rescale(data, standardize=True)
    assert (scales[3] == 1).all()
    for t, (start, stop) in enumerate(data.spans):
        block = scaled.task_designs[t]
        block = block.toarray() if sparse else block
        weight = data.weight[start:stop]
        mean = np.average(block, axis=0, weights=weight)
        variance = np.average((block - mean) ** 2, axis=0, weights=weight)
        np.testing.assert_allclose(variance[:3], 1.0)


def test_a_task_of_one_row_is_warned_of():
    data = TaskData.from_long(np.array([[1.0], [2.0], [3.0]]), np.zeros(3), ["a", "a", "lone"])
    with pytest.warns(DataWarning, match="task 'lone' has one row only"):
        rescale(data, standardize=True)


def test_deviations_about_the_mean_or_about_zero():
    data = TaskData.from_long(np.array([[1.0], [3.0]]), [0.0, 1.0])
    assert feature_deviation(data) == pytest.approx([1.0])
    assert feature_deviation(data, centred=False) == pytest.approx([np.sqrt(5.0)])


@pytest.mark.parametrize("sparse", [False, True])
def test_tasks_without_a_feature_do_not_count_in_its_deviation(sparse):
    rng = np.random.default_rng(4)
    X, tasks, weight = rng.standard_normal((30, 3)), np.repeat([0, 1, 2], 10), rng.uniform(0.5, 2.0, 30)
    X[:, 0] += 1e6
    X[:, 2] = 7.0  # constant where it is
    X[20:, [0, 2]] = 0.0
    present = np.array([[True, True, False], [True, True, True], [True, True, False]])
    data = TaskData.from_long(sp.csr_matrix(X) if sparse else X, np.zeros(30), tasks, sample_weight=weight)
    data = replace(data, present=present)
    own, w = X[:20, 0], weight[:20]
    means = np.repeat([np.average(own[part], weights=w[part]) for part in (slice(10), slice(10, 20))], 10)
    spread = np.sqrt(np.average((own - means) ** 2, weights=w))
    deviations = feature_deviation(data)
    assert deviations[0] == pytest.approx(spread, rel=1e-8) and deviations[2] == 0.0
    assert deviations[1] == pytest.approx(feature_deviation(replace(data, present=None))[1])
    assert feature_deviation(data, centred=False)[0] == pytest.approx(np.sqrt(np.average(own**2, weights=w)))


def within(values, tasks, weight=None):
    """Pooled deviation within tasks, by its definition: the root of the weighted mean of the tasks' variances."""
    weight = np.ones(len(values)) if weight is None else weight
    squares = [
        (np.cov(values[tasks == t], aweights=weight[tasks == t], ddof=0), weight[tasks == t].sum())
        for t in np.unique(tasks)
    ]
    return np.sqrt(np.average([variance for variance, _ in squares], weights=[total for _, total in squares]))


def test_effect_unit_in_the_long_form():
    rng = np.random.default_rng(0)
    tasks, weight = np.repeat(["a", "b", "c"], [5, 9, 16]), rng.uniform(0.5, 2.0, 30)
    X, y = rng.standard_normal((30, 3)) * [1, 5, 0.1], rng.standard_normal(30)
    expected = np.array([within(column, tasks, weight) for column in X.T]) / within(y, tasks, weight)
    level = {"a": 0.0, "b": 200.0, "c": -3000.0}
    moved = np.array([level[t] for t in tasks])
    for shift in (0.0, moved):
        data = TaskData.from_long(X + np.reshape(shift, (-1, 1)), y + shift, tasks, sample_weight=weight)
        found = effect_unit(data, True)
        assert found.shape == (3, 3)
        np.testing.assert_allclose(found, np.tile(expected, (3, 1)).T, rtol=1e-9)
        np.testing.assert_allclose(effect_unit(data, False), found * within(y, tasks, weight), rtol=1e-9)
    count = rng.integers(1, 4, 30)
    weighted = TaskData.from_long(X, y, tasks, sample_weight=count.astype(float))
    repeated = TaskData.from_long(np.repeat(X, count, axis=0), np.repeat(y, count), np.repeat(tasks, count))
    np.testing.assert_allclose(effect_unit(weighted, True), effect_unit(repeated, True))


def test_effect_unit_in_the_wide_form_has_the_deviation_of_each_target():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 3)) * [1, 5, 0.1], rng.standard_normal((20, 2)) * [1, 4000] + [0, 100]
    Y[3, 1] = np.nan
    observed = ~np.isnan(Y)
    tasks = np.repeat([0, 1], observed.sum(axis=0))
    rows = np.concatenate([X[observed[:, 0]], X[observed[:, 1]]])
    spread = np.array([within(column, tasks) for column in rows.T])
    data = TaskData.from_wide(X, Y)
    np.testing.assert_allclose(effect_unit(data, True), spread[:, None] / np.nanstd(Y, axis=0), rtol=1e-12)


def test_effect_unit_without_an_intercept_is_about_zero():
    rng = np.random.default_rng(1)
    X, y, tasks = rng.normal(3.0, 1.0, (20, 2)), rng.normal(5.0, 1.0, 20), np.arange(20) % 3
    found = effect_unit(TaskData.from_long(X, y, tasks), True, centred=False)
    expected = np.sqrt(np.mean(X**2, axis=0) / np.mean(y**2))
    np.testing.assert_allclose(found, np.tile(expected, (3, 1)).T)


def test_targets_without_a_deviation_of_their_own():
    X, tasks = np.arange(6.0)[:, None], np.repeat([0, 1, 2], 2)
    y = np.array([1.0, 3.0, 4.0, 4.0, 0.0, 4.0])
    np.testing.assert_allclose(target_deviation(TaskData.from_long(X, y, tasks), own=True), [1, np.sqrt(5 / 3), 2])
    levels = TaskData.from_long(X, np.repeat([1e6, 1e6 + 2, 1e6 - 2], 2), tasks)
    np.testing.assert_allclose(target_deviation(levels), np.sqrt(8 / 3))
    np.testing.assert_array_equal(target_deviation(TaskData.from_long(X, np.full(6, 0.1), tasks), own=True), 1.0)


@pytest.mark.parametrize(
    "choices", [{"standardize": True}, {"scale_target": True}, {"standardize": True, "scale_target": True}]
)
def test_rescaled_coefficients_predict_the_same_in_the_users_units(small, choices):
    scaling = rescale(small, **{"standardize": False} | choices)
    rng = np.random.default_rng(0)
    start = scaling.start(rng.normal(size=(4, 6)), rng.normal(size=4))
    back = scaling.to_user(start._replace(noise=np.ones(4)))
    there = scaling.data.linear_predictor(start.W, start.intercept)
    np.testing.assert_allclose(small.linear_predictor(back.W, back.intercept), there * scaling.target[small.task])
    np.testing.assert_array_equal(back.noise, scaling.target)
    if "scale_target" in choices:
        for start, stop in small.spans:
            assert scaling.data.y[start:stop].std() == pytest.approx(1.0)


# ---------------------------------------------------------------------- the units of samplers


@pytest.fixture(scope="module")
def small():
    """Four tasks of unequal size whose features and targets are far from standard units."""
    sim = simulate_tasks(n_tasks=4, n_features=6, n_samples=[20, 30, 25, 40], n_relevant=2, snr=3.0, random_state=1)
    return TaskData.from_long(3 + sim.X * np.geomspace(0.1, 10, 6), 100 + 5 * sim.y, tasks=sim.tasks)


@pytest.fixture(scope="module")
def lacking():
    """Two tasks, the second without the first feature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    X[15:, 0] = 0.0
    present = np.array([[True, False], [True, True], [True, True]])
    data = TaskData.from_long(X, rng.normal(size=30), tasks=np.repeat(["a", "b"], 15))
    return data, present


def standardised(data, **choices):
    units = sampling_units(data, **{"centre": True, "per_task": False, "scale_target": True} | choices)
    return units, in_sampling_units(data, units)


def test_features_and_targets_are_standard_within_tasks(small):
    _, scaled = standardised(small)
    for X, (start, stop) in zip(scaled.task_designs, scaled.spans, strict=True):
        np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
        assert scaled.y[start:stop].mean() == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(scaled.X.std(axis=0), 1.0)
    assert scaled.y.std() == pytest.approx(1.0)


def test_targets_are_standard_in_each_task(small):
    _, scaled = standardised(small, own_targets=True)
    np.testing.assert_allclose([scaled.y[start:stop].std() for start, stop in scaled.spans], 1.0)


def test_a_complete_wide_form_keeps_its_one_design():
    rng = np.random.default_rng(0)
    data = TaskData.from_wide(rng.normal(size=(10, 4)), rng.normal(size=(10, 3)))
    assert standardised(data, own_targets=True)[1].shared_design


def test_features_are_standard_within_each_task(small):
    _, scaled = standardised(small, per_task=True)
    for X in scaled.task_designs:
        np.testing.assert_allclose(X.std(axis=0), 1.0)


@pytest.mark.parametrize("choices", [{}, {"per_task": True}, {"centre": False}, {"own_targets": True}])
def test_predictions_do_not_depend_on_the_units(small, choices):
    units, scaled = standardised(small, **choices)
    rng = np.random.default_rng(0)
    W, intercept = rng.normal(size=(6, 4)), rng.normal(size=4) * choices.get("centre", True)
    there = (units.target_centre + units.target_scale * intercept)[small.task]
    there += units.target_scale[small.task] * scaled.linear_predictor(W, np.zeros(4))
    coef = units.coefficients(W)
    here = small.linear_predictor(coef, units.intercepts(coef, intercept))
    np.testing.assert_allclose(here, there, rtol=1e-10)


def test_without_an_intercept_nothing_is_centred(small):
    units, _ = standardised(small, centre=False)
    assert not units.feature_centre.any() and not units.target_centre.any()


def test_weight_two_is_a_repeated_row(small):
    twice = np.append(np.arange(len(small.y)), np.arange(0, len(small.y), 2))
    weight = np.where(np.arange(len(small.y)) % 2 == 0, 2.0, 1.0)
    weighted = sampling_units(replace(small, weight=weight), centre=True, per_task=True, scale_target=True)
    names = small.task_names[small.task]
    repeated = TaskData.from_long(small.X[twice], small.y[twice], tasks=names[twice])
    other = sampling_units(repeated, centre=True, per_task=True, scale_target=True)
    np.testing.assert_allclose(weighted.feature_scale, other.feature_scale)
    assert weighted.target_scale == pytest.approx(other.target_scale)
    np.testing.assert_allclose(replace(small, weight=weight).task_weights, np.diff(repeated.offsets))


def test_features_that_a_task_lacks_stay_zero_and_do_not_count(lacking):
    data, present = lacking
    data = replace(data, present=present)
    units, scaled = standardised(data)
    assert not scaled.task_designs[1][:, 0].any()
    assert units.feature_scale[0, 0] == pytest.approx(data.task_designs[0][:, 0].std())


def test_constant_features_and_targets_keep_their_scale():
    data = TaskData.from_long(np.full((5, 2), 1e6), np.full(5, 3.0))
    units, scaled = standardised(data)
    assert np.all(units.feature_scale == 1.0) and np.all(units.target_scale == 1.0) and not scaled.X.any()


def test_a_small_spread_around_a_large_mean_is_seen():
    X = 1.7e9 + 1e3 * np.random.default_rng(0).standard_normal((50, 1))
    units, scaled = standardised(TaskData.from_long(X, np.arange(50.0)))
    assert units.feature_scale[0, 0] == pytest.approx(X.std(), rel=1e-9)
    assert scaled.X.std() == pytest.approx(1.0)


def test_a_feature_that_is_constant_in_a_task_has_its_pooled_unit_there(small):
    X = small.X.copy()
    X[small.task == 1, 2] = 0.7
    for factor in (1e-3, 1e3):
        data = replace(small, design=X * factor)
        units, scaled = standardised(data, per_task=True)
        assert units.feature_scale[2, 1] == pytest.approx(factor * within(X[:, 2], small.task))
        assert np.abs(scaled.task_designs[1][:, 2]).max() < 1e-12


def test_targets_that_are_too_large_are_refused(small):
    with pytest.raises(ValueError, match=r"y has values up to 1\.\d+e\+162, .* divide y by a constant"):
        standardised(replace(small, y=1e160 * small.y))


def test_units_of_one_change_nothing(small):
    units = plain_units(np.ones((small.n_features, small.n_tasks)), np.ones(small.n_tasks))
    np.testing.assert_array_equal(in_sampling_units(small, units).X, small.X)


def test_sparse_designs_become_dense():
    data = TaskData.from_long(sp.csr_matrix(np.eye(4, dtype=np.float32)), np.arange(4.0))
    assert data.dense().design.dtype == np.float64
    np.testing.assert_array_equal(data.dense().design, np.eye(4))


@pytest.mark.parametrize("form", ["long", "wide"])
def test_centred_features_have_mean_zero_in_every_task(form):
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(5.0, 1.0, (12, 3)), np.repeat([0, 1], 6)
    Y = np.where(rng.random((12, 2)) < 0.3, np.nan, 1.0)
    data = TaskData.from_long(X, X[:, 0], tasks) if form == "long" else TaskData.from_wide(X, Y)
    np.testing.assert_allclose(column_means(centred(data, column_means(data))), 0.0, atol=1e-12)
