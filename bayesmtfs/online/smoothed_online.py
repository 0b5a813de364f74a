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

**Very many tasks.** Each learner attends to a circle of k tasks, not to all K. Its step is the same over the tasks of its
circle that are present in the round; memory is O(K (p + k)) and a round costs O(K k) dot products. Beyond the paper: where
the task of least attention has fallen below half of an even share, a task drawn at random among those present takes its
place, with an even share. The draw is a hash of seed, clock and learner, so that a stream read in pieces gives the same
circles.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bayesmtfs.compiled import inner
from bayesmtfs.families import Family, Hinge
from bayesmtfs.families.family import SLOPE, Address, address, call_slope
from bayesmtfs.online.linear_stream import (
    LinearLearner,
    LinearStream,
    MemoryOrder,
    Rounds,
    longest_task,
    move_all,
    move_one,
    predict_all,
    predict_one,
    squared_length,
)
from bayesmtfs.types import FloatArray, IntArray

TRIGGERS = ("error", "margin", "active")
UPDATES = ("exponential", "threshold")
EMPTY = -1


class SmoothedRules(NamedTuple):
    """What decides a step, for compiled code; nan follows Corollary 2 of the paper."""

    slope: Address
    quadratic: bool  # the step is damped
    exponential: bool  # how attention moves
    by_own_row: bool  # whether a learner looks at its own row, or at all of the round
    on_error: bool  # whether it moves on a wrong label, or on a loss
    concentration: float
    smoothing: float
    step: float
    horizon: float  # 0: doubles as rounds pass


class Circle(NamedTuple):
    """Whom each learner attends to."""

    members: IntArray  # (K, k) tasks, EMPTY where a place is free
    log_p: FloatArray  # (K, k) logarithm of attention, -inf at free places


class Heard(NamedTuple):
    """Rows of a round that a learner reads, at most n of them."""

    y: FloatArray  # (n,)
    weight: FloatArray  # (n,)
    lengths: FloatArray  # (n,) squared lengths, for losses whose step is damped
    scores: FloatArray  # (n,)
    losses: FloatArray  # (n,)
    log_p: FloatArray  # (n,) logarithm of the attention to their tasks
    steps: FloatArray  # (n,) along each row


@dataclass(kw_only=True, eq=False)
class SmoothedLearner(LinearLearner):
    """Learners that attend to each other's rows; ``step`` and ``concentration`` of None follow Corollary 2."""

    family: Family = Hinge()
    update: str = "exponential"
    trigger: str = "error"
    concentration: float | None = 0.5
    smoothing: float = 1.0
    step: float | None = 1.0
    horizon: int | None = None
    neighbours: int | None = None

    @property
    def memory_order(self) -> MemoryOrder:
        """By rows where all learners read every row, by columns where few do."""
        return "C" if self.neighbours is None else "F"

    @property
    def rules(self) -> SmoothedRules:
        """The parameters as the kernels read them."""
        return SmoothedRules(
            slope=address(self.family.slope, SLOPE),
            quadratic=self.family.quadratic,
            exponential=self.update == "exponential",
            by_own_row=self.trigger != "active",
            on_error=self.trigger == "error" and self.family.targets == "labels",
            concentration=np.nan if self.concentration is None else float(self.concentration),
            smoothing=float(self.smoothing),
            step=np.nan if self.step is None else float(self.step),
            horizon=float(self.horizon or 0),
        )

    def grow_relations(self, n_learners: int) -> None:
        """Give new learners an even share of attention."""
        if self.neighbours is None:
            grown = uniform_relations(self.relations.get("log_relations"), n_learners)
            self.relations = {"log_relations": grown}
        else:
            circle = Circle(**self.relations) if self.relations else None
            self.relations = grow_circle(circle, n_learners, self.neighbours, self.seed)._asdict()

    def advance(self, rounds: Rounds) -> None:
        """Learn from rounds."""
        if self.neighbours is None:
            _advance(rounds, self.stream, self.relations["log_relations"], self.rules)
        else:
            _advance_circles(rounds, self.stream, Circle(**self.relations), self.rules, np.uint64(self.seed))

    def task_relations(self) -> Any:
        """(K, K) ``alpha I + (1 - alpha) P``; a CSR matrix with neighbours."""
        alpha = np.array([rates(self.rules, int(lived))[1] for lived in self.stream.clock])
        if self.neighbours is None:
            return relations(self.relations["log_relations"], alpha)
        return circle_relations(Circle(**self.relations), alpha)


def uniform_relations(log_relations: FloatArray | None, n_learners: int) -> FloatArray:
    """(K, K) logarithm of P, uniform; with ``log_relations`` it grows so that new tasks get the share 1/K of each row."""
    grown = np.full((n_learners, n_learners), -np.log(n_learners))
    if log_relations is not None:
        known = len(log_relations)
        grown[:known, :known] = log_relations + np.log(known / n_learners)
    return grown


@njit(cache=True, nogil=True, error_model="numpy")
def rates(rules: SmoothedRules, clock: int) -> tuple[float, float]:
    """Step C and concentration alpha of a learner; by Corollary 2 where they are not given.

    Without a horizon the rounds 2^i to 2^(i+1) - 1 are a period of their own with horizon T = 2^i (doubling trick).
    The weights are carried over: the bound of a period then holds with the distance from its start in place of |w*|.
    """
    horizon = rules.horizon
    if horizon <= 0:
        horizon = 1.0
        while 2.0 * horizon <= clock + 1:
            horizon *= 2.0
    root = np.sqrt(horizon)
    step = (1.0 + root) / horizon if np.isnan(rules.step) else rules.step
    concentration = root / (1.0 + root) if np.isnan(rules.concentration) else rules.concentration
    return step, concentration


@inner(error_model="numpy")
def _room(n: int) -> Heard:
    return Heard(np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n))


@inner(error_model="numpy", forceinline=True)
def _hear(rules: SmoothedRules, rounds: Rounds, row: int, heard: Heard, c: int) -> None:
    """Note what a row says, whoever reads it."""
    heard.y[c], heard.weight[c] = rounds.y[row], rounds.weight[row]
    heard.lengths[c] = squared_length(rounds, row) if rules.quadratic else 0.0


@inner(error_model="numpy")
def _is_triggered(rules: SmoothedRules, heard: Heard, n: int, own: int) -> bool:
    """Whether a learner takes a step: by its own row, or by any row where ``trigger`` is "active" or it has none."""
    first, last = 0, n
    if own >= 0 and rules.by_own_row:
        first, last = own, own + 1
    for c in range(first, last):
        if heard.y[c] * heard.scores[c] <= 0 if rules.on_error else heard.losses[c] > 0:
            return True
    return False


@inner(error_model="numpy")
def _log_sum(values: FloatArray) -> float:
    """Ln sum exp, -inf for nothing."""
    largest = values.max()
    if largest == -np.inf:
        return largest
    total = 0.0
    for value in values:
        total += np.exp(value - largest)
    return largest + np.log(total)


@inner(error_model="numpy")
def _attend(rules: SmoothedRules, losses: FloatArray, log_p: FloatArray, rate: float, log_mass: float) -> None:
    """New attention to the rows of this round, within the mass that they had (eq. 11 or the threshold rule)."""
    fresh = losses  # overwritten
    for c in range(losses.size):
        fresh[c] = log_p[c] - rate * losses[c] if rules.exponential else np.log(max(rules.smoothing - losses[c], 0.0))
    total = _log_sum(fresh)
    if total == -np.inf:
        return
    for c in range(losses.size):
        log_p[c] = fresh[c] + (log_mass - total)


@inner(error_model="numpy")
def _respond(rules: SmoothedRules, clock: int, heard: Heard, n: int, own: int, whole: bool) -> bool:
    """Answer of one learner to n rows of a round: the step along each, and new attention; False where it rests.

    ``own`` is the place of its own row among them, -1 where its task is absent; ``whole`` says whether they are all the
    tasks, whose attention sums to 1.
    """
    y, weight, losses, log_p, steps = heard.y, heard.weight, heard.losses[:n], heard.log_p[:n], heard.steps
    for c in range(n):
        losses[c], steps[c] = call_slope(rules.slope, y[c], heard.scores[c])
    if not _is_triggered(rules, heard, n, own):
        return False
    step, concentration = rates(rules, clock)
    curvature = 0.0
    for c in range(n):
        share = (1.0 - concentration) * np.exp(log_p[c]) + (concentration if c == own else 0.0)
        losses[c] *= weight[c]
        curvature += share * weight[c] * heard.lengths[c]
        steps[c] *= -step * share * weight[c]
    if rules.quadratic:
        for c in range(n):
            steps[c] /= 1.0 + step * curvature
    _attend(rules, losses, log_p, step * (1.0 - concentration) / rules.smoothing, 0.0 if whole else _log_sum(log_p))
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _advance(rounds: Rounds, stream: LinearStream, log_relations: FloatArray, rules: SmoothedRules) -> None:
    n_learners, n_tasks = stream.intercept.size, rounds.learners.size
    scores, steps = np.empty((n_tasks, n_learners)), np.empty((n_tasks, n_learners))
    observation, task = np.empty(n_tasks, dtype=np.int64), np.empty(n_tasks, dtype=np.int64)
    heard = _room(n_tasks)
    for number in range(longest_task(rounds.offsets)):
        present = 0
        for t in range(n_tasks):
            row = rounds.offsets[t] + number
            if row < rounds.offsets[t + 1]:
                observation[present], task[present] = row, rounds.learners[t]
                _hear(rules, rounds, row, heard, present)
                predict_all(rounds, row, stream, scores[present])
                present += 1
        for k in range(n_learners):
            own = -1
            for c in range(present):
                heard.scores[c], heard.log_p[c] = scores[c, k], log_relations[k, task[c]]
                own = c if task[c] == k else own
            moved = _respond(rules, stream.clock[k], heard, present, own, present == n_learners)
            for c in range(present):
                steps[c, k] = heard.steps[c] if moved else 0.0
                if moved:
                    log_relations[k, task[c]] = heard.log_p[c]
        for c in range(present):
            move_all(rounds, observation[c], stream, steps[c])
        for k in range(n_learners):
            stream.clock[k] += 1


def relations(log_relations: FloatArray, concentration: FloatArray) -> FloatArray:
    """(K, K) ``alpha I + (1 - alpha) P``; alpha (K,) per learner."""
    P = np.exp(log_relations)
    P /= P.sum(axis=1, keepdims=True)
    return np.diag(concentration) + (1.0 - concentration)[:, None] * P


# ---------------------------------------------------------------------- very many tasks


def grow_circle(circle: Circle | None, n_learners: int, size: int, seed: int) -> Circle:
    """Circles of size k, added behind those there are: a new learner itself and tasks drawn at random, evenly attended."""
    known = 0 if circle is None else len(circle.members)
    fresh = np.arange(known, n_learners)
    if n_learners <= size:  # room for everybody
        drawn = np.tile(np.where(np.arange(size) < n_learners, np.arange(size), EMPTY), (len(fresh), 1))
    else:
        drawn = np.random.default_rng([seed, known]).integers(0, n_learners, (len(fresh), size))
        drawn[:, 0] = fresh
        for place in range(1, size):  # a task has one place only
            repeated = (drawn[:, :place] == drawn[:, place, None]).any(axis=1)
            drawn[repeated, place] = EMPTY
    taken = drawn != EMPTY
    log_p = np.where(taken, -np.log(taken.sum(axis=1, keepdims=True)), -np.inf)
    if circle is None:
        return Circle(drawn, log_p)
    return Circle(np.concatenate([circle.members, drawn]), np.concatenate([circle.log_p, log_p]))


def circle_relations(circle: Circle, concentration: FloatArray) -> Any:
    """(K, K) CSR ``alpha I + (1 - alpha) P``; alpha (K,) per learner."""
    n_learners = len(circle.members)
    learner, place = np.nonzero(circle.members != EMPTY)
    entries = (np.exp(circle.log_p[learner, place]), (learner, circle.members[learner, place]))
    P = sp.csr_matrix(entries, shape=(n_learners, n_learners))
    share = (1.0 - concentration) / np.asarray(P.sum(axis=1)).ravel()
    return (sp.diags(concentration) + sp.diags(share) @ P).tocsr()


@inner(error_model="numpy")
def draw(seed: np.uint64, clock: int, learner: int, n: int) -> int:
    """Number below n, from a hash (splitmix64) of its arguments."""
    state = (
        seed + np.uint64(0x9E3779B97F4A7C15) * np.uint64(clock + 1) + np.uint64(0xD1B54A32D192ED03) * np.uint64(learner)
    )
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    return int(state % np.uint64(n))


@inner(error_model="numpy")
def explore(learner: int, members: IntArray, log_p: FloatArray, stranger: int) -> None:
    """Let a stranger take the free or least attended place of a circle, unless all are well attended; never its own."""
    size, least, taken = members.size, -1, 0
    for s in range(size):
        if members[s] == stranger:
            return
        taken += members[s] != EMPTY
        if members[s] != learner and (least < 0 or log_p[s] < log_p[least]):
            least = s
    if least < 0 or log_p[least] > -np.log(2.0 * size):
        return
    members[least] = stranger
    share = 1.0 / (taken + 1) if taken < size else 1.0 / size
    rest = 1.0 - np.exp(log_p[least])
    for s in range(size):
        log_p[s] = np.log(share) if s == least else log_p[s] + np.log((1.0 - share) / rest)


@njit(cache=True, nogil=True, error_model="numpy")
def _advance_circles(
    rounds: Rounds, stream: LinearStream, circle: Circle, rules: SmoothedRules, seed: np.uint64
) -> None:
    n_learners, n_tasks, size = stream.intercept.size, rounds.learners.size, circle.members.shape[1]
    observation, task = np.full(n_learners, EMPTY), np.empty(n_tasks, dtype=np.int64)
    read, place_of = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    heard = _room(size)
    for number in range(longest_task(rounds.offsets)):
        present = 0
        for t in range(n_tasks):
            row = rounds.offsets[t] + number
            if row < rounds.offsets[t + 1]:
                observation[rounds.learners[t]] = row
                task[present] = rounds.learners[t]
                present += 1
        for k in range(n_learners):
            members, attention = circle.members[k], circle.log_p[k]
            count, own = 0, -1
            for s in range(size):
                if members[s] == EMPTY or observation[members[s]] == EMPTY:
                    continue
                row = observation[members[s]]
                own = count if members[s] == k else own
                read[count], place_of[count], heard.log_p[count] = row, s, attention[s]
                _hear(rules, rounds, row, heard, count)
                heard.scores[count] = predict_one(rounds, row, stream, k)
                count += 1
            if count and _respond(rules, stream.clock[k], heard, count, own, count == size):
                for c in range(count):
                    attention[place_of[c]] = heard.log_p[c]
                    move_one(rounds, read[c], stream, k, heard.steps[c])
                explore(k, members, attention, task[draw(seed, stream.clock[k], k, present)])
            stream.clock[k] += 1
        for c in range(present):
            observation[task[c]] = EMPTY
