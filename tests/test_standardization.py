"""Standardisation: unit deviation within each task, in every form of the data."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.protocols import DataWarning
from bayesmtfs.standardization import column_scales, standardize


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
