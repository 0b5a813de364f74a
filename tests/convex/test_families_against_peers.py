"""Minima of every family of numbers and counts against cvxpy, and fits of one task without penalty against peers."""

import cvxpy as cp
import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.linear_model import PoissonRegressor, QuantileRegressor

import bayesmtfs as bm
from bayesmtfs.families import find_family

SIZES = (30, 20, 40)
LOSSES = {
    "poisson": lambda y, eta: cp.exp(eta) - cp.multiply(y, eta),
    "negative_binomial": lambda y, eta: cp.multiply(y + 1.0, cp.logistic(eta)) - cp.multiply(y, eta),
    "negative_binomial(0.5)": lambda y, eta: cp.multiply(y + 2.0, cp.logistic(eta + np.log(0.5))) - cp.multiply(y, eta),
    "huber": lambda y, eta: 0.5 * cp.huber(y - eta, 1.345),
    "huber(0.5)": lambda y, eta: 0.5 * cp.huber(y - eta, 0.5),
    "absolute": lambda y, eta: cp.abs(y - eta),
    "quantile": lambda y, eta: 0.5 * cp.abs(y - eta),
    "quantile(0.9)": lambda y, eta: cp.maximum(0.9 * (y - eta), -0.1 * (y - eta)),
}

FORMS = ["own", "shared", "weights", "offset", pytest.param("shared offset", marks=pytest.mark.slow)]


def draw(loss, shared=False, seed=0):
    """Three tasks over 8 features, of which two matter; heavy tails in numbers."""
    rng = np.random.default_rng(seed)
    W = np.zeros((8, 3))
    W[:2] = rng.normal(size=(2, 3))
    task = np.repeat(np.arange(3), SIZES)
    X = rng.normal(size=(30 if shared else len(task), 8))
    eta = X @ W + 0.5 if shared else np.einsum("ij,ji->i", X, W[:, task]) + 0.5
    counts = find_family(loss).targets == "counts"
    y = rng.poisson(np.exp(np.minimum(eta, 4.0))) if counts else eta + rng.standard_t(2, eta.shape)
    return X, y.astype(float), None if shared else task


def by_cvxpy(loss, X, y, task, strength, norm_q, weight, offset=0.0):
    W, b, value = cp.Variable((8, 3)), cp.Variable(3), 0.0
    known = np.broadcast_to(offset, y.shape)
    for t in range(3):
        own = slice(None) if task is None else task == t
        target = y[:, t] if task is None else y[own]
        c = np.ones(len(target)) if weight is None else weight[own]
        part = known[:, t] if task is None else known[own]
        value += (c / c.sum()) @ LOSSES[loss](target, X[own] @ W[:, t] + b[t] + part)
    norms = [cp.norm(W[i], float(norm_q)) for i in range(8)]
    problem = cp.Problem(cp.Minimize(value + strength * cp.sum(norms)))
    return problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of the peer, which stops short of 1e-9
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm_q", [1, 2, 4, np.inf])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_minimum_is_that_of_cvxpy(loss, norm_q, form):
    X, y, task = draw(loss, "shared" in form)
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, len(X)) if form == "weights" else None
    offset = rng.normal(size=y.shape) if "offset" in form else None
    model = bm.MixedNormRegressor(loss=loss, norm_q=norm_q, penalty_strength=0.1, tol=1e-7, max_iter=5000)
    model.fit(X, y, tasks=task, sample_weight=weight, offset=offset)
    assert model.converged_
    wanted = by_cvxpy(loss, X, y, task, 0.1, norm_q, weight, 0.0 if offset is None else offset)
    assert model.objective_ == pytest.approx(wanted, rel=1e-6, abs=1e-7)


def fit_one(loss, **options):
    """One task whose penalty is too weak to matter."""
    X, y, task = draw(loss)
    X, y = X[task == 2], y[task == 2]
    settings = {"penalty_strength": 1e-9, "tol": 1e-12, "max_iter": 100_000} | options
    model = bm.MixedNormRegressor(loss=loss, **settings)
    return X, y, model.fit(X, y)


def test_poisson_of_one_task_is_that_of_statsmodels_and_sklearn():
    X, y, model = fit_one("poisson")
    peer = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit(tol=1e-14)
    np.testing.assert_allclose(model.coef_[0], peer.params[1:], atol=1e-5)
    np.testing.assert_allclose(model.intercept_, peer.params[:1], atol=1e-5)
    other = PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], other.coef_, atol=1e-5)
    assert model.score(X, y) == pytest.approx(other.score(X, y), abs=1e-6)


@pytest.mark.parametrize("dispersion", [0.3, 2.0])
def test_negative_binomial_of_one_task_is_that_of_statsmodels(dispersion):
    X, y, model = fit_one(f"negative_binomial({dispersion})")
    law = sm.families.NegativeBinomial(alpha=dispersion)
    peer = sm.GLM(y, sm.add_constant(X), family=law).fit(tol=1e-14)
    np.testing.assert_allclose(model.coef_[0], peer.params[1:], atol=1e-5)
    np.testing.assert_allclose(model.intercept_, peer.params[:1], atol=1e-5)
    family, eta = find_family(model.loss), np.log(model.predict(X))
    assert family.deviance(y, eta, np.ones(len(y))) == pytest.approx(peer.deviance, rel=1e-6)


def test_huber_of_one_task_is_that_of_statsmodels():
    X, y, model = fit_one("huber")
    norm = sm.robust.norms.HuberT(1.345)
    peer = sm.RLM(y, sm.add_constant(X), M=norm)
    params = np.linalg.lstsq(peer.exog, y, rcond=None)[0]
    for _ in range(500):  # with the scale 1, which RLM would estimate
        weight = norm.weights(y - peer.exog @ params)
        params = np.linalg.lstsq(np.sqrt(weight)[:, None] * peer.exog, np.sqrt(weight) * y, rcond=None)[0]
    np.testing.assert_allclose(model.coef_[0], params[1:], atol=1e-5)


def test_quantile_of_one_task_is_that_of_sklearn():
    X, y, model = fit_one("quantile(0.9)", penalty_strength=1e-6, tol=1e-6)
    peer = QuantileRegressor(quantile=0.9, alpha=0.0).fit(X, y)
    loss = [find_family("quantile(0.9)").value(y, fit.predict(X)).mean() for fit in (model, peer)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-5)
    np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=1e-5)


def test_counts_of_any_size_are_solved_from_afar():
    """The first Newton step of a count model overshoots; the solver must come back without a warning."""
    rng = np.random.default_rng(2)
    X = 30.0 * rng.normal(size=(60, 5))
    y = rng.poisson(np.exp(np.clip(0.1 * X[:, 0] + 5.0, None, 15.0))).astype(float)
    model = bm.MixedNormRegressor(loss="poisson", penalty_strength=1e-3, max_iter=5000).fit(X, y)
    assert model.converged_ and np.isfinite(model.predict(1e4 * X)).all()


@pytest.mark.parametrize("loss", ["poisson", "negative_binomial(learn)"])
def test_a_task_without_any_event_has_rates_near_zero(loss):
    X, y, task = draw("poisson")
    y[task == 1] = 0.0
    model = bm.MixedNormRegressor(loss=loss).fit(X, y, tasks=task)
    none = task == 1
    assert model.converged_ and np.all(model.predict(X[none], tasks=task[none]) < 1e-6)
    assert model.score(X[none], y[none], tasks=task[none]) == 1.0  # as a perfect constant
    assert 0.1 < model.score(X, y, tasks=task) < 1.0
