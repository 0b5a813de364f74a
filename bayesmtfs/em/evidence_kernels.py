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

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from scipy.linalg.lapack import dpotrf, dtrtri

from bayesmtfs.compiled import LEAN, inner, lean
from bayesmtfs.families.family import INTERPRETED, Address
from bayesmtfs.types import FloatArray, IntArray

FAST = {"reassoc", "contract", "arcp", "nsz"}  # sums may be reordered; infinities and NaN keep their meaning
LARGEST_TRACE = 1e11  # of a system in units of the noise, for which a Cholesky factor is exact enough
LEAST_RESIDUAL = 1e-9  # share of the squared targets below which a difference of moments does not tell the residual
VANISHING = 1e-6  # of the mean share that the data determine, below which a shrinking row is gone
CAUTIOUS_STEPS = 5  # after a bold step that failed
ROUNDING = 1e-12
EVEN = 1e-9  # spread of curvatures, relative to their mean, up to which they are equal
GROWTH = 0.25  # most rows that come in at once, as a share of those that are in
MOST_CANDIDATES = 64  # rows whose gain is computed
MOST_SWAPS = 64  # rows from which swaps are too many
LOWEST_UNIT, UNIT_RATIO, N_UNITS, COARSE_STEP = 1e-3, 10.0**0.125, 57, 4  # variances that are tried
FACTORS_AT_ONCE = 16  # numbers whose product is taken before its logarithm: none overflows
USED, KEPT, FAILED = 0, 1, 2  # entries of a tally
OVERSHOOT = 3  # posteriors of the last step, which is not cut short


class Moments(NamedTuple):
    """Data and rules of a search."""

    grams: FloatArray  # (D, p, p), D is 1 or m
    products: FloatArray  # (m, p)
    squares: FloatArray  # (m,) y'y
    free: FloatArray  # (m,) observations that the noise may explain
    counts: FloatArray  # (m,) rows
    floor: FloatArray  # (m,) least noise variances
    largest: FloatArray  # (p,) largest row variances
    row_cost: float
    fixed: float  # part of the objective that does not depend on anything
    learn_noise: bool
    shared_noise: bool
    potrf: Address
    trtri: Address


class Point(NamedTuple):
    """A state with its posterior; of the rows only the first ``size`` entries count."""

    size: IntArray  # (1,)
    active: IntArray  # (p,)
    variances: FloatArray  # (p,) gamma
    noise: FloatArray  # (m,) variances
    score: FloatArray  # (m, p) g
    curvature: FloatArray  # (m, p) z
    degrees: FloatArray  # (m,)
    quadratics: FloatArray  # (m,) y' C^-1 y
    values: FloatArray  # (2,) objective, ln|C|


class Room(NamedTuple):
    """Arrays to work in."""

    system: FloatArray  # (p, p)
    rotated: FloatArray  # (p, p)
    cross: FloatArray  # (m, min(p, MOST_SWAPS), p)
    all_curvatures: FloatArray  # (p, m)
    all_scores: FloatArray  # (p, m)
    row_curvatures: FloatArray  # (m,)
    row_scores: FloatArray  # (m,)
    root: FloatArray  # (p,)
    column: FloatArray  # (p,)
    loss: FloatArray  # (p,)
    gain: FloatArray  # (p,)
    variance: FloatArray  # (p,)
    likely: FloatArray  # (p,)
    order: IntArray  # (p,)
    inside: IntArray  # (p,) 1 for active features
    trace: FloatArray  # objectives on the way
    tally: IntArray  # posteriors computed, objectives in the trace, whether there was no factor


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


@inner(**LEAN, fastmath=FAST)
def _dot(a: FloatArray, b: FloatArray, n: int) -> float:
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total


@inner(**LEAN)
def _add_multiple(out: FloatArray, share: float, row: FloatArray, n: int) -> None:
    for i in range(n):
        out[i] += share * row[i]


@inner(**LEAN)
def _factor(moments: Moments, point: Point, room: Room, t: int) -> float:
    """Inverse R of the Cholesky factor of ``I + tau S``, in the lower triangle of the system; ln|C|, or NaN if there is none."""
    n, tau, root = point.size[0], 1.0 / point.noise[t], room.root
    gram = moments.grams[min(t, moments.grams.shape[0] - 1)]
    trace, log_det = 0.0, 0.0
    for i in range(n):
        root[i] = math.sqrt(point.variances[i])
        row = gram[point.active[i]]
        for k in range(i + 1):
            room.system[i, k] = tau * root[i] * root[k] * row[point.active[k]]
        trace += room.system[i, i]
        room.system[i, i] += 1.0
    if not trace < LARGEST_TRACE or (n > 0 and _cholesky(moments.potrf, room.system, n) != 0):
        return math.nan
    for i in range(n):
        log_det += math.log(room.system[i, i])
    if n > 0:
        _invert(moments.trtri, room.system, n)
    return 2.0 * log_det


@inner(**LEAN)
def _solve_task(moments: Moments, point: Point, room: Room, t: int) -> None:
    """Score, curvature and the rest of one task from the inverse factor."""
    n, tau, R, column = point.size[0], 1.0 / point.noise[t], room.system, room.column
    curvature, score = point.curvature[t], point.score[t]
    curvature[:n] = 0.0
    score[:n] = 0.0
    for i in range(n):
        column[i] = room.root[i] * moments.products[t, point.active[i]]
    explained = 0.0
    for i in range(n):
        rotated = _dot(R[i], column, i + 1)
        explained += rotated * rotated
        for k in range(i + 1):
            score[k] += rotated * R[i, k]
            curvature[k] += R[i, k] * R[i, k]
    point.degrees[t] = 0.0
    for i in range(n):
        determined = 1.0 - curvature[i]
        point.degrees[t] += determined
        curvature[i] = determined / point.variances[i]
        score[i] *= tau / room.root[i]
    point.quadratics[t] = tau * moments.squares[t] - tau * tau * explained


@inner(**LEAN)
def _has_one_system(moments: Moments, noise: FloatArray) -> bool:
    one = moments.grams.shape[0] == 1
    for t in range(1, noise.size):
        one = one and noise[t] == noise[0]
    return one


@inner(**LEAN)
def _evaluate(moments: Moments, point: Point, room: Room) -> bool:
    """Posterior and objective; False where there is no exact enough factor."""
    one, log_det, quadratic, constant = _has_one_system(moments, point.noise), 0.0, 0.0, moments.fixed
    found = 0.0
    for t in range(point.noise.size):
        if t == 0 or not one:
            found = _factor(moments, point, room, t)
        if math.isnan(found):
            return False
        _solve_task(moments, point, room, t)
        log_det += found
        quadratic += point.quadratics[t]
        constant += moments.free[t] * math.log(point.noise[t])
    point.values[0] = 0.5 * (log_det + quadratic + constant) + moments.row_cost * point.size[0]
    point.values[1] = log_det
    return True


# ---------------------------------------------------------------------- steps


@inner(**LEAN)
def _copy_numbers(source: Any, target: Any, n: int) -> None:
    for i in range(n):
        target[i] = source[i]


@inner(**LEAN)
def _residual_square(point: Point, t: int) -> float:
    """``y' C^-1 y`` less what it holds of the coefficients, in units of y."""
    total = point.quadratics[t]
    for i in range(point.size[0]):
        total -= point.variances[i] * point.score[t, i] ** 2
    return total * point.noise[t]


@inner(**LEAN)
def _better_noise(
    noise: float, square: float, free: float, degrees: float, count: float, boldness: float, floor: float
) -> float:
    """Noise variance of the next step, as in `NormalEvidence.improved`."""
    if free <= 1e-12 * count:
        return max(noise, floor)
    if boldness == 1.0:
        return max(square / max(free - degrees, 0.01 * free), floor)
    if boldness == 0.0:
        return max((square + noise * degrees) / free, floor)
    v, k = max(count - degrees, 1e-12 * count) / noise, free - count
    return max((math.sqrt(k * k + 4.0 * v * square) - k) / (2.0 * v), floor)


@inner(**LEAN)
def _step_noise(moments: Moments, point: Point, other: Point, boldness: float) -> bool:
    """Noise of the next step; False where the moments do not tell the residuals."""
    all_square, all_degrees, exact = 0.0, 0.0, True
    for t in range(point.noise.size):
        square = _residual_square(point, t)
        exact = exact and square > LEAST_RESIDUAL * moments.squares[t]
        all_square += square
        all_degrees += point.degrees[t]
        other.noise[t] = _better_noise(
            point.noise[t], square, moments.free[t], point.degrees[t], moments.counts[t], boldness, moments.floor[t]
        )
    if moments.shared_noise:
        free, counts = moments.free.sum(), moments.counts.sum()
        for t in range(point.noise.size):
            other.noise[t] = _better_noise(
                point.noise[t], all_square, free, all_degrees, counts, boldness, moments.floor[t]
            )
    return exact


@inner(**LEAN)
def _step_row(variance: float, curvature: float, squared_score: float, m: int, boldness: float) -> float:
    """Variance of a row after a step."""
    if boldness == 0.0:
        return variance * (1.0 + variance * (squared_score - curvature) / m)
    if curvature <= 0.0:
        return variance
    power = min(1.0, 2.0 * math.sqrt(variance * curvature / m)) if boldness == 1.0 else boldness
    return variance * (squared_score / curvature) ** power


@inner(**LEAN)
def _step(moments: Moments, point: Point, other: Point, room: Room, boldness: float) -> bool:
    """Improve row variances and noise from one posterior; rows that vanish leave."""
    n, m = point.size[0], point.noise.size
    shares = 0.0
    for i in range(n):
        curvature, squared = 0.0, 0.0
        for t in range(m):
            curvature += point.curvature[t, i]
            squared += point.score[t, i] ** 2
        room.column[i], room.root[i] = curvature, squared
        shares += point.variances[i] * curvature
    kept = 0
    for i in range(n):
        curvature, squared = room.column[i], room.root[i]
        if point.variances[i] * curvature * n < VANISHING * shares and squared < curvature:
            continue
        other.active[kept] = point.active[i]
        found = _step_row(point.variances[i], curvature, squared, m, boldness)
        other.variances[kept] = min(found, moments.largest[point.active[i]])
        kept += 1
    other.size[0] = kept
    _copy_numbers(point.noise, other.noise, point.noise.size)
    return not moments.learn_noise or _step_noise(moments, point, other, boldness)


@inner(**LEAN)
def _copy(source: Point, target: Point) -> None:
    n, m = source.size[0], source.noise.size
    target.size[0] = n
    _copy_numbers(source.active, target.active, n)
    _copy_numbers(source.variances, target.variances, n)
    for t in range(m):
        _copy_numbers(source.score[t], target.score[t], n)
        _copy_numbers(source.curvature[t], target.curvature[t], n)
    _copy_numbers(source.noise, target.noise, m)
    _copy_numbers(source.degrees, target.degrees, m)
    _copy_numbers(source.quadratics, target.quadratics, m)
    _copy_numbers(source.values, target.values, 2)


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
    if not other.values[0] <= point.values[0] + ROUNDING * abs(point.values[0]):
        return False
    _copy(other, point)
    room.trace[room.tally[KEPT]] = point.values[0]
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
        before = point.values[0]
        if cautious == 0 and not _try_step(moments, point, other, room, 1.0):
            cautious = CAUTIOUS_STEPS
        if cautious > 0:
            if not _try_step(moments, point, other, room, 0.5) and not _try_step(moments, point, other, room, 0.0):
                return
            cautious -= 1
        calm = calm + 1 if before - point.values[0] < enough else 0


# ---------------------------------------------------------------------- what rows are worth


@inner(**LEAN)
def _find_losses(point: Point, room: Room) -> None:
    """Log evidence that would be lost without each row, and the rows in the order of that."""
    for i in range(point.size[0]):
        total, product = 0.0, 1.0
        for t in range(point.noise.size):
            left = max(1.0 - point.variances[i] * point.curvature[t, i], 1e-15)
            total += point.variances[i] * point.score[t, i] ** 2 / left
            product *= left
            if t % FACTORS_AT_ONCE == FACTORS_AT_ONCE - 1:
                total += math.log(product)
                product = 1.0
        room.loss[i] = 0.5 * (total + math.log(product))
        place = i  # by insertion: there are few
        while place > 0 and room.loss[room.order[place - 1]] > room.loss[i]:
            room.order[place] = room.order[place - 1]
            place -= 1
        room.order[place] = i


@inner(**LEAN)
def _gain_at(curvatures: FloatArray, squares: FloatArray, variance: float) -> float:
    """Log evidence that a row brings at a variance."""
    total, product = 0.0, 1.0
    for t in range(curvatures.size):
        more = 1.0 + variance * curvatures[t]
        total += variance * squares[t] / more
        product *= more
        if t % FACTORS_AT_ONCE == FACTORS_AT_ONCE - 1:
            total -= math.log(product)
            product = 1.0
    return 0.5 * (total - math.log(product))


@inner(**LEAN)
def _find_gain(curvatures: FloatArray, squares: FloatArray, mean: float, spread: float) -> tuple[float, float]:
    """Most log evidence that a row may bring, and its variance then: in closed form, or on a grid."""
    m = curvatures.size
    if spread <= EVEN * mean:
        ratio = squares.sum() / (m * mean)
        return 0.5 * m * (ratio - 1.0 - math.log(ratio)), (ratio - 1.0) / mean
    best, best_unit, place = -math.inf, 0, 0
    for unit in range(0, N_UNITS, COARSE_STEP):
        gain = _gain_at(curvatures, squares, LOWEST_UNIT * UNIT_RATIO**unit / mean)
        if gain > best:
            best, place = gain, unit
    best_unit = place
    for unit in range(max(place - COARSE_STEP + 1, 0), min(place + COARSE_STEP, N_UNITS)):
        gain = _gain_at(curvatures, squares, LOWEST_UNIT * UNIT_RATIO**unit / mean)
        if gain > best:
            best, best_unit = gain, unit
    return best, LOWEST_UNIT * UNIT_RATIO**best_unit / mean


@inner(**LEAN)
def _rate_row(room: Room, j: int, curvatures: FloatArray, scores: FloatArray) -> None:
    """What a row would bring if its curvatures were equal, and what it does where that is all there is to know."""
    total, squared = 0.0, 0.0
    for t in range(scores.size):
        total += curvatures[t]
        squared += scores[t] ** 2
    ratio = squared / total if total > 0.0 else 0.0
    room.likely[j] = ratio - 1.0 - math.log(ratio) if ratio > 1.0 else 0.0


@inner(**LEAN)
def _change_row(point: Point, room: Room, j: int, out: int) -> None:
    """Curvatures and scores of row j, where active row ``out`` is taken out; -1 for none."""
    for t in range(point.noise.size):
        room.row_curvatures[t], room.row_scores[t] = room.all_curvatures[j, t], room.all_scores[j, t]
        if out >= 0:
            left = max(1.0 - point.variances[out] * point.curvature[t, out], 1e-15)
            share = point.variances[out] * room.cross[t, out, j] / left
            room.row_curvatures[t] += share * room.cross[t, out, j]
            room.row_scores[t] += share * point.score[t, out]


@inner(**LEAN)
def _find_gains(moments: Moments, point: Point, room: Room, out: int) -> None:
    """Gains of the rows that are likely to bring most and are not in, after active row ``out`` is taken out."""
    p, m = room.gain.size, point.noise.size
    for j in range(p):
        room.gain[j] = 0.0
        room.likely[j] = 0.0
        if not room.inside[j] or (out >= 0 and point.active[out] == j):
            _change_row(point, room, j, out)
            _rate_row(room, j, room.row_curvatures, room.row_scores)
    for _ in range(min(MOST_CANDIDATES, p)):
        j = np.argmax(room.likely)
        if room.likely[j] <= 0.0:
            return
        room.likely[j] = 0.0
        _change_row(point, room, j, out)
        mean, low, high = 0.0, math.inf, -math.inf
        for t in range(m):
            value = room.row_curvatures[t]
            mean, low, high = mean + value / m, min(low, value), max(high, value)
            room.row_scores[t] *= room.row_scores[t]
        gain, variance = _find_gain(room.row_curvatures, room.row_scores, mean, high - low)
        room.gain[j], room.variance[j] = gain, min(variance, moments.largest[j])


@inner(**LEAN)
def _rotate_all(moments: Moments, point: Point, room: Room, t: int) -> None:
    """``R`` times the rows of the Gram matrix of the active features."""
    n, p = point.size[0], room.gain.size
    gram = moments.grams[min(t, moments.grams.shape[0] - 1)]
    for i in range(n):
        room.rotated[i, :] = 0.0
        for k in range(i + 1):
            _add_multiple(room.rotated[i], room.system[i, k] * room.root[k], gram[point.active[k]], p)


@inner(**LEAN)
def _find_candidates(moments: Moments, point: Point, room: Room, crossing: bool) -> None:
    """Curvatures and scores of all features and, where that is asked for, their products with the active ones."""
    n, p, m = point.size[0], room.gain.size, point.noise.size
    one = _has_one_system(moments, point.noise)
    room.inside[:] = 0
    for i in range(n):
        room.inside[point.active[i]] = 1
    for t in range(m):
        tau = 1.0 / point.noise[t]
        gram = moments.grams[min(t, moments.grams.shape[0] - 1)]
        if t == 0 or not one:
            _factor(moments, point, room, t)
            _rotate_all(moments, point, room, t)
        for j in range(p):
            room.all_curvatures[j, t], room.all_scores[j, t] = gram[j, j], moments.products[t, j]
        for i in range(n):
            room.column[i] = room.root[i] * moments.products[t, point.active[i]]
        for i in range(n):
            product = tau * _dot(room.system[i], room.column, i + 1)
            for j in range(p):
                room.all_curvatures[j, t] -= tau * room.rotated[i, j] ** 2
                room.all_scores[j, t] -= product * room.rotated[i, j]
        for j in range(p):
            room.all_curvatures[j, t] = max(tau * room.all_curvatures[j, t], 0.0)
            room.all_scores[j, t] *= tau
        for i in range(n if crossing else 0):
            room.cross[t, i, :] = 0.0
            for k in range(i, n):
                _add_multiple(room.cross[t, i], tau * room.system[k, i] / room.root[i], room.rotated[k], p)


# ---------------------------------------------------------------------- rows that come and go


@inner(**LEAN)
def _without(point: Point, other: Point, room: Room, n_out: int) -> None:
    """Take out the first rows of the order."""
    n = point.size[0]
    room.inside[:n] = 1
    for i in range(n_out):
        room.inside[room.order[i]] = 0
    kept = 0
    for i in range(n):
        if room.inside[i]:
            other.active[kept], other.variances[kept] = point.active[i], point.variances[i]
            kept += 1
    other.size[0] = kept
    _copy_numbers(point.noise, other.noise, point.noise.size)


@inner(**LEAN)
def _drop_rows(moments: Moments, point: Point, other: Point, room: Room) -> bool:
    """Take out rows that are not worth their cost; False where there are none."""
    _find_losses(point, room)
    n_cheap = 0
    while n_cheap < point.size[0] and room.loss[room.order[n_cheap]] < moments.row_cost:
        n_cheap += 1
    while n_cheap > 0 and not _is_over(room):
        _without(point, other, room, n_cheap)
        if _try(moments, point, other, room):
            return True
        n_cheap //= 2  # rows can stand in for each other: not all may go at once
    return False


@inner(**LEAN)
def _prune(moments: Moments, point: Point, other: Point, room: Room, enough: float) -> None:
    """Descend and drop rows in turn."""
    _descend(moments, point, other, room, enough)
    while _drop_rows(moments, point, other, room):
        _descend(moments, point, other, room, enough)


@inner(**LEAN)
def _enter(other: Point, room: Room, j: int) -> None:
    """Bring in a row."""
    n = other.size[0]
    other.active[n], other.variances[n] = j, room.variance[j]
    other.size[0] = n + 1


@inner(**LEAN)
def _add_rows(moments: Moments, point: Point, other: Point, room: Room) -> bool:
    """Bring in rows that are worth more than their cost, some at a time; False where there are none."""
    n = point.size[0]
    if n == room.gain.size or _is_over(room):
        return False
    _find_candidates(moments, point, room, False)
    _find_gains(moments, point, room, -1)
    cost, worth = moments.row_cost + ROUNDING * abs(point.values[0]), 0
    for j in range(room.gain.size):
        worth += room.gain[j] > cost
    n_new = min(worth, 1 + int(GROWTH * n))
    _copy_numbers(room.gain, room.likely, room.gain.size)
    while n_new > 0 and not _is_over(room):
        _without(point, other, room, 0)
        for _ in range(n_new):
            j = np.argmax(room.likely)
            room.likely[j] = 0.0
            _enter(other, room, j)
        if _try(moments, point, other, room):
            return True
        n_new //= 4
        _copy_numbers(room.gain, room.likely, room.gain.size)
    return False


@inner(**LEAN)
def _swap_rows(moments: Moments, point: Point, other: Point, room: Room, enough: float) -> bool:
    """Put a row in the place of another that is worth less; False where there are none, or too many to look at."""
    n = point.size[0]
    if n > MOST_SWAPS or _is_over(room):
        return False
    _find_losses(point, room)
    _find_candidates(moments, point, room, True)
    for i in range(n):
        out = room.order[i]
        _find_gains(moments, point, room, out)
        best, least = np.argmax(room.gain), max(room.loss[out] + enough, 0.0)
        if best == point.active[out] or not room.gain[best] > least or _is_over(room):
            continue
        _copy(point, other)
        other.active[out], other.variances[out] = best, room.variance[best]
        if _try(moments, point, other, room):
            return True
    return False


@lean()
def search(
    moments: Moments, point: Point, other: Point, room: Room, enough: float, adding: bool, swapping: bool
) -> None:
    """Descend and drop rows in turn and, with ``adding``, bring in and perhaps swap rows until nothing changes."""
    _prune(moments, point, other, room, enough)
    while adding and (
        _add_rows(moments, point, other, room)
        or (swapping and _swap_rows(moments, point, other, room, enough))
    ):
        _prune(moments, point, other, room, enough)


@lean()
def begin(moments: Moments, point: Point, room: Room) -> bool:
    """Posterior of a state; False where there is no exact enough factor."""
    return _evaluate(moments, point, room)
