"""A shared mean with more features than observations: few columns at a time.

The problem and its certificate are those of `shared_mean`. Deviations from the mean are zero for most features, and so
is a sparse mean: a round then works on the features whose scores say that they may matter, as in `working_set`.

A mean with a ridge alone is zero nowhere, but at its minimum it is a combination of the rows of X, ``w_0 = Q beta`` with
orthonormal columns Q that span them (the representer theorem; Kimeldorf and Wahba 1971). As ``||Q beta|| = ||beta||``,
the round has instead of p entries of the mean those of beta, no more than there are observations, on the columns ``X Q``.
In these, which are orthogonal to each other, coordinate descent is at its best.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from bayesmtfs.convex.columns import DenseColumns, SparseColumns, by_columns
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.quadratic_models import ColumnModel, GramModel, MeanPenalty
from bayesmtfs.convex.shared_mean import FINAL_SHARE, INNER_SHARE, MeanMove, MeanRounds, MeanState, SharedMean
from bayesmtfs.convex.working_set import FIRST_ROWS, GROWTH, PROMISING
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray, IntArray

HELD = 1e100  # weight or threshold of what stays at zero
MANY_COLUMNS = 4  # features per observation, from which few columns at a time are the faster way
MOST_OBSERVATIONS = 1200  # of which there are square matrices
MOST_DENSE = 300  # sparse columns that are written out, with a Gram matrix for every task
RANK = 1e-13  # of the largest eigenvalue of X X', below which there is nothing but rounding


def serves(problem: Problem) -> bool:
    """Whether a problem has so many more features than observations, and rows of single features."""
    data = problem.data
    wide = data.n_features >= MANY_COLUMNS * data.n_observations and data.n_observations <= MOST_OBSERVATIONS
    single = data.groups is None and data.present is None and problem.ridge == 0.0
    return wide and single and problem.penalty.has_row_steps


class RowSpace(NamedTuple):
    """Orthonormal columns ``Q = X' U`` that span the rows of a design X (n, p), and what X makes of them."""

    X: Any  # (n, p) array or CSR
    U: FloatArray  # (n, r)
    scores: FloatArray  # (n, r) X Q, less the centre
    centre: FloatArray  # (r,) mean of X Q where there is a constant, which takes it up, else zeros

    @classmethod
    def of(cls, data: TaskData, centred: bool) -> Self:
        """Find it from the eigenvectors of X X'."""
        X = data.design
        products = X @ X.T
        values, vectors = np.linalg.eigh(products.toarray() if sp.issparse(products) else np.asarray(products))
        kept = values > RANK * max(values[-1], 0.0)
        sizes = np.sqrt(values[kept])
        scores = vectors[:, kept] * sizes
        centre = scores.mean(axis=0) if centred else np.zeros(len(sizes))
        return cls(X, vectors[:, kept] / sizes, scores - centre, centre)

    def to_features(self, beta: FloatArray) -> FloatArray:
        """(p,) ``Q beta``."""
        return np.asarray(self.X.T @ (self.U @ beta))

    def coordinates(self, mean: FloatArray) -> FloatArray:
        """(r,) beta of a mean (p,) in the space."""
        return np.asarray((self.X @ mean) @ self.U)


class RoundColumns(NamedTuple):
    """What a round works on: features that may matter, columns of the row space, and the constant, if there is one.

    The constant comes last: each of its steps makes the sum of the slopes 0, as the bounds of the model want it.
    """

    chosen: IntArray  # (k,) numbers of the features
    columns: Any  # `Columns`
    rows: PenaltyRows
    mean_penalty: MeanPenalty
    n_extra: int  # columns of the row space


class WideMeanRounds(MeanRounds):
    """Proximal Newton steps on few columns, where a matrix of all of them would be mostly zeros."""

    def __init__(self, problem: Problem, state: MeanState, start: SharedMean | None) -> None:
        super().__init__(problem, state, start)
        self.n_features = problem.data.n_features
        self.design = state.shared("design", lambda: by_columns(state.data))
        self.space: RowSpace | None = None
        if not self.mean_penalty.threshold.any():
            self.space = state.shared("space", lambda: RowSpace.of(problem.data, problem.fit_intercept))

    def improve(self, wanted: float, max_iter: int) -> int:
        """Minimise the quadratic model over some columns and go as far towards its minimum as the objective falls."""
        work, lasting = self._columns_of(self._choose()), self.problem.family.quadratic
        sums = np.full(self.problem.data.n_tasks, np.inf)
        kind = ColumnModel if isinstance(work.columns, SparseColumns) else GramModel
        model = kind(work.columns, work.rows, self._curvature(), sums, 0.0, work.mean_penalty)
        V, mean = self._small_point(work)
        model.start(work.rows, V, self.slope, mean)
        final = FINAL_SHARE * wanted
        needed = max(final, INNER_SHARE * self.gap)
        model.minimise(needed, final if lasting else needed)
        self._search_line(self._move_of(work, model.coefficients - V, model.mean - mean))
        return 1

    def _choose(self) -> IntArray:
        """Features that are not zero, and those with the largest scores."""
        p, penalty = self.n_features, self.problem.penalty
        scores = self.row_norms[:p] / penalty.strength
        alive = np.any(self.V[:p] != 0.0, axis=1)
        if self.space is None:
            threshold, sums = self.mean_penalty.threshold[:p], np.abs(self.gradient[:p].sum(axis=1))
            scores = np.maximum(scores, np.divide(sums, threshold, out=np.zeros_like(sums), where=threshold > 0.0))
            alive |= self.a[:p] != 0.0
        scores[alive] = np.inf
        chosen = np.flatnonzero(scores > min(PROMISING, PROMISING * float(scores.max(initial=0.0))))
        size = max(FIRST_ROWS, GROWTH * int(alive.sum()))
        if len(chosen) > size:
            chosen = np.sort(chosen[np.argpartition(-scores[chosen], size - 1)[:size]])
        return chosen

    def _columns_of(self, chosen: IntArray) -> RoundColumns:
        data, penalty, k = self.original.data, self.problem.penalty, len(chosen)
        numbers = np.append(chosen, np.arange(self.n_features, len(self.a)))
        columns, r = self.design.take(numbers), 0
        if isinstance(columns, SparseColumns) and (self.space is not None or len(numbers) <= MOST_DENSE):
            columns = columns.as_dense()
        if self.space is not None:
            scores = self.space.scores
            each = scores[data.rows] if data.shared_design and data.n_tasks > 1 else scores
            r, A = scores.shape[1], columns.A
            columns = DenseColumns(np.ascontiguousarray(np.hstack([A[:, :k], each, A[:, k:]])), columns.offsets)
        weights = np.ones(len(numbers)) if penalty.weights is None else penalty.weights[numbers]
        sparsity = penalty.take(numbers).sparsities(len(numbers)) if penalty.entrywise else 0.0
        ridge, threshold = (np.insert(part[numbers], k, np.zeros(r)) for part in self.mean_penalty)
        if self.space is not None:
            threshold[:k], ridge[k : k + r] = HELD, self.mean_penalty.ridge[0]
        inside = np.insert(np.asarray(weights, dtype=np.float64), k, np.full(r, HELD))
        if penalty.entrywise:
            sparsity = np.insert(sparsity, k, np.zeros(r))
        rows = RowPenalty(penalty.strength, penalty.norm_q, sparsity, inside)
        n_rows = len(inside)
        return RoundColumns(
            chosen,
            columns,
            PenaltyRows(np.arange(n_rows), np.arange(n_rows + 1), rows),
            MeanPenalty(ridge, threshold),
            r,
        )

    def _small_point(self, work: RoundColumns) -> tuple[FloatArray, FloatArray]:
        """Deviations and mean in the terms of a round."""
        p, k = self.n_features, len(work.chosen)
        V = np.vstack([self.V[work.chosen], np.zeros((work.n_extra, self.V.shape[1])), self.V[p:]])
        if self.space is None:
            return V, np.append(self.a[work.chosen], self.a[p:])
        beta = self.space.coordinates(self.a[:p])
        return V, np.concatenate([np.zeros(k), beta, self.a[p:] + self.space.centre @ beta])

    def _move_of(self, work: RoundColumns, V: FloatArray, mean: FloatArray) -> MeanMove:
        """Move in the terms of the problem."""
        p, k, r = self.n_features, len(work.chosen), work.n_extra
        eta = work.columns.linear_predictor(V + mean[:, np.newaxis])
        whole_V, whole_mean = np.zeros_like(self.V), np.zeros_like(self.a)
        whole_V[work.chosen], whole_mean[work.chosen] = V[:k], mean[:k]
        whole_V[p:], whole_mean[p:] = V[k + r :], mean[k + r :]
        if self.space is not None:
            beta = mean[k : k + r]
            whole_mean[:p] += self.space.to_features(beta)
            whole_mean[p:] -= self.space.centre @ beta
        penalty = self._penalty(self.V + whole_V, self.a + whole_mean)
        return MeanMove(whole_V, whole_mean, eta, float(np.sum(self.slope * eta)) + penalty - self.penalty)
