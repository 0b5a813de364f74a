"""Standardisation: unit deviation within each task, in every form of the data."""

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
    feature_deviations,
    in_sampling_units,
    no_units,
    sampling_units,
    standardize,
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
        scaled, scales = standardize(data)
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
        standardize(data)


def test_deviations_about_the_mean_or_about_zero():
    data = TaskData.from_long(np.array([[1.0], [3.0]]), [0.0, 1.0])
    assert feature_deviations(data) == pytest.approx([1.0])
    assert feature_deviations(data, centred=False) == pytest.approx([np.sqrt(5.0)])


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
    spread = np.sqrt(np.average((own - np.average(own, weights=w)) ** 2, weights=w))
    deviations = feature_deviations(data)
    assert deviations[0] == pytest.approx(spread, rel=1e-8) and deviations[2] == 0.0
    assert deviations[1] == pytest.approx(feature_deviations(replace(data, present=None))[1])
    assert feature_deviations(data, centred=False)[0] == pytest.approx(np.sqrt(np.average(own**2, weights=w)))


def test_effect_unit_in_every_form():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 3)) * [1, 5, 0.1], rng.standard_normal((20, 2)) * [1, 4]
    Y[3, 1] = np.nan
    observed = ~np.isnan(Y)
    data = TaskData.from_wide(X, Y)
    rows = np.concatenate([X[observed[:, 0]], X[observed[:, 1]]])
    expected = rows.std(axis=0) / Y[observed].std()
    np.testing.assert_allclose(effect_unit(data, True), expected, rtol=1e-12)
    np.testing.assert_allclose(effect_unit(data, False), rows.std(axis=0), rtol=1e-12)
    weight = rng.integers(1, 4, 20).astype(float)
    y = Y[:, 0]
    weighted = TaskData.from_long(X, y, sample_weight=weight)
    repeated = TaskData.from_long(np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int)))
    np.testing.assert_allclose(effect_unit(weighted, True), effect_unit(repeated, True))
    constant = TaskData.from_long(X, np.ones(20))
    np.testing.assert_allclose(effect_unit(constant, True), X.std(axis=0))


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


def test_features_and_targets_are_standard_over_all_rows(small):
    _, scaled = standardised(small)
    np.testing.assert_allclose(scaled.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(scaled.X.std(axis=0), 1.0)
    assert scaled.y.mean() == pytest.approx(0.0, abs=1e-12) and scaled.y.std() == pytest.approx(1.0)


def test_features_are_standard_within_each_task(small):
    _, scaled = standardised(small, per_task=True)
    for X in scaled.task_designs:
        np.testing.assert_allclose(X.std(axis=0), 1.0)


@pytest.mark.parametrize("choices", [{}, {"per_task": True}, {"centre": False}])
def test_predictions_do_not_depend_on_the_units(small, choices):
    units, scaled = standardised(small, **choices)
    rng = np.random.default_rng(0)
    W, intercept = rng.normal(size=(6, 4)), rng.normal(size=4) * choices.get("centre", True)
    there = units.target_centre + units.target_scale * scaled.linear_predictor(W, intercept)
    coef = units.coefficients(W)
    here = small.linear_predictor(coef, units.intercepts(coef, intercept))
    np.testing.assert_allclose(here, there, rtol=1e-10)
    np.testing.assert_allclose(units.scaled_coefficients(coef), W)


def test_without_an_intercept_nothing_is_centred(small):
    units, _ = standardised(small, centre=False)
    assert not units.feature_centre.any() and units.target_centre == 0.0


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
    assert np.all(units.feature_scale == 1.0) and units.target_scale == 1.0 and not scaled.X.any()


def test_a_small_spread_around_a_large_mean_is_seen():
    X = 1.7e9 + 1e3 * np.random.default_rng(0).standard_normal((50, 1))
    units, scaled = standardised(TaskData.from_long(X, np.arange(50.0)))
    assert units.feature_scale[0, 0] == pytest.approx(X.std(), rel=1e-9)
    assert scaled.X.std() == pytest.approx(1.0)


def test_a_feature_that_is_constant_in_a_task_has_its_overall_unit_there(small):
    X = small.X.copy()
    X[small.task == 1, 2] = 0.7
    for factor in (1e-3, 1e3):
        data = replace(small, design=X * factor)
        units, scaled = standardised(data, per_task=True)
        assert units.feature_scale[2, 1] == pytest.approx(factor * X[:, 2].std())
        assert np.abs(scaled.task_designs[1][:, 2]).max() < 1e-12


def test_targets_that_are_too_large_are_refused(small):
    with pytest.raises(ValueError, match=r"y has values up to 1\.\d+e\+162, .* divide y by a constant"):
        standardised(replace(small, y=1e160 * small.y))


def test_no_units_change_nothing(small):
    np.testing.assert_array_equal(in_sampling_units(small, no_units(small)).X, small.X)


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
