"""Least squares with a row penalty on the columns in use, by coordinate descent and semismooth Newton steps.

    minimise over W (k, m):   1/2 ||Y - Z W||^2 + sum_i penalty_i(w^i),      columns of Z of length 1

**Coordinate descent** goes through blocks of rows: one matrix product per block, exact updates inside it. On columns of
length 1 the loss of one row of W, all others held, is ``1/2 ||w - v||^2`` with v the row plus its correlation with the
residuals, so that its exact minimiser is one proximal step (Yuan and Lin 2006, *Journal of the Royal Statistical
Society B* 68, section 3; Tseng 2001 for its convergence). A few epochs find most of the support; on well-conditioned
columns they are all that is needed.

**Newton steps** (`proximal_point`) take over after as much work in epochs as the first of them will cost, or after very
many epochs.

Without a Gram matrix, where Newton steps are far off, each epoch starts where the last few seem to lead (`extrapolation`),
unless the objective is higher there. Both stop at a duality gap.
"""

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.compiled import inner
from bayesmtfs.convex.extrapolation import History
from bayesmtfs.convex.group_penalty import GroupPenalty
from bayesmtfs.convex.proximal_point import DualPoint, proximal_point
from bayesmtfs.convex.row_grams import ColumnGram, RowGram, StoredGram
from bayesmtfs.priors.row_penalty import RowPenalty, row_norms
from bayesmtfs.priors.row_prox import Scratch, prox_row_of_type, scratch
from bayesmtfs.types import FloatArray, IntArray

BLOCK = 48  # rows per block of coordinate descent
SMALL = 5000  # entries of W up to which all rows are one block
ZEROS_EVERY = 5  # epochs between two looks at blocks of zeros, where looking is most of the work
FIRST_EPOCHS = 3
CHECK_EVERY = 10  # epochs between two looks at the gap, at most
WAIT = 0.3  # share of the epochs so far that go by before another one, where epochs are cheap
NEWTON_STEPS = 2  # whose cost is spent on epochs first
NEWTON_STEPS_AGAIN = 1  # the same where there were Newton steps before
LONG_DESCENT = 100  # epochs, from which extrapolation pays; Newton steps that come before need none
MORE_EPOCHS = 8.0  # times as much work is spent on epochs after Newton steps that led nowhere
MOST_EPOCHS = 200  # after which Newton steps are taken whatever they cost
MAX_FACTORS = 40_000_000  # numbers in the factors of a Newton step, above which there is none
STEP_OVERHEAD = 1e7  # of a Newton step, in operations
EPOCH_OVERHEAD = 1e5  # of an epoch, counted once there were many
MANY_EPOCHS = 30
MAX_PROXIMAL_STEPS = 30
FIRST_SIGMA = 1e3  # length of the first proximal step; the diagonal of Z'Z is 1
LARGEST_SIGMA = 1e7  # beyond, rounding of the correlations times sigma shows in W
ROUNDING = 1e-13  # of an objective, relative to that at W = 0: a step that lowers the gap may raise it so much


class RowProblem(NamedTuple):
    """Least squares on the columns in use, with one strength per row."""

    gram: RowGram
    Y: FloatArray  # (m, n)
    target: FloatArray  # (k, m) Z'Y
    penalty: RowPenalty | GroupPenalty  # of strength 1, the strengths of the rows as weights
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

    def look(self, W: FloatArray) -> "Look":
        """Correlations at W, with objective and duality gap."""
        correlation = self.correlation(W)
        return Look(correlation, *self.objective_and_gap(W, correlation))

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

    A rough gap is enough once so many operations of work are spent, and ``newton_gap`` once there was a Newton step;
    ``max_iter`` counts epochs and Newton steps together. Where Newton steps have begun, perhaps on fewer columns, epochs
    only let in the columns that are new.
    """

    def __init__(
        self,
        gap: float,
        rough_gap: float,
        work: float,
        max_iter: int,
        newton_gap: float = 0.0,
        *,
        newton_began: bool = False,
    ) -> None:
        self.gap, self.rough_gap, self.work, self.max_iter = gap, rough_gap, work, max_iter
        self.newton_gap, self.newton_began = newton_gap, newton_began
        self.n_iter, self.spent = 0, 0.0

    @property
    def wanted(self) -> float:
        """The gap that is enough after so much work."""
        return max(self.gap, self.rough_gap) if self.spent >= self.work else self.gap

    def reached(self, gap: float) -> bool:
        """Whether a gap is small enough after so much work."""
        return gap <= self.wanted

    def add(self, n_iter: int, work: float) -> None:
        """Count some iterations of so many operations each."""
        self.n_iter += n_iter
        self.spent += n_iter * work


class Look(NamedTuple):
    """Correlations (k, m) at a point, and what follows from them."""

    correlation: FloatArray
    objective: float
    gap: float


class Measured(NamedTuple):
    """How far descent is."""

    n_epochs: int
    gap: float
    decrease: float  # of the objective, in the last epoch


def minimise(problem: RowProblem, W: FloatArray, goal: Goal) -> FloatArray:
    """Minimise from W (k, m) until the goal is reached, or rounding ends all progress."""
    W, sigma, last, patience = W.copy(), FIRST_SIGMA, np.inf, 1.0
    while True:
        if descend(problem, W, goal, patience):
            return W
        now = problem.look(W)
        if goal.reached(now.gap) or now.gap > 0.9 * last or goal.n_iter >= goal.max_iter:
            return W
        last, dual = now.gap, DualPoint(W.copy(), now.correlation.copy())
        for _ in range(MAX_PROXIMAL_STEPS if problem.newton_cost(W) < np.inf else 0):
            floor = 1e-9 * goal.gap
            trial, n_steps = proximal_point(problem.gram, problem.penalty, W, now.correlation, sigma, floor, dual)
            goal.add(n_steps, problem.newton_cost(trial) + STEP_OVERHEAD)
            then = problem.look(trial)
            rounding = ROUNDING * problem.null_objective if then.gap < now.gap else 0.0
            if not then.objective <= now.objective + rounding:  # it failed: descend again, then try a shorter one
                sigma, patience = max(sigma / 100, 1.0), MORE_EPOCHS * patience
                break
            W, now, goal.newton_began = trial, then, True
            if goal.reached(now.gap) or now.gap <= goal.newton_gap or goal.n_iter >= goal.max_iter:
                return W
            sigma = min(sigma * (10 if n_steps <= 3 else 3), LARGEST_SIGMA)


def descend(problem: RowProblem, W: FloatArray, goal: Goal, patience: float = 1.0) -> bool:
    """Epochs of coordinate descent on W, in place, until the goal is reached or Newton steps are the better choice.

    Whether the goal was reached, as far as the correlations tell that descent kept up to date. ``patience`` is a factor of
    the work before that choice.
    """
    descent = start_descent(problem, W)
    n_epochs, work, last = 0, 0.0, Measured(0, 0.0, np.inf)
    while goal.n_iter < goal.max_iter:
        n_new = min(descent.EPOCHS, goal.max_iter - goal.n_iter)
        decrease = descent.epochs(n_new)
        n_active = count_active(W)
        cost = problem.gram.epoch_cost(W, n_active) + (EPOCH_OVERHEAD if n_epochs >= MANY_EPOCHS else 0.0)
        goal.add(n_new, cost)
        n_epochs, work = n_epochs + n_new, work + n_new * cost
        small = decrease <= 0.1 * goal.wanted and n_epochs % problem.gram.CHECK_SMALL_EVERY == 0
        now = Measured(n_epochs, goal.wanted, decrease)
        if (small or n_epochs % CHECK_EVERY == 0) and descent.is_due(last, now):
            last = now._replace(gap=problem.objective_and_gap(W, descent.correlation())[1])
            if goal.reached(last.gap):
                return True
            if decrease == 0.0:
                return False
        newton, epochs_worth = problem.newton_cost(W), NEWTON_STEPS_AGAIN if goal.newton_began else NEWTON_STEPS
        slow = n_epochs >= MOST_EPOCHS and newton < np.inf
        if n_epochs >= FIRST_EPOCHS and (slow or work >= patience * epochs_worth * newton):
            return False
    return False


class Descent(ABC):
    """Coordinate descent on W, in place."""

    EPOCHS = 1  # between two counts of the work

    def __init__(self, problem: RowProblem, W: FloatArray) -> None:
        penalty = problem.penalty
        self.W, self.gram = W, problem.gram
        self.groups: dict[int | None, tuple[IntArray, FloatArray, FloatArray]] = {}  # by block
        self.starts = penalty.starts if isinstance(penalty, GroupPenalty) else np.arange(len(W) + 1)
        self.norm_q = float(penalty.norm_q)
        if isinstance(penalty, GroupPenalty):
            self.thresholds = penalty.weights
            return
        self.thresholds = penalty.strengths(len(W))
        self.entry_thresholds = self.thresholds * penalty.sparsities(len(W))
        self.norms = row_norms(W, self.norm_q)
        self.scratch = scratch(self.norm_q, W.shape[1])

    @abstractmethod
    def epoch(self) -> float:
        """Go through the rows; at least by how much the objective fell."""

    @abstractmethod
    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""

    @abstractmethod
    def is_due(self, last: "Measured", now: "Measured") -> bool:
        """Whether it is time for another look at the gap, after the last one; now the gap is what is wanted."""

    def epochs(self, number: int) -> float:
        """Go through all rows so often; at least by how much the objective fell the last time."""
        for _ in range(number):
            decrease = self.epoch()
        return decrease

    def sweep(self, block: FloatArray, correlation: FloatArray, part: slice) -> float:
        """Update some rows, and their correlations (m, b), which are overwritten; the sum of their squared moves."""
        if len(self.starts) <= len(self.W):
            return self._sweep_groups(block, correlation, part)
        thresholds = self.thresholds[part], self.entry_thresholds[part]
        return sweep_rows(block, correlation, self.W[part], *thresholds, self.norms[part], self.norm_q, self.scratch)

    def _sweep_groups(self, block: FloatArray, correlation: FloatArray, part: slice) -> float:
        if part.start not in self.groups:
            ends = part.start or 0, len(self.W) if part.stop is None else part.stop
            first, stop = np.searchsorted(self.starts, ends)
            starts = self.starts[first : stop + 1] - self.starts[first]
            squares = [block[a:b, a:b] for a, b in pairwise(starts.tolist())]
            self.groups[part.start] = starts, largest_eigenvalues(squares), self.thresholds[first:stop]
        return sweep_groups(block, correlation, self.W[part], *self.groups[part.start])


def largest_eigenvalues(blocks: list[FloatArray]) -> FloatArray:
    """Largest eigenvalue of each of some small symmetric matrices."""
    sizes = np.array([len(block) for block in blocks])
    found = np.empty(len(blocks))
    for size in np.unique(sizes):
        places = np.flatnonzero(sizes == size)
        found[places] = np.linalg.eigvalsh(np.stack([blocks[place] for place in places]))[:, -1]
    return found


class WholeDescent(Descent):
    """Descent on so few rows that nothing is faster than compiled loops over all of them."""

    EPOCHS = 5

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

    def is_due(self, last: "Measured", now: "Measured") -> bool:
        """Whether some share of the epochs up to the last look went by since then."""
        return now.n_epochs >= last.n_epochs + int(WAIT * last.n_epochs)


class BlockDescent(Descent):
    """Descent block by block."""

    def __init__(self, problem: RowProblem, W: FloatArray) -> None:
        super().__init__(problem, W)
        self.n_epochs = 0
        self.state = self.gram.state(problem.target, W)
        self.parts = block_slices(self.starts)
        self.blocks = [self.gram.neighbours(part) for part in self.parts]
        self.penalty = problem.penalty
        newton = NEWTON_STEPS * problem.newton_cost(W)
        is_long = isinstance(self.gram, ColumnGram) and newton > LONG_DESCENT * self.gram.epoch_cost(W, len(W))
        self.history = History(W, self.state) if is_long else None
        self.objective: float | None = None  # at W, up to a constant, or above it; None where it is not known

    def epochs(self, number: int) -> float:
        """Go through all rows so often, and extrapolate each time where epochs are what takes long.

        Returned is at least by how much the objective fell the last time.
        """
        if self.history is None:
            return super().epochs(number)
        for _ in range(number):
            before = self.W.copy()
            decrease = self.epoch()
            self.history.add(before, self.W, self.state)
            self.objective = None if self.objective is None else self.objective - decrease
            self._extrapolate(self.history)
        return decrease

    def _extrapolate(self, history: History) -> None:
        """Go to where the last epochs seem to lead, if the objective is not higher there."""
        found = history.combined()
        if found is None:
            self.objective = None
            return
        before = self._objective(self.W, self.state) if self.objective is None else self.objective
        self.objective = self._objective(*found)
        if self.objective <= before:
            self.W[:], self.state[:] = found
        else:
            history.forget()
            self.objective = None

    def _objective(self, W: FloatArray, state: FloatArray) -> float:
        """Objective, up to a constant."""
        assert isinstance(self.gram, ColumnGram)
        return self.gram.loss(state, W) + self.penalty.value(W)

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

    def is_due(self, last: "Measured", now: "Measured") -> bool:
        """Whether the gap seems to be small enough: it falls like the moves. A look costs half an epoch."""
        if now.n_epochs >= last.n_epochs + CHECK_EVERY:
            return True
        return last.gap * math.sqrt(now.decrease) <= now.gap * math.sqrt(last.decrease)


def block_slices(starts: IntArray) -> list[slice]:
    """Lines of W by blocks of whole rows, of some `BLOCK` lines each."""
    ends = starts[np.searchsorted(starts, np.arange(BLOCK, starts[-1] + BLOCK, BLOCK)).clip(max=len(starts) - 1)]
    return [slice(a, b) for a, b in pairwise([0, *np.unique(ends).tolist()])]


def start_descent(problem: RowProblem, W: FloatArray) -> Descent:
    """Begin coordinate descent on W, in place."""
    gram = problem.gram
    if isinstance(gram, StoredGram) and W.size <= SMALL:
        return WholeDescent(problem, W, gram.Q)
    return BlockDescent(problem, W)


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


@njit(cache=True, error_model="numpy", nogil=True)
def sweep_groups(
    block: FloatArray,
    correlation: FloatArray,
    W: FloatArray,
    starts: IntArray,
    bounds: FloatArray,
    thresholds: FloatArray,
) -> float:
    """Take a proximal gradient step on every row of a block, one after the other, under ``threshold ||W_g||_2``.

    Rows take some lines of W (b, m) each; ``bounds`` (R,) are the largest eigenvalues of the inner products (b, b) of
    their columns. W and the inner products ``correlation`` (m, b) of residuals and columns are kept up to date in place.
    Returned is a sum of the squared moves, half of which bounds the decrease of the objective from below.
    """
    n_tasks = W.shape[1]
    row = np.empty(n_tasks)
    total = 0.0
    for g in range(thresholds.size):
        bound = bounds[g]
        if bound <= 0.0:
            continue
        square = 0.0
        for i in range(starts[g], starts[g + 1]):
            for t in range(n_tasks):
                square += (W[i, t] + correlation[t, i] / bound) ** 2
        norm, threshold = math.sqrt(square), thresholds[g] / bound
        kept = 1.0 - threshold / norm if norm > threshold else 0.0
        if kept == 0.0 and not W[starts[g] : starts[g + 1]].any():
            continue
        moved = np.empty((starts[g + 1] - starts[g], n_tasks))
        for i in range(starts[g], starts[g + 1]):
            for t in range(n_tasks):
                moved[i - starts[g], t] = kept * (W[i, t] + correlation[t, i] / bound)
        for i in range(starts[g], starts[g + 1]):
            for t in range(n_tasks):
                row[t] = moved[i - starts[g], t]
            total += bound * _change_row(i, row, block, correlation, W)
    return total


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
