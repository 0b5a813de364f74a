"""Ridge fits in batch: the body of the baselines, and tasks around a shared mean.

    minimise  sum_t L_t(w_0 + v_t, b_0 + c_t) + s/2 sum_t (||v_t||^2 + c_t^2) + s_0/2 ||w_0||^2

where L_t is the mean loss of task t, squared (``1/2 r^2``) or logistic (Evgeniou and Pontil 2004, with a ridge of its
own for the mean). s -> infinity is the pooled fit, s_0 -> infinity nearly independent fits. Only b_0 is free of any
penalty, so that a task with one label only borrows its intercept too.

Solved by Newton's method. The Hessian is an arrowhead: the blocks of the tasks are eliminated first, so that a step
costs O(m p^3) rather than O(m^3 p^3).

Independent task learning (ITL): one ridge fit per task.

    minimise  L_t(w, b) + s/2 ||w||^2      for each task t, with L_t its mean loss, squared or logistic

Single task learning (STL): one ridge fit for all tasks, their labels ignored.

    minimise  1/N sum_i l(y_i, x_i' w + b) + s/2 ||w||^2      over the N rows of all tasks (weights replace counts)

On School such a fit explains more than many a multi-task method, so that it belongs into every comparison.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from bayesmtfs import families
from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, check_choice
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.stream_estimator import check_positive
from bayesmtfs.families import Family
from bayesmtfs.online.smoothed_ridge import RidgeSettings, fit_smooth
from bayesmtfs.types import ConvergenceWarning, FloatArray, Solution, warn


class Lines(NamedTuple):
    """Fitted lines of all tasks."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    converged: bool
    n_iter: int


@dataclass(kw_only=True, repr=False, eq=False)
class RidgeEstimator(MultiTaskEstimator):
    """The body of the batch baselines; a child says how its lines are found."""

    groups = None
    loss = "squared"

    penalty_strength: float = 0.1
    fit_intercept: bool = True
    standardize: bool = False
    task_column: Any = None
    unknown_task: str = "error"

    def _check_parameters(self) -> None:
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        check_positive("penalty_strength", self.penalty_strength)

    @abstractmethod
    def _lines(self, data: TaskData, family: Family) -> Lines:
        """Lines for data that may be scaled."""

    def _fit(self, data: TaskData) -> None:
        scaled, scales = standardize(data) if self.standardize else (data, None)
        family = families.find_family(self.loss)
        lines = self._lines(scaled, family)
        if not lines.converged:
            warn("the fit did not converge; raise penalty_strength or set standardize=True", ConvergenceWarning)
        W = lines.W if data.present is None else np.where(data.present, lines.W, 0.0)
        eta = scaled.linear_predictor(W, lines.intercept)
        loss = float(scaled.loss_weights("mean") @ family.value(scaled.y, eta))
        nothing = float("nan")
        trace = np.array([loss])
        solution = Solution(W, lines.intercept, loss, nothing, nothing, lines.converged, lines.n_iter, trace)
        self._store(data, solution, scales, nothing)


class RidgeRegressor(MultiTaskRegressor, RidgeEstimator):
    """Face of the batch baselines for numbers."""

    loss = "squared"


class RidgeClassifier(MultiTaskClassifier, RidgeEstimator):
    """Face of the batch baselines for labels."""

    loss = "logistic"
    _saved_attributes: ClassVar[tuple[str, ...]] = ("classes_",)


@dataclass(kw_only=True, repr=False, eq=False)
class SharedMeanEstimator(RidgeEstimator):
    """The body of both shared-mean fits."""

    mean_strength: float = 0.001

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("mean_strength", self.mean_strength)

    def _lines(self, data: TaskData, family: Family) -> Lines:
        return shared_mean_lines(data, family, self.penalty_strength, self.mean_strength, self.fit_intercept)


@dataclass(repr=False, eq=False)
class SharedMeanRegressor(RidgeRegressor, SharedMeanEstimator):
    """Ridge regression around a mean that all tasks share.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge on a task's deviation from the mean, beside its mean loss.
    mean_strength : float
        s_0, the ridge on the mean.
    fit_intercept : bool
        A free common intercept, and a penalised deviation of each task.
    standardize : bool
        Scale features within each task before the fit.
    task_column, unknown_task : see `MixedNormRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import SharedMeanRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> SharedMeanRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)

    References
    ----------
    Evgeniou, Pontil (2004), Regularized multi-task learning.
    """


@dataclass(repr=False, eq=False)
class SharedMeanClassifier(RidgeClassifier, SharedMeanEstimator):
    """Logistic ridge regression around a mean that all tasks share.

    Parameters
    ----------
    penalty_strength, mean_strength, fit_intercept, standardize, task_column, unknown_task : see `SharedMeanRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import SharedMeanClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> SharedMeanClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


def shared_mean_lines(
    data: TaskData,
    family: Family,
    strength: float,
    mean_strength: float,
    fit_intercept: bool,
    tol: float = 1e-8,
    max_iter: int = 100,
) -> Lines:
    """Lines around a shared mean, by Newton steps until their decrement is a share tol of the objective.

    The loss must be smooth; the constant is one more feature, whose mean is not penalised.
    """
    p, m = data.n_features, data.n_tasks
    designs = [_with_constant(X, fit_intercept) for X in data.task_designs]
    width = designs[0].shape[1]
    ridge = np.full(width, mean_strength)
    ridge[p:] = 0.0
    weight = data.loss_weights("mean")
    mean, V = np.zeros(width), np.zeros((width, m))

    def objective(mean: FloatArray, V: FloatArray) -> float:
        eta = np.concatenate([A @ (mean + V[:, t]) for t, A in enumerate(designs)])
        loss = float(weight @ family.value(data.y, eta))
        return loss + 0.5 * strength * float(np.sum(V**2)) + 0.5 * float(ridge @ mean**2)

    value = objective(mean, V)
    for number in range(max_iter):
        H, g = np.empty((m, width, width)), np.empty((width, m))
        for t, (A, (start, stop)) in enumerate(zip(designs, data.spans, strict=True)):
            y, eta, c = data.y[start:stop], A @ (mean + V[:, t]), weight[start:stop]
            H[t] = (A.T * (c * family.curvature(y, eta))) @ A
            g[:, t] = A.T @ (c * family.gradient(y, eta))
        slope, slopes = g.sum(axis=1) + ridge * mean, g + strength * V
        step, steps = _arrowhead(H, strength, ridge, slope, slopes)
        decrease = float(slope @ step + np.sum(slopes * steps))
        if decrease <= tol**2 * (1.0 + abs(value)):
            return _as_lines(mean[:, None] + V, p, fit_intercept, number)
        length = 1.0
        while (trial := objective(mean - length * step, V - length * steps)) > value - 1e-4 * length * decrease:
            length *= 0.5
            if length < 1e-10:  # rounding: nothing decreases the objective any more
                return _as_lines(mean[:, None] + V, p, fit_intercept, number)
        mean, V, value = mean - length * step, V - length * steps, trial
    return _as_lines(mean[:, None] + V, p, fit_intercept, max_iter)._replace(converged=False)


def _arrowhead(
    H: FloatArray, strength: float, ridge: FloatArray, slope: FloatArray, slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Newton step in the mean and in the deviations: deviations are eliminated, ``R_t = (H_t + s I)^-1 H_t``."""
    width = len(ridge)
    blocks = H + strength * np.eye(width)
    R = np.linalg.solve(blocks, H)
    own = np.linalg.solve(blocks, slopes.T[:, :, None])[:, :, 0]
    head = np.diag(ridge) + np.sum(H - H @ R, axis=0)
    head[np.diag_indices(width)] += 1e-12 * (1.0 + np.trace(head))
    step = np.linalg.solve(head, slope - np.einsum("tij,tj->i", H, own))
    return step, (own - R @ step).T


def _as_lines(W: FloatArray, p: int, fit_intercept: bool, n_iter: int) -> Lines:
    return Lines(W[:p], W[p] if fit_intercept else np.zeros(W.shape[1]), True, max(n_iter, 1))


def _with_constant(X: Any, fit_intercept: bool) -> FloatArray:
    X = X.toarray() if sp.issparse(X) else X
    return np.hstack([X, np.ones((len(X), 1))]) if fit_intercept else np.asarray(X, dtype=np.float64)


# ---------------------------------------------------------------------- one fit per task


class IndependentEstimator(RidgeEstimator):
    """The body of both."""

    def _lines(self, data: TaskData, family: Family) -> Lines:
        return independent_lines(data, family, RidgeSettings(self.penalty_strength, self.fit_intercept))


@dataclass(kw_only=True, repr=False, eq=False)
class IndependentRegressor(RidgeRegressor, IndependentEstimator):
    """One ridge regression per task.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge beside the mean loss.
    fit_intercept : bool
        One intercept per task, not penalised.
    standardize : bool
        Scale features within each task before the fit.
    task_column, unknown_task : see `MixedNormRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import IndependentRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> IndependentRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


@dataclass(kw_only=True, repr=False, eq=False)
class IndependentClassifier(RidgeClassifier, IndependentEstimator):
    """One logistic ridge regression per task (ITL).

    Parameters
    ----------
    penalty_strength, fit_intercept, standardize, task_column, unknown_task : see `IndependentRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import IndependentClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> IndependentClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


def independent_lines(data: TaskData, family: Family, settings: RidgeSettings) -> Lines:
    """One fit per task."""
    weight = data.loss_weights("mean")
    fits = [
        fit_smooth(X, data.y[start:stop], weight[start:stop], family, settings, None)
        for X, (start, stop) in zip(data.task_designs, data.spans, strict=True)
    ]
    W = np.stack([fit.w for fit in fits], axis=1)
    return Lines(W, np.array([fit.intercept for fit in fits]), all(fit.converged for fit in fits), 1)


# ---------------------------------------------------------------------- one fit for all tasks


class PooledEstimator(RidgeEstimator):
    """The body of both."""

    def _lines(self, data: TaskData, family: Family) -> Lines:
        settings = RidgeSettings(self.penalty_strength, self.fit_intercept)
        if self._form == "classes":  # several classes of one task are not tasks to be pooled
            return independent_lines(data, family, settings)
        fit = fit_smooth(data.X, data.y, data.weight / data.weight.sum(), family, settings, None)
        m = data.n_tasks
        return Lines(np.tile(fit.w[:, None], (1, m)), np.full(m, fit.intercept), fit.converged, 1)


@dataclass(kw_only=True, repr=False, eq=False)
class PooledRegressor(RidgeRegressor, PooledEstimator):
    """One ridge regression for all tasks.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge beside the mean loss over all rows.
    fit_intercept : bool
        One intercept for all, not penalised.
    standardize : bool
        Scale features within each task before the fit.
    task_column, unknown_task : see `MixedNormRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import PooledRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> PooledRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


@dataclass(kw_only=True, repr=False, eq=False)
class PooledClassifier(RidgeClassifier, PooledEstimator):
    """One logistic ridge regression for all tasks (STL).

    Parameters
    ----------
    penalty_strength, fit_intercept, standardize, task_column, unknown_task : see `PooledRegressor`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import PooledClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> PooledClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """
