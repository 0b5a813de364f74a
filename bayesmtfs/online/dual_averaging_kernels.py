"""Compiled parts of dual averaging: weights from gradient sums, passes over sparse rows, rounds, single rows.

**Weights.** Gradient sums S are ``(rows, tasks)``, one row per feature that was met so far. With ``g_k = S_jk inverse_k``
(the average gradient of task k) and u the proximal point of g, the weight is ``w_jk = -step_k u_k``: nothing but the sums
is stored, and a weight costs one pass over the m entries of its row. With a shared mean the weight gains
``w_0j = -sum_k S_jk pull_k / scale``. Numbers per task are rows of one table, so that they lie side by side over the
tasks; what the rows are is known in this file.

**Sparse rows.** ``bounds[slot]`` is at least the norm of a feature's row of average gradients: it tells most features that
the penalty keeps at zero without a look at their m sums. While a round is learned, ``-bounds[slot]`` is the norm itself,
found once for all rows of the round that hold the feature; adding the round's gradients makes it a bound again. Each pass
is a short loop without a branch that depends on the data, and what the next pass reads is fetched ahead: a stream of many
features is limited by its memory, not by its arithmetic.

**Rounds.** A round has at most one row per task: the i-th row of each task in a batch belongs to the batch's i-th round.
All rows of a round are predicted with the weights that the rounds before it left, so that their order does not matter.

**Single rows** are rounds by themselves, to the last bit, at the least price of a call. A compiled function takes an
array or a number at a fraction of what a named tuple of them costs, so that the state comes as `flat_state`, and only for
the common learners: a penalty on entries or rows, neither groups nor a general norm, no shared mean, no average. What is
wrong with a row is found inside as well, before anything has changed.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from bayesmtfs.compiled import LEAN, inner, lean
from bayesmtfs.families.family import INTERPRETED, Address, call_centre, call_slope
from bayesmtfs.priors.row_prox import ZERO_SLACK
from bayesmtfs.types import FloatArray, IntArray

SlotArray = NDArray[np.int32]
PlaceArray = NDArray[np.uint32]  # slots of features that all have one: no index is negative

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
REACH = 14  # sqrt(t) times the curvature for which steps had to be made, of a loss without a bound
SINCE = 15  # clock at which the totals of the average began
N_QUANTITIES = 16

# Entries of the pool: numbers over all tasks, and behind them the rules
POOLED_TARGETS, POOLED_WEIGHT, LARGEST_TARGET, PROGRESSIVE_LOSS, CONSTANT_LOSS, N_POOLED = 0, 1, 2, 3, 4, 5
CURVATURE, LABELS, COUNTS, QUADRATIC, KIND, NORM_Q, STRENGTH, GAMMA = range(N_POOLED, N_POOLED + 8)
CAUTION, MEAN_STRENGTH, FIT_INTERCEPT, SHARED_MEAN, AVERAGE, SUMMED, STEADY, SPARSITY = range(
    N_POOLED + 8, N_POOLED + 16
)

FROM_TARGETS, FROM_PREDICTIONS = 0.0, -1.0  # where the curvature of a loss comes from that has no bound of it
ENTRIES, ROWS, GENERAL = 0, 1, 2  # what the penalty makes zero: single entries, rows by the 2-norm, rows by any norm
LINE = 8  # numbers of a line of the cache
LANE = 4  # numbers that a processor takes at once: the columns of the sums come in multiples of it
UNREADABLE = -1  # a single row with numbers that are not finite or features out of range: nothing was learned
DIVERGED_AT = -2  # a single row that has diverged: this less the number of features met
EXPLODED = 1e6  # a prediction this many times the largest target seen has diverged
MEAN_SHARE = 0.01  # of the mean squared column norm: default ridge on the shared mean
FARTHEST, BISECTIONS = 1e15, 60  # of the search for a constant
NUDGE = 1e-4  # of eta, to see the slope change
SHORTER, SHORTEST = 0.8, 1e-15  # factor of a prediction that is too far out, and all of them together

# Sums may be reordered (that makes them fast); infinities and NaN keep their meaning
FAST = {"reassoc", "contract", "arcp", "nsz"}


class Rules(NamedTuple):
    """What does not change: loss, penalty, step size; all but the functions stand in the pool, in this order."""

    slope: Address  # of the family's slope
    centre: Address  # 0: found from the slope
    curvature: float  # bound of the second derivative, FROM_TARGETS or FROM_PREDICTIONS
    labels: bool  # targets are -1 and +1
    counts: bool  # targets are whole numbers of at least 0
    quadratic: bool
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
    steady: bool  # steps do not shrink


class GradientSums(NamedTuple):
    """What a learner is: its loss, gradient sums and the numbers per task, which change in place."""

    slope: Address
    centre: Address
    n_tasks: int
    slots: SlotArray  # (p,) row of each feature in the sums, -1 where it was not met yet
    sums: FloatArray  # (rows, columns) gradient sums, more columns than tasks
    totals: FloatArray  # the same for the weights over the rounds, or (0, 0)
    bounds: FloatArray  # (rows,) at least the 2-norm of the average gradients of each row
    table: FloatArray  # (N_QUANTITIES, columns)
    pool: FloatArray  # (SPARSITY + 1,) numbers over all tasks, then the rules and the first entry of sparsity
    sparsity: FloatArray  # (1,) or (p,) r of each feature
    group_of: SlotArray  # (p,) group of each feature, or (0,)
    group_starts: SlotArray  # (groups + 1,), or (0,)
    members: SlotArray  # features, group by group


class Scratch(NamedTuple):
    """Room for the weights of one feature, and what they share."""

    buffer: FloatArray  # (longest row,) of a general norm or a group
    work: FloatArray  # (WORK_ROWS x longest row,)
    weights: FloatArray  # (m,)
    scale: float  # of the shared mean


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
    places: PlaceArray  # (nnz,) rows of the sums


class Schedule(NamedTuple):
    """Which observations make up which round."""

    order: IntArray  # (N,) observations, round by round
    starts: IntArray  # (rounds + 1,)


# ---------------------------------------------------------------------- numbers per task


@inner(**LEAN)
def _mean_slope(slope: Address, labels: bool, counts: bool, total: float, weight: float, eta: float) -> float:
    """Derivative at a constant, times a positive number: of both labels, or of the mean target.

    Half a row is added to each label and half a count to all counts, so that it has a root.
    """
    if labels:
        positive, negative = call_slope(slope, 1.0, eta)[1], call_slope(slope, -1.0, eta)[1]
        return (total + 0.5) * positive + (weight - total + 0.5) * negative
    return call_slope(slope, (total + (0.5 if counts else 0.0)) / weight, eta)[1]


@inner(**LEAN)
def _searched_constant(slope: Address, labels: bool, counts: bool, total: float, weight: float) -> float:
    """Root of the mean slope, by bisection."""
    low, high = -1.0, 1.0
    while _mean_slope(slope, labels, counts, total, weight, low) > 0.0 and low > -FARTHEST:
        low *= 2.0
    while _mean_slope(slope, labels, counts, total, weight, high) < 0.0 and high < FARTHEST:
        high *= 2.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if _mean_slope(slope, labels, counts, total, weight, middle) > 0.0:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)


@inner(**LEAN)
def best_constant(slope: Address, centre: Address, pool: FloatArray, total: float, weight: float) -> float:
    """Constant of the smallest loss so far: the family's own, or one that is searched for."""
    if centre:
        return call_centre(centre, total, weight)
    if weight == 0.0:
        return 0.0
    return _searched_constant(slope, pool[LABELS] != 0.0, pool[COUNTS] != 0.0, total, weight)


@inner(**LEAN)
def _curvature_at(slope: Address, labels: bool, table: FloatArray, k: int, eta: float) -> float:
    """Second derivative of the loss of a usual target of task k: the mean so far, or a positive label."""
    weight = table[WEIGHT, k]
    y = 1.0 if labels or weight == 0.0 else table[TARGETS, k] / weight
    width = NUDGE * max(abs(eta), 1.0)
    above, below = call_slope(slope, y, eta + width)[1], call_slope(slope, y, eta - width)[1]
    return (above - below) / (2.0 * width)


@inner(**LEAN)
def _needed_curvature(slope: Address, labels: bool, table: FloatArray, k: int, seen: float) -> float:
    """Curvature at the best constant, or what predictions needed before."""
    found = max(_curvature_at(slope, labels, table, k, table[CENTRE, k]), table[REACH, k] / math.sqrt(seen))
    return found if found > 0.0 else 1.0


@inner(**LEAN)
def _curvature(slope: Address, table: FloatArray, pool: FloatArray, k: int, seen: float) -> float:
    """Bound of the second derivative, or what plays its part; for kinks one over the size of eta."""
    if pool[CURVATURE] > 0.0:
        return pool[CURVATURE]
    if pool[CURVATURE] == FROM_TARGETS:
        return seen / table[DEVIATIONS, k] if table[DEVIATIONS, k] > 0.0 else 1.0
    return _needed_curvature(slope, pool[LABELS] != 0.0, table, k, seen)


@inner(**LEAN)
def _drawn_in(slope: Address, labels: bool, table: FloatArray, k: int, eta: float) -> float:
    """Return a prediction that is near enough to the task's constant for the step.

    The step is safe where the curvature is at most sqrt(t) times the one that it was made for; the prediction is drawn
    towards the constant until that holds, and the steps that follow are made as short.
    """
    rounds, centre = table[CLOCK, k] + 1.0, table[CENTRE, k]
    most = math.sqrt(rounds) * _needed_curvature(slope, labels, table, k, rounds)
    share = 1.0
    while share > SHORTEST and not _curvature_at(slope, labels, table, k, centre + share * (eta - centre)) <= most:
        share *= SHORTER
    if share == 1.0:
        return eta
    table[REACH, k] = most / share
    return centre + share * (eta - centre)


@inner(**LEAN)
def cautious(slope: Address, table: FloatArray, pool: FloatArray, k: int, eta: float) -> float:
    """Return a prediction at which the step is safe, where the curvature of the loss has no bound."""
    if pool[CURVATURE] != FROM_PREDICTIONS or pool[GAMMA] > 0.0 or table[CLOCK, k] == 0.0:
        return eta
    return _drawn_in(slope, pool[LABELS] != 0.0, table, k, eta)


@inner(**LEAN)
def set_step(slope: Address, table: FloatArray, pool: FloatArray, k: int, ahead: float) -> None:
    """Bring the step of task k up to its clock; ``ahead=1`` where the squares hold one more row than the clock."""
    clock = table[CLOCK, k]
    gamma = pool[GAMMA]
    intercept_gamma = gamma
    if gamma == 0.0:
        seen = max(clock + ahead, 1.0)
        intercept_gamma = pool[CAUTION] * _curvature(slope, table, pool, k, seen)
        gamma = intercept_gamma * table[SQUARES, k] / seen
        if gamma == 0.0:
            gamma = 1.0  # rows without any feature
    size = table[SIZE, k] if pool[SUMMED] != 0.0 else 1.0
    weight = table[WEIGHT, k]
    inverse = size / weight if weight > 0.0 else 0.0
    root = clock if pool[STEADY] != 0.0 else math.sqrt(clock)
    table[INVERSE, k] = inverse
    table[STEP, k] = root / (gamma * size) if clock > 0.0 else 0.0
    table[INTERCEPT_STEP, k] = root / (intercept_gamma * size) if clock > 0.0 else 0.0
    table[PULL, k] = root / gamma * inverse
    table[INTERCEPT_PULL, k] = root / intercept_gamma * inverse


@inner(**LEAN)
def _learn_target(
    slope: Address,
    centre: Address,
    table: FloatArray,
    pool: FloatArray,
    k: int,
    y: float,
    weight: float,
    eta: float,
    growing: bool,
) -> float:
    """Let task k learn its own numbers from a row with this prediction; the weighted derivative of its loss."""
    loss, derivative = call_slope(slope, y, eta)
    constant, _ = call_slope(slope, y, table[CENTRE, k])
    pool[PROGRESSIVE_LOSS] += weight * loss
    pool[CONSTANT_LOSS] += weight * constant
    has_intercept = pool[FIT_INTERCEPT] != 0.0
    if pool[CURVATURE] == FROM_TARGETS and (table[CLOCK, k] > 0.0 or not has_intercept):
        table[DEVIATIONS, k] += abs(y - table[CENTRE, k])
    counted = y
    if pool[LABELS] != 0.0:
        counted = 1.0 if y > 0.0 else 0.0
    table[CLOCK, k] += 1.0
    table[WEIGHT, k] += weight
    table[TARGETS, k] += weight * counted
    pool[POOLED_TARGETS] += weight * counted
    pool[POOLED_WEIGHT] += weight
    pool[LARGEST_TARGET] = max(pool[LARGEST_TARGET], abs(y))
    if growing:
        table[SIZE, k] += weight
    if has_intercept:
        table[INTERCEPT_SUM, k] += weight * derivative
        table[CENTRE, k] = best_constant(slope, centre, pool, table[TARGETS, k], table[WEIGHT, k])
    set_step(slope, table, pool, k, 0.0)
    return weight * derivative


@inner(**LEAN)
def _expect_row(slope: Address, table: FloatArray, pool: FloatArray, k: int, squares: float) -> None:
    """Let a step that follows the data know the row that is about to be predicted: x is known before y."""
    table[SQUARES, k] += squares
    if pool[GAMMA] == 0.0:
        set_step(slope, table, pool, k, 1.0)


@inner(**LEAN)
def _has_diverged(pool: FloatArray, y: float, eta: float) -> bool:
    """Whether a prediction is not finite or, under a quadratic loss, far beyond anything seen."""
    if pool[QUADRATIC] == 0.0:
        return not math.isfinite(eta)
    largest = max(abs(y), pool[LARGEST_TARGET])
    return not abs(eta) <= EXPLODED * max(largest, 1e-300)


# ---------------------------------------------------------------------- weights


@inner(**LEAN)
def soft(value: float, cut: float) -> float:
    """Soft threshold."""
    if cut == 0.0:
        return value
    return math.copysign(abs(value) - cut, value) if abs(value) > cut else 0.0


@inner(**LEAN)
def cut_of(pool: FloatArray, sparsity: FloatArray, j: int) -> float:
    """Soft threshold of the gradients of feature j: lambda for single entries, lambda r_j of eq. (12) for rows."""
    if pool[KIND] == ENTRIES:
        return pool[STRENGTH]
    return pool[STRENGTH] * (sparsity[0] if sparsity.size == 1 else sparsity[j])


@inner(**LEAN, fastmath=FAST)
def _squared_norm(sums: FloatArray, slot: int, inverse: FloatArray, n: int, cut: float) -> float:
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


@inner(**LEAN)
def _kept_share(pool: FloatArray, sums: FloatArray, slot: int, inverse: FloatArray, n_tasks: int, cut: float) -> float:
    """``[1 - strength / norm]_+`` of eq. (10) and (11) for the norm of a row; 1 where single entries are made zero."""
    strength = pool[STRENGTH]
    if pool[KIND] != ROWS or strength == 0.0:
        return 1.0
    norm = math.sqrt(_squared_norm(sums, slot, inverse, n_tasks, cut))
    return 1.0 - strength / norm if norm > strength * (1.0 + ZERO_SLACK) else 0.0


@inner(error_model="numpy")
def fill_simple_row(
    slot: int, cut: float, sums: FloatArray, table: FloatArray, pool: FloatArray, out: FloatArray
) -> None:
    """Weights of one feature where they are a soft threshold and a factor."""
    inverse, step = table[INVERSE], table[STEP]
    share = _kept_share(pool, sums, slot, inverse, out.size, cut)
    for k in range(out.size):
        out[k] = 0.0 - step[k] * share * soft(sums[slot, k] * inverse[k], cut)  # no zero with a sign


@njit(cache=True, nogil=True, error_model="numpy")
def fill_weights(
    features: IntArray,
    W: FloatArray,
    slots: SlotArray,
    sums: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> None:
    """Weights (features, tasks) of features that were all met."""
    for i in range(features.size):
        j = features[i]
        fill_simple_row(slots[j], cut_of(pool, sparsity, j), sums, table, pool, W[i])


@inner(**LEAN)
def intercept_of(table: FloatArray, k: int) -> float:
    """Unpenalised intercept of one task; 0 where none is learned."""
    return table[CENTRE, k] - table[INTERCEPT_STEP, k] * table[INVERSE, k] * table[INTERCEPT_SUM, k]


# ---------------------------------------------------------------------- rows of a sparse design


_code: Any = cgutils  # writes the instructions that stand behind a compiled call


def _fetch_entry(_: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Hint to the processor: fetch ``matrix[row, column]``, both not negative, into the cache, since it is needed soon.

    The gradient sums of a sparse stream are read and written at random places of a large matrix. A load that misses the
    cache holds up all that comes after it; a hint does not, so that the waiting times of a row's entries overlap.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(matrix)(context, builder, arguments[0])
        place = _code.get_item_pointer(context, builder, matrix, array, arguments[1:], wraparound=False)
        number, pointer = _code.int32_t, _code.voidptr_t
        kind = _code.ir.FunctionType(_code.ir.VoidType(), [pointer, number, number, number])
        hint = _code.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        for_writing, keep_close, data = number(1), number(3), number(1)
        builder.call(hint, [builder.bitcast(place, pointer), for_writing, keep_close, data])
        return context.get_dummy_value()

    return types.void(matrix, types.intp, types.intp), generate


prefetch: Any = (lambda *_: None) if INTERPRETED else intrinsic(_fetch_entry)


@lean()
def claim_slots(slots: SlotArray, indices: NDArray[np.int32], used: int, places: PlaceArray) -> int:
    """Give every feature that is met for the first time a row of the sums; how many have one, and places of all entries."""
    for e in range(indices.size):
        slot = slots[indices[e]]
        if slot < 0:
            slot = np.int32(used)
            slots[indices[e]] = slot
            used += 1
        places[e] = slot
    return used


@inner(**LEAN)
def _predicted_product(
    data: FloatArray,
    indices: NDArray[np.int32],
    k: int,
    n_tasks: int,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> float:
    """Product of a row's entries with their proximal steps in task k; nothing changes."""
    inverse = table[INVERSE]
    bounded = pool[KIND] == ROWS and pool[SUMMED] == 0.0
    total = 0.0
    for place in range(indices.size):
        slot = slots[indices[place]]
        if slot < 0 or (bounded and bounds[slot] <= pool[STRENGTH]) or sums[slot, k] == 0.0:
            continue  # not met, or known to be zero without a look at the other tasks
        cut = cut_of(pool, sparsity, indices[place])
        share = _kept_share(pool, sums, slot, inverse, n_tasks, cut)
        total += data[place] * share * soft(sums[slot, k] * inverse[k], cut)
    return total


@inner(**LEAN)
def _find_live(places: PlaceArray, k: int, sums: FloatArray, bounds: FloatArray, cut: float, live: PlaceArray) -> int:
    """Entries whose features may have weights; the sums of task k are fetched for all, since the row adds to them.

    Of features that may have weights the next line is fetched as well: their norms are needed.
    """
    n = 0
    far = k + LINE if k + LINE < sums.shape[1] else max(k - LINE, 0)
    for place in range(places.size):
        live[n] = place
        is_live = abs(bounds[places[place]]) > cut
        prefetch(sums, places[place], k)
        prefetch(sums, places[place], far if is_live else k)
        n += is_live
    return n


@inner(**LEAN)
def _find_norms(
    indices: NDArray[np.int32],
    places: PlaceArray,
    live: PlaceArray,
    n_live: int,
    unknown: PlaceArray,
    n_tasks: int,
    sums: FloatArray,
    bounds: FloatArray,
    inverse: FloatArray,
    strength: float,
    cuts: FloatArray,
) -> None:
    """Replace the bounds of live entries by the norms themselves, with a minus where the penalty leaves a weight."""
    n = 0
    for i in range(n_live):
        unknown[n] = live[i]
        n += bounds[places[live[i]]] > 0.0
    largest_zero = strength * (1.0 + ZERO_SLACK)
    for i in range(n):
        slot = places[unknown[i]]
        cut = strength * (cuts[0] if cuts.size == 1 else cuts[indices[unknown[i]]])
        norm = math.sqrt(_squared_norm(sums, slot, inverse, n_tasks, cut))
        bounds[slot] = norm if norm <= largest_zero else -norm


@inner(**LEAN)
def _learned_product(
    data: FloatArray,
    indices: NDArray[np.int32],
    places: PlaceArray,
    k: int,
    n_tasks: int,
    work: PlaceArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> float:
    """Return the same for a row that is about to be learned; the norms that were needed stay noted in the bounds.

    There is room in the two rows of ``work`` for one number per entry.
    """
    inverse, strength = table[INVERSE, k], pool[STRENGTH]
    total = 0.0
    if pool[KIND] != ROWS:
        for place in range(places.size):
            total += data[place] * soft(sums[places[place], k] * inverse, strength)
        return total
    live = work[0]
    n_live = _find_live(places, k, sums, bounds, 0.0 if pool[SUMMED] != 0.0 else strength, live)
    _find_norms(indices, places, live, n_live, work[1], n_tasks, sums, bounds, table[INVERSE], strength, sparsity)
    if sparsity.size == 1 and sparsity[0] == 0.0:  # the same without thresholds
        for i in range(n_live):
            place = live[i]
            slot = places[place]
            norm = -bounds[slot]
            gradient = sums[slot, k] * inverse
            total += data[place] * (1.0 - strength / norm) * gradient if norm > 0.0 else 0.0
        return total
    for i in range(n_live):
        place = live[i]
        slot = places[place]
        norm = -bounds[slot]
        gradient = soft(sums[slot, k] * inverse, cut_of(pool, sparsity, indices[place]))
        total += data[place] * (1.0 - strength / norm) * gradient if norm > 0.0 else 0.0
    return total


@inner(**LEAN)
def _add_sparse_row(
    data: FloatArray, places: PlaceArray, k: int, slope: float, sums: FloatArray, bounds: FloatArray, inverse: float
) -> None:
    """Add the gradient of a row to the sums of its features, and to the bounds on their norms.

    An average gradient shrinks as its task's clock ticks, so that the norm of a row never grows by more than this.
    """
    share = abs(slope) * inverse
    for place in range(places.size):
        slot = places[place]
        sums[slot, k] += slope * data[place]
        bounds[slot] = abs(bounds[slot]) + share * abs(data[place])


# ---------------------------------------------------------------------- rounds


@njit(cache=True, nogil=True, error_model="numpy")
def round_schedule(task: IntArray, n_tasks: int) -> Schedule:
    """Rounds of a batch whose rows belong to these tasks."""
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
    return Schedule(order, starts)


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


@inner(**LEAN, fastmath=FAST)
def _squared_length(values: FloatArray) -> float:
    """Sum of squares."""
    total = 0.0
    for value in values:
        total += value * value
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def row_squares(values: FloatArray, pointer: IntArray) -> FloatArray:
    """(n,) Squared length of every row."""
    squares = np.empty(pointer.size - 1)
    for i in range(squares.size):
        squares[i] = _squared_length(values[pointer[i] : pointer[i + 1]])
    return squares


@inner(error_model="numpy")
def _are_all_in_order(task: IntArray) -> bool:
    for i in range(task.size):
        if task[i] != i:
            return False
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def start_predictions(task: IntArray, table: FloatArray, eta: FloatArray) -> None:
    """Write the intercepts of the rows' tasks into eta."""
    for i in range(task.size):
        eta[i] = intercept_of(table, task[i])


@njit(cache=True, nogil=True, error_model="numpy")
def add_dense_products(
    columns: FloatArray,
    task: IntArray,
    eta: FloatArray,
    n_tasks: int,
    slots: SlotArray,
    sums: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> None:
    """Add the products of dense rows, given as columns (p, n), with their weights; a feature is prepared once for all."""
    inverse, step = table[INVERSE], table[STEP]
    in_order = _are_all_in_order(task)
    for j in range(columns.shape[0]):
        slot = slots[j]
        if slot < 0:
            continue
        cut = cut_of(pool, sparsity, j)
        share = _kept_share(pool, sums, slot, inverse, n_tasks, cut)
        if share == 0.0:
            continue
        if in_order and cut == 0.0:  # the same without jumps
            for i in range(task.size):
                eta[i] -= columns[j, i] * (share * step[i] * (sums[slot, i] * inverse[i]))
        else:
            for i in range(task.size):
                k = task[i]
                eta[i] -= columns[j, i] * (share * step[k] * soft(sums[slot, k] * inverse[k], cut))


@njit(cache=True, nogil=True, error_model="numpy")
def add_sparse_products(
    data: FloatArray,
    indices: NDArray[np.int32],
    indptr: NDArray[np.int32],
    task: IntArray,
    eta: FloatArray,
    n_tasks: int,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> None:
    """Add the products of CSR rows with their weights."""
    for i in range(task.size):
        row = slice(indptr[i], indptr[i + 1])
        product = _predicted_product(
            data[row], indices[row], task[i], n_tasks, slots, sums, bounds, table, pool, sparsity
        )
        eta[i] -= table[STEP, task[i]] * product


@inner(error_model="numpy")
def taken(values: IntArray, chosen: IntArray) -> IntArray:
    """Return ``values[chosen]``, as a loop, which compiles faster."""
    found = np.empty(chosen.size, dtype=np.int64)
    for i in range(chosen.size):
        found[i] = values[chosen[i]]
    return found


@inner(**LEAN)
def expect_rows(slope: Address, table: FloatArray, pool: FloatArray, seen: Observations, chosen: IntArray) -> None:
    """Let the steps of the tasks know the rows of a round."""
    for i in chosen:
        _expect_row(slope, table, pool, seen.task[i], seen.squares[seen.rows[i]])


@inner(**LEAN)
def learn_targets(
    slope: Address,
    centre: Address,
    table: FloatArray,
    pool: FloatArray,
    seen: Observations,
    chosen: IntArray,
    eta: FloatArray,
    growing: bool,
) -> bool:
    """Overwrite the predictions of a round by its weighted derivatives; False where a prediction has diverged."""
    for i in range(chosen.size):
        one = chosen[i]
        eta[i] = cautious(slope, table, pool, seen.task[one], eta[i])
        if _has_diverged(pool, seen.y[one], eta[i]):
            return False
    for i in range(chosen.size):
        one = chosen[i]
        eta[i] = _learn_target(
            slope, centre, table, pool, seen.task[one], seen.y[one], seen.weight[one], eta[i], growing
        )
    return True


@inner(error_model="numpy")
def add_dense(columns: FloatArray, task: IntArray, slopes: FloatArray, slots: SlotArray, sums: FloatArray) -> None:
    """Add the gradients of a round to the sums."""
    in_order = _are_all_in_order(task)
    for j in range(columns.shape[0]):
        slot = slots[j]
        if in_order:
            for i in range(task.size):
                sums[slot, i] += slopes[i] * columns[j, i]
        else:
            for i in range(task.size):
                sums[slot, task[i]] += slopes[i] * columns[j, i]


@inner(error_model="numpy")
def fill_columns(X: FloatArray, rows: IntArray, columns: FloatArray) -> None:
    """Copy rows side by side, as the loops over tasks read them."""
    for i in range(rows.size):
        for j in range(X.shape[1]):
            columns[j, i] = X[rows[i], j]


@njit(cache=True, nogil=True, error_model="numpy")
def learn_dense(
    X: FloatArray,
    seen: Observations,
    rounds: Schedule,
    growing: bool,
    n_tasks: int,
    slope: Address,
    centre: Address,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> int:
    """Learn a batch of dense rows, whose features all have slots; the number of rounds that went well."""
    n_rounds = rounds.starts.size - 1
    eta, columns = np.empty(n_tasks), np.empty((X.shape[1], n_tasks))
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        rows, task = taken(seen.rows, chosen), taken(seen.task, chosen)
        expect_rows(slope, table, pool, seen, chosen)
        fill_columns(X, rows, columns)
        start_predictions(task, table, eta)
        add_dense_products(columns, task, eta, n_tasks, slots, sums, table, pool, sparsity)
        if not learn_targets(slope, centre, table, pool, seen, chosen, eta, growing):
            return r
        add_dense(columns, task, eta, slots, sums)
    return n_rounds


@inner(**LEAN)
def predict_learned(
    X: SparseRows,
    seen: Observations,
    chosen: IntArray,
    eta: FloatArray,
    work: PlaceArray,
    n_tasks: int,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> None:
    """Predictions of CSR rows that are learned next: the norms of their features are left in the bounds."""
    for i in range(chosen.size):
        k, row = seen.task[chosen[i]], seen.rows[chosen[i]]
        part = slice(X.indptr[row], X.indptr[row + 1])
        product = _learned_product(
            X.data[part], X.indices[part], X.places[part], k, n_tasks, work, sums, bounds, table, pool, sparsity
        )
        eta[i] = intercept_of(table, k) - table[STEP, k] * product


@inner(**LEAN)
def add_sparse(
    X: SparseRows,
    seen: Observations,
    chosen: IntArray,
    slopes: FloatArray,
    well: bool,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
) -> None:
    """Add the gradients of a round to the sums of the features that occur in it.

    Where it went not ``well`` nothing is added, but the norms that it noted are bounds again.
    """
    for i in range(chosen.size):
        k, row = seen.task[chosen[i]], seen.rows[chosen[i]]
        part = slice(X.indptr[row], X.indptr[row + 1])
        slope = slopes[i] if well else 0.0
        _add_sparse_row(X.data[part], X.places[part], k, slope, sums, bounds, table[INVERSE, k])


@lean()
def learn_sparse(
    X: SparseRows,
    seen: Observations,
    rounds: Schedule,
    growing: bool,
    eta: FloatArray,
    work: PlaceArray,
    n_tasks: int,
    slope: Address,
    centre: Address,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
    sparsity: FloatArray,
) -> int:
    """Learn a batch of CSR rows, whose features all have slots; the number of rounds that went well.

    There is room in ``eta`` for a number per task, in the two rows of ``work`` for one per feature.
    """
    n_rounds = rounds.starts.size - 1
    for r in range(n_rounds):
        chosen = rounds.order[rounds.starts[r] : rounds.starts[r + 1]]
        expect_rows(slope, table, pool, seen, chosen)
        predict_learned(X, seen, chosen, eta, work, n_tasks, sums, bounds, table, pool, sparsity)
        well = learn_targets(slope, centre, table, pool, seen, chosen, eta, growing)
        add_sparse(X, seen, chosen, eta, well, sums, bounds, table)
        if not well:
            return r
    return n_rounds


# ---------------------------------------------------------------------- single rows


def pool_with_rules(rules: Rules, sparsity: FloatArray) -> FloatArray:
    """Numbers over all tasks, none so far, with the rules but their functions behind them, so that both are one array."""
    return np.concatenate([np.zeros(N_POOLED), np.array(rules[2:], dtype=np.float64), sparsity[:1]])


def flat_state(state: GradientSums) -> tuple[Any, ...]:
    """What follows the data in the calls of simple learners, but for the sparsity."""
    return (state.n_tasks, state.slope, state.centre, state.slots, state.sums, state.bounds, state.table, state.pool)


def is_simple(state: GradientSums) -> bool:
    """Whether a weight is a soft threshold and a factor: no general norm, no groups, no shared mean."""
    shape = state.pool[KIND] == ENTRIES or (state.pool[KIND] == ROWS and state.group_of.size == 0)
    return bool(shape and state.pool[SHARED_MEAN] == 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def learn_dense_row(
    X: FloatArray,
    y: float,
    k: int,
    n_tasks: int,
    slope: Address,
    centre: Address,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
) -> int:
    """Learn one dense row (1, p), whose features all have slots; the number of features, or what went wrong."""
    row = X[0]
    squares = _squared_length(row)
    if not math.isfinite(squares + y):
        return UNREADABLE
    _expect_row(slope, table, pool, k, squares)
    inverse, sparsity = table[INVERSE], pool[SPARSITY:]
    eta = intercept_of(table, k)
    cut = cut_of(pool, sparsity, 0)
    for j in range(row.size):
        share = _kept_share(pool, sums, slots[j], inverse, n_tasks, cut)
        if share != 0.0:
            eta -= row[j] * (share * table[STEP, k] * soft(sums[slots[j], k] * inverse[k], cut))
    eta = cautious(slope, table, pool, k, eta)
    if _has_diverged(pool, y, eta):
        return DIVERGED_AT - row.size
    derivative = _learn_target(slope, centre, table, pool, k, y, 1.0, eta, True)
    for j in range(row.size):
        sums[slots[j], k] += derivative * row[j]
        bounds[j] = np.inf
    return row.size


@lean()
def learn_sparse_row(
    data: FloatArray,
    indices: NDArray[np.int32],
    indptr: NDArray[np.int32],
    y: float,
    k: int,
    used: int,
    work: PlaceArray,
    n_tasks: int,
    slope: Address,
    centre: Address,
    slots: SlotArray,
    sums: FloatArray,
    bounds: FloatArray,
    table: FloatArray,
    pool: FloatArray,
) -> int:
    """Learn the one row of a CSR matrix, with room for its features; how many were met by now, or what went wrong.

    There is room in the three rows of ``work`` for one number per entry.
    """
    first, last = indptr[0], indptr[1]
    if first < 0 or last > min(data.size, indices.size):
        return UNREADABLE
    data, indices = data[first:last], indices[first:last]
    squares = _squared_length(data)
    if not math.isfinite(squares + y):
        return UNREADABLE
    before = -1
    for j in indices:  # in order, each once: a feature that is stored twice is the sum of both
        if j <= before or j >= slots.size:
            return UNREADABLE
        before = j
    places = work[2, : indices.size]
    used = claim_slots(slots, indices, used, places)
    _expect_row(slope, table, pool, k, squares)
    product = _learned_product(data, indices, places, k, n_tasks, work, sums, bounds, table, pool, pool[SPARSITY:])
    eta = cautious(slope, table, pool, k, intercept_of(table, k) - table[STEP, k] * product)
    if _has_diverged(pool, y, eta):
        _add_sparse_row(data, places, k, 0.0, sums, bounds, 0.0)  # the norms are bounds again
        return DIVERGED_AT - used
    derivative = _learn_target(slope, centre, table, pool, k, y, 1.0, eta, True)
    _add_sparse_row(data, places, k, derivative, sums, bounds, table[INVERSE, k])
    return used
