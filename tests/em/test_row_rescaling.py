"""Best factor of whole rows, against a numeric minimiser."""

import numpy as np
from bayesmtfs.em.row_rescaling import best_factors
from bayesmtfs.em.row_ridge import curvature
from scipy.optimize import minimize


def make(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    designs = [rng.standard_normal((20, 3)) for _ in range(4)]
    truth = np.array([2.0, -1.5, 1.0])[:, None] * rng.choice([-1.0, 1.0], (3, 4))
    targets = [X @ truth[:, t] for t, X in enumerate(designs)]
    W = scale * truth
    curv = curvature(designs, [np.ones(20)] * 4, False)
    gradient = np.column_stack([X.T @ (X @ W[:, t] - targets[t]) for t, X in enumerate(designs)])
    return designs, targets, W, curv, gradient


def objective(factors, designs, targets, W, sizes):
    rows = factors[:, None] * W
    loss = sum(0.5 * np.sum((y - X @ rows[:, t]) ** 2) for t, (X, y) in enumerate(zip(designs, targets, strict=True)))
    return loss + sizes @ np.log(factors)


def test_factors_minimise_the_objective_along_the_rows():
    designs, targets, W, curv, gradient = make(scale=0.6)
    sizes, rows = np.full(3, 4), np.arange(3)
    factors = best_factors(curv, np.ones(4), gradient, W, rows, sizes, np.zeros(3, dtype=bool))
    found = minimize(objective, np.full(3, 1.5), (designs, targets, W, sizes), bounds=[(0.5, 5.0)] * 3)
    assert objective(factors, designs, targets, W, sizes) <= found.fun + 1e-2
    np.testing.assert_allclose(factors, found.x, rtol=0.02)
    assert np.all(factors > 1.3)


def test_a_row_without_support_shrinks_only_where_em_shrinks_it():
    designs, targets, W, curv, gradient = make(scale=0.01)
    sizes = np.full(3, 4000)  # a prior so strong that no row has a minimum
    for falling in (True, False):
        factors = best_factors(curv, np.ones(4), gradient, W, np.arange(3), sizes, np.full(3, falling))
        assert np.all(factors < 1.0) if falling else np.all(factors == 1.0)


def test_features_of_one_row_move_together():
    designs, targets, W, curv, gradient = make(scale=0.6)
    factors = best_factors(
        curv, np.ones(4), gradient, W, np.array([0, 0, 1]), np.array([8, 4]), np.zeros(2, dtype=bool)
    )
    value = [
        objective(np.array([c, c, factors[1]]), designs, targets, W, np.array([4, 4, 4])) for c in (0.95, 1.0, 1.05)
    ]
    at = objective(factors[[0, 0, 1]], designs, targets, W, np.array([4, 4, 4]))
    assert factors.shape == (2,) and at < min(value)
