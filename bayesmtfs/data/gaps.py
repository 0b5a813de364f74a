"""Missing cells of features: filled with the mean of the column in the row's task, beside an indicator of the gap.

    x_ij := mean of column j over the rows of task t(i) in which it was observed,      g_ij = 1

with a further feature g_j, ``name[missing]``, for every column that had gaps in the training rows: what is filled in stands
for nothing, and whether a cell is missing may itself tell something (Little and Rubin 2019, *Statistical Analysis with
Missing Data*, section 4.2). Means are those of the training rows; a task without any cell takes the mean over all tasks.
In the wide form, where all tasks share rows, there is one mean for all.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.inputs import DesignTable, numbered_names
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, FloatArray, IntArray


def gap_columns(table: DesignTable) -> IntArray:
    """Numbers of the columns that have missing cells."""
    return np.flatnonzero(np.zeros(0) if table.missing is None else table.missing.any(axis=0))


def with_indicators(table: DesignTable, columns: IntArray) -> DesignTable:
    """Add a feature for each of some columns that says where it is missing.

    Examples
    --------
    >>> X = np.array([[1.0, np.nan], [2.0, 3.0]])
    >>> with_indicators(DesignTable(X, ("a", "b"), None, np.isnan(X)), np.array([1])).X
    array([[ 1., nan,  1.],
           [ 2.,  3.,  0.]])
    """
    if not len(columns):
        return table
    missing = np.zeros((len(table.X), 1 + columns.max()), dtype=bool) if table.missing is None else table.missing
    names = table.feature_names
    names = tuple(numbered_names(table.X.shape[1]).tolist()) if names is None else names
    own = names if table.encoding is None else [str(column.name) for column in table.encoding.columns]
    names = (*names, *(f"{own[column]}[missing]" for column in columns))
    return table._replace(X=np.column_stack([table.X, missing[:, columns]]), feature_names=names)


class TaskMeans(NamedTuple):
    """What stands in the place of missing cells."""

    means: FloatArray  # (m, p)
    overall: FloatArray  # (p,) for tasks that were not there

    def fill(self, X: FloatArray, task: IntArray | None) -> FloatArray:
        """Rows (n, p) with their gaps filled; ``task`` -1 is an unknown one, None stands for one mean for all."""
        missing = np.isnan(X)
        if not missing.any():
            return X
        own = self.overall if task is None else np.vstack([self.means, self.overall])[task]
        return np.where(missing, own, X)


def learn_means(data: TaskData) -> TaskMeans:
    """Means of the observed cells of every column, by task; 0 for a column without any."""
    X, shape = data.design, (data.n_tasks, data.n_features)
    seen: BoolArray = ~np.isnan(X)
    overall = _means(X, seen)
    if data.shared_design:
        return TaskMeans(np.broadcast_to(overall, shape).copy(), overall)
    means = np.array([_means(X[a:b], seen[a:b], overall) for a, b in data.spans])
    return TaskMeans(means, overall)


def _means(X: FloatArray, seen: BoolArray, instead: FloatArray | float = 0.0) -> FloatArray:
    counts = seen.sum(axis=0)
    sums = np.where(seen, X, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), instead)


def filled(data: TaskData, means: TaskMeans, tasks: IntArray) -> TaskData:
    """Fill the gaps of data, whose tasks have the numbers ``tasks`` (m,) among those of the means, -1 for others."""
    rows = None if data.shared_design and data.n_tasks > 1 else tasks[data.task]
    return replace(data, design=means.fill(data.design, rows))


def has_gaps(data: TaskData) -> bool:
    """Whether any cell is missing."""
    return not data.is_sparse and bool(np.isnan(data.design).any())
