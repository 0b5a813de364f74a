"""Projections onto submodels: against regressions on the fitted values, and against the divergence itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LinearRegression, PoissonRegressor

import bayesmtfs as bm
from bayesmtfs.families import Gaussian, Logistic
from bayesmtfs.selection.draws import read_draws
from bayesmtfs.selection.submodels import (
    FeatureSpan,
    ReferenceFit,
    feature_blocks,
    forward_search,
    log_densities,
    nested_submodels,
    orthonormal,
    project,
    reference_model,
    reference_of,
)

FEATURES = np.array([4, 1, 2])


def reference_for(data, family, with_intercept=True, seed=0, n_draws=5):
    """Draws that need not be a posterior: a projection is defined for any."""
    rng = np.random.default_rng(seed)
    p, m = data.n_features, data.n_tasks
    from_tree = {"coef": rng.standard_normal((n_draws, p, m)), "noise": rng.uniform(0.5, 2, (n_draws, m))}
    intercept = rng.standard_normal((n_draws, m)) * with_intercept
    return from_tree["coef"], intercept, from_tree["noise"] if family.has_noise else None


@pytest.fixture
def draws_of(tree_of):
    def make(data, family, **options):
        return read_draws(tree_of(*reference_for(data, family, **options), tasks=data.task_names))

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
    draws = draws_of(data, Gaussian(), with_intercept=with_intercept)
    found = project(data, reference_of(data, draws, Gaussian()), FEATURES)
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
            # divergence of two normal densities, row by row
            tau = found.noise[s, t]
            rows = np.log(tau / sigma) + (sigma**2 + (eta - fit.predict(X[:, FEATURES])) ** 2) / (2 * tau**2) - 0.5
            divergence[s] += weight @ rows
    np.testing.assert_allclose(found.divergence, divergence, rtol=1e-9)


@pytest.mark.parametrize("with_intercept", [True, False])
def test_logistic_projection_minimises_the_divergence(labels, draws_of, with_intercept):
    draws = draws_of(labels, Logistic(), with_intercept=with_intercept)
    found = project(labels, reference_of(labels, draws, Logistic()), FEATURES)
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


@pytest.mark.parametrize("family", [Gaussian(), Logistic()])
def test_divergence_never_grows_and_ends_at_zero(data, labels, draws_of, family):
    chosen = data if family.has_noise else labels
    draws = draws_of(chosen, family)
    steps = [np.array([i]) for i in (3, 0, 5)] + [np.array([1, 2]), np.array([4])]
    models = list(nested_submodels(chosen, reference_of(chosen, draws, family), steps))
    divergence = np.array([model.divergence for model in models])
    assert (np.diff(divergence, axis=0) <= 1e-8).all()
    assert divergence[0].min() > 1 and divergence[-1].max() < 1e-6
    order = np.argsort(models[-1].features)
    np.testing.assert_allclose(models[-1].coef[:, order], draws.coef, atol=1e-9 if family.has_noise else 2e-3)
    np.testing.assert_allclose(
        log_densities(chosen, models[-1]), log_densities(chosen, reference_model(draws, family)), atol=1e-3
    )


def test_nearly_certain_probabilities_are_projected(draws_of, labels):
    draws = draws_of(labels, Logistic())
    draws = draws._replace(coef=20 * draws.coef)
    found = project(labels, reference_of(labels, draws, Logistic()), np.arange(6))
    assert np.isfinite(found.coef).all() and (found.divergence < 1e-3).all()


@pytest.mark.parametrize("family", [Gaussian(), Logistic()])
def test_dependent_and_constant_features(family, draws_of):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 6))
    X[:, 3], X[:, 4], X[:, 5] = X[:, 0], 7.0, 0.0
    data = bm.TaskData.from_long(X, np.where(rng.random(40) > 0.5, 1.0, -1.0), np.repeat([0, 1], 20))
    draws = draws_of(data, family)
    reference = reference_of(data, draws, family)
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
    draws = draws_of(wide, Gaussian())
    first, *others = (project(data, reference_of(data, draws, Gaussian()), FEATURES) for data in (wide, sparse, long))
    for other in others:
        np.testing.assert_allclose(first.coef, other.coef, atol=1e-12)
        np.testing.assert_allclose(first.divergence, other.divergence)
    np.testing.assert_allclose(log_densities(wide, first), log_densities(sparse, first))


def test_densities_of_some_tasks(data, draws_of):
    draws = draws_of(data, Gaussian())
    model = project(data, reference_of(data, draws, Gaussian()), FEATURES)
    X, weight, rows = of_task(data, 1)
    alone = bm.TaskData.from_long(X, data.y[rows])
    np.testing.assert_allclose(log_densities(alone, model, np.array([1])), log_densities(data, model)[:, rows])


def test_a_weight_of_two_is_a_row_twice(data, draws_of):
    times = data.weight.astype(int)
    repeated = bm.TaskData.from_long(
        np.repeat(data.X, times, axis=0), np.repeat(data.y, times), np.repeat(data.task_names[data.task], times)
    )
    draws = draws_of(data, Gaussian())
    first, second = (project(each, reference_of(each, draws, Gaussian()), FEATURES) for each in (data, repeated))
    np.testing.assert_allclose(first.coef, second.coef, atol=1e-12)
    np.testing.assert_allclose(first.divergence, second.divergence)


# ---------------------------------------------------------------------- search


def search_problem(n_tasks=2, groups=None, seed=0, p=6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40 * n_tasks, p)) @ (np.eye(p) + 0.3 * rng.standard_normal((p, p)))
    data = bm.TaskData.from_long(X, np.zeros(len(X)), np.repeat(np.arange(n_tasks), 40), groups=groups)
    W = rng.standard_normal((p, n_tasks)) * rng.uniform(0.05, 1, (p, 1))
    eta = data.linear_predictor(W, rng.standard_normal(n_tasks))[:, None]
    return data, eta


def greedy(data, reference, blocks):
    """Project the mean fit onto every candidate and take the closest, again and again."""
    chosen, order, divergences = np.empty(0, dtype=int), [], []
    while len(order) < len(blocks):
        after = {
            k: project(data, reference, np.concatenate([chosen, block])).divergence[0]
            for k, block in enumerate(blocks)
            if k not in order
        }
        order.append(min(after, key=after.get))
        divergences.append(after[order[-1]])
        chosen = np.concatenate([chosen, blocks[order[-1]]])
    return order, divergences


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [None, np.array([0, 1, 0, 2, 3, 2])])
def test_forward_search_is_greedy(seed, groups):
    data, eta = search_problem(groups=groups, seed=seed)
    reference = ReferenceFit(Gaussian(), eta, np.array([[0.5, 1.5]]), True)
    blocks = feature_blocks(data)
    order, divergences = greedy(data, reference, blocks)
    found = forward_search(data, reference, len(blocks))
    assert [step.tolist() for step in found.steps] == [blocks[k].tolist() for k in order]
    np.testing.assert_allclose(found.divergence[1:], divergences, rtol=1e-6, atol=1e-8)


def test_spread_of_the_fit_widens_the_noise():
    data, eta = search_problem()
    rng = np.random.default_rng(1)
    draws = eta + 0.3 * rng.standard_normal((len(eta), 50))
    found = forward_search(data, ReferenceFit(Gaussian(), draws, np.full((50, 2), 0.5), True), 2)
    spread = np.array([draws[data.task == t].var(axis=1).mean() for t in range(2)])
    mean = ReferenceFit(Gaussian(), draws.mean(axis=1, keepdims=True), np.sqrt(0.25 + spread)[None], True)
    np.testing.assert_allclose(found.divergence, forward_search(data, mean, 2).divergence, rtol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_labels_enter_nearly_greedily(seed):
    # candidates are compared after one Newton step, so that only clear decisions must be the same
    data, eta = search_problem(seed=seed)
    reference = ReferenceFit(Logistic(), 1.5 * eta, None, True)
    found = forward_search(data, reference, 6)
    _, best = greedy(data, reference, feature_blocks(data))
    assert len(found.steps) == 6 and (np.diff(found.divergence) < 0).all()
    assert found.divergence[1] <= 1.1 * best[0] and found.divergence[3] <= 1.3 * best[2] + 1e-6
    assert found.divergence[-1] < 1e-5 * found.divergence[0]


def test_labels_are_summarised_by_mean_probabilities():
    data, eta = search_problem()
    draws = np.column_stack([2 * eta[:, 0], 0.5 * eta[:, 0]])
    found = forward_search(data, ReferenceFit(Logistic(), draws, None, True), 1)
    p = expit(draws).mean(axis=1)
    empty = 0.0
    for t in range(2):
        own = p[data.task == t]
        empty += np.sum(own * np.log(own / own.mean()) + (1 - own) * np.log((1 - own) / (1 - own.mean())))
    assert found.divergence[0] == pytest.approx(empty, rel=1e-8)


def test_a_weak_effect_in_many_tasks_counts_like_a_strong_one_in_few():
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((30, 3)))[0] * np.sqrt(30)
    W = np.zeros((3, 16))
    W[0, 0], W[1] = 0.8, 0.4
    data = bm.TaskData.from_wide(X, np.zeros((30, 16)))
    eta = data.linear_predictor(W, np.zeros(16))[:, None]
    found = forward_search(data, ReferenceFit(Gaussian(), eta, np.ones((1, 16)), False), 3)
    assert [int(step[0]) for step in found.steps] == [1, 0]  # and nothing is left for feature 2
    assert found.divergence[-1] < 1e-9


# ---------------------------------------------------------------------- what further features explain


def squares_left(columns, weight, values, with_intercept):
    Z = np.column_stack([columns, np.ones(len(values))]) if with_intercept else columns
    root = np.sqrt(weight)
    fitted = Z @ np.linalg.lstsq(root[:, None] * Z, root * values)[0] if Z.shape[1] else np.zeros(len(values))
    return weight @ (values - fitted) ** 2


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 7)) + np.array([0, 0, 1e4, 0, 0, 0, 0])
    X[:, 5] = X[:, 0] - 2 * X[:, 1]  # lies in the span of the first two
    X[:, 6] = 3.0
    return X, rng.uniform(0.5, 2, 25), rng.standard_normal(25)


@pytest.mark.parametrize("with_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("chosen", [[], [0], [0, 1, 3]])
def test_gains_are_differences_of_least_squares(problem, chosen, form, with_intercept):
    X, weight, values = problem
    if form is sp.csr_matrix:
        X = X - np.array([0, 0, 1e4, 0, 0, 0, 0])  # a sparse design is not centred
    span = FeatureSpan(form(X), weight, with_intercept)
    span.add(np.array(chosen, dtype=int))
    blocks = [np.array([i]) for i in range(7)] + [np.array([2, 4]), np.array([0, 5, 6])]
    before = squares_left(X[:, chosen], weight, values, with_intercept)
    after = [squares_left(X[:, [*chosen, *block]], weight, values, with_intercept) for block in blocks]
    residual = span.residual(values)
    assert residual @ residual == pytest.approx(before)
    np.testing.assert_allclose(span.gains(residual, blocks), before - np.array(after), atol=1e-7)


def test_dependent_columns_add_nothing(problem):
    X, _, _ = problem
    basis = orthonormal(X[:, :2], np.empty((25, 0)))
    assert orthonormal(X[:, [5]], basis).shape == (25, 0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    assert orthonormal(np.zeros((25, 2)), basis).shape == (25, 0)


# ---------------------------------------------------------------------- a family of the user's


@pytest.mark.parametrize("size", [0.2, 1.0])
def test_counts_are_projected_by_a_regression_on_the_fitted_means(draws_of, poisson, size):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((50, 6))
    data = bm.TaskData.from_long(X, rng.poisson(1.0, 50).astype(float), np.repeat([0, 1], 25))
    draws = draws_of(data, poisson)
    draws = draws._replace(coef=size * draws.coef)
    found = project(data, reference_of(data, draws, poisson), FEATURES)
    divergence = np.zeros(5)
    for t in range(2):
        X, _, _ = of_task(data, t)
        for s in range(5):
            eta = X @ draws.coef[s, :, t] + draws.intercept[s, t]
            fit = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=10_000).fit(X[:, FEATURES], np.exp(eta))
            np.testing.assert_allclose(found.coef[s, :, t], fit.coef_, atol=1e-4)
            near = X[:, FEATURES] @ found.coef[s, :, t] + found.intercept[s, t]
            divergence[s] += np.sum(np.exp(eta) * (eta - near) - np.exp(eta) + np.exp(near))
    np.testing.assert_allclose(found.divergence, divergence, rtol=1e-8)
    model = project(data, reference_of(data, draws, poisson), np.arange(6))
    assert model.divergence.max() < 1e-8


def test_counts_are_searched(poisson):
    data, eta = search_problem()
    draws = 0.5 * np.column_stack([eta[:, 0], 0.5 * eta[:, 0]])
    found = forward_search(data, ReferenceFit(poisson, draws, None, True), 6)
    mean = np.exp(draws).mean(axis=1)
    empty = sum(np.sum(own * np.log(own / own.mean())) for own in (mean[data.task == 0], mean[data.task == 1]))
    assert found.divergence[0] == pytest.approx(empty, rel=1e-8)
    assert (np.diff(found.divergence) < 0).all() and found.divergence[-1] < 0.05 * found.divergence[0]
