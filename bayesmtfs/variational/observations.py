r"""Data of all tasks as the coordinate ascent reads them: columns of features, targets, and how precise these are.

The expected log-likelihood of task t is, up to a constant, ``sum_n l_n E[eta_n] - omega_n E[eta_n^2] / 2`` with the linear
predictor ``eta = b_t + x'w_t``, and

    normal targets   omega_n = weight_n E[1 / sigma_t^2],                         l_n = omega_n y_n
    labels           omega_n = weight_n tanh(xi_n / 2) / (2 xi_n),  xi_n^2 = E[eta_n^2],   l_n = weight_n y_n / 2

(`bayesmtfs.families.augmentation`; labels by the bound of Jaakkola and Jordan). Normal targets with more rows than features
are first reduced to p + 2 rows of the same sums ``X'X, X'y, y'y``, the triangle of a QR factorisation, and tasks that have
the same rows share one matrix: sums of products with all features are then one matrix product for all tasks.

A row of the prior has k features, k = 1 but for groups; rows with fewer are padded with columns of zeros.
"""

from dataclasses import dataclass

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NORMAL
from bayesmtfs.gibbs.state import RowMap
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Targets and columns of all tasks.

    Attributes
    ----------
    designs : one (p, n) matrix that all tasks share, or one for each of them
    ones : (n,) column of the intercepts of each matrix; zeros without intercepts
    targets, weights : (n,) of each task; weights of reduced rows are 1
    counts : (m,) observations by weight
    family : of the targets
    """

    designs: list[FloatArray]
    ones: list[FloatArray]
    targets: list[FloatArray]
    weights: list[FloatArray]
    counts: FloatArray
    family: Family

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.targets)

    @property
    def normal(self) -> bool:
        """Whether targets are normal, with a noise."""
        return self.family.augmentation.form == NORMAL

    @property
    def shared(self) -> bool:
        """Whether all tasks have the same rows."""
        return len(self.designs) < self.n_tasks

    def design(self, t: int) -> FloatArray:
        """(p, n) Columns of a task."""
        return self.designs[0 if self.shared else t]

    def intercept(self, t: int) -> FloatArray:
        """(n,) Column of a task's intercept."""
        return self.ones[0 if self.shared else t]

    def of_features(self, features: IntArray) -> "TaskRows":
        """Return the same with some of the features; -1 stands for a column of zeros."""
        if np.array_equal(features, np.arange(len(self.designs[0]))):
            return self
        designs = [np.where((features >= 0)[:, np.newaxis], D[features], 0.0) for D in self.designs]
        return TaskRows(designs, self.ones, self.targets, self.weights, self.counts, self.family)

    def pulls(self, scores: list[FloatArray]) -> FloatArray:
        """(p, m) Products of all columns with one vector per task."""
        if self.shared:
            return self.designs[0] @ np.column_stack(scores)
        return np.column_stack([D @ score for D, score in zip(self.designs, scores, strict=True)])

    def predictors(self, features: IntArray, W: FloatArray) -> list[FloatArray]:
        """Per task the sum of some columns times coefficients (k, m)."""
        if self.shared:
            return list(W.T @ self.designs[0][features])
        return [W[:, t] @ D[features] for t, D in enumerate(self.designs)]


def observations_of(data: TaskData, family: Family, rows: RowMap, fit_intercept: bool) -> TaskRows:
    """Columns and targets of data in sampling units; a feature that a task does not have is a column of zeros there."""
    weights, y, spans = np.asarray(data.weight, dtype=np.float64), np.asarray(data.y, dtype=np.float64), data.spans
    complete = data.is_complete and bool(rows.present.all())
    alike = complete and bool(np.all(weights.reshape(data.n_tasks, -1) == weights[: spans[0][1]]))
    normal = family.augmentation.form == NORMAL
    designs, ones, targets, row_weights = [], [], [], []
    for tasks in [list(range(data.n_tasks))] if alike else [[t] for t in range(data.n_tasks)]:
        start, stop = spans[tasks[0]]
        X = np.asarray(data.task_designs[tasks[0]], dtype=np.float64)
        if not alike:
            X = X * rows.present[tasks[0]]
        column, Y = np.full(stop - start, float(fit_intercept)), np.column_stack([y[slice(*spans[t])] for t in tasks])
        own = weights[start:stop]
        if normal:
            root = np.sqrt(own)
            X, column, Y = reduced(X * root[:, np.newaxis], column * root, Y * root[:, np.newaxis])
            own = np.ones(len(X))
        designs.append(np.ascontiguousarray(X.T))
        ones.append(column)
        targets += [np.ascontiguousarray(part) for part in Y.T]
        row_weights += [own] * len(tasks)
    return TaskRows(designs, ones, targets, row_weights, data.task_weights, family)


def reduced(X: FloatArray, column: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fewer rows of the same sums, one of them for what X and the intercept leave of each target.

    Examples
    --------
    >>> X, y = np.arange(12.0).reshape(6, 2) ** 2, np.ones((6, 1))
    >>> small, column, target = reduced(X, np.ones(6), y)
    >>> small.shape, bool(np.allclose(small.T @ small, X.T @ X)), bool(np.isclose(target.ravel() @ target.ravel(), 6.0))
    ((4, 2), True, True)
    """
    n, p = X.shape
    if n <= p + 2:
        return X, column, Y
    Q, R = np.linalg.qr(np.column_stack([column, X]))
    top = Q.T @ Y
    left = np.sqrt(np.maximum(np.sum(Y**2, axis=0) - np.sum(top**2, axis=0), 0.0))
    R = np.vstack([R, np.zeros(p + 1)])
    return R[:, 1:], R[:, 0].copy(), np.vstack([top, left])
