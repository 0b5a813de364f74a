"""Smoothed online learning for very many tasks: each learner attends to a circle of k tasks, not to all K.

The step of a learner is that of `bayesmtfs.online.smoothed_online` over the tasks of its circle that are present in
the round; memory is O(K (p + k)) and a round costs O(K k) dot products. Beyond the paper: where the task of least
attention has fallen below half of an even share, a task drawn at random among those present takes its place, with an
even share. The draw is a hash of seed, clock and learner, so that a stream read in pieces gives the same circles.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from bayesmtfs.online.smoothed_online import SQUARED, Settings, respond
from bayesmtfs.online.smoothed_rounds import (
    LinearStream,
    Rounds,
    longest_task,
    move_one,
    predict_one,
    squared_length,
)
from bayesmtfs.types import FloatArray, IntArray

EMPTY = -1


class Circle(NamedTuple):
    """Whom each learner attends to."""

    members: IntArray  # (K, k) tasks, EMPTY where a place is free
    log_p: FloatArray  # (K, k) logarithm of attention, -inf at free places


def grow_circle(circle: Circle | None, n_learners: int, size: int, seed: int) -> Circle:
    """Circles of new learners: themselves and tasks drawn at random, with even attention.

    Parameters
    ----------
    circle : the circles so far; None for none
    n_learners : learners K wanted
    size : places k in a circle
    seed : of the draw
    """
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


def relations(circle: Circle, concentration: FloatArray) -> Any:
    """(K, K) CSR ``alpha I + (1 - alpha) P``; alpha (K,) per learner."""
    n_learners = len(circle.members)
    learner, place = np.nonzero(circle.members != EMPTY)
    entries = (np.exp(circle.log_p[learner, place]), (learner, circle.members[learner, place]))
    P = sp.csr_matrix(entries, shape=(n_learners, n_learners))
    share = (1.0 - concentration) / np.asarray(P.sum(axis=1)).ravel()
    return (sp.diags(concentration) + sp.diags(share) @ P).tocsr()


def advance(rounds: Rounds, stream: LinearStream, circle: Circle, settings: Settings, seed: int) -> None:
    """Read a batch; the learners and their circles change in place."""
    _advance(rounds, stream, circle, settings.numbers, settings.fit_intercept, settings.average, np.uint64(seed))


@njit(cache=True, nogil=True, error_model="numpy")
def draw(seed: np.uint64, clock: int, learner: int, n: int) -> int:
    """Number below n, from a hash (splitmix64) of its arguments."""
    state = (
        seed + np.uint64(0x9E3779B97F4A7C15) * np.uint64(clock + 1) + np.uint64(0xD1B54A32D192ED03) * np.uint64(learner)
    )
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    return int(state % np.uint64(n))


@njit(cache=True, nogil=True, error_model="numpy")
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
def _advance(
    rounds: Rounds,
    stream: LinearStream,
    circle: Circle,
    numbers: FloatArray,
    fit_intercept: bool,
    average: bool,
    seed: np.uint64,
) -> None:
    n_learners, n_tasks, size = stream.intercept.size, rounds.learners.size, circle.members.shape[1]
    observation = np.full(n_learners, EMPTY)
    task = np.empty(n_tasks, dtype=np.int64)
    y, weight, lengths = np.empty(size), np.empty(size), np.empty(size)
    scores, steps, log_p = np.empty(size), np.empty(size), np.empty(size)
    read, place_of = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    for number in range(longest_task(rounds.offsets)):
        present = 0
        for t in range(n_tasks):
            place = rounds.offsets[t] + number
            if place < rounds.offsets[t + 1]:
                observation[rounds.learners[t]] = place
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
                read[count], place_of[count], log_p[count] = row, s, attention[s]
                y[count], weight[count] = rounds.y[row], rounds.weight[row]
                lengths[count] = squared_length(rounds, row, fit_intercept) if numbers[2] == SQUARED else 0.0
                scores[count] = predict_one(rounds, row, stream, k)
                count += 1
            if count and respond(
                numbers,
                stream.clock[k],
                own,
                y[:count],
                weight[:count],
                lengths[:count],
                scores[:count],
                log_p[:count],
                count == size,
                steps[:count],
            ):
                for c in range(count):
                    attention[place_of[c]] = log_p[c]
                    move_one(rounds, read[c], stream, k, steps[c], fit_intercept, average)
                explore(k, members, attention, task[draw(seed, stream.clock[k], k, present)])
            stream.clock[k] += 1
        for c in range(present):
            observation[task[c]] = EMPTY
