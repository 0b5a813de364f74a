"""EM by ridge regressions: the same numbers as the general EM, at less cost, and stationary points of the objective."""

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import ridge as em_ridge
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.families import Gaussian, Logistic

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
    options = em_jeffreys.Settings(**settings)
    zero_rows = np.full(3, float(shape[0]))
    assert em_ridge.is_simple(tasks, options)
    fast = em_jeffreys.solve(tasks, W, b, options, zero_rows=zero_rows)
    monkeypatch.setattr(em_ridge, "is_simple", lambda *arguments: False)
    general = em_jeffreys.solve(tasks, W, b, options, zero_rows=zero_rows)
    assert fast.n_iter == general.n_iter and fast.converged == general.converged
    assert shape != SHAPES["many features"] or not fast.W.any(axis=1).all()
    for name in ("W", "intercept", "noise", "objective_trace"):
        np.testing.assert_allclose(getattr(fast, name), getattr(general, name), rtol=1e-9, atol=1e-9, err_msg=name)
    assert (np.diff(fast.objective_trace) <= 1e-10 * np.abs(fast.objective_trace[1:])).all()


def test_a_step_solves_the_ridge_regression_of_every_task():
    tasks, W, _ = start_of(SHAPES["both"])
    noise = np.array([0.5, 2.0])
    after = em_ridge.update_coefficients(em_ridge.sums_of(tasks), W, noise)
    ridge = tasks.n_tasks / np.sum(W**2, axis=1)
    for t, (start, stop) in enumerate(tasks.spans):
        X, y, c = tasks.designs[t], tasks.y[start:stop], tasks.weight[start:stop]
        X, y = X - c @ X / c.sum(), y - c @ y / c.sum()
        direct = np.linalg.solve((X.T * c) @ X / noise[t] ** 2 + np.diag(ridge), X.T @ (c * y) / noise[t] ** 2)
        np.testing.assert_allclose(after[:, t], direct, rtol=1e-8, atol=1e-12)


def test_squared_residuals():
    tasks, W, _ = start_of(SHAPES["both"])
    squares = em_ridge.residual_squares(em_ridge.sums_of(tasks), W)
    for t, (start, stop) in enumerate(tasks.spans):
        c, residual = tasks.weight[start:stop], tasks.y[start:stop] - tasks.designs[t] @ W[:, t]
        assert squares[t] == pytest.approx(c @ (residual - c @ residual / c.sum()) ** 2)


def test_what_is_not_a_plain_ridge_regression():
    tasks, _, _ = start_of(SHAPES["few features"])
    plain = em_jeffreys.Settings()
    assert em_ridge.is_simple(tasks, plain)
    assert not em_ridge.is_simple(tasks, em_jeffreys.Settings(norm_q=1.5))
    assert not em_ridge.is_simple(tasks, em_jeffreys.Settings(shape=1.0, rate=0.1))
    assert not em_ridge.is_simple(start_of(SHAPES["few features"], groups=[0, 0, 1, 2, 3, 4, 5, 6])[0], plain)
    assert not em_ridge.is_simple(start_of(SHAPES["few features"], family=Logistic())[0], plain)


class Interrupting:
    """A progress bar at whose third update the user presses Ctrl-C."""

    def __init__(self):
        self.n_updates = 0

    def update(self, fraction, note):
        self.n_updates += 1
        if self.n_updates == 3:
            raise KeyboardInterrupt


def test_an_interrupted_run_keeps_what_it_has():
    tasks, W, _ = start_of(SHAPES["few features"])
    trace, values = [np.inf], em_ridge.RowValues(0.0, 0.0, 0.0)
    end = em_ridge.run(tasks, W, np.ones(3), em_jeffreys.Settings(), 1e-6, values, trace, Interrupting())
    assert end.interrupted and not end.converged
    assert len(trace) == 4 and end.W.any()
