"""Least squares with a row penalty on the columns in use, by coordinate descent and Newton steps.

    minimise over W (k, m):   1/2 ||Y - Z W||^2 + sum_i penalty_i(w^i),      columns of Z of length 1

Coordinate descent goes through blocks of rows: one matrix product per block, exact updates inside it. A few epochs
find most of the support; on well-conditioned columns they are all that is needed. Proximal steps by semismooth Newton
take over after as much work in epochs as the first Newton steps will cost. Both stop at a duality gap.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.semismooth_newton import n_factors, proximal_point
from bayesmtfs.convex.shared_design_columns import Columns
from bayesmtfs.convex.shared_design_kernels import sweep_euclidean, sweep_general
from bayesmtfs.priors.row_penalty import RowPenalty, row_norms
from bayesmtfs.priors.row_prox import scratch
from bayesmtfs.types import FloatArray, IntArray

BLOCK = 48  # rows per block of coordinate descent
SMALL = 5000  # entries of W up to which all rows are one block
ZEROS_EVERY = 5  # epochs between two looks at blocks of zeros, where looking is most of the work
FIRST_EPOCHS = 3
CHECK_EVERY = 10  # epochs between two looks at the gap
NEWTON_STEPS = 8  # whose cost is spent on epochs first
MAX_FACTORS = 40_000_000  # numbers in the factors of a Newton step, above which there is none
STEP_OVERHEAD = 1e7  # of a Newton step, in operations
EPOCH_OVERHEAD = 1e5  # of an epoch, counted once there were many
MANY_EPOCHS = 30
MAX_PROXIMAL_STEPS = 30
FIRST_SIGMA = 1e3  # length of the first proximal step; the diagonal of Z'Z is 1
LARGEST_SIGMA = 1e7  # beyond, rounding of the correlations times sigma shows in W


class StoredGram:
    """Z'Z, written out."""

    CHECK_SMALL_EVERY = 1

    def __init__(self, Q: FloatArray) -> None:
        self.Q = Q

    def times(self, V: FloatArray) -> FloatArray:
        """Z'Z V."""
        rows = np.flatnonzero(V.any(axis=1))
        return self.Q[rows].T @ V[rows]

    def block(self, rows: IntArray) -> FloatArray:
        """Z'Z of some rows."""
        return self.Q[np.ix_(rows, rows)]

    def descent(self, problem: "RowProblem", W: FloatArray) -> "Descent":
        """Begin coordinate descent on W, in place."""
        return WholeDescent(problem, W, self.Q) if W.size <= SMALL else GramDescent(problem, W, self.Q)

    def epoch_cost(self, W: FloatArray, n_active: int) -> float:
        """Operations of an epoch of coordinate descent: rows that stay zero cost next to nothing."""
        return 2.0 * n_active * W.size


class ColumnGram:
    """Z'Z, never written out: for more columns than it would pay for."""

    CHECK_SMALL_EVERY = 4

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def times(self, V: FloatArray) -> FloatArray:
        """Z'Z V."""
        rows = np.flatnonzero(V.any(axis=1))
        result: FloatArray = self.columns.correlations(self.columns.take(rows).predict(V[rows]))
        return result

    def block(self, rows: IntArray) -> FloatArray:
        """Z'Z of some rows."""
        part = self.columns.take(rows)
        result: FloatArray = part.gram(part)
        return result

    def descent(self, problem: "RowProblem", W: FloatArray) -> "Descent":
        """Begin coordinate descent on W, in place."""
        return ColumnDescent(problem, W, self.columns)

    def epoch_cost(self, W: FloatArray, n_active: int) -> float:
        """Operations of an epoch of coordinate descent, whatever is zero."""
        return 4.0 * self.columns.n_rows * W.size


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

    def newton_cost(self, n_active: int) -> float:
        """Operations of a Newton step on so many rows; infinite where its factors would take too much memory."""
        n_parts = n_factors(self.penalty, self.target.shape[1])
        return 2.0 * n_parts * float(n_active) ** 3 if n_parts * n_active**2 <= MAX_FACTORS else np.inf


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


class Goal(NamedTuple):
    """When to stop."""

    gap: float
    rough_gap: float  # enough once the work is used up
    work: float  # operations
    max_iter: int  # epochs and Newton steps together

    def reached(self, gap: float, work: float) -> bool:
        """Whether a gap is small enough after so much work."""
        return gap <= self.gap or (gap <= self.rough_gap and work >= self.work)


class Progress:
    """Iterations and operations spent so far."""

    def __init__(self) -> None:
        self.n_iter = 0
        self.work = 0.0

    def add(self, n_iter: int, work: float) -> None:
        """Count some iterations of so many operations each."""
        self.n_iter += n_iter
        self.work += n_iter * work


def minimise(problem: RowProblem, W: FloatArray, goal: Goal) -> tuple[FloatArray, int]:
    """Minimise from W until the goal is reached, or rounding ends all progress.

    Parameters
    ----------
    problem : least squares and row penalty
    W : (k, m) start
    goal : when to stop

    Returns
    -------
    W : (k, m) the new point
    n_iter : number of epochs and Newton steps
    """
    W, spent, sigma, last = W.copy(), Progress(), FIRST_SIGMA, np.inf
    while True:
        descend(problem, W, goal, spent)
        correlation = problem.correlation(W)
        objective, gap = problem.objective_and_gap(W, correlation)
        if goal.reached(gap, spent.work) or gap > 0.9 * last or spent.n_iter >= goal.max_iter:
            return W, spent.n_iter
        last = gap
        for _ in range(MAX_PROXIMAL_STEPS if problem.newton_cost(count_active(W)) < np.inf else 0):
            trial, n_steps = proximal_point(problem.gram, problem.penalty, W, correlation, sigma, 1e-9 * goal.gap)
            spent.add(n_steps, problem.newton_cost(count_active(trial)) + STEP_OVERHEAD)
            trial_correlation = problem.correlation(trial)
            trial_objective, trial_gap = problem.objective_and_gap(trial, trial_correlation)
            if not trial_objective <= objective:  # the step failed: descend again, then try a shorter one
                sigma = max(sigma / 100, 1.0)
                break
            W, correlation, objective, gap = trial, trial_correlation, trial_objective, trial_gap
            if goal.reached(gap, spent.work) or spent.n_iter >= goal.max_iter:
                return W, spent.n_iter
            sigma = min(sigma * (10 if n_steps <= 3 else 3), LARGEST_SIGMA)


def descend(problem: RowProblem, W: FloatArray, goal: Goal, spent: Progress) -> None:
    """Epochs of coordinate descent on W, in place, until the goal is reached or Newton steps are the better choice."""
    descent = problem.gram.descent(problem, W)
    n_epochs, work, due = 0, 0.0, 0
    while spent.n_iter < goal.max_iter:
        n_new = min(descent.EPOCHS, goal.max_iter - spent.n_iter)
        decrease = descent.epochs(n_new)
        n_active = count_active(W)
        cost = problem.gram.epoch_cost(W, n_active) + (EPOCH_OVERHEAD if n_epochs >= MANY_EPOCHS else 0.0)
        spent.add(n_new, cost)
        n_epochs, work = n_epochs + n_new, work + n_new * cost
        small = decrease <= 0.1 * goal.gap and n_epochs % problem.gram.CHECK_SMALL_EVERY == 0
        if n_epochs >= due and (small or n_epochs % CHECK_EVERY == 0):
            gap = problem.objective_and_gap(W, descent.correlation())[1]
            if goal.reached(gap, spent.work) or decrease == 0.0:
                return
            due = n_epochs + int(descent.WAIT * n_epochs)
        if n_epochs >= FIRST_EPOCHS and work >= NEWTON_STEPS * problem.newton_cost(n_active):
            return


class Descent(ABC):
    """Block coordinate descent on W, in place."""

    EPOCHS = 1  # between two counts of the work
    WAIT = 0.0  # share of the epochs so far that go by after a look at the gap, before another one

    def __init__(self, problem: RowProblem, W: FloatArray) -> None:
        self.W = W
        penalty = problem.penalty
        self.thresholds = np.ascontiguousarray(penalty.strengths(len(W)))
        self.entry_thresholds = self.thresholds * penalty.sparsities(len(W))
        self.norm_q = float(penalty.norm_q)
        self.norms = row_norms(W, self.norm_q)
        self.scratch = scratch(self.norm_q, W.shape[1])

    def epochs(self, number: int) -> float:
        """Go through all rows so often; at least by how much the objective fell the last time."""
        for _ in range(number):
            decrease = self.epoch()
        return decrease

    @abstractmethod
    def epoch(self) -> float:
        """Go through the rows; at least by how much the objective fell."""

    @abstractmethod
    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""

    def sweep(self, gram: FloatArray, correlation: FloatArray, part: slice) -> float:
        """Update some rows, and their correlations (m, b), which are overwritten; the sum of their squared moves."""
        rows, thresholds = self.W[part], self.thresholds[part]
        if self.norm_q == 2.0:
            moved = sweep_euclidean(gram, correlation, rows, thresholds, self.entry_thresholds[part])
        else:
            moved = sweep_general(gram, correlation, rows, thresholds, self.norms[part], self.norm_q, self.scratch)
        return float(moved)


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
        self.parts = [slice(a, min(a + BLOCK, len(W))) for a in range(0, len(W), BLOCK)]
        self.blocks: list[FloatArray] = []  # Z'Z of each part

    def epoch(self) -> float:
        """Go through the rows; at least by how much the objective fell."""
        self.n_epochs += 1
        return sum(self.update(number, part) for number, part in enumerate(self.parts) if self.is_due(part))

    def update(self, number: int, part: slice) -> float:
        """Go through the rows of one block."""
        before = self.W[part].copy()
        moved = self.sweep(self.blocks[number], self.block_correlation(part).T.copy(), part)
        if moved > 0:
            self.move(part, self.W[part] - before)
        return moved / 2

    def is_due(self, part: slice) -> bool:
        """Whether a block is gone through in this epoch."""
        return True

    @abstractmethod
    def block_correlation(self, part: slice) -> FloatArray:
        """Correlations of the rows of a block with the residuals."""

    @abstractmethod
    def move(self, part: slice, change: FloatArray) -> None:
        """Account for a change of a block of W."""


class GramDescent(BlockDescent):
    """Descent that keeps the correlations of all rows up to date."""

    def __init__(self, problem: RowProblem, W: FloatArray, Q: FloatArray) -> None:
        super().__init__(problem, W)
        self.Q = Q
        self.blocks = [np.ascontiguousarray(Q[part, part]) for part in self.parts]
        self.state = problem.correlation(W)

    def block_correlation(self, part: slice) -> FloatArray:
        """Correlations of the rows of a block with the residuals."""
        return self.state[part]

    def move(self, part: slice, change: FloatArray) -> None:
        """Account for a change of a block of W."""
        rows = np.flatnonzero(change.any(axis=1))
        self.state -= self.Q[part][rows].T @ change[rows]

    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""
        return self.state


class ColumnDescent(BlockDescent):
    """Descent that keeps the residuals up to date."""

    def __init__(self, problem: RowProblem, W: FloatArray, columns: Columns) -> None:
        super().__init__(problem, W)
        self.parts_of_columns = {part.start: columns.take(part) for part in self.parts}
        self.columns = columns
        self.blocks = [part.gram(part) for part in self.parts_of_columns.values()]
        rows = np.flatnonzero(W.any(axis=1))
        self.residual = problem.Y - columns.take(rows).predict(W[rows])

    def is_due(self, part: slice) -> bool:
        """Blocks of zeros are gone through now and then."""
        return self.n_epochs % ZEROS_EVERY == 1 or bool(self.W[part].any())

    def block_correlation(self, part: slice) -> FloatArray:
        """Correlations of the rows of a block with the residuals."""
        result: FloatArray = self.parts_of_columns[part.start].correlations(self.residual)
        return result

    def move(self, part: slice, change: FloatArray) -> None:
        """Account for a change of a block of W."""
        self.residual -= self.parts_of_columns[part.start].predict(change)

    def correlation(self) -> FloatArray:
        """Correlations of all rows with the residuals."""
        result: FloatArray = self.columns.correlations(self.residual)
        return result
