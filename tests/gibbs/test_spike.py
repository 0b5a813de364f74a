"""What the sampler of the prior with exact zeros keeps up to date, and the density that it reports."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.gibbs import spike, spike_state
from bayesmtfs.gibbs.state import rows_of
from bayesmtfs.priors.spike import log_pattern_probability, spike_prior_for


def problem(own, n=60, p=8, m=3):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, p)) + 0.8 * rng.standard_normal((n, 1))
    Y = X[:, :3] @ rng.normal(0.0, 0.6, (3, m)) + rng.standard_normal((n, m))
    if own:
        Y[rng.random((n, m)) < 0.3] = np.nan
    return TaskData.from_wide(X - X.mean(axis=0), Y - np.nanmean(Y, axis=0))


def parts_of(data):
    rows, family = rows_of(data), Gaussian()
    observed = spike_state.spike_data(data, family, fit_intercept=True)
    numbers = spike_state.spike_numbers(spike_prior_for(data, family), family, observed, rows)
    state = spike_state.first_state(observed, numbers, rows)
    return spike_state.SpikeParts(observed, rows, numbers, state, spike_state.space_for(numbers, state, rows))


def swept(data, sweeps=130):
    """Parts after some sweeps, and the draws that were kept."""
    parts, rng = parts_of(data), np.random.Generator(np.random.PCG64(4))
    kept = spike_state.kept_for(sweeps, parts.rows)
    spike.advance(rng, parts, kept, 1, 0, sweeps, 0)
    return parts, kept


@pytest.mark.parametrize("own", [False, True])
def test_pulls_are_those_of_the_residuals(own):
    data = problem(own)
    parts, kept = swept(data)
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        residual = data.y[start:stop] - X @ parts.state.W[:, t] - parts.state.intercept[t]
        np.testing.assert_allclose(parts.data.sums.pulls[t], X.T @ residual, atol=1e-9)
    found = kept.log_likelihood[-1]
    wanted = sum(
        stats.norm.logpdf(
            data.y[start:stop] - X @ kept.W[-1, :, t] - kept.intercept[-1, t], scale=kept.noise[-1, t]
        ).sum()
        for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True))
    )
    assert found == pytest.approx(wanted, abs=1e-8)


def test_a_store_for_few_columns_gives_the_same_draws(monkeypatch):
    data = problem(own=True)
    _, plenty = swept(data)
    monkeypatch.setattr(spike_state, "STORE_BYTES", 8 * data.n_features * 3)
    parts, few = swept(data)
    assert parts.data.sums.columns.shape == (3, data.n_features)
    assert plenty.W.any()
    np.testing.assert_array_equal(few.W, plenty.W)


def test_the_log_posterior_is_likelihood_times_prior():
    data = problem(own=False)
    parts, kept = swept(data, sweeps=40)
    rng, differences = np.random.Generator(np.random.PCG64(9)), []
    for _ in range(12):
        one = spike_state.kept_for(1, parts.rows)
        spike.advance(rng, parts, one, 1, 0, 1, 0)
        differences.append(one.log_posterior[0] - one.log_likelihood[0] - log_prior_by_hand(parts))
    assert np.std(kept.log_posterior) > 1.0
    assert np.ptp(differences) < 1e-9


def log_prior_by_hand(parts):
    """Up to a constant: inverse gamma noise, normal effects, tables; weights of grids are integrated out."""
    prior, state, weights = parts.prior, parts.state, parts.state.weights
    on, m = np.flatnonzero(state.on), len(state.noise)
    value = stats.invgamma.logpdf(state.noise**2, prior.noise_shape, scale=prior.noise_rate).sum()
    value += stats.norm.logpdf(state.intercept, scale=prior.intercept_precision**-0.5).sum()
    value += len(on) * np.log(state.rate[0]) + (len(state.on) - len(on)) * np.log1p(-state.rate[0])
    value += sum(prior.log_task_rates[list(prior.task_rates).index(rate)] for rate in state.task_rate)
    for i in on:
        w, size = state.W[i, state.patterns[i]], int(state.patterns[i].sum())
        M, V = prior.slabs.mean_variance[state.slab[i]], prior.slabs.own_variance[state.slab[i]]
        if V > 0.0:
            value += stats.multivariate_normal.logpdf(w, np.zeros(size), M + V * np.eye(size))
        else:
            assert np.ptp(w) < 1e-12
            value += stats.norm.logpdf(w[0], scale=np.sqrt(M))
    tables, counts = np.unique(state.table[on], return_counts=True)
    alpha = weights.concentration[0]
    value += len(tables) * math.log(alpha) + gammaln(alpha) - gammaln(alpha + len(on)) + gammaln(counts).sum()
    for table in tables:
        rate = state.table_rate[table]
        pattern = weights.tables[table][np.newaxis].astype(float)
        value += log_pattern_probability(pattern, prior.pattern_rates[[rate]], state.task_rate)[0, 0]
    assert m == pattern.shape[1]
    numbers = (prior.slabs.scale[state.slab[on]], prior.slabs.share[state.slab[on]], state.table_rate[tables])
    for chosen, weight, strength in zip(
        numbers, (weights.scale, weights.share, weights.rate), prior.dirichlet, strict=True
    ):
        value += log_probability_of_sequence(chosen, np.full(len(weight), strength))
    return value


def log_probability_of_sequence(chosen, strengths):
    """Of numbers in an order, under Dirichlet weights."""
    counts = np.bincount(chosen, minlength=len(strengths))
    orders = gammaln(len(chosen) + 1) - gammaln(counts + 1).sum()
    return stats.dirichlet_multinomial.logpmf(counts, strengths, len(chosen)) - orders
