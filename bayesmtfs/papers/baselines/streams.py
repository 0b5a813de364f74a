"""Online baselines: passive-aggressive learners (PA), a shared loss (OSGL), and perceptrons with relations (FOML, OMTRL).

A round has at most one row of each task; a sample weight multiplies a row's loss or step.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numba import njit
from sklearn.utils.validation import check_is_fitted

from bayesmtfs.compiled import inner
from bayesmtfs.estimators.base import check_choice, estimator_class
from bayesmtfs.estimators.stream_estimator import StreamClassifier, StreamEstimator, StreamRegressor, check_positive
from bayesmtfs.families import EpsilonInsensitive, Family, Hinge
from bayesmtfs.families.family import SLOPE, Address, address, call_slope
from bayesmtfs.online.linear_stream import (
    LinearLearner,
    LinearStream,
    Rounds,
    longest_task,
    move_all,
    move_one,
    predict_one,
    squared_length,
)
from bayesmtfs.types import FloatArray, IntArray

# ---------------------------------------------------------------------- passive-aggressive learners


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
        _read_passive(rounds, self.stream, variant, float(self.step), slope)


@estimator_class()
class PassiveAggressiveEstimator(StreamEstimator):
    """The smallest change of the weights that gives each row its margin.

    Parameters
    ----------
    variant : {"PA-I", "PA", "PA-II"}
        Bounded steps, steps to the margin, or damped steps.
    step : float
        C, the aggressiveness; PA has none.
    pooled : bool
        One learner for all tasks.
    """

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


@estimator_class()
class PassiveAggressiveClassifier(StreamClassifier, PassiveAggressiveEstimator):
    """Passive-aggressive classification: one learner per task (PA-ITL) or for all (PA-ONE).

    On a row with loss l > 0 a learner takes the step ``w <- w + tau s x`` with s the label (of a regression, the sign of
    the residual) and

        tau = l / |x|^2  (PA),    min(C, l / |x|^2)  (PA-I),    l / (|x|^2 + 1 / (2 C))  (PA-II).

    A sample weight multiplies C, and the loss of PA.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> baselines.PassiveAggressiveClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)

    References
    ----------
    Crammer, Dekel, Keshet, Shalev-Shwartz, Singer (2006), Online passive-aggressive algorithms.
    """


@estimator_class()
class PassiveAggressiveRegressor(StreamRegressor, PassiveAggressiveEstimator):
    """Passive-aggressive regression with the loss ``(|r| - epsilon)_+``; steps as of `PassiveAggressiveClassifier`.

    Parameters
    ----------
    epsilon : float
        Residual that costs nothing.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, random_state=0)
    >>> baselines.PassiveAggressiveRegressor(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
    (3, 5)
    """

    loss = "epsilon_insensitive"

    epsilon: float = 0.1

    def _margin_loss(self) -> Family:
        return EpsilonInsensitive(self.epsilon)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._require("epsilon", 0 <= self.epsilon < np.inf, "a number of at least 0")


@inner(error_model="numpy")
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
def _read_passive(rounds: Rounds, stream: LinearStream, variant: int, step: float, slope: Address) -> None:
    for number in range(longest_task(rounds.offsets)):
        for t in range(rounds.learners.size):
            row = rounds.offsets[t] + number
            if row >= rounds.offsets[t + 1]:
                continue
            k = rounds.learners[t]
            cost, derivative = call_slope(slope, rounds.y[row], predict_one(rounds, row, stream, k))
            tau = step_length(variant, step, rounds.weight[row], cost, squared_length(rounds, row))
            move_one(rounds, row, stream, k, -derivative * tau)
        stream.clock[:] += 1


# ---------------------------------------------------------------------- a shared loss


UPDATES = ("implicit", "finite_horizon")


@dataclass(kw_only=True, eq=False)
class SharedLossLearner(LinearLearner):
    """Learners that share the budget of a round."""

    loss_norm: float
    implicit: bool
    step: float

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        _read_shared(rounds, self.stream, float(self.loss_norm), self.implicit, float(self.step))


@estimator_class()
class SharedLossClassifier(StreamClassifier):
    """Online classification with a shared loss (OSGL): the tasks share nothing but the budget of each round's step.

    A round's losses l_j are summed up by a norm, and all learners present move, ``w_j <- w_j + tau_j y_j x_j``, with

        tau = argmax sum_j (2 tau_j l_j - tau_j^2 |x_j|^2)    subject to  ||tau||_* <= C    (implicit update)
        tau = argmax sum_j tau_j l_j                          subject to  ||tau||_* <= C    (finite horizon)

    where ``||.||_*`` is the dual of the norm. Norm 1 makes the learners independent (each is PA-I), norm 2 moves all of
    them in proportion to their losses, and the largest-loss norm moves those that suffer most.

    Parameters
    ----------
    loss_norm : {2, 1, np.inf}
        Norm of a round's losses.
    update : {"finite_horizon", "implicit"}
        Full steps of dual norm C, or the shorter ones that do not overshoot the margins.
    step : float
        C, the budget of a round.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> baselines.SharedLossClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).coef_.shape
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
        self._require("loss_norm", self.loss_norm in (1.0, 2.0, np.inf), "1, 2 or np.inf")

    def _new_learner(self, n_features: int) -> SharedLossLearner:
        own: dict[str, Any] = {"loss_norm": self.loss_norm, "implicit": self.update == "implicit", "step": self.step}
        return SharedLossLearner(n_features=n_features, **self._common, **own)


@inner(error_model="numpy")
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


@inner(error_model="numpy")
def dual_norm(norm: float, steps: FloatArray) -> float:
    """Norm of the steps that the budget bounds: the dual of the losses' one."""
    if norm == 1.0:
        return steps.max()
    return np.sqrt((steps**2).sum()) if norm == 2.0 else steps.sum()


@inner(error_model="numpy")
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


@inner(error_model="numpy")
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
def _read_shared(rounds: Rounds, stream: LinearStream, norm: float, implicit: bool, budget: float) -> None:
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
                lengths[present] = squared_length(rounds, row)
                present += 1
        if implicit:
            steps = implicit_steps(norm, budget, losses[:present], lengths[:present])
        else:
            steps = full_steps(norm, budget, losses[:present])
        for c in range(present):
            row = observation[c]
            move_one(rounds, row, stream, learner[c], steps[c] * rounds.y[row])
        stream.clock[:] += 1


# ---------------------------------------------------------------------- perceptrons with relations


TRIGGERS = {"error": 0.0, "margin": 1.0}


class RelationsClassifier(StreamClassifier):
    """Perceptrons whose errors move all of them; rows of a round are read one after the other.

    Parameters
    ----------
    step : float
        C.
    trigger : {"error", "margin"}
        Move on a wrong label, or on a margin below 1.

    Attributes
    ----------
    task_relations_ : (n_tasks, n_tasks)
        The interaction matrix ``A^-1``, of trace ``n_tasks`` where it is learned.
    """

    step: float
    trigger: str

    def _check_parameters(self) -> None:
        self._check_stream()
        check_positive("step", self.step)
        check_choice("trigger", self.trigger, tuple(TRIGGERS))


@njit(cache=True, nogil=True, error_model="numpy")
def read_round(rounds: Rounds, number: int, stream: LinearStream, interaction: FloatArray, margin: float) -> None:
    """Read one round; ``interaction`` (K, K) is the step of each learner on an error of each task."""
    for t in range(rounds.learners.size):
        row = rounds.offsets[t] + number
        if row >= rounds.offsets[t + 1]:
            continue
        k, y = rounds.learners[t], rounds.y[row]
        reached = y * predict_one(rounds, row, stream, k)
        if reached < margin or reached <= 0.0:
            move_all(rounds, row, stream, interaction[:, k] * (y * rounds.weight[row]))
    stream.clock[:] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _read_rounds(rounds: Rounds, stream: LinearStream, interaction: FloatArray, margin: float) -> None:
    for number in range(longest_task(rounds.offsets)):
        read_round(rounds, number, stream, interaction, margin)


@dataclass(kw_only=True, eq=False)
class FixedRelationsLearner(LinearLearner):
    """Perceptrons whose errors move all of them."""

    interaction: float
    step: float
    margin: float

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        interaction = self.step * fixed_relations(self.n_tasks, self.interaction)
        _read_rounds(rounds, self.stream, interaction, self.margin)


@estimator_class()
class FixedRelationsClassifier(RelationsClassifier):
    """Multitask perceptron with fixed relations (FOML): an error of one task moves the learners of all.

    On an error (or a margin below 1) in task j every learner k takes the step

        w_k <- w_k + C (A^-1)_kj y_j x_j,    A^-1 = (K I + b 11') / ((1 + b) K).

    b = 0 makes the tasks independent perceptrons, a large b one perceptron for all.

    Parameters
    ----------
    interaction : float
        b, how much tasks share; 0 is independent learning.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=2, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> baselines.FixedRelationsClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks).task_relations_
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
        super()._check_parameters()
        self._require("interaction", 0 <= self.interaction < np.inf, "a number of at least 0")

    @property
    def task_relations_(self) -> FloatArray:
        """(n_tasks, n_tasks) Interaction matrix."""
        check_is_fitted(self)
        return fixed_relations(len(self.tasks_), self.interaction)

    def _new_learner(self, n_features: int) -> FixedRelationsLearner:
        own: dict[str, Any] = {"interaction": self.interaction, "step": self.step, "margin": TRIGGERS[self.trigger]}
        return FixedRelationsLearner(n_features=n_features, **self._common, **own)


def fixed_relations(n_tasks: int, interaction: float) -> FloatArray:
    """(K, K) Interaction matrix ``(K I + b 11') / ((1 + b) K)``."""
    return (n_tasks * np.eye(n_tasks) + interaction) / ((1.0 + interaction) * n_tasks)


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
            read_round(rounds, number, self.stream, self.step * self.relations["interaction"], self.margin)


@estimator_class()
class LearnedRelationsClassifier(RelationsClassifier):
    """Online multi-task relationship learning (OMTRL): perceptrons whose interaction is learned from their weights.

    An error of task j moves every learner k by ``C (A^-1)_kj y_j x_j``, as in `FixedRelationsClassifier`, but after a
    warm-up of independent perceptrons A is learned, once per round, from ``G = W'W``:

        "batch"    A^-1 = G^(1/2) / tr G^(1/2)            (their BatchOpt)
        "logdet"   A^-1 <- A^-1 + r G                     (LogDet divergence)
        "entropy"  A <- exp(ln A - r G)                   (von Neumann divergence)

    each scaled to trace K, so that the steps keep their length; without that the second grows and the third vanishes.
    Differently from the paper r multiplies ``G / tr G``, which makes it free of the units of X.

    Parameters
    ----------
    rule : {"batch", "logdet", "entropy"}
        How the interaction matrix follows the weights.
    rate : float
        r of the last two.
    warm_up : float in [0, 1) or int
        Rounds of independent perceptrons: a share of those of ``fit`` (of the first ``partial_fit``), or a number.

    Examples
    --------
    >>> from bayesmtfs import baselines, simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, kind="classification", random_state=0)
    >>> model = baselines.LearnedRelationsClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
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
        super()._check_parameters()
        check_choice("rule", self.rule, RULES)
        check_positive("rate", self.rate)
        self._require("warm_up", 0 <= self.warm_up < np.inf, "a share below 1, or a number of rounds")

    @property
    def task_relations_(self) -> FloatArray:
        """(n_tasks, n_tasks) Interaction matrix."""
        check_is_fitted(self)
        interaction: FloatArray = cast(LearnedRelationsLearner, self._learner).relations["interaction"]
        return interaction[np.ix_(self._learners, self._learners)]

    def _new_learner(self, n_features: int) -> LearnedRelationsLearner:
        own: dict[str, Any] = {name: getattr(self, name) for name in ("rule", "rate", "warm_up", "step")}
        return LearnedRelationsLearner(n_features=n_features, **self._common, **own, margin=TRIGGERS[self.trigger])


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
