from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.posterior.units import dense, find_units, in_units, no_units


def standardised(data, **choices):
    units = find_units(data, **{"centre": True, "per_task": False, "scale_target": True} | choices)
    return units, in_units(data, units)


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
    weighted = find_units(replace(small, weight=weight), centre=True, per_task=True, scale_target=True)
    names = small.task_names[small.task]
    repeated = TaskData.from_long(small.X[twice], small.y[twice], tasks=names[twice])
    other = find_units(repeated, centre=True, per_task=True, scale_target=True)
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
    np.testing.assert_array_equal(in_units(small, no_units(small)).X, small.X)


def test_sparse_designs_become_dense():
    data = TaskData.from_long(sp.csr_matrix(np.eye(4, dtype=np.float32)), np.arange(4.0))
    assert dense(data).design.dtype == np.float64
    np.testing.assert_array_equal(dense(data).design, np.eye(4))
