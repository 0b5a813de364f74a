r"""Noise and offset of the row prior for a loss without a noise of its own, such as labels: chosen by folds.

    minimise   L(W, b) / sigma^2 + m sum_i ln(||w^i||_q + offset)

A label says much less about its row of X than a number does, and with sigma = 1 and a small offset the logarithm, whose
slope at a zero row is ``m / offset``, outweighs it: two or three features remain where many weak ones together predict
best. In W this is the mode under ``p(w^i) ~ (||w^i||_q + offset)^-(m sigma^2)``: mixed-norm rows whose rates are
``Gamma(m (sigma^2 - 1), offset)``, the generalized double Pareto of Armagan, Dunson and Lee (2013, *Statistica Sinica*
23:119-143) over the tasks. ``sigma^2 m / offset`` is the slope at zero and the offset how soon it falls: large, it is the
mixed norm; small, nearly a count of features.

Both are chosen by the held-out loss of five folds of the training rows. At each slope, from the largest down, the fit
begins at the mixed norm of that strength, which is the tangent problem at W = 0, and goes from the largest offset to the
smallest (Mazumder, Friedman and Hastie 2011, *JASA* 106:1125-1138, go this way for other penalties). The route's own fit
at sigma = 1 and its small offset, which keeps fewer features, stays unless the best one is better by a standard error of
the difference.

Folds do not depend on the order of rows, tasks or features, and equal rows share one: rows are dealt out in the order of
their task's mean prediction, their label and their prediction by a mixed-norm fit.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em import mm
from bayesmtfs.estimators.folds import DEFAULT_FOLDS, input_rows, take
from bayesmtfs.families import with_offset
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, IntArray, Solution

OFFSETS = (100.0, 10.0, 1.0, 0.1)  # in units of sd(y) / sd(x)
SHARES = np.geomspace(0.7, 0.004, 12)  # slopes at zero, of the largest one at which there are rows
PATIENCE = 2  # slopes without a smaller error after which an offset is left alone
DEALT_SHARE = 0.1  # slope of the mixed norm by which rows are dealt out
DEALT_DIGITS = 6
DEALT_TOL = 1e-9
FOLD_TOL = 1e-5
TANGENTS = 3  # convex problems per offset

Fit = Callable[[TaskData], Solution]


class RowPriorChoice(NamedTuple):
    """A prior and the fit from which to go on under it."""

    noise: float
    offset: float
    start: Solution


def choose(problem: Problem, unit: float, plain: Fit, *, progress: bool | None = None) -> RowPriorChoice | None:
    """Noise and offset of the smallest held-out loss; None where that of ``plain`` is within a standard error of it.

    ``plain`` is the route's own fit. ``problem`` has a penalty of the wanted q, whose strength does not matter; ``unit``
    is the size of 1 in its coefficients. Ctrl-C raises KeyboardInterrupt: half a choice is none.
    """
    number, largest, offsets = deal(problem), problem.largest_penalty, unit * np.array(OFFSETS)
    if number.max() == 0 or largest == 0:
        return None
    folds = [FoldFits(problem, number == fold) for fold in range(int(number.max()) + 1)]
    weight, n_tasks = problem.data.weight, problem.data.n_tasks
    sums, best = np.full((len(SHARES), len(offsets)), np.inf), np.full(len(weight), np.inf)
    with Progress("choice of the prior", progress) as work:
        own = gathered(folds, lambda fold: [whole(plain(fold.problem.data))])[0]
        for place, share in enumerate(SHARES):
            n_open = _n_open(sums[:place])
            if n_open == 0:
                break
            losses = gathered(folds, partial(FoldFits.fits, strength=share * largest, offsets=offsets[:n_open]))
            sums[place, :n_open] = losses @ weight
            if sums[place].min() == sums.min():
                best = losses[int(np.argmin(sums[place]))]
            work.update((place + 1) / len(SHARES))
    if work.interrupted:
        raise KeyboardInterrupt
    if not clearly_smaller(best, own, weight):
        return None
    place, last = (int(i) for i in np.unravel_index(np.argmin(sums), sums.shape))
    strength = SHARES[place] * largest
    start = descend(problem, mixed_norm(problem, strength, None), strength, offsets[: last + 1], n_tasks)[-1]
    return RowPriorChoice(noise_at(strength, offsets[last], n_tasks), float(offsets[last]), start)


def clearly_smaller(best: FloatArray, own: FloatArray, weight: FloatArray) -> bool:
    """Whether losses (N,) are below others by more than a standard error of the mean difference, row by row."""
    difference = own - best
    mean = weight @ difference / weight.sum()
    return bool(weight @ difference > np.sqrt(weight @ (difference - mean) ** 2))


def _n_open(losses: FloatArray) -> int:
    """How many offsets, from the largest, to go on with: as far as the smallest whose loss still falls."""
    if len(losses) <= PATIENCE:
        return losses.shape[1]
    still = np.flatnonzero(len(losses) - 1 - np.argmin(losses, axis=0) < PATIENCE)
    return int(still.max(initial=-1)) + 1


class FoldFits:
    """The problem without one fold, and what its fits lose there."""

    def __init__(self, problem: Problem, test: BoolArray) -> None:
        self.rows, train, self.test = test, take(problem.data, ~test), take(problem.data, test)
        self.problem = replace(problem, data=train.data, weight=train.data.weight)
        self.tasks, self.n_tasks = train.tasks, problem.data.n_tasks
        self.last: Solution | None = None  # mixed norm at the last slope

    def fits(self, strength: float, offsets: FloatArray) -> list[Solution]:
        """Fits at one slope and falling offsets."""
        self.last = mixed_norm(self.problem, strength, self.last)
        return descend(self.problem, self.last, strength, offsets, self.n_tasks)

    def held_out_losses(self, found: Solution) -> FloatArray:
        """Losses of the rows of the fold; a task without training rows is predicted with the average of the others."""
        lines = np.vstack([found.W, found.intercept])
        every = np.repeat(lines.mean(axis=1, keepdims=True), self.n_tasks, axis=1)
        every[:, self.tasks] = lines
        test, own = self.test.data, every[:, self.test.tasks]
        eta = test.linear_predictor(np.ascontiguousarray(own[:-1]), own[-1])
        rows = with_offset(self.problem.family, None).on(test.y, test.weight, test.offsets)
        return with_offset(rows, test.eta_offset).value(test.y, eta)


def gathered(folds: list[FoldFits], fits: Callable[[FoldFits], list[Solution]]) -> FloatArray:
    """(k, N) Held-out losses of the k fits that each fold has."""
    parts = [np.stack([fold.held_out_losses(found) for found in fits(fold)]) for fold in folds]
    losses = np.empty((len(parts[0]), len(folds[0].rows)))
    for fold, part in zip(folds, parts, strict=True):
        losses[:, fold.rows] = part
    return losses


def noise_at(strength: float, offset: float, n_tasks: int) -> float:
    """Sigma with which the prior has this slope at zero."""
    return float(np.sqrt(strength * offset / n_tasks))


def mixed_norm(problem: Problem, strength: float, last: Solution | None, tol: float = FOLD_TOL) -> Solution:
    """Mixed-norm fit, from the last one."""
    return whole(automatic.solve(problem.with_strength(strength), last, tol=tol))


def descend(problem: Problem, start: Solution, strength: float, offsets: FloatArray, n_tasks: int) -> list[Solution]:
    """Fits at falling offsets and the same slope at zero, some tangent problems each, from the one before."""
    norm_q, fits = problem.penalty.norm_q, []
    state = mm.MMState(start, problem.data.linear_predictor(start.W, start.intercept), 1.0)
    for offset in offsets:
        state = state._replace(noise=noise_at(strength, offset, n_tasks))
        for _ in range(TANGENTS):
            state = mm.update_coefficients(problem, state, norm_q, float(offset), FOLD_TOL)
        fits.append(state.solution)
    return fits


def whole(found: Solution) -> Solution:
    """Return the solution, unless Ctrl-C ended it."""
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def deal(problem: Problem) -> IntArray:
    """(N,) Number of the fold of each observation; whole rows in the wide form, and 0 for all where there is one row."""
    data = problem.data
    fit = mixed_norm(problem, DEALT_SHARE * problem.largest_penalty, None, DEALT_TOL)
    eta = data.linear_predictor(fit.W, fit.intercept)
    level = np.add.reduceat(data.weight * eta, data.offsets[:-1]) / data.task_weights
    _, row = np.unique(input_rows(data), return_inverse=True)
    values = [level[data.task], data.y, eta]
    if problem.family.coupled and problem.family.targets == "labels" and not problem.family.has_cuts:
        own = data.y > 0  # of several classes, with a row each: that of an observation
        values = [level[data.task], own * data.task, own * eta]
    keys = np.column_stack([np.bincount(row, weights=part) for part in values])
    size = np.max(np.abs(keys), axis=0)
    rounded = np.round(keys / np.where(size > 0, size, 1.0), DEALT_DIGITS)
    _, place = np.unique(rounded, axis=0, return_inverse=True)
    return np.asarray(place[row] % min(DEFAULT_FOLDS, int(place.max()) + 1), dtype=np.int64)
