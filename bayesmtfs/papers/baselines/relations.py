"""Multitask perceptrons with relations between tasks: fixed (FOML) and learned (OMTRL).

Multitask perceptron with fixed relations (FOML): an error of one task moves the learners of all.

On an error (or a margin below 1) in task j every learner k takes the step

    w_k <- w_k + C (A^-1)_kj y_j x_j,    A^-1 = (K I + b 11') / ((1 + b) K)

(Cavallanti, Cesa-Bianchi and Gentile 2010, the multitask perceptron). b = 0 makes the tasks independent perceptrons, a
large b one perceptron for all. A sample weight multiplies the step. Rows of a round are read one after the other.

Online multi-task relationship learning (OMTRL): perceptrons whose interaction matrix is learned from their weights.

As there an error of task j moves every learner k by ``C (A^-1)_kj y_j x_j``, but after a
warm-up of independent perceptrons A is learned, once per round, from ``G = W'W`` (Saha, Rai, Venkatasubramanian and
Daume 2011):

    "batch"    A^-1 = G^(1/2) / tr G^(1/2)            (their BatchOpt)
    "logdet"   A^-1 <- A^-1 + r G                     (LogDet divergence)
    "entropy"  A <- exp(ln A - r G)                   (von Neumann divergence)

each scaled to trace K, so that the steps keep their length; without that the second grows and the third vanishes. What
differs: r multiplies ``G / tr G``, which makes it free of the units of X.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numba import njit

from bayesmtfs.estimators.base import check_choice
from bayesmtfs.estimators.stream_estimator import StreamClassifier, check_positive
from bayesmtfs.online.linear_stream import LinearLearner, LinearStream, Rounds, longest_task, move_all, predict_one
from bayesmtfs.types import FloatArray

TRIGGERS = {"error": 0.0, "margin": 1.0}


@dataclass(kw_only=True, eq=False)
class FixedRelationsLearner(LinearLearner):
    """Perceptrons whose errors move all of them."""

    interaction: float
    step: float
    margin: float

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        interaction = self.step * fixed_relations(self.n_tasks, self.interaction)
        _read(rounds, self.stream, interaction, self.margin, self.fit_intercept, self.average)


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
        see `bayesmtfs.estimators.smoothed.OnlineSmoothedClassifier`

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

    def _new_learner(self, n_features: int) -> FixedRelationsLearner:
        own: dict[str, Any] = {"interaction": self.interaction, "step": self.step, "margin": TRIGGERS[self.trigger]}
        return FixedRelationsLearner(n_features=n_features, **self._common, **own)


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


# ---------------------------------------------------------------------- OMTRL


RULES = ("batch", "logdet", "entropy")
SMALLEST = 1e-10  # eigenvalues below this share of the largest are lifted to it


@dataclass(kw_only=True, eq=False)
class LearnedRelationsLearner(LinearLearner):
    """Perceptrons whose interaction follows their weights, after a warm-up."""

    rule: str
    rate: float
    warm_up: float
    step: float
    margin: float

    def grow_relations(self, n_learners: int) -> None:
        """New learners are independent."""
        grown = np.eye(n_learners)
        known = self.relations.get("interaction")
        if known is not None:
            grown[: len(known), : len(known)] = known
        self.relations["interaction"] = grown

    def prepare(self, longest: int) -> None:
        """Find the rounds of the warm-up."""
        rounds = self.warm_up if self.warm_up >= 1 else self.warm_up * longest
        self.relations["warm_up"] = np.array(int(rounds))

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        for number in range(longest_task(rounds.offsets)):
            if self.n_rounds + number >= self.relations["warm_up"]:
                learned = learned_relations(self.rule, self.relations["interaction"], self.stream.W, self.rate)
                self.relations["interaction"] = learned
            interaction = self.step * self.relations["interaction"]
            read_round(rounds, number, self.stream, interaction, self.margin, self.fit_intercept, self.average)


@dataclass(repr=False, eq=False)
class LearnedRelationsClassifier(StreamClassifier):
    """Perceptrons with a learned interaction matrix (OMTRL).

    Parameters
    ----------
    rule : {"batch", "logdet", "entropy"}
        How the interaction matrix follows the weights.
    rate : float
        r of the last two.
    warm_up : float in [0, 1) or int
        Rounds of independent perceptrons: a share of those of ``fit`` (of the first ``partial_fit``), or a number.
    step : float
        C.
    trigger : {"error", "margin"}
        Move on a wrong label, or on a margin below 1.
    average, fit_intercept, normalize_rows, epochs, shuffle, task_column, unknown_task, random_state :
        see `bayesmtfs.estimators.smoothed.OnlineSmoothedClassifier`

    Attributes
    ----------
    task_relations_ : (n_tasks, n_tasks)
        The interaction matrix ``A^-1``, of trace ``n_tasks``.

    Examples
    --------
    >>> from bayesmtfs import simulate_tasks
    >>> from bayesmtfs.papers.baselines import LearnedRelationsClassifier
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> model = LearnedRelationsClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    >>> float(model.task_relations_.trace().round(6))
    3.0

    References
    ----------
    Saha, Rai, Venkatasubramanian, Daume (2011), Online learning of multiple tasks and their relationships.
    """

    rule: str = "batch"
    rate: float = 0.1
    warm_up: float = 0.5
    step: float = 1.0
    trigger: str = "error"

    def _check_parameters(self) -> None:
        self._check_stream()
        check_choice("rule", self.rule, RULES)
        check_choice("trigger", self.trigger, tuple(TRIGGERS))
        check_positive("step", self.step)
        check_positive("rate", self.rate)
        if not 0 <= self.warm_up < np.inf:
            raise ValueError(f"warm_up is {self.warm_up}; pass a share below 1, or a number of rounds")

    @property
    def task_relations_(self) -> FloatArray:
        """(n_tasks, n_tasks) Interaction matrix."""
        self._built_so_far()
        interaction: FloatArray = cast(LearnedRelationsLearner, self._learner).relations["interaction"]
        return interaction[np.ix_(self._learners, self._learners)]

    def _new_learner(self, n_features: int) -> LearnedRelationsLearner:
        return LearnedRelationsLearner(
            n_features=n_features,
            **self._common,
            rule=self.rule,
            rate=self.rate,
            warm_up=self.warm_up,
            step=self.step,
            margin=TRIGGERS[self.trigger],
        )


def learned_relations(rule: str, interaction: FloatArray, W: FloatArray, rate: float) -> FloatArray:
    """(K, K) Interaction matrix of trace K after one more look at the weights."""
    gram = W.T @ W
    total = np.trace(gram)
    if total <= 0:
        return interaction
    gram /= total
    if rule == "batch":
        found = _spectral(np.sqrt, gram)
    elif rule == "logdet":
        found = interaction / len(gram) + rate * gram
    else:  # A = interaction^-1, so that -ln A = ln interaction
        found = _spectral(np.exp, _spectral(np.log, interaction / len(gram)) + rate * gram)
    return found * (len(gram) / np.trace(found))


def _spectral(function: Any, symmetric: FloatArray) -> FloatArray:
    """Function of a symmetric matrix, through its eigenvalues."""
    values, vectors = np.linalg.eigh(0.5 * (symmetric + symmetric.T))
    if function is not np.exp:
        values = np.maximum(values, SMALLEST * values[-1])
    return (vectors * function(values)) @ vectors.T
