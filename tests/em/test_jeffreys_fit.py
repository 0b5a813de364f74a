"""Whole fits: no collapse, no interpolation, no units, and q."""

import numpy as np
import pytest
from bayesmtfs.em.jeffreys_fit import Settings, fit

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import jeffreys as em_jeffreys
from bayesmtfs.em import jeffreys_fit
from bayesmtfs.families import find_family
from bayesmtfs.priors.jeffreys import Jeffreys
from bayesmtfs.types import Solution

GAUSSIAN = find_family("squared")


@pytest.fixture(scope="module")
def wide_sim():
    return simulate_tasks(n_tasks=5, n_features=120, n_samples=40, n_relevant=6, snr=8.0, random_state=3)


@pytest.fixture(scope="module")
def shape_sim():
    return simulate_tasks(n_tasks=20, n_features=15, n_samples=50, n_relevant=8, norm_q=4.0, random_state=2)


def test_more_features_than_rows_neither_collapse_nor_interpolate(wide_sim):
    found = fit(wide_sim.data, GAUSSIAN, Settings())
    np.testing.assert_array_equal(found.solution.W.any(axis=1), wide_sim.support)
    np.testing.assert_allclose(found.solution.noise, wide_sim.noise, rtol=0.5)


def test_a_low_floor_interpolates(wide_sim):
    """What the search of the floor is there to prevent."""
    found = fit(wide_sim.data, GAUSSIAN, Settings(noise_floor=1e-3))
    assert found.solution.W.any(axis=1).sum() > 3 * wide_sim.support.sum()
    assert np.all(found.solution.noise < 0.2 * wide_sim.noise)


def test_little_noise_is_found_too():
    sim = simulate_tasks(n_tasks=4, n_features=60, n_samples=40, n_relevant=6, snr=1e4, random_state=1)
    found = fit(sim.data, GAUSSIAN, Settings())
    np.testing.assert_array_equal(found.solution.W.any(axis=1), sim.support)
    np.testing.assert_allclose(found.solution.noise, sim.noise, rtol=0.5)


def test_objective_is_in_the_users_units(wide_sim):
    found = fit(wide_sim.data, GAUSSIAN, Settings())
    data, solution = wide_sim.data, found.solution
    shifted = solution.W.copy()
    rng = np.random.default_rng(0)
    kept = shifted.any(axis=1)
    shifted[kept] += 0.01 * rng.standard_normal((kept.sum(), 5))

    def stated(W):
        eta = data.linear_predictor(W, solution.intercept)
        noise = solution.noise[data.task]
        prior = Jeffreys(2.0).negative_log_density(W[kept])
        return np.sum(0.5 * ((data.y - eta) / noise) ** 2 + np.log(noise)) + prior

    start = Solution(shifted, solution.intercept, np.nan, np.nan, np.nan, False, 0, np.empty(0))
    fixed = Settings(noise_floor=1e-3, em=em_jeffreys.Settings(max_iter=1, learn_noise=True))
    again = fit(data, GAUSSIAN, fixed, start=start)
    first, last = again.solution.objective_trace[[0, -1]]
    eta = data.linear_predictor(shifted, solution.intercept)
    sigma = np.sqrt(np.add.reduceat((data.y - eta) ** 2, data.offsets[:-1]) / np.diff(data.offsets))
    zero_rows = first - (
        np.sum(0.5 * ((data.y - eta) / sigma[data.task]) ** 2 + np.log(sigma[data.task]))
        + Jeffreys(2.0).negative_log_density(shifted[kept])
    )
    eta = data.linear_predictor(again.solution.W, again.solution.intercept)
    noise = again.solution.noise[data.task]
    at_end = np.sum(0.5 * ((data.y - eta) / noise) ** 2 + np.log(noise))
    at_end += Jeffreys(2.0).negative_log_density(again.solution.W[kept])
    assert last - at_end == pytest.approx(zero_rows, rel=1e-9)
    assert stated(solution.W) < stated(shifted)


@pytest.mark.parametrize("settings", [Settings(), Settings(norm_q=np.inf), Settings(norm_q=None)])
@pytest.mark.parametrize(("x_scale", "y_scale"), [(0.01, 1.0), (1.0, 100.0), (100.0, 0.01)])
def test_units_of_x_and_y_do_not_matter(shape_sim, settings, x_scale, y_scale):
    base = fit(shape_sim.data, GAUSSIAN, settings)
    data = TaskData.from_long(x_scale * shape_sim.X, y_scale * shape_sim.y, shape_sim.tasks)
    scaled = fit(data, GAUSSIAN, settings)
    np.testing.assert_allclose(scaled.solution.W * x_scale / y_scale, base.solution.W, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scaled.solution.noise / y_scale, base.solution.noise, rtol=1e-4)
    assert abs(scaled.norm_q - base.norm_q) < 1e-3 or scaled.norm_q == base.norm_q


def test_features_may_have_units_of_their_own(shape_sim):
    factors = np.geomspace(1e-3, 1e3, 15)
    base = fit(shape_sim.data, GAUSSIAN, Settings())
    data = TaskData.from_long(shape_sim.X * factors, shape_sim.y, shape_sim.tasks)
    scaled = fit(data, GAUSSIAN, Settings())
    np.testing.assert_allclose(scaled.solution.W * factors[:, None], base.solution.W, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_order_of_tasks_and_features_does_not_matter(shape_sim, norm_q):
    rng = np.random.default_rng(0)
    features, tasks = rng.permutation(15), rng.permutation(20)
    base = fit(shape_sim.data, GAUSSIAN, Settings(norm_q=norm_q))
    data = TaskData.from_long(shape_sim.X[:, features], shape_sim.y, tasks[shape_sim.tasks])
    other = fit(data, GAUSSIAN, Settings(norm_q=norm_q))
    assert abs(other.norm_q - base.norm_q) < 1e-3
    np.testing.assert_allclose(other.solution.W[:, tasks], base.solution.W[features], rtol=1e-4, atol=1e-6)


def test_exact_update_of_q_is_monotone_and_printed_one_moves_with_the_units(shape_sim):
    joint = fit(shape_sim.data, GAUSSIAN, Settings(norm_q=None, q_learning="ecme"))
    trace = joint.solution.objective_trace
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))
    printed = [
        fit(data, GAUSSIAN, Settings(norm_q=None, q_learning="paper")).norm_q
        for data in (shape_sim.data, TaskData.from_long(shape_sim.X, 100 * shape_sim.y, shape_sim.tasks))
    ]
    assert abs(printed[0] - printed[1]) > 0.1


def test_noise_without_signal_selects_next_to_nothing():
    rng = np.random.default_rng(5)
    data = TaskData.from_long(rng.standard_normal((90, 40)), rng.standard_normal(90), np.arange(90) % 3)
    found = fit(data, GAUSSIAN, Settings(norm_q=None))
    assert found.solution.W.any(axis=1).sum() <= 4


def test_nothing_active_leaves_q_unknown(shape_sim):
    zero = Solution(np.zeros((15, 20)), np.zeros(20), np.nan, np.nan, np.nan, False, 0, np.empty(0))
    found = fit(shape_sim.data, GAUSSIAN, Settings(norm_q=None), start=zero)
    assert found.exponent is None and not found.solution.W.any()


def test_noise_floor_for_other_routes_is_below_the_noise(wide_sim):
    start = jeffreys_fit.mixed_norm_start(
        wide_sim.data, GAUSSIAN, True, within_task_units(wide_sim.data, True, GAUSSIAN.quadratic), 0.01
    )
    floor = jeffreys_fit.find_noise_floor(wide_sim.data, GAUSSIAN, True, start)
    assert 0.3 * wide_sim.noise.mean() < floor < 1.2 * wide_sim.noise.mean()
