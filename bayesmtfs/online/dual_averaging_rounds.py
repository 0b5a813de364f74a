"""Compiled rounds of dual averaging: predict all rows of a round, then add their gradients.

A round has at most one row per task: the i-th row of each task in a batch belongs to the batch's i-th round. All rows
of a round are predicted with the weights that the rounds before it left, so that their order does not matter.
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.online.dual_averaging_batches import Observations, Schedule, SparseRows
from bayesmtfs.online.dual_averaging_kernels import (
    CENTRE,
    CONSTANT_LOSS,
    INTERCEPT_TOTAL,
    INVERSE,
    PROGRESSIVE_LOSS,
    ROWS,
    SQUARES,
    STEP,
    Rules,
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
from bayesmtfs.online.dual_averaging_sparse import add_sparse_row, learned_product, predicted_product
from bayesmtfs.priors.row_prox import WORK_ROWS
from bayesmtfs.types import FloatArray, IntArray


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


@njit(cache=True, nogil=True, error_model="numpy")
def row_factor(rules: Rules, sums: FloatArray, slot: int, inverse: FloatArray, n_tasks: int, cut: float) -> float:
    """Minus the share of a feature's proximal step that the norm of its row leaves."""
    if rules.kind != ROWS:
        return -1.0
    return -kept_share(math.sqrt(squared_norm(sums, slot, inverse, n_tasks, cut)), rules.strength)


@njit(cache=True, nogil=True, error_model="numpy")
def _are_all_in_order(task: IntArray) -> bool:
    for i in range(task.size):
        if task[i] != i:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _predict_dense_simple(
    columns: FloatArray, task: IntArray, rules: Rules, state: Sums, n_tasks: int, eta: FloatArray
) -> None:
    sums, inverse, step = state.sums, state.table[INVERSE], state.table[STEP]
    in_order = _are_all_in_order(task)
    for j in range(columns.shape[0]):
        slot = state.slots[j]
        if slot < 0:
            continue
        cut = cut_of(rules, state.sparsity, j)
        factor = row_factor(rules, sums, slot, inverse, n_tasks, cut)
        if factor == 0.0:
            continue
        if in_order and cut == 0.0:  # the same without jumps
            for i in range(task.size):
                eta[i] += columns[j, i] * (factor * step[i] * (sums[slot, i] * inverse[i]))
        else:
            for i in range(task.size):
                k = task[i]
                eta[i] += columns[j, i] * (factor * step[k] * soft(sums[slot, k] * inverse[k], cut))


@njit(cache=True, nogil=True, error_model="numpy")
def _predict_sparse_simple(
    X: SparseRows,
    rows: IntArray,
    task: IntArray,
    rules: Rules,
    state: Sums,
    n_tasks: int,
    learning: bool,
    eta: FloatArray,
) -> None:
    numbers = (rules, state.sums, state.bounds, state.table[INVERSE], state.sparsity, n_tasks)
    for i in range(rows.size):
        k = task[i]
        row = slice(X.indptr[rows[i]], X.indptr[rows[i] + 1])
        data, indices, slots = X.data[row], X.indices[row], X.slots[row]
        if learning:
            product = learned_product(data, indices, slots.view(np.uint32), k, *numbers)
        else:
            product = predicted_product(data, indices, slots, k, *numbers)
        eta[i] -= state.table[STEP, k] * product


@njit(cache=True, nogil=True, error_model="numpy")
def predict_dense(
    columns: FloatArray, task: IntArray, rules: Rules, state: Sums, n_tasks: int, eta: FloatArray
) -> None:
    """Predictions of rows of a dense design, given as columns (p, n); every feature is prepared once for all rows."""
    scale, intercept_scale = mean_scales(rules, state.table, n_tasks, columns.shape[0])
    _start_predictions(rules, state, task, n_tasks, intercept_scale, eta)
    if is_simple(rules, state) and not rules.shared_mean:
        _predict_dense_simple(columns, task, rules, state, n_tasks, eta)
        return
    width = buffer_length(state, n_tasks)
    buffer, work, weights = np.empty(width), np.empty((WORK_ROWS, width)), np.empty(n_tasks)
    for j in range(columns.shape[0]):
        if state.slots[j] >= 0:
            fill_row(rules, state, j, n_tasks, scale, buffer, work, weights)
            for i in range(task.size):
                eta[i] += columns[j, i] * weights[task[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def predict_sparse(
    X: SparseRows,
    rows: IntArray,
    task: IntArray,
    rules: Rules,
    state: Sums,
    n_tasks: int,
    learning: bool,
    eta: FloatArray,
) -> None:
    """Predictions of rows of a CSR design; only their features are looked at.

    Rows that are learned next (``learning``) leave the norms of their features noted in the bounds.
    """
    data, indices, indptr = X.data, X.indices, X.indptr
    scale, intercept_scale = mean_scales(rules, state.table, n_tasks, state.slots.size)
    _start_predictions(rules, state, task, n_tasks, intercept_scale, eta)
    if is_simple(rules, state) and not rules.shared_mean:
        _predict_sparse_simple(X, rows, task, rules, state, n_tasks, learning, eta)
        return
    width = buffer_length(state, n_tasks)
    buffer, work, weights = np.empty(width), np.empty((WORK_ROWS, width)), np.empty(n_tasks)
    for i in range(rows.size):
        for place in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if X.slots[place] >= 0:
                fill_row(rules, state, indices[place], n_tasks, scale, buffer, work, weights)
                eta[i] += data[place] * weights[task[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def learn_slope(
    rules: Rules, table: FloatArray, pool: FloatArray, k: int, y: float, weight: float, eta: float, growing: bool
) -> tuple[float, float, float]:
    """Let task k learn its own numbers; weighted loss, loss of its constant, and derivative of the row."""
    value, slope = loss_and_slope(rules.loss, y, eta)
    constant, _ = loss_and_slope(rules.loss, y, table[CENTRE, k])
    advance(rules, table, pool, k, y, weight, slope, growing)
    return weight * value, weight * constant, weight * slope


@njit(cache=True, nogil=True, error_model="numpy")
def _learn_slopes(
    rules: Rules, state: Sums, seen: Observations, chosen: IntArray, eta: FloatArray, growing: bool
) -> bool:
    """Losses of a round; eta is overwritten by the weighted derivatives. False where a prediction has diverged."""
    pool, y = state.pool, seen.y
    losses = 0.0
    constants = 0.0
    for i in range(chosen.size):
        if has_diverged(rules, pool, y[chosen[i]], eta[i]):
            return False
    for i in range(chosen.size):
        one = chosen[i]
        loss, constant, eta[i] = learn_slope(
            rules, state.table, pool, seen.task[one], y[one], seen.weight[one], eta[i], growing
        )
        losses += loss
        constants += constant
    pool[PROGRESSIVE_LOSS] += losses
    pool[CONSTANT_LOSS] += constants
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_columns(X: FloatArray, rows: IntArray, columns: FloatArray) -> None:
    """Rows of a round side by side, as the loops over its tasks read them."""
    for i in range(rows.size):
        for j in range(X.shape[1]):
            columns[j, i] = X[rows[i], j]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_dense(columns: FloatArray, task: IntArray, slopes: FloatArray, state: Sums) -> None:
    """Add the gradients of a round to the sums."""
    slots, sums = state.slots, state.sums
    in_order = _are_all_in_order(task)
    for j in range(columns.shape[0]):
        slot = slots[j]
        if in_order:
            for i in range(task.size):
                sums[slot, i] += slopes[i] * columns[j, i]
        else:
            for i in range(task.size):
                sums[slot, task[i]] += slopes[i] * columns[j, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_sparse(X: SparseRows, rows: IntArray, task: IntArray, slopes: FloatArray, state: Sums) -> None:
    """Add the gradients of a round to the sums of the features that occur in it."""
    inverse = state.table[INVERSE]
    for i in range(rows.size):
        row = slice(X.indptr[rows[i]], X.indptr[rows[i] + 1])
        k = task[i]
        places = X.slots[row].view(np.uint32)
        add_sparse_row(X.data[row], places, k, slopes[i], state.sums, state.bounds, inverse[k])


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
    eta, columns = np.empty(n_tasks), np.empty((X.shape[1], n_tasks))
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        rows, task = seen.rows[chosen], seen.task[chosen]
        _open_round(rules, state, seen, chosen)
        _fill_columns(X, rows, columns)
        predict_dense(columns, task, rules, state, n_tasks, eta)
        if not _learn_slopes(rules, state, seen, chosen, eta, growing):
            return r
        _add_dense(columns, task, eta, state)
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
        predict_sparse(X, rows, task, rules, state, n_tasks, True, eta)
        if not _learn_slopes(rules, state, seen, chosen, eta, growing):
            _add_sparse(X, rows, task, np.zeros(rows.size), state)  # the norms are bounds again
            return r
        _add_sparse(X, rows, task, eta, state)
        if rules.average:
            _add_to_averages(rules, state, task, n_tasks)
    return n_rounds
