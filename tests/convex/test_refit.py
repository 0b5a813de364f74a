"""Refit: the selected entries without their penalty, against least squares and a general minimiser."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from bayesmtfs import MixedNormClassifier, MixedNormRegressor, TaskData, simulate_tasks
from bayesmtfs.convex.refit import KEPT_PENALTY


def simulated(kind, shared=False):
    return simulate_tasks(
        n_tasks=3,
        n_features=8,
        n_relevant=3,
        n_samples=40 if shared else [30, 40, 35],
        snr=1.0,
        intercept_scale=1.0,
        missing=0.1,
        shared_design=shared,
        kind=kind,
        random_state=1,
    )


def task_blocks(sim, weight):
    for t in range(3):
        rows = ~np.isnan(sim.y[:, t]) if sim.tasks is None else sim.tasks == t
        cell = (rows, t) if sim.tasks is None else rows
        yield sim.X[rows], sim.y[cell], weight[cell]


@pytest.mark.parametrize("norm_q", [1, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", ["long", "wide", "sparse"])
def test_squared_loss_is_least_squares_on_the_selected_entries(norm_q, fit_intercept, form):
    sim = simulated("regression", shared=form == "wide")
    weight = np.random.default_rng(0).uniform(0.5, 2.0, sim.y.shape)
    options = {"norm_q": norm_q, "penalty_strength": 0.4, "fit_intercept": fit_intercept}
    X = sp.csr_array(sim.X) if form == "sparse" else sim.X
    plain = MixedNormRegressor(**options).fit(X, sim.y, tasks=sim.tasks, sample_weight=weight)
    model = MixedNormRegressor(refit=True, **options).fit(X, sim.y, tasks=sim.tasks, sample_weight=weight)
    np.testing.assert_array_equal(model.coef_ != 0, plain.coef_ != 0)
    assert 0 < (plain.coef_ != 0).sum() < plain.coef_.size
    for t, (block, y, own) in enumerate(task_blocks(sim, weight)):
        kept = plain.coef_[t] != 0
        columns = [block[:, kept], np.ones((len(y), 1))] if fit_intercept else [block[:, kept]]
        root = np.sqrt(own)
        expected = np.linalg.lstsq(root[:, None] * np.hstack(columns), root * y)[0]
        np.testing.assert_allclose(model.coef_[t, kept], expected[: kept.sum()], atol=1e-10)
        assert model.intercept_[t] == pytest.approx(expected[-1] if fit_intercept else 0.0, abs=1e-10)
    assert model.objective_ == plain.objective_ and model.dual_gap_ == plain.dual_gap_


@pytest.mark.parametrize("form", ["long", "wide"])
def test_logistic_loss_keeps_a_thousandth_of_the_penalty(form):
    sim = simulated("classification", shared=form == "wide")
    strength = 0.06
    plain = MixedNormClassifier(penalty_strength=strength).fit(sim.X, sim.y, tasks=sim.tasks)
    model = MixedNormClassifier(penalty_strength=strength, refit=True).fit(sim.X, sim.y, tasks=sim.tasks)
    kept = plain.coef_ != 0
    np.testing.assert_array_equal(model.coef_ != 0, kept)
    assert 0 < kept.any(axis=0).sum() < 8
    blocks = list(task_blocks(sim, np.ones(sim.y.shape)))

    def objective(free):
        coef = np.zeros(kept.shape)
        coef[kept] = free[3:]
        loss = [np.mean(np.logaddexp(0, -y * (X @ w + b))) for (X, y, _), w, b in zip(blocks, coef, free, strict=False)]
        return sum(loss) + KEPT_PENALTY * strength * np.linalg.norm(coef, axis=0).sum()

    reached = objective(np.concatenate([model.intercept_, model.coef_[kept]]))
    start = np.concatenate([plain.intercept_, plain.coef_[kept]])
    best = minimize(objective, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 1000}).fun
    assert reached == pytest.approx(best, rel=3e-6)
    assert reached < objective(start)


def test_a_task_without_selected_features_keeps_its_mean():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5))
    Y = np.column_stack([X[:, 0], 3.0 + 0.01 * rng.standard_normal(40)])
    model = MixedNormRegressor(norm_q=1, refit=True, penalty_strength=0.3, scale_target=False).fit(X, Y)
    assert (model.coef_[1] == 0).all() and model.intercept_[1] == pytest.approx(Y[:, 1].mean())
    np.testing.assert_allclose(model.coef_[0], [1, 0, 0, 0, 0], atol=1e-12)


def test_nothing_selected_stays_nothing():
    sim = simulated("regression")
    model = MixedNormRegressor(penalty_strength=1e6, refit=True).fit(sim.X, sim.y, tasks=sim.tasks)
    assert (model.coef_ == 0).all()
    np.testing.assert_allclose(model.intercept_, [sim.y[sim.tasks == t].mean() for t in range(3)])


def test_duplicate_columns_get_the_shortest_solution():
    rng = np.random.default_rng(2)
    column = rng.standard_normal(30)
    X = np.column_stack([column, column, rng.standard_normal(30)])
    model = MixedNormRegressor(penalty_strength=0.05, refit=True, fit_intercept=False, norm_q=2, groups=[0, 0, 1])
    model.fit(X, 2.0 * column)
    np.testing.assert_allclose(model.coef_[0, :2], [1.0, 1.0], atol=1e-10)


@pytest.mark.parametrize("estimator", [MixedNormRegressor, MixedNormClassifier])
def test_units_do_not_matter_with_standardize(estimator):
    sim = simulated("regression" if estimator is MixedNormRegressor else "classification")
    units = np.geomspace(1e-2, 1e2, 8)
    fits = [
        estimator(standardize=True, refit=True, penalty_strength=0.1).fit(X, sim.y, tasks=sim.tasks)
        for X in (sim.X, sim.X * units)
    ]
    np.testing.assert_array_equal(fits[0].get_support(), fits[1].get_support())
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_ * units, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("estimator", [MixedNormRegressor, MixedNormClassifier])
def test_absent_features_stay_absent(estimator):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    first = pd.DataFrame(rng.standard_normal((40, 3)), columns=["u", "v", "w"])
    second = pd.DataFrame(rng.standard_normal((40, 2)), columns=["u", "w"])
    target = [np.sign(frame["u"] + 0.8 * rng.standard_normal(40)) for frame in (first, second)]
    data = TaskData.from_list([(first, target[0]), (second, target[1])])
    model = estimator(refit=True, penalty_strength=0.001).fit(data)
    assert model.coef_[1, 1] == 0 and model.coef_[0, 1] != 0
