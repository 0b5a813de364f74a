"""A mean shared by all tasks, and penalised deviations from it.

    minimise over w_0, b_0, V, c:
        sum_i c_i loss(y_i, x_i'(w_0 + v_t) + b_0 + c_t) + mean_strength / 2 ||w_0||^2 + mean_penalty ||w_0||_1
            + penalty(V and c) + ridge / 2 ||V and c||^2

The weights of task t are ``w_0 + v_t``: the row penalty acts on the deviations, so that tasks without much data are
drawn to the mean instead of to zero (Evgeniou and Pontil 2004, KDD, for the ridge case). The mean is sparse with a
``mean_penalty``, which it needs where there are about as many features as observations. The intercepts are ``b_0 + c_t``
with b_0 free and c one more penalised row; inside, this is a feature that is always 1.

Deviations and mean are found together, by the quadratic models of `quadratic_models`, whose sweeps take the step of a row
and then that of the mean. The dual point of `problem` gains the conjugate of the mean's penalty,
``sum_j (|g_j| - mean_penalty)_+^2 / (2 mean_strength)`` with ``g = sum_t X_t' theta_t``, and the sum of theta over all
tasks must be 0.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bayesmtfs.convex.columns import Columns, by_columns
from bayesmtfs.convex.problem import PenaltyRows, Problem, with_zero_sum
from bayesmtfs.convex.quadratic_models import MeanPenalty, QuadraticRowModel, quadratic_model
from bayesmtfs.convex.working_set import LEAST_DAMPING, PATIENCE, WorkingSetRounds, run
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import total_conjugate
from bayesmtfs.priors.row_penalty import soft_threshold
from bayesmtfs.types import FloatArray, Solution

MEAN_SHARE = 0.01  # of the mean squared column norm: default ridge on the mean
INNER_SHARE = 0.1  # of the gap, to which a model is solved
FINAL_SHARE = 0.3  # of the tolerated gap, below which no model needs to go
VANISHING = 1e-8  # of the largest penalty without a mean: what stands for a penalty of 0
SUFFICIENT = 0.01  # share of the predicted decrease that the line search wants
SMALLEST_STEP = 1e-8
ROUNDING = 1e-15  # of an objective
PLAIN_STEPS = 20  # proximal gradient steps between two looks at the gap
MOST_DOUBLINGS = 60  # of the curvature in one of them


class SharedMean(NamedTuple):
    """A solution and its parts: ``W = mean + deviations`` for every task."""

    solution: Solution
    mean: FloatArray  # (p,) w_0
    mean_intercept: float  # b_0


def default_mean_strength(problem: Problem, standardize: bool = False) -> float:
    """A hundredth of the mean squared column norm of X, on the scale of the loss; with ``standardize`` about task means."""
    squares = []
    weights = np.split(problem.weight, problem.data.offsets[1:-1])
    for X, w in zip(problem.data.task_designs, weights, strict=True):
        own = np.asarray(abs(X).power(2).T @ w if sp.issparse(X) else np.square(X, dtype=np.float64).T @ w)
        squares.append(own - np.asarray(X.T @ w) ** 2 / w.sum() if standardize else own)
    return MEAN_SHARE * float(np.mean(np.sum(squares, axis=0))) or 1.0


def largest_mean_penalty(problem: Problem) -> float:
    """Smallest weight of the 1-norm at which the mean is zero, where there are no deviations from it either."""
    constant = problem.family.best_constant(problem.data.y, problem.weight) if problem.fit_intercept else 0.0
    eta = np.full(problem.data.n_observations, constant)
    theta = problem.weight * problem.family.gradient(problem.data.y, eta)
    return float(np.abs(problem.data.adjoint(theta).sum(axis=1)).max())


class MeanState:
    """What one solve leaves to the next on the same data: the columns, and a quadratic model that lasts."""

    def __init__(self, problem: Problem, mean_strength: float, mean_penalty: float = 0.0) -> None:
        self.data = _with_constant(problem.data) if problem.fit_intercept else problem.data
        is_slope = np.arange(self.data.n_features) < problem.data.n_features
        self.penalty = MeanPenalty(np.where(is_slope, mean_strength, 0.0), np.where(is_slope, mean_penalty, 0.0))
        self.model: QuadraticRowModel | None = None
        self._more: dict[str, Any] = {}

    @cached_property
    def columns(self) -> Columns:
        """All columns."""
        return by_columns(self.data).take(np.arange(self.data.n_features))

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something else that solves share, made by the first that asks for it."""
        if name not in self._more:
            self._more[name] = make()
        return self._more[name]


def solve(
    problem: Problem,
    mean_strength: float,
    start: SharedMean | None = None,
    *,
    mean_penalty: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
    state: MeanState | None = None,
) -> SharedMean:
    """Minimise a problem with a smooth loss and a shared mean, whose ridge ``mean_strength`` is positive.

    ``problem.fit_intercept`` gives b_0 and c; the other arguments are those of `automatic.solve`, and ``state`` what an
    earlier solve on the same data left.
    """
    if problem.penalty.strength == 0:
        # As the limit of a vanishing penalty, whose balls the dual point can be scaled into
        problem = problem.with_strength(VANISHING * (problem.largest_penalty or 1.0))
    from bayesmtfs.convex.wide_mean import WideMeanRounds, serves  # which are built on the rounds of this module

    kind: type[MeanRounds] = PlainMeanRounds
    if problem.penalty.has_row_steps and problem.family.offers("curvature"):
        kind = WideMeanRounds if serves(problem) else MeanRounds
    rounds = kind(problem, MeanState(problem, mean_strength, mean_penalty) if state is None else state, start)
    found = run(rounds, tol, max_iter, progress)
    p = problem.data.n_features
    return SharedMean(found, rounds.mean[:p].copy(), float(rounds.mean[p]) if problem.fit_intercept else 0.0)


class MeanMove(NamedTuple):
    """A move to the minimum of a quadratic model."""

    rows: PenaltyRows  # of the deviations that are not zero before or after
    V: FloatArray  # (k, m) these deviations, where it begins
    change: FloatArray  # (k, m) of the deviations
    mean: FloatArray  # (k,) change of the mean
    eta: FloatArray  # (N,) change of the linear predictor
    predicted: float  # change of the objective, to first order in the loss


class MeanRounds(WorkingSetRounds):
    """Proximal Newton steps on deviations V (k, m) and mean a (k,), with a constant feature where there are intercepts."""

    def __init__(self, problem: Problem, state: MeanState, start: SharedMean | None) -> None:
        self.original, self.state = problem, state
        self.problem = replace(problem, data=state.data, fit_intercept=False)
        self.rows = PenaltyRows.of(self.problem)
        self.order = self.rows.features  # of the features in matrices (k, m) below
        self.mean_penalty = MeanPenalty(*(part[self.order] for part in state.penalty))
        self.scale = problem.gap_scale
        self.dual, self.gap, self.smallest_gap = -np.inf, np.inf, np.inf
        self.damping, self.waiting = LEAST_DAMPING, 0
        self._begin(start)

    def _begin(self, start: SharedMean | None) -> None:
        """Set V, a, eta, loss and penalty: those of an earlier solution, or zeros with the best intercept."""
        problem = self.original
        self.columns = by_columns(self.state.data).take(self.order) if self.rows.grouped else self.state.columns
        k, m = len(self.order), problem.data.n_tasks
        self.V, self.a, self.eta = np.zeros((k, m)), np.zeros(k), np.zeros(problem.data.n_observations)
        if start is not None:
            self.V, self.a = self._parts(start)
            self.eta = self._predictor(self.V, self.a)
        elif problem.fit_intercept:
            self.a[self.order == k - 1] = problem.family.best_constant(problem.data.y, problem.weight)
            self.eta[:] = self.a.sum()
        self.loss, self.penalty = self.problem.loss(self.eta), self._penalty(self.rows, self.V, self.a)

    def _parts(self, start: SharedMean) -> tuple[FloatArray, FloatArray]:
        """Deviations (k, m) and mean (k,) of a solution."""
        W, a = start.solution.W, start.mean
        if self.original.fit_intercept:
            W, a = np.vstack([W, start.solution.intercept]), np.append(a, start.mean_intercept)
        V, present = W - a[:, np.newaxis], self.state.data.present
        return (V if present is None else np.where(present, V, 0.0))[self.order], a[self.order]

    def _predictor(self, V: FloatArray, mean: FloatArray) -> FloatArray:
        return self.columns.linear_predictor(V + mean[:, None])

    @property
    def mean(self) -> FloatArray:
        """(k,) Mean, features in their own order."""
        mean = np.empty_like(self.a)
        mean[self.order] = self.a
        return mean

    def _penalty(self, rows: PenaltyRows, V: FloatArray, mean: FloatArray) -> float:
        """Penalty of deviations V (k, m), which are those of some rows, and of the mean."""
        of_rows = float(rows.penalty.value(rows.gather(V)))
        return of_rows + self.problem.ridge_value(V) + self.mean_penalty.value(mean)

    def look(self) -> tuple[float, float]:
        """Bound the suboptimality by the slopes made dual feasible."""
        problem = self.problem
        self.slope = problem.weight * problem.family.gradient(problem.data.y, self.eta)
        theta = self.slope
        if self.original.fit_intercept:
            theta = with_zero_sum(theta, np.zeros(len(theta), dtype=np.int64), np.array([0]))
        self._score(theta)
        end = problem.feasible_end(self.row_norms)
        for scale in {min(1.0, end), min(1.0, end, self._top(theta))}:
            conjugate = total_conjugate(problem.family, problem.data.y, scale * theta, problem.weight)
            mean = self.mean_penalty.dual(scale * self.sums)
            self.dual = max(self.dual, -conjugate - mean - scale**2 * problem.ridge_value(self.V))
        self.gap = self.loss + self.penalty - self.dual
        self.waiting = self.waiting + 1 if self.gap > 0.9 * self.smallest_gap else 0
        self.smallest_gap = min(self.gap, self.smallest_gap)
        self.stuck = self.waiting >= PATIENCE
        return self.loss + self.penalty, self.gap

    def _score(self, theta: FloatArray) -> None:
        """Dual norms (R,) of the rows of X' theta, a ridge included, and sums (k,) of X' theta over all tasks."""
        gradient = self.columns.adjoint(theta)[:, : len(self.order)].T
        self.row_norms = self.rows.dual_norms(gradient + self.problem.ridge * self.V)
        self.sums = gradient.sum(axis=1)

    def _top(self, theta: FloatArray) -> float:
        """Factor of theta with the largest dual value where that is a parabola; 1 for other losses."""
        problem = self.problem
        if not problem.family.quadratic:
            return 1.0
        square = float(np.sum(theta**2 / problem.weight)) + 2.0 * problem.ridge_value(self.V)
        square += 2.0 * self.mean_penalty.dual(self.sums)
        return max(-float(theta @ problem.data.y) / square, 0.0) if square > 0 else 1.0

    def improve(self, wanted: float, max_iter: int) -> int:
        """Minimise the quadratic model at the point and go as far towards its minimum as the objective falls."""
        problem, lasting, model = self.problem, self.problem.family.quadratic, self.state.model
        if model is None:
            sums = np.full(problem.data.n_tasks, np.inf)
            penalties = (problem.ridge, self.mean_penalty)
            model = quadratic_model(self.columns, self.rows, self._curvature(), sums, lasting, *penalties)
            self.state.model = model if lasting else None
        model.start(self.rows, self.V, self.slope, self.a)
        final = FINAL_SHARE * wanted
        needed = max(final, INNER_SHARE * self.gap)
        model.minimise(needed, final if lasting else needed)
        self._search_line(self._move(model))
        return 1

    def _curvature(self) -> FloatArray:
        """(N,) Curvatures of the loss, none of them nearly 0."""
        problem = self.problem
        if problem.family.quadratic:
            return problem.weight
        second = problem.family.curvature(problem.data.y, self.eta)
        bound = problem.family.curvature_bound
        largest = float(second.max()) if bound is None else bound
        return problem.weight * np.maximum(second, self.damping * largest)

    def _move(self, model: QuadraticRowModel) -> MeanMove:
        V, mean = model.coefficients - self.V, model.mean - self.a
        eta = self._predictor(V, mean)
        penalty = self._penalty(self.rows, model.coefficients, model.mean)
        return MeanMove(self.rows, self.V, V, mean, eta, float(np.sum(self.slope * eta)) + penalty - self.penalty)

    def _search_line(self, move: MeanMove) -> float:
        """Go along a move as far as the objective falls enough; the share of it that was gone."""
        before, step = self.loss + self.penalty, 1.0
        while step >= SMALLEST_STEP:
            V, a, eta = move.V + step * move.change, self.a + step * move.mean, self.eta + step * move.eta
            loss, penalty = self.problem.loss(eta), self._penalty(move.rows, V, a)
            if loss + penalty <= before + ROUNDING * abs(before) + SUFFICIENT * step * move.predicted:
                self._set_deviations(move.rows, V)
                self.a, self.eta, self.loss, self.penalty = a, eta, loss, penalty
                break
            step *= 0.5
        self.damping = LEAST_DAMPING if step == 1.0 else min(1.0, max(0.02, 4.0 * self.damping))
        return step

    def _set_deviations(self, rows: PenaltyRows, V: FloatArray) -> None:
        self.V = V

    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Return the current point, since no step goes up."""
        U = np.empty_like(self.V)
        U[self.order] = self.V + self.a[:, None]
        if self.state.data.present is not None:
            U = np.where(self.state.data.present, U, 0.0)
        p, m = self.original.data.n_features, self.original.data.n_tasks
        intercept = U[p] if self.original.fit_intercept else np.zeros(m)
        return U[:p], intercept, self.loss + self.penalty, max(self.gap, 0.0)


class PlainMeanRounds(MeanRounds):
    """Proximal gradient steps, for penalties and losses that offer no more: those of `proximal_gradient`, made monotone."""

    curvature = 1.0

    def improve(self, wanted: float, max_iter: int) -> int:
        """Take some steps; their number."""
        for number in range(1, min(PLAIN_STEPS, max_iter) + 1):
            before = self.V, self.a, *self._gradient()
            if not self._step(*before[2:]):
                break
            after = self.V, self.a, *self._gradient()
            (V, a, in_V, in_a) = (new - old for new, old in zip(after, before, strict=True))
            square = float(np.vdot(V, V) + a @ a)
            self.curvature = max((float(np.vdot(V, in_V)) + float(a @ in_a)) / square, 1e-10) if square > 0 else 1.0
        return number

    def _gradient(self) -> tuple[FloatArray, FloatArray]:
        """Gradient of the smooth part in V and in the mean."""
        problem = self.problem
        slope = problem.weight * problem.family.gradient(problem.data.y, self.eta)
        gradient = self.columns.adjoint(slope)[:, : len(self.order)].T
        return gradient + problem.ridge * self.V, gradient.sum(axis=1) + self.mean_penalty.ridge * self.a

    def _step(self, in_V: FloatArray, in_a: FloatArray) -> bool:
        """Go along the gradient, with a curvature that doubles until the objective falls; whether it did."""
        before, blocks = self.loss + self.penalty, self.rows.blocks(self.V.shape[1])
        for _ in range(MOST_DOUBLINGS):
            rows = blocks.gather(self.V - in_V / self.curvature)
            V = blocks.scatter(self.problem.penalty.prox(rows, 1.0 / self.curvature))
            a = soft_threshold(self.a - in_a / self.curvature, self.mean_penalty.threshold / self.curvature)
            eta = self._predictor(V, a)
            loss, penalty = self.problem.loss(eta), self._penalty(self.rows, V, a)
            if loss + penalty < before:
                self.V, self.a, self.eta, self.loss, self.penalty = V, a, eta, loss, penalty
                return True
            self.curvature *= 2.0
        return False


def _with_constant(data: TaskData) -> TaskData:
    """Append a feature that is always 1."""
    ones = np.ones((data.design.shape[0], 1))
    design = sp.hstack([data.design, ones], format="csr") if data.is_sparse else np.hstack([data.design, ones])
    groups = None if data.groups is None else np.append(data.groups, data.groups.max() + 1)
    present = None if data.present is None else np.vstack([data.present, np.ones((1, data.n_tasks), dtype=bool)])
    return replace(data, design=design, groups=groups, present=present, names=None, encoding=None)
