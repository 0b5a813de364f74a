"""Passive-aggressive learners: the smallest change of the weights that gives each row its margin.

On a row with loss l > 0 a learner takes the step ``w <- w + tau s x`` with s the label (or the sign of the residual) and

    tau = l / |x|^2  (PA),    min(C, l / |x|^2)  (PA-I),    l / (|x|^2 + 1 / (2 C))  (PA-II)

(Crammer, Dekel, Keshet, Shalev-Shwartz and Singer 2006). ``pooled=False`` is one
learner per task (PA-ITL), ``pooled=True`` one for all tasks (PA-ONE). A sample weight multiplies C, and the loss of PA.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.stream_estimator import StreamClassifier, StreamEstimator, StreamRegressor, check_positive
from bayesmtfs.families import EpsilonInsensitive, Family, Hinge
from bayesmtfs.families.family import SLOPE, Address, address, call_slope
from bayesmtfs.online.linear_stream import (
    LinearLearner,
    LinearStream,
    Rounds,
    longest_task,
    move_one,
    predict_one,
    squared_length,
)
from bayesmtfs.types import IntArray

VARIANTS = ("PA", "PA-I", "PA-II")


@dataclass(kw_only=True, eq=False)
class PassiveAggressiveLearner(LinearLearner):
    """One learner per task, or one for all."""

    family: Family
    variant: str
    step: float
    pooled: bool

    def columns(self, arrival: IntArray) -> IntArray:
        """The first column for all where they are pooled."""
        return np.zeros_like(arrival) if self.pooled else arrival

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        variant, slope = VARIANTS.index(self.variant), address(self.family.slope, SLOPE)
        _read(rounds, self.stream, variant, float(self.step), slope, self.fit_intercept, self.average)


@dataclass(repr=False, eq=False)
class PassiveAggressiveEstimator(StreamEstimator):
    """The body of both learners."""

    variant: str = "PA-I"
    step: float = 1.0
    pooled: bool = False

    def _check_parameters(self) -> None:
        self._check_stream()
        check_choice("variant", self.variant, VARIANTS)
        check_positive("step", self.step)

    def _margin_loss(self) -> Family:
        return Hinge()

    def _new_learner(self, n_features: int) -> PassiveAggressiveLearner:
        return PassiveAggressiveLearner(
            n_features=n_features,
            **self._common,
            family=self._margin_loss(),
            variant=self.variant,
            step=self.step,
            pooled=self.pooled and self._form != "classes",  # several classes of one task are not tasks to be pooled
        )


@dataclass(repr=False, eq=False)
class PassiveAggressiveClassifier(StreamClassifier, PassiveAggressiveEstimator):
    """Passive-aggressive classification: one learner per task (PA-ITL) or for all (PA-ONE).

    Parameters
    ----------
    variant : {"PA-I", "PA", "PA-II"}
        Bounded steps, steps to the margin, or damped steps.
    step : float
        C, the aggressiveness; PA has none.
    pooled : bool
        One learner for all tasks.
    average, fit_intercept, normalize_rows, epochs, shuffle, task_column, unknown_task, random_state :
        see `bayesmtfs.estimators.smoothed.OnlineSmoothedClassifier`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import PassiveAggressiveClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> PassiveAggressiveClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)

    References
    ----------
    Crammer, Dekel, Keshet, Shalev-Shwartz, Singer (2006), Online passive-aggressive algorithms.
    """


@dataclass(repr=False, eq=False)
class PassiveAggressiveRegressor(StreamRegressor, PassiveAggressiveEstimator):
    """Passive-aggressive regression with the loss ``(|r| - epsilon)_+``.

    Parameters
    ----------
    epsilon : float
        Residual that costs nothing.
    variant, step, pooled : see `PassiveAggressiveClassifier`
    average, fit_intercept, normalize_rows, epochs, shuffle, task_column, unknown_task, random_state :
        see `bayesmtfs.estimators.smoothed.OnlineSmoothedClassifier`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import PassiveAggressiveRegressor
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> PassiveAggressiveRegressor(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """

    loss = "epsilon_insensitive"

    epsilon: float = 0.1

    def _margin_loss(self) -> Family:
        return EpsilonInsensitive(self.epsilon)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 <= self.epsilon < np.inf:
            raise ValueError(f"epsilon is {self.epsilon}; pass a number of at least 0")


@njit(cache=True, nogil=True, error_model="numpy")
def step_length(variant: int, step: float, weight: float, loss: float, length: float) -> float:
    """Step tau; 0 for a row of zeros."""
    if length == 0.0 or loss == 0.0:
        return 0.0
    if variant == 0:
        return weight * loss / length
    if variant == 1:
        return min(weight * step, loss / length)
    return loss / (length + 0.5 / (weight * step))


@njit(cache=True, nogil=True, error_model="numpy")
def _read(
    rounds: Rounds, stream: LinearStream, variant: int, step: float, slope: Address, fit_intercept: bool, average: bool
) -> None:
    for number in range(longest_task(rounds.offsets)):
        for t in range(rounds.learners.size):
            row = rounds.offsets[t] + number
            if row >= rounds.offsets[t + 1]:
                continue
            k = rounds.learners[t]
            cost, derivative = call_slope(slope, rounds.y[row], predict_one(rounds, row, stream, k))
            length = squared_length(rounds, row, fit_intercept)
            tau = step_length(variant, step, rounds.weight[row], cost, length)
            move_one(rounds, row, stream, k, -derivative * tau, fit_intercept, average)
        for k in range(stream.clock.size):
            stream.clock[k] += 1
