"""One table for penalised, EM and posterior fits."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import KFold

from bayesmtfs import (
    GeneralizedNormalRegressor,
    JeffreysClassifier,
    JeffreysRegressor,
    MixedNormClassifier,
    MixedNormRegressor,
    TaskData,
    simulate_tasks,
)
from bayesmtfs.estimators.bayesian import BayesianClassifier, BayesianRegressor
from bayesmtfs.selection.comparison import compare, loo_of, with_short_chains

POSTERIOR = BayesianRegressor(sampler="variational", draws=250, random_state=0)


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=3, n_features=8, n_samples=40, n_relevant=2, snr=4.0, random_state=0)


@pytest.fixture(scope="module")
def table(sim):
    estimators = [MixedNormRegressor(penalty_strength=5.0), JeffreysRegressor(), ("posterior", POSTERIOR)]
    return compare(estimators, sim.X, sim.y, tasks=sim.tasks, cv=3)


def by_name(table):
    return {fit.name: fit for fit in table.fits}


def test_all_routes_are_in_one_table(table):
    found = by_name(table)
    assert set(found) == {"MixedNormRegressor", "JeffreysRegressor", "posterior"} and table.error_name == "RMSE"
    errors = [fit.error for fit in table.fits]
    assert errors == sorted(errors) and table.fits[0].difference == 0.0 == table.fits[0].difference_se
    assert found["MixedNormRegressor"].n_selected == 0  # its penalty is far too strong
    assert found["MixedNormRegressor"].error > 1.5 * found["posterior"].error
    assert np.isnan(found["JeffreysRegressor"].elpd) and np.isfinite(found["posterior"].elpd)


def test_errors_are_those_of_the_held_out_rows(sim):
    pairs = [(train, test) for train, test in KFold(4, shuffle=True, random_state=1).split(sim.X)]
    found = compare([MixedNormRegressor(penalty_strength=0.1)], sim.X, sim.y, tasks=sim.tasks, cv=pairs).fits[0]
    errors, scores = [], []
    for train, test in pairs:
        model = MixedNormRegressor(penalty_strength=0.1).fit(sim.X[train], sim.y[train], tasks=sim.tasks[train])
        residual = sim.y[test] - model.predict(sim.X[test], tasks=sim.tasks[test])
        spread = np.std(sim.y[train] - model.predict(sim.X[train], tasks=sim.tasks[train]))
        errors.append(np.sqrt(np.mean(residual**2)))
        scores.append(np.mean(-0.5 * (residual / spread) ** 2 - np.log(spread) - 0.5 * np.log(2 * np.pi)))
    assert found.error == pytest.approx(np.mean(errors), rel=1e-4)
    assert found.error_se == pytest.approx(np.std(errors, ddof=1) / 2, rel=1e-3)
    assert found.log_score == pytest.approx(np.mean(scores), rel=1e-2)


def test_elpd_is_near_the_exact_one():
    """One feature, many rows: leaving one out is nearly the log-density at the least-squares fit."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = 2.0 * x + rng.normal(size=200)
    found = loo_of(POSTERIOR.fit(x[:, None], y))
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - slope * x - intercept
    leverage = 1 / 200 + (x - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2)
    left_out = residual / (1 - leverage)
    exact = np.sum(-0.5 * left_out**2 / residual.var() - 0.5 * np.log(2 * np.pi * residual.var()))
    assert found["elpd"] == pytest.approx(exact, abs=2.0)
    assert 1.5 < found["p_loo"] < 5.0 and found["n_bad_k"] == 0


def test_frames_and_text(table):
    frame = table.to_frame()
    assert frame.shape == (3, 16) and frame["name"].tolist() == [fit.name for fit in table.fits]
    assert table.to_frame("polars").shape == (3, 16)
    lines = str(table).splitlines()
    assert lines[0].split()[:2] == ["name", "RMSE"] and len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("shared", [True, False], ids=["wide", "long"])
def test_labels(shared):
    sim = simulate_tasks(
        n_tasks=2, n_features=4, n_samples=60, n_relevant=2, kind="classification", shared_design=shared, random_state=0
    )
    estimators = [
        MixedNormClassifier(),
        ("hinge", MixedNormClassifier(loss="hinge")),
        BayesianClassifier(sampler="variational", draws=250, random_state=0),
    ]
    tasks = {} if shared else {"tasks": sim.tasks}
    found = by_name(compare(estimators, sim.X, sim.y, **tasks, cv=3))
    assert np.isnan(found["hinge"].log_score) and -0.7 < found["BayesianClassifier"].log_score < 0
    assert all(0 <= fit.error < 0.5 for fit in found.values())


def test_several_classes_of_one_task():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = np.array(["a", "b", "c"])[np.argmax(X, axis=1)]
    found = compare([MixedNormClassifier(), JeffreysClassifier()], X, y, cv=3)
    assert all(fit.error < 0.4 and fit.log_score > np.log(1 / 3) for fit in found.fits)


def test_names_and_task_data(sim):
    data = TaskData.from_long(sim.X, sim.y, tasks=sim.tasks)
    twice = compare([MixedNormRegressor(), MixedNormRegressor(norm_q=1)], data, cv=2)
    assert {fit.name for fit in twice.fits} == {"MixedNormRegressor (1)", "MixedNormRegressor (2)"}
    assert [fit.name for fit in compare({"l1,2": MixedNormRegressor()}, data, cv=2).fits] == ["l1,2"]


@pytest.mark.parametrize(
    ("estimators", "cv", "message"),
    [
        ([], 3, "estimators is empty"),
        (MixedNormRegressor(), 3, "estimators is one MixedNormRegressor; pass a list"),
        ([MixedNormRegressor(), MixedNormClassifier()], 3, "compare one kind at a time"),
        ([MixedNormRegressor()], "leave_one_task_out", "needs every task in every fold"),
    ],
)
def test_messages(sim, estimators, cv, message):
    with pytest.raises(ValueError, match=message):
        compare(estimators, sim.X, sim.y, tasks=sim.tasks, cv=cv)


def test_counts_have_the_log_score_of_their_family(poisson):
    sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=2, n_samples=40, random_state=0)
    y = np.random.default_rng(0).poisson(np.exp(0.3 * sim.y / sim.y.std())).astype(float)
    rows = np.arange(len(y))
    fold = (rows[rows % 2 == 0], rows[(rows % 2 == 1) & (sim.tasks != 1)])
    model = GeneralizedNormalRegressor(loss=poisson)
    found = compare([model], sim.X, y, tasks=sim.tasks, cv=[fold]).fits[0]
    fitted = model.fit(sim.X[fold[0]], y[fold[0]], tasks=sim.tasks[fold[0]])
    place = np.searchsorted(fitted.tasks_, sim.tasks[fold[1]])
    eta = np.sum(sim.X[fold[1]] * fitted.coef_[place], axis=1) + fitted.intercept_[place]
    assert found.log_score == pytest.approx(poisson.log_density(y[fold[1]], eta).mean())
    assert found.error == pytest.approx(np.sqrt(np.mean((y[fold[1]] - np.exp(eta)) ** 2)))


def test_explained_variance_is_that_about_the_means_of_the_training_rows(sim):
    pairs = [(train, test) for train, test in KFold(4, shuffle=True, random_state=1).split(sim.X)]
    found = compare([MixedNormRegressor(penalty_strength=0.1)], sim.X, sim.y, tasks=sim.tasks, cv=pairs).fits[0]
    shares = []
    for train, test in pairs:
        model = MixedNormRegressor(penalty_strength=0.1).fit(sim.X[train], sim.y[train], tasks=sim.tasks[train])
        residual = sim.y[test] - model.predict(sim.X[test], tasks=sim.tasks[test])
        means = np.array([sim.y[train][sim.tasks[train] == t].mean() for t in range(3)])
        shares.append(1 - np.sum(residual**2) / np.sum((sim.y[test] - means[sim.tasks[test]]) ** 2))
    assert found.r2 == pytest.approx(np.mean(shares), rel=1e-4)


def test_labels_have_areas_and_deviances(sim):
    labels = np.where(sim.y > np.median(sim.y), "high", "low")
    pairs = [(train, test) for train, test in KFold(3, shuffle=True, random_state=1).split(sim.X)]
    found = compare([MixedNormClassifier(penalty_strength=0.02)], sim.X, labels, tasks=sim.tasks, cv=pairs).fits[0]
    areas, deviances = [], []
    for train, test in pairs:
        model = MixedNormClassifier(penalty_strength=0.02).fit(sim.X[train], labels[train], tasks=sim.tasks[train])
        chance = model.predict_proba(sim.X[test], tasks=sim.tasks[test])[:, 1]
        own, tasks = labels[test] == "low", sim.tasks[test]
        ranked = [
            stats.mannwhitneyu(chance[(tasks == t) & own], chance[(tasks == t) & ~own]).statistic for t in range(3)
        ]
        pairs_of = [np.sum((tasks == t) & own) * np.sum((tasks == t) & ~own) for t in range(3)]
        areas.append(np.average(np.array(ranked) / pairs_of, weights=np.bincount(tasks)))
        deviances.append(-2 * np.mean(np.log(np.where(own, chance, 1 - chance))))
    assert found.auc == pytest.approx(np.mean(areas), abs=1e-6)
    assert found.deviance == pytest.approx(np.mean(deviances), rel=1e-4)


def test_counts_have_the_deviance_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, tasks = rng.standard_normal((120, 4)), np.repeat([0, 1], 60)
    y = rng.poisson(np.exp(0.5 + 0.7 * X[:, 0]))
    pairs = [(train, test) for train, test in KFold(3, shuffle=True, random_state=1).split(X)]
    model = MixedNormRegressor(penalty_strength=0.1, loss="poisson")
    found = compare([model], X, y, tasks=tasks, cv=pairs).fits[0]
    expected = []
    for train, test in pairs:
        model.fit(X[train], y[train], tasks=tasks[train])
        expected.append(mean_poisson_deviance(y[test], model.predict(X[test], tasks=tasks[test])))
    assert found.deviance == pytest.approx(np.mean(expected), rel=1e-4) and np.isnan(found.r2)


def test_posteriors_of_folds_have_short_chains():
    long = BayesianRegressor(draws=1000, tune=50, chains=4)
    short = with_short_chains(long, 250)
    assert (short.draws, short.tune, short.chains) == (250, 50, 2) and long.draws == 1000
    plain = MixedNormRegressor(penalty_strength=0.3)
    assert with_short_chains(plain, 250).get_params() == plain.get_params()


def test_no_draws_in_folds_are_refused(sim):
    with pytest.raises(ValueError, match="fold_draws is 0; pass a whole number of at least 1, or None"):
        compare([MixedNormRegressor()], sim.X, sim.y, tasks=sim.tasks, fold_draws=0)
