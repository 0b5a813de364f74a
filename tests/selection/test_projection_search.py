"""The order in which features enter: against greedy searches by brute force."""

import numpy as np
import pytest
from scipy.special import expit

import bayesmtfs as bm
from bayesmtfs.selection.projection_search import feature_blocks, forward_search
from bayesmtfs.selection.submodels import Reference, project


def problem(n_tasks=2, groups=None, seed=0, p=6):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40 * n_tasks, p)) @ (np.eye(p) + 0.3 * rng.standard_normal((p, p)))
    data = bm.TaskData.from_long(X, np.zeros(len(X)), np.repeat(np.arange(n_tasks), 40), groups=groups)
    W = rng.standard_normal((p, n_tasks)) * rng.uniform(0.05, 1, (p, 1))
    eta = data.linear_predictor(W, rng.standard_normal(n_tasks))[:, None]
    return data, eta


def greedy(data, reference, blocks):
    """Project the mean fit onto every candidate and take the closest, again and again."""
    chosen, order, divergences = np.empty(0, dtype=int), [], []
    while len(order) < len(blocks):
        after = {
            k: project(data, reference, np.concatenate([chosen, block])).divergence[0]
            for k, block in enumerate(blocks)
            if k not in order
        }
        order.append(min(after, key=after.get))
        divergences.append(after[order[-1]])
        chosen = np.concatenate([chosen, blocks[order[-1]]])
    return order, divergences


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [None, np.array([0, 1, 0, 2, 3, 2])])
def test_forward_search_is_greedy(seed, groups):
    data, eta = problem(groups=groups, seed=seed)
    reference = Reference(eta, np.array([[0.5, 1.5]]), True)
    blocks = feature_blocks(data)
    order, divergences = greedy(data, reference, blocks)
    found = forward_search(data, reference, len(blocks))
    assert [step.tolist() for step in found.steps] == [blocks[k].tolist() for k in order]
    np.testing.assert_allclose(found.divergence[1:], divergences, rtol=1e-6, atol=1e-8)


def test_spread_of_the_fit_widens_the_noise():
    data, eta = problem()
    rng = np.random.default_rng(1)
    draws = eta + 0.3 * rng.standard_normal((len(eta), 50))
    found = forward_search(data, Reference(draws, np.full((50, 2), 0.5), True), 2)
    spread = np.array([draws[data.task == t].var(axis=1).mean() for t in range(2)])
    mean = Reference(draws.mean(axis=1, keepdims=True), np.sqrt(0.25 + spread)[None], True)
    np.testing.assert_allclose(found.divergence, forward_search(data, mean, 2).divergence, rtol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_labels_enter_nearly_greedily(seed):
    # candidates are judged by one Newton step, so that only clear decisions must be the same
    data, eta = problem(seed=seed)
    reference = Reference(1.5 * eta, None, True)
    found = forward_search(data, reference, 6)
    _, best = greedy(data, reference, feature_blocks(data))
    assert len(found.steps) == 6 and (np.diff(found.divergence) < 0).all()
    assert found.divergence[1] <= 1.1 * best[0] and found.divergence[3] <= 1.3 * best[2] + 1e-6
    assert found.divergence[-1] < 1e-5 * found.divergence[0]


def test_labels_are_summarised_by_mean_probabilities():
    data, eta = problem()
    draws = np.column_stack([2 * eta[:, 0], 0.5 * eta[:, 0]])
    found = forward_search(data, Reference(draws, None, True), 1)
    p = expit(draws).mean(axis=1)
    empty = 0.0
    for t in range(2):
        own = p[data.task == t]
        empty += np.sum(own * np.log(own / own.mean()) + (1 - own) * np.log((1 - own) / (1 - own.mean())))
    assert found.divergence[0] == pytest.approx(empty, rel=1e-8)


def test_a_weak_effect_in_many_tasks_counts_like_a_strong_one_in_few():
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((30, 3)))[0] * np.sqrt(30)
    W = np.zeros((3, 16))
    W[0, 0], W[1] = 0.8, 0.4
    data = bm.TaskData.from_wide(X, np.zeros((30, 16)))
    eta = data.linear_predictor(W, np.zeros(16))[:, None]
    found = forward_search(data, Reference(eta, np.ones((1, 16)), False), 3)
    assert [int(step[0]) for step in found.steps] == [1, 0]  # and nothing is left for feature 2
    assert found.divergence[-1] < 1e-9


def test_progress_is_reported():
    data, eta = problem()
    shares = []
    forward_search(data, Reference(eta, np.ones((1, 2)), True), 4, shares.append)
    assert shares == [0.25, 0.5, 0.75, 1.0]
