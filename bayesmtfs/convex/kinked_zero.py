"""Smallest penalty strength at which W = 0 is optimal, for losses with kinks.

At W = 0 and the best intercept, the hinge has all observations of the larger class at its kink, and the absolute loss
those that tie at the median. Their dual variables are free as far as their intervals and the sum of 0 allow, and
``lambda_max`` is the smallest over this set of the largest dual norm of a row of ``X' theta``. By duality it is

    lambda_max = max over directions D of  - loss'(0; D) / penalty(D),

with ``loss'(0; D) = max over theta of <theta, X D>`` the directional derivative of the loss with its best intercept: a
fractional program, solved as Dinkelbach (1967, *Management Science* 13:492-498) does. Every direction gives a bound from
below. If W = 0 does not solve the penalised problem just above the best bound so far, its solution is a better direction.
"""

import numpy as np

from bayesmtfs.convex import nonsmooth
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.saddle_point import dual_box
from bayesmtfs.types import FloatArray

FIRST_SHARE = 0.6  # of the simple bound
SMALLER = 0.7  # factor where W is 0 at the first strength already
ENOUGH = 1e-6  # relative growth that the next direction must bring
SOLVED = 1e-8  # gap of a solution that serves as a direction
MOST = 30  # directions


def largest_penalty(problem: Problem) -> float:
    """Smallest strength at which W = 0 is optimal, for any loss: to six digits and from below where there are kinks.

    Parameters
    ----------
    problem : the problem, at any strength
    """
    bound = problem.largest_penalty
    if problem.family.smooth or not bound > 0.0 or _theta_is_unique(problem):
        return bound
    known, strength = 0.0, FIRST_SHARE * bound
    for _ in range(MOST):
        W = nonsmooth.solve(problem.with_strength(strength), tol=SOLVED).W
        along = strength_along(problem, W) if W.any() else 0.0
        if known > 0.0 and along <= known * (1.0 + ENOUGH):
            break
        known = max(known, along)
        strength = known * (1.0 + ENOUGH) if known > 0.0 else SMALLER * strength
    return min(known, bound) if known > 0.0 else bound


def strength_along(problem: Problem, W: FloatArray) -> float:
    """Strength below which the objective falls from 0 in the direction W; 0 where it rises without a penalty too."""
    data = problem.data
    eta = data.linear_predictor(W, np.zeros(data.n_tasks))
    steepest = sum(_directional_derivative(problem, eta, start, stop) for start, stop in data.spans)
    size = problem.with_strength(1.0).penalty.value(problem.blocks.gather(W))
    return max(-steepest / size, 0.0)


def _directional_derivative(problem: Problem, eta: FloatArray, start: int, stop: int) -> float:
    """Largest ``<theta, eta>`` of one task: what is free in theta goes to the largest eta first."""
    fixed, lowest, room = _free_part(problem, start, stop)
    own = eta[start:stop]
    value = float((fixed + lowest) @ own)
    if not problem.fit_intercept:
        return value + float(room @ np.maximum(own, 0.0))
    order = np.argsort(-own)
    amount = -float((fixed + lowest).sum())
    before = np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    return value + float(np.clip(amount - before, 0.0, room[order]) @ own[order])


def _free_part(problem: Problem, start: int, stop: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Theta of the observations that are not at a kink, and least theta and length of the interval of the others."""
    y, c, t = problem.data.y[start:stop], problem.weight[start:stop], problem.data.task[start]
    constant = np.full(stop - start, problem.null_intercept[t])
    at_kink = constant == y
    fixed = np.where(at_kink, 0.0, c * problem.family.gradient(y, constant))
    box = dual_box(problem)
    lower, upper = box.lower[start:stop], box.upper[start:stop]
    return fixed, np.where(at_kink, lower, 0.0), np.where(at_kink, upper - lower, 0.0)


def _theta_is_unique(problem: Problem) -> bool:
    """Whether theta at W = 0 is the same whatever is chosen at the kinks."""
    for start, stop in problem.data.spans:
        fixed, lowest, room = _free_part(problem, start, stop)
        n_free = np.count_nonzero(room)
        if not problem.fit_intercept:
            if n_free:
                return False
            continue
        amount, most = -float((fixed + lowest).sum()), float(room.sum())
        if n_free > 1 and 1e-12 * most < amount < (1.0 - 1e-12) * most:
            return False
    return True
