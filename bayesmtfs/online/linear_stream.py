"""Linear learners of a stream that keep their weights: rounds with at most one row per task, and growth with the tasks.

The i-th row of each task in a batch belongs to the batch's i-th round. A learner keeps W ``(p, K)``, one column per
learner, and intercepts; with averaging it also keeps the lag ``sum_s (s - 1) delta_s`` of its steps, from which the
mean of its iterates after rounds 1 to t is ``W - lag / t`` without a pass over W in every round.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bayesmtfs.compiled import inner
from bayesmtfs.data.inputs import Design
from bayesmtfs.online.learner import Coefficients, StreamBatch, StreamLearner
from bayesmtfs.types import FloatArray, IntArray

MemoryOrder = Literal["C", "F"]


class Rounds(NamedTuple):
    """A batch of rows, sorted by task, over the entries of a CSR matrix."""

    values: NDArray[Any]  # (nnz,)
    features: NDArray[Any]  # (nnz,)
    pointer: NDArray[Any]  # (n + 1,)
    rows: IntArray  # (N,) row of the matrix that each observation uses
    y: FloatArray  # (N,)
    weight: FloatArray  # (N,)
    offsets: IntArray  # (tasks of the batch + 1,)
    learners: IntArray  # (tasks of the batch,) column of W that each task belongs to
    constant: float  # value of the constant feature behind the intercept: 1, or 0 where there is none


class LinearStream(NamedTuple):
    """K linear learners and, where they are averaged, the lag of their averages."""

    W: FloatArray  # (p, K)
    intercept: FloatArray  # (K,)
    W_lag: FloatArray  # (p, K), or (0, 0) without averaging
    intercept_lag: FloatArray  # (K,)
    clock: IntArray  # (K,) rounds that each learner has lived through


@dataclass(kw_only=True, eq=False)
class LinearLearner(StreamLearner):
    """Learners of all tasks; a child says what a round does to them."""

    n_features: int
    fit_intercept: bool = True
    average: bool = False
    seed: int = 0  # of whatever is random besides the order of rows
    n_rounds: int = field(init=False, default=0)
    n_rows: int = field(init=False, default=0)
    n_tasks: int = field(init=False, default=0)
    relations: dict[str, NDArray[Any]] = field(init=False, default_factory=dict)  # what relates the learners

    def __post_init__(self) -> None:
        self.stream = grow(None, self.n_features, 0, self.average, self.memory_order)

    @property
    def memory_order(self) -> MemoryOrder:
        """How W lies in memory."""
        return "C"

    @abstractmethod
    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""

    def grow_relations(self, n_learners: int) -> None:
        """Make room for new learners in whatever relates them."""

    def prepare(self, longest: int) -> None:
        """Last step before the first batch, of so many rounds."""

    def columns(self, arrival: IntArray) -> IntArray:
        """Column of W of each task, given its number in the order of arrival."""
        return arrival

    def add_tasks(self, n_new: int) -> None:
        """Make a learner for every new task, at zero."""
        if n_new == 0:
            return
        self.n_tasks += n_new
        n_learners = int(self.columns(np.arange(self.n_tasks)).max()) + 1
        self.stream = grow(self.stream, self.n_features, n_learners, self.average, self.memory_order)
        self.grow_relations(n_learners)

    def learn(self, batch: StreamBatch) -> None:
        """Learn one more batch in the order given."""
        rounds = rounds_of(batch, self.columns(batch.column), self.fit_intercept)
        if self.n_rounds == 0:
            self.prepare(longest_task(rounds.offsets))
        self._read(rounds)

    def fit(self, batch: StreamBatch, epochs: int, shuffle: bool, random_state: Any, progress: bool | None) -> None:
        """Learn a batch several times; rows are shuffled within tasks each time."""
        random, columns = check_random_state(random_state), self.columns(batch.column)
        self.prepare(epochs * int(np.bincount(batch.task).max()))
        for _ in range(epochs):
            self._read(rounds_of(batch, columns, self.fit_intercept, random if shuffle else None))

    def _read(self, rounds: Rounds) -> None:
        self.advance(rounds)
        if not is_finite(rounds, self.stream):
            raise ValueError(
                "the weights are no longer finite: rows of X are too long for the step; lower step, set "
                "normalize_rows=True or scale the features, and fit again"
            )
        self.n_rounds += longest_task(rounds.offsets)
        self.n_rows += rounds.rows.size

    def coefficients(self) -> Coefficients:
        """Last weights or, with ``average``, their mean over rounds."""
        W, intercept = iterates(self.stream, self.average)
        columns = self.columns(np.arange(self.n_tasks))
        return Coefficients(W[:, columns], intercept[columns])

    def to_stored(self) -> dict[str, Any]:
        """Weights, clocks and relations."""
        numbers = {"n_rounds": self.n_rounds, "n_rows": self.n_rows, "n_tasks": self.n_tasks, "seed": self.seed}
        return {**numbers, "stream": self.stream._asdict(), "relations": self.relations}

    def restore(self, stored: dict[str, Any]) -> Self:
        """Take over the numbers of a stored learner."""
        self.n_rounds, self.n_tasks, self.seed = (stored[name] for name in ("n_rounds", "n_tasks", "seed"))
        self.n_rows = stored.get("n_rows", 0)  # older files have none
        arrays = {name: np.array(array, order=self.memory_order) for name, array in stored["stream"].items()}
        self.stream, self.relations = LinearStream(**arrays), stored["relations"]
        return self


def rounds_of(
    batch: StreamBatch, columns: IntArray, fit_intercept: bool, random_state: np.random.RandomState | None = None
) -> Rounds:
    """Rows of a batch as rounds; columns (N,) are their learners, ``random_state`` shuffles the rows within tasks."""
    order, counts = np.argsort(batch.task, kind="stable"), np.bincount(batch.task)
    counts = counts[counts > 0]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if random_state is not None:
        order = np.concatenate([part[random_state.permutation(len(part))] for part in np.split(order, offsets[1:-1])])
    values, features, pointer = entries_of(batch.X)
    rows = order if batch.rows is None else batch.rows[order]
    weight = np.ones(len(order)) if batch.weight is None else batch.weight[order]
    learners, constant = columns[order[offsets[:-1]]], float(fit_intercept)
    return Rounds(values, features, pointer, rows, batch.y[order], weight, offsets, learners, constant)


def entries_of(X: Design) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Values, features and row pointers of a design, of one type for all designs, so that loops are compiled once."""
    if sp.issparse(X):
        values = np.require(X.data, np.float64, "W")
        return values, np.require(X.indices, np.int32, "W"), np.require(X.indptr, np.int64, "W")
    n, p = X.shape
    values = np.require(X, np.float64, ["C", "W"]).reshape(-1)
    return values, np.tile(np.arange(p, dtype=np.int32), n), p * np.arange(n + 1)


def unit_rows(X: Design) -> Design:
    """Rows divided by their Euclidean length; rows of zeros stay."""
    if sp.issparse(X):
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        scaled = X.copy()
        scaled.data /= np.repeat(np.where(length > 0, length, 1.0), np.diff(X.indptr)).astype(X.dtype)
        return scaled
    length = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(length > 0, length, 1.0)


def grow(
    stream: LinearStream | None, n_features: int, n_learners: int, average: bool, order: MemoryOrder = "C"
) -> LinearStream:
    """Learners at zero, added behind those there are until there are K; with ``average`` they keep the lag.

    The memory order of W is "C" where all learners read every row, "F" where few do.
    """
    fresh = LinearStream(
        W=np.zeros((n_features, n_learners), order=order),
        intercept=np.zeros(n_learners),
        W_lag=np.zeros((n_features, n_learners) if average else (0, 0), order=order),
        intercept_lag=np.zeros(n_learners),
        clock=np.zeros(n_learners, dtype=np.int64),
    )
    if stream is not None:
        for new, old in zip(fresh, stream, strict=True):
            new[tuple(slice(0, size) for size in old.shape)] = old
    return fresh


def iterates(stream: LinearStream, average: bool) -> tuple[FloatArray, FloatArray]:
    """W (p, K) and intercepts (K,): the last ones, or the mean over rounds; copies."""
    if not average:
        return stream.W.copy(), stream.intercept.copy()
    lived = np.maximum(stream.clock, 1)
    return stream.W - stream.W_lag / lived, stream.intercept - stream.intercept_lag / lived


@njit(cache=True, nogil=True, error_model="numpy")
def longest_task(offsets: IntArray) -> int:
    """Number of rounds."""
    most = 0
    for k in range(offsets.size - 1):
        most = max(most, offsets[k + 1] - offsets[k])
    return most


@inner(error_model="numpy")
def predict_all(rounds: Rounds, observation: int, stream: LinearStream, scores: FloatArray) -> None:
    """Scores of one row under all learners."""
    row = rounds.rows[observation]
    for k in range(scores.size):
        scores[k] = stream.intercept[k]
    for e in range(rounds.pointer[row], rounds.pointer[row + 1]):
        weights = stream.W[rounds.features[e]]
        x = rounds.values[e]
        for k in range(scores.size):
            scores[k] += x * weights[k]


@inner(error_model="numpy")
def predict_one(rounds: Rounds, observation: int, stream: LinearStream, k: int) -> float:
    """Score of one row under one learner."""
    row = rounds.rows[observation]
    score = stream.intercept[k]
    for e in range(rounds.pointer[row], rounds.pointer[row + 1]):
        score += rounds.values[e] * stream.W[rounds.features[e], k]
    return score


@inner(error_model="numpy")
def squared_length(rounds: Rounds, observation: int) -> float:
    """Squared length of a row, the constant of the intercept included."""
    row = rounds.rows[observation]
    total = rounds.constant
    for e in range(rounds.pointer[row], rounds.pointer[row + 1]):
        total += rounds.values[e] ** 2
    return total


@inner(error_model="numpy")
def move_all(rounds: Rounds, observation: int, stream: LinearStream, steps: FloatArray) -> None:
    """Add ``steps[k] x`` to every learner."""
    row, average = rounds.rows[observation], stream.W_lag.size > 0
    for e in range(rounds.pointer[row], rounds.pointer[row + 1]):
        i, x = rounds.features[e], rounds.values[e]
        weights = stream.W[i]
        for k in range(steps.size):
            weights[k] += x * steps[k]
        if average:
            lag = stream.W_lag[i]
            for k in range(steps.size):
                lag[k] += stream.clock[k] * (x * steps[k])
    if rounds.constant > 0.0:
        for k in range(steps.size):
            stream.intercept[k] += steps[k]
            stream.intercept_lag[k] += stream.clock[k] * steps[k]


@inner(error_model="numpy")
def move_one(rounds: Rounds, observation: int, stream: LinearStream, k: int, step: float) -> None:
    """Add ``step x`` to one learner."""
    row, average = rounds.rows[observation], stream.W_lag.size > 0
    for e in range(rounds.pointer[row], rounds.pointer[row + 1]):
        i, x = rounds.features[e], rounds.values[e]
        stream.W[i, k] += x * step
        if average:
            stream.W_lag[i, k] += stream.clock[k] * (x * step)
    if rounds.constant > 0.0:
        stream.intercept[k] += step
        stream.intercept_lag[k] += stream.clock[k] * step


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc"})  # sums in any order, but with inf and nan
def is_finite(rounds: Rounds, stream: LinearStream) -> bool:
    """Whether the weights that a batch may have touched are finite."""
    few = rounds.features.size < stream.W.shape[0]
    touched = rounds.features if few else np.arange(stream.W.shape[0], dtype=np.int32)
    total = stream.intercept.sum()
    for i in touched:
        for k in range(stream.intercept.size):
            total += stream.W[i, k]
    return np.isfinite(total)
