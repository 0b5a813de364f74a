"""What fits are measured against, and an estimator that does not choose again."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Lasso

import bayesmtfs as bm
from bayesmtfs.selection.reference import Pooled, held_out_errors, leave_one_out, reference_fits, with_choices_fixed


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=3, n_features=8, n_samples=40, n_relevant=2, snr=4.0, random_state=0)


def test_the_task_mean_is_the_mean_of_each_task(sim):
    model = reference_fits(classify=False, standardize=True)["task mean"].fit(sim.X, sim.y, tasks=sim.tasks)
    assert not model.coef_.any()
    np.testing.assert_allclose(model.intercept_, [sim.y[sim.tasks == t].mean() for t in range(3)], rtol=1e-6)


def test_pooled_numbers_have_one_slope_and_a_level_for_every_task(sim):
    """The lasso of scikit-learn about the means of every task, which its predictions get back."""
    far = sim.y + 100.0 * sim.tasks
    data, new = (
        bm.TaskData.from_long(sim.X, far, sim.tasks),
        bm.TaskData.from_long(sim.X[90:], far[90:], sim.tasks[90:]),
    )
    found = Pooled(bm.MixedNormRegressor(penalty_strength=0.3, tol=1e-10)).fit(data)
    X, y = (part - np.array([part[sim.tasks == t].mean(axis=0) for t in range(3)])[sim.tasks] for part in (sim.X, far))
    alone = Lasso(alpha=0.3, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(found.coef_, np.tile(alone.coef_, (3, 1)), atol=1e-6)
    np.testing.assert_allclose(found.predict(data), alone.predict(X) + far - y, atol=1e-5)
    np.testing.assert_allclose(found.predict(new), (alone.predict(X) + far - y)[90:], atol=1e-5)
    by_hand = np.einsum("ij,ij->i", sim.X, found.coef_[sim.tasks]) + found.intercept_[sim.tasks]
    np.testing.assert_allclose(found.predict(data), by_hand, atol=1e-8)


def test_pooled_labels_are_rows_of_one_task(sim):
    y = np.where(sim.y > 0, 1.0, -1.0)
    data = bm.TaskData.from_long(sim.X, y, sim.tasks)
    found = Pooled(bm.MixedNormClassifier(penalty_strength=0.1, tol=1e-10)).fit(data)
    alone = bm.MixedNormClassifier(penalty_strength=0.1, tol=1e-10).fit(sim.X, y)
    np.testing.assert_allclose(found.coef_, np.tile(alone.coef_, (3, 1)), atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(data), alone.predict_proba(sim.X), atol=1e-6)


def test_tasks_with_effects_of_opposite_signs_need_their_own(sim):
    rng = np.random.default_rng(1)
    X, tasks = rng.standard_normal((160, 5)), np.repeat([0, 1], 80)
    y = np.where(tasks == 0, 2.0, -2.0) * X[:, 0] + 0.3 * rng.standard_normal(160)
    found = {fit.name: fit for fit in bm.compare(reference_fits(False), X, y, tasks=tasks, cv=3).fits}
    assert found["lasso per task"].r2 > 0.9
    assert abs(found["task mean"].r2) < 0.15 and found["pooled lasso"].r2 < 0.2


def test_labels_and_counts_and_the_wide_form(sim):
    labels = np.where(sim.y > np.median(sim.y), "high", "low")
    found = {fit.name: fit for fit in bm.compare(reference_fits(True), sim.X, labels, tasks=sim.tasks, cv=3).fits}
    assert found["task mean"].auc == pytest.approx(0.5) and found["lasso per task"].auc > 0.6
    counts = reference_fits(False, loss="poisson")
    y = np.random.default_rng(0).poisson(np.exp(0.3 * sim.X[:, 0] + 0.5))
    assert all(np.isfinite(fit.deviance) for fit in bm.compare(counts, sim.X, y, tasks=sim.tasks, cv=3).fits)
    Y = np.column_stack([sim.X[:, 0], 1000.0 * sim.X[:, 1]]) + 0.1
    wide = bm.compare(reference_fits(False, wide=True, standardize=True, scale_target=True), sim.X, Y, cv=3)
    assert [fit.name for fit in wide.fits] == ["lasso per task", "task mean"] and wide.fits[0].r2 > 0.9


def test_what_was_chosen_is_not_chosen_again(sim):
    fitted = bm.MixedNormRegressorCV(norm_q=[1, 2], n_penalties=8, cv=3, standardize=True)
    fitted.fit(sim.X, sim.y, tasks=sim.tasks)
    again = with_choices_fixed(fitted).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_allclose(again.coef_, fitted.coef_, atol=1e-4)
    other = bm.JeffreysRegressor(norm_q=3)
    assert with_choices_fixed(other).get_params() == other.get_params()


def test_errors_of_a_fit_stand_beside_the_references(sim):
    fitted = bm.MixedNormRegressor(penalty_strength=0.1).fit(sim.X, sim.y, tasks=sim.tasks)
    found = {fit.name: fit for fit in held_out_errors(fitted, sim.X, sim.y, sim.tasks, cv=3).fits}
    alone = bm.compare([fitted], sim.X, sim.y, tasks=sim.tasks, cv=3).fits[0]
    assert set(found) == {"this fit", "task mean", "pooled lasso", "lasso per task"}
    assert found["this fit"].error == alone.error < found["task mean"].error


def test_a_posterior_without_likelihoods_of_rows_has_references_only(sim):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        model = bm.BayesianRegressor(draws=60, tune=60, chains=2, random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    names = {fit.name for fit in held_out_errors(model, sim.X, sim.y, sim.tasks, cv=2).fits}
    assert names == {"this fit (leave-one-out)", "task mean", "pooled lasso", "lasso per task"}
    del model.posterior_["log_likelihood"]
    assert {fit.name for fit in held_out_errors(model, sim.X, sim.y, sim.tasks, cv=2).fits} == names - {
        "this fit (leave-one-out)"
    }


def test_leave_one_out_predictions_are_those_of_refits():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 2)), rng.standard_normal(24)
    y += X[:, 0]
    model = bm.BayesianRegressor(prior="generalized_normal", draws=1500, tune=300, chains=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        found = leave_one_out(model.fit(X, y))
        residuals = [y[i] - clone(model).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[[i]])[0] for i in range(24)]
    assert found.error == pytest.approx(np.sqrt(np.mean(np.square(residuals))), rel=0.04)
    apart = [y[i] - np.delete(y, i).mean() for i in range(24)]
    assert found.r2 == pytest.approx(1 - np.sum(np.square(residuals)) / np.sum(np.square(apart)), abs=0.06)
