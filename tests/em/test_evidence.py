"""Evidence maximisation: units, order, weights and forms do not matter; the posterior is the stated one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.em import evidence, evidence_search

SETTINGS = [("squared", None), ("squared", "learn"), ("logistic", None), ("logistic", "learn")]


def simulated(loss="squared", seed=0, **options):
    kind = "regression" if loss == "squared" else "classification"
    defaults = {"n_tasks": 4, "n_features": 20, "n_samples": 40, "n_relevant": 4, "relatedness": 0.8}
    return simulate_tasks(**defaults | options, kind=kind, random_state=seed)


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_objective_never_rises(loss, relations, seed):
    sim = simulated(loss, seed, n_features=40 if seed % 2 else 20)
    found = evidence.solve(sim.data, loss, relations=relations)
    trace = found.objective_trace
    assert len(trace) > 5 and found.converged
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1]))


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
def test_units_of_features_and_targets_do_not_matter(loss, relations):
    data = simulated(loss).data
    first = evidence.solve(data, loss, relations=relations)
    assert (first.row_variances > 0).any()
    y_factor = 50.0 if loss == "squared" else 1.0
    x_factor = np.geomspace(0.01, 100.0, 20)
    scaled = replace(data, design=data.design * x_factor, y=data.y * y_factor)
    second = evidence.solve(scaled, loss, relations=relations)
    np.testing.assert_allclose(second.W * x_factor[:, None] / y_factor, first.W, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(second.row_variances > 0, first.row_variances > 0)
    if relations:
        np.testing.assert_allclose(second.task_relations, first.task_relations, atol=1e-5)


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
def test_order_of_features_and_tasks_does_not_matter(loss, relations):
    data = simulated(loss).data
    first = evidence.solve(data, loss, relations=relations)
    features, tasks = np.random.default_rng(0).permutation(20), np.array([2, 0, 3, 1])
    moved = TaskData.from_long(data.X[:, features], data.y, np.argsort(tasks)[data.task])
    second = evidence.solve(moved, loss, relations=relations)
    np.testing.assert_allclose(second.W, first.W[np.ix_(features, tasks)], rtol=1e-5, atol=1e-7)
    if relations:
        np.testing.assert_allclose(second.task_relations, first.task_relations[np.ix_(tasks, tasks)], atol=1e-5)


@pytest.mark.parametrize("relations", [None, "learn"])
def test_mean_and_variances_are_those_of_the_normal_posterior(relations):
    data = simulated(n_features=10).data
    found = evidence.solve(data, fit_intercept=False, relations=relations)
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
    wide = evidence.solve(TaskData.from_wide(X, Y), shared_noise=True)
    long = evidence.solve(
        TaskData.from_long(np.tile(X, (3, 1)), Y.T.ravel(), np.repeat([0, 1, 2], 30)), shared_noise=True
    )
    np.testing.assert_allclose(wide.W, long.W, rtol=1e-6, atol=1e-9)
    assert (wide.noise == wide.noise[0]).all()
    Y[rng.random(Y.shape) < 0.2] = np.nan
    seen = ~np.isnan(Y.T)
    missing = evidence.solve(TaskData.from_wide(X, Y))
    rows = np.concatenate([X[s] for s in seen])
    left = evidence.solve(TaskData.from_long(rows, Y.T[seen], np.repeat([0, 1, 2], seen.sum(axis=1))))
    np.testing.assert_allclose(missing.W, left.W, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("loss", "relations"), SETTINGS)
def test_weight_two_is_a_repeated_row(loss, relations):
    data = simulated(loss).data
    weight = 1.0 + np.arange(data.n_observations) % 2
    index = np.repeat(np.arange(data.n_observations), weight.astype(int))
    weighted = evidence.solve(replace(data, weight=weight), loss, relations=relations)
    repeated = evidence.solve(
        TaskData.from_long(data.X[index], data.y[index], data.task[index]), loss, relations=relations
    )
    np.testing.assert_allclose(weighted.W, repeated.W, rtol=1e-5, atol=1e-8)
    if loss == "squared":
        np.testing.assert_allclose(weighted.noise, repeated.noise, rtol=1e-6)


def test_sparse_designs_give_the_same():
    data = simulated().data
    sparse = replace(data, design=sp.csr_matrix(data.design))
    np.testing.assert_allclose(evidence.solve(sparse).W, evidence.solve(data).W)


def test_features_that_a_task_lacks_stay_zero_there():
    rng = np.random.default_rng(1)
    one, two = (pd.DataFrame(rng.standard_normal((40, 3)), columns=list("uvw")) for _ in range(2))
    y = [frame["u"] - frame["w"] + 0.1 * rng.standard_normal(40) for frame in (one, two)]
    data = TaskData.from_list([(one, y[0]), (two.drop(columns="w"), y[1])])
    found = evidence.solve(data, relations="learn")
    absent = ~data.present
    assert absent.sum() == 1 and found.W[absent][0] == 0 and found.W_variance[absent][0] == 0
    assert found.W[np.roll(absent, -1, axis=1)][0] == pytest.approx(-1.0, abs=0.1)


def test_noise_is_recovered_with_more_features_than_rows():
    shares = []
    for seed in range(5):
        sim = simulated(n_features=150, n_samples=40, seed=seed, snr=5.0)
        shares.append(np.mean(evidence.solve(sim.data).noise / sim.noise))
    assert 0.9 < np.median(shares) < 1.1


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_without_signal_no_row_is_kept(loss):
    kind = "regression" if loss == "squared" else "classification"
    sim = simulate_tasks(n_tasks=3, n_features=60, n_samples=30, n_relevant=0, kind=kind, random_state=0)
    found = evidence.solve(sim.data, loss, relations="learn")
    assert (found.W == 0).all()
    np.testing.assert_array_equal(found.task_relations, np.eye(3))
    if loss == "squared":
        np.testing.assert_allclose(found.intercept, [sim.data.y[a:b].mean() for a, b in sim.data.spans])


def test_an_earlier_solution_is_a_start():
    data = simulated().data
    first = evidence.solve(data, relations="learn", tol=1e-8)
    again = evidence.solve(data, relations="learn", relation_shrinkage=first.relation_shrinkage, start=first, tol=1e-8)
    assert again.n_iter < first.n_iter / 2
    np.testing.assert_allclose(again.W, first.W, rtol=1e-3, atol=1e-4)


def test_many_tasks_have_low_rank_relations():
    sim = simulated(n_tasks=60, n_features=8, n_samples=20, opposed_tasks=20, relatedness=0.9)
    found = evidence.solve(sim.data, relations="learn")
    values = np.linalg.eigvalsh(found.task_relations)
    assert values[0] > 0 and np.allclose(np.diag(found.task_relations), 1)
    related = sim.task_correlation != 0
    assert np.mean(np.sign(found.task_relations) == np.sign(sim.task_correlation), where=related) > 0.95


def test_too_large_a_system_is_refused(monkeypatch):
    monkeypatch.setattr(evidence, "LARGEST_SYSTEM", 5)
    with pytest.raises(ValueError, match=r"system of \d+ unknowns .* limit is 5; select features first"):
        evidence.solve(simulated().data, relations="learn")
    with pytest.raises(ValueError, match="loss is 'hinge'.*; use 'squared' or 'logistic'"):
        evidence.solve(simulated().data, "hinge")


def test_interrupt_gives_the_best_so_far(monkeypatch):
    calls = []

    def interrupting(settings, state, original=evidence_search.evaluate):
        calls.append(1)
        if len(calls) > 12:
            raise KeyboardInterrupt
        return original(settings, state)

    monkeypatch.setattr(evidence_search, "evaluate", interrupting)
    found = evidence.solve(simulated().data)
    assert found.interrupted and not found.converged and np.isfinite(found.W).all() and (found.W != 0).any()


def test_stopping_early_is_said():
    found = evidence.solve(simulated().data, max_iter=5)
    assert not found.converged and found.n_iter >= 5
