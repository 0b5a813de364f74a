"""A shared mean with more features than observations: few columns at a time.

The problem and its certificate are those of `shared_mean`. Deviations from the mean are zero for most features, and so
is a sparse mean: a round sweeps over the features whose scores say that they may matter, as in `working_set`, and then
takes a Newton step on all that is not zero, mean included, by a system of the size of the observations
(`observation_newton`). A mean with a ridge alone is zero nowhere: sweeps leave it as it is, and Newton steps move it.

Along a path, solutions are extrapolated: the next solve begins on the line through the last two, where that is better.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.columns import SparseColumns, SparseDesign, by_columns
from bayesmtfs.convex.observation_newton import TIED, MeanDesign, NewtonTerms, newton_slopes, row_inverses
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.quadratic_models import ColumnModel
from bayesmtfs.convex.shared_mean import FINAL_SHARE, INNER_SHARE, MeanMove, MeanRounds, SharedMean
from bayesmtfs.convex.working_set import FIRST_ROWS, GROWTH, PROMISING
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import FloatArray, IntArray

HELD = 1e100  # threshold of what stays at zero
MANY_COLUMNS = 4  # features per observation, from which few columns at a time are the faster way
MOST_OBSERVATIONS = 1200  # of which there are square matrices
SHORT = 0.25  # a Newton step, after which the mean takes one of its own


def serves(problem: Problem) -> bool:
    """Whether a problem has so many more features than observations, and rows of single features."""
    data = problem.data
    wide = data.n_features >= MANY_COLUMNS * data.n_observations and data.n_observations <= MOST_OBSERVATIONS
    single = data.groups is None and data.present is None and problem.ridge == 0.0
    return wide and single and problem.penalty.has_row_steps


class WidePoint(NamedTuple):
    """Where a solve ended."""

    W: FloatArray  # (p, m) what it returned
    strength: float  # of the penalty
    alive: IntArray  # (A,) features whose deviations are not zero, a constant included
    V: FloatArray  # (A, m) these deviations
    mean: FloatArray  # (k,)


class WideMeanRounds(MeanRounds):
    """Sweeps over few columns, and proximal Newton steps in as many dimensions as there are observations."""

    alive: IntArray  # (A,) features whose deviations are not zero, V has no others

    def _begin(self, start: SharedMean | None) -> None:
        data = self.original.data
        self.design = self.state.shared("design", lambda: by_columns(self.state.data))
        self.of_mean: MeanDesign = self.state.shared("mean", lambda: MeanDesign(data))
        self.trail: list[WidePoint] = self.state.shared("trail", list)
        self.ridge, self.threshold = self.mean_penalty.ridge[0], self.mean_penalty.threshold
        self.dense_mean = not self.threshold.any()
        if start is None:
            self.alive, V, a = np.arange(0), np.zeros((0, data.n_tasks)), np.zeros(len(self.order))
            if self.original.fit_intercept:
                a[-1] = self.problem.family.best_constant(self.problem.data.y, self.problem.weight)
            self._go(self.rows.take(self.alive), V, a)
        elif self.trail and self.trail[-1].W is start.solution.W:
            last = self.trail[-1]
            self._go(self.rows.take(last.alive), last.V, last.mean)
            self._extrapolate()
        else:
            V, a = self._parts(start)
            self._go(self.rows, V, a)

    def _go(self, rows: PenaltyRows, V: FloatArray, a: FloatArray) -> None:
        """Set the point to deviations V (k, m) of some rows and a mean."""
        self.a = a
        self.eta = self._predictor_of(rows.features, V, a)
        self.loss, self.penalty = self.problem.loss(self.eta), self._penalty(rows, V, a)
        self._set_deviations(rows, V)

    def _set_deviations(self, rows: PenaltyRows, V: FloatArray) -> None:
        alive = np.any(V != 0.0, axis=1)
        self.alive, self.V = rows.features[alive], V[alive]

    def _predictor_of(self, features: IntArray, V: FloatArray, a: FloatArray) -> FloatArray:
        """(N,) Linear predictor of deviations V (k, m) of some features and a mean (p or p + 1,)."""
        p = self.original.data.n_features
        constant = a[p] if self.original.fit_intercept else 0.0
        return self.design.take(features).linear_predictor(V) + self.of_mean.predictor(a[:p]) + constant

    def _extrapolate(self) -> None:
        """Go on along the line through the last two points of a path, if the objective is lower there."""
        strength = self.problem.penalty.strength
        if len(self.trail) < 2 or not strength < self.trail[1].strength < self.trail[0].strength:
            return
        first, last = self.trail
        share = (strength - last.strength) / (last.strength - first.strength)
        before = np.zeros((len(self.order), self.V.shape[1]))
        before[first.alive] = first.V
        V = last.V + share * (last.V - before[last.alive])
        V[np.sum(V * last.V, axis=1) <= 0.0] = 0.0
        a = last.mean + share * (last.mean - first.mean)
        a[(self.threshold > 0.0) & (a * last.mean <= 0.0)] = 0.0
        here, before_objective = (self.V, self.a, self.eta, self.loss, self.penalty), self.loss + self.penalty
        self._go(self.rows.take(self.alive), V, a)
        if self.loss + self.penalty > before_objective:
            self.alive = last.alive
            self.V, self.a, self.eta, self.loss, self.penalty = here

    def _score(self, theta: FloatArray) -> None:
        if isinstance(self.design, SparseDesign):
            self.row_norms = self.design.scores(self.rows, theta)
            sums = self.of_mean.adjoint(theta)
            self.sums = np.append(sums, theta.sum()) if self.original.fit_intercept else sums
        else:
            gradient = self.design.gradient(theta)
            self.row_norms, self.sums = self.rows.dual_norms(gradient), gradient.sum(axis=1)

    def improve(self, wanted: float, max_iter: int) -> int:
        """Sweep over some columns, and take a Newton step on all that is not zero then."""
        self._sweep(wanted)
        if self._newton(len(self.alive)) < SHORT:  # what holds the deviations back does not hold the mean
            self._newton(0)
        return 1

    def _choose(self) -> IntArray:
        """Features that are not zero, and those with the largest scores; a constant among them."""
        scores = self.row_norms / self.problem.penalty.strength
        scores[self.alive] = np.inf
        if not self.dense_mean:
            of_mean = np.divide(
                np.abs(self.sums), self.threshold, out=np.zeros_like(scores), where=self.threshold > 0.0
            )
            of_mean[self.a != 0.0] = np.inf
            scores = np.maximum(scores, of_mean)
        p = self.original.data.n_features
        scores[p:] = np.inf
        n_alive = int(np.isinf(scores).sum())
        most = float(scores[np.isfinite(scores)].max(initial=0.0))
        chosen = np.flatnonzero(scores > PROMISING * min(1.0, most))
        size = max(FIRST_ROWS, len(self.eta), GROWTH * n_alive)
        if len(chosen) > size:
            chosen = np.sort(chosen[np.argpartition(-scores[chosen], size - 1)[:size]])
        return chosen

    def _sweep(self, wanted: float) -> None:
        """Sweep over the features that may matter, a constant last: its steps make the sum of the slopes 0."""
        chosen = self._choose()
        rows, columns = self.rows.take(chosen), self.design.take(chosen)
        of_mean = self.mean_penalty.take(chosen)
        V, a = np.zeros((len(chosen), self.original.data.n_tasks)), self.a[chosen]
        V[np.searchsorted(chosen, self.alive)] = self.V
        if self.dense_mean:
            of_mean = of_mean._replace(threshold=np.where(of_mean.ridge > 0.0, HELD, 0.0))
            a = np.where(of_mean.ridge > 0.0, 0.0, a)
        no_centre = np.full(V.shape[1], np.inf)
        rows = PenaltyRows(np.arange(len(chosen)), np.arange(len(chosen) + 1), rows.penalty)
        model = ColumnModel(columns, rows, self._curvature(), no_centre, 0.0, of_mean)
        model.start(rows, V, self.slope, a)
        model.minimise(max(FINAL_SHARE * wanted, INNER_SHARE * self.gap), most_rounds=1 + self.waiting)
        change, of_a = model.coefficients - V, np.zeros_like(self.a)
        of_a[chosen] = model.mean - a
        eta = columns.linear_predictor(change + of_a[chosen, np.newaxis])
        self._search_line(self._move_of(self.rows.take(chosen), V, change, of_a, eta))

    def _move_of(
        self, rows: PenaltyRows, V: FloatArray, change: FloatArray, mean: FloatArray, eta: FloatArray
    ) -> MeanMove:
        """Move of deviations V (k, m) of some rows, with what the objective loses by it."""
        penalty = self._penalty(rows, V + change, self.a + mean)
        return MeanMove(rows, V, change, mean, eta, float(self.slope @ eta) + penalty - self.penalty)

    def _newton(self, n_rows: int) -> float:
        """Take a Newton step on the mean and on the first rows that are not zero; the share of it that was gone."""
        problem, data, p = self.problem, self.original.data, self.original.data.n_features
        self.slope = problem.weight * problem.family.gradient(problem.data.y, self.eta)
        curvature = self._curvature()
        rows, V = self.rows.take(self.alive[:n_rows]), self.V[:n_rows]
        columns = self.design.take(rows.features)
        columns = columns.as_dense() if isinstance(columns, SparseColumns) else columns
        squares = np.add.reduceat(np.square(columns.A) * curvature[:, np.newaxis], data.offsets[:-1], axis=0).T
        inverses, gradient = row_inverses(rows.penalty, V, squares), rows.penalty.gradient(V, TIED)
        a, threshold = self.a[:p], self.threshold[:p]
        members = (a != 0.0) | self.dense_mean
        of_a = np.where(members, self.ridge * a + threshold * np.sign(a), 0.0)
        terms = NewtonTerms(
            columns.A,
            data.offsets,
            self.slope,
            curvature,
            self.of_mean.products(members),
            self.ridge,
            self.of_mean.predictor(of_a),
            gradient,
            self.original.fit_intercept,
        )
        theta = newton_slopes(terms, inverses)
        if theta is None:
            return 0.0
        change = -inverses.times(columns.adjoint(theta)[:, : len(V)].T + gradient)
        change = clipped(rows.penalty, V, change)
        mean = np.where(members, -(self.of_mean.adjoint(theta) + of_a) / self.ridge, 0.0)
        mean = np.where((threshold > 0.0) & ((a + mean) * a < 0.0), -a, mean)
        eta = columns.linear_predictor(change) + self.of_mean.predictor(mean)
        if self.original.fit_intercept:
            level = -float(self.slope.sum() + curvature @ eta) / float(curvature.sum())
            mean, eta = np.append(mean, level), eta + level
        whole = np.zeros_like(self.V)
        whole[:n_rows] = change
        move = self._move_of(self.rows.take(self.alive), self.V, whole, mean, eta)
        return self._search_line(move) if move.predicted < 0.0 else 0.0

    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Return the current point, since no step goes up, and leave it to the next solve."""
        p, m = self.original.data.n_features, self.original.data.n_tasks
        U = np.repeat(self.a[:, np.newaxis], m, axis=1)
        U[self.alive] += self.V
        intercept = U[p] if self.original.fit_intercept else np.zeros(m)
        self.trail.append(WidePoint(U[:p], self.problem.penalty.strength, self.alive, self.V, self.a))
        del self.trail[:-2]
        return self.trail[-1].W, intercept, self.loss + self.penalty, max(self.gap, 0.0)


def clipped(penalty: RowPenalty, V: FloatArray, change: FloatArray) -> FloatArray:
    """Change of rows V (k, m) that stops at zero where the penalty has a kink there."""
    moved = V + change
    if penalty.norm_q == 1.0 or penalty.entrywise:
        return np.where(moved * V < 0.0, -V, change)
    return np.where(np.sum(moved * V, axis=1, keepdims=True) <= 0.0, -V, change)
