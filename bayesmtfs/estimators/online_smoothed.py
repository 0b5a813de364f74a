"""Adaptive smoothed online learners (OSMTL): tasks that learn from each other's rows, and how much, as rows arrive.

In every round each learner k steps on ``sum_j eta_kj l_kj(w)`` with ``eta = alpha I + (1 - alpha) P``, and moves its
row of P towards the tasks on whose rows it does well (Murugesan, Liu, Carbonell and Yang 2016, Algorithm 2). The
formulas, and what differs from the paper, are in `bayesmtfs.online.smoothed_online`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.online_smoothed_rows import check_positive
from bayesmtfs.estimators.stream_estimator import StreamClassifier, StreamEstimator, StreamRegressor
from bayesmtfs.online import smoothed_neighbours, smoothed_online
from bayesmtfs.online.smoothed_rounds import MemoryOrder, Rounds


@dataclass(repr=False, eq=False)
class OnlineSmoothedEstimator(StreamEstimator):
    """The body of both learners."""

    epsilon = 0.0

    _losses: ClassVar[tuple[str, ...]]
    _triggers: ClassVar[tuple[str, ...]]

    update: str = "exponential"
    concentration: float | str = 0.5
    smoothing: float = 1.0
    step: float | str = 1.0
    trigger: str = "error"
    horizon: int | None = None
    neighbours: int | None = None

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, self._losses)
        check_choice("update", self.update, smoothed_online.UPDATES)
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
        if not 0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon is {self.epsilon}; pass a number of at least 0")
        for name in ("horizon", "neighbours"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; pass a whole number of at least 1, or None")

    @property
    def _memory_order(self) -> MemoryOrder:
        return "C" if self.neighbours is None else "F"

    @property
    def _settings(self) -> smoothed_online.Settings:
        return smoothed_online.Settings(
            update=self.update,
            trigger=self.trigger,
            loss=self.loss,
            concentration=None if isinstance(self.concentration, str) else float(self.concentration),
            smoothing=float(self.smoothing),
            step=None if isinstance(self.step, str) else float(self.step),
            horizon=self.horizon,
            epsilon=float(self.epsilon),
            fit_intercept=self.fit_intercept,
            average=self.average,
        )

    def _meet_relations(self, n_learners: int) -> None:
        if self.neighbours is None:
            known = self._relations.get("log_relations")
            self._relations["log_relations"] = smoothed_online.uniform_relations(known, n_learners)
        else:
            circle = smoothed_neighbours.Circle(**self._relations) if self._relations else None
            circle = smoothed_neighbours.grow_circle(circle, n_learners, self.neighbours, self._seed)
            self._relations = circle._asdict()

    def _advance(self, rounds: Rounds) -> None:
        assert self._stream is not None
        if self.neighbours is None:
            smoothed_online.advance(rounds, self._stream, self._relations["log_relations"], self._settings)
        else:
            circle = smoothed_neighbours.Circle(**self._relations)
            smoothed_neighbours.advance(rounds, self._stream, circle, self._settings, self._seed)

    @property
    def task_relations_(self) -> Any:
        """(n_tasks, n_tasks) ``alpha I + (1 - alpha) P``, rows sum to 1; a CSR matrix with ``neighbours``."""
        self._built_so_far()
        assert self._stream is not None
        alpha = smoothed_online.concentrations(self._settings, self._stream.clock)
        if self.neighbours is None:
            eta = smoothed_online.relations(self._relations["log_relations"], alpha)
            return eta[np.ix_(self._learners, self._learners)]
        circle = smoothed_neighbours.Circle(**self._relations)
        return smoothed_neighbours.relations(circle, alpha)[self._learners][:, self._learners]


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
    >>> from bayesmtfs.estimators.online_smoothed import OnlineSmoothedClassifier
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
    _losses = ("hinge",)
    _triggers = smoothed_online.TRIGGERS


@dataclass(repr=False, eq=False)
class OnlineSmoothedRegressor(StreamRegressor, OnlineSmoothedEstimator):
    """Online multi-task regression with learned task relations.

    Parameters
    ----------
    loss : {"squared", "epsilon_insensitive"}
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
    >>> from bayesmtfs.estimators.online_smoothed import OnlineSmoothedRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=5, random_state=0)
    >>> model = OnlineSmoothedRegressor(concentration=0.9, epochs=5, random_state=0)
    >>> model.fit(sim.X, sim.y, tasks=sim.tasks).score(sim.X, sim.y, tasks=sim.tasks) > 0.5
    True
    """

    _losses = ("squared", "epsilon_insensitive")
    _triggers = ("margin", "active")

    loss: str = "squared"
    epsilon: float = 0.0
    step: float | str = 0.1
    trigger: str = "margin"
