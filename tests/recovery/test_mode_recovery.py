"""Joint compressed sensing by modes: 25 rows from 50 measurements of 200 unknowns, five signals, 30 dB.

The problem of Zhang, Yeung and Xu (2010), section 7. The mixed norm fails beyond 19 rows.
"""

import numpy as np
import pytest

from bayesmtfs.estimators.em import GeneralizedNormalRegressor, JeffreysRegressor


def measure(seed, n_rows=25, n=50, p=200, m=5):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, p)) / np.sqrt(n)
    W = np.zeros((p, m))
    W[rng.choice(p, n_rows, replace=False)] = rng.standard_normal((n_rows, m))
    signal = A @ W
    return A, signal + np.sqrt(np.mean(signal**2)) * 10**-1.5 * rng.standard_normal((n, m)), W.any(axis=1)


@pytest.mark.parametrize(
    ("model", "n_seeds", "share"),
    [(JeffreysRegressor(fit_intercept=False), 20, 0.85), (GeneralizedNormalRegressor(fit_intercept=False), 10, 0.9)],
    ids=["EM", "MM"],
)
def test_largest_rows_are_the_true_ones(model, n_seeds, share):
    found = []
    for seed in range(n_seeds):
        A, Y, truth = measure(seed)
        lengths = np.linalg.norm(model.fit(A, Y).coef_, axis=0)
        found.append(set(np.argsort(-lengths)[:25]) == set(np.flatnonzero(truth)))
    assert np.mean(found) >= share
