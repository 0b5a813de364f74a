"""Batch smoothed learning: its objective, its two steps, and collapse of attention."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from bayesmtfs import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import EpsilonInsensitive, find_family
from bayesmtfs.online.smoothed import SmoothedSettings, attention, objective, solve, task_losses


@pytest.fixture(scope="module")
def data():
    sim = simulate_tasks(n_tasks=3, n_features=4, n_relevant=4, n_samples=[20, 30, 40], random_state=0)
    return TaskData.from_long(sim.X, np.sign(sim.y), sim.tasks)


def test_losses_are_means_over_the_rows_of_tasks(data):
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(4, 2)), rng.normal(size=2)
    found = task_losses(data, EpsilonInsensitive(0.1), W, b)
    for k in range(2):
        for j, (start, stop) in enumerate(data.spans):
            residual = np.abs(data.y[start:stop] - data.X[start:stop] @ W[:, k] - b[k])
            assert found[k, j] == pytest.approx(np.maximum(residual - 0.1, 0).mean())


def test_exponential_attention_minimises_the_objective(data):
    settings = SmoothedSettings(concentration=0.3, smoothing=0.4)
    losses, W = np.array([[0.1, 0.9, 0.5]]), np.zeros((4, 1))
    best = scipy.optimize.minimize(
        lambda z: 0.7 * scipy.special.softmax(z) @ losses[0] - 0.4 * scipy.stats.entropy(scipy.special.softmax(z)),
        np.zeros(3),
        tol=1e-14,
    )
    P = attention("exponential", 0.3, 0.4, losses, np.full((1, 3), 1 / 3))
    np.testing.assert_allclose(P[0], scipy.special.softmax(best.x), atol=1e-6)
    own = objective(settings, losses, P, W) - 0.3 * losses[0, 0]
    assert own == pytest.approx(best.fun, abs=1e-9)


def test_threshold_attention_keeps_the_row_where_all_are_too_lossy():
    P = np.array([[0.2, 0.8], [0.2, 0.8]])
    found = attention("threshold", 0.5, 1.0, np.array([[0.5, 0.75], [2.0, 3.0]]), P)
    np.testing.assert_allclose(found, [[2 / 3, 1 / 3], [0.2, 0.8]])


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_objective_falls_and_the_end_is_a_fixed_point(data, loss):
    settings = SmoothedSettings(concentration=0.4, smoothing=0.05, strength=0.1, family=find_family(loss))
    found, P = solve(data, settings)
    assert found.converged and len(found.objective_trace) == found.n_iter
    assert np.all(np.diff(found.objective_trace) <= 1e-6)
    eta = 0.4 * np.eye(3) + 0.6 * P
    weight = data.loss_weights("mean")

    def value(z, k):
        eta_k = data.X @ z[:4] + z[4]
        losses = np.logaddexp(0, -data.y * eta_k) if loss == "logistic" else np.maximum(1 - data.y * eta_k, 0)
        return np.sum(eta[k][data.task] * weight * losses) + 0.05 * z[:4] @ z[:4]

    for k in range(3):
        here = np.append(found.W[:, k], found.intercept[k])
        around = here + 0.01 * np.random.default_rng(k).normal(size=(200, 5))
        assert all(value(z, k) >= value(here, k) - 1e-7 for z in around)
