"""One row at a time through the compiled rounds of dual averaging, at the least price of a call.

A round of one row is the round of `bayesmtfs.solvers.dual_averaging_rounds`, to the last bit. What differs is how it is
called: a compiled function takes an array or a number at a fraction of what a named tuple of them costs, so that the
state comes as `flat_state` and is put together inside, where that is free. What is wrong with a row is found inside as
well, before anything has changed.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.solvers.dual_averaging_kernels import Rules, SlotArray, Sums
from bayesmtfs.solvers.dual_averaging_rounds import (
    Observations,
    Schedule,
    SparseRows,
    claim_slots,
    learn_dense,
    learn_sparse,
    squared_length,
)

UNREADABLE = -1  # NaN or infinite, or a feature out of range: nothing was learned
DIVERGED_AT = -2  # less the number of features met


def flat_state(rules: Rules, state: Sums) -> tuple[Any, ...]:
    """Rules as one array, and the arrays of the state: what follows the row in the calls below."""
    return (np.array(rules, dtype=np.float64), *state)


@njit(cache=True, nogil=True, error_model="numpy")
def _rules(numbers: FloatArray) -> Rules:
    return Rules(
        int(numbers[0]),
        int(numbers[1]),
        numbers[2],
        numbers[3],
        numbers[4],
        numbers[5],
        numbers[6],
        numbers[7] != 0.0,
        numbers[8] != 0.0,
        numbers[9] != 0.0,
        numbers[10] != 0.0,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _one_observation(task: int, y: float, squares: float) -> Observations:
    return Observations(
        np.zeros(1, dtype=np.int64), np.full(1, task), np.full(1, y), np.ones(1), np.full(1, squares)
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _one_round() -> Schedule:
    starts = np.zeros(2, dtype=np.int64)
    starts[1] = 1
    return Schedule(np.zeros(1, dtype=np.int64), starts)


@njit(cache=True, nogil=True, error_model="numpy")
def learn_dense_row(
    X: FloatArray,
    y: float,
    task: int,
    n_tasks: int,
    used: int,
    rules: FloatArray,
    slots: SlotArray,
    sums: FloatArray,
    totals: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
    group_of: IntArray,
    group_starts: IntArray,
    members: IntArray,
) -> int:
    """Learn one dense row (1, p), whose features all have slots; the number of features met, or what went wrong."""
    squares = squared_length(X[0])
    if not math.isfinite(squares + y):
        return UNREADABLE
    state = Sums(slots, sums, totals, bounds, table, pool, sparsity, group_of, group_starts, members)
    bounds[:] = np.inf
    done = learn_dense(X, _one_observation(task, y, squares), _one_round(), _rules(rules), state, n_tasks, True)
    return used if done == 1 else DIVERGED_AT - used


@njit(cache=True, nogil=True, error_model="numpy")
def learn_sparse_row(
    data: FloatArray,
    indices: NDArray[np.int32],
    y: float,
    task: int,
    n_tasks: int,
    used: int,
    rules: FloatArray,
    slots: SlotArray,
    sums: FloatArray,
    totals: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
    group_of: IntArray,
    group_starts: IntArray,
    members: IntArray,
) -> int:
    """Learn one row given by its entries, with room for all of them; the number of features met, or what went wrong."""
    squares = squared_length(data)
    if not math.isfinite(squares + y) or data.size != indices.size:
        return UNREADABLE
    for j in indices:
        if j < 0 or j >= slots.size:
            return UNREADABLE
    used, found = claim_slots(slots, indices, used)
    pointers = np.zeros(2, dtype=np.int32)
    pointers[1] = data.size
    row = SparseRows(data, indices, pointers, found)
    state = Sums(slots, sums, totals, bounds, table, pool, sparsity, group_of, group_starts, members)
    done = learn_sparse(row, _one_observation(task, y, squares), _one_round(), _rules(rules), state, n_tasks, True)
    return used if done == 1 else DIVERGED_AT - used
