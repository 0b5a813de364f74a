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

from typing import Any, ClassVar, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice, check_family, estimator_class
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
from bayesmtfs.types import ConvergenceWarning, warn


def loss_of(estimator: Any) -> Family:
    """Family of a smoothed learner's loss; regressors have one more, which takes a parameter."""
    labels = isinstance(estimator, MultiTaskClassifier)
    estimator._require("epsilon", 0 <= estimator.epsilon < np.inf, "a number of at least 0")
    if estimator.loss == EpsilonInsensitive.name and not labels:
        return EpsilonInsensitive(estimator.epsilon)
    return check_family(estimator.loss, labels)


@estimator_class()
class SmoothedEstimator(UnitRowEstimator):
    """The body of both estimators.

    Parameters
    ----------
    update : {"exponential", "threshold"}
        Attention proportional to ``exp(-(1 - alpha) loss / lambda)`` (SMTL-e), or to ``(lambda - loss)_+`` (SMTL-t).
    concentration : float in [0, 1]
        alpha, the share of a learner's attention that is always its own task's; 1 is independent learning.
    smoothing : float
        lambda, in the units of the mean loss; the larger, the more even the attention.
    penalty_strength : float
        s, the ridge of each learner beside its mean loss.
    tol : float
        Largest change of an entry of P at which the fit has converged.
    max_iter : int
        Most alternations between weights and relations.

    Attributes
    ----------
    task_relations_ : (n_tasks, n_tasks)
        ``alpha I + (1 - alpha) P``: entry (k, j) is the weight of task j in learner k; rows sum to 1.
    objective_trace_ : (n_iter_,)
        The objective; never rises for the exponential update.
    """

    groups = None
    epsilon = 0.0

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
        family = loss_of(self)
        if family.smooth:
            family.require(type(self).__name__, "curvature")
        elif not isinstance(family, EpsilonInsensitive):
            family.require(type(self).__name__, "kinks")
        check_choice("update", self.update, UPDATES)
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        for name in ("smoothing", "penalty_strength", "tol"):
            check_positive(name, getattr(self, name))
        self._require("concentration", 0 <= self.concentration <= 1, "a number from 0 to 1")
        self._require("max_iter", self.max_iter >= 1, "a whole number of at least 1")

    def _fit(self, data: TaskData) -> None:
        data = self._scaled(data)
        scaling = self._rescaled(data)
        numbers = (float(self.concentration), float(self.smoothing), float(self.penalty_strength))
        stop = (self.fit_intercept, self.tol, self.max_iter)
        settings = SmoothedSettings(self.update, *numbers, loss_of(self), *stop)
        solution, P = solve(scaling.data, settings, self.progress)
        if not solution.converged:
            warn(
                f"the relations still moved after {solution.n_iter} iterations; raise max_iter, smoothing or tol",
                ConvergenceWarning,
            )
        self.task_relations_ = self.concentration * np.eye(data.n_tasks) + (1.0 - self.concentration) * P
        self.objective_trace_ = solution.objective_trace
        self._store(data, solution, scaling, self.tol)


@estimator_class()
class SmoothedClassifier(MultiTaskClassifier, SmoothedEstimator):
    """Multi-task classification with learned task relations (SMTL-e, SMTL-t).

    Parameters
    ----------
    loss : {"logistic", "hinge"} or Family
        With few positives the hinge answers with a constant; the logistic loss does not.

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

    loss: str | Family = "logistic"


@estimator_class()
class SmoothedRegressor(MultiTaskRegressor, SmoothedEstimator):
    """Multi-task regression with learned task relations.

    Parameters
    ----------
    loss : {"squared", "epsilon_insensitive", "absolute"} or Family
        ``1/2 r^2``, or ``(|r| - epsilon)_+``.
    epsilon : float
        Residual that costs nothing, for the second loss.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.smoothed import SmoothedRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> SmoothedRegressor().fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """

    loss: str | Family = "squared"
    epsilon: float = 0.0


@estimator_class()
class OnlineSmoothedEstimator(StreamEstimator):
    """The body of both online learners.

    Parameters
    ----------
    update : {"exponential", "threshold"}
        How attention moves: p times ``exp(-C (1 - alpha) loss / lambda)`` (OSMTL-e), or afresh in each round
        proportional to ``(lambda - loss)_+`` (OSMTL-t).
    concentration : float in [0, 1] or "auto"
        alpha, the share of a learner's attention that is always its own task's; 1 is independent learning. "auto" is
        ``sqrt(T) / (1 + sqrt(T))``, which the paper's bound asks for and practice does not.
    smoothing : float
        lambda, in the units of the loss; the larger, the slower attention moves.
    step : float or "auto"
        C, the length of a step in units of a row; "auto" is ``(1 + sqrt(T)) / T``.
    trigger : {"error", "margin", "active"}
        When a learner moves: on a wrong label (the paper's text), on a margin below 1 (its Algorithm 2), or when any
        row of the round has a margin below 1.
    horizon : int or None
        T of "auto": the number of rounds; None doubles it as rounds pass.
    neighbours : int or None
        Attend to so many tasks only: memory and time per round grow with tasks times neighbours, not with their
        square. The task of least attention gives way to another one at random.

    Attributes
    ----------
    task_relations_ : (n_tasks, n_tasks)
        ``alpha I + (1 - alpha) P``; rows sum to 1.
    """

    epsilon = 0.0

    update: str = "exponential"
    concentration: float | str = 0.5
    smoothing: float = 1.0
    step: float | str = 1.0
    trigger: str = "error"
    horizon: int | None = None
    neighbours: int | None = None

    def _check_parameters(self) -> None:
        labels = isinstance(self, MultiTaskClassifier)
        loss_of(self).require(type(self).__name__, "slope")
        check_choice("update", self.update, UPDATES)
        check_choice("trigger", self.trigger, TRIGGERS if labels else TRIGGERS[1:])
        self._check_stream()
        if isinstance(self.concentration, str):
            check_choice("concentration", self.concentration, ("auto",))
        else:
            self._require("concentration", 0 <= self.concentration <= 1, "a number from 0 to 1, or 'auto'")
        if isinstance(self.step, str):
            check_choice("step", self.step, ("auto",))
        else:
            check_positive("step", self.step)
        check_positive("smoothing", self.smoothing)
        for name in ("horizon", "neighbours"):
            value = getattr(self, name)
            self._require(name, value is None or value >= 1, "a whole number of at least 1, or None")

    def _new_learner(self, n_features: int) -> SmoothedLearner:
        return SmoothedLearner(
            n_features=n_features,
            **self._common,
            family=loss_of(self),
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
        check_is_fitted(self)
        return cast(SmoothedLearner, self._learner).task_relations()[self._learners][:, self._learners]


@estimator_class()
class OnlineSmoothedClassifier(StreamClassifier, OnlineSmoothedEstimator):
    """Online multi-task classification with learned task relations (OSMTL-e, OSMTL-t); hinge loss.

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


@estimator_class()
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

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.estimators.smoothed import OnlineSmoothedRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=5, random_state=0)
    >>> model = OnlineSmoothedRegressor(concentration=0.9, epochs=5, random_state=0)
    >>> model.fit(sim.X, sim.y, tasks=sim.tasks).score(sim.X, sim.y, tasks=sim.tasks) > 0.5
    True
    """

    loss: str | Family = "squared"
    epsilon: float = 0.0
    step: float | str = 0.1
    trigger: str = "margin"
