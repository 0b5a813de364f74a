"""Compiled minimisation over one row of W when the curvature differs between its entries, and sweeps over rows.

The problem is ``min_w sum_j (h_j w_j^2 / 2 - b_j w_j) + lam (r ||w||_1 + ||w||_q)`` with curvatures ``h_j > 0``: the
step of a coordinate descent over rows where every task has a design of its own. With equal curvatures it is the
proximal step of :mod:`bayesmtfs.priors.row_prox`. A task sparsity r > 0 first shrinks every ``|b_j|`` by ``lam r``; the
row is then zero exactly where ``||b||_q* <= lam``, with ``1/q + 1/q* = 1``. Otherwise

- q = 1: ``w_j = soft(b_j, lam) / h_j``,
- q = inf: ``|w_j| = min(|b_j| / h_j, c)`` where ``sum_j (|b_j| - h_j c)_+ = lam``, piecewise linear in the level c,
- else ``|w_j| = s u_j`` with one scalar ``s = ||w||_q`` and per entry the root of
  ``h_j s u_j + lam u_j^(q-1) = |b_j|``; s is fixed by ``||u||_q = 1``.

The scalar is the root of ``1 / ||u(s)||_q = 1``. At q = 2 the left hand side is increasing and concave in s (it is the
secular equation of trust-region methods, Conn, Gould and Toint 2000, section 7.3), and Newton from the norm that the
row had before needs one or two steps. For other q a bracket guards Newton. There the roots u_j are closed forms at
q = 3 and 1.5; else they are found along with s, by Newton on the logarithm of both sides: a log-sum-exp of two lines in
the logarithm of the root, which is convex, so that Newton cannot fail.

In sweeps, arrays with one entry per feature and task are (k, m), but running gradients are (m, k): task by task, so
that the update of all features is one contiguous loop. A row of the penalty is a run of features, from ``starts[r]`` to
``starts[r + 1]``: one feature, or a group of them. Columns are those of `columns`.
"""

import math

import numpy as np

from bayesmtfs.compiled import LEAN, inner, lean
from bayesmtfs.convex.columns import Entries, add_column, column_sum
from bayesmtfs.convex.problem import StepArguments
from bayesmtfs.priors.row_prox import EUCLIDEAN, LARGEST, ZERO_SLACK, Scratch
from bayesmtfs.types import FloatArray

NO_CURVATURE = 1e-300  # of an entry that nothing depends on, which is held at zero
MAX_STEPS = 100
SCALAR_TOLERANCE = 1e-9  # of a Newton step at q = 2: what is left after it is of the order of its square
NORM_TOLERANCE = 1e-12  # of log ||u||_q against 0, relative to its slope
ROOT_TOLERANCE = 1e-3  # of a Newton step on a root before s moves again
ROUNDING = 1e-15
LARGEST_FACTOR = 8.0  # by which s may grow or shrink in one step
SMALLEST_UNIT = 1e-100  # below it, the row before says nothing about its root

RowTerms = tuple[FloatArray, FloatArray, float, float]  # b, h, lam and q of a row problem
MeanTerms = tuple[FloatArray, FloatArray, FloatArray]  # ridge, 1-norm and curvature (k,) of a mean that tasks share


@inner(**LEAN)
def row_step(
    linear: FloatArray,
    curvature: FloatArray,
    strength: float,
    norm_q: float,
    sparsity: float,
    start: float,
    row: FloatArray,
    work: Scratch,
) -> float:
    """Overwrite ``row`` by the minimiser of the row problem and return its q-norm.

    ``linear`` is b, shrunk in place where there is a task sparsity, ``start`` the q-norm of the row before the step, and
    ``work`` what `row_prox.scratch` gives for q: by its length the compiler knows the one kind of step to compile.
    """
    if sparsity > 0.0:
        for j in range(linear.size):
            size = abs(linear[j]) - strength * sparsity
            linear[j] = math.copysign(size, linear[j]) if size > 0.0 else 0.0
    if norm_q == 1.0 or linear.size == 1:
        return _soft_step(linear, curvature, strength, row)
    if len(work) == EUCLIDEAN:
        return _secular_step(linear, curvature, strength, start, row)
    elif len(work) == LARGEST:
        return _clipped_step(linear, curvature, strength, start, row)
    else:
        return _general_step((linear, curvature, strength, norm_q), start, row, work)


@inner(**LEAN)
def _zero(row: FloatArray) -> float:
    for j in range(row.size):
        row[j] = 0.0
    return 0.0


@inner(**LEAN)
def _soft_step(linear: FloatArray, curvature: FloatArray, strength: float, row: FloatArray) -> float:
    total = 0.0
    for j in range(linear.size):
        if abs(linear[j]) <= strength * (1.0 + ZERO_SLACK):
            row[j] = 0.0
        else:
            row[j] = (linear[j] - math.copysign(strength, linear[j])) / curvature[j]
        total += abs(row[j])
    return total


@inner(**LEAN)
def _clipped_step(linear: FloatArray, curvature: FloatArray, strength: float, start: float, row: FloatArray) -> float:
    """Row for q = inf: Newton on a convex piecewise linear function, from below after its first step."""
    dual_norm = 0.0
    for j in range(linear.size):
        dual_norm += abs(linear[j])
    if dual_norm <= strength * (1.0 + ZERO_SLACK):
        return _zero(row)
    level = start
    clipped_before = -1
    for _ in range(linear.size + 3):
        total = 0.0
        slope = 0.0
        clipped = 0
        for j in range(linear.size):
            size = abs(linear[j])
            if size > curvature[j] * level:
                total += size
                slope += curvature[j]
                clipped += 1
        if clipped == clipped_before or (clipped == 0 and clipped_before > 0):
            break
        clipped_before = clipped
        level = max((total - strength) / slope, 0.0) if clipped > 0 else 0.0
    for j in range(linear.size):
        row[j] = math.copysign(min(abs(linear[j]) / curvature[j], level), linear[j])
    return level


@inner(**LEAN)
def _first_guess(linear: FloatArray, curvature: FloatArray, dual_norm: float, strength: float) -> float:
    """Norm of the row if all curvatures were their average, weighted by b."""
    total = 0.0
    weighted = 0.0
    for j in range(linear.size):
        total += abs(linear[j])
        weighted += abs(linear[j]) * curvature[j]
    return (dual_norm - strength) * total / weighted


@inner(**LEAN, fastmath={"reassoc", "contract"})
def _secular_sums(linear: FloatArray, curvature: FloatArray, strength: float, s: float) -> tuple[float, float]:
    """``||u(s)||_2^2`` and minus half its derivative in s."""
    square = 0.0
    decay = 0.0
    for j in range(linear.size):
        denominator = curvature[j] * s + strength
        unit = linear[j] / denominator
        square += unit * unit
        decay += unit * unit * curvature[j] / denominator
    return square, decay


@inner(**LEAN)
def _secular_step(linear: FloatArray, curvature: FloatArray, strength: float, start: float, row: FloatArray) -> float:
    """Row for q = 2; ``1 / ||u(s)||_2`` is concave in s, so that Newton is below the root after its first step."""
    square = 0.0
    for j in range(linear.size):
        square += linear[j] * linear[j]
    norm = math.sqrt(square)
    if norm <= strength * (1.0 + ZERO_SLACK):
        return _zero(row)
    s = start if start > 0.0 else _first_guess(linear, curvature, norm, strength)
    for _ in range(MAX_STEPS):
        square, decay = _secular_sums(linear, curvature, strength, s)
        move = square * (math.sqrt(square) - 1.0) / decay
        s = max(s + move, s / LARGEST_FACTOR)
        if abs(move) <= SCALAR_TOLERANCE * s:
            break
    for j in range(linear.size):
        row[j] = linear[j] * s / (curvature[j] * s + strength)
    return s


@inner(**LEAN)
def _general_step(terms: RowTerms, start: float, row: FloatArray, work: Scratch) -> float:
    """Row for 1 < q < inf other than 2: guarded Newton on s."""
    linear, curvature, strength, norm_q = terms
    norm = _dual_norm(linear, norm_q)
    if norm <= strength * (1.0 + ZERO_SLACK):
        return _zero(row)
    roots, slopes = work[0], work[1]
    closed = norm_q == 3.0 or norm_q == 1.5
    s = start if start > 0.0 else _first_guess(linear, curvature, norm, strength)
    if not closed:
        _first_roots(terms, s, row, roots)
    error = 0.0
    lower = 0.0
    upper = np.inf
    for _ in range(MAX_STEPS):
        if closed:
            log_norm, decay = _quadratic_roots(terms, s, roots)
        else:
            log_norm, decay, error = _newton_roots(terms, s, roots, slopes)
        if max(abs(log_norm), error) <= max(NORM_TOLERANCE * decay, ROUNDING):
            break
        if decay <= ROUNDING and log_norm <= 0.0:  # the dual norm exceeded the strength by rounding error only
            return _zero(row)
        if log_norm > error:
            lower = s
        elif log_norm < -error:
            upper = s
        proposal = s * (1.0 + math.expm1(log_norm) / decay)
        proposal = min(max(proposal, s / LARGEST_FACTOR), s * LARGEST_FACTOR)
        if not lower < proposal < upper:
            proposal = 0.5 * (lower + upper) if upper < np.inf else 2.0 * lower
        log_move = math.log(proposal / s)
        s = proposal
        if closed:
            continue
        if abs(log_move) > 0.1:
            _first_roots(terms, s, row, roots)
        else:
            for j in range(linear.size):
                shift = slopes[j] * log_move
                roots[j] *= 1.0 - shift + 0.5 * shift * shift
    for j in range(linear.size):
        unit = roots[j] if closed or norm_q > 2.0 else roots[j] ** (1.0 / (norm_q - 1.0))
        row[j] = math.copysign(s * unit, linear[j]) if linear[j] != 0.0 else 0.0
    return s


@inner(**LEAN)
def _dual_norm(linear: FloatArray, norm_q: float) -> float:
    """q*-norm of b, for 1 < q < inf."""
    peak = 0.0
    for j in range(linear.size):
        peak = max(peak, abs(linear[j]))
    if peak == 0.0:
        return 0.0
    exponent = norm_q / (norm_q - 1.0)
    total = 0.0
    for j in range(linear.size):
        total += (abs(linear[j]) / peak) ** exponent
    return peak * total ** (1.0 / exponent)


@inner(**LEAN)
def _quadratic_roots(terms: RowTerms, s: float, roots: FloatArray) -> tuple[float, float]:
    """``log ||u||_q`` and minus its derivative in ``log s``, for q = 3 and q = 1.5; ``roots`` receives u."""
    linear, curvature, strength, norm_q = terms
    total = 0.0
    weighted = 0.0
    for j in range(linear.size):
        size = abs(linear[j])
        line = curvature[j] * s
        if norm_q == 3.0:
            unit = 2.0 * size / (line + math.sqrt(line * line + 4.0 * strength * size))
            power = unit * unit * unit
            slope = line / (line + 2.0 * strength * unit)
        else:
            unit_root = 2.0 * size / (strength + math.sqrt(strength * strength + 4.0 * line * size))
            unit = unit_root * unit_root
            power = unit * unit_root
            slope = line * unit_root / (line * unit_root + 0.5 * strength)
        roots[j] = unit
        total += power
        weighted += power * slope
    return math.log(total) / norm_q, weighted / total


@inner(**LEAN)
def _newton_roots(terms: RowTerms, s: float, roots: FloatArray, slopes: FloatArray) -> tuple[float, float, float]:
    """``log ||u||_q``, minus its derivative in ``log s``, and about the error of the former, for any q.

    The root is that of ``a x + c x^k = |b|`` with ``k = q - 1`` and ``x = u`` for q > 2, but ``k = 1 / (q - 1)`` and
    ``x = u^(q-1)`` for q < 2, so that k > 1. ``roots`` holds a guess of x and receives a better one; ``slopes``
    receives minus the derivative of ``log x`` in ``log s``.
    """
    linear, curvature, strength, norm_q = terms
    exponent = max(norm_q - 1.0, 1.0 / (norm_q - 1.0))
    total = 0.0
    weighted = 0.0
    error = 0.0
    for j in range(linear.size):
        size = abs(linear[j])
        if size == 0.0:
            slopes[j] = 0.0
            continue
        first, second = curvature[j] * s, strength
        if norm_q < 2.0:
            first, second = second, first
        root = roots[j]
        power = 0.0
        for _ in range(MAX_STEPS):
            power = root**exponent
            line = first * root
            curve = second * power
            slope = line + exponent * curve
            ratio = (line + curve) / size
            # log and exp by their series where these are exact to the order of Newton's own error
            log_ratio = 2.0 * (ratio - 1.0) / (ratio + 1.0) if abs(ratio - 1.0) <= 0.01 else math.log(ratio)
            move = log_ratio * (line + curve) / slope
            power *= root
            slopes[j] = (line if norm_q > 2.0 else curve) / slope
            if abs(move) <= 0.01:
                root *= 1.0 - move + 0.5 * move * move
            else:
                root = min(root * math.exp(-move), _upper_bound(size, first, second, exponent))
            if abs(move) * exponent <= ROOT_TOLERANCE:
                power *= 1.0 - (exponent + 1.0) * move
                error = max(error, (exponent * move) ** 2)
                break
        roots[j] = root
        total += power
        weighted += power * slopes[j]
    if total == 0.0 or total == np.inf:  # s is off by orders of magnitude
        return (-np.inf if total == 0.0 else np.inf), 1.0, 0.0
    return math.log(total) / norm_q, (exponent + 1.0) / norm_q * weighted / total, error


@inner(**LEAN)
def _upper_bound(size: float, first: float, second: float, exponent: float) -> float:
    """Bound of the root of ``first x + second x^k = size``: what either term alone allows."""
    return min(size / first, (size / second) ** (1.0 / exponent))


@inner(**LEAN)
def _first_roots(terms: RowTerms, s: float, row: FloatArray, roots: FloatArray) -> None:
    """Guess of the roots: those of the row before the step, or their upper bounds."""
    linear, curvature, strength, norm_q = terms
    exponent = max(norm_q - 1.0, 1.0 / (norm_q - 1.0))
    for j in range(linear.size):
        first, second = curvature[j] * s, strength
        if norm_q < 2.0:
            first, second = second, first
        unit = min(math.copysign(1.0, linear[j]) * row[j] / s, 1.0)
        if unit > SMALLEST_UNIT:
            roots[j] = unit if norm_q > 2.0 else unit ** (norm_q - 1.0)
        else:
            roots[j] = _upper_bound(abs(linear[j]), first, second, exponent)


@inner(**LEAN, inline="always")
def move_row(
    r: int,
    linear: FloatArray,
    bounds: FloatArray,
    W: FloatArray,
    norms: FloatArray,
    rows: StepArguments,
    moves: FloatArray,
) -> bool:
    """Take the step of row r, write how far its entries went to ``moves``, and return False if it was and is zero.

    ``linear`` is b of the row problem; the other arguments are those of `sweep_gram`.
    """
    starts, strengths, norm_q, sparsity, work = rows
    k, m = W.shape
    first, stop = starts[r] * m, starts[r + 1] * m
    coefficients = W.reshape(k * m)[first:stop]
    curvature = bounds.reshape(k * m)[first:stop]
    for e in range(stop - first):
        moves[e] = coefficients[e]
        if curvature[e] <= NO_CURVATURE:
            linear[e] = 0.0
    start = norms[r]
    row = moves[: stop - first]
    norms[r] = row_step(linear[: stop - first], curvature, strengths[r], norm_q, sparsity[r], start, row, work)
    if norms[r] == 0.0 and start == 0.0:
        return False
    for e in range(stop - first):
        before = coefficients[e]
        coefficients[e] = row[e]
        row[e] -= before
    return True


@inner(**LEAN)
def copy(source: FloatArray, target: FloatArray) -> None:
    """Copy a matrix (an array assignment compiles thirty times slower than this loop)."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@inner(**LEAN)
def mean_step(total: float, mean: float, ridge: float, threshold: float, curvature: float) -> float:
    """Minimiser over one entry of the mean, where the loss has the slope ``total`` and the curvature is without ridge."""
    linear = curvature * mean - total
    size = abs(linear) - threshold
    return math.copysign(size, linear) / (curvature + ridge) if size > 0.0 and curvature > NO_CURVATURE else 0.0


@lean(fastmath={"contract"})
def sweep_gram(
    Q: FloatArray,
    bounds: FloatArray,
    ridge: float,
    state: tuple[FloatArray, ...],
    terms: MeanTerms,
    norms: FloatArray,
    rows: StepArguments,
    room: FloatArray,
    iterates: tuple[FloatArray, ...],
) -> None:
    """Sweep over the rows as often as the iterates have room, keeping W and its gradient after every sweep.

    ``Q`` (k, m, k or more) is the Gram matrix of every task, ``bounds`` (k, m) the curvature used for every entry: that
    of Q, or for the features of a group a bound on it; the ridge is part of both. The state is updated: W (k, m), the
    gradient (m, k or more) of the quadratic part, and a mean (1, k) that the tasks share, or (1, 0); so are the q-norms
    (R,) of the rows of W. The first sweep visits every row, the others only those that are not zero. The iterates
    (n + 1, ...) receive the values before the first and after each of the n sweeps.
    """
    W, gradient, mean = state
    mean_ridge, mean_threshold, mean_bounds = terms
    starts, m = rows[0], W.shape[1]
    linear, moves = room[0], room[1]  # of which a row uses the beginning
    for sweep in range(iterates[0].shape[0]):
        for r in range(starts.size - 1 if sweep > 0 else 0):
            first, stop = starts[r], starts[r + 1]
            if sweep == 1 or norms[r] != 0.0:
                e = 0
                for j in range(first, stop):
                    for t in range(m):
                        linear[e] = bounds[j, t] * W[j, t] - gradient[t, j]
                        e += 1
                if move_row(r, linear, bounds, W, norms, rows, moves):
                    e = 0
                    for j in range(first, stop):
                        for t in range(m):
                            if moves[e] != 0.0:
                                for i in range(gradient.shape[1]):
                                    gradient[t, i] += moves[e] * Q[j, t, i]
                            e += 1
            for j in range(first, stop if mean.size > 0 else first):
                total = 0.0
                for t in range(m):
                    total += gradient[t, j] - ridge * W[j, t]
                before = mean[0, j]
                mean[0, j] = mean_step(total, before, mean_ridge[j], mean_threshold[j], mean_bounds[j])
                move = mean[0, j] - before
                for t in range(m if move != 0.0 else 0):
                    for i in range(gradient.shape[1]):
                        gradient[t, i] += move * Q[j, t, i]
                    gradient[t, j] -= ridge * move
        copy(W, iterates[0][sweep])
        copy(gradient, iterates[1][sweep])
        copy(mean, iterates[2][sweep])


@lean()
def sweep_columns(
    entries: Entries,
    weight: FloatArray,
    columns: tuple[FloatArray, ...],
    ridge: float,
    state: tuple[FloatArray, ...],
    terms: MeanTerms,
    norms: FloatArray,
    rows: StepArguments,
    room: FloatArray,
    iterates: tuple[FloatArray, ...],
) -> None:
    """Sweep over the rows as `sweep_gram` does, without Gram matrices.

    The ``state`` is W (k, m), the ``slope`` (1, N), which is the derivative of the quadratic part in the linear predictor
    without the move of the intercepts, so that no column has to be centred, this move, the ``shift`` (1, m), and a mean
    (1, k) that the tasks share, or (1, 0). The
    ``columns`` have (k, m) weighted sums, means, which are what a unit of their coefficient takes from the intercept,
    and bounds, which a ridge is a part of.
    """
    sums, means, bounds = columns
    W, slope, shift, mean = state[0], state[1][0], state[2][0], state[3]
    mean_ridge, mean_threshold, mean_bounds = terms
    starts, m = rows[0], W.shape[1]
    linear, moves = room[0], room[1]  # of which a row uses the beginning
    for sweep in range(iterates[0].shape[0]):
        for r in range(starts.size - 1 if sweep > 0 else 0):
            first, stop = starts[r], starts[r + 1]
            if sweep == 1 or norms[r] != 0.0:
                e = 0
                for j in range(first, stop):
                    for t in range(m):
                        total = column_sum(entries, j, t, t + 1, slope)
                        linear[e] = (bounds[j, t] - ridge) * W[j, t] - total - sums[j, t] * shift[t]
                        e += 1
                if move_row(r, linear, bounds, W, norms, rows, moves):
                    e = 0
                    for j in range(first, stop):
                        for t in range(m):
                            move = moves[e]
                            e += 1
                            if move != 0.0:
                                shift[t] -= means[j, t] * move
                                add_column(entries, j, t, t + 1, move, weight, slope)
            for j in range(first, stop if mean.size > 0 else first):
                total = column_sum(entries, j, 0, m, slope)
                before = mean[0, j]
                mean[0, j] = mean_step(total, before, mean_ridge[j], mean_threshold[j], mean_bounds[j])
                move = mean[0, j] - before
                if move != 0.0:
                    add_column(entries, j, 0, m, move, weight, slope)
        copy(W, iterates[0][sweep])
        copy(state[1], iterates[1][sweep])
        copy(state[2], iterates[2][sweep])
        copy(mean, iterates[3][sweep])
