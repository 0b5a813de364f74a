"""Working sets: alternate between a look at all rows of the penalty and a solve on the few that matter.

A round is

1. the gradient of the loss for all features, which gives each row a score (its dual norm over the penalty strength: a
   zero row with a score above 1 must enter) and a dual point, hence a bound on the suboptimality;
2. a working set: the rows that are not zero and those with the largest scores;
3. a solve on the working set, a few times more accurate than the current gap.

`run` goes through the rounds; two kinds of them exist. Those of `shared_design` are for the squared loss where all
tasks have one design. Those of this module, `NewtonRounds`, are for any smooth loss, any row penalty, and any design:
every task may have its own, with missing cells and weights, so that the curvature of the loss differs between tasks and
the step of a row is not a proximal step (see `row_steps`). Their solve is a proximal Newton step: a quadratic model of
the loss (`quadratic_models`), and a line search along the step to its minimum. The squared loss is its own quadratic
model, so that rounds after the first serve to enlarge the working set. What makes it fast: full passes over the data
are few and happen only in 1; everything in 3 is a compiled loop over numbers that fit the cache, warm from round to
round; and no model is solved more accurately than the round can use.

The idea of solving on a growing set of rows up to a share of the duality gap is that of Massias, Gramfort and Salmon
2018 (*Celer*, ICML); see there and Lee, Sun and Saunders 2014 for convergence.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import proximal_gradient
from bayesmtfs.convex.columns import ColumnDesign, Columns, SparseDesign, by_columns
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.quadratic_models import (
    EASY_ROUNDS,
    GRAM_LIMIT,
    ProductModel,
    QuadraticRowModel,
    minimised,
    quadratic_model,
)
from bayesmtfs.data.column_sums import TaskProducts
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import with_offset
from bayesmtfs.progress import Progress, share_of_way
from bayesmtfs.types import FloatArray, IntArray, Solution

FIRST_ROWS = 100  # working set of the first round
GROWTH = 2  # size of later ones, in supports
PROMISING = 0.95  # score above which a zero row may join
INNER_SHARE = 0.1  # of the gap, to which a model is solved
FINAL_SHARE = 0.3  # of the tolerated gap, below which no model needs to go
SUFFICIENT = 0.01  # share of the predicted decrease that the line search wants
SMALLEST_STEP = 1e-8
ROUNDING = 1e-14  # of an objective, a sum over many observations
FEW_FEATURES = 64  # up to which products of all columns take no longer than a few passes over the data
MANY_FEATURES = 256  # up to which they pay where most rows are going to move
MOST_PER_ROW = 2  # features per row of a task, for the same reasons
FINEST_PRODUCTS = 1e-9  # tolerance below which residuals tell more than Gram matrices
LEAST_DAMPING = 1e-9  # share of the largest curvature of the loss that every observation has at least
FIRST_DAMPING = 0.02  # the same after a step that had to be shortened
PATIENCE = 10  # rounds without progress before the plain solver takes over
COUPLED_PATIENCE = (
    1000  # the same where rows share a loss: their models have its diagonal only, and rounds lead less far
)


class WorkingSetRounds(ABC):
    """One search: what a round does."""

    scale: float  # on which a gap is small
    stuck = False  # whether more rounds will not help

    @abstractmethod
    def look(self) -> tuple[float, float]:
        """Objective of the current point, and the duality gap that a look at all rows leaves."""

    @abstractmethod
    def improve(self, wanted: float, max_iter: int) -> int:
        """Choose a working set and solve on it, on the way to a wanted gap; the number of iterations."""

    @abstractmethod
    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """W (p, m), intercepts (m,), objective and gap of the best point so far."""


def run(rounds: WorkingSetRounds, tol: float, max_iter: int, progress: bool | None) -> Solution:
    """Go through rounds until the gap is small enough."""
    trace: list[float] = []
    n_iter, wanted = 0, tol * rounds.scale
    with Progress("working set", progress) as work:
        while True:
            objective, gap = rounds.look()
            trace.append(objective)
            if gap <= wanted or n_iter >= max_iter or rounds.stuck:
                break
            work.update(share_of_way(gap, rounds.scale, tol), f"gap {gap:.1e}")
            n_iter += rounds.improve(wanted, max_iter - n_iter)
    W, b, objective, gap = rounds.answer()
    return Solution(W, b, objective, gap, rounds.scale, gap <= wanted, n_iter, np.array(trace), work.interrupted)


class ChosenRows(NamedTuple):
    """Rows that may move, with their columns and, where it lasts, the quadratic model of the loss on them."""

    chosen: IntArray  # numbers of the rows, ascending
    rows: PenaltyRows
    columns: Columns
    model: QuadraticRowModel | None


def _about_means(problem: Problem) -> TaskData:
    """The data, with dense columns about their means where the loss does not see the level of eta.

    The quadratic model has the curvatures of rows at a given level (baseline hazard, cut points), far from those of a loss
    that moves it along where a column is far from 0.
    """
    data, family = problem.data, with_offset(problem.family, None)
    if data.is_sparse or problem.fit_intercept or not (family.free_level or family.has_cuts):
        return data
    if data.shared_design:
        return replace(data, design=data.design - data.design.mean(axis=0))
    sizes = np.diff(data.offsets)
    means = np.add.reduceat(data.design, data.offsets[:-1], axis=0) / sizes[:, np.newaxis]
    return replace(data, design=data.design - np.repeat(means, sizes, axis=0))


class WorkingSetState:
    """What one solve leaves to the next on the same data and weights: the design by columns, a model that lasts."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.working: ChosenRows | None = None
        self.whole: ProductModel | None = None

    @cached_property
    def design(self) -> ColumnDesign:
        """The design by columns."""
        return by_columns(_about_means(self.problem))


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
    state: WorkingSetState | None = None,
) -> Solution:
    """Minimise a problem with a smooth loss by Newton steps on working sets, see `automatic.solve`.

    ``max_iter`` counts rounds; ``state`` is what an earlier solve on the same data left, and is brought up to date.
    """
    state = WorkingSetState(problem) if state is None else state
    if tol < FINEST_PRODUCTS or products_worth_taking(problem) is None:
        return _by_newton(problem, state, start, tol, max_iter, progress)
    rounds = ProductRounds(problem, state, start)
    found = run(rounds, tol, max_iter, progress)
    if found.converged or found.interrupted or not rounds.stuck:
        return found
    return _joined(found, _by_newton(problem, state, found, tol, max_iter - found.n_iter, progress))


def products_worth_taking(problem: Problem) -> TaskProducts | None:
    """Products of all columns, where features are few or most of them look as if they were going to move."""
    p, m, rows = problem.data.n_features, problem.data.n_tasks, problem.data.n_observations / problem.data.n_tasks
    if problem.products is not None or not problem.may_have_products or p * p * m > GRAM_LIMIT:
        return problem.products
    if p > min(FEW_FEATURES, rows):
        if p > min(MANY_FEATURES, MOST_PER_ROW * rows) or problem.penalty.strength == 0.0:
            return None
        norms = problem.penalty.dual_norm(problem.blocks.gather(problem.null_gradient))
        if 2 * np.count_nonzero(norms > PROMISING * problem.penalty.strength) <= len(norms):
            return None
    return problem.take_products()


def _by_newton(
    problem: Problem,
    state: WorkingSetState,
    start: Solution | None,
    tol: float,
    max_iter: int,
    progress: bool | None,
) -> Solution:
    """Newton steps, and where they are stuck the plain solver, whose steps are short but always lead down."""
    rounds = NewtonRounds(problem, state, start)
    found = run(rounds, tol, max_iter, progress)
    if found.converged or found.interrupted or not (rounds.stuck and problem.scales_by_sign):
        return found
    plain = proximal_gradient.solve(problem, found, tol=tol, max_iter=max_iter - found.n_iter, progress=progress)
    return _joined(found, plain)


def _joined(first: Solution, then: Solution) -> Solution:
    """The better of two solutions, the second of which went on from the first."""
    best = first if then.gap > first.gap else then
    trace = np.append(first.objective_trace, then.objective_trace)
    return best._replace(n_iter=first.n_iter + then.n_iter, objective_trace=trace, interrupted=then.interrupted)


class ProductRounds(WorkingSetRounds):
    """Squared loss with few features: all rows at once, by the Gram matrices of all features.

    The quadratic model is the problem, so that its gap is the gap, and no number depends on how many rows the data have.
    """

    def __init__(self, problem: Problem, state: WorkingSetState, start: Solution | None) -> None:
        rows = PenaltyRows.of(problem)
        assert problem.products is not None
        if state.whole is None:
            state.whole = ProductModel(problem.products, problem.task_weight, rows, problem.ridge)
        self.problem, self.model, self.scale = problem, state.whole, problem.gap_scale
        self.model.go_to(rows, None if start is None else start.W[rows.features])
        self.objective, self.gap, self.W = problem.null_objective, np.inf, self.model.coefficients
        if start is not None:
            self._measure()

    def look(self) -> tuple[float, float]:
        """Objective and gap, as the model has found them; at W = 0 it has not yet asked for the gap."""
        return self.objective, self.gap

    def _measure(self) -> None:
        """Objective and gap of the coefficients, by their exact gradient."""
        model, before = self.model, self.gap
        model.norms = model.rows.norms(model.coefficients)
        model.state[1][:] = model.exact_gradient()
        change, penalty = model.change(model.gradient()), model.penalty
        self._keep(change + penalty, model.gap(model.gradient(), change, penalty))
        self.stuck = self.stuck or self.gap >= before

    def _keep(self, change: float, gap: float) -> None:
        self.objective, self.gap = self.problem.null_objective + change, max(gap, 0.0)
        self.W = self.model.coefficients.copy()

    def improve(self, wanted: float, max_iter: int) -> int:
        """Minimise the model; after many sweeps the gradient that they kept may have gathered rounding errors."""
        model = self.model
        self.stuck = not model.minimise(wanted)
        if model.n_rounds > EASY_ROUNDS:
            self._measure()
        else:
            self._keep(model.change_found, model.gap_found)
        return 1

    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Return the point of the last look, or where the first solve was interrupted."""
        model, problem = self.model, self.problem
        if self.gap == np.inf:
            self._measure()
        W = np.empty((problem.data.n_tasks, problem.data.n_features)).T  # in the order of `coef_`
        W[model.rows.features] = self.W
        intercept = problem.null_intercept - np.einsum("km,km->m", model.means, self.W)
        return W, intercept, self.objective, self.gap


class ActivePoint(NamedTuple):
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


class NewtonMove(NamedTuple):
    """A move to the minimum of a quadratic model."""

    W: FloatArray  # (k, m) where it begins
    change: FloatArray  # (k, m)
    eta: FloatArray  # (N,) change of the linear predictor
    intercept: FloatArray  # (m,) change of the intercepts
    predicted: float  # change of the objective, to first order in the loss


class NewtonRounds(WorkingSetRounds):
    """Proximal Newton steps on working sets."""

    def __init__(self, problem: Problem, state: WorkingSetState, start: Solution | None) -> None:
        self.problem, self.state, self.design = problem, state, state.design
        self.rows = PenaltyRows.of(problem)
        self.scale = problem.gap_scale
        self.point, self.at_zero = self._first_point(start), start is None
        self.gradient: FloatArray | None = None  # (p, m) of the loss at the point
        self.working = state.working
        if self.working is not None:
            self.working = self.working._replace(rows=self.rows.take(self.working.chosen))
        self.dual, self.gap, self.smallest_gap = -np.inf, np.inf, np.inf
        self.damping, self.waiting = LEAST_DAMPING, 0
        self.patience = COUPLED_PATIENCE if problem.family.coupled else PATIENCE

    def _first_point(self, start: Solution | None) -> ActivePoint:
        problem, rows = self.problem, self.rows
        if start is None:
            nothing = np.zeros((0, problem.data.n_tasks))
            eta = problem.null_intercept[problem.data.task]
            return ActivePoint(np.arange(0), nothing, problem.null_intercept, eta, problem.null_objective, 0.0)
        alive = np.any(start.W[rows.features] != 0, axis=1)
        active = np.flatnonzero(np.add.reduceat(alive, rows.starts[:-1]))
        some = rows.take(active)
        W = start.W[some.features]
        eta = self.design.take(some.features).linear_predictor(W) + start.intercept[problem.data.task]
        loss = problem.loss(eta)
        penalty = some.value(W, some.norms(W)) + problem.ridge_value(W)
        return ActivePoint(active, W, start.intercept, eta, loss, penalty)

    def look(self) -> tuple[float, float]:
        """Score every row and bound the suboptimality by the slopes made dual feasible."""
        problem, strength = self.problem, self.problem.penalty.strength
        self.slope = problem.weight * problem.family.gradient(problem.data.y, self.point.eta)
        theta, norms = self._score()
        if problem.ridge > 0.0:
            self._look_with_ridge(theta, norms)
        else:
            self.dual = max(self.dual, problem.dual_on_ray(theta, problem.feasible_end(norms)))
        self.scores = norms / strength if strength > 0 else np.where(norms > 0, np.inf, 0.0)
        self.gap = self.point.objective - self.dual
        self.waiting = self.waiting + 1 if self.gap > 0.9 * self.smallest_gap else 0
        self.smallest_gap = min(self.gap, self.smallest_gap)
        self.stuck = self.waiting >= self.patience
        return self.point.objective, self.gap

    def _look_with_ridge(self, theta: FloatArray, norms: FloatArray) -> None:
        """Dual value with a ridge; the norms (R,) of rows that are not zero become those of ``X' theta + ridge W``."""
        problem, point = self.problem, self.point
        outside = self.rows.take(np.flatnonzero(norms > problem.penalty.strength))
        excess = outside.penalty.prox(outside.gather(self._gradient(outside, theta)), 1.0)
        active = self.rows.take(point.active)
        norms[point.active] = active.dual_norms(self._gradient(active, theta) + problem.ridge * point.W)
        on_ray = problem.dual_on_ray(theta, problem.feasible_end(norms), 2.0 * problem.ridge_value(point.W))
        self.dual = max(self.dual, on_ray, problem.elastic_dual(theta, excess))

    def _gradient(self, rows: PenaltyRows, theta: FloatArray) -> FloatArray:
        """(k, m) ``X' theta`` of some rows."""
        return self.design.take(rows.features).adjoint(theta)[:, : len(rows.features)].T

    def _score(self) -> tuple[FloatArray, FloatArray]:
        """Dual point (N,), the slopes with sums of 0 over each task with an intercept, and the dual norms (R,) of rows.

        Where the loss is quadratic, what a dense design makes of the dual point is also the gradient of the next model.
        """
        problem, slope = self.problem, self.slope
        if self.at_zero:
            theta = problem.null_dual
        else:
            theta = problem.with_zero_sums(slope) if problem.fit_intercept else slope
        if isinstance(self.design, SparseDesign):
            return theta, self.design.scores(self.rows, theta)
        self.gradient = problem.null_gradient if self.at_zero else self.design.gradient(theta)
        return theta, self.rows.dual_norms(self.gradient[self.rows.features] if self.rows.grouped else self.gradient)

    def improve(self, wanted: float, max_iter: int) -> int:
        """Minimise the quadratic model at the point and go as far towards its minimum as the objective falls."""
        self.at_zero = False
        working = self._choose_rows()
        curvature, sums, slope, shift = self._model_terms()
        lasting = self.problem.family.quadratic
        model = working.model
        if model is None:
            model = quadratic_model(working.columns, working.rows, curvature, sums, lasting, self.problem.ridge)
        W = self._coefficients(working)
        known = None if self.gradient is None or not lasting else self.gradient[working.rows.features]
        model.start(working.rows, W, slope, gradient=known)
        final = FINAL_SHARE * wanted
        needed = max(final, INNER_SHARE * self.gap)
        model = minimised(model, needed, final if lasting else needed)
        step = self._search_line(working, model, self._move(working, model, W, shift))
        if step < SMALLEST_STEP and self.damping == 1.0:  # nothing leads down: another solver may be more exact
            self.patience = PATIENCE
        if step < 1.0:
            self.damping = min(1.0, max(FIRST_DAMPING, 4.0 * self.damping))
        else:
            self.damping = self.damping / 4.0 if self.damping > FIRST_DAMPING / 4.0 else LEAST_DAMPING
        self.working = working._replace(model=model if lasting else None)
        return 1

    def _choose_rows(self) -> ChosenRows:
        """Rows that are not zero, and those with the largest scores."""
        scores, n_rows = self.scores, self.rows.n_rows
        scores[self.point.active] = np.inf
        chosen = np.flatnonzero(scores > min(PROMISING, float(scores.max()) * PROMISING))
        size = max(FIRST_ROWS, GROWTH * len(self.point.active))
        if len(chosen) > size:
            chosen = np.sort(chosen[np.argpartition(-scores[chosen], size - 1)[:size]])
        elif 2 * len(chosen) > n_rows:
            chosen = np.arange(n_rows)
        if self.working is not None and np.array_equal(self.working.chosen, chosen):
            return self.working
        some = self.rows.take(chosen)
        return ChosenRows(chosen, some, self.design.take(some.features), None)

    def _model_terms(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Curvatures (N,) of the loss, their sums (m,), slopes (N,) after the best move of the intercepts, and this move.

        The sum is inf where a task has no intercept, which keeps it where it is.
        """
        problem, curvature = self.problem, self.problem.weight
        if not problem.family.quadratic:
            second = problem.family.curvature(problem.data.y, self.point.eta)
            bound = problem.family.curvature_bound
            largest = float(second.max()) if bound is None else bound
            curvature = curvature * np.maximum(second, self.damping * largest)
        sums = problem.task_sums(curvature) if problem.fit_intercept else np.full(problem.data.n_tasks, np.inf)
        shift = -problem.task_sums(self.slope) / sums
        return curvature, sums, self.slope + curvature * shift[problem.data.task], shift

    def _coefficients(self, working: ChosenRows) -> FloatArray:
        """(k, m) Coefficients of the working set."""
        alive = np.zeros(working.rows.n_rows, dtype=bool)
        alive[np.searchsorted(working.chosen, self.point.active)] = True
        W = np.zeros((len(working.rows.features), self.problem.data.n_tasks))
        W[np.repeat(alive, working.rows.sizes)] = self.point.W
        return W

    def _move(self, working: ChosenRows, model: QuadraticRowModel, W: FloatArray, shift: FloatArray) -> NewtonMove:
        change = model.coefficients - W
        intercept = shift - np.einsum("km,km->m", model.means, change)
        eta = working.columns.linear_predictor(change) + intercept[self.problem.data.task]
        penalty = working.rows.value(model.coefficients, model.norms) + self.problem.ridge_value(model.coefficients)
        penalty_change = penalty - self.point.penalty
        return NewtonMove(W, change, eta, intercept, float(np.sum(self.slope * eta)) + penalty_change)

    def _search_line(self, working: ChosenRows, model: QuadraticRowModel, move: NewtonMove) -> float:
        """Go along a move as far as the objective falls enough; the share of it that was gone, below 1 if shortened."""
        problem, point, step = self.problem, self.point, 1.0
        while step >= SMALLEST_STEP:
            W = model.coefficients if step == 1.0 else move.W + step * move.change
            eta = point.eta + step * move.eta
            loss = problem.loss(eta)
            norms = model.norms if step == 1.0 else working.rows.norms(W)
            penalty = working.rows.value(W, norms) + problem.ridge_value(W)
            if loss + penalty <= point.objective + ROUNDING * abs(point.objective) + SUFFICIENT * step * move.predicted:
                alive = norms > 0
                intercept = point.intercept + step * move.intercept
                W = W[np.repeat(alive, working.rows.sizes)]
                self.point = self._levelled(ActivePoint(working.chosen[alive], W, intercept, eta, loss, penalty))
                break
            step *= 0.5
        return step

    def _levelled(self, point: ActivePoint) -> ActivePoint:
        """The point with the cheapest of the coefficients that have its loss, where a coupled family leaves a choice.

        Its linear predictor then has other constants, which change no loss and no slope.
        """
        problem, penalty = self.problem, self.rows.penalty
        if not problem.family.coupled or np.any(penalty.task_sparsity):
            return point
        W = problem.family.levelled(point.W, penalty.norm_q)
        if W is point.W:
            return point
        rows = self.rows.take(point.active)
        value = rows.value(W, rows.norms(W)) + problem.ridge_value(W)
        return point._replace(W=W, penalty=value) if value < point.penalty else point

    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Return the current point, since no step goes up, and leave a lasting working set to the next solve."""
        if self.problem.family.quadratic:
            self.state.working = self.working
        point = self.point
        W = np.zeros((self.problem.data.n_tasks, self.problem.data.n_features)).T  # in the order of `coef_`
        W[self.rows.features_of(point.active)] = point.W
        return W, point.intercept, point.objective, max(point.objective - self.dual, 0.0)
