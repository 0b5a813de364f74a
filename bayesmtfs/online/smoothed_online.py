"""Adaptive smoothed online learning (OSMTL): every learner reads the rows of all tasks, and learns whose rows help it.

In each round learner k of K takes a step on

    C sum_j eta_kj l_kj(w) + 1/2 ||w - w_k||^2 + lambda KL(p || p_k),    eta = alpha I + (1 - alpha) P

in w and in p in turn (Murugesan, Liu, Carbonell and Yang 2016, eqs. 7 to 11, Algorithm 2):

    w_k <- w_k - C sum_j eta_kj l'_kj x_j,        p_kj <- p_kj exp(-C (1 - alpha) l_kj / lambda) / sum     (OSMTL-e)
                                                  p_kj <- (lambda - l_kj)_+ / sum                            (OSMTL-t)

What differs from the paper. Its text updates a learner on an error, its Algorithm 2 on a margin below 1, and it names
"active" (some row has a loss) as a third way: all three are here. Eq. (8) with ``||w - w_k||^2`` would give half the
printed step (9); the step is as printed. log p is kept, since p underflows. Where all of ``(lambda - l)_+`` are zero
the old row of P stays. Tasks may be absent: their p stays, those present are renormalised within their mass, and the
learner of an absent task still reads the rows of the others (its trigger then asks for any such row). The squared loss
divides its step by ``1 + C sum_j eta_kj |x_j|^2``, without which it diverges for long rows.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from bayesmtfs.online.smoothed_rounds import (
    LinearStream,
    Rounds,
    longest_task,
    move_all,
    predict_all,
    squared_length,
)
from bayesmtfs.types import FloatArray, IntArray

LOSSES = ("hinge", "squared", "epsilon_insensitive")
TRIGGERS = ("error", "margin", "active")
UPDATES = ("exponential", "threshold")

HINGE, SQUARED = 0, 1
ERROR, MARGIN = 0, 1
EXPONENTIAL = 0


@dataclass(frozen=True)
class Settings:
    """What decides a step; ``step`` and ``concentration`` of None follow Corollary 2 of the paper."""

    update: str = "exponential"
    trigger: str = "error"
    loss: str = "hinge"
    concentration: float | None = 0.5
    smoothing: float = 1.0
    step: float | None = 1.0
    horizon: int | None = None
    epsilon: float = 0.0
    fit_intercept: bool = True
    average: bool = False

    @property
    def numbers(self) -> FloatArray:
        """The same as the kernels read it."""
        return np.array(
            [
                UPDATES.index(self.update),
                TRIGGERS.index(self.trigger),
                LOSSES.index(self.loss),
                np.nan if self.concentration is None else self.concentration,
                self.smoothing,
                np.nan if self.step is None else self.step,
                0 if self.horizon is None else self.horizon,
                self.epsilon,
            ]
        )


def uniform_relations(log_relations: FloatArray | None, n_learners: int) -> FloatArray:
    """(K, K) logarithm of P, uniform; with ``log_relations`` it grows so that new tasks get the share 1/K of each row."""
    grown = np.full((n_learners, n_learners), -np.log(n_learners))
    if log_relations is not None:
        known = len(log_relations)
        grown[:known, :known] = log_relations + np.log(known / n_learners)
    return grown


def advance(rounds: Rounds, stream: LinearStream, log_relations: FloatArray, settings: Settings) -> None:
    """Read a batch; the learners and ``log_relations`` (K, K) change in place."""
    _advance(rounds, stream, log_relations, settings.numbers, settings.fit_intercept, settings.average)


@njit(cache=True, nogil=True, error_model="numpy")
def rates(numbers: FloatArray, clock: int) -> tuple[float, float]:
    """Step C and concentration alpha of a learner; by Corollary 2 where they are not given.

    Without a horizon the rounds 2^i to 2^(i+1) - 1 are a period of their own with horizon T = 2^i (doubling trick).
    The weights are carried over: the bound of a period then holds with the distance from its start in place of |w*|.
    """
    horizon = numbers[6]
    if horizon <= 0:
        horizon = 1.0
        while 2.0 * horizon <= clock + 1:
            horizon *= 2.0
    root = np.sqrt(horizon)
    step = (1.0 + root) / horizon if np.isnan(numbers[5]) else numbers[5]
    concentration = root / (1.0 + root) if np.isnan(numbers[3]) else numbers[3]
    return step, concentration


@njit(cache=True, nogil=True, error_model="numpy")
def loss_and_slope(kind: int, epsilon: float, y: float, score: float) -> tuple[float, float]:
    """Loss of a score and its derivative."""
    if kind == HINGE:
        gap = 1.0 - y * score
        return (gap, -y) if gap > 0 else (0.0, 0.0)
    residual = score - y
    if kind == SQUARED:
        return 0.5 * residual * residual, residual
    gap = abs(residual) - epsilon
    return (gap, np.sign(residual)) if gap > 0 else (0.0, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def is_triggered(numbers: FloatArray, y: FloatArray, scores: FloatArray, losses: FloatArray, own: int) -> bool:
    """Whether a learner takes a step: by its own row, or by any row where ``trigger`` is "active" or it has none."""
    first, last = 0, scores.size
    if own >= 0 and numbers[1] <= MARGIN:
        first, last = own, own + 1
    on_error = numbers[1] == ERROR and numbers[2] == HINGE
    for c in range(first, last):
        if y[c] * scores[c] <= 0 if on_error else losses[c] > 0:
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def log_sum(values: FloatArray) -> float:
    """Ln sum exp, -inf for nothing."""
    largest = -np.inf
    for value in values:
        largest = max(largest, value)
    if largest == -np.inf:
        return largest
    total = 0.0
    for value in values:
        total += np.exp(value - largest)
    return largest + np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def attend(numbers: FloatArray, losses: FloatArray, log_p: FloatArray, rate: float, log_mass: float) -> None:
    """New attention to the rows of this round, within the mass that they had (eq. 11 or the threshold rule)."""
    fresh = np.empty(losses.size)
    for c in range(losses.size):
        if numbers[0] == EXPONENTIAL:
            fresh[c] = log_p[c] - rate * losses[c]
        else:
            rest = numbers[4] - losses[c]
            fresh[c] = np.log(rest) if rest > 0 else -np.inf
    total = log_sum(fresh)
    if total == -np.inf:
        return
    for c in range(losses.size):
        log_p[c] = fresh[c] + (log_mass - total)


@njit(cache=True, nogil=True, error_model="numpy")
def respond(
    numbers: FloatArray,
    clock: int,
    own: int,
    y: FloatArray,
    weight: FloatArray,
    lengths: FloatArray,
    scores: FloatArray,
    log_p: FloatArray,
    whole: bool,
    steps: FloatArray,
) -> bool:
    """Answer of one learner to the rows of a round; gives the step along each row and the new ``log_p``.

    Parameters
    ----------
    own : place of the learner's own row among them, -1 where its task is absent
    whole : whether these are all the tasks, whose attention sums to 1
    """
    losses = np.empty(scores.size)
    for c in range(scores.size):
        losses[c], steps[c] = loss_and_slope(int(numbers[2]), numbers[7], y[c], scores[c])
    if not is_triggered(numbers, y, scores, losses, own):
        return False
    step, concentration = rates(numbers, clock)
    curvature = 0.0
    for c in range(scores.size):
        share = (1.0 - concentration) * np.exp(log_p[c]) + (concentration if c == own else 0.0)
        losses[c] *= weight[c]
        curvature += share * weight[c] * lengths[c]
        steps[c] *= -step * share * weight[c]
    if numbers[2] == SQUARED:
        for c in range(scores.size):
            steps[c] /= 1.0 + step * curvature
    attend(numbers, losses, log_p, step * (1.0 - concentration) / numbers[4], 0.0 if whole else log_sum(log_p))
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(
    rounds: Rounds,
    stream: LinearStream,
    log_relations: FloatArray,
    numbers: FloatArray,
    fit_intercept: bool,
    average: bool,
) -> None:
    n_learners, n_tasks = stream.intercept.size, rounds.learners.size
    scores, steps = np.empty((n_tasks, n_learners)), np.empty((n_tasks, n_learners))
    observation, task = np.empty(n_tasks, dtype=np.int64), np.empty(n_tasks, dtype=np.int64)
    y, weight, lengths = np.empty(n_tasks), np.empty(n_tasks), np.empty(n_tasks)
    own_scores, own_steps, log_p = np.empty(n_tasks), np.empty(n_tasks), np.empty(n_tasks)
    for number in range(longest_task(rounds.offsets)):
        present = 0
        for t in range(n_tasks):
            place = rounds.offsets[t] + number
            if place < rounds.offsets[t + 1]:
                observation[present], task[present] = place, rounds.learners[t]
                y[present], weight[present] = rounds.y[place], rounds.weight[place]
                lengths[present] = squared_length(rounds, place, fit_intercept) if numbers[2] == SQUARED else 0.0
                predict_all(rounds, place, stream, scores[present])
                present += 1
        for k in range(n_learners):
            own = -1
            for c in range(present):
                own_scores[c], log_p[c] = scores[c, k], log_relations[k, task[c]]
                own = c if task[c] == k else own
            moved = respond(
                numbers,
                stream.clock[k],
                own,
                y[:present],
                weight[:present],
                lengths[:present],
                own_scores[:present],
                log_p[:present],
                present == n_learners,
                own_steps[:present],
            )
            for c in range(present):
                steps[c, k] = own_steps[c] if moved else 0.0
                if moved:
                    log_relations[k, task[c]] = log_p[c]
        for c in range(present):
            move_all(rounds, observation[c], stream, steps[c], fit_intercept, average)
        for k in range(n_learners):
            stream.clock[k] += 1


def relations(log_relations: FloatArray, concentration: FloatArray) -> FloatArray:
    """(K, K) ``alpha I + (1 - alpha) P``; alpha (K,) per learner."""
    P = np.exp(log_relations)
    P /= P.sum(axis=1, keepdims=True)
    return np.diag(concentration) + (1.0 - concentration)[:, None] * P


def concentrations(settings: Settings, clock: IntArray) -> FloatArray:
    """(K,) Concentration of each learner now."""
    return np.array([rates(settings.numbers, int(lived))[1] for lived in clock])
