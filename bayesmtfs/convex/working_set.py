"""Working-set proximal Newton method for any smooth loss, any row penalty, and any design.

Objective: the convex problem of `problem`. Every task may have its own design, missing cells and weights, so that the
curvature of the loss differs between tasks and the step of a row is not a proximal step (see `row_steps`).

A round is

1. the gradient of the loss for all features, which gives each row a score (its dual norm over the penalty strength: a
   zero row with a score above 1 must enter) and a dual point, hence a bound on the suboptimality;
2. a working set: the rows that are not zero and those with the largest scores;
3. a quadratic model of the loss on it (`quadratic_models`), solved a few times more accurately than the current gap;
4. a line search along the step to its minimum.

The squared loss is its own quadratic model, so that rounds after the first serve to enlarge the working set. What makes
it fast: full passes over the data are few and happen only in 1; everything in 3 is a compiled loop over numbers that
fit the cache, warm from round to round; and no model is solved more accurately than the round can use.

The idea of solving on a growing set of rows up to a share of the duality gap is that of Massias, Gramfort and Salmon
2018 (*Celer*, ICML); see there and Lee, Sun and Saunders 2014 for convergence.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import proximal_gradient
from bayesmtfs.convex.columns import ColumnDesign, Columns, by_columns
from bayesmtfs.convex.penalty_rows import PenaltyRows
from bayesmtfs.convex.problem import Problem, with_zero_sum
from bayesmtfs.convex.quadratic_models import QuadraticModel, quadratic_model
from bayesmtfs.families import total, total_conjugate
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, IntArray, Solution

FIRST_ROWS = 100  # working set of the first round
GROWTH = 2  # size of later ones, in supports
PROMISING = 0.95  # score above which a zero row may join
INNER_SHARE = 0.1  # of the gap, to which a model is solved
FINAL_SHARE = 0.3  # of the tolerated gap, below which no model needs to go
SUFFICIENT = 0.01  # share of the predicted decrease that the line search wants
SMALLEST_STEP = 1e-8
ROUNDING = 1e-15  # of an objective
LEAST_DAMPING = 1e-9  # share of the largest curvature of the loss that every observation has at least
FIRST_DAMPING = 0.02  # the same after a step that had to be shortened
PATIENCE = 10  # rounds without progress before the plain solver takes over


class Point(NamedTuple):
    """Coefficients of the rows that are not zero, and what follows from them."""

    active: IntArray  # (A,) numbers of the rows, ascending
    W: FloatArray  # (k, m) coefficients of their features
    intercept: FloatArray  # (m,)
    eta: FloatArray  # (N,) linear predictor
    loss: float
    penalty: float

    @property
    def objective(self) -> float:
        """Loss plus penalty."""
        return self.loss + self.penalty


class WorkingSet(NamedTuple):
    """Rows that may move, with their columns and, where it lasts, the quadratic model of the loss on them."""

    chosen: IntArray  # numbers of the rows, ascending
    rows: PenaltyRows
    columns: Columns
    model: QuadraticModel | None


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
    design: ColumnDesign | None = None,
) -> Solution:
    """Minimise the problem.

    Parameters
    ----------
    problem : what to minimise; its loss must be smooth
    start : an earlier solution to begin from
    tol : gap to reach, relative to the objective at W = 0
    max_iter : most rounds
    progress : see `progress.Progress`
    design : the problem's data by columns, where several problems share them (`columns.by_columns`)
    """
    design = by_columns(problem.data) if design is None else design
    rows = PenaltyRows.of(problem)
    point = _first_point(problem, design, rows, start)
    wanted = tol * problem.gap_scale
    working: WorkingSet | None = None
    dual, damping, waiting, smallest_gap = -np.inf, LEAST_DAMPING, 0, np.inf
    trace: list[float] = []
    interrupted = False
    with Progress("working set", progress) as bar:
        try:
            while len(trace) <= max_iter and waiting < PATIENCE:
                slope = problem.weight * problem.family.gradient(problem.data.y, point.eta)
                scores, value = _certify(problem, design, rows, slope)
                dual = max(dual, value)
                gap = point.objective - dual
                trace.append(point.objective)
                if gap <= wanted or len(trace) > max_iter:
                    break
                bar.update(_fraction(gap, problem.gap_scale, tol), f"gap {gap:.1e}")
                waiting = waiting + 1 if gap > 0.9 * smallest_gap else 0
                smallest_gap = min(gap, smallest_gap)
                working = _working_set(problem, design, rows, point, scores, working)
                gaps = _inner_gaps(problem, gap, wanted)
                point, working, damping = _newton_step(problem, point, slope, working, gaps, damping)
        except KeyboardInterrupt:
            interrupted = True
    solution = _solution(problem, rows, point, dual, wanted, trace, interrupted)
    if solution.converged or interrupted or len(trace) > max_iter:
        return solution
    return _by_plain_solver(problem, solution, tol, max_iter, progress)


def _first_point(problem: Problem, design: ColumnDesign, rows: PenaltyRows, start: Solution | None) -> Point:
    if start is None:
        nothing = np.zeros((0, problem.data.n_tasks))
        eta = problem.null_intercept[problem.data.task]
        return Point(np.arange(0), nothing, problem.null_intercept, eta, problem.null_objective, 0.0)
    W = start.W[rows.features]
    active = np.flatnonzero(np.add.reduceat(np.any(W != 0, axis=1), rows.starts[:-1]))
    some = rows.take(active)
    W = start.W[some.features]
    eta = design.take(some.features).linear_predictor(W) + start.intercept[problem.data.task]
    loss = total(problem.family, problem.data.y, eta, problem.weight)
    return Point(active, W, start.intercept, eta, loss, some.value(W, some.norms(W)))


def _certify(problem: Problem, design: ColumnDesign, rows: PenaltyRows, slope: FloatArray) -> tuple[FloatArray, float]:
    """Score of every row, and the dual value of the slopes made feasible."""
    data = problem.data
    theta = _with_zero_sums(problem, slope)
    norms = design.scores(rows, theta)
    largest = float(norms.max(initial=0.0))
    strength = rows.penalty.strength
    feasible = strength / largest if largest > 0 else np.inf
    if problem.family.name == "squared":
        # The dual is a parabola along the ray: take its top, or the end of the feasible part
        square, inner = float(theta @ (theta / problem.weight)), float(theta @ data.y)
        scale = min(max(-inner / square, 0.0), feasible) if square > 0 else 0.0
        value = -scale * (inner + 0.5 * scale * square)
    else:
        value = -total_conjugate(problem.family, data.y, min(1.0, feasible) * theta, problem.weight)
    return norms / strength if strength > 0 else np.where(norms > 0, np.inf, 0.0), value


def _with_zero_sums(problem: Problem, slope: FloatArray) -> FloatArray:
    """Slopes whose sum over each task with an intercept is 0, within the domain of the conjugate loss."""
    if not problem.fit_intercept:
        return slope
    if problem.family.name == "squared":  # whose conjugate is finite everywhere: centre them
        means = problem.task_sums(slope) / problem.task_weight
        return slope - problem.weight * means[problem.data.task]
    return with_zero_sum(slope, problem.data.task, problem.data.offsets[:-1])


def _working_set(
    problem: Problem,
    design: ColumnDesign,
    rows: PenaltyRows,
    point: Point,
    scores: FloatArray,
    before: WorkingSet | None,
) -> WorkingSet:
    """Rows that are not zero, and those with the largest scores."""
    scores[point.active] = np.inf
    chosen = np.flatnonzero(scores > min(PROMISING, float(scores.max()) * PROMISING))
    size = max(FIRST_ROWS, GROWTH * len(point.active))
    if len(chosen) > size:
        chosen = np.sort(chosen[np.argpartition(-scores[chosen], size - 1)[:size]])
    elif 2 * len(chosen) > rows.n_rows:
        chosen = np.arange(rows.n_rows)
    if before is not None and np.array_equal(before.chosen, chosen):
        return before
    some = rows.take(chosen)
    return WorkingSet(chosen, some, design.take(some.features), None)


def _inner_gaps(problem: Problem, gap: float, wanted: float) -> tuple[float, float]:
    """Gap to which a model must be solved, and gap that would be worth some more sweeps."""
    final = FINAL_SHARE * wanted
    needed = max(final, INNER_SHARE * gap)
    return needed, final if problem.family.name == "squared" else needed


def _newton_step(
    problem: Problem,
    point: Point,
    slope: FloatArray,
    working: WorkingSet,
    gaps: tuple[float, float],
    damping: float,
) -> tuple[Point, WorkingSet, float]:
    """Minimise the quadratic model at a point and go as far towards its minimum as the objective falls."""
    data, loss = problem.data, problem.family
    lasting = loss.quadratic
    curvature = problem.weight
    if not lasting:
        curvature = curvature * np.maximum(loss.curvature(data.y, point.eta), damping * (loss.curvature_bound or 0.0))
    curvature_sums = np.full(data.n_tasks, np.inf)
    if problem.fit_intercept:
        curvature_sums = problem.task_sums(curvature)
    shift = -problem.task_sums(slope) / curvature_sums
    model = working.model
    if model is None:
        model = quadratic_model(working.columns, working.rows, curvature, curvature_sums, lasting)
    moved = np.zeros(working.rows.n_rows, dtype=bool)
    moved[np.searchsorted(working.chosen, point.active)] = True
    W = np.zeros((len(working.rows.features), data.n_tasks))
    W[np.repeat(moved, working.rows.sizes)] = point.W
    model.start(W, slope + curvature * shift[data.task])
    model.minimise(*gaps)
    move = model.coefficients - W
    shift = shift - np.einsum("km,km->m", model.means, move)
    eta_move = working.columns.linear_predictor(move) + shift[data.task]
    predicted = float(slope @ eta_move) + working.rows.value(model.coefficients, model.norms) - point.penalty
    step = 1.0
    while step >= SMALLEST_STEP:
        new_W = model.coefficients if step == 1.0 else W + step * move
        eta = point.eta + step * eta_move
        new_loss = total(loss, data.y, eta, problem.weight)
        norms = model.norms if step == 1.0 else working.rows.norms(new_W)
        penalty = working.rows.value(new_W, norms)
        if new_loss + penalty <= point.objective * (1.0 + ROUNDING) + SUFFICIENT * step * predicted:
            alive = norms > 0
            new_W = new_W[np.repeat(alive, working.rows.sizes)]
            point = Point(working.chosen[alive], new_W, point.intercept + step * shift, eta, new_loss, penalty)
            break
        step *= 0.5
    if step < 1.0:
        damping = min(1.0, max(FIRST_DAMPING, 4.0 * damping))
    else:
        damping = damping / 4.0 if damping > FIRST_DAMPING / 4.0 else LEAST_DAMPING
    return point, working._replace(model=model if lasting else None), damping


def _solution(
    problem: Problem,
    rows: PenaltyRows,
    point: Point,
    dual: float,
    wanted: float,
    trace: list[float],
    interrupted: bool,
) -> Solution:
    W = np.zeros((problem.data.n_features, problem.data.n_tasks))
    W[rows.take(point.active).features] = point.W
    gap = max(point.objective - dual, 0.0)
    return Solution(
        W=W,
        intercept=point.intercept,
        objective=point.objective,
        gap=gap,
        scale=problem.gap_scale,
        converged=gap <= wanted,
        n_iter=len(trace) - 1,
        objective_trace=np.array(trace),
        interrupted=interrupted,
    )


def _by_plain_solver(problem: Problem, stuck: Solution, tol: float, max_iter: int, progress: bool | None) -> Solution:
    """Go on with the plain solver, whose steps are short but always lead down."""
    plain = proximal_gradient.solve(problem, stuck, tol=tol, max_iter=max_iter - stuck.n_iter, progress=progress)
    if plain.gap > stuck.gap:
        plain = stuck
    return plain._replace(
        n_iter=stuck.n_iter + plain.n_iter, objective_trace=np.append(stuck.objective_trace, plain.objective_trace)
    )


def _fraction(gap: float, scale: float, tol: float) -> float:
    """How far the gap has come, on a log scale."""
    relative = gap / scale if scale > 0 else tol
    return float(np.clip(np.log(relative) / np.log(tol), 0.0, 1.0)) if relative > 0 else 1.0
