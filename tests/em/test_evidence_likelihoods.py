"""The evidence itself: against the normal density, the integral over intercepts, and the logistic integral."""

import numpy as np
import pytest
from bayesmtfs.em.evidence_likelihoods import LogisticEvidence, NormalEvidence, bound_precision
from bayesmtfs.em.evidence_steps import Settings, State, evaluate
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from bayesmtfs import TaskData
from bayesmtfs.em.task_relations import nearest


def long_data(sizes=(5, 4), p=3, seed=0, weight=None):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), p))
    return TaskData.from_long(X, rng.standard_normal(len(tasks)) + 1.0, tasks, sample_weight=weight)


def objective(family, row_variances, parameters, n_tasks, relations=None):
    p = len(row_variances)
    settings = Settings(family, np.arange(p), n_tasks, row_cost=0.0)
    return evaluate(settings, State(np.arange(p), row_variances, parameters, relations)).objective


def covariance_of_targets(data, row_variances, noise_variances, R):
    """Prior covariance of all targets, entry by entry."""
    X, t = data.X, data.task
    return R[t][:, t] * ((X * row_variances) @ X.T) + np.diag(noise_variances[t])


@pytest.mark.parametrize("related", [False, True])
def test_squared_loss_gives_the_normal_density_of_the_targets(related):
    data = long_data()
    gamma, noise = np.array([0.5, 1.5, 0.2]), np.array([0.3, 0.8])
    R = np.array([[1.0, -0.6], [-0.6, 1.0]]) if related else np.eye(2)
    found = objective(NormalEvidence(data, False, False, 1e-3), gamma, noise, 2, nearest(R) if related else None)
    expected = -multivariate_normal(cov=covariance_of_targets(data, gamma, noise, R)).logpdf(data.y)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_flat_intercept_is_integrated_out():
    data = long_data(sizes=(5,))
    gamma, noise = np.array([0.5, 1.5, 0.2]), np.array([0.3])
    density = multivariate_normal(cov=covariance_of_targets(data, gamma, noise, np.eye(1)))
    expected = -np.log(quad(lambda b: density.pdf(data.y - b), -15, 15, epsabs=1e-14)[0])
    assert objective(NormalEvidence(data, True, False, 1e-3), gamma, noise, 1) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_weight_two_is_a_repeated_row(loss, fit_intercept):
    weight = np.array([1, 2, 1, 3, 1, 2, 1, 1, 2])
    weighted = long_data(weight=weight)
    index = np.repeat(np.arange(9), weight)
    repeated = TaskData.from_long(weighted.X[index], weighted.y[index], weighted.task[index])
    gamma, noise = np.array([0.5, 1.5, 0.2]), np.array([0.3, 0.8])
    values = []
    for data, points in ((weighted, np.arange(1.0, 10.0)), (repeated, np.arange(1.0, 10.0)[index])):
        if loss == "squared":
            values.append(objective(NormalEvidence(data, fit_intercept, False, 1e-3), gamma, noise, 2))
        else:
            signed = data.with_target(np.sign(data.y))
            values.append(objective(LogisticEvidence(signed, fit_intercept), gamma, points, 2))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_logistic_bound_is_above_minus_the_log_evidence_and_its_steps_lower_it():
    rng = np.random.default_rng(3)
    x, gamma = rng.standard_normal(8), 2.0
    data = TaskData.from_long(x[:, None], np.sign(x + rng.standard_normal(8)))
    family = LogisticEvidence(data, fit_intercept=False)

    def joint(w):
        return float(np.prod(expit(data.y * x * w)) * norm.pdf(w, scale=np.sqrt(gamma)))

    exact = -np.log(quad(joint, -30, 30, epsabs=1e-14)[0])
    settings = Settings(family, np.zeros(1, dtype=np.int64), 1, row_cost=0.0)
    state = State(np.array([0]), np.array([gamma]), family.start(), None)
    values = []
    for _ in range(50):
        point = evaluate(settings, state)
        values.append(point.objective)
        points = family.improved(state.parameters, family.tasks(state.active, state.parameters), point.posterior, 0)
        state = state._replace(parameters=points)
    assert np.all(np.diff(values) <= 1e-12)
    assert exact < values[-1] < exact + 0.1


def test_bound_touches_the_logistic_loss_at_its_point():
    xi, eta = 1.7, np.linspace(-5, 5, 11)
    bound = eta / 2 - bound_precision(np.array([xi]))[0] * (eta**2 - xi**2) / 2 - xi / 2 - np.logaddexp(0.0, -xi)
    assert np.all(bound <= -np.logaddexp(0.0, -eta) + 1e-12)
    at = xi / 2 - xi / 2 - np.logaddexp(0.0, -xi)
    assert at == pytest.approx(-np.logaddexp(0.0, -xi))
    assert bound_precision(np.zeros(1))[0] == pytest.approx(0.25)


@pytest.mark.parametrize("boldness", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shared", [True, False])
def test_noise_is_stationary_where_the_evidence_is(shared, boldness):
    data, gamma = long_data(sizes=(9, 8), seed=4), np.array([0.5, 1.5, 0.2])
    family = NormalEvidence(data, True, shared, 1e-3)
    settings = Settings(family, np.arange(3), 2, row_cost=0.0)
    state = State(np.arange(3), gamma, np.full(2, 0.5), None)
    for _ in range(400):
        posterior = evaluate(settings, state).posterior
        tasks = family.tasks(state.active, state.parameters)
        state = state._replace(parameters=family.improved(state.parameters, tasks, posterior, boldness))
    best = objective(family, gamma, state.parameters, 2)
    for factor in ([1.001, 1.001], [0.999, 0.999]) if shared else ([1.001, 1], [0.999, 1], [1, 1.001], [1, 0.999]):
        assert objective(family, gamma, state.parameters * factor, 2) > best


def test_noise_has_a_floor_also_for_constant_targets():
    data = long_data().with_target(np.full(9, 3.0))
    family = NormalEvidence(data, True, False, 1e-3)
    assert np.all(family.floor > 0) and np.all(family.at_share(1e-9) == family.floor)
    one_row = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 5.0], [0, 0, 0, 1])
    single = NormalEvidence(one_row, True, False, 1e-3)
    assert single.target_variances[1] == pytest.approx(2.0 / 4)  # that of all targets
