"""Majorisation-minimisation of losses with kinks and of losses that rows share: problem (5), written out anew.

Absolute and quantile losses with a Laplace scale, the hinge, several classes, ordered classes with their cut points, and
Cox's partial likelihood: the objective is the stated one, it never rises, and SciPy's minimisers find no better point.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

import bayesmtfs as bm

TASKS, FEATURES, ROWS, OFFSET = 2, 3, 30, 0.3
LOSSES = ["absolute", "quantile(0.8)", "hinge", "multinomial", "ordinal", "cox"]
LAPLACE = LOSSES[:2]  # whose scale is learned


def rows(loss, seed=0):
    """Features of different sizes, correlated; the first one matters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(TASKS * ROWS, FEATURES)) + 0.7 * rng.normal(size=(TASKS * ROWS, 1))
    X *= [1.0, 1.5, 0.7]
    tasks = np.arange(TASKS * ROWS) % TASKS
    eta = X[:, 0] * np.array([1.2, -0.8])[tasks] + 0.3 * tasks
    if loss in LAPLACE:
        return X, eta + 0.6 * rng.standard_t(3, len(eta)), tasks
    if loss == "cox":
        time, died = rng.exponential(np.exp(-eta)), rng.random(len(eta)) < 0.7
        return X, np.array(list(zip(died, time, strict=True)), [("event", bool), ("time", float)]), tasks
    level = eta + 0.7 * rng.logistic(size=len(eta))
    return X, np.digitize(level, [0.0] if loss == "hinge" else [-0.7, 0.8]), tasks


def fitted(loss, norm_q=2, noise=None):
    kind = "Survival" if loss == "cox" else "Regressor" if loss in LAPLACE else "Classifier"
    settings = {"loss": loss, "norm_q": norm_q, "offset": OFFSET, "tol": 1e-10, "noise": noise}
    X, y, tasks = rows(loss)
    return getattr(bm, f"GeneralizedNormal{kind}")(**settings).fit(X, y, tasks=tasks), X, y, tasks


def data_loss(loss, X, y, tasks, W, b):
    """Sum of the losses; W (tasks, features) or (tasks, classes, features), b intercepts or cut points."""
    if loss == "multinomial":
        eta = np.einsum("ij,ikj->ik", X, W[tasks]) + b[tasks]
        return -log_softmax(eta, axis=1)[np.arange(len(y)), y].sum()
    eta = np.einsum("ij,ij->i", X, W[tasks])
    if loss == "ordinal":
        cuts = np.column_stack([np.full(TASKS, -np.inf), b, np.full(TASKS, np.inf)])[tasks]
        place = np.arange(len(y))
        return -np.log(np.maximum(expit(cuts[place, y + 1] - eta) - expit(cuts[place, y] - eta), 1e-300)).sum()
    if loss == "cox":  # without ties
        at_risk = (y["time"][np.newaxis] >= y["time"][:, np.newaxis]) & (tasks == tasks[:, np.newaxis])
        return np.sum((np.log(at_risk @ np.exp(eta)) - eta)[y["event"]])
    eta = eta + b[tasks]
    if loss == "hinge":
        return np.maximum(1.0 - (2.0 * y - 1.0) * eta, 0.0).sum()
    residual = y - eta
    if loss == "absolute":
        return np.abs(residual).sum()
    return np.where(residual > 0, 0.8 * residual, -0.2 * residual).sum()


def objective(loss, X, y, tasks, W, b, norm_q, noise, learned):
    """Problem (5); the noise is that of a Laplace density."""
    by_feature = np.moveaxis(W, -1, 0).reshape(FEATURES, -1)
    prior = by_feature.shape[1] * np.log(np.linalg.norm(by_feature, norm_q, axis=1) + OFFSET).sum()
    return data_loss(loss, X, y, tasks, W, b) / noise + prior + learned * len(X) * np.log(noise)


def levels_of(model, loss):
    return model.thresholds_ if loss == "ordinal" else model.intercept_


@pytest.mark.parametrize("norm_q", [1, 2, np.inf])
@pytest.mark.parametrize(
    ("loss", "noise"), [(loss, 1.0) for loss in LOSSES[2:]] + [(loss, s) for loss in LAPLACE for s in ("learn", 0.5)]
)
def test_the_objective_is_the_stated_one_and_never_rises(loss, norm_q, noise):
    model, X, y, tasks = fitted(loss, norm_q, noise)
    trace = model.objective_trace_
    assert np.all(np.diff(trace) <= 1e-9 * np.abs(trace[:-1])) and model.converged_
    learned = noise == "learn"
    wanted = objective(loss, X, y, tasks, model.coef_, levels_of(model, loss), norm_q, model.noise_[0], learned)
    assert trace[-1] == pytest.approx(wanted, rel=1e-6)
    if learned:  # the mean loss
        found = data_loss(loss, X, y, tasks, model.coef_, model.intercept_) / len(X)
        assert model.noise_[0] == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_scipy_finds_no_better_point(loss):
    """From the fit, from near it and from a small W; the noise of numbers is learned."""
    laplace = loss in LAPLACE
    model, X, y, tasks = fitted(loss, 2, "learn" if laplace else None)
    W, b = model.coef_, levels_of(model, loss)
    size = W.size

    def at(point):
        levels = point[size : size + b.size].reshape(b.shape)
        if loss == "ordinal":
            levels = np.column_stack([levels[:, 0], levels[:, 0] + np.exp(levels[:, 1])])
        noise = np.exp(point[-1]) if laplace else 1.0
        return objective(loss, X, y, tasks, point[:size].reshape(W.shape), levels, 2, noise, laplace)

    levels = np.column_stack([b[:, 0], np.log(np.diff(b)[:, 0])]) if loss == "ordinal" else b
    found = np.concatenate([W.ravel(), levels.ravel(), np.log(model.noise_[:1])])
    rng, best = np.random.default_rng(1), at(found)
    assert best == pytest.approx(model.objective_trace_[-1], rel=1e-6)
    for start in (found, found + 0.05 * rng.normal(size=found.size), np.append(0.1 * found[:-1], found[-1])):
        for method in ("BFGS", "Powell"):
            other = minimize(at, start, method=method, options={"maxiter": 2000}).fun
            assert best <= other + 2e-5 * abs(best)


@pytest.mark.parametrize("loss", ["absolute", "quantile(0.8)", "huber", "student_t(3)"])
def test_units_of_targets_and_features_do_not_matter(loss):
    X, y, tasks = rows("absolute", seed=5)
    settings = {"loss": loss, "offset": None, "noise_floor": 0.2, "tol": 1e-9}
    fit = bm.GeneralizedNormalRegressor(**settings).fit(X, y, tasks=tasks)
    other = bm.GeneralizedNormalRegressor(**settings).fit(X * 0.01, 1e4 * y - 300.0, tasks=tasks)
    np.testing.assert_allclose(other.coef_ * 1e-6, fit.coef_, atol=1e-3)
    assert other.noise_[0] == pytest.approx(1e4 * fit.noise_[0], rel=1e-3)


def test_most_rows_of_noise_are_left_out_and_those_that_matter_found():
    """More features than rows of a task; gross errors for the losses of residuals."""
    rng = np.random.default_rng(4)
    X, tasks = rng.normal(size=(240, 60)), np.arange(240) % 6
    eta = X[:, 0] * rng.choice([-1.5, 1.5], 6)[tasks] + X[:, 1] * rng.choice([-1.5, 1.5], 6)[tasks]
    y = eta + 0.4 * np.where(rng.random(240) < 0.1, 20.0, 1.0) * rng.normal(size=240)
    model = bm.GeneralizedNormalRegressor(loss="absolute").fit(X, y, tasks=tasks)
    assert model.get_support(indices=True).tolist() == [0, 1] and model.noise_[0] > 0.2
    time = rng.exponential(np.exp(-eta))
    survival = np.array(list(zip(time < np.quantile(time, 0.8), time, strict=True)), [("event", bool), ("time", float)])
    model = bm.GeneralizedNormalSurvival(offset=0.05).fit(X, survival, tasks=tasks)
    assert set(model.get_support(indices=True)[:2]) == {0, 1} and model.get_support().sum() <= 6
    assert model.predict_survival_function(X[:2], tasks=tasks[:2]).shape == (2, len(model.event_times_))


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("hinge", marks=pytest.mark.slow),
        "multinomial",
        "ordinal",
        pytest.param("cox", marks=pytest.mark.slow),
    ],
)
def test_weight_of_the_prior_is_chosen_by_folds_that_do_not_depend_on_the_order(loss, tmp_path):
    X, y, tasks = rows(loss, seed=3)
    kind = bm.GeneralizedNormalSurvival if loss == "cox" else bm.GeneralizedNormalClassifier
    model = kind(loss=loss).fit(X, y, tasks=tasks)
    order = np.random.default_rng(0).permutation(len(y))
    again = kind(loss=loss).fit(X[order], y[order], tasks=tasks[order])
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-3)
    assert again.offset_ == pytest.approx(model.offset_)
    assert model.get_support()[0]
    model.save(tmp_path / "fit.bm")
    np.testing.assert_array_equal(bm.load(tmp_path / "fit.bm").predict(X, tasks=tasks), model.predict(X, tasks=tasks))


def test_what_is_not_offered_is_refused_with_the_way_out():
    X, y, tasks = rows("absolute")
    with pytest.raises(ValueError, match="JeffreysRegressor needs a smooth loss.*; use GeneralizedNormalRegressor"):
        bm.JeffreysRegressor(loss="absolute").fit(X, y, tasks=tasks)
    with pytest.raises(ValueError, match="shared_mean=True does not go with loss='absolute'"):
        bm.GeneralizedNormalRegressor(loss="absolute", shared_mean=True).fit(X, y, tasks=tasks)
    X, y, tasks = rows("multinomial")
    with pytest.raises(ValueError, match="JeffreysClassifier does not have loss='multinomial'; use GeneralizedNorm"):
        bm.JeffreysClassifier(loss="multinomial").fit(X, y, tasks=tasks)
    with pytest.raises(ValueError, match="noise='learn' needs loss="):
        bm.GeneralizedNormalClassifier(loss="hinge", noise="learn").fit(X, y > 0, tasks=tasks)
