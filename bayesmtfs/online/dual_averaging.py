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
  are the weights, the intercept (whose own gamma is ``blocks c / 2``) and, once more for each, the shared mean. c is
  the bound that the family states. A family with kinks has none: c is 1 for labels, else one over the mean of
  |y - centre|, which gives gamma the right unit. A smooth family may have none either (Poisson): c is then the curvature
  at the task's best constant so far, for its mean target. A prediction at which the curvature is above ``sqrt(t) c``,
  where the step would not be stable, is drawn towards that constant until it is not, by a factor f, and from then on
  ``sqrt(t) c`` stays at least at the ``sqrt(t) c / f`` of that round.
- **Intercepts** are not penalised and are learned from the best constant so far, instead of from 0.
- **Shared mean.** The mean of all tasks needs no sums of its own: its gradient is the sum of the tasks' gradients,
  ``w_0 = -(sum_k a_k G_k) / (m + mean_strength a)`` with the steps ``a_k = sqrt(t_k) / gamma`` and their mean a.
- **Several passes** over the same rows, with ``average`` and no gamma, under a loss of bounded curvature: steps do not
  shrink, ``w = -(t / gamma) U`` with a gamma that is ``slowness`` times as large. The iterates then keep moving about the
  minimum and their average goes there, at the rate 1/t instead of 1/sqrt(t) under the squared loss (Flammarion and Bach
  2017). It is taken over the second half of the passes and has the zeros of the last iterate, whose average gradient
  tells them. Slowness and penalty are chosen by a fifth of the rows that is predicted before it is learned.
- ``loss_scale="sum"``: G_k is multiplied by the number n_k of distinct rows seen, the step divided by it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bayesmtfs.data.inputs import Design
from bayesmtfs.families import Family, Gaussian
from bayesmtfs.families.family import CENTRE, SLOPE, address
from bayesmtfs.online import dual_averaging_general as general
from bayesmtfs.online import dual_averaging_kernels as kernels
from bayesmtfs.online.dual_averaging_kernels import (
    GradientSums,
    Observations,
    PlaceArray,
    Rules,
    Schedule,
    SlotArray,
    SparseRows,
    round_schedule,
)
from bayesmtfs.online.learner import Coefficients, StreamBatch, StreamLearner
from bayesmtfs.online.repeated_rows import RepeatedRows
from bayesmtfs.progress import Progress
from bayesmtfs.types import ConvergenceWarning, FloatArray, IntArray, LossScale, warn

ROWS_AT_ONCE = 4096  # of a dense design in a prediction
FEWEST_ROWS = 64  # of the sums of a sparse stream, before they double
MANY_ROWS = 0.25  # share of the features met from which there is room for all: what was never written takes no memory
SLOWNESS = (1.0, 4.0, 16.0)  # of steps that do not shrink: what passes over the same rows choose from
SLOWER = 4.0  # factor of the next, where the one that was chosen diverges
FAR_WORSE = 100.0  # times the loss of constants, above it: what the predictions of a fit that has diverged reach
# One memory layout for all arrays, since each is compiled anew
STORED = ("slots", "sums", "totals", "bounds", "table")
WRITEABLE: tuple[Literal["C"], Literal["A"], Literal["W"]] = ("C", "A", "W")

DIVERGED = (
    "the weights have diverged in round {round}: gamma is too small for these features; pass a larger gamma (about the "
    "largest |x|^2 of a row is safe), gamma='auto', or scale the features"
)
FAR_OFF = (
    "the predictions of the last epoch were far worse than constants (mean loss {found:.3g} against {constant:.3g}): gamma "
    "is too small for these features; pass a larger gamma, gamma='auto', more epochs, or scale the features"
)


@dataclass(frozen=True, eq=False)
class DualAveragingSettings:
    """Loss, penalty and step size of a learner, as in the estimators."""

    family: Family = Gaussian()
    strength: float = 0.0
    norm_q: float = 2.0
    task_sparsity: float | FloatArray = 0.0  # r of eq. (6), one number or one per feature; needs norm_q=2
    gamma: float | None = None  # None: from the data
    loss_scale: LossScale = "mean"
    fit_intercept: bool = True
    shared_mean: bool = False
    mean_strength: float | None = None  # None: a hundredth of the mean squared column norm
    average: bool = False
    groups: IntArray | None = None  # (p,)
    slowness: float = 0.0  # of steps that do not shrink: times the gamma that is safe for a single row; 0: they shrink

    def rules(self) -> Rules:
        """Return the same for compiled code."""
        family = self.family
        return Rules(
            slope=address(family.slope, SLOPE),
            centre=address(family.centre, CENTRE),
            curvature=self._curvature(),
            labels=family.targets == "labels",
            counts=family.targets == "counts",
            quadratic=family.quadratic,
            kind={1.0: kernels.ENTRIES, 2.0: kernels.ROWS}.get(self.norm_q, kernels.GENERAL),
            norm_q=float(self.norm_q),
            strength=float(self.strength),
            gamma=float(self.gamma or 0.0),
            caution=0.5 * (1 + self.fit_intercept) * (1 + self.shared_mean) * (self.slowness or 1.0),
            mean_strength=-1.0 if self.mean_strength is None else float(self.mean_strength),
            fit_intercept=bool(self.fit_intercept),
            shared_mean=bool(self.shared_mean),
            average=bool(self.average),
            summed=self.loss_scale == "sum",
            steady=self.slowness > 0.0,
        )

    def _curvature(self) -> float:
        """Bound of the second derivative, or where the kernels find what plays its part."""
        if self.family.curvature_bound is not None:
            return float(self.family.curvature_bound)
        if self.family.smooth:
            return kernels.FROM_PREDICTIONS
        return 1.0 if self.family.targets == "labels" else kernels.FROM_TARGETS


class DualAveraging:
    """Gradient sums of m tasks, and the weights that follow from them.

    Examples
    --------
    >>> import numpy as np
    >>> learner = DualAveraging(DualAveragingSettings(strength=0.5, gamma=2.0, fit_intercept=False), n_features=2)
    >>> learner.add_tasks(2)
    >>> X, task = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])
    >>> learner.learn(X, observations(X, np.array([3.0, 4.0]), task), Schedule(np.array([0, 1]), np.array([0, 2])))
    >>> learner.coefficients().W  # the gradient (-3, -4) has the norm 5: 1/2 (1 - 0.5 / 5) of it
    array([[1.35, 1.8 ],
           [0.  , 0.  ]])
    """

    def __init__(self, settings: DualAveragingSettings, n_features: int) -> None:
        self.settings = settings
        self.n_features = n_features
        self.n_rounds = 0
        self.n_used = 0
        self.repeated = np.zeros(3)  # part of the losses that does not count as progressive
        groups = _group_arrays(settings.groups)
        rules, sparsity = settings.rules(), np.atleast_1d(np.asarray(settings.task_sparsity, dtype=np.float64))
        self.state = GradientSums(
            slope=rules.slope,
            centre=rules.centre,
            n_tasks=0,
            slots=np.full(n_features, -1, dtype=np.int32),
            sums=np.zeros((0, 0)),
            totals=np.zeros((0, 0)),
            bounds=np.zeros(0),
            table=np.zeros((kernels.N_QUANTITIES, 0)),
            pool=kernels.pool_with_rules(rules, sparsity),
            sparsity=sparsity,
            group_of=groups[0],
            group_starts=groups[1],
            members=groups[2],
        )
        self._coefficients: Coefficients | None = None
        self._flat = kernels.flat_state(self.state)
        self._simple = kernels.is_simple(self.state)
        self._in_order = False  # whether the row of each feature is that of its number
        self._work: PlaceArray = np.empty((3, 0), dtype=np.uint32)  # room for single rows

    # ------------------------------------------------------------------ room

    @property
    def n_tasks(self) -> int:
        """Tasks so far."""
        return self.state.n_tasks

    def add_tasks(self, n_new: int, sizes: FloatArray | None = None) -> None:
        """Make room for further tasks, after those there are.

        ``sizes`` (m,) is the total weight of the distinct rows of all tasks, where it is known beforehand.
        """
        self.state = self.state._replace(n_tasks=self.n_tasks + n_new)
        columns = self.state.table.shape[1]
        if self.n_tasks > columns:
            self._resize(self.state.sums.shape[0], _whole_lanes(max(self.n_tasks, 2 * columns)))
        self._flat = kernels.flat_state(self.state)
        if sizes is not None:
            self.state.table[kernels.SIZE, : self.n_tasks] = sizes
        self._coefficients = None

    def _resize(self, n_rows: int, n_columns: int, places: IntArray | None = None) -> None:
        """Have so many rows and columns of the sums; ``places`` says where the rows in use go, if not where they are."""
        old, used = self.state, min(self.n_used, self.state.sums.shape[0])  # some may be met, but have none yet
        kept = n_rows if self.settings.average else 0
        places = np.arange(used) if places is None else places[:used]
        bounds = np.zeros(n_rows)
        bounds[places] = old.bounds[:used]
        self.state = old._replace(
            sums=_enlarged(old.sums[:used], n_rows, n_columns, places),
            totals=_enlarged(old.totals[:used], kept, n_columns if kept else 0, places),
            bounds=bounds,
            table=_enlarged(old.table, kernels.N_QUANTITIES, n_columns, np.arange(kernels.N_QUANTITIES)),
        )
        self._flat = kernels.flat_state(self.state)

    def _meet(self, indices: NDArray[np.int32]) -> PlaceArray:
        """Give the features of a batch their rows of the sums; the row of every entry."""
        if not self._in_order:
            places = np.empty(indices.size, dtype=np.uint32)
            self.n_used = int(kernels.claim_slots(self.state.slots, indices, self.n_used, places))
            if not self._is_put_in_order():
                self._make_room(self.n_used)
                return places
        places = indices.view(np.uint32)
        if places.max(initial=0) >= self.n_features:
            raise ValueError(f"X has indices outside of its {self.n_features} columns; build it anew from its entries")
        return places

    def _make_room(self, used: int) -> None:
        """Have rows of the sums for so many features."""
        if used > self.state.sums.shape[0]:
            most = self.n_features
            n_rows = most if used >= MANY_ROWS * most else min(max(2 * used, FEWEST_ROWS), most)
            self._resize(n_rows, self.state.table.shape[1])

    def _is_put_in_order(self) -> bool:
        """Once many features were met, give each the row of its own number, so that no batch has to look them up."""
        slots, used = self.state.slots, self.n_used
        if used < MANY_ROWS * self.n_features:
            return False
        met, features = np.flatnonzero(slots >= 0), np.empty(used, dtype=np.int64)
        features[slots[met]] = met
        self._resize(self.n_features, self.state.table.shape[1], features)
        slots[:] = np.arange(self.n_features)
        self.n_used, self._in_order = self.n_features, True
        return True

    # ------------------------------------------------------------------ learning

    def learn(self, X: Design, seen: Observations, rounds: Schedule, growing: bool = True) -> None:
        """Learn a batch that is `learnable`, round by round; its rows are new ones where it is ``growing``."""
        self._coefficients = None
        done = (self._learn_sparse if sp.issparse(X) else self._learn_dense)(X, seen, rounds, growing)
        self.n_rounds += done
        if done < rounds.starts.size - 1:
            raise ValueError(DIVERGED.format(round=self.n_rounds + 1))

    def _learn_sparse(self, X: Any, seen: Observations, rounds: Schedule, growing: bool) -> int:
        """Rounds of CSR rows that went well."""
        rows = SparseRows(X.data, X.indices, X.indptr, self._meet(X.indices))
        if self._simple and not self.settings.average:
            learn: Any = kernels.learn_sparse
            eta, work = np.empty(self.n_tasks), np.empty((2, self.n_features), dtype=np.uint32)
            return int(learn(rows, seen, rounds, growing, eta, work, *self._flat, self.state.sparsity))
        return int(general.learn_sparse(rows, seen, rounds, growing, self.state))

    def _learn_dense(self, X: FloatArray, seen: Observations, rounds: Schedule, growing: bool) -> int:
        """Rounds of dense rows that went well."""
        if self.n_used < X.shape[1]:
            self._meet(np.arange(X.shape[1], dtype=np.int32))
        self.state.bounds[:] = np.inf
        if self._simple and not self.settings.average:
            learn: Any = kernels.learn_dense
            return int(learn(X, seen, rounds, growing, *self._flat, self.state.sparsity))
        return int(general.learn_dense(X, seen, rounds, growing, self.state))

    @property
    def takes_single_rows(self) -> bool:
        """Whether `learn_dense_row` and `learn_sparse_row` know its penalty."""
        only = not (self.settings.average or self.settings.slowness)
        return self._simple and only and self.state.sparsity.size == 1

    def learn_dense_row(self, X: FloatArray, y: float, task: int) -> bool:
        """Learn one row (1, p), a round of its own; False, with nothing changed, where a number is not finite."""
        if self.n_used < self.n_features:
            self._meet(np.arange(self.n_features, dtype=np.int32))
        return self._end_row(kernels.learn_dense_row(X, y, task, *self._flat))

    def learn_sparse_row(
        self, data: FloatArray, indices: NDArray[np.int32], indptr: NDArray[np.int32], y: float, task: int
    ) -> bool:
        """Learn one row given as the arrays of a CSR matrix; False also where these do not fit together."""
        self._make_room(min(self.n_used + indices.size, self.n_features))
        if indices.size > self._work.shape[1]:
            self._work = np.empty((3, 2 * indices.size), dtype=np.uint32)
        learn: Any = kernels.learn_sparse_row
        return self._end_row(learn(data, indices, indptr, y, task, self.n_used, self._work, *self._flat))

    def _end_row(self, outcome: int) -> bool:
        if outcome == kernels.UNREADABLE:
            return False
        self._coefficients = None
        if outcome < 0:
            self.n_used = kernels.DIVERGED_AT - outcome
            raise ValueError(DIVERGED.format(round=self.n_rounds + 1))
        self.n_used = outcome
        self._in_order = self._in_order or self._is_put_in_order()
        self.n_rounds += 1
        return True

    @property
    def losses(self) -> FloatArray:
        """(3,) Sums so far: loss of the predictions, loss of each task's best constant, weight."""
        return self.state.pool[[kernels.PROGRESSIVE_LOSS, kernels.CONSTANT_LOSS, kernels.POOLED_WEIGHT]]

    @property
    def n_rows(self) -> int:
        """Rows so far, in every pass."""
        return int(self.state.table[kernels.CLOCK, : self.n_tasks].sum())

    @property
    def progressive_losses(self) -> FloatArray:
        """(3,) The same sums, over predictions of rows that were not learned yet."""
        return self.losses - self.repeated

    @property
    def progressive_loss(self) -> float:
        """Mean loss of the predictions, each made before its row was learned."""
        found, _, weight = self.progressive_losses.tolist()
        return found / weight if weight > 0 else 0.0

    # ------------------------------------------------------------------ weights

    def coefficients(self) -> Coefficients:
        """Weights of all features and tasks: the last iterate, or the average over each task's rounds."""
        if self._coefficients is None:
            W = np.zeros((self.n_features, self.n_tasks))
            features = np.flatnonzero(self.state.slots >= 0)
            W[features], intercept = (self._average if self.settings.average else self._last)(features)
            self._coefficients = Coefficients(W, intercept)
        return self._coefficients

    def restart_average(self) -> None:
        """Take the average over what comes from now on."""
        self.state.totals[:] = 0.0
        self.state.table[kernels.INTERCEPT_TOTAL] = 0.0
        self.state.table[kernels.SINCE] = self.state.table[kernels.CLOCK]

    def _average(self, features: IntArray) -> tuple[FloatArray, FloatArray]:
        state, m = self.state, self.n_tasks
        rounds = np.maximum(state.table[kernels.CLOCK, :m] - state.table[kernels.SINCE, :m], 1.0)
        W, intercept = state.totals[state.slots[features], :m], state.table[kernels.INTERCEPT_TOTAL, :m]
        if self.settings.slowness:
            W = np.where(self._last(features)[0] != 0.0, W, 0.0)
        return W / rounds, intercept / rounds

    def _last(self, features: IntArray) -> tuple[FloatArray, FloatArray]:
        state, m = self.state, self.n_tasks
        W, intercept = np.empty((features.size, m)), np.empty(m)
        if self._simple:
            kernels.fill_weights(features, W, state.slots, state.sums, state.table, state.pool, state.sparsity)
            kernels.start_predictions(np.arange(m), state.table, intercept)
            return W, intercept
        general.fill_weights(state, features, W)
        general.fill_intercepts(state, intercept)
        return W, intercept

    def predict(self, X: Design, task: IntArray) -> FloatArray:
        """(n,) Linear predictors of rows of these tasks, computed from the sums of their own features only."""
        eta = np.empty(X.shape[0])
        if sp.issparse(X):
            self._predict_sparse(X, task, eta)
        else:
            for start in range(0, X.shape[0], ROWS_AT_ONCE):
                part = slice(start, start + ROWS_AT_ONCE)
                self._predict_dense(np.ascontiguousarray(X[part].T), task[part], eta[part])
        return eta

    def _predict_sparse(self, X: Any, task: IntArray, eta: FloatArray) -> None:
        state = self.state
        if self._simple:
            numbers: tuple[Any, ...] = (
                self.n_tasks,
                state.slots,
                state.sums,
                state.bounds,
                state.table,
                state.pool,
                state.sparsity,
            )
            kernels.start_predictions(task, state.table, eta)
            kernels.add_sparse_products(X.data, X.indices, X.indptr, task, eta, *numbers)
        else:
            general.predict_sparse(X.data, X.indices, X.indptr, np.arange(X.shape[0]), task, state, eta)

    def _predict_dense(self, columns: FloatArray, task: IntArray, eta: FloatArray) -> None:
        state = self.state
        if self._simple:
            numbers: tuple[Any, ...] = (self.n_tasks, state.slots, state.sums, state.table, state.pool, state.sparsity)
            kernels.start_predictions(task, state.table, eta)
            kernels.add_dense_products(columns, task, eta, *numbers)
        else:
            general.predict_dense(columns, task, state, eta)

    # ------------------------------------------------------------------ files

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the addresses of compiled functions, which another process has elsewhere."""
        return {**vars(self), "state": self.state._replace(slope=None, centre=None), "_flat": ()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Find the functions again."""
        vars(self).update(state)
        rules = self.settings.rules()
        self.state = self.state._replace(slope=rules.slope, centre=rules.centre)
        self._flat = kernels.flat_state(self.state)

    def to_stored(self) -> dict[str, Any]:
        """Numbers from which `restore` continues bit for bit."""
        m, used = self.n_tasks, self.n_used
        return {
            "n_rounds": self.n_rounds,
            "repeated": self.repeated,
            "slots": self.state.slots,
            "sums": self.state.sums[:used, :m].copy(),
            "totals": self.state.totals[:used, :m].copy(),
            "bounds": self.state.bounds[:used].copy(),
            "table": self.state.table[:, :m].copy(),
            "pool": self.state.pool[: kernels.N_POOLED].copy(),
        }

    def restore(self, stored: dict[str, Any]) -> Self:
        """Take over the numbers of a stored learner with the same settings."""
        self.n_rounds, self.n_used = stored["n_rounds"], stored["sums"].shape[0]
        self.repeated = np.array(stored.get("repeated", self.repeated))  # older files have none
        arrays: dict[str, Any] = {name: np.array(stored[name]) for name in STORED}
        self.state.pool[: kernels.N_POOLED] = stored["pool"]
        self.state = self.state._replace(n_tasks=stored["table"].shape[1], **arrays)
        self._resize(self.n_used, _whole_lanes(self.n_tasks))
        self._in_order = self.n_used == self.n_features and np.array_equal(self.state.slots, np.arange(self.n_used))
        self._coefficients = None
        return self


class DualAveragingCandidates(StreamLearner):
    """Learners that read the same stream under different penalties; the one of the smallest progressive loss is used."""

    def __init__(self, settings: Sequence[DualAveragingSettings], n_features: int) -> None:
        self.candidates = [DualAveraging(one, n_features) for one in settings]
        self.n_features = n_features

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return self.candidates[0].n_rounds

    @property
    def n_tasks(self) -> int:
        """Tasks so far."""
        return self.candidates[0].n_tasks

    @property
    def best(self) -> DualAveraging:
        """The candidate with the smallest loss on rows that it had not seen yet."""
        return min(self.candidates, key=lambda candidate: candidate.progressive_losses[0])

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return self.best.n_rows

    @property
    def progressive_losses(self) -> FloatArray:
        """(3,) Sums over rows that were predicted before they were learned: loss, loss of constants, weight."""
        return self.best.progressive_losses

    @property
    def row_learner(self) -> DualAveraging | None:
        """The only candidate, where it takes single rows."""
        alone = len(self.candidates) == 1 and self.candidates[0].takes_single_rows
        return self.candidates[0] if alone else None

    def add_tasks(self, n_new: int) -> None:
        """Make room for further tasks."""
        for candidate in self.candidates:
            candidate.add_tasks(n_new)

    def learn(self, batch: StreamBatch) -> None:
        """Learn one more batch in the order given."""
        design = learnable(batch.X)
        seen = observations(design, batch.y, batch.column, batch.weight, batch.rows, batch.squares)
        rounds = round_schedule(seen.task, self.n_tasks)
        for candidate in self.candidates:
            candidate.learn(design, seen, rounds)

    def fit(self, batch: StreamBatch, epochs: int, shuffle: bool, random_state: Any, progress: bool | None) -> None:
        """Learn a batch, sorted by task, several times; warns of an interruption and of predictions that are far off."""
        design = learnable(batch.X)
        seen = observations(design, batch.y, batch.column, batch.weight, batch.rows, batch.squares)
        rows = RepeatedRows(design, seen, np.arange(seen.y.size), batch.offsets)
        seeds = check_random_state(random_state).randint(2**31 - 1, size=epochs).tolist()
        order = seeds if shuffle else [None] * epochs
        tuned = epochs > 1 and all(one.settings.average and one.settings.gamma is None for one in self.candidates)
        unseen, losses = None, list[FloatArray]()
        with Progress("dual averaging", progress) as work:
            if tuned:
                unseen = self._choose(*rows.split(seeds[0]), order, work)
            while not self._learned(rows, order, tuned, losses, work):
                unseen = None
        if work.interrupted:
            if len(losses) < 2:
                raise KeyboardInterrupt
            warn(
                f"interrupted after {len(losses) - 1} of {epochs} epochs; what was learned until then is kept",
                ConvergenceWarning,
            )
        for candidate, first in zip(self.candidates, losses[1], strict=True):
            candidate.repeated = candidate.losses - (first if unseen is None else unseen)
        found, constant, weight = (losses[-1] - losses[-2])[self.candidates.index(self.best)].tolist()
        far = found - constant > FAR_WORSE * abs(constant)  # a loss may be below 0
        if far:
            warn(FAR_OFF.format(found=found / weight, constant=constant / weight), ConvergenceWarning)
        self.sound = not (far or work.interrupted)

    def _choose(
        self, rows: RepeatedRows, apart: RepeatedRows, seeds: Sequence[int | None], work: Progress
    ) -> FloatArray | None:
        """Keep the step and penalty that predict rows best which are kept apart; their losses."""
        if apart.places.size == 0:
            return None
        judged: list[tuple[FloatArray, DualAveragingSettings]] = []

        def best_with(options: Iterable[DualAveragingSettings]) -> tuple[FloatArray, DualAveragingSettings]:
            for one in options:
                judged.append((self._tried(one, rows, apart, seeds), one))
                work.update(0.0, f"{len(judged)} candidates")
            return min(judged, key=lambda found: found[0][0])

        penalties = [candidate.settings for candidate in self.candidates]
        middle = penalties.pop(len(penalties) // 2)
        steps = SLOWNESS if middle.family.curvature_bound is not None else (0.0,)
        losses, best = best_with(replace(middle, slowness=step) for step in steps)
        if penalties:
            _, best = best_with(replace(one, slowness=best.slowness) for one in penalties)
            losses, best = best_with(replace(best, slowness=step) for step in steps if step != best.slowness)
        self._restart(best)
        return losses

    def _restart(self, settings: DualAveragingSettings) -> None:
        """Begin anew with one candidate."""
        n_tasks = self.n_tasks
        self.candidates = [DualAveraging(settings, self.n_features)]
        self.add_tasks(n_tasks)

    def _learned(
        self, rows: RepeatedRows, seeds: Sequence[int | None], tail: bool, losses: list[FloatArray], work: Progress
    ) -> bool:
        """Learn all passes and list the losses before each; False, ready for shorter steps, where those chosen diverge."""
        losses.clear()
        for candidate in self.candidates:
            candidate.add_tasks(0, rows.sizes)
        try:
            for done in learn_passes(self.candidates, rows, seeds, tail):
                losses.append(np.array([candidate.losses for candidate in self.candidates]))
                work.update(done / len(seeds))
        except ValueError:
            settings = self.candidates[0].settings
            if not 0.0 < settings.slowness <= SLOWNESS[-1]:
                raise
            self._restart(replace(settings, slowness=SLOWER * settings.slowness))
            return False
        return True

    def _tried(
        self, settings: DualAveragingSettings, rows: RepeatedRows, apart: RepeatedRows, seeds: Sequence[int | None]
    ) -> FloatArray:
        """(3,) Losses of rows apart after passes over the others; infinite where the weights diverge."""
        learner = DualAveraging(settings, self.n_features)
        learner.add_tasks(self.n_tasks, rows.sizes)
        try:
            for _ in learn_passes([learner], rows, seeds, tail=True):
                pass
        except ValueError:
            return np.full(3, np.inf)
        constants = learner.state.table[kernels.CENTRE]
        return apart.losses(settings.family, learner.coefficients(), constants)

    def coefficients(self) -> Coefficients:
        """Weights of the best candidate."""
        return self.best.coefficients()

    def to_stored(self) -> dict[str, Any]:
        """Numbers and penalties of all candidates."""
        return {
            "norms": [candidate.settings.norm_q for candidate in self.candidates],
            "strengths": [candidate.settings.strength for candidate in self.candidates],
            "slowness": [candidate.settings.slowness for candidate in self.candidates],
            "sums": [candidate.to_stored() for candidate in self.candidates],
            "groups": self.candidates[0].settings.groups,
        }

    def restore(self, stored: dict[str, Any]) -> Self:
        """Take over the numbers of stored candidates."""
        for candidate, sums in zip(self.candidates, stored["sums"], strict=True):
            candidate.restore(sums)
        return self


def learn_passes(
    learners: Sequence[DualAveraging], rows: RepeatedRows, seeds: Sequence[int | None], tail: bool
) -> Iterator[int]:
    """Learn rows once per seed; gives the number of passes before each of them and in the end.

    ``tail`` takes averages over the second half of the passes.
    """
    for done, schedule in enumerate(rows.passes(seeds)):
        yield done
        for learner in learners:
            if tail and done == len(seeds) // 2:
                learner.restart_average()
            learner.learn(rows.design, rows.seen, schedule, growing=False)
    yield len(seeds)


def observations(
    X: Design,
    y: FloatArray,
    task: IntArray,
    weight: FloatArray | None = None,
    rows: IntArray | None = None,
    squares: FloatArray | None = None,
) -> Observations:
    """Observations of a design, by default one per row.

    ``rows`` (N,) are the rows of the design that they use, ``squares`` (n,) its `squared_lengths` where they are known.
    """
    lengths = squared_lengths(X) if squares is None else squares
    weights = np.ones(y.size) if weight is None else weight
    places = np.arange(y.size) if rows is None else rows
    counts = [_as_read(numbers, np.int64) for numbers in (places, task)]
    return Observations(*counts, *[_as_read(numbers, np.float64) for numbers in (y, weights, lengths)])


def squared_lengths(X: Design) -> FloatArray:
    """(n,) Squared length of every row of float64 numbers; not finite where one of them is not."""
    values, pointer = (X.data, X.indptr) if sp.issparse(X) else (X.reshape(-1), X.shape[1] * np.arange(len(X) + 1))
    return kernels.row_squares(values, pointer)


def learnable(X: Design) -> Design:
    """Return a design as compiled code wants it: writeable float64, rows side by side; CSR indices of 32 bits."""
    if not sp.issparse(X):
        return _as_read(X, np.float64)
    if max(X.nnz, X.shape[1]) > np.iinfo(np.int32).max:
        raise ValueError(f"X has {X.nnz} non-zeros in {X.shape[1]} columns, too many for one batch; pass fewer rows")
    data = _as_read(X.data, np.float64)
    indices, indptr = (_as_read(part, np.int32) for part in (X.indices, X.indptr))
    same = data is X.data and indices is X.indices and indptr is X.indptr
    return X if same else sp.csr_matrix((data, indices, indptr), shape=X.shape, copy=False)


def _as_read(array: Any, kind: Any) -> NDArray[Any]:
    """Return an array as compiled code reads it: itself where it can, at a tenth of what NumPy takes to see that."""
    plain = type(array) is np.ndarray and array.dtype == kind and array.flags.carray
    return array if plain else np.require(array, kind, WRITEABLE)


def _whole_lanes(n: int) -> int:
    return -(-n // kernels.LANE) * kernels.LANE


def _enlarged(array: FloatArray, n_rows: int, n_columns: int, places: IntArray) -> FloatArray:
    """Zeros, with the rows of an array in these places."""
    numbers = np.zeros(n_rows * n_columns + 8)  # rows begin where the lines of a cache do
    start = -(numbers.ctypes.data // 8) % 8
    larger = numbers[start : start + n_rows * n_columns].reshape(n_rows, n_columns)
    if n_rows > 0:
        larger[places, : array.shape[1]] = array
    return larger


def _group_arrays(groups: IntArray | None) -> list[SlotArray]:
    """Group of each feature, where each group begins among the members, and the members."""
    if groups is None:
        return [np.empty(0, dtype=np.int32)] * 3
    _, group_of, counts = np.unique(groups, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return [part.astype(np.int32) for part in (group_of, starts, np.argsort(group_of, kind="stable"))]
