"""Majorisation-minimisation of Student's t, and of counts whose dispersion is learned."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize, minimize_scalar

import bayesmtfs as bm
from bayesmtfs.convex.problem import Problem
from bayesmtfs.em import mm
from bayesmtfs.families import Huber, StudentT, find_family, with_offset
from bayesmtfs.priors.row_penalty import RowPenalty


def regression(seed=0, m=3, n=60, p=6):
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(m * n, p)), np.repeat(np.arange(m), n)
    W = np.zeros((p, m))
    W[:2] = rng.normal(size=(2, m))
    return rng, X, tasks, np.einsum("ij,ji->i", X, W[:, tasks])


def test_weighted_squares_touch_the_loss_and_lie_above_it():
    rng = np.random.default_rng(0)
    for family in (StudentT(1.5), StudentT(8.0), Huber(1.0)):
        at, residual, noise = rng.normal(size=20), 4.0 * rng.normal(size=(50, 20)), 0.6
        weight, zero = family.weights(at, noise), np.zeros(20)
        above = weight * (residual**2 - at**2) / (2 * noise**2)
        change = family.value(residual / noise, zero) - family.value(at / noise, zero)
        assert np.all(above >= change - 1e-12)
        np.testing.assert_allclose(weight * at / noise, -family.gradient(at / noise, zero), rtol=1e-12)


def test_best_noise_and_constant_are_those_of_scipy():
    y, weight = np.random.default_rng(1).standard_t(3, 80) * 2.0, np.random.default_rng(2).uniform(0.5, 2.0, 80)
    family = StudentT(3.0)
    loss = lambda at: -weight @ stats.t.logpdf(y, 3.0, 0.0, np.exp(at[0]))  # noqa: E731
    wanted = np.exp(minimize(loss, [0.0], tol=1e-12).x[0])
    assert family.best_noise(y, weight) == pytest.approx(wanted, rel=1e-5)
    centred = minimize(lambda at: weight @ family.value(y, np.full(80, at[0])), [0.0], tol=1e-12).x[0]
    assert family.best_constant(y, weight) == pytest.approx(centred, abs=1e-5)


def test_student_t_without_a_prior_is_the_largest_likelihood():
    """With a huge offset the prior is flat; one task, against SciPy's minimiser of the same likelihood."""
    rng, X, tasks, eta = regression(m=1)
    y = eta + 0.5 * rng.standard_t(2, len(eta))
    model = bm.GeneralizedNormalRegressor(loss="student_t(2)", offset=1e9, tol=1e-11, max_iter=300).fit(X, y)

    def loss(at):
        return -stats.t.logpdf(y, 2.0, X @ at[:-2] + at[-2], np.exp(at[-1])).sum()

    start = np.append(np.linalg.lstsq(np.c_[X, np.ones(len(y))], y)[0], 0.0)
    wanted = minimize(loss, start, tol=1e-12).x
    np.testing.assert_allclose(model.coef_[0], wanted[:-2], atol=2e-4)
    assert model.intercept_[0] == pytest.approx(wanted[-2], abs=2e-4)
    assert model.noise_[0] == pytest.approx(np.exp(wanted[-1]), rel=1e-3)


def test_learned_degrees_without_a_prior_are_those_of_the_largest_likelihood(tmp_path):
    """Two tasks with coefficients of their own; noise and degrees are one for all."""
    rng = np.random.default_rng(8)
    X, tasks = rng.normal(size=(400, 2)), np.repeat([0, 1], (250, 150))
    y = np.where(tasks == 0, X[:, 0], 1.0 - X[:, 1]) + 0.5 * rng.standard_t(2.5, 400)
    model = bm.GeneralizedNormalRegressor(loss="student_t(learn)", offset=1e9, tol=1e-11, max_iter=500)
    model.fit(X, y, tasks=tasks)

    def loss(at):
        eta = [X[tasks == t] @ at[3 * t : 3 * t + 2] + at[3 * t + 2] for t in (0, 1)]
        return -stats.t.logpdf(y, np.exp(at[7]), np.concatenate(eta), np.exp(at[6])).sum()

    found = np.column_stack([model.coef_, model.intercept_]).ravel()
    wanted = minimize(loss, np.append(found, [-0.5, 1.0]), tol=1e-10).x
    np.testing.assert_allclose(found, wanted[:6], atol=2e-4)
    assert model.noise_[0] == pytest.approx(np.exp(wanted[6]), rel=2e-3)
    assert model.degrees_ == pytest.approx(np.exp(wanted[7]), rel=5e-3) and not hasattr(model, "dispersion_")
    assert np.all(np.diff(model.objective_trace_) <= 1e-10 * np.abs(model.objective_trace_[0]))
    model.save(tmp_path / "t.bm")
    assert bm.load(tmp_path / "t.bm").degrees_ == model.degrees_


def test_huber_without_a_prior_is_the_largest_likelihood():
    """Huber's proposal for the scale is another one; here both come from the density."""
    rng, X, tasks, eta = regression(m=1)
    y = eta + 0.5 * rng.standard_t(2, len(eta))
    model = bm.GeneralizedNormalRegressor(loss="huber", offset=1e9, tol=1e-11, max_iter=300).fit(X, y)
    family = find_family("huber")

    def loss(at):
        return -family.log_density(y, X @ at[:-2] + at[-2], np.exp(at[-1])).sum()

    wanted = minimize(loss, np.append(np.linalg.lstsq(np.c_[X, np.ones(len(y))], y)[0], 0.0), tol=1e-12).x
    np.testing.assert_allclose(model.coef_[0], wanted[:-2], atol=2e-4)
    assert model.intercept_[0] == pytest.approx(wanted[-2], abs=2e-4)
    assert model.noise_[0] == pytest.approx(np.exp(wanted[-1]), rel=1e-3)
    assert family.best_noise(y - model.predict(X), np.ones(len(y))) == pytest.approx(model.noise_[0], rel=1e-3)


@pytest.mark.parametrize("loss", ["huber", "student_t(3)", "student_t(learn)", "negative_binomial(learn)"])
def test_objective_is_the_stated_one_and_never_rises(loss):
    rng, X, tasks, eta = regression(1)
    y = eta + 0.4 * rng.standard_t(3, len(eta))
    counts = loss == "negative_binomial(learn)"
    if counts:
        y = rng.poisson(np.exp(0.5 + 0.5 * eta) * rng.gamma(2.0, 0.5, len(eta))).astype(float)
    data = bm.TaskData.from_long(X, y, tasks)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, 2.0), data.weight)
    start = bm.MixedNormRegressor(loss="poisson" if counts else "huber").fit(X, y, tasks=tasks)
    begin = mm.Solution(start.coef_.T, start.intercept_, np.nan, np.nan, np.nan, True, 0, np.empty(0))
    noise = 1.0 if counts else None
    found, state = mm.solve_state(problem, begin, mm.MMSettings(2.0, 0.01, noise))
    trace = found.objective_trace
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1])) and found.converged
    at = data.linear_predictor(found.W, found.intercept)
    prior = 3 * np.sum(np.log(np.linalg.norm(found.W, axis=1) + 0.01))
    if loss == "huber":
        family, scaled = find_family(loss), (data.y - at) / found.noise[0]
        wanted = np.sum(family.value(scaled, np.zeros(len(y)))) + len(y) * np.log(found.noise[0])
    elif loss == "student_t(learn)":
        wanted = -np.sum(stats.t.logpdf(data.y, state.parameters[0], at, found.noise[0]))
    elif noise is None:
        wanted = -np.sum(stats.t.logpdf(data.y, 3.0, at, found.noise[0])) + len(y) * stats.t.logpdf(0.0, 3.0)
    else:
        r = 1.0 / state.parameters[data.task]
        wanted = -np.sum(stats.nbinom.logpmf(data.y, r, r / (r + np.exp(at))))
    assert trace[-1] == pytest.approx(wanted + prior, rel=1e-9)


def test_outliers_move_student_t_less_than_squares():
    rng, X, tasks, eta = regression(2, m=4, n=40, p=20)
    y = eta + 0.3 * rng.normal(size=len(eta))
    out = rng.choice(len(y), len(y) // 10, replace=False)
    y[out] += 15.0 * rng.standard_normal(len(out))
    error = {}
    for loss in ("squared", "student_t(3)", "huber"):
        model = bm.GeneralizedNormalRegressor(loss=loss).fit(X, y, tasks=tasks)
        error[loss] = np.mean((model.predict(X, tasks=tasks) - eta) ** 2)
    assert error["student_t(3)"] < 0.2 * error["squared"] and error["huber"] < 0.5 * error["squared"]


@pytest.mark.parametrize("loss", ["student_t(3)", "huber"])
def test_more_features_than_rows_are_not_fitted_exactly(loss):
    """The scale is searched from above: small ones explain every row by features that do not matter."""
    rng, X, tasks, eta = regression(5, m=6, n=40, p=80)
    y = eta + 0.5 * rng.standard_t(3, len(eta))
    model = bm.GeneralizedNormalRegressor(loss=loss).fit(X, y, tasks=tasks)
    kept = np.flatnonzero(model.get_support())  # the first two matter
    assert set(kept[:1]) <= {0, 1} and 1 <= len(kept) <= 4 and model.noise_[0] > 0.3


def test_learned_dispersions_know_exposures():
    """Half of the rows of each task were watched ten times as long; the likelihood at the fit is SciPy's."""
    rng, X, tasks, eta = regression(4)
    exposure = np.where(np.arange(len(eta)) % 2, 10.0, 1.0)
    mean = exposure * np.exp(0.5 + 0.5 * eta)
    y = rng.poisson(mean * rng.gamma(2.0, 0.5, len(eta))).astype(float)  # dispersion 1/2
    loss = "negative_binomial(learn)"
    penalised = bm.MixedNormRegressor(loss=loss, penalty_strength=1e-4)
    for model in (penalised, bm.GeneralizedNormalRegressor(loss=loss, offset=1e3)):
        model.fit(X, y, tasks=tasks, exposure=exposure)
        fitted = model.predict(X, tasks=tasks, exposure=exposure)
        np.testing.assert_allclose(model.dispersion_, 0.5, atol=0.3)
        for t in range(3):
            own = tasks == t

            def minus(log_alpha, own=own, fitted=fitted):
                r = np.exp(-log_alpha)
                return -stats.nbinom.logpmf(y[own], r, r / (r + fitted[own])).sum()

            best = np.exp(minimize_scalar(minus, bounds=(-4.0, 3.0), method="bounded", options={"xatol": 1e-9}).x)
            assert model.dispersion_[t] == pytest.approx(best, rel=1e-3)
    data = bm.TaskData.from_long(X, y, tasks, exposure=exposure)
    known = with_offset(find_family(loss), data.eta_offset)
    assert known.learned == "dispersion" and known.given(np.ones(len(y))).of_rows(0, 5).base.alpha.shape == (5,)


def test_what_does_not_fit_is_refused_with_the_way_out():
    _, X, tasks, eta = regression(3, n=10)
    with pytest.raises(
        ValueError, match="not convex.*use loss='huber' here, or this loss in GeneralizedNormalRegressor"
    ):
        bm.MixedNormRegressor(loss="student_t").fit(X, eta, tasks=tasks)
    with pytest.raises(ValueError, match="not convex, but prior='mixed_norm' .*use prior='auto'"):
        bm.BayesianRegressor(loss="student_t", prior="mixed_norm").fit(X, eta, tasks=tasks)
    with pytest.raises(ValueError, match=r"JeffreysRegressor does not have loss='student_t'; use GeneralizedNormal"):
        bm.JeffreysRegressor(loss="student_t").fit(X, eta, tasks=tasks)
    with pytest.raises(ValueError, match="compiled slope"):
        bm.OnlineMixedNormRegressor(loss="student_t").fit(X, eta, tasks=tasks)
