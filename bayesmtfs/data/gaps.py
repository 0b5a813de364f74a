"""Missing cells of features: filled with the mean of the column in the row's task, or with what the row tells of them.

**Means** (``impute="task_mean"``):

    x_ij := mean of column j over the rows of task t(i) in which it was observed,      g_ij = 1

with a further feature g_j, ``name[missing]``, for every column that had gaps in the training rows: what is filled in stands
for nothing, and whether a cell is missing may itself tell something (Little and Rubin 2019, *Statistical Analysis with
Missing Data*, section 4.2). Means are those of the training rows; a task without any cell takes the mean over all tasks.
In the wide form, where all tasks share rows, there is one mean for all.

**Rows** (``impute="model"``, drawn by `bayesmtfs.gibbs.cells`): ``x_i ~ N(mu_t(i), S)``, S the covariance within tasks.
With ``P = S^-1``, M the missing and O the observed cells of a new row,

    x_M | x_O ~ N(mu_M - P_MM^-1 P_MO (x_O - mu_O), P_MM^-1)

so that the linear predictor is normal, too: about that of the row with its missing cells at their means, with variance
``w_M' P_MM^-1 w_M``. Missing entries of categorical columns have no normal distribution, and are filled with means.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from bayesmtfs.data.inputs import DesignTable, numbered_names
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, FloatArray, IntArray


def gap_columns(table: DesignTable) -> IntArray:
    """Numbers of the columns that have missing cells."""
    return np.flatnonzero(np.zeros(0) if table.missing is None else table.missing.any(axis=0))


def with_indicators(table: DesignTable, columns: IntArray) -> DesignTable:
    """Add a feature for each of some columns that says where it is missing; ``missing`` is then about these columns.

    Examples
    --------
    >>> X = np.array([[1.0, np.nan], [2.0, 3.0]])
    >>> with_indicators(DesignTable(X, ("a", "b"), None, np.isnan(X)), np.array([1])).X
    array([[ 1., nan,  1.],
           [ 2.,  3.,  0.]])
    """
    if not len(columns):
        return table._replace(missing=None)
    missing = np.zeros((len(table.X), 1 + columns.max()), dtype=bool) if table.missing is None else table.missing
    names = table.feature_names
    names = tuple(numbered_names(table.X.shape[1]).tolist()) if names is None else names
    own = names if table.encoding is None else [str(column.name) for column in table.encoding.columns]
    names = (*names, *(f"{own[column]}[missing]" for column in columns))
    missing = missing[:, columns]
    return table._replace(X=np.column_stack([table.X, missing]), feature_names=names, missing=missing, sums=None)


def categorical_features(data: TaskData) -> BoolArray:
    """(p,) Which features stand for levels of a categorical column."""
    found = np.zeros(data.n_features, dtype=bool)
    if data.encoding is not None:
        own = np.array([column.levels is not None for column in data.encoding.columns])[data.encoding.column_index]
        found[: len(own)] = own  # indicators of gaps come last
    return found


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


class RowModel(NamedTuple):
    """Normal distribution of the rows of a task: what missing cells are, given the observed ones.

    Examples
    --------
    >>> model = RowModel(np.arange(2), np.zeros((2, 2)), np.ones((2, 2)), np.array([[1.0, 0.8], [0.8, 1.0]]))
    >>> X = np.array([[2.0, np.nan]])
    >>> model.fill(X, np.zeros(1, dtype=int)).round(6).tolist()
    [[2.0, 1.6]]
    >>> model.deviations(X, 0, np.array([[1.0, 1.0], [5.0, 0.0]])).round(6).tolist()
    [[0.6], [0.0]]
    """

    features: IntArray  # (k,) that it is about, by their numbers among all
    means: FloatArray  # (m + 1, k); the last for tasks that were not there
    scales: FloatArray  # (m + 1, k) units of the features
    covariance: FloatArray  # (k, k) in these units

    def fill(self, X: FloatArray, task: IntArray | None) -> FloatArray:
        """Rows (n, p) with the gaps of its features at their conditional means; ``task`` as in `TaskMeans.fill`."""
        result = np.array(X, dtype=np.float64)
        own = np.full(len(X), -1) if task is None else task
        scaled = (result[:, self.features] - self.means[own]) / self.scales[own]
        for rows, gaps, P in self._patterns(X):
            known = scaled[np.ix_(rows, ~gaps)]
            found = -np.linalg.solve(P[np.ix_(gaps, gaps)], P[np.ix_(gaps, ~gaps)] @ known.T).T
            places = np.ix_(own[rows], np.flatnonzero(gaps))
            result[np.ix_(rows, self.features[gaps])] = self.means[places] + self.scales[places] * found
        return result

    def deviations(self, X: FloatArray, task: int, coef: FloatArray) -> FloatArray:
        """(S, n) Deviations of the predictors of rows (n, p) of a task for coefficients (S, p), with cells not known."""
        result = np.zeros((len(coef), len(X)))
        weights = coef[:, self.features] * self.scales[task]
        for rows, gaps, P in self._patterns(X):
            root = np.linalg.cholesky(P[np.ix_(gaps, gaps)])
            squares = np.sum(solve_triangular(root, weights[:, gaps].T, lower=True) ** 2, axis=0)
            result[:, rows] = np.sqrt(squares)[:, np.newaxis]
        return result

    def _patterns(self, X: FloatArray) -> Iterator[tuple[IntArray, BoolArray, FloatArray]]:
        """Rows with the same gaps (k,), and the inverse of the covariance."""
        missing = np.isnan(X[:, self.features])
        some = np.flatnonzero(missing.any(axis=1))
        if not len(some):
            return
        P = np.linalg.inv(self.covariance)
        patterns, number = np.unique(missing[some], axis=0, return_inverse=True)
        order = np.argsort(number, kind="stable")
        for gaps, rows in zip(patterns, np.split(order, np.cumsum(np.bincount(number))[:-1]), strict=True):
            yield some[rows], gaps, P


class Filling(NamedTuple):
    """What the gaps of new rows are filled with."""

    means: TaskMeans
    rows: RowModel | None = None  # for those features that it is about

    def fill(self, X: FloatArray, task: IntArray | None) -> FloatArray:
        """Rows (n, p) with their gaps filled; ``task`` as in `TaskMeans.fill`."""
        if self.rows is None or not np.isnan(X).any():
            return self.means.fill(X, task)
        return self.rows.fill(self.without_others(X, task), task)

    def without_others(self, X: FloatArray, task: IntArray | None) -> FloatArray:
        """Rows with those gaps filled that are filled with means."""
        known = self.means.fill(X, task)
        if self.rows is not None:
            known = np.array(known, dtype=np.float64)
            known[:, self.rows.features] = X[:, self.rows.features]
        return known


def filled(data: TaskData, filling: TaskMeans | Filling, tasks: IntArray) -> TaskData:
    """Fill the gaps of data, whose tasks have the numbers ``tasks`` (m,) among those of the filling, -1 for others."""
    rows = None if data.shared_design and data.n_tasks > 1 else tasks[data.task]
    return replace(data, design=filling.fill(data.design, rows))


def has_gaps(data: TaskData) -> bool:
    """Whether any cell is missing."""
    return not data.is_sparse and bool(np.isnan(data.design).any())
