"""Least squares with a row penalty on the columns in use, by coordinate descent and semismooth Newton steps.

    minimise over W (k, m):   1/2 ||Y - Z W||^2 + sum_i penalty_i(w^i),      columns of Z of length 1

**Coordinate descent** goes through blocks of rows: one matrix product per block, exact updates inside it. On columns of
length 1 the loss of one row of W, all others held, is ``1/2 ||w - v||^2`` with v the row plus its correlation with the
residuals, so that its exact minimiser is one proximal step (Yuan and Lin 2006, *Journal of the Royal Statistical
Society B* 68, section 3; Tseng 2001 for its convergence). A few epochs find most of the support; on well-conditioned
columns they are all that is needed.

**Newton steps** take over after as much work in epochs as the first of them will cost, or after very many epochs. The
method is the proximal point algorithm whose steps are solved in the dual (the semismooth Newton augmented Lagrangian
method of Li, Sun and Toh 2018, *SIAM Journal on Optimization* 28:433-458, for the lasso; Zhang, Zhang, Sun and Toh
2020, *Mathematical Programming* 179:223-263, for groups). With ``Q = Z'Z`` and ``B = Z'Y`` a step from W_k minimises
the objective plus ``||W - W_k||^2 / (2 sigma)``. In the dual variable ``theta = Y - Z C`` it is the smooth convex
problem

    minimise over C:   1/2 <C, Q C> + 1/(2 sigma) ||W(C)||^2,      W(C) = prox_sigma(W_k + sigma (B - Q C)),

whose Newton system involves the rows of W(C) that are not zero only. All rows may enter or leave at each step, which
is why strongly correlated columns do not slow it down as they do coordinate descent. Per row the Hessian of the penalty
is ``diag(h) - c g g'``. Without the rank-one terms the system falls apart into tasks, and at q = 2, where h is the same
for all tasks, one Cholesky factor serves all of them; the rank-one terms of the a active rows are put back by one a x a
system (Woodbury). That costs a^3 operations instead of (a m)^3.

Both stop at a duality gap.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from bayesmtfs.compiled import inner
from bayesmtfs.priors.row_penalty import RowCurvature, RowPenalty, row_norms
from bayesmtfs.priors.row_prox import Scratch, prox_row_of_type, scratch
from bayesmtfs.types import FloatArray, IntArray

BLOCK = 48  # rows per block of coordinate descent
SMALL = 5000  # entries of W up to which all rows are one block
ZEROS_EVERY = 5  # epochs between two looks at blocks of zeros, where looking is most of the work
FIRST_EPOCHS = 3
CHECK_EVERY = 10  # epochs between two looks at the gap
NEWTON_STEPS = 8  # whose cost is spent on epochs first
MOST_EPOCHS = 200  # after which Newton steps are taken whatever they cost
MAX_FACTORS = 40_000_000  # numbers in the factors of a Newton step, above which there is none
STEP_OVERHEAD = 1e7  # of a Newton step, in operations
EPOCH_OVERHEAD = 1e5  # of an epoch, counted once there were many
MANY_EPOCHS = 30
MAX_PROXIMAL_STEPS = 30
FIRST_SIGMA = 1e3  # length of the first proximal step; the diagonal of Z'Z is 1
LARGEST_SIGMA = 1e7  # beyond, rounding of the correlations times sigma shows in W
MAX_NEWTON = 30  # steps within one proximal step
MAX_HALVINGS = 25  # of the length of a Newton step
INEXACTNESS = 0.1  # of a proximal step, relative to its length
ROUNDING = 1e-15  # of an objective, relative to that at W = 0
SUFFICIENT = 1e-4  # share of the decrease that the slope promises
STIFF = 1e7  # curvature that binds entries to each other; the diagonal of Q is 1
RIDGES = (0.0, 1e-10, 1e-7, 1e-4)  # added to the diagonal, one after the other, where a system is not definite


class StoredGram:
    """Z'Z, written out; descent keeps the correlations of all rows (k, m) up to date."""

    CHECK_SMALL_EVERY = 1
    SKIPS_ZEROS = False

    def __init__(self, Q: FloatArray) -> None:
        self.Q = Q

    def times(self, V: FloatArray) -> FloatArray:
        """Z'Z V."""
        rows = np.flatnonzero(V.any(axis=1))
        return self.Q[rows].T @ V[rows]

    def block(self, rows: IntArray) -> FloatArray:
        """Z'Z of some rows."""
        return self.Q[np.ix_(rows, rows)]

    def epoch_cost(self, W: FloatArray, n_active: int) -> float:
        """Operations of an epoch of coordinate descent: rows that stay zero cost next to nothing."""
        return 2.0 * n_active * W.size

    def state(self, problem: "RowProblem", W: FloatArray) -> FloatArray:
        """What descent keeps up to date."""
        return problem.correlation(W)

    def correlation(self, state: FloatArray, part: slice, W: FloatArray) -> FloatArray:
        """Correlations of some rows with the residuals at W (k, m)."""
        return state[part]

    def move(self, state: FloatArray, part: slice, change: FloatArray) -> None:
        """Account for a change of some rows of W."""
        rows = np.flatnonzero(change.any(axis=1))
        state -= self.Q[part][rows].T @ change[rows]


class ColumnGram:
    """Z'Z, never written out: for more columns than it would pay for. Descent keeps the residuals (m, n) up to date."""

    CHECK_SMALL_EVERY = 4
    SKIPS_ZEROS = True

    def __init__(self, columns: Any) -> None:
        self.columns = columns
        self.parts: dict[int | None, Any] = {None: columns}

    def times(self, V: FloatArray) -> FloatArray:
        """Z'Z V."""
        return -self.columns.correlations(-self._predict(V), V)

    def block(self, rows: IntArray) -> FloatArray:
        """Z'Z of some rows."""
        return self.columns.take(rows).own_gram()

    def epoch_cost(self, W: FloatArray, n_active: int) -> float:
        """Operations of an epoch of coordinate descent, whatever is zero."""
        return 4.0 * self.columns.A.shape[1] * W.size

    def state(self, problem: "RowProblem", W: FloatArray) -> FloatArray:
        """What descent keeps up to date."""
        return problem.Y - self._predict(W)

    def correlation(self, state: FloatArray, part: slice, W: FloatArray) -> FloatArray:
        """Correlations of some rows with the residuals at W (k, m)."""
        return self._part(part).correlations(state, W[part])

    def move(self, state: FloatArray, part: slice, change: FloatArray) -> None:
        """Account for a change of some rows of W."""
        state -= self._part(part).predict(change)

    def _predict(self, V: FloatArray) -> FloatArray:
        rows = np.flatnonzero(V.any(axis=1))
        return self.columns.take(rows).predict(V[rows])

    def _part(self, part: slice) -> Any:
        if part.start not in self.parts:
            self.parts[part.start] = self.columns.take(part)
        return self.parts[part.start]


class RowProblem(NamedTuple):
    """Least squares on the columns in use, with one strength per row."""

    gram: StoredGram | ColumnGram
    Y: FloatArray  # (m, n)
    target: FloatArray  # (k, m) Z'Y
    penalty: RowPenalty  # of strength 1, the strengths of the rows as weights
    null_objective: float  # 1/2 ||Y||^2

    def correlation(self, W: FloatArray) -> FloatArray:
        """(k, m) Z'(Y - Z W)."""
        return self.target - self.gram.times(W)

    def objective_and_gap(self, W: FloatArray, correlation: FloatArray) -> tuple[float, float]:
        """Objective and duality gap at W."""
        cross = 2 * self.null_objective - float(np.vdot(W, self.target))  # <R, Y>
        square = cross - float(np.vdot(W, correlation))  # <R, R>
        objective = square / 2 + self.penalty.value(W)
        largest = float(self.penalty.dual_norm(correlation).max(initial=0.0))
        return objective, objective - best_dual(cross, square, largest)

    def newton_cost(self, W: FloatArray) -> float:
        """Operations of a Newton step at W; infinite where its factors would take too much memory."""
        sizes = np.full(W.shape[1], float(count_active(W)))  # of the systems, one per task
        if self.penalty.is_euclidean:
            sizes = sizes[:1]
        elif self.penalty.norm_q == 1.0:  # zeros are held, and nothing couples the tasks
            sizes = np.count_nonzero(W, axis=0).astype(np.float64)
        return 2.0 * float(np.sum(sizes**3)) if np.sum(sizes**2) <= MAX_FACTORS else np.inf


def count_active(W: FloatArray) -> int:
    """Return the number of rows that are not zero."""
    return int(np.count_nonzero(W.any(axis=1)))


def best_dual(cross: float, square: float, largest: float) -> float:
    """Largest dual value along the residual R, whose largest dual norm is ``largest`` times what is feasible.

    The dual objective at s R is ``s <R, Y> - s^2 / 2 <R, R>``.
    """
    top = cross / square if square > 0 else 1.0
    scale = max(min(top, 1.0 / largest if largest > 0 else np.inf), 0.0)
    return scale * cross - scale**2 / 2 * square


class Goal:
    """When to stop, and what was spent on the way.

    A rough gap is enough once so many operations of work are spent; ``max_iter`` counts epochs and Newton steps together.
    """

    def __init__(self, gap: float, rough_gap: float, work: float, max_iter: int) -> None:
        self.gap, self.rough_gap, self.work, self.max_iter = gap, rough_gap, work, max_iter
        self.n_iter, self.spent = 0, 0.0

    def reached(self, gap: float) -> bool:
        """Whether a gap is small enough after so much work."""
        return gap <= self.gap or (gap <= self.rough_gap and self.spent >= self.work)

    def add(self, n_iter: int, work: float) -> None:
        """Count some iterations of so many operations each."""
        self.n_iter += n_iter
        self.spent += n_iter * work


def minimise(problem: RowProblem, W: FloatArray, goal: Goal) -> FloatArray:
    """Minimise from W (k, m) until the goal is reached, or rounding ends all progress."""
    W, sigma, last = W.copy(), FIRST_SIGMA, np.inf
    while True:
        descend(problem, W, goal)
        correlation = problem.correlation(W)
        objective, gap = problem.objective_and_gap(W, correlation)
        if goal.reached(gap) or gap > 0.9 * last or goal.n_iter >= goal.max_iter:
            return W
        last = gap
        for _ in range(MAX_PROXIMAL_STEPS if problem.newton_cost(W) < np.inf else 0):
            trial, n_steps = proximal_point(problem.gram, problem.penalty, W, correlation, sigma, 1e-9 * goal.gap)
            goal.add(n_steps, problem.newton_cost(trial) + STEP_OVERHEAD)
            trial_correlation = problem.correlation(trial)
            trial_objective, trial_gap = problem.objective_and_gap(trial, trial_correlation)
            rounding = ROUNDING * problem.null_objective if trial_gap < gap else 0.0
            if not trial_objective <= objective + rounding:  # the step failed: descend again, then try a shorter one
                sigma = max(sigma / 100, 1.0)
                break
            W, correlation, objective, gap = trial, trial_correlation, trial_objective, trial_gap
            if goal.reached(gap) or goal.n_iter >= goal.max_iter:
                return W
            sigma = min(sigma * (10 if n_steps <= 3 else 3), LARGEST_SIGMA)


def descend(problem: RowProblem, W: FloatArray, goal: Goal) -> None:
    """Epochs of coordinate descent on W, in place, until the goal is reached or Newton steps are the better choice."""
    descent = start_descent(problem, W)
    n_epochs, work, due = 0, 0.0, 0
    while goal.n_iter < goal.max_iter:
        n_new = min(descent.EPOCHS, goal.max_iter - goal.n_iter)
        decrease = descent.epochs(n_new)
        n_active = count_active(W)
        cost = problem.gram.epoch_cost(W, n_active) + (EPOCH_OVERHEAD if n_epochs >= MANY_EPOCHS else 0.0)
        goal.add(n_new, cost)
        n_epochs, work = n_epochs + n_new, work + n_new * cost
        small = decrease <= 0.1 * goal.gap and n_epochs % problem.gram.CHECK_SMALL_EVERY == 0
        if n_epochs >= due and (small or n_epochs % CHECK_EVERY == 0):
            gap = problem.objective_and_gap(W, descent.correlation())[1]
            if goal.reached(gap) or decrease == 0.0:
                return
            due = n_epochs + int(descent.WAIT * n_epochs)
        newton = problem.newton_cost(W)
        slow = n_epochs >= MOST_EPOCHS and newton < np.inf
        if n_epochs >= FIRST_EPOCHS and (slow or work >= NEWTON_STEPS * newton):
            return


class Descent(ABC):
    """Coordinate descent on W, in place."""

    EPOCHS = 1  # between two counts of the work
    WAIT = 0.0  # share of the epochs so far that go by after a look at the gap, before another one

    def __init__(self, problem: RowProblem, W: FloatArray) -> None:
        penalty = problem.penalty
        self.W, self.gram = W, problem.gram
        self.thresholds = penalty.strengths(len(W))
        self.entry_thresholds = self.thresholds * penalty.sparsities(len(W))
        self.norm_q = float(penalty.norm_q)
        self.norms = row_norms(W, self.norm_q)
        self.scratch = scratch(self.norm_q, W.shape[1])

    @abstractmethod
    def epoch(self) -> float:
        """Go through the rows; at least by how much the objective fell."""

    @abstractmethod
    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""

    def epochs(self, number: int) -> float:
        """Go through all rows so often; at least by how much the objective fell the last time."""
        for _ in range(number):
            decrease = self.epoch()
        return decrease

    def sweep(self, block: FloatArray, correlation: FloatArray, part: slice) -> float:
        """Update some rows, and their correlations (m, b), which are overwritten; the sum of their squared moves."""
        thresholds = self.thresholds[part], self.entry_thresholds[part]
        return sweep_rows(block, correlation, self.W[part], *thresholds, self.norms[part], self.norm_q, self.scratch)


class WholeDescent(Descent):
    """Descent on so few rows that nothing is faster than compiled loops over all of them."""

    EPOCHS = 5
    WAIT = 0.3

    def __init__(self, problem: RowProblem, W: FloatArray, Q: FloatArray) -> None:
        super().__init__(problem, W)
        self.Q = np.ascontiguousarray(Q)
        self.state = np.ascontiguousarray(problem.correlation(W).T)  # (m, k)

    def epoch(self) -> float:
        """Go through the rows; at least by how much the objective fell."""
        return self.sweep(self.Q, self.state, slice(None)) / 2

    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""
        return self.state.T


class BlockDescent(Descent):
    """Descent block by block."""

    def __init__(self, problem: RowProblem, W: FloatArray) -> None:
        super().__init__(problem, W)
        self.n_epochs = 0
        self.state = self.gram.state(problem, W)
        self.parts = [slice(a, min(a + BLOCK, len(W))) for a in range(0, len(W), BLOCK)]
        self.blocks = [self.gram.block(np.arange(part.start, part.stop)) for part in self.parts]

    def epoch(self) -> float:
        """Go through the rows, blocks of zeros perhaps now and then only; at least by how much the objective fell."""
        self.n_epochs += 1
        all_due = self.n_epochs % ZEROS_EVERY == 1 or not self.gram.SKIPS_ZEROS
        pairs = zip(self.blocks, self.parts, strict=True)
        return sum(self._update(block, part) for block, part in pairs if all_due or self.W[part].any())

    def _update(self, block: FloatArray, part: slice) -> float:
        before = self.W[part].copy()
        moved = self.sweep(block, self.gram.correlation(self.state, part, self.W).T.copy(), part)
        if moved > 0:
            self.gram.move(self.state, part, self.W[part] - before)
        return moved / 2

    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""
        return self.gram.correlation(self.state, slice(None), self.W)


def start_descent(problem: RowProblem, W: FloatArray) -> Descent:
    """Begin coordinate descent on W, in place."""
    gram = problem.gram
    if isinstance(gram, StoredGram) and W.size <= SMALL:
        return WholeDescent(problem, W, gram.Q)
    return BlockDescent(problem, W)


def solve_rows(Q: FloatArray, hessian: RowCurvature, ridge: float, right: FloatArray) -> FloatArray | None:
    """Solve ``(Q + ridge + Hessian of the penalty) S = right`` (a, m) for the active rows; None if not definite."""
    n_rows, n_tasks = right.shape
    same = hessian.diagonal.shape[1] == 1
    parts = [slice(0, n_tasks)] if same else [slice(t, t + 1) for t in range(n_tasks)]
    diagonals = ridge + hessian.diagonal
    solution = np.zeros_like(right)
    # the coupling of the rank-one terms, scaled to a diagonal of at most 1; its lower triangle
    root = np.sqrt(hessian.scale)
    coupling = np.eye(n_rows, order="F")
    factors = []
    for number, part in enumerate(parts):
        free = np.flatnonzero(np.isfinite(diagonals[:, number]))
        if len(free) == 0:
            continue
        grid = np.ix_(free, free) if len(free) < n_rows else (slice(None), slice(None))
        factor, failed = _factor(Q[grid], diagonals[free, number])
        if failed:
            return None
        solution[free, part] = dpotrs(factor, right[free, part], lower=1)[0]
        along = root[free, None] * hessian.direction[free, part]
        if along.any():
            coupling[grid] -= dpotri(factor, lower=1)[0] * (along @ along.T).T
        factors.append((factor, free, part, along))
    inner = root * np.einsum("im,im->i", hessian.direction, solution)
    if not inner.any():
        return solution
    outer_factor, failed = dpotrf(coupling, lower=1, overwrite_a=1)
    if failed:
        return None
    weights = dpotrs(outer_factor, inner, lower=1)[0]
    for factor, free, part, along in factors:
        solution[free, part] += dpotrs(factor, weights[free, None] * along, lower=1)[0]
    return solution


def _factor(Q: FloatArray, diagonal: FloatArray) -> tuple[FloatArray, bool]:
    """Lower Cholesky factor of ``Q + diag(diagonal)``, and whether there is none."""
    shifted = Q.copy(order="F")
    shifted.ravel(order="K")[:: len(shifted) + 1] += diagonal
    factor, failed = dpotrf(shifted, lower=1, overwrite_a=1)
    return factor, bool(failed)


def newton_correction(
    gram: StoredGram | ColumnGram, penalty: RowPenalty, point: FloatArray, error: FloatArray, sigma: float
) -> tuple[IntArray, FloatArray] | None:
    """Active rows of a point, and the Newton correction of their entries of C (None where the system is singular).

    The point is W(C) and the error ``Q (W(C) - C)``, both (k, m); sigma is the length of the proximal step.
    """
    active = np.flatnonzero(point.any(axis=1))
    if len(active) == 0:
        return active, point[active]
    hessian = penalty.take(active).curvature(point[active], STIFF)
    block = gram.block(active)
    for ridge in RIDGES:
        step = solve_rows(block, hessian, ridge + 1.0 / sigma, -error[active])
        if step is not None and np.isfinite(step).all():
            return active, step
    return None


def proximal_point(
    gram: StoredGram | ColumnGram,
    penalty: RowPenalty,
    W: FloatArray,
    correlation: FloatArray,
    sigma: float,
    floor: float,
) -> tuple[FloatArray, int]:
    """One proximal step from W (k, m), where the correlation is ``B - Q W``; the number of Newton steps it took, too.

    The larger sigma, the closer the step comes to the minimum and the harder it is; it counts as exact at a squared error
    of ``floor``.
    """
    C, gamma = W.copy(), correlation.copy()  # gamma is B - Q C
    point = _prox_all(penalty, W + sigma * gamma, sigma)
    for n_steps in range(MAX_NEWTON):
        direction = point - C
        error = gram.times(direction)
        moved = point - W
        if np.vdot(direction, error) <= INEXACTNESS**2 / sigma * np.vdot(moved, moved) + floor:
            return point, n_steps
        correction = newton_correction(gram, penalty, point, error, sigma)
        if correction is None:
            return point, n_steps
        direction[correction[0]] += correction[1]
        change = gram.times(direction)
        slope = -float(np.vdot(error, direction))
        linear, square = float(np.vdot(C, change)), float(np.vdot(direction, change))
        size = float(np.vdot(point, point))
        for halvings in range(MAX_HALVINGS):
            length = 0.5**halvings
            point = _prox_all(penalty, W + sigma * (gamma - length * change), sigma)
            rise = length * linear + length**2 / 2 * square + (float(np.vdot(point, point)) - size) / (2 * sigma)
            if rise <= SUFFICIENT * length * slope:
                break
        else:
            return point, n_steps
        C += length * direction
        gamma -= length * change
    return point, MAX_NEWTON


def _prox_all(penalty: RowPenalty, rows: FloatArray, step: float) -> FloatArray:
    """Proximal point of all rows; the Euclidean norm needs no compiled loop for it."""
    if not penalty.is_euclidean:
        return penalty.prox(rows, step)
    thresholds = step * penalty.strengths(len(rows))
    norms = np.sqrt(np.einsum("im,im->i", rows, rows))
    kept = norms > thresholds
    factors = np.where(kept, 1.0 - thresholds / np.where(kept, norms, 1.0), 0.0)
    return factors[:, None] * rows


@inner(error_model="numpy")
def _change_row(i: int, row: FloatArray, gram: FloatArray, correlation: FloatArray, W: FloatArray) -> float:
    """Put a new row into W and bring the correlations up to date; the squared length of the change."""
    square = 0.0
    for t in range(row.size):
        change = row[t] - W[i, t]
        W[i, t] = row[t]
        square += change * change
        if change != 0.0:
            for k in range(len(W)):
                correlation[t, k] -= change * gram[i, k]
    return square


@inner(error_model="numpy")
def _shrink_row(row: FloatArray, threshold: float, entry_threshold: float) -> None:
    """Proximal step of a row under ``threshold ||.||_2 + entry_threshold ||.||_1``."""
    square = 0.0
    for t in range(row.size):
        size = max(abs(row[t]) - entry_threshold, 0.0)
        row[t] = math.copysign(size, row[t])
        square += size * size
    norm = math.sqrt(square)
    kept = 1.0 - threshold / norm if norm > threshold else 0.0
    for t in range(row.size):
        row[t] = row[t] * kept if row[t] != 0.0 else 0.0


@inner(error_model="numpy")
def _is_surely_zero(row: FloatArray, threshold: float, norm_q: float) -> bool:
    """Whether the 1-norm of a row, or for q <= 2 its 2-norm, which bound the q*-norm, show that its step leads to zero."""
    total = 0.0
    square = 0.0
    for value in row:
        total += abs(value)
        square += value * value
    return total <= threshold or (norm_q <= 2.0 and square <= threshold * threshold)


@njit(cache=True, error_model="numpy", nogil=True)
def sweep_rows(
    block: FloatArray,
    correlation: FloatArray,
    W: FloatArray,
    thresholds: FloatArray,
    entry_thresholds: FloatArray,
    norms: FloatArray,
    norm_q: float,
    work: Scratch,
) -> float:
    """Update every row of a block exactly, one after the other, under ``threshold ||.||_q``, and at q = 2 `_shrink_row`.

    ``block`` (b, b) are the inner products of the block's columns, which have length 1; the rows W (b, m) and the inner
    products ``correlation`` (m, b) of residuals and columns are kept up to date in place. For q other than 2 ``norms``
    (b,) hold first guesses of the q-norms of the rows (0 for none) and receive their values; ``work`` is what
    `row_prox.scratch` gives. Returned is the sum of the squared moves; half of it bounds the decrease of the objective
    from below.
    """
    n_rows, n_tasks = W.shape
    row = np.empty(n_tasks)
    total = 0.0
    for i in range(n_rows):
        for t in range(n_tasks):
            row[t] = W[i, t] + correlation[t, i]
        if norm_q == 2.0:
            _shrink_row(row, thresholds[i], entry_thresholds[i])
        elif norms[i] == 0.0 and _is_surely_zero(row, thresholds[i], norm_q):
            continue
        else:
            norms[i] = prox_row_of_type(row, thresholds[i], norm_q, work, norms[i])
        total += _change_row(i, row, block, correlation, W)
    return total
