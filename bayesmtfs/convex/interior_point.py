"""One step of the interior-point method for the hinge and the absolute loss; `nonsmooth` says what it is for.

The dual variables theta, one per observation, stay strictly inside their intervals, and the rows of ``X' theta`` strictly
inside their dual balls: both are kept as `interior_rows.Rows`. Only rows near the boundary of their ball, the working
set, take part in a step; the others are watched.
"""

from typing import NamedTuple

import numpy as np

from bayesmtfs.convex import interior_rows
from bayesmtfs.convex.interior_columns import Columns
from bayesmtfs.convex.interior_newton import NewtonSystem
from bayesmtfs.convex.interior_rows import PULL, SCORE, Ball, Lengths, Rows
from bayesmtfs.convex.interior_tasks import BreakdownError
from bayesmtfs.convex.problem import Problem
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
STAY = Lengths(0.0, 0.0)


class Setup(NamedTuple):
    """What stays the same."""

    problem: Problem
    centre: FloatArray  # (N,) middle of the interval of each dual variable
    intervals: Ball  # of N rows with one entry
    ball: Ball  # of all rows


class State(NamedTuple):
    """What changes from step to step."""

    observations: Rows  # theta minus the centre of its interval
    intercept: FloatArray  # (m,)
    working: IntArray  # numbers of the rows that take part
    ball: Ball  # their dual balls
    columns: Columns  # their features
    rows: Rows
    scores: FloatArray  # (p, m) X' theta
    levels: FloatArray  # (R,) dual norm of every row over the penalty strength: 1 on the boundary

    def theta(self, setup: Setup) -> FloatArray:
        """(N,) Dual point."""
        return setup.centre + self.observations.entries[SCORE, :, 0]

    @property
    def n_constraints(self) -> int:
        """Number of products ``slack * price``."""
        return self.observations.n_constraints + self.rows.n_constraints


class Change(NamedTuple):
    """A step, before its length is chosen."""

    theta: FloatArray
    observations: Rows
    rows: Rows


class Linearised:
    """A state, the Newton system there, and the step that it predicts.

    Parameters
    ----------
    setup : the problem
    state : the state
    gap : relative gap so far, which the linear algebra goes by
    """

    def __init__(self, setup: Setup, state: State, gap: float) -> None:
        self.setup, self.state, self.gap = setup, state, gap
        self.product = mean_product(state)
        if not np.isfinite(self.product):
            raise BreakdownError(f"the mean product of slack and price is {self.product}")
        self.residuals = interior_rows.respond(state.observations, setup.intervals)
        self.coefficients = interior_rows.respond(state.rows, state.ball)
        accuracy = ACCURACY * min(gap, 1.0)
        self.system = NewtonSystem(state.columns, self.residuals.own[:, 0], self.coefficients, accuracy)
        self.predictor = self.change_to(0.0)

    def ahead(self) -> tuple[FloatArray, FloatArray]:
        """Dual point (N,) and coefficients (R, K) at the end of a full corrected step, almost at the solution.

        Rows may end outside their balls: the dual point has to be scaled. That costs little where balls are curved,
        while the next state has to stay inside and cannot go as far.
        """
        state, change = self.state, self.change_to(FAR_AHEAD * self.product, self.predictor)
        within = interior_rows.longest_steps(state.observations, change.observations, np.inf, Lengths(1.0, 1.0))
        inside = state.observations.entries[SCORE, :, 0] + within.slack * change.theta
        limit = self.setup.intervals.strength
        theta = self.setup.centre + np.clip(inside, -limit, limit)
        return theta, state.rows.coefficients + within.price * change.rows.coefficients

    def change_to(self, product: float, before: Change | None = None) -> Change:
        """Newton step towards ``slack * price = product``, corrected by the second-order terms of an earlier one."""
        setup, state = self.setup, self.state
        problem, columns = setup.problem, state.columns
        before_observations, before_rows = (None, None) if before is None else (before.observations, before.rows)
        pulled = interior_rows.pull(state.rows, state.ball, self.coefficients, product, before_rows)
        pulled_observations = interior_rows.pull(
            state.observations, setup.intervals, self.residuals, product, before_observations
        )
        predictor = columns.predictor(columns.features_of(pulled.entries[PULL]))
        wanted = state.intercept[problem.data.task] - problem.data.y - predictor
        theta = self.system.solve(wanted - pulled_observations.entries[PULL, :, 0])
        rows = interior_rows.move(state.rows, state.ball, self.coefficients, pulled, columns.scores(theta))
        observations = interior_rows.move(
            state.observations, setup.intervals, self.residuals, pulled_observations, theta[:, np.newaxis]
        )
        return Change(theta, observations, rows)


def levels(problem: Problem, scores: FloatArray) -> FloatArray:
    """(R,) Dual norm of every row of scores (p, m) over the penalty strength."""
    return problem.penalty.dual_norm(problem.blocks.gather(scores)) / problem.penalty.strength


def mean_product(state: State, change: Change | None = None, lengths: Lengths = STAY) -> float:
    """Mean of ``slack * price`` over all constraints, now or after a step."""
    observations, rows = (state.observations, state.rows) if change is None else (change.observations, change.rows)
    total = interior_rows.complementarity(state.observations, observations, lengths)
    total += interior_rows.complementarity(state.rows, rows, lengths)
    return total / state.n_constraints


def step(linearised: Linearised, floor: float) -> State:
    """Correct the predicted step, and go as far as the constraints allow.

    Parameters
    ----------
    linearised : where to start from
    floor : what no product of slack and price needs to fall below

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


def _lengths(setup: Setup, state: State, change: Change, share: float = 1.0) -> Lengths:
    """Longest steps that keep all slacks and prices positive, or a share of them, but no more than full steps."""
    full = Lengths(1.0 / share, 1.0 / share)
    longest = interior_rows.longest_steps(state.observations, change.observations, setup.intervals.exponent, full)
    longest = interior_rows.longest_steps(state.rows, change.rows, state.ball.exponent, longest)
    return Lengths(min(1.0, share * longest.slack), min(1.0, share * longest.price))


def _advance(setup: Setup, state: State, change: Change, lengths: Lengths, gap: float) -> State:
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
        observations=interior_rows.advance(state.observations, change.observations, lengths, inside, setup.intervals),
        intercept=state.intercept + lengths.price * _intercept_change(setup, state, change),
        rows=interior_rows.advance(state.rows, change.rows, lengths, columns.scores(theta), state.ball),
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


def _intercept_change(setup: Setup, state: State, change: Change) -> FloatArray:
    """(m,) Change of the intercepts that belongs to a full step: residuals are what observations and rows say they are."""
    problem, columns = setup.problem, state.columns
    if not problem.fit_intercept:
        return np.zeros_like(state.intercept)
    coefficients = columns.features_of(state.rows.coefficients + change.rows.coefficients)
    residuals = (state.observations.coefficients + change.observations.coefficients)[:, 0]
    constants = problem.data.y - columns.predictor(coefficients) - residuals
    return problem.task_sums(constants) / np.diff(problem.data.offsets) - state.intercept


def _with_working(setup: Setup, state: State, joining: BoolArray, leave: float) -> State:
    """Change the working set; rows that stay keep their prices.

    Rows leave that are both far from their boundary and small, each compared with the row that is furthest in it.
    """
    distance = 1.0 - state.levels[state.working]
    sizes = np.max(np.abs(state.rows.coefficients), axis=1)
    staying = (distance <= 1.0 - leave) | (sizes >= distance * sizes.max())
    if not joining.any() and np.mean(~staying) <= FEW:
        return state
    joining[state.working[staying]] = True
    working = np.flatnonzero(joining)
    ball, columns = setup.ball.take(working), Columns(setup.problem, working)
    rows = interior_rows.enter(columns.scores(state.theta(setup)), ball, mean_product(state))
    _, new, old = np.intersect1d(working, state.working, assume_unique=True, return_indices=True)
    rows.entries[:, new], rows.balls[:, new] = state.rows.entries[:, old], state.rows.balls[:, old]
    return state._replace(working=working, ball=ball, columns=columns, rows=rows)
