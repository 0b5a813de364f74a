"""The M-step for W: closed form at q = 2, a numeric minimiser at other q, primal and dual alike; factors of whole rows."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import WithinTaskUnits, within_task_units
from bayesmtfs.em import jeffreys
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.em.jeffreys import EMState, minimise_given_scales
from bayesmtfs.em.ridge import best_factors, curvature, penalty_terms
from bayesmtfs.families import Gaussian, Logistic, find_family

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
    state = EMState(tasks, W, intercept, noise, norm_q, tasks.linear_predictor(W, intercept), np.ones(len(W), bool))
    for _ in range(repeats):
        state = minimise_given_scales(state, scales)
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


# ---------------------------------------------------------------------- least squares at q = 2


SHAPES = {"few features": (3, 8, 40), "many features": (3, 60, 30), "one task": (1, 20, 50), "both": (2, 25, 25)}


def start_of(shape, fit_intercept=True, groups=None, family=None):
    """Tasks with sizes of their own and a dense start."""
    m, p, n = shape
    sim = simulate_tasks(n_tasks=m, n_features=p, n_relevant=4, n_samples=n, random_state=2)
    kept = np.ones(len(sim.y), dtype=bool)
    kept[: n // 5] = False
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.5, 2.0, kept.sum())
    data = TaskData.from_long(sim.X[kept] + 0.5, sim.y[kept] + 3.0, sim.tasks[kept], weight, groups=groups)
    family = family or Gaussian()
    tasks = activate(
        data, family, fit_intercept, within_task_units(data, fit_intercept, family.quadratic), np.ones(p, bool)
    )
    return tasks, rng.normal(0.0, 0.3, (p, m)), np.zeros(m)


@pytest.mark.parametrize("settings", [{}, {"shared_noise": True}, {"learn_noise": False}, {"noise_floor": 0.6}])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_numbers_are_those_of_the_general_iterations(shape, fit_intercept, settings, monkeypatch):
    tasks, W, b = start_of(shape, fit_intercept)
    options = jeffreys.EMSettings(**settings)
    zero_rows = np.full(3, float(shape[0]))
    assert jeffreys.is_simple(tasks, options)
    fast, _ = jeffreys.solve(jeffreys.begin(tasks, W, b, options, zero_rows), options)
    monkeypatch.setattr(jeffreys, "is_simple", lambda *arguments: False)
    general, _ = jeffreys.solve(jeffreys.begin(tasks, W, b, options, zero_rows), options)
    assert fast.n_iter == general.n_iter and fast.converged == general.converged
    assert shape != SHAPES["many features"] or not fast.W.any(axis=1).all()
    for name in ("W", "intercept", "noise", "objective_trace"):
        np.testing.assert_allclose(getattr(fast, name), getattr(general, name), rtol=1e-9, atol=1e-9, err_msg=name)
    assert (np.diff(fast.objective_trace) <= 1e-10 * np.abs(fast.objective_trace[1:])).all()


def least_squares(tasks, W, noise):
    settings = jeffreys.EMSettings()
    return jeffreys.RidgeSearch(jeffreys.begin(tasks, W, np.zeros(len(noise)), settings), settings).sums


def test_a_step_solves_the_ridge_regression_of_every_task():
    tasks, W, _ = start_of(SHAPES["both"])
    noise = np.array([0.5, 2.0])
    after = least_squares(tasks, W, noise).improved(W, noise)
    ridge = tasks.n_tasks / np.sum(W**2, axis=1)
    for t, (start, stop) in enumerate(tasks.spans):
        X, y, c = tasks.designs[t], tasks.y[start:stop], tasks.weight[start:stop]
        X, y = X - c @ X / c.sum(), y - c @ y / c.sum()
        direct = np.linalg.solve((X.T * c) @ X / noise[t] ** 2 + np.diag(ridge), X.T @ (c * y) / noise[t] ** 2)
        np.testing.assert_allclose(after[:, t], direct, rtol=1e-8, atol=1e-12)


def test_squared_residuals():
    tasks, W, _ = start_of(SHAPES["both"])
    squares = least_squares(tasks, W, np.ones(2)).residual_squares(W)
    for t, (start, stop) in enumerate(tasks.spans):
        c, residual = tasks.weight[start:stop], tasks.y[start:stop] - tasks.designs[t] @ W[:, t]
        assert squares[t] == pytest.approx(c @ (residual - c @ residual / c.sum()) ** 2)


def test_what_is_not_a_plain_ridge_regression():
    tasks, _, _ = start_of(SHAPES["few features"])
    plain = jeffreys.EMSettings()
    assert jeffreys.is_simple(tasks, plain)
    assert not jeffreys.is_simple(tasks, jeffreys.EMSettings(norm_q=1.5))
    assert not jeffreys.is_simple(tasks, jeffreys.EMSettings(shape=1.0, rate=0.1))
    assert not jeffreys.is_simple(start_of(SHAPES["few features"], groups=[0, 0, 1, 2, 3, 4, 5, 6])[0], plain)
    assert not jeffreys.is_simple(start_of(SHAPES["few features"], family=Logistic())[0], plain)


def test_an_interrupted_run_keeps_what_it_has(monkeypatch):
    tasks, W, b = start_of(SHAPES["few features"])
    calls = []

    def interrupting(self, fraction, note=""):
        calls.append(note)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(jeffreys.Progress, "update", interrupting)
    found, _ = jeffreys.solve(jeffreys.begin(tasks, W, b, jeffreys.EMSettings()), jeffreys.EMSettings())
    assert found.interrupted and not found.converged
    assert found.n_iter == 3 and found.W.any()


# ---------------------------------------------------------------------- whole rows


def make_rows(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    designs = [rng.standard_normal((20, 3)) for _ in range(4)]
    truth = np.array([2.0, -1.5, 1.0])[:, None] * rng.choice([-1.0, 1.0], (3, 4))
    targets = [X @ truth[:, t] for t, X in enumerate(designs)]
    W = scale * truth
    curv = curvature(designs, [np.ones(20)] * 4, False)
    gradient = np.column_stack([X.T @ (X @ W[:, t] - targets[t]) for t, X in enumerate(designs)])
    return designs, targets, W, curv, gradient


def row_objective(factors, designs, targets, W, sizes):
    rows = factors[:, None] * W
    loss = sum(0.5 * np.sum((y - X @ rows[:, t]) ** 2) for t, (X, y) in enumerate(zip(designs, targets, strict=True)))
    return loss + sizes @ np.log(factors)


def test_factors_minimise_the_objective_along_the_rows():
    designs, targets, W, curv, gradient = make_rows(scale=0.6)
    sizes, rows = np.full(3, 4), np.arange(3)
    factors = best_factors(curv, np.ones(4), gradient, W, rows, sizes, np.zeros(3, dtype=bool))
    found = minimize(row_objective, np.full(3, 1.5), (designs, targets, W, sizes), bounds=[(0.5, 5.0)] * 3)
    assert row_objective(factors, designs, targets, W, sizes) <= found.fun + 1e-2
    np.testing.assert_allclose(factors, found.x, rtol=0.02)
    assert np.all(factors > 1.3)


def test_a_row_without_support_shrinks_only_where_em_shrinks_it():
    designs, targets, W, curv, gradient = make_rows(scale=0.01)
    sizes = np.full(3, 4000)  # a prior so strong that no row has a minimum
    for falling in (True, False):
        factors = best_factors(curv, np.ones(4), gradient, W, np.arange(3), sizes, np.full(3, falling))
        assert np.all(factors < 1.0) if falling else np.all(factors == 1.0)


def test_features_of_one_row_move_together():
    designs, targets, W, curv, gradient = make_rows(scale=0.6)
    factors = best_factors(
        curv, np.ones(4), gradient, W, np.array([0, 0, 1]), np.array([8, 4]), np.zeros(2, dtype=bool)
    )
    value = [
        row_objective(np.array([c, c, factors[1]]), designs, targets, W, np.array([4, 4, 4])) for c in (0.95, 1.0, 1.05)
    ]
    at = row_objective(factors[[0, 0, 1]], designs, targets, W, np.array([4, 4, 4]))
    assert factors.shape == (2,) and at < min(value)
