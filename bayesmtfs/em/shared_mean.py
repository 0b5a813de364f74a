r"""A mean shared by all tasks, and deviations from it under a row prior that is not convex.

The weights of task t are ``w_0 + v_t``. With F the objective of a route (`em_jeffreys`, `em_matrix_variate`, `mm`) for
the deviations V, one intercept per task and the noise, this is

    minimise over w_0, V, b, sigma:   F(V, b, sigma; predictions moved by x'w_0) + mean_strength / 2 ||w_0||^2:

rows of Zhang, Yeung and Xu (2010, section 4) with a location, which has a normal prior of precision ``mean_strength``
(Evgeniou and Pontil 2004, KDD, for the ridge case). The intercepts stay free, as everywhere on these routes.

One iteration lowers the objective in three blocks:

- V, b, sigma for a given w_0: some steps of the route, on targets less the predictions of the mean (the logistic loss
  has them as an offset);
- w_0 and b for given V and sigma: one Newton step, exact for the squared loss (a ridge regression over all tasks);
- w_0 for given sums ``w_0 + v_t``, where the loss does not change: one step on the prior of V and w_0. Without it the
  other two blocks crawl wherever the data determine the sums well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.shared_mean import WithOffset
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em.matrix_variate import conjugate_gradients
from bayesmtfs.families import Family, total
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

SHORTEST_STEP = 2.0**-20
SMALLEST_ENTRY = 1e-6  # of a row's largest entry, in curvatures of |v|^q
NEWTON_STEPS = 3  # for the mean, where one is not exact


@dataclass(frozen=True, eq=False)
class MeanProblem:
    """Data, loss and the ridge on the mean."""

    data: TaskData
    family: Family
    strength: float
    fit_intercept: bool

    def predictions(self, mean: FloatArray) -> FloatArray:
        """(N,) x'w_0."""
        values: FloatArray = np.asarray(self.data.design @ mean)[self.data.rows]
        return values

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(p,) Sum of x times the value over all tasks."""
        sums = np.bincount(self.data.rows, weights=values, minlength=self.data.design.shape[0])
        return np.asarray(self.data.design.T @ sums)

    def around(self, mean: FloatArray) -> tuple[TaskData, Family]:
        """Data and likelihood of the deviations from a mean."""
        moved = self.predictions(mean)
        if self.family.name == "squared":
            return self.data.with_target(np.asarray(self.data.y, dtype=np.float64) - moved), self.family
        return self.data, WithOffset(self.family, moved)

    def ridge(self, mean: FloatArray) -> float:
        """``mean_strength / 2 ||w_0||^2``."""
        return 0.5 * self.strength * float(mean @ mean)

    def sums(self, mean: FloatArray, V: FloatArray) -> FloatArray:
        """(p, m) w_0 + v_t, 0 where a task does not have the feature."""
        W: FloatArray = V + mean[:, np.newaxis]
        return W if self.data.present is None else np.where(self.data.present, W, 0.0)

    def deviations(self, mean: FloatArray, W: FloatArray) -> FloatArray:
        """(p, m) v_t of given sums."""
        V: FloatArray = W - mean[:, np.newaxis]
        return V if self.data.present is None else np.where(self.data.present, V, 0.0)


class Around(NamedTuple):
    """A mean, and the deviations from it."""

    mean: FloatArray  # (p,)
    deviations: Solution  # V, intercepts and noise; its objective is without the ridge


class RowPrior(NamedTuple):
    """Prior of the deviations, as far as the mean needs it: ``m ln(||u^i||_q + offset)`` of the rows of U = V whiten."""

    value: Callable[[FloatArray], float]  # of V (p, m)
    blocks: Blocks
    norm_q: float
    offset: float = 0.0
    whiten: FloatArray | None = None  # (m, m); None: the identity


Route = Callable[[TaskData, Family, Solution], Solution]  # better deviations, from data around a mean and a start


def default_strength(data: TaskData, family: Family, deviation: float) -> float:
    """A hundredth of the mean squared column norm of X, over the square of the deviation that the loss is divided by."""
    problem = Problem(data, family, RowPenalty(1.0, 2.0), data.weight, False)
    return shared_mean.default_mean_strength(problem) / deviation**2


# ---------------------------------------------------------------------- the mean, for given deviations


def update_mean(problem: MeanProblem, point: Around) -> Around:
    """Newton steps of w_0 and b for given V and noise; each lowers the objective."""
    for _ in range(1 if problem.family.name == "squared" else NEWTON_STEPS):
        point = _newton_step(problem, point)
    return point


def _newton_step(problem: MeanProblem, point: Around) -> Around:
    data, family, (mean, deviations) = problem.data, problem.family, point
    noise = np.ones(data.n_tasks) if deviations.noise is None else deviations.noise
    factor = data.weight / noise[data.task] ** 2
    eta = problem.predictions(mean) + data.linear_predictor(deviations.W, deviations.intercept)
    bends = factor * family.curvature(data.y, eta)
    theta = factor * family.gradient(data.y, eta)
    totals = np.add.reduceat(bends, data.offsets[:-1])

    def task_means(values: FloatArray) -> FloatArray:
        """(m,) Sums over the tasks, over their curvatures: what the intercepts take."""
        if not problem.fit_intercept:
            return np.zeros(data.n_tasks)
        sums = np.add.reduceat(values, data.offsets[:-1])
        return np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0)

    def curvature(direction: FloatArray) -> FloatArray:
        moved = problem.predictions(direction)
        return problem.adjoint(bends * (moved - task_means(bends * moved)[data.task])) + problem.strength * direction

    free = theta - bends * task_means(theta)[data.task]
    step = conjugate_gradients(curvature, -(problem.adjoint(free) + problem.strength * mean))
    eta_step = problem.predictions(step)
    move = -task_means(theta) - task_means(bends * eta_step)
    eta_step = eta_step + move[data.task]
    before, share = total(family, data.y, eta, factor) + problem.ridge(mean), 1.0
    while share > SHORTEST_STEP:
        moved = mean + share * step
        if total(family, data.y, eta + share * eta_step, factor) + problem.ridge(moved) <= before:
            return Around(moved, deviations._replace(intercept=deviations.intercept + share * move))
        share /= 2.0
    return point


# ---------------------------------------------------------------------- the mean, for given sums


def recentre(problem: MeanProblem, point: Around, prior: RowPrior) -> Around:
    """Move the mean of the rows that deviate, the sums held fixed, where that lowers prior and ridge."""
    mean, V = point.mean, point.deviations.W
    step = _recentring(problem, mean, V, prior)
    before, share = prior.value(V) + problem.ridge(mean), 1.0
    while share > SHORTEST_STEP:
        moved = mean + share * step
        after = problem.deviations(share * step, V)
        if prior.value(after) + problem.ridge(moved) < before:
            return Around(moved, point.deviations._replace(W=after))
        share /= 2.0
    return point


def _recentring(problem: MeanProblem, mean: FloatArray, V: FloatArray, prior: RowPrior) -> FloatArray:
    """(p,) Step of every mean: gradient over curvature of ``m ln(||u||_q + offset)`` at fixed norm, plus the ridge."""
    if prior.norm_q == np.inf:
        return np.zeros_like(mean)
    q, whiten = prior.norm_q, np.eye(problem.data.n_tasks) if prior.whiten is None else prior.whiten
    U = V @ whiten
    reach = whiten.sum(axis=0)  # what a unit of the mean does to u
    rows = prior.blocks.gather(U)
    peaks = np.max(np.abs(rows), axis=1, initial=0.0)
    live = peaks > 0
    peak = np.where(live, peaks, 1.0)
    powers = np.sum(np.abs(rows / peak[:, np.newaxis]) ** q, axis=1)
    norms = peak * powers ** (1.0 / q)
    # m / (||u|| + offset) ||u||^(1-q), with |u| in units of the row's largest entry
    factor = np.where(live, prior.blocks.sizes / np.maximum(norms + prior.offset, 1e-300), 0.0)
    factor = factor * np.where(live, norms / np.maximum(powers, 1e-300), 0.0)
    unit, factor = (values[prior.blocks.row_of_feature][:, np.newaxis] for values in (peak, factor))
    sizes = np.abs(U) / unit
    slopes = factor / unit * np.sign(U) * sizes ** (q - 1.0) * reach
    bends = factor / unit**2 * np.maximum(sizes, SMALLEST_ENTRY) ** (q - 2.0) * max(1.0, q - 1.0) * reach**2
    bend = np.sum(bends, axis=1) + problem.strength
    moving = live[prior.blocks.row_of_feature]
    return np.where(moving, (np.sum(slopes, axis=1) - problem.strength * mean) / bend, 0.0)


# ---------------------------------------------------------------------- the whole


def start_at(problem: MeanProblem, start: Solution, mean: FloatArray | None = None) -> Around:
    """Split coefficients of all tasks into a mean, by default their average, and deviations from it."""
    if mean is None:
        present = np.ones(start.W.shape) if problem.data.present is None else problem.data.present
        mean = start.W.sum(axis=1) / np.maximum(present.sum(axis=1), 1.0)
    live = (start.W != 0).any(axis=1)
    V = np.where(live[:, np.newaxis], problem.deviations(mean, start.W), 0.0)
    return Around(mean, start._replace(W=V))


def alternate(
    problem: MeanProblem,
    start: Around,
    route: Route,
    prior: Callable[[], RowPrior],
    unit: FloatArray | None,
    *,
    tol: float,
    max_iter: int,
    progress: bool | None = None,
) -> Around:
    """Minimise over mean and deviations in turn, until neither changes.

    Parameters
    ----------
    problem : data, loss and ridge
    start : where to begin; its objective must be that of the route
    route : lowers the objective of the deviations, from a start
    prior : the prior of the deviations as it is now, for `recentre`
    unit : (p,) what 1 stands for in a coefficient: changes are measured in it; None: by the fall of the objective
    tol : largest change of a coefficient, or fall per observation, at which it has converged
    max_iter : most iterations
    progress : see `progress.Progress`

    Returns
    -------
    mean and deviations; the trace of the latter is that of the whole objective
    """
    point = start
    trace = [start.deviations.objective + problem.ridge(start.mean)]
    converged = interrupted = False
    with Progress("shared mean", progress) as bar:
        try:
            while not (converged or interrupted) and len(trace) <= max_iter:
                moved = recentre(problem, update_mean(problem, point), prior())
                data, family = problem.around(moved.mean)
                found = route(data, family, moved.deviations)
                after = Around(moved.mean, found)
                trace.append(found.objective + problem.ridge(after.mean))
                fall = (trace[-2] - trace[-1]) / float(problem.data.weight.sum())
                converged = bool((fall if unit is None else _change(point, after, unit)) <= tol)
                point, interrupted = after, found.interrupted
                bar.update(len(trace) / max_iter)
        except KeyboardInterrupt:
            interrupted = True
    ended = point.deviations._replace(
        objective=trace[-1],
        objective_trace=np.array(trace),
        n_iter=len(trace) - 1,
        converged=converged,
        interrupted=interrupted,
    )
    return point._replace(deviations=ended)


def _change(before: Around, after: Around, unit: FloatArray) -> float:
    """Largest change of a mean or a deviation, in its unit."""
    change = np.maximum(
        np.abs(after.mean - before.mean),
        np.max(np.abs(after.deviations.W - before.deviations.W), axis=1, initial=0.0),
    )
    return float(np.max(change / unit, initial=0.0))


def as_sums(problem: MeanProblem, point: Around) -> Solution:
    """The solution with the coefficients of the tasks, ``w_0 + v_t``."""
    return point.deviations._replace(W=problem.sums(point.mean, point.deviations.W))
