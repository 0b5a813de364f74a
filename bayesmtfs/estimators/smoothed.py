"""Smoothed multi-task learning (SMTL): every task learns from the rows of all, weighted by relations that are learned.

    minimise  sum_k { sum_j eta_kj L_j(w_k, b_k) + s/2 ||w_k||^2 - lambda H(p_k) },    eta = alpha I + (1 - alpha) P

over weights, intercepts and the row-stochastic P (Murugesan, Liu, Carbonell and Yang 2016, eq. 4). L_j is the mean loss
of task j. Steps, and what differs from the paper, are in `bayesmtfs.online.smoothed`. The relations are no part of
a prior, so that no PyMC model stands beside this fit; at fixed relations it is a ridge fit, the MAP under normal weights.
"""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesmtfs.data.scaling import standardize
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.online_smoothed_rows import UnitRowEstimator, check_positive
from bayesmtfs.estimators.predictors import MultiTaskClassifier, MultiTaskRegressor
from bayesmtfs.online import smoothed
from bayesmtfs.types import ConvergenceWarning, Solution


@dataclass(repr=False, eq=False)
class SmoothedEstimator(UnitRowEstimator):
    """The body of both estimators."""

    groups = None
    epsilon = 0.0

    _losses: ClassVar[tuple[str, ...]]
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
        check_choice("loss", self.loss, self._losses)
        check_choice("update", self.update, ("exponential", "threshold"))
        check_choice("unknown_task", self.unknown_task, ("error", "mean"))
        for name in ("smoothing", "penalty_strength", "tol"):
            check_positive(name, getattr(self, name))
        if not 0 <= self.concentration <= 1:
            raise ValueError(f"concentration is {self.concentration}; pass a number from 0 to 1")
        if not 0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon is {self.epsilon}; pass a number of at least 0")
        if self.max_iter < 1:
            raise ValueError(f"max_iter is {self.max_iter}; pass a whole number of at least 1")

    def _fit(self, data: TaskData) -> None:
        data = self._scaled(data)
        scaled, scales = standardize(data) if self.standardize else (data, None)
        settings = smoothed.Settings(
            update=self.update,
            concentration=float(self.concentration),
            smoothing=float(self.smoothing),
            strength=float(self.penalty_strength),
            loss=self.loss,
            epsilon=float(self.epsilon),
            fit_intercept=self.fit_intercept,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        found = smoothed.solve(scaled, settings, self.progress)
        if not found.converged:
            warnings.warn(
                f"the relations still moved after {found.n_iter} iterations; raise max_iter, smoothing or tol",
                ConvergenceWarning,
                stacklevel=3,
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
    loss : {"logistic", "hinge"}
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
    _losses = ("logistic", "hinge")
    _saved_attributes = (*SmoothedEstimator._saved_attributes, "classes_")

    loss: str = "logistic"


@dataclass(repr=False, eq=False)
class SmoothedRegressor(MultiTaskRegressor, SmoothedEstimator):
    """Multi-task regression with learned task relations.

    Parameters
    ----------
    loss : {"squared", "epsilon_insensitive"}
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

    _losses = ("squared", "epsilon_insensitive")

    loss: str = "squared"
    epsilon: float = 0.0
