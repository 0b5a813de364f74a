"""Posteriors of survival: the term beside the family, the mode beside the penalised fit, draws beside statsmodels."""

import warnings

import numpy as np
import pymc as pm
import pytest
from statsmodels.duration.hazard_regression import PHReg

import bayesmtfs as bm
from bayesmtfs.data.survival import read_survival
from bayesmtfs.families import Cox, with_offset
from bayesmtfs.types import PosteriorWarning

PLAIN = {"tune": 500, "draws": 400, "chains": 2, "random_state": 0}


def simulate(n=150, p=4, n_tasks=2, ties=False, seed=0, coef=None):
    """Rows, times with events (some 40% censored), and tasks."""
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(n, p)), np.arange(n) % n_tasks
    coef = np.tile([0.8, -0.8, *np.zeros(p - 2)], (n_tasks, 1)) if coef is None else coef
    time = rng.exponential(np.exp(-np.sum(X * coef[tasks], axis=1)))
    stop = rng.exponential(1.5, n)
    seen = np.minimum(time, stop)
    seen = np.ceil(6 * seen) if ties else seen
    return X, np.array(list(zip(time <= stop, seen, strict=True)), dtype=[("event", bool), ("time", float)]), tasks


def read(X, y, tasks, **known):
    return bm.TaskData.from_long(X, read_survival(y, len(X)), tasks, **known)


@pytest.mark.parametrize("ties", [False, True])
def test_the_pymc_term_is_the_partial_likelihood(ties):
    X, y, tasks = simulate(ties=ties, n_tasks=3)
    rng = np.random.default_rng(1)
    data = read(X, y, tasks, sample_weight=rng.uniform(0.5, 2.0, len(X)))
    rows = Cox().on(data.y, data.weight, data.offsets)
    for eta in (np.zeros(len(X)), rng.normal(size=len(X)), 20.0 * rng.normal(size=len(X))):
        found = pm.logp(rows.pymc_dist(eta, 1.0, shape=(len(X),)), data.y).eval(mode="FAST_COMPILE")
        np.testing.assert_allclose(found, -rows.value(data.y, eta), rtol=1e-10, atol=1e-10)


def test_the_slope_of_the_model_is_that_of_the_family():
    X, y, tasks = simulate(ties=True)
    offset = np.random.default_rng(2).normal(size=len(X))
    data = read(X, y, tasks, offset=offset)
    model = bm.models.mixed_norm_model(data, 1.0, loss="cox", loss_scale="sum", fit_intercept=False)
    slope = model.compile_dlogp(vars=[model["coef"]])
    W = np.random.default_rng(3).normal(size=(X.shape[1], 2))
    family = with_offset(Cox().on(data.y, data.weight, data.offsets), data.eta_offset)
    theta = data.weight * family.gradient(data.y, data.linear_predictor(W, np.zeros(2)))
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    np.testing.assert_allclose(slope({"coef": W}).reshape(W.shape), -data.adjoint(theta) - W / norms, rtol=1e-8)


def test_the_penalised_fit_is_the_mode_of_the_model():
    X, y, tasks = simulate(ties=True)
    fit = bm.MixedNormSurvival(penalty_strength=2.0, loss_scale="sum", tol=1e-10).fit(X, y, tasks=tasks)
    data = read(X, y, tasks)
    model = bm.models.mixed_norm_model(data, 2.0, loss="cox", loss_scale="sum", fit_intercept=False)
    value, rng = model.compile_logp(), np.random.default_rng(4)
    best = float(value({"coef": fit.coef_.T}))
    for size in (1e-3, 1e-2, 0.1):
        for _ in range(20):
            moved = fit.coef_.T + size * rng.normal(size=fit.coef_.T.shape)
            assert float(value({"coef": moved})) < best
    other = np.zeros_like(fit.coef_.T)
    family = Cox().on(data.y, data.weight, data.offsets)
    loss = data.weight @ family.value(data.y, np.zeros(len(X)))
    assert best - float(value({"coef": other})) == pytest.approx(loss - fit.objective_, rel=1e-8)


@pytest.fixture(scope="module")
def fitted():
    X, y, tasks = simulate(n=300)
    X[:, 3] = 60.0 + 10.0 * X[:, 3]  # an age, whose level must not matter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # scales of rows that are out mix slowly
        return X, y, tasks, bm.BayesianSurvival(**PLAIN).fit(X, y, tasks=tasks)


def test_draws_agree_with_statsmodels(fitted):
    X, y, tasks, model = fitted
    assert model.prior_ == "generalized_normal" and model.posterior_.attrs["sampler"] == "nuts"
    for t in (0, 1):
        own = tasks == t
        peer = PHReg(y["time"][own], X[own], status=y["event"][own], ties="efron").fit()
        np.testing.assert_array_less(np.abs(model.coef_[t, :2] - peer.params[:2]), 1.2 * peer.bse[:2])
        assert np.all(model.coef_std_[t, :2] < 1.25 * peer.bse[:2])
        assert abs(model.coef_[t, 3]) < 2.0 * peer.bse[3]
    assert model.inclusion_probability_[:2].min() > 0.99
    assert not model.intercept_.any()
    penalised = bm.MixedNormSurvival(penalty_strength=0.0, tol=1e-5).fit(X, y, tasks=tasks)
    assert model.score(X, y, tasks=tasks) == pytest.approx(penalised.score(X, y, tasks=tasks), abs=0.02)


def test_survival_functions_are_averages_over_draws_with_intervals(fitted, tmp_path):
    X, y, tasks, model = fitted
    mean, low, high = model.predict_survival_function(X[:20], tasks=tasks[:20], interval=0.89)
    assert mean.shape == (20, len(model.event_times_)) and np.all(low <= high)
    assert np.mean((low <= mean) & (mean <= high)) > 0.95  # where hardly anyone is left the mean is in the tail
    assert np.all(np.diff(mean, axis=1) <= 0) and np.all(np.diff(model.cumulative_baseline_hazard_, axis=1) >= 0)
    # The exact curve of a row is exp(-t e^eta): most of it lies within the intervals
    eta = 0.8 * X[:20, 0] - 0.8 * X[:20, 1]
    exact = np.exp(-model.event_times_ * np.exp(eta)[:, np.newaxis])
    assert np.mean((low <= exact) & (exact <= high)) > 0.7
    plug_in = bm.MixedNormSurvival(penalty_strength=0.0, tol=1e-5).fit(X, y, tasks=tasks)
    gap = mean - plug_in.predict_survival_function(X[:20], tasks=tasks[:20])
    assert np.mean(np.abs(gap)) < 0.05
    model.save(tmp_path / "model")
    back = bm.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_survival_function(X[:20], tasks=tasks[:20]), mean)
    bm.report(model, tmp_path / "report.html")
    effects = bm.selection.effects(model, X, y, tasks=tasks)
    assert effects is not None
    with pytest.raises(ValueError, match="use score, the concordance"):
        bm.compare([bm.MixedNormSurvival(), model], X, y, tasks=tasks)


def test_what_a_partial_likelihood_does_not_have_is_refused():
    X, y, tasks = simulate(n=40)
    for parameters, words in (
        ({"prior": "spike"}, "prior is 'spike'"),
        ({"sampler": "gibbs"}, "'auto' or 'nuts'"),
        ({"fit_intercept": True}, "baseline hazard takes its place"),
        ({"loss": "squared"}, "use 'cox'"),
    ):
        with pytest.raises(ValueError, match=words):
            bm.BayesianSurvival(**parameters).fit(X, y, tasks=tasks)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
def test_intervals_cover_coefficients_and_baselines_that_come_from_the_prior():
    inside, hazards, rng = [], [], np.random.default_rng(7)
    for seed in range(3):
        n_tasks, p, scale = 12, 8, 0.5
        rho = scale * np.sqrt(rng.gamma(1.0, size=p) / rng.gamma(1.0, size=p))
        coef = rng.normal(size=(n_tasks, p)) * rho / np.sqrt(2.0)
        X, y, tasks = simulate(80 * n_tasks, p, n_tasks, seed=100 + seed, coef=coef)
        model = bm.BayesianSurvival(
            global_scale=scale, learn_global_scale=False, tail_shape=1.0, spike_shape=1.0, **PLAIN
        ).fit(X, y, tasks=tasks)
        draws = model.posterior_["posterior"]["coef"].values.reshape(-1, p, n_tasks)
        low, high = np.quantile(draws, [0.055, 0.945], axis=0)
        inside.append((low.T <= coef) & (coef <= high.T))
        at = np.searchsorted(model.event_times_, [0.3, 0.6, 1.0]) - 1  # the baseline hazard is 1
        drawn = model._baseline_draws[:, :, at]
        low, high = np.quantile(drawn, [0.055, 0.945], axis=0)
        hazards.append((low <= model.event_times_[at]) & (model.event_times_[at] <= high))
    assert np.mean(inside) == pytest.approx(0.89, abs=0.05)
    assert np.mean(hazards) == pytest.approx(0.89, abs=0.09)
