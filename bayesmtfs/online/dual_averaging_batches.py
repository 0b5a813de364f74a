"""Batches as the compiled rounds of dual averaging want them: observations, designs, and which row is in which round."""

from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.data.inputs import Design
from bayesmtfs.online.dual_averaging_kernels import FAST, SlotArray
from bayesmtfs.types import FloatArray, IntArray

WRITEABLE: tuple[Literal["C"], Literal["A"], Literal["W"]] = (
    "C",
    "A",
    "W",
)  # one memory layout for all, since each is compiled anew


class Observations(NamedTuple):
    """Rows to learn from, in any order."""

    rows: IntArray  # (N,) row of the design
    task: IntArray  # (N,) column of the sums
    y: FloatArray  # (N,)
    weight: FloatArray  # (N,)
    squares: FloatArray  # (n,) |x|^2 of every row of the design


class SparseRows(NamedTuple):
    """A CSR design, and where its entries are in the sums."""

    data: FloatArray  # (nnz,)
    indices: NDArray[np.int32]  # (nnz,) features
    indptr: NDArray[np.int32]  # (n + 1,)
    slots: SlotArray  # (nnz,) rows of the sums, -1 for features that were not met


class Schedule(NamedTuple):
    """Which observations make up which round."""

    order: IntArray  # (N,) observations, round by round
    starts: IntArray  # (rounds + 1,)


@njit(cache=True, nogil=True, error_model="numpy")
def round_schedule(task: IntArray, n_tasks: int) -> tuple[IntArray, IntArray]:
    """Order and starts of the rounds of a batch whose rows belong to these tasks."""
    n = task.size
    taken = np.zeros(n_tasks, dtype=np.int64)
    number = np.empty(n, dtype=np.int64)
    n_rounds = 0
    for i in range(n):
        number[i] = taken[task[i]]
        taken[task[i]] += 1
        n_rounds = max(n_rounds, taken[task[i]])
    starts = np.zeros(n_rounds + 1, dtype=np.int64)
    for i in range(n):
        starts[number[i] + 1] += 1
    for r in range(n_rounds):
        starts[r + 1] += starts[r]
    place = starts[:-1].copy()
    order = np.empty(n, dtype=np.int64)
    for i in range(n):
        order[place[number[i]]] = i
        place[number[i]] += 1
    return order, starts


@njit(cache=True, nogil=True, error_model="numpy")
def shuffle_within_tasks(shuffled: IntArray, offsets: IntArray, seed: int) -> None:
    """Shuffle the entries of every task in place (Fisher and Yates; the generator is xorshift64*)."""
    state = np.uint64(seed) ^ np.uint64(0x9E3779B97F4A7C15)
    for t in range(offsets.size - 1):
        first = offsets[t]
        for i in range(offsets[t + 1] - 1, first, -1):
            state ^= state >> np.uint64(12)
            state ^= state << np.uint64(25)
            state ^= state >> np.uint64(27)
            draw = (state * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)
            j = first + np.int64(draw % np.uint64(i - first + 1))
            shuffled[i], shuffled[j] = shuffled[j], shuffled[i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def squared_length(values: FloatArray) -> float:
    """Sum of squares."""
    total = 0.0
    for value in values:
        total += value * value
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def row_squares(X: FloatArray) -> FloatArray:
    """(n,) Squared length of every row."""
    squares = np.empty(X.shape[0])
    for i in range(squares.size):
        squares[i] = squared_length(X[i])
    return squares


@njit(cache=True, nogil=True, error_model="numpy")
def sparse_row_squares(data: FloatArray, indptr: NDArray[np.int32]) -> FloatArray:
    """(n,) Squared length of every CSR row."""
    squares = np.empty(indptr.size - 1)
    for i in range(squares.size):
        squares[i] = squared_length(data[indptr[i] : indptr[i + 1]])
    return squares


def observations(
    X: Design, y: FloatArray, task: IntArray, weight: FloatArray | None = None, rows: IntArray | None = None
) -> Observations:
    """Observations of a design, by default one per row.

    Parameters
    ----------
    X : (n, p) design
    y, task, weight : (N,) targets, numbers of the tasks, weights (None: 1)
    rows : (N,) row of the design that each observation uses; None: its own
    """
    squares = sparse_row_squares(X.data, X.indptr) if sp.issparse(X) else row_squares(X)
    numbers = (y, np.ones(y.size) if weight is None else weight, squares)
    target, weights, lengths = (np.require(values, np.float64, WRITEABLE) for values in numbers)
    places = np.arange(y.size) if rows is None else np.require(rows, np.int64, WRITEABLE)
    return Observations(places, np.require(task, np.int64, WRITEABLE), target, weights, lengths)


def learnable(X: Design) -> Design:
    """Return a design as compiled code wants it: writeable float64, rows side by side; CSR indices of 32 bits."""
    if not sp.issparse(X):
        return np.require(X, np.float64, WRITEABLE)
    if max(X.nnz, X.shape[1]) > np.iinfo(np.int32).max:
        raise ValueError(f"X has {X.nnz} non-zeros in {X.shape[1]} columns, too many for one batch; pass fewer rows")
    data = np.require(X.data, np.float64, WRITEABLE)
    indices, indptr = (np.require(part, np.int32, WRITEABLE) for part in (X.indices, X.indptr))
    same = data is X.data and indices is X.indices and indptr is X.indptr
    return X if same else sp.csr_matrix((data, indices, indptr), shape=X.shape, copy=False)
