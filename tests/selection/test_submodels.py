"""Projections onto submodels: against regressions on the fitted values, and against the divergence itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LinearRegression

import bayesmtfs as bm
from bayesmtfs.selection.draws import read_draws
from bayesmtfs.selection.submodels import log_densities, nested_submodels, project, reference_model, reference_of

FEATURES = np.array([4, 1, 2])


def reference_for(data, loss, with_intercept=True, seed=0, n_draws=5):
    """Draws that need not be a posterior: a projection is defined for any."""
    rng = np.random.default_rng(seed)
    p, m = data.n_features, data.n_tasks
    from_tree = {"coef": rng.standard_normal((n_draws, p, m)), "noise": rng.uniform(0.5, 2, (n_draws, m))}
    intercept = rng.standard_normal((n_draws, m)) * with_intercept
    return from_tree["coef"], intercept, from_tree["noise"] if loss == "squared" else None


@pytest.fixture
def draws_of(tree_of):
    def make(data, loss, **options):
        return read_draws(tree_of(*reference_for(data, loss, **options), tasks=data.task_names))

    return make


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X, y, tasks = rng.standard_normal((60, 6)) + 2, rng.standard_normal(60), np.repeat(["a", "b"], [25, 35])
    return bm.TaskData.from_long(X, y, tasks, sample_weight=rng.integers(1, 4, 60).astype(float))


@pytest.fixture(scope="module")
def labels(data):
    return data.with_target(np.where(data.y > 0, 1.0, -1.0))


def of_task(data, t):
    start, stop = data.spans[t]
    return data.X[start:stop], data.weight[start:stop], slice(start, stop)


@pytest.mark.parametrize("with_intercept", [True, False])
def test_projection_is_least_squares_of_the_fitted_values(data, draws_of, with_intercept):
    draws = draws_of(data, "squared", with_intercept=with_intercept)
    found = project(data, reference_of(data, draws, "squared"), FEATURES)
    divergence = np.zeros(5)
    for t in range(2):
        X, weight, _ = of_task(data, t)
        for s in range(5):
            eta = X @ draws.coef[s, :, t] + draws.intercept[s, t]
            fit = LinearRegression(fit_intercept=with_intercept).fit(X[:, FEATURES], eta, sample_weight=weight)
            np.testing.assert_allclose(found.coef[s, :, t], fit.coef_, rtol=1e-9)
            assert found.intercept[s, t] == pytest.approx(fit.intercept_, rel=1e-9, abs=1e-12)
            left = np.average((eta - fit.predict(X[:, FEATURES])) ** 2, weights=weight)
            sigma = draws.noise[s, t]
            assert found.noise[s, t] == pytest.approx(np.sqrt(sigma**2 + left))
            # divergence of two normal laws, row by row
            tau = found.noise[s, t]
            rows = np.log(tau / sigma) + (sigma**2 + (eta - fit.predict(X[:, FEATURES])) ** 2) / (2 * tau**2) - 0.5
            divergence[s] += weight @ rows
    np.testing.assert_allclose(found.divergence, divergence, rtol=1e-9)


@pytest.mark.parametrize("with_intercept", [True, False])
def test_logistic_projection_minimises_the_divergence(labels, draws_of, with_intercept):
    draws = draws_of(labels, "logistic", with_intercept=with_intercept)
    found = project(labels, reference_of(labels, draws, "logistic"), FEATURES)
    assert found.noise is None
    divergence = np.zeros(5)
    for t in range(2):
        X, weight, _ = of_task(labels, t)
        Z = np.column_stack([X[:, FEATURES], np.ones(len(X))])
        for s in range(5):
            p = expit(X @ draws.coef[s, :, t] + draws.intercept[s, t])

            def loss(theta, Z=Z, p=p, weight=weight):
                eta = Z[:, : len(theta)] @ theta
                value = weight @ (p * np.log(p / expit(eta)) + (1 - p) * np.log((1 - p) / expit(-eta)))
                return value, Z[:, : len(theta)].T @ (weight * (expit(eta) - p))

            best = minimize(loss, np.zeros(3 + with_intercept), jac=True, tol=1e-14)
            ours = np.append(found.coef[s, :, t], found.intercept[s, t])[: len(best.x)]
            np.testing.assert_allclose(ours, best.x, atol=1e-4)
            assert loss(ours)[0] <= best.fun + 1e-9
            divergence[s] += loss(ours)[0]
    np.testing.assert_allclose(found.divergence, divergence, rtol=1e-7)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_divergence_never_grows_and_ends_at_zero(data, labels, draws_of, loss):
    chosen = data if loss == "squared" else labels
    draws = draws_of(chosen, loss)
    steps = [np.array([i]) for i in (3, 0, 5)] + [np.array([1, 2]), np.array([4])]
    models = list(nested_submodels(chosen, reference_of(chosen, draws, loss), steps))
    divergence = np.array([model.divergence for model in models])
    assert (np.diff(divergence, axis=0) <= 1e-8).all()
    assert divergence[0].min() > 1 and divergence[-1].max() < 1e-6
    order = np.argsort(models[-1].features)
    np.testing.assert_allclose(models[-1].coef[:, order], draws.coef, atol=2e-3 if loss == "logistic" else 1e-9)
    np.testing.assert_allclose(
        log_densities(chosen, models[-1]), log_densities(chosen, reference_model(draws, loss)), atol=1e-3
    )


def test_nearly_certain_probabilities_are_projected(draws_of, labels):
    draws = draws_of(labels, "logistic")
    draws = draws._replace(coef=20 * draws.coef)
    found = project(labels, reference_of(labels, draws, "logistic"), np.arange(6))
    assert np.isfinite(found.coef).all() and (found.divergence < 1e-3).all()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_dependent_and_constant_features(loss, draws_of):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 6))
    X[:, 3], X[:, 4], X[:, 5] = X[:, 0], 7.0, 0.0
    data = bm.TaskData.from_long(X, np.where(rng.random(40) > 0.5, 1.0, -1.0), np.repeat([0, 1], 20))
    draws = draws_of(data, loss)
    reference = reference_of(data, draws, loss)
    some, more = project(data, reference, np.array([0, 1])), project(data, reference, np.array([0, 1, 3, 4, 5]))
    np.testing.assert_allclose(more.divergence, some.divergence, atol=1e-7)
    np.testing.assert_allclose(log_densities(data, more), log_densities(data, some), atol=1e-4)
    assert (more.coef[:, 4] == 0).all()


def test_forms_of_the_same_data(draws_of):
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((30, 6)), rng.standard_normal((30, 3))
    X[rng.random(X.shape) < 0.5] = 0
    wide, sparse = bm.TaskData.from_wide(X, Y), bm.TaskData.from_wide(sp.csr_matrix(X), Y)
    long = bm.TaskData.from_long(np.tile(X, (3, 1)), Y.T.ravel(), np.repeat([0, 1, 2], 30))
    draws = draws_of(wide, "squared")
    first, *others = (project(data, reference_of(data, draws, "squared"), FEATURES) for data in (wide, sparse, long))
    for other in others:
        np.testing.assert_allclose(first.coef, other.coef, atol=1e-12)
        np.testing.assert_allclose(first.divergence, other.divergence)
    np.testing.assert_allclose(log_densities(wide, first), log_densities(sparse, first))


def test_densities_of_some_tasks(data, draws_of):
    draws = draws_of(data, "squared")
    model = project(data, reference_of(data, draws, "squared"), FEATURES)
    X, weight, rows = of_task(data, 1)
    alone = bm.TaskData.from_long(X, data.y[rows])
    np.testing.assert_allclose(log_densities(alone, model, np.array([1])), log_densities(data, model)[:, rows])


def test_a_weight_of_two_is_a_row_twice(data, draws_of):
    times = data.weight.astype(int)
    repeated = bm.TaskData.from_long(
        np.repeat(data.X, times, axis=0), np.repeat(data.y, times), np.repeat(data.task_names[data.task], times)
    )
    draws = draws_of(data, "squared")
    first, second = (project(each, reference_of(each, draws, "squared"), FEATURES) for each in (data, repeated))
    np.testing.assert_allclose(first.coef, second.coef, atol=1e-12)
    np.testing.assert_allclose(first.divergence, second.divergence)
