"""Whitened tasks: centring, weights, shared designs."""

import numpy as np
import pytest
import scipy.sparse as sp
from bayesmtfs.em.whitened_tasks import dense_designs, whiten

from bayesmtfs import TaskData
from bayesmtfs.em import whitened_tasks


def long_data(seed=0, sizes=(6, 4, 5), p=3):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), p)) + 2.0
    return TaskData.from_long(X, rng.standard_normal(len(tasks)), tasks), rng.uniform(0.5, 2.0, len(tasks))


def test_moments_are_those_of_weighted_deviations_from_the_weighted_mean():
    data, factor = long_data()
    tasks = whiten(data, dense_designs(data), data.y, factor, fit_intercept=True)
    for t, (start, stop) in enumerate(data.spans):
        X, y, c = data.design[start:stop], data.y[start:stop], factor[start:stop]
        X, y = X - np.average(X, axis=0, weights=c), y - np.average(y, weights=c)
        np.testing.assert_allclose(tasks.grams[t], X.T @ (c[:, None] * X), atol=1e-12)
        np.testing.assert_allclose(tasks.products[t][:, 0], X.T @ (c * y), atol=1e-12)
        assert tasks.target_squares[t] == pytest.approx(np.sum(c * y**2))


def test_intercept_undoes_the_centring():
    data, factor = long_data()
    tasks = whiten(data, dense_designs(data), data.y, factor, fit_intercept=True)
    W = np.random.default_rng(1).standard_normal((3, 3))
    residual = data.y - data.linear_predictor(W, tasks.intercept(W))
    whitened = np.concatenate([r[:, 0] for r in tasks.residuals(W)])
    np.testing.assert_allclose(whitened, np.sqrt(factor) * residual, atol=1e-12)


def test_one_design_is_kept_once_and_can_be_separated():
    rng = np.random.default_rng(2)
    data = TaskData.from_wide(rng.standard_normal((7, 3)), rng.standard_normal((7, 4)))
    merged = whiten(data, dense_designs(data), data.y, data.weight, fit_intercept=True)
    assert (merged.n_designs, merged.n_tasks, merged.n_rows) == (1, 4, 28)
    apart = merged.separate()
    assert apart.n_designs == 4 and apart.designs[3] is apart.designs[0]
    W = rng.standard_normal((3, 4))
    np.testing.assert_allclose(apart.residual_squares(W), merged.residual_squares(W))
    np.testing.assert_array_equal(apart.column_squares, merged.column_squares)
    weights = np.arange(1.0, 29.0)
    assert whiten(data, dense_designs(data), data.y, weights, fit_intercept=True).n_designs == 4


def test_taking_features_keeps_known_moments():
    data, factor = long_data()
    tasks = whiten(data, dense_designs(data), data.y, factor, fit_intercept=False)
    fresh = tasks.take(np.array([2, 0])).grams
    known = tasks.grams[0]
    taken = tasks.take(np.array([2, 0]))
    assert "grams" in taken.__dict__
    np.testing.assert_allclose(taken.grams, fresh)
    assert taken.grams[0][0, 1] == known[2, 0]


def test_constant_columns_vanish_and_even_variances_leave_them_out():
    data, factor = long_data()
    X = data.design.copy()
    X[:, 1] = 0.1
    tasks = whiten(data, tuple(X[a:b] for a, b in data.spans), data.y, factor, fit_intercept=True)
    assert (tasks.column_squares[1] == 0).all()
    weights = np.array([factor[a:b].sum() for a, b in data.spans])
    variances = tasks.even_variances(weights, 3.0)
    assert variances[1] == 0
    assert variances @ np.mean(tasks.column_squares / weights, axis=1) == pytest.approx(3.0)


def test_a_large_sparse_design_is_refused(monkeypatch):
    monkeypatch.setattr(whitened_tasks, "LARGEST_DENSE", 100)
    data = TaskData.from_long(sp.random(20, 5, 0.2, format="csr", random_state=0), np.ones(20))
    with pytest.raises(ValueError, match=r"X is sparse with shape \(20, 5\).*; select features first"):
        dense_designs(data)
