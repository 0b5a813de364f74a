"""Factors and triangular systems against NumPy."""

import numpy as np

from bayesmtfs.gibbs.cholesky import factorise, solve_lower, solve_upper


def test_factor_and_systems_of_the_leading_part():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    A, x = root @ root.T + np.eye(5), rng.standard_normal(5)
    space = np.full((7, 7), np.nan)  # what is outside of the part, and above its diagonal, is not read
    space[:5, :5] = np.where(np.tri(5, dtype=bool), A, np.nan)
    factorise(space, 5)
    L = np.linalg.cholesky(A)
    np.testing.assert_allclose(np.tril(space[:5, :5]), L, atol=1e-12)
    lower, upper = x.copy(), x.copy()
    solve_lower(space, lower, 5)
    solve_upper(space, upper, 5)
    np.testing.assert_allclose(lower, np.linalg.solve(L, x), atol=1e-12)
    np.testing.assert_allclose(upper, np.linalg.solve(L.T, x), atol=1e-12)
