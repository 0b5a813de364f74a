"""Online learning of tasks with a shared loss (OSGL): the tasks share nothing but the budget of each round's step.

A round's losses l_j are summed up by a norm, and all learners present move, ``w_j <- w_j + tau_j y_j x_j``, with

    tau = argmax sum_j (2 tau_j l_j - tau_j^2 |x_j|^2)    subject to  ||tau||_* <= C    (implicit update)
    tau = argmax sum_j tau_j l_j                          subject to  ||tau||_* <= C    (finite horizon)

where ``||.||_*`` is the dual of the norm (Dekel, Long and Singer 2007). Norm 1 makes the learners
independent (each is PA-I), norm 2 moves all of them in proportion to their losses, and the largest-loss norm moves
those that suffer most. Sample weights multiply the losses.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.stream_estimator import StreamClassifier, check_positive
from bayesmtfs.online.linear_stream import (
    LinearLearner,
    LinearStream,
    Rounds,
    longest_task,
    move_one,
    predict_one,
    squared_length,
)
from bayesmtfs.types import FloatArray

NORMS = (1.0, 2.0, np.inf)
UPDATES = ("implicit", "finite_horizon")


@dataclass(kw_only=True, eq=False)
class SharedLossLearner(LinearLearner):
    """Learners that share the budget of a round."""

    loss_norm: float
    implicit: bool
    step: float

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        norm, budget = float(self.loss_norm), float(self.step)
        _read(rounds, self.stream, norm, self.implicit, budget, self.fit_intercept, self.average)


@dataclass(repr=False, eq=False)
class SharedLossClassifier(StreamClassifier):
    """Online classification with a shared loss (OSGL).

    Parameters
    ----------
    loss_norm : {2, 1, np.inf}
        Norm of a round's losses.
    update : {"finite_horizon", "implicit"}
        Full steps of dual norm C, or the shorter ones that do not overshoot the margins.
    step : float
        C, the budget of a round.
    average, fit_intercept, normalize_rows, epochs, shuffle, task_column, unknown_task, random_state :
        see `bayesmtfs.estimators.smoothed.OnlineSmoothedClassifier`

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import SharedLossClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> SharedLossClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)

    References
    ----------
    Dekel, Long, Singer (2007), Online learning of multiple tasks with a shared loss.
    """

    loss_norm: float = 2.0
    update: str = "implicit"
    step: float = 1.0

    def _check_parameters(self) -> None:
        self._check_stream()
        check_choice("update", self.update, UPDATES)
        check_positive("step", self.step)
        if self.loss_norm not in NORMS:
            raise ValueError(f"loss_norm is {self.loss_norm}; pass 1, 2 or np.inf")

    def _new_learner(self, n_features: int) -> SharedLossLearner:
        own: dict[str, Any] = {"loss_norm": self.loss_norm, "implicit": self.update == "implicit", "step": self.step}
        return SharedLossLearner(n_features=n_features, **self._common, **own)


@njit(cache=True, nogil=True, error_model="numpy")
def bounded_steps(norm: float, budget: float, losses: FloatArray, lengths: FloatArray, price: float) -> FloatArray:
    """Steps of the implicit update at a price of the budget (0: as if there were none)."""
    steps = np.zeros(losses.size)
    for j in range(losses.size):
        if losses[j] > 0 and lengths[j] > 0:
            if norm == 1.0:
                steps[j] = min(budget, losses[j] / lengths[j])
            elif norm == 2.0:
                steps[j] = losses[j] / (lengths[j] + price)
            else:
                steps[j] = max(losses[j] - price, 0.0) / lengths[j]
    return steps


@njit(cache=True, nogil=True, error_model="numpy")
def dual_norm(norm: float, steps: FloatArray) -> float:
    """Norm of the steps that the budget bounds: the dual of the losses' one."""
    if norm == 1.0:
        return steps.max()
    return np.sqrt((steps**2).sum()) if norm == 2.0 else steps.sum()


@njit(cache=True, nogil=True, error_model="numpy")
def implicit_steps(norm: float, budget: float, losses: FloatArray, lengths: FloatArray) -> FloatArray:
    """Steps of the implicit update, by bisection on the price of the budget."""
    steps = bounded_steps(norm, budget, losses, lengths, 0.0)
    if dual_norm(norm, steps) <= budget:
        return steps
    low, high = 0.0, np.sqrt((losses**2).sum()) / budget if norm == 2.0 else losses.max()
    for _ in range(100):
        price = 0.5 * (low + high)
        steps = bounded_steps(norm, budget, losses, lengths, price)
        if dual_norm(norm, steps) > budget:
            low = price
        else:
            high = price
    return bounded_steps(norm, budget, losses, lengths, high)


@njit(cache=True, nogil=True, error_model="numpy")
def full_steps(norm: float, budget: float, losses: FloatArray) -> FloatArray:
    """Steps of the finite-horizon update."""
    steps = np.zeros(losses.size)
    length = np.sqrt((losses**2).sum())
    if length == 0.0:
        return steps
    for j in range(losses.size):
        if norm == 1.0:
            steps[j] = budget if losses[j] > 0 else 0.0
        elif norm == 2.0:
            steps[j] = budget * losses[j] / length
    if norm == np.inf:
        steps[np.argmax(losses)] = budget
    return steps


@njit(cache=True, nogil=True, error_model="numpy")
def _read(
    rounds: Rounds, stream: LinearStream, norm: float, implicit: bool, budget: float, fit_intercept: bool, average: bool
) -> None:
    n_tasks = rounds.learners.size
    observation, learner = np.empty(n_tasks, dtype=np.int64), np.empty(n_tasks, dtype=np.int64)
    losses, lengths = np.empty(n_tasks), np.empty(n_tasks)
    for number in range(longest_task(rounds.offsets)):
        present = 0
        for t in range(n_tasks):
            row = rounds.offsets[t] + number
            if row < rounds.offsets[t + 1]:
                observation[present], learner[present] = row, rounds.learners[t]
                score = predict_one(rounds, row, stream, learner[present])
                losses[present] = rounds.weight[row] * max(1.0 - rounds.y[row] * score, 0.0)
                lengths[present] = squared_length(rounds, row, fit_intercept)
                present += 1
        if implicit:
            steps = implicit_steps(norm, budget, losses[:present], lengths[:present])
        else:
            steps = full_steps(norm, budget, losses[:present])
        for c in range(present):
            row = observation[c]
            move_one(rounds, row, stream, learner[c], steps[c] * rounds.y[row], fit_intercept, average)
        for k in range(stream.clock.size):
            stream.clock[k] += 1
