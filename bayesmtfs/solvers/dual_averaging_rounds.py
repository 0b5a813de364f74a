"""Compiled rounds of dual averaging: predict all rows of a round, then add their gradients.

A round has at most one row per task: the i-th row of each task in a batch belongs to the batch's i-th round. All rows
of a round are predicted with the weights that the rounds before it left, so that their order does not matter.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.priors.row_prox import WORK_ROWS
from bayesmtfs.protocols import FloatArray, IntArray
from bayesmtfs.solvers.dual_averaging_kernels import (
    CENTRE,
    CONSTANT_LOSS,
    FAST,
    INTERCEPT_TOTAL,
    INVERSE,
    PROGRESSIVE_LOSS,
    ROWS,
    SQUARES,
    STEP,
    Rules,
    SlotArray,
    Sums,
    advance,
    buffer_length,
    cut_of,
    fill_intercepts,
    fill_row,
    has_diverged,
    intercept,
    is_simple,
    kept_share,
    loss_and_slope,
    mean_scales,
    set_step,
    soft,
    squared_norm,
)


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


@njit(cache=True, nogil=True, error_model="numpy")
def claim_slots(slots: SlotArray, indices: NDArray[np.int32], used: int) -> tuple[int, SlotArray]:
    """Give every feature that is met for the first time the next row of the sums.

    Returns the new number of rows, and the row of every entry.
    """
    found = np.empty(indices.size, dtype=np.int32)
    for place in range(indices.size):
        slot = slots[indices[place]]
        if slot < 0:
            slot = np.int32(used)
            slots[indices[place]] = slot
            used += 1
        found[place] = slot
    return used, found


@njit(cache=True, nogil=True, error_model="numpy")
def find_slots(slots: SlotArray, indices: NDArray[np.int32]) -> SlotArray:
    """Row of every entry in the sums, -1 where its feature was not met."""
    found = np.empty(indices.size, dtype=np.int32)
    for place in range(indices.size):
        found[place] = slots[indices[place]]
    return found


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


@njit(cache=True, nogil=True, error_model="numpy")
def _open_round(rules: Rules, state: Sums, seen: Observations, chosen: IntArray) -> None:
    """Let steps that follow the data know the rows that are about to be predicted: x is known before y."""
    for i in chosen:
        k = seen.task[i]
        state.table[SQUARES, k] += seen.squares[seen.rows[i]]
        if rules.gamma == 0.0:
            set_step(rules, state.table, k, 1.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _start_predictions(rules: Rules, state: Sums, task: IntArray, n_tasks: int, scale: float, eta: FloatArray) -> None:
    """Write the intercepts of the rows' tasks into eta."""
    if not rules.fit_intercept:
        for i in range(task.size):
            eta[i] = 0.0
    elif rules.shared_mean:
        intercepts = np.empty(n_tasks)
        fill_intercepts(rules, state, n_tasks, scale, intercepts)
        for i in range(task.size):
            eta[i] = intercepts[task[i]]
    else:
        for i in range(task.size):
            eta[i] = intercept(state.table, task[i])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _predict_dense_simple(
    X: FloatArray, rows: IntArray, task: IntArray, rules: Rules, state: Sums, n_tasks: int, eta: FloatArray
) -> None:
    sums, inverse, step = state.sums, state.table[INVERSE], state.table[STEP]
    for j in range(X.shape[1]):
        slot = state.slots[j]
        if slot < 0:
            continue
        cut = cut_of(rules, state.sparsity, j)
        factor = -1.0
        if rules.kind == ROWS:
            factor = -kept_share(math.sqrt(squared_norm(sums, slot, inverse, n_tasks, cut)), rules.strength)
        if factor == 0.0:
            continue
        if cut == 0.0:
            for i in range(rows.size):
                k = task[i]
                eta[i] += X[rows[i], j] * (factor * step[k] * inverse[k] * sums[slot, k])
        else:
            for i in range(rows.size):
                k = task[i]
                eta[i] += X[rows[i], j] * (factor * step[k] * soft(sums[slot, k] * inverse[k], cut))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _predict_sparse_simple(
    X: SparseRows, rows: IntArray, task: IntArray, rules: Rules, state: Sums, n_tasks: int, eta: FloatArray
) -> None:
    data, places, indptr = X.data, X.slots, X.indptr
    sums, inverse, bounds = state.sums, state.table[INVERSE], state.bounds
    by_rows = rules.kind == ROWS
    bounded = by_rows and not rules.summed
    for i in range(rows.size):
        k = task[i]
        total = 0.0
        for place in range(indptr[rows[i]], indptr[rows[i] + 1]):
            slot = places[place]
            if slot < 0 or (bounded and bounds[slot] <= rules.strength) or sums[slot, k] == 0.0:
                continue  # not met, or known to be zero without a look at the other tasks
            cut = cut_of(rules, state.sparsity, X.indices[place])
            factor = 1.0
            if by_rows:
                bounds[slot] = math.sqrt(squared_norm(sums, slot, inverse, n_tasks, cut))
                factor = kept_share(bounds[slot], rules.strength)
            total += data[place] * factor * soft(sums[slot, k] * inverse[k], cut)
        eta[i] -= state.table[STEP, k] * total


@njit(cache=True, nogil=True, error_model="numpy")
def predict_dense(
    X: FloatArray, rows: IntArray, task: IntArray, rules: Rules, state: Sums, n_tasks: int, eta: FloatArray
) -> None:
    """Predictions of rows of a dense design; every feature is prepared once for all rows."""
    scale, intercept_scale = mean_scales(rules, state.table, n_tasks, X.shape[1])
    _start_predictions(rules, state, task, n_tasks, intercept_scale, eta)
    if is_simple(rules, state) and not rules.shared_mean:
        _predict_dense_simple(X, rows, task, rules, state, n_tasks, eta)
        return
    width = buffer_length(state, n_tasks)
    buffer, work, weights = np.empty(width), np.empty((WORK_ROWS, width)), np.empty(n_tasks)
    for j in range(X.shape[1]):
        if state.slots[j] >= 0:
            fill_row(rules, state, j, n_tasks, scale, buffer, work, weights)
            for i in range(rows.size):
                eta[i] += X[rows[i], j] * weights[task[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def predict_sparse(
    X: SparseRows, rows: IntArray, task: IntArray, rules: Rules, state: Sums, n_tasks: int, eta: FloatArray
) -> None:
    """Predictions of rows of a CSR design; only their features are looked at."""
    data, indices, indptr = X.data, X.indices, X.indptr
    scale, intercept_scale = mean_scales(rules, state.table, n_tasks, state.slots.size)
    _start_predictions(rules, state, task, n_tasks, intercept_scale, eta)
    if is_simple(rules, state) and not rules.shared_mean:
        _predict_sparse_simple(X, rows, task, rules, state, n_tasks, eta)
        return
    width = buffer_length(state, n_tasks)
    buffer, work, weights = np.empty(width), np.empty((WORK_ROWS, width)), np.empty(n_tasks)
    for i in range(rows.size):
        for place in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if X.slots[place] >= 0:
                fill_row(rules, state, indices[place], n_tasks, scale, buffer, work, weights)
                eta[i] += data[place] * weights[task[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def _learn_slopes(
    rules: Rules, state: Sums, seen: Observations, chosen: IntArray, eta: FloatArray, growing: bool
) -> bool:
    """Losses of a round; eta is overwritten by the weighted derivatives. False where a prediction has diverged."""
    table, pool, y, weight, task = state.table, state.pool, seen.y, seen.weight, seen.task
    total = 0.0
    constant = 0.0
    for i in range(chosen.size):
        if has_diverged(rules, pool, y[chosen[i]], eta[i]):
            return False
    for i in range(chosen.size):
        one = chosen[i]
        value, slope = loss_and_slope(rules.loss, y[one], eta[i])
        total += weight[one] * value
        constant += weight[one] * loss_and_slope(rules.loss, y[one], table[CENTRE, task[one]])[0]
        eta[i] = weight[one] * slope
        advance(rules, table, pool, task[one], y[one], weight[one], slope, growing)
    pool[PROGRESSIVE_LOSS] += total
    pool[CONSTANT_LOSS] += constant
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _add_dense(X: FloatArray, rows: IntArray, task: IntArray, slopes: FloatArray, state: Sums) -> None:
    """Add the gradients of a round to the sums."""
    slots, sums = state.slots, state.sums
    for j in range(X.shape[1]):
        slot = slots[j]
        for i in range(rows.size):
            sums[slot, task[i]] += slopes[i] * X[rows[i], j]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_sparse(X: SparseRows, rows: IntArray, task: IntArray, slopes: FloatArray, state: Sums) -> None:
    """Add the gradients of a round to the sums of the features that occur in it, and to the bounds on their norms.

    An average gradient shrinks as its task's clock ticks, so that the norm of a row never grows by more than this.
    """
    data, places, indptr, sums, bounds = X.data, X.slots, X.indptr, state.sums, state.bounds
    for i in range(rows.size):
        k, slope = task[i], slopes[i]
        if slope != 0.0:
            share = abs(slope) * state.table[INVERSE, k]
            for place in range(indptr[rows[i]], indptr[rows[i] + 1]):
                sums[places[place], k] += slope * data[place]
                bounds[places[place]] += share * abs(data[place])


@njit(cache=True, nogil=True, error_model="numpy")
def _add_to_averages(rules: Rules, state: Sums, task: IntArray, n_tasks: int) -> None:
    """Add the weights after a round to the totals of the tasks that took part."""
    width = buffer_length(state, n_tasks)
    buffer, work, weights = np.empty(width), np.empty((WORK_ROWS, width)), np.empty(n_tasks)
    scale, intercept_scale = mean_scales(rules, state.table, n_tasks, state.slots.size)
    fill_intercepts(rules, state, n_tasks, intercept_scale, weights)
    for k in task:
        state.table[INTERCEPT_TOTAL, k] += weights[k]
    for j in range(state.slots.size):
        slot = state.slots[j]
        if slot >= 0:
            fill_row(rules, state, j, n_tasks, scale, buffer, work, weights)
            for k in task:
                state.totals[slot, k] += weights[k]


@njit(cache=True, nogil=True, error_model="numpy")
def learn_dense(
    X: FloatArray, seen: Observations, rounds: Schedule, rules: Rules, state: Sums, n_tasks: int, growing: bool
) -> int:
    """Learn a batch of dense rows, whose features all have slots; the number of rounds that went well."""
    n_rounds = rounds.starts.size - 1
    eta = np.empty(n_tasks)
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        rows, task = seen.rows[chosen], seen.task[chosen]
        _open_round(rules, state, seen, chosen)
        predict_dense(X, rows, task, rules, state, n_tasks, eta)
        if not _learn_slopes(rules, state, seen, chosen, eta, growing):
            return r
        _add_dense(X, rows, task, eta, state)
        if rules.average:
            _add_to_averages(rules, state, task, n_tasks)
    return n_rounds


@njit(cache=True, nogil=True, error_model="numpy")
def learn_sparse(
    X: SparseRows, seen: Observations, rounds: Schedule, rules: Rules, state: Sums, n_tasks: int, growing: bool
) -> int:
    """Learn a batch of CSR rows, whose features all have slots; the number of rounds that went well."""
    n_rounds = rounds.starts.size - 1
    eta = np.empty(n_tasks)
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        rows, task = seen.rows[chosen], seen.task[chosen]
        _open_round(rules, state, seen, chosen)
        predict_sparse(X, rows, task, rules, state, n_tasks, eta)
        if not _learn_slopes(rules, state, seen, chosen, eta, growing):
            return r
        _add_sparse(X, rows, task, eta, state)
        if rules.average:
            _add_to_averages(rules, state, task, n_tasks)
    return n_rounds
