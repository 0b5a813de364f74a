"""One problem at a sequence of penalties, each solved from the solution before it.

    minimise over W, b:   sum_i c_i loss(y_i, x_i' w_t(i) + b_t(i)) + lambda_k * penalty(W),   lambda_1 > lambda_2 > ...

The penalties fall, so that every solution is a good start for the next (Friedman, Hastie and Tibshirani 2010, *Journal
of Statistical Software* 33, section 2.5). The automatic grid begins at the exact lambda_max, the smallest strength at
which all coefficients are zero, and falls geometrically. On that grid alone the path may stop early, as in the glmnet
package: where 99.9% of the deviance is explained, or where smaller penalties explain hardly any more. Differently from
glmnet, "hardly any more" is judged per unit of log penalty, so that it does not depend on how fine the grid is, and not
at all for losses with kinks, whose paths stand still between their corners.
"""

from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.convex import automatic, shared_mean
from bayesmtfs.convex.problem import Problem
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, Solution

MOST_EXPLAINED = 0.999  # share of the deviance
SMALLEST_RISE = 1e-4  # of that share, relative to itself, per unit of log penalty
FEWEST_PENALTIES = 5  # before a small rise counts


class SolveSettings(NamedTuple):
    """How each penalty is solved."""

    solver: str = "auto"
    tol: float = 1e-6
    max_iter: int = 10_000
    mean_strength: float | None = None  # ridge on a mean shared by the tasks; None: no such mean
    mean_penalty: float = 0.0  # weight of its 1-norm


class Path(NamedTuple):
    """Solutions along a sequence of penalties."""

    penalties: FloatArray  # (k,) as passed, or the first k of an automatic grid
    solutions: list[Solution]  # k of them
    stop_reason: str  # why an automatic grid was not solved to its end; empty where it was


def penalty_grid(largest: float, n_penalties: int, ratio: float) -> FloatArray:
    """Geometric grid from the largest penalty, which it holds exactly, down to ``ratio`` times it.

    Examples
    --------
    >>> penalty_grid(2.0, 3, 0.01)
    array([2.  , 0.2 , 0.02])
    """
    grid = largest * np.geomspace(1.0, ratio, n_penalties)
    grid[0] = largest
    return grid if largest > 0 else grid[:1]


def largest_penalty(problem: Problem, settings: SolveSettings) -> float:
    """Smallest strength at which all coefficients (with a shared mean: all deviations from it) are zero."""
    if settings.mean_strength is None:
        return automatic.largest_penalty(problem, settings.solver)
    strength = 10.0 * (problem.largest_penalty or 1.0)
    while True:
        pooled, _ = _solved(problem.with_strength(strength), None, None, settings, _prepared(problem, settings))
        largest = _deviation_penalty(problem, pooled)
        if largest <= strength:
            return largest
        strength = 10.0 * largest


def _deviation_penalty(problem: Problem, pooled: Solution) -> float:
    """Strength that just holds all deviations at zero; the intercepts are one more row of them."""
    eta = problem.data.linear_predictor(pooled.W, pooled.intercept)
    theta = problem.weight * problem.family.gradient(problem.data.y, eta)
    largest = float(problem.row_dual_norms(theta).max())
    if not problem.fit_intercept:
        return largest
    return max(largest, float(problem.penalty.dual_norm(problem.task_sums(theta)[np.newaxis])[0]))


def solve_path(
    problem: Problem,
    penalties: FloatArray,
    settings: SolveSettings,
    *,
    may_stop: bool = False,
    progress: bool | None = None,
) -> Path:
    """Solve a problem at every penalty (k,) in any order, from the largest down; its own strength does not matter.

    ``may_stop`` is for a falling automatic grid, which ends where it is saturated. A path is whole or not there: Ctrl-C
    raises KeyboardInterrupt.
    """
    solutions: dict[int, Solution] = {}
    explained: list[float] = []
    stop_reason = ""
    last: Solution | None = None
    shared: shared_mean.SharedMean | None = None
    # Known once for all penalties; a loss that is not smooth, or a shared mean, has no such shortcut
    known_zero = settings.mean_strength is None and problem.family.smooth
    largest = automatic.largest_penalty(problem, settings.solver) if known_zero else np.inf
    prepared = _prepared(problem, settings)
    with Progress("path", progress) as bar:
        for place in np.argsort(-penalties, kind="stable").tolist():
            problem = problem.with_strength(float(penalties[place]))
            if penalties[place] >= largest:
                last = _zero(problem)
            else:
                last, shared = _solved(problem, last, shared, settings, prepared)
            if last.interrupted:
                raise KeyboardInterrupt
            solutions[place] = last
            bar.update(len(solutions) / len(penalties), f"penalty {penalties[place]:.3g}")
            if may_stop:
                explained.append(_explained(problem, last, shared is not None))
                stop_reason = _saturation(explained, penalties, problem.family.smooth)
                if stop_reason:
                    break
    if bar.interrupted:
        raise KeyboardInterrupt
    return Path(penalties[: len(solutions)], [solutions[place] for place in range(len(solutions))], stop_reason)


def _prepared(problem: Problem, settings: SolveSettings) -> dict[str, Any]:
    """What the solves of a path share."""
    if settings.mean_strength is None:
        return automatic.prepare(problem, settings.solver)
    return {"state": shared_mean.MeanState(problem, settings.mean_strength, settings.mean_penalty)}


def _solved(
    problem: Problem,
    last: Solution | None,
    shared: shared_mean.SharedMean | None,
    settings: SolveSettings,
    prepared: dict[str, Any],
) -> tuple[Solution, shared_mean.SharedMean | None]:
    """Solution from the last one, and with a shared mean also its parts."""
    stop: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "progress": False}
    if settings.mean_strength is not None:
        found = shared_mean.solve(problem, settings.mean_strength, shared, **prepared, **stop)
        return found.solution, found
    return automatic.solve(problem, last, solver=settings.solver, prepared=prepared, **stop), None


def _zero(problem: Problem) -> Solution:
    """W = 0 with its best intercept, which is the minimum at and above lambda_max."""
    W = np.zeros((problem.data.n_features, problem.data.n_tasks))
    gap = problem.gap(W, problem.null_intercept[problem.data.task])
    value = problem.null_objective
    return Solution(W, problem.null_intercept, value, gap, problem.gap_scale, True, 0, np.array([value]))


def _explained(problem: Problem, solution: Solution, shared: bool) -> float:
    """Share of the deviance that a solution explains: 1 - loss / loss at W = 0."""
    most = problem.null_objective - problem.least_loss
    if most <= 0:
        return 1.0
    if shared:  # the objective has a penalty on the mean, too
        loss = problem.loss(problem.data.linear_predictor(solution.W, solution.intercept))
    else:
        loss = solution.objective - problem.penalty_value(solution.W)
    return 1.0 - (loss - problem.least_loss) / most


def _saturation(explained: list[float], penalties: FloatArray, smooth: bool) -> str:
    """Why smaller penalties are not worth solving; empty where they are."""
    count = len(explained)
    if count == len(penalties):
        return ""
    if explained[-1] > MOST_EXPLAINED:
        return f"{explained[-1]:.2%} of the deviance is explained"
    if count < FEWEST_PENALTIES or not smooth:
        return ""
    step = float(np.log(penalties[count - 2] / penalties[count - 1]))
    if explained[-1] - explained[-2] < SMALLEST_RISE * step * explained[-1]:
        return f"the explained deviance stays at {explained[-1]:.2%}"
    return ""
