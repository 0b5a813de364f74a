"""Batch baselines: fits against scikit-learn's own and against general minimisers."""

import numpy as np
import pytest
import scipy.optimize
from sklearn.linear_model import LogisticRegression, Ridge

from bayesmtfs import baselines, simulate_tasks


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(n_tasks=3, n_features=4, n_relevant=4, n_samples=[20, 30, 40], random_state=0)


def test_one_fit_per_task_and_one_for_all(sim):
    y = sim.y > 0
    alone = baselines.IndependentClassifier(penalty_strength=0.2).fit(sim.X, y, tasks=sim.tasks)
    for t in range(3):
        rows = sim.tasks == t
        peer = LogisticRegression(C=1 / (0.2 * rows.sum()), tol=1e-10, max_iter=1000).fit(sim.X[rows], y[rows])
        np.testing.assert_allclose(alone.coef_[t], peer.coef_[0], atol=1e-5)
    pooled = baselines.PooledRegressor(penalty_strength=0.2).fit(sim.X, sim.y, tasks=sim.tasks)
    peer = Ridge(alpha=0.2 * len(sim.y)).fit(sim.X, sim.y)
    np.testing.assert_allclose(pooled.coef_, np.tile(peer.coef_, (3, 1)), atol=1e-8)
    np.testing.assert_allclose(pooled.intercept_, peer.intercept_, atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_shared_mean_minimises_its_objective(sim, kind, fit_intercept):
    X = np.hstack([sim.X, np.ones((len(sim.y), 1))]) if fit_intercept else sim.X
    width = X.shape[1]
    ridge = np.where(np.arange(width) < 4, 0.05, 0.0)
    signs, weight = np.sign(sim.y), 1.0 / np.bincount(sim.tasks)[sim.tasks]

    def objective(z):
        mean, V = z[:width], z[width:].reshape(3, width)
        eta = np.sum(X * (mean + V[sim.tasks]), axis=1)
        losses = 0.5 * (sim.y - eta) ** 2 if kind == "regression" else np.logaddexp(0, -signs * eta)
        return weight @ losses + 0.1 * np.sum(V**2) + 0.5 * ridge @ mean**2

    best = scipy.optimize.minimize(objective, np.zeros(4 * width), method="BFGS", options={"gtol": 1e-8})
    wanted = best.x[:width] + best.x[width:].reshape(3, width)
    options = {"penalty_strength": 0.2, "mean_strength": 0.05, "fit_intercept": fit_intercept}
    if kind == "regression":
        model = baselines.SharedMeanRegressor(**options).fit(sim.X, sim.y, tasks=sim.tasks)
    else:
        model = baselines.SharedMeanClassifier(**options).fit(sim.X, signs.astype(int), tasks=sim.tasks)
    np.testing.assert_allclose(model.coef_, wanted[:, :4], atol=2e-5)
    if fit_intercept:
        np.testing.assert_allclose(model.intercept_, wanted[:, 4], atol=2e-5)


def test_shared_hypotheses_find_the_two_kinds_of_tasks():
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(400, 3)), np.repeat(np.arange(8), 50)
    y = (X[:, 0] * np.where(tasks % 2, 1.0, -1.0) + 0.3 * rng.normal(size=400) > 0).astype(int)
    model = baselines.SharedHypothesesClassifier(2, random_state=0).fit(X, y, tasks=tasks)
    assert len(set(model.hypothesis_[::2])) == len(set(model.hypothesis_[1::2])) == 1
    assert model.hypothesis_[0] != model.hypothesis_[1]
    one = baselines.SharedHypothesesClassifier(1, penalty_strength=0.2).fit(X, y, tasks=tasks)
    weight = np.full(400, 1 / 50)
    peer = LogisticRegression(C=1 / 0.2, tol=1e-10, max_iter=1000).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(one.coef_, np.tile(peer.coef_, (8, 1)), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (baselines.PooledClassifier(penalty_strength=0.0), "penalty_strength is 0.0; pass a positive number"),
        (baselines.SharedMeanClassifier(mean_strength=-1.0), "mean_strength is -1.0; pass a positive number"),
        (baselines.SharedHypothesesClassifier(0), "n_hypotheses is 0; pass a whole number of at least 1"),
    ],
)
def test_parameters_are_checked(sim, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(sim.X, sim.y > 0, tasks=sim.tasks)
