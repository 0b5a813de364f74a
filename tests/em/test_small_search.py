"""The compiled search of small problems against the one in NumPy, whose moves it makes."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import evidence
from bayesmtfs.em import evidence_kernels as kernels
from bayesmtfs.em.evidence import (
    EvidenceSearch,
    EvidenceSettings,
    EvidenceState,
    NormalEvidence,
    candidate_statistics,
    evaluate,
    gains,
    losses,
    statistics,
    step,
)
from bayesmtfs.em.small_search import SmallMoves, SmallSearch
from bayesmtfs.families import find_family
from bayesmtfs.progress import Progress

GAUSSIAN = find_family("squared")


def searching(m=3, shared_design=False, shared_noise=False, p=12, n=25, seed=0, weights=False):
    sim = simulate_tasks(
        n_tasks=m, n_features=p, n_samples=n, n_relevant=4, shared_design=shared_design, random_state=seed
    )
    data = sim.data
    if weights:
        rng = np.random.default_rng(seed)
        data = TaskData.from_long(data.design, data.y, data.task, sample_weight=rng.uniform(0.5, 2.0, len(data.y)))
    likelihood = NormalEvidence(data, True, shared_noise, 1e-3)
    settings = EvidenceSettings(likelihood, np.arange(p), m, row_cost=np.log(p))
    search = EvidenceSearch(settings, 1000, Progress("", False))
    active = np.array([0, 2, 3, 7, 9])
    noise = likelihood.at_share(0.5) * np.linspace(1.0, 1.0 if shared_noise else 1.3, m)
    return search, EvidenceState(active, np.linspace(0.2, 1.0, 5), noise, None)


CASES = pytest.mark.parametrize(
    ("m", "shared_design", "shared_noise", "weights"),
    [(1, False, False, False), (3, True, False, False), (3, True, True, False), (4, False, False, True)],
)


@CASES
def test_posterior(m, shared_design, shared_noise, weights):
    search, state = searching(m, shared_design, shared_noise, weights=weights)
    found, wanted = search.small.begin(*state[:3]), evaluate(search.settings, state)
    assert found.objective == pytest.approx(wanted.objective, rel=1e-12)
    for name in ("log_det", "quadratic", "score", "curvature", "mean", "degrees"):
        one, other = getattr(found.posterior, name), getattr(wanted.posterior, name)
        assert np.allclose(one, other, rtol=1e-9, atol=1e-11), name


@CASES
@pytest.mark.parametrize("boldness", [1.0, 0.5, 0.0])
def test_steps(m, shared_design, shared_noise, weights, boldness):
    search, state = searching(m, shared_design, shared_noise, weights=weights)
    small = search.small
    small.begin(*state[:3])
    moments = small.moments._replace(shared_noise=shared_noise)
    assert kernels._step(moments, small.point, small.other, small.room, boldness)
    wanted = step(search.settings, evaluate(search.settings, state), boldness)
    n = small.other.active[-1]
    assert small.other.active[:n].tolist() == wanted.active.tolist()
    assert np.allclose(small.other.rows[kernels.VARIANCE, :n], wanted.row_variances, rtol=1e-9)
    assert np.allclose(small.other.tasks[kernels.NOISE], wanted.parameters, rtol=1e-9)


@CASES
def test_losses_and_gains(m, shared_design, shared_noise, weights):
    search, state = searching(m, shared_design, shared_noise, weights=weights)
    small = search.small
    small.begin(*state[:3])
    kernels._find_losses(small.point, small.room)
    point = evaluate(search.settings, state)
    wanted = losses(statistics(point.posterior, None), state.row_variances)
    assert np.allclose(small.room.features[kernels.LOSS, :5], wanted, rtol=1e-8, atol=1e-10)
    assert small.room.numbers[kernels.ORDER, :5].tolist() == np.argsort(wanted, kind="stable").tolist()
    gain, variance = gains(candidate_statistics(search.settings.likelihood, state))
    _compare_gains(small, state.active, -1, gain, variance)


@CASES
def test_gains_in_the_place_of_a_row(m, shared_design, shared_noise, weights):
    search, state = searching(m, shared_design, shared_noise, weights=weights)
    search.small.begin(*state[:3])
    for out in range(5):
        kept = np.arange(5) != out
        others = state._replace(active=state.active[kept], row_variances=state.row_variances[kept])
        gain, variance = gains(candidate_statistics(search.settings.likelihood, others))
        _compare_gains(search.small, state.active, out, gain, variance)


def _compare_gains(small, active, out, gain, variance):
    kernels._find_candidates(small.moments, small.point, small.room, out >= 0)
    kernels._find_gains(small.moments, small.point, small.room, out)
    idle = np.setdiff1d(np.arange(len(gain)), active)
    found = np.maximum(small.room.features[kernels.GAIN], 0.0)
    assert np.allclose(found[idle], gain[idle], rtol=1e-8, atol=1e-9) and np.all(found[active] == 0)
    worth = idle[gain[idle] > 0]
    largest = small.moments.products[-1]
    assert np.allclose(small.room.features[kernels.BEST_VARIANCE, worth], np.minimum(variance, largest)[worth])


def solved(data, monkeypatch, small, **options):
    with monkeypatch.context() as changed:
        if not small:
            changed.setattr(SmallSearch, "takes", lambda tasks: False)
        return evidence.solve(data, GAUSSIAN, **options)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("n", "p", "m", "options"),
    [
        (60, 20, 1, {}),
        (20, 40, 1, {"fit_intercept": False}),
        (30, 25, 4, {"shared_noise": True}),
        (25, 40, 20, {"shared_design": True}),
        (40, 15, 3, {"shared_design": True, "noise_floor": 0.3}),
    ],
)
def test_both_searches_find_the_same(n, p, m, options, seed, monkeypatch):
    shared_design, options = options.get("shared_design", False), {**options, "row_cost": None}
    options.pop("shared_design", None)
    sim = simulate_tasks(
        n_tasks=m, n_features=p, n_samples=n, n_relevant=5, snr=5.0, shared_design=shared_design, random_state=seed
    )
    found, wanted = (solved(sim.data, monkeypatch, small, **options) for small in (True, False))
    assert found.objective - wanted.objective <= 1e-4 * n * m
    if np.array_equal(found.row_variances > 0, wanted.row_variances > 0):
        assert found.objective == pytest.approx(wanted.objective, abs=1e-4 * n * m)
        assert np.allclose(found.W, wanted.W, atol=0.02 * np.abs(wanted.W).max())


def test_targets_without_noise_are_left_to_the_other_search(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 8))
    data = TaskData.from_wide(X, X[:, :2] @ np.ones((2, 1)))
    found, wanted = (solved(data, monkeypatch, small, noise_floor=1e-4) for small in (True, False))
    assert found.objective == pytest.approx(wanted.objective, abs=1e-3)
    assert np.allclose(found.W[:2], 1.0, atol=1e-3) and found.converged


def test_a_state_that_has_no_factor_is_refused():
    search, state = searching()
    assert search.small.begin(state.active, np.full(5, 1e300), state.parameters) is None


def test_the_budget_of_a_small_search_is_kept():
    search, state = searching()
    search.small.begin(*state[:3])
    _, trace, used = search.small.search(1e-9, 5, SmallMoves(adding=True, swapping=True))
    assert 5 <= used <= 5 + kernels.OVERSHOOT and len(trace) <= used


def test_only_plain_problems_are_small():
    search, _ = searching()
    assert search.small is not None
    grouped = replace(search.settings, row_of_feature=np.repeat(np.arange(6), 2))
    assert EvidenceSearch(grouped, 10, Progress("", False)).small is None
