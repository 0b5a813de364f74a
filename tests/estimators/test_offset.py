"""Exposures and offsets: in every route, in every form of the data, against statsmodels, cvxpy and what they mean."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import bayesmtfs as bm
from bayesmtfs.families import Poisson, with_offset

N, P = 120, 4


@pytest.fixture(scope="module")
def counts():
    """Counts of two tasks over very different exposures."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(2 * N, P)), np.repeat(["a", "b"], N)
    exposure = rng.uniform(0.1, 20.0, 2 * N)
    y = rng.poisson(exposure * np.exp(0.4 * X[:, 0] - 0.5)).astype(float)
    return X, y, tasks, exposure


@pytest.mark.parametrize(
    ("loss", "family"),
    [
        ("poisson", sm.families.Poisson()),
        ("negative_binomial(0.5)", sm.families.NegativeBinomial(alpha=0.5)),
    ],
)
def test_unpenalised_counts_are_those_of_statsmodels_with_exposure(counts, loss, family):
    X, y, tasks, exposure = counts
    model = bm.MixedNormRegressor(loss=loss, penalty_strength=0, tol=1e-9).fit(X, y, tasks=tasks, exposure=exposure)
    for t, name in enumerate(("a", "b")):
        rows = tasks == name
        design = sm.add_constant(X[rows])
        peer = sm.GLM(y[rows], design, family=family, exposure=exposure[rows]).fit(tol=1e-13)
        np.testing.assert_allclose(model.coef_[t], peer.params[1:], atol=1e-5)
        assert model.intercept_[t] == pytest.approx(peer.params[0], abs=1e-5)
        predicted = model.predict(X[rows], tasks=tasks[rows], exposure=exposure[rows])
        np.testing.assert_allclose(predicted, peer.predict(design, exposure=exposure[rows]), rtol=1e-4)


@pytest.mark.parametrize("norm_q", [1, 2, 4, np.inf])
@pytest.mark.parametrize("loss", ["poisson", "negative_binomial(0.5)", "logistic", "hinge"])
def test_penalised_fits_with_offset_are_those_of_cvxpy(loss, norm_q):
    rng = np.random.default_rng(1)
    X, tasks, offset = rng.normal(size=(60, P)), np.repeat([0, 1], 30), rng.normal(size=60)
    weight = rng.uniform(0.5, 2.0, 60)
    eta = X[:, 0] + offset
    counts = loss not in ("logistic", "hinge")
    y = rng.poisson(np.exp(eta)) if counts else np.where(eta + rng.normal(size=60) > 0, 1, -1)
    face = bm.MixedNormRegressor if counts else bm.MixedNormClassifier
    model = face(loss=loss, norm_q=norm_q, penalty_strength=0.1, tol=1e-9)
    model.fit(X, y.astype(float), tasks=tasks, sample_weight=weight, offset=offset)
    W, b = cp.Variable((P, 2)), cp.Variable(2)
    total = 0
    for t in (0, 1):
        rows = tasks == t
        known = X[rows] @ W[:, t] + b[t] + offset[rows]
        losses = {
            "poisson": lambda e, rows=rows: cp.exp(e) - cp.multiply(y[rows], e),
            "negative_binomial(0.5)": lambda e, rows=rows: (
                cp.multiply(y[rows] + 2.0, cp.logistic(e + np.log(0.5))) - cp.multiply(y[rows], e)
            ),
            "logistic": lambda e, rows=rows: cp.logistic(-cp.multiply(y[rows], e)),
            "hinge": lambda e, rows=rows: cp.pos(1 - cp.multiply(y[rows], e)),
        }[loss](known)
        total += cp.sum(cp.multiply(weight[rows] / weight[rows].sum(), losses))
    objective = total + 0.1 * sum(cp.norm(W[i], norm_q) for i in range(P))
    exact = cp.Problem(cp.Minimize(objective)).solve(solver="CLARABEL")
    assert model.converged_ and model.objective_ == pytest.approx(exact, rel=1e-6)


def test_a_known_part_of_residuals_is_taken_off_the_targets():
    rng = np.random.default_rng(2)
    X, offset, tasks = rng.normal(size=(50, P)), rng.normal(size=50), np.repeat([0, 1], 25)
    y = X[:, 0] + 3.0 * offset + rng.normal(size=50)
    for loss in ("squared", "absolute", "huber", "quantile(0.7)"):
        kind = bm.MixedNormRegressor(loss=loss, penalty_strength=0.1)
        with_known = kind.fit(X, y, tasks=tasks, offset=3.0 * offset)
        predicted = with_known.predict(X, tasks=tasks, offset=3.0 * offset)
        without = kind.fit(X, y - 3.0 * offset, tasks=tasks)
        np.testing.assert_allclose(predicted, without.predict(X, tasks=tasks) + 3.0 * offset, atol=1e-10)


def test_forms_of_the_data_give_one_fit(counts):
    X, y, tasks, exposure = counts
    model = bm.MixedNormRegressor(loss="poisson", penalty_strength=0.3)
    long = model.fit(X, y, tasks=tasks, exposure=exposure).coef_
    frame = pd.DataFrame(X, columns=list("wxyz")).assign(years=exposure)
    shuffled = np.random.default_rng(3).permutation(2 * N)
    named = model.fit(frame.iloc[shuffled], y[shuffled], tasks=tasks[shuffled], exposure="years")
    np.testing.assert_allclose(named.coef_, long, atol=1e-9)
    assert named.get_feature_names_out()[0] == "w" and named.transform(frame)[0, 0] == X[0, 0]
    whole = frame.assign(deaths=y, region=tasks)
    data = bm.TaskData.from_frame(whole, "deaths", "region", exposure="years")
    np.testing.assert_allclose(model.fit(data).coef_, long, atol=1e-9)
    halves = [(X[tasks == name], y[tasks == name]) for name in ("a", "b")]
    parts = bm.TaskData.from_list(halves, ["a", "b"], exposure=[exposure[:N], exposure[N:]])
    np.testing.assert_allclose(model.fit(parts).coef_, long, atol=1e-9)
    Y = np.full((2 * N, 2), np.nan)
    Y[:N, 0], Y[N:, 1] = y[:N], y[N:]
    np.testing.assert_allclose(model.fit(X, Y, exposure=exposure).coef_, long, atol=1e-9)
    cells = np.column_stack([exposure, exposure])
    np.testing.assert_allclose(model.fit(X, Y, offset=np.log(cells)).coef_, long, atol=1e-9)


def test_a_column_named_in_fit_is_read_in_predict_score_and_files(counts, tmp_path):
    X, y, tasks, exposure = counts
    frame = pd.DataFrame(X, columns=list("wxyz")).assign(years=exposure)
    model = bm.MixedNormRegressor(loss="poisson", penalty_strength=0.1)
    model.fit(frame, y, tasks=tasks, exposure="years").save(tmp_path / "model")
    rates = model.predict(frame.drop(columns="years"), tasks=tasks)
    for fitted in (model, bm.load(tmp_path / "model")):
        np.testing.assert_allclose(fitted.predict(frame, tasks=tasks), rates * exposure)
        given = fitted.predict(frame.drop(columns="years"), tasks=tasks, exposure=2.0 * exposure)
        np.testing.assert_allclose(given, 2.0 * rates * exposure)
    by_column, given = model.score(frame, y, tasks=tasks), model.score(frame, y, tasks=tasks, exposure=exposure)
    mean = rates * exposure
    deviance = sum(
        sm.families.Poisson().deviance(y[tasks == t], mean[tasks == t]) for t in ("a", "b")
    )  # of all rows beside one constant rate
    null = sm.families.Poisson().deviance(y, exposure * y.sum() / exposure.sum())
    assert by_column == pytest.approx(1.0 - deviance / null, rel=1e-9) and given == by_column


@pytest.mark.parametrize("shared_mean", [False, True])
@pytest.mark.parametrize("kind", [bm.JeffreysRegressor, bm.GeneralizedNormalRegressor, bm.MatrixVariateRegressor])
def test_em_with_constant_exposure_moves_intercepts_only(counts, kind, shared_mean):
    X, y, tasks, _ = counts
    model = kind(loss="poisson", shared_mean=shared_mean)
    plain = model.fit(X, y, tasks=tasks)
    coef, intercept = plain.coef_.copy(), plain.intercept_.copy()
    moved = model.fit(X, y, tasks=tasks, exposure=np.full(2 * N, 8.0))
    np.testing.assert_allclose(moved.coef_, coef, atol=2e-4)
    np.testing.assert_allclose(moved.intercept_, intercept - np.log(8.0), atol=2e-3)


def test_em_and_streams_use_unequal_exposures(counts):
    X, y, tasks, exposure = counts
    em = bm.JeffreysRegressor(loss="poisson").fit(X, y, tasks=tasks, exposure=exposure)
    assert em.get_support(indices=True).tolist() == [0]
    np.testing.assert_allclose(em.intercept_, -0.5, atol=0.15)
    stream = bm.OnlineMixedNormRegressor(loss="poisson", penalty_strength=0.0, epochs=30, average=True, random_state=0)
    stream.fit(X, y, tasks=tasks, exposure=exposure)
    exact = bm.MixedNormRegressor(loss="poisson", penalty_strength=0).fit(X, y, tasks=tasks, exposure=exposure)
    np.testing.assert_allclose(stream.coef_, exact.coef_, atol=0.03)
    np.testing.assert_allclose(stream.intercept_, exact.intercept_, atol=0.03)
    batches = bm.OnlineMixedNormRegressor(loss="poisson", penalty_strength=0.0)
    for rows in np.array_split(np.random.default_rng(4).permutation(2 * N), 6):
        batches.partial_fit(X[rows], y[rows], tasks=tasks[rows], exposure=exposure[rows])
    assert np.abs(batches.intercept_ + 0.5).max() < 0.5
    with pytest.raises(ValueError, match="offsets as weights"):
        bm.OnlineMixedNormRegressor(loss="negative_binomial").fit(X, y, tasks=tasks, exposure=exposure)


def test_folds_and_paths_know_exposures(counts):
    X, y, tasks, exposure = counts
    known = {"tasks": tasks, "exposure": exposure}
    model = bm.MixedNormRegressorCV(loss="poisson", n_penalties=8, cv=3).fit(X, y, **known)
    blind = bm.MixedNormRegressorCV(loss="poisson", n_penalties=8, cv=3).fit(X, y, tasks=tasks)
    assert np.nanmin(model.cv_results_["mean_error"]) < 0.3 * np.nanmin(blind.cv_results_["mean_error"])
    path = bm.mixed_norm_path(X, y, loss="poisson", penalties=[model.penalty_strength_], **known)
    np.testing.assert_allclose(path.coefs[0], model.coef_, atol=1e-6)
    criterion = bm.MixedNormRegressorCV(loss="poisson", n_penalties=8, criterion="bic").fit(X, y, **known)
    assert criterion.get_support(indices=True).tolist() == [0]


def test_models_have_the_offset_as_data(counts):
    X, y, tasks, exposure = counts
    data = bm.TaskData.from_long(X, y, tasks, exposure=exposure)
    models = [
        bm.models.mixed_norm_model(data, 0.1, loss="poisson", loss_scale="sum"),
        bm.models.generalized_normal_model(data, 2.0, "poisson"),
    ]
    for model in models:
        value = model.compile_logp(vars=[model["y"]])
        start = model.initial_point()
        eta = data.linear_predictor(np.zeros((P, 2)), np.zeros(2))
        at_zero = {name: np.zeros_like(number) for name, number in start.items()}
        expected = with_offset(Poisson(), data.eta_offset).log_density(data.y, eta)
        if "coef" in start:
            assert value(at_zero) == pytest.approx(expected.sum(), rel=1e-9)
        np.testing.assert_allclose(model["offset"].get_value(), data.eta_offset)


def test_what_cannot_be_meant_is_refused(counts):
    X, y, tasks, exposure = counts
    model = bm.MixedNormRegressor(loss="poisson")
    with pytest.raises(ValueError, match="exposure is 0 in row 0"):
        model.fit(X, y, tasks=tasks, exposure=np.zeros(2 * N))
    with pytest.raises(ValueError, match="exposure has shape"):
        model.fit(X, y, tasks=tasks, exposure=exposure[:-1])
    with pytest.raises(ValueError, match="no column 'area'"):
        model.fit(pd.DataFrame(X), y, tasks=tasks, exposure="area")
    with pytest.raises(ValueError, match="not a data frame"):
        model.fit(X, y, tasks=tasks, exposure="years")
    with pytest.raises(ValueError, match="exposure is for counts"):
        bm.MixedNormRegressor().fit(X, y, tasks=tasks, exposure=exposure)
    with pytest.raises(ValueError, match="one of several classes"):
        bm.MixedNormClassifier().fit(X, np.arange(2 * N) % 3, offset=exposure)
    with pytest.raises(ValueError, match="DiscriminativeSelector has none"):
        bm.DiscriminativeSelector().fit(X, np.arange(2 * N) % 2, tasks=tasks, offset=exposure)
    with pytest.raises(ValueError, match="coefficients='mode'"):
        bm.JeffreysClassifier(coefficients="integrated").fit(X, y > 0, tasks=tasks, offset=exposure)
    with pytest.raises(ValueError, match="leave it out"):
        model.fit(bm.TaskData.from_long(X, y, tasks), exposure=exposure)


def test_offsets_of_rows_and_tasks_stay_with_them(counts):
    from bayesmtfs.convex.problem import Problem
    from bayesmtfs.estimators.folds import take
    from bayesmtfs.priors.row_penalty import RowPenalty

    X, y, tasks, exposure = counts
    data = bm.TaskData.from_long(X, y, tasks, exposure=exposure)
    chosen = np.arange(2 * N) % 3 == 0
    np.testing.assert_array_equal(take(data, chosen).data.eta_offset, data.eta_offset[chosen])
    problem = Problem(data, Poisson(), RowPenalty(1.0, 2.0), data.weight)
    part = take(data, chosen).data
    smaller = replace(problem, data=part, weight=part.weight)  # the offset is that of the new rows
    np.testing.assert_array_equal(smaller.family.offset, part.eta_offset)
    rates = [y[tasks == t].sum() / exposure[tasks == t].sum() for t in ("a", "b")]
    np.testing.assert_allclose(problem.null_intercept, np.log(rates), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["poisson", "logistic"])
def test_posteriors_with_exposure_agree_with_the_likelihood(counts, loss):
    X, y, tasks, exposure = counts
    if loss == "poisson":
        known = {"exposure": exposure}
        posterior = bm.BayesianRegressor(loss=loss, draws=500, tune=500, chains=2, random_state=0)
    else:
        rng = np.random.default_rng(5)
        offset = 2.0 * rng.normal(size=2 * N)
        y, known = rng.random(2 * N) < 1 / (1 + np.exp(-X[:, 0] - offset)), {"offset": offset}
        posterior = bm.BayesianClassifier(draws=500, tune=500, chains=2, random_state=0)
    posterior.fit(X, y, tasks=tasks, **known)
    assert posterior.prior_ == "generalized_normal" and posterior.converged_
    family = sm.families.Poisson() if loss == "poisson" else sm.families.Binomial()
    for t, name in enumerate(("a", "b")):
        rows = tasks == name
        part = {key: values[rows] for key, values in known.items()}
        peer = sm.GLM(np.asarray(y, dtype=float)[rows], sm.add_constant(X[rows]), family=family, **part).fit()
        assert abs(posterior.coef_[t, 0] - peer.params[1]) < 1.5 * peer.bse[1]
        assert abs(posterior.intercept_[t] - peer.params[0]) < 1.5 * peer.bse[0]
    if loss == "poisson":
        _, low, high = posterior.predict(X, tasks=tasks, interval=0.89, exposure=exposure)
        assert 0.86 < np.mean((y >= low) & (y <= high)) < 0.98
        drawn = posterior.posterior_["posterior_predictive"]["y"].values.mean(axis=(0, 1))
        order = np.argsort(np.argsort(posterior.posterior_["posterior_predictive"]["obs"].values))
        np.testing.assert_allclose(drawn[order].sum(), y.sum(), rtol=0.05)
        mean = posterior.predict(X, tasks=tasks, exposure=exposure)
        np.testing.assert_allclose(mean, exposure * posterior.predict(X, tasks=tasks), rtol=1e-9)
    else:
        log_odds = posterior.decision_function(X, tasks=tasks, offset=offset)
        assert np.corrcoef(log_odds, X[:, 0] + offset)[0, 1] > 0.95
