"""Compiled parts of dual averaging: one weight, one row of weights, one task's step, one loss.

Gradient sums S are ``(rows, tasks)``, one row per feature that was met so far. With ``g_k = S_jk inverse_k`` (the
average gradient of task k) and u the proximal point of g, the weight is ``w_jk = -step_k u_k``: nothing but the sums is
stored, and a weight costs one pass over the m entries of its row. With a shared mean the weight gains
``w_0j = -sum_k S_jk pull_k / scale``.

Numbers per task are rows of one table, so that they lie side by side over the tasks.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.priors.row_prox import WORK_ROWS, ZERO_SLACK, prox_row
from bayesmtfs.types import FloatArray, IntArray

SlotArray = NDArray[np.int32]

# Rows of the table: one number per task
CLOCK = 0  # t_k, rounds in which the task took part
WEIGHT = 1  # total weight of its rows
SIZE = 2  # total weight of its distinct rows, for the summed loss
SQUARES = 3  # sum of |x|^2
TARGETS = 4  # weighted sum of y, or weight of the rows with y > 0
DEVIATIONS = 5  # sum of |y - centre|
INTERCEPT_SUM = 6  # gradient sum of the intercept
INTERCEPT_TOTAL = 7  # sum of the intercepts over the task's rounds
INVERSE = 8  # average gradient = sum * inverse
STEP = 9  # weight = -step * proximal point
PULL = 10  # share of a gradient sum in the shared mean
CENTRE = 11  # best constant so far, from which the intercept is learned
INTERCEPT_STEP = 12
INTERCEPT_PULL = 13
N_QUANTITIES = 14

# Entries of the pool: numbers over all tasks
POOLED_TARGETS, POOLED_WEIGHT, LARGEST_TARGET, PROGRESSIVE_LOSS, CONSTANT_LOSS, N_POOLED = 0, 1, 2, 3, 4, 5

LOSSES = ("squared", "absolute", "logistic", "hinge")
SQUARED, ABSOLUTE, LOGISTIC, HINGE = 0, 1, 2, 3
ENTRIES, ROWS, GENERAL = 0, 1, 2  # what the penalty makes zero: single entries, rows by the 2-norm, rows by any norm
LANE = 4  # numbers that a processor takes at once: the columns of the sums come in multiples of it
EXPLODED = 1e6  # a prediction this many times the largest target seen has diverged
MEAN_SHARE = 0.01  # of the mean squared column norm: default ridge on the shared mean

# Sums may be reordered (that makes them fast); infinities and NaN keep their meaning
FAST = {"reassoc", "contract", "arcp", "nsz"}


class Rules(NamedTuple):
    """What does not change: loss, penalty, step size."""

    loss: int
    kind: int
    norm_q: float
    strength: float
    gamma: float  # 0: from the data
    caution: float  # half the number of blocks that move in one round and share the largest stable step
    mean_strength: float  # negative: from the data
    fit_intercept: bool
    shared_mean: bool
    average: bool
    summed: bool


class Sums(NamedTuple):
    """What changes: gradient sums and the numbers per task."""

    slots: SlotArray  # (p,) row of each feature in the sums, -1 where it was not met yet
    sums: FloatArray  # (rows, columns) gradient sums, more columns than tasks
    totals: FloatArray  # the same for the weights over the rounds, or (0, 0)
    bounds: FloatArray  # (rows,) at least the 2-norm of the average gradients of each row
    table: FloatArray  # (N_QUANTITIES, columns)
    pool: FloatArray  # (N_POOLED + ...) and after them a copy of the rules
    sparsity: FloatArray  # (1,) or (p,) r of each feature
    group_of: IntArray  # (p,) group of each feature, or (0,)
    group_starts: IntArray  # (groups + 1,)
    members: IntArray  # features, group by group


@njit(cache=True, nogil=True, error_model="numpy")
def loss_and_slope(loss: int, y: float, eta: float) -> tuple[float, float]:
    """Loss and its (sub)gradient in eta, as in `bayesmtfs.families`."""
    if loss == SQUARED:
        residual = eta - y
        return 0.5 * residual * residual, residual
    if loss == ABSOLUTE:
        residual = eta - y
        return abs(residual), np.sign(residual)
    margin = y * eta
    if loss == HINGE:
        return (1.0 - margin, -y) if margin < 1.0 else (0.0, 0.0)
    tail = math.exp(-abs(margin))
    wrong = tail / (1.0 + tail) if margin > 0.0 else 1.0 / (1.0 + tail)
    return max(-margin, 0.0) + math.log1p(tail), -y * wrong


@njit(cache=True, nogil=True, error_model="numpy")
def _scale_of_curvature(rules: Rules, table: FloatArray, k: int, seen: float) -> float:
    """Second derivative of the loss, or for a kinked one what plays its part: one over the size of eta."""
    if rules.loss == LOGISTIC:
        return 0.25
    if rules.loss == ABSOLUTE and table[DEVIATIONS, k] > 0.0:
        return seen / table[DEVIATIONS, k]
    return 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def set_step(rules: Rules, table: FloatArray, k: int, ahead: float) -> None:
    """Bring the step of task k up to its clock; ``ahead=1`` where the squares hold one more row than the clock."""
    clock = table[CLOCK, k]
    gamma = rules.gamma
    intercept_gamma = rules.gamma
    if rules.gamma == 0.0:
        seen = max(clock + ahead, 1.0)
        intercept_gamma = rules.caution * _scale_of_curvature(rules, table, k, seen)
        gamma = intercept_gamma * table[SQUARES, k] / seen
        if gamma == 0.0:
            gamma = 1.0  # rows without any feature
    size = table[SIZE, k] if rules.summed else 1.0
    weight = table[WEIGHT, k]
    inverse = size / weight if weight > 0.0 else 0.0
    root = math.sqrt(clock)
    table[INVERSE, k] = inverse
    table[STEP, k] = root / (gamma * size) if clock > 0.0 else 0.0
    table[INTERCEPT_STEP, k] = root / (intercept_gamma * size) if clock > 0.0 else 0.0
    table[PULL, k] = root / gamma * inverse
    table[INTERCEPT_PULL, k] = root / intercept_gamma * inverse


@njit(cache=True, nogil=True, error_model="numpy")
def _best_constant(loss: int, targets: float, weight: float) -> float:
    if loss == HINGE or weight == 0.0:
        return 0.0
    if loss == LOGISTIC:
        return math.log((targets + 0.5) / (weight - targets + 0.5))
    return targets / weight


@njit(cache=True, nogil=True, error_model="numpy")
def advance(
    rules: Rules, table: FloatArray, pool: FloatArray, k: int, y: float, weight: float, slope: float, growing: bool
) -> None:
    """Let the clock of task k tick: one row with this target, weight and loss derivative was learned."""
    if rules.loss == ABSOLUTE and (table[CLOCK, k] > 0.0 or not rules.fit_intercept):
        table[DEVIATIONS, k] += abs(y - table[CENTRE, k])
    counted = y
    if rules.loss >= LOGISTIC:
        counted = 1.0 if y > 0.0 else 0.0
    table[CLOCK, k] += 1.0
    table[WEIGHT, k] += weight
    table[TARGETS, k] += weight * counted
    pool[POOLED_TARGETS] += weight * counted
    pool[POOLED_WEIGHT] += weight
    pool[LARGEST_TARGET] = max(pool[LARGEST_TARGET], abs(y))
    if growing:
        table[SIZE, k] += weight
    if rules.fit_intercept:
        table[INTERCEPT_SUM, k] += weight * slope
        table[CENTRE, k] = _best_constant(rules.loss, table[TARGETS, k], table[WEIGHT, k])
    set_step(rules, table, k, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def mean_scales(rules: Rules, table: FloatArray, n_tasks: int, n_features: int) -> tuple[float, float]:
    """Divisors of the shared mean and of its intercept: ``sum_k n_k + mean_strength * a`` with the mean step a."""
    if not rules.shared_mean:
        return 1.0, 1.0
    total = 0.0
    steps = 0.0
    squares = 0.0
    seen = 0
    for k in range(n_tasks):
        if table[CLOCK, k] > 0.0:
            size = table[SIZE, k] if rules.summed else 1.0
            total += size
            steps += table[STEP, k] * size
            squares += size * table[SQUARES, k] / table[CLOCK, k]
            seen += 1
    if seen == 0:
        return 1.0, 1.0
    strength = rules.mean_strength if rules.mean_strength >= 0.0 else MEAN_SHARE * squares / n_features
    return total + strength * steps / seen, total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _dot(row: FloatArray, other: FloatArray, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += row[k] * other[k]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def soft(value: float, cut: float) -> float:
    """Soft threshold."""
    if cut == 0.0:
        return value
    return math.copysign(abs(value) - cut, value) if abs(value) > cut else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def cut_of(rules: Rules, sparsity: FloatArray, j: int) -> float:
    """Soft threshold of the gradients of feature j: lambda for single entries, lambda r_j of eq. (12) for rows."""
    if rules.kind == ENTRIES:
        return rules.strength
    return rules.strength * (sparsity[0] if sparsity.size == 1 else sparsity[j])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def squared_norm(sums: FloatArray, slot: int, inverse: FloatArray, n: int, cut: float) -> float:
    """Squared 2-norm of the average gradients of a row, soft thresholded (eq. 12) where there is a cut."""
    total = 0.0
    padded = LANE * ((n + LANE - 1) // LANE)  # what is beyond the tasks is 0, and whole lanes are faster
    if cut == 0.0:
        for k in range(padded):
            gradient = sums[slot, k] * inverse[k]
            total += gradient * gradient
    else:
        for k in range(padded):
            gradient = max(abs(sums[slot, k] * inverse[k]) - cut, 0.0)
            total += gradient * gradient
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def kept_share(norm: float, strength: float) -> float:
    """``[1 - strength / norm]_+`` of eq. (10) and (11)."""
    if strength == 0.0:
        return 1.0
    return 1.0 - strength / norm if norm > strength * (1.0 + ZERO_SLACK) else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def is_simple(rules: Rules, state: Sums) -> bool:
    """Whether a weight is a soft threshold and a factor: no general norm, no groups of features."""
    return rules.kind == ENTRIES or (rules.kind == ROWS and state.group_of.size == 0)


@njit(cache=True, nogil=True, error_model="numpy")
def fill_general(rules: Rules, state: Sums, j: int, n_tasks: int, buffer: FloatArray, work: FloatArray) -> int:
    """Proximal point of the row of feature j, all features of its group side by side; where j begins in it."""
    inverse = state.table[INVERSE]
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
        cut = cut_of(rules, state.sparsity, feature)
        for k in range(n_tasks):
            buffer[length] = soft(state.sums[slot, k] * inverse[k], cut) if slot >= 0 else 0.0
            length += 1
    if rules.kind != ENTRIES and rules.strength > 0.0:
        prox_row(buffer[:length], rules.strength, rules.norm_q, work[:, :length], 0.0)
    return offset


@njit(cache=True, nogil=True, error_model="numpy")
def fill_row(
    rules: Rules, state: Sums, j: int, n_tasks: int, scale: float, buffer: FloatArray, work: FloatArray, out: FloatArray
) -> None:
    """Weights of feature j, which has a slot, in all tasks."""
    slot = state.slots[j]
    inverse, step = state.table[INVERSE], state.table[STEP]
    if is_simple(rules, state):
        cut = cut_of(rules, state.sparsity, j)
        factor = 1.0
        if rules.kind == ROWS:
            factor = kept_share(math.sqrt(squared_norm(state.sums, slot, inverse, n_tasks, cut)), rules.strength)
        for k in range(n_tasks):
            out[k] = 0.0 - step[k] * factor * soft(state.sums[slot, k] * inverse[k], cut)  # no zero with a sign
    else:
        offset = fill_general(rules, state, j, n_tasks, buffer, work)
        for k in range(n_tasks):
            out[k] = 0.0 - step[k] * buffer[offset + k]
    if rules.shared_mean:
        mean = -_dot(state.sums[slot], state.table[PULL], n_tasks) / scale
        for k in range(n_tasks):
            out[k] += mean


@njit(cache=True, nogil=True, error_model="numpy")
def fill_intercepts(rules: Rules, state: Sums, n_tasks: int, scale: float, out: FloatArray) -> None:
    """Intercepts of all tasks: free, or with a shared mean a free b_0 and one more penalised row."""
    table = state.table
    if not rules.fit_intercept:
        for k in range(n_tasks):
            out[k] = 0.0
        return
    if not rules.shared_mean:
        for k in range(n_tasks):
            out[k] = intercept(table, k)
        return
    centre = _best_constant(rules.loss, state.pool[POOLED_TARGETS], state.pool[POOLED_WEIGHT])
    mean = centre - _dot(table[INTERCEPT_SUM], table[INTERCEPT_PULL], n_tasks) / scale
    deviations = np.empty(n_tasks)
    cut = rules.strength if rules.kind == ENTRIES else 0.0
    for k in range(n_tasks):
        deviations[k] = soft(table[INTERCEPT_SUM, k] * table[INVERSE, k], cut)
    if rules.kind != ENTRIES and rules.strength > 0.0:
        prox_row(deviations, rules.strength, rules.norm_q, np.empty((WORK_ROWS, n_tasks)), 0.0)
    for k in range(n_tasks):
        out[k] = mean - table[INTERCEPT_STEP, k] * deviations[k]


@njit(cache=True, nogil=True, error_model="numpy")
def intercept(table: FloatArray, k: int) -> float:
    """Unpenalised intercept of one task."""
    return table[CENTRE, k] - table[INTERCEPT_STEP, k] * table[INVERSE, k] * table[INTERCEPT_SUM, k]


@njit(cache=True, nogil=True, error_model="numpy")
def has_diverged(rules: Rules, pool: FloatArray, y: float, eta: float) -> bool:
    """Whether a prediction is not finite or, under the squared loss, far beyond anything seen."""
    if rules.loss != SQUARED:
        return not math.isfinite(eta)
    largest = max(abs(y), pool[LARGEST_TARGET])
    return not abs(eta) <= EXPLODED * max(largest, 1e-300)


@njit(cache=True, nogil=True, error_model="numpy")
def buffer_length(state: Sums, n_tasks: int) -> int:
    """Entries of the longest row that a general norm or a group needs at once."""
    largest = 1
    for group in range(state.group_starts.size - 1):
        largest = max(largest, state.group_starts[group + 1] - state.group_starts[group])
    return largest * n_tasks


@njit(cache=True, nogil=True, error_model="numpy")
def fill_weights(rules: Rules, state: Sums, features: IntArray, n_tasks: int, W: FloatArray) -> None:
    """Weights (features, tasks) of features that were all met."""
    width = buffer_length(state, n_tasks)
    buffer, work = np.empty(width), np.empty((WORK_ROWS, width))
    scale, _ = mean_scales(rules, state.table, n_tasks, state.slots.size)
    for i in range(features.size):
        fill_row(rules, state, features[i], n_tasks, scale, buffer, work, W[i])
