"""Coordinate ascent: the bound rises, single effects find their places, and expectations are those of enumeration."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.families import Gaussian, Logistic
from bayesmtfs.gibbs.state import rows_of
from bayesmtfs.priors.spike import SpikePrior, log_pattern_probability, spike_prior_for
from bayesmtfs.variational import effects
from bayesmtfs.variational.effects import AscentSettings, ascend, first_state, inclusion, problem_of
from bayesmtfs.variational.observations import observations_of

EXACT = AscentSettings(dropped=0.0, tol=1e-8, max_iter=400)


def fitted(data, family=None, prior=None, settings=EXACT):
    family, rows = family or Gaussian(), rows_of(data)
    prior = prior or spike_prior_for(data, family)
    observations = observations_of(data, family, rows, prior.fit_intercept)
    problem = problem_of(observations, rows, prior, family.has_noise, settings)
    return problem, ascend(problem, first_state(problem), False)


def regression(seed=0, n=40, p=12, m=3, labels=False, **forms):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n * m, p)) + 0.7 * rng.standard_normal((n * m, 1))
    tasks = np.arange(n * m) % m
    W = np.zeros((p, m))
    W[0], W[1, : m // 2 + 1] = 0.6, -0.5
    eta = np.sum(X * W.T[tasks], axis=1)
    y = eta + 0.8 * rng.standard_normal(n * m)
    if labels:
        y = np.where(rng.random(n * m) < 1.0 / (1.0 + np.exp(-2.0 * eta)), 1.0, -1.0)
    else:
        y -= np.array([y[tasks == t].mean() for t in range(m)])[tasks]
    for t in range(m):
        X[tasks == t] -= X[tasks == t].mean(axis=0)
    return TaskData.from_long(X, y, tasks, **forms)


FORMS = {
    "own designs": {},
    "more rows than features": {"n": 200},
    "more features than rows": {"n": 10, "p": 40},
    "weights": {"sample_weight": np.random.default_rng(0).uniform(0.5, 2.0, 120)},
    "groups": {"groups": [0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 6, 7]},
    "labels": {"labels": True},
    "labels in groups": {"labels": True, "groups": [0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 6, 7]},
    "one task": {"m": 1},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_sweep_raises_the_bound(form):
    data = regression(**FORMS[form])
    problem, found = fitted(data, Logistic() if "labels" in form else Gaussian())
    assert len(found.state.trace) > 3 and found.state.effects
    assert np.diff(found.state.trace).min() > -1e-3


def test_every_step_raises_the_bound():
    data = regression()
    problem, found = fitted(data, settings=replace(EXACT, max_iter=4))
    state, value = found.state, found.state.trace[-1]
    steps = [
        lambda number=number: effects.update_effect(problem, state, number) for number in range(len(state.effects))
    ]
    steps += [lambda step=step: step(problem, state) for step in (effects.update_weights, effects.update_intercepts)]
    for step in [*steps, lambda: effects.update_targets(problem, state)]:
        step()
        now = effects.objective(problem, state)
        assert now > value - 1e-4
        value = now


def test_shared_designs_and_copies_of_them_agree():
    sim = simulate_tasks(n_tasks=3, n_features=8, n_relevant=2, n_samples=30, shared_design=True, random_state=0)
    wide = TaskData.from_wide(sim.X, sim.y)
    long = TaskData.from_long(np.tile(sim.X, (3, 1)), sim.y.T.ravel(), np.repeat(np.arange(3), 30))
    one, two = (fitted(data)[1] for data in (wide, long))
    np.testing.assert_allclose(one.state.trace, two.state.trace, rtol=1e-8)


def test_correlated_features_share_one_effect():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((150, 10))
    X[:, 1] = X[:, 0] + 0.02 * rng.standard_normal(150)
    y = X[:, 0] + 0.7 * rng.standard_normal(150)
    problem, found = fitted(TaskData.from_long(X - X.mean(axis=0), y - y.mean()))
    first = found.state.effects[0]
    assert set(first.rows[:2]) == {0, 1} and 0.15 < first.chance[0] < 0.85
    assert first.on > 0.99 and sum(effect.on > 0.7 for effect in found.state.effects) == 1


# ---------------------------------------------------------------------- against enumeration

PLAIN = SpikePrior(
    inclusion_rates=(0.3,),
    inclusion_weights=(1.0,),
    pattern_rates=(0.6,),
    scales=(0.4,),
    shares=(0.5,),
    task_rates=(1.0,),
    task_rate_weights=(1.0,),
    fit_intercept=False,
    noise_shape=1e6,  # known
    noise_rate=1e6,
)


def enumerated(data, prior, noise=1.0):
    """(p, m) Probabilities of entries with the hyperparameters known, by a sum over all patterns of all rows."""
    p, m = data.n_features, data.n_tasks
    patterns = [np.zeros(m)] + [np.array(s, dtype=float) for s in itertools.product((0, 1), repeat=m) if any(s)]
    base = log_pattern_probability(np.array(patterns[1:]), np.array(prior.pattern_rates), np.ones(m))[:, 0]
    pi, C, scale = prior.inclusion_rates[0], prior.shares[0], prior.scales[0]
    log_prior = np.append(np.log1p(-pi), np.log(pi) + base)
    X, y, same = data.X, data.y, np.equal.outer(data.task, data.task)
    logs, entries = [], []
    for rows in itertools.product(range(len(patterns)), repeat=p):
        covariance = noise**2 * np.eye(len(y))
        for i, k in enumerate(rows):
            on = patterns[k][data.task] * X[:, i]
            covariance += np.outer(on, on) * scale**2 * (C + (1.0 - C) * same)
        value = -0.5 * (np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y))
        logs.append(value + log_prior[list(rows)].sum())
        entries.append([patterns[k] for k in rows])
    weights = np.exp(np.array(logs) - logsumexp(logs))
    return np.einsum("k,kim->im", weights, np.array(entries))


def tiny(correlated, seed, p=3, m=2, n=12):
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(m):
        Q = np.linalg.qr(rng.standard_normal((n, p)))[0] * np.sqrt(n)
        blocks.append(Q + (0.6 * rng.standard_normal((n, 1)) if correlated else 0.0))
    X, tasks = np.concatenate(blocks), np.repeat(np.arange(m), n)
    W = np.zeros((p, m))
    W[0], W[-1, 0] = 0.6, -0.5
    return TaskData.from_long(X, np.sum(X * W.T[tasks], axis=1) + rng.standard_normal(n * m), tasks)


def entry_chances(state, p, m):
    off = np.ones((p, m))
    for effect in state.effects:
        off[effect.rows] *= 1.0 - effect.chance[:, np.newaxis] * effect.moments.on
    return 1.0 - off


def test_the_entries_of_a_single_feature_are_those_of_enumeration():
    for seed in range(4):
        data = tiny(False, seed, p=1, m=3)
        _, found = fitted(data, prior=PLAIN)
        np.testing.assert_allclose(entry_chances(found.state, 1, 3), enumerated(data, PLAIN), atol=5e-3)


@pytest.mark.parametrize("correlated", [False, True])
def test_entries_are_near_those_of_enumeration(correlated):
    """As near as the documentation says: weak effects compete for one place, which makes them less likely."""
    gaps = []
    for seed in range(8):
        data = tiny(correlated, seed)
        _, found = fitted(data, prior=PLAIN)
        gaps.append(entry_chances(found.state, 3, 2) - enumerated(data, PLAIN))
    assert np.abs(gaps).mean() < 0.08 and np.abs(gaps).max() < 0.35
    assert -0.08 < np.mean(gaps) < 0.02


def test_inclusion_is_of_rows():
    data = regression(groups=[0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 6, 7])
    problem, found = fitted(data)
    chance = inclusion(found.state, 8)
    assert chance[0] > 0.99 and chance[2:].max() < 0.6
