"""Interior-point steps for piecewise linear losses with any row penalty; `nonsmooth` says what they are for.

The dual variables theta, one per observation, stay strictly inside their intervals, and the rows of ``X' theta`` strictly
inside their dual balls. From the inside out: the columns that take part (`WorkingColumns`), rows inside balls (`BallRows`
and what follows it), the linear algebra of a step (`NewtonSystem`), and the step itself (`Linearised`, `step`).
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.linalg.blas import dsymm, dsyrk, dtrsm, dtrsv
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from bayesmtfs.convex.problem import Problem
from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.types import BoolArray, FloatArray, IntArray

NEAR = 0.6  # dual norm over strength above which a row joins the working set, at first
RETREAT = 1.5  # times the root of the relative gap: distance from the boundary at which a row may leave
SOME_ROWS = 100  # so many may join at once; if the working set is larger, as many as it has
FEW = 0.1  # share of the working set that is not worth leaving
TO_BOUNDARY = 0.99  # share of the longest step
LEAST_CENTRING = 1e-4
ACCURACY = 0.03  # of the linear algebra, relative to the gap
FAR_AHEAD = 0.01  # of the mean product of slack and price: what is left at the end of a step that is only tried
TOO_SHORT = 0.1  # a step after which the correction is doubted
STALLED = 1e-6  # a step that leads nowhere
SOFT = 1e4  # x' diag(h) x / E above which an observation is kept to the end
FEW_FEATURES = 0.8  # features per observation up to which they are eliminated
FIRST_LIFT, LAST_LIFT = 1e-14, 1e-6  # growth of a diagonal that rounding has spoilt
REFINEMENTS = 6
MANY_OBSERVATIONS = 4000  # more than these are not put into one matrix for the sake of accuracy
SCORE, RADIUS, UP, DOWN, PRICE_UP, PRICE_DOWN = range(6)  # of the entries; up and down are slacks
BALL, PRICE_BALL = range(2)  # of the rows; ball is a slack
OWN, SHARED, SLOPE, CURVATURE, STIFFNESS = range(5)  # of a response
PULL, FORCE, AIM_UP, AIM_DOWN = range(4)  # of a pull
SHORTER = 0.95  # factor on a step that leaves a curved ball


class BreakdownError(ArithmeticError):
    """Rounding errors have caught up with the method."""


# ---------------------------------------------------------------------- columns of the working set


class WorkingColumns:
    """The features of some rows of a problem: dense, in double precision, centred within tasks.

    Centring changes nothing but the intercept, since the dual variables of a task sum to 0, and it makes scores accurate
    for features far from 0. Arrays over features are (k, m); arrays over rows are (R, K), as `priors.blocks` lays them
    out.
    """

    def __init__(self, problem: Problem, rows: IntArray) -> None:
        data, row_of_feature = problem.data, problem.blocks.row_of_feature
        self.fit_intercept = problem.fit_intercept
        self.spans, self.offsets, self.task = data.spans, data.offsets, data.task
        self.grouped = data.groups is not None
        self.features = np.flatnonzero(np.isin(row_of_feature, rows)) if self.grouped else rows
        self.n_tasks = data.n_tasks
        chosen = row_of_feature[self.features]
        present = None if data.present is None else data.present[self.features]
        self.blocks = Blocks(
            len(self.features),
            data.n_tasks,
            groups=chosen if self.grouped else None,
            present=present,
            # BallRows keep their length while larger groups come and go
            features_per_row=int(np.bincount(row_of_feature).max()) if self.grouped else 1,
        )
        self.row = np.searchsorted(rows, chosen)  # (k,) place of each feature's row among the rows
        self.complete = data.is_complete and present is None
        self.means = np.zeros((len(self.features), data.n_tasks))  # what was taken off
        self.designs = self._designs(problem, present)
        self.squares = [X * X for X in self.designs[: 1 if self.complete else None]]

    def _designs(self, problem: Problem, present: BoolArray | None) -> list[FloatArray]:
        data = problem.data
        chosen = data.design[:, self.features]
        chosen = chosen.toarray() if sp.issparse(chosen) else chosen
        if self.complete:
            return [self._centred(chosen, slice(None))] * data.n_tasks
        parts = [chosen[data.rows[start:stop]] for start, stop in data.spans]
        if present is not None:
            parts = [X * present[:, t] for t, X in enumerate(parts)]
        return [self._centred(X, slice(t, t + 1)) for t, X in enumerate(parts)]

    def _centred(self, X: FloatArray, tasks: slice) -> FloatArray:
        X = np.asarray(X, dtype=np.float64)
        if self.fit_intercept:
            means = X.mean(axis=0)
            self.means[:, tasks] = means[:, np.newaxis]
            X = X - means
        return np.asfortranarray(X)

    # ------------------------------------------------------------------ products

    def predictor(self, W: FloatArray) -> FloatArray:
        """(N,) Linear predictor, without intercept, of coefficients (k, m)."""
        if self.complete:
            return (W.T @ self.designs[0].T).ravel()
        return np.concatenate([X @ W[:, t] for t, X in enumerate(self.designs)])

    def adjoint(self, theta: FloatArray) -> FloatArray:
        """(k, m) Sums over each task's observations of x times theta."""
        if self.complete:
            return (theta.reshape(self.n_tasks, -1) @ self.designs[0]).T
        parts = zip(self.designs, self.spans, strict=True)
        return np.stack([theta[start:stop] @ X for X, (start, stop) in parts], axis=1)

    def quadratic_forms(self, own: FloatArray) -> FloatArray:
        """(N,) ``x' diag(h_t) x`` for every observation, with own = h (k, m)."""
        if self.complete:
            return (own.T @ self.squares[0].T).ravel()
        return np.concatenate([squares @ own[:, t] for t, squares in enumerate(self.squares)])

    def scores(self, theta: FloatArray) -> FloatArray:
        """(R, K) Scores of the rows."""
        return np.ascontiguousarray(self.blocks.gather(self.adjoint(theta)))

    def task_sums(self, values: FloatArray) -> FloatArray:
        """(m,) Sum of (N,) values over the observations of each task."""
        sums: FloatArray = np.add.reduceat(values, self.offsets[:-1])
        return sums

    def without_means(self, values: FloatArray) -> FloatArray:
        """(N,) Values minus their mean over each task."""
        if self.complete:
            by_task = values.reshape(self.n_tasks, -1)
            return (by_task - by_task.mean(axis=1, keepdims=True)).ravel()
        return np.concatenate([values[start:stop] - values[start:stop].mean() for start, stop in self.spans])

    # ------------------------------------------------------------------ rows and features

    def features_of(self, entries: FloatArray) -> FloatArray:
        """(k, m) Numbers of the features, from numbers of the rows (R, K)."""
        return self.blocks.scatter(entries)

    def spread(self, values: FloatArray) -> FloatArray:
        """(k,) Number of each feature's row, from numbers of the rows (R,)."""
        return values[self.row]

    def sum_to_row(self, values: FloatArray) -> FloatArray:
        """(R,) Sums over the features of each row, of numbers (k,)."""
        return np.bincount(self.row, weights=values, minlength=self.blocks.n_rows) if self.grouped else values

    def sum_columns_to_rows(self, X: FloatArray) -> FloatArray:
        """(n, R) Sums over the columns that belong to each row, of a matrix (n, k)."""
        if not self.grouped:
            return X
        member = np.equal.outer(self.row, np.arange(self.blocks.n_rows)).astype(np.float64)
        return X @ member

    def sum_to_rows(self, lower: FloatArray) -> FloatArray:
        """(R, R) Lower triangle, of a matrix between features of which the lower triangle is given."""
        if not self.grouped:
            return lower
        full = np.tril(lower) + np.tril(lower, -1).T
        return np.asfortranarray(self.sum_columns_to_rows(self.sum_columns_to_rows(full).T))


# ---------------------------------------------------------------------- rows inside their dual balls


class Ball(NamedTuple):
    """Shape of the dual balls of R rows, for every q in [1, inf].

    For the penalty ``lam (r ||w||_1 + ||w||_q)`` with ``1/q + 1/q* = 1`` the dual ball is the set of rows g for which
    there are radii c with

        |g_t| <= lam (r + c_t)  for every entry t,      sum_t c_t^q* <= 1.

    These are two linear constraints per entry and one smooth convex constraint per row: linear at q = inf (q* = 1), a
    sphere at q = 2, and no constraint with radii fixed at 1 at q = 1 (q* = inf). The prices (Lagrange multipliers) of
    the two sides of an entry are the coefficients: ``w_t = price_down_t - price_up_t``. The interval of a dual variable
    is such a ball too, with one entry, and its coefficient is the residual of the observation.
    """

    strength: FloatArray  # (R,) lam
    sparsity: FloatArray  # (R,) r
    exponent: float  # q*

    def take(self, rows: IntArray) -> "Ball":
        """Return the balls of some rows."""
        return Ball(self.strength[rows], self.sparsity[rows], self.exponent)


class BallRows(NamedTuple):
    """R rows of K entries strictly inside their balls, or a change of them."""

    entries: FloatArray  # (6, R, K)
    balls: FloatArray  # (2, R)

    @property
    def coefficients(self) -> FloatArray:
        """(R, K) Coefficients w that belong to the prices."""
        return self.entries[PRICE_DOWN] - self.entries[PRICE_UP]

    @property
    def slack(self) -> FloatArray:
        """(R, K) Distance of the scores from the nearer end."""
        return np.minimum(self.entries[UP], self.entries[DOWN])

    @property
    def n_constraints(self) -> int:
        """Number of products ``slack * price``."""
        return 2 * self.entries[UP].size + int(np.count_nonzero(self.balls[PRICE_BALL]))


class Lengths(NamedTuple):
    """How far a step goes in the slacks and in the prices; they need not go equally far."""

    slack: float
    price: float


class Response(NamedTuple):
    """How coefficients answer to scores.

    A Newton step linearises ``slack * price = aim`` for every constraint. Radii and prices are eliminated row by row,
    and what is left is ``-(w + dw) = pull + H dg`` with ``H = diag(own) + weight shared shared'``. Everything is written
    so that no large numbers cancel near the solution, where slacks vanish.
    """

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


def enter(score: FloatArray, ball: Ball, product: float) -> BallRows:
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
    return BallRows(entries, balls)


def raise_prices(rows: BallRows, coefficients: FloatArray) -> None:
    """Raise prices to at least what coefficients of this size need."""
    prices = rows.entries[PRICE_UP:]
    np.maximum(prices, [-coefficients, coefficients], out=prices)


def advance(rows: BallRows, change: BallRows, lengths: Lengths, score: FloatArray, ball: Ball) -> BallRows:
    """BallRows after a step, with slacks computed afresh from the scores given."""
    entries, balls = np.empty(rows.entries.shape), np.empty(rows.balls.shape)
    _place(entries, balls, score, rows.entries[RADIUS] + lengths.slack * change.entries[RADIUS], ball)
    entries[PRICE_UP:] = rows.entries[PRICE_UP:] + lengths.price * change.entries[PRICE_UP:]
    balls[PRICE_BALL] = rows.balls[PRICE_BALL] + lengths.price * change.balls[PRICE_BALL]
    return BallRows(entries, balls)


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


def longest_steps(rows: BallRows, change: BallRows, exponent: float, longest: Lengths) -> Lengths:
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


def complementarity(rows: BallRows, change: BallRows, lengths: Lengths) -> float:
    """Sum of ``slack * price`` after a step, with slacks that change linearly."""
    return float(_complementarity(*rows, *change, *lengths))


def respond(rows: BallRows, ball: Ball) -> Response:
    """Eliminate radii and prices from the linearised constraints."""
    response = Response(np.zeros((5, *rows.entries.shape[1:])), np.zeros(rows.balls.shape[1]))
    _respond(*rows, ball.strength, ball.exponent, *response)
    return response


def pull(rows: BallRows, ball: Ball, response: Response, product: float, before: BallRows | None = None) -> Pull:
    """Coefficients at which ``slack * price = product`` while the scores stay.

    With an earlier step ``before``, its second-order terms are corrected (Mehrotra 1992, *SIAM Journal on Optimization*
    2:575-601, here with the curvature of the ball).
    """
    second = 0.0 if before is None else 1.0
    result = Pull(np.zeros((4, *rows.entries.shape[1:])), np.zeros(rows.balls.shape[1]))
    _pull(*rows, ball.strength, ball.exponent, *response, product, second, *(before or rows), *result)
    return result


def move(rows: BallRows, ball: Ball, response: Response, pulled: Pull, score: FloatArray) -> BallRows:
    """Change of everything in the rows that belongs to a change of their scores."""
    change = BallRows(np.zeros(rows.entries.shape), np.zeros(rows.balls.shape))
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
    entries: FloatArray, balls: FloatArray, change: FloatArray, balls_change: FloatArray, slack: float, price: float
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
            curvature = balls[PRICE_BALL, i] * curve
            stiffness = squared * (up + down) + curvature
            response[OWN, i, t] = ((up + down) * curvature + 4.0 * squared * up * down) / stiffness
            response[SHARED, i, t] = strength[i] * (down - up) * slope / stiffness
            response[SLOPE, i, t] = slope
            response[CURVATURE, i, t] = curvature
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
        curved = 0.0
        for t in range(entries.shape[2]):
            slope, curve, third = _power(entries[RADIUS, i, t], exponent)
            change = before[RADIUS, i, t]
            curved += curve * change * change
            curving = (
                balls_before[PRICE_BALL, i] * curve * change + 0.5 * balls[PRICE_BALL, i] * third * change * change
            )
            result[FORCE, i, t] = second * curving - strength[i] * (result[AIM_UP, i, t] + result[AIM_DOWN, i, t])
        correction = balls_before[BALL, i] * balls_before[PRICE_BALL, i] - 0.5 * balls[PRICE_BALL, i] * curved
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
                stiffness, curvature, slope = (
                    response[STIFFNESS, i, t],
                    response[CURVATURE, i, t],
                    response[SLOPE, i, t],
                )
                push = slope * total - pulled[FORCE, i, t]
                up = (strength[i] * push - score * (2.0 * squared * rate_down + curvature)) / stiffness
                down = (strength[i] * push + score * (2.0 * squared * rate_up + curvature)) / stiffness
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


# ---------------------------------------------------------------------- linear algebra of one task


class SoftPart(NamedTuple):
    """Observations of one task that are kept to the end, and the factor of their system G."""

    task: int
    place: IntArray  # among all observations
    lower: FloatArray  # Cholesky factor of G
    half: FloatArray  # (s, k) its inverse times X diag(r) K^-1


class FeatureSystems:
    """Tasks with fewer features than observations: ``(diag(E) + X diag(h) X') x + b = f, sum of x = 0`` for each.

    Near the solution E runs over many orders of magnitude: it vanishes for observations at a kink of the loss and grows
    without bound for all others. The normal equations, in features alone, then lose all digits. Eliminated are first
    the observations with large E, then the intercept, then the features, and the few observations at a kink last.
    Solved in two halves around the system of the rows: `press` remembers a right hand side and says how it presses on
    the rows, `release` fills in the solution once the forces between the tasks are known.

    With r^2 = h and weights 1/E, X centred by them: ``K = I + diag(r) X' E^-1 X diag(r)`` without the soft
    observations, those with small E. They follow as ``G = diag(E) + 1 1' / sum(1/E) + X diag(r) K^-1 diag(r) X'``.
    Arrays over features have a line per task, (m, k); lines of tasks that belong to other systems stay 0.

    Parameters
    ----------
    columns : features of the working set
    E : (N,) curvature of each observation
    own, shared : (k, m) h and u of every feature and task
    tasks : numbers of the tasks
    coupling : (k, k) lower triangle, in Fortran order, to which the sum of ``diag(u) X' P X diag(u)`` is added
    """

    def __init__(
        self,
        columns: WorkingColumns,
        E: FloatArray,
        own: FloatArray,
        shared: FloatArray,
        tasks: IntArray,
        coupling: FloatArray,
    ) -> None:
        self.columns = columns
        self.tasks: IntArray | slice = tasks if len(tasks) < columns.n_tasks else slice(None)
        self.root = np.sqrt(own.T, order="C")
        self.ratio = np.divide(shared.T, self.root, order="C")
        self.inverse = self._inverse(E, columns.quadratic_forms(own), tasks)
        self.total = np.full(columns.n_tasks, np.inf)
        if columns.fit_intercept:
            self.total[self.tasks] = columns.task_sums(self.inverse)[self.tasks]
        self.means = np.divide(columns.adjoint(self.inverse).T, self.total[:, np.newaxis], order="C")
        self.K_inverse = np.empty((len(tasks), *coupling.shape))
        self.soft: list[SoftPart] = []
        weight, is_soft = np.sqrt(self.inverse), self.inverse == 0.0
        for place, t in enumerate(tasks.tolist()):
            K_inverse = self._factorised(t, weight)
            if is_soft[slice(*columns.spans[t])].any():
                K_inverse = self._with_soft(t, K_inverse, E)
            _unfold(K_inverse.T, self.ratio[t], self.K_inverse[place], coupling.T)

    def _inverse(self, E: FloatArray, size: FloatArray, tasks: IntArray) -> FloatArray:
        """(N,) 1/E, but 0 for soft observations: all with small E, though never all of a task."""
        columns = self.columns
        inverse = np.where(size > SOFT * E, 0.0, 1.0 / E)
        for t in tasks[columns.task_sums(inverse)[tasks] == 0.0].tolist():
            start, stop = columns.spans[t]
            hardest = start + int(np.argmax(E[start:stop] / size[start:stop]))
            inverse[hardest] = 1.0 / E[hardest]
        if len(tasks) < columns.n_tasks:
            inverse[~np.isin(columns.task, tasks)] = 0.0
        return inverse

    def _factorised(self, t: int, weight: FloatArray) -> FloatArray:
        """Lower triangle of ``K^-1``, without the soft observations."""
        X, (start, stop) = self.columns.designs[t], self.columns.spans[t]
        weighted = np.empty_like(X)
        _weigh(X.T, self.means[t], weight[start:stop], self.root[t], weighted.T)
        K_inverse: FloatArray = dpotri(cholesky(gram(weighted), 1.0), lower=1, overwrite_c=1)[0]
        return K_inverse

    def _with_soft(self, t: int, K_inverse: FloatArray, E: FloatArray) -> FloatArray:
        """Lower triangle of ``K^-1`` with the soft observations, which are eliminated."""
        start, stop = self.columns.spans[t]
        soft = np.flatnonzero(self.inverse[start:stop] == 0.0)
        scaled = (self.columns.designs[t][soft] - self.means[t]) * self.root[t]
        product = dsymm(1.0, K_inverse, scaled.T, lower=1)
        lower = cholesky(np.asfortranarray(scaled @ product) + 1.0 / self.total[t], E[start + soft])
        half: FloatArray = dtrsm(1.0, lower, product.T, lower=1)
        self.soft.append(SoftPart(t, start + soft, lower, half))
        updated: FloatArray = dsyrk(-1.0, half, beta=1.0, c=K_inverse, trans=1, lower=1, overwrite_c=1)
        return updated

    def press(self, f: FloatArray) -> FloatArray:
        """(k,) Sum of ``diag(u) X' P f``; P solves the system of a task, u is its part of the rows."""
        columns = self.columns
        self.f, weighted = _centred(f, self.inverse, self.total, columns.offsets)
        self.known = self.root * columns.adjoint(weighted).T
        self.f_soft = [dtrsv(part.lower, self.f[part.place], lower=1) for part in self.soft]
        pressed: FloatArray = (self.ratio * self._answer(self.known)).sum(axis=0)
        return pressed

    def release(self, forces: FloatArray, x: FloatArray) -> None:
        """Write ``P (f - X diag(u) forces)`` into x at the observations of the tasks."""
        columns, known = self.columns, self.known + self.ratio * forces
        scaled = self.root * self._answer(known)
        constant = np.vecdot(self.means, scaled)
        x_soft = [
            dtrsv(part.lower, f - part.half @ known[part.task], lower=1, trans=1)
            for part, f in zip(self.soft, self.f_soft, strict=True)
        ]
        for part, values in zip(self.soft, x_soft, strict=True):
            constant[part.task] -= values.sum() / self.total[part.task]
        _fill(x, self.inverse, self.f, columns.predictor(scaled.T), constant, columns.offsets)
        for part, values in zip(self.soft, x_soft, strict=True):
            x[part.place] = values

    def _answer(self, known: FloatArray) -> FloatArray:
        """(m, k) ``K^-1 known``, and what the soft observations add."""
        answer = np.zeros(known.shape)
        answer[self.tasks] = (self.K_inverse @ known[self.tasks, :, np.newaxis])[:, :, 0]
        for part, f in zip(self.soft, self.f_soft, strict=True):
            answer[part.task] += f @ part.half
        return answer


class ObservationSystem:
    """A task with about as many features as observations, or more: its matrix is factorised as it stands."""

    def __init__(self, columns: WorkingColumns, E: FloatArray, own: FloatArray, shared: FloatArray, task: int) -> None:
        self.X, self.u, self.span = columns.designs[task], shared[:, task], slice(*columns.spans[task])
        self.lower = cholesky(gram((self.X * np.sqrt(own[:, task])).T), E[self.span])
        self.constant = self._solve(np.ones(len(self.X)))
        self.total = float(self.constant.sum()) if columns.fit_intercept else np.inf

    def coupling(self) -> FloatArray:
        """Lower triangle of ``diag(u) X' P X diag(u)``."""
        scaled = self.X * self.u
        product = dsyrk(1.0, dtrsm(1.0, self.lower, scaled, lower=1), trans=1, lower=1)
        column = self.constant @ scaled
        return product - np.outer(column, column / self.total)

    def press(self, f: FloatArray) -> FloatArray:
        """(k,) ``diag(u) X' P f``."""
        self.f = f[self.span]
        return self.u * (self._project(self.f) @ self.X)

    def release(self, forces: FloatArray, x: FloatArray) -> None:
        """``P (f - X diag(u) forces)``."""
        x[self.span] = self._project(self.f - self.X @ (self.u * forces))

    def _project(self, f: FloatArray) -> FloatArray:
        x = self._solve(f)
        return x - self.constant * (x.sum() / self.total)

    def _solve(self, f: FloatArray) -> FloatArray:
        x: FloatArray = dpotrs(self.lower, f, lower=1)[0]
        return x


@njit(cache=True, error_model="numpy")
def _centred(f: FloatArray, weight: FloatArray, total: FloatArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """(N,) Numbers minus the weighted mean of their task, and those times the weight."""
    centred, weighted = np.empty_like(f), np.empty_like(f)
    for t in range(len(total)):
        mean = 0.0
        for i in range(offsets[t], offsets[t + 1]):
            mean += weight[i] * f[i]
        mean /= total[t]
        for i in range(offsets[t], offsets[t + 1]):
            centred[i] = f[i] - mean
            weighted[i] = weight[i] * centred[i]
    return centred, weighted


@njit(cache=True, error_model="numpy")
def _weigh(X: FloatArray, means: FloatArray, left: FloatArray, right: FloatArray, result: FloatArray) -> None:
    """``diag(left) (X - means) diag(right)``, X and the result transposed."""
    for j in range(X.shape[0]):
        for i in range(X.shape[1]):
            result[j, i] = left[i] * (X[j, i] - means[j]) * right[j]


@njit(cache=True, error_model="numpy")
def _fill(
    x: FloatArray, weight: FloatArray, f: FloatArray, predictor: FloatArray, constant: FloatArray, offsets: IntArray
) -> None:
    """Add ``weight (f - predictor + constant)``."""
    for t in range(len(constant)):
        for i in range(offsets[t], offsets[t + 1]):
            x[i] += weight[i] * (f[i] - predictor[i] + constant[t])


@njit(cache=True, error_model="numpy")
def _unfold(upper: FloatArray, ratio: FloatArray, full: FloatArray, coupling: FloatArray) -> None:
    """Write K^-1 in full, and add ``diag(u/r) (I - K^-1) diag(u/r)`` to the upper triangle of coupling."""
    for i in range(len(upper)):
        coupling[i, i] += ratio[i] * ratio[i]
        for j in range(i, len(upper)):
            value = upper[i, j]
            full[i, j] = value
            full[j, i] = value
            coupling[i, j] -= ratio[i] * value * ratio[j]


def gram(Y: FloatArray) -> FloatArray:
    """Lower triangle of ``Y' Y``, in Fortran order."""
    product: FloatArray = dsyrk(1.0, Y, trans=1, lower=1) if Y.flags.f_contiguous else dsyrk(1.0, Y.T, lower=1)
    return product


def cholesky(matrix: FloatArray, diagonal: FloatArray | float) -> FloatArray:
    """Lower Cholesky factor of a matrix (its lower triangle) plus a diagonal.

    Where rounding has made it indefinite the diagonal grows a little: refinement makes up for that.
    """
    matrix.ravel(order="K")[:: len(matrix) + 1] += diagonal
    lower: FloatArray
    lower, info = dpotrf(matrix, lower=1, clean=0)
    lift = FIRST_LIFT
    while info != 0 and lift < LAST_LIFT:
        entries = np.diagonal(matrix)
        lifted = matrix + np.diag(lift * np.abs(entries))
        lower, info = dpotrf(np.asfortranarray(lifted), lower=1, clean=0)
        lift *= 10.0
    if info != 0 or not np.isfinite(lower[-1, -1]):
        raise BreakdownError(f"a matrix of size {len(matrix)} is not positive definite")
    return lower


# ---------------------------------------------------------------------- linear algebra of all tasks


class TaskByTask:
    """The whole system, from those of the tasks and one for the rows that couple them."""

    def __init__(
        self, columns: WorkingColumns, E: FloatArray, own: FloatArray, shared: FloatArray, weight: FloatArray
    ) -> None:
        self.columns, self.coupled = columns, bool(shared.any())
        n_features = len(columns.features)
        few = n_features < FEW_FEATURES * np.diff(columns.offsets)
        coupling = np.zeros((n_features, n_features), order="F")
        self.systems: list[FeatureSystems | ObservationSystem] = []
        if few.any():
            self.systems.append(FeatureSystems(columns, E, own, shared, np.flatnonzero(few), coupling))
        for t in np.flatnonzero(~few).tolist():
            system = ObservationSystem(columns, E, own, shared, t)
            self.systems.append(system)
            if self.coupled:
                coupling += system.coupling()
        if self.coupled:
            self.lower = cholesky(columns.sum_to_rows(coupling), 1.0 / weight)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Solution, without refinement."""
        columns = self.columns
        pressed = sum((system.press(f) for system in self.systems), start=np.zeros(len(columns.features)))
        forces = np.zeros(len(columns.features))
        if self.coupled:
            rows, _ = dpotrs(self.lower, columns.sum_to_row(pressed), lower=1)
            forces = columns.spread(rows)
        x = np.zeros(len(f))
        for system in self.systems:
            system.release(forces, x)
        return x


class AllAtOnce:
    """The whole system as one matrix (N, N): more accurate, and cheaper where there are more rows than observations."""

    def __init__(
        self, columns: WorkingColumns, E: FloatArray, own: FloatArray, shared: FloatArray, weight: FloatArray
    ) -> None:
        spread = np.concatenate([X * shared[:, t] for t, X in enumerate(columns.designs)])
        matrix = gram((columns.sum_columns_to_rows(spread) * np.sqrt(weight)).T)
        for t, (X, (start, stop)) in enumerate(zip(columns.designs, columns.spans, strict=True)):
            matrix[start:stop, start:stop] += gram((X * np.sqrt(own[:, t])).T)
        self.lower = cholesky(matrix, E)
        self.constants = np.zeros((len(E), columns.n_tasks * columns.fit_intercept))
        for t in range(self.constants.shape[1]):
            self.constants[slice(*columns.spans[t]), t] = 1.0
        self.solved_constants = self._solve(self.constants)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Solution, without refinement."""
        x = self._solve(f)
        intercepts = np.linalg.solve(self.constants.T @ self.solved_constants, self.constants.T @ x)
        return x - self.solved_constants @ intercepts

    def _solve(self, f: FloatArray) -> FloatArray:
        x: FloatArray = dpotrs(self.lower, f, lower=1)[0]
        return x


class NewtonSystem:
    """The factorised system of one interior-point step, for several right hand sides.

    The step in the dual variables x solves, with a multiplier b per task for the intercept,

        (diag(E) + X H X') x + b = f,      sum of x over each task = 0,

    where X' x collects the scores of all rows over all tasks and H is that of `Response`. Without its outer products the
    tasks fall apart; they come back through the Woodbury identity, as a system with one unknown per row.

    Parameters
    ----------
    columns : features of the working set
    E : (N,) curvature of each observation
    response : how coefficients answer to scores
    accuracy : residual of a solution, relative to the right hand side, that needs no refinement

    Raises
    ------
    BreakdownError
        If a slack is 0 or less, so that there is no such system.
    """

    def __init__(self, columns: WorkingColumns, E: FloatArray, response: Response, accuracy: float) -> None:
        self.columns, self.E, self.weight, self.accuracy = columns, E, response.weight, accuracy
        own, self.shared = columns.features_of(response.own), columns.features_of(response.shared)
        self.own = np.where(own > 0.0, own, 1.0)  # 0 for features that a task does not have: their columns are 0
        if not (E.min() > 0.0 and np.isfinite(E.sum() + self.own.sum() + self.shared.sum())):
            raise BreakdownError("rounding has used up the slack of a constraint")
        all_at_once = self.shared.any() and columns.blocks.n_rows > len(E)
        self._factorise(AllAtOnce if all_at_once else TaskByTask)

    def _factorise(self, kind: type[AllAtOnce] | type[TaskByTask]) -> None:
        self.factorised = kind(self.columns, self.E, self.own, self.shared, self.weight)

    def solve(self, f: FloatArray) -> FloatArray:
        """(N,) Change x of the dual variables for a right hand side f."""
        x, accurate = self._refined(f)
        if not accurate and isinstance(self.factorised, TaskByTask) and len(f) <= MANY_OBSERVATIONS:
            self._factorise(AllAtOnce)
            x, _ = self._refined(f)
        return x

    def _refined(self, f: FloatArray) -> tuple[FloatArray, bool]:
        """Solution, refined as long as that helps, and whether it is accurate."""
        x = self.factorised.solve(f)
        allowed = self.accuracy * float(np.abs(f).max())
        residual = self._residual(f, x)
        size = float(np.abs(residual).max())
        for _ in range(REFINEMENTS):
            if size <= allowed:
                break
            refined = x + self.factorised.solve(residual)
            residual = self._residual(f, refined)
            left = float(np.abs(residual).max())
            if not left < size:
                break
            x, size = refined, left
        return x, size <= allowed

    def _residual(self, f: FloatArray, x: FloatArray) -> FloatArray:
        """What is missing; the intercepts are whatever makes it sum to 0 over a task."""
        columns = self.columns
        scores = columns.adjoint(x)
        radial = columns.spread(self.weight * columns.sum_to_row(np.vecdot(self.shared, scores)))
        residual = f - self.E * x - columns.predictor(self.own * scores + self.shared * radial[:, np.newaxis])
        return columns.without_means(residual) if columns.fit_intercept else residual


# ---------------------------------------------------------------------- steps


class InteriorSetup(NamedTuple):
    """What stays the same."""

    problem: Problem
    centre: FloatArray  # (N,) middle of the interval of each dual variable
    intervals: Ball  # of N rows with one entry
    ball: Ball  # of all rows


class InteriorState(NamedTuple):
    """What changes from step to step."""

    observations: BallRows  # theta minus the centre of its interval
    intercept: FloatArray  # (m,)
    working: IntArray  # numbers of the rows that take part
    ball: Ball  # their dual balls
    columns: WorkingColumns  # their features
    rows: BallRows
    scores: FloatArray  # (p, m) X' theta
    levels: FloatArray  # (R,) dual norm of every row over the penalty strength: 1 on the boundary

    def theta(self, setup: InteriorSetup) -> FloatArray:
        """(N,) Dual point, inside its intervals in spite of rounding."""
        kinks = setup.problem.kinks
        return np.clip(setup.centre + self.observations.entries[SCORE, :, 0], kinks.left, kinks.right)

    @property
    def n_constraints(self) -> int:
        """Number of products ``slack * price``."""
        return self.observations.n_constraints + self.rows.n_constraints


class Change(NamedTuple):
    """A step, before its length is chosen."""

    theta: FloatArray
    observations: BallRows
    rows: BallRows


class Linearised:
    """A state, the Newton system there, and the step that it predicts.

    Parameters
    ----------
    setup : the problem
    state : the state
    gap : relative gap so far, which the linear algebra goes by
    """

    def __init__(self, setup: InteriorSetup, state: InteriorState, gap: float) -> None:
        self.setup, self.state, self.gap = setup, state, gap
        self.product = mean_product(state)
        if not np.isfinite(self.product):
            raise BreakdownError(f"the mean product of slack and price is {self.product}")
        self.residuals = respond(state.observations, setup.intervals)
        self.coefficients = respond(state.rows, state.ball)
        accuracy = ACCURACY * min(gap, 1.0)
        self.system = NewtonSystem(state.columns, self.residuals.own[:, 0], self.coefficients, accuracy)
        self.predictor = self.change_to(0.0)

    def ahead(self) -> tuple[FloatArray, FloatArray]:
        """Dual point (N,) and coefficients (R, K) at the end of a full corrected step, almost at the solution.

        BallRows may end outside their balls: the dual point has to be scaled. That costs little where balls are curved,
        while the next state has to stay inside and cannot go as far.
        """
        state, change = self.state, self.change_to(FAR_AHEAD * self.product, self.predictor)
        within = longest_steps(state.observations, change.observations, np.inf, Lengths(1.0, 1.0))
        inside = state.observations.entries[SCORE, :, 0] + within.slack * change.theta
        kinks = self.setup.problem.kinks
        theta = np.clip(self.setup.centre + inside, kinks.left, kinks.right)
        return theta, state.rows.coefficients + within.price * change.rows.coefficients

    def change_to(self, product: float, before: Change | None = None) -> Change:
        """Newton step towards ``slack * price = product``, corrected by the second-order terms of an earlier one."""
        setup, state = self.setup, self.state
        problem, columns = setup.problem, state.columns
        before_observations, before_rows = (None, None) if before is None else (before.observations, before.rows)
        pulled = pull(state.rows, state.ball, self.coefficients, product, before_rows)
        pulled_observations = pull(state.observations, setup.intervals, self.residuals, product, before_observations)
        predictor = columns.predictor(columns.features_of(pulled.entries[PULL]))
        wanted = state.intercept[problem.data.task] - problem.kinks.place - predictor
        theta = self.system.solve(wanted - pulled_observations.entries[PULL, :, 0])
        rows = move(state.rows, state.ball, self.coefficients, pulled, columns.scores(theta))
        observations = move(
            state.observations, setup.intervals, self.residuals, pulled_observations, theta[:, np.newaxis]
        )
        return Change(theta, observations, rows)


def levels(problem: Problem, scores: FloatArray) -> FloatArray:
    """(R,) Dual norm of every row of scores (p, m) over the penalty strength."""
    return problem.penalty.dual_norm(problem.blocks.gather(scores)) / problem.penalty.strength


def mean_product(state: InteriorState, change: Change | None = None, lengths: Lengths = Lengths(0.0, 0.0)) -> float:
    """Mean of ``slack * price`` over all constraints, now or after a step."""
    observations, rows = (state.observations, state.rows) if change is None else (change.observations, change.rows)
    total = complementarity(state.observations, observations, lengths)
    total += complementarity(state.rows, rows, lengths)
    return total / state.n_constraints


def step(linearised: Linearised, floor: float) -> InteriorState:
    """Correct the predicted step, and go as far as the constraints allow; no product need fall below the floor.

    Raises
    ------
    BreakdownError
        If rounding errors allow no further progress.
    """
    setup, state, predictor = linearised.setup, linearised.state, linearised.predictor
    product = linearised.product
    left = mean_product(state, predictor, _lengths(setup, state, predictor)) / product
    target = max(min(max(left**3, LEAST_CENTRING), 1.0) * product, floor)
    change = linearised.change_to(target, predictor)
    lengths = _lengths(setup, state, change, TO_BOUNDARY)
    for safer in (target, product):  # without the correction, and then towards the middle only
        if min(lengths) >= TOO_SHORT:
            break
        plain = linearised.change_to(safer)
        plain_lengths = _lengths(setup, state, plain, TO_BOUNDARY)
        if min(plain_lengths) > min(lengths):
            change, lengths = plain, plain_lengths
    if not min(lengths) > STALLED:
        raise BreakdownError(f"the step has length {min(lengths)}")
    return _advance(setup, state, change, lengths, linearised.gap)


def _lengths(setup: InteriorSetup, state: InteriorState, change: Change, share: float = 1.0) -> Lengths:
    """Longest steps that keep all slacks and prices positive, or a share of them, but no more than full steps."""
    full = Lengths(1.0 / share, 1.0 / share)
    longest = longest_steps(state.observations, change.observations, setup.intervals.exponent, full)
    longest = longest_steps(state.rows, change.rows, state.ball.exponent, longest)
    return Lengths(min(1.0, share * longest.slack), min(1.0, share * longest.price))


def _advance(setup: InteriorSetup, state: InteriorState, change: Change, lengths: Lengths, gap: float) -> InteriorState:
    """Take a step, shortened where a row outside the working set would come too close to its boundary."""
    problem, columns = setup.problem, state.columns
    scores_change = problem.data.adjoint(change.theta)
    then = levels(problem, state.scores + lengths.slack * scores_change)
    outside = np.ones(len(then), dtype=bool)
    outside[state.working] = False
    leave = 1.0 - RETREAT * np.sqrt(gap)
    join = max(NEAR, 0.5 * (1.0 + leave))
    limit = 0.5 * (1.0 + max(join, float(np.max(state.levels[outside], initial=0.0))))
    blocking = outside & (then > limit)
    if blocking.any():
        # levels are convex along the step
        now = state.levels[blocking]
        share = float(np.min((limit - now) / (then[blocking] - now)))
        lengths = Lengths(share * lengths.slack, lengths.price)
        then = levels(problem, state.scores + lengths.slack * scores_change)
    theta = state.theta(setup) + lengths.slack * change.theta
    inside = (theta - setup.centre)[:, np.newaxis]
    moved = state._replace(
        observations=advance(state.observations, change.observations, lengths, inside, setup.intervals),
        intercept=state.intercept + lengths.price * _intercept_change(setup, state, change),
        rows=advance(state.rows, change.rows, lengths, columns.scores(theta), state.ball),
        scores=state.scores + lengths.slack * scores_change,
        levels=then,
    )
    joining = _largest(np.where(outside & (blocking | (then > join)), then, 0.0), max(SOME_ROWS, len(state.working)))
    return _with_working(setup, moved, joining, leave)


def _largest(values: FloatArray, count: int) -> BoolArray:
    """Mark the positive values, or the largest of them if there are more than count."""
    if np.count_nonzero(values) <= count:
        return values > 0.0
    return values >= np.partition(values, -count)[-count]


def _intercept_change(setup: InteriorSetup, state: InteriorState, change: Change) -> FloatArray:
    """(m,) Change of the intercepts that belongs to a full step: residuals are what observations and rows say they are."""
    problem, columns = setup.problem, state.columns
    if not problem.fit_intercept:
        return np.zeros_like(state.intercept)
    coefficients = columns.features_of(state.rows.coefficients + change.rows.coefficients)
    residuals = (state.observations.coefficients + change.observations.coefficients)[:, 0]
    constants = problem.kinks.place - columns.predictor(coefficients) - residuals
    return problem.task_sums(constants) / np.diff(problem.data.offsets) - state.intercept


def _with_working(setup: InteriorSetup, state: InteriorState, joining: BoolArray, leave: float) -> InteriorState:
    """Change the working set; rows that stay keep their prices.

    BallRows leave that are both far from their boundary and small, each compared with the row that is furthest in it.
    """
    distance = 1.0 - state.levels[state.working]
    sizes = np.max(np.abs(state.rows.coefficients), axis=1)
    staying = (distance <= 1.0 - leave) | (sizes >= distance * sizes.max())
    if not joining.any() and np.mean(~staying) <= FEW:
        return state
    joining[state.working[staying]] = True
    working = np.flatnonzero(joining)
    ball, columns = setup.ball.take(working), WorkingColumns(setup.problem, working)
    rows = enter(columns.scores(state.theta(setup)), ball, mean_product(state))
    _, new, old = np.intersect1d(working, state.working, assume_unique=True, return_indices=True)
    rows.entries[:, new], rows.balls[:, new] = state.rows.entries[:, old], state.rows.balls[:, old]
    return state._replace(working=working, ball=ball, columns=columns, rows=rows)
