"""What further features explain: against least squares."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.selection.feature_span import FeatureSpan, orthonormal


def squares_left(columns, weight, values, with_intercept):
    Z = np.column_stack([columns, np.ones(len(values))]) if with_intercept else columns
    root = np.sqrt(weight)
    fitted = Z @ np.linalg.lstsq(root[:, None] * Z, root * values)[0] if Z.shape[1] else np.zeros(len(values))
    return weight @ (values - fitted) ** 2


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 7)) + np.array([0, 0, 1e4, 0, 0, 0, 0])
    X[:, 5] = X[:, 0] - 2 * X[:, 1]  # lies in the span of the first two
    X[:, 6] = 3.0
    return X, rng.uniform(0.5, 2, 25), rng.standard_normal(25)


@pytest.mark.parametrize("with_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("chosen", [[], [0], [0, 1, 3]])
def test_gains_are_differences_of_least_squares(problem, chosen, form, with_intercept):
    X, weight, values = problem
    if form is sp.csr_matrix:
        X = X - np.array([0, 0, 1e4, 0, 0, 0, 0])  # a sparse design is not centred
    span = FeatureSpan(form(X), weight, with_intercept)
    span.add(np.array(chosen, dtype=int))
    blocks = [np.array([i]) for i in range(7)] + [np.array([2, 4]), np.array([0, 5, 6])]
    before = squares_left(X[:, chosen], weight, values, with_intercept)
    after = [squares_left(X[:, [*chosen, *block]], weight, values, with_intercept) for block in blocks]
    residual = span.residual(values)
    assert residual @ residual == pytest.approx(before)
    np.testing.assert_allclose(span.gains(residual, blocks), before - np.array(after), atol=1e-7)


def test_dependent_columns_add_nothing(problem):
    X, _, _ = problem
    basis = orthonormal(X[:, :2], np.empty((25, 0)))
    assert orthonormal(X[:, [5]], basis).shape == (25, 0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    assert orthonormal(np.zeros((25, 2)), basis).shape == (25, 0)
