import numpy as np
import pandas as pd

from bayesmtfs import TaskData
from bayesmtfs.posterior.tree import between_share, task_means


def grouped(rng, levels, sizes, deviations):
    """Rows of tasks whose features have these levels (p, m) and deviations (p,) within a task."""
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    X = levels.T[tasks] + rng.standard_normal((len(tasks), len(levels))) * deviations
    return TaskData.from_long(X, np.zeros(len(tasks)), tasks=tasks), X, tasks


def test_shares_are_those_of_the_variances_that_made_the_data():
    rng = np.random.default_rng(0)
    deviations, spreads = np.array([1.0, 1.0, 0.0, 2.0]), np.array([0.0, 1.0, 1.0, 1.0])
    levels = spreads[:, None] * rng.standard_normal((4, 2000))
    data, _, _ = grouped(rng, levels, rng.integers(2, 8, 2000), deviations)
    np.testing.assert_allclose(between_share(data), spreads**2 / (spreads**2 + deviations**2), atol=0.03)


def test_weights_are_repeated_rows_and_absent_features_are_left_out():
    rng = np.random.default_rng(1)
    data, X, tasks = grouped(rng, rng.standard_normal((3, 5)), np.full(5, 6), np.ones(3))
    weight = rng.integers(1, 4, len(tasks))
    weighted = TaskData.from_long(X, data.y, tasks=tasks, sample_weight=weight)
    repeated = TaskData.from_long(*(np.repeat(part, weight, axis=0) for part in (X, data.y, tasks)))
    np.testing.assert_allclose(task_means(weighted), task_means(repeated))
    np.testing.assert_allclose(between_share(weighted), between_share(repeated))
    first, rest = X[tasks == 0][:, :2], X[tasks > 0]
    names = ["a", "b", "c"]
    parts = [(pd.DataFrame(rest[tasks[tasks > 0] == t], columns=names), np.zeros(6)) for t in range(1, 5)]
    lacking = TaskData.from_list([(pd.DataFrame(first, columns=names[:2]), np.zeros(6)), *parts])
    np.testing.assert_allclose(task_means(lacking)[2, 0], rest[:, 2].mean())
    np.testing.assert_allclose(task_means(lacking)[:2], task_means(data)[:2])
