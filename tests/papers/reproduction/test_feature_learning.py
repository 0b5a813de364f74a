"""The trace-norm baseline against a general convex solver."""

import cvxpy
import numpy as np
import pytest

from bayesmtfs.papers.reproduction.zhang2010 import FeatureLearningClassifier, learn_features


@pytest.fixture
def tasks():
    rng = np.random.default_rng(0)
    designs = [rng.standard_normal((n, 12)) for n in (8, 10, 9)]
    return designs, [X @ np.ones(12) + rng.standard_normal(len(X)) for X in designs]


def test_minimum_is_that_of_a_convex_solver(tasks):
    W = cvxpy.Variable((12, 3))
    tau = 0.2 * np.linalg.norm(np.column_stack([X.T @ y for X, y in zip(*tasks, strict=True)]), 2)
    loss = sum(cvxpy.sum_squares(y - X @ W[:, t]) / 2 for t, (X, y) in enumerate(zip(*tasks, strict=True)))
    cvxpy.Problem(cvxpy.Minimize(loss + tau * cvxpy.normNuc(W))).solve(solver="SCS", eps=1e-8)
    np.testing.assert_allclose(learn_features(*tasks, 0.2, tol=1e-9), W.value, atol=1e-4)


def test_coefficients_vanish_at_the_largest_strength_and_not_before(tasks):
    assert not learn_features(*tasks, 1.0 + 1e-9).any()
    assert learn_features(*tasks, 0.99).any()


def test_intercepts_make_up_for_shifted_features():
    rng = np.random.default_rng(1)
    X, study = rng.standard_normal((60, 5)), np.repeat(["a", "b"], 30)
    y = (X[:, 0] > 0).astype(np.int64)
    shifted = X + np.where(study == "a", 7.0, -3.0)[:, np.newaxis]
    models = [FeatureLearningClassifier(penalty_strength=0.05) for _ in range(2)]
    here, there = (model.fit(design, y, tasks=study) for model, design in zip(models, (X, shifted), strict=True))
    np.testing.assert_allclose(here.coef_, there.coef_, atol=1e-8)
    np.testing.assert_array_equal(here.predict(X, tasks=study), there.predict(shifted, tasks=study))
    assert np.mean(here.predict(X, tasks=study) == y) > 0.9
