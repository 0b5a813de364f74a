"""Compiled proximal step of one row under the q-norm, for every q in [1, inf].

The problem is ``min_z 1/2 ||z - x||_2^2 + t ||z||_q`` for a row x and a threshold t >= 0. With ``1/q + 1/q* = 1`` its
solution is x minus the projection of x onto the q*-ball of radius t (Moreau), so it is zero exactly where
``||x||_q* <= t``. Otherwise

- q = 1: soft threshold, ``z_j = sign(x_j) (|x_j| - t)_+``,
- q = 2: scaling, ``z = (1 - t / ||x||_2) x``,
- q = inf: clipping, ``z_j = sign(x_j) min(|x_j|, c)`` where ``sum_j (|x_j| - c)_+ = t``,
- 1 < q < inf: ``z_j = sign(x_j) s u_j`` with one scalar ``s = ||z||_q`` and per entry the root of
  ``s u_j + t u_j^(q-1) = |x_j|``; s is fixed by ``||u||_q = 1``.

In the last case the entries are closed forms at q = 3 and q = 1.5. For other q every entry is solved in ``log u``,
where the left hand side is a log-sum-exp of two lines: convex and increasing, so that Newton from above never
overshoots and ``u_j^(q-1)`` never overflows. The kept share ``a_j = s u_j / |x_j|`` is a logistic function of
``log u_j``, and ``z_j = a_j x_j`` is accurate entry by entry.

The scalar is bracketed without iteration. With the gap ``d = ||x||_q* - t`` and k non-zero entries,

    d k^(-(1 - 2/q)) <= s <= d   for q >= 2,      d <= s <= d k^(2/q - 1)   for q <= 2,

from ``||z||_2^2 <= s d``, ``||z||_2 >= d / ||u0||_2`` (u0 is the unit vector with ``<u0, x> = ||x||_q*``) and the
inequalities between norms. Each ``t u_j^(q-1)`` is convex and decreasing in s, hence so is their q*-norm: for q > 2
Newton on it converges from the left without overshooting. For q < 2 Newton is run on ``log ||u||_q`` against ``log s``.

The zeros of a row must agree with its dual norm although both were rounded: a row whose dual norm exceeds t by less
than ``ZERO_SLACK`` of t is set to zero.

References
----------
Liu and Ye 2010, *Efficient L1/Lq norm regularization*, arXiv:1009.4766 (general q by nested root finding); Duchi,
Shalev-Shwartz, Singer and Chandra 2008, *Efficient projections onto the l1-ball for learning in high dimensions*
(q = inf).
"""

import math

import numpy as np
from numba import njit

from bayesmtfs.compiled import inner
from bayesmtfs.types import FloatArray

ZERO_SLACK = 1e-14  # relative to the threshold: some fifty roundings
WORK_ROWS = 3  # rows of scratch that prox_row needs

Scratch = tuple[FloatArray, ...]
EUCLIDEAN, LARGEST = 0, 1  # rows of scratch for q = 1 and 2, and for q = inf

MAX_NEWTON = 20  # Newton steps on the scalar before its bracket is halved instead
MAX_STEPS = 100  # of both kinds together, enough to close the bracket to the last bit
NEWTON_TOLERANCE = 1e-9  # of a Newton step: what is left after it is of the order of its square
ROUNDING = 1e-15  # a few units in the last place


def scratch(norm_q: float, size: int) -> Scratch:
    """Working memory of a step for rows of so many entries: none for q = 1 and 2, one row for q = inf, else three.

    The compiler knows the length of a tuple, and compiles only the step that goes with it.
    """
    n_rows = EUCLIDEAN if norm_q in (1.0, 2.0) else LARGEST if norm_q == np.inf else WORK_ROWS
    return tuple(np.empty(size) for _ in range(n_rows))


@inner(error_model="numpy")
def _fill(row: FloatArray, value: float) -> float:
    for j in range(row.size):
        row[j] = value
    return value


@inner(error_model="numpy")
def _largest(row: FloatArray) -> int:
    largest = 0
    for j in range(1, row.size):
        if abs(row[j]) > abs(row[largest]):
            largest = j
    return largest


@inner(error_model="numpy")
def clipping_level(values: FloatArray, excess: float, start: float) -> float:
    """Level c with ``sum_j (values_j - c)_+ = excess``, for excess > 0 and numbers of any sign; any first guess will do.

    The sum is convex and piecewise linear in c, so that Newton ends after finitely many steps, from the left after the
    first one.
    """
    level = start
    clipped_before = 0
    for _ in range(values.size + 3):
        total = 0.0
        clipped = 0
        for value in values:
            if value > level:
                total += value
                clipped += 1
        if clipped == 0 and clipped_before == 0:
            level = -np.inf  # the guess lies above all values
            continue
        if clipped == clipped_before or clipped == 0:
            break
        clipped_before = clipped
        level = (total - excess) / clipped
    return level


@inner(error_model="numpy")
def _soft_threshold(row: FloatArray, threshold: float) -> float:
    total = 0.0
    for j in range(row.size):
        if abs(row[j]) <= threshold * (1.0 + ZERO_SLACK):
            row[j] = 0.0
        else:
            row[j] -= math.copysign(threshold, row[j])
        total += abs(row[j])
    return total


@inner(error_model="numpy")
def _shrink(row: FloatArray, threshold: float) -> float:
    peak: float = abs(row[_largest(row)])
    if peak == 0.0:
        return 0.0
    total = 0.0
    for value in row:
        total += (value / peak) ** 2
    norm = peak * math.sqrt(total)
    if norm <= threshold * (1.0 + ZERO_SLACK):
        return _fill(row, 0.0)
    kept = (norm - threshold) / norm
    for j in range(row.size):
        row[j] *= kept
    return norm - threshold


@inner(error_model="numpy")
def _clip(row: FloatArray, threshold: float, sizes: FloatArray, start: float) -> float:
    dual_norm = 0.0
    for j in range(row.size):
        sizes[j] = abs(row[j])
        dual_norm += sizes[j]
    if dual_norm <= threshold * (1.0 + ZERO_SLACK):
        return _fill(row, 0.0)
    level = clipping_level(sizes, threshold, start)
    for j in range(row.size):
        if sizes[j] > level:
            row[j] = math.copysign(level, row[j])
    return level


@inner(error_model="numpy")
def _closed_entry(x: float, t: float, s: float, q: float) -> tuple[float, float]:
    """``u^q`` and kept share ``s u / x`` where ``s u + t u^(q-1) = x``, for q = 3 and q = 1.5: a quadratic."""
    if q == 3.0:
        unit = 2.0 * x / (s + math.sqrt(s * s + 4.0 * t * x))
        return unit * unit * unit, s / (s + t * unit)
    unit_root = 2.0 * x / (t + math.sqrt(t * t + 4.0 * s * x))
    return unit_root * unit_root * unit_root, s * unit_root / (s * unit_root + t)


@inner(error_model="numpy")
def _closed_entries(sizes: FloatArray, t: float, s: float, q: float) -> tuple[float, float]:
    """``log ||u||_q`` and minus its derivative in ``log s``, for q = 3 and q = 1.5."""
    total = 0.0
    weighted = 0.0
    for size in sizes:
        if size > 0.0:
            power, kept = _closed_entry(size, t, s, q)
            total += power
            weighted += power * kept / (kept + (1.0 - kept) * (q - 1.0))
    return math.log(total) / q, weighted / total


@inner(error_model="numpy")
def _newton_entries(
    logs: FloatArray, largest: int, log_t: float, log_s: float, q: float, roots: FloatArray, slopes: FloatArray
) -> tuple[float, float]:
    """``log ||u||_q`` and minus its derivative in ``log s``, for any q.

    ``roots`` holds a first guess of ``log u`` and receives its value; ``slopes`` receives minus its derivative.
    """
    for j in range(logs.size):
        if logs[j] == -np.inf:
            continue
        root = roots[j]
        for _ in range(MAX_STEPS):
            log_kept = log_s + root
            log_cut = log_t + (q - 1.0) * root
            ratio = math.exp(-abs(log_kept - log_cut))
            kept = 1.0 / (1.0 + ratio) if log_kept >= log_cut else ratio / (1.0 + ratio)
            slope = kept + (1.0 - kept) * (q - 1.0)
            move = (max(log_kept, log_cut) + math.log1p(ratio) - logs[j]) / slope
            root -= move
            if abs(move) * max(1.0, q) <= NEWTON_TOLERANCE:
                break
        roots[j] = root
        slopes[j] = kept / slope
    total = 0.0
    weighted = 0.0
    for j in range(logs.size):
        if logs[j] > -np.inf:
            power = math.exp(q * (roots[j] - roots[largest]))
            total += power
            weighted += power * slopes[j]
    return roots[largest] + math.log(total) / q, weighted / total


@inner(error_model="numpy")
def _dual_powers(row: FloatArray, peak: float, q: float, entries: FloatArray) -> tuple[float, float, int]:
    """``sum x^q*``, ``sum x^(2 (q* - 1))`` and the number of non-zero entries of ``x = |row| / peak``.

    ``entries`` receives x where its roots are closed forms, else ``log x``.
    """
    exponent = 1.0 / (q - 1.0)
    dual_power = 0.0
    direction_power = 0.0
    count = 0
    for j in range(row.size):
        size = abs(row[j]) / peak
        if q == 3.0:
            entries[j] = size
            dual_entry = math.sqrt(size)
        elif q == 1.5:
            entries[j] = size
            dual_entry = size * size
        else:
            # not log(size): the quotient may underflow
            entries[j] = math.log(abs(row[j])) - math.log(peak) if row[j] != 0.0 else -np.inf
            dual_entry = math.exp(exponent * entries[j])
        dual_power += size * dual_entry
        direction_power += dual_entry * dual_entry
        count += row[j] != 0.0
    return dual_power, direction_power, count


@inner(error_model="numpy")
def _first_guess(
    row: FloatArray, peak: float, q: float, kept: float, dual_power: float, direction_power: float
) -> float:
    """Guess of ``s / peak`` from the share ``kept = gap / dual norm``.

    ``s = gap / ||u0||_2^2`` to first order in the gap. For q > 2 it bends on the way to ``s = ||x||_q`` at t = 0: a
    parabola through both.
    """
    tangent = math.pow(dual_power, 1.0 + 1.0 / q) / direction_power
    if q < 2.0:
        return kept * tangent
    norm_power = 0.0
    for value in row:
        norm_power += (abs(value) / peak) ** q
    return kept * (tangent + kept * (math.pow(norm_power, 1.0 / q) - tangent))


@inner(error_model="numpy")
def _bracket(dual_norm: float, gap: float, count: int, q: float) -> tuple[float, float]:
    """Bounds of ``log s`` by the gap, widened by the rounding of the gap."""
    rounding = 4.0 * ROUNDING * dual_norm / gap
    spread = math.pow(count, 2.0 / q - 1.0)
    return math.log(gap * min(spread, 1.0)) - rounding, math.log(gap * max(spread, 1.0)) + rounding


@inner(error_model="numpy")
def _newton_proposal(log_s: float, log_norm: float, decay: float, q: float) -> float:
    """Next ``log s``: Newton on the q*-norm of ``t u^(q-1)`` against s for q > 2, else on ``log ||u||_q``."""
    if q > 2.0:
        return log_s + math.log1p(-math.expm1((1.0 - q) * log_norm) / ((q - 1.0) * decay))
    return log_s + log_norm / decay


@inner(error_model="numpy")
def _prox_between(
    row: FloatArray,
    threshold: float,
    q: float,
    entries: FloatArray,
    roots: FloatArray,
    slopes: FloatArray,
    start: float,
) -> float:
    """Proximal step for 1 < q < inf; everything is measured in units of the largest entry."""
    largest = _largest(row)
    peak: float = abs(row[largest])
    if peak == 0.0:
        return 0.0
    dual_power, direction_power, count = _dual_powers(row, peak, q, entries)
    dual_norm = math.pow(dual_power, 1.0 - 1.0 / q)
    t = threshold / peak
    if dual_norm <= t * (1.0 + ZERO_SLACK):
        return _fill(row, 0.0)
    gap = dual_norm - t
    if not gap > 0.0:
        return _fill(row, np.nan)

    lower, upper = _bracket(dual_norm, gap, count, q)
    guess = start / peak
    if not guess > 0.0:
        guess = _first_guess(row, peak, q, gap / dual_norm, dual_power, direction_power)
    log_s = min(max(math.log(guess), lower), upper)
    log_t = math.log(threshold) - math.log(peak)
    closed = q == 3.0 or q == 1.5
    if not closed:
        for j in range(row.size):
            roots[j] = min(entries[j] - log_s, (entries[j] - log_t) / (q - 1.0))

    for step in range(MAX_STEPS):
        if closed:
            log_norm, decay = _closed_entries(entries, t, math.exp(log_s), q)
        else:
            log_norm, decay = _newton_entries(entries, largest, log_t, log_s, q, roots, slopes)
        if abs(log_norm) * (q - 1.0) <= ROUNDING * (1.0 + abs(log_s)):
            break
        if log_norm > 0.0:
            lower = log_s
        else:
            upper = log_s
        proposal = _newton_proposal(log_s, log_norm, decay, q)
        tolerance = NEWTON_TOLERANCE
        if step >= MAX_NEWTON or not lower <= proposal <= upper:
            proposal = 0.5 * (lower + upper)
            tolerance = ROUNDING
        move = proposal - log_s
        log_s = proposal
        if not closed:
            for j in range(row.size):
                roots[j] -= slopes[j] * move
        if abs(move) <= tolerance:
            break

    s = math.exp(log_s)
    for j in range(row.size):
        if row[j] != 0.0 and closed:
            row[j] *= _closed_entry(entries[j], t, s, q)[1]
        elif row[j] != 0.0:
            row[j] /= 1.0 + math.exp(log_t - log_s + (q - 2.0) * roots[j])
    return peak * s


@inner(error_model="numpy")
def prox_row(row: FloatArray, threshold: float, norm_q: float, work: FloatArray, start: float) -> float:
    """Overwrite ``row`` (m,) by ``argmin_z 1/2 ||z - row||_2^2 + threshold ||z||_q`` and return the q-norm of the result.

    Compiled, without allocation, for use inside other compiled loops. ``work`` (WORK_ROWS, m) is scratch; ``start`` a first
    guess of the q-norm of the result, such as the value of an earlier call for a similar row, or 0 for none.
    """
    if norm_q == 1.0 or row.size == 1:
        return _soft_threshold(row, threshold)
    if norm_q == 2.0:
        return _shrink(row, threshold)
    if norm_q == np.inf:
        return _clip(row, threshold, work[0], start)
    return _prox_between(row, threshold, norm_q, work[0], work[1], work[2], start)


@inner(error_model="numpy")
def prox_row_of_type(row: FloatArray, threshold: float, norm_q: float, work: Scratch, start: float) -> float:
    """Overwrite ``row`` as `prox_row` does, with what `scratch` gives for q: only the step for that q is compiled."""
    if norm_q == 1.0 or row.size == 1:
        return _soft_threshold(row, threshold)
    if len(work) == EUCLIDEAN:
        return _shrink(row, threshold)
    elif len(work) == LARGEST:
        return _clip(row, threshold, work[0], start)
    else:
        return _prox_between(row, threshold, norm_q, work[0], work[1], work[2], start)


@njit(cache=True, error_model="numpy", nogil=True)
def _prox_rows(rows: FloatArray, thresholds: FloatArray, norm_q: float, work: Scratch) -> None:
    for i in range(rows.shape[0]):
        prox_row_of_type(rows[i], thresholds[i], norm_q, work, 0.0)


def prox_rows(rows: FloatArray, thresholds: FloatArray, norm_q: float) -> None:
    """Overwrite every row of ``rows`` (R, k) by its proximal point, with one threshold per row."""
    _prox_rows(rows, thresholds, norm_q, scratch(norm_q, rows.shape[1]))
