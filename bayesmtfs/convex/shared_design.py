"""Working-set solver for the squared loss where all tasks share one design.

    minimise over W, b:   sum_i c_i/2 ||y_i - W'x_i - b||^2 + sum_j penalty_j(w^j)

for any row penalty (q-norm with 1 <= q <= inf, or sparse-group) and row factors c that are the same for all tasks.
Rounds alternate between a working set of columns, on which the problem is solved by `shared_design_rows`, and a look
at all columns, which certifies the result by a duality gap or brings new columns in (Massias, Gramfort and Salmon
2018, *Celer*, ICML). What makes it fast:

- The product of X with the residuals is most of the work, so that there are as few of them as can be: one to begin
  with and one per round. A working set is solved to the accuracy that is wanted in the end, unless that takes longer
  than another look; and where the residuals hardly moved, most columns are certified without one (`Scores`).
- The Gram matrix of the working set serves all tasks, and rows have isotropic curvature: an exact row update is one
  proximal step, and at q = 2 a Newton step takes one Cholesky factor of the size of the support.
- Along a path `State` carries columns, Gram matrix and scores on, so that few full products are left.

X is never copied or centred: an intercept is fitted by centring the residuals and the columns in use.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from bayesmtfs.convex.problem import ROUNDING, Problem
from bayesmtfs.convex.shared_design_columns import Columns, SharedDesign
from bayesmtfs.convex.shared_design_rows import ColumnGram, Goal, RowProblem, StoredGram, best_dual, minimise
from bayesmtfs.convex.shared_design_scores import Scores
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, IntArray, Solution

FIRST_ROWS = 100  # smallest size of the first working set
MARGIN = 1.5  # columns brought in, per column that violates its bound
KEPT_SCORE = 0.9  # columns below this score leave the working set with the next change
INNER_SHARE = 0.3  # of the gap that is wanted: where a working set counts as solved
ROUGH_SHARE = 0.1  # of the gap before a round: where a working set may be left that takes long to solve
MAX_REPEATS = 3  # rounds on the same columns, each ten times as accurate; then rounding is in the way
LARGEST_GRAM = 6000  # columns
GRAM_PER_TASK = 200  # columns per task, above which epochs without a Gram matrix are cheaper than the matrix


def applies(problem: Problem) -> bool:
    """Whether this solver fits a problem."""
    data, penalty = problem.data, problem.penalty
    if problem.family.name != "squared" or not data.is_complete:
        return False
    if data.groups is not None or data.present is not None or penalty.strength == 0.0:
        return False
    if penalty.weights is not None and not np.all(penalty.weights > 0.0):
        return False
    factors = problem.weight.reshape(data.n_tasks, -1)
    return bool(np.all(factors == factors[0]))


class WorkingSet(NamedTuple):
    """Columns in use and what is known of them."""

    features: IntArray  # (k,)
    columns: Columns  # of length 1
    Q: FloatArray | None  # (k, k) their Gram matrix, unless there are too many of them
    W: FloatArray  # (k, m) coefficients on columns of length 1

    @property
    def active(self) -> IntArray:
        """Places of the rows that are not zero."""
        return np.flatnonzero(self.W.any(axis=1))


class State:
    """What one solve leaves to the next on the same data: pass one object along a path of penalty strengths.

    Parameters
    ----------
    problem : data and penalty; only the strength of the penalty may change later
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.design = SharedDesign(problem)
        self.scores = Scores(self.design, problem.penalty)
        self.working: WorkingSet | None = None

    def largest_penalty(self) -> float:
        """Smallest strength at which W = 0 is optimal; the look at all columns that it takes serves the next solve."""
        return float(self.scores.exact(self.design.Y).max()) * self.design.unit

    def fits(self, problem: Problem) -> bool:
        """Whether the state belongs to a problem, up to its penalty strength."""
        mine = self.problem
        same_data = mine.data is problem.data and mine.weight is problem.weight
        return same_data and mine.fit_intercept == problem.fit_intercept and mine.penalty.is_like(problem.penalty)


class Certificate(NamedTuple):
    """A point and what is known of it, on the scale of `SharedDesign`."""

    working: WorkingSet
    objective: float
    gap: float
    scores: FloatArray  # (p,) dual norms relative to the penalty strength; where they are below 1, upper bounds


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
    state: State | None = None,
) -> Solution:
    """Minimise the problem.

    Parameters
    ----------
    problem : what to minimise; see `applies`
    start : an earlier solution to begin from
    tol : gap to reach, relative to the objective at W = 0
    max_iter : most epochs of coordinate descent and Newton steps together
    progress : see `progress.Progress`
    state : what an earlier solve on the same data and penalty left; it is brought up to date

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> from bayesmtfs.families import Gaussian
    >>> from bayesmtfs.priors import RowPenalty
    >>> data = TaskData.from_wide(np.eye(3), [[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    >>> problem = Problem(data, Gaussian(), RowPenalty(1.0, 2.0), data.weight, fit_intercept=False)
    >>> solve(problem).W.round(6)
    array([[2.4, 3.2],
           [0. , 0. ],
           [0. , 0. ]])
    """
    if not applies(problem):
        raise ValueError(
            "solver 'shared_design' wants the squared loss, all tasks observed at all rows of one design, one weight "
            "per row, no groups and a positive penalty for every row; pass solver='auto'"
        )
    if state is None:
        state = State(problem)
    elif not state.fits(problem):
        raise ValueError("state belongs to other data or another penalty; pass one made from this problem, or None")
    search = _Search(problem, state, start)
    best = search.certify()
    trace, n_iter, interrupted = [best.objective], 0, False
    wanted = tol * search.scale
    with Progress("working set", progress) as bar:
        try:
            n_repeats = 0  # rounds in which no column was missing: the working set was not solved well enough
            while best.gap > wanted and n_iter < max_iter and n_repeats <= MAX_REPEATS:
                n_repeats = 0 if search.extend(best.scores) else n_repeats + 1
                inner_gap = INNER_SHARE * wanted * 0.1 ** max(n_repeats - 1, 0)
                rough_gap = ROUGH_SHARE * best.gap if n_repeats == 0 else 0.0
                n_iter += search.minimise(inner_gap, rough_gap, max_iter - n_iter)
                current = search.certify()
                trace.append(current.objective)
                best = current if current.gap <= best.gap else best._replace(scores=current.scores)
                bar.update(_fraction(best.gap / search.scale, tol), f"gap {best.gap / search.scale:.1e}")
        except KeyboardInterrupt:
            interrupted = True
    return search.solution(best, tol, n_iter, trace, interrupted)


class _Search:
    """One solve: the problem at its penalty strength, and the state that changes from round to round."""

    def __init__(self, problem: Problem, state: State, start: Solution | None) -> None:
        self.problem, self.state, self.design = problem, state, state.design
        self.penalty = problem.penalty
        self.strength = self.penalty.strength / self.design.unit
        self.strengths = self.penalty.strengths(problem.data.n_features) / self.design.unit
        self.null_objective = float(np.vdot(self.design.Y, self.design.Y)) / 2
        at_zero = float(problem.weight @ np.square(problem.data.y)) / 2 / self.design.unit
        self.scale = max(self.null_objective, ROUNDING * at_zero)
        self.best_dual = -np.inf
        self._begin(start)

    def _begin(self, start: Solution | None) -> None:
        """Put the rows of the start into the working set."""
        working = self.state.working
        if working is None:
            none = np.empty(0, dtype=np.int64)
            empty = np.zeros((0, self.problem.data.n_tasks))
            working = WorkingSet(none, self.design.columns(none), np.zeros((0, 0)), empty)
        self.working = working._replace(W=np.zeros_like(working.W))
        if start is not None:
            support = np.flatnonzero(start.W.any(axis=1))
            missing = support[~np.isin(support, self.working.features)]
            if len(missing) > 0:
                self._add(missing)
            W = start.W[self.working.features] * self.working.columns.length[:, None]
            self.working = self.working._replace(W=W)

    def certify(self) -> Certificate:
        """Objective and duality gap of the working set's coefficients, on all columns."""
        working, design = self.working, self.design
        active = working.active
        W, columns = working.W[active], working.columns.take(active)
        self.residual = residual = design.centred(design.Y - columns.predict(W))
        middle = len(working.features) // 2
        length = float(np.partition(working.columns.length, middle)[middle]) if len(working.features) > 0 else 0.0
        scores = self.state.scores.bounds(residual, self.strength, length) / self.strength
        square, cross = float(np.vdot(residual, residual)), float(np.vdot(residual, design.Y))
        self.best_dual = max(self.best_dual, best_dual(cross, square, float(scores.max())))
        objective = square / 2 + self._penalty(active).value(W)
        return Certificate(working, objective, max(objective - self.best_dual, 0.0), scores)

    def extend(self, scores: FloatArray) -> bool:
        """Bring columns into the working set; whether there were any that violate their bound."""
        working = self.working
        outside = scores.copy()
        outside[working.features] = 0.0
        n_violating = int(np.count_nonzero(outside > 1.0))
        if n_violating == 0:
            return False
        p, m = len(scores), self.problem.data.n_tasks
        first = max(FIRST_ROWS, int(np.sqrt(0.3 * p * m)))
        n_active = len(working.active)
        n_new = first if len(working.features) == 0 else min(int(MARGIN * n_violating), max(2 * first, 6 * n_active))
        n_new = min(n_new + 1, p)
        best = np.argpartition(outside, p - n_new)[p - n_new :]
        best = best[np.argsort(-outside[best])]
        kept = working.W.any(axis=1) | (scores[working.features] > KEPT_SCORE)
        self._keep(np.flatnonzero(kept))
        self._add(best[outside[best] > 0.0])
        return True

    def _keep(self, rows: IntArray) -> None:
        features, columns, Q, W = self.working
        if len(rows) < len(features):
            kept_Q = None if Q is None else Q[np.ix_(rows, rows)]
            self.working = WorkingSet(features[rows], columns.take(rows), kept_Q, W[rows])

    def _add(self, features: IntArray) -> None:
        """Add columns, with coefficients of zero."""
        old = self.working
        fresh = self.design.columns(features)
        usable = fresh.length > 0
        if not usable.all():
            self.design.is_null[features[~usable]] = True
            features, fresh = features[usable], fresh.take(np.flatnonzero(usable))
        k, n_fresh = len(old.features), len(features)
        Q = None
        if k + n_fresh <= self._largest_gram():
            Q = np.empty((k + n_fresh, k + n_fresh))
            Q[:k, :k] = old.columns.gram(old.columns) if old.Q is None else old.Q
            Q[k:, :k] = fresh.gram(old.columns)
            Q[:k, k:] = Q[k:, :k].T
            Q[k:, k:] = fresh.gram(fresh)
        W = np.concatenate([old.W, np.zeros((n_fresh, old.W.shape[1]))])
        columns = old.columns.join(fresh) if k > 0 else fresh
        self.working = WorkingSet(np.append(old.features, features), columns, Q, W)

    def _largest_gram(self) -> int:
        """Columns up to which a Gram matrix pays: in memory, and against epochs that do without."""
        n, m = self.design.X.shape[0], self.problem.data.n_tasks
        return max(3 * FIRST_ROWS, min(max(n, 10 * FIRST_ROWS), GRAM_PER_TASK * m, LARGEST_GRAM))

    def minimise(self, gap: float, rough_gap: float, max_iter: int) -> int:
        """Solve the problem on the working set; the number of iterations.

        The smaller gap is sought as long as that takes no more work than another look at all columns.
        """
        working = self.working
        gram = ColumnGram(working.columns) if working.Q is None else StoredGram(working.Q)
        penalty = self._penalty(np.arange(len(working.features)))
        # the target as seen from the residual: what rounding did to the Gram matrix shrinks from round to round
        target = working.columns.correlations(self.residual) + gram.times(working.W)
        rows = RowProblem(gram, self.design.Y, target, penalty, self.null_objective)
        look = 2.0 * self.design.X.size * self.problem.data.n_tasks
        with _blas().limit(limits=1):  # on small matrices threads wait for each other more than they work
            W, n_iter = minimise(rows, working.W, Goal(gap, rough_gap, look, max_iter))
        self.working = working._replace(W=W)
        return n_iter

    def _penalty(self, rows: IntArray) -> RowPenalty:
        """Penalty of some rows of the working set, for columns of length 1."""
        features, length = self.working.features[rows], self.working.columns.length[rows]
        return replace(self.penalty.take(features), strength=1.0, weights=self.strengths[features] / length)

    def solution(self, best: Certificate, tol: float, n_iter: int, trace: list[float], interrupted: bool) -> Solution:
        """Return the result in the units of the problem, and leave the working set to the next solve."""
        self.state.working = self.working
        data, unit, working = self.problem.data, self.design.unit, best.working
        active = working.active
        rows = working.W[active] / working.columns.length[active][:, None]
        W = np.zeros((data.n_features, data.n_tasks))
        W[working.features[active]] = rows
        return Solution(
            W=W,
            intercept=self.design.y_mean - working.columns.mean[active] @ rows,
            objective=best.objective * unit,
            gap=best.gap * unit,
            scale=self.scale * unit,
            converged=best.gap <= tol * self.scale,
            n_iter=n_iter,
            objective_trace=np.array(trace) * unit,
            interrupted=interrupted,
        )


@cache
def _blas() -> ThreadpoolController:
    """Return the threads of the linear algebra libraries; finding them takes milliseconds."""
    return ThreadpoolController()


def _fraction(relative_gap: float, tol: float) -> float:
    """How far the gap has come, on a log scale."""
    wanted = max(tol, np.finfo(np.float64).eps)
    return 1.0 if relative_gap <= wanted else float(np.log10(min(relative_gap, 1.0)) / np.log10(wanted))
