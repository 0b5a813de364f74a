"""A shared mean with more features than observations: few columns at a time.

The problem and its certificate are those of `shared_mean`. Deviations from the mean are zero for most features, and so
is a sparse mean: a round sweeps over the features whose scores say that they may matter, as in `working_set`, and then
takes a Newton step on all that is not zero, mean included, by a system of the size of the observations
(`observation_newton`). A mean with a ridge alone is zero nowhere: sweeps leave it as it is, and Newton steps move it.

Along a path, solutions are extrapolated: the next solve begins on the line through the last two, where that is better.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex.columns import SparseDesign, by_columns
from bayesmtfs.convex.observation_newton import MOST_ROUNDS, MeanDesign, WideModel
from bayesmtfs.convex.problem import PenaltyRows, Problem
from bayesmtfs.convex.shared_mean import FINAL_SHARE, INNER_SHARE, MeanMove, MeanRounds, SharedMean
from bayesmtfs.convex.working_set import FIRST_ROWS, GROWTH, LEAST_DAMPING, PROMISING
from bayesmtfs.types import FloatArray, IntArray

MANY_COLUMNS = 1  # features per observation, from which few columns at a time are the faster way
FEW_ROUNDS = 1  # of a sweep and a Newton step in one model, where the loss is not quadratic
MOST_OBSERVATIONS = 1200  # of which there are square matrices


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
        self.of_mean: MeanDesign = self.state.shared("mean", lambda: MeanDesign(data, self.original.fit_intercept))
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
        return self.design.take(features).linear_predictor(V) + self._mean_predictor(a)

    def _mean_predictor(self, a: FloatArray) -> FloatArray:
        """(N,) Linear predictor of a mean (p or p + 1,)."""
        p = self.original.data.n_features
        return self.of_mean.predictor(a[:p]) + (self.of_mean.shift(a[:p]) + float(a[p:].sum()))

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
        """Minimise the quadratic model over some columns and go as far towards its minimum as the objective falls."""
        chosen = self._choose()
        rows, columns = self.rows.take(chosen), self.design.take(chosen)
        V = np.zeros((len(chosen), self.V.shape[1]))
        V[np.searchsorted(chosen, self.alive)] = self.V
        own = PenaltyRows(np.arange(len(chosen)), np.arange(len(chosen) + 1), rows.penalty)
        model = WideModel(chosen, columns, own, self._curvature(), self.mean_penalty, self.of_mean)
        model.begin(V, self.slope, self.a)
        final = FINAL_SHARE * wanted
        quadratic, easy = self.problem.family.quadratic, self.waiting == 0 and self.damping == LEAST_DAMPING
        # Another model will follow that knows the loss better, unless it is hard to get on at all
        rounds = FEW_ROUNDS if easy and not quadratic else MOST_ROUNDS
        gap = final if quadratic else max(final, INNER_SHARE * self.gap)
        if not model.solve(gap, rounds) and rounds == MOST_ROUNDS:
            model.finish(gap)
        change, mean = model.coefficients - V, model.whole_mean - self.a
        eta = columns.linear_predictor(change) + self._mean_predictor(mean)
        penalty = self._penalty(rows, model.coefficients, model.whole_mean)
        predicted = float(self.slope @ eta) + penalty - self.penalty
        self._search_line(MeanMove(rows, V, change, mean, eta, predicted))
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

    def answer(self) -> tuple[FloatArray, FloatArray, float, float]:
        """Return the current point, since no step goes up, and leave it to the next solve."""
        p, m = self.original.data.n_features, self.original.data.n_tasks
        U = np.repeat(self.a[:, np.newaxis], m, axis=1)
        U[self.alive] += self.V
        intercept = U[p] if self.original.fit_intercept else np.zeros(m)
        self.trail.append(WidePoint(U[:p], self.problem.penalty.strength, self.alive, self.V, self.a))
        del self.trail[:-2]
        return self.trail[-1].W, intercept, self.loss + self.penalty, max(self.gap, 0.0)
