"""Columns of the design that an interior-point method works on: dense, in double precision, centred within tasks.

Centring changes nothing but the intercept, since the dual variables of a task sum to 0, and it makes scores accurate
for features far from 0. Arrays over features are (k, m); arrays over rows are (R, K), as `priors.blocks` lays them out.
"""

import numpy as np
import scipy.sparse as sp

from bayesmtfs.convex.problem import Problem
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.types import BoolArray, FloatArray, IntArray


class Columns:
    """The features of some rows of a problem."""

    def __init__(self, problem: Problem, rows: IntArray) -> None:
        data, row_of_feature = problem.data, problem.blocks.row_of_feature
        self.fit_intercept = problem.fit_intercept
        self.spans, self.offsets, self.task = data.spans, data.offsets, data.task
        self.grouped = data.groups is not None
        self.features = np.flatnonzero(np.isin(row_of_feature, rows)) if self.grouped else rows
        self.n_tasks = data.n_tasks
        chosen = row_of_feature[self.features]
        present = None if data.present is None else data.present[self.features]
        self.blocks = Blocks(
            len(self.features),
            data.n_tasks,
            groups=chosen if self.grouped else None,
            present=present,
            # Rows keep their length while larger groups come and go
            features_per_row=int(np.bincount(row_of_feature).max()) if self.grouped else 1,
        )
        self.row = np.searchsorted(rows, chosen)  # (k,) place of each feature's row among the rows
        self.complete = data.is_complete and present is None
        self.means = np.zeros((len(self.features), data.n_tasks))  # what was taken off
        self.designs = self._designs(problem, present)
        self.squares = [X * X for X in self.designs[: 1 if self.complete else None]]

    def _designs(self, problem: Problem, present: BoolArray | None) -> list[FloatArray]:
        data = problem.data
        chosen = data.design[:, self.features]
        chosen = chosen.toarray() if sp.issparse(chosen) else chosen
        if self.complete:
            return [self._centred(chosen, slice(None))] * data.n_tasks
        parts = [chosen[data.rows[start:stop]] for start, stop in data.spans]
        if present is not None:
            parts = [X * present[:, t] for t, X in enumerate(parts)]
        return [self._centred(X, slice(t, t + 1)) for t, X in enumerate(parts)]

    def _centred(self, X: FloatArray, tasks: slice) -> FloatArray:
        X = np.asarray(X, dtype=np.float64)
        if self.fit_intercept:
            means = X.mean(axis=0)
            self.means[:, tasks] = means[:, np.newaxis]
            X = X - means
        return np.asfortranarray(X)

    # ------------------------------------------------------------------ products

    def predictor(self, W: FloatArray) -> FloatArray:
        """(N,) Linear predictor, without intercept, of coefficients (k, m)."""
        if self.complete:
            return (W.T @ self.designs[0].T).ravel()
        return np.concatenate([X @ W[:, t] for t, X in enumerate(self.designs)])

    def adjoint(self, theta: FloatArray) -> FloatArray:
        """(k, m) Sums over each task's observations of x times theta."""
        if self.complete:
            return (theta.reshape(self.n_tasks, -1) @ self.designs[0]).T
        parts = zip(self.designs, self.spans, strict=True)
        return np.stack([theta[start:stop] @ X for X, (start, stop) in parts], axis=1)

    def quadratic_forms(self, own: FloatArray) -> FloatArray:
        """(N,) ``x' diag(h_t) x`` for every observation, with own = h (k, m)."""
        if self.complete:
            return (own.T @ self.squares[0].T).ravel()
        return np.concatenate([squares @ own[:, t] for t, squares in enumerate(self.squares)])

    def scores(self, theta: FloatArray) -> FloatArray:
        """(R, K) Scores of the rows."""
        return np.ascontiguousarray(self.blocks.gather(self.adjoint(theta)))

    def task_sums(self, values: FloatArray) -> FloatArray:
        """(m,) Sum of (N,) values over the observations of each task."""
        sums: FloatArray = np.add.reduceat(values, self.offsets[:-1])
        return sums

    def without_means(self, values: FloatArray) -> FloatArray:
        """(N,) Values minus their mean over each task."""
        if self.complete:
            by_task = values.reshape(self.n_tasks, -1)
            return (by_task - by_task.mean(axis=1, keepdims=True)).ravel()
        return np.concatenate([values[start:stop] - values[start:stop].mean() for start, stop in self.spans])

    # ------------------------------------------------------------------ rows and features

    def features_of(self, entries: FloatArray) -> FloatArray:
        """(k, m) Numbers of the features, from numbers of the rows (R, K)."""
        return self.blocks.scatter(entries)

    def spread(self, values: FloatArray) -> FloatArray:
        """(k,) Number of each feature's row, from numbers of the rows (R,)."""
        return values[self.row]

    def sum_to_row(self, values: FloatArray) -> FloatArray:
        """(R,) Sums over the features of each row, of numbers (k,)."""
        return np.bincount(self.row, weights=values, minlength=self.blocks.n_rows) if self.grouped else values

    def sum_columns_to_rows(self, X: FloatArray) -> FloatArray:
        """(n, R) Sums over the columns that belong to each row, of a matrix (n, k)."""
        if not self.grouped:
            return X
        member = np.equal.outer(self.row, np.arange(self.blocks.n_rows)).astype(np.float64)
        return X @ member

    def sum_to_rows(self, lower: FloatArray) -> FloatArray:
        """(R, R) Lower triangle, of a matrix between features of which the lower triangle is given."""
        if not self.grouped:
            return lower
        full = np.tril(lower) + np.tril(lower, -1).T
        return np.asfortranarray(self.sum_columns_to_rows(self.sum_columns_to_rows(full).T))
