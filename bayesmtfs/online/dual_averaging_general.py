"""Dual averaging whose weights are more than a soft threshold and a factor: general norms, groups, shared mean, averages.

Most learners never need this, and what a learner does not run is not compiled for it: the compiled code here takes longer
to build than all of `dual_averaging_kernels`, on which it rests.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.compiled import inner
from bayesmtfs.online.dual_averaging_kernels import (
    AVERAGE,
    CLOCK,
    ENTRIES,
    FAST,
    FIT_INTERCEPT,
    INTERCEPT_PULL,
    INTERCEPT_STEP,
    INTERCEPT_SUM,
    INTERCEPT_TOTAL,
    INVERSE,
    KIND,
    MEAN_SHARE,
    MEAN_STRENGTH,
    NORM_Q,
    POOLED_TARGETS,
    POOLED_WEIGHT,
    PULL,
    ROWS,
    SHARED_MEAN,
    SIZE,
    SQUARES,
    STEP,
    STRENGTH,
    SUMMED,
    GradientSums,
    Observations,
    Schedule,
    Scratch,
    SparseRows,
    add_dense,
    add_dense_products,
    add_sparse,
    best_constant,
    cut_of,
    expect_rows,
    fill_columns,
    fill_simple_row,
    intercept_of,
    learn_targets,
    predict_learned,
    soft,
    start_predictions,
    taken,
)
from bayesmtfs.priors.row_prox import WORK_ROWS, prox_row
from bayesmtfs.types import FloatArray, IntArray


@inner(error_model="numpy", fastmath=FAST)
def _dot(row: FloatArray, other: FloatArray, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += row[k] * other[k]
    return total


@inner(error_model="numpy")
def _mean_scales(n_tasks: int, n_features: int, table: FloatArray, pool: FloatArray) -> tuple[float, float]:
    """Divisors of the shared mean and of its intercept: ``sum_k n_k + mean_strength * a`` with the mean step a."""
    if pool[SHARED_MEAN] == 0.0:
        return 1.0, 1.0
    total, steps, squares, seen = 0.0, 0.0, 0.0, 0
    for k in range(n_tasks):
        if table[CLOCK, k] > 0.0:
            size = table[SIZE, k] if pool[SUMMED] != 0.0 else 1.0
            total += size
            steps += table[STEP, k] * size
            squares += size * table[SQUARES, k] / table[CLOCK, k]
            seen += 1
    if seen == 0:
        return 1.0, 1.0
    strength = pool[MEAN_STRENGTH] if pool[MEAN_STRENGTH] >= 0.0 else MEAN_SHARE * squares / n_features
    return total + strength * steps / seen, total


@inner(error_model="numpy")
def _has_simple_rows(state: GradientSums) -> bool:
    """Whether a weight is a soft threshold and a factor but for the shared mean: no general norm, no groups."""
    kind = state.pool[KIND]
    return kind == ENTRIES or (kind == ROWS and state.group_of.size == 0)


@inner(error_model="numpy")
def _prox(row: FloatArray, pool: FloatArray, work: FloatArray) -> None:
    """Proximal step of a row in place; one layout for all callers, since each is compiled anew."""
    if pool[STRENGTH] > 0.0:
        prox_row(row, pool[STRENGTH], pool[NORM_Q], work[: WORK_ROWS * row.size].reshape((WORK_ROWS, row.size)), 0.0)


@inner(error_model="numpy")
def _fill_general(state: GradientSums, j: int, scratch: Scratch) -> int:
    """Proximal point of the row of feature j, all features of its group side by side; where j begins in it."""
    inverse, buffer = state.table[INVERSE], scratch.buffer
    grouped = state.group_of.size > 0
    first = state.group_starts[state.group_of[j]] if grouped else 0
    last = state.group_starts[state.group_of[j] + 1] if grouped else 1
    offset = 0
    length = 0
    for place in range(first, last):
        feature = state.members[place] if grouped else j
        slot = state.slots[feature]
        if feature == j:
            offset = length
        cut = cut_of(state.pool, state.sparsity, feature)
        for k in range(state.n_tasks):
            buffer[length] = soft(state.sums[slot, k] * inverse[k], cut) if slot >= 0 else 0.0
            length += 1
    _prox(buffer[:length], state.pool, scratch.work)
    return offset


@inner(error_model="numpy")
def _scratch(state: GradientSums) -> Scratch:
    """Room for the weights of any feature."""
    largest = 1
    for group in range(state.group_starts.size - 1):
        largest = max(largest, state.group_starts[group + 1] - state.group_starts[group])
    width = largest * state.n_tasks
    scale = _mean_scales(state.n_tasks, state.slots.size, state.table, state.pool)[0]
    return Scratch(np.empty(width), np.empty(WORK_ROWS * width), np.empty(state.n_tasks), scale)


@inner(error_model="numpy")
def _fill_row(state: GradientSums, j: int, scratch: Scratch) -> None:
    """Weights of feature j, which has a slot, in all tasks."""
    slot, out, table = state.slots[j], scratch.weights, state.table
    if _has_simple_rows(state):
        fill_simple_row(slot, cut_of(state.pool, state.sparsity, j), state.sums, table, state.pool, out)
    else:
        offset = _fill_general(state, j, scratch)
        for k in range(out.size):
            out[k] = 0.0 - table[STEP, k] * scratch.buffer[offset + k]
    if state.pool[SHARED_MEAN] != 0.0:
        mean = -_dot(state.sums[slot], table[PULL], out.size) / scratch.scale
        for k in range(out.size):
            out[k] += mean


@njit(cache=True, nogil=True, error_model="numpy")
def fill_intercepts(state: GradientSums, out: FloatArray) -> None:
    """Intercepts of all tasks: free, or with a shared mean a free b_0 and one more penalised row."""
    table, pool, m = state.table, state.pool, out.size
    if pool[FIT_INTERCEPT] == 0.0 or pool[SHARED_MEAN] == 0.0:
        for k in range(m):
            out[k] = intercept_of(table, k)
        return
    centre = best_constant(state.slope, state.centre, pool, pool[POOLED_TARGETS], pool[POOLED_WEIGHT])
    scale = _mean_scales(m, state.slots.size, table, pool)[1]
    mean = centre - _dot(table[INTERCEPT_SUM], table[INTERCEPT_PULL], m) / scale
    cut = pool[STRENGTH] if pool[KIND] == ENTRIES else 0.0
    for k in range(m):
        out[k] = soft(table[INTERCEPT_SUM, k] * table[INVERSE, k], cut)
    if pool[KIND] != ENTRIES:
        _prox(out, pool, np.empty(WORK_ROWS * m))
    for k in range(m):
        out[k] = mean - table[INTERCEPT_STEP, k] * out[k]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_weights(state: GradientSums, features: IntArray, W: FloatArray) -> None:
    """Weights (features, tasks) of features that were all met."""
    scratch = _scratch(state)
    for i in range(features.size):
        _fill_row(state, features[i], scratch)
        W[i] = scratch.weights


@njit(cache=True, nogil=True, error_model="numpy")
def predict_dense(columns: FloatArray, task: IntArray, state: GradientSums, eta: FloatArray) -> None:
    """Predictions of rows of a dense design, given as columns (p, n); every feature is prepared once for all rows."""
    if state.pool[SHARED_MEAN] == 0.0:
        start_predictions(task, state.table, eta)
        if _has_simple_rows(state):
            add_dense_products(
                columns, task, eta, state.n_tasks, state.slots, state.sums, state.table, state.pool, state.sparsity
            )
            return
    scratch = _scratch(state)
    if state.pool[SHARED_MEAN] != 0.0:
        fill_intercepts(state, scratch.weights)
        for i in range(task.size):
            eta[i] = scratch.weights[task[i]]
    for j in range(columns.shape[0]):
        if state.slots[j] >= 0:
            _fill_row(state, j, scratch)
            for i in range(task.size):
                eta[i] += columns[j, i] * scratch.weights[task[i]]


@njit(cache=True, nogil=True, error_model="numpy")
def predict_sparse(
    data: FloatArray,
    indices: NDArray[np.int32],
    indptr: NDArray[np.int32],
    rows: IntArray,
    task: IntArray,
    state: GradientSums,
    eta: FloatArray,
) -> None:
    """Predictions of CSR rows."""
    scratch = _scratch(state)
    fill_intercepts(state, scratch.weights)
    for i in range(task.size):
        eta[i] = scratch.weights[task[i]]
    for i in range(task.size):
        for place in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if state.slots[indices[place]] >= 0:
                _fill_row(state, indices[place], scratch)
                eta[i] += data[place] * scratch.weights[task[i]]


@inner(error_model="numpy")
def _add_to_averages(state: GradientSums, task: IntArray) -> None:
    """Add the weights after a round to the totals of the tasks that took part."""
    scratch = _scratch(state)
    fill_intercepts(state, scratch.weights)
    for k in task:
        state.table[INTERCEPT_TOTAL, k] += scratch.weights[k]
    for j in range(state.slots.size):
        slot = state.slots[j]
        if slot >= 0:
            _fill_row(state, j, scratch)
            for k in task:
                state.totals[slot, k] += scratch.weights[k]


@njit(cache=True, nogil=True, error_model="numpy")
def learn_dense(X: FloatArray, seen: Observations, rounds: Schedule, growing: bool, state: GradientSums) -> int:
    """Learn a batch of dense rows, whose features all have slots; the number of rounds that went well."""
    n_rounds = rounds.starts.size - 1
    eta, columns = np.empty(state.n_tasks), np.empty((X.shape[1], state.n_tasks))
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        rows, task = taken(seen.rows, chosen), taken(seen.task, chosen)
        expect_rows(state.slope, state.table, state.pool, seen, chosen)
        fill_columns(X, rows, columns)
        predict_dense(columns, task, state, eta)
        if not learn_targets(state.slope, state.centre, state.table, state.pool, seen, chosen, eta, growing):
            return r
        add_dense(columns, task, eta, state.slots, state.sums)
        if state.pool[AVERAGE] != 0.0:
            _add_to_averages(state, task)
    return n_rounds


@njit(cache=True, nogil=True, error_model="numpy")
def learn_sparse(X: SparseRows, seen: Observations, rounds: Schedule, growing: bool, state: GradientSums) -> int:
    """Learn a batch of CSR rows, whose features all have slots; the number of rounds that went well."""
    n_rounds = rounds.starts.size - 1
    simple = _has_simple_rows(state) and state.pool[SHARED_MEAN] == 0.0
    eta, work = np.empty(state.n_tasks), np.empty((2, state.slots.size), dtype=np.uint32)
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        expect_rows(state.slope, state.table, state.pool, seen, chosen)
        if simple:
            predict_learned(
                X,
                seen,
                chosen,
                eta,
                work,
                state.n_tasks,
                state.sums,
                state.bounds,
                state.table,
                state.pool,
                state.sparsity,
            )
        else:
            rows, task = taken(seen.rows, chosen), taken(seen.task, chosen)
            predict_sparse(X.data, X.indices, X.indptr, rows, task, state, eta)
        well = learn_targets(state.slope, state.centre, state.table, state.pool, seen, chosen, eta, growing)
        add_sparse(X, seen, chosen, eta, well, state.sums, state.bounds, state.table)
        if not well:
            return r
        if state.pool[AVERAGE] != 0.0:
            _add_to_averages(state, taken(seen.task, chosen))
    return n_rounds
