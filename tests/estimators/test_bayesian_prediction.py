"""Predictions from draws, also for tasks that were never seen."""

import pickle

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import gennorm, kstest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.simulation import generalized_normal
from bayesmtfs.estimators.bayesian import BayesianClassifier, BayesianRegressor
from bayesmtfs.estimators.bayesian_prediction import LEAST_TASKS, Population, draw_task, expected_task


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=6, n_features=5, n_samples=60, n_relevant=2, snr=4.0, intercept_scale=3.0, random_state=0
    )


@pytest.fixture(scope="module")
def model(sim):
    model = BayesianRegressor(unknown_task="population", draws=400, tune=400, random_state=0)
    return model.fit(sim.X + 2.0, sim.y, tasks=sim.tasks)


def test_mean_is_that_of_the_mean_coefficients(sim, model):
    wanted = np.sum((sim.X + 2.0) * model.coef_[sim.tasks], axis=1) + model.intercept_[sim.tasks]
    np.testing.assert_allclose(model.predict(sim.X + 2.0, tasks=sim.tasks), wanted)


def test_deviation_and_interval_cover_new_targets(sim, model):
    rng = np.random.default_rng(5)
    X, tasks = rng.normal(size=(2000, 5)), rng.integers(6, size=2000)
    noise = np.array([np.std(sim.y[sim.tasks == t] - sim.X[sim.tasks == t] @ sim.coef[t]) for t in range(6)])
    y = np.sum(X * sim.coef[tasks], axis=1) + sim.intercept[tasks] + noise[tasks] * rng.normal(size=2000)
    mean, deviation, low, high = model.predict(X + 2.0, tasks=tasks, return_std=True, interval=0.9)
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.9, abs=0.03)
    assert np.std((y - mean) / deviation) == pytest.approx(1.0, abs=0.1)
    assert len(model.predict(X, tasks=tasks, return_std=True)) == 2
    assert len(model.predict(X, tasks=tasks, interval=0.5)) == 3


def test_new_tasks_are_less_sure_than_known_ones(sim, model):
    known = model.predict(sim.X[:50] + 2.0, tasks=np.zeros(50, dtype=int), return_std=True)
    new = model.predict(sim.X[:50] + 2.0, tasks=np.full(50, 99), return_std=True)
    assert np.all(new[1] > 1.5 * known[1])
    means = np.array([sim.X[sim.tasks == t].mean(axis=0) + 2.0 for t in range(6)])
    levels = model.intercept_ + np.sum(model.coef_ * means, axis=1)
    np.testing.assert_allclose(new[0], levels.mean(), rtol=1e-6)


def test_intervals_of_new_tasks_cover_tasks_of_the_same_population():
    sim = simulate_tasks(
        n_tasks=60, n_features=4, n_samples=30, n_relevant=2, snr=4.0, intercept_scale=2.0, random_state=3
    )
    seen = sim.tasks < 30
    model = BayesianRegressor(unknown_task="population", draws=400, tune=400, random_state=0)
    model.fit(sim.X[seen], sim.y[seen], tasks=sim.tasks[seen])
    _, low, high = model.predict(sim.X[~seen], tasks=sim.tasks[~seen], interval=0.9)
    covered = (low < sim.y[~seen]) & (sim.y[~seen] < high)
    assert 0.82 < covered.mean() < 0.97


def test_average_task_and_refusal(sim):
    model = BayesianRegressor(sampler="variational", unknown_task="mean", random_state=0).fit(
        sim.X, sim.y, tasks=sim.tasks
    )
    mean, deviation = model.predict(sim.X[:3], tasks=[99, 99, 99], return_std=True)
    np.testing.assert_allclose(mean, sim.X[:3] @ model.coef_.mean(axis=0) + model.intercept_.mean())
    assert np.all(deviation > 0)
    model.set_params(unknown_task="error")
    with pytest.raises(ValueError, match="99; known tasks are 0, 1, 2"):
        model.predict(sim.X[:3], tasks=[99, 99, 99], return_std=True)


def test_population_needs_two_tasks(sim):
    model = BayesianRegressor(unknown_task="population", draws=400, tune=400, random_state=0)
    model.fit(sim.X, sim.y, tasks=np.zeros(len(sim.y), dtype=int))
    with pytest.raises(ValueError, match="needs at least two tasks to know how tasks differ"):
        model.predict(sim.X[:3], tasks=[1, 1, 1], return_std=True)


@pytest.mark.parametrize("interval", [0.0, 1.0, 90])
def test_interval_is_a_probability(sim, model, interval):
    with pytest.raises(ValueError, match="interval is .*; pass a probability between 0 and 1"):
        model.predict(sim.X[:3], tasks=sim.tasks[:3], interval=interval)


def test_task_data_and_wide_form_agree():
    sim = simulate_tasks(n_tasks=3, n_features=4, n_samples=30, n_relevant=2, shared_design=True, random_state=2)
    model = BayesianRegressor(sampler="variational", random_state=0).fit(sim.X, sim.y)
    plain = model.predict(sim.X, return_std=True)
    given = model.predict(TaskData.from_wide(sim.X, sim.y), return_std=True)
    for one, other in zip(plain, given, strict=True):
        assert one.shape == (30, 3)
        np.testing.assert_allclose(one, other)


def test_task_data_of_the_long_form_keeps_the_input_order(sim, model):
    order = np.random.default_rng(0).permutation(len(sim.y))
    X, tasks = sim.X[order] + 2.0, sim.tasks[order]
    given = model.predict(TaskData.from_long(X, sim.y[order], tasks=tasks), return_std=True)
    for one, other in zip(given, model.predict(X, tasks=tasks, return_std=True), strict=True):
        np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("unknown_task", ["population", "mean"])
@pytest.mark.parametrize("return_std", [True, False])
def test_task_data_may_hold_tasks_that_were_never_seen(sim, model, unknown_task, return_std):
    reader = pickle.loads(pickle.dumps(model)).set_params(unknown_task=unknown_task)
    X, tasks = sim.X[:4], [7, 0, 7, 2]
    data = TaskData.from_long(X, np.zeros(4), tasks=tasks)
    np.testing.assert_allclose(
        reader.predict(data, return_std=return_std), reader.predict(X, tasks=tasks, return_std=return_std)
    )
    with pytest.raises(ValueError, match="X has tasks that were not there in fit: 7"):
        reader.set_params(unknown_task="error").predict(data, return_std=return_std)


@pytest.fixture(scope="module")
def classifier():
    sim = simulate_tasks(n_tasks=3, n_features=4, n_samples=80, n_relevant=2, kind="classification", random_state=0)
    model = BayesianClassifier(draws=400, tune=400, random_state=0, unknown_task="population")
    return sim, model.fit(sim.X, sim.y, tasks=sim.tasks)


def test_probabilities_are_averages_over_draws(classifier):
    sim, model = classifier
    posterior = model.posterior_["posterior"]
    coef, intercept = (posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in ("coef", "intercept"))
    eta = coef[:, :, 1] @ sim.X[5] + intercept[:, 1]
    found = model.predict_proba(sim.X[5:6], tasks=[1])
    assert found[0, 1] == pytest.approx(expit(eta).mean(), rel=1e-8)
    mean, low, high = model.probability_interval(sim.X[5:6], tasks=[1], interval=0.8)
    np.testing.assert_allclose([mean[0], low[0], high[0]], [found[0, 1], *np.quantile(expit(eta), [0.1, 0.9])])


def test_labels_decisions_and_probabilities_agree(classifier):
    sim, model = classifier
    decision, label = (getattr(model, name)(sim.X, tasks=sim.tasks) for name in ("decision_function", "predict"))
    np.testing.assert_array_equal(label, model.classes_[(decision > 0).astype(int)])
    np.testing.assert_allclose(expit(decision), model.predict_proba(sim.X, tasks=sim.tasks)[:, 1])


def test_new_tasks_have_uncertain_labels(classifier):
    sim, model = classifier
    new = model.predict_proba(sim.X, tasks=np.full(len(sim.X), "new", dtype=object))[:, 1]
    known = model.predict_proba(sim.X, tasks=sim.tasks)[:, 1]
    assert np.abs(new - 0.5).mean() < 0.5 * np.abs(known - 0.5).mean()


@pytest.mark.parametrize("q", [1.0, 2.0, 7.0, np.inf])
def test_draws_have_the_generalized_normal_law(q):
    draws = generalized_normal(np.random.default_rng(0), np.array(q), (5000,))
    cdf = gennorm(q).cdf if np.isfinite(q) else lambda z: (z + 1) / 2
    assert kstest(draws, cdf).pvalue > 0.01


def population(mean, scale, levels, offsets, share, norm_q=2.0):
    """The same known tasks in each of 40000 draws."""
    total, p = 40_000, len(mean)
    return Population(
        mean=np.tile(mean, (total, 1)),
        scale=np.tile(scale, (total, 1)),
        norm_q=None if norm_q is None else np.full((total, 1), norm_q),
        levels=np.tile(levels, (total, 1)),
        offsets=offsets,
        centre=np.full(p, 3.0),
        share=np.asarray(share),
    )


@pytest.mark.parametrize(("norm_q", "variance"), [(2.0, 0.5), (np.inf, 1.0 / 3.0), (1.0, 2.0), (None, 1.0)])
def test_coefficients_have_the_law_of_a_row_and_levels_that_of_the_known_ones(norm_q, variance):
    rng = np.random.default_rng(0)
    levels = rng.normal(2.0, 0.7, size=12)
    known = population(np.zeros(2), np.array([1.5, 0.2]), levels, np.zeros((2, 12)), [0.0, 0.0], norm_q)
    coef, intercept = draw_task(rng, known)
    np.testing.assert_allclose(coef.var(axis=0), variance * np.array([1.5, 0.2]) ** 2, rtol=0.05)
    level = intercept + coef @ known.centre
    spread = np.var(levels, ddof=1) * (1 + 1 / 12) * 11 / 9  # variance of Student's t
    assert level.mean() == pytest.approx(levels.mean(), abs=0.02)
    assert level.var() == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("follows", [0.0, 0.4, 1.0])
def test_levels_go_with_the_features_as_much_as_those_of_the_known_tasks(follows):
    """The first feature is one of the task, the second one of the row."""
    rng = np.random.default_rng(1)
    offsets = np.stack([rng.standard_normal(20), np.zeros(20)])
    levels = 1.0 + follows * 3.0 * offsets[0]
    known = population(np.array([3.0, -1.0]), np.array([5.0, 0.0]), levels, offsets, [1.0, 0.0])
    for coef, intercept in (expected_task(known), draw_task(rng, known)):
        np.testing.assert_allclose(coef, np.tile([3.0 * follows, -1.0], (40_000, 1)), atol=1e-12)
        np.testing.assert_allclose(intercept + coef @ known.centre, 1.0, atol=1e-6)  # nothing is left to vary


def test_few_tasks_are_believed_to_differ_as_their_rows_do():
    m = LEAST_TASKS - 1
    offsets = np.linspace(-1.0, 1.0, m)[np.newaxis]
    known = population(np.array([2.0]), np.array([0.0]), np.zeros(m), offsets, [1.0])
    coef, intercept = expected_task(known)
    assert np.all(coef == 2.0)
    np.testing.assert_allclose(intercept, -6.0)
    level = draw_task(np.random.default_rng(0), known)[1] + 6.0
    assert np.median(np.abs(level)) == pytest.approx(
        0.741 * 2.0 * np.std(offsets, ddof=1) * np.sqrt(1 + 1 / m), rel=0.05
    )
