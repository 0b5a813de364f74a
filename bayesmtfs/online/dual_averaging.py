"""Regularised dual averaging for multi-task feature selection: weights that follow from averaged gradients.

After t rounds the weights minimise (Yang, King and Lyu 2010, eq. 8, with h(W) = 1/2 ||W||^2)

    <G_t, W> + Omega(W) + gamma / (2 sqrt(t)) ||W||^2,      G_t = average gradient of the rounds so far,

so that ``W = -(sqrt(t) / gamma) prox(G_t)``, row by row: the soft threshold (9), the scaling (10), both one after the
other (11, 12), or for another norm the proximal step of the batch solvers. Only the gradient sums are kept. A weight is
computed when a row of data asks for it, so that an update costs at most O(m) per non-zero of the row, whatever p is,
and a feature that never occurred takes no memory. A bound on the norm of every row tells most features that the penalty
keeps at zero without a look at their m sums.

What differs from the paper:

- **Missing tasks.** Each task has its own clock t_k: ``G_k = S_k / t_k``, U = prox of the rows of G, and
  ``w_jk = -(sqrt(t_k) / gamma) U_jk``. With equal clocks this is the paper's step. With unequal ones the rows that are
  zero are still those of the stated penalty, while within a row tasks with more rounds shrink a little less.
- **Step size.** Under a smooth loss of curvature c the method diverges while ``gamma sqrt(t) < |x|^2 c / 2``.
  Without a gamma it is ``blocks c / 2`` times the running mean of |x|^2 of the task, where the blocks that move together
  are the weights, the intercept (whose own gamma is ``blocks c / 2``) and, once more for each, the shared mean. For the
  hinge c is 1, for the absolute loss one over the mean of |y - mean(y)|, which gives gamma the right unit.
- **Intercepts** are not penalised and are learned from the best constant so far, instead of from 0.
- **Shared mean.** The mean of all tasks needs no sums of its own: its gradient is the sum of the tasks' gradients,
  ``w_0 = -(sum_k a_k G_k) / (m + mean_strength a)`` with the steps ``a_k = sqrt(t_k) / gamma`` and their mean a.
- ``loss_scale="sum"``: G_k is multiplied by the number n_k of distinct rows seen, the step divided by it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bayesmtfs.data.inputs import Design
from bayesmtfs.online.dual_averaging_batches import Observations, Schedule, SparseRows
from bayesmtfs.online.dual_averaging_kernels import (
    CLOCK,
    ENTRIES,
    GENERAL,
    INTERCEPT_TOTAL,
    LANE,
    LOSSES,
    N_POOLED,
    N_QUANTITIES,
    POOLED_WEIGHT,
    PROGRESSIVE_LOSS,
    ROWS,
    SIZE,
    Rules,
    SlotArray,
    Sums,
    fill_intercepts,
    fill_weights,
    mean_scales,
)
from bayesmtfs.online.dual_averaging_rounds import learn_dense, learn_sparse, predict_dense, predict_sparse
from bayesmtfs.online.dual_averaging_single import (
    DIVERGED_AT,
    UNREADABLE,
    flat_state,
    learn_dense_row,
    learn_sparse_row,
    pool_with_rules,
)
from bayesmtfs.online.dual_averaging_sparse import claim_slots, find_slots
from bayesmtfs.types import FloatArray, IntArray, LossScale

ROWS_AT_ONCE = 4096  # of a dense design in a prediction
FEWEST_ROWS = 64  # of the sums of a sparse stream, before they double

DIVERGED = (
    "the weights have diverged in round {round}: gamma is too small for these features; pass a larger gamma (about the "
    "largest |x|^2 of a row is safe), gamma='auto', or scale the features"
)


@dataclass(frozen=True, eq=False)
class Settings:
    """Loss, penalty and step size of a learner.

    Attributes
    ----------
    loss : "squared", "absolute", "logistic" or "hinge"
    strength : penalty strength
    norm_q : norm within a row, in [1, inf]
    task_sparsity : r of eq. (6), one number or one per feature; needs ``norm_q=2``
    gamma : weight of the quadratic term; None takes it from the data
    loss_scale : "mean" or "sum"
    fit_intercept, shared_mean, average : as in the estimators
    mean_strength : ridge on the shared mean; None takes a hundredth of the mean squared column norm
    groups : (p,) features with the same number enter or leave together
    """

    loss: str = "squared"
    strength: float = 0.0
    norm_q: float = 2.0
    task_sparsity: float | FloatArray = 0.0
    gamma: float | None = None
    loss_scale: LossScale = "mean"
    fit_intercept: bool = True
    shared_mean: bool = False
    mean_strength: float | None = None
    average: bool = False
    groups: IntArray | None = None

    def rules(self) -> Rules:
        """Return the same for compiled code."""
        kind = ENTRIES if self.norm_q == 1.0 else ROWS if self.norm_q == 2.0 else GENERAL
        return Rules(
            loss=LOSSES.index(self.loss),
            kind=kind,
            norm_q=float(self.norm_q),
            strength=float(self.strength),
            gamma=float(self.gamma or 0.0),
            caution=0.5 * (1 + self.fit_intercept) * (1 + self.shared_mean),
            mean_strength=-1.0 if self.mean_strength is None else float(self.mean_strength),
            fit_intercept=bool(self.fit_intercept),
            shared_mean=bool(self.shared_mean),
            average=bool(self.average),
            summed=self.loss_scale == "sum",
        )


class Coefficients(NamedTuple):
    """Weights of all tasks at one time."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)


class DualAveraging:
    """Gradient sums of m tasks, and the weights that follow from them.

    Parameters
    ----------
    settings : loss, penalty and step size
    n_features : number of features p

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.online.dual_averaging_batches import observations
    >>> learner = DualAveraging(Settings(strength=0.5, gamma=2.0, fit_intercept=False), n_features=2)
    >>> learner.add_tasks(2)
    >>> X, task = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])
    >>> learner.learn(X, observations(X, np.array([3.0, 4.0]), task), Schedule(np.array([0, 1]), np.array([0, 2])))
    >>> learner.coefficients().W  # the gradient (-3, -4) has the norm 5: 1/2 (1 - 0.5 / 5) of it
    array([[1.35, 1.8 ],
           [0.  , 0.  ]])
    """

    def __init__(self, settings: Settings, n_features: int) -> None:
        self.settings = settings
        self.rules = settings.rules()
        self.n_features = n_features
        self.n_tasks = 0
        self.n_rounds = 0
        self.n_used = 0
        groups = _group_arrays(settings.groups)
        sparsity = np.atleast_1d(np.asarray(settings.task_sparsity, dtype=np.float64))
        self.state = Sums(
            slots=np.full(n_features, -1, dtype=np.int32),
            sums=np.zeros((0, 0)),
            totals=np.zeros((0, 0)),
            bounds=np.zeros(0),
            table=np.zeros((N_QUANTITIES, 0)),
            pool=pool_with_rules(self.rules, sparsity),
            sparsity=sparsity,
            group_of=groups[0],
            group_starts=groups[1],
            members=groups[2],
        )
        self._coefficients: Coefficients | None = None
        self._flat: Any = flat_state(self.rules, self.state)

    # ------------------------------------------------------------------ room

    def add_tasks(self, n_new: int, sizes: FloatArray | None = None) -> None:
        """Make room for further tasks, after those there are.

        Parameters
        ----------
        n_new : how many
        sizes : (m,) total weight of the distinct rows of all tasks, where it is known beforehand
        """
        self.n_tasks += n_new
        columns = self.state.table.shape[1]
        if self.n_tasks > columns:
            wanted = self.n_tasks if columns == 0 else max(self.n_tasks, 2 * columns)
            self._resize(self.state.sums.shape[0], _whole_lanes(wanted))
        if sizes is not None:
            self.state.table[SIZE, : self.n_tasks] = sizes
        self._coefficients = None

    def _resize(self, n_rows: int, n_columns: int) -> None:
        old = self.state
        kept = n_rows if self.settings.average else 0
        self.state = old._replace(
            sums=_enlarged(old.sums, n_rows, n_columns),
            totals=_enlarged(old.totals, kept, n_columns if kept else 0),
            bounds=np.append(old.bounds, np.zeros(n_rows - old.bounds.size)),
            table=_enlarged(old.table, N_QUANTITIES, n_columns),
        )
        self._flat = flat_state(self.rules, self.state)

    def _meet(self, indices: NDArray[np.int32]) -> SlotArray:
        """Give the features of a batch their rows of the sums; the row of every entry."""
        slots = self.state.slots
        used, found = claim_slots(slots, indices, self.n_used)
        self._make_room(used)
        self.n_used = used
        return found

    def _make_room(self, used: int) -> None:
        """Have rows of the sums for so many features."""
        if used > self.state.sums.shape[0]:
            most = self.n_features
            n_rows = used if used == most else min(max(2 * used, FEWEST_ROWS), most)
            self._resize(n_rows, self.state.table.shape[1])

    # ------------------------------------------------------------------ learning

    def learn(self, X: Design, seen: Observations, rounds: Schedule, growing: bool = True) -> None:
        """Learn a batch, round by round.

        Parameters
        ----------
        X : (n, p) float64 array in C order, or CSR matrix
        seen : its observations
        rounds : which of them make up which round
        growing : whether the rows are new ones, for ``loss_scale="sum"``
        """
        self._coefficients = None
        if sp.issparse(X):
            rows = SparseRows(X.data, X.indices, X.indptr, self._meet(X.indices))
            done = learn_sparse(rows, seen, rounds, self.rules, self.state, self.n_tasks, growing)
        else:
            if self.n_used < X.shape[1]:
                self._meet(np.arange(X.shape[1], dtype=np.int32))
            self.state.bounds[:] = np.inf
            done = learn_dense(X, seen, rounds, self.rules, self.state, self.n_tasks, growing)
        self.n_rounds += done
        if done < rounds.starts.size - 1:
            raise ValueError(DIVERGED.format(round=self.n_rounds + 1))

    @property
    def takes_single_rows(self) -> bool:
        """Whether `learn_dense_row` and `learn_sparse_row` know its penalty."""
        return self._flat is not None

    def learn_dense_row(self, X: FloatArray, y: float, task: int) -> bool:
        """Learn one row, a round of its own; False, with nothing changed, where a number is not finite.

        Parameters
        ----------
        X : (1, p) writeable float64 array in C order
        y : its target
        task : column of its task
        """
        if self.n_used < self.n_features:
            self._meet(np.arange(self.n_features, dtype=np.int32))
        return self._end_row(learn_dense_row(X, y, task, self.n_tasks, *self._flat))

    def learn_sparse_row(
        self, data: FloatArray, indices: NDArray[np.int32], indptr: NDArray[np.int32], y: float, task: int
    ) -> bool:
        """Learn one row given as the arrays of a CSR matrix; False also where these do not fit together."""
        self._make_room(min(self.n_used + indices.size, self.n_features))
        return self._end_row(learn_sparse_row(data, indices, indptr, y, task, self.n_tasks, self.n_used, *self._flat))

    def _end_row(self, outcome: int) -> bool:
        if outcome == UNREADABLE:
            return False
        self._coefficients = None
        if outcome < 0:
            self.n_used = DIVERGED_AT - outcome
            raise ValueError(DIVERGED.format(round=self.n_rounds + 1))
        self.n_used = outcome
        self.n_rounds += 1
        return True

    @property
    def pooled(self) -> FloatArray:
        """(N_POOLED,) Numbers over all tasks, such as the losses so far."""
        return self.state.pool[:N_POOLED].copy()

    @property
    def progressive_loss(self) -> float:
        """Mean loss of the predictions, each made before its row was learned."""
        pool = self.state.pool
        return float(pool[PROGRESSIVE_LOSS] / pool[POOLED_WEIGHT]) if pool[POOLED_WEIGHT] > 0 else 0.0

    # ------------------------------------------------------------------ weights

    def coefficients(self) -> Coefficients:
        """Weights of all features and tasks: the last iterate, or the average over each task's rounds."""
        if self._coefficients is None:
            W = np.zeros((self.n_features, self.n_tasks))
            features = np.flatnonzero(self.state.slots >= 0)
            W[features] = self._met_weights(features)
            self._coefficients = Coefficients(W, self.intercepts())
        return self._coefficients

    def _met_weights(self, features: IntArray) -> FloatArray:
        if self.settings.average:
            rounds = np.maximum(self.state.table[CLOCK, : self.n_tasks], 1.0)
            return self.state.totals[self.state.slots[features], : self.n_tasks] / rounds
        W = np.empty((features.size, self.n_tasks))
        fill_weights(self.rules, self.state, features, self.n_tasks, W)
        return W

    def intercepts(self) -> FloatArray:
        """(m,) Intercepts, zeros where there are none."""
        table = self.state.table
        if self.settings.average:
            return table[INTERCEPT_TOTAL, : self.n_tasks] / np.maximum(table[CLOCK, : self.n_tasks], 1.0)
        found = np.empty(self.n_tasks)
        _, scale = mean_scales(self.rules, table, self.n_tasks, self.n_features)
        fill_intercepts(self.rules, self.state, self.n_tasks, scale, found)
        return found

    def predict(self, X: Design, task: IntArray) -> FloatArray:
        """(n,) Linear predictors of rows of these tasks, computed from the sums of their own features only."""
        eta = np.empty(X.shape[0])
        if sp.issparse(X):
            rows = np.arange(X.shape[0])
            entries = SparseRows(X.data, X.indices, X.indptr, find_slots(self.state.slots, X.indices))
            predict_sparse(entries, rows, task, self.rules, self.state, self.n_tasks, False, eta)
        else:
            for start in range(0, X.shape[0], ROWS_AT_ONCE):
                part = slice(start, start + ROWS_AT_ONCE)
                columns = np.ascontiguousarray(X[part].T)
                predict_dense(columns, task[part], self.rules, self.state, self.n_tasks, eta[part])
        return eta

    # ------------------------------------------------------------------ files

    def to_stored(self) -> dict[str, Any]:
        """Numbers from which `restore` continues bit for bit."""
        m, used = self.n_tasks, self.n_used
        return {
            "n_rounds": self.n_rounds,
            "slots": self.state.slots,
            "sums": self.state.sums[:used, :m].copy(),
            "totals": self.state.totals[:used, :m].copy(),
            "bounds": self.state.bounds[:used].copy(),
            "table": self.state.table[:, :m].copy(),
            "pool": self.pooled,
        }

    def restore(self, stored: dict[str, Any]) -> Self:
        """Take over the numbers of a stored learner with the same settings."""
        self.n_rounds = stored["n_rounds"]
        self.n_tasks = stored["table"].shape[1]
        self.n_used = stored["sums"].shape[0]
        names = ("slots", "sums", "totals", "bounds", "table")
        self.state.pool[:N_POOLED] = stored["pool"]
        self.state = self.state._replace(**{name: np.array(stored[name]) for name in names})
        self._resize(self.n_used, _whole_lanes(self.n_tasks))
        self._coefficients = None
        return self


def _whole_lanes(n: int) -> int:
    return -(-n // LANE) * LANE


def _enlarged(array: FloatArray, n_rows: int, n_columns: int) -> FloatArray:
    larger = np.zeros((n_rows, n_columns))
    larger[: array.shape[0], : array.shape[1]] = array
    return larger


def _group_arrays(groups: IntArray | None) -> tuple[IntArray, IntArray, IntArray]:
    """Group of each feature, where each group begins among the members, and the members."""
    if groups is None:
        return np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64)
    _, group_of, counts = np.unique(groups, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return group_of.astype(np.int64), starts, np.argsort(group_of, kind="stable")
