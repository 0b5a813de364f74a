"""Baselines in batch with a ridge: one fit per task (ITL), one for all (STL), a shared mean, shared hypotheses (SHAMO)."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from bayesmtfs import families
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import MultiTaskEstimator, check_choice, estimator_class
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.stream_estimator import check_positive
from bayesmtfs.families import Family
from bayesmtfs.online.smoothed import task_losses
from bayesmtfs.online.smoothed_ridge import RidgeFit, RidgeSettings, fit_smooth, newton, with_constant
from bayesmtfs.types import ConvergenceWarning, FloatArray, IntArray, Solution, warn


class Lines(NamedTuple):
    """Fitted lines of all tasks."""

    W: FloatArray  # (p, m)
    intercept: FloatArray  # (m,)
    converged: bool
    n_iter: int


@estimator_class(kw_only=True)
class RidgeEstimator(MultiTaskEstimator):
    """The body of the batch baselines; a child says how its lines are found.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge beside the mean loss.
    fit_intercept : bool
        One intercept per task, not penalised.
    """

    groups = None

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
        scaling = self._rescaled(data)
        scaled = scaling.data
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
        self._store(data, solution, scaling, nothing)


class RidgeRegressor(MultiTaskRegressor, RidgeEstimator):
    """Face of the batch baselines for numbers."""

    loss = "squared"


class RidgeClassifier(MultiTaskClassifier, RidgeEstimator):
    """Face of the batch baselines for labels."""

    loss = "logistic"


# ---------------------------------------------------------------------- one fit per task, or one for all


def independent_lines(data: TaskData, family: Family, settings: RidgeSettings) -> Lines:
    """One fit per task."""
    weight = data.loss_weights("mean")
    fits = [
        fit_smooth(X, data.y[start:stop], weight[start:stop], family, settings, None)
        for X, (start, stop) in zip(data.task_designs, data.spans, strict=True)
    ]
    W = np.stack([fit.w for fit in fits], axis=1)
    return Lines(W, np.array([fit.intercept for fit in fits]), all(fit.converged for fit in fits), 1)


class IndependentEstimator(RidgeEstimator):
    """One fit per task."""

    def _lines(self, data: TaskData, family: Family) -> Lines:
        return independent_lines(data, family, RidgeSettings(self.penalty_strength, self.fit_intercept))


@estimator_class(kw_only=True)
class IndependentRegressor(RidgeRegressor, IndependentEstimator):
    """One ridge regression per task.

        minimise  L_t(w, b) + s/2 ||w||^2      for each task t, with L_t its mean loss, here ``1/2 r^2``

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> baselines.IndependentRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


@estimator_class(kw_only=True)
class IndependentClassifier(RidgeClassifier, IndependentEstimator):
    """One logistic ridge regression per task (ITL), as `IndependentRegressor` with the logistic loss.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> baselines.IndependentClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


class PooledEstimator(RidgeEstimator):
    """One fit for all tasks.

    Parameters
    ----------
    fit_intercept : bool
        One intercept for all, not penalised.
    """

    def _lines(self, data: TaskData, family: Family) -> Lines:
        settings = RidgeSettings(self.penalty_strength, self.fit_intercept)
        if self._form == "classes":  # several classes of one task are not tasks to be pooled
            return independent_lines(data, family, settings)
        fit = fit_smooth(data.X, data.y, data.weight / data.weight.sum(), family, settings, None)
        m = data.n_tasks
        return Lines(np.tile(fit.w[:, None], (1, m)), np.full(m, fit.intercept), fit.converged, 1)


@estimator_class(kw_only=True)
class PooledRegressor(RidgeRegressor, PooledEstimator):
    """One ridge regression for all tasks, their labels ignored.

        minimise  1/N sum_i l(y_i, x_i' w + b) + s/2 ||w||^2      over the N rows of all tasks (weights replace counts)

    On School such a fit explains more than many a multi-task method, so that it belongs into every comparison.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> baselines.PooledRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


@estimator_class(kw_only=True)
class PooledClassifier(RidgeClassifier, PooledEstimator):
    """One logistic ridge regression for all tasks (STL), as `PooledRegressor` with the logistic loss.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> baselines.PooledClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


# ---------------------------------------------------------------------- a shared mean


@estimator_class(kw_only=True)
class SharedMeanEstimator(RidgeEstimator):
    """Tasks around a shared mean.

    Parameters
    ----------
    penalty_strength : float
        s, the ridge on a task's deviation from the mean, beside its mean loss.
    mean_strength : float
        s_0, the ridge on the mean.
    fit_intercept : bool
        A free common intercept, and a penalised deviation of each task.
    """

    mean_strength: float = 0.001

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("mean_strength", self.mean_strength)

    def _lines(self, data: TaskData, family: Family) -> Lines:
        return shared_mean_lines(data, family, self.penalty_strength, self.mean_strength, self.fit_intercept)


@estimator_class(kw_only=True)
class SharedMeanRegressor(RidgeRegressor, SharedMeanEstimator):
    """Ridge regression around a mean that all tasks share.

        minimise  sum_t L_t(w_0 + v_t, b_0 + c_t) + s/2 sum_t (||v_t||^2 + c_t^2) + s_0/2 ||w_0||^2

    where L_t is the mean loss of task t, here ``1/2 r^2``. s -> infinity is the pooled fit, s_0 -> infinity nearly
    independent fits. Only b_0 is free of any penalty, so that a task with one label only borrows its intercept too.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> baselines.SharedMeanRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)

    References
    ----------
    Evgeniou, Pontil (2004), Regularized multi-task learning; with a ridge of its own for the mean.
    """


@estimator_class(kw_only=True)
class SharedMeanClassifier(RidgeClassifier, SharedMeanEstimator):
    """Logistic ridge regression around a mean that all tasks share; the objective is that of `SharedMeanRegressor`.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> baselines.SharedMeanClassifier().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """


def shared_mean_lines(
    data: TaskData, family: Family, strength: float, mean_strength: float, fit_intercept: bool
) -> Lines:
    """Lines around a shared mean, by Newton steps; the loss must be smooth.

    The constant is one more feature, whose mean is not penalised. The Hessian is an arrowhead: the blocks of the tasks
    are eliminated first, ``R_t = (H_t + s I)^-1 H_t``, so that a step costs O(m p^3) rather than O(m^3 p^3).
    """
    p, m, weight = data.n_features, data.n_tasks, data.loss_weights("mean")
    designs = [with_constant(X.toarray() if sp.issparse(X) else X, fit_intercept) for X in data.task_designs]
    width = designs[0].shape[1]
    ridge = np.full((width, 1 + m), strength)  # of the mean, and of the tasks' deviations
    ridge[:, 0] = np.where(np.arange(width) < p, mean_strength, 0.0)

    def scores(z: FloatArray) -> FloatArray:
        return np.concatenate([A @ (z[:, 0] + v) for A, v in zip(designs, z[:, 1:].T, strict=True)])

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        eta = scores(z)
        slopes = np.split(weight * family.gradient(data.y, eta), data.offsets[1:-1])
        g = np.stack([A.T @ slope for A, slope in zip(designs, slopes, strict=True)], axis=1)
        value = float(weight @ family.value(data.y, eta)) + 0.5 * float(np.sum(ridge * z**2))
        return value, np.column_stack([g.sum(axis=1), g]) + ridge * z

    def direction(z: FloatArray, gradient: FloatArray) -> FloatArray:
        curvatures = np.split(weight * family.curvature(data.y, scores(z)), data.offsets[1:-1])
        H = np.stack([(A.T * c) @ A for A, c in zip(designs, curvatures, strict=True)])
        blocks = H + strength * np.eye(width)
        R = np.linalg.solve(blocks, H)
        own = np.linalg.solve(blocks, gradient[:, 1:].T[:, :, None])[:, :, 0]
        head = np.diag(ridge[:, 0]) + np.sum(H - H @ R, axis=0)
        head[np.diag_indices(width)] += 1e-12 * (1.0 + np.trace(head))
        step = np.linalg.solve(head, gradient[:, 0] - np.einsum("tij,tj->i", H, own))
        return np.column_stack([step, (own - R @ step).T])

    settings = RidgeSettings(strength, fit_intercept, max_iter=100)
    z, converged, n_iter = newton(objective, direction, np.zeros((width, 1 + m)), settings)
    W = z[:, :1] + z[:, 1:]
    return Lines(W[:p], W[p] if fit_intercept else np.zeros(m), converged, max(n_iter, 1))


# ---------------------------------------------------------------------- shared hypotheses


@estimator_class()
class SharedHypothesesClassifier(RidgeClassifier):
    """Shared hypotheses (SHAMO): few logistic lines, and every task uses the one that fits it best.

        minimise  sum_t L_t(w_h(t), b_h(t)) + s/2 sum_h ||w_h||^2      over H lines and the choice h(t) of each task

    with L_t the mean logistic loss. As in k-means, fits of the lines and choices of the tasks alternate, from several
    random partitions, and the best end is kept; the objective never rises. Differently from the paper there is a ridge,
    and an intercept per line.

    Parameters
    ----------
    n_hypotheses : int
        H, the number of lines; at most one per task is used, and one for each of several classes.
    penalty_strength : float
        s, the ridge of a line beside the sum of the mean losses of its tasks.
    n_init : int
        Random partitions to begin from.
    max_iter : int
        Most alternations from each start.
    fit_intercept : bool
        One intercept per line, not penalised.
    random_state : int, RandomState or None
        For the partitions.

    Attributes
    ----------
    hypothesis_ : (n_tasks,) number of each task's line

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=4, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> model = baselines.SharedHypothesesClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> len(set(model.hypothesis_.tolist())) <= 2
    True

    References
    ----------
    Crammer, Mansour (2012), Learning multiple tasks using shared hypotheses.
    """

    _saved_attributes: ClassVar[tuple[str, ...]] = ("hypothesis_",)

    n_hypotheses: int = 2
    n_init: int = 5
    max_iter: int = 50
    random_state: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("n_hypotheses", "n_init", "max_iter"):
            self._require(name, getattr(self, name) >= 1, "a whole number of at least 1")

    def _lines(self, data: TaskData, family: Family) -> Lines:
        random = check_random_state(self.random_state)
        # Several classes of one task are told apart by their lines, so that each has its own
        count = data.n_tasks if self._form == "classes" else min(self.n_hypotheses, data.n_tasks)
        settings = RidgeSettings(self.penalty_strength, self.fit_intercept)
        starts = [random.permutation(np.arange(data.n_tasks) % count) for _ in range(self.n_init if count > 1 else 1)]
        ends = [_alternate(data, family, settings, choice, count, self.max_iter) for choice in starts]
        _, self.hypothesis_, lines = min(ends, key=lambda end: end[0])
        return lines


def _alternate(
    data: TaskData, family: Family, settings: RidgeSettings, choice: IntArray, count: int, max_iter: int
) -> tuple[float, IntArray, Lines]:
    """Objective, choices and lines from one start."""
    weight = data.loss_weights("mean")
    fits: list[RidgeFit | None] = [None] * count
    H, intercept = np.zeros((data.n_features, count)), np.zeros(count)
    value, converged, number = np.inf, False, 0
    for number in range(1, max_iter + 1):
        for h in np.unique(choice):  # a line that nobody chose stays as it is
            found = fit_smooth(data.X, data.y, weight * (choice == h)[data.task], family, settings, fits[h])
            fits[h], H[:, h], intercept[h] = found, found.w, found.intercept
        losses = task_losses(data, family, H, intercept)
        fresh = np.argmin(losses, axis=0)
        used = np.unique(fresh)
        value = float(losses.min(axis=0).sum() + 0.5 * settings.strength * np.sum(H[:, used] ** 2))
        converged = bool((fresh == choice).all())
        choice = fresh
        if converged:
            break
    return value, choice, Lines(np.ascontiguousarray(H[:, choice]), intercept[choice], converged, number)
