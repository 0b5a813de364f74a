"""How the features differ between tasks, which a prediction for a new task has to know.

With x_ti the rows of task t, a feature is taken as ``x = c + u_t + e`` with a level u of the task and a deviation e of the
row, of variances v_b and v_w. One row of a new task says of its level ``E[u | x] = v_b / (v_b + v_w) (x - c)``; the
variances are those of a one-way analysis of variance,

    v_w = SS_within / (N - m),    v_b = max(SS_between / N - v_w m / N, 0)

with N the sum of the weights.
"""

import numpy as np

from bayesmtfs.data.scaling import column_means, pooled_moments
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import FloatArray


def task_means(data: TaskData) -> FloatArray:
    """(p, m) Weighted mean of each feature in each task; over all tasks where a task does not have the feature.

    Parameters
    ----------
    data : dense observations
    """
    means = column_means(data)
    return means if data.present is None else np.where(data.present, means, pooled_moments(data)[0][:, np.newaxis])


def between_share(data: TaskData) -> FloatArray:
    """(p,) Share of a feature's variance that lies between tasks, 0 to 1.

    Parameters
    ----------
    data : dense observations

    Examples
    --------
    A feature of the task, and one of the row:

    >>> X = np.array([[0.0, 1.0], [0.0, -1.0], [3.0, 1.0], [3.0, -1.0]])
    >>> between_share(TaskData.from_long(X, np.zeros(4), tasks=[0, 0, 1, 1]))
    array([1., 0.])
    """
    weight, means = data.task_weights, task_means(data)
    total, m = weight.sum(), data.n_tasks
    between = np.average(
        (means - np.average(means, axis=1, weights=weight)[:, np.newaxis]) ** 2, axis=1, weights=weight
    )
    squares = np.zeros(data.n_features)
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        here = np.ones(data.n_features, dtype=bool) if data.present is None else data.present[:, t]
        squares += np.where(here, data.weight[start:stop] @ (X - means[:, t]) ** 2, 0.0)
    within = squares / max(total - m, 1.0)
    level = np.maximum(between - within * m / total, 0.0)
    return np.divide(level, level + within, out=np.zeros_like(level), where=level > 0)
