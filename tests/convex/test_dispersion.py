"""Penalised counts whose dispersion is learned: against statsmodels, and certified at the last dispersion."""

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.families import NegativeBinomial


def counts(seed=0, m=3, n=150, p=5):
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(m * n, p)), np.repeat(np.arange(m), n)
    W = 0.4 * rng.normal(size=(p, m))
    W[2:] = 0.0
    mean = np.exp(1.0 + np.einsum("ij,ji->i", X, W[:, tasks]))
    alpha = np.array([0.3, 0.8, 2.0])[:m][tasks]
    return X, rng.poisson(mean * rng.gamma(1.0 / alpha, alpha)).astype(float), tasks


def test_one_task_without_penalty_is_that_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    X, y, _ = counts(m=1)
    model = bm.MixedNormRegressor(loss="negative_binomial(learn)", penalty_strength=0.0, tol=1e-9).fit(X, y)
    wanted = sm.NegativeBinomial(y, sm.add_constant(X)).fit(disp=0, gtol=1e-6, maxiter=500).params
    np.testing.assert_allclose(model.coef_[0], wanted[1:-1], atol=1e-5)
    assert model.intercept_[0] == pytest.approx(wanted[0], abs=1e-5)
    assert model.dispersion_[0] == pytest.approx(wanted[-1], abs=1e-5)


def test_fit_is_that_of_the_last_dispersion_which_is_the_best_one():
    X, y, tasks = counts(1)
    model = bm.MixedNormRegressor(loss="negative_binomial(learn)", penalty_strength=0.02, tol=1e-9)
    model.fit(X, y, tasks=tasks)
    assert model.converged_ and model.dual_gap_ >= 0.0 and model.dispersion_.shape == (3,)
    eta = np.einsum("ij,ij->i", X, model.coef_[tasks]) + model.intercept_[tasks]
    for t in range(3):
        own = tasks == t
        at = [
            NegativeBinomial(model.dispersion_[t] * factor).log_density(y[own], eta[own]).sum()
            for factor in (0.98, 1.0, 1.02)
        ]
        assert at[1] > max(at[0], at[2])
    one = tasks == 1  # with one task and its dispersion given, the same fit
    fixed = [
        bm.MixedNormRegressor(loss=loss, penalty_strength=0.05, tol=1e-10).fit(X[one], y[one])
        for loss in ("negative_binomial(learn)",)
    ][0]
    given = bm.MixedNormRegressor(loss=NegativeBinomial(fixed.dispersion_[0]), penalty_strength=0.05, tol=1e-10)
    np.testing.assert_allclose(fixed.coef_, given.fit(X[one], y[one]).coef_, atol=1e-5)


def test_a_path_holds_the_dispersion():
    X, y, tasks = counts(2)
    path = bm.mixed_norm_path(X, y, tasks=tasks, loss="negative_binomial(learn)", n_penalties=5, penalty_ratio=0.05)
    assert path.converged.all() and path.n_selected[0] == 0 and path.n_selected[-1] >= 2


def test_a_file_keeps_the_dispersion(tmp_path):
    X, y, tasks = counts(3, n=40)
    model = bm.MixedNormRegressor(loss="negative_binomial(learn)").fit(X, y, tasks=tasks)
    model.save(tmp_path / "counts.bm")
    np.testing.assert_array_equal(bm.load(tmp_path / "counts.bm").dispersion_, model.dispersion_)
