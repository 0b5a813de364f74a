"""One row: evidence and expectations against a sum over all patterns, draws against expectations."""

import itertools

import numpy as np
import pytest

from bayesmtfs.gibbs.spike_row import slab_grid
from bayesmtfs.variational.row import (
    PatternPrior,
    draw_rows,
    fill_evidences,
    fill_moments,
    log_bound,
    log_evidence,
    moments_for,
    space_for,
)


def row_prior(m, rates=(0.3, 0.7, 1.0), scales=(0.2, 0.6), shares=(0.0, 0.7, 1.0)):
    slabs = slab_grid(scales, shares)
    log_slab = np.log(np.random.default_rng(0).dirichlet(np.ones(len(slabs.scale)), size=2))
    entry_rates = np.outer(rates, np.ones(m))
    return PatternPrior(
        slabs.mean_variance,
        slabs.own_variance,
        log_slab,
        np.log(np.array([0.5, 0.3, 0.2])),
        entry_rates,
        np.prod(1.0 - entry_rates, axis=1),
    )


def enumerated(pull, curvature, prior):
    """Evidence and expectations of s, w and w w' of a row with one feature."""
    m, evidence = len(pull), 0.0
    on, mean, second = np.zeros(m), np.zeros(m), np.zeros(m)
    for M, V, log_slab in zip(prior.mean_variance, prior.own_variance, prior.log_slab[0], strict=True):
        for s in itertools.product((0.0, 1.0), repeat=m):
            s = np.array(s)
            each = np.where(s > 0, prior.entry_rates, 1.0 - prior.entry_rates).prod(axis=1) / (1.0 - prior.empty)
            weight = np.exp(log_slab) * (np.exp(prior.log_rate) @ each) * s.any()
            covariance = np.outer(s, s) * M + np.diag(s * V)
            spread = np.linalg.solve(np.eye(m) + covariance * curvature, covariance)
            centre = spread @ pull
            weight *= np.exp(0.5 * pull @ centre) / np.sqrt(np.linalg.det(np.eye(m) + covariance * curvature))
            evidence += weight
            on += weight * s
            mean += weight * centre
            second += weight * (np.diag(spread) + centre**2)
    return np.log(evidence), on / evidence, mean / evidence, second / evidence


def likelihood(seed, m, size=1.0):
    rng = np.random.default_rng(seed)
    curvature = rng.uniform(20.0, 200.0, m)
    return size * np.sqrt(curvature) * rng.standard_normal(m), curvature


@pytest.mark.parametrize("size", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("m", [1, 3, 5])
def test_evidence_and_expectations_are_those_of_a_sum_over_patterns(m, size):
    prior, space = row_prior(m), space_for(m, 1)
    pull, curvature = likelihood(m, m, size)
    evidence, on, mean, second = enumerated(pull, curvature, prior)
    shaped = pull[np.newaxis], curvature[:, np.newaxis, np.newaxis]
    choices, found = np.empty((1, 6, 3)), np.empty(1)
    fill_evidences(shaped[0][None], shaped[1][None], np.ones(1, int), -np.inf, prior, space, found, choices)
    assert found[0] == pytest.approx(evidence, abs=1e-3) and log_bound(*shaped, prior) >= evidence
    moments = moments_for(1, m, 1, 6, 3)
    fill_moments(shaped[0][None], shaped[1][None], np.ones(1, int), choices, prior, space, moments)
    np.testing.assert_allclose(moments.on[0], on, atol=2e-3)
    np.testing.assert_allclose(moments.mean[0, 0], mean, atol=2e-3)
    np.testing.assert_allclose(moments.second[0, :, 0, 0], second, atol=2e-3)


@pytest.mark.parametrize("k", [1, 3])
def test_draws_have_the_expectations(k):
    m, rng = 3, np.random.default_rng(4)
    prior, space, sizes = row_prior(m), space_for(m, k), np.full(1, k)
    roots = rng.standard_normal((m, k, k + 4)) * 4.0
    curvature, pull = np.einsum("tan,tbn->tab", roots, roots), 9.0 * rng.standard_normal((k, m))
    choices, found, moments = np.empty((1, 6, 3)), np.empty(1), moments_for(1, m, k, 6, 3)
    fill_evidences(pull[None], curvature[None], sizes, -np.inf, prior, space, found, choices)
    fill_moments(pull[None], curvature[None], sizes, choices, prior, space, moments)
    on, W = np.zeros((40_000, m), dtype=bool), np.zeros((40_000, k, m))
    draw_rows(rng, pull, curvature, k, choices[0], prior, space, on, W)
    assert on.any(axis=1).all() and not W.transpose(0, 2, 1)[~on].any()
    np.testing.assert_allclose(on.mean(axis=0), moments.on[0], atol=0.015)
    np.testing.assert_allclose(W.mean(axis=0), moments.mean[0], atol=0.01)
    np.testing.assert_allclose(np.einsum("sat,sbt->tab", W, W) / len(W), moments.second[0], atol=0.01)


def test_many_tasks_do_not_underflow():
    m = 150
    prior, space = row_prior(m), space_for(m, 1)
    pull, curvature = likelihood(1, m, 6.0)
    choices = np.empty((6, 3))
    assert np.isfinite(log_evidence(pull[None], curvature[:, None, None], 1, prior, space, choices))
    assert choices.sum() == pytest.approx(1.0)
