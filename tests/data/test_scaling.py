"""Standardisation: unit deviation within each task, in every form of the data."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import column_scales, feature_deviations, standardize
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
