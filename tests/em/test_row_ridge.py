"""M-step for W: closed form at q = 2, a numeric minimiser at other q, primal and dual alike."""

import numpy as np
import pytest
from bayesmtfs.em.row_ridge import curvature, penalty_terms
from scipy.optimize import minimize

from bayesmtfs import TaskData
from bayesmtfs.data.scaling import WithinTaskUnits
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.em.jeffreys import State, begin, update_coefficients
from bayesmtfs.families import find_family

SIZES = {"primal": 30, "dual": 5}


def make_tasks(n, loss="squared", seed=0, p=8, m=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n * m, p)) + 0.5
    y = X[:, 0] - X[:, 1] + rng.standard_normal(n * m)
    y = y if loss == "squared" else np.where(y > y.mean(), 1.0, -1.0)
    weight = rng.uniform(0.5, 2.0, n * m)
    data = TaskData.from_long(X, y, np.arange(n * m) % m, sample_weight=weight)
    units = WithinTaskUnits(np.ones(p), 1.0, np.ones(p, dtype=bool))
    return activate(data, find_family(loss), True, units, np.ones(p, dtype=bool))


def solved(tasks, scales, noise, norm_q, repeats):
    rng = np.random.default_rng(1)
    W = 0.3 * rng.standard_normal(scales.shape)
    intercept = np.zeros(tasks.n_tasks)
    state = State(W, intercept, noise, norm_q, tasks.linear_predictor(W, intercept))
    fixed = begin(tasks, None).fixed
    for _ in range(repeats):
        state = update_coefficients(tasks, state, scales, fixed)
    return state


def penalised(tasks, t, scales, noise, norm_q):
    X, (a, b) = tasks.designs[t], tasks.spans[t]

    def value(packed):
        eta = X @ packed[:-1] + packed[-1]
        loss = tasks.weight[a:b] @ tasks.family.value(tasks.y[a:b], eta)
        return loss / noise[t] ** 2 + np.sum(np.abs(packed[:-1] / scales[:, t]) ** norm_q)

    return value


@pytest.mark.parametrize("form", SIZES)
def test_one_step_is_the_ridge_solution(form):
    tasks = make_tasks(SIZES[form])
    scales = np.broadcast_to(np.linspace(0.2, 2.0, 8)[:, None], (8, 3))
    noise = np.array([0.5, 1.0, 2.0])
    state = solved(tasks, scales, noise, 2.0, repeats=1)
    for t, X in enumerate(tasks.designs):
        a, b = tasks.spans[t]
        C = np.diag(tasks.weight[a:b]) / noise[t] ** 2
        design = np.column_stack([X, np.ones(len(X))])
        ridge = np.diag(np.append(2.0 / scales[:, t] ** 2, 0.0))
        expected = np.linalg.solve(design.T @ C @ design + ridge, design.T @ C @ tasks.y[a:b])
        np.testing.assert_allclose(np.append(state.W[:, t], state.intercept[t]), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("norm_q", [1.2, 1.6, 2.0, 3.0, 12.0])
@pytest.mark.parametrize("form", SIZES)
def test_steps_reach_the_numeric_minimum(form, norm_q, loss):
    tasks = make_tasks(SIZES[form], loss)
    scales = np.broadcast_to(np.linspace(0.3, 1.0, 8)[:, None], (8, 3))
    noise = np.array([0.7, 1.0, 1.5]) if loss == "squared" else np.ones(3)
    state = solved(tasks, scales, noise, norm_q, repeats=100)
    for t in range(3):
        value = penalised(tasks, t, scales, noise, norm_q)
        packed = np.append(state.W[:, t], state.intercept[t])
        found = minimize(value, packed, method="BFGS", options={"gtol": 1e-9})
        assert value(packed) <= found.fun + 1e-7 * abs(found.fun)


@pytest.mark.parametrize("norm_q", [1.3, 2.0, 4.0])
def test_penalty_terms_are_curvature_and_gradient(norm_q):
    V = np.array([-1.2, -0.4, 0.3, 1.0])
    root, gradient = penalty_terms(V, norm_q)
    h = 1e-5
    slope = (np.abs(V + h) ** norm_q - np.abs(V - h) ** norm_q) / (2 * h)
    np.testing.assert_allclose(gradient / root, slope, rtol=1e-6)
    if norm_q <= 2:
        # the parabola through v with this curvature lies above the penalty everywhere
        z = np.linspace(-2.0, 2.0, 41)[:, None]
        bound = np.abs(V) ** norm_q + (z**2 - V**2) / (2 * root**2)
        assert np.all(bound >= np.abs(z) ** norm_q - 1e-12)
    else:
        second = (np.abs(V + h) ** norm_q - 2 * np.abs(V) ** norm_q + np.abs(V - h) ** norm_q) / h**2
        np.testing.assert_allclose(1 / root**2, np.maximum(second, 1e-2), rtol=1e-4)


def test_restriction_is_the_curvature_of_fewer_features():
    tasks = make_tasks(6)
    weights = [tasks.weight[a:b] for a, b in tasks.spans]
    kept = np.array([True, False, True, True, False, True, True, False])
    whole = curvature(tasks.designs, weights, True)
    part = curvature([X[:, kept] for X in tasks.designs], weights, True)
    assert len(whole.dual) == 3 and len(part.primal) == 3
    small = whole.restricted(kept)
    np.testing.assert_allclose(small.grams, part.grams)
    np.testing.assert_allclose(small.means, part.means)
    again = part.restricted(np.array([True, True, False, False, True]))
    np.testing.assert_allclose(again.grams, part.grams[:, [0, 1, 4]][:, :, [0, 1, 4]])
