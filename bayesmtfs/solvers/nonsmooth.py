"""Interior-point method for the hinge and the absolute loss with any row penalty.

Objective: the convex problem of `problem`; its dual, a maximum over theta, is in `saddle_point`:

    minimise over theta:   sum_i theta_i y_i
    subject to             theta_i in its interval,  sum of theta over each task = 0 (with an intercept),
                           every row of X' theta in the dual ball of the penalty (`interior_rows`).

The algorithm is the primal-dual predictor-corrector method of Mehrotra (1992, *SIAM Journal on Optimization* 2:575-601)
for a convex program (Boyd and Vandenberghe 2004, section 11.7). Theta stays strictly feasible, so that every iterate has a
lower bound on the minimum; the prices of the constraints are the coefficients. What makes it fast:

- the number of steps, some 15 to 20, hardly depends on the data, the penalty or q;
- a step factorises one small matrix per task, and one that couples the rows (`interior_newton`);
- only rows near the boundary of their ball take part. Few are in the beginning, and rows that stay inside are dropped as
  the gap closes. All rows are watched: a step ends before a row outside the working set leaves its ball.

Coefficients that are 0 in the limit are set to exactly 0 before the objective is certified.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bayesmtfs.likelihoods import total
from bayesmtfs.priors.mixed_norm import dual_exponent, row_norms
from bayesmtfs.priors.sparse_group import SparseGroup
from bayesmtfs.progress import ProgressBar
from bayesmtfs.protocols import FloatArray, IntArray, Solution
from bayesmtfs.solvers import interior_rows
from bayesmtfs.solvers.interior_columns import Columns
from bayesmtfs.solvers.interior_newton import BreakdownError, NewtonSystem
from bayesmtfs.solvers.interior_rows import Ball, Lengths, Rows
from bayesmtfs.solvers.problem import Problem, with_zero_sum
from bayesmtfs.solvers.saddle_point import Box, best_intercept, dual_box, null_dual, without_settled_tasks

UP, DOWN, PRICE_UP, PRICE_DOWN = range(4)  # of the observations; up and down are slacks
FIRST_ROWS = 50  # working set at the start
FIRST_SHARE = 0.5  # of the interval of theta that the start uses at most
ROW_PRODUCT = 3.0  # products of the rows at the start, relative to those of the observations
FIRST_SCORE = 0.9  # of the penalty strength that the largest dual norm has at the start
NEAR = 0.6  # dual norm over strength above which a row takes part
TO_BOUNDARY = 0.98  # share of the longest step
ACCURACY = 0.01  # of the linear algebra, relative to the gap
TOO_SHORT = 0.1  # a step after which the correction is doubted
STALLED = 1e-6  # a step that leads nowhere
STAY = Lengths(0.0, 0.0)
LEAST_CENTRING = 1e-4
LEAST_PRODUCT = 0.002  # of the gap to reach, spread over the observations
ZEROING = (1.0, 1e-2, 1e-4)  # how eagerly coefficients are set to 0; the best of them counts
PATIENCE = 12  # steps without a smaller gap before giving up


class Setup(NamedTuple):
    """What stays the same."""

    problem: Problem
    box: Box
    ball: Ball  # of all rows
    norm_q: float


class State(NamedTuple):
    """What changes from step to step."""

    theta: FloatArray  # (N,)
    intercept: FloatArray  # (m,)
    sides: FloatArray  # (4, N) slacks and prices of the intervals of theta
    working: IntArray  # numbers of the rows that take part
    columns: Columns  # their features
    rows: Rows  # their slacks and prices
    scores: FloatArray  # (p, m) X' theta


class Change(NamedTuple):
    """A step, before its length is chosen."""

    theta: FloatArray
    intercept: FloatArray
    sides: FloatArray
    rows: Rows


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise the problem.

    Parameters
    ----------
    problem : what to minimise; its loss is the hinge or the absolute loss
    start : an earlier solution, whose rows take part from the beginning
    tol : gap to reach, relative to the objective at W = 0
    max_iter : most steps
    progress : see `progress.ProgressBar`
    """
    everything = problem
    problem, settled = without_settled_tasks(_in_double(problem))
    best = _at_zero(problem, tol)
    if settled.all() or best.converged:
        return _with_settled(best, everything, settled)
    setup = _setup(problem)
    state = _first_state(setup, start)
    floor = LEAST_PRODUCT * tol * best.scale / (2 * problem.data.n_observations)
    trace, since_best = [best.objective], 0
    with ProgressBar("interior point", progress) as bar:
        try:
            while not best.converged and len(trace) <= max_iter and since_best < PATIENCE:
                state = _step(setup, state, best, floor * 0.1**since_best)
                found = _certified(setup, state, best, tol)
                since_best = 0 if found.gap < best.gap else since_best + 1
                best = found._replace(n_iter=len(trace))
                trace.append(best.objective)
                bar.update(_fraction(best, tol), f"gap {best.gap:.1e}")
        except BreakdownError:
            pass  # what was found so far is certified
        except KeyboardInterrupt:
            best = best._replace(interrupted=True)
    return _with_settled(best._replace(objective_trace=np.array(trace)), everything, settled)


# ---------------------------------------------------------------------- start


def _in_double(problem: Problem) -> Problem:
    data = problem.data
    if data.design.dtype == np.float64:
        return problem
    return replace(problem, data=replace(data, design=data.design.astype(np.float64)))


def _setup(problem: Problem) -> Setup:
    penalty, n_rows = problem.penalty, problem.blocks.n_rows
    sparse = isinstance(penalty, SparseGroup)
    norm_q = 2.0 if isinstance(penalty, SparseGroup) else float(penalty.norm_q)
    sparsity = np.broadcast_to(np.asarray(penalty.task_sparsity if sparse else 0.0, dtype=np.float64), (n_rows,))
    # all norms of a single number are the same: at q = 1 there are no radii
    single = problem.blocks.sizes.max(initial=1) <= 1
    exponent = np.inf if single and not sparse else dual_exponent(norm_q)
    return Setup(problem, dual_box(problem), Ball(penalty.strengths(n_rows), sparsity, exponent), norm_q)


def _at_zero(problem: Problem, tol: float) -> Solution:
    """W = 0 with its best intercept, and the bound that a dual point of the loss alone gives."""
    gap = max(problem.null_objective - problem.dual_objective(null_dual(problem)), 0.0)
    return Solution(
        W=np.zeros((problem.data.n_features, problem.data.n_tasks)),
        intercept=problem.null_intercept,
        objective=problem.null_objective,
        gap=gap,
        scale=problem.gap_scale,
        converged=gap <= tol * problem.gap_scale,
        n_iter=0,
        objective_trace=np.array([problem.null_objective]),
    )


def _first_state(setup: Setup, start: Solution | None) -> State:
    """Theta inside its intervals and balls, and prices that balance slacks and residuals."""
    problem, box = setup.problem, setup.box
    theta = null_dual(problem)
    scores = problem.data.adjoint(theta)
    levels = _levels(problem, scores)
    shrink = min(FIRST_SHARE, FIRST_SCORE / max(float(levels.max()), 1e-300))
    theta, scores, levels = shrink * theta, shrink * scores, shrink * levels
    product = problem.null_objective / (2 * len(theta))
    residual = problem.data.y - problem.null_intercept[problem.data.task]
    up, down = box.upper - theta, theta - box.lower
    sides = np.stack([up, down, np.maximum(product / up, -residual), np.maximum(product / down, residual)])
    chosen = levels >= np.partition(levels, -min(FIRST_ROWS, len(levels)))[-min(FIRST_ROWS, len(levels))]
    if start is not None:
        chosen |= problem.blocks.gather(start.W).any(axis=1)
    working = np.flatnonzero(chosen | (levels > NEAR))
    columns = Columns(problem, working)
    rows = interior_rows.enter(columns.scores(theta), setup.ball.take(working), ROW_PRODUCT * product)
    return State(theta, problem.null_intercept, sides, working, columns, rows, scores)


def _levels(problem: Problem, scores: FloatArray) -> FloatArray:
    """(R,) Dual norm of every row over the penalty strength: 1 on the boundary of the ball."""
    return problem.penalty.dual_norm(problem.blocks.gather(scores)) / problem.penalty.strength


# ---------------------------------------------------------------------- one step


def _step(setup: Setup, state: State, best: Solution, floor: float) -> State:
    """Predictor, corrector, and as long a step as the constraints allow; no product needs to fall below the floor."""
    ball = setup.ball.take(state.working)
    response = interior_rows.respond(state.rows, ball)
    curvature = np.sum(state.sides[PRICE_UP:] / state.sides[:PRICE_UP], axis=0)
    accuracy = ACCURACY * min(best.gap / best.scale, 1.0)
    system = NewtonSystem(state.columns, curvature, response, accuracy)

    def change_to(product: float, before: Change | None) -> Change:
        pulled = interior_rows.pull(state.rows, ball, response, product, None if before is None else before.rows)
        return _change(setup, state, ball, response, system, pulled, product, before)

    product = _mean_product(state)
    predictor = change_to(0.0, None)
    left = _mean_product(state, predictor, _lengths(state, predictor, ball)) / product
    target = max(min(max(left**3, LEAST_CENTRING), 1.0) * product, floor)
    change = change_to(target, predictor)
    lengths = _lengths(state, change, ball, TO_BOUNDARY)
    if min(lengths) < TOO_SHORT:
        plain = change_to(target, None)
        plain_lengths = _lengths(state, plain, ball, TO_BOUNDARY)
        if min(plain_lengths) > min(lengths):
            change, lengths = plain, plain_lengths
    if not min(lengths) > STALLED:
        raise BreakdownError(f"the step has length {min(lengths)}")
    return _advance(setup, state, change, lengths, best)


def _change(
    setup: Setup,
    state: State,
    ball: Ball,
    response: interior_rows.Response,
    system: NewtonSystem,
    pulled: interior_rows.Pull,
    product: float,
    before: Change | None,
) -> Change:
    """Newton step towards ``slack * price = product``, corrected by the second-order terms of an earlier one."""
    problem, columns, sides = setup.problem, state.columns, state.sides
    aim = np.full_like(sides[:2], product)
    if before is not None:
        aim -= before.sides[:PRICE_UP] * before.sides[PRICE_UP:]
    aim /= sides[:PRICE_UP]
    task = problem.data.task
    pull = columns.predictor(columns.features_of(pulled.entries[interior_rows.PULL]))
    theta = system.solve(state.intercept[task] - problem.data.y - aim[UP] + aim[DOWN] - pull)
    slacks = np.stack([-theta, theta])
    prices = aim - sides[PRICE_UP:] * (1.0 + slacks / sides[:PRICE_UP])
    rows = interior_rows.move(state.rows, ball, response, pulled, columns.scores(theta))
    intercept = np.zeros_like(state.intercept)
    if problem.fit_intercept:
        coefficients = state.rows.coefficients + rows.coefficients
        target = sides[PRICE_UP:] + prices
        residual = problem.data.y - columns.predictor(columns.features_of(coefficients)) + target[UP] - target[DOWN]
        intercept = problem.task_sums(residual) / np.diff(problem.data.offsets) - state.intercept
    return Change(theta, intercept, np.concatenate([slacks, prices]), rows)


def _mean_product(state: State, change: Change | None = None, lengths: Lengths = STAY) -> float:
    """Mean of ``slack * price`` over all constraints, now or after a step."""
    sides, rows = (state.sides, state.rows) if change is None else (change.sides, change.rows)
    slacks = state.sides[:PRICE_UP] + lengths.slack * sides[:PRICE_UP]
    prices = state.sides[PRICE_UP:] + lengths.price * sides[PRICE_UP:]
    of_rows = interior_rows.complementarity(state.rows, rows, lengths)
    return (float(np.vdot(slacks, prices)) + of_rows) / (slacks.size + state.rows.n_constraints)


def _lengths(state: State, change: Change, ball: Ball, share: float = 1.0) -> Lengths:
    """Longest steps that keep all slacks and prices positive, or a share of them, but no more than full steps."""
    shrinkage = change.sides / state.sides
    slack = -1.0 / float(np.min(shrinkage[:PRICE_UP], initial=-share))
    price = -1.0 / float(np.min(shrinkage[PRICE_UP:], initial=-share))
    longest = interior_rows.longest_steps(state.rows, change.rows, ball.exponent, Lengths(slack, price))
    return Lengths(min(1.0, share * longest.slack), min(1.0, share * longest.price))


def _advance(setup: Setup, state: State, change: Change, lengths: Lengths, best: Solution) -> State:
    """Take a step, shortened where a row outside the working set would come too close to its boundary."""
    problem, box, working = setup.problem, setup.box, state.working
    keep = 1.0 - 3.0 * np.sqrt(best.gap / best.objective)
    join = max(NEAR, 0.5 * (1.0 + keep))
    limit = 0.5 * (1.0 + join)
    blocking = np.zeros(problem.blocks.n_rows, dtype=bool)
    scores_change = problem.data.adjoint(change.theta)
    if len(working) < problem.blocks.n_rows:
        now, then = _levels(problem, state.scores), _levels(problem, state.scores + lengths.slack * scores_change)
        blocking = then > limit
        blocking[working] = False
        if blocking.any():
            # levels are convex along the step
            share = float(np.min((limit - now[blocking]) / (then[blocking] - now[blocking])))
            lengths = Lengths(share * lengths.slack, lengths.price)
    theta = state.theta + lengths.slack * change.theta
    scores = state.scores + lengths.slack * scores_change
    intercept = state.intercept + lengths.price * change.intercept
    prices = state.sides[PRICE_UP:] + lengths.price * change.sides[PRICE_UP:]
    sides = np.stack([box.upper - theta, theta - box.lower, *prices])
    ball = setup.ball.take(working)
    rows = interior_rows.advance(state.rows, change.rows, lengths, state.columns.scores(theta), ball)
    moved = state._replace(theta=theta, intercept=intercept, sides=sides, rows=rows, scores=scores)
    levels = _levels(problem, scores)
    inside = np.isin(np.arange(len(levels)), working)
    chosen = np.where(inside, levels >= keep, blocking | (levels > join))
    chosen[np.argmax(levels)] = True
    return _with_working(setup, moved, np.flatnonzero(chosen))


def _with_working(setup: Setup, state: State, working: IntArray) -> State:
    """Change the working set; rows that stay keep their prices."""
    if np.array_equal(working, state.working):
        return state
    columns = Columns(setup.problem, working)
    rows = interior_rows.enter(columns.scores(state.theta), setup.ball.take(working), _mean_product(state))
    _, new, old = np.intersect1d(working, state.working, assume_unique=True, return_indices=True)
    rows.entries[:, new], rows.balls[:, new] = state.rows.entries[:, old], state.rows.balls[:, old]
    return state._replace(working=working, columns=columns, rows=rows)


# ---------------------------------------------------------------------- what was found


def _certified(setup: Setup, state: State, best: Solution, tol: float) -> Solution:
    """Best solution known, with the gap to the best lower bound known."""
    problem = setup.problem
    lower = max(best.objective - best.gap, -float(problem.data.y @ state.theta))
    found = _solution(setup, state, state.rows.coefficients, state.intercept, best)
    if found.objective - lower <= 10.0 * tol * best.scale:
        zeroed = (_solution(setup, state, w, None, best) for w in _zeroed(state, setup.ball.take(state.working)))
        found = min(zeroed, key=lambda solution: solution.objective)
    if not found.objective <= best.objective:
        found = best
    found = found._replace(gap=max(found.objective - lower, 0.0))
    return _verified(problem, state, found, tol) if found.gap <= tol * found.scale else found


def _solution(
    setup: Setup, state: State, coefficients: FloatArray, intercept: FloatArray | None, best: Solution
) -> Solution:
    problem, columns, ball = setup.problem, state.columns, setup.ball.take(state.working)
    W = columns.features_of(coefficients)
    predictor = columns.predictor(W)
    intercept = best_intercept(problem, predictor) if intercept is None else intercept
    loss = total(problem.likelihood, problem.data.y, predictor + intercept[problem.data.task], problem.weight)
    norms = row_norms(coefficients, setup.norm_q) + ball.sparsity * row_norms(coefficients, 1.0)
    everything = np.zeros_like(best.W)
    everything[columns.features] = W
    shift = np.einsum("km,km->m", columns.means, W)
    return best._replace(W=everything, intercept=intercept - shift, objective=loss + float(ball.strength @ norms))


def _zeroed(state: State, ball: Ball) -> list[FloatArray]:
    """Coefficients with zeros where the score is further from the end of its interval than the coefficient from 0."""
    w = state.rows.coefficients
    slack = np.min(state.rows.entries[interior_rows.UP : interior_rows.DOWN + 1], axis=0)
    scale = np.max(np.abs(w), initial=0.0) / ball.strength[:, np.newaxis]
    return [np.where(np.abs(w) <= eager * scale * slack, 0.0, w) for eager in ZEROING]


def _verified(problem: Problem, state: State, found: Solution, tol: float) -> Solution:
    """Objective and gap once more, from the data as they are and all features."""
    data = problem.data
    predictor = data.linear_predictor(found.W, np.zeros(data.n_tasks))
    intercept = best_intercept(problem, predictor)
    objective = problem.objective(found.W, predictor + intercept[data.task])
    theta = with_zero_sum(state.theta, data.task, data.offsets[:-1]) if problem.fit_intercept else state.theta
    gap = max(objective - problem.dual_objective(theta), 0.0)
    return found._replace(intercept=intercept, objective=objective, gap=gap, converged=gap <= tol * found.scale)


def _with_settled(best: Solution, problem: Problem, settled: FloatArray) -> Solution:
    """Put the tasks back that were left out: zero coefficients, and an intercept without loss."""
    if not settled.any() or settled.all():
        return best
    W = np.zeros((problem.data.n_features, problem.data.n_tasks))
    intercept = problem.null_intercept.copy()
    W[:, ~settled], intercept[~settled] = best.W, best.intercept
    return best._replace(W=W, intercept=intercept)


def _fraction(best: Solution, tol: float) -> float:
    """How far the gap has come, on a log scale."""
    relative = best.gap / best.scale if best.scale > 0 else tol
    return 1.0 if relative <= tol else float(np.log10(max(1.0 / relative, 1.0)) / np.log10(1.0 / tol))
