"""EM under the Jeffreys prior: the stated objective, never rising, stationary where it ends."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import jeffreys as em
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.em.exponent import marginal_maximum
from bayesmtfs.families import find_family
from bayesmtfs.priors.jeffreys import Jeffreys

EXPONENTS = [1.0, 1.3, 2.0, 3.0, 8.0, 50.0]


def make(seed=0, n=20, p=10, m=4, loss="squared", weights=None, groups=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n * m, p))
    labels = np.arange(n * m) % m
    W = np.zeros((p, m))
    W[:3] = 2.0 * rng.standard_normal((3, m))
    y = np.einsum("ip,pi->i", X, W[:, labels]) + 0.5 * rng.standard_normal(n * m)
    y = y if loss == "squared" else np.where(rng.random(n * m) < 1 / (1 + np.exp(-y)), 1.0, -1.0)
    data = TaskData.from_long(X, y, labels, sample_weight=weights, groups=groups)
    units = within_task_units(data, True, find_family(loss).quadratic)
    tasks = activate(data, find_family(loss), True, units, units.varies)
    start = units.from_user(W) + 0.05 * rng.standard_normal(W.shape)
    return tasks, start


def run(tasks, W, rule=None, **settings):
    learn = tasks.family.name == "squared"
    return em.solve(tasks, W, tasks.null_intercept(), em.Settings(learn_noise=learn, **settings), exponent_rule=rule)


def rises(trace):
    return np.max(np.diff(trace) / np.abs(trace[:-1]), initial=-np.inf)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("norm_q", EXPONENTS)
@pytest.mark.parametrize(("n", "p"), [(20, 10), (8, 25)])
@pytest.mark.parametrize("seed", range(3))
def test_objective_never_rises(seed, n, p, norm_q, loss):
    tasks, W = make(seed, n, p, loss=loss)
    found = run(tasks, W, norm_q=norm_q, max_iter=200)
    assert np.all(np.isfinite(found.objective_trace)) and rises(found.objective_trace) <= 1e-10
    assert len(found.objective_trace) == found.n_iter + 1


@pytest.mark.parametrize("prior", [(0.5, 0.0), (0.0, 0.1), (1.0, 1.0)])
@pytest.mark.parametrize("norm_q", [1.5, 2.0, 4.0])
def test_objective_never_rises_under_a_gamma_prior(norm_q, prior):
    tasks, W = make()
    found = run(tasks, W, norm_q=norm_q, shape=prior[0], rate=prior[1], shared_noise=True)
    assert rises(found.objective_trace) <= 1e-10 and found.converged


@pytest.mark.parametrize("seed", range(4))
def test_exact_update_of_q_never_raises_the_objective(seed):
    tasks, W = make(seed, m=8)

    def rule(tasks, before, after):
        return marginal_maximum(em.floored(after.W), tasks.blocks.sizes, (1.0, 30.0), after.norm_q)

    found = run(tasks, W, rule=rule)
    assert rises(found.objective_trace) <= 1e-10
    assert found.norm_q != 2.0


def test_objective_is_minus_the_log_posterior():
    """Differences against normal densities and the marginal of the rows, written with scipy."""
    tasks, W = make()
    rng = np.random.default_rng(5)
    settings, values, expected = em.Settings(norm_q=3.0), [], []
    for _ in range(3):
        point = W + rng.standard_normal(W.shape)
        noise, intercept = rng.uniform(0.3, 2.0, 4), rng.standard_normal(4)
        eta = tasks.linear_predictor(point, intercept)
        values.append(em.objective(tasks, em.State(point, intercept, noise, 3.0, eta), settings, np.empty(0)))
        log_likelihood = stats.norm.logpdf(tasks.y, eta, noise[tasks.task]).sum()
        rows = -4 * np.log(np.linalg.norm(point, 3, axis=1)).sum()
        expected.append(-log_likelihood - rows)
    np.testing.assert_allclose(np.diff(values), np.diff(expected), rtol=1e-10)


@pytest.mark.parametrize("norm_q", [1.5, 2.0, 5.0])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_end_is_stationary(loss, norm_q):
    tasks, W = make(n=60, loss=loss)
    found = run(tasks, W, norm_q=norm_q, tol=1e-9, max_iter=5000)
    kept = (found.W != 0).any(axis=1)
    assert found.converged and 3 <= kept.sum() < len(kept)
    active = tasks.restricted(kept)
    settings = em.Settings(norm_q=norm_q)

    def value(packed):
        point = packed[:-4].reshape(-1, 4)
        eta = active.linear_predictor(point, packed[-4:])
        return em.objective(active, em.State(point, packed[-4:], found.noise, norm_q, eta), settings, np.empty(0))

    at = np.append(found.W[kept].ravel(), found.intercept)
    h = 1e-5 * np.eye(len(at))
    slopes = np.array([(value(at + step) - value(at - step)) / 2e-5 for step in h])
    assert np.abs(slopes).max() < 1e-3
    squares = np.add.reduceat(
        tasks.weight * (tasks.y - tasks.linear_predictor(found.W, found.intercept)) ** 2, [a for a, _ in tasks.spans]
    )
    if loss == "squared":
        np.testing.assert_allclose(found.noise, np.sqrt(squares / tasks.counts), rtol=1e-5)


def test_expected_scales_are_those_of_the_prior():
    tasks, W = make()
    scales = em.expected_scales(tasks, W, 3.0, em.Settings())
    np.testing.assert_allclose(scales[:, 0] ** -3.0, Jeffreys(3.0).em_weights(W), rtol=1e-12)


def test_rows_become_exactly_zero_and_stay_so():
    tasks, W = make()
    W = W.copy()
    W[7] = 0.0
    found = run(tasks, W)
    assert (found.W[7] == 0).all() and (found.W != 0).any(axis=1).sum() == 3


def test_all_rows_may_go():
    tasks, W = make()
    found = run(tasks, 1e-9 * W)
    assert (found.W == 0).all() and found.converged
    np.testing.assert_allclose(found.intercept, tasks.null_intercept(), atol=1e-12)


def test_weight_two_is_a_repeated_row():
    rng = np.random.default_rng(2)
    X, labels = rng.standard_normal((60, 6)), np.arange(60) % 2
    y = X[:, 0] * (1 + labels) + 0.3 * rng.standard_normal(60)
    twice = np.append(np.arange(60), np.arange(0, 60, 3))
    weights = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    found = []
    for data in (TaskData.from_long(X, y, labels, weights), TaskData.from_long(X[twice], y[twice], labels[twice])):
        units = within_task_units(data, True, find_family("squared").quadratic)
        tasks = activate(data, find_family("squared"), True, units, units.varies)
        outcome = run(tasks, np.full((6, 2), 0.3))
        found.append((units.to_user(outcome.W), outcome.objective_trace[-1]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-8)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-10)


def test_groups_leave_whole():
    tasks, W = make(groups=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    found = run(tasks, W)
    kept = (found.W != 0).any(axis=1).reshape(-1, 2)
    assert np.array_equal(kept[:, 0], kept[:, 1]) and 0 < kept[:, 0].sum() < 5
    assert rises(found.objective_trace) <= 1e-10


def test_interruption_gives_the_best_so_far():
    tasks, W = make()
    calls = []

    def rule(tasks, before, after):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return after.norm_q

    found = run(tasks, W, rule=rule)
    assert found.interrupted and not found.converged and found.n_iter == 2 and np.all(np.isfinite(found.W))
