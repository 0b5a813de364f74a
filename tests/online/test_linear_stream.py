"""Rounds of a batch, rows of unit length, growing learners and their averages."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.online.learner import StreamBatch
from bayesmtfs.online.linear_stream import (
    grow,
    iterates,
    longest_task,
    move_all,
    move_one,
    rounds_of,
    unit_rows,
)


def rounds_of_data(data, random_state=None):
    """Rounds of task data whose tasks are their own learners."""
    batch = StreamBatch(data.design, data.y, data.task, data.task, data.weight, data.rows)
    return rounds_of(batch, data.task, True, random_state)


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return TaskData.from_long(rng.normal(size=(7, 3)), np.arange(7.0), tasks=[1, 0, 1, 1, 0, 2, 1])


def test_the_order_within_tasks_is_kept_or_shuffled(batch):
    rounds = rounds_of_data(batch)
    assert longest_task(rounds.offsets) == 4
    np.testing.assert_array_equal(rounds.y, [1.0, 4.0, 0.0, 2.0, 3.0, 6.0, 5.0])
    shuffled = rounds_of_data(batch, np.random.RandomState(1))
    assert not np.array_equal(shuffled.y, rounds.y)
    for start, stop in batch.spans:
        assert sorted(shuffled.y[start:stop]) == sorted(rounds.y[start:stop])
        for place in range(start, stop):  # each target keeps its own row
            row = shuffled.rows[place]
            values = shuffled.values[shuffled.pointer[row] : shuffled.pointer[row + 1]]
            np.testing.assert_array_equal(values, batch.X[np.flatnonzero(batch.y == shuffled.y[place])[0]])


def test_a_shared_design_is_not_copied():
    X = np.random.default_rng(0).normal(size=(4, 2))
    data = TaskData.from_wide(X, [[1.0, np.nan], [2.0, 5.0], [np.nan, 6.0], [3.0, 7.0]])
    rounds = rounds_of_data(data)
    np.testing.assert_array_equal(rounds.rows, [0, 1, 3, 1, 2, 3])
    assert rounds.values.size == X.size


def test_rows_of_unit_length():
    X = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    wanted = [[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]]
    np.testing.assert_allclose(unit_rows(X), wanted)
    sparse = sp.csr_matrix(X)
    np.testing.assert_allclose(unit_rows(sparse).toarray(), wanted)
    np.testing.assert_array_equal(sparse.toarray(), X)


@pytest.mark.parametrize("order", ["C", "F"])
def test_averages_are_the_mean_of_the_iterates(batch, order):
    rounds, rng = rounds_of_data(batch), np.random.default_rng(2)
    stream, seen, intercepts = grow(None, 3, 3, True, order), [], []
    for _ in range(6):
        move_all(rounds, int(rng.integers(7)), stream, rng.normal(size=3))
        move_one(rounds, int(rng.integers(7)), stream, 1, rng.normal())
        stream.clock[:] += 1
        seen.append(stream.W.copy())
        intercepts.append(stream.intercept.copy())
    W, intercept = iterates(stream, True)
    np.testing.assert_allclose(W, np.mean(seen, axis=0), atol=1e-14)
    np.testing.assert_allclose(intercept, np.mean(intercepts, axis=0), atol=1e-14)
    np.testing.assert_array_equal(iterates(stream, False)[0], seen[-1])


def test_new_learners_begin_at_zero_behind_the_others():
    stream = grow(None, 2, 2, True)
    stream.W[:], stream.intercept[:], stream.W_lag[:], stream.clock[:] = 1.0, 2.0, 3.0, 4
    grown = grow(stream, 2, 3, True)
    np.testing.assert_array_equal(grown.W, [[1, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(grown.W_lag, [[3, 3, 0], [3, 3, 0]])
    np.testing.assert_array_equal(grown.intercept, [2, 2, 0])
    np.testing.assert_array_equal(grown.clock, [4, 4, 0])
