"""A family that a user writes in one file works in every route that it offers enough for: here Poisson counts.

The package knows nothing of it. Its loss is smooth without a bound on its curvature, it has no conditionally normal form,
and its targets are counts.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from numba import njit
from scipy.special import gammaln, xlogy
from scipy.stats import poisson

import bayesmtfs as bm
from bayesmtfs.families import Family


@njit(cache=True)
def loss_and_slope(y, eta):
    rate = np.exp(eta)
    return rate - y * eta, rate - y


class Poisson(Family):
    """Counts whose logarithmic rate is the linear predictor: ``exp(eta) - y eta``."""

    name = "poisson of a user"
    targets = "counts"
    slope = staticmethod(loss_and_slope)

    def value(self, y, eta):
        return np.exp(eta) - y * eta

    def gradient(self, y, eta):
        return np.exp(eta) - y

    def curvature(self, y, eta):
        return np.exp(eta) + 0.0 * y

    def conjugate(self, y, dual):
        rate = np.maximum(y + dual, 0.0)
        return np.where(y + dual < 0.0, np.inf, xlogy(rate, rate) - rate)

    def mean(self, eta):
        return np.exp(eta)

    def log_density(self, y, eta, noise=1.0):
        return y * eta - np.exp(eta) - gammaln(y + 1.0)

    def draw(self, rng, eta, noise=1.0):
        return rng.poisson(np.exp(eta)).astype(np.float64)

    def pymc_dist(self, eta, noise, **options):
        return pm.Poisson.dist(pm.math.exp(eta), **options)


class OnlyALoss(Family):
    """What a route cannot use."""

    name = "only a loss"

    def value(self, y, eta):
        return np.cosh(y - eta)

    def gradient(self, y, eta):
        return np.sinh(eta - y)


@pytest.fixture(scope="module")
def counts():
    """Three tasks of unequal sizes and levels; features 1 and 4 of 8 matter."""
    rng = np.random.default_rng(4)
    tasks = np.repeat(["a", "b", "c"], [40, 60, 90])
    X = rng.normal(size=(190, 8))
    W = np.zeros((8, 3))
    W[1], W[4] = [0.5, 0.7, 0.6], [-0.6, -0.4, -0.5]
    level = np.array([0.3, 1.0, 0.6])
    task = np.searchsorted(["a", "b", "c"], tasks)
    y = rng.poisson(np.exp(np.einsum("ij,ji->i", X, W[:, task]) + level[task])).astype(float)
    return X, y, tasks, task


def by_cvxpy(X, y, task, strength):
    W, b = cp.Variable((X.shape[1], 3)), cp.Variable(3)
    loss = 0.0
    for t in range(3):
        eta = X[task == t] @ W[:, t] + b[t]
        loss += (cp.sum(cp.exp(eta)) - y[task == t] @ eta) / np.sum(task == t)
    problem = cp.Problem(cp.Minimize(loss + strength * cp.sum(cp.norm(W, 2, axis=1))))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem.value, W.value


@pytest.mark.parametrize("strength", [0.5, 0.1, 0.01])
def test_the_convex_route_is_certified_and_right(counts, strength):
    X, y, tasks, task = counts
    model = bm.MixedNormRegressor(loss=Poisson(), penalty_strength=strength, tol=1e-8).fit(X, y, tasks=tasks)
    objective, W = by_cvxpy(X, y, task, strength)
    assert model.converged_
    assert -1e-6 < model.objective_ - objective <= model.dual_gap_ + 1e-6
    np.testing.assert_allclose(model.coef_.T, W, atol=1e-4)


def test_nothing_is_selected_at_the_largest_penalty(counts):
    X, y, tasks, _ = counts
    path = bm.mixed_norm_path(X, y, tasks=tasks, loss=Poisson(), n_penalties=5, penalty_ratio=0.01)
    assert not path.coefs[0].any()
    assert path.coefs[-1].any(axis=0).sum() >= 2
    just_below = bm.mixed_norm_path(X, y, tasks=tasks, loss=Poisson(), penalties=[0.99 * path.penalties[0]])
    assert just_below.coefs.any()


def test_cross_validation_finds_the_features(counts):
    X, y, tasks, _ = counts
    model = bm.MixedNormRegressorCV(loss=Poisson(), n_penalties=10, cv=3, random_state=0)
    model.fit(X, y, tasks=tasks)
    assert model.get_support()[[1, 4]].all()


@pytest.mark.parametrize("estimator", [bm.GeneralizedNormalRegressor, bm.JeffreysRegressor])
def test_mm_and_em_find_the_features(counts, estimator):
    X, y, tasks, _ = counts
    model = estimator(loss=Poisson()).fit(X, y, tasks=tasks)
    assert model.get_support().tolist() == [False, True, False, False, True, False, False, False]
    trace = model.objective_trace_
    assert np.all(np.diff(trace) <= 1e-8 * np.abs(trace[:-1]))


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")  # a short run
def test_nuts_agrees_with_the_mode_where_the_data_speak(counts):
    X, y, tasks, _ = counts
    model = bm.BayesianRegressor(loss=Poisson(), draws=300, tune=300, chains=2, random_state=0, progress=False)
    model.fit(X, y, tasks=tasks)
    mode = bm.GeneralizedNormalRegressor(loss=Poisson()).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.coef_[:, [1, 4]], mode.coef_[:, [1, 4]], atol=0.2)
    assert (model.inclusion_probability_[[1, 4]] > 0.95).all()
    assert np.all(model.predict(X, tasks=tasks) > 0)
    drawn = model.posterior_["posterior_predictive"]["y"].values
    assert np.all(drawn == np.round(drawn))
    assert drawn.mean() == pytest.approx(y.mean(), rel=0.1)


def test_a_stream_comes_near_the_batch_fit(counts):
    X, y, tasks, _ = counts
    batch = bm.MixedNormRegressor(loss=Poisson(), penalty_strength=0.05).fit(X, y, tasks=tasks)
    stream = bm.OnlineMixedNormRegressor(loss=Poisson(), penalty_strength=0.05, epochs=100, random_state=0)
    stream.fit(X, y, tasks=tasks)
    assert np.abs(stream.coef_ - batch.coef_).max() < 0.2
    stream.partial_fit(X[:3], y[:3], tasks=tasks[:3])
    assert np.isfinite(stream.coef_).all()


def test_predictions_are_means_and_the_score_is_of_their_deviance(counts, tmp_path, monkeypatch):
    X, y, tasks, task = counts
    model = bm.MixedNormRegressor(loss=Poisson(), penalty_strength=0.02).fit(X, y, tasks=tasks)
    eta = np.einsum("ij,ij->i", X, model.coef_[task]) + model.intercept_[task]
    np.testing.assert_allclose(model.predict(X, tasks=tasks), np.exp(eta))
    noise_only = bm.MixedNormRegressor(loss=Poisson(), penalty_strength=10.0).fit(X, y, tasks=tasks)
    assert noise_only.score(X, y, tasks=tasks) < 0.2 < model.score(X, y, tasks=tasks) < 1.0
    with pytest.raises(ValueError, match=r"call bm\.families\.register"):
        model.save(tmp_path / "model")
    monkeypatch.setattr(bm.families.family, "_KNOWN", dict(bm.families.family._KNOWN))  # for this test alone
    bm.families.register(Poisson())
    model.save(tmp_path / "model")
    again = bm.load(tmp_path / "model")
    assert again.loss in (Poisson(), Poisson.name)
    np.testing.assert_array_equal(again.predict(X, tasks=tasks), model.predict(X, tasks=tasks))


def test_plots_show_its_fits(counts):
    X, y, tasks, _ = counts
    model = bm.MixedNormRegressor(loss=Poisson(), penalty_strength=0.02).fit(X, y, tasks=tasks)
    for plot in (bm.plots.row_norms, bm.plots.coefficient_heatmap):
        plot(model)
        plt.close("all")


def test_its_density_is_that_of_scipy():
    y, eta = np.array([0.0, 3.0, 7.0]), np.array([-1.0, 0.5, 2.0])
    np.testing.assert_allclose(Poisson().log_density(y, eta), poisson.logpmf(y, np.exp(eta)))
    np.testing.assert_allclose(pm.logp(Poisson().pymc_dist(eta, 1.0), y).eval(), poisson.logpmf(y, np.exp(eta)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            bm.BayesianRegressor(loss=OnlyALoss(), sampler="nuts"),
            "NUTS needs a log-density and a PyMC term; OnlyALoss offers value, gradient",
        ),
        (bm.BayesianRegressor(loss=Poisson(), sampler="gibbs"), "needs a conditionally normal form; Poisson offers"),
        (bm.JeffreysRegressor(loss=Poisson(), coefficients="integrated"), "needs a conditionally normal form"),
        (bm.JeffreysRegressor(loss=OnlyALoss()), "needs curvature"),
        (bm.OnlineMixedNormRegressor(loss=OnlyALoss()), "needs a compiled slope; OnlyALoss offers value, gradient"),
    ],
)
def test_a_route_names_what_it_needs(counts, model, message):
    X, y, tasks, _ = counts
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, tasks=tasks)


def test_counts_are_checked(counts):
    X, y, tasks, _ = counts
    with pytest.raises(ValueError, match=r"whole numbers"):
        bm.MixedNormRegressor(loss=Poisson()).fit(X, y + 0.5, tasks=tasks)
