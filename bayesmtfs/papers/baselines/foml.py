"""Multitask perceptron with fixed relations (FOML): an error of one task moves the learners of all.

On an error (or a margin below 1) in task j every learner k takes the step

    w_k <- w_k + C (A^-1)_kj y_j x_j,    A^-1 = (K I + b 11') / ((1 + b) K)

(Cavallanti, Cesa-Bianchi and Gentile 2010, the multitask perceptron). b = 0 makes the tasks independent perceptrons, a
large b one perceptron for all. A sample weight multiplies the step. Rows of a round are read one after the other.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.online_smoothed_rows import check_positive
from bayesmtfs.estimators.stream_estimator import StreamClassifier
from bayesmtfs.online.smoothed_rounds import LinearStream, Rounds, longest_task, move_all, predict_one
from bayesmtfs.types import FloatArray

TRIGGERS = {"error": 0.0, "margin": 1.0}


@dataclass(repr=False, eq=False)
class FixedRelationsClassifier(StreamClassifier):
    """Multitask perceptron with fixed relations (FOML).

    Parameters
    ----------
    interaction : float
        b, how much tasks share; 0 is independent learning.
    step : float
        C.
    trigger : {"error", "margin"}
        Move on a wrong label, or on a margin below 1.
    average, fit_intercept, normalize_rows, epochs, shuffle, task_column, unknown_task, random_state :
        see `bayesmtfs.estimators.online_smoothed.OnlineSmoothedClassifier`

    Attributes
    ----------
    task_relations_ : (n_tasks, n_tasks)
        The interaction matrix ``A^-1``.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import FixedRelationsClassifier
    >>> sim = simulate_tasks(n_tasks=2, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> FixedRelationsClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).task_relations_
    array([[0.75, 0.25],
           [0.25, 0.75]])

    References
    ----------
    Cavallanti, Cesa-Bianchi, Gentile (2010), Linear algorithms for online multitask classification.
    """

    interaction: float = 1.0
    step: float = 1.0
    trigger: str = "error"

    def _check_parameters(self) -> None:
        self._check_stream()
        check_positive("step", self.step)
        check_choice("trigger", self.trigger, tuple(TRIGGERS))
        if not 0 <= self.interaction < np.inf:
            raise ValueError(f"interaction is {self.interaction}; pass a number of at least 0")

    @property
    def task_relations_(self) -> FloatArray:
        """(n_tasks, n_tasks) Interaction matrix."""
        self._built_so_far()
        return fixed_relations(len(self.tasks_), self.interaction)

    def _advance(self, rounds: Rounds) -> None:
        assert self._stream is not None
        interaction = self.step * fixed_relations(len(self.tasks_), self.interaction)
        _read(rounds, self._stream, interaction, TRIGGERS[self.trigger], self.fit_intercept, self.average)


def fixed_relations(n_tasks: int, interaction: float) -> FloatArray:
    """(K, K) Interaction matrix ``(K I + b 11') / ((1 + b) K)``."""
    return (n_tasks * np.eye(n_tasks) + interaction) / ((1.0 + interaction) * n_tasks)


@njit(cache=True, nogil=True, error_model="numpy")
def read_round(
    rounds: Rounds,
    number: int,
    stream: LinearStream,
    interaction: FloatArray,
    margin: float,
    fit_intercept: bool,
    average: bool,
) -> None:
    """Read one round; ``interaction`` (K, K) is the step of each learner on an error of each task."""
    for t in range(rounds.learners.size):
        row = rounds.offsets[t] + number
        if row >= rounds.offsets[t + 1]:
            continue
        k, y = rounds.learners[t], rounds.y[row]
        reached = y * predict_one(rounds, row, stream, k)
        if reached < margin or reached <= 0.0:
            steps = interaction[:, k] * (y * rounds.weight[row])
            move_all(rounds, row, stream, steps, fit_intercept, average)
    for k in range(stream.clock.size):
        stream.clock[k] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _read(
    rounds: Rounds, stream: LinearStream, interaction: FloatArray, margin: float, fit_intercept: bool, average: bool
) -> None:
    for number in range(longest_task(rounds.offsets)):
        read_round(rounds, number, stream, interaction, margin, fit_intercept, average)
