"""The scaled dense part of a problem that EM works on."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import active_tasks
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.families import find_family

GAUSSIAN, LOGISTIC = find_family("squared"), find_family("logistic")


def make(seed=0, sparse=False, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 5)) * [1.0, 10.0, 0.1, 1.0, 1.0] + 3.0
    X[:, 4] = 2.0
    y = X[:, 0] + rng.standard_normal(30)
    return TaskData.from_long(sp.csr_matrix(X) if sparse else X, y, np.arange(30) % 3, **options), X, y


def test_units_are_pooled_deviations_within_tasks():
    data, X, y = make(sample_weight=np.random.default_rng(1).uniform(0.5, 2.0, 30))
    units = within_task_units(data, True, GAUSSIAN.quadratic)
    centred, target = np.empty((30, 5)), np.empty(30)
    for (a, b), Xt in zip(data.spans, data.task_designs, strict=True):
        weight = data.weight[a:b]
        centred[a:b] = Xt - weight @ Xt / weight.sum()
        target[a:b] = data.y[a:b] - weight @ data.y[a:b] / weight.sum()
    total = data.weight.sum()
    np.testing.assert_allclose(units.feature[:4], np.sqrt(data.weight @ centred**2 / total)[:4])
    assert units.target == pytest.approx(np.sqrt(data.weight @ target**2 / total))
    assert units.varies.tolist() == [True] * 4 + [False]
    assert within_task_units(data, True, LOGISTIC.quadratic).target == 1.0


def test_without_intercept_units_are_root_mean_squares():
    data, X, y = make()
    units = within_task_units(data, False, GAUSSIAN.quadratic)
    np.testing.assert_allclose(units.feature, np.sqrt(np.mean(X**2, axis=0)))
    assert units.target == pytest.approx(np.sqrt(np.mean(y**2)))
    assert units.varies.all()


def test_features_of_a_group_have_one_unit():
    data, *_ = make(groups=[0, 0, 1, 1, 2])
    units = within_task_units(data, True, GAUSSIAN.quadratic)
    assert units.feature[0] == units.feature[1] != units.feature[2] == units.feature[3]


@pytest.mark.parametrize("sparse", [False, True])
def test_active_columns_predict_the_same(sparse):
    data, X, y = make(sparse=sparse)
    units = within_task_units(data, True, GAUSSIAN.quadratic)
    kept = np.array([True, False, True, True, False])
    tasks = activate(data, GAUSSIAN, True, units, kept)
    W = np.zeros((5, 3))
    W[kept] = np.random.default_rng(2).standard_normal((3, 3))
    scaled = units.from_user(W)[kept]
    expected = data.linear_predictor(W, np.zeros(3)) / units.target
    np.testing.assert_allclose(tasks.linear_predictor(scaled, np.zeros(3)), expected, rtol=1e-10)
    np.testing.assert_allclose(units.to_user(units.from_user(W)), W)
    fewer = tasks.restricted(np.array([True, False, True]))
    np.testing.assert_allclose(fewer.adjoint(tasks.y), tasks.adjoint(tasks.y)[[0, 2]])
    assert tasks.losses(expected).sum() == pytest.approx(tasks.weight @ tasks.family.value(tasks.y, expected))


def test_complete_shared_designs_are_copied_once():
    rng = np.random.default_rng(0)
    data = TaskData.from_wide(rng.standard_normal((10, 4)), rng.standard_normal((10, 3)))
    units = within_task_units(data, True, GAUSSIAN.quadratic)
    tasks = activate(data, GAUSSIAN, True, units, units.varies)
    assert tasks.designs[0] is tasks.designs[2]
    assert tasks.restricted(np.array([True, False, True, True])).designs[0].shape == (10, 3)


def test_sparse_designs_are_made_dense_up_to_a_limit(monkeypatch):
    data, *_ = make(sparse=True)
    units = within_task_units(data, True, GAUSSIAN.quadratic)
    monkeypatch.setattr(active_tasks, "LARGEST_DENSE", 100)
    with pytest.raises(ValueError, match="5 active features over 30 observations .* raise start_strength"):
        activate(data, GAUSSIAN, True, units, np.ones(5, dtype=bool))


def test_constant_targets_have_no_deviation():
    data = TaskData.from_long(np.eye(4), [0.1] * 4)
    assert within_task_units(data, True, GAUSSIAN.quadratic).target == 1.0
