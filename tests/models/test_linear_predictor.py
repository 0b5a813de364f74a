"""The symbolic linear predictor against sums written out, for every form a design can have."""

import numpy as np
import pymc as pm
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.models.terms import coordinates, linear_predictor

RNG = np.random.default_rng(12)
X = RNG.normal(size=(9, 4)) * (RNG.uniform(size=(9, 4)) < 0.6)
Y = np.where(RNG.uniform(size=(9, 3)) < 0.2, np.nan, RNG.normal(size=(9, 3)))
TASKS = np.array(["b", "a", "a", "c", "b", "a", "c", "a", "b"])
W, INTERCEPT = RNG.normal(size=(4, 3)), RNG.normal(size=3)


def long(design):
    expected = [X[i] @ W[:, "abc".index(TASKS[i])] + INTERCEPT["abc".index(TASKS[i])] for i in range(9)]
    return TaskData.from_long(design, np.arange(9.0), tasks=TASKS), np.array(expected)


def wide(design):
    return TaskData.from_wide(design, Y), (X @ W + INTERCEPT).ravel()


@pytest.mark.parametrize("form", [long, wide])
@pytest.mark.parametrize("as_design", [np.asarray, sp.csr_matrix, np.float32])
def test_every_form_of_design(form, as_design):
    data, expected = form(as_design(X))
    with pm.Model(coords=coordinates(data)):
        eta = linear_predictor(data, W, INTERCEPT).eval(mode="FAST_COMPILE")
    rtol = 1e-5 if data.design.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(eta, expected[data.order], rtol=rtol)


def test_no_intercept():
    data, expected = long(X)
    with pm.Model(coords=coordinates(data)):
        eta = linear_predictor(data, W)
    shift = INTERCEPT[data.task]
    np.testing.assert_allclose(eta.eval(mode="FAST_COMPILE"), expected[data.order] - shift, rtol=1e-12)


def test_coordinates_name_features_and_tasks():
    data, _ = wide(X)
    assert coordinates(data)["feature"] == ["x0", "x1", "x2", "x3"]
    assert coordinates(data)["row"] == list(range(9))
    data = long(X)[0]
    assert coordinates(data).keys() == {"feature", "task", "obs"}
    assert coordinates(data)["obs"] == data.order.tolist()
