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

from bayesmtfs.compiled import inner
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
        return values - (self.task_sums(values) / np.diff(self.offsets))[self.task]

    # ------------------------------------------------------------------ rows and features

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

    @property
    def still(self) -> "BallRows":
        """No change."""
        return BallRows(np.zeros_like(self.entries), np.zeros_like(self.balls))


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

    own: FloatArray  # (R, K) diagonal of H
    shared: FloatArray  # (R, K) direction of the outer product in H
    slope: FloatArray  # (R, K) of ``c^q*``
    curvature: FloatArray  # (R, K) of ``c^q*``, times the price of the ball
    stiffness: FloatArray  # (R, K) of the radii
    weight: FloatArray  # (R,)


class Pull(NamedTuple):
    """What a Newton step aims at, before the scores change: all (R, K), but the price of the ball (R,)."""

    coefficients: FloatArray
    force: FloatArray  # on the radii
    price_up: FloatArray
    price_down: FloatArray
    price_ball: FloatArray


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
    slack, price = _longest(rows, change, exponent, longest)
    if exponent < math.inf and exponent != 2.0:
        radius, radius_change = rows.entries[RADIUS], change.entries[RADIUS]
        while _inside(radius + slack * radius_change, exponent).min(initial=1.0) <= 0.0:
            slack *= SHORTER
    return Lengths(slack, price)


@njit(cache=True, error_model="numpy")
def _longest(rows: BallRows, change: BallRows, exponent: float, longest: Lengths) -> tuple[float, float]:
    """Longest steps in slacks and prices, inside curved balls at q = 2 only; NaN where the change has one."""
    (entries, balls), (moves, balls_moves) = rows, change
    fastest, cheapest, everything = 1.0 / longest.slack, 1.0 / longest.price, 0.0  # the largest shrinkages
    for i in range(entries.shape[1]):
        square, half = 0.0, 0.0
        for t in range(entries.shape[2]):
            for k in range(RADIUS, PRICE_UP):
                fastest = max(fastest, -moves[k, i, t] / entries[k, i, t])
            for k in range(PRICE_UP, PRICE_DOWN + 1):
                cheapest = max(cheapest, -moves[k, i, t] / entries[k, i, t])
            square += moves[RADIUS, i, t] ** 2
            half += moves[RADIUS, i, t] * entries[RADIUS, i, t]
            everything += moves[PRICE_UP, i, t] + moves[PRICE_DOWN, i, t]
        if exponent < np.inf:
            cheapest = max(cheapest, -balls_moves[PRICE_BALL, i] / balls[PRICE_BALL, i])
        if exponent == 2.0:
            # the root of a quadratic equation, without cancellation
            fastest = max(fastest, (half + math.sqrt(half**2 + square * balls[BALL, i])) / balls[BALL, i])
    return (1.0 / fastest, 1.0 / cheapest) if everything == everything else (np.nan, np.nan)


@njit(cache=True, error_model="numpy")
def complementarity(rows: BallRows, change: BallRows, lengths: Lengths) -> float:
    """Sum of ``slack * price`` after a step, with slacks that change linearly."""
    (entries, balls), (moves, balls_moves), (slack, price) = rows, change, lengths
    total = 0.0
    for i in range(entries.shape[1]):
        room = balls[BALL, i] + slack * balls_moves[BALL, i]
        total += room * (balls[PRICE_BALL, i] + price * balls_moves[PRICE_BALL, i])
        for t in range(entries.shape[2]):
            for k in (UP, DOWN):
                room = entries[k, i, t] + slack * moves[k, i, t]
                total += room * (entries[k + 2, i, t] + price * moves[k + 2, i, t])
    return total


@inner(error_model="numpy")
def _power(radius: float, exponent: float) -> tuple[float, float, float]:
    """First three derivatives of ``c^q*``."""
    if exponent == 2.0:
        return 2.0 * radius, 2.0, 0.0
    slope = exponent * radius ** (exponent - 1.0)
    curve = (exponent - 1.0) * slope / radius
    return slope, curve, (exponent - 2.0) * curve / radius


@njit(cache=True, error_model="numpy")
def respond(rows: BallRows, ball: Ball) -> Response:
    """Eliminate radii and prices from the linearised constraints."""
    entries, balls = rows
    _, n_rows, n_entries = entries.shape
    own, shared, slopes, curvatures, stiffnesses = np.zeros((5, n_rows, n_entries))
    weight = np.zeros(n_rows)
    for i in range(n_rows):
        squared = ball.strength[i] ** 2
        total = balls[BALL, i] / balls[PRICE_BALL, i]
        for t in range(n_entries):
            up = entries[PRICE_UP, i, t] / entries[UP, i, t]
            down = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t]
            if ball.exponent == np.inf:
                own[i, t] = up + down
                continue
            slope, curve, _ = _power(entries[RADIUS, i, t], ball.exponent)
            curvature = balls[PRICE_BALL, i] * curve
            stiffness = squared * (up + down) + curvature
            own[i, t] = ((up + down) * curvature + 4.0 * squared * up * down) / stiffness
            shared[i, t] = ball.strength[i] * (down - up) * slope / stiffness
            slopes[i, t], curvatures[i, t], stiffnesses[i, t] = slope, curvature, stiffness
            total += slope * slope / stiffness
        if ball.exponent < np.inf:
            weight[i] = 1.0 / total
    return Response(own, shared, slopes, curvatures, stiffnesses, weight)


@njit(cache=True, error_model="numpy")
def pull(rows: BallRows, ball: Ball, response: Response, product: float, before: BallRows) -> Pull:
    """Coefficients at which ``slack * price = product`` while the scores stay.

    The second-order terms of an earlier step ``before`` (zeros for none) are corrected (Mehrotra 1992, *SIAM Journal on
    Optimization* 2:575-601, here with the curvature of the ball).
    """
    (entries, balls), (earlier, balls_earlier) = rows, before
    _, n_rows, n_entries = entries.shape
    coefficients, force, price_up, price_down = np.zeros((4, n_rows, n_entries))
    price_ball = np.zeros(n_rows)
    for i in range(n_rows):
        for t in range(n_entries):
            price_up[i, t] = (product - earlier[UP, i, t] * earlier[PRICE_UP, i, t]) / entries[UP, i, t]
            price_down[i, t] = (product - earlier[DOWN, i, t] * earlier[PRICE_DOWN, i, t]) / entries[DOWN, i, t]
            coefficients[i, t] = price_up[i, t] - price_down[i, t]
        if ball.exponent == np.inf:
            continue
        price, curved = balls[PRICE_BALL, i], 0.0
        for t in range(n_entries):
            slope, curve, third = _power(entries[RADIUS, i, t], ball.exponent)
            change = earlier[RADIUS, i, t]
            curved += curve * change * change
            curving = balls_earlier[PRICE_BALL, i] * curve * change + 0.5 * price * third * change * change
            force[i, t] = curving - ball.strength[i] * (price_up[i, t] + price_down[i, t])
        correction = balls_earlier[BALL, i] * balls_earlier[PRICE_BALL, i] - 0.5 * price * curved
        price_ball[i] = (product - correction) / balls[BALL, i]
        total = 0.0
        for t in range(n_entries):
            force[i, t] += response.slope[i, t] * price_ball[i]
            total += response.slope[i, t] * force[i, t] / response.stiffness[i, t]
        for t in range(n_entries):
            skew = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t] - entries[PRICE_UP, i, t] / entries[UP, i, t]
            rest = force[i, t] - response.slope[i, t] * response.weight[i] * total
            coefficients[i, t] -= ball.strength[i] * skew * rest / response.stiffness[i, t]
    return Pull(coefficients, force, price_up, price_down, price_ball)


@njit(cache=True, error_model="numpy")
def move(rows: BallRows, ball: Ball, response: Response, pulled: Pull, scores: FloatArray) -> BallRows:
    """Change of everything in the rows that belongs to a change of their scores (R, K)."""
    entries, balls = rows
    change, balls_change = np.zeros(entries.shape), np.zeros(balls.shape)
    for i in range(entries.shape[1]):
        strength, total = ball.strength[i], 0.0
        if ball.exponent < np.inf:
            for t in range(entries.shape[2]):
                skew = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t] - entries[PRICE_UP, i, t] / entries[UP, i, t]
                push = pulled.force[i, t] + strength * skew * scores[i, t]
                total += response.weight[i] * response.slope[i, t] * push / response.stiffness[i, t]
        for t in range(entries.shape[2]):
            rate_up = entries[PRICE_UP, i, t] / entries[UP, i, t]
            rate_down = entries[PRICE_DOWN, i, t] / entries[DOWN, i, t]
            score = scores[i, t]
            up, down = -score, score
            if ball.exponent < np.inf:
                # lam dc - dg and lam dc + dg, where nothing cancels although one side may be tight
                stiffness, curvature = response.stiffness[i, t], response.curvature[i, t]
                push = strength * (response.slope[i, t] * total - pulled.force[i, t])
                up = (push - score * (2.0 * strength**2 * rate_down + curvature)) / stiffness
                down = (push + score * (2.0 * strength**2 * rate_up + curvature)) / stiffness
                change[RADIUS, i, t] = 0.5 * (up + down) / strength
                balls_change[BALL, i] -= response.slope[i, t] * change[RADIUS, i, t]
            change[SCORE, i, t], change[UP, i, t], change[DOWN, i, t] = score, up, down
            change[PRICE_UP, i, t] = pulled.price_up[i, t] - entries[PRICE_UP, i, t] - rate_up * up
            change[PRICE_DOWN, i, t] = pulled.price_down[i, t] - entries[PRICE_DOWN, i, t] - rate_down * down
        if ball.exponent < np.inf:
            rate = balls[PRICE_BALL, i] / balls[BALL, i]
            balls_change[PRICE_BALL, i] = pulled.price_ball[i] - balls[PRICE_BALL, i] - rate * balls_change[BALL, i]
    return BallRows(change, balls_change)


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

    ``own`` and ``shared`` (k, m) are h and u of every feature and task; ``coupling`` (k, k) is a lower triangle in Fortran
    order, to which the sum of ``diag(u) X' P X diag(u)`` is added.
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
        mean = columns.task_sums(self.inverse * f) / self.total
        self.f = f - mean[columns.task]
        self.known = self.root * columns.adjoint(self.inverse * self.f).T
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
        x += self.inverse * (self.f - columns.predictor(scaled.T) + constant[columns.task])
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
def _weigh(X: FloatArray, means: FloatArray, left: FloatArray, right: FloatArray, result: FloatArray) -> None:
    """``diag(left) (X - means) diag(right)``, X and the result transposed."""
    for j in range(X.shape[0]):
        for i in range(X.shape[1]):
            result[j, i] = left[i] * (X[j, i] - means[j]) * right[j]


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
            forces = dpotrs(self.lower, columns.sum_to_row(pressed), lower=1)[0][columns.row]
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

    Residuals of a solution up to ``accuracy``, relative to the right hand side, need no refinement. Where a slack is 0 or
    less there is no such system: a `BreakdownError`.
    """

    def __init__(self, columns: WorkingColumns, E: FloatArray, response: Response, accuracy: float) -> None:
        self.columns, self.E, self.weight, self.accuracy = columns, E, response.weight, accuracy
        own, self.shared = columns.blocks.scatter(response.own), columns.blocks.scatter(response.shared)
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
        radial = (self.weight * columns.sum_to_row(np.vecdot(self.shared, scores)))[columns.row]
        residual = f - self.E * x - columns.predictor(self.own * scores + self.shared * radial[:, np.newaxis])
        return columns.without_means(residual) if columns.fit_intercept else residual


# ---------------------------------------------------------------------- steps


class InteriorSetup(NamedTuple):
    """What stays the same."""

    problem: Problem
    centre: FloatArray  # (N,) middle of the interval of each dual variable
    intervals: Ball  # of N rows with one entry
    ball: Ball  # of all rows


class Change(NamedTuple):
    """A step, before its length is chosen."""

    theta: FloatArray
    observations: BallRows
    rows: BallRows


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

    @property
    def still(self) -> Change:
        """No step."""
        return Change(np.zeros(len(self.observations.balls[BALL])), self.observations.still, self.rows.still)


class Linearised:
    """A state, the Newton system there (solved as accurately as the relative gap needs), and the step that it predicts."""

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
        before = state.still if before is None else before
        pulled = pull(state.rows, state.ball, self.coefficients, product, before.rows)
        pulled_observations = pull(state.observations, setup.intervals, self.residuals, product, before.observations)
        predictor = columns.predictor(columns.blocks.scatter(pulled.coefficients))
        wanted = state.intercept[problem.data.task] - problem.kinks.place - predictor
        theta = self.system.solve(wanted - pulled_observations.coefficients[:, 0])
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
    change = state.still if change is None else change
    total = complementarity(state.observations, change.observations, lengths)
    return (total + complementarity(state.rows, change.rows, lengths)) / state.n_constraints


def step(linearised: Linearised, floor: float) -> InteriorState:
    """Correct the predicted step, and go as far as the constraints allow; no product need fall below the floor."""
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
    coefficients = columns.blocks.scatter(state.rows.coefficients + change.rows.coefficients)
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
