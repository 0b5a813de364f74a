"""WorkingColumns of the working set: the same products as the data, centred within tasks."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.convex.interior_point import WorkingColumns
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

FORMS = ["long", "long float32", "long sparse", "wide", "wide missing", "wide sparse", "groups"]


def make_problem(form):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 8)) + 5.0
    if "sparse" in form:
        X = sp.csr_matrix(np.where(rng.uniform(size=X.shape) < 0.4, X, 0.0))
    if form == "long float32":
        X = X.astype(np.float32)
    if form.startswith("wide"):
        Y = rng.standard_normal((24, 3))
        if form == "wide missing":
            Y[rng.uniform(size=Y.shape) < 0.3] = np.nan
        data = TaskData.from_wide(X, Y)
    else:
        groups = [0, 1, 0, 2, 3, 1, 4, 5] if form == "groups" else None
        data = TaskData.from_long(X, rng.standard_normal(24), np.arange(24) % 3, groups=groups)
    return Problem(data, find_family("absolute"), RowPenalty(1.0, 2), data.loss_weights("mean"))


@pytest.mark.parametrize("form", FORMS)
def test_products_are_those_of_the_data(form):
    problem = make_problem(form)
    columns = WorkingColumns(problem, np.array([1, 3, 4]))
    data, rng = problem.data, np.random.default_rng(1)
    W = np.zeros((8, 3))
    W[columns.features] = rng.standard_normal((len(columns.features), 3))
    chosen = W[columns.features]
    shift = np.einsum("km,km->m", columns.means, chosen)
    tolerance = 1e-5 if form == "long float32" else 1e-12
    np.testing.assert_allclose(
        columns.predictor(chosen) + shift[data.task],
        data.linear_predictor(W, np.zeros(3)),
        rtol=tolerance,
        atol=tolerance,
    )
    theta = columns.without_means(rng.standard_normal(data.n_observations))
    np.testing.assert_allclose(problem.task_sums(theta), 0.0, atol=1e-12)
    np.testing.assert_allclose(columns.adjoint(theta), data.adjoint(theta)[columns.features], atol=1e2 * tolerance)
    np.testing.assert_allclose(
        columns.scores(theta),
        problem.blocks.gather(data.adjoint(theta))[[1, 3, 4]][:, : columns.scores(theta).shape[1]],
        atol=1e2 * tolerance,
    )


@pytest.mark.parametrize("form", ["long", "wide", "wide missing"])
def test_quadratic_forms_are_squared_lengths(form):
    columns = WorkingColumns(make_problem(form), np.array([0, 2]))
    own = np.random.default_rng(2).uniform(size=(2, 3))
    expected = [np.einsum("ij,j,ij->i", X, own[:, t], X) for t, X in enumerate(columns.designs)]
    np.testing.assert_allclose(columns.quadratic_forms(own), np.concatenate(expected))


def test_rows_of_groups_add_their_features():
    columns = WorkingColumns(make_problem("groups"), np.array([0, 1, 4]))  # features 0 and 2, 1 and 5, 6
    assert columns.features.tolist() == [0, 1, 2, 5, 6] and columns.row.tolist() == [0, 1, 0, 1, 2]
    np.testing.assert_array_equal(columns.sum_to_row(np.array([1.0, 2.0, 4.0, 8.0, 16.0])), [5.0, 10.0, 16.0])
    full = np.arange(25.0).reshape(5, 5)
    full += full.T
    member = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]])
    lower = columns.sum_to_rows(np.tril(full))
    np.testing.assert_allclose(np.tril(lower), np.tril(member @ full @ member.T))
