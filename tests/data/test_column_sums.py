"""Sums over rows by columns: variances within tasks against NumPy's, from dense and sparse designs."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.data import column_sums
from bayesmtfs.data.column_sums import (
    dense_variances,
    pooled_sparse_variances,
    sparse_variances,
    weighted_deviation,
)
from bayesmtfs.data.inputs import numbered_names

OFFSETS = np.array([0, 9, 10, 31])


@pytest.fixture
def design():
    """Sparse columns; one that is constant, far from 0 and everywhere, one that a task lacks, one near its mean."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((31, 8)) < 0.4, rng.standard_normal((31, 8)) + 1.0, 0.0)
    X[:, 1] = 7.3
    X[:, 2] = 1e4 + rng.standard_normal(31)
    X[10:, 3] = 0.0
    X[:9, 4] = -2.0
    return X, rng.uniform(0.5, 2.0, 31)


def variances(X, weight):
    """(p, m) By their definition."""
    parts = [(X[a:b], weight[a:b]) for a, b in zip(OFFSETS[:-1], OFFSETS[1:], strict=True)]
    return np.column_stack(
        [np.average((x - np.average(x, axis=0, weights=w)) ** 2, axis=0, weights=w) for x, w in parts]
    )


def test_variances_of_dense_and_sparse_columns(design):
    X, weight = design
    expected = variances(X, weight)
    for found in (dense_variances(X, weight, OFFSETS), sparse_variances(sp.csr_matrix(X), weight, OFFSETS)):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-20)
        assert not found[1].any() and not found[:, 1].any()  # a constant column, and a task of one row


def test_pooled_variances_are_those_of_the_tasks_by_their_weights(design):
    X, weight = design
    totals = np.add.reduceat(weight, OFFSETS[:-1])
    found = pooled_sparse_variances(sp.csr_matrix(X), weight, OFFSETS)
    np.testing.assert_allclose(found, variances(X, weight) @ totals / totals.sum(), rtol=1e-9, atol=1e-20)
    assert found[1] == 0.0


def test_deviations_of_one_design(design):
    X, weight = design
    mean = np.average(X, axis=0, weights=weight)
    expected = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    for given in (X, np.asfortranarray(X), sp.csr_matrix(X)):
        np.testing.assert_allclose(weighted_deviation(given, weight), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 100, 101, 12_345])
def test_numbered_names_are_those_of_python(count):
    names = numbered_names(count)
    assert names.tolist() == [f"x{i}" for i in range(count)]
    assert count == 0 or names.dtype == np.asarray([f"x{i}" for i in range(count)]).dtype


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(7, 12), (200, 3), (4, 5)])
def test_plain_sums_and_the_moments_of_them(order, dtype, shape, monkeypatch):
    monkeypatch.setattr(column_sums, "LARGE", 0)
    X = np.random.default_rng(0).standard_normal(shape) + [0.0, 3.0, *[1e5] * (shape[1] - 2)]
    X[:, -1] = 1e5 / 3
    X = np.asarray(X.astype(dtype), order=order)
    exact = X.astype(np.float64)
    sums = column_sums.plain_sums(X)
    np.testing.assert_allclose(sums, [exact.sum(axis=0), np.square(exact).sum(axis=0)], rtol=1e-12, atol=1e-10)
    mean, deviation = column_sums.moments_of_sums(X, sums)
    np.testing.assert_allclose(mean, exact.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(deviation[:-1], exact[:, :-1].std(axis=0), rtol=1e-10)
    assert deviation[-1] == 0.0
    np.testing.assert_array_equal(column_sums.weighted_moments(X, np.full(len(X), 2.0)), (mean, deviation))


def test_plain_sums_of_what_is_not_large_and_dense(monkeypatch):
    assert column_sums.plain_sums(np.ones((10, 10))) is None
    monkeypatch.setattr(column_sums, "LARGE", 0)
    assert column_sums.plain_sums(np.ones((10, 10))[::2, ::2]) is None
    assert column_sums.plain_sums(sp.csr_matrix(np.ones((3, 3)))) is None
    X = np.ones((20, 4))
    X[7, 2] = np.nan
    assert np.isfinite(column_sums.plain_sums(X)).all(axis=0).tolist() == [True, True, False, True]
