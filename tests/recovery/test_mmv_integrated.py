"""Joint compressed sensing with integrated coefficients: all rows at 30 dB where mixed norms fail.

Y = A W + noise with a common row support (Wipf and Rao 2007; Zhang, Yeung and Xu 2010): n = 50 measurements of p = 200
unknowns in m = 5 tasks.
"""

import numpy as np
import pytest

from bayesmtfs import MixedNormRegressor, TaskData
from bayesmtfs.em import evidence
from bayesmtfs.families import Gaussian


def measure(seed, n_rows, n=50, p=200, m=5, decibel=30):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, p)) / np.sqrt(n)
    W = np.zeros((p, m))
    W[rng.choice(p, n_rows, replace=False)] = rng.standard_normal((n_rows, m))
    signal = A @ W
    noise = np.sqrt(np.mean(signal**2)) * 10 ** (-decibel / 20)
    return A, signal + noise * rng.standard_normal((n, m)), W, noise


def integrated(seed, n_rows):
    """Whether the largest rows are the true ones, whether the support is exact, and the noise over the true one."""
    A, Y, W, noise = measure(seed, n_rows)
    found = evidence.solve(TaskData.from_wide(A, Y), Gaussian(), fit_intercept=False, shared_noise=True)
    return _largest(found.W, W), np.array_equal(found.row_variances > 0, W.any(axis=1)), found.noise[0] / noise


def _largest(found, W):
    truth = np.flatnonzero(W.any(axis=1))
    return set(np.argsort(-np.linalg.norm(found, axis=1))[: len(truth)]) == set(truth)


def test_every_row_of_25_and_of_35_is_found():
    results = {n_rows: [integrated(seed, n_rows) for seed in range(12)] for n_rows in (25, 35)}
    largest = {n_rows: np.mean([result[0] for result in found]) for n_rows, found in results.items()}
    assert largest[25] == 1.0 and largest[35] >= 0.95
    assert np.mean([result[1] for found in results.values() for result in found]) >= 0.8
    assert 0.9 < np.median([result[2] for found in results.values() for result in found]) < 1.1


def test_the_mixed_norm_fails_there():
    found = []
    for seed in range(3):
        A, Y, W, _ = measure(seed, 35)
        strengths = np.geomspace(0.3, 0.003, 8) * np.linalg.norm(A.T @ Y, axis=1).max() / len(A)
        fits = [MixedNormRegressor(penalty_strength=s, fit_intercept=False, tol=1e-4).fit(A, Y) for s in strengths]
        found.append(any(_largest(fit.coef_.T, W) for fit in fits))
    assert not any(found)


@pytest.mark.slow
def test_every_row_over_many_data_sets():
    for n_rows, least in ((25, 1.0), (35, 0.95)):
        assert np.mean([integrated(seed, n_rows)[0] for seed in range(100, 200)]) >= least
