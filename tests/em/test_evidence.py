"""Evidence maximisation: units, order, weights and forms do not matter; the posterior is the stated one; its parts."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import multivariate_normal, norm

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.em import evidence, row_posterior
from bayesmtfs.em.evidence import (
    BoundEvidence,
    EvidenceSearch,
    EvidenceSettings,
    EvidenceState,
    NormalEvidence,
    RowStatistics,
    candidate_statistics,
    evaluate,
    gains,
    losses,
    search_noise,
    statistics,
    step,
)
from bayesmtfs.em.small_search import SmallSearch
from bayesmtfs.em.task_relations import from_rows, nearest, unrelated
from bayesmtfs.families import find_family
from bayesmtfs.progress import Progress

GAUSSIAN, LOGISTIC = find_family("squared"), find_family("logistic")
SETTINGS = [("squared", None), ("squared", "learn"), ("logistic", None), ("logistic", "learn")]


def simulated(loss="squared", seed=0, **options):
    kind = "regression" if loss == "squared" else "classification"
    defaults = {"n_tasks": 4, "n_features": 20, "n_samples": 40, "n_relevant": 4, "relatedness": 0.8}
    return simulate_tasks(**defaults | options, kind=kind, random_state=seed)


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_objective_never_rises(loss, relations, seed):
    sim = simulated(loss, seed, n_features=40 if seed % 2 else 20)
    found = evidence.solve(sim.data, find_family(loss), relations=relations)
    trace = found.objective_trace
    assert len(trace) > 5 and found.converged
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
def test_units_of_features_and_targets_do_not_matter(loss, relations):
    data = simulated(loss).data
    first = evidence.solve(data, find_family(loss), relations=relations)
    assert (first.row_variances > 0).any()
    y_factor = 50.0 if loss == "squared" else 1.0
    x_factor = np.geomspace(0.01, 100.0, 20)
    scaled = replace(data, design=data.design * x_factor, y=data.y * y_factor)
    second = evidence.solve(scaled, find_family(loss), relations=relations)
    np.testing.assert_allclose(second.W * x_factor[:, None] / y_factor, first.W, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(second.row_variances > 0, first.row_variances > 0)
    if relations:
        np.testing.assert_allclose(second.task_relations, first.task_relations, atol=1e-5)


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
def test_order_of_features_and_tasks_does_not_matter(loss, relations):
    data = simulated(loss).data
    first = evidence.solve(data, find_family(loss), relations=relations)
    features, tasks = np.random.default_rng(0).permutation(20), np.array([2, 0, 3, 1])
    moved = TaskData.from_long(data.X[:, features], data.y, np.argsort(tasks)[data.task])
    second = evidence.solve(moved, find_family(loss), relations=relations)
    np.testing.assert_allclose(second.W, first.W[np.ix_(features, tasks)], rtol=1e-5, atol=1e-7)
    if relations:
        np.testing.assert_allclose(second.task_relations, first.task_relations[np.ix_(tasks, tasks)], atol=1e-5)


@pytest.mark.parametrize("relations", [None, "learn"])
def test_mean_and_variances_are_those_of_the_normal_posterior(relations):
    data = simulated(n_features=10).data
    found = evidence.solve(data, GAUSSIAN, fit_intercept=False, relations=relations)
    active = np.flatnonzero(found.row_variances)
    R = np.eye(4) if found.task_relations is None else found.task_relations
    a, m = len(active), 4
    A = np.zeros((data.n_observations, a * m))
    for row, (x, t) in enumerate(zip(data.X[:, active], data.task, strict=True)):
        A[row, t::m] = x
    precision = 1.0 / found.noise[data.task] ** 2
    prior = np.linalg.inv(np.kron(np.diag(found.row_variances[active]), R))
    covariance = np.linalg.inv(prior + A.T @ (precision[:, None] * A))
    mean = covariance @ A.T @ (precision * data.y)
    np.testing.assert_allclose(found.W[active], mean.reshape(a, m), rtol=1e-8)
    np.testing.assert_allclose(found.W_variance[active], np.diag(covariance).reshape(a, m), rtol=1e-8)
    idle = found.row_variances == 0
    assert idle.any() and (found.W[idle] == 0).all() and (found.W_variance[idle] == 0).all()


def test_wide_data_with_one_noise_equal_long_data():
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((30, 12)), np.zeros((12, 3))
    W[:3] = rng.standard_normal((3, 3))
    Y = X @ W + 0.3 * rng.standard_normal((30, 3))
    wide = evidence.solve(TaskData.from_wide(X, Y), GAUSSIAN, shared_noise=True)
    long = evidence.solve(
        TaskData.from_long(np.tile(X, (3, 1)), Y.T.ravel(), np.repeat([0, 1, 2], 30)), GAUSSIAN, shared_noise=True
    )
    np.testing.assert_allclose(wide.W, long.W, rtol=1e-6, atol=1e-9)
    assert (wide.noise == wide.noise[0]).all()
    Y[rng.random(Y.shape) < 0.2] = np.nan
    seen = ~np.isnan(Y.T)
    missing = evidence.solve(TaskData.from_wide(X, Y), GAUSSIAN)
    rows = np.concatenate([X[s] for s in seen])
    left = evidence.solve(TaskData.from_long(rows, Y.T[seen], np.repeat([0, 1, 2], seen.sum(axis=1))), GAUSSIAN)
    np.testing.assert_allclose(missing.W, left.W, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
def test_weight_two_is_a_repeated_row(loss, relations):
    data = simulated(loss).data
    weight = 1.0 + np.arange(data.n_observations) % 2
    index = np.repeat(np.arange(data.n_observations), weight.astype(int))
    weighted = evidence.solve(replace(data, weight=weight), find_family(loss), relations=relations)
    repeated = evidence.solve(
        TaskData.from_long(data.X[index], data.y[index], data.task[index]), find_family(loss), relations=relations
    )
    np.testing.assert_allclose(weighted.W, repeated.W, rtol=1e-5, atol=1e-8)
    if loss == "squared":
        np.testing.assert_allclose(weighted.noise, repeated.noise, rtol=1e-6)


def test_sparse_designs_give_the_same():
    data = simulated().data
    sparse = replace(data, design=sp.csr_matrix(data.design))
    np.testing.assert_allclose(evidence.solve(sparse, GAUSSIAN).W, evidence.solve(data, GAUSSIAN).W)


def test_features_that_a_task_lacks_stay_zero_there():
    rng = np.random.default_rng(1)
    one, two = (pd.DataFrame(rng.standard_normal((40, 3)), columns=list("uvw")) for _ in range(2))
    y = [frame["u"] - frame["w"] + 0.1 * rng.standard_normal(40) for frame in (one, two)]
    data = TaskData.from_list([(one, y[0]), (two.drop(columns="w"), y[1])])
    found = evidence.solve(data, GAUSSIAN, relations="learn")
    absent = ~data.present
    assert absent.sum() == 1 and found.W[absent][0] == 0 and found.W_variance[absent][0] == 0
    assert found.W[np.roll(absent, -1, axis=1)][0] == pytest.approx(-1.0, abs=0.1)


def test_noise_is_recovered_with_more_features_than_rows():
    shares = []
    for seed in range(5):
        sim = simulated(n_features=150, n_samples=40, seed=seed, snr=5.0)
        shares.append(np.mean(evidence.solve(sim.data, GAUSSIAN).noise / sim.noise))
    assert 0.9 < np.median(shares) < 1.1


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_without_signal_no_row_is_kept(loss):
    kind = "regression" if loss == "squared" else "classification"
    sim = simulate_tasks(n_tasks=3, n_features=60, n_samples=30, n_relevant=0, kind=kind, random_state=0)
    found = evidence.solve(sim.data, find_family(loss), relations="learn")
    assert (found.W == 0).all()
    np.testing.assert_array_equal(found.task_relations, np.eye(3))
    if loss == "squared":
        np.testing.assert_allclose(found.intercept, [sim.data.y[a:b].mean() for a, b in sim.data.spans])


def test_an_earlier_solution_is_a_start():
    data = simulated().data
    first = evidence.solve(data, GAUSSIAN, relations="learn", tol=1e-8)
    again = evidence.solve(
        data, GAUSSIAN, relations="learn", relation_shrinkage=first.relation_shrinkage, start=first, tol=1e-8
    )
    assert again.n_iter < first.n_iter / 2
    np.testing.assert_allclose(again.W, first.W, rtol=1e-3, atol=1e-4)


def test_many_tasks_have_low_rank_relations():
    sim = simulated(n_tasks=60, n_features=8, n_samples=20, opposed_tasks=20, relatedness=0.9)
    found = evidence.solve(sim.data, GAUSSIAN, relations="learn")
    values = np.linalg.eigvalsh(found.task_relations)
    assert values[0] > 0 and np.allclose(np.diag(found.task_relations), 1)
    related = sim.task_correlation != 0
    assert np.mean(np.sign(found.task_relations) == np.sign(sim.task_correlation), where=related) > 0.95


def test_too_large_a_system_is_refused(monkeypatch):
    monkeypatch.setattr(evidence, "LARGEST_SYSTEM", 5)
    with pytest.raises(ValueError, match=r"system of \d+ unknowns .* limit is 5; select features first"):
        evidence.solve(simulated().data, GAUSSIAN, relations="learn")
    with pytest.raises(ValueError, match="coefficients='integrated' needs a conditionally normal form; Hinge offers"):
        evidence.solve(simulated().data, find_family("hinge"))


def test_interrupt_gives_the_best_so_far(monkeypatch):
    calls = []

    def interrupting(settings, state, original=evidence.evaluate):
        calls.append(1)
        if len(calls) > 12:
            raise KeyboardInterrupt
        return original(settings, state)

    monkeypatch.setattr(SmallSearch, "takes", lambda tasks: False)
    monkeypatch.setattr(evidence, "evaluate", interrupting)
    found = evidence.solve(simulated().data, GAUSSIAN)
    assert found.interrupted and not found.converged and np.isfinite(found.W).all() and (found.W != 0).any()


def test_interrupt_of_a_small_search_gives_the_best_so_far(monkeypatch):
    calls = []

    def interrupting(self, enough, budget, moves, original=SmallSearch.search):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return original(self, enough, budget, moves)

    monkeypatch.setattr(SmallSearch, "search", interrupting)
    found = evidence.solve(simulated().data, GAUSSIAN)
    assert found.interrupted and not found.converged and np.isfinite(found.W).all() and (found.W != 0).any()


def test_stopping_early_is_said():
    found = evidence.solve(simulated().data, GAUSSIAN, max_iter=5)
    assert not found.converged and found.n_iter >= 5


# ---------------------------------------------------------------------- the evidence itself


def long_data(sizes=(5, 4), p=3, seed=0, weight=None):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(tasks), p))
    return TaskData.from_long(X, rng.standard_normal(len(tasks)) + 1.0, tasks, sample_weight=weight)


def objective(likelihood, row_variances, parameters, n_tasks, relations=None):
    p = len(row_variances)
    settings = EvidenceSettings(likelihood, np.arange(p), n_tasks, row_cost=0.0)
    return evaluate(settings, EvidenceState(np.arange(p), row_variances, parameters, relations)).objective


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
def test_weight_two_is_a_repeated_row_of_the_evidence(loss, fit_intercept):
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
            values.append(objective(BoundEvidence(signed, LOGISTIC.augmentation, fit_intercept), gamma, points, 2))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_logistic_bound_is_above_minus_the_log_evidence_and_its_steps_lower_it():
    rng = np.random.default_rng(3)
    x, gamma = rng.standard_normal(8), 2.0
    data = TaskData.from_long(x[:, None], np.sign(x + rng.standard_normal(8)))
    likelihood = BoundEvidence(data, LOGISTIC.augmentation, fit_intercept=False)

    def joint(w):
        return float(np.prod(expit(data.y * x * w)) * norm.pdf(w, scale=np.sqrt(gamma)))

    exact = -np.log(quad(joint, -30, 30, epsabs=1e-14)[0])
    settings = EvidenceSettings(likelihood, np.zeros(1, dtype=np.int64), 1, row_cost=0.0)
    state = EvidenceState(np.array([0]), np.array([gamma]), likelihood.start(), None)
    values = []
    for _ in range(50):
        point = evaluate(settings, state)
        values.append(point.objective)
        points = likelihood.improved(
            state.parameters, likelihood.tasks(state.active, state.parameters), point.posterior, 0
        )
        state = state._replace(parameters=points)
    assert np.all(np.diff(values) <= 1e-12)
    assert exact < values[-1] < exact + 0.1


def test_bound_touches_the_logistic_loss_at_its_point():
    form, xi, eta = LOGISTIC.augmentation, np.array([1.7]), np.append(np.linspace(-5, 5, 11), 1.7)
    bound = form.linear(1.0) * eta - form.expected_precision(xi) * eta**2 / 2 - form.bound_constant(xi)
    assert np.all(bound <= LOGISTIC.log_density(1.0, eta) + 1e-12)
    assert bound[-1] == pytest.approx(LOGISTIC.log_density(1.0, 1.7), rel=1e-12)
    assert form.expected_precision(np.zeros(1))[0] == pytest.approx(0.25)


@pytest.mark.parametrize("boldness", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shared", [True, False])
def test_noise_is_stationary_where_the_evidence_is(shared, boldness):
    data, gamma = long_data(sizes=(9, 8), seed=4), np.array([0.5, 1.5, 0.2])
    likelihood = NormalEvidence(data, True, shared, 1e-3)
    settings = EvidenceSettings(likelihood, np.arange(3), 2, row_cost=0.0)
    state = EvidenceState(np.arange(3), gamma, np.full(2, 0.5), None)
    for _ in range(400):
        posterior = evaluate(settings, state).posterior
        tasks = likelihood.tasks(state.active, state.parameters)
        state = state._replace(parameters=likelihood.improved(state.parameters, tasks, posterior, boldness))
    best = objective(likelihood, gamma, state.parameters, 2)
    for factor in ([1.001, 1.001], [0.999, 0.999]) if shared else ([1.001, 1], [0.999, 1], [1, 1.001], [1, 0.999]):
        assert objective(likelihood, gamma, state.parameters * factor, 2) > best


@pytest.mark.parametrize("boldness", [0.0, 0.5, 1.0])
def test_noise_that_moves_together_is_that_of_a_shared_noise(boldness):
    data = long_data(sizes=(9, 8), seed=4)
    own, shared = (NormalEvidence(data, True, one, 1e-3) for one in (False, True))
    state = EvidenceState(np.arange(3), np.array([0.5, 1.5, 0.2]), np.full(2, 0.5), None)
    for settings in (EvidenceSettings(likelihood, np.arange(3), 2, 0.0) for likelihood in (own, shared)):
        posterior = evaluate(settings, state).posterior
        tasks = settings.likelihood.tasks(state.active, state.parameters)
        given = state.parameters, tasks, posterior, boldness
        np.testing.assert_allclose(own.with_one_noise().improved(*given), shared.improved(*given), rtol=1e-12)
    assert np.ptp(own.improved(*given)) > 0.01


def test_noise_has_a_floor_also_for_constant_targets():
    data = long_data().with_target(np.full(9, 3.0))
    likelihood = NormalEvidence(data, True, False, 1e-3)
    assert np.all(likelihood.floor > 0) and np.all(likelihood.at_share(1e-9) == likelihood.floor)
    one_row = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 5.0], [0, 0, 0, 1])
    single = NormalEvidence(one_row, True, False, 1e-3)
    assert single.target_variances[1] == pytest.approx(2.0 / 4)  # that of all targets


# ---------------------------------------------------------------------- steps


def start(kind="regression", related=False, seed=0, groups=None, **simulation):
    sim = simulate_tasks(
        n_tasks=4, n_features=8, n_samples=15, n_relevant=3, kind=kind, relatedness=0.7, random_state=seed, **simulation
    )
    if kind == "regression":
        likelihood = NormalEvidence(sim.data, True, False, 1e-3)
    else:
        likelihood = BoundEvidence(sim.data, LOGISTIC.augmentation, True)
    rows = np.arange(8) if groups is None else np.array(groups)
    settings = EvidenceSettings(likelihood, rows, 4, row_cost=0.0, shrinkage=2.0)
    state = EvidenceState(np.arange(8), np.full(8, 0.3), likelihood.start(), unrelated(4) if related else None)
    return settings, state


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2, 2, 2, 3]])
@pytest.mark.parametrize("related", [False, True])
@pytest.mark.parametrize(
    ("kind", "boldness"), [("regression", 0.5), ("regression", 0.0), ("classification", 0.0)], ids=str
)
@pytest.mark.parametrize("seed", range(3))
def test_bound_and_em_never_raise_the_objective(kind, boldness, related, groups, seed):
    settings, state = start(kind, related, seed, groups)
    values = []
    for _ in range(15):
        point = evaluate(settings, state)
        values.append(point.objective)
        state = step(settings, point, boldness)
    assert np.all(np.diff(values) <= 1e-10 * np.abs(values[:-1]))
    assert values[-1] < values[0] - 0.1


@pytest.mark.parametrize("boldness", [1.0, 0.5, 0.0])
def test_steps_rest_only_where_the_evidence_is_stationary_in_the_row_variances(boldness):
    settings, state = start(seed=1)
    for _ in range(3000):
        state = step(settings, evaluate(settings, state), boldness)
    best = evaluate(settings, state).objective
    alive = np.flatnonzero(state.row_variances > 1e-3)
    assert 0 < len(alive)
    for i in alive:
        for factor in (0.99, 1.01):
            moved = state.row_variances.copy()
            moved[i] *= factor
            assert evaluate(settings, state._replace(row_variances=moved)).objective >= best - 1e-9


def test_features_of_a_group_share_their_variance():
    settings, state = start(groups=[0, 0, 1, 1, 2, 2, 2, 3])
    for boldness in (1.0, 0.5, 0.0):
        state = step(settings, evaluate(settings, state), boldness)
    assert state.row_variances[0] == state.row_variances[1] != state.row_variances[2]


def test_vanishing_rows_leave():
    settings, state = start(seed=2)
    state = state._replace(row_variances=np.where(np.arange(8) == 5, 1e-12, 0.3))
    point = evaluate(settings, state)
    shrinking = np.sum(point.posterior.score**2, axis=1) < point.posterior.curvature.sum(axis=1)
    after = step(settings, point, 0.5)
    assert (5 in after.active) != bool(shrinking[5])
    assert set(after.active) >= set(range(8)) - {5}


def test_row_cost_counts_rows_not_features():
    settings, state = start(groups=[0, 0, 1, 1, 2, 2, 2, 3])
    free = evaluate(settings, state).objective
    costly = EvidenceSettings(settings.likelihood, settings.row_of_feature, 4, row_cost=10.0, shrinkage=2.0)
    assert evaluate(costly, state).objective == pytest.approx(free + 40.0)


# ---------------------------------------------------------------------- what a row is worth


@pytest.fixture(params=[False, True], ids=["unrelated", "related"])
def fitted(request):
    sim = simulate_tasks(n_tasks=3, n_features=9, n_samples=12, n_relevant=5, relatedness=0.6, random_state=1)
    likelihood = NormalEvidence(sim.data, True, False, 1e-3)
    settings = EvidenceSettings(likelihood, np.arange(9), 3, row_cost=0.0)
    relations = nearest(from_rows(np.full((3, 3), 0.6) + 0.4 * np.eye(3))) if request.param else None
    active = np.array([0, 2, 3, 5, 8])
    return settings, EvidenceState(active, np.linspace(0.2, 1.0, 5), likelihood.at_share(0.5), relations)


def test_losses_are_the_evidence_without_each_row(fitted):
    settings, state = fitted
    point = evaluate(settings, state)
    found = losses(statistics(point.posterior, state.relations), state.row_variances)
    for i in range(5):
        kept = np.arange(5) != i
        without = state._replace(active=state.active[kept], row_variances=state.row_variances[kept])
        assert found[i] == pytest.approx(evaluate(settings, without).objective - point.objective, abs=1e-9)


def test_gains_are_the_evidence_with_each_row(fitted):
    settings, state = fitted
    likelihood = settings.likelihood
    gain, variance = gains(candidate_statistics(likelihood, state))
    before = evaluate(settings, state).objective
    idle = np.setdiff1d(np.arange(9), state.active)
    assert (gain[idle] > 0).any()
    for i in idle:
        if gain[i] == 0:
            continue
        features = np.append(state.active, i)
        order = np.argsort(features)
        variances = np.append(state.row_variances, variance[i])[order]
        after = evaluate(settings, state._replace(active=features[order], row_variances=variances)).objective
        assert gain[i] == pytest.approx(before - after, abs=1e-3)


def test_a_row_that_explains_nothing_gains_nothing():
    gain, variance = gains(statistics_of(curvature=2.0, squared_score=1.9))
    assert gain[0] == 0 and variance[0] == 0


def test_the_best_variance_of_equal_curvatures_is_the_closed_one():
    # maximum of -m ln(1 + gamma e) + gamma s / (1 + gamma e): gamma = (s / m - e) / e^2
    gain, variance = gains(statistics_of(curvature=2.0, squared_score=20.0))
    assert variance[0] == pytest.approx((20.0 - 2.0) / 4.0, rel=0.2)
    assert gain[0] == pytest.approx(0.5 * 3 * (20.0 / 2.0 - 1.0 - np.log(10.0)), rel=1e-2)


def statistics_of(curvature, squared_score, m=3):
    return RowStatistics(np.full((1, m), curvature), np.full((1, m), squared_score))


# ---------------------------------------------------------------------- the search


def searching(max_iter=1000, groups=None, **simulation):
    sim = simulate_tasks(**{"n_tasks": 3, "n_features": 30, "n_samples": 20, "n_relevant": 4} | simulation)
    likelihood = NormalEvidence(sim.data, True, False, 1e-3)
    rows = np.arange(sim.data.n_features) if groups is None else groups
    settings = EvidenceSettings(likelihood, rows, sim.data.n_tasks, row_cost=np.log(sim.data.n_features))
    return EvidenceSearch(settings, max_iter, Progress("", False)), likelihood, sim


@pytest.mark.parametrize("seed", range(3))
def test_no_single_row_is_worth_changing_at_the_end(seed):
    search, likelihood, _ = searching(random_state=seed)
    search_noise(search, likelihood, 1e-5)
    search.polish(1e-7)
    assert np.all(np.diff(search.trace) <= 1e-10 * np.abs(search.trace[:-1]))
    settings, (state, _, best) = search.settings, search.point
    for i in range(len(state.active)):
        kept = np.arange(len(state.active)) != i
        without = state._replace(active=state.active[kept], row_variances=state.row_variances[kept])
        assert evaluate(settings, without).objective > best
    for i in np.setdiff1d(np.arange(30), state.active):
        features = np.append(state.active, i)
        order = np.argsort(features)
        for variance in (0.01, 0.1, 1.0):
            variances = np.append(state.row_variances, variance)[order]
            assert evaluate(settings, state._replace(active=features[order], row_variances=variances)).objective > best


def test_rows_that_stand_in_for_each_other_do_not_all_go():
    search, likelihood, sim = searching(random_state=0)
    twin = sim.data.design.copy()
    relevant = np.flatnonzero(sim.support)
    idle = np.flatnonzero(~sim.support)[: len(relevant)]
    twin[:, idle] = twin[:, relevant]
    data = type(sim.data).from_long(twin, sim.data.y, sim.data.task)
    likelihood = NormalEvidence(data, True, False, 1e-3)
    search = EvidenceSearch(
        EvidenceSettings(likelihood, np.arange(30), 3, row_cost=np.log(30)), 1000, Progress("", False)
    )
    search_noise(search, likelihood, 1e-5)
    search.polish(1e-7)
    active = set(search.point.state.active.tolist())
    strong = np.abs(sim.coef[:, relevant]).max(axis=0) > 0.5
    for i, j, counts in zip(relevant, idle, strong, strict=True):
        assert len(active & {i, j}) == 1 or not counts


def test_rows_come_back():
    search, likelihood, sim = searching(random_state=1)
    search_noise(search, likelihood, 1e-5)
    search.polish(1e-7)
    full = search.point
    state = full.state
    best = int(np.argmax(state.row_variances))
    kept = np.arange(len(state.active)) != best
    search.begin(state._replace(active=state.active[kept], row_variances=state.row_variances[kept]))
    assert search.add_rows()
    search.polish(1e-7)
    assert search.point.objective == pytest.approx(full.objective, rel=1e-6)
    assert search.point.state.active.tolist() == state.active.tolist()


def test_groups_come_and_go_whole():
    groups = np.repeat(np.arange(10), 3)
    search, likelihood, _ = searching(random_state=2, groups=groups)
    search_noise(search, likelihood, 1e-5)
    search.polish(1e-6)
    rows, counts = np.unique(groups[search.point.state.active], return_counts=True)
    assert len(rows) and (counts == 3).all()


def test_many_features_begin_with_the_most_associated(monkeypatch):
    monkeypatch.setattr(evidence, "FIRST_ROWS", 10)
    monkeypatch.setattr(evidence, "FIRST_ROWS_PER_OBSERVATION", 0)
    search, likelihood, _ = searching(random_state=0)
    search.begin_with_all(likelihood.start())
    assert len(search.point.state.active) == 10
    found = search.point.state.active
    assert set(found) == set(np.argsort(-likelihood.all_tasks.association())[:10])


def test_the_budget_is_kept():
    search, likelihood, _ = searching(max_iter=7, random_state=0)
    search_noise(search, likelihood, 1e-5)
    search.polish(1e-7)
    assert search.exhausted and search.n_iter <= 9


def full_iteration(search, likelihood):
    """M-SBL from all features at a low noise, which is then learned, and rows that are worth it come back."""
    search.begin_with_all(likelihood.at_share(0.2))
    search.settings = replace(search.settings, learn_noise=False)
    search.prune(1e-5)
    search.settings = replace(search.settings, learn_noise=True)
    search.polish(1e-6)
    return search.point.objective


@pytest.mark.parametrize(
    ("n", "p", "m", "r"), [(80, 30, 1, 0.5), (60, 30, 3, 0.95), (20, 60, 4, 0.9), (40, 80, 3, 0.9)]
)
def test_search_reaches_the_evidence_of_full_iterations(n, p, m, r):
    short, whole = [], []
    for seed in range(3):
        sizes = {"n_samples": n, "n_features": p, "n_tasks": m, "n_relevant": 6, "random_state": seed}
        search, likelihood, _ = searching(10_000, **sizes, snr=5.0, design="ar", correlation=r)
        whole.append(full_iteration(search, likelihood) / (n * m))
        search_noise(search, likelihood, 1e-4)
        search.polish(1e-6)
        short.append(search.point.objective / (n * m))
    assert np.max(np.array(short) - whole) < 1e-3


# ---------------------------------------------------------------------- a lead field


def lead_field(n_sources, n_electrodes=128, seed=0):
    """Potentials of radial dipoles in a homogeneous medium at electrodes on a sphere, in average reference: rank n - 1."""
    index = np.arange(n_electrodes) + 0.5
    height, angle = 1.0 - 1.2 * index / n_electrodes, np.pi * (1.0 + 5**0.5) * index
    electrodes = np.column_stack([*(np.sqrt(1 - height**2) * f(angle) for f in (np.cos, np.sin)), height])
    axis = np.linspace(-0.75, 0.75, 25)
    grid = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    grid = grid[(np.linalg.norm(grid, axis=1) < 0.75) & (np.linalg.norm(grid, axis=1) > 0.2) & (grid[:, 2] > 0.0)]
    centre = grid[np.random.default_rng(seed).integers(len(grid))]
    grid = grid[np.argsort(np.linalg.norm(grid - centre, axis=1))[:n_sources]]
    moment = grid / np.linalg.norm(grid, axis=1, keepdims=True)
    d = electrodes[:, None] - grid
    field = d / np.linalg.norm(d, axis=2, keepdims=True) ** 3
    X = 1e3 * np.einsum("nlk,lk->nl", field, moment)
    return X - X.mean(axis=0), grid


@pytest.mark.parametrize("shared_noise", [True, False])
@pytest.mark.parametrize(("n_sources", "seed"), [(300, 0), (1000, 1), (2000, 2)])
def test_sources_of_an_eeg_are_found(n_sources, seed, shared_noise):
    """One design of rank n - 1 with neighbours that correlate by .99, 40 time points, three sources, noise of a third."""
    rng = np.random.default_rng(seed)
    X, grid = lead_field(n_sources, seed=seed)
    neighbours = np.sort(np.abs(np.corrcoef(X.T)) - np.eye(X.shape[1]))[:, -1]
    assert np.linalg.matrix_rank(X) == 127 and np.median(neighbours) > 0.98
    far = [int(np.argmin(grid @ way)) for way in np.array([[1, 0, 0], [-1, 1, 0], [0, -1, -1]])]
    time = np.linspace(0, 1, 40)
    signal = X[:, far] / np.linalg.norm(X[:, far], axis=0) @ np.sin(np.outer([7.0, 11.0, 17.0], time) + 1.0)
    noise = rng.standard_normal(signal.shape) * np.std(signal) / 3
    data = TaskData.from_wide(X, signal + noise - noise.mean(axis=0))
    found = evidence.solve(data, find_family("squared"), shared_noise=shared_noise)
    active = np.flatnonzero(found.row_variances)
    spacing = np.min(np.linalg.norm(grid[1:] - grid[0], axis=1))
    distances = np.linalg.norm(grid[active][:, None] - grid[far], axis=2)
    assert found.converged and len(active) <= 6 and np.isfinite(found.W_variance).all()
    assert (distances.min(axis=0) <= 1.8 * spacing).all()
    assert np.median(found.noise) == pytest.approx(np.std(noise), rel=0.1)


def test_a_floor_at_which_no_cholesky_factor_exists_is_not_an_error():
    X, _ = lead_field(300)
    tasks = evidence.whiten(
        TaskData.from_wide(X, X[:, :2]), (X,), np.tile(X[:, 0], 2), np.ones(256), fit_intercept=False
    )
    found = row_posterior.compute(tasks, np.full(300, 1e6), np.full(2, 1e12), None)
    assert np.isfinite(found.log_det) and np.isfinite(found.mean).all() and (found.degrees < 127.5).all()
