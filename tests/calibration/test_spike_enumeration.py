"""The sampler of the prior with exact zeros against enumeration over all patterns and slabs of tiny problems."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.gibbs.chain import ChainSettings
from bayesmtfs.gibbs.spike import sample_spike_chain
from bayesmtfs.priors.spike import SpikePrior, log_pattern_probability

PLAIN = SpikePrior(
    inclusion_rates=(0.3,),
    inclusion_weights=(1.0,),
    pattern_rates=(0.6,),
    scales=(0.4,),
    shares=(0.7,),
    task_rates=(0.9,),
    task_rate_weights=(1.0,),
    concentrations=(1.0,),
    shared_noise=True,
)
GRIDS = replace(
    PLAIN,
    inclusion_rates=(0.2, 0.6),
    inclusion_weights=(0.7, 0.3),
    pattern_rates=(0.5, 1.0),
    scales=(0.2, 0.6),
    shares=(0.0, 1.0),
    task_rates=(0.3, 1.0),
    task_rate_weights=(0.4, 0.6),
    concentrations=(0.3, 3.0),
)


def partitions(items):
    """All partitions of a list."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for k in range(len(smaller)):
            yield [*smaller[:k], [first, *smaller[k]], *smaller[k + 1 :]]


def log_dirichlet_counts(numbers, size, concentration):
    """Logarithm of the probability of a sequence of categories, Dirichlet weights integrated out."""
    counts = np.bincount(numbers, minlength=size) if len(numbers) else np.zeros(size)
    total = gammaln(size * concentration) - gammaln(size * concentration + counts.sum())
    return total + np.sum(gammaln(concentration + counts) - gammaln(concentration))


def log_patterns_prior(patterns, prior, m):
    """Logarithm of the probability of the patterns of rows that are on, over tables, omega, kappa and alpha."""
    if not patterns:
        return 0.0
    rates, terms = np.array(prior.pattern_rates), []
    for kappa in itertools.product(range(len(prior.task_rates)), repeat=m):
        log_kappa = np.sum(np.log(prior.task_rate_weights)[list(kappa)])
        base = log_pattern_probability(np.array(patterns), rates, np.array(prior.task_rates)[list(kappa)])
        for tables in partitions(list(range(len(patterns)))):
            if any(patterns[i] != patterns[table[0]] for table in tables for i in table):
                continue
            for alpha in prior.concentrations:
                seats = len(tables) * math.log(alpha) + gammaln(alpha) - gammaln(alpha + len(patterns))
                seats += sum(gammaln(len(table)) for table in tables)
                for omega in itertools.product(range(len(rates)), repeat=len(tables)):
                    log_omega = log_dirichlet_counts(omega, len(rates), prior.rate_concentration)
                    log_base = sum(base[table[0], o] for table, o in zip(tables, omega, strict=True))
                    terms.append(log_kappa + seats + log_omega + log_base - math.log(len(prior.concentrations)))
    return logsumexp(terms)


def row_states(prior, m):
    """Off, or a pattern with the numbers of rho and C."""
    patterns = [s for s in itertools.product([0, 1], repeat=m) if any(s)]
    slabs = itertools.product(range(len(prior.scales)), range(len(prior.shares)))
    return [None, *itertools.product(patterns, slabs)]


def log_prior(rows, prior, m):
    """Logarithm of the prior of the states of all rows."""
    on = [row for row in rows if row is not None]
    pi, R = np.array(prior.inclusion_rates), len(rows)
    value = logsumexp(np.log(prior.inclusion_weights) + len(on) * np.log(pi) + (R - len(on)) * np.log1p(-pi))
    value += log_dirichlet_counts([row[1][0] for row in on], len(prior.scales), prior.scale_concentration)
    value += log_dirichlet_counts([row[1][1] for row in on], len(prior.shares), prior.share_concentration)
    return value + log_patterns_prior([row[0] for row in on], prior, m)


def coefficient_covariance(rows, prior, m):
    """(p m, p m) Prior covariance of the coefficients, row by row, given the states."""
    whole = np.zeros((len(rows) * m, len(rows) * m))
    for i, row in enumerate(rows):
        if row is not None:
            s, (j, h) = np.array(row[0]), row[1]
            C = prior.shares[h]
            block = prior.scales[j] ** 2 * (C * np.outer(s, s) + (1.0 - C) * np.diag(s))
            whole[i * m : (i + 1) * m, i * m : (i + 1) * m] = block
    return whole


def stacked_design(data):
    """(N, p m) Design of all tasks for coefficients row by row."""
    p, m = data.n_features, data.n_tasks
    Z = np.zeros((data.n_observations, p * m))
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        Z[start:stop, np.arange(p) * m + t] = X
    return Z


def log_likelihoods(data, prior, rows, noise_grid):
    """Logarithm of the normal density of the targets at each noise of a grid (K, m); W and intercepts integrated out."""
    Z = stacked_design(data)
    signal = Z @ coefficient_covariance(rows, prior, data.n_tasks) @ Z.T
    if prior.fit_intercept:
        signal = signal + prior.intercept_scale**2 * (data.task[:, np.newaxis] == data.task)
    root = np.sqrt(data.weight)
    y, signal = root * data.y, root[:, np.newaxis] * signal * root
    further = data.task_weights - np.diff(data.offsets)  # a weight multiplies all of a row's log-density
    found = []
    for noise in noise_grid:
        covariance = signal + np.diag(np.asarray(noise)[data.task] ** 2)
        log_determinant = np.linalg.slogdet(covariance)[1]
        value = -0.5 * (y @ np.linalg.solve(covariance, y) + log_determinant)
        found.append(value - further @ np.log(noise))
    return np.array(found)


def noise_nodes(prior, m, points):
    """Grid of noises (K, m) with log weights, on the logarithm of the variance."""
    x = np.linspace(-4.5, 4.0, points)
    a, b = prior.noise_shape, prior.noise_rate
    log_density = a * math.log(b) - gammaln(a) - a * x - b * np.exp(-x)
    if prior.shared_noise:
        return np.repeat(np.exp(0.5 * x)[:, np.newaxis], m, axis=1), log_density
    numbers = np.array(list(itertools.product(range(points), repeat=m)))
    return np.exp(0.5 * x[numbers]), log_density[numbers].sum(axis=1)


def inclusion_by_enumeration(data, prior, points=30):
    """(p, m) Posterior probabilities that entries are on, and (p,) that rows are."""
    m, nodes = data.n_tasks, noise_nodes(prior, data.n_tasks, points)
    logs, entries = [], []
    for rows in itertools.product(row_states(prior, m), repeat=data.n_features):
        likelihood = logsumexp(log_likelihoods(data, prior, rows, nodes[0]) + nodes[1])
        logs.append(log_prior(rows, prior, m) + likelihood)
        entries.append([[0] * m if row is None else row[0] for row in rows])
    weights = np.exp(np.array(logs) - logsumexp(logs))
    on = np.array(entries)
    return np.einsum("k,kim->im", weights, on), weights @ on.any(axis=2)


def problem(p, m, n, seed, correlation=0.6, **forms):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n * m, p)) + correlation * rng.standard_normal((n * m, 1))
    W = np.zeros((p, m))
    W[0] = 0.45
    W[-1, 0] = -0.4
    tasks = np.arange(n * m) % m
    y = np.sum(X * W.T[tasks], axis=1) + rng.standard_normal(n * m)
    return TaskData.from_long(X, y, tasks, **forms)


def sampled(data, prior, draws=12_000, seed=1):
    found = sample_spike_chain(data, prior, ChainSettings(draws, 500, seed), Gaussian()).included
    return found.mean(axis=0), found.any(axis=2).mean(axis=0)


@pytest.mark.parametrize("case", ["two features", "three features", "a noise for each task", "weights", "grids"])
def test_inclusion_probabilities_are_those_of_enumeration(case):
    prior, points = PLAIN, 30
    if case == "three features":
        data, points = problem(3, 2, 8, seed=2), 16
    elif case == "a noise for each task":
        data, prior, points = problem(2, 2, 8, seed=3), replace(PLAIN, shared_noise=False), 14
    elif case == "weights":
        weight = np.random.default_rng(0).uniform(0.3, 2.0, 16)
        data, prior = problem(2, 2, 8, seed=4, sample_weight=weight), replace(PLAIN, fit_intercept=False)
    elif case == "grids":
        data, prior, points = problem(2, 2, 8, seed=5), GRIDS, 16
    else:
        data = problem(2, 3, 8, seed=1)
    entries, rows = inclusion_by_enumeration(data, prior, points)
    found_entries, found_rows = sampled(data, prior)
    assert 0.05 < rows.min() < 0.95  # the data leave something to get wrong
    np.testing.assert_allclose(found_rows, rows, atol=0.025)
    np.testing.assert_allclose(found_entries, entries, atol=0.025)
