"""The search of `bayesmtfs.em.evidence` where it is small, compiled: steps, drops, additions and swaps on Gram matrices.

With few features a posterior takes a few microseconds, and what Python needs around it twenty times as long. Here are
the same moves in the same order for the plain case: squared loss, unrelated tasks, one feature per row, and Gram
matrices that are known. Systems are factored by LAPACK, whose functions come as addresses; everything else is loops.

A swap needs what every row would bring if row i were out. With ``c_ij = x_j' C^-1 x_i`` that is a change of rank one,

    z_j <- z_j + gamma_i c_ij^2 / (1 - gamma_i z_i),      g_j <- g_j + gamma_i c_ij g_i / (1 - gamma_i z_i),

so that one system serves the swaps of all rows.
"""

import math
from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from scipy.linalg.lapack import dpotrf, dtrtri

from bayesmtfs.compiled import LEAN, inner, lean
from bayesmtfs.families.family import INTERPRETED, Address
from bayesmtfs.types import FloatArray, IntArray

FAST = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered; infinities and NaN keep their meaning
LARGEST_TRACE = 1e11  # of a system in units of the noise, for which a Cholesky factor is exact enough
LEAST_RESIDUAL = 1e-7  # share of the squared targets below which a difference of moments does not tell the residual
VANISHING = 1e-6  # of the mean share that the data determine, below which a shrinking row is gone
CAUTIOUS_STEPS = 5  # after a bold step that failed
ROUNDING = 1e-12
EVEN = 1e-9  # spread of curvatures, relative to their mean, up to which they are equal
GROWTH = 4  # at most one row for so many that are in comes in at once, and one more
MOST_CANDIDATES = 64  # rows whose gain is computed
MOST_SWAPS = 64  # rows from which swaps are too many
LOWEST_UNIT, UNIT_STEP, N_UNITS, COARSE_STEP = 1e-3, 0.125 * math.log(10.0), 57, 4  # variances that are tried
N_COARSE = (N_UNITS - 1) // COARSE_STEP + 1
N_TRIALS = N_COARSE + 2 * COARSE_STEP - 1  # the coarse grid, and the neighbours of its best point
SMALLEST_SHARE = 1e-15  # of a row that the data leave open
FACTORS_AT_ONCE = 16  # numbers whose product is taken before its logarithm: none overflows
BEGIN, PRUNE, ADD, SWAP = 0, 1, 2, 3  # what a search does: each also does what comes before it
OVERSHOOT = 3  # posteriors of the last step, which is not cut short

# Numbers lie in few tables, since every array that a function takes is paid for when it is compiled
NOISE, DEGREES, QUADRATIC, LOG_DET, OBJECTIVE, N_STATE = 0, 1, 2, 3, 4, 5  # of tasks; the first objective counts
SQUARES, FREE, COUNTS, FLOOR, N_KNOWN = (
    0,
    1,
    2,
    3,
    4,
)  # of tasks: y'y, observations that the noise explains, rows, least noise
VARIANCE, SCORES, CURVATURES = 0, 1, 2  # of active rows: scores and curvatures of task t lie 2 t further
ROOT, COLUMN, LOSS, GAIN, BEST_VARIANCE, LIKELY, N_WORK = 0, 1, 2, 3, 4, 5, 6  # of features; their scores follow
SYSTEM, ROTATED = 0, 1  # square matrices
ORDER, INSIDE, STAYS, N_NUMBERS = 0, 1, 2, 3  # whole numbers of features
USED, KEPT, FAILED = 0, 1, 2  # of a tally: posteriors, objectives in the trace, whether there was no factor


class Moments(NamedTuple):
    """Data and rules of a search."""

    grams: FloatArray  # (D, p, p), D is 1 or m
    products: FloatArray  # (m + 1, p), the largest row variances last
    tasks: FloatArray  # (N_KNOWN, m)
    row_cost: float
    fixed: float  # part of the objective that does not depend on anything
    learn_noise: bool
    shared_noise: bool
    potrf: Address
    trtri: Address


class Point(NamedTuple):
    """A state with its posterior; of the rows only the first entries count."""

    active: IntArray  # (p + 1,), their number last
    rows: FloatArray  # (1 + 2 m, p)
    tasks: FloatArray  # (N_STATE, m)


class Room(NamedTuple):
    """Arrays to work in."""

    squares: FloatArray  # (2, p, p)
    cross: FloatArray  # (m, min(p, MOST_SWAPS), p)
    features: FloatArray  # (N_WORK + 2 m, p)
    changed: FloatArray  # (2, m) squared scores and curvatures of one row
    numbers: IntArray  # (N_NUMBERS, p)
    trace: FloatArray  # objectives on the way
    tally: IntArray  # (3,)


# ---------------------------------------------------------------------- LAPACK

_code: Any = cgutils


def _lapack(letters: str) -> Any:
    """Function ``(address, matrix, n)`` that calls LAPACK on the leading n x n part of a matrix; gives its ``info``."""

    def call(_: Any, address: Any, matrix: Any, n: Any) -> Any:
        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            number, text = _code.int32_t, _code.voidptr_t
            array = context.make_array(matrix)(context, builder, arguments[1])
            stride = builder.extract_value(array.strides, 0)
            width = builder.trunc(builder.sdiv(stride, stride.type(8)), number)
            size = builder.trunc(arguments[2], number)
            info = _code.alloca_once_value(builder, number(0))
            places = [_code.alloca_once_value(builder, _code.int8_t(ord(letter))) for letter in letters]
            values = [*places, _code.alloca_once_value(builder, size), builder.bitcast(array.data, text)]
            values = [*values, _code.alloca_once_value(builder, width), info]
            values = [builder.bitcast(value, text) for value in values]
            kind = _code.ir.FunctionType(_code.ir.VoidType(), [text] * len(values)).as_pointer()
            builder.call(builder.inttoptr(arguments[0], kind), values)
            return builder.load(info)

        return types.int32(types.intp, matrix, types.intp), generate

    return (lambda function, matrix, n: function(matrix, n)) if INTERPRETED else intrinsic(call)


# A lower triangle in rows is an upper one in the columns that LAPACK reads
_cholesky, _invert = _lapack("U"), _lapack("UN")


def _interpreted_cholesky(matrix: FloatArray, n: int) -> int:
    factor, info = dpotrf(matrix[:n, :n], lower=1)
    matrix[:n, :n] = factor
    return int(info)


def _interpreted_inverse(matrix: FloatArray, n: int) -> int:
    inverse, info = dtrtri(matrix[:n, :n], lower=1)
    matrix[:n, :n] = inverse
    return int(info)


def lapack() -> tuple[Address, Address]:
    """Addresses of the Cholesky factor and of the inverse of a triangle."""
    if INTERPRETED:
        return _interpreted_cholesky, _interpreted_inverse
    home = "scipy.linalg.cython_lapack"
    return get_cython_function_address(home, "dpotrf"), get_cython_function_address(home, "dtrtri")


# ---------------------------------------------------------------------- the posterior


@inner(**LEAN)
def _size(point: Point) -> int:
    return point.active[point.active.size - 1]


@inner(**LEAN, fastmath=FAST)
def _factor(moments: Moments, point: Point, room: Room, t: int) -> float:
    """Inverse R of the Cholesky factor of ``I + tau S`` as a lower triangle; ln|C|, or NaN if there is none."""
    n, tau, design, R = _size(point), 1.0 / point.tasks[NOISE, t], _design(moments, t), room.squares[SYSTEM]
    trace, log_det = 0.0, 0.0
    for i in range(n):
        root, j = math.sqrt(point.rows[VARIANCE, i]), point.active[i]
        room.features[ROOT, i] = root
        for k in range(i + 1):
            R[i, k] = tau * root * room.features[ROOT, k] * moments.grams[design, j, point.active[k]]
        trace += R[i, i]
        R[i, i] += 1.0
    if not trace < LARGEST_TRACE or (n > 0 and _cholesky(moments.potrf, R, n) != 0):
        return math.nan
    for i in range(n):
        log_det += math.log(R[i, i])
    if n > 0:
        _invert(moments.trtri, R, n)
    return 2.0 * log_det


@inner(**LEAN)
def _design(moments: Moments, t: int) -> int:
    return t if moments.grams.shape[0] > 1 else 0


@inner(**LEAN, fastmath=FAST)
def _rotated(room: Room, i: int) -> float:
    """Entry i of R times the scaled products of a task, which stand in the column."""
    total = 0.0
    for k in range(i + 1):
        total += room.squares[SYSTEM, i, k] * room.features[COLUMN, k]
    return total


@inner(**LEAN)
def _scale_products(moments: Moments, point: Point, room: Room, t: int) -> None:
    for i in range(_size(point)):
        room.features[COLUMN, i] = room.features[ROOT, i] * moments.products[t, point.active[i]]


@inner(**LEAN)
def _solve_task(moments: Moments, point: Point, room: Room, t: int) -> None:
    """Score, curvature and the rest of one task from the inverse factor."""
    n, tau, R = _size(point), 1.0 / point.tasks[NOISE, t], room.squares[SYSTEM]
    score, curvature = point.rows[SCORES + 2 * t], point.rows[CURVATURES + 2 * t]
    _scale_products(moments, point, room, t)
    explained, degrees = 0.0, 0.0
    for i in range(n):
        score[i] = 0.0
        curvature[i] = 0.0
        rotated = _rotated(room, i)
        explained += rotated * rotated
        for k in range(i + 1):
            score[k] += rotated * R[i, k]
            curvature[k] += R[i, k] * R[i, k]
    for i in range(n):
        determined = 1.0 - curvature[i]
        degrees += determined
        curvature[i] = determined / point.rows[VARIANCE, i]
        score[i] *= tau / room.features[ROOT, i]
    point.tasks[DEGREES, t] = degrees
    point.tasks[QUADRATIC, t] = tau * (moments.tasks[SQUARES, t] - tau * explained)


@inner(**LEAN)
def _is_next_system(moments: Moments, point: Point, t: int) -> bool:
    """Whether the system of a task is not that of the task before."""
    return t == 0 or moments.grams.shape[0] > 1 or point.tasks[NOISE, t] != point.tasks[NOISE, t - 1]


@inner(**LEAN)
def _evaluate(moments: Moments, point: Point, room: Room) -> bool:
    """Posterior and objective; False where there is no exact enough factor."""
    twice, log_det = moments.fixed, 0.0
    for t in range(point.tasks.shape[1]):
        if _is_next_system(moments, point, t):
            log_det = _factor(moments, point, room, t)
        if math.isnan(log_det):
            return False
        _solve_task(moments, point, room, t)
        point.tasks[LOG_DET, t] = log_det
        twice += log_det + point.tasks[QUADRATIC, t] + moments.tasks[FREE, t] * math.log(point.tasks[NOISE, t])
    point.tasks[OBJECTIVE, 0] = 0.5 * twice + moments.row_cost * _size(point)
    return True


# ---------------------------------------------------------------------- steps


@inner(**LEAN)
def _residual_square(point: Point, t: int) -> float:
    """``y' C^-1 y`` less what it holds of the coefficients, in units of y."""
    total = point.tasks[QUADRATIC, t]
    for i in range(_size(point)):
        score = point.rows[SCORES + 2 * t, i]
        total -= point.rows[VARIANCE, i] * score * score
    return total * point.tasks[NOISE, t]


@inner(**LEAN)
def _better_noise(noise: float, square: float, free: float, degrees: float, count: float, boldness: float) -> float:
    """Noise variance of the next step, as in `NormalEvidence.improved`."""
    if free <= 1e-12 * count:
        return noise
    if boldness == 1.0:
        left = free - degrees
        return square / (left if left > 0.01 * free else 0.01 * free)
    if boldness == 0.0:
        return (square + noise * degrees) / free
    left = count - degrees if count - degrees > 1e-12 * count else 1e-12 * count
    v, k = left / noise, free - count
    return (math.sqrt(k * k + 4.0 * v * square) - k) / (2.0 * v)


@inner(**LEAN)
def _step_noise(moments: Moments, point: Point, other: Point, boldness: float) -> bool:
    """Noise of the next step; False where the moments do not tell the residuals."""
    m, known, exact = point.tasks.shape[1], moments.tasks, True
    size = m if moments.shared_noise else 1  # tasks whose noise moves together
    square = free = degrees = counts = 0.0
    for t in range(m):
        if t % size == 0:
            square = free = degrees = counts = 0.0
        own = _residual_square(point, t)
        exact = exact and own > LEAST_RESIDUAL * known[SQUARES, t]
        square, degrees = square + own, degrees + point.tasks[DEGREES, t]
        free, counts = free + known[FREE, t], counts + known[COUNTS, t]
        if t % size == size - 1:
            for u in range(t - size + 1, t + 1):
                found = _better_noise(point.tasks[NOISE, u], square, free, degrees, counts, boldness)
                other.tasks[NOISE, u] = found if found > known[FLOOR, u] else known[FLOOR, u]
    return exact


@inner(**LEAN)
def _step_row(variance: float, curvature: float, squared_score: float, m: int, boldness: float) -> float:
    """Variance of a row after a step."""
    if boldness == 0.0:
        return variance * (1.0 + variance * (squared_score - curvature) / m)
    if curvature <= 0.0:
        return variance
    ratio, power = squared_score / curvature, 2.0 * math.sqrt(variance * curvature / m)
    if boldness == 0.5:
        return variance * math.sqrt(ratio)
    return variance * (ratio if power >= 1.0 else ratio**power)


@inner(**LEAN)
def _step(moments: Moments, point: Point, other: Point, room: Room, boldness: float) -> bool:
    """Improve row variances and noise from one posterior; rows that vanish leave."""
    n, m, shares = _size(point), point.tasks.shape[1], 0.0
    for i in range(n):
        curvature, squared = 0.0, 0.0
        for t in range(m):
            score = point.rows[SCORES + 2 * t, i]
            curvature, squared = curvature + point.rows[CURVATURES + 2 * t, i], squared + score * score
        room.features[ROOT, i], room.features[COLUMN, i] = curvature, squared
        shares += point.rows[VARIANCE, i] * curvature
    _empty(point, other)
    for i in range(n):
        curvature, squared, variance = room.features[ROOT, i], room.features[COLUMN, i], point.rows[VARIANCE, i]
        if variance * curvature * n < VANISHING * shares and squared < curvature:
            continue
        found, largest = _step_row(variance, curvature, squared, m, boldness), moments.products[m, point.active[i]]
        _append(other, point.active[i], found if found < largest else largest)
    return not moments.learn_noise or _step_noise(moments, point, other, boldness)


@inner(**LEAN)
def _empty(point: Point, other: Point) -> None:
    """Leave the other point with no rows and the noise of the first."""
    other.active[other.active.size - 1] = 0
    for t in range(point.tasks.shape[1]):
        other.tasks[NOISE, t] = point.tasks[NOISE, t]


@inner(**LEAN)
def _append(point: Point, feature: int, variance: float) -> None:
    """Bring in a row."""
    n = _size(point)
    point.active[n] = feature
    point.rows[VARIANCE, n] = variance
    point.active[point.active.size - 1] = n + 1


@inner(**LEAN)
def _copy(source: Point, target: Point) -> None:
    n = _size(source)
    for i in range(n):
        target.active[i] = source.active[i]
    target.active[target.active.size - 1] = n
    for row in range(source.rows.shape[0]):
        for i in range(n):
            target.rows[row, i] = source.rows[row, i]
    for row in range(N_STATE):
        for t in range(source.tasks.shape[1]):
            target.tasks[row, t] = source.tasks[row, t]


@inner(**LEAN)
def _is_over(room: Room) -> bool:
    """Whether there is no posterior left to compute, or none could be."""
    return room.tally[USED] >= room.trace.size - OVERSHOOT or room.tally[FAILED] != 0


@inner(**LEAN)
def _try(moments: Moments, point: Point, other: Point, room: Room) -> bool:
    """Move to another state unless the objective is higher there."""
    room.tally[USED] += 1
    if not _evaluate(moments, other, room):
        room.tally[FAILED] = 1
        return False
    before = point.tasks[OBJECTIVE, 0]
    if not other.tasks[OBJECTIVE, 0] <= before + ROUNDING * abs(before):
        return False
    _copy(other, point)
    room.trace[room.tally[KEPT]] = point.tasks[OBJECTIVE, 0]
    room.tally[KEPT] += 1
    return True


@inner(**LEAN)
def _try_step(moments: Moments, point: Point, other: Point, room: Room, boldness: float) -> bool:
    if not _step(moments, point, other, room, boldness):
        room.tally[FAILED] = 1
        return False
    return _try(moments, point, other, room)


@inner(**LEAN)
def _descend(moments: Moments, point: Point, other: Point, room: Room, enough: float) -> None:
    """Step until the objective has twice fallen by less than enough."""
    cautious = calm = 0
    while calm < 2 and not _is_over(room):
        before, boldness, moved = point.tasks[OBJECTIVE, 0], 1.0 if cautious == 0 else 0.5, False
        while not moved and boldness >= 0.0:
            moved = _try_step(moments, point, other, room, boldness)
            if boldness == 1.0 and not moved:
                cautious = CAUTIOUS_STEPS
            boldness -= 0.5
        if not moved:
            return
        cautious -= cautious > 0
        calm = calm + 1 if before - point.tasks[OBJECTIVE, 0] < enough else 0


# ---------------------------------------------------------------------- what rows are worth


@inner(**LEAN)
def _find_losses(point: Point, room: Room) -> None:
    """Log evidence that would be lost without each row, and the rows in the order of that."""
    for i in range(_size(point)):
        total, product, variance = 0.0, 1.0, point.rows[VARIANCE, i]
        for t in range(point.tasks.shape[1]):
            score, left = point.rows[SCORES + 2 * t, i], 1.0 - variance * point.rows[CURVATURES + 2 * t, i]
            left = left if left > SMALLEST_SHARE else SMALLEST_SHARE
            total += variance * score * score / left
            product *= left
            if t % FACTORS_AT_ONCE == FACTORS_AT_ONCE - 1:
                total += math.log(product)
                product = 1.0
        room.features[LOSS, i] = 0.5 * (total + math.log(product))
        _insert(room, i)


@inner(**LEAN)
def _insert(room: Room, i: int) -> None:
    """Bring row i into the order of losses of the rows before it."""
    place = i
    while place > 0 and room.features[LOSS, room.numbers[ORDER, place - 1]] > room.features[LOSS, i]:
        room.numbers[ORDER, place] = room.numbers[ORDER, place - 1]
        place -= 1
    room.numbers[ORDER, place] = i


@inner(**LEAN)
def _gain_at(room: Room, variance: float) -> float:
    """Log evidence that the changed row brings at a variance."""
    total, product = 0.0, 1.0
    for t in range(room.changed.shape[1]):
        more = 1.0 + variance * room.changed[1, t]
        total += variance * room.changed[0, t] / more
        product *= more
        if t % FACTORS_AT_ONCE == FACTORS_AT_ONCE - 1:
            total -= math.log(product)
            product = 1.0
    return 0.5 * (total - math.log(product))


@inner(**LEAN)
def _find_gain(room: Room, j: int, ratio: float, mean: float, even: bool) -> None:
    """Most log evidence that the changed row may bring, and its variance then: in closed form, or on a grid."""
    best, variance, place = 0.5 * room.changed.shape[1] * (ratio - 1.0 - math.log(ratio)), (ratio - 1.0) / mean, 0
    for trial in range(0 if even else N_TRIALS):
        if trial == 0:
            best = -math.inf
        # first the whole grid in long steps, then the neighbours of the best
        unit = COARSE_STEP * trial if trial < N_COARSE else place + trial - N_COARSE - COARSE_STEP + 1
        found = LOWEST_UNIT * math.exp(UNIT_STEP * unit) / mean
        gain = _gain_at(room, found) if 0 <= unit < N_UNITS else best
        if gain > best:
            best, variance = gain, found
            place = unit if trial < N_COARSE else place
    room.features[GAIN, j], room.features[BEST_VARIANCE, j] = best, variance


@inner(**LEAN)
def _change_row(point: Point, room: Room, j: int, out: int) -> float:
    """Curvatures and squared scores of row j where active row ``out`` (-1: none) is taken out; the ratio of their sums."""
    curvatures, squares = 0.0, 0.0
    for t in range(point.tasks.shape[1]):
        score, curvature = room.features[N_WORK + 2 * t, j], room.features[N_WORK + 2 * t + 1, j]
        if out >= 0:
            left = 1.0 - point.rows[VARIANCE, out] * point.rows[CURVATURES + 2 * t, out]
            share = (
                point.rows[VARIANCE, out] * room.cross[t, out, j] / (left if left > SMALLEST_SHARE else SMALLEST_SHARE)
            )
            curvature, score = (
                curvature + share * room.cross[t, out, j],
                score + share * point.rows[SCORES + 2 * t, out],
            )
        room.changed[0, t], room.changed[1, t] = score * score, curvature
        squares, curvatures = squares + score * score, curvatures + curvature
    return squares / curvatures if curvatures > 0.0 else 0.0


@inner(**LEAN)
def _take_likely(room: Room) -> int:
    """Feature of the largest number in that row, which becomes 0; -1 if none is positive."""
    best = 0
    for j in range(room.features.shape[1]):
        if room.features[LIKELY, j] > room.features[LIKELY, best]:
            best = j
    if room.features[LIKELY, best] <= 0.0:
        return -1
    room.features[LIKELY, best] = 0.0
    return best


@inner(**LEAN)
def _find_gains(moments: Moments, point: Point, room: Room, out: int) -> None:
    """Gains of the rows that are likely to bring most and are not in, after active row ``out`` is taken out."""
    p, m = room.features.shape[1], point.tasks.shape[1]
    for j in range(p):
        room.features[GAIN, j], room.features[LIKELY, j] = 0.0, 0.0
        if room.numbers[INSIDE, j] == 0:
            ratio = _change_row(point, room, j, out)
            room.features[LIKELY, j] = ratio - 1.0 - math.log(ratio) if ratio > 1.0 else 0.0
    for _ in range(MOST_CANDIDATES):
        j = _take_likely(room)
        if j < 0:
            return
        ratio = _change_row(point, room, j, out)
        mean, low, high = 0.0, math.inf, 0.0
        for t in range(m):
            value = room.changed[1, t]
            mean, low, high = mean + value / m, value if value < low else low, value if value > high else high
        _find_gain(room, j, ratio, mean, high - low <= EVEN * mean)
        if room.features[BEST_VARIANCE, j] > moments.products[m, j]:
            room.features[BEST_VARIANCE, j] = moments.products[m, j]


@inner(**LEAN)
def _rotate_all(moments: Moments, point: Point, room: Room, design: int) -> None:
    """``R`` times the scaled rows of the Gram matrix of the active features."""
    p = room.features.shape[1]
    for i in range(_size(point)):
        for j in range(p):
            room.squares[ROTATED, i, j] = 0.0
        for k in range(i + 1):
            share, feature = room.squares[SYSTEM, i, k] * room.features[ROOT, k], point.active[k]
            for j in range(p):
                room.squares[ROTATED, i, j] += share * moments.grams[design, feature, j]


@inner(**LEAN)
def _rotate_back(point: Point, room: Room, t: int) -> None:
    """Products ``x_j' C^-1 x_i`` of every feature with the active ones."""
    n, p, tau = _size(point), room.features.shape[1], 1.0 / point.tasks[NOISE, t]
    for i in range(n):
        for j in range(p):
            room.cross[t, i, j] = 0.0
        for k in range(i, n):
            share = tau * room.squares[SYSTEM, k, i] / room.features[ROOT, i]
            for j in range(p):
                room.cross[t, i, j] += share * room.squares[ROTATED, k, j]


@inner(**LEAN)
def _find_candidates(moments: Moments, point: Point, room: Room, crossing: bool) -> None:
    """Curvatures and scores of all features and, where that is asked for, their products with the active ones."""
    n, p = _size(point), room.features.shape[1]
    for j in range(p):
        room.numbers[INSIDE, j] = 0
    for i in range(n):
        room.numbers[INSIDE, point.active[i]] = 1
    for t in range(point.tasks.shape[1]):
        tau, design = 1.0 / point.tasks[NOISE, t], _design(moments, t)
        score, curvature = room.features[N_WORK + 2 * t], room.features[N_WORK + 2 * t + 1]
        if _is_next_system(moments, point, t):
            _factor(moments, point, room, t)
            _rotate_all(moments, point, room, design)
        _scale_products(moments, point, room, t)
        for j in range(p):
            score[j], curvature[j] = tau * moments.products[t, j], tau * moments.grams[design, j, j]
        for i in range(n):
            product = tau * tau * _rotated(room, i)
            for j in range(p):
                value = room.squares[ROTATED, i, j]
                score[j] -= product * value
                curvature[j] -= tau * tau * value * value
        for j in range(p):
            curvature[j] = curvature[j] if curvature[j] > 0.0 else 0.0
        if crossing:
            _rotate_back(point, room, t)


# ---------------------------------------------------------------------- rows that come and go


@inner(**LEAN)
def _keep_rows(point: Point, other: Point, room: Room, n_cheap: int, out: int) -> None:
    """Take out the first rows of the order, and row ``out`` where it is not -1."""
    n = _size(point)
    for i in range(n):
        room.numbers[STAYS, i] = i != out
    for i in range(n_cheap):
        room.numbers[STAYS, room.numbers[ORDER, i]] = 0
    _empty(point, other)
    for i in range(n):
        if room.numbers[STAYS, i] != 0:
            _append(other, point.active[i], point.rows[VARIANCE, i])


@inner(**LEAN)
def _try_fewer(moments: Moments, point: Point, other: Point, room: Room, n: int, out: int, move: int) -> bool:
    """Take out n rows, the cheapest, or bring in n, the best; if that does not help half or a quarter of them."""
    while n > 0 and not _is_over(room):
        _keep_rows(point, other, room, n if move == PRUNE else 0, out)
        for j in range(room.features.shape[1]):
            room.features[LIKELY, j] = room.features[GAIN, j]
        for _ in range(0 if move == PRUNE else n):
            best = _take_likely(room)
            _append(other, best, room.features[BEST_VARIANCE, best])
        if _try(moments, point, other, room):
            return True
        n //= 2 if move == PRUNE else 4  # rows can stand in for each other: not all may go at once
    return False


@inner(**LEAN)
def _n_cheap(moments: Moments, point: Point, room: Room) -> int:
    """Rows that are not worth their cost."""
    n = 0
    while n < _size(point) and room.features[LOSS, room.numbers[ORDER, n]] < moments.row_cost:
        n += 1
    return n


@inner(**LEAN)
def _n_worth(moments: Moments, point: Point, room: Room, enough: float, out: int) -> int:
    """Rows that may come in at once: that bring more than they cost, or more than row ``out`` in whose place they come."""
    _find_gains(moments, point, room, out)
    least, most, worth = moments.row_cost + ROUNDING * abs(point.tasks[OBJECTIVE, 0]), 1 + _size(point) // GROWTH, 0
    if out >= 0:
        least, most = room.features[LOSS, out] + enough, 1
    for j in range(room.features.shape[1]):
        worth += room.features[GAIN, j] > least and room.features[GAIN, j] > 0.0
    return worth if worth < most else most


@inner(**LEAN)
def _change_rows(moments: Moments, point: Point, other: Point, room: Room, enough: float, move: int) -> bool:
    """Drop rows that are not worth their cost, add rows that are, or put rows in the places of others worth less.

    False where there are none, or too many to look at.
    """
    n, p = _size(point), room.features.shape[1]
    if _is_over(room) or (move == ADD and n == p) or (move == SWAP and n > MOST_SWAPS):
        return False
    if move == PRUNE:
        _find_losses(point, room)
    else:
        _find_candidates(moments, point, room, move == SWAP)
    for place in range(n if move == SWAP else 1):
        out = room.numbers[ORDER, place] if move == SWAP else -1
        changed = _n_cheap(moments, point, room) if move == PRUNE else _n_worth(moments, point, room, enough, out)
        if _try_fewer(moments, point, other, room, changed, out, move):
            return True
    return False


@lean()
def search(moments: Moments, point: Point, other: Point, room: Room, enough: float, moves: int) -> None:
    """Descend and drop rows in turn and, with further moves, bring in and perhaps swap rows until nothing changes.

    With ``BEGIN`` only the posterior of the point is computed.
    """
    if moves == BEGIN:
        room.tally[FAILED] = not _evaluate(moments, point, room)
        return
    moved = True
    while moved:
        _descend(moments, point, other, room, enough)
        moved = False
        for move in range(PRUNE, moves + 1):
            moved = moved or _change_rows(moments, point, other, room, enough, move)
