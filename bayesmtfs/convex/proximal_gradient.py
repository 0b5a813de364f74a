r"""Spectral proximal gradient: the generic solver, which asks of a penalty its value, dual norm and proximal step only.

Objective: the convex problem of `problem` with a smooth loss, whose curvature need not be bounded. All it asks of the
rows are sums over them, so that they may be spread over machines. One pass over the rows at (W, b) gives

.. math::

   f = \sum_i c_i l(y_i, \eta_i), \qquad A^\pm = \sum_i \theta_i^\pm x_i e_{t(i)}^\top, \qquad
   s^\pm = \sum_i \theta_i^\pm e_{t(i)}, \qquad \theta_i = c_i l'(y_i, \eta_i) ,

split by the sign of theta, and these add over parts of the data. Their sums are the gradient, and the split parts are
what makes theta dual feasible (see `problem.with_zero_sum`), so that the duality gap needs only one pass more.

The steps are those of SpaRSA (Wright, Nowak and Figueiredo 2009, *IEEE Transactions on Signal Processing* 57:2479-2493,
with the Barzilai-Borwein curvature of eq. 24 and the acceptance rule of eq. 22): one pass per step, where an accelerated
method with line search needs two. Features are centred within tasks, which changes nothing but the intercept.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from bayesmtfs.convex.problem import Problem, balancing_factors
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, total, total_conjugate
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import Penalty
from bayesmtfs.progress import Progress, share_of_way
from bayesmtfs.types import FloatArray, Solution

MEMORY = 5  # objectives of which the largest has to be undercut
DECREASE = 1e-4  # share of the expected decrease that has to be reached
CHECK_EVERY = 5  # steps between two looks at the gap
CURVATURES = (1e-10, 1e10)  # range of the curvature, relative to the first one


class RowSums(NamedTuple):
    """What one pass over rows gives."""

    value: float
    positive: FloatArray  # (p, m) A+
    negative: FloatArray  # (p, m) A-
    positive_total: FloatArray  # (m,) s+
    negative_total: FloatArray  # (m,) s-


class Passes(Protocol):
    """Rows, wherever they are."""

    means: FloatArray  # (p, m) weighted means of the features of each task

    def sums(self, W: FloatArray, intercept: FloatArray) -> RowSums:
        """Sums of one pass."""

    def conjugate(self, W: FloatArray, intercept: FloatArray, above: FloatArray, below: FloatArray) -> float:
        """Conjugate of the loss at theta, its positive entries times ``above[t]``, the others times ``below[t]``."""


class LocalPasses:
    """Rows that are all here."""

    def __init__(self, problem: Problem) -> None:
        data = problem.data
        if data.design.dtype != np.float64:
            data = replace(data, design=data.design.astype(np.float64))
        self.rows = (data, problem.weight, problem.family)
        self.means = data.adjoint(problem.weight) / problem.task_weight

    def sums(self, W: FloatArray, intercept: FloatArray) -> RowSums:
        """Sums of one pass."""
        return row_sums(*self.rows, W, intercept)

    def conjugate(self, W: FloatArray, intercept: FloatArray, above: FloatArray, below: FloatArray) -> float:
        """Conjugate of the loss, see `Passes.conjugate`."""
        return row_conjugate(*self.rows, W, intercept, above, below)


class SpectralPoint(NamedTuple):
    """A point on centred features, with its sums."""

    W: FloatArray
    b: FloatArray
    sums: RowSums
    objective: float


def row_sums(data: TaskData, weight: FloatArray, family: Family, W: FloatArray, intercept: FloatArray) -> RowSums:
    """Sums over the rows of one part of the data, with coefficients (p, m) and (m,) of its tasks."""
    eta = data.linear_predictor(W, intercept)
    with np.errstate(over="ignore", invalid="ignore"):  # a step may go too far; it is not accepted then
        theta = weight * family.gradient(data.y, eta)
        positive, negative = np.maximum(theta, 0.0), np.minimum(theta, 0.0)
        starts = data.offsets[:-1]
        return RowSums(
            total(family, data.y, eta, weight),
            data.adjoint(positive),
            data.adjoint(negative),
            np.add.reduceat(positive, starts),
            np.add.reduceat(negative, starts),
        )


def row_conjugate(
    data: TaskData,
    weight: FloatArray,
    family: Family,
    W: FloatArray,
    intercept: FloatArray,
    above: FloatArray,
    below: FloatArray,
) -> float:
    """Conjugate over the rows of one part, see `Passes.conjugate`."""
    theta = weight * family.gradient(data.y, data.linear_predictor(W, intercept))
    return total_conjugate(family, data.y, theta * np.where(theta > 0, above[data.task], below[data.task]), weight)


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise a problem with a smooth loss, see `automatic.solve`."""
    spectral = Spectral(LocalPasses(problem), problem.penalty, problem.fit_intercept, problem.blocks, problem.ridge)
    point = spectral.at(np.zeros_like(spectral.means), problem.null_intercept)
    if start is not None:
        point = spectral.at(start.W, start.intercept + np.einsum("pm,pm->m", spectral.means, start.W))
    return spectral.minimise(point, problem.gap_scale, tol, max_iter, progress)


class Spectral:
    """Loss plus penalty of rows wherever they are: steps, curvatures and gaps.

    ``blocks`` says how W is cut into the rows of the penalty; None where they are the features. The ridge counts as a
    part of the loss.
    """

    def __init__(
        self, passes: Passes, penalty: Penalty, fit_intercept: bool, blocks: Blocks | None = None, ridge: float = 0.0
    ) -> None:
        self.passes = passes
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.means = passes.means if fit_intercept else np.zeros_like(passes.means)
        self.blocks = Blocks(*self.means.shape) if blocks is None else blocks
        self.ridge = ridge

    def minimise(
        self, point: SpectralPoint, scale: float, tol: float, max_iter: int, progress: bool | None = None
    ) -> Solution:
        """Go down from a point until the gap is the tolerance times the scale; the best point seen is the solution."""
        curvature = self.first_curvature(point)
        limits = (CURVATURES[0] * curvature, CURVATURES[1] * curvature)
        best, gap, trace, n_iter = point, self.gap(point), [point.objective], 0
        with Progress("proximal gradient", progress) as work:
            while gap > tol * scale and n_iter < max_iter:
                after = self.step(point, curvature, max(trace[-MEMORY:]))
                curvature = float(np.clip(self.curvature(point, after), *limits))
                point, n_iter = after, n_iter + 1
                trace.append(point.objective)
                if n_iter % CHECK_EVERY == 0 or n_iter == max_iter:
                    reached = self.gap(point)
                    best, gap = (point, reached) if reached <= gap else (best, gap)
                    work.update(share_of_way(gap, scale, tol), f"gap {gap:.1e}")
        intercept, converged = self.intercept(best.W, best.b), gap <= tol * scale
        found = best.W, intercept, best.objective, gap, scale, converged, n_iter, np.array(trace)
        return Solution(*found, interrupted=work.interrupted)

    def intercept(self, W: FloatArray, b: FloatArray) -> FloatArray:
        """(m,) Intercept on the features as they are."""
        found: FloatArray = b - np.einsum("pm,pm->m", self.means, W)
        return found

    def at(self, W: FloatArray, b: FloatArray) -> SpectralPoint:
        """Point with its sums and objective."""
        sums = self.passes.sums(W, self.intercept(W, b))
        penalty = self.penalty.value(self.blocks.gather(W)) + 0.5 * self.ridge * float(np.vdot(W, W))
        return SpectralPoint(W, b, sums, sums.value + penalty)

    def gradient(self, point: SpectralPoint) -> tuple[FloatArray, FloatArray]:
        """Gradient in W and in b."""
        sums = point.sums
        in_b = (sums.positive_total + sums.negative_total) * self.fit_intercept
        return sums.positive + sums.negative - self.means * in_b + self.ridge * point.W, in_b

    def first_curvature(self, point: SpectralPoint) -> float:
        """Curvature along the gradient, from a short step; positive whatever the data are."""
        in_W, in_b = self.gradient(point)
        length = np.sqrt(float(np.sum(in_W**2) + in_b @ in_b))
        if length == 0:
            return 1.0
        small = 1e-3 / length
        found = self.curvature(point, self.at(point.W - small * in_W, point.b - small * in_b))
        return found if 0 < found < np.inf else length

    def curvature(self, before: SpectralPoint, after: SpectralPoint) -> float:
        """Barzilai-Borwein curvature between two points; 0 where they are the same."""
        moves = (after.W - before.W, after.b - before.b)
        changes = [new - old for new, old in zip(self.gradient(after), self.gradient(before), strict=True)]
        square = _product(moves, moves)
        return _product(moves, changes) / square if square > 0 else 0.0

    def step(self, point: SpectralPoint, curvature: float, ceiling: float) -> SpectralPoint:
        """One accepted proximal step; the curvature doubles until the objective falls enough."""
        in_W, in_b = self.gradient(point)
        while True:
            rows = self.blocks.gather(point.W - in_W / curvature)
            W = self.blocks.scatter(self.penalty.prox(rows, 1.0 / curvature))
            after = self.at(W, point.b - in_b / curvature)
            moves = (after.W - point.W, after.b - point.b)
            square = _product(moves, moves)
            rounding = 1e-14 * abs(ceiling)
            if after.objective <= ceiling - DECREASE / 2 * curvature * square + rounding or square == 0:
                return after
            curvature *= 2.0

    def gap(self, point: SpectralPoint) -> float:
        """Objective minus the dual value of theta, made feasible."""
        above, below, largest = self.balance(point)
        feasible = 1.0 if largest <= self.penalty.strength else self.penalty.strength / largest
        intercept = self.intercept(point.W, point.b)
        conjugate = self.passes.conjugate(point.W, intercept, feasible * above, feasible * below)
        conjugate += 0.5 * feasible**2 * self.ridge * float(np.vdot(point.W, point.W))
        return max(point.objective + conjugate, 0.0)

    def balance(self, point: SpectralPoint) -> tuple[FloatArray, FloatArray, float]:
        """Factors of the positive and the negative theta of each task that make its sum 0; the largest dual norm."""
        sums = point.sums
        above = below = np.ones_like(sums.positive_total)
        if self.fit_intercept:
            above, below = balancing_factors(sums.positive_total, -sums.negative_total)
        rows = self.blocks.gather(sums.positive * above + sums.negative * below + self.ridge * point.W)
        return above, below, float(self.penalty.dual_norm(rows).max())


def _product(a: Sequence[FloatArray], b: Sequence[FloatArray]) -> float:
    return float(sum(np.sum(x * y) for x, y in zip(a, b, strict=True)))
