"""Interior-point method for losses of two straight pieces, such as hinge and absolute, with any row penalty.

Objective: the convex problem of `problem`; its dual (see `saddle_point`) is

    minimise over theta:   sum_i theta_i place_i
    subject to             theta_i in its interval,  sum of theta over each task = 0 (with an intercept),
                           every row of X' theta in the dual ball of the penalty (`interior_point.Ball`).

The algorithm is the primal-dual predictor-corrector method of Mehrotra (1992, *SIAM Journal on Optimization* 2:575-601)
for a convex program (Boyd and Vandenberghe 2004, section 11.7). Theta stays strictly feasible, so that every iterate
gives a lower bound on the minimum; the prices of the constraints are the coefficients. What makes it fast:

- the number of steps, 10 to 20, hardly depends on the data, the penalty or q;
- a step factorises one small matrix per task, and one that couples the rows;
- only rows near the boundary of their ball take part. Few are at first, and rows that stay inside leave
  as the gap closes. A step ends before any other row leaves its ball, so that the bound holds for all features.

Coefficients that are 0 in the limit are set to exactly 0 before a solution is certified. Where the penalty is tiny and
tasks have more observations than features, the minimum of the loss alone is tried first (`saddle_point`).

**The largest penalty.** At W = 0 and the best intercept, the hinge has all observations of the larger class at its kink,
and the absolute loss those that tie at the median. Their dual variables are free as far as their intervals and the sum
of 0 allow, and ``lambda_max`` is the smallest over this set of the largest dual norm of a row of ``X' theta``. By
duality it is

    lambda_max = max over directions D of  - loss'(0; D) / penalty(D),

with ``loss'(0; D) = max over theta of <theta, X D>`` the directional derivative of the loss with its best intercept: a
fractional program, solved as Dinkelbach (1967, *Management Science* 13:492-498) does. Every direction gives a bound from
below. If W = 0 does not solve the penalised problem just above the best bound so far, its solution is a better direction.
"""

from dataclasses import replace

import numpy as np

from bayesmtfs.compiled import threads_that_pay
from bayesmtfs.convex import interior_point, saddle_point
from bayesmtfs.convex.interior_point import (
    Ball,
    BreakdownError,
    InteriorSetup,
    InteriorState,
    Linearised,
    WorkingColumns,
)
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.saddle_point import balanced, best_intercept, without_settled_tasks
from bayesmtfs.families import total
from bayesmtfs.priors.row_penalty import dual_exponent, row_norms
from bayesmtfs.progress import Progress, share_of_way
from bayesmtfs.types import BoolArray, FloatArray, Solution

FIRST_ROWS = 50  # working set at the start
FIRST_SHARE = 0.5  # of the interval of theta that the start uses at most
FIRST_LEVEL = 0.9  # of the penalty strength that the largest dual norm has at the start
ROW_PRODUCT = 3.0  # products of slack and price of the rows at the start, relative to those of the observations
LEAST_PRODUCT = 0.002  # of the gap to reach, spread over the observations: smaller products only invite rounding errors
CLOSE = 10.0  # times the gap to reach: from there on, coefficients are set to 0
PROMISING = 60.0  # times the gap to reach: from there on, the end of a full step is tried
ZEROING = (np.inf, 1.0, 1e-2, 1e-4)  # how eagerly: all of them first
PATIENCE = 12  # steps without a smaller gap before giving up

SHARE_OF_BOUND = 0.6  # of the simple bound of the largest penalty, where the search for it begins
SMALLER = 0.7  # factor where W is 0 at the first strength already
ENOUGH = 1e-6  # relative growth that the next direction must bring
SOLVED = 1e-8  # gap of a solution that serves as a direction
MOST_DIRECTIONS = 30


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
    problem : what to minimise; its loss has kinks
    start : an earlier solution, whose rows take part from the beginning
    tol : gap to reach, relative to the objective at W = 0
    max_iter : most steps
    progress : see `progress.Progress`
    """
    whole = problem
    problem, settled = without_settled_tasks(_in_double(whole))
    setup = _setup(problem)
    best = _at_zero(problem, tol)
    if not (settled.all() or best.converged) and saddle_point.vertex_applies(problem):
        best = saddle_point.solve_at_vertex(problem, best, tol=tol)
    if settled.all() or best.converged:
        return _with_settled(best, whole, settled)
    state = _first_state(setup, start, settled)
    floor = LEAST_PRODUCT * tol * best.scale / (2 * problem.data.n_observations)
    trace, since_best = [best.objective], 0
    with threads_that_pay(problem.data.system_operations), Progress("interior point", progress) as work:
        try:
            while not best.converged and len(trace) <= max_iter and since_best < PATIENCE:
                linearised = Linearised(setup, state, best.gap / best.objective)
                found = _ahead(linearised, best, tol)
                if not found.converged:
                    state = interior_point.step(linearised, floor * 0.1**since_best)
                    found = _certified(setup, state, best, tol)
                since_best = 0 if found.gap < best.gap else since_best + 1
                best = found._replace(n_iter=len(trace))
                trace.append(best.objective)
                work.update(share_of_way(best.gap, best.scale, tol), f"gap {best.gap:.1e}")
        except BreakdownError:
            best = _unzeroed(setup, state, best, tol)
    best = best._replace(objective_trace=np.array(trace), interrupted=work.interrupted)
    return _with_settled(best, whole, settled)


# ---------------------------------------------------------------------- start


def _in_double(problem: Problem) -> Problem:
    data = problem.data
    if data.design.dtype == np.float64:
        return problem
    return replace(problem, data=replace(data, design=data.design.astype(np.float64)))


def _setup(problem: Problem) -> InteriorSetup:
    kinks, penalty, n_rows = problem.kinks, problem.penalty, problem.blocks.n_rows
    strengths = penalty.strengths(n_rows)
    if not np.all(strengths > 0.0):
        raise ValueError(
            f"penalty_strength times the row weights is 0 for {np.sum(strengths <= 0.0)} of {n_rows} rows; "
            f"loss={problem.family.name!r} needs a positive strength for every row, pass a small one instead"
        )
    intervals = Ball(0.5 * (kinks.right - kinks.left), np.zeros(problem.data.n_observations), np.inf)
    sparsity = np.zeros(n_rows) + penalty.task_sparsity
    # All norms of a single number are the same
    alone = problem.blocks.sizes.max(initial=1) == 1 and not sparsity.any()
    exponent = np.inf if alone else dual_exponent(penalty.norm_q)
    return InteriorSetup(problem, 0.5 * (kinks.right + kinks.left), intervals, Ball(strengths, sparsity, exponent))


def _at_zero(problem: Problem, tol: float) -> Solution:
    """W = 0 with its best intercept, and the bound that a dual point of the loss alone gives."""
    gap = max(problem.null_objective - problem.dual_objective(problem.null_dual), 0.0)
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


def _first_state(setup: InteriorSetup, start: Solution | None, settled: BoolArray) -> InteriorState:
    """Theta inside its intervals and balls, and prices that go with the slacks and the residuals."""
    problem = setup.problem
    theta, scores, levels = _first_theta(problem)
    product = problem.null_objective / (2 * len(theta))
    observations = interior_point.enter((theta - setup.centre)[:, np.newaxis], setup.intervals, product)
    residuals = problem.kinks.place - problem.null_intercept[problem.data.task]
    interior_point.raise_prices(observations, residuals[:, np.newaxis])
    chosen = levels > interior_point.NEAR
    chosen[np.argsort(levels)[-FIRST_ROWS:]] = True
    if start is not None:
        chosen |= problem.blocks.gather(start.W[:, ~settled]).any(axis=1)
    working = np.flatnonzero(chosen)
    ball, columns = setup.ball.take(working), WorkingColumns(problem, working)
    rows = interior_point.enter(columns.scores(theta), ball, ROW_PRODUCT * product)
    return InteriorState(observations, problem.null_intercept, working, ball, columns, rows, scores, levels)


def _first_theta(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Theta inside its intervals, its scores X' theta, and their levels, which are below 1."""
    theta = FIRST_SHARE * problem.null_dual
    if problem.kinks.has_flat_side and saddle_point.vertex_applies(problem):
        # Towards a tiny penalty all shrinks to 0, an end of the intervals, but where it need not
        inner = saddle_point.inner_points(problem)
        theta = np.where(np.isnan(inner), theta, 0.0)
        theta *= min(1.0, _room(problem, theta))
        theta = np.where(np.isnan(inner), theta, inner)
    theta = _off_ends(problem, theta)
    shrink = min(1.0, _room(problem, theta))
    scores = shrink * problem.data.adjoint(theta)
    return shrink * theta, scores, interior_point.levels(problem, scores)


def _off_ends(problem: Problem, theta: FloatArray) -> FloatArray:
    """Theta off the ends of its intervals, of which 0 is one where a side is flat: moved to one share of all intervals."""
    _, left, right = problem.kinks
    if not np.any((theta == left) | (theta == right)):
        return theta
    share = np.full(problem.data.n_tasks, 0.5)
    if problem.fit_intercept:  # the sum over each task has to be 0
        share = -problem.task_sums(left) / problem.task_sums(right - left)
    return FIRST_SHARE * theta + (1.0 - FIRST_SHARE) * (left + share[problem.data.task] * (right - left))


def _room(problem: Problem, theta: FloatArray) -> float:
    """Factor on theta at which the largest level of its scores is where the method begins."""
    largest = float(interior_point.levels(problem, problem.data.adjoint(theta)).max())
    return FIRST_LEVEL / max(largest, np.finfo(float).tiny)


# ---------------------------------------------------------------------- what was found


def _ahead(linearised: Linearised, best: Solution, tol: float) -> Solution:
    """Solution at the end of a full step if that is good enough, else the best so far."""
    if best.gap > PROMISING * tol * best.scale:
        return best
    setup, state = linearised.setup, linearised.state
    theta, coefficients = linearised.ahead()
    lower = setup.problem.dual_objective(balanced(setup.problem, theta))
    found = _zeroed(setup, state, coefficients, best, lower + tol * best.scale)
    return _verified(setup, theta, found, tol) if found.objective - lower <= tol * best.scale else best


def _certified(setup: InteriorSetup, state: InteriorState, best: Solution, tol: float) -> Solution:
    """Best solution known, with the gap to the best lower bound known."""
    theta = state.theta(setup)
    lower = max(best.objective - best.gap, -float(setup.problem.kinks.place @ theta))
    enough = lower + tol * best.scale
    found = _solution(setup, state, state.rows.coefficients, state.intercept, best)
    if found.objective - lower <= CLOSE * tol * best.scale:
        found = _zeroed(setup, state, state.rows.coefficients, best, enough)
    if not found.objective <= max(best.objective, enough):
        found = best
    found = found._replace(gap=max(found.objective - lower, 0.0))
    return _verified(setup, theta, found, tol) if found.gap <= tol * found.scale else found


def _zeroed(
    setup: InteriorSetup, state: InteriorState, coefficients: FloatArray, best: Solution, enough: float
) -> Solution:
    """Solution with exact zeros: coefficients that are small where the slack is large, each on its own scale.

    The first objective that is small enough counts, or else the smallest.
    """
    slack = state.rows.slack / state.ball.strength[:, np.newaxis]
    sizes = np.abs(coefficients)
    solutions = []
    for eagerness in ZEROING:
        kept = sizes > eagerness * np.max(sizes, initial=0.0) * slack
        solutions.append(_solution(setup, state, np.where(kept, coefficients, 0.0), None, best))
        if solutions[-1].objective <= enough:
            return solutions[-1]
    return min(solutions, key=lambda solution: solution.objective)


def _solution(
    setup: InteriorSetup, state: InteriorState, coefficients: FloatArray, intercept: FloatArray | None, best: Solution
) -> Solution:
    """Coefficients of the working set as a solution, with the best intercept where none is given, without its gap."""
    problem, columns, ball = setup.problem, state.columns, state.ball
    W = columns.blocks.scatter(coefficients)
    predictor = columns.predictor(W)
    intercept = best_intercept(problem, predictor) if intercept is None else intercept
    loss = total(problem.family, problem.data.y, predictor + intercept[problem.data.task], problem.weight)
    norms = row_norms(coefficients, problem.penalty.norm_q)
    if ball.sparsity.any():
        norms += ball.sparsity * row_norms(coefficients, 1.0)
    everything = np.zeros_like(best.W)
    everything[columns.features] = W
    shift = np.einsum("km,km->m", columns.means, W)
    return best._replace(W=everything, intercept=intercept - shift, objective=loss + float(ball.strength @ norms))


def _verified(setup: InteriorSetup, theta: FloatArray, found: Solution, tol: float) -> Solution:
    """Objective and gap once more, from the data as they are and all features."""
    problem, data = setup.problem, setup.problem.data
    predictor = data.linear_predictor(found.W, np.zeros(data.n_tasks))
    intercept = best_intercept(problem, predictor)
    objective = problem.objective(found.W, predictor + intercept[data.task])
    gap = max(objective - problem.dual_objective(balanced(problem, theta)), 0.0)
    return found._replace(intercept=intercept, objective=objective, gap=gap, converged=gap <= tol * found.scale)


def _unzeroed(setup: InteriorSetup, state: InteriorState, best: Solution, tol: float) -> Solution:
    """Last resort when rounding errors stop the method: coefficients without exact zeros, if they are good enough."""
    found = _solution(setup, state, state.rows.coefficients, None, best)
    found = _verified(setup, state.theta(setup), found, tol)
    return found if found.converged and not best.converged else best


def _with_settled(best: Solution, problem: Problem, settled: BoolArray) -> Solution:
    """Put the tasks back that were left out: zero coefficients, and an intercept without loss."""
    if not settled.any() or settled.all():
        return best
    W = np.zeros((problem.data.n_features, problem.data.n_tasks))
    intercept = problem.null_intercept.copy()
    W[:, ~settled], intercept[~settled] = best.W, best.intercept
    return best._replace(W=W, intercept=intercept)


# ---------------------------------------------------------------------- the largest penalty


def largest_penalty(problem: Problem) -> float:
    """Smallest strength at which W = 0 is optimal under a loss with kinks, to six digits and from below."""
    bound = problem.largest_penalty
    if not bound > 0.0 or _theta_is_unique(problem):
        return bound
    known, strength = 0.0, SHARE_OF_BOUND * bound
    for _ in range(MOST_DIRECTIONS):
        W = solve(problem.with_strength(strength), tol=SOLVED).W
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
    place, left, right = (part[start:stop] for part in problem.kinks)
    constant = problem.null_intercept[problem.data.task[start]]
    at_kink = place == constant
    fixed = np.where(at_kink, 0.0, np.where(place < constant, right, left))
    return fixed, np.where(at_kink, left, 0.0), np.where(at_kink, right - left, 0.0)


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
