"""From a fit to the posterior of q: least squares with errors, or Gibbs draws."""

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import learned_exponent
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.families import find_family


def make(norm_q=6.0, kind="regression", n=60, m=25, seed=0):
    sim = simulate_tasks(
        n_tasks=m, n_features=8, n_relevant=8, n_samples=n, norm_q=norm_q, kind=kind, snr=20.0, random_state=seed
    )
    loss = "squared" if kind == "regression" else "logistic"
    units = within_task_units(sim.data, True, find_family(loss).quadratic)
    tasks = activate(sim.data, find_family(loss), True, units, units.varies)
    W = units.from_user(sim.coef.T)
    intercept = np.zeros(m)
    return sim, units, tasks, W, tasks.linear_predictor(W, intercept)


def test_estimates_are_weighted_least_squares_with_their_errors():
    sim, units, tasks, W, eta = make()
    normal = learned_exponent.normal_likelihood(tasks, W, eta, np.ones(25))
    found, errors, known = learned_exponent.estimates(normal)
    assert known.all()
    for t in (0, 7):
        a, b = tasks.spans[t]
        design = np.column_stack([tasks.designs[t], np.ones(b - a)])
        expected, square, *_ = np.linalg.lstsq(design, tasks.y[a:b])
        variance = square[0] / (b - a - 9)
        deviations = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))[:-1]
        np.testing.assert_allclose(found[:, t], expected[:-1], rtol=1e-8)
        np.testing.assert_allclose(errors[:, t], deviations, rtol=1e-6)


def test_logistic_likelihood_is_the_normal_law_at_the_mode():
    """Hessian in (w, b) by differences, the intercept taken out."""
    _, _, tasks, W, eta = make(kind="classification")
    normal = learned_exponent.normal_likelihood(tasks, W, eta, np.ones(25))
    (a, b), design = tasks.spans[3], np.column_stack([tasks.designs[3], np.ones(60)])

    def slope(packed):
        return design.T @ tasks.family.gradient(tasks.y[a:b], design @ packed)

    at, h = np.append(W[:, 3], 0.0), 1e-5
    hessian = np.array([(slope(at + step) - slope(at - step)) / (2 * h) for step in h * np.eye(9)])
    expected = hessian[:8, :8] - np.outer(hessian[:8, 8], hessian[8, :8]) / hessian[8, 8]
    np.testing.assert_allclose(normal.sums.grams[3], expected, rtol=1e-5, atol=1e-6)
    newton = at - np.linalg.solve(hessian, slope(at))
    np.testing.assert_allclose(np.linalg.solve(expected, normal.sums.correlations[3]), newton[:8], rtol=1e-4, atol=1e-5)
    assert not normal.learn_noise


def test_tasks_with_too_few_rows_have_no_estimates():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [40, 9])
    data = TaskData.from_long(rng.standard_normal((49, 8)), rng.standard_normal(49), labels)
    units = within_task_units(data, True, find_family("squared").quadratic)
    tasks = activate(data, find_family("squared"), True, units, units.varies)
    W = rng.standard_normal((8, 2))
    normal = learned_exponent.normal_likelihood(tasks, W, tasks.linear_predictor(W, np.zeros(2)), np.ones(2))
    known = learned_exponent.estimates(normal)[2]
    assert known[:, 0].all() and not known[:, 1].any()


@pytest.mark.parametrize("method", ["two_stage", "integrated"])
@pytest.mark.parametrize("norm_q", [1.3, 6.0])
def test_both_methods_find_q(method, norm_q):
    _, _, tasks, W, eta = make(norm_q)
    found = learned_exponent.learn(tasks, W, eta, np.full(25, 0.2), (1.0, 50.0), method, 0)
    assert found.interval[0] <= norm_q <= found.interval[1] and found.identified


def test_too_few_rows_everywhere_fall_back_on_the_mode():
    _, _, tasks, W, eta = make(n=8)
    found = learned_exponent.learn(tasks, W, eta, np.full(25, 0.2), (1.0, 50.0), "two_stage", 0)
    assert found.interval[0] <= 6.0 <= found.interval[1]
