"""Prediction error of whole paths on held-out observations, and the choice that follows from it.

A fold is fitted at all penalties on its training observations. A task that has none there is predicted with the average
of the other tasks' coefficients and intercepts. The error of a fold is

    mean over its test tasks of  sum_i c_i error(y_i, eta_i) / sum_i c_i        (i: test observations of the task)

with weights c and the squared error ``(y - eta)^2``, the absolute error ``|y - eta|``, the logistic deviance
``2 ln(1 + exp(-y eta))`` or the hinge ``(1 - y eta)_+``. Folds count equally, and the standard error of their mean is
their standard deviation over the square root of their number.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import Fold, take
from bayesmtfs.estimators.path import MixedNormPath, PathSettings, path_of
from bayesmtfs.families import find_family
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, IntArray, SelectionWarning

LOOSEST_TOL = 1e-5  # folds are solved to this gap, or the user's where that is larger
ERROR_FACTOR = {"squared": 2.0, "absolute": 1.0, "logistic": 2.0, "hinge": 1.0}  # error over loss


class Candidate(NamedTuple):
    """What is fitted along a path, and its penalties."""

    settings: PathSettings
    penalties: FloatArray  # (k,)


class FoldErrors(NamedTuple):
    """Errors of one candidate on one fold."""

    errors: FloatArray  # (k,)
    converged: BoolArray  # (k,)


def cross_validate(
    data: TaskData, folds: list[Fold], candidates: list[Candidate], n_jobs: int | None, progress: bool | None
) -> list[list[FoldErrors]]:
    """Errors of every candidate (outer list) on every fold (inner list).

    Jobs are threads unless joblib is told otherwise: the compiled loops and the products of matrices run side by side,
    and no process has to start and load them first. After Ctrl-C the folds count that all candidates are through with.
    """
    jobs = [(candidate, fold) for fold in folds for candidate in candidates]
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    results: Iterator[FoldErrors] = parallel(delayed(fold_errors)(data, fold, candidate) for candidate, fold in jobs)
    found: list[FoldErrors] = []
    # Filters and limits hold for all threads, and the first to leave would lift them for the others: so they are here
    with (
        Progress("cross-validation", progress) as bar,
        threadpool_limits(1),
        warnings.catch_warnings(),
        Progress("", False) as watch,
    ):
        warnings.simplefilter("ignore", DataWarning)  # what is constant in a fold alone is of no interest
        try:
            for result in results:
                watch.check()
                found.append(result)
                bar.update(len(found) / len(jobs), f"{len(found)} of {len(jobs)} paths")
        except KeyboardInterrupt:
            if len(found) < len(candidates):
                raise
    n_whole = len(found) // len(candidates)
    if n_whole < len(folds):
        warnings.warn(
            f"interrupted after {n_whole} of {len(folds)} folds; the choice is made by these", SelectionWarning, 2
        )
    return [found[place : n_whole * len(candidates) : len(candidates)] for place in range(len(candidates))]


def fold_errors(data: TaskData, fold: Fold, candidate: Candidate) -> FoldErrors:
    """Fit one fold along its penalties and predict what it holds out."""
    train = take(data, fold.train)
    settings = replace(candidate.settings, tol=max(candidate.settings.tol, LOOSEST_TOL))
    # One thread per fold: the same sums, and so the same bits, for every number of jobs
    with threadpool_limits(1):
        path = path_of(train.data, settings, candidate.penalties)
        return FoldErrors(_held_out_errors(data, fold, path, train.tasks, settings.loss), path.converged)


def _held_out_errors(data: TaskData, fold: Fold, path: MixedNormPath, trained: IntArray, loss: str) -> FloatArray:
    test = take(data, fold.test)
    place = np.full(data.n_tasks, -1)
    place[trained] = np.arange(len(trained))
    own = place[test.tasks]
    errors = np.empty(len(path.penalties))
    for k, (coef, intercept) in enumerate(zip(path.coefs, path.intercepts, strict=True)):
        W = np.where(own >= 0, coef[own].T, coef.mean(axis=0)[:, np.newaxis])
        b = np.where(own >= 0, intercept[own], intercept.mean())
        errors[k] = mean_task_error(test.data, loss, test.data.linear_predictor(W, b))
    return errors


def mean_task_error(data: TaskData, loss: str, eta: FloatArray) -> float:
    """Mean over tasks of the weighted mean error of each."""
    error = ERROR_FACTOR[loss] * find_family(loss).value(data.y, eta)
    sums = np.add.reduceat(data.weight * error, data.offsets[:-1])
    return float(np.mean(sums / np.add.reduceat(data.weight, data.offsets[:-1])))


def standard_error(errors: FloatArray) -> FloatArray:
    """Standard error of the mean over the last axis; 0 where there is one fold only."""
    n_folds = errors.shape[-1]
    if n_folds < 2:
        return np.zeros(errors.shape[:-1])
    return np.asarray(np.std(errors, axis=-1, ddof=1) / np.sqrt(n_folds))


def choose(penalties: FloatArray, score: FloatArray, margin: FloatArray | None = None) -> tuple[int, int]:
    """Candidate and penalty of the smallest score; of equals, the largest penalty.

    Parameters
    ----------
    penalties, score : (c, k), NaN where a candidate has fewer than k penalties
    margin : (c, k) standard errors; then the largest penalty of the best candidate whose score is at most the smallest
        score plus its margin (the one standard error rule of Breiman et al. 1984, section 3.4.3)

    Examples
    --------
    >>> penalties, score = np.array([[3.0, 2.0, 1.0]]), np.array([[9.0, 5.0, 4.5]])
    >>> choose(penalties, score), choose(penalties, score, margin=np.full((1, 3), 1.0))
    ((0, 2), (0, 1))
    """
    known = np.where(np.isnan(score), np.inf, score)
    ties = np.where(known == known.min(), penalties, -1.0)
    candidate, best = np.unravel_index(int(np.nanargmax(ties)), ties.shape)
    if margin is not None:
        bound = known[candidate, best] + margin[candidate, best]
        best = np.nanargmax(np.where(known[candidate] <= bound, penalties[candidate], -1.0))
    return int(candidate), int(best)
