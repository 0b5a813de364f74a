"""Joint compressed sensing: exact supports from fewer measurements than unknowns, at 30 dB.

The problem of Zhang, Yeung and Xu (2010), section 7: Y = A W + noise with a common row support.
"""

import numpy as np
import pytest

from bayesmtfs import MixedNormRegressor


def measure(seed, n_rows, n=50, p=200, m=5, decibel=30):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, p))
    A /= np.linalg.norm(A, axis=0)
    W = np.zeros((p, m))
    W[rng.choice(p, n_rows, replace=False)] = rng.standard_normal((n_rows, m))
    signal, noise = A @ W, rng.standard_normal((n, m))
    noise *= np.linalg.norm(signal) / np.linalg.norm(noise) * 10 ** (-decibel / 20)
    return A, signal + noise, W


def fit(A, Y, reference, **options):
    strength = 0.05 * np.linalg.norm(reference.T @ Y, axis=1).max() / len(A)
    return MixedNormRegressor(fit_intercept=False, penalty_strength=strength, **options).fit(A, Y)


@pytest.mark.filterwarnings("ignore:deviations within tasks differ")  # the second fit weights its columns
@pytest.mark.parametrize("n_rows", [10, 15])
@pytest.mark.parametrize("seed", range(100, 106))
def test_exact_support(seed, n_rows):
    A, Y, W = measure(seed, n_rows)
    truth = W.any(axis=1)
    first = fit(A, Y, A)
    assert first.converged_ and first.get_support()[truth].all()
    length = np.linalg.norm(first.coef_, axis=0)
    assert set(np.argsort(-length)[:n_rows]) == set(np.flatnonzero(truth))
    second = fit(A * length, Y, A, refit=True)
    np.testing.assert_array_equal(second.get_support(), truth)
    # least squares on the true rows alone: the best that anybody could do
    oracle = np.zeros_like(W)
    oracle[truth] = np.linalg.lstsq(A[:, truth], Y)[0]
    np.testing.assert_allclose((second.coef_ * length).T, oracle, atol=1e-8)


def test_tasks_apart_need_more_measurements():
    missed = {1: 0, 2: 0}
    for seed in range(100, 104):
        A, Y, W = measure(seed, n_rows=15)
        for norm_q in missed:
            lengths = np.linalg.norm(fit(A, Y, A, norm_q=norm_q).coef_, axis=0)
            missed[norm_q] += len(set(np.flatnonzero(W.any(axis=1))) - set(np.argsort(-lengths)[:15]))
    assert missed[2] == 0 < missed[1]
