"""Designs by columns: products and scores against plain matrix algebra, dense and sparse, own and shared rows."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.convex.columns import by_columns
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

FORMS = ["dense", "column order", "float32", "sparse", "wide", "sparse wide"]


@pytest.fixture(params=FORMS)
def data(request):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((23, 11)) * (rng.random((23, 11)) < 0.5)
    X[:, 4] = 0.0
    X[9, 1:] = 0.0  # one entry in the one row of a task, far fewer than there are features
    design = {
        "column order": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "sparse": sp.csr_matrix(X),
        "sparse wide": sp.csr_matrix(X),
    }.get(request.param, X)
    if "wide" in request.param:
        Y = rng.standard_normal((23, 3))
        Y[rng.random(Y.shape) < 0.3] = np.nan
        return TaskData.from_wide(design, Y)
    return TaskData.from_long(design, rng.standard_normal(23), np.repeat([0, 1, 2], [9, 1, 13]))


def by_task(data, values):
    """Dense design and values of each task."""
    for X, (first, stop) in zip(data.task_designs, data.spans, strict=True):
        yield (X.toarray() if sp.issparse(X) else X).astype(np.float64), values[first:stop]


def sparse_columns(data):
    """All columns, as those of a sparse design."""
    return by_columns(replace(data, design=sp.csr_matrix(data.design))).take(np.arange(data.n_features))


def test_columns_multiply_like_matrices(data):
    rng = np.random.default_rng(1)
    features = np.array([1, 4, 5, 10])
    values = rng.standard_normal(data.n_observations)
    W = rng.standard_normal((4, 3))
    columns = by_columns(data).take(features)
    expected = np.stack([X[:, features].T @ part for X, part in by_task(data, values)])
    np.testing.assert_allclose(columns.adjoint(values)[:, :4], expected, atol=1e-12)
    predictor = np.concatenate([X[:, features] @ W[:, t] for t, (X, _) in enumerate(by_task(data, values))])
    np.testing.assert_allclose(columns.linear_predictor(W), predictor, atol=1e-12)


def test_dense_and_sparse_columns_are_the_same(data):
    columns = by_columns(data).take(np.arange(data.n_features))
    other = columns.as_dense() if data.is_sparse else sparse_columns(data)
    values = np.random.default_rng(2).standard_normal(data.n_observations)
    width = data.n_features
    np.testing.assert_allclose(other.adjoint(values)[:, :width], columns.adjoint(values)[:, :width], atol=1e-12)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_moments_of_columns_are_weighted_and_centred(data, kind):
    columns = sparse_columns(data)
    columns = columns if kind == "sparse" else columns.as_dense()
    weight = np.random.default_rng(3).uniform(0.5, 2.0, data.n_observations)
    totals = np.add.reduceat(weight, data.offsets[:-1])
    for centred in (True, False):
        sums, squares = columns.moments(weight, totals if centred else np.full(3, np.inf))
        for t, (X, w) in enumerate(by_task(data, weight)):
            mean = w @ X / w.sum() if centred else 0.0
            np.testing.assert_allclose(sums[:, t], w @ X, atol=1e-12)
            np.testing.assert_allclose(squares[:, t], w @ (X - mean) ** 2, atol=1e-12)


@pytest.mark.parametrize(("norm_q", "sparsity"), [(1, 0.0), (1.5, 0.0), (2, 0.0), (2, 0.5), (3, 0.0), (np.inf, 0.0)])
@pytest.mark.parametrize("grouped", [False, True])
def test_scores_are_the_dual_norms_or_bound_those_of_rows_that_stay_zero(data, norm_q, sparsity, grouped):
    groups = np.array([0, 1, 0, 1, 2, 2, 2, 3, 3, 4, 5]) if grouped else None
    data = TaskData.from_long(data.X, data.y, data.task, groups=groups)
    penalty = RowPenalty(0.9, norm_q, sparsity, weights=np.linspace(0.5, 2.0, 6 if grouped else 11))
    problem = Problem(data, find_family("squared"), penalty, data.weight)
    theta = np.random.default_rng(4).standard_normal(data.n_observations)
    exact = problem.row_dual_norms(theta)
    scores = by_columns(data).scores(PenaltyRows.of(problem), theta)
    clear = exact < 0.5 * penalty.strength
    np.testing.assert_allclose(scores[~clear], exact[~clear], rtol=1e-10)
    assert (scores[clear] >= exact[clear] * (1 - 1e-12)).all()
    assert (scores[clear] < np.maximum(penalty.strength, scores[~clear].max(initial=0.0))).all()
