"""Steps of an interior-point method inside the dual balls of the rows, for every q in [1, inf].

The dual point of the convex problem must keep every row g of ``X' theta`` in the dual ball of the row penalty. For the
penalty ``lam (r ||w||_1 + ||w||_q)`` with ``1/q + 1/q* = 1`` that ball is the set of rows for which there are radii c
with

    |g_t| <= lam (r + c_t)  for every entry t,      sum_t c_t^q* <= 1.

These are two linear constraints per entry and one smooth convex constraint per row, whatever q is: linear at q = inf
(q* = 1), a sphere at q = 2, and no constraint with radii fixed at 1 at q = 1 (q* = inf). The prices (Lagrange
multipliers) of the two sides of an entry are the coefficients: ``w_t = price_down_t - price_up_t``. The interval of a
dual variable is such a ball too, with one entry, and its coefficient is the residual of the observation.

A Newton step linearises ``slack * price = aim`` for every constraint. Radii and prices are eliminated row by row, and
what is left is how the coefficients of a row answer to a change of its scores,

    -(w + dw) = pull + H dg,      H = diag(own) + weight shared shared',

one diagonal matrix plus one outer product. Everything is written so that no large numbers cancel near the solution,
where slacks vanish.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.types import FloatArray, IntArray

SCORE, RADIUS, UP, DOWN, PRICE_UP, PRICE_DOWN = range(6)  # of the entries; up and down are slacks
BALL, PRICE_BALL = range(2)  # of the rows; ball is a slack
OWN, SHARED, SLOPE, BEND, STIFFNESS = range(5)  # of a response
PULL, FORCE, AIM_UP, AIM_DOWN = range(4)  # of a pull
SHORTER = 0.95  # factor on a step that leaves a curved ball


class Ball(NamedTuple):
    """Shape of the dual balls of R rows."""

    strength: FloatArray  # (R,) lam
    sparsity: FloatArray  # (R,) r
    exponent: float  # q*

    def take(self, rows: IntArray) -> "Ball":
        """Return the balls of some rows."""
        return Ball(self.strength[rows], self.sparsity[rows], self.exponent)


class Rows(NamedTuple):
    """R rows of K entries strictly inside their balls, or a change of them."""

    entries: FloatArray  # (6, R, K)
    balls: FloatArray  # (2, R)

    @property
    def coefficients(self) -> FloatArray:
        """(R, K) Coefficients w that belong to the prices."""
        return self.entries[PRICE_DOWN] - self.entries[PRICE_UP]

    @property
    def n_constraints(self) -> int:
        """Number of products ``slack * price``."""
        return 2 * self.entries[UP].size + int(np.count_nonzero(self.balls[PRICE_BALL]))


class Lengths(NamedTuple):
    """How far a step goes in the slacks and in the prices; they need not go equally far."""

    slack: float
    price: float


class Response(NamedTuple):
    """How coefficients answer to scores."""

    entries: FloatArray  # (5, R, K)
    weight: FloatArray  # (R,)

    @property
    def own(self) -> FloatArray:
        """(R, K) Diagonal of H."""
        return self.entries[OWN]

    @property
    def shared(self) -> FloatArray:
        """(R, K) Direction of the outer product in H."""
        return self.entries[SHARED]


class Pull(NamedTuple):
    """What a Newton step aims at, before the scores change."""

    entries: FloatArray  # (4, R, K)
    price_ball: FloatArray  # (R,)


def enter(score: FloatArray, ball: Ball, product: float) -> Rows:
    """Place rows of the given scores strictly inside their balls, with ``slack * price = product``."""
    entries, balls = np.empty((6, *score.shape)), np.empty((2, len(score)))
    radius = np.ones_like(score)
    if ball.exponent < math.inf:
        needed = np.maximum(np.abs(score) / ball.strength[:, np.newaxis] - ball.sparsity[:, np.newaxis], 0.0)
        taken = np.sum(needed**ball.exponent, axis=1, keepdims=True) ** (1.0 / ball.exponent)
        radius = needed + 0.5 * (1.0 - taken) * score.shape[1] ** (-1.0 / ball.exponent)
    _place(entries, balls, score, radius, ball)
    entries[PRICE_UP], entries[PRICE_DOWN] = product / entries[UP], product / entries[DOWN]
    balls[PRICE_BALL] = product / balls[BALL] if ball.exponent < math.inf else 0.0
    return Rows(entries, balls)


def advance(rows: Rows, change: Rows, lengths: Lengths, score: FloatArray, ball: Ball) -> Rows:
    """Rows after a step, with slacks computed afresh from the scores given."""
    entries, balls = np.empty(rows.entries.shape), np.empty(rows.balls.shape)
    _place(entries, balls, score, rows.entries[RADIUS] + lengths.slack * change.entries[RADIUS], ball)
    entries[PRICE_UP:] = rows.entries[PRICE_UP:] + lengths.price * change.entries[PRICE_UP:]
    balls[PRICE_BALL] = rows.balls[PRICE_BALL] + lengths.price * change.balls[PRICE_BALL]
    return Rows(entries, balls)


def _place(entries: FloatArray, balls: FloatArray, score: FloatArray, radius: FloatArray, ball: Ball) -> None:
    """Write scores, radii and the slacks that belong to them."""
    reach = ball.strength[:, np.newaxis] * (ball.sparsity[:, np.newaxis] + radius)
    entries[SCORE], entries[RADIUS] = score, radius
    entries[UP], entries[DOWN] = reach - score, reach + score
    balls[BALL] = _inside(radius, ball.exponent)


def _inside(radius: FloatArray, exponent: float) -> FloatArray:
    """(R,) Slack ``1 - sum c^q*``."""
    if exponent == math.inf:
        return np.ones(len(radius))
    powers = radius * radius if exponent == 2.0 else radius**exponent
    return 1.0 - powers.sum(axis=1)


def longest_steps(rows: Rows, change: Rows, exponent: float, longest: Lengths) -> Lengths:
    """Longest steps that keep slacks (with radii) and prices from becoming negative, up to the ones given."""
    slack, price = _longest(*rows, *change, exponent, *longest)
    if exponent < math.inf and exponent != 2.0:
        slack = _longest_inside(rows.entries[RADIUS], change.entries[RADIUS], exponent, slack)
    return Lengths(slack, price)


def _longest_inside(radius: FloatArray, change: FloatArray, exponent: float, longest: float) -> float:
    """Longest change of the radii that stays inside the balls, by a backtracking search."""
    while _inside(radius + longest * change, exponent).min(initial=1.0) <= 0.0:
        longest *= SHORTER
    return longest


def complementarity(rows: Rows, change: Rows, lengths: Lengths) -> float:
    """Sum of ``slack * price`` after a step, with slacks that change linearly."""
    return float(_complementarity(*rows, *change, *lengths))


def respond(rows: Rows, ball: Ball) -> Response:
    """Eliminate radii and prices from the linearised constraints."""
    response = Response(np.zeros((5, *rows.entries.shape[1:])), np.zeros(rows.balls.shape[1]))
    _respond(*rows, ball.strength, ball.exponent, *response)
    return response


def pull(rows: Rows, ball: Ball, response: Response, product: float, before: Rows | None = None) -> Pull:
    """Coefficients at which ``slack * price = product`` while the scores stay.

    With an earlier step ``before``, its second-order terms are corrected (Mehrotra 1992, *SIAM Journal on Optimization*
    2:575-601, here with the curvature of the ball).
    """
    second = 0.0 if before is None else 1.0
    result = Pull(np.zeros((4, *rows.entries.shape[1:])), np.zeros(rows.balls.shape[1]))
    _pull(*rows, ball.strength, ball.exponent, *response, product, second, *(before or rows), *result)
    return result


def move(rows: Rows, ball: Ball, response: Response, pulled: Pull, score: FloatArray) -> Rows:
    """Change of everything in the rows that belongs to a change of their scores."""
    change = Rows(np.zeros(rows.entries.shape), np.zeros(rows.balls.shape))
    change.entries[SCORE] = score
    _move(*rows, ball.strength, ball.exponent, *response, *pulled, *change)
    return change


@njit(cache=True, error_model="numpy")
def _longest(
    entries: FloatArray,
    balls: FloatArray,
    change: FloatArray,
    balls_change: FloatArray,
    exponent: float,
    slack: float,
    price: float,
) -> tuple[float, float]:
    """Longest steps in slacks and prices, inside curved balls at q = 2 only; NaN where the change has one."""
    fastest, cheapest, everything = 1.0 / slack, 1.0 / price, 0.0  # the largest shrinkages
    for i in range(entries.shape[1]):
        square, half = 0.0, 0.0
        for t in range(entries.shape[2]):
            for k in range(RADIUS, PRICE_UP):
                fastest = max(fastest, -change[k, i, t] / entries[k, i, t])
            for k in range(PRICE_UP, PRICE_DOWN + 1):
                cheapest = max(cheapest, -change[k, i, t] / entries[k, i, t])
            square += change[RADIUS, i, t] ** 2
            half += change[RADIUS, i, t] * entries[RADIUS, i, t]
            everything += change[PRICE_UP, i, t] + change[PRICE_DOWN, i, t]
        if exponent < np.inf:
            cheapest = max(cheapest, -balls_change[PRICE_BALL, i] / balls[PRICE_BALL, i])
        if exponent == 2.0:
            # the root of a quadratic equation, without cancellation
            fastest = max(fastest, (half + math.sqrt(half**2 + square * balls[BALL, i])) / balls[BALL, i])
    return (1.0 / fastest, 1.0 / cheapest) if everything == everything else (np.nan, np.nan)


@njit(cache=True, error_model="numpy")
def _complementarity(
    entries: FloatArray,
    balls: FloatArray,
    change: FloatArray,
    balls_change: FloatArray,
    slack: float,
    price: float,
) -> float:
    total = 0.0
    for i in range(entries.shape[1]):
        total += (balls[BALL, i] + slack * balls_change[BALL, i]) * (
            balls[PRICE_BALL, i] + price * balls_change[PRICE_BALL, i]
        )
        for t in range(entries.shape[2]):
            for k in (UP, DOWN):
                room = entries[k, i, t] + slack * change[k, i, t]
                total += room * (entries[k + 2, i, t] + price * change[k + 2, i, t])
    return total


@njit(cache=True, error_model="numpy")
def _power(radius: float, exponent: float) -> tuple[float, float, float]:
    """First three derivatives of ``c^q*``."""
    if exponent == 2.0:
        return 2.0 * radius, 2.0, 0.0
    slope = exponent * radius ** (exponent - 1.0)
    curve = (exponent - 1.0) * slope / radius
    return slope, curve, (exponent - 2.0) * curve / radius


@njit(cache=True, error_model="numpy")
def _respond(
    entries: FloatArray,
    balls: FloatArray,
    strength: FloatArray,
    exponent: float,
    response: FloatArray,
    weight: FloatArray,
) -> None:
    for i in range(entries.shape[1]):
        squared = strength[i] ** 2
        total = balls[BALL, i] / balls[PRICE_BALL, i]
        for t in range(entries.shape[2]):
            up = entries[PRICE_UP, i, t] / entries[UP, i, t]
            down = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t]
            if exponent == np.inf:
                response[OWN, i, t] = up + down
                continue
            slope, curve, _ = _power(entries[RADIUS, i, t], exponent)
            bend = balls[PRICE_BALL, i] * curve
            stiffness = squared * (up + down) + bend
            response[OWN, i, t] = ((up + down) * bend + 4.0 * squared * up * down) / stiffness
            response[SHARED, i, t] = strength[i] * (down - up) * slope / stiffness
            response[SLOPE, i, t] = slope
            response[BEND, i, t] = bend
            response[STIFFNESS, i, t] = stiffness
            total += slope * slope / stiffness
        if exponent < np.inf:
            weight[i] = 1.0 / total


@njit(cache=True, error_model="numpy")
def _pull(
    entries: FloatArray,
    balls: FloatArray,
    strength: FloatArray,
    exponent: float,
    response: FloatArray,
    weight: FloatArray,
    product: float,
    second: float,
    before: FloatArray,
    balls_before: FloatArray,
    result: FloatArray,
    price_ball: FloatArray,
) -> None:
    for i in range(entries.shape[1]):
        for t in range(entries.shape[2]):
            up = (product - second * before[UP, i, t] * before[PRICE_UP, i, t]) / entries[UP, i, t]
            down = (product - second * before[DOWN, i, t] * before[PRICE_DOWN, i, t]) / entries[DOWN, i, t]
            result[AIM_UP, i, t], result[AIM_DOWN, i, t], result[PULL, i, t] = up, down, up - down
        if exponent == np.inf:
            continue
        bent = 0.0
        for t in range(entries.shape[2]):
            slope, curve, third = _power(entries[RADIUS, i, t], exponent)
            change = before[RADIUS, i, t]
            bent += curve * change * change
            curving = (
                balls_before[PRICE_BALL, i] * curve * change + 0.5 * balls[PRICE_BALL, i] * third * change * change
            )
            result[FORCE, i, t] = second * curving - strength[i] * (result[AIM_UP, i, t] + result[AIM_DOWN, i, t])
        correction = balls_before[BALL, i] * balls_before[PRICE_BALL, i] - 0.5 * balls[PRICE_BALL, i] * bent
        price_ball[i] = (product - second * correction) / balls[BALL, i]
        total = 0.0
        for t in range(entries.shape[2]):
            result[FORCE, i, t] += response[SLOPE, i, t] * price_ball[i]
            total += response[SLOPE, i, t] * result[FORCE, i, t] / response[STIFFNESS, i, t]
        for t in range(entries.shape[2]):
            skew = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t] - entries[PRICE_UP, i, t] / entries[UP, i, t]
            rest = result[FORCE, i, t] - response[SLOPE, i, t] * weight[i] * total
            result[PULL, i, t] -= strength[i] * skew * rest / response[STIFFNESS, i, t]


@njit(cache=True, error_model="numpy")
def _move(
    entries: FloatArray,
    balls: FloatArray,
    strength: FloatArray,
    exponent: float,
    response: FloatArray,
    weight: FloatArray,
    pulled: FloatArray,
    price_ball: FloatArray,
    change: FloatArray,
    balls_change: FloatArray,
) -> None:
    for i in range(entries.shape[1]):
        squared = strength[i] ** 2
        total = 0.0
        if exponent < np.inf:
            for t in range(entries.shape[2]):
                skew = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t] - entries[PRICE_UP, i, t] / entries[UP, i, t]
                push = pulled[FORCE, i, t] + strength[i] * skew * change[SCORE, i, t]
                total += weight[i] * response[SLOPE, i, t] * push / response[STIFFNESS, i, t]
        for t in range(entries.shape[2]):
            rate_up = entries[PRICE_UP, i, t] / entries[UP, i, t]
            rate_down = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t]
            score = change[SCORE, i, t]
            if exponent == np.inf:
                change[UP, i, t], change[DOWN, i, t] = -score, score
            else:
                # lam dc - dg and lam dc + dg, where nothing cancels although one side may be tight
                stiffness, bend, slope = response[STIFFNESS, i, t], response[BEND, i, t], response[SLOPE, i, t]
                push = slope * total - pulled[FORCE, i, t]
                up = (strength[i] * push - score * (2.0 * squared * rate_down + bend)) / stiffness
                down = (strength[i] * push + score * (2.0 * squared * rate_up + bend)) / stiffness
                radius = 0.5 * (up + down) / strength[i]
                change[UP, i, t], change[DOWN, i, t], change[RADIUS, i, t] = up, down, radius
                balls_change[BALL, i] -= slope * radius
            change[PRICE_UP, i, t] = pulled[AIM_UP, i, t] - entries[PRICE_UP, i, t] - rate_up * change[UP, i, t]
            change[PRICE_DOWN, i, t] = (
                pulled[AIM_DOWN, i, t] - entries[PRICE_DOWN, i, t] - rate_down * change[DOWN, i, t]
            )
        if exponent < np.inf:
            rate = balls[PRICE_BALL, i] / balls[BALL, i]
            balls_change[PRICE_BALL, i] = price_ball[i] - balls[PRICE_BALL, i] - rate * balls_change[BALL, i]
