"""One row at a time through dual averaging, at the least price of a call.

A row is a round of `dual_averaging_rounds` by itself, to the last bit. A compiled function takes an
array or a number at a fraction of what a named tuple of them costs, so that the state comes as `flat_state`, and only for
the common learners: a penalty on entries or rows, neither groups nor a general norm, no shared mean, no average. What is
wrong with a row is found inside as well, before anything has changed.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.online.dual_averaging_batches import squared_length
from bayesmtfs.online.dual_averaging_kernels import (
    CONSTANT_LOSS,
    INVERSE,
    N_POOLED,
    PROGRESSIVE_LOSS,
    SQUARES,
    STEP,
    Rules,
    SlotArray,
    Sums,
    cut_of,
    has_diverged,
    intercept,
    is_simple,
    set_step,
    soft,
)
from bayesmtfs.online.dual_averaging_rounds import learn_slope, row_factor
from bayesmtfs.online.dual_averaging_sparse import add_sparse_row, claim_slots, learned_product
from bayesmtfs.types import FloatArray

UNREADABLE = -1  # numbers that are not finite, features out of range: nothing was learned
DIVERGED_AT = -2  # less the number of features met


def pool_with_rules(rules: Rules, sparsity: FloatArray) -> FloatArray:
    """Numbers over all tasks, none so far, with the rules behind them, so that both are one array."""
    return np.concatenate([np.zeros(N_POOLED), np.array(rules, dtype=np.float64), sparsity[:1]])


def flat_state(rules: Rules, state: Sums) -> tuple[Any, ...] | None:
    """What follows the row in the calls below, or None for learners that they do not know."""
    known = is_simple(rules, state) and not rules.shared_mean and not rules.average and state.sparsity.size == 1
    return (state.slots, state.sums, state.bounds, state.table, state.pool) if known else None


@njit(cache=True, nogil=True, error_model="numpy")
def _rules(pool: FloatArray) -> Rules:
    numbers = pool[N_POOLED:]
    return Rules(
        int(numbers[0]),
        int(numbers[1]),
        numbers[2],
        numbers[3],
        numbers[4],
        numbers[5],
        numbers[6],
        numbers[7] != 0.0,
        False,
        False,
        numbers[10] != 0.0,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _begin_row(rules: Rules, table: FloatArray, k: int, squares: float) -> float:
    """Bring the step of task k up to the row that is about to be predicted; the task's intercept."""
    table[SQUARES, k] += squares
    if rules.gamma == 0.0:
        set_step(rules, table, k, 1.0)
    return intercept(table, k) if rules.fit_intercept else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _end_row(rules: Rules, table: FloatArray, pool: FloatArray, k: int, y: float, eta: float) -> float:
    """Let task k learn its own numbers from a row with this prediction; the derivative of the loss."""
    loss, constant, slope = learn_slope(rules, table, pool, k, y, 1.0, eta, True)
    pool[PROGRESSIVE_LOSS] += loss
    pool[CONSTANT_LOSS] += constant
    return slope


@njit(cache=True, nogil=True, error_model="numpy")
def learn_dense_row(
    X: FloatArray,
    y: float,
    k: int,
    n_tasks: int,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
) -> int:
    """Learn one dense row (1, p), whose features all have slots; the number of features, or what went wrong."""
    row = X[0]
    squares = squared_length(row)
    if not math.isfinite(squares + y):
        return UNREADABLE
    rules, sparsity, inverse = _rules(pool), pool[-1:], table[INVERSE]
    eta = _begin_row(rules, table, k, squares)
    for j in range(row.size):
        cut = cut_of(rules, sparsity, j)
        factor = row_factor(rules, sums, slots[j], inverse, n_tasks, cut)
        if factor != 0.0:
            eta += row[j] * (factor * table[STEP, k] * soft(sums[slots[j], k] * inverse[k], cut))
    if has_diverged(rules, pool, y, eta):
        return DIVERGED_AT - row.size
    slope = _end_row(rules, table, pool, k, y, eta)
    for j in range(row.size):
        sums[slots[j], k] += slope * row[j]
        bounds[j] = np.inf
    return row.size


@njit(cache=True, nogil=True, error_model="numpy")
def learn_sparse_row(
    data: FloatArray,
    indices: NDArray[np.int32],
    indptr: NDArray[np.int32],
    y: float,
    k: int,
    n_tasks: int,
    used: int,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
) -> int:
    """Learn the one row of a CSR matrix, with room for its features; how many were met by now, or what went wrong."""
    first, last = indptr[0], indptr[1]
    if first < 0 or last > min(data.size, indices.size):
        return UNREADABLE
    data, indices = data[first:last], indices[first:last]
    squares = squared_length(data)
    if not math.isfinite(squares + y):
        return UNREADABLE
    before = -1
    for j in indices:  # in order, each once: a feature that is stored twice is the sum of both
        if j <= before or j >= slots.size:
            return UNREADABLE
        before = j
    used, found = claim_slots(slots, indices, used)
    places = found.view(np.uint32)
    rules, inverse = _rules(pool), table[INVERSE]
    eta = _begin_row(rules, table, k, squares)
    product = learned_product(data, indices, places, k, rules, sums, bounds, inverse, pool[-1:], n_tasks)
    eta -= table[STEP, k] * product
    if has_diverged(rules, pool, y, eta):
        add_sparse_row(data, places, k, 0.0, sums, bounds, 0.0)  # the norms are bounds again
        return DIVERGED_AT - used
    slope = _end_row(rules, table, pool, k, y, eta)
    add_sparse_row(data, places, k, slope, sums, bounds, inverse[k])
    return used
