"""EM with task relations: its objective is the stated density, it never rises, its steps are right; units and floors."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import jeffreys, matrix_variate, task_relations
from bayesmtfs.em.active_tasks import activate, em_problem
from bayesmtfs.em.ridge import conjugate_gradients
from bayesmtfs.families import find_family
from bayesmtfs.priors.generalized_normal import Jeffreys
from bayesmtfs.types import Solution

EXPONENTS = [1.3, 2.0, 4.0]


def started(loss="squared", norm_q=2.0, seed=0, shape=0.0, rate=0.0, n_active=6, **options):
    """Scaled tasks, a start near the truth, and settings."""
    kind = "regression" if loss == "squared" else "classification"
    defaults = {"n_tasks": 4, "n_features": 15, "n_samples": 40, "n_relevant": 5, "relatedness": 0.8}
    sim = simulate_tasks(**defaults | options, kind=kind, random_state=seed)
    family = find_family(loss)
    units = within_task_units(sim.data, True, family.quadratic)
    active = sim.support.copy()
    active[np.flatnonzero(~sim.support)[: n_active - active.sum()]] = True
    tasks = activate(sim.data, family, True, units, active)
    rng = np.random.default_rng(seed)
    W = units.from_user(sim.coef.T)[active] + 0.1 * rng.standard_normal((active.sum(), 4))
    settings = jeffreys.EMSettings(norm_q, shape, rate, learn_noise=loss == "squared", max_iter=300)
    return tasks, W, settings


def state_of(tasks, W, settings, R):
    return jeffreys.begin(tasks, W, np.zeros(4), settings)._replace(relations=task_relations.nearest(R))


@pytest.mark.parametrize(("shape", "rate"), [(0.0, 0.0), (0.5, 0.1)])
@pytest.mark.parametrize("norm_q", EXPONENTS)
def test_objective_differences_are_those_of_the_scale_integrated_density(norm_q, shape, rate):
    tasks, W, settings = started(norm_q=norm_q, shape=shape, rate=rate)
    rng = np.random.default_rng(1)
    values, expected = [], []
    for _ in range(3):
        rows = rng.standard_normal((40, 4))
        R = task_relations.from_rows(rows.T @ rows + 20.0)
        state = state_of(tasks, W + 0.2 * rng.standard_normal(W.shape), settings, R)
        R = state.relations.matrix
        values.append(matrix_variate.objective(state, settings, shrinkage=3.0))
        spread, vectors = np.linalg.eigh(R)
        whitened = state.W @ (vectors / np.sqrt(spread)) @ vectors.T
        rows = (
            Jeffreys(norm_q, shape, rate).negative_log_density(whitened) + 0.5 * len(state.W) * np.linalg.slogdet(R)[1]
        )
        residual = tasks.y - tasks.linear_predictor(state.W, state.intercept)
        loss = np.sum(0.5 * (residual / state.noise[tasks.task]) ** 2 + np.log(state.noise[tasks.task]))
        pull = 1.5 * (np.linalg.slogdet(R)[1] + np.trace(np.linalg.inv(R)) - 4)
        expected.append(loss + rows + pull)
    np.testing.assert_allclose(np.diff(values), np.diff(expected), rtol=1e-10)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("norm_q", EXPONENTS)
@pytest.mark.parametrize("seed", range(3))
def test_objective_never_rises(loss, norm_q, seed):
    tasks, W, settings = started(loss, norm_q, seed, n_active=12)
    found, relations, *_ = matrix_variate.solve(jeffreys.begin(tasks, W, np.zeros(4), settings), settings)
    trace = found.objective_trace
    assert len(trace) > 3
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))
    R = relations.matrix
    assert np.all(np.diag(R) == 1) and np.linalg.eigvalsh(R)[0] > 0


@pytest.mark.parametrize("norm_q", EXPONENTS)
def test_gradient_of_the_relation_objective(norm_q):
    tasks, W, settings = started(norm_q=norm_q)
    function = matrix_variate.relation_objective(tasks, W, norm_q, settings, shrinkage=2.0)
    R, rng = 0.7 * np.eye(4) + 0.3, np.random.default_rng(0)
    for _ in range(3):
        direction = rng.standard_normal((4, 4))
        direction += direction.T
        slope = (function(R + 1e-6 * direction)[0] - function(R - 1e-6 * direction)[0]) / 2e-6
        assert slope == pytest.approx(np.sum(function(R)[1] * direction), rel=1e-5)


def test_coefficients_at_q_two_solve_the_ridge_problem_of_the_e_step():
    tasks, W, settings = started()
    state = state_of(tasks, W, settings, 0.5 * np.eye(4) + 0.5)
    after = matrix_variate.update_coefficients(state, settings)
    p, R = len(W), state.relations.matrix
    # E-step: E[rho^-2] = m / (2 v'v), so that the prior precision of row i is m R^-1 / (w' R^-1 w)
    weight = 4.0 / np.einsum("it,tu,iu->i", W, np.linalg.inv(R), W)
    A = np.zeros((len(tasks.y), p * 4))
    B = np.zeros((len(tasks.y), 4))
    row = 0
    for t, X in enumerate(tasks.designs):
        A[row : row + len(X), t::4], B[row : row + len(X), t] = X, 1.0
        row += len(X)
    D = 1.0 / state.noise[tasks.task] ** 2
    both = np.hstack([A, B])
    system = both.T @ (D[:, None] * both)
    system[: p * 4, : p * 4] += np.kron(np.diag(weight), np.linalg.inv(R))
    solution = np.linalg.solve(system, both.T @ (D * tasks.y))
    np.testing.assert_allclose(after.W, solution[: p * 4].reshape(p, 4), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(after.intercept, solution[p * 4 :], rtol=1e-5, atol=1e-7)


def test_conjugate_gradients_solve_a_system():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((12, 12))
    A = root @ root.T + np.eye(12)
    right = rng.standard_normal((3, 4))
    found = conjugate_gradients(lambda U: (A @ U.ravel()).reshape(3, 4), right)
    np.testing.assert_allclose(found.ravel(), np.linalg.solve(A, right.ravel()), rtol=1e-6)


def test_zero_rows_do_not_count_for_the_relations():
    tasks, W, settings = started(n_active=5)
    more, W_more, _ = started(n_active=10)
    nonzero = np.isin(more.row_labels, tasks.row_labels)
    one = matrix_variate.solve(jeffreys.begin(tasks, W, np.zeros(4), settings), settings)
    W_more = np.zeros_like(W_more)
    W_more[nonzero] = W
    two = matrix_variate.solve(jeffreys.begin(more, W_more, np.zeros(4), settings), settings)
    assert (two[0].W[~nonzero] == 0).all()
    np.testing.assert_allclose(two[1].matrix, one[1].matrix, atol=1e-6)


def test_without_rows_there_is_nothing_to_do():
    tasks, W, settings = started()
    found, relations, *_ = matrix_variate.solve(
        jeffreys.begin(tasks, np.zeros_like(W), np.zeros(4), settings), settings
    )
    assert found.converged and (found.W == 0).all()
    np.testing.assert_array_equal(relations.matrix, np.eye(4))


def test_interrupt_gives_the_best_so_far(monkeypatch):
    tasks, W, settings = started()

    def interrupting(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(matrix_variate, "iterate", interrupting)
    found = matrix_variate.solve(jeffreys.begin(tasks, W, np.zeros(4), settings), settings)[0]
    assert found.interrupted and not found.converged
    np.testing.assert_array_equal(found.W, W)


# ---------------------------------------------------------------------- whole fits


def related_fit(x_factor=1.0, y_factor=1.0, noise_floor=0.0, shrinkage=None, present=None):
    sim = simulate_tasks(n_tasks=4, n_features=12, n_samples=40, n_relevant=5, relatedness=0.8, random_state=0)
    data = replace(sim.data, design=sim.data.design * x_factor, y=sim.data.y * y_factor, present=present)
    W = sim.coef.T * y_factor / x_factor
    start = Solution(
        W, np.zeros(4), 0.0, np.nan, np.nan, True, 3, np.empty(0), noise=np.full(4, sim.noise.mean() * y_factor)
    )
    settings = jeffreys.EMSettings(noise_floor=noise_floor, max_iter=500)
    return matrix_variate.fit(em_problem(data, find_family("squared")), settings, start, shrinkage=shrinkage)


@pytest.mark.parametrize(("x_factor", "y_factor"), [(100.0, 1.0), (0.01, 1.0), (1.0, 100.0), (3.0, 0.01)])
def test_units_do_not_matter(x_factor, y_factor):
    plain, scaled = related_fit(), related_fit(x_factor, y_factor)
    np.testing.assert_allclose(scaled.solution.W * x_factor / y_factor, plain.solution.W, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(scaled.relations.matrix, plain.relations.matrix, atol=1e-6)
    np.testing.assert_allclose(scaled.solution.noise / y_factor, plain.solution.noise, rtol=1e-6)
    # the density of the data and of the coefficients changes by the Jacobian of the units alone
    jacobian = 160 * np.log(y_factor) + 5 * 4 * np.log(y_factor / x_factor)
    assert scaled.solution.objective - plain.solution.objective == pytest.approx(jacobian, abs=1e-5)


def test_the_users_floor_and_shrinkage_hold():
    assert related_fit(noise_floor=0.9).solution.noise.min() > 2 * related_fit().solution.noise.max()
    assert related_fit(shrinkage=7.0).shrinkage == 7.0
    strong, weak = (np.abs(related_fit(shrinkage=nu).relations.matrix[0, 1]) for nu in (50.0, 1.0))
    assert strong < weak


def test_features_that_a_task_lacks_are_refused():
    present = np.ones((12, 4), dtype=bool)
    present[0, 1] = False
    with pytest.raises(ValueError, match="some tasks lack features.*; pass coefficients='integrated'"):
        related_fit(present=present)
