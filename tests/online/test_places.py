"""Where the features of a sparse stream have their gradient sums."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.online.dual_averaging import (
    MANY_ROWS,
    DualAveraging,
    DualAveragingSettings,
    Schedule,
    observations,
    round_schedule,
)

P, M = 400, 3


def batch(n_features, seed, n=12):
    """Rows whose entries are among the last features."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, P))
    X[:, P - n_features :] = rng.standard_normal((n, n_features)) * (rng.random((n, n_features)) < 0.7)
    return sp.csr_matrix(X), rng.choice([-1.0, 1.0], n), rng.integers(M, size=n)


def learn(learner, X, y, task):
    learner.learn(X, observations(X, y, task), round_schedule(task, M))


def learner_of(average=False):
    learner = DualAveraging(DualAveragingSettings(strength=0.05, average=average), P)
    learner.add_tasks(M)
    return learner


@pytest.mark.parametrize("average", [False, True])
def test_the_order_of_rows_changes_no_weight(average, monkeypatch):
    ordered, unordered = learner_of(average), learner_of(average)
    sizes = [20, 60, 130, 300]
    for seed, size in enumerate(sizes):
        learn(ordered, *batch(size, seed))
    monkeypatch.setattr("bayesmtfs.online.dual_averaging.MANY_ROWS", 2.0)
    for seed, size in enumerate(sizes):
        learn(unordered, *batch(size, seed))
    assert np.array_equal(ordered.state.slots, np.arange(P)) and unordered.n_used < P
    assert np.array_equal(ordered.coefficients().W, unordered.coefficients().W)
    X, _, task = batch(350, 9)
    assert np.array_equal(ordered.predict(X, task), unordered.predict(X, task))


def test_few_features_take_the_room_of_few():
    learner = learner_of()
    for seed in range(5):
        learn(learner, *batch(int(0.5 * MANY_ROWS * P), seed))
    assert learner.n_used <= 0.5 * MANY_ROWS * P and learner.state.sums.shape[0] <= 2 * learner.n_used


def test_a_restored_learner_goes_on_with_the_same_numbers():
    learner = learner_of()
    for seed in range(2):
        learn(learner, *batch(200, seed))
    found = learner_of().restore(learner.to_stored())
    for one in (learner, found):
        learn(one, *batch(390, 5))
    assert np.array_equal(learner.coefficients().W, found.coefficients().W)


@pytest.mark.parametrize("index", [-1, P])
def test_indices_out_of_range_are_refused(index):
    learner = learner_of()
    learn(learner, *batch(300, 0))
    X, y, task = batch(3, 1)
    X.indices[0] = index
    with pytest.raises(ValueError, match="indices outside"):
        learner.learn(X, observations(X, y, task), Schedule(*round_schedule(task, M)))
