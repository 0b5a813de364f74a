"""EM under the Jeffreys prior: never rising, stationary; whole fits: no collapse, no interpolation, no units, and q."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import jeffreys
from bayesmtfs.em.active_tasks import activate, em_problem
from bayesmtfs.em.exponent import marginal_maximum
from bayesmtfs.em.jeffreys import JeffreysSettings
from bayesmtfs.families import find_family
from bayesmtfs.priors.generalized_normal import Jeffreys
from bayesmtfs.types import Solution

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


def ended(tasks, W, rule=None, **settings):
    """Solution and last state."""
    settings = jeffreys.EMSettings(learn_noise=tasks.family.quadratic, **settings)
    return jeffreys.solve(jeffreys.begin(tasks, W, tasks.null_intercept(), settings), settings, rule)


def run(*arguments, **settings):
    return ended(*arguments, **settings)[0]


def state_at(tasks, W, intercept, noise, norm_q):
    return jeffreys.EMState(
        tasks, W, intercept, noise, norm_q, tasks.linear_predictor(W, intercept), np.ones(len(W), bool)
    )


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

    def rule(before, after):
        return marginal_maximum(jeffreys.floored(after.W), after.tasks.blocks.sizes, (1.0, 30.0), after.norm_q)

    found, state = ended(tasks, W, rule=rule)
    assert rises(found.objective_trace) <= 1e-10
    assert state.norm_q != 2.0


def test_objective_is_minus_the_log_posterior():
    """Differences against normal densities and the marginal of the rows, written with scipy."""
    tasks, W = make()
    rng = np.random.default_rng(5)
    settings, values, expected = jeffreys.EMSettings(norm_q=3.0), [], []
    for _ in range(3):
        point = W + rng.standard_normal(W.shape)
        noise, intercept = rng.uniform(0.3, 2.0, 4), rng.standard_normal(4)
        eta = tasks.linear_predictor(point, intercept)
        values.append(jeffreys.objective(state_at(tasks, point, intercept, noise, 3.0), settings))
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
    settings = jeffreys.EMSettings(norm_q=norm_q)

    def value(packed):
        point = packed[:-4].reshape(-1, 4)
        return jeffreys.objective(state_at(active, point, packed[-4:], found.noise, norm_q), settings)

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
    scales = jeffreys.expected_scales(tasks, W, 3.0, jeffreys.EMSettings())
    np.testing.assert_allclose(scales[:, 0] ** -3.0, np.exp(Jeffreys(3.0).log_em_weights(W)), rtol=1e-12)


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

    def rule(before, after):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return after.norm_q

    found = run(tasks, W, rule=rule)
    assert found.interrupted and not found.converged and found.n_iter == 2 and np.all(np.isfinite(found.W))


# ---------------------------------------------------------------------- whole fits


GAUSSIAN = find_family("squared")


def fit(data, family, settings, start=None):
    return jeffreys.fit(em_problem(data, family), settings, start)


@pytest.fixture(scope="module")
def wide_sim():
    return simulate_tasks(n_tasks=5, n_features=120, n_samples=40, n_relevant=6, snr=8.0, random_state=3)


@pytest.fixture(scope="module")
def shape_sim():
    return simulate_tasks(n_tasks=20, n_features=15, n_samples=50, n_relevant=8, norm_q=4.0, random_state=2)


def test_more_features_than_rows_neither_collapse_nor_interpolate(wide_sim):
    found = fit(wide_sim.data, GAUSSIAN, JeffreysSettings())
    np.testing.assert_array_equal(found.solution.W.any(axis=1), wide_sim.support)
    np.testing.assert_allclose(found.solution.noise, wide_sim.noise, rtol=0.5)


def test_a_low_floor_interpolates(wide_sim):
    """What the search of the floor is there to prevent."""
    found = fit(wide_sim.data, GAUSSIAN, JeffreysSettings(noise_floor=1e-3))
    assert found.solution.W.any(axis=1).sum() > 3 * wide_sim.support.sum()
    assert np.all(found.solution.noise < 0.2 * wide_sim.noise)


def test_little_noise_is_found_too():
    sim = simulate_tasks(n_tasks=4, n_features=60, n_samples=40, n_relevant=6, snr=1e4, random_state=1)
    found = fit(sim.data, GAUSSIAN, JeffreysSettings())
    np.testing.assert_array_equal(found.solution.W.any(axis=1), sim.support)
    np.testing.assert_allclose(found.solution.noise, sim.noise, rtol=0.5)


def test_objective_is_in_the_users_units(wide_sim):
    found = fit(wide_sim.data, GAUSSIAN, JeffreysSettings())
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
    fixed = JeffreysSettings(noise_floor=1e-3, em=jeffreys.EMSettings(max_iter=1, learn_noise=True))
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


@pytest.mark.parametrize(
    "settings", [JeffreysSettings(), JeffreysSettings(norm_q=np.inf), JeffreysSettings(norm_q=None)]
)
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
    base = fit(shape_sim.data, GAUSSIAN, JeffreysSettings())
    data = TaskData.from_long(shape_sim.X * factors, shape_sim.y, shape_sim.tasks)
    scaled = fit(data, GAUSSIAN, JeffreysSettings())
    np.testing.assert_allclose(scaled.solution.W * factors[:, None], base.solution.W, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_order_of_tasks_and_features_does_not_matter(shape_sim, norm_q):
    rng = np.random.default_rng(0)
    features, tasks = rng.permutation(15), rng.permutation(20)
    base = fit(shape_sim.data, GAUSSIAN, JeffreysSettings(norm_q=norm_q))
    data = TaskData.from_long(shape_sim.X[:, features], shape_sim.y, tasks[shape_sim.tasks])
    other = fit(data, GAUSSIAN, JeffreysSettings(norm_q=norm_q))
    assert abs(other.norm_q - base.norm_q) < 1e-3
    np.testing.assert_allclose(other.solution.W[:, tasks], base.solution.W[features], rtol=1e-4, atol=1e-6)


def test_exact_update_of_q_is_monotone_and_printed_one_moves_with_the_units(shape_sim):
    joint = fit(shape_sim.data, GAUSSIAN, JeffreysSettings(norm_q=None, q_learning="ecme"))
    trace = joint.solution.objective_trace
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))
    printed = [
        fit(data, GAUSSIAN, JeffreysSettings(norm_q=None, q_learning="paper")).norm_q
        for data in (shape_sim.data, TaskData.from_long(shape_sim.X, 100 * shape_sim.y, shape_sim.tasks))
    ]
    assert abs(printed[0] - printed[1]) > 0.1


def test_noise_without_signal_selects_next_to_nothing():
    rng = np.random.default_rng(5)
    data = TaskData.from_long(rng.standard_normal((90, 40)), rng.standard_normal(90), np.arange(90) % 3)
    found = fit(data, GAUSSIAN, JeffreysSettings(norm_q=None))
    assert found.solution.W.any(axis=1).sum() <= 4


def test_nothing_active_leaves_q_unknown(shape_sim):
    zero = Solution(np.zeros((15, 20)), np.zeros(20), np.nan, np.nan, np.nan, False, 0, np.empty(0))
    found = fit(shape_sim.data, GAUSSIAN, JeffreysSettings(norm_q=None), start=zero)
    assert found.exponent is None and not found.solution.W.any()


def test_noise_floor_for_other_routes_is_below_the_noise(wide_sim):
    problem = em_problem(wide_sim.data, GAUSSIAN)
    floor = jeffreys.find_noise_floor(problem, jeffreys.mixed_norm_start(problem, 0.01))
    assert 0.3 * wide_sim.noise.mean() < floor < 1.2 * wide_sim.noise.mean()
