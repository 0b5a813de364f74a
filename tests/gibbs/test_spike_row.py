"""One row of the prior with exact zeros, against sums over all patterns with multivariate normal integrals."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp

from bayesmtfs.gibbs.spike_row import (
    NEVER,
    Weights,
    draw_row,
    log_evidence,
    may_exceed,
    nodes_for,
    row_space,
    slab_grid,
)
from bayesmtfs.priors.spike import log_pattern_probability

SCALES, SHARES = (0.1, 0.4), (0.0, 0.6, 1.0)
RATES = np.array([0.25, 0.8, 1.0])


def weights_of(task_rates, tables=(), counts=(), alpha=1.5):
    m, T = len(task_rates), 6
    entry = np.outer(RATES, task_rates)
    weights = Weights(
        scale=np.array([0.3, 0.7]),
        share=np.array([0.5, 0.2, 0.3]),
        rate=np.array([0.2, 0.5, 0.3]),
        entry_rates=entry,
        empty=np.prod(1.0 - entry, axis=1),
        tables=np.zeros((T, m), dtype=np.bool_),
        counts=np.zeros(T, dtype=np.int64),
        n_tables=np.array([len(tables)]),
        concentration=np.array([alpha]),
    )
    for k, (table, count) in enumerate(zip(tables, counts, strict=True)):
        weights.tables[k], weights.counts[k] = table, count
    return weights


def filled_row(a, g):
    row = row_space(len(g), 1)
    row.curvature[:, 0, 0], row.pull[:, 0] = a, g
    return row


def log_ratio(a, g, covariance):
    """Logarithm of E exp(g'w - w'diag(a)w / 2) under a normal prior that may be singular."""
    spread = np.eye(len(g)) + covariance @ np.diag(a)
    return 0.5 * g @ np.linalg.solve(spread, covariance @ g) - 0.5 * np.linalg.slogdet(spread)[1]


def patterns_with_evidence(a, g, weights, task_rates):
    """Logarithm of prior times likelihood ratio of every pattern, over slabs and ways to get it."""
    m, found = len(g), {}
    alpha, total = weights.concentration[0], weights.counts.sum()
    for pattern in itertools.product([0, 1], repeat=m):
        if not any(pattern):
            continue
        s = np.array(pattern)
        base = logsumexp(log_pattern_probability(s[np.newaxis], RATES, task_rates)[0] + np.log(weights.rate))
        seats = weights.counts[(weights.tables == s).all(axis=1)].sum()
        prior = np.log((alpha * np.exp(base) + seats) / (alpha + total))
        slabs = []
        for j, rho in enumerate(SCALES):
            for h, C in enumerate(SHARES):
                covariance = rho**2 * (C * np.outer(s, s) + (1.0 - C) * np.diag(s))
                slabs.append(np.log(weights.scale[j] * weights.share[h]) + log_ratio(a, g, covariance))
        found[pattern] = prior + logsumexp(slabs)
    return found


CASES = {
    "null": (np.array([150.0, 80.0, 200.0]), np.array([4.0, -6.0, 9.0])),
    "strong": (np.array([300.0, 80.0, 200.0]), np.array([140.0, 40.0, 3.0])),
    "opposite": (np.array([300.0, 300.0, 250.0]), np.array([90.0, -80.0, 3.0])),
    "unknown in a task": (np.array([300.0, 0.0, 250.0]), np.array([60.0, 0.0, 50.0])),
    "beyond the slabs": (np.array([40.0, 10.0, 25.0]), np.array([160.0, 30.0, 95.0])),
    "much data": (np.array([4e5, 3e5, 2e5]), np.array([1.2e5, 9e4, 300.0])),
}


@pytest.mark.parametrize("seated", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_evidence_is_the_sum_over_all_patterns(case, seated):
    a, g = CASES[case]
    task_rates = np.array([1.0, 0.3, 0.6])
    tables = ([[True, True, False], [False, False, True]], [3, 1]) if seated else ([], [])
    weights = weights_of(task_rates, *tables)
    slabs = slab_grid(SCALES, SHARES)
    found = log_evidence(filled_row(a, g), slabs, weights, nodes_for(slabs, len(RATES), 6), NEVER)
    wanted = logsumexp(list(patterns_with_evidence(a, g, weights, task_rates).values()))
    assert found == pytest.approx(wanted, abs=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_evidence_below_what_is_needed_is_found_out_and_none_above(case):
    weights = weights_of(np.array([1.0, 0.3, 0.6]), [[True, True, False], [False, False, True]], [3, 1])
    slabs, row = slab_grid(SCALES, SHARES), filled_row(*CASES[case])
    nodes = nodes_for(slabs, len(RATES), 6)
    whole = log_evidence(row, slabs, weights, nodes, NEVER)
    for below in (1e-6, 0.1, 3.0):
        assert log_evidence(row, slabs, weights, nodes, whole - below) == pytest.approx(whole, abs=1e-12)
    for above in (1e-6, 0.1, 3.0, 50.0):
        assert log_evidence(row, slabs, weights, nodes, whole + above) < whole + above


def test_bounds_hold_for_rows_of_any_kind():
    rng = np.random.default_rng(6)
    slabs = slab_grid(SCALES, SHARES)
    nodes, tight = nodes_for(slabs, len(RATES), 6), []
    for _ in range(300):
        a = rng.uniform(1.0, 400.0, 3)
        g = np.sqrt(a) * rng.normal(0.0, rng.choice([0.5, 1.0, 4.0]), 3)
        weights = weights_of(
            rng.choice([0.1, 0.6, 1.0], 3), [[True, *(rng.random(2) < 0.6)], [False, False, True]], [2, 1]
        )
        row = filled_row(a, g)
        whole = log_evidence(row, slabs, weights, nodes, NEVER)
        assert may_exceed(row, slabs, weights, nodes, whole - 1e-9)
        tight.append(may_exceed(row, slabs, weights, nodes, whole + 2.0))
    assert np.mean(tight) < 0.6  # the bound is within two nats for many


def test_rows_are_drawn_with_the_probability_of_their_pattern():
    a, g = np.array([60.0, 40.0, 50.0]), np.array([16.0, 8.0, -2.0])
    task_rates = np.array([1.0, 0.3, 0.6])
    weights = weights_of(task_rates, [[True, True, False]], [2])
    slabs, rng, row = slab_grid(SCALES, SHARES), np.random.default_rng(3), filled_row(a, g)
    nodes, draws = nodes_for(slabs, len(RATES), 6), []
    for _ in range(20_000):
        log_evidence(row, slabs, weights, nodes, NEVER)
        draw_row(rng, row, slabs, weights, nodes)
        draws.append(np.append(row.on, row.W[0]))
    draws = np.array(draws)
    logs = patterns_with_evidence(a, g, weights, task_rates)
    total = logsumexp(list(logs.values()))
    for pattern, log in logs.items():
        share = np.mean((draws[:, :3] == pattern).all(axis=1))
        wanted = np.exp(log - total)
        assert share == pytest.approx(wanted, abs=4.5 * np.sqrt(wanted / len(draws)) + 1e-4), pattern
    wanted = expected_coefficients(a, g, weights, task_rates)
    np.testing.assert_allclose(draws[:, 3:].mean(axis=0), wanted, atol=4.5 * draws[:, 3:].std(axis=0).max() / 140)
    assert np.all((draws[:, 3:] != 0) == (draws[:, :3] > 0))


def expected_coefficients(a, g, weights, task_rates):
    """By numeric derivatives: the gradient in g of the log evidence is the mean of w."""
    mean = np.empty(3)
    for t in range(3):
        step = 1e-4 * np.eye(3)[t]
        up, down = (
            logsumexp(list(patterns_with_evidence(a, g + d, weights, task_rates).values())) for d in (step, -step)
        )
        mean[t] = (up - down) / 2e-4
    return mean


def test_a_group_is_integrated_in_closed_form():
    rng = np.random.default_rng(1)
    slabs, weights = slab_grid(SCALES, SHARES), weights_of(np.array([1.0, 0.3]), [[True, False]], [2])
    row = row_space(2, 3)
    row.size[0] = 3
    for t in range(2):
        X = rng.standard_normal((20, 3))
        row.curvature[t], row.pull[t] = X.T @ X, X.T @ (0.3 * X[:, 0] + rng.standard_normal(20))
    found = log_evidence(row, slabs, weights, nodes_for(slabs, len(RATES), 6), NEVER)
    terms = []
    for pattern in ([1, 0], [0, 1], [1, 1]):
        base = log_pattern_probability(np.array([pattern]), RATES, np.array([1.0, 0.3]))[0] + np.log(weights.rate)
        prior = np.log((1.5 * np.exp(logsumexp(base)) + (2 if pattern == [1, 0] else 0)) / 3.5)
        for j, rho in enumerate(SCALES):
            ratio = 0.0
            for t in np.flatnonzero(pattern):
                spread = np.eye(3) + rho**2 * row.curvature[t]
                ratio += 0.5 * rho**2 * row.pull[t] @ np.linalg.solve(spread, row.pull[t])
                ratio -= 0.5 * np.linalg.slogdet(spread)[1]
            terms.append(prior + np.log(weights.scale[j]) + ratio)
    assert found == pytest.approx(logsumexp(terms), abs=1e-10)


def test_many_tasks_neither_overflow_nor_vanish():
    m = 120
    a, rates = np.full(m, 1e4), np.full(m, 0.6)
    slabs, weights = slab_grid(SCALES, SHARES), weights_of(rates)
    for effect in (0.0, 0.2, 3.0):
        row = filled_row(a, effect * a + np.linspace(-50.0, 50.0, m))
        value = log_evidence(row, slabs, weights, nodes_for(slabs, len(RATES), 6), NEVER)
        assert np.isfinite(value)
        assert (value > 0) == (effect > 0)
