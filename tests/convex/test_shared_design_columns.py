"""Weighted, centred columns against matrices that are written out."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.shared_design_columns import SharedDesign
from bayesmtfs.families import Gaussian
from bayesmtfs.priors import RowPenalty

FORMS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "sparse": sp.csr_matrix,
    "sparse float32": lambda X: sp.csr_matrix(X, dtype=np.float32),
}
FEATURES = np.array([4, 0, 5])


@pytest.fixture(
    params=[(w, b) for w in (False, True) for b in (False, True)], ids=lambda p: f"weights {p[0]} icpt {p[1]}"
)
def written_out(request):
    """A problem on numbers that float32 holds exactly, and its Z and Y."""
    weighted, fit_intercept = request.param
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((9, 6)) * (rng.random((9, 6)) < 0.7), 2).astype(np.float32).astype(np.float64)
    Y = rng.standard_normal((9, 3))
    weight = rng.uniform(0.5, 2.0, 9) if weighted else None
    data = TaskData.from_wide(X, Y, sample_weight=weight)
    problem = Problem(data, Gaussian(), RowPenalty(1.0, 2), data.loss_weights("mean"), fit_intercept)
    factor = problem.weight[:9]
    if fit_intercept:
        X, Y = X - factor @ X / factor.sum(), Y - factor @ Y / factor.sum()
    root = np.sqrt(factor / factor.mean())[:, None]
    return problem, root * X, root * Y


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_those_of_the_matrix_written_out(written_out, form):
    problem, Z, Y = written_out
    X = FORMS[form](problem.data.design)
    design = SharedDesign(replace(problem, data=replace(problem.data, design=X)))
    np.testing.assert_allclose(design.Y, Y.T, atol=1e-12)
    np.testing.assert_allclose(design.lengths, np.linalg.norm(Z, axis=0), rtol=1e-9)
    np.testing.assert_allclose(design.correlations(Y.T), Z.T @ Y, atol=1e-12)
    np.testing.assert_allclose(design.correlations(Y.T, FEATURES), Z[:, FEATURES].T @ Y, atol=1e-12)
    columns = design.columns(FEATURES).take(np.array([1])).join(design.columns(FEATURES).take(slice(2, 3)))
    unit = (Z / np.linalg.norm(Z, axis=0))[:, [0, 5]]
    W = np.random.default_rng(1).standard_normal((2, 3))
    np.testing.assert_allclose(columns.gram(columns), unit.T @ unit, atol=1e-12)
    np.testing.assert_allclose(columns.predict(W), (unit @ W).T, atol=1e-12)
    np.testing.assert_allclose(columns.correlations(Y.T), unit.T @ Y, atol=1e-12)
    assert columns.n_rows == 9


@pytest.mark.parametrize("form", ["C", "sparse"])
def test_constant_columns_have_no_length(form):
    X = FORMS[form](np.column_stack([np.full(7, 0.1), np.full(7, 1.0) + 1e-9 * np.arange(7), np.zeros(7)]))
    data = TaskData.from_wide(X, np.ones((7, 2)))
    problem = Problem(data, Gaussian(), RowPenalty(1.0, 2), data.weight)
    length = SharedDesign(problem).columns(np.arange(3)).length
    np.testing.assert_allclose(length, [0, 1e-9 * np.sqrt(28), 0], rtol=1e-5)


def test_centring_removes_what_rounding_left(written_out):
    problem, _, Y = written_out
    design = SharedDesign(problem)
    root = np.ones(9) if design.root is None else design.root
    shifted = Y.T + 0.1 * root
    expected = Y.T if problem.fit_intercept else shifted
    np.testing.assert_allclose(design.centred(shifted), expected, atol=1e-14)
