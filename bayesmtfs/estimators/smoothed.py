"""Smoothed multi-task learning: every task learns from the rows of all, weighted by relations that are learned.

**SMTL** (all rows at once) solves

    minimise  sum_k { sum_j eta_kj L_j(w_k, b_k) + s/2 ||w_k||^2 - lambda H(p_k) },    eta = alpha I + (1 - alpha) P

over weights, intercepts and the row-stochastic P (Murugesan, Liu, Carbonell and Yang 2016, eq. 4). L_j is the mean loss
of task j. Steps, and what differs from the paper, are in `bayesmtfs.online.smoothed`. The relations are no part of
a prior, so that no PyMC model stands beside this fit; at fixed relations it is a ridge fit, the MAP under normal weights.

**OSMTL** (online): in every round each learner k steps on ``sum_j eta_kj l_kj(w)``, and moves its row of P towards the
tasks on whose rows it does well (their Algorithm 2). The formulas, and what differs from the paper, are in
`bayesmtfs.online.smoothed_online`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice, check_family
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.estimators.stream_estimator import (
    StreamClassifier,
    StreamEstimator,
    StreamRegressor,
    UnitRowEstimator,
    check_positive,
)
from bayesmtfs.families import EpsilonInsensitive, Family
from bayesmtfs.online.smoothed import SmoothedSettings, solve
from bayesmtfs.online.smoothed_online import TRIGGERS, UPDATES, SmoothedLearner
from bayesmtfs.types import ConvergenceWarning, Solution, warn


def find_loss(loss: str | Family, epsilon: float, labels: bool) -> Family:
    """Family of a smoothed learner's loss; regressors have one more, which takes a parameter."""
    if not 0 <= epsilon < np.inf:
        raise ValueError(f"epsilon is {epsilon}; pass a number of at least 0")
    if loss == EpsilonInsensitive.name and not labels:
        return EpsilonInsensitive(epsilon)
    return check_family(loss, labels)


@dataclass(repr=False, eq=False)
class SmoothedEstimator(UnitRowEstimator):
    """The body of both estimators."""

    groups = None
    epsilon = 0.0

    _labels: ClassVar[bool]
    _saved_attributes: ClassVar[tuple[str, ...]] = ("task_relations_", "objective_trace_")

    update: str = "exponential"
    concentration: float = 0.5
    smoothing: float = 1.0
    penalty_strength: float = 0.1
    fit_intercept: bool = True
    normalize_rows: bool = False
    standardize: bool = False
    task_column: Any = None
    unknown_task: str = "error"
    tol: float = 1e-6
    max_iter: int = 100
    progress: bool | None = None

    def _check_parameters(self) -> None:
        family = find_loss(self.loss, self.epsilon, self._labels)
        if family.smooth:
            family.require(type(self).__name__, "curvature")
        elif not isinstance(family, EpsilonInsensitive):
            family.require(type(self).__name__, "kinks")
        check_choice("update", self.update, UPDATES)
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        for name in ("smoothing", "penalty_strength", "tol"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.concentration <= 1:
            raise ValueError(f"concentration is {self.concentration}; pass a number from 0 to 1")
        if self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter}; pass a whole number of at least 1")

    def _fit(self, data: TaskData) -> None:
        data = self._scaled(data)
        scaled, scales = standardize(data) if self.standardize else (data, None)
        settings = SmoothedSettings(
            update=self.update,
            concentration=float(self.concentration),
            smoothing=float(self.smoothing),
            strength=float(self.penalty_strength),
            family=find_loss(self.loss, self.epsilon, self._labels),
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        found = solve(scaled, settings, self.progress)
        if not found.converged:
            warn(
                f"the relations still moved after {found.n_iter} iterations; raise max_iter, smoothing or tol",
                ConvergenceWarning,
            )
        self.task_relations_ = self.concentration * np.eye(data.n_tasks) + (1.0 - self.concentration) * found.P
        self.objective_trace_ = found.objective_trace
        solution = Solution(
            W=found.W,
            intercept=found.intercept,
            objective=float(found.objective_trace[-1]),
            gap=float("nan"),
            scale=float("nan"),
            converged=found.converged,
            n_iter=found.n_iter,
            objective_trace=found.objective_trace,
        )
        self._store(data, solution, scales, self.tol)


@dataclass(repr=False, eq=False)
class SmoothedClassifier(MultiTaskClassifier, SmoothedEstimator):
    """Multi-task classification with learned task relations (SMTL-e, SMTL-t).

    Parameters
    ----------
    loss : {"logistic", "hinge"} or Family
        With few positives the hinge answers with a constant; the logistic loss does not.
    update : {"exponential", "threshold"}
        Attention proportional to ``exp(-(1 - alpha) loss / lambda)`` (SMTL-e), or to ``(lambda - loss)_+`` (SMTL-t).
    concentration : float in [0, 1]
        alpha, the share of a learner's attention that is always its own task's; 1 is independent learning.
    smoothing : float
        lambda, in the units of the mean loss; the larger, the more even the attention.
    penalty_strength : float
        s, the ridge of each learner beside its mean loss.
    fit_intercept : bool
        One intercept per task, not penalised.
    normalize_rows : bool
        Divide rows by their length, here and in prediction.
    standardize : bool
        Scale features within each task before the fit.
    task_column, unknown_task : see `MixedNormClassifier`
    tol : float
        Largest change of an entry of P at which the fit has converged.
    max_iter : int
        Most alternations between weights and relations.
    progress : bool or None
        Progress bar: always, never, or (None) for long fits on a terminal.

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    task_relations_ : (n_tasks, n_tasks)
        ``alpha I + (1 - alpha) P``: entry (k, j) is the weight of task j in learner k; rows sum to 1.
    objective_trace_ : (n_iter_,)
        The objective; never rises for the exponential update.
    tasks_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.smoothed import SmoothedClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> model = SmoothedClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    >>> model.task_relations_.sum(axis=1).round(6).tolist()
    [1.0, 1.0, 1.0]

    References
    ----------
    Murugesan, Liu, Carbonell, Yang (2016), Adaptive smoothed online multi-task learning.
    """

    epsilon = 0.0
    _labels = True
    _saved_attributes = (*SmoothedEstimator._saved_attributes, "classes_")

    loss: str | Family = "logistic"


@dataclass(repr=False, eq=False)
class SmoothedRegressor(MultiTaskRegressor, SmoothedEstimator):
    """Multi-task regression with learned task relations.

    Parameters
    ----------
    loss : {"squared", "epsilon_insensitive", "absolute"} or Family
        ``1/2 r^2``, or ``(|r| - epsilon)_+``.
    epsilon : float
        Residual that costs nothing, for the second loss.
    update, concentration, smoothing, penalty_strength, fit_intercept, normalize_rows, standardize, task_column,
    unknown_task, tol, max_iter, progress : see `SmoothedClassifier`

    Attributes
    ----------
    coef_, intercept_, task_relations_, objective_trace_, tasks_, n_iter_, converged_, result_
        See `SmoothedClassifier`.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.smoothed import SmoothedRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> SmoothedRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """

    _labels = False

    loss: str | Family = "squared"
    epsilon: float = 0.0


# ---------------------------------------------------------------------- online


@dataclass(repr=False, eq=False)
class OnlineSmoothedEstimator(StreamEstimator):
    """The body of both online learners."""

    epsilon = 0.0

    _labels: ClassVar[bool]
    _triggers: ClassVar[tuple[str, ...]]

    update: str = "exponential"
    concentration: float | str = 0.5
    smoothing: float = 1.0
    step: float | str = 1.0
    trigger: str = "error"
    horizon: int | None = None
    neighbours: int | None = None

    def _check_parameters(self) -> None:
        find_loss(self.loss, self.epsilon, self._labels).require(type(self).__name__, "slope")
        check_choice("update", self.update, UPDATES)
        check_choice("trigger", self.trigger, self._triggers)
        self._check_stream()
        if isinstance(self.concentration, str):
            check_choice("concentration", self.concentration, ("auto",))
        elif not 0 <= self.concentration <= 1:
            raise ValueError(f"concentration is {self.concentration}; pass a number from 0 to 1, or 'auto'")
        if isinstance(self.step, str):
            check_choice("step", self.step, ("auto",))
        else:
            check_positive("step", self.step)
        check_positive("smoothing", self.smoothing)
        for name in ("horizon", "neighbours"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; pass a whole number of at least 1, or None")

    def _new_learner(self, n_features: int) -> SmoothedLearner:
        return SmoothedLearner(
            n_features=n_features,
            **self._common,
            family=find_loss(self.loss, self.epsilon, self._labels),
            update=self.update,
            trigger=self.trigger,
            concentration=None if isinstance(self.concentration, str) else self.concentration,
            smoothing=self.smoothing,
            step=None if isinstance(self.step, str) else self.step,
            horizon=self.horizon,
            neighbours=self.neighbours,
        )

    @property
    def task_relations_(self) -> Any:
        """(n_tasks, n_tasks) ``alpha I + (1 - alpha) P``, rows sum to 1; a CSR matrix with ``neighbours``."""
        self._built_so_far()
        return cast(SmoothedLearner, self._learner).task_relations()[self._learners][:, self._learners]


@dataclass(repr=False, eq=False)
class OnlineSmoothedClassifier(StreamClassifier, OnlineSmoothedEstimator):
    """Online multi-task classification with learned task relations (OSMTL-e, OSMTL-t); hinge loss.

    Parameters
    ----------
    update : {"exponential", "threshold"}
        How attention moves: p times ``exp(-C (1 - alpha) loss / lambda)`` (OSMTL-e), or afresh in each round
        proportional to ``(lambda - loss)_+`` (OSMTL-t).
    concentration : float in [0, 1] or "auto"
        alpha, the share of a learner's attention that is always its own task's; 1 is independent learning. "auto" is
        ``sqrt(T) / (1 + sqrt(T))``, which the paper's bound asks for and practice does not.
    smoothing : float
        lambda; the larger, the slower attention moves.
    step : float or "auto"
        C, the length of a step in units of a row; "auto" is ``(1 + sqrt(T)) / T``.
    trigger : {"error", "margin", "active"}
        When a learner moves: on a wrong label (the paper's text), on a margin below 1 (its Algorithm 2), or when any
        row of the round has a margin below 1.
    horizon : int or None
        T of "auto": the number of rounds; None doubles it as rounds pass.
    average : bool
        Predict with the mean of the weights over rounds, which is less noisy than the last.
    fit_intercept : bool
        One intercept per task, a constant 1 beside each row.
    normalize_rows : bool
        Divide rows by their length, here and in prediction.
    neighbours : int or None
        Attend to so many tasks only: memory and time per round grow with tasks times neighbours, not with their
        square. The task of least attention gives way to another one at random.
    epochs : int
        Passes of ``fit`` over the rows.
    shuffle : bool
        Whether ``fit`` shuffles rows within tasks.
    task_column, unknown_task : see `MixedNormClassifier`
    random_state : int, RandomState or None
        For shuffling and neighbours.

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    coef_ : (n_tasks, n_features)
    intercept_ : (n_tasks,)
    task_relations_ : (n_tasks, n_tasks)
        ``alpha I + (1 - alpha) P``; rows sum to 1.
    n_rounds_ : int
    tasks_, n_iter_, converged_, result_

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.smoothed import OnlineSmoothedClassifier
    >>> sim = simulate_tasks(n_tasks=5, n_features=10, kind="classification", random_state=0)
    >>> model = OnlineSmoothedClassifier(random_state=0)
    >>> for rows in (slice(0, None, 2), slice(1, None, 2)):
    ...     model = model.partial_fit(sim.X[rows], sim.y[rows], tasks=sim.tasks[rows])
    >>> model.task_relations_.sum(axis=1).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]

    References
    ----------
    Murugesan, Liu, Carbonell, Yang (2016), Adaptive smoothed online multi-task learning.
    """

    loss = "hinge"
    epsilon = 0.0
    _labels = True
    _triggers = TRIGGERS


@dataclass(repr=False, eq=False)
class OnlineSmoothedRegressor(StreamRegressor, OnlineSmoothedEstimator):
    """Online multi-task regression with learned task relations.

    Parameters
    ----------
    loss : {"squared", "epsilon_insensitive", "absolute"} or Family
        ``1/2 r^2``, or ``(|r| - epsilon)_+``.
    epsilon : float
        Residual that costs nothing, for the second loss.
    trigger : {"margin", "active"}
        A learner moves when its own row has a loss, or when any row of the round has.
    update, concentration, smoothing, step, horizon, average, fit_intercept, normalize_rows, neighbours, epochs, shuffle,
    task_column, unknown_task, random_state : see `OnlineSmoothedClassifier`; ``smoothing`` is in the units of the loss

    Attributes
    ----------
    coef_, intercept_, task_relations_, n_rounds_, tasks_, n_iter_, converged_, result_
        See `OnlineSmoothedClassifier`.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.smoothed import OnlineSmoothedRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=5, random_state=0)
    >>> model = OnlineSmoothedRegressor(concentration=0.9, epochs=5, random_state=0)
    >>> model.fit(sim.X, sim.y, tasks=sim.tasks).score(sim.X, sim.y, tasks=sim.tasks) > 0.5
    True
    """

    _labels = False
    _triggers = ("margin", "active")

    loss: str | Family = "squared"
    epsilon: float = 0.0
    step: float | str = 0.1
    trigger: str = "margin"
